"""Data sets: generators whose truth is known, and loaders of the sets the papers use.

The generators need nothing. The loaders look for their files in `data_home`, then in the folder
`$SPARSEBAYES_DATA`, then in the cache folder, and say where they looked when there is none.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .files import PathLike, locate
from .generators import make_chen_example, make_grouped_signal, make_sinc, make_sparse_signal
from .loaders import (
    load_abalone,
    load_bardet,
    load_birthwt,
    load_boston,
    load_california,
    load_cascaded_tanks,
    load_cpu,
    load_mnist,
    load_ozone,
    load_riboflavin,
    load_sentiment,
    load_silverbox,
)
from .registry import DATASETS

__all__ = [
    "DatasetInfo",
    "list_datasets",
    "load_abalone",
    "load_bardet",
    "load_birthwt",
    "load_boston",
    "load_california",
    "load_cascaded_tanks",
    "load_cpu",
    "load_mnist",
    "load_ozone",
    "load_riboflavin",
    "load_sentiment",
    "load_silverbox",
    "make_chen_example",
    "make_grouped_signal",
    "make_sinc",
    "make_sparse_signal",
]


class DatasetInfo(NamedTuple):
    """One line of `list_datasets`.

    Parameters
    ----------
    name, loader : str
        The data set, and the function that reads it.
    n_samples, n_features : int
        Its rows and inputs.
    target : str
        What is to be predicted.
    path : Path or None
        Its file; None where it was not found.
    """

    name: str
    loader: str
    n_samples: int
    n_features: int
    target: str
    path: Path | None


def list_datasets(data_home: PathLike | None = None) -> list[DatasetInfo]:
    """The data sets that have a loader, and where their files are on this machine.

    Parameters
    ----------
    data_home : path-like, default=None
        A folder to look in before the usual ones.

    Returns
    -------
    list of DatasetInfo
        Name, loader, number of rows and inputs, target, and the file (None if not found; nothing is
        read or downloaded to find out).

    Examples
    --------
    >>> from sparsebayes.datasets import list_datasets
    >>> [entry.name for entry in list_datasets()][:3]
    ['boston', 'abalone', 'california']
    """
    return [
        DatasetInfo(
            entry.name,
            entry.loader,
            entry.n_samples,
            entry.n_features,
            entry.target,
            locate(entry.file, data_home),
        )
        for entry in DATASETS.values()
    ]
