"""Learnt hyperparameters of the group models are averaged over, and calibrated."""

import numpy as np
import pytest
from scipy.special import expit, logit, logsumexp
from sklearn.exceptions import ConvergenceWarning

from benchmarks.group import calibration_draw
from sparsebayes import GroupSpikeSlabRegressor
from sparsebayes.estimators import group_spike_slab
from sparsebayes.solvers.group import enumeration
from sparsebayes.solvers.group.ep import LEARNABLE
from sparsebayes.solvers.group.hyperprior import Hyperprior
from tests.group_helpers import enumerate_models


def _problem(seed, n=30, groups=6, size=2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, groups * size))
    y = X[:, :2] @ [0.8, -0.6] + X[:, 4:6] @ [0.3, 0.2] + 0.7 * rng.standard_normal(n)
    return X, y, np.arange(groups * size) // size


@pytest.mark.parametrize(
    "given", [{}, {"inclusion_prior": 0.3}, {"slab_variance": 0.4}, {"noise_variance": 0.5}]
)
def test_average_over_hyperparameters_is_the_sum_over_all_models_and_nodes(given, monkeypatch):
    X, y, groups = _problem(3)
    dof = []
    average = enumeration.average_hyperparameters

    def with_degrees_of_freedom(*arguments):
        dof.append(arguments[-1])
        return average(*arguments)

    monkeypatch.setattr(enumeration, "average_hyperparameters", with_degrees_of_freedom)
    model = GroupSpikeSlabRegressor(groups, fit_intercept=False, **given).fit(X, y)
    learn = tuple(name for name in LEARNABLE if name not in given)
    prior = Hyperprior.for_size(*X.shape, learn)
    log_odds, noise = float(logit(model.inclusion_prior_)), model.history_["noise_variance"][-1]
    total, inclusion, means, squares, noises = [], [], [], [], []
    for e, log_e in zip(*prior.noise_nodes(dof[-1]), strict=True):
        for s, log_s in zip(*prior.slab_nodes(), strict=True):
            for p, log_p in zip(*prior.prior_nodes(log_odds, 6), strict=True):
                known = expit(log_odds + p), model.slab_variance_ * np.exp(s), noise * np.exp(e)
                at_node = enumerate_models(X, y, groups, *known)
                inclusion.append(at_node[0])
                means.append(at_node[1])
                squares.append(at_node[2] + at_node[1] ** 2)
                total.append(at_node[3] + log_e + log_s + log_p)
                noises.append(known[2])
    weight = np.exp(np.array(total) - logsumexp(total))
    mean = weight @ np.array(means)
    np.testing.assert_allclose(model.log_evidence_, logsumexp(total), atol=1e-5)
    np.testing.assert_allclose(model.inclusion_probability_, weight @ inclusion, atol=1e-5)
    np.testing.assert_allclose(model.coef_, mean, atol=1e-4)
    variance = np.square(model.coef_std_ / model.calibration_)
    np.testing.assert_allclose(variance, weight @ squares - mean**2, atol=1e-4)
    np.testing.assert_allclose(model.noise_variance_, weight @ noises, rtol=1e-5)


def test_with_more_columns_than_rows_runs_at_several_noise_variances_are_averaged(monkeypatch):
    rng = np.random.default_rng(2)
    X, groups = rng.standard_normal((9, 10)), np.arange(10) // 2
    y = X[:, :2] @ [0.6, -0.5] + 0.7 * rng.standard_normal(9)  # no group is decided
    runs = []
    make = group_spike_slab.noise_runs
    monkeypatch.setattr(
        group_spike_slab, "noise_runs", lambda *given: runs.extend(make(*given)) or runs
    )
    model = GroupSpikeSlabRegressor(groups, fit_intercept=False).fit(X, y)
    assert len(runs) > 2
    mode = runs[0].state
    prior = Hyperprior.for_size(*X.shape, ("inclusion_prior", "slab_variance"))
    total, inclusion, noises = [], [], []
    for state in (r.state for r in runs):
        odds = float(state.sites.prior_log_odds[0])
        v0 = model.slab_variance_ * state.sites.slab_variance[0] / mode.sites.slab_variance[0]
        noise = model.history_["noise_variance"][-1] * state.sigma2 / mode.sigma2
        for s, log_s in zip(*prior.slab_nodes(), strict=True):
            for p, log_p in zip(*prior.prior_nodes(odds, 5), strict=True):
                at_node = enumerate_models(X, y, groups, expit(odds + p), v0 * np.exp(s), noise)
                inclusion.append(at_node[0])
                flat = np.log(state.sigma2 / mode.sigma2 / 3.0)
                total.append(at_node[3] + log_s + log_p + flat)
                noises.append(noise)
    weight = np.exp(np.array(total) - logsumexp(total))
    np.testing.assert_allclose(model.log_evidence_, logsumexp(total), atol=1e-5)
    np.testing.assert_allclose(model.inclusion_probability_, weight @ inclusion, atol=1e-5)
    np.testing.assert_allclose(model.noise_variance_, weight @ noises, rtol=1e-5)


