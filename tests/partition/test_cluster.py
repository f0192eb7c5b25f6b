"""The partitioned RVM on a real cluster of two worker processes: equal to serial, and faults."""

import os
import signal
import subprocess
import sys
import time
from functools import cache

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

from sparsebayes import PartitionedRVMClassifier, PartitionedRVMRegressor
from sparsebayes.partition import SCHEDULES
from sparsebayes.rows import ArrayRows
from tests.clusters import time_limit, two_workers
from tests.helpers import AfterTask

CHUNK = 64


def _sinc(n=300, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.standard_normal(n)


def _model(schedule="split-merge", **parameters):
    return PartitionedRVMRegressor(
        schedule=schedule,
        **{"kernel": "rbf", "partition_size": 50, "gamma": 0.1, **parameters},
    )


@cache
def _serial(schedule="split-merge"):
    """The model without a cluster, cut into the same chunks."""
    X, y = _sinc()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrayRows.__init__, "__defaults__", (CHUNK,))
        return _model(schedule, n_jobs=1).fit(X, y)


def _same(model, other):
    np.testing.assert_array_equal(model.active_, other.active_)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert model.log_evidence_ == other.log_evidence_


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arrays", ["numpy", "dask"])
def test_dask_equals_serial_to_the_bit(schedule, arrays, client, monkeypatch):
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (CHUNK,))
    X, y = _sinc()
    if arrays == "dask":
        X, y = da.from_array(X, chunks=(CHUNK, 1)), da.from_array(y, chunks=CHUNK)
    _same(_model(schedule).fit(X, y), _serial(schedule))


def test_dask_arrays_need_no_cluster():
    X, y = _sinc()
    X, y = da.from_array(X, chunks=(CHUNK, 1)), da.from_array(y, chunks=CHUNK)
    _same(_model(n_jobs=1).fit(X, y), _serial())


def test_other_chunks_change_rounding_only(client):
    X, y = _sinc()
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    model = _model("working-set")
    here = clone(model).set_params(n_jobs=1).fit(X, y, sample_weight=weight)
    there = model.fit(
        da.from_array(X, chunks=(77, 1)), y, sample_weight=da.from_array(weight, chunks=(200,))
    )
    np.testing.assert_array_equal(here.active_, there.active_)
    assert here.log_evidence_ == pytest.approx(there.log_evidence_, abs=1e-8)
    np.testing.assert_allclose(here.predict(X), there.predict(X), atol=1e-10)


def test_predictions_of_a_dask_array_are_made_by_blocks(client):
    X, y = _sinc()
    model = _model(n_jobs=1).fit(X, y)
    lazy = da.from_array(X.astype(np.float32), chunks=(130, 1))
    mean, std = model.predict(lazy, return_std=True)
    assert mean.chunks == std.chunks == (lazy.chunks[0],)
    assert mean.dtype == std.dtype == np.float32
    expected = model.predict(X.astype(np.float32), return_std=True)
    for future, values in zip(client.compute([mean, std]), expected, strict=True):
        np.testing.assert_array_equal(future.result(timeout=60), values)
    alone = client.compute(model.predict(lazy))
    np.testing.assert_array_equal(alone.result(timeout=60), expected[0])
    with pytest.raises(ValueError, match="without return_cov"):
        model.predict(lazy, return_cov=True)


def test_the_fitted_model_holds_numpy_only(client):
    import pickle

    X, y = _sinc()
    model = _model(client=client).fit(
        da.from_array(X, chunks=(CHUNK, 1)), da.from_array(y, chunks=CHUNK)
    )
    again = pickle.loads(pickle.dumps(model))
    assert again.client is None
    assert clone(model).client is client
    assert type(model.relevance_vectors_) is type(model.coef_) is np.ndarray
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def _labels():
    X, y = load_iris(return_X_y=True)
    return X[:, 2:], np.array(["setosa", "versicolor", "virginica"])[y]


def _classifier(schedule="split-merge", **parameters):
    return PartitionedRVMClassifier(
        schedule=schedule,
        partition_size=50,
        class_weight="balanced",
        **{"kernel": "rbf", "gamma": 0.25, **parameters},
    )


@cache
def _serial_classifier(schedule="split-merge"):
    X, names = _labels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrayRows.__init__, "__defaults__", (CHUNK,))
        return _classifier(schedule, n_jobs=1).fit(X, names)


@pytest.mark.parametrize(
    ("schedule", "arrays"),
    [("split-merge", "numpy"), ("split-merge", "dask"), ("working-set", "dask")],
)
def test_labels_on_dask_equal_serial_to_the_bit(schedule, arrays, client, monkeypatch):
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (CHUNK,))
    X, names = _labels()
    if arrays == "dask":
        X, names = da.from_array(X, chunks=(CHUNK, 1)), da.from_array(names, chunks=CHUNK)
    model = _classifier(schedule).fit(X, names)
    _same(model, _serial_classifier(schedule))
    assert model.coupling_ == _serial_classifier(schedule).coupling_
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]


