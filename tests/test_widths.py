"""Widths by evidence: the criterion against dense formulas, and what the recipe promises."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import sparsebayes as sb
from sparsebayes.kernels import LEARNT, StationaryKernel, kernel_of_lengths, widths
from sparsebayes.kernels import evidence as evidence_module
from sparsebayes.kernels.evidence import JITTER, ExactEvidence, NystroemEvidence
from sparsebayes.kernels.widths import (
    AUTO_FAMILIES,
    Stage,
    _Data,
    categories,
    choose_family,
    learn_widths,
    propose_widths,
    scoring,
)

LOG_LENGTH = np.log([0.8, 1.2, 2.0])
SUM_LENGTHS = np.log([0.8, 1.2, 2.0, 1.5, 3.0, 0.9, 0.4])  # of both parts, and odds of the share


def problem(n=60, q=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    T = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 0], np.cos(X[:, 2])])[:, :q]
    weight = rng.integers(1, 4, n).astype(float)
    return X, T + 0.1 * rng.standard_normal((n, q)), weight


def lam_and_noise(q):
    return np.linspace(-2.3, -1.6, q), np.linspace(-2.0, -1.5, q)


def lengths(family):
    if family == "additive":
        return np.append(LOG_LENGTH, 0.5 * LOG_LENGTH - 0.3)
    return SUM_LENGTHS if family == "sum" else LOG_LENGTH


def gram(family, log_length, X, Z):
    return kernel_of_lengths(family, log_length).bind(Z)(X)


def log_density(t, C):
    sign, log_det = np.linalg.slogdet(C)
    assert sign > 0
    return -0.5 * (len(t) * np.log(2 * np.pi) + log_det + t @ np.linalg.solve(C, t))


def exact_evidence(family, X, T, log_lam, log_noise):
    K = gram(family, lengths(family), X, X)
    K[np.diag_indices_from(K)] = 1.0
    return sum(
        log_density(t, np.exp(s) * (np.eye(len(t)) + K / np.exp(x)))
        for t, x, s in zip(T.T, log_lam, log_noise, strict=True)
    )


def differences(function, at, step):
    """Central differences of a function of one vector."""
    moves = step * np.eye(len(at))
    return np.array([(function(at + move) - function(at - move)) / (2 * step) for move in moves])


def assert_gradient(evidence, q, rtol=1e-6):
    start = lengths(evidence.family)
    theta, k = np.concatenate([start, *lam_and_noise(q)]), len(start)

    def parts(theta):
        return theta[:k], theta[k : k + q], theta[k + q :]

    gradient = evidence(*parts(theta))[1]
    expected = differences(lambda theta: evidence(*parts(theta))[0], theta, 1e-5)
    np.testing.assert_allclose(gradient, expected, rtol=rtol, atol=rtol * np.abs(gradient).max())


def assert_information(evidence, covariance, T, q):
    """It is 1/2 t'S^-1 S_j S^-1 S_k S^-1 t of the dense covariances S and their differences."""
    start = lengths(evidence.family)
    theta, k = np.concatenate([start, *lam_and_noise(q)]), len(start)
    expected = np.zeros((len(theta), len(theta)))
    for target in range(q):

        def dense(theta, target=target):
            return covariance(theta[:k], theta[k + target], theta[k + q + target])

        S = dense(theta)
        moved = differences(dense, theta, 1e-5) @ np.linalg.solve(S, T[:, target])
        expected += 0.5 * moved @ np.linalg.solve(S, moved.T)
    information = evidence(theta[:k], theta[k : k + q], theta[k + q :])[2]
    np.testing.assert_allclose(information, expected, atol=1e-7 * np.abs(expected).max())


# The criterion.


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("family", LEARNT)
def test_gradients_equal_central_differences(family, bound, weighted):
    X, T, weight = problem()
    # Centres that are rows have r = 0, where exponential kernels have a kink and their differences
    # are rounding; the others have none.
    Z = X[:12] + (0.05 if family in ("matern12", "laplacian", "sum", "additive") else 0.0)
    weight = weight if weighted else None
    assert_gradient(NystroemEvidence(X, T, Z, family, weight=weight, bound=bound), q=2)


def test_gradient_of_the_exponential_kernel_survives_centres_that_are_rows():
    X, T, _ = problem()
    assert_gradient(NystroemEvidence(X, T, X[:12], "matern12"), q=2, rtol=1e-3)


