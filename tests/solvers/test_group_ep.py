from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, logit

from sparsebayes.designs import CentredDesign, DenseDesign
from sparsebayes.linalg.blocks import column_blocks, times
from sparsebayes.solvers import run
from sparsebayes.solvers.group import sites as sites_module
from sparsebayes.solvers.group.column_form import ColumnForm
from sparsebayes.solvers.group.ep import LEARNABLE, GroupEP, log_evidence, noise_gradient
from sparsebayes.solvers.group.learning import PATIENCE, Learning
from sparsebayes.solvers.group.marginals import has_digits
from sparsebayes.solvers.group.mixing import Mixing
from sparsebayes.solvers.group.row_form import RowForm
from sparsebayes.solvers.group.sites import SpikeSlabSites
from tests.group_helpers import (
    enumerate_models,
    exact_sums,
    few_groups,
    random_problem,
    relative_error,
    signal,
)


def _fit(X, y, *model, max_iter=1000, **settings):
    return run(GroupEP(*model, **settings), DenseDesign(X), y, max_iter=max_iter)


@pytest.mark.parametrize("sites", ["group", "column"])
@pytest.mark.parametrize("wide", [False, True])
def test_exact_when_columns_are_orthogonal(sites, wide):
    rng = np.random.default_rng(0)
    group_of = np.array([0, 0, 1, 2, 2, 2, 3])
    X = np.linalg.qr(rng.standard_normal((12, 7)))[0] * rng.uniform(0.5, 3, 7)
    if wide:  # more columns than rows: the further columns are zero
        X, group_of = (
            np.hstack([X, np.zeros((12, 8))]),
            np.append(group_of, [3, 0, 4, 4, 5, 5, 5, 5]),
        )
    y = X[:, :3] @ [1.0, -0.5, 0.3] + 0.3 * rng.standard_normal(12)
    model = (group_of, 0.3, 0.8, 0.1)
    exact = enumerate_models(X, y, *model)
    result = _fit(X, y, *model, sites=sites, tol=1e-11)
    assert result.converged
    if sites == "column":
        # Columns of one group are dependent through z alone: their sites are exact too.
        np.testing.assert_allclose(result.state.inclusion_probability, exact[0], atol=1e-9)
    state = result.state
    ours = (state.inclusion_probability, state.sites.mean, state.sites.variance)
    for got, want in zip(ours, exact[:3], strict=True):
        np.testing.assert_allclose(got, want, atol=1e-9)
    np.testing.assert_allclose(log_evidence(state), exact[3], atol=1e-9)


@pytest.mark.parametrize(
    ("sites", "median", "high"), [("group", 0.0025, 0.08), ("column", 0.02, 0.13)]
)
def test_close_to_enumeration(sites, median, high):
    errors = []
    for seed in range(40):
        X, y, *model = random_problem(np.random.default_rng(seed), most_groups=7)
        exact = enumerate_models(X, y, *model)
        state = _fit(X, y, *model, sites=sites, max_iter=300).state
        errors.append(np.max(np.abs(state.inclusion_probability - exact[0])))
    assert np.median(errors) < median
    assert np.quantile(errors, 0.9) < high


def test_groups_of_one_make_both_kinds_of_sites_equal():
    X, y, _, p0, v0, sigma2 = random_problem(np.random.default_rng(3))
    alone = np.arange(X.shape[1])
    by_group = _fit(X, y, alone, p0, v0, sigma2, max_iter=20).state
    by_column = _fit(X, y, alone, p0, v0, sigma2, max_iter=20, sites="column").state
    np.testing.assert_allclose(by_group.sites.mean, by_column.sites.mean, atol=1e-12)


