"""Orthogonal least squares: OLS, UROLS and LROLS (Chen 1991, 2001): docs/theory/ols.md.

Read `lrols` first: choosing terms, when to stop, and their regularisers. `orthogonal` holds the
terms chosen, and the candidates (`solvers.greedy`) with what leave-one-out needs.
"""
