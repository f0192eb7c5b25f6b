import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import spearmanr

from sparsebayes import SparseGPClassifier, SparseGPRegressor
from sparsebayes.export import export_model
from sparsebayes.input_range import InputRange, Values
from sparsebayes.kernels import Box, StationaryKernel, Warp, WarpedKernel
from sparsebayes.posterior.added import Extrapolation

RNG = np.random.default_rng(0)
SKEWED = np.column_stack([np.exp(1.5 * RNG.standard_normal(300)), RNG.standard_normal(300)])
LEVEL = np.sin(2 * np.log(SKEWED[:, 0])) + np.sin(2 * SKEWED[:, 1])


def test_scores_are_normal_quantiles_of_ranks_at_the_knots_and_keep_the_order():
    x = np.sort(RNG.exponential(size=(151, 1)), axis=0)
    warp = Warp.from_rows(x)
    score = warp(x)[:, 1]
    rank = np.searchsorted(x[:, 0], warp.knots[0])
    np.testing.assert_allclose(score[rank], ndtri((rank + 0.5) / 151), atol=1e-12)
    assert np.all(np.diff(score) > 0)
    assert 25 <= len(rank) <= 30


def test_many_rows_have_few_knots_and_nearly_the_same_scores():
    x = RNG.exponential(size=(20_000, 1))
    warp = Warp.from_rows(x)
    assert len(warp.knots[0]) <= 200
    exact = ndtri((np.argsort(np.argsort(x[:, 0])) + 0.5) / 20_000)
    assert np.max(np.abs(warp(x)[:, 1] - np.clip(exact, -3.2, 3.2))) < 0.05


def test_scores_are_constant_beyond_the_rows():
    warp = Warp.from_rows(SKEWED)
    far = np.array([[-1e6, 0.0], [SKEWED[:, 0].min(), 0.0], [SKEWED[:, 0].max(), 0.0], [1e9, 0.0]])
    score = warp(far)[:, 2]
    assert score[0] == score[1]
    assert score[2] == score[3]


def test_only_inputs_that_are_skewed_and_have_ten_values_have_scores():
    n = 400
    X = np.column_stack(
        [
            RNG.uniform(size=n),
            RNG.standard_normal(n),
            RNG.exponential(size=n) ** 2,
            np.exp(RNG.integers(0, 9, n)),
        ]
    )
    assert Warp.from_rows(X).inputs.tolist() == [2]
    assert Warp.from_rows(X, every=True).inputs.tolist() == [0, 1, 2]
    assert Warp.from_rows(X[:, :2]) is None


def test_weights_are_repetition():
    weight = RNG.integers(1, 4, len(SKEWED)).astype(float)
    repeated = np.repeat(SKEWED, weight.astype(int), axis=0)
    np.testing.assert_allclose(
        Warp.from_rows(SKEWED, weight)(SKEWED), Warp.from_rows(repeated)(SKEWED), atol=1e-12
    )


@pytest.mark.parametrize("family", ["rbf", "laplacian", "sum"])
def test_the_kernel_is_that_of_the_mapped_rows(family):
    warp = Warp.from_rows(SKEWED)
    gamma = RNG.uniform(0.1, 1.0, (2, 3) if family == "sum" else 3)
    plain = StationaryKernel(family, gamma)
    kernel = WarpedKernel(plain, warp)
    Z = warp(SKEWED)
    np.testing.assert_allclose(kernel.bind(SKEWED[:5])(SKEWED), plain.bind(Z[:5])(Z), rtol=1e-12)
    own = np.diagonal(plain.bind(Z[5:9])(Z[:4]))
    np.testing.assert_allclose(kernel.pairs(SKEWED[:4], SKEWED[5:9]), own, rtol=1e-10)


def test_tensors_have_the_same_scores():
    torch = pytest.importorskip("torch")
    warp, rows = Warp.from_rows(SKEWED), SKEWED * RNG.uniform(0.5, 2.0, SKEWED.shape)
    np.testing.assert_allclose(warp(torch.from_numpy(rows)).numpy(), warp(rows), atol=1e-12)


@pytest.mark.parametrize("max_terms", [None, 40])
def test_a_function_of_the_rank_is_found(max_terms):
    y, errors = LEVEL + 0.1 * RNG.standard_normal(300), {}
    for warp in (False, "auto"):
        model = SparseGPRegressor("rbf", gamma="ard", warp=warp, max_terms=max_terms)
        model.fit(SKEWED[:200], y[:200])
        errors[warp] = np.median(np.abs(model.predict(SKEWED[200:]) - LEVEL[200:]))
        assert model.feature_relevance_.shape == (2,)
        assert model.relevance_vectors_.shape[1] == 2
    assert errors["auto"] < 0.7 * errors[False]
    assert model.warp_.inputs.tolist() == [0]
    assert np.shape(model.gamma_)[-1] == 3
    with pytest.raises(ValueError, match="Fit with warp=False"):
        export_model(model)