@pytest.mark.parametrize("family", ["rbf", "matern32", "laplacian", "sum", "additive"])
def test_information_is_that_of_the_dense_covariance(family):
    X, T, weight = problem()
    root, Z = np.sqrt(weight)[:, None], X[:12]

    def of_centres(log_length, log_lam, log_noise):
        K = root * gram(family, log_length, X, Z)
        M = gram(family, log_length, Z, Z) + JITTER * np.eye(len(Z))
        C = np.eye(len(X)) + K @ np.linalg.solve(M, K.T) / np.exp(log_lam)
        return np.exp(log_noise) * C

    def of_rows(log_length, log_lam, log_noise):
        K = gram(family, log_length, X, X)
        K[np.diag_indices_from(K)] = 1.0
        return np.exp(log_noise) * (np.eye(len(X)) + root * K * root.T / np.exp(log_lam))

    few = NystroemEvidence(X, T, Z, family, weight=weight)
    assert_information(few, of_centres, root * T, q=2)
    assert_information(ExactEvidence(X, T, family, weight=weight), of_rows, root * T, q=2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "family", ["rbf", "matern52", "matern32", "rq", "laplacian", "sum", "additive"]
)
def test_gradients_of_the_exact_evidence_equal_central_differences(family, weighted):
    X, T, weight = problem()
    assert_gradient(ExactEvidence(X, T, family, weight=weight if weighted else None), q=2)


@pytest.mark.parametrize("family", LEARNT)
def test_nystroem_evidence_is_the_dense_normal_density(family):
    X, T, _ = problem()
    Z = X[:12]
    log_lam, log_noise = lam_and_noise(2)
    K, M = gram(family, lengths(family), X, Z), gram(family, lengths(family), Z, Z)
    M[np.diag_indices_from(M)] = 1.0 + JITTER
    Q = K @ np.linalg.solve(M, K.T)
    dense = sum(
        log_density(t, np.exp(s) * (np.eye(len(t)) + Q / np.exp(x)))
        for t, x, s in zip(T.T, log_lam, log_noise, strict=True)
    )
    value, *_ = NystroemEvidence(X, T, Z, family)(lengths(family), log_lam, log_noise)
    assert value == pytest.approx(dense, rel=1e-12)


@pytest.mark.parametrize("family", LEARNT)
def test_the_bound_lies_below_the_exact_evidence_and_the_nystroem_evidence(family):
    X, T, _ = problem(n=40, q=1)
    for log_lam in (-6.0, -2.0, 1.0):
        for log_noise in (-4.0, -1.0, 0.5):
            point = lengths(family), np.array([log_lam]), np.array([log_noise])
            exact = exact_evidence(family, X, T, *point[1:])
            bound, *_ = NystroemEvidence(X, T, X[:10], family, bound=True)(*point)
            nystroem, *_ = NystroemEvidence(X, T, X[:10], family)(*point)
            assert bound <= exact
            assert bound <= nystroem


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("family", LEARNT)
def test_all_rows_as_centres_are_the_exact_process(family, bound):
    X, T, _ = problem(n=40)
    point = lengths(family), *lam_and_noise(2)
    exact = exact_evidence(family, X, T, *point[1:])
    assert ExactEvidence(X, T, family)(*point)[0] == pytest.approx(exact, rel=1e-11)
    nystroem = NystroemEvidence(X, T, X, family, bound=bound)(*point)
    assert nystroem[0] == pytest.approx(exact, abs=40 * 2 * JITTER / np.exp(-2.3))
    np.testing.assert_allclose(
        nystroem[1], ExactEvidence(X, T, family)(*point)[1], atol=2e-3, rtol=1e-4
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("family", LEARNT)
def test_the_value_alone_is_that_of_the_call(family, weighted):
    X, T, weight = problem()
    weight, point = weight if weighted else None, (lengths(family), *lam_and_noise(2))
    for evidence in (
        ExactEvidence(X, T, family, weight=weight),
        NystroemEvidence(X, T, X[:12], family, weight=weight),
        NystroemEvidence(X, T, X[:12], family, weight=weight, bound=True),
    ):
        assert evidence.value(*point) == pytest.approx(evidence(*point)[0], rel=1e-12)


@pytest.mark.parametrize("steep", [0.0, 4.0])  # exponents that are too large for float32
@pytest.mark.parametrize("log_lam", [-9.0, 0.0])
@pytest.mark.parametrize("family", ["laplacian", "sum", "additive"])
def test_derivatives_of_rough_kernels_need_single_precision_only(family, log_lam, steep):
    rng = np.random.default_rng(0)
    X, t = rng.standard_normal((300, 3)), rng.standard_normal((300, 1))
    t += np.sin(2.0 * X[:, :1])
    point = lengths(family).copy(), np.full(1, log_lam), np.log([0.3])
    point[0][0] -= steep
    double = ExactEvidence(X, t, family)(*point)
    single = ExactEvidence(X, t, family, single=True)(*point)
    assert single[0] == double[0]
    for one, other in zip(single[1:], double[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(other).max())


@pytest.mark.parametrize("behind", [5.0, 20.0])
def test_an_exact_process_refines_no_plainer_kernel_that_is_far_behind(monkeypatch, behind):
    X, y = np.random.default_rng(0).standard_normal((2, 900, 1))
    refined = []

    def points(search, family, ard):
        start = search.data.start
        return [start("rbf")._replace(value=-behind), start("sum")]

    def refine(search, point):
        refined.append(point.family)
        return point

    monkeypatch.setattr(widths._Search, "points", points)
    monkeypatch.setattr(widths._Search, "refine", refine)
    assert learn_widths(X, y[:, 0], process="exact").family == "sum"
    assert refined == (["rbf", "sum"] if behind < 10.0 else ["sum"])


@pytest.mark.parametrize("family", ["matern52", "laplacian", "sum"])
def test_parts_that_share_memory_have_the_evidence_of_parts_that_do_not(family):
    X, T = np.random.default_rng(0).standard_normal((2, 30, 2))
    lengths, rows = np.zeros(5 if family == "sum" else 2), (slice(20), slice(20, 29), slice(30))
    point, memory = (lengths, np.zeros(2), np.zeros(2)), []
    shared = [ExactEvidence(X[part], T[part], family, memory=memory) for part in rows]
    for _ in range(2):
        for part, evidence in zip(rows, shared, strict=True):
            alone = ExactEvidence(X[part], T[part], family)(*point)
            for one, other in zip(evidence(*point), alone, strict=True):
                np.testing.assert_array_equal(one, other)


def test_exact_evidence_is_that_of_scikit_learn():
    X, T, _ = problem(n=30, q=1)
    kernel = ConstantKernel(2.0) * RBF(np.exp(LOG_LENGTH)) + WhiteKernel(0.3)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X, T[:, 0])
    point = LOG_LENGTH, np.log([0.3 / 2.0]), np.log([0.3])
    ours = ExactEvidence(X, T, "rbf")(*point)[0]
    assert ours == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-10)


