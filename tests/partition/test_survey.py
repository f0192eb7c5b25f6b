"""One pass over the rows, however they are cut."""

import numpy as np
import pytest

from sparsebayes.kernels import resolve_gamma
from sparsebayes.partition._survey import make_survey
from sparsebayes.rows import ArrayRows, row_hashes


def _survey(X, y, weight=None, chunk_rows=7):
    return make_survey(ArrayRows((X, y, weight), chunk_rows))


def _data(n=40):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (n, 2)).astype(float)
    return X, rng.standard_normal(n), rng.integers(0, 3, n).astype(float)


def test_candidates_are_the_distinct_rows_of_positive_weight():
    X, y, weight = _data()
    rows = np.flatnonzero(weight)
    first = np.sort(np.unique(X[rows], axis=0, return_index=True)[1])
    np.testing.assert_array_equal(_survey(X, y, weight).candidates, rows[first])
    everything = np.sort(np.unique(X, axis=0, return_index=True)[1])
    np.testing.assert_array_equal(_survey(X, y).candidates, everything)


@pytest.mark.parametrize("factor", [1.0, 1e150, 1e-150])
def test_gamma_is_that_of_all_rows_together(factor):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((50, 3)) * [1, 10, 0.1] + [5, 0, 100]) * factor
    weight = rng.integers(0, 3, 50).astype(float)
    for w in (None, weight):
        assert _survey(X, X[:, 0], w).spread.gamma == pytest.approx(
            resolve_gamma("scale", X, w), rel=1e-10
        )
    assert _survey(np.ones((9, 2)), np.ones(9)).spread.gamma == 1.0


def test_order_depends_on_content_and_seed_not_on_place_or_repetition():
    X, y, weight = _data()
    survey = _survey(X, y, weight)
    order = X[survey.shuffled(3)]
    repeat = weight.astype(int)
    again = _survey(np.repeat(X, repeat, axis=0), np.repeat(y, repeat), chunk_rows=100)
    np.testing.assert_array_equal(np.repeat(X, repeat, axis=0)[again.shuffled(3)], order)
    p = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_array_equal(X[p][_survey(X[p], y[p], weight[p]).shuffled(3)], order)
    assert not np.array_equal(X[survey.shuffled(4)], order)


def test_order_looks_random():
    X = np.arange(10000.0)[:, None]
    order = _survey(X, X[:, 0], chunk_rows=999).shuffled(0)
    assert sorted(order) == list(range(10000))
    assert abs(np.corrcoef(order, np.arange(10000))[0, 1]) < 0.03
    assert len(np.unique(row_hashes(X))) == 10000
    assert row_hashes(np.array([[0.0]])) == row_hashes(np.array([[-0.0]]))


def test_taken_rows_come_in_the_order_asked_for():
    X, y, _ = _data()
    rows = ArrayRows((X, y, None), 7)
    for wanted in (np.array([39, 0, 7, 6, 38]), np.arange(3), np.empty(0, dtype=int)):
        np.testing.assert_array_equal(rows.take(wanted), X[wanted])


def test_digest_sees_every_number():
    X, y, weight = _data()
    digests = {_survey(X, y).digest, _survey(X, y, weight).digest}
    for array, place in ((X, (39, 1)), (y, 5)):
        changed = array.copy()
        changed[place] += 1e-12
        digests.add(_survey(*((changed, y) if array is X else (X, changed))).digest)
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X, y, w: (np.where(X == X[9], np.nan, X), y, w), "X contains NaN or infinity in"),
        (lambda X, y, w: (X, np.where(np.arange(40) == 30, np.inf, y), w), "y contains NaN .* 4"),
        (lambda X, y, w: (X, y, w - 1), "Negative values in data passed to `sample_weight`"),
        (lambda X, y, w: (X.astype(str), y, w), "X must be a 2D numeric array"),
        (lambda X, y, w: (X, y[:30], w), "different lengths in chunk 4"),
    ],
)
def test_bad_rows_are_a_sentence_that_names_the_chunk(spoil, message):
    with pytest.raises(ValueError, match=message):
        _survey(*spoil(*_data()))
