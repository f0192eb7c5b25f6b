"""Orthogonal least squares: OLS, UROLS and LROLS (Chen 1991, 2001): docs/theory/ols.md.

Read `selection` first: the solver. `criteria` scores the candidates and the lengths of a path,
`regularisers` has the lam of highest evidence, and `orthogonal` holds the terms and the candidates.
"""
