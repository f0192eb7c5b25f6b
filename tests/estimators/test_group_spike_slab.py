import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

from sparsebayes.estimators.group_baselines import (
    BayesianGroupLassoRegressor,
    GroupARDRegressor,
    GroupHorseshoeRegressor,
)
from sparsebayes.estimators.group_classifier import GroupSpikeSlabClassifier
from sparsebayes.estimators.group_spike_slab import GroupSpikeSlabRegressor
from tests.group_helpers import (
    enumerate_density,
    enumerate_models,
    few_groups,
    random_problem,
    relative_error,
    signal,
)

SHORT = {"n_chains": 2, "n_samples": 20, "n_warmup": 10}


@parametrize_with_checks(
    [
        GroupSpikeSlabRegressor(),
        GroupSpikeSlabRegressor(sites="column", fit_intercept=False, anneal=False, max_iter=50),
        GroupSpikeSlabRegressor(inference="gibbs", max_iter=20, anneal=False, **SHORT),
        GroupSpikeSlabClassifier(max_iter=8),
        GroupSpikeSlabClassifier(
            inclusion_prior=0.5, slab_variance=1.0, sites="column", fit_intercept=False, max_iter=10
        ),
        GroupARDRegressor(),
        GroupHorseshoeRegressor(**SHORT),
        BayesianGroupLassoRegressor(**SHORT),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", [GroupHorseshoeRegressor, BayesianGroupLassoRegressor])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_long_chains_meet_every_scale_and_weights_are_repetitions_to_them(kind):
    # Repeated rows say that there is no noise: scales at which I + X'VX has lost its I.
    estimator = kind(n_chains=2, n_samples=200, n_warmup=200)
    check_sample_weight_equivalence_on_dense_data(kind.__name__, estimator)


def _problem(seed=0, n=50):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 30)) + 3.0
    y = X[:, 3:6] @ [2.0, -1.0, 1.0] + 5.0 + 0.5 * rng.standard_normal(n)
    return X, y, np.arange(30) // 3


def test_defaults_find_the_group_and_every_hyperparameter():
    X, y, groups = _problem()
    model = GroupSpikeSlabRegressor(groups).fit(X, y)
    assert model.converged_
    np.testing.assert_array_equal(model.active_, [3, 4, 5])
    np.testing.assert_allclose(model.coef_[3:6], [2.0, -1.0, 1.0], atol=0.3)
    assert model.noise_variance_ == pytest.approx(0.25, rel=0.5)
    assert model.intercept_ == pytest.approx(5.0, abs=1.5)
    assert np.all(np.diff(model.history_["log_evidence"][-5:]) < 1.0)


@pytest.mark.parametrize(("a", "b"), [(1e6, 1e-3), (1e-5, 1e6)])
def test_units_of_x_and_y_do_not_matter(a, b):
    X, y, groups = _problem()
    plain = GroupSpikeSlabRegressor(groups).fit(X, y)
    scaled = GroupSpikeSlabRegressor(groups).fit(a * X, b * y)
    np.testing.assert_allclose(
        scaled.inclusion_probability_, plain.inclusion_probability_, atol=1e-6
    )
    np.testing.assert_allclose(scaled.coef_ * a / b, plain.coef_, atol=1e-6)
    shift = (len(y) - 1) * np.log(b)
    assert scaled.log_evidence_ + shift == pytest.approx(plain.log_evidence_, abs=1e-4)
    history = scaled.history_["log_evidence"] + shift
    np.testing.assert_allclose(history, plain.history_["log_evidence"], atol=1e-3)


