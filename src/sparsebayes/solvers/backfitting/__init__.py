"""Bayesian backfitting (D'Souza et al. 2004): docs/theory/backfitting.md.

Read `regression` first: the bound and its cycle. `factorised` holds the updates with independent
weights, `active_set` the exact end on few columns, `mean_solvers` the linear algebra of the
mean, `logistic` labels, `smoothers` additive models of any regressors, `width` the
slope of the bound with respect to a kernel's width. `fake_targets` is the scheme as published.
"""
