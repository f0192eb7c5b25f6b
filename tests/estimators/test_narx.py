"""NARXRegressor: known systems found, simulated, with bands; trouble said in sentences."""

import pickle
import warnings

import numpy as np
import pytest
import skops.io as sio
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import PolynomialFeatures

from sparsebayes import TRUSTED_TYPES, NARXRegressor, OrthogonalLeastSquaresRegressor, RVMRegressor

TRUE = {
    "y(k-1)": 0.5,
    "y(k-2)": -0.3,
    "u(k-1)": 0.8,
    "u(k-2)^2": 0.4,
    "y(k-1)*u(k-1)": -0.2,
}


def system(seed, n=600, process=0.0, output=0.0):
    """Input and output, with noise inside the recursion and on the output."""
    rng = np.random.default_rng(seed)
    u, e = rng.uniform(-1, 1, n + 50), process * rng.standard_normal(n + 50)
    y = np.zeros(n + 50)
    for k in range(2, n + 50):
        y[k] = 0.5 * y[k - 1] - 0.3 * y[k - 2] + 0.8 * u[k - 1]
        y[k] += 0.4 * u[k - 2] ** 2 - 0.2 * y[k - 1] * u[k - 1] + e[k]
    return u[50:], (y + output * rng.standard_normal(n + 50))[50:]


def table(model):
    return dict(zip(model.terms_.term.tolist(), model.terms_.coefficient, strict=True))


@pytest.fixture(scope="module")
def fitted():
    u, y = system(0, process=0.02)
    return NARXRegressor(degree=2).fit(u, y)


def test_the_true_terms_of_a_system_with_process_noise_are_found():
    for seed in range(3):
        u, y = system(seed, process=0.05)
        model = NARXRegressor(3, 3, degree=2).fit(u, y)
        found = table(model)
        assert set(found) == set(TRUE), f"seed {seed}"
        off = np.array([found[name] - TRUE[name] for name in model.terms_.term])
        assert np.all(np.abs(off) < 4.5 * model.terms_.std)


def test_noise_on_the_output_biases_one_step_ahead_but_not_the_simulation():
    u, y = system(1, n=2000, output=0.2)
    # The same terms for both, so that only the fit differs.
    settings = {"degree": 2, "selector": _Fixed()}
    simulated = NARXRegressor(refine="simulation", **settings).fit(u, y)
    one_step = NARXRegressor(refine=None, **settings).fit(u, y)
    auto = NARXRegressor(**settings).fit(u, y)
    assert auto.refined_
    fresh, clean = system(2, n=1000)
    errors = [
        np.sqrt(np.mean((m.simulate(fresh, clean[:2]) - clean) ** 2)) for m in (simulated, one_step)
    ]
    assert errors[0] < 0.5 * errors[1]
    off = np.array([table(simulated)[name] - TRUE.get(name, 0.0) for name in simulated.terms_.term])
    assert np.all(np.abs(off) < 4.5 * simulated.terms_.std)


class _Fixed(OrthogonalLeastSquaresRegressor):
    """The five true columns of lags 2, degree 2, whatever the data."""

    def __init__(self):
        super().__init__(None, fit_intercept=False)

    def fit(self, X, y):
        self.active_ = np.array([1, 2, 4, 9, 20])  # see the test of the names below
        self.coef_ = np.ones(X.shape[1])
        return self


def test_the_fixed_columns_are_the_true_ones():
    u, y = system(0)
    model = NARXRegressor(degree=2, selector=_Fixed(), refine=None).fit(u, y)
    assert set(model.terms_.term) == set(TRUE)


def test_bands_of_the_free_run_cover_new_data():
    for noise in ({"process": 0.05}, {"output": 0.1}):
        u, y = system(3, n=1500, **noise)
        model = NARXRegressor(degree=2).fit(u[:1000], y[:1000])
        free, std = model.simulate(u[1000:], y[1000:1002], return_std=True)
        covered = np.mean(np.abs(free - y[1000:])[2:] < 1.96 * std[2:])
        assert 0.9 < covered < 0.99
        draws = model.sample(u[1000:], y[1000:1002], n_samples=200)
        assert draws.shape == (500, 200)
        low, high = np.quantile(draws, [0.025, 0.975], axis=1)
        assert 0.9 < np.mean((y[1000:] > low) & (y[1000:] < high)) < 0.99


