"""Forward selection against brute force: every step, every route, every number of terms."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from sparsebayes.designs import CentredDesign, DenseDesign, KernelDesign, WeightedDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.posterior import gaussian_posterior
from sparsebayes.solvers import Forward, run
from sparsebayes.solvers.forward import routes as _routes
from sparsebayes.solvers.forward.path import CLAIM_ERROR, GramPath, Path, best_lam, best_terms
from sparsebayes.solvers.forward.routes import (
    ColumnScores,
    GramScores,
    cheapest_route,
    columns_route,
    gram_route,
    low_rank_route,
    triangle_route,
    whole_path_route,
)
from sparsebayes.solvers.noise import Noise, squares
from sparsebayes.solvers.ols.selection import OrthogonalLeastSquares

EXACT_ROUTES = {
    "columns": columns_route,
    "gram": gram_route,
    "triangle": triangle_route,
    "whole path": whole_path_route,
}


def cholesky(A):
    """In extended precision: on the ill-conditioned problems float64 is not a judge."""
    L = np.array(A, dtype=np.longdouble)
    for j in range(len(L)):
        L[j:, j] -= L[j:, :j] @ L[j, :j]
        L[j:, j] /= np.sqrt(L[j, j])
        L[j, j + 1 :] = 0
    return L


def brute_force(Phi, t, active, lam, sigma2=None):
    """log N(t | 0, sigma2 (Id + H H'/lam)), at the best noise where none is given."""
    n = len(t)
    H = np.asarray(Phi[:, active], dtype=np.longdouble)
    L = cholesky(np.eye(n) + H @ H.T / np.longdouble(lam))
    a = np.array(t, dtype=np.longdouble)
    for j in range(n):
        a[j] = (a[j] - L[j, :j] @ a[:j]) / L[j, j]
    S = a @ a
    sigma2 = S / n if sigma2 is None else np.longdouble(sigma2)
    return -(n * np.log(2 * np.pi * sigma2) + S / sigma2) / 2 - np.sum(np.log(np.diag(L)))


def brute_force_by_columns(Phi, t, active, lam, sigma2=None):
    """The same from [H; sqrt(lam) Id] orthogonalised twice: no covariance of condition 1/lam."""
    n, k = len(t), len(active)
    A = np.vstack([Phi[:, active], np.sqrt(np.longdouble(lam)) * np.eye(k)]).astype(np.longdouble)
    rest = np.concatenate([t, np.zeros(k)]).astype(np.longdouble)
    log_det = -k * np.log(np.longdouble(lam))
    for j in range(k):
        for _ in range(2):
            A[:, j] -= A[:, :j] @ (A[:, :j].T @ A[:, j])
        size = np.sqrt(A[:, j] @ A[:, j])
        log_det += 2 * np.log(size)
        A[:, j] /= size
        rest -= A[:, j] * (A[:, j] @ rest)
    S = rest @ rest
    sigma2 = S / n if sigma2 is None else np.longdouble(sigma2)
    return -(n * np.log(2 * np.pi * sigma2) + S / sigma2 + log_det) / 2


def problem(kind, seed):
    rng = np.random.default_rng(seed)
    n, m, lam, sigma2 = 24, 14, 0.3, 0.2
    Phi = rng.standard_normal((n, m))
    t = Phi[:, :3] @ np.array([1.0, -2.0, 0.5]) + 0.4 * rng.standard_normal(n)
    if kind == "duplicates":
        Phi[:, 7:] = Phi[:, :7]
    elif kind == "more columns than rows":
        n, m = 9, 30
        Phi = rng.standard_normal((n, m))
        t = Phi[:, 4] + 0.1 * rng.standard_normal(n)
    elif kind == "scales over 8 decades":
        Phi = Phi * 10.0 ** rng.uniform(-4, 4, m)
    elif kind == "tiny lam":
        x = np.sort(rng.uniform(0, 1, n))
        Phi = np.exp(-((x[:, None] - x[None, :14]) ** 2) / 0.3)
        t = np.sin(6 * x) + 0.05 * rng.standard_normal(n)
        lam = 1e-11
    elif kind == "ties":
        Phi = np.eye(n)[:, :m]
        t = np.ones(n)
        lam, sigma2 = 1.0, 0.1
    elif kind == "zero columns":
        Phi[:, [0, 5]] = 0.0
    elif kind == "one row":
        Phi, t = Phi[:1], t[:1]
    elif kind == "kernel":
        X = rng.uniform(-1, 1, (n, 2))
        Phi = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1))
        t = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    return Phi, t, lam, sigma2


