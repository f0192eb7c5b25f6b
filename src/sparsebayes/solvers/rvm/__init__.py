"""Relevance vector machines (Tipping 2001; Tipping & Faul 2003): docs/theory/rvm.md.

Read `basic` first: the model, its evidence and the re-estimation of all precisions at once. `fast`
adds, re-estimates and deletes one function at a time; `auto`, the default, starts with all
functions compressed to a few dimensions (`dense_start`), then re-estimates, deletes and adds until
no single change gains (`polish`). What one function gains at its best precision is in `one_column`.

For labels under Laplace's approximation: `laplace` (the same search: `search` tells its stages and
holds what both share), and `laplace_em` (all precisions at once, by sums over rows). `process` is
their rival for chosen kernels: one variance for all functions.
"""
