import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import entr, ndtr
from scipy.stats import norm
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

from sparsebayes import GroupSpikeSlabClassifier, RVMClassifier, RVMRegressor
from sparsebayes.estimators.group_baselines import GroupARDRegressor
from sparsebayes.estimators.group_spike_slab import GroupSpikeSlabRegressor
from sparsebayes.experimental_design import SequentialDesign, information_gain, propose
from sparsebayes.solvers.group.probit import tilted
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


def test_calibration_does_not_change_a_gain():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (40, 2))
    model = RVMRegressor("rbf", gamma=0.5).fit(X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2)
    model = RVMRegressor("rbf", gamma=0.5).fit(X, model.predict(X) + rng.standard_normal(40))
    assert model.calibration_ > 1.02
    posterior, new = model.posterior_, X[:5]
    own = posterior.function_variance(model.basis_(new))
    gain = 0.5 * np.log1p(own / model.noise_variance_)
    np.testing.assert_allclose(information_gain(model, new), gain, rtol=1e-6)


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
    a = batch[0] - model.basis_.centre
    scale = model.posterior_.offset_variance
    total = a @ V @ a + scale
    b = batch[1] - model.basis_.centre
    shared = a @ V @ b + scale
    variance = b @ V @ b + scale - shared**2 / (0.25 + total)
    trial = np.random.default_rng(0).standard_normal((500, 20))
    trial /= np.linalg.norm(trial, axis=1, keepdims=True)
    centred = trial - model.basis_.centre
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
    with pytest.raises(ValueError, match="Pass a pool of candidate rows"):
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
    with pytest.raises(NotFittedError, match="no measurements yet"):
        SequentialDesign(GroupSpikeSlabRegressor()).ask()
    with pytest.raises(ValueError, match="training rows of this model are not known"):
        SequentialDesign(model).tell(X[0], y[0])
    with pytest.raises(ValueError, match="5 rows were requested from a pool of 3"):
        SequentialDesign(model).ask(X[:3], n=5)
    with pytest.raises(ValueError, match="one value per row"):
        SequentialDesign(GroupSpikeSlabRegressor()).tell(X, y[:3])
    with pytest.raises(ValueError, match="norm must be positive"):
        propose(model, norm=0)


