"""Bayesian backfitting (D'Souza et al. 2004): docs/theory/backfitting.md.

Read `regression` first: the bound and its cycle. `factorised` holds the updates with independent
weights, `active_set` the exact posterior of few columns, `mean_solvers` the linear algebra of the
mean, `low_rank` the starting values and the preconditioner of overlapping columns, `ridge` the one
precision that all weights share, `logistic` labels, `smoothers` additive models of any regressors,
and `width` the gradient of the bound with respect to a kernel's width. `fake_targets` is the scheme
as published.
"""
