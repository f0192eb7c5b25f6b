import numpy as np
import pytest

from papers.reestimation import Rule, reestimate
from sparsebayes import RVMRegressor


def test_converged_reestimation_is_a_fixed_point_of_the_library():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6))
    y = X[:, 0] - 2.0 * X[:, 3] + 0.1 * rng.standard_normal(80)
    active, weights = reestimate(X, y, Rule(tol=1e-8, max_iter=5000))
    model = RVMRegressor(kernel=None, algorithm="em", fit_intercept=False, tol=1e-10).fit(X, y)
    full = np.zeros(6)
    full[active] = weights
    assert {0, 3} <= set(active)
    np.testing.assert_allclose(full[[0, 3]], np.asarray(model.coef_)[[0, 3]], rtol=1e-3)


@pytest.mark.parametrize("rule", [Rule(max_iter=3), Rule(stop="evidence", tol=1.0)])
def test_an_early_stop_keeps_more_functions(rule):
    rng = np.random.default_rng(1)
    x = np.linspace(-3, 3, 60)
    Phi = np.exp(-np.square(x[:, None] - x))
    y = np.sin(x) + 0.1 * rng.standard_normal(60)
    assert len(reestimate(Phi, y, rule)[0]) > len(reestimate(Phi, y, Rule())[0])
