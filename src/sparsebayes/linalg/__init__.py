"""Factorisations that the solvers share."""

from .factor import add_to_diagonal, inverse_root, inverse_root_qr, pivoted_cholesky, solve_positive

__all__ = [
    "add_to_diagonal",
    "inverse_root",
    "inverse_root_qr",
    "pivoted_cholesky",
    "solve_positive",
]
