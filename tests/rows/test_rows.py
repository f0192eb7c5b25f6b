"""Every executor gives the same result, in the same order of sums."""

import os
import platform
import subprocess
import sys
import time

import dask.array as da
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from sparsebayes.kernels import resolve_gamma
from sparsebayes.rows import (
    ArrayRows,
    NextPass,
    RowBlocks,
    SerialExecutor,
    SpreadJob,
    TakeJob,
    ThreadExecutor,
    choose_executor,
    is_dask,
    make_rows,
    tree,
)
from sparsebayes.rows.executors import few_blas_threads
from tests.clusters import time_limit


class Bracket:
    """Shows in which order parts were merged."""

    def __init__(self, name=""):
        self.name = name

    def read(self, index, chunk):
        values, weight = chunk
        return f"{index}:{values.sum():g}" if weight is None else f"{index}:{values @ weight:g}"

    def merge(self, left, right):
        return f"({left} {right})"

    def finish(self, total):
        return self.name + total


class Fails(Bracket):
    def finish(self, total):
        raise ZeroDivisionError("as asked")


class Passes(Bracket):
    """Asks for more passes until it has made three."""

    def __init__(self, name="", made=()):
        self.name, self.made = name, made

    def finish(self, total):
        made = (*self.made, total)
        return (self.name, made) if len(made) == 3 else NextPass(Passes(self.name, made))


def _executor(name, client):
    if name == "dask":
        from sparsebayes.rows.dask import DaskExecutor

        return DaskExecutor(client)
    return SerialExecutor() if name == "serial" else ThreadExecutor(2)


def _small_chunks(monkeypatch):
    monkeypatch.setattr(ArrayRows.__init__, "__defaults__", (3,))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
def test_tree_is_balanced_and_keeps_the_order(n):
    depth = tree([(0, [i]) for i in range(n)], lambda a, b: (max(a[0], b[0]) + 1, a[1] + b[1]))
    assert depth[1] == list(range(n))
    assert depth[0] <= int(np.ceil(np.log2(n))) + 1
    with pytest.raises(ValueError, match="no rows"):
        tree([], None)


@pytest.mark.parametrize("name", ["serial", "threads", "dask"])
@pytest.mark.parametrize("weighted", [False, True])
def test_executors_merge_in_the_same_tree(name, weighted, client, monkeypatch):
    _small_chunks(monkeypatch)
    if weighted:  # as if a worker could not hold all rows: a task for each chunk
        monkeypatch.setattr("sparsebayes.rows.dask._SMALL", 0.0)
    executor = _executor(name, client)
    n = 14.0 if weighted else 28.0  # 5 or 10 chunks: merged in one task, or in several
    arrays = (np.arange(n), np.arange(n) if weighted else None)
    rows = make_rows(arrays, executor)
    expected = ArrayRows(arrays).reduce(Bracket())
    assert expected.startswith("((((0:" if n == 28 else "(((0:")
    assert rows.reduce(Bracket()) == expected
    results = dict(rows.map(Bracket(f"{i} ") for i in range(9)))
    assert results == {i: f"{i} {expected}" for i in range(9)}


@pytest.mark.parametrize("name", ["serial", "threads", "dask"])
def test_a_job_gets_the_passes_it_asks_for(name, client, monkeypatch):
    _small_chunks(monkeypatch)
    executor = _executor(name, client)
    arrays = (np.arange(14.0), None)
    rows = make_rows(arrays, executor)
    once = ArrayRows(arrays).reduce(Bracket())
    assert rows.reduce(Passes("one")) == ("one", (once,) * 3)
    results = dict(rows.map(Passes(str(i)) for i in range(5)))
    assert results == {i: (str(i), (once,) * 3) for i in range(5)}


@pytest.mark.parametrize("name", ["serial", "threads", "dask"])
def test_map_ends_when_told(name, client):
    executor = _executor(name, client)
    rows = make_rows((np.arange(4.0), None), executor)
    seen = []
    for number, _ in rows.map((Bracket() for _ in range(50)), lambda: len(seen) >= 3):
        seen.append(number)
    assert 3 <= len(seen) < 50


@pytest.mark.parametrize("name", ["serial", "threads", "dask"])
def test_an_error_in_a_job_is_the_error_of_the_caller(name, client):
    executor = _executor(name, client)
    rows = make_rows((np.arange(4.0), None), executor)
    with pytest.raises(ZeroDivisionError, match="as asked"):
        rows.reduce(Fails())
    with pytest.raises(ZeroDivisionError, match="as asked"):
        list(rows.map([Bracket(), Fails()]))
    assert rows.reduce(Bracket()) == "0:6"


