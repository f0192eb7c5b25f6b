"""What is easily got wrong is answered by a sentence that says what to do instead."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF

from sparsebayes import (
    BackfittingRegressor,
    ForwardRegressor,
    GroupARDRegressor,
    GroupSpikeSlabClassifier,
    GroupSpikeSlabRegressor,
    OrthogonalLeastSquaresRegressor,
    PartitionedRVMClassifier,
    PartitionedRVMRegressor,
    RVMClassifier,
    RVMRegressor,
    SparseGPRegressor,
)
from sparsebayes.estimators._estimator import SparseEstimator
from sparsebayes.solvers.rvm import laplace
from tests import registry

_RNG = np.random.default_rng(0)
X = _RNG.standard_normal((40, 3))
Y = X[:, 0] + 0.1 * _RNG.standard_normal(40)
KERNELS = [
    SparseGPRegressor,
    ForwardRegressor,
    RVMRegressor,
    OrthogonalLeastSquaresRegressor,
    BackfittingRegressor,
    PartitionedRVMRegressor,
    RVMClassifier,
    PartitionedRVMClassifier,
]


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (kind, {name: value})
        for kind in KERNELS
        for name, value in (("gamma", 0.5), ("degree", 2), ("coef0", 0.7))
        if name in kind().get_params()
    ],
)
def test_parameters_of_named_kernels_are_refused_beside_a_callable(kind, setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name}=.* a callable has its own parameters"):
        kind(RBF(1.0), **setting).fit(X, Y > 0 if "Classifier" in kind.__name__ else Y)


@pytest.mark.parametrize("kind", [RVMRegressor, RVMClassifier, GroupSpikeSlabRegressor])
def test_gaps_and_text_are_sent_to_table_model(kind):
    y = Y > 0 if kind is RVMClassifier else Y
    gaps = np.where(np.arange(40)[:, None] == 3, np.nan, X)
    with pytest.raises(ValueError, match=r"Input X contains NaN\. .*table_model") as found:
        kind().fit(gaps, y)
    assert "HistGradient" not in str(found.value)
    text = pd.DataFrame({"a": X[:, 0], "colour": ["red", "green"] * 20})
    with pytest.raises(ValueError, match="could not convert string to float: .*table_model"):
        kind().fit(text, y)


def test_lists_of_known_values_have_the_default():
    with pytest.raises(ValueError, match="gamma='big' is not valid. Use 'auto'"):
        RVMRegressor("rbf", gamma="big").fit(X, Y)
    with pytest.raises(
        ValueError, match="kernel='gaussian' is not valid. The Gaussian kernel is 'rbf'. Use 'auto'"
    ):
        RVMRegressor("gaussian").fit(X, Y)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([[0, 0], [1, 2]], r"groups\[0\] contains column 0 twice. Remove one"),
        ([[0, 1], 2], "a single column as"),
        ({"a": [0, 1], "b": [2]}, "of a dict: list"),
        ([0.0, np.nan, 1.0], r"groups\[1\] is nan: pass one label per column \(none missing\)"),
        (["a", None, "b"], r"groups\[1\] is None"),
        ([["a", "b"], ["c"]], "column names if X is a data frame"),
    ],
)
@pytest.mark.parametrize("kind", [GroupSpikeSlabRegressor, GroupARDRegressor])
def test_groups_that_are_none_are_refused_for_what_is_wrong(kind, groups, said):
    with pytest.raises(ValueError, match=said):
        kind(groups).fit(X, Y)


def test_groups_may_overlap_only_where_the_model_lets_them():
    with pytest.raises(ValueError, match="groups of this model must not overlap"):
        GroupARDRegressor([[0, 1], [1, 2]]).fit(X, Y)
    GroupSpikeSlabRegressor([[0, 1], [1, 2]]).fit(X, Y)


@pytest.mark.parametrize(
    "kind", [GroupSpikeSlabRegressor, GroupARDRegressor, GroupSpikeSlabClassifier]
)
def test_groups_may_name_the_columns_of_a_frame(kind):
    y = Y > 0 if kind is GroupSpikeSlabClassifier else Y
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    by_name = kind([["c", "a"], ["b"]]).fit(frame, y)
    by_number = kind([[2, 0], [1]]).fit(frame, y)
    np.testing.assert_array_equal(by_name.group_index_, by_number.group_index_)
    np.testing.assert_array_equal(by_name.coef_, by_number.coef_)


def test_a_bound_of_a_group_is_said_in_english():
    with pytest.raises(
        ValueError, match="slab_variance must be 'learn', a positive number or an array of 3"
    ):
        GroupSpikeSlabRegressor(slab_variance=-1.0).fit(X, Y)


@pytest.mark.parametrize("kind", [SparseGPRegressor, PartitionedRVMRegressor])
def test_no_jobs_at_all_are_refused(kind):
    with pytest.raises(ValueError, match="'n_jobs' .* an integer <= -1. Got 0 instead"):
        kind("rbf", gamma=0.5, n_jobs=0).fit(X, Y)
    kind("rbf", gamma=0.5, n_jobs=-1).fit(X, Y)


@pytest.mark.parametrize("kind", [RVMClassifier, PartitionedRVMClassifier])
def test_rows_without_a_label_are_named(kind):
    labels = np.array(["a", "b", None, "None"] * 10, dtype=object)
    with pytest.raises(ValueError, match=r"The label in row 3 of y is missing \(None; 10 such"):
        kind().fit(X, labels)


def test_a_circle_is_not_advised_to_take_more_steps(monkeypatch):
    monkeypatch.setattr(laplace, "_RUN_STEPS", 1)  # no run settles within one step
    with pytest.warns(ConvergenceWarning, match="cycling") as caught:
        model = RVMClassifier("rbf", gamma=1.0).fit(X, Y > 0)
    assert model.stop_reason_ == "cycling"
    (said,) = [str(w.message) for w in caught if "cycling" in str(w.message)]
    assert "max_iter" not in said
    assert "larger tol" in said


def test_displays_of_frames_do_not_warn_of_names():
    from sparsebayes.displays import PartialEffectsDisplay, PredictionDisplay

    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = RVMRegressor("rbf", gamma=0.5).fit(frame[["a"]], Y)
        PredictionDisplay.from_estimator(one, frame[["a"]], Y)
        PartialEffectsDisplay.from_estimator(BackfittingRegressor().fit(frame, Y), frame)


def test_an_unfitted_model_is_to_be_fitted_before_its_relevance_is_drawn():
    from sparsebayes.displays import FeatureRelevanceDisplay

    with pytest.raises(NotFittedError, match="not fitted yet"):
        FeatureRelevanceDisplay.from_estimator(RVMRegressor())
    given = RVMRegressor("rbf", gamma=1.0).fit(X, Y)
    shown = FeatureRelevanceDisplay.from_estimator(given)
    np.testing.assert_array_equal(np.sort(shown.relevance), np.sort(given.feature_relevance_))


@pytest.mark.parametrize(
    "model",
    [
        RVMRegressor("rbf", gamma=0.5),
        PartitionedRVMRegressor("rbf", gamma=0.5),
        ForwardRegressor("rbf", gamma=0.5),
        OrthogonalLeastSquaresRegressor("rbf", gamma=0.5),
        BackfittingRegressor(),
        GroupARDRegressor(),
        GroupSpikeSlabRegressor(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("y", [1e175 * Y, np.full(len(Y), 1e200)], ids=["1e175", "constant"])
def test_a_target_whose_squares_overflow_is_refused(model, y):
    with pytest.raises(ValueError, match="y is too large: the squares of values like .* Rescale y"):
        model.fit(X, y)


def test_a_variance_that_overflows_is_refused():
    # The leave-one-out errors of one column are 1e4 times as large as the noise that is given.
    model = GroupARDRegressor(noise_variance=1e292, fit_intercept=False)
    with pytest.raises(ValueError, match="variance of predictions overflows float64"):
        model.fit(X[:, :1], 1e150 * np.random.default_rng(0).standard_normal(len(X)))


@pytest.mark.parametrize("rows", [X, [X[:20], X[20:]]], ids=["array", "blocks"])
def test_a_variance_that_overflows_beyond_the_rows_is_refused(rows):
    # Where there are no rows the variance would be four times that of the target.
    with pytest.raises(ValueError, match="variance of predictions overflows float64"):
        RVMRegressor("rbf", gamma=0.5).fit(rows, 8e153 * Y / np.max(np.abs(Y)))


@pytest.mark.parametrize(
    "model",
    [
        RVMRegressor("rbf", gamma=0.5),
        PartitionedRVMRegressor("rbf", gamma=0.5),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [str, object])
def test_numeric_strings_are_a_numeric_target(model, dtype):
    texts = np.array([repr(float(v)) for v in Y]).astype(dtype)
    expected = clone(model).fit(X, Y).predict(X)
    np.testing.assert_array_equal(clone(model).fit(X, texts).predict(X), expected)


def _declares(blocks):
    """Return the estimators that declare whether they fit rows in blocks."""
    kinds = [entry.cls for entry in registry.ENTRIES if issubclass(entry.cls, SparseEstimator)]
    return [kind for kind in kinds if kind.capabilities.blocks is blocks]


@pytest.mark.parametrize("kind", _declares(blocks=False))
@pytest.mark.parametrize(
    "blocks", [lambda: [X[:20], X[20:]], lambda: (X[:20], X[20:]), lambda: iter([X[:20], X[20:]])]
)
def test_blocks_of_rows_are_refused_by_estimators_that_do_not_declare_them(kind, blocks):
    sentence = f"X is given in blocks of rows, but {kind.__name__} cannot fit that.*np.vstack"
    with pytest.raises(ValueError, match=sentence):
        kind().fit(blocks(), Y > 0)


@pytest.mark.parametrize("kind", _declares(blocks=True))
def test_blocks_of_rows_are_fitted_by_estimators_that_declare_them(kind):
    model = kind("rbf", gamma=1.0)
    whole = clone(model).fit(X, Y).predict(X)
    np.testing.assert_allclose(model.fit([X[:20], X[20:]], Y).predict(X), whole, atol=1e-6)


def test_the_estimators_that_are_recommended_for_blocks_declare_them():
    with pytest.raises(ValueError, match="in blocks of rows") as error:
        PartitionedRVMRegressor().fit([X[:20], X[20:]], Y)
    advice = str(error.value).split(":")[1]
    words = {word.strip(",.") for word in advice.split()}
    declared = {kind.__name__ for kind in _declares(blocks=True)}
    assert {word for word in words if word.endswith("Regressor")} == declared


def test_a_target_of_text_or_a_name_is_answered_by_what_to_do():
    text = np.array(["1", "b"] * 20)
    for kind in (RVMRegressor, BackfittingRegressor, GroupSpikeSlabRegressor):
        with pytest.raises(ValueError, match=f"y has 'b' in row 1, but {kind.__name__} needs numb"):
            kind().fit(X, text)
    for kind in (RVMRegressor, RVMClassifier, GroupSpikeSlabRegressor):
        with pytest.raises(ValueError, match=r"fit\(frame.drop\(columns='a'\), frame\['a'\]\)"):
            kind().fit(pd.DataFrame(X, columns=list("abc")), "a")


def test_a_likelihood_of_counts_is_sent_elsewhere():
    with pytest.raises(ValueError, match=r"SparseTargetTransform.*PoissonRegressor.*'poisson'"):
        RVMRegressor(likelihood="poisson").fit(X, Y)


def test_close_names_and_per_cent_are_understood():
    with pytest.raises(ValueError, match=r"gamma='medain' is not valid \(did you mean 'median'\?"):
        RVMRegressor("rbf", gamma="medain").fit(X, Y)
    with pytest.raises(ValueError, match=r"kernel='rbff' is not valid \(did you mean 'rbf'\?\)"):
        RVMRegressor("rbff").fit(X, Y)
    model = RVMRegressor(kernel=None).fit(X, Y)
    with pytest.raises(ValueError, match=r"did you mean \[0.05, 0.95\]\?"):
        model.predict_quantiles(X, [5, 95])
    with pytest.raises(ValueError, match=r"got 95 \(did you mean 0.95\?\)"):
        model.predict_interval(X, 95)