def test_linearised_bands_are_the_spread_of_drawn_models(fitted):
    u, _ = system(5, n=100)
    free, std = fitted.simulate(u, return_std=True)
    draws = fitted.sample(u, n_samples=4000)
    # Beyond the start, where the draws have noise and the linearised band only its floor.
    np.testing.assert_allclose(np.std(draws, axis=1)[10:], std[10:], rtol=0.15)
    np.testing.assert_allclose(np.mean(draws, axis=1)[10:], free[10:], atol=0.1 * np.max(std))


def test_steps_ahead_lead_from_one_step_to_the_free_run(fitted):
    u, y = system(6, n=80, process=0.02)
    one = fitted.predict(u, y)
    assert np.all(np.isnan(one[:2]))
    expected = [
        fitted.simulate(u[k - 2 : k + 1], y[k - 2 : k])[-1] for k in range(2, 80)
    ]  # the same from two measured outputs
    np.testing.assert_allclose(one[2:], expected, rtol=1e-10)
    five = fitted.predict(u, y, steps=5)
    assert np.count_nonzero(np.isnan(five)) == 6
    np.testing.assert_allclose(five[20], fitted.simulate(u[14:21], y[14:16])[-1], rtol=1e-10)
    last = fitted.predict(u, y, steps=78)
    np.testing.assert_allclose(last[-1], fitted.simulate(u, y[:2])[-1], rtol=1e-10)
    errors = fitted.errors_by_horizon(u, y, [1, 5])
    assert errors[0] == pytest.approx(np.sqrt(np.nanmean((one - y) ** 2)))
    _, std = fitted.predict(u, y, return_std=True)
    assert np.nanmean(np.abs(one - y)[2:] < 1.96 * std[2:]) > 0.85


def test_records_and_gaps_count_as_what_is_known():
    u, y = system(7, n=900, process=0.02)
    whole = NARXRegressor(degree=2).fit(u, y)
    parts = NARXRegressor(degree=2).fit([u[:400], u[400:]], [y[:400], y[400:]])
    holes = y.copy()
    holes[100:110] = np.nan
    gap = u.copy()
    gap[500:504] = np.nan
    gappy = NARXRegressor(degree=2).fit(gap, holes)
    for model in (parts, gappy):
        assert set(table(model)) == set(table(whole)) == set(TRUE)
        for name, value in table(model).items():
            assert abs(value - table(whole)[name]) < 0.02


def test_each_input_has_its_own_lags():
    rng = np.random.default_rng(0)
    u, y = rng.uniform(-1, 1, (500, 2)), np.zeros(500)
    for k in range(3, 500):
        y[k] = 0.4 * y[k - 1] + u[k, 0] - 0.5 * u[k - 3, 1] + 0.01 * rng.standard_normal()
    model = NARXRegressor([[0], [2, 3]], 1, degree=2).fit(u, y)
    assert set(table(model)) == {"y(k-1)", "u1(k)", "u2(k-3)"}
    assert model.max_lag_ == 3
    delayed = NARXRegressor(3, 1, delay=2, degree=1).fit(u, y)
    assert delayed._lags.inputs == ((2, 3), (2, 3))


def test_an_output_alone_is_a_model_too():
    rng = np.random.default_rng(0)
    y = np.zeros(400)
    for k in range(2, 400):
        y[k] = 1.5 * y[k - 1] - 0.8 * y[k - 2] + rng.standard_normal()
    model = NARXRegressor(0, 2, degree=1).fit(None, y)
    assert set(table(model)) == {"y(k-1)", "y(k-2)"}
    assert model.simulate(None, y[:2], n_steps=20).shape == (20,)


@pytest.mark.parametrize("selector", ["ols", "press", RVMRegressor(None, fit_intercept=False)])
def test_other_selectors_keep_the_true_terms(selector):
    u, y = system(8, process=0.02)
    model = NARXRegressor(degree=2, selector=selector, refine=None).fit(u, y)
    assert set(TRUE) <= set(table(model))