def test_average_over_noise_variances_without_settled_sites_has_not_converged():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((13, 40))[rng.integers(13, size=20)]
    y = np.round(10.0 * np.sin(X[:, 0] + X[:, 1]) + 2.0 * rng.standard_normal(20))
    with pytest.warns(ConvergenceWarning, match="at noise variances of weight"):
        model = GroupSpikeSlabRegressor().fit(X, y)
    assert (model.converged_, model.stop_reason_) == (False, "cycling")
    assert model.runs_["converged"][model.runs_["kept"]].all()  # the search itself has


@pytest.mark.parametrize("width", [6, 40])
def test_average_where_no_group_is_undecided_has_the_evidence_of_one_node(width):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, width))
    y = 3.0 * X[:, 0] + 0.1 * rng.standard_normal(30)
    learnt = GroupSpikeSlabRegressor(inclusion_prior=0.1, noise_variance=0.01).fit(X, y)
    given = [
        GroupSpikeSlabRegressor(inclusion_prior=0.1, slab_variance=v, noise_variance=0.01)
        .fit(X, y)
        .log_evidence_
        for v in learnt.slab_variance_ * np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    ]
    np.testing.assert_allclose(learnt.log_evidence_, logsumexp(given) - np.log(5.0), atol=0.05)


@pytest.mark.parametrize("seed", [2, 3])
def test_a_cavity_without_a_density_does_not_make_the_average_nan(seed):
    # Sites of two equal columns: what one takes, the cavity of the other lacks.
    weight = np.random.default_rng(seed).uniform(0.0, 1000.0, 120)
    X, y = np.full((120, 2), 1e-3), np.full(120, 1e6 + 1.0)
    model = GroupSpikeSlabRegressor(noise_variance=0.1, sites="column", fit_intercept=False)
    with np.errstate(invalid="raise"):
        assert np.isfinite(model.fit(X, y, weight).log_evidence_)


def test_hyperprior_nodes_are_weights_of_a_distribution():
    prior = Hyperprior.for_size(50, 120, LEARNABLE)
    assert prior.b == pytest.approx(120 / 12.5 - 1.0)
    for nodes in (prior.prior_nodes(-2.0, 40), prior.slab_nodes(), prior.noise_nodes(30.0)):
        assert logsumexp(nodes.log_weight) == pytest.approx(0.0, abs=1e-12)
    # The mode in the logarithm: a prior flat in sigma2 leaves the mode of the nodes above.
    noise = prior.noise_nodes(200.0)
    assert np.exp(noise.log_weight) @ np.exp(noise.offset) > 1.0


@pytest.mark.slow
def test_learnt_inclusion_probabilities_of_weak_groups_are_not_overconfident():
    """Type-II maximum likelihood has a mean of .35 where .15 are active: see the benchmark."""
    p, active = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 45))
        z = rng.random(15) < 0.1
        y = X @ (np.repeat(z, 3) * rng.normal(0.0, 0.5, 45)) + rng.standard_normal(40)
        model = GroupSpikeSlabRegressor(np.arange(45) // 3, anneal=False).fit(X, y)
        p.append(model.inclusion_probability_)
        active.append(z)
    p, active = np.concatenate(p), np.concatenate(active)
    undecided = (p > 0.2) & (p < 0.95)
    spread = np.sqrt(np.sum(p[undecided] * (1.0 - p[undecided])))
    assert p[undecided].sum() - active[undecided].sum() < 2.0 * spread
    assert active[p > 0.95].mean() > 0.9


def test_with_more_columns_than_rows_no_group_is_certain_by_too_little_noise():
    # Noise alone: with a flat prior of the noise variance, six groups had probabilities above .97.
    X, y, groups, active = calibration_draw("more columns than rows", 3021)
    assert not np.any(active)
    model = GroupSpikeSlabRegressor(groups).fit(X, y)
    assert np.max(model.inclusion_probability_) < 0.5
    assert model.noise_variance_ > 0.5 * np.var(y)


@pytest.mark.slow
def test_correlated_columns_that_outnumber_the_rows_are_not_certain():
    # With the sites of the mode alone thirty inactive columns had probabilities of 1.
    X, y, groups, active = calibration_draw("wide correlated", 20097)
    model = GroupSpikeSlabRegressor(groups).fit(X, y)
    assert np.max(model.inclusion_probability_[~active]) < 0.8


def test_the_prior_of_the_noise_is_flat_unless_columns_outnumber_the_rows():
    learn = ("noise_variance",)
    assert [Hyperprior.for_size(50, p, learn).c for p in (10, 50, 60, 500)] == [1.0, 1.0, 1.2, 1.5]
    steep = Hyperprior(7.0, learn, 2.0)
    assert steep.log_density(0.0, 0.5) - steep.log_density(0.0, 0.0) == pytest.approx(1.0)