@pytest.mark.parametrize("sites", ["group", "column"])
@pytest.mark.parametrize("sigma2", [1.0, 1e-4])
def test_row_and_column_forms_agree(sites, sigma2):
    rng = np.random.default_rng(1)
    group_of = np.repeat(np.arange(6), [1, 2, 3, 1, 4, 2])
    blocks = column_blocks(group_of, sites)
    X, y = rng.standard_normal((15, len(group_of))), rng.standard_normal(15)
    sites_ = SpikeSlabSites.start(blocks, np.full(6, 0.2), np.geomspace(1e-3, 1e3, 6))
    for form in (RowForm(X, y, blocks), ColumnForm(X, y, blocks)):
        sites_.absorb(form.marginals(sites_.half, sites_.shift, 1 / sigma2))
        sites_.update(0.9)
    rows = RowForm(X, y, blocks).marginals(sites_.half, sites_.shift, 1 / sigma2)
    columns = ColumnForm(X, y, blocks).marginals(sites_.half, sites_.shift, 1 / sigma2)
    digits = 1e-10 if sigma2 == 1.0 else 1e-6  # the condition of A is 1e10 at the low noise
    for name in ("log_det", "quadratic", "residual", "n_used"):
        assert getattr(rows, name) == pytest.approx(getattr(columns, name), rel=digits)
    for i in range(len(blocks.buckets)):
        half, root = sites_.half[i], sites_.root[i]
        a, b = (m.blocks(i, slice(None), half, root) for m in (rows, columns))
        np.testing.assert_allclose(
            a[1] @ half.swapaxes(1, 2),
            b[1] @ half.swapaxes(1, 2),
            rtol=digits,
            atol=digits * sigma2,
        )
        np.testing.assert_allclose(a[2], b[2], rtol=digits, atol=digits * sigma2)
        np.testing.assert_allclose(
            times(half, a[3]), times(half, b[3]), rtol=digits, atol=digits * sigma2
        )


def test_marginals_are_those_of_the_dense_formula():
    X, y, group_of, p0, v0, sigma2 = random_problem(np.random.default_rng(4))
    sites = _fit(X, y, group_of, p0, v0, sigma2, max_iter=7).state.sites
    T, nu = np.zeros((X.shape[1],) * 2), np.zeros(X.shape[1])
    for bucket, P, shift in zip(sites.blocks.buckets, sites.precision, sites.shift, strict=True):
        for columns, block, part in zip(bucket.columns, P, shift, strict=True):
            T[np.ix_(columns, columns)], nu[columns] = block, part
    V = np.linalg.inv(X.T @ X / sigma2 + T)
    np.testing.assert_allclose(sites.variance, np.diag(V), rtol=1e-9)
    np.testing.assert_allclose(sites.mean, V @ (X.T @ y / sigma2 + nu), rtol=1e-8, atol=1e-12)


def test_new_sites_have_the_tilted_mean_and_covariance():
    X, y, group_of, p0, v0, sigma2 = random_problem(np.random.default_rng(9))
    sites = _fit(X, y, group_of, p0, v0, sigma2, max_iter=3).state.sites
    before = [c for c in sites.cavities]
    assert sites.update(1.0) == 0  # none clamped, or the covariance is not matched
    for cavity, T, nu in zip(before, sites.precision, sites.shift, strict=True):
        for B, r, rho, P, shift in zip(cavity.B, cavity.r, cavity.rho, T, nu, strict=True):
            Sigma = np.linalg.inv(B + np.eye(len(r)) / v0)
            mu = Sigma @ r
            covariance = rho * (Sigma + (1 - rho) * np.outer(mu, mu))
            V = np.linalg.inv(B + P)
            np.testing.assert_allclose(V, covariance, rtol=1e-8, atol=1e-14)
            np.testing.assert_allclose(V @ (r + shift), rho * mu, rtol=1e-8, atol=1e-14)


