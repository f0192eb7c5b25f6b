"""Rows that are not in memory: a stream, and a Dask cluster on two cores.

    python benchmarks/anywhere.py stream [--rows 1e7] [--candidates 500]
    python benchmarks/anywhere.py dask [--rows 1e6] [--candidates 500] [--terms 100]
    python benchmarks/anywhere.py generated [--rows 1e7]

``stream`` feeds rows to `partial_fit`, prints rows per second, the ratio to a plain orthogonal
factorisation of blocks of the same size in the same run, and the largest memory; with at most 10^6
rows it also compares with the batch fit on the same candidates. ``dask`` fits the same rows on two
workers, on one, and as two plain processes of half of them: the efficiency is what two workers
reach of two processes. ``generated`` makes the chunks on the workers, and prints the largest memory
of one.
"""

from __future__ import annotations

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from sparsebayes import ForwardRegressor

D, PIECE = 8, 50_000


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """X uniform in eight inputs, y with a smooth part, steps and noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, D))
    y = np.sin(6 * X[:, 0]) * X[:, 1] + (X[:, 2] - 0.5) ** 2 + 0.3 * (X[:, 3] > 0.6)
    return X, y + 0.1 * rng.standard_normal(n)


def memory() -> float:
    """The largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def stream(n: int, m: int) -> None:
    """`partial_fit` of n rows in pieces."""
    model = ForwardRegressor("rbf", gamma=2.0, candidates=m, max_terms=200)
    start, spent = time.perf_counter(), 0.0
    for piece in range(max(1, n // PIECE)):
        X, y = rows(min(n, PIECE), piece)
        begin = time.perf_counter()
        model.partial_fit(X, y)
        spent += time.perf_counter() - begin
        if piece % 20 == 0:
            print(f"{(piece + 1) * PIECE:>10} rows, {memory():.0f} MB", flush=True)
    begin = time.perf_counter()
    terms = len(model.active_)
    search = time.perf_counter() - begin
    block = np.random.default_rng(0).standard_normal((4096, m + 2))
    begin = time.perf_counter()
    for _ in range(3):
        np.linalg.qr(block, mode="r")
    plain = 3 * 4096 / (time.perf_counter() - begin)
    print(
        f"{n} rows, {m} candidates: {n / spent:.0f} rows/s, {plain / (n / spent):.2f}x the time of "
        f"plain QR; search {search:.1f} s, {terms} terms, {memory():.0f} MB, all "
        f"{time.perf_counter() - start:.0f} s"
    )
    if n <= 10**6:
        pieces = [rows(min(n, PIECE), piece) for piece in range(max(1, n // PIECE))]
        X, y = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        few = model._stream.labels
        whole = ForwardRegressor("rbf", gamma=2.0, candidates=few, max_terms=200).fit(X, y)
        off = np.max(np.abs(whole.predict(X[:1000]) - model.predict(X[:1000])))
        gap = model.log_evidence_ - whole.log_evidence_
        print(f"beside the batch fit: predictions {off:.1e}, evidence {gap:+.1e} nats")


def _plain(n: int, m: int, k: int) -> float:
    X, y = rows(n, 0)
    begin = time.perf_counter()
    _model(m, k).fit(X, y)
    return time.perf_counter() - begin


def _model(m: int = 500, k: int = 100) -> ForwardRegressor:
    return ForwardRegressor("rbf", gamma=2.0, candidates=m, max_terms=k)


def dask(n: int, m: int, k: int) -> None:
    """Two workers, one worker, two processes of half the rows."""
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    # First: Dask changes the environment that processes started later inherit.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        halves = max(pool.map(_plain, [n // 2] * 2, [m] * 2, [k] * 2))
    took = {}
    for workers in (2, 1):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            X, y = rows(n, 0)
            there = da.from_array(X, chunks=(n // 20, D)).persist()
            # As with the processes, rows and library are there before the clock runs.
            wait(there)
            client.run(_model)
            begin = time.perf_counter()
            _model(m, k).fit(there, y)
            took[workers] = time.perf_counter() - begin
    print(
        f"{n} rows, {k} of {m} functions: two workers {took[2]:.1f} s, one "
        f"{took[1]:.1f} s, two processes of half the rows {halves:.1f} s: efficiency "
        f"{halves / took[2]:.2f} of two processes"
    )


def generated(n: int) -> None:
    """Rows that are nowhere as a whole: chunks made where they are read."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    pieces = [dask.delayed(rows, pure=True)(PIECE, seed) for seed in range(n // PIECE)]
    X = da.concatenate([da.from_delayed(piece[0], (PIECE, D), np.float64) for piece in pieces])
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        y = np.concatenate(dask.compute(*(piece[1] for piece in pieces)))
        begin = time.perf_counter()
        model = _model().fit(X, y)
        took = time.perf_counter() - begin
        most = max(client.run(memory).values())
    print(
        f"{n} rows in chunks of {PIECE}: {took:.0f} s, {len(model.active_)} terms, at most "
        f"{most:.0f} MB a worker"
    )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["stream", "dask", "generated"])
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--terms", type=int, default=100)
    args: Any = parser.parse_args()
    if args.what == "stream":
        stream(int(args.rows), args.candidates)
    elif args.what == "dask":
        dask(int(args.rows), args.candidates, args.terms)
    else:
        generated(int(args.rows))


if __name__ == "__main__":
    main()