@pytest.mark.parametrize(
    "candidates",
    ["hinge", "rbf", PolynomialFeatures(2, include_bias=False), ["polynomial", "hinge"]],
)
def test_other_candidates_simulate_a_saturation(candidates):
    rng = np.random.default_rng(0)
    u, y = rng.uniform(-1, 1, 300), np.zeros(300)
    for k in range(1, 300):
        y[k] = 0.6 * y[k - 1] + min(u[k - 1], 0.5) + 0.01 * rng.standard_normal()
    # A transformer is slow to call for one moment at a time, Gaussians are wide.
    fast = isinstance(candidates, (str, list))
    refine = "auto" if fast and candidates != "rbf" else None
    model = NARXRegressor(1, 1, degree=2, candidates=candidates, max_terms=8, refine=refine)
    model.fit(u[:200], y[:200])
    assert model.score(u[200:], y[200:]) > 0.95
    np.testing.assert_array_equal(model.coef_, model.terms_.coefficient)


def bouc_wen(u, beta=0.5, gamma=0.5, substeps=10):
    """Force of a Bouc-Wen element with the displacement u: z' = u' - beta |u'| z - gamma u' |z|."""
    z, previous, force = 0.0, u[0], np.zeros(len(u))
    for k, position in enumerate(u):
        v = (position - previous) / substeps
        for _ in range(substeps):
            z += v - beta * abs(v) * z - gamma * v * abs(z)
        previous, force[k] = position, z
    return force