@pytest.mark.parametrize("n", [10, 40])
def test_given_hyperparameters_are_kept_and_the_posterior_is_close_to_exact(n):
    rng = np.random.default_rng(5)
    X, y, group_of, p0, v0, sigma2 = random_problem(rng, most_groups=5)
    X, y = X[:n], y[:n]
    exact = enumerate_models(X, y, group_of, p0, v0, sigma2)
    model = GroupSpikeSlabRegressor(
        group_of,
        inclusion_prior=p0,
        slab_variance=v0,
        noise_variance=sigma2,
        fit_intercept=False,
    ).fit(X, y)
    assert (model.inclusion_prior_, model.slab_variance_) == pytest.approx((p0, v0))
    assert model.noise_variance_ == pytest.approx(sigma2)
    np.testing.assert_allclose(model.inclusion_probability_, exact[0], atol=1e-3)
    assert model.log_evidence_ == pytest.approx(exact[3], abs=1e-3)


@pytest.mark.parametrize(
    ("sites", "median", "high"), [("group", 0.0025, 0.08), ("column", 0.02, 0.13)]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_inclusion_is_close_to_enumeration(sites, median, high):
    errors = []
    for seed in range(40):
        X, y, group_of, p0, v0, sigma2 = random_problem(np.random.default_rng(seed), most_groups=8)
        exact = enumerate_models(X, y, group_of, p0, v0, sigma2)
        model = GroupSpikeSlabRegressor(
            group_of,
            inclusion_prior=p0,
            slab_variance=v0,
            noise_variance=sigma2,
            sites=sites,
            fit_intercept=False,
        ).fit(X, y)
        errors.append(np.max(np.abs(model.inclusion_probability_ - exact[0])))
        std = np.sqrt(np.diag(model.posterior_.covariance))
        np.testing.assert_allclose(model.calibration_ * std, model.coef_std_)
    assert np.median(errors) < median
    assert np.quantile(errors, 0.9) < high


def test_near_duplicate_groups_share_the_probability():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 8))
    X[:, 2:4] = X[:, :2] + 1e-3 * rng.standard_normal((40, 2))
    y = X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(40)
    group_of = np.repeat(np.arange(4), 2)
    known = {"inclusion_prior": 0.25, "slab_variance": 1.0, "noise_variance": 0.09}
    exact = enumerate_models(X, y, group_of, *known.values())
    for sites in ("group", "column"):
        model = GroupSpikeSlabRegressor(group_of, sites=sites, fit_intercept=False, **known)
        model.fit(X, y)
        # Either will do and nobody can tell which, but one of them it must be.
        np.testing.assert_allclose(model.inclusion_probability_, exact[0], atol=0.01)
        assert model.inclusion_probability_[:2].sum() > 1.0
        np.testing.assert_allclose(model.coef_, exact[1], atol=0.01)


def test_priors_can_differ_between_groups():
    X, y, groups = _problem(n=15)
    prior = np.full(10, 0.1)
    settings = {"slab_variance": np.linspace(0.5, 2, 10), "noise_variance": 4.0}
    doubted = GroupSpikeSlabRegressor(groups, inclusion_prior=prior, **settings).fit(X, y)
    believed = np.where(np.arange(10) == 7, 0.9, 0.1)
    model = GroupSpikeSlabRegressor(groups, inclusion_prior=believed, **settings).fit(X, y)
    assert model.inclusion_probability_[7] > doubted.inclusion_probability_[7] + 0.2
    np.testing.assert_allclose(model.inclusion_prior_, believed)


@pytest.mark.parametrize("n", [20, 60])
def test_std_carries_weights_noise_and_intercept(n):
    X, y, groups = _problem(n=n)
    model = GroupSpikeSlabRegressor(groups).fit(X, y)
    new = np.vstack([X[:3], 10 * X[:1]])
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, new @ model.coef_ + model.intercept_, rtol=1e-10)
    centred = new - X.mean(axis=0)
    V = model.posterior_.covariance
    spread = np.einsum("ij,jk,ik->i", centred, V, centred)
    np.testing.assert_allclose(std**2, spread + model.noise_variance_ * (1 + 1 / n), rtol=1e-6)
    _, covariance = model.predict(new, return_cov=True)
    np.testing.assert_allclose(np.diag(covariance), std**2, rtol=1e-6)
    assert std[3] > 2 * std[0]


