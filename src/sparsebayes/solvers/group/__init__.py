"""Groups of columns under a spike and slab (Hernández-Lobato et al. 2013): docs/theory/group.md.

Read `ep` first: expectation propagation, step by step. `sites` are its approximate factors,
`marginals` the Gaussian part (`row_form` for few rows, `column_form` for few columns), `clusters`
the near-duplicates that share a site, `learning` and `mixing` the steps of hyperparameters and
sites. `search` starts EP several times, `screening` does so on many columns. After EP,
`enumeration` sums over the `models` of undecided groups, and `credible_sets` summarises them.
`probit` is EP for labels, `gibbs` the sampler. The alternatives `ard` and `shrinkage` (horseshoe
and Bayesian group lasso) are other priors.
"""