def test_predictions_are_those_of_a_process_of_both_columns():
    y = LEVEL + 0.1 * np.random.default_rng(1).standard_normal(300)
    model = SparseGPRegressor(gamma="ard", kernel="rbf").fit(SKEWED, y)
    rows, new = model.warp_(SKEWED), model.warp_(SKEWED[:9] * 1.1)

    def kernel(A, B):
        return np.exp(-np.sum(model.gamma_ * (A[:, None] - B) ** 2, axis=-1))

    # The process with a flat prior of its mean, by the inverse of its covariance matrix.
    noise_to_signal = model._fitted.kernel.noise_to_signal
    inverse = np.linalg.inv(kernel(rows, rows) + noise_to_signal * np.eye(300))
    sums = inverse.sum(axis=1)
    mean = sums @ y / sums.sum()
    expected = mean + kernel(new, rows) @ inverse @ (y - mean)
    np.testing.assert_allclose(model.predict(SKEWED[:9] * 1.1), expected, rtol=1e-8)
    Q = inverse - np.outer(sums, sums) / sums.sum()
    np.testing.assert_allclose(model.loo_.residuals, Q @ y / np.diag(Q), rtol=0, atol=1e-9)


def test_beyond_the_rows_predictions_are_finite_and_warned_of():
    model = SparseGPRegressor().fit(SKEWED, LEVEL + 0.1 * RNG.standard_normal(300))
    far = np.array([[1e4 * SKEWED[:, 0].max(), 0.0]])
    with pytest.warns(UserWarning, match="outside the range"):
        mean, std = model.predict(far, return_std=True)
    assert LEVEL.min() - 3 * LEVEL.std() < mean[0] < LEVEL.max() + 3 * LEVEL.std()
    assert np.isfinite(std[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(SKEWED)


def test_the_range_of_an_input_that_matters_as_its_score_is_twice_as_wide():
    model = SparseGPRegressor(kernel="rbf", gamma="ard").fit(SKEWED, LEVEL)
    choice = model._fitted.kernel
    gamma = np.array([1e-12, 1.0, 1.0])
    choice = type(choice)("rbf", gamma, warp=choice.warp)
    known = InputRange.from_values(Values.of(SKEWED), choice, None)
    assert known.margin[0] == pytest.approx(np.ptp(SKEWED[:, 0]))
    assert known.margin[1] == pytest.approx(0.5 / np.sqrt(2))


def test_the_variance_beyond_the_box_is_that_of_mapped_rows():
    warp = Warp.from_rows(SKEWED)
    kernel = WarpedKernel(StationaryKernel("rbf", np.array([0.0, 0.0, 1.0])), warp)
    low, high = SKEWED.min(axis=0), SKEWED.max(axis=0)
    beyond = Extrapolation(kernel, Box(low, high), 4.0)
    # The score is constant there, and the kernel does not see the input itself.
    assert beyond.variance(high[None] + 5.0, None, None)[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("params", [{"gamma": 0.5}, {"neighbours": 4}])
def test_what_does_not_combine_is_refused_or_left_out(params):
    with pytest.raises(ValueError, match="warp=True requires a stationary kernel"):
        SparseGPRegressor(warp=True, **params).fit(SKEWED, LEVEL)
    model = SparseGPRegressor(**params).fit(SKEWED, LEVEL + 0.1 * RNG.standard_normal(300))
    assert not hasattr(model, "warp_")


def test_scores_alone_hide_the_inputs_themselves():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.exp(rng.standard_normal(300)), rng.standard_normal(300)])
    both = Warp.from_rows(X)
    alone = replace(both, alone=True)
    np.testing.assert_array_equal(both.inputs, [0])
    np.testing.assert_array_equal(alone(X), np.column_stack([0 * X[:, 0], both(X)[:, 1:]]))
    y = np.log(X[:, 0]) + X[:, 1] + rng.logistic(size=300) > 0
    model = SparseGPClassifier("rbf", gamma="ard", warp="scores").fit(X, y)
    assert model.warp_.alone
    far = np.column_stack([[X[:, 0].max(), 2 * X[:, 0].max()], [0.3, 0.3]])
    np.testing.assert_allclose(*model.predict_proba(far))  # scores are constant beyond the range


def test_ranks_of_all_inputs_are_uniform_and_alone():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.standard_normal(400), np.exp(rng.standard_normal(400)), np.arange(400) % 2.0]
    )
    Z = Warp.to_ranks(X)(X)
    np.testing.assert_array_equal(Z[:, :2], 0.0)
    np.testing.assert_array_equal(Z[:, 2], X[:, 2])  # two values have no ranks
    for ranks, x in zip(Z[:, 3:].T, X.T, strict=False):
        np.testing.assert_allclose(np.sort(ranks), (np.arange(400) + 0.5) / 400, atol=0.02)
        assert spearmanr(ranks, x).statistic > 0.999


def test_light_tails_have_a_score_only_where_there_are_many_rows():
    rng = np.random.default_rng(0)
    two_values = rng.choice([-3.0, 3.0], 400) + 0.1 * rng.standard_normal(400)
    X = np.column_stack([two_values, np.exp(rng.standard_normal(400))])
    for n, inputs in ((150, [1]), (400, [0, 1])):
        warp = Warp.from_rows(X[:n])
        assert warp is not None
        assert warp.inputs.tolist() == inputs
        assert Warp.from_rows(X[:n], every=True).inputs.tolist() == [0, 1]
