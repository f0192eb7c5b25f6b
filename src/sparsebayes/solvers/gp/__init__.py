"""Gaussian processes of all training rows: docs/theory/neighbours.md.

`exact` factorises the kernel matrix of all rows. `neighbours` approximates the same process for any
number of rows by selected functions (`solvers.forward`) and the nearest training rows; `cells` does
so for thousands of these, and `neighbour_scales` learns its noise and scales.
"""