def test_intervals_cover_new_observations():
    covered = []
    for seed in range(8):
        X, y, groups = _problem(seed, n=200)
        model = GroupSpikeSlabRegressor(groups).fit(X[:50], y[:50])
        mean, std = model.predict(X[50:], return_std=True)
        covered.append(np.mean(np.abs(y[50:] - mean) < 1.96 * std))
    assert 0.91 < np.mean(covered) < 0.98


def test_few_rows_and_low_noise_are_solved_by_cooling_and_the_other_run_is_reported():
    X, y, groups, w, active = few_groups(75, 5)
    model = GroupSpikeSlabRegressor(groups).fit(X, y)
    np.testing.assert_array_equal(np.flatnonzero(model.inclusion_probability_ > 0.5), active)
    assert relative_error(model.coef_, w) < 0.03
    assert len(model.runs_["start"]) > 1
    assert model.runs_["kept"].sum() == 1
    best = model.runs_["log_evidence"][model.runs_["kept"]][0]
    assert best - 5.0 < model.log_evidence_ < best  # averaged over hyperparameters, not the highest
    settled = model.runs_["log_evidence"][model.runs_["converged"]]
    assert best == pytest.approx(settled.max())


def test_gibbs_and_ep_agree():
    X, y, groups, _, _ = signal(2)
    known = {"inclusion_prior": 4 / 128, "slab_variance": 1 / 3, "noise_variance": 1.0}
    ep = GroupSpikeSlabRegressor(groups, **known).fit(X, y)
    gibbs = GroupSpikeSlabRegressor(
        groups, inference="gibbs", n_chains=2, n_samples=300, n_warmup=100, **known
    ).fit(X, y)
    assert gibbs.converged_
    np.testing.assert_allclose(gibbs.inclusion_probability_, ep.inclusion_probability_, atol=0.15)
    assert relative_error(gibbs.coef_, ep.coef_) < 0.1
    assert gibbs.log_evidence_ == pytest.approx(ep.log_evidence_, abs=1e-3)  # that of an EP run
    assert gibbs.effective_sample_size_.shape == (128,)
    ours, theirs = (m.predict(X[:5], return_std=True)[1] for m in (ep, gibbs))
    np.testing.assert_allclose(ours, theirs, rtol=0.1)
    again = clone(gibbs).fit(X, y)
    np.testing.assert_array_equal(again.coef_, gibbs.coef_)


def test_chains_that_disagree_are_not_called_converged():
    X, y, groups, _, _ = few_groups(60, 1)
    model = GroupSpikeSlabRegressor(
        groups,
        inference="gibbs",
        inclusion_prior=0.04,
        slab_variance=1.0,
        noise_variance=0.01,
        anneal=False,
        max_iter=20,
        **SHORT,
    )
    with pytest.warns(ConvergenceWarning, match="have not mixed"):
        model.fit(X, y)
    assert not model.converged_
    assert np.max(model.r_hat_) > 1.05


def test_too_few_steps_are_not_called_converged():
    X, y, groups = _problem()
    with pytest.warns(ConvergenceWarning, match="has not converged .max_iter. after 2 st"):
        model = GroupSpikeSlabRegressor(groups, max_iter=2, anneal=False).fit(X, y)
    assert not model.converged_
    assert model.n_iter_ == 2
    assert len(model.history_["change"]) == 2


def test_warm_start_goes_on_from_the_former_solution():
    X, y, groups, _, _ = signal(0)
    known = {"inclusion_prior": 4 / 128, "slab_variance": 1 / 3, "noise_variance": 1.0}
    cold = GroupSpikeSlabRegressor(groups, tol=1e-6, **known).fit(X, y)
    warm = GroupSpikeSlabRegressor(groups, warm_start=True, tol=1e-6, **known)
    warm.fit(X[:63], 100 * y[:63])  # other units
    warm.fit(X[:63], y[:63]).fit(X, y)
    assert warm.runs_["start"][0] == "warm"
    assert warm.n_iter_ < cold.n_iter_
    np.testing.assert_allclose(warm.inclusion_probability_, cold.inclusion_probability_, atol=1e-4)
    warm.set_params(groups=None).fit(X[:, :20], y)  # other columns: starts afresh
    assert warm.runs_["start"][0] == "plain"


