"""Every reported number follows the units of the target: y -> a y + b.

A number that has no rule below fails the test, so that a new attribute has to say what it means.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

import sparsebayes as sb
from tests import registry

SAME, LINEAR, AFFINE, SQUARE, INVERSE, EVIDENCE, CRITERION, SKIP = range(8)

RULES = {
    # the models of groups weighed together
    "groups": SAME,
    "chosen": SAME,
    "correlation": SAME,
    "probability": SAME,
    # of the fit
    "log_evidence": EVIDENCE,
    "claimed_log_evidence": EVIDENCE,
    "evidence_path": EVIDENCE,
    "bound": EVIDENCE,
    "noise_variance": SQUARE,
    "calibration": SAME,
    "weight_precision": INVERSE,
    "group_precision": INVERSE,
    "coef": LINEAR,
    "coef_std": LINEAR,
    "slab_variance": SQUARE,
    "intercept": AFFINE,
    "mean_squared_error": SQUARE,
    "std_squared_error": SQUARE,
    "best_score": SQUARE,
    "rmse": LINEAR,
    "y": LINEAR,  # loo_rmse_ of a target transform
    "residual": SQUARE,
    "weight": LINEAR,  # of a term in err_table_
    "orthogonal_weight": LINEAR,
    "prior_variance": SQUARE,  # of the function that heals
    "elapsed": SKIP,  # seconds
    "drift": SKIP,  # rounding errors
    "column": SKIP,  # which of several moves comes last, when none gains more than rounding
    **dict.fromkeys(
        [
            *("accuracy", "action", "active", "best_n_terms", "candidate", "chain", "change"),
            *("converged", "cumulative", "damping", "degree", "effective_sample_size"),
            *(
                "effective_terms",
                "err",
                "exact",
                "density_gain",
                "expected_groups",
                "feature_relevance",
            ),
            *("fitted", "gain", "gamma", "group_index", "group_names", "group_relevance"),
            *(
                "inclusion_prior",
                "inclusion_probability",
                "kept",
                "kernel",
                "largest_gain",
                "log_joint",
            ),
            *("n_active", "n_candidates", "n_changes", "n_clamped", "n_determined"),
            *("n_features_in", "n_groups", "n_iter", "n_set", "n_terms", "partition_size"),
            *("phase", "r_hat", "rank", "regularization", "regularizer", "relevance"),
            *("relevance_vectors", "replay", "route", "stage", "start", "stop_reason", "sweeps"),
            *("loo_score", "loo_log_density", "one_width", "process_evidence", "rough_share"),
            *("neighbours", "residual_variance_ratio"),
            *("target_transform", "notes", "df", "scale", "term", "residual_trace"),
            *("knots", "scores", "variance"),
        ],
        SAME,
    ),
}

# A logarithm of the target has no rule for y + b: a test of its own, below, has its units.
MODELS = [
    model
    for model in registry.models(registry.REGRESSION, further=True)
    if getattr(model, "target_transform", None) is None
]
# A power of two loses no digit: what differs then has wrong units, and not another path.
CHANGES = [(2.0**10, 0.0, False), (1e-3, 0.002, False), (100.0, -50.0, True)]  # a, b, weighted


def problem(n=40):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 4))
    y = 3.0 + np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)
    # None above one: a row that counts twice without noise is a row to interpolate.
    return X, y, rng.choice([0.5, 0.75, 1.0], n)


@cache
def fitted(model, a, b, weighted):
    X, y, weight = problem()
    given = {
        name: value * a**2
        for name, value in model.get_params().items()
        if name.split("__")[-1] in ("noise_variance", "slab_variance", "beta")
        and not isinstance(value, str)
    }
    model = clone(model).set_params(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, a * y + b, **({"sample_weight": weight} if weighted else {}))


def flat(value, path=()):
    """The numbers behind an attribute, by their path; the last name of it says what they are."""
    if hasattr(value, "predict") and hasattr(value, "get_params"):
        value = reported(value)
    elif type(value).__name__ == "ErrorReductionTable":
        value = value.to_dict()
    elif type(value).__name__ == "Healing":
        value = {"fitted": value.fitted, "prior_variance": value.prior_variance}
    elif type(value).__name__ == "Warp":
        value = {"knots": np.concatenate(value.knots), "scores": np.concatenate(value.scores)}
    elif type(value).__name__ == "Tail":
        value = {"df": value.df, "scale": value.scale}
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, (*path, key))
    elif value is not None:
        yield path, value


def reported(model):
    """Fitted attributes without the underscore."""
    ours = {key: value for key, value in vars(model).items() if key.endswith("_")}
    return {
        key[:-1]: value
        for key, value in ours.items()
        if key not in model.get_params() and key not in ("basis_", "posterior_")
    }


def rule(name, model):
    if name == "stopping":
        return {"press": SQUARE, "aic": CRITERION, "bic": CRITERION}.get(model.stopping, SKIP)
    if name in ("coef", "weight_precision") and getattr(model, "smoothers", None) is not None:
        return SAME  # the curves have the units
    return RULES[name]


def count(model, path, weighted):
    """The observations that an evidence is the density of: less one for each flat prior."""
    _, y, weight = problem()
    n = (np.sum(weight) if weighted else len(y)) - model.get_params().get("fit_intercept", True)
    if getattr(model, "regularization", None) == "none":
        n = n - (model.history_["n_active"] if path[0] == "history" else len(model.active_))
    return n


def moved(value, kind, a, b, n):
    """What becomes of a number of y."""
    if kind == SAME or np.asarray(value).dtype.kind not in "fiu":
        return value
    return {
        LINEAR: lambda: a * value,
        AFFINE: lambda: a * value + b,
        SQUARE: lambda: a**2 * value,
        INVERSE: lambda: value / a**2,
        EVIDENCE: lambda: value - n * np.log(a),
        CRITERION: lambda: value + 2.0 * n * np.log(a),  # of the sum of squares
    }[kind]()


def same(actual, expected, slack, what):
    if what.split()[-1] in ("gain", "largest_gain", "change"):  # near zero at the end
        np.testing.assert_allclose(actual, expected, rtol=slack, atol=1e-6, err_msg=what)
        return
    if np.asarray(expected).dtype.kind not in "fiu":
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    size = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    np.testing.assert_allclose(actual, expected, rtol=slack, atol=slack * size, err_msg=what)


@pytest.mark.parametrize(("a", "b", "weighted"), CHANGES)
@pytest.mark.parametrize("model", MODELS, ids=registry.label)
def test_every_number_follows_the_units_of_the_target(model, a, b, weighted):
    if weighted and isinstance(getattr(model, "smoothers", None), Pipeline):
        pytest.skip("A Pipeline takes no sample_weight.")
    intercept = model.get_params().get("fit_intercept", True)
    b = b if intercept else 0.0
    before, after = fitted(model, 1.0, 0.0, weighted), fitted(model, a, b, weighted)
    slack = 1e-9 if np.log2(a).is_integer() and b == 0.0 else 1e-5
    theirs = dict(flat(after))
    for path, value in flat(before):
        kind = rule(path[-1], before)
        n = count(before, path, weighted)
        if kind == CRITERION:
            n = np.sum(problem()[2]) if weighted else len(problem()[1])
        if kind != SKIP:
            same(theirs[path], moved(value, kind, a, b, n), slack, " ".join(path))
    assert hasattr(after, "loo_") == hasattr(before, "loo_")
    if hasattr(before, "loo_"):
        for name, kind in (("residuals", LINEAR), ("std", LINEAR), ("r2", SAME)):
            same(after.loo_[name], moved(before.loo_[name], kind, a, b, 0), slack, name)
        shifted = before.loo_.log_density - np.log(a)
        same(after.loo_.log_density, shifted, slack, "log_density")
    new = problem()[0][:7] + 0.1
    mean, std = before.predict(new, return_std=True)
    same(after.predict(new), a * mean + b, slack, "predict")
    same(after.predict(new, return_std=True)[1], a * std, slack, "std")
    if not hasattr(before, "sample_y") or getattr(before, "heal", False):
        return
    draws = before.sample_y(new, 3, random_state=0)
    same(after.sample_y(new, 3, random_state=0), a * draws + b, slack, "sample_y")
    if hasattr(before, "target_transform_"):  # it has no joint covariance
        return
    cov = before.predict(new, return_cov=True)[1]
    same(after.predict(new, return_cov=True)[1], a**2 * cov, slack, "cov")
    old, new_ = (getattr(m, "best_estimator_", m) for m in (before, after))
    curves = getattr(model, "smoothers", None) is not None
    same(new_.posterior_.mean, (a ** (not curves)) * old.posterior_.mean, slack, "posterior_.mean")
    for noise in (True, False):
        cov = old.posterior_.predict_covariance(old.basis_(new), noise=noise)
        theirs = new_.posterior_.predict_covariance(new_.basis_(new), noise=noise)
        same(theirs, a**2 * cov, slack, "predict_covariance")
    if hasattr(old.posterior_, "covariance") and not curves:
        cov = old.posterior_.covariance
        same(new_.posterior_.covariance, a**2 * cov, slack, "posterior_.covariance")


@pytest.mark.parametrize("a", [2.0**10, 1e-3, 100.0])
def test_a_target_of_which_the_logarithm_is_fitted_has_units_too(a):
    X, y, _ = problem()
    model = sb.SparseTargetTransform(sb.RVMRegressor(kernel=None), target_transform="log")
    before, after = clone(model).fit(X, y), clone(model).fit(X, a * y)
    np.testing.assert_allclose(after.predict(X), a * before.predict(X), rtol=1e-6)
    std = before.predict(X, return_std=True)[1]
    np.testing.assert_allclose(after.predict(X, return_std=True)[1], a * std, rtol=1e-6)
    # log y moves by log a, which its flat intercept takes up; the Jacobian is 1/y for each row.
    shift = len(y) * np.log(a)
    assert after.log_evidence_ == pytest.approx(before.log_evidence_ - shift, rel=1e-6)


def test_evidence_for_a_logarithm_does_not_depend_on_the_units():
    X, y, _ = problem()
    model = sb.SparseTargetTransform(sb.RVMRegressor(kernel=None))
    gains = [clone(model).fit(X, a * y).density_gain_ for a in (1.0, 2.0**10, 1e-3, 100.0)]
    np.testing.assert_allclose(gains, gains[0], rtol=1e-5)


@pytest.mark.parametrize("a", [1e-150, 1e-60, 1e60, 1e150])
@pytest.mark.parametrize(
    "model",
    [
        sb.RVMRegressor(kernel=None),
        sb.ForwardRegressor("rbf", gamma="scale", random_state=0),
        sb.BackfittingRegressor(),
        sb.GroupSpikeSlabRegressor(),
    ],
    ids=repr,
)
def test_a_target_that_float32_cannot_hold_is_predicted_in_float64(model, a):
    X, y, _ = problem()
    X = X.astype(np.float32)
    plain = clone(model).fit(X, y).predict(X, return_std=True)
    assert [p.dtype for p in plain] == [np.float32] * 2
    far = clone(model).fit(X, a * y)
    for ours, theirs in zip(far.predict(X, return_std=True), plain, strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours / a, theirs, rtol=1e-3)
    assert far.predict(X).dtype == far.sample_y(X).dtype == np.float64
    assert np.all(np.isfinite(far.sample_y(X)))


def test_a_target_far_from_zero_keeps_its_digits_with_rows_in_float32():
    X, y, _ = problem()
    times = 1.7e9 + 10.0 * y  # seconds: neighbouring numbers of float32 are 128 apart
    model, double = sb.RVMRegressor(), sb.RVMRegressor()
    model.fit(X.astype(np.float32), times)
    double.fit(X.astype(np.float32).astype(np.float64), times)
    for predict in ("predict_interval", "predict"):
        ours = getattr(model, predict)(X.astype(np.float32))
        theirs = getattr(double, predict)(X.astype(np.float32).astype(np.float64))
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, atol=0.1)
    assert np.all(np.ptp(model.predict_interval(X.astype(np.float32)), axis=1) > 0.0)