def test_the_width_of_a_dask_array_is_that_of_the_array(client):
    X, names = _labels()
    there = _classifier(gamma="scale").fit(da.from_array(X, chunks=(CHUNK, 1)), names)
    here = _classifier(gamma="scale", n_jobs=1).fit(X, names)
    assert there.gamma_ == pytest.approx(here.gamma_, rel=1e-13)
    np.testing.assert_array_equal(there.active_, here.active_)


def test_classes_of_a_dask_array_are_predicted_by_blocks(client):
    X, _ = _labels()
    model = _serial_classifier()
    lazy = da.from_array(X, chunks=(40, 1))
    methods = ["predict", "predict_proba", "decision_function"]
    blocks = [getattr(model, method)(lazy) for method in methods]
    assert all(block.chunks[0] == lazy.chunks[0] for block in blocks)
    for method, future in zip(methods, client.compute(blocks), strict=True):
        np.testing.assert_array_equal(future.result(timeout=60), getattr(model, method)(X))


def test_nan_in_a_chunk_is_a_sentence(client):
    X, y = _sinc()
    y[250] = np.nan
    with pytest.raises(ValueError, match="y contains NaN or infinity in chunk 3"):
        _model().fit(da.from_array(X, chunks=(CHUNK, 1)), da.from_array(y, chunks=CHUNK))


def test_max_time_stops_a_cluster(client):
    from sklearn.exceptions import ConvergenceWarning

    X, y = _sinc(2000)
    with pytest.warns(ConvergenceWarning, match=r"\(time_limit\)"):
        model = _model(max_time=0.3, partition_size=20).fit(X, y)
    assert 0 < len(model.history_["rmse"]) < 199
    assert np.all(np.isfinite(model.predict(X)))


# Faults.


@pytest.mark.parametrize("arrays", ["numpy", "dask"])
def test_a_killed_worker_changes_nothing(arrays, client, monkeypatch):
    pytest.importorskip("sklearn.callback")
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (CHUNK,))
    victim = sorted(client.run(os.getpid).values())[0]
    X, y = _sinc()
    if arrays == "dask":
        X, y = da.from_array(X, chunks=(CHUNK, 1)), da.from_array(y, chunks=CHUNK)
    killed = AfterTask(lambda runs: runs == 3 and os.kill(victim, signal.SIGKILL))
    model = _model().set_callbacks(killed).fit(X, y)
    assert victim not in client.run(os.getpid).values()
    _same(model, _serial())


def test_a_killed_worker_does_not_change_the_classes(client, monkeypatch):
    pytest.importorskip("sklearn.callback")
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (CHUNK,))
    victim = sorted(client.run(os.getpid).values())[0]
    X, names = _labels()
    killed = AfterTask(lambda runs: runs == 2 and os.kill(victim, signal.SIGKILL))
    model = _classifier().set_callbacks(killed)
    model.fit(da.from_array(X, chunks=(CHUNK, 1)), da.from_array(names, chunks=CHUNK))
    assert victim not in client.run(os.getpid).values()
    _same(model, _serial_classifier())


_DRIVER = """
import os, signal, sys
sys.path.insert(0, {root!r})
from tests.clusters import time_limit, two_workers
from tests.helpers import AfterTask
from tests.partition import test_cluster as this
from sparsebayes.rows import ArrayRows

if __name__ == "__main__":
    with two_workers() as client:
        ArrayRows.__init__.__defaults__ = (this.CHUNK,)
        die = AfterTask(lambda runs: runs == 5 and os.kill(os.getpid(), signal.SIGKILL))
        X, y = this._sinc()
        this._model(checkpoint_dir={folder!r}).set_callbacks(die).fit(X, y)
"""


def test_a_killed_driver_goes_on_to_the_same_model(tmp_path, client, monkeypatch):
    pytest.importorskip("sklearn.callback")
    folder, script = tmp_path / "runs", tmp_path / "driver.py"
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    script.write_text(_DRIVER.format(root=root, folder=str(folder)))
    driver = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert driver.returncode == -signal.SIGKILL, driver.stderr
    before = {path: path.stat().st_mtime_ns for path in folder.glob("run-*.npz")}
    assert len(before) == 5
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (CHUNK,))
    X, y = _sinc()
    resumed = _model(checkpoint_dir=folder).fit(X, y)
    assert {path: path.stat().st_mtime_ns for path in before} == before  # not made again
    assert len(list(folder.glob("run-*.npz"))) == len(resumed.history_["rmse"]) > 5
    _same(resumed, _serial())


def test_a_worker_out_of_memory_names_the_size_to_try_and_leaves_the_cluster_usable():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 5))
    with (
        time_limit(),
        two_workers(
            memory_limit="450MiB",
            distributed__scheduler__allowed_failures=0,
            distributed__worker__memory__pause=False,
        ) as client,
    ):
        with pytest.raises(MemoryError, match=r"Use partition_size=2500 \(now 5000\)"):
            _model(partition_size=5000, client=client).fit(X, X[:, 0])
        X, y = _sinc()
        started = time.monotonic()
        assert _model(client=client).fit(X, y).score(X, y) > 0.5
        assert time.monotonic() - started < 60