def test_selects_columns_of_likely_groups():
    X, y, groups = _problem()
    model = GroupSpikeSlabRegressor(groups).fit(X, y)
    np.testing.assert_array_equal(np.flatnonzero(model.get_support()), [3, 4, 5])
    np.testing.assert_array_equal(model.get_support(indices=True), [3, 4, 5])
    np.testing.assert_array_equal(model.transform(X), X[:, 3:6])
    assert model.get_support(threshold=0.0).all()
    assert not model.get_support(threshold=1.0).any()  # none is above one, not by a last digit
    scores = cross_val_score(make_pipeline(StandardScaler(), clone(model)), X, y)
    assert scores.mean() > 0.8


def test_labels_can_be_words():
    X, y, groups = _problem()
    words = np.array([f"gene {g}" for g in groups])
    model = GroupSpikeSlabRegressor(words).fit(X, y)
    best = model.group_names_[np.argmax(model.inclusion_probability_)]
    assert best == "gene 1"


def test_weights_are_repetitions():
    X, y, groups = _problem(n=30)
    weight = np.random.default_rng(0).integers(0, 3, 30)
    weighted = GroupSpikeSlabRegressor(groups).fit(X, y, sample_weight=weight)
    repeated = GroupSpikeSlabRegressor(groups).fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-5)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((5, 3)), np.arange(5.0)),
        (np.eye(5), np.zeros(5)),
        (np.eye(5), np.full(5, 3.3)),
        (np.zeros((4, 2)), np.ones(4)),
        (np.repeat(np.arange(6.0)[:, None], 4, axis=1), np.arange(6.0)),
        (np.arange(2.0)[:, None], np.arange(2.0)),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_odd_data_give_finite_answers(X, y):
    for model in (GroupSpikeSlabRegressor(), GroupARDRegressor()):
        model.fit(X, y)
        mean, std = model.predict(X, return_std=True)
        assert np.all(np.isfinite(mean))
        assert np.all(np.isfinite(std))
        assert np.all(np.isfinite(model.coef_))


def test_pure_noise_chooses_nothing():
    rng = np.random.default_rng(0)
    model = GroupSpikeSlabRegressor(np.arange(60) // 3)
    found = [
        len(model.fit(rng.standard_normal((80, 60)), rng.standard_normal(80)).active_)
        for _ in range(3)
    ]
    assert np.median(found) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": [0, 1]}, "2 labels, but X has 30 columns"),
        ({"inclusion_prior": 1.5}, "inclusion_prior must be 'learn', a number between 0 and 1"),
        ({"inclusion_prior": [0.1, 0.2]}, "30 such numbers"),
        ({"slab_variance": -1.0}, "slab_variance must be 'learn', a positive number"),
        ({"slab_variance": "big"}, "slab_variance must be"),
        ({"noise_variance": 0.0}, "The 'noise_variance' parameter of .* must be"),
        ({"inference": "vb"}, "The 'inference' parameter of .* must be"),
        ({"sites": "row"}, "The 'sites' parameter of .* must be"),
        ({"anneal": "no"}, "The 'anneal' parameter of .* must be"),
        ({"max_joint_groups": -1}, "The 'max_joint_groups' parameter of .* must be"),
        ({"max_iter": 0}, "The 'max_iter' parameter of .* must be"),
        ({"n_chains": 1.5}, "The 'n_chains' parameter of .* must be"),
        ({"tol": -1}, "The 'tol' parameter of .* must be"),
        ({"n_samples": 50}, "n_samples=50 applies to the Gibbs sampler"),
    ],
)
def test_wrong_parameters_are_told_in_a_sentence(settings, message):
    X, y, _ = _problem()
    with pytest.raises(ValueError, match=message):
        GroupSpikeSlabRegressor(**settings).fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        GroupSpikeSlabRegressor(),
        GroupARDRegressor(),
        GroupHorseshoeRegressor(**SHORT),
        GroupSpikeSlabRegressor(inference="gibbs", **SHORT),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_pickled_models_predict_the_same(model):
    X, y, groups = _problem(n=20)
    model = clone(model).set_params(groups=groups).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.predict(X, return_std=True)[1], model.predict(X, return_std=True)[1]
    )


