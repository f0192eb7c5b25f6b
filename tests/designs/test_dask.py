"""A Dask array as rows: the same design, its Gram matrix made chunk by chunk."""

import dask.array as da
import numpy as np
import pytest

from sparsebayes import ForwardRegressor
from sparsebayes.designs import CentredDesign, ChunkedKernelDesign, KernelDesign, WeightedDesign
from sparsebayes.kernels import StationaryKernel

KERNEL = StationaryKernel("rbf", 0.3)


def _data(n=600, d=2):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n, d))
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("where", ["here", "cluster"])
@pytest.mark.parametrize("wrapped", ["plain", "weighted", "centred", "both"])
def test_every_verb_is_that_of_the_rows_in_memory(where, wrapped, request):
    from sparsebayes.rows.dask import DaskRows

    if where == "cluster":
        request.getfixturevalue("client")
    X, y = _data()
    centres = np.arange(0, 600, 50)
    weight = np.random.default_rng(1).uniform(0.5, 2, 600)
    theirs = KernelDesign(X, KERNEL, centres)
    blocks = DaskRows.in_blocks(da.from_array(X, chunks=(250, 1)))
    ours = ChunkedKernelDesign(blocks, KERNEL, centres, 0.0)
    if wrapped in ("weighted", "both"):
        theirs, ours = WeightedDesign(theirs, weight), WeightedDesign(ours, weight)
    if wrapped in ("centred", "both"):
        theirs, ours = CentredDesign(theirs), CentredDesign(ours)
    np.testing.assert_allclose(ours.dense(), theirs.dense(), atol=1e-12)
    for a, b in zip(ours.moments(y), theirs.moments(y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-9)
    few = np.array([4, 0, 9])
    R, expected = ours.triangle(y[:, None], few), np.column_stack([theirs.columns(few), y])
    np.testing.assert_array_equal(R, np.triu(R))
    np.testing.assert_allclose(R.T @ R, expected.T @ expected, rtol=1e-10, atol=1e-9)
    single = ours.moments(y, single=True)[0]
    np.testing.assert_allclose(single, theirs.moments(y)[0], rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(
        ours.basis(np.array([3]))(X[:5]), theirs.basis(np.array([3]))(X[:5]), atol=1e-12
    )
    np.testing.assert_array_equal(blocks[np.array([500, 3])], X[[500, 3]])


def test_forward_selection_on_a_cluster_is_that_of_the_rows_in_memory(client, monkeypatch):
    from sparsebayes.designs.kernel import MomentsJob
    from sparsebayes.solvers.forward import routes as _routes

    monkeypatch.setattr(_routes, "_CHEAP", 0.0)  # small as it is, by the Gram matrix
    monkeypatch.setattr(_routes, "_GRAM_COST", 0.0)
    made = []
    init = MomentsJob.__init__
    monkeypatch.setattr(
        MomentsJob, "__init__", lambda self, *a, **k: made.append(1) or init(self, *a, **k)
    )
    X, y = _data()
    model = ForwardRegressor("rbf", gamma=0.3, candidates=np.arange(0, 600, 6), max_terms=40)
    here = model.fit(X, y)
    coef, active, evidence = here.coef_, here.active_, here.log_evidence_
    there = model.fit(da.from_array(X, chunks=(250, 2)), da.from_array(y, chunks=100))
    assert made
    np.testing.assert_array_equal(there.active_, active)
    assert there.log_evidence_ == pytest.approx(evidence, abs=1e-6)
    np.testing.assert_allclose(there.coef_, coef, rtol=1e-4)
    lazy = there.predict(da.from_array(X, chunks=(100, 2)))
    assert lazy.chunks == ((100,) * 6,)
    np.testing.assert_allclose(lazy.compute(), there.predict(X))


def test_wrong_dask_arrays_are_a_sentence():
    X, y = _data()
    X = da.from_array(X, chunks=(250, 2))
    model = ForwardRegressor("rbf", gamma="scale", max_terms=3, candidates=20)
    with pytest.raises(ValueError, match=r"compute_chunk_sizes\(\)"):
        model.fit(X[X[:, 0] > 0], y)
    with pytest.raises(ValueError, match="blocks of X have 600 rows"):
        model.fit(X, y[:5])
    with pytest.raises(ValueError, match="has shape .* but ForwardRegressor was fitted with 2"):
        model.fit(X, y).predict(X[:, :1])
    spoilt = X.map_blocks(lambda block: np.where(block > 2.9, np.nan, block))
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.fit(spoilt, y)


def test_columns_are_summed_on_the_workers_under_names_that_say_what_is_done(client):
    from sparsebayes import BackfittingRegressor

    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 30)) + 3.0
    y = X[:, 3] - X[:, 7] + 0.1 * rng.standard_normal(600)
    here = BackfittingRegressor(tol=1e-8).fit(X, y)
    there = BackfittingRegressor(tol=1e-8).fit(da.from_array(X, chunks=(50, 30)), y)
    np.testing.assert_array_equal(there.active_, here.active_)
    assert there.log_evidence_ == pytest.approx(here.log_evidence_, rel=1e-8)
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=1e-8, atol=1e-8)
    tasks = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    assert {"stream-read", "stream-merge", "sizes-read"} <= tasks
