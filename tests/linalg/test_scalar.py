"""The maximum of a function of one variable."""

import numpy as np
import pytest

from sparsebayes.linalg.scalar import maximise


def test_a_search_from_afar_finds_the_maximum():
    x, height = maximise(lambda x: -((x - 7.3) ** 2), -20.0, 20.0, start=0.0, step=1.0, tol=1e-3)
    assert x == pytest.approx(7.3, abs=1e-6)
    assert height == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("start", [None, 0.0])
def test_a_maximum_beyond_the_limits_is_at_the_limit(start):
    assert maximise(lambda x: x, -5.0, 5.0, start=start, step=1.0, tol=1e-3)[0] == 5.0


def test_a_search_leaves_a_region_without_values_to_the_right():
    def value(x):
        return -abs(x - 3.0) if x > 1 else -np.inf

    assert maximise(value, -5.0, 9.0, start=-2.0, step=1.0, tol=1e-3)[0] == pytest.approx(
        3, abs=0.1
    )


def test_a_grid_finds_the_highest_of_two_maxima():
    def value(x):
        return np.exp(-((x + 3) ** 2)) + 2 * np.exp(-((x - 4) ** 2))

    local = maximise(value, -8.0, 8.0, start=-4.0, step=0.5, tol=1e-6)
    best = maximise(value, -8.0, 8.0, step=1.0, tol=1e-6)
    assert local[0] == pytest.approx(-3.0, abs=1e-3)
    assert best[0] == pytest.approx(4.0, abs=1e-5)


def test_a_search_from_a_start_takes_few_evaluations():
    seen = []
    maximise(
        lambda x: seen.append(x) or -np.cosh(x - 0.4), -9.0, 9.0, start=0.0, step=0.7, tol=1e-2
    )
    assert len(seen) <= 7
