"""Speed of the kernels: seconds per million values, beside the product and exponential they need.

    OMP_NUM_THREADS=1 python benchmarks/kernels.py [--quick]

First table: each family in blocks of the size that the designs use, one width for all inputs and
one per input, float64 and float32; "x" is the time over the limit, one product of the block's size
and one exponential of each value, measured in the same run. Scikit-learn's `rbf_kernel` and
`matern` of its Gaussian processes beside them. Second table: the Gaussian kernel by height of the
block, which is where the block of 2 MB comes from.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import rbf_kernel

from sparsebayes.designs.kernel import block_rows
from sparsebayes.kernels import FAMILIES, StationaryKernel


def seconds(call, repeats):
    best = np.inf
    for _ in range(repeats):
        started = time.process_time()
        call()
        best = min(best, time.process_time() - started)
    return best


def in_blocks(evaluate, X, step):
    def run():
        for i in range(0, len(X), step):
            evaluate(X[i : i + step])

    return run


def families(n, m, d, repeats):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    step, values = block_rows(m), n * m / 1e6
    for dtype in (np.float64, np.float32):
        A, B = X.astype(dtype), Z.astype(dtype)
        right = np.ascontiguousarray(np.column_stack([B, B[:, :2]]).T)
        left = np.column_stack([A, A[:, :2]])

        def least(block, right=right):
            U = block @ right
            np.multiply(U, -0.01, out=U)
            np.exp(U, out=U)

        limit = seconds(in_blocks(least, left, step), repeats)
        name = np.dtype(dtype).name
        print(
            f"\n{name}, {n} x {m} values, {d} inputs: limit {1e3 * limit / values:.2f} ms/million"
        )
        for family in FAMILIES:
            line = f"{family:>10}"
            for gamma in (0.1, np.full(d, 0.1)):
                bound = StationaryKernel(family, gamma).bind(B)
                ours = seconds(in_blocks(bound, A, step), repeats)
                line += f"   {1e3 * ours / values:6.2f} ms {ours / limit:5.2f} x"
            print(line + ("   (one width; one per input)" if family == "rbf" else ""), flush=True)
    theirs = seconds(in_blocks(lambda block: rbf_kernel(block, Z, 0.1), X, step), repeats)
    print(f"\nscikit-learn rbf_kernel, float64: {1e3 * theirs / values:.2f} ms/million")
    matern = Matern(nu=1.5)
    theirs = seconds(in_blocks(lambda block: matern(block, Z), X, step), repeats)
    print(f"scikit-learn Matern 3/2, float64: {1e3 * theirs / values:.2f} ms/million")


def heights(n, m, d, repeats):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    bound = StationaryKernel("rbf", 0.1).bind(rng.standard_normal((m, d)))
    print(f"\nGaussian kernel, {m} centres, by rows of a block")
    for step in (16, 64, 131, 262, 1048, 4096):
        took = seconds(in_blocks(bound, X, step), repeats)
        chosen = "  <- chosen" if step == block_rows(m) else ""
        size = 8 * step * m / 2**20
        print(f"{step:>6} rows, {size:>6.2f} MB: {1e9 * took / (n * m):.2f} ns a value{chosen}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    quick = parser.parse_args().quick
    n, repeats = (2000, 2) if quick else (10_000, 5)
    families(n, 2000, 8, repeats)
    heights(n, 2000, 8, repeats)
