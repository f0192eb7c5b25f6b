"""Forward selection for several targets at once."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from sparsebayes import ForwardRegressor
from sparsebayes.designs import CentredDesign, DenseDesign
from sparsebayes.posterior import gaussian_posterior
from sparsebayes.solvers import Forward, run
from sparsebayes.solvers.forward.routes import columns_route, gram_route, triangle_route

MODELS = {
    "auto": ForwardRegressor(),
    "width": ForwardRegressor("rbf", gamma=0.5),
    "the paper": ForwardRegressor("rbf", gamma=0.5, refit=None),
    "all terms": ForwardRegressor("rbf", gamma=0.5, early_stopping=None, max_terms=20),
    "columns": ForwardRegressor(None),
    "low rank": ForwardRegressor("rbf", gamma=0.5, rank=30, max_terms=20),
    "known": ForwardRegressor("rbf", gamma=0.5, noise_variance=0.01, regularization=0.1),
}


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    Y = np.column_stack([np.sin(X[:, 0]) * X[:, 1], 300.0 + 100.0 * X[:, 2]])
    return X, Y + np.array([0.1, 20.0]) * rng.standard_normal((n, 2))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "auto"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_target_beside_itself_is_the_target(name, weighted, monkeypatch):
    X, Y = table()
    y = Y[:, 0]
    weight = np.random.default_rng(1).uniform(0.5, 1.0, len(y)) if weighted else None
    # What is learnt ends within a nat, and two targets have twice the evidence.
    monkeypatch.setattr("sparsebayes.selection._TOL", 1e-9)
    one = clone(MODELS[name]).fit(X, y, weight)
    two = clone(MODELS[name]).fit(X, np.column_stack([y, y]), weight)
    assert two.log_evidence_ == pytest.approx(2 * one.log_evidence_, abs=1e-4)
    new = 0.9 * table(seed=1)[0]  # among the rows
    mean, std = one.predict(new, return_std=True)
    means, stds = two.predict(new, return_std=True)
    np.testing.assert_allclose(means.T, [mean, mean], atol=1e-4 * std.min())
    # Tails are of one target, and have a part in its calibration.
    fitted = stds.T / np.broadcast_to(two.calibration_, 2)[:, None]
    np.testing.assert_allclose(fitted, [std / one.calibration_] * 2, rtol=1e-5)
    assert two.loo_.r2 == pytest.approx(one.loo_.r2, rel=1e-5)


@pytest.mark.parametrize("route", [columns_route, gram_route, triangle_route])
def test_every_step_takes_the_column_that_raises_the_summed_evidence_most(route):
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((40, 8)) + 1.0
    Y = Phi[:, [2, 5]] + 0.5 * Phi[:, [5, 7]] + 0.3 * rng.standard_normal((40, 2))
    design = CentredDesign(DenseDesign(Phi))
    t = design.target(Y)
    noise = np.array([0.1, 0.2])
    solver = Forward(noise, 0.7, max_terms=5, cut=False, route=route)
    state = run(solver, design, t, max_iter=100).state

    def evidence(active):
        active = np.array(active, dtype=np.intp)
        return gaussian_posterior(design, t, active, np.full(len(active), 0.7), noise).log_evidence

    chosen: list[int] = []
    for i in state.order:
        free = [j for j in range(8) if j not in chosen]
        assert i == max(free, key=lambda j: evidence([*chosen, j]))
        chosen.append(i)
    curve = solver.best_path(state, design, t)[0].curve(0.7, state.noise)
    np.testing.assert_allclose(curve, [evidence(chosen[:k]) for k in range(6)], rtol=1e-10)


@pytest.mark.parametrize("name", ["width", "the paper", "columns"])
def test_the_evidence_is_the_sum_of_dense_ones(name):
    X, Y = table()
    model = clone(MODELS[name]).fit(X, Y)
    Phi = model.basis_.functions(X)
    precision = model.weight_precision_
    if name == "width":  # the prior of a process
        K = model.basis_.functions(model.relevance_vectors_)
        level = np.einsum("ij,ij->i", *[np.linalg.cholesky(K + 1e-12 * np.eye(len(K)))] * 2)
        amplitude = level[:, None] / precision
        np.testing.assert_allclose(amplitude, amplitude[:1].repeat(len(K), 0), rtol=1e-6)
    total = 0.0
    for p in range(2):
        if name == "width":
            prior = amplitude[0, p] * np.linalg.inv(K)
        else:
            prior = np.diag(1.0 / precision[:, p])
        noise = model.noise_variance_[p] * np.eye(len(X))
        # The flat prior of the intercept: the density of the n - 1 contrasts.
        Q = np.linalg.qr(np.column_stack([np.ones(len(X)), np.eye(len(X))[:, 1:]]))[0][:, 1:]
        C = Q.T @ (Phi @ prior @ Phi.T + noise) @ Q
        r = Q.T @ Y[:, p]
        log_det = np.linalg.slogdet(2 * np.pi * C)[1]
        total += -0.5 * (log_det + r @ np.linalg.solve(C, r)) - 0.5 * np.log(len(X))
    assert model.log_evidence_ == pytest.approx(total, rel=1e-5)


def test_units_of_one_target_do_not_move_the_other():
    X, Y = table()
    plain = clone(MODELS["auto"]).fit(X, Y)
    scaled = clone(MODELS["auto"]).fit(X, Y * [1.0, 1e3] + [0.0, 7.0])
    new = table(seed=1)[0]
    mean, std = plain.predict(new, return_std=True)
    theirs, spread = scaled.predict(new, return_std=True)
    np.testing.assert_allclose(theirs, mean * [1.0, 1e3] + [0.0, 7.0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(spread, std * [1.0, 1e3], rtol=1e-6)


@pytest.mark.parametrize("name", ["auto", "all terms"])
def test_joint_covariance_and_draws_have_an_output_axis(name):
    X, Y = table(40)  # few rows: most of them carry a function, and the rest of the process counts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(MODELS[name]).set_params(max_terms=30).fit(X, Y)
    new = table(5, seed=1)[0]
    mean, std = model.predict(new, return_std=True)
    covariance = model.predict(new, return_cov=True)[1]
    assert covariance.shape == (5, 5, 2)
    np.testing.assert_allclose(np.diagonal(covariance).T, std**2, rtol=1e-9)
    draws = model.sample_y(new, 20_000)
    assert draws.shape == (5, 2, 20_000)
    np.testing.assert_allclose((draws.mean(axis=-1) - mean) / std, 0.0, atol=0.05)
    np.testing.assert_allclose(draws.std(axis=-1), std, rtol=0.05)
    assert model.predict_interval(new).shape == (5, 2, 2)


def test_both_targets_are_followed_where_each_alone_needs_other_functions():
    X, Y = table(400)
    model = clone(MODELS["auto"]).fit(X, Y)
    new, truth = table(300, seed=2)
    residual = truth - model.predict(new)
    np.testing.assert_array_less(residual.std(axis=0), [0.13, 23.0])
    np.testing.assert_allclose(np.sqrt(model.noise_variance_), [0.1, 20.0], rtol=0.2)


@pytest.mark.parametrize(
    "parameters", [{"early_stopping": "validation"}, {"likelihood": "student"}]
)
def test_what_takes_one_target_says_so(parameters):
    X, Y = table(30)
    with pytest.raises(ValueError, match="2 columns"):
        ForwardRegressor(**parameters).fit(X, Y)
