import numpy as np
import pytest
from scipy.optimize import minimize

from sparsebayes.posterior.noise import Tail
from sparsebayes.posterior.predictive import Exponential, LocationScale
from sparsebayes.stacking import (
    Stack,
    is_worse,
    smallest_within_error,
    stacking_weights,
    with_small_errors,
)


@pytest.fixture
def densities():
    rng = np.random.default_rng(0)
    return rng.normal(-1.0, 1.0, (200, 3)) + np.array([0.0, 0.2, -0.3])


def make_stack(n=1):
    """Four rows, each n times."""
    rng = np.random.default_rng(1)
    means, stds = rng.normal(1.0, 0.5, (3, 4)), rng.uniform(0.2, 0.6, (3, 4))
    means, stds = np.repeat(means, n, axis=1), np.repeat(stds, n, axis=1)
    parts = (
        LocationScale(means[0], stds[0]),
        LocationScale(means[1], stds[1], Tail(4.0, 0.8)),
        Exponential(LocationScale(means[2], stds[2]), np.full(4 * n, 9.0)),
    )
    return Stack(parts, np.array([0.5, 0.3, 0.2]))


@pytest.fixture
def stack():
    return make_stack()


def test_weights_maximise_the_density_of_the_mixture(densities):
    weight = stacking_weights(densities, prior=0.0)

    def loss(w):
        return -np.sum(np.log(np.exp(densities) @ w))

    simplex = {"type": "eq", "fun": lambda w: np.sum(w) - 1.0}
    best = minimize(loss, np.ones(3) / 3, bounds=[(0, 1)] * 3, constraints=simplex)
    assert loss(weight) <= best.fun + 1e-3
    np.testing.assert_allclose(weight, best.x, atol=0.01)
    assert np.sum(weight) == pytest.approx(1.0)


def test_counts_are_repetition_and_rows_of_none_do_not_matter(densities):
    count = np.random.default_rng(2).integers(0, 3, len(densities)).astype(float)
    repeated = np.repeat(densities, count.astype(int), axis=0)
    ours, theirs = stacking_weights(densities, count), stacking_weights(repeated)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_simplest_member_wins_ties():
    same = np.random.default_rng(0).standard_normal((50, 1)) * np.ones((1, 3))
    np.testing.assert_allclose(stacking_weights(same), [1.0, 0.0, 0.0], atol=0.05)


def test_a_density_of_zero_is_no_error():
    logs = np.array([[-np.inf, 0.0]] * 30 + [[0.0, -1.0]] * 30)
    weight = stacking_weights(logs)
    assert np.all(np.isfinite(weight))
    assert weight[1] > 0.4


def test_the_smallest_within_one_error():
    rng = np.random.default_rng(0)
    base = rng.standard_normal(400)
    logs = np.column_stack([base - 1.0, base - 0.001 + 0.1 * rng.standard_normal(400), base])
    assert smallest_within_error(logs, [1, 10, 100]) == 1
    assert smallest_within_error(logs, [1, 1000, 100]) == 2


def test_moments_quantiles_and_density_agree_with_integrals(stack):
    grid = np.linspace(-15.0, 45.0, 60_001)
    many, z = make_stack(len(grid)), np.tile(grid, 4)
    density = np.exp(many.log_density(z)).reshape(4, -1)
    np.testing.assert_allclose(np.trapezoid(density, grid), 1.0, atol=2e-3)
    below = np.cumsum(density, axis=1) * (grid[1] - grid[0])
    inside = grid < 5.0  # the logarithm has a bound above
    np.testing.assert_allclose(below[:, inside], many.cdf(z).reshape(4, -1)[:, inside], atol=2e-3)
    levels = np.array([0.025, 0.3, 0.5, 0.975])
    for j, level in enumerate(levels):
        np.testing.assert_allclose(stack.cdf(stack.quantiles(levels)[:, j]), level, atol=1e-6)
    draws = stack.sample(40_000, np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(axis=1), stack.mean, rtol=0.03)
    np.testing.assert_allclose(draws.std(axis=1), stack.std, rtol=0.06)


def test_crps_is_the_integral_of_squares(stack):
    y = np.array([0.5, 1.2, 2.0, 6.0])
    grid = np.linspace(-15.0, 45.0, 60_001)
    F = make_stack(len(grid)).cdf(np.tile(grid, 4)).reshape(4, -1)
    truth = np.trapezoid((F - (grid >= y[:, None])) ** 2, grid)
    np.testing.assert_allclose(stack.crps(y), truth, rtol=0.01)


def test_a_stack_of_one_is_that_one():
    one = LocationScale(np.array([1.0, 2.0]), np.array([0.5, 0.1]))
    stack = Stack((one,), np.ones(1))
    levels = np.array([0.1, 0.9])
    np.testing.assert_array_equal(stack.quantiles(levels), one.quantiles(levels))
    np.testing.assert_allclose(stack.std, one.std)
    np.testing.assert_allclose(stack.crps(one.mean), one.crps(one.mean), rtol=0.01)


