"""The partitioned RVM against the basic one, over partition sizes, and on a cluster.

    python benchmarks/partition.py [accuracy|sizes|scaling|disk] [--quick] [--splits N]

accuracy   test RMSE, relevance vectors and CPU time of the three schedules as ratios to the basic
           RVM on the same split (10 splits, Abalone 3; kernel widths of 5-fold grids on other
           seeds), by default and by the paper's rule (P fixed, no polishing). "worst" is the
           largest ratio of a single split; that of "other start", the unpartitioned RVM from its
           dense start, shows how far two optima of one model are apart on so few test rows. Then
           labels: error rates and log-losses against RVMClassifier(algorithm="em")
sizes      working set on Abalone over P: time relative to P = 50 (the paper's table 5), by the
           paper's rule and by default
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
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

from papers.data import load_abalone, load_boston, load_cpu
from sparsebayes import (
    PartitionedRVMClassifier,
    PartitionedRVMRegressor,
    RVMClassifier,
    RVMRegressor,
)
from sparsebayes.datasets import make_sinc

SCHEDULES = ("split-merge", "incremental", "working-set")
WIDTHS = {"cpu": 20.0, "sinc": 4.0, "boston": 4.0, "friedman1": 1.2, "abalone": 9.0}
TABLES = {"cpu": (load_cpu, 189), "boston": (load_boston, 481), "abalone": (load_abalone, 3341)}
SETS = ("cpu", "boston", "sinc", "friedman1-240", "friedman1-1200", "friedman1-1600", "abalone")
LABELS = {"friedman1-1000": 1.8, "moons-600": 1.0}


def split(name, seed):
    """Training and test rows; the test target of the generators is without noise."""
    if name == "sinc":
        test = make_sinc(1000, noise=0, random_state=seed + 99)
        return *make_sinc(1000, random_state=seed), *test
    if name.startswith("friedman1"):
        test = make_friedman1(1000, random_state=seed + 99)
        return *make_friedman1(int(name.split("-")[1]), noise=1.0, random_state=seed), *test
    load, n = TABLES[name]
    X, y = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = order[:n], order[n:]
    mean, std = X[a].mean(0), X[a].std(0)
    return (X[a] - mean) / std, y[a], (X[b] - mean) / std, y[b]


def label_split(name, seed):
    """Training and test rows of two classes."""
    kind, n = name.split("-")
    if kind == "moons":
        test = make_moons(4000, noise=0.25, random_state=seed + 99)
        return *make_moons(int(n), noise=0.25, random_state=seed), *test
    X, y, X_test, _ = split(name, seed)
    return X, y > 14.4, X_test, make_friedman1(1000, noise=1.0, random_state=seed + 99)[1] > 14.4


def fitted(model, X, y):
    started = time.process_time()
    model.fit(X, y)
    return time.process_time() - started


def measured(model, X, y, X_test, y_test):
    seconds = fitted(model, X, y)
    rmse = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
    return rmse, len(model.active_), seconds, model.converged_


def label_measured(model, X, y, X_test, y_test):
    seconds = fitted(model, X, y)
    loss = log_loss(y_test, model.predict_proba(X_test))
    wrong = np.mean(model.predict(X_test) != y_test)
    return loss, len(model.active_), seconds, model.converged_, wrong


def rules(estimator, settings):
    """The schedules by default, by default with P = 50, and by the paper's rule."""
    for rule in ({}, {"partition_size": 50}, {"stopping": "paper"}):
        if set(rule) <= set(estimator().get_params()):
            for schedule in SCHEDULES:
                name = " ".join([schedule, *(str(value) for value in rule.values())])
                yield name, estimator(schedule=schedule, n_jobs=1, **rule, **settings)