def test_clamped_sites_still_match_the_mean():
    # An undecided block: slab and spike equally likely, the slab far from zero.
    blocks = column_blocks(np.array([0, 0]))
    sites = SpikeSlabSites.start(blocks, np.array([1e-3]), np.array([1.0]))
    X = np.eye(2)
    form = ColumnForm(X, np.array([1.1, 1.1]), blocks)
    sites.absorb(form.marginals(sites.half, sites.shift, 10.0))
    (cavity,) = sites.cavities
    assert 0.05 < cavity.rho[0] < 0.95
    assert sites.update(1.0) == 1
    B, r, mu = cavity.B[0], cavity.r[0], cavity.slab.mean[0]
    mean = np.linalg.solve(B + sites.precision[0][0], r + sites.shift[0][0])
    np.testing.assert_allclose(mean, cavity.rho[0] * mu, rtol=1e-10)
    assert np.linalg.eigvalsh(sites.precision[0][0])[0] > 0


@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_gradients_of_the_evidence_match_finite_differences(seed):
    X, y, group_of, p0, v0, sigma2 = random_problem(np.random.default_rng(seed), most_groups=5)
    tight = {"tol": 1e-11, "max_iter": 2000}
    result = _fit(X, y, group_of, p0, v0, sigma2, **tight)
    state = result.state
    assert result.converged
    if result.history["n_clamped"][-1]:
        pytest.skip("a site is clamped: the gradient is only approximate there")
    h = 1e-4

    def evidence(dp=0.0, dv=0.0, ds=0.0):
        p = expit(logit(p0) + dp)
        return log_evidence(
            _fit(X, y, group_of, p, v0 * np.exp(dv), sigma2 * np.exp(ds), **tight).state
        )

    for name, want in (
        ("dp", state.sites.inclusion_gradient().sum()),
        ("dv", state.sites.slab_gradient().sum()),
        ("ds", noise_gradient(state)),
    ):
        slope = (evidence(**{name: h}) - evidence(**{name: -h})) / (2 * h)
        assert slope == pytest.approx(want, rel=1e-4, abs=1e-5)


def test_learnt_hyperparameters_are_stationary():
    X, y, group_of, _, _ = signal(4)
    v = 1e-3 * y @ y / len(y)
    result = _fit(X, y, group_of, 0.1, v, 2.0, learn=LEARNABLE, tol=1e-6, max_iter=3000)
    assert result.converged
    state = result.state
    gradients = (
        state.sites.inclusion_gradient().sum(),
        state.sites.slab_gradient().sum(),
        noise_gradient(state),
    )
    np.testing.assert_allclose(gradients, 0.0, atol=1e-3)
    assert state.sites.slab_variance[0] == pytest.approx(1 / 3, rel=0.5)
    assert state.sigma2 == pytest.approx(1.0, rel=0.5)


def test_small_damping_does_not_pass_for_convergence():
    X, y, *model = random_problem(np.random.default_rng(6))
    slow = _fit(X, y, *model, damping=1e-4, max_iter=5)
    assert not slow.converged


def test_a_hopeless_prior_leaves_every_group_out():
    # Log-odds of -46: the printed formulas lose the sign of the site variance here.
    X, y, group_of, _, v0, sigma2 = random_problem(np.random.default_rng(7))
    result = _fit(X, 1e-3 * y, group_of, 1e-20, v0, sigma2)
    assert result.converged
    state = result.state
    assert np.all(np.isfinite(state.sites.mean))
    assert np.all(state.inclusion_probability < 1e-15)
    assert np.all(state.sites.variance < 1e-15 * v0)


def test_correlated_columns_of_an_active_group_are_found():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((40, 6))
    X = np.repeat(shared, 5, axis=1)
    X = np.sqrt(0.999) * X + np.sqrt(0.001) * rng.standard_normal(X.shape)
    y = X[:, :5].sum(axis=1) * 0.3 + 0.5 * rng.standard_normal(40)
    state = _fit(X, y, np.repeat(np.arange(6), 5), 0.2, 1.0, 0.25).state
    assert state.inclusion_probability[0] > 0.95
    assert np.all(state.inclusion_probability[1:] < 0.5)