def test_baselines_find_the_group_too():
    X, y, groups = _problem()
    ard = GroupARDRegressor(groups).fit(X, y)
    assert np.argmax(ard.group_relevance_) == 1
    assert set(range(3, 6)) <= set(ard.active_)
    horseshoe = GroupHorseshoeRegressor(groups, n_samples=400, n_warmup=200, n_chains=2).fit(X, y)
    np.testing.assert_allclose(horseshoe.coef_[3:6], [2.0, -1.0, 1.0], atol=0.4)
    assert np.abs(np.delete(horseshoe.coef_, [3, 4, 5])).max() < 0.3
    assert np.isnan(horseshoe.log_evidence_)
    assert horseshoe.r_hat_.shape == (30,)


@pytest.mark.parametrize("shape", [(50, 200), (80, 600)])
def test_ard_finds_the_relevant_ones_of_more_columns_than_rows(shape):
    n, d = shape
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n + 400, d))
    y = X[:, [3, 30, 130]] @ [2.0, -1.5, 1.0] + 0.5 * rng.standard_normal(len(X))
    model = GroupARDRegressor().fit(X[:n], y[:n])
    kept = np.flatnonzero(model.coef_)
    assert {3, 30, 130} <= set(kept)
    assert len(kept) <= 4
    assert np.all(np.isinf(np.delete(model.group_precision_, kept)))
    low, high = model.predict_interval(X[n:]).T
    assert 0.92 < np.mean((low <= y[n:]) & (y[n:] <= high)) < 0.98
    flat = GroupARDRegressor(inclusion_prior=None).fit(X[:n], y[:n])
    assert np.sum(flat.coef_ != 0.0) > 10


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_random_problems_of_all_scales_are_finite_and_converged_tells_the_truth(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(5, 60)), int(np.exp(rng.uniform(np.log(2), np.log(150))))
    groups = np.sort(rng.integers(0, max(1, d // 3), d))
    X = 10.0 ** rng.uniform(-6, 6) * rng.standard_normal((n, d))
    y = X @ np.where(rng.random(d) < 0.1, rng.standard_normal(d), 0.0)
    y = 10.0 ** rng.uniform(-6, 6) * (y / (np.std(y) or 1.0) + rng.standard_normal(n))
    model = GroupSpikeSlabRegressor(groups, max_iter=200, anneal=False, warm_start=True).fit(X, y)
    std = model.predict(X[:5], return_std=True)[1]
    before = model.inclusion_probability_
    for values in (model.coef_, model.coef_std_, before, std, model.log_evidence_):
        assert np.all(np.isfinite(values))
    if model.converged_:
        model.set_params(tol=1e-5).fit(X, y)
        np.testing.assert_allclose(model.inclusion_probability_, before, atol=0.02)


@pytest.mark.parametrize(
    "model",
    [
        GroupSpikeSlabRegressor(),
        GroupSpikeSlabRegressor(sites="column"),
        GroupSpikeSlabRegressor(inference="gibbs", **SHORT),
        GroupARDRegressor(),
        GroupHorseshoeRegressor(n_chains=2, n_samples=50, n_warmup=100),
    ],
)
@pytest.mark.parametrize("n", [12, 60])  # through rows, through columns
def test_a_target_without_noise_ends_with_a_sentence(model, n):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 20))
    y = X[:, 0].copy()
    model = clone(model).set_params(groups=np.arange(20) // 2)
    with pytest.warns(ConvergenceWarning, match="explains the target up to rounding"):
        model.fit(X, y)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, y, atol=1e-3)
    assert np.all((std > 0) & (std < 1e-3))
    with pytest.warns(ConvergenceWarning, match="target is constant"):
        model.fit(X, np.full(n, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize(
    "model",
    [
        GroupSpikeSlabRegressor(),
        GroupSpikeSlabRegressor(inference="gibbs", **SHORT),
        GroupARDRegressor(),
        GroupSpikeSlabClassifier(),
    ],
)
@pytest.mark.parametrize("n", [25, 50])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_scale_of_all_columns_does_not_matter(model, scale, n):
    X, y, groups = _problem(n=n)
    y = (y > np.median(y)).astype(int) if isinstance(model, GroupSpikeSlabClassifier) else y
    model = clone(model).set_params(groups=groups)
    plain, scaled = clone(model).fit(X, y), clone(model).fit(X * scale, y)
    np.testing.assert_allclose(scaled.predict(X * scale), plain.predict(X), rtol=1e-4)
    np.testing.assert_allclose(scaled.coef_ * scale, plain.coef_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(scaled.coef_std_ * scale, plain.coef_std_, rtol=1e-3, atol=1e-4)
    if hasattr(plain, "slab_variance_"):
        slab = np.sqrt(scaled.slab_variance_) * scale
        np.testing.assert_allclose(slab, np.sqrt(plain.slab_variance_), rtol=1e-3)


def test_the_density_of_the_mixture_is_that_of_all_models():
    # Ten groups and ten rows: the first 500 of 1,024 models have 96 % of the weight.
    rng = np.random.default_rng(29)
    X, y, groups, *known = random_problem(rng)
    X_new, y_new = X[:3] + 0.3 * rng.standard_normal((3, X.shape[1])), rng.standard_normal(3)
    names = ("inclusion_prior", "slab_variance", "noise_variance")
    model = GroupSpikeSlabRegressor(
        groups, fit_intercept=False, **dict(zip(names, known, strict=True))
    ).fit(X, y)
    exact = enumerate_density(X, y, groups, *known, X_new, y_new)
    np.testing.assert_allclose(model._predictive(X_new).log_density(y_new), exact, atol=1e-6)


def test_a_noise_variance_that_ep_has_not_learnt_but_models_prefer_is_reported():
    rng = np.random.default_rng(785338)
    X = rng.standard_normal((20, 60))[rng.integers(6, size=20)]
    f = np.sum(X[:, :2] / np.max(np.abs(X[:, :2]), axis=0), axis=1)
    y = np.sin(3.0 * f) + 0.2 * rng.standard_normal(20)
    # A tenth of tol moves the evidence by .4 nats.
    with pytest.warns(ConvergenceWarning, match="at noise variances of weight"):
        model = GroupSpikeSlabRegressor().fit(X, y)
    assert not model.converged_


def test_rounding_errors_of_many_nats_are_reported():
    # Equal columns that do not explain the target, and 1e-8 of its variance as noise.
    rng = np.random.default_rng(1)
    X = np.outer(rng.standard_normal(15), rng.standard_normal(30))
    y = 1.0 + rng.standard_normal(15)
    with pytest.warns(ConvergenceWarning, match="Rounding errors may move the log"):
        model = GroupSpikeSlabRegressor(noise_variance=1e-8, fit_intercept=False).fit(X, y)
    assert model.stop_reason_ == "stalled"
    assert not model.converged_


def test_probabilities_of_models_sum_to_one_where_the_evidence_has_no_digits():
    # A log evidence of -1e17 is rounded to 16 nats.
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 3))
    y = 1e9 + rng.standard_normal(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GroupSpikeSlabRegressor(noise_variance=3.0, fit_intercept=False).fit(X, y)
    assert model.log_evidence_ < -1e16
    assert model.models_["probability"].sum() == pytest.approx(1.0)
    assert model.inclusion_probability_.max() <= 1.0
    assert model.noise_variance_ == pytest.approx(3.0)
