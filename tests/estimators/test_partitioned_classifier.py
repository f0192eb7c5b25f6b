"""What the partitioned RVM for labels must do on one machine; clusters live beside it."""

import pickle

import dask.array as da
import numpy as np
import pytest
import skops.io as sio
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsebayes import PartitionedRVMClassifier, RVMClassifier
from sparsebayes.partition import SCHEDULES
from sparsebayes.posterior import laplace_posterior
from sparsebayes.rows import ArrayRows
from tests.label_helpers import uncalibrated


def _moons(n=240, noise=0.25, seed=0):
    return make_moons(n, noise=noise, random_state=seed)


def _model(schedule="working-set", **parameters):
    return PartitionedRVMClassifier(
        schedule=schedule,
        **{"kernel": "rbf", "partition_size": 40, "gamma": 1.0, **parameters},
    )


def _same(model, other):
    np.testing.assert_array_equal(model.active_, other.active_)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert model.log_evidence_ == other.log_evidence_


@parametrize_with_checks(
    [
        PartitionedRVMClassifier("rbf", gamma="scale"),
        PartitionedRVMClassifier(
            "matern32",
            gamma="scale",
            schedule="split-merge",
            partition_size=60,
            class_weight="balanced",
        ),
        PartitionedRVMClassifier(
            "rbf",
            gamma="scale",
            schedule="incremental",
            partition_size=15,
            fit_intercept=False,
            n_jobs=2,
        ),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("data", ["two classes", "three classes"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("settings", [{}, {"class_weight": "balanced", "kernel": "matern52"}])
def test_one_partition_equals_unpartitioned(data, intercept, settings):
    X, y = _moons(120) if data == "two classes" else load_iris(return_X_y=True)
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    settings = {"fit_intercept": intercept, **settings}
    whole = RVMClassifier(algorithm="em", **{"kernel": "rbf", "gamma": "scale", **settings}).fit(
        X, y, sample_weight=weight
    )
    ours = PartitionedRVMClassifier(
        partition_size=1000, **{"kernel": "rbf", "gamma": "scale", **settings}
    )
    ours.fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(ours.active_, whole.active_)
    assert ours.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-9)
    np.testing.assert_allclose(uncalibrated(ours, X), uncalibrated(whole, X), atol=1e-8)
    np.testing.assert_allclose(ours.weight_precision_, whole.weight_precision_, rtol=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_partitions_predict_as_well_as_the_whole(schedule):
    X, y = _moons(300)
    new, truth = _moons(2000, seed=1)
    whole = RVMClassifier("rbf", gamma=1.0).fit(X, y)
    ours = _model(schedule).fit(X, y)
    losses = [log_loss(truth, model.predict_proba(new)) for model in (whole, ours)]
    assert losses[1] < 1.1 * losses[0]
    assert ours.log_evidence_ > whole.log_evidence_ - 3.0
    assert ours.converged_


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_history_tells_of_every_run(schedule):
    X, y = _moons(300)
    model = _model(schedule).fit(X, y)
    history = model.history_
    (n_runs,) = {len(values) for values in history.values()}
    last = 15 if schedule == "split-merge" else 8  # or a round of polishing
    assert last <= n_runs <= last + 3
    kept = last - 1 + np.argmax(history["log_evidence"][last - 1 :])
    assert history["error_rate"][kept] == pytest.approx(np.mean(model.predict(X) != y), abs=1e-12)
    assert history["log_evidence"][kept] == pytest.approx(model.log_evidence_, abs=1e-5)
    assert history["n_active"][kept] == len(model.active_)
    assert np.all(np.diff(history["elapsed"]) > 0)
    few = history["stop_reason"] == "few_left"
    assert np.all(history["n_active"][few] < 20)
    assert few.sum() > 2
    assert not few[-1]
    assert model.n_iter_ == history["n_iter"].sum()


@pytest.mark.parametrize("intercept", [True, False])
def test_the_model_is_the_mode_and_its_evidence(intercept):
    X, y = _moons(200)
    model = _model(fit_intercept=intercept).fit(X, y)
    Phi = rbf_kernel(X, model.relevance_vectors_, 1.0)
    counts = np.column_stack([y, np.ones(200)]).astype(float)
    posterior, _ = laplace_posterior(Phi, counts, model.weight_precision_[0], intercept)
    np.testing.assert_allclose(model.coef_[0], posterior.mean, rtol=1e-7)
    np.testing.assert_allclose(model.posterior_.covariance, posterior.covariance, rtol=1e-5)
    assert model.log_evidence_ == pytest.approx(posterior.log_evidence, abs=1e-8)
    assert model.intercept_[0] == pytest.approx(posterior.intercept, abs=1e-7)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_several_classes_share_their_sets(schedule):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = _model(schedule, gamma="scale").fit(X, names)
    assert model.score(X, names) > 0.95
    assert model.coef_.shape == (3, len(model.active_))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(X[model.active_], model.relevance_vectors_)
    whole = RVMClassifier("rbf", gamma="scale", algorithm="em").fit(X, names)
    assert model.coupling_ == pytest.approx(whole.coupling_, abs=0.05)
    assert log_loss(names, model.predict_proba(X)) < 1.2 * log_loss(names, whole.predict_proba(X))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sample_weight_equals_repetition(schedule):
    X, y = _moons(120)
    weight = np.random.default_rng(0).integers(0, 4, 120)
    weighted = _model(schedule).fit(X, y, sample_weight=weight)
    repeated = _model(schedule).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, abs=1e-8)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_order_of_the_rows_changes_nothing(schedule):
    X, y = _moons(150)
    order = np.random.default_rng(0).permutation(150)
    one, other = (_model(schedule).fit(X[o], y[o]) for o in (np.arange(150), order))
    np.testing.assert_array_equal(np.sort(one.active_), np.sort(order[other.active_]))
    assert one.log_evidence_ == pytest.approx(other.log_evidence_, abs=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("data", ["two classes", "three classes"])
def test_threads_equal_serial_to_the_bit(schedule, data, monkeypatch):
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (64,))
    X, y = _moons() if data == "two classes" else load_iris(return_X_y=True)
    serial, threads = (_model(schedule, n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    _same(serial, threads)
    np.testing.assert_array_equal(serial.predict_proba(X), threads.predict_proba(X))


def test_chunks_of_rows_change_rounding_only(monkeypatch):
    X, y = load_iris(return_X_y=True)
    whole = _model().fit(X, y)
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (17,))
    chunks = _model().fit(X, y)
    np.testing.assert_array_equal(whole.active_, chunks.active_)
    np.testing.assert_allclose(chunks.predict_proba(X), whole.predict_proba(X), atol=1e-10)


def test_learnt_widths_are_those_of_the_unpartitioned():
    X, y = _moons(150)
    X = np.column_stack([X, np.random.default_rng(0).standard_normal(150)])
    settings = {"kernel": "auto", "gamma": "ard"}
    whole = RVMClassifier(**{"kernel": "rbf", "gamma": "scale", **settings}).fit(X, y)
    ours = _model(**settings).fit(X, y)
    assert ours.kernel_ == whole.kernel_
    np.testing.assert_array_equal(ours.gamma_, whole.gamma_)
    assert np.argmin(ours.feature_relevance_) == 2


def test_separable_classes_end_with_a_usable_model():
    X, y = _moons(200, noise=0.01)
    model = _model("split-merge").fit(X, y)
    assert model.score(X, y) == 1.0
    assert np.all(np.isfinite(model.predict_proba(X)))


def test_a_constant_function_and_far_inputs_do_no_harm():
    X, y = _moons(120)
    wide = _model(gamma=1e-9).fit(X, y)  # functions that are constant to nine digits
    assert np.all(np.isfinite(wide.predict_proba(X)))
    far = _model(gamma="scale").fit(1e150 * X, y)
    assert far.score(1e150 * X, y) > 0.9


def test_stopped_and_resumed_is_the_same_model(tmp_path):
    X, y = _moons()
    whole = _model().fit(X, y)
    model = _model(checkpoint_dir=tmp_path).fit(X, y)
    _same(model, whole)
    for name in ("run-4.npz", "run-5.npz"):
        (tmp_path / name).unlink()  # as if it had been killed before the last two runs
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("run-*.npz")}
    _same(clone(model).fit(X, y), whole)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    with pytest.raises(ValueError, match="belong to another fit"):
        _model(checkpoint_dir=tmp_path, tol=1e-2).fit(X, y)
    with pytest.raises(ValueError, match="belong to another fit"):
        _model(checkpoint_dir=tmp_path).fit(X, 1 - y)


def test_max_time_stops_with_the_best_model_so_far():
    X, y = _moons()
    with pytest.warns(
        ConvergenceWarning, match=r"\(time_limit\) after 1 of at most 16 runs. max_time has passed"
    ):
        model = _model(max_time=1e-6).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_max_iter_is_said():
    X, y = _moons(100)
    with pytest.warns(ConvergenceWarning, match=r"\(max_iter\)"):
        model = _model(max_iter=2).fit(X, y)
    assert np.all(np.isfinite(model.predict_proba(X)))


def test_an_interrupt_stops_with_the_best_model_so_far(monkeypatch):
    from sparsebayes.partition.classification import LabelRunJob

    X, y = _moons()
    read, calls = LabelRunJob.read, []

    def interrupted(self, index, chunk):
        calls.append(index)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return read(self, index, chunk)

    monkeypatch.setattr(LabelRunJob, "read", interrupted)
    with pytest.warns(ConvergenceWarning, match=r"\(interrupted\) after [1-6] of at most 16 runs"):
        model = _model().fit(X, y)
    assert model.score(X, y) > 0.8
    assert len(model.history_["error_rate"]) < 6


def test_a_pickle_is_small_and_predicts():
    X, y = _moons(1000)
    model = _model().fit(X, y)
    content = pickle.dumps(model)
    assert len(content) < 20_000  # relevance vectors and their posterior, not the data
    np.testing.assert_array_equal(pickle.loads(content).predict_proba(X), model.predict_proba(X))


def test_skops_loads_it_with_the_trusted_types():
    from sparsebayes import TRUSTED_TYPES

    X, y = load_iris(return_X_y=True)
    for labels in (y, y == 1):
        model = _model().fit(X, labels)
        content = sio.dumps(model)
        assert set(sio.get_untrusted_types(data=content)) <= set(TRUSTED_TYPES)
        again = sio.loads(content, trusted=TRUSTED_TYPES)
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_the_display_shows_the_error_rate():
    from sparsebayes.displays import PartitionDisplay

    X, y = _moons(120)
    display = PartitionDisplay.from_estimator(_model().fit(X, y))
    assert [ax.get_ylabel() for ax in display.ax_] == ["training error rate", "relevance vectors"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"schedule": "random"}, "The 'schedule' parameter of .* must be"),
        ({"kernel": None}, "centred on rows, which kernel=None does not have"),
        ({"kernel": "precomputed"}, "which kernel='precomputed' does not have"),
        ({"partition_size": 0}, "The 'partition_size' parameter of .* must be"),
        ({"gamma": "wide"}, "gamma='wide' is not valid"),
        ({"class_weight": {0: -1.0, 1: 1.0}}, "class_weight must be positive"),
    ],
)
def test_wrong_parameters_are_a_sentence(parameters, message):
    X, y = _moons(20)
    with pytest.raises(ValueError, match=message):
        PartitionedRVMClassifier(**{"kernel": "rbf", "gamma": "scale", **parameters}).fit(X, y)


