"""The core of both greedy searches: candidates less their projection on the chosen columns."""

import numpy as np
import pytest

from sparsebayes.designs import CentredDesign, DenseDesign, KernelDesign
from sparsebayes.kernels import StationaryKernel
from sparsebayes.solvers import Forward, OrthogonalLeastSquares, run
from sparsebayes.solvers.forward.routes import columns_route
from sparsebayes.solvers.greedy import OrthogonalColumns, first_best


def problem(width):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 1, 60))
    H = np.exp(-(((x[:, None] - x[None, ::2]) / width) ** 2))
    return H, np.sin(6 * x) + 0.1 * rng.standard_normal(60)


class Counting(DenseDesign):
    """Counts the reads of all columns."""

    reads = 0

    def blocks(self, idx=slice(None)):
        if isinstance(idx, slice):
            self.reads += 1
        return super().blocks(idx)

    def local_project(self, V, idx=slice(None)):
        self.reads += 1
        return super().local_project(V, idx)


@pytest.mark.parametrize("width", [0.05, 0.5])
@pytest.mark.parametrize("lam", [1.0, 1e-6, 1e-12])
def test_ridge_is_plain_orthogonalisation_of_columns_with_a_row_added_for_each(width, lam):
    H, t = problem(width)
    m = H.shape[1]
    ridge, plain = (
        columns_route(DenseDesign(H), t),
        OrthogonalColumns(
            DenseDesign(np.vstack([H, np.sqrt(lam) * np.eye(m)])), np.append(t, np.zeros(m))
        ),
    )
    ridge.begin(lam, 8)
    plain.start(0.0, 2)
    for j in (3, 20, 11, 4, 27, 0, 15, 5):
        ridge.add(j)
        _, w, s = plain.orthogonalise(j)
        plain.take(j, w, s)
        assert ridge.S == pytest.approx(plain.S, rel=1e-9)
    ridge.absorb()
    plain.absorb()
    free = ridge.free
    np.testing.assert_array_equal(free, plain.free)
    scale = np.sqrt(ridge.norms[free] * ridge.S)
    np.testing.assert_allclose(ridge.A[free] / scale, plain.A[free] / scale, atol=1e-12)
    np.testing.assert_allclose(lam + ridge.B[free], plain.B[free], rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("ridge", [0.0, 1e-9])
def test_chosen_columns_stay_orthonormal_where_they_nearly_coincide(ridge):
    H, t = problem(0.5)
    columns = OrthogonalColumns(DenseDesign(H), t)
    columns.start(ridge, 12, ridge)
    for j in range(12):
        _, w, s = columns.orthogonalise(j)
        columns.take(j, w, s)
    np.testing.assert_allclose(columns.U[:12] @ columns.U[:12].T, np.eye(12), atol=1e-12)
    np.testing.assert_allclose(columns.U[:12] @ columns.residual, 0.0, atol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "solver",
    [
        OrthogonalLeastSquares(regularization="none", max_terms=5),
        OrthogonalLeastSquares(regularization="none", max_terms=5, criterion="press"),
        Forward(0.1, 0.1, max_terms=5, cut=False, route=columns_route),
    ],
    ids=["err", "press", "evidence"],
)
def test_five_terms_cost_five_reads(solver, intercept):
    rng = np.random.default_rng(1)
    base = Counting(rng.standard_normal((80, 40)))
    t = base.matrix[:, :8] @ np.linspace(1, 2, 8) + rng.standard_normal(80)
    design = CentredDesign(base) if intercept else base
    run(solver, design, design.target(t), max_iter=5)
    assert base.reads == 5  # lengths and products with t, then one before each further choice


def test_equal_scores_give_the_first():
    values = np.array([0.0, 1.0 - 1e-12, 1.0, -np.inf])
    assert first_best(values) == 1
    assert first_best(1e-14 * values) == 1
    assert first_best(1e-14 * values, unit=1.0) == 0
    assert first_best(np.full(3, -np.inf)) == -1


@pytest.mark.parametrize("lam", [0.0, 1e-3])
def test_columns_taken_along_by_an_earlier_read_serve_as_those_read_when_due(lam):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (150, 2))
    t = np.sin(6 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(150)
    kernel, reads = StationaryKernel("rbf", 20.0), []

    class Reads(KernelDesign):
        def local_project(self, V, idx=slice(None)):
            reads.append(V.ndim)
            return super().local_project(V, idx)

    lazy = OrthogonalColumns(CentredDesign(Reads(X, kernel, cache_size=0.0)), t - t.mean())
    dense = KernelDesign(X, kernel).dense()
    plain = OrthogonalColumns(CentredDesign(DenseDesign(dense)), t - t.mean())
    for columns in (lazy, plain):
        columns.start(lam, 40, ridge=lam)
    reads.clear()
    for _ in range(30):
        j = int(np.argmax(np.where(plain.free, plain.A**2 / (plain.B + lam + 1e-9), 0.0)))
        for columns in (lazy, plain):
            _, w, s = columns.orthogonalise(j)
            columns.take(j, w, s)
            columns.absorb()
        scale = np.sqrt(plain.norms)
        np.testing.assert_allclose(lazy.C[: lazy.k] / scale, plain.C[: lazy.k] / scale, atol=1e-11)
        np.testing.assert_allclose(lazy.A / scale, plain.A / scale, atol=1e-10)
    assert len(reads) < 8