def _labels(n=60, d=8, seed=0, **settings):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 1.0
    y = np.where(X[:, :2] @ [2.0, -1.5] + rng.standard_normal(n) > 0.5, "yes", "no")
    return GroupSpikeSlabClassifier(np.arange(d) // 2, **settings).fit(X, y), X, y


def _h(p):
    return entr(p) + entr(1.0 - p)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_gain_of_a_label_is_its_mutual_information_with_the_weights(intercept):
    model, X, _ = _labels(fit_intercept=intercept)
    gain = information_gain(model, X[:5])
    for i in range(5):
        Phi = model.basis_(X[i : i + 1])
        m, v = model.posterior_.at(Phi)[0], model.posterior_.function_variance(Phi)[0]
        sd = np.sqrt(v)

        def along(f, m=m, sd=sd):
            return _h(ndtr(f)) * norm.pdf(f, m, sd)

        known = quad(along, m - 9 * sd, m + 9 * sd, points=[m], limit=200)[0]
        expected = _h(ndtr(m / np.sqrt(1.0 + v))) - known
        assert gain[i] == pytest.approx(expected, abs=2e-4)


def test_a_free_row_of_labels_tells_more_than_others_of_its_norm():
    model, _, _ = _labels()
    x = propose(model, norm=3.0)
    assert np.linalg.norm(x) == pytest.approx(3.0)
    others = np.random.default_rng(0).standard_normal((500, 8))
    others = np.vstack([others, x + 0.2 * others])
    others *= 3.0 / np.linalg.norm(others, axis=1, keepdims=True)
    assert information_gain(model, x)[0] >= information_gain(model, others).max() - 1e-5


def test_a_batch_of_labels_counts_the_labels_already_chosen():
    model, _, _ = _labels()
    pool = np.random.default_rng(2).standard_normal((15, 8)) * 3.0
    design = SequentialDesign(model)
    design.ask(pool, n=3)
    # The plain way: the joint covariance of f, and the mean fall of a variance by one EP update.
    Phi = model.basis_(pool)
    mean, C = model.posterior_.at(Phi), model.posterior_.form.between(Phi)
    chosen = []
    for _ in range(3):
        v = np.diag(C).copy()
        f = mean[:, None] + np.sqrt(v)[:, None] * np.linspace(-8, 8, 2001)
        density = norm.pdf(np.linspace(-8, 8, 2001)) * 16 / 2000
        p = ndtr(mean / np.sqrt(1.0 + v))
        gain = _h(p) - _h(ndtr(f)) @ density
        gain[chosen] = -1.0
        best = int(np.argmax(gain))
        chosen.append(best)
        one, m, s = np.ones(1), mean[[best]], v[[best]]
        fall = -sum(
            q * tilted(sign * m, s, one)[2] for q, sign in ((p[best], 1), (1 - p[best], -1))
        )
        C = C - np.outer(C[best], C[best]) * fall
    np.testing.assert_array_equal(design.asked_, chosen)
    assert propose(model, norm=2.0, n=3).shape == (3, 8)


@pytest.mark.slow
def test_labels_that_were_asked_for_are_learnt_from():
    rng = np.random.default_rng(1)
    w = np.zeros(12)
    w[:2] = 3.0
    X = rng.standard_normal((20, 12))
    plan = SequentialDesign(GroupSpikeSlabClassifier(np.arange(12) // 2), X, X @ w > 0)
    new = rng.standard_normal((500, 12))
    before = log_loss(new @ w > 0, plan.model_.predict_proba(new))
    for _ in range(6):
        x = plan.ask(rng.standard_normal((50, 12)))
        plan.tell(x, x @ w > 0)
    assert plan.X_.shape == (26, 12)
    assert log_loss(new @ w > 0, plan.model_.predict_proba(new)) < 0.9 * before


def _twins(classifier=False, n=60):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 6))
    X[:, 1] = X[:, 0] + 0.03 * rng.standard_normal(n)
    y = X[:, 0] + rng.standard_normal(n)
    if classifier:
        return GroupSpikeSlabClassifier(inclusion_prior=0.1, slab_variance=4.0).fit(X, y > 0)
    return GroupSpikeSlabRegressor(inclusion_prior=0.1, slab_variance=1.0).fit(X, y)


def test_the_gain_about_groups_is_the_mutual_information_of_outcome_and_models():
    model = _twins()
    rows = np.random.default_rng(1).standard_normal((4, 6)) * 3.0
    gain = information_gain(model, rows, target="groups")
    posterior = model.posterior_
    weight, apart, variance = posterior.form.components(model.basis_(rows))
    std = np.sqrt(variance + posterior.noise_variance + posterior.offset_variance)
    for i in range(4):

        def surprise(y, i=i):
            return entr(weight @ norm.pdf(y, apart[:, i], std[:, i]))

        reach = np.abs(apart[:, i]).max() + 12 * std[:, i].max()
        whole = quad(surprise, -reach, reach, limit=400)[0]
        parts = weight @ (0.5 * np.log(2 * np.pi * np.e * std[:, i] ** 2))
        assert gain[i] == pytest.approx(whole - parts, abs=2e-3)
    models = model.models_["probability"]
    assert np.all(gain <= entr(models).sum() + 1e-3)


@pytest.mark.parametrize("classifier", [False, True])
def test_to_tell_twins_apart_they_are_asked_for_in_opposite_amounts(classifier):
    model = _twins(classifier)
    x = propose(model, norm=5.0, target="groups")[0]
    assert np.linalg.norm(x) == pytest.approx(5.0)
    assert x[0] * x[1] < 0.0
    assert np.hypot(x[0], x[1]) > 3.5
    same, apart = np.zeros((2, 6))
    same[:2], apart[:2] = 3.5, [3.5, -3.5]
    gain = information_gain(model, np.array([same, apart]), target="groups")
    assert gain[1] > 5.0 * gain[0]
    assert SequentialDesign(model).ask(np.array([same, apart]), target="groups")[0, 1] < 0


def test_where_the_models_agree_the_choice_is_about_the_weights():
    model, _, _ = _fitted(n=200, max_joint_groups=0)
    np.testing.assert_array_equal(propose(model, target="groups"), propose(model))
    pool = np.random.default_rng(0).standard_normal((20, 20))
    assert np.all(information_gain(model, pool, target="groups") == 0.0)
    design = SequentialDesign(model)
    design.ask(pool, target="groups")
    assert design.asked_[0] == np.argmax(information_gain(model, pool))


def test_designs_say_what_they_cannot_do():
    model, X, _ = _fitted()
    with pytest.raises(ValueError, match="target must be 'weights' or 'groups'"):
        information_gain(model, X, target="z")
    with pytest.raises(ValueError, match="chooses one row at a time"):
        propose(model, n=2, target="groups")
    with pytest.raises(ValueError, match="requires a group spike-and-slab model"):
        propose(RVMRegressor(None).fit(X, X[:, 0]), target="groups")
    _, rows, _ = _labels()
    three = GroupSpikeSlabClassifier().fit(rows, np.digitize(rows[:, 0], [0.5, 1.5]))
    with pytest.raises(ValueError, match="supports two classes"):
        information_gain(three, rows)
    with pytest.raises(ValueError, match="requires a regressor"):
        information_gain(RVMClassifier(None).fit(rows, rows[:, 0] > 1), rows)
