"""Generators of data sets whose true function or weights are known."""

from __future__ import annotations

from .generators import make_chen_example, make_grouped_signal, make_sinc, make_sparse_signal

__all__ = [
    "make_chen_example",
    "make_grouped_signal",
    "make_sinc",
    "make_sparse_signal",
]
