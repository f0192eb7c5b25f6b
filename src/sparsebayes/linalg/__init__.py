"""Factorisations that the solvers share."""

from .factor import inverse_root, inverse_root_qr

__all__ = ["inverse_root", "inverse_root_qr"]