def multisine(n, seed, amplitude=3.0, highest=0.05):
    """Random phases up to a frequency, in cycles per sample."""
    rng = np.random.default_rng(seed)
    spectrum = np.exp(2j * np.pi * rng.random(n // 2 + 1)) * (np.fft.rfftfreq(n) <= highest)
    spectrum[0] = 0.0
    u = np.fft.irfft(spectrum, n)
    return amplitude * u / np.std(u)


def test_terms_of_hysteresis_simulate_a_bouc_wen_element_where_polynomials_do_not():
    u, new = multisine(1500, 0), multisine(1000, 1)
    y, truth = bouc_wen(u), bouc_wen(new)
    y = y + 0.01 * np.std(y) * np.random.default_rng(2).standard_normal(len(y))
    errors = {}
    for candidates, degree in (("polynomial", 2), (["polynomial", "hysteresis"], 1)):
        model = NARXRegressor(degree=degree, candidates=candidates).fit(u, y)
        error = model.simulate(new, truth[:2]) - truth
        errors[degree] = np.sqrt(np.mean(error[50:] ** 2)) / np.std(truth)
    assert errors[2] > 0.4
    assert errors[1] < 0.1
    assert any("|u(k)-u(k-1)|*y(k-1)" in term for term in model.terms_.term)


def test_noise_terms_remove_the_bias_of_coloured_noise():
    rng = np.random.default_rng(0)
    n = 4000
    u, e, y = rng.uniform(-1, 1, n), 0.3 * rng.standard_normal(n), np.zeros(n)
    for k in range(1, n):
        y[k] = 0.7 * y[k - 1] + u[k - 1] + e[k] - 0.6 * e[k - 1]
    settings = {"input_lags": [1], "output_lags": 1, "degree": 1, "refine": None}
    plain = NARXRegressor(**settings).fit(u, y)
    model = NARXRegressor(noise_lags=1, **settings).fit(u, y)
    assert abs(table(model)["y(k-1)"] - 0.7) < 0.03 < abs(table(plain)["y(k-1)"] - 0.7)
    assert model.noise_coef_[0] == pytest.approx(-0.6, abs=0.05)
    one_step = [np.nanmean((m.predict(u, y) - y) ** 2) for m in (plain, model)]
    assert one_step[1] < one_step[0]
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.1)
    assert "e(k-1)" in str(model)


@pytest.mark.parametrize("refine", [None, "simulation"])
@pytest.mark.parametrize("candidates", ["polynomial", ["hinge", "polynomial"]])
def test_weights_and_covariance_are_in_the_order_of_the_terms(refine, candidates):
    rng = np.random.default_rng(0)
    u, y = rng.uniform(-1, 1, 400), np.zeros(400)
    for k in range(1, 400):
        y[k] = 0.5 * y[k - 1] + u[k - 1] + 0.05 * rng.standard_normal()
    model = NARXRegressor(degree=1, refine=refine, candidates=candidates).fit(u, y)
    assert model.terms_.term.tolist()[:2] == ["u(k-1)", "y(k-1)"]
    np.testing.assert_allclose(model.coef_[:2], [1.0, 0.5], atol=0.05)
    np.testing.assert_array_equal(model.coef_, model.terms_.coefficient)
    np.testing.assert_allclose(np.sqrt(np.diag(model.covariance_)), model.terms_.std)
    if refine is None and len(model.coef_) == 2:
        Phi = np.column_stack([u, y])[1:-1]  # lag one of the rows that have lag two
        noise = model.noise_variance_ * np.linalg.inv(Phi.T @ Phi)
        np.testing.assert_allclose(model.covariance_, noise, rtol=1e-6)


@pytest.mark.parametrize("c", [0.8, pytest.param(-0.6, marks=pytest.mark.slow)])
def test_std_of_terms_beside_noise_terms_is_that_of_the_estimates(c):
    deviations = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        u, e, y = rng.standard_normal(500), 0.3 * rng.standard_normal(500), np.zeros(500)
        for k in range(1, 500):
            y[k] = 0.5 * y[k - 1] + u[k - 1] + e[k] + c * e[k - 1]
        terms = NARXRegressor(1, 1, degree=1, noise_lags=1, refine=None).fit(u, y).terms_
        for name, truth in (("y(k-1)", 0.5), ("u(k-1)", 1.0)):
            i = terms.term.tolist().index(name)
            deviations.append((terms.coefficient[i] - truth) / terms.std[i])
    z = np.reshape(deviations, (120, 2))
    assert np.all(np.abs(np.std(z, axis=0) - 1.0) < 0.2)
    assert np.all(np.abs(np.mean(np.abs(z) < 1.96, axis=0) - 0.95) <= 0.04)


def test_terms_that_make_the_free_run_diverge_are_refused():
    rng = np.random.default_rng(4)
    u, y = 0.5 * rng.standard_normal(300), np.zeros(300)
    for k in range(2, 300):
        y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + u[k - 1] + 0.15 * y[k - 1] ** 2
        y[k] = np.clip(y[k], -2, 2)
    y += 0.3 * rng.standard_normal(300)
    for refine in ("auto", "simulation", None):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = NARXRegressor(4, 4, refine=refine).fit(u, y)
            free = model.simulate(u, y[:4])
        assert np.all(np.isfinite(free))
        assert np.max(np.abs(free)) < model.limits_[1]


def test_a_free_run_that_leaves_ten_ranges_stops_and_says_so(fitted):
    model = pickle.loads(pickle.dumps(fitted))
    model.coef_ = 5.0 * model.coef_
    u, y = system(9, n=200)
    with pytest.warns(
        RuntimeWarning, match="exceeded ten times the range of the data at time step"
    ):
        free, std = model.simulate(u, y[:2], return_std=True)
    assert np.isnan(free[-1])
    assert np.isnan(std[-1])
    assert not np.any(np.isinf(free))
    assert model.score(u, y) == -np.inf


def test_the_equation_can_be_read_printed_and_typeset(fitted):
    text = str(fitted)
    assert text.startswith("y(k) = ")
    assert text.endswith("+ e(k)")
    for name in TRUE:
        assert name in text
    assert "y(k-1)\\,u(k-1)" in fitted.to_latex()
    assert "ERR" in str(fitted.terms_)
    frame = fitted.terms_.to_frame()
    assert list(frame.columns) == ["term", "coefficient", "std", "err"]
    assert np.sum(fitted.terms_.err) == pytest.approx(
        1 - fitted.noise_variance_ / np.mean(system(0, process=0.02)[1] ** 2), abs=0.01
    )
    assert "NARXRegressor" in str(NARXRegressor())


def test_a_saved_model_simulates_the_same(fitted):
    u, y = system(1, n=50)
    content = sio.dumps(fitted)
    assert set(sio.get_untrusted_types(data=content)) <= set(TRUSTED_TYPES)
    for again in (
        sio.loads(content, trusted=TRUSTED_TYPES),
        pickle.loads(pickle.dumps(fitted)),
    ):
        np.testing.assert_array_equal(again.simulate(u, y[:2]), fitted.simulate(u, y[:2]))


def test_cloned_models_keep_their_settings():
    model = NARXRegressor(3, [1, 2], delay=1, refine=None)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.simulate(np.zeros(5))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"degree": 0}, "The 'degree' parameter of .* must be an integer >= 1. Got 0"),
        ({"delay": -1}, "The 'delay' parameter of .* must be an integer >= 0"),
        ({"refine": "often"}, "The 'refine' parameter of .* must be .* Got 'often'"),
        ({"selector": "best"}, "The 'selector' parameter of .* must be .* Got 'best'"),
        ({"candidates": "fourier"}, "candidates='fourier' is not valid"),
        ({"output_lags": [0, 1]}, "Output lags must be at least 1"),
        ({"output_lags": [1.5]}, "Every lag must be an integer of at least 0"),
        ({"input_lags": [[1], [1]]}, "input_lags has lags for 2 inputs, but u has 1"),
        ({"input_lags": 200}, "Pass longer series, or use fewer lags"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(settings, sentence):
    u, y = system(0, n=100)
    with pytest.raises(ValueError, match=sentence):
        NARXRegressor(**settings).fit(u, y)


def test_bad_series_are_refused_in_a_sentence(fitted):
    u, y = system(0, n=100)
    with pytest.raises(ValueError, match="u has 99 rows, but y has 100 values"):
        NARXRegressor().fit(u[:-1], y)
    with pytest.raises(ValueError, match="y must be one series"):
        NARXRegressor().fit(u, np.zeros((100, 2)))
    with pytest.raises(ValueError, match="infinite values"):
        NARXRegressor().fit(np.where(u > 0.9, np.inf, u), y)
    with pytest.raises(ValueError, match="initial has 1 values, but the model needs 2"):
        fitted.simulate(u, y[:1])
    with pytest.raises(ValueError, match="u has 2 columns, but the model was fitted to 1"):
        fitted.simulate(np.zeros((50, 2)), y[:2])
    with pytest.raises(ValueError, match="u contains missing values"):
        fitted.simulate(np.full(50, np.nan), y[:2])
    with pytest.raises(ValueError, match="return_std requires steps=1"):
        fitted.predict(u, y, steps=2, return_std=True)


def test_a_constant_output_is_simulated_as_a_constant():
    model = NARXRegressor(1, 1, degree=1).fit(np.zeros(60), np.full(60, 3.0))
    np.testing.assert_allclose(model.simulate(np.zeros(10), [3.0]), 3.0, rtol=1e-6)


def test_a_fit_that_is_refused_leaves_the_model_as_it_was():
    model = NARXRegressor(2, 2)
    with pytest.raises(ValueError, match="longer series"):
        model.fit(np.arange(10.0), np.arange(10.0))
    assert not [name for name in vars(model) if name.endswith("_")]


def test_inputs_that_hardly_changed_in_the_record_are_warned_of():
    # u(k) and u(k-1) differ in two of 200 time steps, so that either may be selected.
    rng = np.random.default_rng(0)
    u, v = np.append(np.ones(20), np.zeros(180)), rng.uniform(-1.0, 1.0, 200)
    y = u + 0.5 * v + 0.1 * rng.standard_normal(200)
    model = NARXRegressor(1, 1, degree=1).fit(np.column_stack([u, v]), y)
    new = np.column_stack([rng.integers(0, 2, 100), rng.uniform(-1.0, 1.0, 100)])
    with pytest.warns(UserWarning, match=r"combine lagged values as the training record does no"):
        model.predict(new, np.zeros(100))
    with pytest.warns(UserWarning, match=r"most of all in u1"):
        model.simulate(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(np.column_stack([u, v]), y)
        model.simulate(np.column_stack([np.zeros(100), new[:, 1]]), y[-1:])


def test_inputs_in_no_term_may_change_as_they_like():
    rng = np.random.default_rng(0)
    constant, v = np.ones(200), rng.uniform(-1.0, 1.0, 200)
    y = v + 0.1 * rng.standard_normal(200)
    model = NARXRegressor(1, 1, degree=1).fit(np.column_stack([constant, v]), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(np.column_stack([rng.standard_normal(200), v]), y)


def test_a_record_with_faulty_values_is_warned_of():
    u, y = system(0, n=300, process=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NARXRegressor(1, 2, degree=1).fit(u, y)
    y[100] += 30.0
    with pytest.warns(UserWarning, match="A few time steps have 9.% of the squared error"):
        NARXRegressor(1, 2, degree=1).fit(u, y)
