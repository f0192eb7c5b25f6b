"""Forward selection by marginal likelihood (Sun & Yao 2006): docs/theory/forward.md.

Read `selection` first: the steps of the search. `greedy` holds the scores of all candidates and
their recursions, `routes` the ways to get them (exact columns, their Gram matrix, low rank), `path`
the models along the chosen order, also under the Gaussian-process prior on the functions chosen.
"""
