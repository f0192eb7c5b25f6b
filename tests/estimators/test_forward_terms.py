"""How many functions a ForwardRegressor selects, and from which candidates."""

from __future__ import annotations

import pickle

import numpy as np
from sklearn.datasets import make_friedman1

from sparsebayes import ForwardRegressor
from sparsebayes.selection import ManyCandidates


def rough(n=400, noise=0.01):
    """A random walk: every function tells something."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 1.0, n))
    y = np.cumsum(rng.standard_normal(n)) / np.sqrt(n) + noise * rng.standard_normal(n)
    return X[:, None], y


def test_the_terms_of_highest_evidence_are_kept():
    X, y = make_friedman1(400, noise=1.0, random_state=0)
    for gamma in (0.5, "ard"):
        model = ForwardRegressor("rbf", gamma=gamma).fit(X, y)
        assert len(model.active_) == model.best_n_terms_ == np.argmax(model.evidence_path_)
        assert len(model.active_) < 200
        assert model.stop_reason_ == "evidence"


def test_a_path_ends_at_300_terms():
    X, y = rough(1000)
    model = ForwardRegressor("matern12", gamma=1e4).fit(X, y)
    assert len(model.evidence_path_) == 301
    short = ForwardRegressor("matern12", gamma=1e4, max_terms=10).fit(X, y)
    assert len(short.evidence_path_) == 11


def test_the_number_of_candidates_has_no_cliff():
    given = ManyCandidates("auto", learns=False, memory=200, everything=False, nufft=False, seed=0)
    many = [given.number(limit) for limit in range(1, 20_000)]
    assert np.all(np.diff(many) >= 0)
    assert np.max(np.diff(many)) <= 8
    choice = given.choice(300)
    drawn = [min(n, choice._number(n)) for n in range(1, 60_000)]
    assert np.max(np.abs(np.diff(drawn))) <= 1
    assert drawn[4_600 - 1] == 4_600
    assert drawn[-1] == choice.many
    assert all(8e-6 * m**2 <= 200 or m == k + 1 for k, m in enumerate(many))


def test_a_saved_path_has_no_kernel_matrix_and_gives_the_same_models():
    X, y = make_friedman1(150, random_state=0)
    model = ForwardRegressor("rbf", gamma=0.5).fit(X, y)
    content = pickle.dumps(model)
    assert model._fitted.extra["path"].kernel_matrix is not None
    assert "kernel_matrix" not in vars(pickle.loads(content)._fitted.extra["path"])
    loaded = pickle.loads(content)
    expected = model.truncate(7).predict(X, return_std=True)
    np.testing.assert_array_equal(loaded.truncate(7).predict(X, return_std=True), expected)