def test_ends_are_intervals_of_a_probability(stack):
    ends = stack.ends(0.9)
    np.testing.assert_allclose(stack.cdf(ends[:, 1]) - stack.cdf(ends[:, 0]), 0.9, atol=1e-6)
    assert np.all(np.isinf(stack.ends(np.inf)))


def test_averages_over_copies_are_averages_of_members(stack):
    apart = Stack(tuple(LocationScale(p.mean + 2.0, p.std) for p in stack.parts), stack.weight)
    plain = Stack(tuple(LocationScale(p.mean, p.std) for p in stack.parts), stack.weight)
    both = Stack.average([plain, apart], np.ones(4))
    np.testing.assert_allclose(both.mean, plain.mean + 1.0)
    for k, part in enumerate(both.parts):
        np.testing.assert_allclose(part.std**2, stack.parts[k].std ** 2 + 1.0)


def test_weights_move_to_small_errors_only_as_far_as_they_must():
    rng = np.random.default_rng(0)
    residuals = rng.standard_normal((300, 3)) * [1.0, 1.1, 3.0]
    count = rng.integers(1, 4, 300).astype(float)

    def error(weight):
        return np.sqrt(count @ (residuals @ weight) ** 2)

    shares = np.linspace(0.0, 1.0, 51)
    grid = [np.array([a, (1 - a) * b, (1 - a) * (1 - b)]) for a in shares for b in shares]
    smallest = min(map(error, grid))
    far = np.array([0.1, 0.1, 0.8])
    moved = with_small_errors(far, residuals, count, 1.05)
    assert error(moved) == pytest.approx(1.05 * smallest, rel=1e-3)
    assert np.sum(moved) == pytest.approx(1.0)
    assert np.all(moved >= 0.0)
    np.testing.assert_array_equal(with_small_errors(moved, residuals, count, 1.06), moved)


def test_errors_that_a_few_rows_decide_leave_the_weights():
    rng = np.random.default_rng(4)
    noise, count = rng.standard_t(2, 400), np.ones(400)
    residuals = np.column_stack([noise, noise * (1.0 + 0.2 * rng.standard_normal(400))])
    squares = np.square(residuals)
    difference = squares[:, 1] - squares[:, 0]
    assert np.sum(squares[:, 1]) > 1.03 * np.sum(squares[:, 0])
    assert np.mean(difference) < np.std(difference) / 20.0
    weight = np.array([0.0, 1.0])
    moved = with_small_errors(weight, residuals, count, errors=1.0)
    np.testing.assert_array_equal(moved, weight)
    assert with_small_errors(weight, residuals, count)[1] < 0.9
    assert not is_worse(residuals[:, 1], residuals[:, 0], count, errors=1.0)
    assert is_worse(residuals[:, 1], residuals[:, 0], count)
    # The same increase in every row is no chance.
    same = noise * np.sqrt(np.sum(squares[:, 1]) / np.sum(squares[:, 0]))
    assert is_worse(same, noise, count, errors=1.0)
    pair = np.column_stack([noise, same])
    assert with_small_errors(weight, pair, count, errors=1.0)[1] < 0.5


@pytest.mark.parametrize("size", [5.0, 1e3, 1e8])
def test_an_increase_of_the_error_in_a_single_row_is_worse(size):
    reference = np.random.default_rng(0).standard_normal(300)
    residuals = reference.copy()
    residuals[7] = size
    assert is_worse(residuals, reference, np.ones(300), errors=1.0)
    assert not is_worse(reference, residuals, np.ones(300), errors=1.0)


def test_residuals_that_are_all_zero_leave_the_weights():
    weight = np.array([0.3, 0.7])
    np.testing.assert_array_equal(with_small_errors(weight, np.zeros((9, 2)), np.ones(9)), weight)


def test_a_tenth_more_error_is_worse_whatever_its_standard_error():
    count, reference = np.ones(300), np.random.default_rng(0).choice([-1.0, 1.0], 300)
    residuals = reference.copy()
    reference[0], residuals[1] = 9.0, np.sqrt(201.0)  # one row gains 80, another loses 200
    change = residuals**2 - reference**2
    assert np.mean(change) < np.std(change) / np.sqrt(300)
    assert is_worse(residuals, reference, count, errors=1.0)
    weight, pair = np.array([0.0, 1.0]), np.column_stack([reference, residuals])
    moved = pair @ with_small_errors(weight, pair, count, errors=1.0)
    smallest = min(np.mean((pair @ [1 - w, w]) ** 2) for w in np.linspace(0.0, 1.0, 1001))
    assert np.mean(moved**2) < 1.1**2 * 1.001 * smallest
