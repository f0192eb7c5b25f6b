"""Relevance vector machines (Tipping 2001; Tipping & Faul 2003): docs/theory/rvm.md.

Read `basic` first: the model, its evidence and the re-estimation of all precisions at once. `fast`
adds, re-estimates and deletes one function at a time; `auto`, the default, starts with all
functions compressed to a few dimensions (`dense_start`), then re-estimates, deletes and adds until
no single change gains (`polish`). What one function gains at its best precision is in `one_column`.

For labels, under Laplace's approximation, read `laplace` first. It is the same search (`search` has
its stages and what both share): all functions at first (`laplace_start`), then one precision after
the other in the Gaussian model around a mode (`laplace_curvature`). `laplace_em` re-estimates all
precisions at once, from sums over the rows (`laplace_sums`). `process` is the alternative for
kernels that were chosen: one variance for all functions.
"""