def test_the_order_of_summation_does_not_steer_the_search(monkeypatch):
    # A device sums longer blocks than the CPU. The value moved by .08 nats, its gradient by 1.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6))
    T = np.sin(2 * X[:, :1]) * X[:, 1:2] + 0.3 * X[:, 2:3] ** 2
    T = T + 0.05 * rng.standard_normal((3000, 1))
    point = np.log([2.0, 2.0, 3.0, 8.0, 8.0, 8.0]), np.log([1.1e-3]), np.log([0.01])
    results = []
    for elements in (2**17, 2**24):
        monkeypatch.setattr(evidence_module, "_BLOCK_ELEMENTS", elements)
        results.append(NystroemEvidence(X, T, X[::10], "rbf")(*point))
    (one, slope, information), (other, other_slope, _) = results
    assert other == pytest.approx(one, abs=1e-6)
    step = np.linalg.solve(information + 10.0 * np.eye(len(slope)), other_slope - slope)
    assert np.max(np.abs(step)) < 1e-5


@pytest.mark.parametrize("family", ["rbf", "matern32"])
def test_hardly_any_noise_keeps_the_dense_density(family):
    X, T, _ = problem(n=40, q=1)
    point = LOG_LENGTH, np.array([-13.0]), np.array([-12.0])
    K, M = gram(family, LOG_LENGTH, X, X[:10]), gram(family, LOG_LENGTH, X[:10], X[:10])
    M[np.diag_indices_from(M)] = 1.0 + JITTER
    C = np.exp(-12.0) * (np.eye(40) + K @ np.linalg.solve(M, K.T) * np.exp(13.0))
    value, *_ = NystroemEvidence(X, T, X[:10], family)(*point)
    assert value == pytest.approx(log_density(T[:, 0], C), rel=1e-6)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("family", ["rbf", "matern32", "sum"])