KINDS = [
    "plain",
    "duplicates",
    "more columns than rows",
    "scales over 8 decades",
    "tiny lam",
    "ties",
    "zero columns",
    "one row",
    "kernel",
]


def select(solver, design, t):
    result = run(solver, design, t, max_iter=10_000)
    path, found = solver.best_path(result.state, design, t)
    return result, path, found


CASES = [(kind, route) for kind in KINDS for route in EXACT_ROUTES]
for route in ("gram", "whole path"):  # below the lam that the Gram form can bear
    CASES.remove(("tiny lam", route))


@pytest.mark.parametrize("noise", ["fixed", "profile"])
@pytest.mark.parametrize(("kind", "route"), CASES)
def test_each_step_takes_the_best_gain_there_is(kind, noise, route):
    for seed in range(2):
        Phi, t, lam, sigma2 = problem(kind, seed)
        sigma2 = sigma2 if noise == "fixed" else None
        design = DenseDesign(Phi)
        solver = Forward(sigma2, lam, max_terms=5, route=EXACT_ROUTES[route])
        result, _, found = select(solver, design, t)
        judge = brute_force_by_columns if kind == "tiny lam" else brute_force
        before = judge(Phi, t, [], lam, sigma2)
        for k, i in enumerate(found.order):
            rest = [j for j in range(Phi.shape[1]) if j not in found.order[:k]]
            rest = [j for j in rest if np.any(Phi[:, j])]
            values = {j: judge(Phi, t, [*found.order[:k], j], lam, sigma2) for j in rest}
            tolerance = 1e-9 * max(1.0, abs(before))
            assert values[i] >= max(values.values()) - tolerance
            assert abs(result.history["gain"][k] - (values[i] - before)) <= tolerance
            before = values[i]


def test_the_two_judges_agree():
    Phi, t, lam, sigma2 = problem("plain", 0)
    for noise in (None, sigma2):
        values = [f(Phi, t, [3, 0, 8], lam, noise) for f in (brute_force, brute_force_by_columns)]
        assert abs(values[0] - values[1]) < 1e-14


@pytest.mark.parametrize("route", EXACT_ROUTES)
@pytest.mark.parametrize("noise", [None, 0.2])
def test_gains_telescope_to_log_evidence(noise, route):
    Phi, t, lam, _ = problem("kernel", 3)
    design = CentredDesign(DenseDesign(Phi))
    t = design.target(t)
    solver = Forward(noise, lam, max_terms=12, cut=False, route=EXACT_ROUTES[route])
    result, path, found = select(solver, design, t)
    n = Noise.from_design(design, t, noise)
    curve = path.curve(lam, n)
    np.testing.assert_allclose(np.diff(curve), result.history["gain"], atol=1e-9)
    posterior = solver.solution(result.state, design, t).posterior
    assert posterior.log_evidence == pytest.approx(curve[-1], abs=1e-9)
    assert found.claimed[-1] == pytest.approx(curve[-1], abs=1e-9)