def test_evidence_and_inclusion_follow_the_units():
    X, y, group_of, p0, v0, sigma2 = random_problem(np.random.default_rng(8))
    plain = _fit(X, y, group_of, p0, v0, sigma2, max_iter=30).state
    a, b = 1e6, 1e-3
    scaled = _fit(a * X, b * y, group_of, p0, v0 * (b / a) ** 2, sigma2 * b**2, max_iter=30).state
    np.testing.assert_allclose(scaled.inclusion_probability, plain.inclusion_probability, atol=1e-9)
    shift = len(y) * np.log(b)
    assert log_evidence(scaled) + shift == pytest.approx(log_evidence(plain), abs=1e-6)


def test_intercept_is_integrated_out_of_the_evidence():
    X, y, group_of, p0, v0, sigma2 = random_problem(np.random.default_rng(10), most_groups=4)
    wide = np.column_stack([X, np.ones(len(y))])
    big, last = 1e6, np.append(group_of, group_of.max() + 1)
    G = group_of.max() + 1
    with_column = GroupEP(
        last, np.append(np.full(G, p0), 1 - 1e-12), np.append(np.full(G, v0), big), sigma2, tol=1e-9
    )
    columns = run(with_column, DenseDesign(wide), y + 3, max_iter=1000).state
    design = CentredDesign(DenseDesign(X))
    centred = GroupEP(group_of, p0, v0, sigma2, tol=1e-9)
    state = run(centred, design, design.target(y + 3), max_iter=1000).state
    flat = log_evidence(columns) + 0.5 * np.log(2 * np.pi * big)
    assert log_evidence(state) == pytest.approx(flat, abs=1e-3)
    np.testing.assert_allclose(
        state.inclusion_probability, columns.inclusion_probability[:G], atol=1e-4
    )


def test_cooling_escapes_a_wrong_fixed_point():
    X, y, group_of, w, active = few_groups(75, 3)
    model = GroupEP(group_of, 0.04, 1.0, 0.01)
    plain = run(model, DenseDesign(X), y, max_iter=150).state
    cooled = run(replace(model, cool_from=40.0), DenseDesign(X), y, max_iter=300).state
    assert relative_error(plain.sites.mean, w) > 0.5
    assert relative_error(cooled.sites.mean, w) < 0.03
    assert np.array_equal(np.flatnonzero(cooled.inclusion_probability > 0.5), active)
    assert log_evidence(cooled) > log_evidence(plain) + 20


def test_posterior_is_the_same_in_both_forms():
    rng = np.random.default_rng(2)
    group_of = np.repeat(np.arange(5), [1, 2, 3, 2, 4])
    X, y = rng.standard_normal((11, 12)), rng.standard_normal(11)
    X_new = rng.standard_normal((4, 12))
    model = GroupEP(group_of, 0.3, 1.0, 0.2, tol=1e-10)
    wide = run(model, DenseDesign(X), y, max_iter=500)
    # Two empty rows change nothing but the form, and the evidence by their density at zero.
    tall_X, tall_y = np.vstack([X, np.zeros((2, 12))]), np.append(y, [0.0, 0.0])
    tall = run(model, DenseDesign(tall_X), tall_y, max_iter=500)
    p = model.posterior(wide.state, DenseDesign(X), y)
    q = model.posterior(tall.state, DenseDesign(tall_X), tall_y)
    assert type(p.form) is not type(q.form)
    np.testing.assert_allclose(p.covariance, q.covariance, atol=1e-9)
    np.testing.assert_allclose(p.predict(X_new), q.predict(X_new), atol=1e-8)
    np.testing.assert_allclose(p.predict_covariance(X_new), q.predict_covariance(X_new), atol=1e-8)
    assert p.log_evidence - q.log_evidence == pytest.approx(np.log(2 * np.pi * 0.2), abs=1e-8)


def test_runs_can_be_resumed():
    X, y, *model = random_problem(np.random.default_rng(11))
    whole = _fit(X, y, *model, max_iter=12)
    first = _fit(X, y, *model, max_iter=5)
    rest = run(GroupEP(*model), DenseDesign(X), y, max_iter=7, state=first.state)
    np.testing.assert_array_equal(whole.state.sites.mean, rest.state.sites.mean)


