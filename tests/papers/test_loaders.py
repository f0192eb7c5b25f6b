"""The loaders on the real files; each test is skipped where its file is not."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from papers import data as datasets
from papers.data.registry import DATASETS

SERIES = ("silverbox", "cascaded_tanks")

# Mean and standard deviation (n - 1) of the targets, from the sources.
TARGETS = {
    "boston": ("MEDV", 22.533, 9.197),
    "abalone": ("rings", 9.934, 3.224),
    "california": ("median_house_value", 206855.8, 115395.6),
    "ozone": ("O3", 11.776, 8.011),
    "cpu": ("PRP", 105.62, 160.83),
    "bardet": ("trim32", 8.391, 0.145),
    "birthwt": ("bwt", 2.945, 0.729),
    "riboflavin": ("y", -7.159, 0.920),
    "mnist": ("digit", 4.5, 2.873),
    "sentiment": ("stars", 3.06, 1.73),
    "silverbox": ("V2", 0.00082, 0.05337),
    "cascaded_tanks": ("yEst", 5.583, 2.166),
}
TABLES = [name for name in TARGETS if name not in ("mnist", "sentiment", *SERIES)]


def load(name, **arguments):
    try:
        return getattr(datasets, f"load_{name}")(**arguments)
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", TARGETS)
def test_set_has_its_rows_columns_and_target_statistics(name):
    bunch, entry = load(name), DATASETS[name]
    n_features = entry.n_features + (2 if name == "abalone" else 0)  # one-hot sex
    assert bunch.data.shape == (entry.n_samples, n_features)
    assert bunch.data.dtype == np.float64
    assert len(bunch.feature_names) == n_features
    assert len(set(bunch.feature_names)) == n_features
    target_name, mean, std = TARGETS[name]
    assert bunch.target_name == target_name
    assert np.mean(bunch.target) == pytest.approx(mean, abs=0.6 * 10.0 ** -decimals(mean))
    assert np.std(bunch.target, ddof=1) == pytest.approx(std, abs=0.6 * 10.0 ** -decimals(std))
    assert entry.origin in bunch.DESCR
    assert entry.terms in bunch.DESCR


def decimals(value):
    return len(str(value).partition(".")[2])


@pytest.mark.parametrize("name", TARGETS)
def test_return_X_y_gives_the_same_arrays(name):
    bunch = load(name)
    X, y = load(name, return_X_y=True)
    if sparse.issparse(X):
        X, bunch.data = X[:200].toarray(), bunch.data[:200].toarray()
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)


@pytest.mark.parametrize("name", TABLES)
def test_as_frame_names_the_columns_and_keeps_the_numbers(name):
    plain, framed = load(name), load(name, as_frame=True)
    assert list(framed.data.columns) == plain.feature_names
    assert list(framed.frame.columns) == [*plain.feature_names, plain.target_name]
    np.testing.assert_array_equal(framed.data.to_numpy(), plain.data)
    X, y = load(name, as_frame=True, return_X_y=True)
    assert isinstance(X, pd.DataFrame)
    assert isinstance(y, pd.Series)


@pytest.mark.parametrize("name", TARGETS)
def test_missing_set_is_named_by_its_file(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEBAYES_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("SPARSEBAYES_CACHE", str(tmp_path / "none"))
    monkeypatch.delenv("SPARSEBAYES_DATA_URL", raising=False)
    with pytest.raises(FileNotFoundError, match=DATASETS[name].file.name):
        getattr(datasets, f"load_{name}")(data_home=tmp_path)


def test_abalone_sex_is_one_hot_or_one_code():
    onehot, ordinal = load("abalone"), load("abalone", sex="ordinal")
    assert onehot.feature_names[:3] == ["sex_M", "sex_F", "sex_I"]
    assert onehot.data[:, :3].sum(axis=0).tolist() == [1528, 1307, 1342]
    assert ordinal.feature_names[0] == "sex"
    assert ordinal.data.shape == (4177, 8)
    np.testing.assert_array_equal(onehot.data[:, :3] @ [0, 1, 2], ordinal.data[:, 0])
    np.testing.assert_array_equal(onehot.data[:, 3:], ordinal.data[:, 1:])


def test_unknown_coding_of_sex_is_refused():
    with pytest.raises(ValueError, match="sex must be 'onehot' or 'ordinal'; got 'binary'"):
        datasets.load_abalone(sex="binary")


def test_vendor_is_a_seventh_input_of_cpu():
    plain, vendor = load("cpu"), load("cpu", vendor=True)
    assert vendor.feature_names == ["vendor_code", *plain.feature_names]
    np.testing.assert_array_equal(vendor.data[:, 1:], plain.data)
    assert set(vendor.data[:, 0]) == set(range(30))


def test_bardet_has_twenty_groups_of_five():
    bunch = load("bardet")
    np.testing.assert_array_equal(bunch.groups, np.repeat(np.arange(20), 5))
    assert len(bunch.group_names) == 20


def test_birthwt_has_its_eight_groups():
    bunch = load("birthwt")
    assert bunch.group_names == ["age", "lwt", "race", "smoke", "ptl", "ht", "ui", "ftv"]
    assert np.bincount(bunch.groups).tolist() == [3, 3, 2, 1, 2, 1, 1, 3]
    # Sorted: the columns of a group lie side by side.
    assert (np.diff(bunch.groups) >= 0).all()


def test_mnist_has_three_hundred_of_each_digit():
    bunch = load("mnist")
    assert np.bincount(bunch.target).tolist() == [300] * 10
    assert (bunch.data.min(), bunch.data.max()) == (0, 255)
    assert len(np.unique(bunch.index)) == 3000


def test_sentiment_is_sparse_and_one_domain_is_a_part_of_it():
    everything, kitchen = load("sentiment"), load("sentiment", domain="kitchen")
    assert sparse.issparse(everything.data)
    assert set(everything.target) == {1, 2, 4, 5}
    assert np.bincount(everything.domain).tolist() == [2000] * len(everything.domain_names)
    rows = everything.domain == everything.domain_names.index("kitchen")
    assert kitchen.data.shape == (2000, 4434)
    assert (everything.data[rows] != kitchen.data).nnz == 0
    np.testing.assert_array_equal(kitchen.target, everything.target[rows])


def test_unknown_domain_is_refused():
    with pytest.raises(ValueError, match="domain must be None or one of 'books', .*; got 'films'"):
        datasets.load_sentiment(domain="films")


def test_silverbox_parts_are_apart_and_have_their_published_lengths():
    bunch = load("silverbox")
    lengths = {name: part.stop - part.start for name, part in bunch.tests.items()}
    assert lengths == {"multisine": 21688, "arrow": 40475, "arrow without extrapolation": 32000}
    assert bunch.train.stop - bunch.train.start == 65062
    assert bunch.tests["arrow"].stop <= bunch.train.start
    assert bunch.train.stop == bunch.tests["multisine"].start
    # The end of the arrow, and it alone, goes far beyond the amplitudes of the fit.
    size = {name: np.max(np.abs(bunch.target[part])) for name, part in bunch.tests.items()}
    fitted = np.max(np.abs(bunch.target[bunch.train]))
    assert size["arrow without extrapolation"] < 1.1 * fitted < size["arrow"]


def test_cascaded_tanks_have_a_second_record_to_test_on():
    bunch = load("cascaded_tanks")
    assert bunch.test_data.shape == bunch.data.shape
    assert bunch.test_target.shape == bunch.target.shape
    assert not np.array_equal(bunch.test_target, bunch.target)
    assert max(bunch.target.max(), bunch.test_target.max()) < 10.01  # the tank overflows there
