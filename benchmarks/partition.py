"""The partitioned RVM against the basic one, over partition sizes, and on a cluster.

    python benchmarks/partition.py [accuracy|sizes|scaling|disk] [--quick]

accuracy   test RMSE, relevance vectors and CPU time of the three schedules as ratios to the basic
           RVM on the same split (10 splits; kernel widths of 5-fold grids on other seeds). "worst"
           is the largest ratio of a single split; that of "other start", the unpartitioned RVM from
           its dense start, shows how far two optima of one model are apart on so few test rows
sizes      working set on Abalone over P: time relative to P = 50 (the paper's table 5)
scaling    10^5 rows of friedman1: leaves of split-merge, one process against two Dask workers; the
           limit is what two processes without Dask reach on this machine; the best of two rounds,
           in turn
disk       10^6 rows read from disk by two workers limited to 2 GB each, a target and two classes;
           stopped after a minute each

Standardised inputs (not sinc, not friedman), kernel exp(-|x - z|^2 / width^2), an intercept. One
BLAS thread per process. Without a name: all of them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from sparsebayes import PartitionedRVMClassifier, PartitionedRVMRegressor, RVMRegressor
from sparsebayes.datasets import load_abalone, load_boston, make_friedman1, make_sinc

SCHEDULES = ("split-merge", "incremental", "working-set")
WIDTHS = {"sinc": 4.0, "boston": 4.0, "friedman1": 1.2, "abalone": 9.0}


def split(name, seed):
    """Training and test rows; the test target of the generators is without noise."""
    if name == "sinc":
        return *make_sinc(1000, random_state=seed), *make_sinc(
            1000, noise=0, random_state=seed + 99
        )
    if name == "friedman1":
        test = make_friedman1(1000, noise=0, random_state=seed + 99)
        return *make_friedman1(2400, random_state=seed), *test
    X, y = (load_boston if name == "boston" else load_abalone)(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    n = {"boston": 481, "abalone": 3341}[name]
    a, b = order[:n], order[n:]
    mean, std = X[a].mean(0), X[a].std(0)
    return (X[a] - mean) / std, y[a], (X[b] - mean) / std, y[b]


def measured(model, X, y, X_test, y_test):
    started = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - started
    rmse = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
    return rmse, len(model.active_), seconds, model.converged_


def accuracy(quick):
    n_splits = 2 if quick else 10
    print(
        f"{'data':>10} {'schedule':>12} {'P':>5} {'RMSE':>7} {'/ basic':>8} {'worst':>6} "
        f"{'RVs':>6} {'CPU s':>7} {'/ basic':>8} {'converged':>9}"
    )
    for data in ("sinc", "boston", *(() if quick else ("friedman1", "abalone"))):
        settings = {"gamma": WIDTHS[data] ** -2}
        splits = [split(data, seed) for seed in range(n_splits)]
        basic = [
            measured(RVMRegressor(algorithm="em", cache_size=1000, **settings), *s) for s in splits
        ]
        basic = np.array(basic)
        line(data, "basic", "-", basic, basic)
        other = RVMRegressor(algorithm="auto", **settings)
        line(data, "other start", "-", np.array([measured(other, *s) for s in splits]), basic)
        for size in (50, "auto"):
            for schedule in SCHEDULES:
                model = PartitionedRVMRegressor(
                    schedule=schedule, partition_size=size, n_jobs=1, **settings
                )
                rows = np.array([measured(model, *s) for s in splits])
                line(data, schedule, size, rows, basic)


def line(data, schedule, size, rows, basic):
    ratio = rows[:, 0] / basic[:, 0]
    print(
        f"{data:>10} {schedule:>12} {size!s:>5} {rows[:, 0].mean():>7.4f} "
        f"{rows[:, 0].mean() / basic[:, 0].mean():>8.3f} {ratio.max():>6.3f} "
        f"{rows[:, 1].mean():>6.1f} {rows[:, 2].mean():>7.2f} "
        f"{rows[:, 2].mean() / basic[:, 2].mean():>8.2f} {int(rows[:, 3].sum()):>5}/{len(rows)}",
        flush=True,
    )


def sizes(quick):
    print(f"\n{'P':>5} {'CPU s':>7} {'/ P=50':>7} {'RMSE':>7} {'RVs':>6}")
    table = {}
    for P in (50, 25, 100, 400) if quick else (50, 12, 25, 100, 200, 400, 800, 1000):
        model = PartitionedRVMRegressor(partition_size=P, gamma=1 / 81, n_jobs=1)
        splits = [split("abalone", seed) for seed in range(1 if quick else 3)]
        table[P] = np.mean([measured(model, *s) for s in splits], axis=0)
    for P, (rmse, n_active, seconds, _) in sorted(table.items()):
        relative = seconds / table[50][2]
        print(f"{P:>5} {seconds:>7.2f} {relative:>7.2f} {rmse:>7.4f} {n_active:>6.1f}")


class StopAfter:
    """A callback that stops after so many runs."""

    def __init__(self, runs):
        self.left = runs

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.left -= 1
        return self.left <= 0


def cluster(**options):
    from distributed import Client, LocalCluster

    return Client(
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=40, **options
        )
    )


def leaves_of(n, leaves, size, **where):
    """Seconds for so many leaves of split-merge, and the model they leave."""
    threadpool_limits(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = make_friedman1(n, random_state=0)
    model = PartitionedRVMRegressor(
        schedule="split-merge", partition_size=size, gamma=0.5, **where
    ).set_callbacks(StopAfter(leaves))
    model.fit(X, y)
    return model.history_["elapsed"][-1], model.history_["log_evidence"]


def plain(n, leaves, size):
    return leaves_of(n, leaves, size, n_jobs=1)[0]


def scaling(quick):
    n, leaves, size = (20_000, 16, 200) if quick else (100_000, 48, 400)
    with cluster() as client, ProcessPoolExecutor(2, get_context("spawn")) as pool:

        def spent():
            return time.process_time() + sum(client.run(time.process_time).values())

        leaves_of(200, 2, 50, client=client)  # imports
        rounds = []
        for _ in range(2):
            before = time.process_time()
            serial, here = leaves_of(n, leaves, size, n_jobs=1)
            work = time.process_time() - before
            halves = [pool.submit(plain, n, leaves // 2, size) for _ in range(2)]
            limit = max(half.result() for half in halves)
            before = spent()
            parallel, there = leaves_of(n, leaves, size, client=client)
            rounds.append((serial, limit, parallel, work, spent() - before))
        client.cluster.close()
    serial, limit, parallel, work, together = np.min(rounds, axis=0)
    print(
        f"\n{n} rows, {leaves} leaves of {size}: serial {serial:.1f} s; two processes without "
        f"Dask, half each, {limit:.1f} s (efficiency {serial / limit / 2:.2f}: what this machine "
        f"can do now); two workers {parallel:.1f} s, efficiency {serial / parallel / 2:.2f}, "
        f"{limit / parallel:.2f} of the limit; CPU seconds of the serial fit over those of driver, "
        f"scheduler and workers {work / together:.2f}; best evidence apart by "
        f"{abs(here.max() - there.max()):.1e}",
        flush=True,
    )


def load(folder, name, start, stop):
    return np.array(np.load(Path(folder) / f"{name}.npy", mmap_mode="r")[start:stop])


def from_disk(folder, n, d, step):
    """Dask arrays whose chunks are read from files by the workers."""
    import dask.array as da
    from dask import delayed

    def array(name, *width):
        parts = [
            da.from_delayed(
                delayed(load)(folder, name, i, min(i + step, n)),
                shape=(min(i + step, n) - i, *width),
                dtype=np.float64,
            )
            for i in range(0, n, step)
        ]
        return da.concatenate(parts)

    return array("X", d), array("y")


def peak_megabytes():
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def disk(quick):
    n, d, limit = (100_000, 10, 15) if quick else (1_000_000, 10, 60)
    X_test, y_test = make_friedman1(2000, d, noise=0, random_state=1)
    with tempfile.TemporaryDirectory() as folder:
        X, y = make_friedman1(n, d, random_state=0)
        np.save(Path(folder) / "X.npy", X)
        np.save(Path(folder) / "y.npy", y)
        del X, y
        X, y = from_disk(folder, n, d, 50_000)
        with cluster(memory_limit="2GB") as client:
            settings = {"gamma": 0.5, "max_time": limit, "client": client}
            model = PartitionedRVMRegressor(partition_size=500, **settings)
            seconds = wall(model, X, y)
            rmse = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
            on_disk(
                n,
                model,
                seconds,
                client,
                f"RMSE against the truth {rmse:.3f}, noise variance "
                f"{model.noise_variance_:.3f} (truth 1)",
            )
            labels = PartitionedRVMClassifier(partition_size=100, **settings)
            seconds = wall(labels, X, y > 14.4)
            wrong = np.mean(labels.predict(X_test) != (y_test > 14.4))
            on_disk(n, labels, seconds, client, f"classes missed {wrong:.3f}")
            client.cluster.close()


def wall(model, X, y):
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def on_disk(n, model, seconds, client, quality):
    peaks = ", ".join(f"{p:.0f} MB" for p in client.run(peak_megabytes).values())
    print(
        f"\n{n} rows from disk, {type(model).__name__}, working set of {model.partition_size_}: "
        f"{len(model.history_['elapsed'])} runs in {seconds:.0f} s, {len(model.active_)} vectors, "
        f"{quality}; peak memory of the workers {peaks} (limit 2000 MB)",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", nargs="?", choices=["accuracy", "sizes", "scaling", "disk"])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    threadpool_limits(1)
    for part in (accuracy, sizes, scaling, disk):
        if options.part in (None, part.__name__):
            part(options.quick)