def test_random_problems_of_all_scales_finish_without_nan():
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n, G = int(rng.integers(5, 60)), int(rng.integers(2, 80))
        group_of = np.sort(rng.integers(0, G, int(rng.integers(2, 150))))
        group_of = np.unique(group_of, return_inverse=True)[1]
        X = 10.0 ** rng.uniform(-6, 6) * rng.standard_normal((n, len(group_of)))
        y = 10.0 ** rng.uniform(-6, 6) * rng.standard_normal(n)
        v0 = 10.0 ** rng.uniform(-6, 6) * np.var(y) / np.var(X)
        sigma2 = 10.0 ** rng.uniform(-6, 1) * np.var(y)
        result = _fit(X, y, group_of, rng.uniform(0.01, 0.5), v0, sigma2, max_iter=60)
        state = result.state
        assert np.all(np.isfinite(state.inclusion_probability))
        assert np.all(np.isfinite(state.sites.mean))
        assert np.isfinite(log_evidence(state))
        assert not result.converged or state.change <= 1e-4


def _moved_sites(blocks, seed, sites=None, count=None):
    """Random sites; with `sites` those, `count` blocks of each size changed."""
    rng = np.random.default_rng(seed)
    half, nu = [], []
    for i, b in enumerate(blocks.buckets):
        F = 0.05 * np.tril(rng.standard_normal((len(b.owner), b.size, b.size)) + 2 * np.eye(b.size))
        shift = rng.standard_normal(b.columns.shape)
        if sites is not None:
            keep = rng.permutation(len(F))[count:]
            F[keep], shift[keep] = sites[0][i][keep], sites[1][i][keep]
        half.append(F)
        nu.append(shift)
    return half, nu


