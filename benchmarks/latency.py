"""Time where users feel it: fits against n, predictions of many rows and of one, auto, imports.

    OMP_NUM_THREADS=1 python benchmarks/latency.py [--only PART ...] [--models NAME ...] [--limit S]

    fit      every estimator at n = 500 to 50,000 (Friedman#1, 10 inputs; labels: its sign; groups:
             50 columns in tens; NARX: a second-order system): CPU seconds, the exponent of n over
             all sizes, and the worst step between neighbours beyond that exponent. A size is left
             out where the last one took more than --limit seconds divided by the growth of n.
    predict  mean and std of 10^5 rows by 100 functions, over fastrvm's means by 100 functions
    one      one row: microseconds, beside BayesianRidge, SVR and fastrvm
    auto     SparseGPRegressor() and ForwardRegressor() over CatBoost at its defaults: Friedman#1
             (10 inputs) at n = 300 to 10^4 and, where SPARSEBAYES_DATA has it, 10^4 rows of
             California (8 inputs)
    imports  seconds of one estimator beyond scikit-learn, a process each: medians of ten from
             bytecode, as an installed package has it

CPU seconds of one thread. `--only fit --models RVM Forward` runs the estimators whose names have
these words: each of them alone takes less than four minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
from rvm import seconds_of
from sklearn.datasets import make_friedman1

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

import sparsebayes as sb
from papers.data import load_california

SIZES = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
TEN = np.repeat(np.arange(5), 10)


def friedman(n, seed=0):
    return make_friedman1(n, n_features=10, noise=1.0, random_state=seed)


def labels(n):
    X, y = friedman(n)
    return X, (y > np.median(y)).astype(int)


def groups(n):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(10)  # the same for all n: low noise is searched from two starts
    X = rng.standard_normal((n, 50))
    return X, X[:, :10] @ weights + rng.standard_normal(n)


def group_labels(n):
    X, y = groups(n)
    return X, (y > 0).astype(int)


def system(n):
    rng = np.random.default_rng(0)
    u, y = rng.uniform(-1.0, 1.0, n), np.zeros(n)
    for i in range(2, n):
        y[i] = 0.5 * y[i - 1] - 0.2 * y[i - 2] + u[i - 1] + 0.3 * u[i - 1] * y[i - 1]
    return u, y + 0.05 * rng.standard_normal(n)


ESTIMATORS = {
    "RVMRegressor": (sb.RVMRegressor, friedman),
    "RVMRegressor(rbf, scale)": (lambda: sb.RVMRegressor("rbf", gamma="scale"), friedman),
    "RVMRegressor(fast)": (
        lambda: sb.RVMRegressor("rbf", gamma="scale", algorithm="fast"),
        friedman,
    ),
    "PartitionedRVMRegressor": (sb.PartitionedRVMRegressor, friedman),
    "SparseGPRegressor": (sb.SparseGPRegressor, friedman),
    "ForwardRegressor": (sb.ForwardRegressor, friedman),
    "ForwardRegressor(rbf, scale)": (lambda: sb.ForwardRegressor("rbf", gamma="scale"), friedman),
    "OrthogonalLeastSquaresRegressor": (sb.OrthogonalLeastSquaresRegressor, friedman),
    "BackfittingRegressor": (sb.BackfittingRegressor, friedman),
    "NARXRegressor": (sb.NARXRegressor, system),
    "GroupSpikeSlabRegressor": (lambda: sb.GroupSpikeSlabRegressor(groups=TEN), groups),
    "GroupARDRegressor": (lambda: sb.GroupARDRegressor(groups=TEN), groups),
    "GroupHorseshoeRegressor": (lambda: sb.GroupHorseshoeRegressor(groups=TEN), groups),
    "BayesianGroupLassoRegressor": (lambda: sb.BayesianGroupLassoRegressor(groups=TEN), groups),
    "RVMClassifier": (sb.RVMClassifier, labels),
    "RVMClassifier(rbf, scale)": (lambda: sb.RVMClassifier("rbf", gamma="scale"), labels),
    "PartitionedRVMClassifier": (sb.PartitionedRVMClassifier, labels),
    "BackfittingClassifier": (sb.BackfittingClassifier, labels),
    "GroupSpikeSlabClassifier": (
        lambda: sb.GroupSpikeSlabClassifier(groups=TEN),
        group_labels,
    ),
}


def fit(options):
    head = " ".join(f"{n:>7}" for n in SIZES)
    print(f"\nCPU seconds of a fit\n{'':>32} {head}   n^  worst step")
    for name, (make, data) in ESTIMATORS.items():
        if options.models and not any(word in name for word in options.models):
            continue
        times = []
        for i, n in enumerate(SIZES):
            if times and times[-1] * n / SIZES[i - 1] > options.limit:
                break
            X, y = data(n)
            model = make()
            times.append(seconds_of(lambda m=model, X=X, y=y: m.fit(X, y), 3 if n <= 1000 else 1))
        logs = np.log(SIZES[: len(times)]), np.log(times)
        exponent = np.polyfit(*logs, 1)[0] if len(times) > 1 else np.nan
        steps = np.exp(np.diff(logs[1]) - exponent * np.diff(logs[0]))
        shown = " ".join(f"{t:>7.3g}" for t in times) + " " * (8 * (len(SIZES) - len(times)))
        print(f"{name:>32} {shown} {exponent:>4.1f} {np.max(steps, initial=0.0):>6.1f}", flush=True)


def hundred():
    """A model of 100 functions, and fastrvm with as many, or None where it is not installed."""
    X, y = friedman(3000)
    model = sb.ForwardRegressor("rbf", gamma=0.5, max_terms=100, random_state=0).fit(X, y)
    try:
        from fastrvm import RVR
    except ImportError:
        return model, None
    # fastrvm keeps as many functions as it likes: about 120 here.
    return model, RVR(kernel="rbf", gamma=0.5).fit(X[:1000], y[:1000])


def predict(options):
    model, peer = hundred()
    rows = friedman(100_000, seed=1)[0]
    k = len(model.active_)
    mean = seconds_of(lambda: model.predict(rows), 3)
    both = seconds_of(lambda: model.predict(rows, return_std=True), 3)
    print(f"\npredict of 100,000 rows, {k} functions: mean {mean:.3f} s, with std {both:.3f} s")
    if peer is not None:
        size = len(peer.relevance_vectors_)
        theirs = seconds_of(lambda: peer.predict(rows), 3)
        per_function = theirs * k / size
        print(
            f"fastrvm's means, {size} functions: {theirs:.3f} s; as many functions: ours with std "
            f"{both / per_function:.2f} of that (asked 1.5), mean alone {mean / per_function:.2f}"
        )


def one(options):
    from sklearn.linear_model import BayesianRidge
    from sklearn.svm import SVR

    X, y = friedman(1000)
    row = X[:1]
    models = {
        "RVMRegressor": sb.RVMRegressor("rbf", gamma="scale"),
        "ForwardRegressor": sb.ForwardRegressor("rbf", gamma="scale", random_state=0),
        "ForwardRegressor, sum": sb.ForwardRegressor("sum", max_terms=100, random_state=0),
        "OrthogonalLeastSquares": sb.OrthogonalLeastSquaresRegressor("rbf", gamma="scale"),
        "RVMRegressor, columns": sb.RVMRegressor(kernel=None),
        "BayesianRidge": BayesianRidge(),
        "SVR": SVR(),
    }
    try:
        from fastrvm import RVR

        models["fastrvm"] = RVR(kernel="rbf", gamma=0.1)
    except ImportError:
        pass
    print("\none row, microseconds (the best of 5 means of 200 calls): mean, with std")
    for name, model in models.items():
        model.fit(X, y)
        found = [many(lambda m=model: m.predict(row))]
        if name != "SVR":
            found.append(many(lambda m=model: m.predict(row, return_std=True)))
        print(f"{name:>24} " + " ".join(f"{value:>6.0f}" for value in found), flush=True)


def many(call, calls=200):
    def several():
        for _ in range(calls):
            call()

    return 1e6 * seconds_of(several, 5) / calls


def auto(options):
    new = friedman(5000, seed=1)
    sets = {f"Friedman#1, {n}": (*friedman(n), *new) for n in (300, 1000, 3000, 10_000)}
    try:
        X, y = load_california(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        here, there = order[:10_000], order[-5000:]
        sets["California, 10000"] = X[here], y[here], X[there], y[there]
    except (OSError, ValueError):
        print("California is not there")
    for name, (X, y, X_test, y_test) in sets.items():
        models = {
            "SparseGPRegressor": sb.SparseGPRegressor(),
            "ForwardRegressor": sb.ForwardRegressor(),
        }
        try:
            from catboost import CatBoostRegressor

            models["CatBoost"] = CatBoostRegressor(
                verbose=0, thread_count=1, allow_writing_files=False
            )
        except ImportError:
            pass
        for label, model in models.items():
            seconds = seconds_of(lambda m=model, X=X, y=y: m.fit(X, y))
            rmse = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
            size = f", {len(model.active_)} functions" if hasattr(model, "active_") else ""
            print(f"{name:>17}: {label:>17} {seconds:6.2f} s, RMSE {rmse:.4g}{size}", flush=True)


def imports(options):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def took(code):
        code = f"import time; a = time.process_time(); {code}; print(time.process_time() - a)"
        runs = [
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, check=True, env=env
            ).stdout
            for _ in range(11)
        ]
        return np.median([float(run) for run in runs[1:]])  # the first may have to compile

    theirs = took("from sklearn.gaussian_process import GaussianProcessRegressor")
    print(f"\nimport of scikit-learn's GaussianProcessRegressor: {theirs:.3f} s")
    for name in ("RVMRegressor", "ForwardRegressor", "GroupSpikeSlabRegressor", "RVMClassifier"):
        needed = "from sklearn.base import BaseEstimator; import sklearn.utils.validation"
        beyond = took(f"{needed}; a = time.process_time(); from sparsebayes import {name}")
        print(f"{name:>24}: {beyond:.3f} s beyond sklearn.base (asked .15)")


PARTS = {"fit": fit, "predict": predict, "one": one, "auto": auto, "imports": imports}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--models", nargs="*", default=[], help="words of estimators' names")
    parser.add_argument("--limit", type=float, default=60.0, help="longest fit, about, in seconds")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in options.only:
            PARTS[part](options)