def test_streamed_rows_equal_rows_kept(family, bound):
    X, T, weight = problem(n=5000, q=1)
    point = lengths(family), *lam_and_noise(1)
    kept = NystroemEvidence(X, T, X[:40], family, weight=weight, bound=bound)
    streamed = NystroemEvidence(X, T, X[:40], family, weight=weight, bound=bound, keep_bytes=0.0)
    for ours, theirs in zip(streamed(*point), kept(*point), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert streamed._buffers[0].nbytes < kept._buffers[0].nbytes


@pytest.mark.parametrize("family", ["matern52", "sum"])
@pytest.mark.parametrize("evidence", [NystroemEvidence, ExactEvidence])
def test_weights_in_the_criterion_are_repetition(evidence, family):
    X, T, weight = problem()
    centres = (X[:12],) if evidence is NystroemEvidence else ()
    again = np.repeat(np.arange(len(X)), weight.astype(int))
    point = lengths(family), *lam_and_noise(2)
    weighted = evidence(X, T, *centres, family, weight=weight)(*point)
    repeated = evidence(X[again], T[again], *centres, family)(*point)
    assert weighted[0] == pytest.approx(repeated[0], rel=1e-11)
    np.testing.assert_allclose(weighted[1], repeated[1], rtol=1e-8)


@pytest.mark.parametrize("bound", [False, True])
def test_profile_is_the_best_lam_and_noise(bound):
    X, T, weight = problem()
    evidence = NystroemEvidence(X, T, X[:12], "matern52", weight=weight, bound=bound)
    profile = evidence.profile(LOG_LENGTH)
    value, gradient, _ = evidence(LOG_LENGTH, profile.log_lam, profile.log_noise)
    assert profile.value == pytest.approx(value, rel=1e-10)
    for move in (-0.2, 0.2):
        assert evidence(LOG_LENGTH, profile.log_lam + move, profile.log_noise)[0] < value
    np.testing.assert_allclose(gradient[5:], 0.0, atol=1e-8)  # noise: in closed form


def test_a_broken_factorisation_is_an_error_and_not_a_number():
    X, T, _ = problem()
    with pytest.raises(np.linalg.LinAlgError):
        NystroemEvidence(X, T, X[:12], "rbf")(np.full(3, np.nan), *lam_and_noise(2))


def test_scoring_finds_the_maximum_in_a_box_and_stops_where_nothing_is_promised():
    middle, seen = np.array([1.0, 5.0, -3.0]), []

    def function(x):
        seen.append(x)
        if x[0] > 2.0:
            raise np.linalg.LinAlgError
        away = x - middle
        # Information that is too small makes steps too long: they are refused and damped.
        return -50.0 * float(np.sum(np.cosh(away) - 1.0)), -50.0 * np.sinh(away), 20.0 * np.eye(3)

    low, high = np.array([-4.0, -4.0, -2.5]), np.array([4.0, 4.0, 4.0])
    x, value = scoring(function, np.array([-3.0, 0.0, 4.0]), low, high, np.full(3, 10.0), 60, 0.05)
    np.testing.assert_allclose(x, [1.0, 4.0, -2.5], atol=0.05)
    assert len(seen) < 30
    assert value == function(x)[0]
    seen.clear()
    scoring(function, x, low, high, np.full(3, 10.0), 60, 0.05)
    assert len(seen) < 5
    seen.clear()
    _, value = scoring(function, np.array([3.0, 0.0, 0.0]), low, high, np.full(3, 10.0), 60, 0.05)
    assert len(seen) == 1
    assert value == -np.inf


def test_the_last_evaluation_of_a_search_has_no_derivatives():
    seen, heights = [], []

    def function(x):
        seen.append(x)
        return -float(x @ x), -2.0 * x, np.eye(2)

    def height(x):
        heights.append(x)
        return -float(x @ x)

    ends = np.full(2, -9.0), np.full(2, 9.0)
    arguments = (function, np.array([3.0, -2.0]), *ends, np.full(2, 10.0), 4, 1e-9)
    plain = scoring(*arguments)
    assert len(seen) == 4
    seen.clear()
    x, value = scoring(*arguments, height=height)
    assert (len(seen), len(heights)) == (3, 1)
    np.testing.assert_array_equal(x, plain[0])
    assert value == plain[1]


# The recipe.


@pytest.fixture
def small_stages(monkeypatch):
    """The same steps on a fifth of the rows: exact to 160, all rows as centres to 300."""
    monkeypatch.setattr(widths, "_FIRST", Stage(100, 0, 40, 0.5))
    monkeypatch.setattr(widths, "_TRY", Stage(600, 80, 5, 0.5))
    monkeypatch.setattr(widths, "_CHOICE", Stage(2000, 100, 0, 0.5))
    monkeypatch.setattr(widths, "_ALL", Stage(160, 0, 40, 0.05))
    monkeypatch.setattr(widths, "_REFINE_FEW", Stage(300, 0, 12, 0.05))
    monkeypatch.setattr(widths, "_REFINE", Stage(800, 120, 6, 0.5))


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(300, noise=1.0, random_state=1)


def test_the_relevant_inputs_have_the_shortest_lengths(friedman):
    relevance = learn_widths(*friedman).relevance
    assert set(np.argsort(-relevance)[:5]) == {0, 1, 2, 3, 4}
    assert np.max(relevance) == 1.0


@pytest.mark.usefixtures("small_stages")
@pytest.mark.parametrize("n", [100, 300, 1000])
def test_scaling_an_input_by_ten_divides_its_gamma_by_a_hundred(n):
    X, y = make_friedman1(n, n_features=6, noise=1.0, random_state=0)
    factor = np.array([10.0, 1.0, 0.1, 1.0, 1000.0, 1.0])
    plain = learn_widths(X, y, family="matern52")
    scaled = learn_widths(X * factor + 5.0, 1e4 * y + 1e5, family="matern52")
    np.testing.assert_allclose(scaled.gamma * factor**2, plain.gamma, rtol=1e-10)
    np.testing.assert_allclose(scaled.relevance, plain.relevance, rtol=1e-10)
    np.testing.assert_allclose(scaled.noise, plain.noise, rtol=1e-10)


@pytest.mark.usefixtures("small_stages")
@pytest.mark.parametrize("n", [90, 300, 1000])
def test_weights_repetition_and_order_give_the_same_widths(n):
    X, y = make_friedman1(n, n_features=5, noise=1.0, random_state=1)
    weight = np.random.default_rng(0).integers(0, 3, n).astype(float)
    kept = np.flatnonzero(weight)
    again = np.repeat(np.arange(n), weight.astype(int))
    np.random.default_rng(1).shuffle(again)
    weighted = learn_widths(X[kept], y[kept], family="rbf", sample_weight=weight[kept])
    repeated = learn_widths(X[again], y[again], family="rbf")
    np.testing.assert_array_equal(weighted.gamma, repeated.gamma)


def one_hot(n, levels, seed=0):
    codes = np.random.default_rng(seed).integers(0, levels, n)
    return np.eye(levels)[codes]


def test_duplicates_in_a_subset_are_no_observations_without_noise():
    rng = np.random.default_rng(0)
    X, T = rng.standard_normal((400, 2)), rng.standard_normal(400)
    weight = np.where(np.arange(400) < 40, 2.0, 1.0)
    data = _Data.from_rows(X, T, weight)
    rows = np.argsort(-data.weight, kind="stable")[:100]
    np.testing.assert_allclose(np.sum(data.subset_weight(rows)), 100 * np.mean(weight))
    np.testing.assert_array_equal(data.subset_weight(np.arange(400)), data.weight)


def test_columns_of_one_category_are_found_and_share_a_width():
    rng = np.random.default_rng(0)
    number, flag = rng.standard_normal((80, 1)), rng.integers(0, 2, (80, 1))
    first, second = one_hot(80, 4), one_hot(80, 3, seed=1)
    X = np.hstack([number, first, second, flag])
    scaled = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    np.testing.assert_array_equal(categories(scaled), [0, 1, 1, 1, 1, 2, 2, 2, 3])
    # One level left out, as encoders do it.
    np.testing.assert_array_equal(categories(scaled[:, [0, 1, 2, 3, 5, 6]]), [0, 1, 1, 1, 2, 2])
    y = first @ [0.0, 1.0, 2.0, 4.0] + 0.1 * rng.standard_normal(80)
    for family in ("rbf", "sum"):
        gamma = np.atleast_2d(learn_widths(X, y, family=family).gamma)
        for part in gamma:
            assert len(set(part[1:5])) == 1
            assert len(set(part[5:8])) == 1
        assert gamma[0, 1] > 5 * gamma[0, 5]


def test_a_rare_level_is_no_farther_than_a_common_one():
    X = np.eye(3)[[0] * 50 + [1] * 48 + [2] * 2]
    y = np.random.default_rng(0).standard_normal(100)
    gamma = learn_widths(X, y, family="rbf", ard=False).gamma
    np.testing.assert_allclose(gamma, gamma[0])


@pytest.mark.usefixtures("small_stages")
@pytest.mark.parametrize("n", [90, 300, 600])
def test_kernels_are_proposed_where_their_widths_pay(n):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    noise = 0.05 * rng.standard_normal(n)
    smooth = propose_widths(X, np.sin(2 * X[:, 0]) + noise)
    assert {found.family for found in smooth} == {"rbf"}
    assert not smooth[-1].one_width
    rough = propose_widths(X, np.floor(2 * X[:, 0]) + np.sin(X[:, 1]) + noise)
    assert rough[-1].family == "sum"
    assert 0.0 < rough[-1].share < 1.0
    best = rough[-1].log_evidence
    assert all(found.log_evidence > best - 60.0 for found in rough)  # 50 nats, paid for lengths
    nothing = propose_widths(X, rng.standard_normal(n))
    assert [found.family != "sum" for found in nothing] == [True]
    assert nothing[0].one_width == (n < 100 * 3)  # with more rows it is not tried
    every = propose_widths(X, np.sign(X[:, 0]), labels=True)
    assert [found.one_width for found in every] == [True, False, False]


def test_a_constant_input_is_ignored(friedman):
    X, y = friedman
    plain = learn_widths(X, y, family="rbf")
    padded = learn_widths(np.column_stack([X, np.full(len(X), 7.0)]), y, family="rbf")
    np.testing.assert_array_equal(padded.gamma[:-1], plain.gamma)
    assert padded.gamma[-1] == 0.0
    assert padded.relevance[-1] == 0.0


@pytest.mark.usefixtures("small_stages")
@pytest.mark.parametrize("n", [100, 300, 2000])
def test_pure_noise_is_called_noise(n):
    rng = np.random.default_rng(0)
    found = learn_widths(rng.standard_normal((n, 5)), rng.standard_normal(n))
    assert found.noise[0] == pytest.approx(1.0, abs=0.15)
    assert np.all(np.isfinite(found.gamma))


def test_one_width_is_the_same_for_all_inputs_in_their_own_units(friedman):
    X, y = friedman
    found = learn_widths(X, y, family="rbf", ard=False)
    np.testing.assert_allclose(found.gamma * X.var(axis=0), found.gamma[0] * X[:, 0].var())
    assert set(found.relevance) == {1.0}


def test_one_width_is_the_best_of_a_grid(friedman):
    X, y = friedman
    A, t = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    found = learn_widths(X, y, family="rbf", ard=False)
    evidence = NystroemEvidence(A, t[:, None], A, "rbf")
    log_length = -0.5 * np.log(2.0 * found.gamma) - np.log(X.std(axis=0))
    here = evidence.profile(log_length).value
    grid = [evidence.profile(log_length + shift).value for shift in (-0.5, -0.2, 0.2, 0.5)]
    assert here > max(grid)


def walk(X, rng):
    """A random walk along the first input."""
    steps = rng.standard_normal(len(X)) / np.sqrt(len(X))
    return np.cumsum(steps)[np.argsort(np.argsort(X[:, 0]))]


@pytest.mark.usefixtures("small_stages")
@pytest.mark.parametrize("n", [100, 300, 1000])
def test_smooth_and_rough_functions_get_their_family(n):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    noise = 0.05 * rng.standard_normal(n)
    assert learn_widths(X, np.sin(X[:, 0]) + np.cos(X[:, 1]) + noise).family == "rbf"
    assert learn_widths(X, walk(X, rng) + noise).family in ("matern32", "sum")


def test_family_is_chosen_at_a_given_gamma():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (400, 1))
    smooth = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(400)
    assert choose_family(X, smooth, 0.3) == "rbf"
    assert choose_family(X, walk(X, rng), 0.3) == "matern32"
    assert choose_family(X, smooth, np.array([0.3])) == "rbf"