def test_dask_arrays_are_read_in_their_own_chunks(client):
    import dask.array as da

    X = da.from_array(np.arange(12.0).reshape(6, 2), chunks=(4, 1))
    y = da.from_array(np.arange(6.0), chunks=3)
    assert is_dask(X)
    assert not is_dask(np.ones(3))
    for executor in (_executor("dask", client), SerialExecutor()):
        for target in (y, np.arange(6.0), y[:, None]):
            rows = make_rows((X, target, None), executor)
            assert rows.n_chunks == 2
            np.testing.assert_array_equal(rows.chunk(1)[0], [[8, 9], [10, 11]])
            np.testing.assert_array_equal(rows.chunk(1)[1], [4, 5])
    with pytest.raises(ValueError, match="X has 6 rows, but y or sample_weight has 5"):
        make_rows((X, y[:5], None), executor)
    with pytest.raises(ValueError, match="y must be one target"):
        make_rows((X, X, None), executor)
    unknown = X[X[:, 0] > 3]
    with pytest.raises(ValueError, match=r"compute_chunk_sizes\(\)"):
        make_rows((unknown, np.arange(4.0), None), executor)
    rows = make_rows((unknown, y.rechunk(4)[X[:, 0] > 3], None), SerialExecutor())
    assert [len(rows.chunk(i)[1]) for i in range(2)] == [2, 2]


def test_data_too_large_to_keep_are_read_at_each_pass(client, monkeypatch):
    import dask.array as da
    from dask.delayed import Delayed
    from distributed import Future

    values = da.from_array(np.arange(14.0)[:, None], chunks=(3, 1))
    executor = _executor("dask", client)
    results = []
    for share, kind in ((0.3, Future), (0.0, Delayed)):
        monkeypatch.setattr("sparsebayes.rows.dask._STORED_SHARE", share)
        rows = make_rows((values, None), executor)
        assert isinstance(rows.remote_chunks[0][0], kind)
        results.append(rows.reduce(Passes()))
        results.append(dict(rows.map([Passes()]))[0])
    assert results == [results[0]] * 4


def test_the_choice_of_executor(client):
    from sparsebayes.rows.dask import DaskExecutor

    assert isinstance(choose_executor(), DaskExecutor)  # the active client
    assert isinstance(choose_executor(n_jobs=2), ThreadExecutor)
    assert choose_executor(client).client is client
    with pytest.raises(ValueError, match="either client or n_jobs"):
        choose_executor(client, 2)
    # Inside a task the cluster is left alone: waiting for it there can block it.
    inside = client.submit(lambda: type(choose_executor()).__name__, pure=False)
    assert inside.result(timeout=60) == "SerialExecutor"


def test_a_cluster_without_workers_is_a_sentence(monkeypatch):
    from distributed import Client, LocalCluster

    from sparsebayes.rows import dask

    monkeypatch.setattr(dask, "_PATIENCE", 0.3)
    with (
        time_limit(),
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as empty,
    ):
        executor = dask.DaskExecutor(empty)
        rows = make_rows((np.arange(4.0), None), executor)
        with pytest.raises(RuntimeError, match="no workers for 0 s. Start workers"):
            rows.reduce(Bracket())


def _every_kind(X, tmp_path, client):
    """The same rows in every place they may lie, cut differently."""
    import dask.array as da

    from sparsebayes.rows.dask import DaskRows

    np.save(tmp_path / "X.npy", X)
    blocks = [X[:130], X[130:131], X[131:]]
    beside = (np.arange(len(X)),)
    yield "array", ArrayRows((X, *beside), 77)
    yield "threads", ArrayRows((X, *beside), 77, executor=ThreadExecutor(2))
    yield "cluster", make_rows((X, *beside), _executor("dask", client))
    yield "memory map", RowBlocks(np.load(tmp_path / "X.npy", mmap_mode="r")).with_arrays(*beside)
    yield "list", RowBlocks(blocks).with_arrays(*beside)
    yield "function", RowBlocks(lambda: iter(blocks)).with_arrays(*beside)
    yield "iterator", RowBlocks(iter(blocks)).with_arrays(*beside)
    there = DaskRows.in_blocks(da.from_array(X, chunks=(120, 2)))
    yield "dask", there.with_arrays(*beside)
    there.executor = SerialExecutor()
    yield "dask, here", there.with_arrays(*beside)


