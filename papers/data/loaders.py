"""Loaders of the data sets that come as files, each a scikit-learn `Bunch`.

All take `data_home` (a folder to look in first), `return_X_y` and, where columns have names worth
having, `as_frame` (needs pandas).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from .files import PathLike, read_arrays, read_numbers, read_table
from .registry import DATASETS

Loaded: TypeAlias = Bunch | tuple[Any, Any]


def load_boston(
    *, data_home: PathLike | None = None, return_X_y: bool = False, as_frame: bool = False
) -> Loaded:
    """Boston housing: 506 rows; one of the 13 inputs encodes race, so compare methods only.

    Parameters
    ----------
    data_home : path-like, default=None
        A folder to look in before the usual ones.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a bunch.
    as_frame : bool, default=False
        Give data and target as pandas objects.

    Returns
    -------
    Bunch
        `data`, `target`, `feature_names`, `target_name`, `DESCR`; with `as_frame` also `frame`.

    Examples
    --------
    >>> from papers.data import load_boston
    >>> X, y = load_boston(return_X_y=True)
    >>> X.shape
    (506, 13)
    """
    names, X, y = read_numbers(DATASETS["boston"].file, data_home)
    return _bunch("boston", X, y, names, return_X_y, as_frame)


def load_abalone(
    *,
    sex: Literal["onehot", "ordinal"] = "onehot",
    data_home: PathLike | None = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Loaded:
    """Abalone: 4177 shells, the number of rings from sex, size and weights.

    Parameters
    ----------
    sex : {"onehot", "ordinal"}, default="onehot"
        Three columns `sex_M`, `sex_F`, `sex_I` (10 inputs), or one with the codes 0 (male),
        1 (female) and 2 (infant) (8 inputs).
    data_home, return_X_y, as_frame
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data`, `target`, `feature_names`, `target_name`, `DESCR`; with `as_frame` also `frame`.

    Examples
    --------
    >>> from papers.data import load_abalone
    >>> load_abalone(sex="ordinal").data.shape
    (4177, 8)
    """
    if sex not in ("onehot", "ordinal"):
        raise ValueError(f"sex must be 'onehot' or 'ordinal'; got {sex!r}.")
    names, rows = read_table(DATASETS["abalone"].file, data_home)
    codes = np.array([row[0] for row in rows])[:, None] == np.array(["M", "F", "I"])
    others = np.array([row[1:] for row in rows], dtype=float)
    if sex == "onehot":
        first, first_names = codes.astype(float), ["sex_M", "sex_F", "sex_I"]
    else:
        first, first_names = codes.argmax(axis=1)[:, None].astype(float), ["sex"]
    X = np.hstack([first, others[:, :-1]])
    names = [*first_names, *names[1:]]
    return _bunch("abalone", X, others[:, -1].copy(), names, return_X_y, as_frame)


def load_california(
    *, data_home: PathLike | None = None, return_X_y: bool = False, as_frame: bool = False
) -> Loaded:
    """California housing: 20640 block groups, 8 inputs as totals, not ratios per household.

    Parameters
    ----------
    data_home, return_X_y, as_frame
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data`, `target`, `feature_names`, `target_name`, `DESCR`; with `as_frame` also `frame`.

    Examples
    --------
    >>> from papers.data import load_california
    >>> load_california().data.shape
    (20640, 8)
    """
    names, X, y = read_numbers(DATASETS["california"].file, data_home)
    return _bunch("california", X, y, names, return_X_y, as_frame)


def load_ozone(
    *, data_home: PathLike | None = None, return_X_y: bool = False, as_frame: bool = False
) -> Loaded:
    """Ozone in Upland, 1976: 330 days in order, 9 inputs, the last one the day of the year.

    Parameters
    ----------
    data_home, return_X_y, as_frame
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data`, `target`, `feature_names`, `target_name`, `DESCR`; with `as_frame` also `frame`.

    Examples
    --------
    >>> from papers.data import load_ozone
    >>> load_ozone().feature_names[-1]
    'doy'
    """
    names, X, y = read_numbers(DATASETS["ozone"].file, data_home)
    return _bunch("ozone", X, y, names, return_X_y, as_frame)


def load_cpu(
    *,
    vendor: bool = False,
    data_home: PathLike | None = None,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Loaded:
    """Computer hardware: 209 machines, 6 inputs, the published relative performance.

    Parameters
    ----------
    vendor : bool, default=False
        Put the vendor (codes 0 to 29, alphabetical) first, as a seventh input.
    data_home, return_X_y, as_frame
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data`, `target`, `feature_names`, `target_name`, `DESCR`; with `as_frame` also `frame`.

    Examples
    --------
    >>> from papers.data import load_cpu
    >>> load_cpu().feature_names
    ['MYCT', 'MMIN', 'MMAX', 'CACH', 'CHMIN', 'CHMAX']
    """
    entry = DATASETS["cpu"]
    names, X, y = read_numbers(entry.file, data_home)
    if vendor:
        assert entry.side_file is not None
        side_names, rows = read_table(entry.side_file, data_home)
        code = side_names.index("vendor_code")
        X = np.column_stack([[float(row[code]) for row in rows], X])
        names = ["vendor_code", *names]
    return _bunch("cpu", X, y, names, return_X_y, as_frame)


def load_bardet(
    *, data_home: PathLike | None = None, return_X_y: bool = False, as_frame: bool = False
) -> Loaded:
    """Bardet-Biedl gene expression: 120 rats, 20 genes of 5 spline columns each.

    Parameters
    ----------
    data_home, return_X_y, as_frame
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data`, `target`, `feature_names`, `target_name`, `DESCR`, `groups` (the group of each
        column, 0 to 19), `group_names`; with `as_frame` also `frame`.

    Examples
    --------
    >>> from papers.data import load_bardet
    >>> load_bardet().groups[:6]
    array([0, 0, 0, 0, 0, 1])
    """
    names, X, y = read_numbers(DATASETS["bardet"].file, data_home)
    labels = [name.split("_")[0] for name in names[:-1]]
    return _bunch("bardet", X, y, names, return_X_y, as_frame, **_groups(labels))


# The groups that the column names do not tell by themselves (age1, age2, age3 are the group age).
_BIRTHWT_GROUPS = {"white": "race", "black": "race", "ptl2m": "ptl", "ftv3m": "ftv"}


def load_birthwt(
    *, data_home: PathLike | None = None, return_X_y: bool = False, as_frame: bool = False
) -> Loaded:
    """Weight at birth: 189 births, 16 columns in 8 groups.

    Parameters
    ----------
    data_home, return_X_y, as_frame
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data`, `target`, `feature_names`, `target_name`, `DESCR`, `groups` (the group of each
        column, 0 to 7), `group_names`; with `as_frame` also `frame`.

    Examples
    --------
    >>> from papers.data import load_birthwt
    >>> load_birthwt().group_names
    ['age', 'lwt', 'race', 'smoke', 'ptl', 'ht', 'ui', 'ftv']
    """
    names, X, y = read_numbers(DATASETS["birthwt"].file, data_home)
    labels = [_BIRTHWT_GROUPS.get(name, name.rstrip("123")) for name in names[:-1]]
    return _bunch("birthwt", X, y, names, return_X_y, as_frame, **_groups(labels))


def load_riboflavin(
    *, data_home: PathLike | None = None, return_X_y: bool = False, as_frame: bool = False
) -> Loaded:
    """Riboflavin: 71 samples, the expression of 4088 genes, the log production rate.

    Parameters
    ----------
    data_home, return_X_y, as_frame
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data`, `target`, `feature_names`, `target_name`, `DESCR`; with `as_frame` also `frame`.

    Examples
    --------
    >>> from papers.data import load_riboflavin
    >>> load_riboflavin().data.shape
    (71, 4088)
    """
    names, X, y = read_numbers(DATASETS["riboflavin"].file, data_home)
    return _bunch("riboflavin", X, y, names, return_X_y, as_frame)


def load_mnist(*, data_home: PathLike | None = None, return_X_y: bool = False) -> Loaded:
    """Part of MNIST: 3000 handwritten digits, 300 of each, 784 pixels from 0 to 255.

    Parameters
    ----------
    data_home, return_X_y
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data` (floats), `target` (whole numbers), `feature_names`, `target_name`, `DESCR`,
        `index` (the place of each image in the MNIST test set).

    Examples
    --------
    >>> from papers.data import load_mnist
    >>> load_mnist().data.shape
    (3000, 784)
    """
    arrays = read_arrays(DATASETS["mnist"].file, data_home)
    # Floats: differences of the stored bytes would wrap around.
    X, y = arrays["X"].astype(float), arrays["y"].astype(int)
    names = [f"pixel_{i // 28}_{i % 28}" for i in range(X.shape[1])] + ["digit"]
    return _bunch("mnist", X, y, names, return_X_y, index=arrays["index"])


def load_sentiment(
    *,
    domain: Literal["books", "dvd", "electronics", "kitchen"] | None = None,
    data_home: PathLike | None = None,
    return_X_y: bool = False,
) -> Loaded:
    """Sentiment: 8000 reviews of products as counts of 4434 terms, and the stars given.

    Parameters
    ----------
    domain : {"books", "dvd", "electronics", "kitchen"}, default=None
        Only the 2000 reviews of one domain; None for all.
    data_home, return_X_y
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data` (a sparse CSR matrix of floats), `target`, `feature_names`, `target_name`, `DESCR`,
        `domain` (the domain of each review, a number), `domain_names`.

    Examples
    --------
    >>> from papers.data import load_sentiment
    >>> load_sentiment(domain="books").data.shape
    (2000, 4434)
    """
    domain_names = ["books", "dvd", "electronics", "kitchen"]
    if domain is not None and domain not in domain_names:
        raise ValueError(
            f"domain must be None or one of {', '.join(map(repr, domain_names))}; got {domain!r}."
        )
    arrays = read_arrays(DATASETS["sentiment"].file, data_home)
    X = sparse.csr_matrix(
        (arrays["data"].astype(float), arrays["indices"].astype(np.int32), arrays["indptr"]),
        shape=tuple(arrays["shape"]),
    )
    y, domains = arrays["y"].astype(float), arrays["domain"].astype(int)
    if domain is not None:
        rows = np.flatnonzero(domains == domain_names.index(domain))
        X, y, domains = X[rows], y[rows], domains[rows]
    names = [*arrays["vocab"].tolist(), "stars"]
    return _bunch("sentiment", X, y, names, return_X_y, domain=domains, domain_names=domain_names)


def load_silverbox(*, data_home: PathLike | None = None, return_X_y: bool = False) -> Loaded:
    """Silverbox: 131072 samples of a nonlinear oscillator, input and output voltage.

    Parameters
    ----------
    data_home, return_X_y
        As in `load_boston`.

    Returns
    -------
    Bunch
        `data` (the input, one column), `target`, `feature_names`, `target_name`, `DESCR`; `train`
        (a slice: the first 75 % of the multisine), `tests` (slices by name: `multisine`, `arrow`
        and `arrow without extrapolation`, its first 32,000 samples) and `n_ignored`, the samples
        at the start of a test that the score leaves out.

    Examples
    --------
    >>> from papers.data import load_silverbox
    >>> bunch = load_silverbox()
    >>> bunch.target[bunch.train].shape
    (65062,)
    """
    names, X, y = read_numbers(DATASETS["silverbox"].file, data_home)
    multisine, end = 40650, 127400
    fitted = multisine + int(0.75 * (end - multisine))
    tests = {
        "multisine": slice(fitted, end),
        "arrow": slice(100, 40575),
        "arrow without extrapolation": slice(100, 32100),
    }
    more: dict[str, Any] = {"train": slice(multisine, fitted), "tests": tests, "n_ignored": 50}
    return _bunch("silverbox", X, y, names, return_X_y, **more)


def load_cascaded_tanks(*, data_home: PathLike | None = None, return_X_y: bool = False) -> Loaded:
    """Cascaded tanks: two records of 1024 samples, pump voltage and level of the lower tank.

    Parameters
    ----------
    data_home : path-like, default=None
        A folder to look in before the usual ones.
    return_X_y : bool, default=False
        Return ``(data, target)`` of the record to fit instead of a bunch.

    Returns
    -------
    Bunch
        `data` (the input, one column) and `target` of the record to fit, `test_data` and
        `test_target` of the one to test, `feature_names`, `target_name`, `DESCR`, and `n_ignored`,
        the samples at the start of the test that the score leaves out.

    Examples
    --------
    >>> from papers.data import load_cascaded_tanks
    >>> load_cascaded_tanks().test_target.shape
    (1024,)
    """
    _, rows = read_table(DATASETS["cascaded_tanks"].file, data_home)
    u, u_test, y, y_test = np.array(rows, dtype=float).T.copy()
    more: dict[str, Any] = {"test_data": u_test[:, None], "test_target": y_test, "n_ignored": 50}
    names = ["uEst", "yEst"]
    return _bunch("cascaded_tanks", u[:, None], y, names, return_X_y, **more)


def _bunch(
    name: str,
    X: Any,
    y: np.ndarray,
    names: list[str],
    return_X_y: bool,
    as_frame: bool = False,
    **extra: Any,
) -> Loaded:
    """Put together what a loader returns; `names` has the target last."""
    bunch = Bunch(
        data=X,
        target=y,
        feature_names=names[:-1],
        target_name=names[-1],
        DESCR=DATASETS[name].description,
        **extra,
    )
    if as_frame:
        import pandas as pd

        bunch.data = pd.DataFrame(X, columns=names[:-1])
        bunch.target = pd.Series(y, name=names[-1])
        bunch.frame = pd.concat([bunch.data, bunch.target], axis=1)
    return (bunch.data, bunch.target) if return_X_y else bunch


def _groups(labels: list[str]) -> dict[str, Any]:
    """Group numbers in the order in which the labels first appear."""
    names = list(dict.fromkeys(labels))
    return {"groups": np.array([names.index(label) for label in labels]), "group_names": names}