def test_several_targets_share_their_widths():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 3))
    T = np.column_stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 1])])
    T += np.array([0.1, 0.5]) * rng.standard_normal(T.shape)
    found = learn_widths(X, T, family="rbf")
    assert np.all(found.relevance[:2] > 5 * found.relevance[2])
    assert found.noise[1] > 5 * found.noise[0]


def test_the_bound_prefers_wider_kernels_and_more_noise():
    X, y = make_friedman1(300, n_features=5, noise=0.5, random_state=0)
    X, t = (X - 0.5) / X.std(axis=0), (y - y.mean()) / y.std()
    shifts = np.linspace(-1.0, 2.5, 15)
    best = {}
    for bound in (False, True):
        evidence = NystroemEvidence(X, t[:, None], X[:30], "matern32", bound=bound)
        profiles = [evidence.profile(np.full(5, shift)) for shift in shifts]
        best[bound] = max(range(15), key=lambda i: profiles[i].value), profiles
    assert best[True][0] >= best[False][0]
    for (i, without), (_, with_gap) in [(best[False], best[True])]:
        assert with_gap[i].log_noise > without[i].log_noise


@pytest.mark.usefixtures("small_stages")
def test_the_bound_can_be_asked_for():
    X, y = make_friedman1(400, n_features=5, noise=0.5, random_state=0)
    evidence, bound = (
        learn_widths(X, y, family="matern32", ard=False, bound=bound) for bound in (False, True)
    )
    assert bound.log_evidence < evidence.log_evidence
    assert bound.noise[0] > evidence.noise[0]