def test_labels_that_cannot_be_told_apart_are_a_sentence():
    X, y = _moons(20)
    with pytest.raises(ValueError, match="at least two classes, but y has only one: 1"):
        _model().fit(X, y, sample_weight=(y == 1).astype(float))
    with pytest.raises(ValueError, match="zero"):
        _model().fit(X, y, sample_weight=np.zeros(20))
    with pytest.raises(ValueError, match="Unknown label type"):
        _model().fit(X, y + 0.5 * np.arange(20) / 7)


def test_dask_arrays_of_any_cut_need_no_cluster():
    X, y = _moons(120)
    weight = np.random.default_rng(0).integers(0, 3, 120)
    here = _model().fit(X, y, sample_weight=weight)
    lazy = da.from_array(X, chunks=(50, 1))
    for labels in (y, da.from_array(y, chunks=70), da.from_array(y[:, None], chunks=(50, 1))):
        there = _model(n_jobs=1).fit(lazy, labels, sample_weight=weight)
        np.testing.assert_array_equal(here.active_, there.active_)
        np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-10)
    np.testing.assert_array_equal(there.predict(lazy).compute(), there.predict(X))
    with pytest.raises(ValueError, match="X has 120 rows, but y has 50 values"):
        _model().fit(lazy, y[:50])
    with pytest.raises(ValueError, match="y has only one"):
        _model().fit(lazy, np.ones(120))
    spoilt = da.from_array(np.where(np.arange(120) == 60, np.nan, y), chunks=50)
    with pytest.raises(ValueError, match="y contains NaN or infinity in chunk 1"):
        _model().fit(lazy, spoilt)
