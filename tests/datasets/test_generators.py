import numpy as np
import pytest

from sparsebayes import datasets

XY_GENERATORS = [
    datasets.make_sinc,
    datasets.make_chen_example,
]
SIGNALS = [datasets.make_sparse_signal, datasets.make_grouped_signal]


@pytest.mark.parametrize("make", XY_GENERATORS + SIGNALS)
def test_same_seed_gives_same_data_and_another_seed_other_data(make):
    first, again, other = (
        make(30, random_state=1),
        make(30, random_state=1),
        make(30, random_state=2),
    )
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[1], other[1])


@pytest.mark.parametrize("make", XY_GENERATORS + SIGNALS)
def test_noise_has_the_asked_standard_deviation_and_leaves_the_inputs_alone(make):
    X, y, *_ = make(4000, noise=0.3, random_state=3)
    X_clean, y_clean, *_ = make(4000, noise=0, random_state=3)
    np.testing.assert_array_equal(X, X_clean)
    assert abs(np.std(y - y_clean) - 0.3) < 0.015  # four standard errors


def test_sinc_is_sine_over_x_and_one_at_zero():
    X, y = datasets.make_sinc(101, noise=0, inputs="grid")
    x = X.ravel()
    np.testing.assert_allclose(np.diff(x), 0.2)
    np.testing.assert_allclose(x * y, np.sin(x), atol=1e-15)
    assert y[50] == 1.0


def test_uniform_noise_of_sinc_stays_within_its_half_width_and_fills_it():
    X, y = datasets.make_sinc(2000, noise=0.2, noise_kind="uniform", random_state=0)
    error = y - np.sinc(X.ravel() / np.pi)
    assert 0.19 < np.abs(error).max() <= 0.2 + 1e-15
    assert abs(error.std() - 0.2 / np.sqrt(3)) < 0.01


@pytest.mark.parametrize("weights", ["uniform", "normal"])
def test_grouped_signal_has_whole_active_groups_and_rows_on_the_sphere(weights):
    X, y, coef, groups = datasets.make_grouped_signal(
        20, 60, n_groups=15, n_active=3, weights=weights, noise=0, random_state=4
    )
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), np.sqrt(60))
    np.testing.assert_array_equal(groups, np.arange(60) % 15)
    active = np.unique(groups[coef != 0])
    assert len(active) == 3
    assert np.all(coef[np.isin(groups, active)] != 0)
    assert (np.abs(coef) <= 1).all() or weights == "normal"
    np.testing.assert_allclose(y, X @ coef)


def test_default_grouped_signal_is_that_of_the_paper():
    X, _, coef, groups = datasets.make_grouped_signal(random_state=0)
    assert X.shape == (64, 512)
    assert np.bincount(groups).tolist() == [4] * 128
    assert np.count_nonzero(coef) == 16


def test_active_places_of_sparse_signal_differ_between_seeds_and_count_is_kept():
    places = [
        np.flatnonzero(datasets.make_sparse_signal(5, 50, n_active=6, random_state=seed)[2])
        for seed in range(4)
    ]
    assert [len(place) for place in places] == [6] * 4
    assert len({tuple(place) for place in places}) == 4


def test_signal_without_active_weights_is_pure_noise():
    _, y, coef = datasets.make_sparse_signal(5, 50, n_active=0, noise=0, random_state=0)
    assert not coef.any()
    assert not y.any()


def test_chen_example_is_one_period_of_a_sine():
    X, y = datasets.make_chen_example(noise=0, random_state=0)
    assert X.shape == (100, 1)
    assert 0 <= X.min() < 0.1
    assert 0.9 < X.max() <= 1
    np.testing.assert_allclose(y, np.sin(2 * np.pi * X.ravel()))


@pytest.mark.parametrize("make", XY_GENERATORS + SIGNALS)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n_samples": 0}, "n_samples must be an integer, at least 1; got 0"),
        ({"n_samples": 2.5}, "n_samples must be an integer, at least 1; got 2.5"),
        ({"noise": -1}, "noise must be a finite, non-negative number; got -1"),
        ({"noise": float("nan")}, "noise must be a finite, non-negative number; got nan"),
        ({"noise": "much"}, "noise must be a finite, non-negative number; got 'much'"),
    ],
)
def test_bad_counts_and_noise_are_refused_in_a_sentence(make, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**arguments)


@pytest.mark.parametrize(
    ("make", "arguments", "sentence"),
    [
        (datasets.make_sinc, {"noise_kind": "pink"}, "noise_kind must be one of"),
        (datasets.make_sinc, {"inputs": "sobol"}, "inputs must be one of"),
        (datasets.make_sparse_signal, {"weights": "cauchy"}, "weights must be one of"),
        (datasets.make_sparse_signal, {"n_active": 513}, "n_active .* from 0 to 512; got 513"),
        (datasets.make_grouped_signal, {"n_groups": 600}, "n_groups .* from 1 to 512; got 600"),
        (datasets.make_grouped_signal, {"n_active": 129}, "n_active .* from 0 to 128; got 129"),
    ],
)
def test_choices_that_do_not_exist_are_refused_in_a_sentence(make, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**arguments)