@pytest.mark.parametrize("seed", range(4))
def test_functions_as_narrow_as_rows_are_apart_are_noise_and_made_wide(seed):
    # The search ended there in one of these draws, below the evidence of no signal at all.
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(size=(200, 15)), rng.standard_normal(200)
    for found in propose_widths(X, y):
        noise_only = -0.5 * len(y) * (1.0 + np.log(2.0 * np.pi))
        assert found.log_evidence > noise_only - 0.1
        K = StationaryKernel(found.family, found.gamma).bind(X)(X)
        assert np.min(K) > 0.5 or found.log_evidence > noise_only
    model = sb.RVMRegressor().fit(X, y)
    assert len(model.active_) < 20
    assert model.predict(X, return_std=True)[1].min() > 0.7


def test_nothing_to_learn_from_gives_widths_all_the_same():
    X = np.random.default_rng(0).standard_normal((30, 2))
    for found in (
        learn_widths(X, np.ones(30)),
        learn_widths(np.ones((30, 2)), X[:, 0]),
        learn_widths(X[:2], np.array([0.0, 1.0])),
    ):
        assert found.family in AUTO_FAMILIES
        assert np.all(np.isfinite(found.gamma))
        assert np.any(found.gamma > 0)


def test_sizes_near_the_ends_of_float64_do_not_matter(friedman):
    X, y = friedman
    plain = learn_widths(X, y, family="rbf")
    large = learn_widths(X * 1e140, y * 1e140, family="rbf")
    np.testing.assert_allclose(large.gamma * 1e280, plain.gamma, rtol=1e-4)