def accuracy(quick, splits):
    head = ("RMSE", "/ basic", "worst", "RVs", "CPU s", "/ basic", "converged")
    print(f"{'data':>14} {'schedule':>18} " + " ".join(f"{name:>8}" for name in head))
    for data in ("cpu", "boston", "sinc") if quick else SETS:
        settings = {"gamma": WIDTHS[data.split("-")[0]] ** -2}
        n_splits = min(splits, 3) if data == "abalone" else splits
        drawn = [split(data, seed) for seed in range(n_splits)]
        models = [
            (
                "basic",
                RVMRegressor(
                    algorithm="em",
                    cache_size=1000,
                    **{"kernel": "rbf", "gamma": "scale", **settings},
                ),
            ),
            (
                "other start",
                RVMRegressor(algorithm="auto", **{"kernel": "rbf", "gamma": "scale", **settings}),
            ),
            *rules(PartitionedRVMRegressor, settings),
        ]
        basic = None
        for name, model in models:
            rows = np.array([measured(model, *s) for s in drawn])
            basic = rows if basic is None else basic
            line(data, name, rows, basic)
    print("\nlabels: log-loss in place of RMSE, and the error rate")
    for data, width in LABELS.items():
        settings = {"gamma": width**-2}
        drawn = [label_split(data, seed) for seed in range(splits)]
        basic = None
        for name, model in [
            (
                "basic",
                RVMClassifier(algorithm="em", **{"kernel": "rbf", "gamma": "scale", **settings}),
            ),
            *rules(PartitionedRVMClassifier, settings),
        ]:
            rows = np.array([label_measured(model, *s) for s in drawn])
            basic = rows if basic is None else basic
            line(data, name, rows, basic, f" {rows[:, 4].mean():>8.4f}")


def line(data, name, rows, basic, more=""):
    ratio = rows[:, 0] / basic[:, 0]
    print(
        f"{data:>14} {name:>18} {rows[:, 0].mean():>8.4f} "
        f"{rows[:, 0].mean() / basic[:, 0].mean():>8.3f} {ratio.max():>8.3f} "
        f"{rows[:, 1].mean():>8.1f} {rows[:, 2].mean():>8.2f} "
        f"{rows[:, 2].mean() / basic[:, 2].mean():>8.2f} "
        f"{int(rows[:, 3].sum()):>6}/{len(rows)}{more}",
        flush=True,
    )


def sizes(quick, splits):
    for rule in ({"stopping": "paper"}, {}):
        if not set(rule) <= set(PartitionedRVMRegressor("rbf", gamma="scale").get_params()):
            continue
        print(f"\n{' '.join(rule.values()) or 'default'}")
        print(f"{'P':>5} {'CPU s':>7} {'/ P=50':>7} {'RMSE':>7} {'RVs':>6}")
        table = {}
        for P in (50, 25, 100, 400) if quick else (50, 12, 25, 100, 200, 400, 800, 1000):
            model = PartitionedRVMRegressor(
                partition_size=P, gamma=1 / 81, n_jobs=1, **{"kernel": "rbf", **rule}
            )
            drawn = [split("abalone", seed) for seed in range(1 if quick else min(splits, 3))]
            table[P] = np.mean([measured(model, *s) for s in drawn], axis=0)
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
    X, y = make_friedman1(n, noise=1.0, random_state=0)
    model = PartitionedRVMRegressor(
        schedule="split-merge", partition_size=size, gamma=0.5, **{"kernel": "rbf", **where}
    ).set_callbacks(StopAfter(leaves))
    model.fit(X, y)
    return model.history_["elapsed"][-1], model.history_["log_evidence"]


def plain(n, leaves, size):
    return leaves_of(n, leaves, size, n_jobs=1)[0]


def scaling(quick, splits):
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


def disk(quick, splits):
    n, d, limit = (100_000, 10, 15) if quick else (1_000_000, 10, 60)
    X_test, y_test = make_friedman1(2000, d, random_state=1)
    with tempfile.TemporaryDirectory() as folder:
        X, y = make_friedman1(n, d, noise=1.0, random_state=0)
        np.save(Path(folder) / "X.npy", X)
        np.save(Path(folder) / "y.npy", y)
        del X, y
        X, y = from_disk(folder, n, d, 50_000)
        with cluster(memory_limit="2GB") as client:
            settings = {"gamma": 0.5, "max_time": limit, "client": client}
            model = PartitionedRVMRegressor(
                partition_size=500, **{"kernel": "rbf", "gamma": "scale", **settings}
            )
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
            labels = PartitionedRVMClassifier(
                partition_size=100, **{"kernel": "rbf", "gamma": "scale", **settings}
            )
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
    parser.add_argument("--splits", type=int, help="of each data set (default: 10, quick 2)")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    threadpool_limits(1)
    for part in (accuracy, sizes, scaling, disk):
        if options.part in (None, part.__name__):
            part(options.quick, options.splits or (2 if options.quick else 10))
