"""Every executor gives the same result, in the same order of sums."""

import numpy as np
import pytest

from sparsebayes.execution import (
    ArrayRows,
    NextPass,
    SerialExecutor,
    ThreadExecutor,
    choose_executor,
    is_dask,
    make_rows,
    tree,
)
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
        from sparsebayes.execution.dask import DaskExecutor

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
        monkeypatch.setattr("sparsebayes.execution.dask._SMALL", 0.0)
    executor = _executor(name, client)
    n = 14.0 if weighted else 28.0  # 5 or 10 chunks: merged in one task, or in several
    arrays = (np.arange(n), np.arange(n) if weighted else None)
    rows = make_rows(arrays, executor)
    expected = SerialExecutor().reduce(Bracket(), ArrayRows(arrays))
    assert expected.startswith("((((0:" if n == 28 else "(((0:")
    assert executor.reduce(Bracket(), rows) == expected
    results = dict(executor.map((Bracket(f"{i} ") for i in range(9)), rows))
    assert results == {i: f"{i} {expected}" for i in range(9)}


@pytest.mark.parametrize("name", ["serial", "threads", "dask"])
def test_a_job_gets_the_passes_it_asks_for(name, client, monkeypatch):
    _small_chunks(monkeypatch)
    executor = _executor(name, client)
    arrays = (np.arange(14.0), None)
    rows = make_rows(arrays, executor)
    once = SerialExecutor().reduce(Bracket(), ArrayRows(arrays))
    assert executor.reduce(Passes("one"), rows) == ("one", (once,) * 3)
    results = dict(executor.map((Passes(str(i)) for i in range(5)), rows))
    assert results == {i: (str(i), (once,) * 3) for i in range(5)}


@pytest.mark.parametrize("name", ["serial", "threads", "dask"])
def test_map_ends_when_told(name, client):
    executor = _executor(name, client)
    rows = make_rows((np.arange(4.0), None), executor)
    seen = []
    for number, _ in executor.map((Bracket() for _ in range(50)), rows, lambda: len(seen) >= 3):
        seen.append(number)
    assert 3 <= len(seen) < 50


@pytest.mark.parametrize("name", ["serial", "threads", "dask"])
def test_an_error_in_a_job_is_the_error_of_the_caller(name, client):
    executor = _executor(name, client)
    rows = make_rows((np.arange(4.0), None), executor)
    with pytest.raises(ZeroDivisionError, match="as asked"):
        executor.reduce(Fails(), rows)
    with pytest.raises(ZeroDivisionError, match="as asked"):
        list(executor.map([Bracket(), Fails()], rows))
    assert executor.reduce(Bracket(), rows) == "0:6"


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
    with pytest.raises(ValueError, match="X has 6 rows, but y or the weights 5"):
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
        monkeypatch.setattr("sparsebayes.execution.dask._KEPT", share)
        rows = make_rows((values, None), executor)
        assert isinstance(rows.chunks[0][0], kind)
        results.append(executor.reduce(Passes(), rows))
        results.append(dict(executor.map([Passes()], rows))[0])
    assert results == [results[0]] * 4


def test_the_choice_of_executor(client):
    from sparsebayes.execution.dask import DaskExecutor

    assert isinstance(choose_executor(), DaskExecutor)  # the active client
    assert isinstance(choose_executor(n_jobs=2), ThreadExecutor)
    assert choose_executor(client).client is client
    with pytest.raises(ValueError, match="one of client and n_jobs"):
        choose_executor(client, 2)
    # Inside a task the cluster is left alone: waiting for it there can block it.
    inside = client.submit(lambda: type(choose_executor()).__name__, pure=False)
    assert inside.result(timeout=60) == "SerialExecutor"


def test_a_cluster_without_workers_is_a_sentence(monkeypatch):
    from distributed import Client, LocalCluster

    from sparsebayes.execution import dask

    monkeypatch.setattr(dask, "_PATIENCE", 0.3)
    with (
        time_limit(),
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as empty,
    ):
        executor = dask.DaskExecutor(empty)
        rows = make_rows((np.arange(4.0), None), executor)
        with pytest.raises(RuntimeError, match="no workers for 0 s: start some"):
            executor.reduce(Bracket(), rows)