def test_inputs_whose_widths_float64_does_not_have_are_refused(friedman):
    X, y = friedman
    with pytest.raises(ValueError, match="scale X"):
        learn_widths(1e-200 * X, y)


@pytest.mark.usefixtures("small_stages")
@pytest.mark.parametrize("n", [100, 300, 1000])
def test_a_target_without_noise_is_no_trouble(n):
    X = np.random.default_rng(0).uniform(-2, 2, (n, 3))
    found = learn_widths(X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2)
    assert found.noise[0] < 1e-3
    assert found.relevance[2] < 0.2


@pytest.mark.usefixtures("small_stages")
def test_the_evidence_of_many_rows_is_that_of_disjoint_parts_added():
    rng = np.random.default_rng(0)
    data = widths._Data.from_rows(rng.uniform(-1, 1, (90, 2)), rng.standard_normal(90), None)
    at = np.zeros(2), np.zeros(1), np.log([0.3])
    rows = rng.permutation(90)[:60]
    whole = widths._Parts(data, "matern52", rows, 60, 20, [])
    truth = ExactEvidence(data.X[np.sort(rows)], data.T[np.sort(rows)], "matern52")(*at)
    np.testing.assert_array_equal(whole(*at)[1], truth[1])
    parts = widths._Parts(data, "matern52", rows, 50, 20, [])
    assert len(parts.parts) == 3
    some = np.concatenate([part.X for part in parts.parts])
    np.testing.assert_array_equal(np.unique(some, axis=0), np.unique(data.X[rows], axis=0))
    assert parts.n == 60
    assert parts(*at)[0] == pytest.approx(sum(part(*at)[0] for part in parts.parts))
    step = np.array([1e-5, 0.0])
    slope = parts(at[0] + step, *at[1:])[0] - parts(at[0] - step, *at[1:])[0]
    assert parts(*at)[1][0] == pytest.approx(slope / 2e-5, rel=1e-5)