def test_rows_are_the_same_rows_wherever_they_lie(tmp_path, client):
    X = np.random.default_rng(0).standard_normal((500, 3)) * [1, 10, 0.1] + [5, 0, 100]
    numbers = np.array([499, 3, 130, 3, 0])
    weight = np.random.default_rng(1).integers(0, 3, 500).astype(float)
    for kind, rows in _every_kind(X, tmp_path, client):
        assert rows.shape == X.shape, kind
        assert len(rows) == rows.edges[-1] == 500
        np.testing.assert_array_equal(rows.take(numbers), X[numbers], kind)
        both = rows.reduce(TakeJob(numbers, rows.edges))
        np.testing.assert_array_equal(both[1], numbers, kind)
        np.testing.assert_array_equal(
            np.vstack([rows.chunk(i)[0] for i in range(rows.n_chunks)]), X
        )
        np.testing.assert_array_equal(np.vstack([block for _, block in rows]), X)
        np.testing.assert_array_equal(rows.in_memory()[0], X, kind)
        np.testing.assert_array_equal(rows.in_memory()[1], np.arange(500), kind)
        for w in (None, weight):
            spread = rows.with_arrays(w).reduce(SpreadJob())
            assert spread.gamma == pytest.approx(resolve_gamma("scale", X, w), rel=1e-12), kind
            mean = np.average(X, axis=0, weights=w)
            variance = np.average((X - mean) ** 2, axis=0, weights=w)
            np.testing.assert_allclose(spread.mean * spread.size, mean, rtol=1e-13)
            deviations = np.sqrt(spread.scatter / spread.total) * spread.size
            np.testing.assert_allclose(deviations, variance**0.5, rtol=1e-12)


@pytest.mark.parametrize("cuts", [[100], [50, 50], [50, 40], [50, 40, 10], [50, 50, 10]])
def test_a_function_must_give_the_same_blocks_each_time(cuts):
    X = np.ones((100, 2))
    given = iter([[60, 40], cuts])
    rows = RowBlocks(lambda: [X[:n] for n in next(given)])
    with pytest.raises(ValueError, match="same rows each time, in the same blocks"):
        rows.take(np.arange(5))


class Slow(Bracket):
    """Takes so long over a chunk that a look at the cluster falls between two of them."""

    def read(self, index, chunk):
        time.sleep(0.2)
        return super().read(index, chunk)


@pytest.mark.parametrize("name", ["serial", "threads", "dask"])
def test_a_pass_tells_how_many_chunks_it_has_read(name, client, monkeypatch):
    _small_chunks(monkeypatch)
    executor, told = _executor(name, client), []
    rows = make_rows((np.arange(28.0), None), executor)
    assert rows.reduce(Slow(), told.append) == rows.reduce(Bracket())
    assert told == sorted(told)
    assert told[-1] == rows.n_chunks == 10
    assert any(0 < number < 10 for number in told)


def test_the_limit_on_blas_is_lifted_by_the_last_who_asked_for_it():
    def threads():
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        first, second = few_blas_threads(), few_blas_threads()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)  # as fits in two threads may end
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {2}


def test_rows_on_a_cluster_are_made_and_checked_once(client):
    from sparsebayes.rows.dask import DaskRows

    def block(numbers):
        from distributed import get_worker

        get_worker().log_event("made", len(numbers))
        return np.ones((len(numbers), 2))

    X = da.arange(40, chunks=10).map_blocks(
        block, chunks=((10,) * 4, (2,)), new_axis=1, dtype=float
    )
    rows = DaskRows.in_blocks(X)
    for _ in range(3):
        assert rows.take(np.arange(40)).sum() == 80.0
    assert len(client.get_events("made")) == 4


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of the GNU C library")
def test_blocks_that_come_and_go_are_no_new_pages_in_a_worker():
    """As Dask starts them, workers give back what is freed: 512 faults for each block of 2 MB."""
    script = """
import resource, numpy as np
from sparsebayes.rows.dask import _keep_pages
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(2**18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults()); _keep_pages(); faults(); print(faults())
"""
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    before, after = map(int, run.stdout.split())
    assert before > 5000
    assert after < 500