@pytest.mark.parametrize("sites", ["group", "column"])
def test_sums_corrected_for_changed_sites_are_those_made_afresh(sites):
    rng = np.random.default_rng(0)
    group_of = np.repeat(np.arange(60), np.arange(60) % 4 + 1)
    blocks = column_blocks(group_of, sites)
    X, y = rng.standard_normal((20, len(group_of))), rng.standard_normal(20)
    form, now = RowForm(X, y, blocks), _moved_sites(blocks, 0)
    for seed in range(1, 6):
        kept = form.marginals(*now, 4.0)
        fresh = RowForm(X, y, blocks).marginals(*now, 4.0)
        for a, b in zip(kept.H + kept.q, fresh.H + fresh.q, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
        now = _moved_sites(blocks, seed, now, count=2)


def test_single_precision_is_used_only_where_it_is_safe():
    rng = np.random.default_rng(1)
    group_of = np.arange(2400) // 4
    blocks = column_blocks(group_of)
    X, y = 1e4 * rng.standard_normal((100, 2400)), rng.standard_normal(100)
    half, nu = _moved_sites(blocks, 2)
    half = [1e-5 * F for F in half]
    half[0][:3] *= 300.0  # three groups that take up nearly all they can
    form = RowForm(X, y, blocks)
    fine, rough = (form.marginals(half, nu, 25.0, rough=r) for r in (False, True))
    assert form._single
    difference = np.abs(fine.H[0] - rough.H[0]).max(axis=(1, 2))
    assert 0 < difference.max() < 1e-5 * np.abs(fine.H[0]).max()
    M = fine.blocks(0, slice(3), half[0][:3], np.linalg.inv(half[0][:3]))[2]
    again = rough.blocks(0, slice(3), half[0][:3], np.linalg.inv(half[0][:3]))[2]
    assert np.linalg.eigvalsh(M).min() < 0.01
    np.testing.assert_allclose(again, M, atol=1e-5)
    # At a thousandth of the noise the small blocks are no longer small.
    form = RowForm(X, y, blocks)
    form.marginals(half, nu, 25e6, rough=True)
    assert not form._single


def _learnt(f, evidence, rounds):
    """One hyperparameter whose EM step is f(h), on sites that settle at once: what was put."""
    learning, h = Learning(("slab_variance",), 1e-4), [0.0]
    sites = SimpleNamespace(
        parameters=list, restore=lambda former: None, at_rest=lambda change, tol: True
    )
    for _ in range(rounds):
        learning.step(
            0.0,
            sites,
            lambda: (np.array(h[-1:]), np.array([f(h[-1])]), np.array([f(h[-1])])),
            lambda new: h.append(float(new[0])),
            lambda: evidence(h[-1] - h[-2]) if len(h) > 1 else 0.0,
        )
        if learning.done:
            break
    return np.array(h), learning


def test_a_mixed_step_that_was_taken_back_is_not_tried_again():
    # Whatever goes further than two EM steps falls: a ridge that bends.
    h, _ = _learnt(lambda h: 0.05 - 0.001 * h, lambda step: -float(step > 0.1), 40)
    long = np.diff(h)[np.diff(h) > 0.1]
    assert long[0] == pytest.approx(0.5)
    assert long[1:].max() < 0.6 * long[0]
    assert long[2:].max() < 0.3 * long[0]


def test_a_ridge_on_which_f_hardly_shrinks_is_no_end():
    # Long steps halve f, and promise that little is left; an EM step takes a thirtieth of it.
    h, learning = _learnt(lambda h: 0.04 * np.exp(-h), lambda step: 0.0, 100)
    assert learning.done
    assert 0.04 * np.exp(-h[-1]) < 20.0 * learning.tol  # the nats from here to infinity


def test_a_large_step_of_one_hyperparameter_predicts_nothing_of_another():
    # The slope of the second falls as the first moves to its bound, and then stays: a flat ridge.
    learning, h = Learning(("inclusion_prior", "slab_variance"), 1e-4), [np.zeros(2)]
    sites = SimpleNamespace(parameters=list, at_rest=lambda change, tol: True)

    def hyper():
        f = np.array([-1.0 - h[-1][0], 0.015 - 0.005 * h[-1][0]])
        return h[-1], f, 0.004 * f

    for _ in range(2):
        learning.step(0.0, sites, hyper, h.append, lambda: 0.0)
    assert h[1][0] == -1.0
    assert not learning.done


def test_what_is_learnt_at_sites_that_have_not_settled_is_no_end():
    learning = Learning(("slab_variance",), 1e-4)
    sites = SpikeSlabSites.start(column_blocks(np.arange(2)), np.full(2, 0.5), np.ones(2))
    none = np.zeros(1)

    def step(change, unmixed_change):
        sites.unmixed_change = unmixed_change
        learning.steps_since_update = PATIENCE
        learning.step(change, sites, lambda: (none, none, none), lambda h: None, lambda: 0.0)
        return learning.done

    assert not step(0.3, 0.0)
    assert not step(0.0, 0.2)  # mixing has taken their step back
    assert step(0.0, 0.0)


def test_sites_that_do_not_converge_leave_hyperparameters_at_rest_alone():
    learning, h = Learning(("slab_variance",), 1e-4), np.ones(1)
    sites = SimpleNamespace(
        parameters=list, restore=lambda former: None, at_rest=lambda change, tol: False
    )
    put, none = [], np.zeros(1)
    for _ in range(1100):  # powers of two overflow
        learning.steps_since_update = PATIENCE
        learning.step(0.0, sites, lambda: (h, none, none), put.append, lambda: 0.0)
    assert not learning.done
    np.testing.assert_array_equal(put, np.ones((1100, 1)))


def test_an_end_of_learning_is_confirmed_where_the_sites_end():
    # The sites settle for a step and go on for a while, and at their end f is another one.
    learning, h = Learning(("slab_variance",), 1e-4), np.zeros(1)
    sites = SimpleNamespace(parameters=list, at_rest=lambda change, tol: change <= tol)
    put = []

    def done(change, f):
        learning.steps_since_update = PATIENCE
        f = np.array([f])
        learning.step(change, sites, lambda: (h, f, f), put.append, lambda: 0.0)
        return learning.done

    done(1e-4, 0.05)
    assert not done(4e-4, 1e-5)
    assert not done(1e-4, 0.05)
    assert not done(4e-4, 1e-5)
    n_moves = len(put)
    assert done(1e-4, 1e-5)
    assert len(put) == n_moves


@pytest.mark.parametrize("form", [RowForm, ColumnForm])
@pytest.mark.parametrize("sigma2", [1e-2, 1e-5, 1e-8, 1e-10, 1e-13, 1e-16, 1e-20])
@pytest.mark.parametrize("apart", [1e-4, 1e-7])
@pytest.mark.parametrize("explained", [False, True])
def test_rounding_errors_of_the_evidence_are_known(form, sigma2, apart, explained):
    # Nearly equal columns, and a target that needs their differences or is not explained by them.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 1)) + apart * rng.standard_normal((6, 5))
    y = rng.standard_normal(6)
    y = X @ rng.standard_normal(5) if explained else y
    v0 = 2.0
    blocks = column_blocks(np.arange(5))
    sites = SpikeSlabSites.start(blocks, np.full(5, 0.5), np.full(5, 2.0 * v0))
    m = form(X, y, blocks).marginals(sites.half, sites.shift, 1.0 / sigma2)
    quadratic, log_det = exact_sums(X[:, blocks.order], y, v0, sigma2)
    log_det -= 6 * np.log(sigma2)
    error = 0.5 * abs(m.quadratic - quadratic + m.log_det - log_det)
    assert error <= 10.0 * m.rounding or not has_digits(m.rounding)
    assert error <= 0.1 or not has_digits(m.rounding)
    assert m.rounding < 1e-6 or error > 1e-5 * m.rounding  # nor is it far too careful


def test_an_evidence_without_digits_to_compare_models_is_no_convergence():
    X, y, group_of, _, _ = few_groups(40, 1, d=60, noise=0.5)
    solver = GroupEP(group_of, 0.1, 1.0, 0.25)
    state = run(solver, DenseDesign(X), y, max_iter=200).state
    assert solver.done(state) == "converged"
    state.marginals = replace(state.marginals, rounding=1.5)
    assert solver.done(state) == "stalled"


def test_a_site_that_rounding_keeps_from_its_update_is_not_at_rest(monkeypatch):
    X, y, group_of, _, _ = few_groups(40, 1, d=60, noise=0.5)
    new_sites = sites_module._new_sites

    def spoilt(*args):
        T, nu, clamped = new_sites(*args)
        T[0] = np.nan
        return T, nu, clamped

    monkeypatch.setattr(sites_module, "_new_sites", spoilt)
    result = run(GroupEP(group_of, 0.1, 1.0, 0.25), DenseDesign(X), y, max_iter=60)
    assert not result.converged


def test_sites_that_diverge_are_not_accepted_and_not_at_rest(monkeypatch):
    X, y, group_of, _, _ = few_groups(40, 1, d=60, noise=0.5)
    fit_slab = sites_module.fit_slab

    def certain(*args):
        slab = fit_slab(*args)
        return replace(slab, log_bayes_factor=slab.log_bayes_factor + 1e20)

    monkeypatch.setattr(sites_module, "fit_slab", certain)
    result = run(GroupEP(group_of, 0.1, 1.0, 0.25), DenseDesign(X), y, max_iter=60)
    assert not result.converged
    assert np.max(np.abs(result.state.sites.log_odds[0])) <= result.state.sites.limit < 1e8


def test_an_evidence_that_is_not_finite_is_not_convergence():
    X, y, group_of, _, _ = few_groups(40, 1, d=60, noise=0.5)
    solver = GroupEP(group_of, 0.1, 1.0, 0.25)
    state = run(solver, DenseDesign(X), y, max_iter=200).state
    assert solver.done(state) == "converged"
    for evidence in (np.nan, np.inf, -np.inf):
        state.log_evidence = evidence
        assert solver.done(state) is None


def test_a_step_that_mixing_takes_back_is_not_convergence(monkeypatch):
    X, y, group_of, _, _ = few_groups(40, 1, d=60, noise=0.5)
    solver = GroupEP(group_of, 0.1, 1.0, 0.25)
    assert run(solver, DenseDesign(X), y, max_iter=100).converged
    monkeypatch.setattr(Mixing, "correction", lambda self, x, f, weighted, beta: -beta * f)
    result = run(solver, DenseDesign(X), y, max_iter=100)
    assert result.state.change <= solver.tol
    assert not result.converged


@pytest.mark.parametrize("sites", ["group", "column"])
def test_single_precision_does_not_change_the_answer(sites):
    X, y, group_of, _, _ = few_groups(100, 1, d=2400, noise=0.5)
    model = GroupEP(group_of, 10 / 600, 1.0, 0.25, sites=sites)
    quick = run(model, DenseDesign(X), y, max_iter=500)
    exact = run(replace(model, tol=1e-9), DenseDesign(X), y, max_iter=1000)
    assert quick.converged
    assert exact.converged
    assert quick.state.form._single
    a, b = quick.state, exact.state
    np.testing.assert_allclose(a.inclusion_probability, b.inclusion_probability, atol=3e-4)
    np.testing.assert_allclose(a.sites.mean, b.sites.mean, atol=3e-4)
    assert log_evidence(a) == pytest.approx(log_evidence(b), abs=0.02)


def test_likely_groups_updated_more_often_end_in_the_same_place_in_fewer_steps():
    X, y, group_of, _, _ = signal(2)
    model = GroupEP(group_of, 4 / 128, 1 / 3, 1.0, tol=1e-7)
    plain = run(model, DenseDesign(X), y, max_iter=500)
    focused = run(replace(model, focus_from=0.0), DenseDesign(X), y, max_iter=500)
    assert plain.converged
    assert focused.converged
    assert focused.n_iter < plain.n_iter
    np.testing.assert_allclose(
        focused.state.inclusion_probability, plain.state.inclusion_probability, atol=1e-4
    )
    assert log_evidence(focused.state) == pytest.approx(log_evidence(plain.state), abs=1e-3)


def _turning(seed):
    """Weak signals in many correlated columns and few rows, where damping alone goes in circles."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 80)), int(rng.integers(60, 300))
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    w = np.where(rng.random(d) < 0.1, rng.standard_normal(d), 0.0)
    y = X @ w
    return X, y / np.std(y) + 0.6 * rng.standard_normal(n), np.arange(d) // 3


def test_mixing_ends_where_damping_ends_and_sooner():
    steps = []
    for seed in range(6):
        X, y, group_of = _turning(seed)
        model = GroupEP(group_of, 0.1, 0.05, 0.4)
        mixed = run(model, DenseDesign(X), y, max_iter=500)
        assert mixed.stop_reason in ("converged", "cycling")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Learning, "mix", lambda self, change: False)
            damped = run(model, DenseDesign(X), y, max_iter=500)
        if mixed.converged and damped.converged:
            steps.append((mixed.n_iter, damped.n_iter))
            np.testing.assert_allclose(
                mixed.state.inclusion_probability, damped.state.inclusion_probability, atol=5e-3
            )
    assert len(steps) >= 4
    assert np.sum(steps, axis=0)[0] < 0.8 * np.sum(steps, axis=0)[1]


def test_what_does_not_settle_is_said_to_cycle():
    learning = Learning((), 1e-4)
    sites = SpikeSlabSites.start(column_blocks(np.arange(2)), np.full(2, 0.5), np.ones(2))
    called = [learning.step(0.3, sites, None, None, None) for _ in range(340)]
    assert learning.cycling
    assert any(called)


def test_learning_crawls_along_no_ridge():
    # Hardly a signal: few strong groups and many weak ones have nearly the same evidence.
    rng = np.random.default_rng(65)
    X = rng.standard_normal((39, 71))
    y = X[:, :7] @ (0.3 * rng.standard_normal(7)) + rng.standard_normal(39)
    result = _fit(X, y, np.arange(71) // 3, 0.2, 0.05, 0.5, learn=LEARNABLE, max_iter=400)
    assert result.converged