@pytest.mark.usefixtures("small_stages")
def test_no_stage_of_an_exact_process_has_centres(monkeypatch):
    monkeypatch.setattr(widths, "_REFINE_EXACT", Stage(200, 0, 6, 0.2))
    monkeypatch.setattr(widths, "_EXACT_PARTS", (150, 100))
    monkeypatch.setattr(widths, "NystroemEvidence", None)  # which would fail if it were called
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (500, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(500)
    for found in (
        learn_widths(X, y, process="exact"),
        *widths.propose_widths(X, y, process="exact", ard=True),
    ):
        assert found.relevance[2] < 0.05 < found.relevance[1] < found.relevance[0]
        np.testing.assert_allclose(found.noise, 0.01 / np.var(y), rtol=0.3)


def test_the_same_seed_gives_the_same_widths():
    X, y = make_friedman1(1000, n_features=6, noise=1.0, random_state=0)
    first, again, other = (
        learn_widths(X, y, random_state=seed, family="rbf") for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.gamma, again.gamma)
    assert np.any(first.gamma != other.gamma)


@pytest.mark.usefixtures("small_stages")
def test_a_signal_missed_at_first_is_looked_for_with_more_rows(monkeypatch):
    X, y = make_friedman1(1000, n_features=6, noise=1.0, random_state=0)
    seen = []
    ascend = widths._Search.ascend

    def half_blind(self, point, stage):
        seen.append(stage.rows)
        found = ascend(self, point, stage)
        return found._replace(log_noise=np.zeros(1)) if len(seen) == 1 else found

    monkeypatch.setattr(widths._Search, "ascend", half_blind)
    assert learn_widths(X, y, family="rbf").noise[0] < 0.1
    assert seen == [100, 200, 800]


def thirty_two(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((5000, 32))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.25 * rng.standard_normal(5000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_two_relevant_inputs_of_thirty_two_are_found(seed):
    found = learn_widths(*thirty_two(seed), random_state=seed)
    assert set(np.argsort(-found.relevance)[:2]) == {0, 1}
    assert found.noise[0] < 0.2
    assert np.all(found.relevance[2:] < 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_four_relevant_inputs_of_thirty_two_are_found(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((5000, 32))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(2 * X[:, 2]) * X[:, 3]
    found = learn_widths(X, y + 0.25 * rng.standard_normal(5000), random_state=seed)
    assert set(np.argsort(-found.relevance)[:4]) == {0, 1, 2, 3}
    assert found.noise[0] < 0.2


def test_a_kernel_among_several_has_the_widths_that_it_has_by_itself():
    X, y = make_friedman1(900, n_features=5, noise=1.0, random_state=0)
    labels = np.where(y > np.median(y), 1.0, -1.0)
    one, _, both = propose_widths(X, labels, labels=True)
    alone = learn_widths(X, labels, family="sum")
    np.testing.assert_array_equal(alone.gamma, both.gamma)
    alone = learn_widths(X, labels, family=one.family, ard=False)
    np.testing.assert_array_equal(alone.gamma, one.gamma)


@pytest.mark.parametrize("code", ["one value", "a twentieth of them"])
def test_values_far_outside_do_not_hide_the_others(code):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(800)
    clean = sb.ForwardRegressor().fit(X[:200], y[:200])
    far = [0] if code == "one value" else np.arange(0, 200, 20)
    X[far, 0] = -1e6
    model = sb.ForwardRegressor().fit(X[:200], y[:200])
    errors = [np.mean((m.predict(X[200:]) - y[200:]) ** 2) for m in (clean, model)]
    assert errors[1] < 1.5 * errors[0]  # 30 times as much with the standard deviation as unit
    assert np.argmin(model.feature_relevance_) == 2


def test_an_additive_function_has_an_additive_kernel():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 4))
    f = np.floor(3 * X[:, 0]) + np.abs(X[:, 1]) + (X[:, 2] > 0.2)
    y = f + 0.1 * rng.standard_normal(300)
    additive, product = (
        widths.learn_widths(X, y, family=family, process="exact")
        for family in ("additive", "laplacian")
    )
    assert additive.log_evidence > product.log_evidence + 10.0
    assert additive.gamma.shape == (2, 4)
    assert additive.relevance[3] < 0.02
    assert np.all(additive.relevance[:3] > 0.02)
    assert additive.n_lengths == 8


def test_units_of_the_inputs_of_an_additive_kernel_change_rates_alone():
    rng = np.random.default_rng(0)
    X, unit = rng.uniform(-1, 1, (120, 3)), np.array([1e-3, 1.0, 1e4])
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(120)
    rates, weights = widths.learn_widths(X, y, family="additive").gamma
    scaled = widths.learn_widths(X * unit, y, family="additive").gamma
    np.testing.assert_allclose(scaled[0] * unit, rates, rtol=1e-3)
    np.testing.assert_allclose(scaled[1], weights, rtol=1e-3)


@pytest.mark.parametrize(("rough", "families"), [(True, 2), (False, 3)])
def test_the_smoothest_family_is_left_out_where_a_rougher_one_is_better(
    monkeypatch, rough, families
):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3, 3, (150, 1)), axis=0)
    walk = np.cumsum(rng.standard_normal(150)) / np.sqrt(150)
    y = (walk if rough else np.sin(2.0 * X[:, 0])) + 0.01 * rng.standard_normal(150)
    learnt = []
    learn = widths._Search.learn
    monkeypatch.setattr(
        widths._Search, "learn", lambda s, f, ard: (learnt.append(f), learn(s, f, ard))[1]
    )
    monkeypatch.setattr(widths, "_DISCARD_MARGIN_NATS", np.inf)  # whatever the sum is worth
    learn_widths(X, y)
    assert len(learnt) == families
    assert ("rbf" in learnt) is not rough


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_smooth_part_of_one_width_is_the_long_one_for_classes(seed):
    # Twins share a label, which a narrow smooth part would interpolate.
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-2, 2, (150, 4))
    X = np.repeat(centres, 2, axis=0) + 0.03 * rng.standard_normal((300, 4))
    y = np.repeat(np.sign(centres[:, 0] + rng.logistic(size=150)), 2)
    learnt = learn_widths(X, y, family="sum", ard=False, labels=True, process="exact")
    smooth, rough = 1.0 / np.sqrt(2.0 * learnt.gamma[0]), 1.0 / learnt.gamma[1]
    assert learnt.one_width
    assert np.min(smooth) > 2.0 * np.max(rough)


def test_a_linear_effect_of_great_length_is_kept():
    # Its length reaches the limit of the search, where an input without an effect goes as well.
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, (200, 2))
    variance = np.exp(1.5 * rng.standard_normal(200))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.2 * np.sqrt(variance) * rng.standard_normal(200)
    weight = np.minimum(1.0 / variance, 3.0)
    learnt = learn_widths(X, y, family="matern52", sample_weight=weight, process="exact")
    assert np.all(learnt.gamma > 0.0)
    useless = np.column_stack([X, rng.standard_normal((200, 2))])
    learnt = learn_widths(useless, y, family="matern52", sample_weight=weight, process="exact")
    assert learnt.gamma[1] > 0.0


def test_scoring_takes_the_shortest_step_where_the_information_is_singular():
    def function(x):
        away = x[0] + x[1] - 1.0
        return -0.5 * away**2, np.full(2, -away), np.ones((2, 2))

    low, high = np.full(2, -4.0), np.full(2, 4.0)
    x, value = scoring(function, np.zeros(2), low, high, np.zeros(2), 20, 1e-6)
    np.testing.assert_allclose(x, 0.5, rtol=1e-9)
    assert value == pytest.approx(0.0, abs=1e-12)
