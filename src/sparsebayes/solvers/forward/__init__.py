"""Forward selection by marginal likelihood (Sun & Yao 2006): docs/theory/forward.md.

Read `selection` first: the steps of the search. `routes` holds the scores of all candidates and the
ways to get them (exact columns, which stand on `solvers.greedy`, their Gram matrix, low rank),
`path` the models along the chosen order, `gp_prior` those under a Gaussian-process prior on the
chosen functions.
"""
