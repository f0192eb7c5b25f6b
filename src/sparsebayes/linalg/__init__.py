"""Factorisations that the solvers share."""

from .factor import inverse_root, inverse_root_qr
from .pivoted_cholesky import pivoted_cholesky

__all__ = ["inverse_root", "inverse_root_qr", "pivoted_cholesky"]
