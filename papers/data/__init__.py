"""Loaders of the data sets that the papers use.

A loader looks for its file in `data_home`, then in the folder `$SPARSEBAYES_DATA`, then in the
cache folder. Where no folder has it, the error names the file and the folders.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .files import PathLike, locate
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
]


class DatasetInfo(NamedTuple):
    """One data set as `list_datasets` reports it; `path` is None where no folder has its file."""

    name: str
    loader: str
    n_samples: int
    n_features: int
    target: str
    path: Path | None


def list_datasets(data_home: PathLike | None = None) -> list[DatasetInfo]:
    """Return the data sets that have a loader, with the path of each file on this machine.

    Nothing is read or downloaded.

    Examples
    --------
    >>> from papers.data import list_datasets
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