def test_profile_is_fixed_at_the_profiled_noise():
    Phi, t, lam, _ = problem("plain", 0)
    design = DenseDesign(Phi)
    free, _, found = select(Forward(None, lam, max_terms=6, cut=False), design, t)
    sigma2 = free.history["noise_variance"][-1]
    fixed = gaussian_posterior(design, t, np.array(found.order), np.full(6, lam), sigma2)
    assert free.history["log_evidence"][-1] == pytest.approx(fixed.log_evidence, abs=1e-10)
    for wrong in (0.8 * sigma2, 1.2 * sigma2):
        other = gaussian_posterior(design, t, np.array(found.order), np.full(6, lam), wrong)
        assert other.log_evidence < fixed.log_evidence


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_all_routes_choose_the_same_and_agree_on_every_number(weighted, centred):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (150, 2))
    t = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(150)
    design = KernelDesign(X, StationaryKernel("rbf", 0.8), np.arange(60))
    if weighted:
        design = WeightedDesign(design, rng.uniform(0.3, 3.0, 150))
    if centred:
        design = CentredDesign(design)
    t = design.target(t)
    routes = {**EXACT_ROUTES, "full rank": partial(low_rank_route, rank=60, trace=1e-15)}
    solvers = {name: Forward(max_terms=25, route=route) for name, route in routes.items()}
    results = {name: select(solver, design, t) for name, solver in solvers.items()}
    first, _path, found = results["columns"]
    for name, (result, other_path, other) in results.items():
        assert result.stop_reason == first.stop_reason
        assert other.log_evidence == pytest.approx(found.log_evidence, abs=1e-5), name
        claimed = np.array(other.claimed)
        true = other_path.curve(other.claimed_lam, result.state.noise)
        np.testing.assert_allclose(claimed, true, atol=1e-6, err_msg=name)


def test_streamed_moments_are_those_of_the_columns():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 3)) + 50.0
    base = KernelDesign(X, StationaryKernel("rbf", 0.01), np.arange(0, 300, 7), cache_size=0)
    constant = DenseDesign(np.column_stack([X, np.full(300, 7.3), np.zeros(300)]))
    weight = rng.uniform(0.5, 2.0, 300)
    for inner in (base, constant):
        for design in (inner, CentredDesign(inner), CentredDesign(WeightedDesign(inner, weight))):
            t = design.target(rng.standard_normal(300))
            H = design.dense()
            G, a = design.moments(t)
            np.testing.assert_allclose(G, H.T @ H, atol=1e-11 * np.max(np.abs(H.T @ H)))
            np.testing.assert_allclose(a, H.T @ t, atol=1e-11 * np.max(np.abs(H.T @ t)))
            single = design.moments(t, single=True)[0]
            np.testing.assert_allclose(single, H.T @ H, atol=1e-5 * np.max(np.abs(H.T @ H)))


# lam.


def test_the_learnt_lam_is_the_best_of_a_fine_grid():
    for seed in range(4):
        Phi, t, _, _ = problem("kernel", seed)
        design = DenseDesign(Phi)
        _result, _path, found = select(Forward(max_terms=8, cut=False), design, t)
        active = np.array(found.order)
        best = max(
            (float(brute_force(Phi, t, active, lam)), lam) for lam in 10.0 ** np.arange(-8, 3, 0.1)
        )
        assert found.log_evidence >= best[0] - 1e-9
        assert found.log_evidence == pytest.approx(
            float(brute_force(Phi, t, active, found.lam)), abs=1e-8
        )


