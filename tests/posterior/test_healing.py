"""The healed variance: against the dense joint posterior, inside the data, in gaps and far away."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import rbf_kernel

from sparsebayes import ForwardRegressor, RVMRegressor
from sparsebayes.designs import KernelBasis
from sparsebayes.kernels import StationaryKernel
from sparsebayes.metrics import negative_log_density
from sparsebayes.posterior import ResidualProcess, Unlike


def sinc(n=120, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.standard_normal(n)


def pair(X, y, **parameters):
    """The same model without and with healing."""
    plain = RVMRegressor(gamma=0.1, **{"kernel": "rbf", **parameters}).fit(X, y)
    healed = RVMRegressor(gamma=0.1, heal=True, **{"kernel": "rbf", **parameters}).fit(X, y)
    np.testing.assert_array_equal(plain.active_, healed.active_)
    return plain, healed


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_variance_is_that_of_the_model_with_one_more_function(intercept, weighted):
    X, y = sinc(60)
    weight = np.random.default_rng(1).uniform(0.3, 2.0, 60) if weighted else np.ones(60)
    model = RVMRegressor("rbf", gamma=0.1, heal=True, fit_intercept=intercept, noise_variance=0.01)
    model.fit(X, y, sample_weight=weight if weighted else None)
    sigma2 = model.noise_variance_
    prior = model.healing_.prior_variance
    for x in (0.3, 9.0, 12.0, 30.0):
        centres = np.vstack([model.relevance_vectors_, [[x]]])
        Phi, here = rbf_kernel(X, centres, 0.1), rbf_kernel([[x]], centres, 0.1)[0]
        precision = np.append(model.weight_precision_, 1.0 / prior)
        if intercept:  # one more column, with a flat prior
            Phi = np.column_stack([Phi, np.ones(60)])
            here, precision = np.append(here, 1.0), np.append(precision, 0.0)
        H = Phi.T @ (weight[:, None] * Phi) / sigma2 + np.diag(precision)
        expected = here @ np.linalg.solve(H, here) + sigma2
        _, variance, _ = model._fitted.model.moments(np.array([[x]]))  # before calibration
        assert variance[0] + sigma2 == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("intercept", [False, True])
def test_far_away_the_std_is_that_of_the_target(intercept):
    X, y = sinc()
    plain, healed = pair(X, y, fit_intercept=intercept)
    (_, without), (_, std) = (m.predict([[1000.0]], return_std=True) for m in (plain, healed))
    assert std[0] >= np.std(y)
    assert std[0] < 1.5 * np.std(y)
    # Without healing the variance of the process is added beyond the rows.
    assert without[0] > 0.9 * np.std(y)


@pytest.mark.parametrize("seed", range(5))
def test_inside_the_data_the_std_changes_by_less_than_five_percent(seed):
    X, y = sinc(seed=seed)
    plain, healed = pair(X, y)
    inside = np.linspace(*np.quantile(X, [0.05, 0.95]), 200)[:, None]
    (mean, std), (same, larger) = (m.predict(inside, return_std=True) for m in (plain, healed))
    np.testing.assert_array_equal(mean, same)
    assert np.all(larger >= std)
    assert np.max(larger / std) < 1.05


def test_a_gap_is_predicted_with_a_better_density():
    gained = []
    for seed in range(10):
        X, y = sinc(180, seed)
        gap = np.abs(X[:, 0]) < 10.0 / 3.0
        plain, healed = pair(X[~gap], y[~gap])
        mean, std = plain.predict(X[gap], return_std=True)
        # A plain model is less sure in gaps as well (`Explored`): compare with its posterior alone.
        added = plain._fitted.predictor.added.variance(X[gap], None, None)
        without = negative_log_density(y[gap], mean, np.sqrt(std**2 - added))
        with_it = negative_log_density(y[gap], *healed.predict(X[gap], return_std=True))
        gained.append(without - with_it)
    # Where the model has a function in the gap all the same, the two are equal to a hundredth.
    assert np.mean(gained) > 0.3
    assert np.min(gained) > -0.01


def test_several_outputs_are_healed_each_to_its_own_spread():
    X, y = sinc()
    rng = np.random.default_rng(2)
    Y = np.column_stack([y, 10.0 * np.cos(X[:, 0] / 3.0) + rng.standard_normal(len(y))])
    model = RVMRegressor("rbf", gamma=0.1, heal=True).fit(X, Y)
    _, std = model.predict([[1000.0]], return_std=True)
    assert np.all(std[0] >= Y.std(axis=0))


def test_calibration_scales_the_residual_process_and_leaves_healing_at_the_target():
    X = np.linspace(-3, 3, 20)[:, None]
    basis = KernelBasis(StationaryKernel("rbf", 1.0), X[::4])
    L = np.linalg.cholesky(basis(X[::4]) + 1e-10 * np.eye(5))
    process = ResidualProcess(basis, L, np.array([2.0, 3.0]))
    factor = np.array([1.5, 4.0])
    got = process.scaled(factor).variance(X, basis(X), None)
    np.testing.assert_allclose(got, process.variance(X, basis(X), None) * factor)
    cov = replace(process, between=np.array([0.2, 0.6])).covariance(X)
    own = replace(process, between=np.array([0.2, 0.6])).variance(X, basis(X), None)
    np.testing.assert_allclose(np.einsum("iij->ij", cov), own)
    healed = RVMRegressor("rbf", gamma=0.5, heal=True).fit(X, np.sin(X[:, 0])).healing_
    assert healed.scaled(4.0) is healed
    assert process.joint
    assert not healed.joint


def test_rows_unlike_all_others_have_the_variance_of_the_process():
    X, _ = sinc(40)
    K, lam = rbf_kernel(X, gamma=0.1), 0.2
    far = np.array([[0.0], [13.0], [1000.0]])
    added = Unlike.from_matrix(3.0 * K, 3.0 * lam, 2.0 / 3.0)
    inverse = np.linalg.inv(K + lam * np.eye(40))
    new = rbf_kernel(far, X, gamma=0.1)
    variance = 1.0 - np.einsum("ij,jk,ik->i", new, inverse, new)
    left_out = np.empty(40)
    for i in range(40):
        others = np.delete(np.arange(40), i)
        root = np.linalg.solve(K[np.ix_(others, others)] + lam * np.eye(39), K[others, i])
        left_out[i] = 1.0 - K[i, others] @ root
    expected = 2.0 * np.maximum(variance - left_out.mean(), 0.0)
    np.testing.assert_allclose(added.variance(3.0 * new, None, None), expected, atol=1e-9)
    assert expected[0] == 0.0
    np.testing.assert_allclose(np.diag(added.covariance(3.0 * new)), expected, atol=1e-9)
    assert Unlike.from_matrix(K * (1.0 + X @ X.T), lam, 1.0) is None  # k(x, x) is not known


def test_new_rows_of_a_kernel_matrix_that_are_unlike_all_others_are_warned_of():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-2.0, 2.0, (80, 2)), 2, axis=0)  # each row is measured twice
    new = rng.uniform(-2.0, 2.0, (400, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(160)
    model = RVMRegressor("precomputed").fit(rbf_kernel(X, gamma=0.5), y)
    assert len(model._fitted.predictor.added.rows_unknown(rbf_kernel(X, gamma=0.5))) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(rbf_kernel(new, X, gamma=0.5))
        model.predict(rbf_kernel(new + 0.2, X, gamma=0.5))  # just beyond
    new[[3, 5]] += 5.0
    with pytest.warns(UserWarning, match="2 of 400 rows are unlike all training rows.*is row 3"):
        model.predict(rbf_kernel(new, X, gamma=0.5))
    with pytest.warns(UserWarning, match="2 of 400 rows are unlike"):
        model.predict(csr_array(rbf_kernel(new, X, gamma=0.5)), return_std=True)
    # Where training rows are unlike each other, new ones may be.
    alone = RVMRegressor("precomputed").fit(rbf_kernel(X, gamma=500.0), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone.predict(rbf_kernel(new, X, gamma=500.0))


def test_a_process_is_judged_by_predictions_of_each_row_from_the_others():
    # Two outputs, noise variances of their own, and five rows that are not centres.
    rng = np.random.default_rng(3)
    X, kernel = rng.uniform(0.0, 3.0, (20, 1)), StationaryKernel("laplacian", 1.0)
    y = np.c_[0.2 * np.sin(X[:, 0]), 0.05 * X[:, 0]]
    centres, amplitude = rng.permutation(20)[:15], np.array([1.0, 0.5])
    noise, residuals = rng.uniform(0.5, 1.5, (20, 2)) * 1e-3, 0.01 * rng.standard_normal((20, 2))
    K = kernel.bind(X)(X)
    L = np.linalg.cholesky(K[np.ix_(centres, centres)])
    process = ResidualProcess(KernelBasis(kernel, X[centres]), L, amplitude)

    squares = np.empty((20, 2))
    for i, output in np.ndindex(20, 2):
        others, C = centres[centres != i], amplitude[output] * K
        between, error = C[np.ix_(others, others)], residuals[i, output]
        if i in centres:
            between = between + np.diag(noise[others, output])
            error = y[i, output] - C[i, others] @ np.linalg.solve(between, y[others, output])
        variance = C[i, i] - C[i, others] @ np.linalg.solve(between, C[others, i])
        squares[i, output] = error**2 / (variance + noise[i, output])
    judged = process.judged(X, y, noise, centres, residuals)
    np.testing.assert_allclose(judged.between, squares.mean(0), rtol=1e-10)
    assert np.all(squares.mean(0) < 1.0)
    same = process.judged(X, 100.0 * y, noise, centres, residuals)
    np.testing.assert_array_equal(same.between, 1.0)
    tiny = replace(process, amplitude=np.zeros(2))  # targets of 1e-170
    assert tiny.judged(X, y, noise, centres, residuals) is tiny


@pytest.mark.parametrize("options", [{}, {"kernel": "laplacian", "gamma": 0.5}])
def test_without_noise_a_selection_is_not_much_surer_or_less_sure_than_it_is_right(options):
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-2.0, 2.0, (160, 3)), rng.uniform(-1.8, 1.8, (300, 3))

    def target(X):
        return np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * X[:, 2]

    model = ForwardRegressor(**options).fit(X, target(X))
    assert 2 * len(model.active_) > len(X)
    mean, std = model.predict(new, return_std=True)
    ratio = np.sqrt(np.mean(std**2) / np.mean((target(new) - mean) ** 2))
    assert 0.5 < ratio < 2.0


def test_healing_needs_the_rows_in_one_array():
    X, y = sinc(40)
    with pytest.raises(ValueError, match=r"heal=True compares .* Got X as list. Pass one array"):
        RVMRegressor("rbf", gamma=0.1, heal=True).fit([X[:20], X[20:]], y)


@pytest.mark.parametrize("noise", [1e-14, 1e-6, 0.1])
def test_a_residual_covariance_is_positive_however_small_the_noise_is(noise):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((20, 2)), 2, axis=0)
    kernel = StationaryKernel("matern32", 0.5)
    K = kernel.bind(X)(X)
    L = np.linalg.cholesky(K + noise * np.eye(len(X)))
    process = ResidualProcess(KernelBasis(kernel, X), L, 2.0)
    C = process.covariance(X)
    np.testing.assert_allclose(np.diag(C), process.variance(X, None, None), atol=1e-300)
    size = np.sqrt(np.diag(C))
    size = np.where(size > 0.0, size, 1.0)
    assert np.linalg.eigvalsh(C / np.outer(size, size))[0] > -1e-6
