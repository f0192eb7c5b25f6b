"""Groups of columns under a spike and slab (Hernández-Lobato et al. 2013): docs/theory/group.md.

Read `ep` first: expectation propagation, step by step; `sites` are its approximate factors, `forms`
the marginals for few rows and for few columns. `search` starts it several times and learns
hyperparameters, `screening` does so on many columns, `joint` looks at undecided groups together and
tells sets of them, `probit` does labels. The references and rivals: `gibbs`, `ard` and `shrinkage`
(horseshoe and Bayesian group lasso).
"""
