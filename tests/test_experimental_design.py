import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from sparsebayes import RVMRegressor
from sparsebayes.estimators.group_rivals import GroupARDRegressor
from sparsebayes.estimators.group_spike_slab import GroupSpikeSlabRegressor
from sparsebayes.experimental_design import SequentialDesign, information_gain, propose
from tests.group_helpers import relative_error, signal

KNOWN = {"inclusion_prior": 0.2, "slab_variance": 1.0, "noise_variance": 0.25}


def _fitted(n=12, d=20, intercept=False, seed=0, **settings):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = X[:, :2] @ [1.0, -1.0] + 0.5 * rng.standard_normal(n)
    model = GroupSpikeSlabRegressor(
        np.arange(d) // 2, fit_intercept=intercept, **{**KNOWN, **settings}
    )
    return model.fit(X, y), X, y


def test_gain_is_the_fall_of_the_gaussian_entropy():
    model, _, _ = _fitted()
    x = np.random.default_rng(1).standard_normal(20)
    V = model.posterior_.covariance
    after = np.linalg.inv(np.linalg.inv(V) + np.outer(x, x) / 0.25)
    fall = 0.5 * (np.linalg.slogdet(V)[1] - np.linalg.slogdet(after)[1])
    assert information_gain(model, x[None])[0] == pytest.approx(fall, rel=1e-6)


@pytest.mark.parametrize("n", [12, 40])  # through rows, through columns
def test_free_candidate_is_the_leading_eigenvector(n):
    model, _, _ = _fitted(n=n)
    x = propose(model, norm=3.0)[0]
    assert np.linalg.norm(x) == pytest.approx(3.0)
    values = np.linalg.eigvalsh(model.posterior_.covariance)
    assert x @ model.posterior_.covariance @ x == pytest.approx(9.0 * values[-1], rel=1e-3)


def test_free_candidate_with_an_intercept_beats_any_other_of_its_norm():
    model, _, _ = _fitted(intercept=True)
    x = propose(model, norm=2.0)
    assert np.linalg.norm(x) == pytest.approx(2.0)
    others = np.random.default_rng(0).standard_normal((2000, 20))
    others = np.vstack([others, x + 0.1 * others, -x])
    others *= 2.0 / np.linalg.norm(others, axis=1, keepdims=True)
    assert information_gain(model, x)[0] >= information_gain(model, others).max() - 1e-6


@pytest.mark.parametrize("intercept", [False, True])
def test_a_batch_counts_the_points_already_chosen(intercept):
    model, _, _ = _fitted(intercept=intercept)
    pool = np.random.default_rng(3).standard_normal((30, 20))
    design = SequentialDesign(model)
    batch = design.ask(pool, n=4)
    # The plain way: joint covariance of the pool, conditioned on one point after the other.
    C = model.predict(pool, return_cov=True)[1] - 0.25 * np.eye(30)
    chosen = []
    for _ in range(4):
        chosen.append(int(np.argmax(np.where(np.isin(np.arange(30), chosen), -1, np.diag(C)))))
        c = C[:, chosen[-1]]
        C = C - np.outer(c, c) / (0.25 + c[chosen[-1]])
    np.testing.assert_array_equal(design.asked_, chosen)
    np.testing.assert_array_equal(batch, pool[chosen])


def test_a_free_batch_takes_what_the_first_point_leaves():
    model, _, _ = _fitted(intercept=True)
    batch = propose(model, norm=1.0, n=2)
    V = model.posterior_.covariance
    a = batch[0] - model.basis_.means
    scale = model.posterior_.offset_variance
    total = a @ V @ a + scale
    b = batch[1] - model.basis_.means
    shared = a @ V @ b + scale
    variance = b @ V @ b + scale - shared**2 / (0.25 + total)
    trial = np.random.default_rng(0).standard_normal((500, 20))
    trial /= np.linalg.norm(trial, axis=1, keepdims=True)
    centred = trial - model.basis_.means
    shared = centred @ (V @ a) + scale
    others = np.einsum("ij,jk,ik->i", centred, V, centred) + scale - shared**2 / (0.25 + total)
    assert variance >= others.max()


def test_designed_rows_beat_random_ones():
    X, y, group_of, w, _ = signal(0)
    rng = np.random.default_rng(0)
    model = GroupSpikeSlabRegressor(
        group_of,
        inclusion_prior=4 / 128,
        slab_variance=1 / 3,
        noise_variance=1.0,
        fit_intercept=False,
        anneal=False,
        max_iter=50,
        tol=1e-3,
    )
    design = SequentialDesign(model, X[:40], y[:40])
    for _ in range(6):
        x = design.ask(norm=np.sqrt(512), n=2)
        design.tell(x, x @ w + rng.standard_normal(2))
    assert design.X_.shape == (52, 512)
    assert design.model_.warm_start
    random = model.fit(X[:52], y[:52])
    assert relative_error(design.model_.coef_, w) < 0.5 * relative_error(random.coef_, w)


def test_works_with_every_gaussian_model():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (30, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(30)
    kernel = SequentialDesign(RVMRegressor("rbf", gamma="scale"), X, y)
    pool = np.linspace(-3, 3, 50)[:, None]
    assert kernel.ask(pool, n=3).shape == (3, 1)
    with pytest.raises(ValueError, match="pass a pool of candidates"):
        kernel.ask()
    for linear in (RVMRegressor(None), GroupARDRegressor()):
        columns = rng.standard_normal((30, 5))
        linear.fit(columns, columns[:, 0] - columns[:, 3] + 0.1 * rng.standard_normal(30))
        x = propose(linear, norm=10.0)
        others = rng.standard_normal((300, 5))
        others *= 10.0 / np.linalg.norm(others, axis=1, keepdims=True)
        assert information_gain(linear, x)[0] >= information_gain(linear, others).max() - 1e-3


def test_mistakes_are_told_in_a_sentence():
    model, X, y = _fitted()
    with pytest.raises(NotFittedError, match="Tell this design some measurements"):
        SequentialDesign(GroupSpikeSlabRegressor()).ask()
    with pytest.raises(ValueError, match="rows this model was fitted on are not known"):
        SequentialDesign(model).tell(X[0], y[0])
    with pytest.raises(ValueError, match="5 rows were asked for from a pool of 3"):
        SequentialDesign(model).ask(X[:3], n=5)
    with pytest.raises(ValueError, match="one number per row"):
        SequentialDesign(GroupSpikeSlabRegressor()).tell(X, y[:3])
    with pytest.raises(ValueError, match="norm must be positive"):
        propose(model, norm=0)
