"""Forward selection by marginal likelihood (Sun & Yao 2006): docs/theory/forward.md.

Read `selection` first: the steps of the search. `routes` holds the scores of all candidates and the
ways to get them (exact columns, which stand on `solvers.greedy`, their Gram matrix, low rank),
`path` the models along the chosen order, also under the Gaussian-process prior on the functions
chosen; `process` the Gaussian process of all rows, where nothing is chosen. `neighbours` is that of
any number of rows, which the functions chosen and the rows around a new one tell together: `cells`
solves it for thousands of these, `neighbour_scales` finds its noise and what else is open.
"""