def test_both_searches_of_lam_agree_and_find_the_higher_of_two_optima():
    # Two groups of columns: strong ones that want a large lam, weak ones that want a small one.
    rng = np.random.default_rng(0)
    Phi = np.linalg.qr(rng.standard_normal((40, 20)))[0]
    Phi[:, 10:] *= 1e-3
    t = Phi @ np.concatenate([np.full(10, 0.05), np.full(10, 3e3)]) + 0.5 * rng.standard_normal(40)
    design = DenseDesign(Phi)
    noise = Noise.from_design(design, t, None)
    path = Path.from_columns(design, t, np.arange(20))
    grid = 10.0 ** np.arange(-12, 3, 0.05)
    best = max(path.curve(lam, noise)[20] for lam in grid)
    assert best_terms(path, noise, 20)[2] >= best - 1e-9

    def height(lam):  # the evidence, and a prior that is flat in the noise variance
        C = np.eye(40) + Phi @ Phi.T / lam
        S = t @ np.linalg.solve(C, t)
        return noise.log_evidence(S, np.linalg.slogdet(C)[1]) + np.log(S / 40)

    assert height(best_lam(path, noise, 1e-12)[0]) >= max(map(height, grid)) - 1e-9


def kernel_path(width, n=400, m=40):
    """A Gram matrix and a triangle of the same kernel columns, and their kernel matrix."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    kernel, centres = StationaryKernel("matern32", 0.5 / width**2), np.arange(m)
    design = CentredDesign(KernelDesign(X, kernel, centres))
    t = design.target(np.sin(2.0 * X[:, 0]) + 0.3 * rng.standard_normal(n))
    G, a = design.moments(t)
    return GramPath(G, a, t @ t), Path.from_columns(design, t, centres), design, kernel.bind(X[:m])


@pytest.mark.parametrize("width", [0.3, 3.0, 100.0])
def test_the_triangle_of_a_gram_matrix_has_the_evidence_of_the_columns(width):
    gram, exact, design, bound = kernel_path(width)
    path = Path.from_gram(gram, design, np.arange(len(exact)))
    noise = Noise.from_design(design, exact.t, None)
    L = np.linalg.cholesky(bound(design.inputs[: len(exact)]))
    pairs = [
        (path, exact),
        *((one.whitened(k, L[:k, :k]) for one in (path, exact)) for k in (9, 40)),
    ]
    for one, other in pairs:
        assert other.smallest_lam == 0.0 < one.smallest_lam
        for lam in one.smallest_lam * np.array([1.0, 1e3, 1e6]):
            error = one.curve(lam, noise) - other.curve(lam, noise)
            assert np.max(np.abs(error)) < CLAIM_ERROR


def test_no_triangle_from_a_gram_matrix_without_digits():
    gram, exact, design, _ = kernel_path(3.0)
    order = np.arange(len(exact))
    # Nearly no residual, and a column twice.
    residual_free = replace(gram, tt=squares(exact.t[:-1]) * (1.0 + 1e-9))
    assert Path.from_gram(residual_free, design, order) is None
    twice = GramPath(np.ones((2, 2)), np.ones(2), 2.0)
    assert Path.from_gram(twice, design, order[:2]) is None


@pytest.mark.parametrize("max_terms", [10, 40])  # some of the candidates, and all
def test_a_path_from_the_gram_matrix_reads_the_columns_once(max_terms, monkeypatch):
    _, _, design, _ = kernel_path(0.3)
    t = design.target(np.sin(design.inputs[:, 0]) + design.inputs[:, 1])
    monkeypatch.setattr(_routes, "_CHEAP", 0.0)
    monkeypatch.setattr(_routes, "_READ_COST", 1.0)
    by_columns = run(Forward(max_terms=max_terms, cut=False), design, t, max_iter=1000).state
    assert by_columns.path.rounding == 0.0
    monkeypatch.setattr(design, "triangle", None)
    state = run(
        Forward(max_terms=max_terms, cut=False, gram_path=True), design, t, max_iter=1000
    ).state
    assert state.path.rounding > 0.0
    assert state.best.log_evidence == pytest.approx(by_columns.best.log_evidence, abs=1e-6)


def test_a_lam_is_found_from_near_as_from_everywhere():
    Phi, t, _, _ = problem("kernel", 0)
    design = DenseDesign(Phi)
    noise, path = Noise.from_design(design, t, None), Path.from_columns(design, t, np.arange(8))
    lam, _, best = best_terms(path, noise, 8)
    for away in (0.1, 1.0, 10.0, 1e6, 1e-6):  # the last two by another search, over all
        assert best_terms(path, noise, 8, near=away * lam)[2] == pytest.approx(best, abs=1e-8)


@pytest.mark.parametrize("cut", [True, False])
def test_no_signal_returns_the_empty_model_not_a_huge_lam(cut):
    rng = np.random.default_rng(1)
    Phi = rng.standard_normal((200, 10))
    t = rng.standard_normal(200)
    t -= Phi @ np.linalg.lstsq(Phi, t, rcond=None)[0]  # exactly nothing to explain
    solver = Forward(max_terms=10, cut=cut)
    result, _, found = select(solver, DenseDesign(Phi), t)
    assert found.n_terms == 0
    posterior = solver.solution(result.state, DenseDesign(Phi), t).posterior
    assert posterior.noise_variance == pytest.approx(t @ t / 200)


@pytest.mark.parametrize("route", EXACT_ROUTES)
@pytest.mark.parametrize("what", ["zero target", "zero columns"])
def test_nothing_to_choose_is_an_empty_model(what, route):
    Phi, t, _, _ = problem("plain", 0)
    if what == "zero target":
        t = np.zeros_like(t)
    else:
        Phi = np.zeros_like(Phi)
    solver = Forward(route=EXACT_ROUTES[route])
    result, _, found = select(solver, DenseDesign(Phi), t)
    assert found.n_terms == 0
    assert result.stop_reason in ("no_signal", "no_candidate")
    assert solver.solution(result.state, DenseDesign(Phi), t).posterior.mean.shape == (0,)


def test_a_path_goes_on_past_a_gain_that_is_not_positive_where_that_pays():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 1))
    t = np.sin(4 * X[:, 0]) + 0.01 * rng.standard_normal(200)
    design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", 0.1)))
    t = design.target(t)
    # Wide functions: each of the first costs more than it earns.
    result, _, found = select(Forward(regularization=1e-10, max_terms=40), design, t)
    first_loss = int(np.argmax(result.history["gain"] <= 0))
    assert first_loss < found.n_terms
    assert found.log_evidence > np.max(found.claimed[: first_loss + 1]) + 30.0


# Numbers that are hard to get right.


def test_lam_too_small_for_the_gram_form_is_noticed():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (400, 1))
    t = np.sin(8 * X[:, 0])  # no noise: lam goes to nothing
    design = KernelDesign(X, StationaryKernel("rbf", 3.0), np.arange(0, 400, 2))
    solver = Forward(max_terms=20, route=gram_route)
    result, _path, found = select(solver, design, t)
    assert result.state.scores.name == "columns"
    posterior = solver.solution(result.state, design, t).posterior
    active, sigma2 = found.order[: found.n_terms], posterior.noise_variance
    true = brute_force_by_columns(design.dense(), t, active, found.lam, sigma2)
    assert posterior.log_evidence == pytest.approx(float(true), abs=1e-3)
    assert found.log_evidence == pytest.approx(float(true), abs=1e-2)


def test_a_given_lam_too_small_for_the_gram_form_takes_another_route():
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((3000, 200))
    t = Phi[:, 0] + rng.standard_normal(3000)
    choose = partial(cheapest_route, max_terms=100, passes=4, memory=200.0)
    assert isinstance(choose(DenseDesign(Phi), t, lam=1.0), GramScores)
    # As much memory as the orthogonal columns would take, 2.4 MB, it always has.
    assert isinstance(choose(DenseDesign(Phi), t, lam=1.0, memory=0.1), GramScores)
    # All 200 may be chosen: the path is made from the triangle of which the scores are.
    scores = choose(DenseDesign(Phi), t, lam=1.0, max_terms=200)
    assert isinstance(scores, GramScores)
    assert scores.triangle is not None
    assert scores.triangle[0].n_rows == 201
    few = partial(cheapest_route, max_terms=10, passes=100)
    assert isinstance(few(DenseDesign(Phi), t, lam=1.0, memory=200.0), GramScores)
    assert isinstance(few(DenseDesign(Phi), t, lam=1.0, memory=0.1), ColumnScores)
    for lam, route in ((1.0, "gram"), (1e-12, "triangle")):
        solver = Forward(regularization=lam, max_terms=3, route=gram_route)
        result, _, found = select(solver, DenseDesign(Phi), t)
        assert result.state.scores.report["route"] == route
        true = gaussian_posterior(
            DenseDesign(Phi),
            t,
            np.array(found.order[: found.n_terms]),
            np.full(found.n_terms, lam),
            float(result.history["noise_variance"][found.n_terms - 1]),
        )
        assert found.log_evidence == pytest.approx(true.log_evidence, abs=1e-8)


def _smooth(n=1500):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    t = np.exp(X[:, 0]) * np.sin(2 * X[:, 1]) + X[:, 2] + 0.01 * rng.standard_normal(n)
    return KernelDesign(X, StationaryKernel("rbf", 0.02), np.arange(300)), t


@pytest.mark.parametrize("lam", [None, 1e-13])
def test_where_a_triangle_is_dear_the_gram_form_gives_the_order_and_the_columns_the_rest(
    lam, monkeypatch
):
    design, t = _smooth()
    solver = Forward(regularization=lam, max_terms=50, route=gram_route)
    result, _, best = select(solver, design, t)
    assert result.state.scores.report["route"] == "triangle"
    monkeypatch.setattr(_routes, "triangle_route", lambda *_: pytest.fail("dear"))
    monkeypatch.setattr(_routes, "_EXPENSIVE", 0.0)
    result, path, found = select(solver, design, t)
    assert result.state.scores.report["route"] == "gram"
    assert result.state.regularization >= result.state.scores.smallest_lam > found.lam
    if lam is None:
        lam, n_terms, _ = best_terms(path, result.state.noise)
        assert (found.lam, found.n_terms) == (lam, n_terms)
    assert found.lam == lam
    posterior = solver.solution(result.state, design, t).posterior
    active, sigma2 = found.order[: found.n_terms], posterior.noise_variance
    true = brute_force_by_columns(design.dense(), t, active, found.lam, sigma2)
    assert found.log_evidence == pytest.approx(float(true), abs=1e-2)
    empty = float(result.state.noise.log_evidence(float(t @ t), 0.0))
    # What float64 tells of the order; with other versions of BLAS .8999 and more.
    assert found.log_evidence - empty > 0.85 * (best.log_evidence - empty)


@pytest.mark.parametrize("size", [1e-170, 1e160])
@pytest.mark.parametrize("solver", [Forward(), OrthogonalLeastSquares()])
def test_columns_without_a_square_in_float64_are_refused_in_a_sentence(size, solver):
    Phi = size * np.random.default_rng(0).standard_normal((20, 3))
    for wrap in (DenseDesign, lambda P: CentredDesign(DenseDesign(P))):
        with (
            np.errstate(all="ignore"),
            pytest.raises(ValueError, match="(over|under)flow float64. Rescale X"),
        ):
            run(solver, wrap(Phi), Phi[:, 0] / size, max_iter=10)


@pytest.mark.parametrize("solver", [Forward(), OrthogonalLeastSquares()])
def test_constant_and_zero_columns_are_no_candidates_and_no_error(solver):
    for value in (0.0, 1.0, 1e-200):
        design = CentredDesign(DenseDesign(np.full((20, 3), value)))
        t = design.target(np.arange(20.0))
        assert len(run(solver, design, t, max_iter=10).state.active) == 0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows_end_without_an_error(n):
    rng = np.random.default_rng(0)
    Phi, t = rng.standard_normal((n, 4)), rng.standard_normal(n)
    for base in (DenseDesign(Phi), WeightedDesign(DenseDesign(Phi), np.full(n, 0.5))):
        for design in (base, CentredDesign(base)):
            for solver in (Forward(), OrthogonalLeastSquares()):
                target = design.target(t)
                result = run(solver, design, target, max_iter=50)
                posterior = solver.solution(result.state, design, target).posterior
                assert np.all(np.isfinite(posterior.mean))
                assert 0.0 < posterior.noise_variance < np.inf


def test_float32_products_are_refused_where_lam_is_too_small():
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((3000, 200))
    t = Phi[:, 0] + rng.standard_normal(3000)
    choose = partial(cheapest_route, max_terms=100, passes=4, memory=200.0, single=True)
    assert choose(DenseDesign(Phi), t, lam=10.0).report["precision"] == "float32 products"
    assert choose(DenseDesign(Phi), t, lam=0.1).report["precision"] == "float64"
    assert choose(DenseDesign(Phi), t, lam=None).report["precision"] == "float64"


def test_scores_are_the_quadratic_forms_they_claim_to_be():
    Phi, t, lam, _ = problem("plain", 5)
    for scores in (columns_route(DenseDesign(Phi), t), gram_route(DenseDesign(Phi), t)):
        scores.begin(lam, 6)
        chosen = [3, 0, 9, 11, 4, 1]
        for i in chosen:
            scores.add(i)
        scores.absorb()
        H = Phi[:, chosen]
        P = np.eye(len(t)) - H @ np.linalg.solve(H.T @ H + lam * np.eye(6), H.T)
        np.testing.assert_allclose(scores.A, Phi.T @ P @ t, atol=1e-12)
        np.testing.assert_allclose(scores.B, np.diag(Phi.T @ P @ Phi), atol=1e-12)
        assert scores.S == pytest.approx(t @ P @ t, abs=1e-12)


def test_scores_without_regularisation_are_those_of_orthogonalised_columns():
    Phi, t, _, _ = problem("plain", 6)
    scores = columns_route(DenseDesign(Phi), t)
    scores.begin(0.0, 4)
    for i in (2, 5, 0, 7):
        scores.add(i)
    scores.absorb()
    Q = np.linalg.qr(Phi[:, [2, 5, 0, 7]])[0]
    W = Phi - Q @ (Q.T @ Phi)
    np.testing.assert_allclose(scores.A, W.T @ t, atol=1e-12)
    np.testing.assert_allclose(scores.B, np.sum(W * W, axis=0), atol=1e-12)


# Invariance.


def test_permuted_candidates_permute_the_answer():
    Phi, t, _, _ = problem("plain", 2)
    order = np.random.default_rng(0).permutation(Phi.shape[1])
    found = select(Forward(max_terms=6), DenseDesign(Phi), t)[2]
    permuted = select(Forward(max_terms=6), DenseDesign(Phi[:, order]), t)[2]
    np.testing.assert_array_equal(order[permuted.order], found.order)
    assert permuted.log_evidence == pytest.approx(found.log_evidence, abs=1e-9)


def test_scaling_the_target_changes_neither_order_nor_lam():
    Phi, t, _, _ = problem("kernel", 2)
    found = select(Forward(max_terms=8), DenseDesign(Phi), t)[2]
    scaled = select(Forward(max_terms=8), DenseDesign(Phi), 1e6 * t)[2]
    assert scaled.order == found.order
    assert scaled.lam == pytest.approx(found.lam, rel=1e-3)


def test_an_interrupted_path_is_a_model_of_what_was_reached():
    Phi, t, _lam, _ = problem("plain", 0)

    def stop(iteration, info, state):
        return iteration == 4

    solver = Forward(max_terms=10, cut=False)
    result = run(solver, DenseDesign(Phi), t, max_iter=100, callback=stop)
    assert result.stop_reason == "callback"
    posterior = solver.solution(result.state, DenseDesign(Phi), t).posterior
    assert len(posterior.mean) == 4
    _, found = solver.best_path(result.state, DenseDesign(Phi), t)
    true = brute_force(Phi, t, found.order, found.lam)
    assert posterior.log_evidence == pytest.approx(float(true), abs=1e-9)


def test_a_run_can_go_on_where_it_stopped():
    Phi, t, _, _ = problem("kernel", 0)
    solver, design = Forward(max_terms=8), DenseDesign(Phi)
    whole = run(solver, design, t, max_iter=1000)
    part = run(solver, design, t, max_iter=5)
    rest = run(solver, design, t, max_iter=1000, state=part.state)
    np.testing.assert_array_equal(rest.state.active, whole.state.active)
    assert rest.state.best.log_evidence == whole.state.best.log_evidence


# Low rank.


def test_a_low_rank_claims_what_it_may_and_reports_the_truth():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 4))
    t = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(300)
    design = KernelDesign(X, StationaryKernel("rbf", 1.0))
    exact = select(Forward(max_terms=30, route=columns_route), design, t)[2]
    lost = []
    for rank in (30, 60, 120):
        solver = Forward(max_terms=30, route=partial(low_rank_route, rank=rank))
        result, _path, found = select(solver, design, t)
        report = result.state.scores.report
        assert report["rank"] == rank
        assert 0 < report["residual_trace"] < 1
        true = brute_force(design.dense(), t, found.order[: found.n_terms], found.lam)
        assert found.log_evidence == pytest.approx(float(true), abs=1e-7)
        lost.append(exact.log_evidence - found.log_evidence)
    assert lost[2] < 0.05 * (exact.log_evidence - exact.claimed[0])
    assert lost[2] < lost[0]


def test_a_low_rank_needs_a_kernel():
    with pytest.raises(ValueError, match="rank=None"):
        low_rank_route(DenseDesign(np.eye(3)), np.ones(3), rank=2)


# Every number of terms from one path.


def test_a_path_predicts_what_each_of_its_models_predicts():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 1))
    t = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(80)
    design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", 1.0)))
    t = design.target(t)
    result, path, found = select(Forward(max_terms=12), design, t)
    grid = np.linspace(-2, 2, 7)[:, None]
    all_k = path.predictions(path.design.basis(slice(None))(grid), found.lam)
    for k in (0, 1, 5, 12):
        direct = gaussian_posterior(
            design, t, np.array(found.order[:k], dtype=int), np.full(k, found.lam), 1.0
        )
        Phi = design.basis(np.array(found.order[:k], dtype=int))(grid)
        np.testing.assert_allclose(all_k[:, k], Phi @ direct.mean, atol=1e-9)
        from_path = path.posterior(k, found.lam, result.state.noise)
        np.testing.assert_allclose(from_path.mean, direct.mean, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("family", "gamma"), [("matern32", 1.0), ("rbf", 10.0), ("rbf", 30.0)])
def test_a_path_whose_last_tenth_pays_ends_for_a_longer_one(family, gamma):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2))
    t = np.sin(9 * X[:, 0]) * X[:, 1] + 0.01 * rng.standard_normal(300)
    design = CentredDesign(KernelDesign(X, StationaryKernel(family, gamma)))
    t = design.target(t)
    plain = run(Forward(max_terms=30), design, t, max_iter=1000)
    curve = plain.state.path.curve(plain.state.best.lam, plain.state.noise)
    # On the path that is kept in the end, not on the first one alone.
    asks = Forward(max_terms=30, pays=0.9 * (curve[-1] - curve[27]))
    assert run(asks, design, t, max_iter=1000).stop_reason == "longer_path"
    stays = run(Forward(max_terms=30, pays=np.inf), design, t, max_iter=1000)
    assert stays.state.active.tolist() == plain.state.active.tolist()
