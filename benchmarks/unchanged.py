"""Does a change of the code leave the numbers alone? About ninety fits over all estimators.

    python benchmarks/unchanged.py record before.npz    # before the change
    python benchmarks/unchanged.py compare before.npz   # after it

Each fit leaves its predictions, standard deviations, evidence, active set, number of steps and the
processor time that it took. `compare` prints every fit whose predictions, std or evidence differ by
more than 1e-9 relative, or whose active set or number of steps differs, and the ratio of the total
times; it exits with 1 if anything but a time differs. No numbers are kept in the repository: record
them with the code that you are about to change, on the same machine.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_friedman1
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests is beside this folder

import sparsebayes as sb
from tests import registry

TOLERANCE = 1e-9
Fit = Callable[[], tuple[Any, np.ndarray]]  # a fitted model, and rows to predict


def _friedman(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_friedman1(n + 50, noise=1.0, random_state=seed)
    return X, y


def regression(make: Callable[[], Any], n: int = 200, **options: Any) -> Fit:
    """A model of Friedman's first function; `weights`, `float32`, `outputs`, `dask` vary it."""

    def fit() -> tuple[Any, np.ndarray]:
        X, y = _friedman(n)
        weight = None
        if options.get("weights"):
            weight = np.random.default_rng(0).integers(0, 4, n).astype(float)
        if options.get("float32"):
            X = X.astype(np.float32)
        if options.get("outputs"):
            y = np.column_stack([y, np.cos(y)])
        rows, target = X[:n], y[:n]
        if options.get("blocks"):
            rows = [rows[i : i + 64] for i in range(0, n, 64)]
        if options.get("dask"):
            import dask.array as da

            rows, target = da.from_array(rows, chunks=(64, -1)), da.from_array(target, chunks=64)
        if options.get("scale"):
            target = target * options["scale"]
        model = make()
        model = model.fit(rows, target) if weight is None else model.fit(rows, target, weight)
        return model, X[n:]

    return fit


def classes(make: Callable[[], Any], data: Any = load_breast_cancer, step: int = 2) -> Fit:
    """A classifier of standardised rows of one of scikit-learn's sets."""

    def fit() -> tuple[Any, np.ndarray]:
        X, y = data(return_X_y=True)
        X = StandardScaler().fit_transform(X)
        return make().fit(X[::step], y[::step]), X[1::step]

    return fit


def groups(make: Callable[[], Any], labels: bool = False, n: int = 60) -> Fit:
    """Twenty groups of four columns, three of them active."""

    def fit() -> tuple[Any, np.ndarray]:
        rng = np.random.default_rng(1)
        X = rng.standard_normal((n + 20, 80))
        w = np.zeros(80)
        w[[0, 1, 2, 3, 20, 21, 40, 41, 42, 43]] = rng.standard_normal(10)
        y = X @ w + 0.3 * rng.standard_normal(n + 20)
        y = (y > 0).astype(int) if labels else y
        return make().fit(X[:n], y[:n]), X[n:]

    return fit


def cases() -> dict[str, Fit]:
    """Every fit by name."""
    RVM, Forward, OLS = (
        sb.RVMRegressor,
        sb.ForwardRegressor,
        sb.OrthogonalLeastSquaresRegressor,
    )
    Partitioned, Backfitting = sb.PartitionedRVMRegressor, sb.BackfittingRegressor
    four = np.repeat(np.arange(20), 4)
    fits: dict[str, Fit] = {}
    for algorithm in ("auto", "fast", "em"):
        fits[f"rvm {algorithm}"] = regression(lambda a=algorithm: RVM(gamma=0.3, algorithm=a))
        fits[f"rvm {algorithm} columns"] = regression(
            lambda a=algorithm: RVM(kernel=None, algorithm=a, fit_intercept=False)
        )
    fits["rvm auto large"] = regression(lambda: RVM(gamma=0.3), n=3200)
    fits["rvm weights"] = regression(lambda: RVM(gamma=0.3), weights=True)
    fits["rvm heal"] = regression(lambda: RVM(gamma=0.3, heal=True))
    fits["rvm outputs"] = regression(lambda: RVM(gamma=0.3), outputs=True)
    fits["rvm float32"] = regression(lambda: RVM(gamma=0.3), float32=True)
    fits["rvm ard"] = regression(lambda: RVM(gamma="ard"))
    fits["rvm family"] = regression(lambda: RVM(kernel="auto", gamma="evidence"))
    fits["rvm matern"] = regression(lambda: RVM(kernel="matern32", gamma="median"))
    fits["rvm polynomial"] = regression(lambda: RVM(kernel="poly", degree=2, coef0=1.0))
    fits["rvm noise given"] = regression(lambda: RVM(gamma=0.3, noise_variance=1.0))
    fits["rvm scaled"] = regression(lambda: RVM(gamma=0.3), scale=1e-5)
    fits["forward"] = regression(lambda: Forward(gamma=0.3))
    fits["forward auto ard"] = regression(lambda: Forward(kernel="auto", gamma="ard"), n=400)
    fits["forward plain"] = regression(lambda: Forward(gamma=0.3, refit=None, max_terms=40))
    fits["gp"] = regression(lambda: sb.SparseGPRegressor("rbf", gamma=0.3))
    fits["gp neighbours"] = regression(
        lambda: sb.SparseGPRegressor("rbf", gamma=0.3, max_terms=40, neighbours=16)
    )
    fits["forward rank"] = regression(lambda: Forward(gamma=0.3, rank=60, max_terms=40))
    fits["forward pivots"] = regression(lambda: Forward(gamma=0.3, candidates="pivots"))
    fits["forward large"] = regression(
        lambda: Forward(gamma=0.3, max_terms=80, random_state=0), n=6000
    )
    fits["forward blocks"] = regression(lambda: Forward(gamma=0.3, max_terms=40), blocks=True)
    fits["forward dask"] = regression(lambda: Forward(gamma=0.3, max_terms=40), dask=True)
    fits["forward weights"] = regression(lambda: Forward(gamma=0.3), weights=True)
    fits["forward columns"] = regression(lambda: Forward(kernel=None))
    fits["forward validation"] = regression(
        lambda: Forward(gamma=0.3, early_stopping="validation", random_state=0)
    )
    fits["forward float32"] = regression(lambda: Forward(gamma=0.3), float32=True)
    fits["forward given"] = regression(
        lambda: Forward(gamma=0.3, noise_variance=1.0, regularization=1e-2)
    )
    for kind in ("local", "uniform", "none"):
        fits[f"ols {kind}"] = regression(lambda k=kind: OLS(gamma=0.3, regularization=k))
    fits["ols press"] = regression(lambda: OLS(kernel=None, criterion="press"))
    fits["ols d-optimality"] = regression(lambda: OLS(gamma=0.3, criterion="d-optimality"))
    fits["ols weights"] = regression(lambda: OLS(gamma=0.3), weights=True)
    for schedule in ("split-merge", "incremental", "working-set"):
        fits[f"partitioned {schedule}"] = regression(
            lambda s=schedule: Partitioned(gamma=0.3, schedule=s), n=600
        )
    fits["partitioned dask"] = regression(
        lambda: Partitioned(gamma=0.3, schedule="split-merge"), n=600, dask=True
    )
    fits["partitioned ard"] = regression(lambda: Partitioned(gamma="ard"), n=600)
    fits["backfitting columns"] = regression(lambda: Backfitting())
    fits["backfitting kernel"] = regression(lambda: Backfitting(kernel="rbf", gamma=0.3))
    fits["backfitting factorised"] = regression(lambda: Backfitting(variance="factorised"))
    fits["backfitting ridge"] = regression(lambda: Backfitting(prior="ridge"))
    fits["backfitting fake targets"] = regression(lambda: Backfitting(variant="fake-targets"))
    fits["backfitting weights"] = regression(lambda: Backfitting(), weights=True)
    fits["groups"] = groups(lambda: sb.GroupSpikeSlabRegressor(groups=four))
    fits["groups columns"] = groups(lambda: sb.GroupSpikeSlabRegressor(groups=four, sites="column"))
    fits["groups tall"] = groups(lambda: sb.GroupSpikeSlabRegressor(groups=four), n=200)
    fits["groups gibbs"] = groups(
        lambda: sb.GroupSpikeSlabRegressor(
            groups=four, inference="gibbs", n_samples=200, n_warmup=50
        )
    )
    fits["groups ard"] = groups(lambda: sb.GroupARDRegressor(groups=four))
    fits["groups horseshoe"] = groups(
        lambda: sb.GroupHorseshoeRegressor(groups=four, n_samples=200, n_warmup=50)
    )
    fits["groups lasso"] = groups(
        lambda: sb.BayesianGroupLassoRegressor(groups=four, n_samples=200, n_warmup=50)
    )
    fits["groups labels"] = groups(
        lambda: sb.GroupSpikeSlabClassifier(groups=four), labels=True, n=120
    )
    for algorithm in ("auto", "fast", "em"):
        fits[f"classes {algorithm}"] = classes(
            lambda a=algorithm: sb.RVMClassifier("rbf", gamma=0.03, algorithm=a)
        )
    fits["classes three"] = classes(lambda: sb.RVMClassifier("rbf", gamma=0.3), load_iris)
    fits["classes heal"] = classes(lambda: sb.RVMClassifier("rbf", gamma=0.3, heal=True), load_iris)
    fits["classes ard"] = classes(lambda: sb.RVMClassifier("rbf", gamma="ard"), load_iris)
    fits["classes columns"] = classes(lambda: sb.RVMClassifier(kernel=None))
    fits["classes partitioned"] = classes(lambda: sb.PartitionedRVMClassifier("rbf", gamma=0.03))
    fits["classes backfitting"] = classes(lambda: sb.BackfittingClassifier())
    fits["target transform"] = regression(
        lambda: sb.SparseTargetTransform(Forward(gamma=0.3)), n=200
    )
    makers = {registry.REGRESSION: regression, registry.CLASSIFICATION: classes}
    for entry in registry.ENTRIES:
        if maker := makers.get(entry.data):
            for i, model in enumerate(entry.typical):
                fits[f"typical {entry.name} {i}"] = maker(lambda m=model: clone(m))
    return fits


def numbers(model: Any, rows: np.ndarray, seconds: float) -> dict[str, np.ndarray]:
    """What is compared of a fitted model."""
    if hasattr(model, "predict_proba"):
        found = {"mean": model.predict_proba(rows), "std": np.zeros(0)}
    else:
        mean, std = model.predict(rows, return_std=True)
        found = {"mean": mean, "std": std}
    inner = getattr(model, "regressor_", model)
    found["evidence"] = np.atleast_1d(getattr(inner, "log_evidence_", np.nan))
    found["active"] = np.asarray(getattr(inner, "active_", np.zeros(0, dtype=int)))
    found["steps"] = np.atleast_1d(getattr(inner, "n_iter_", 0))
    return {**found, "seconds": np.atleast_1d(seconds)}


def run(only: list[str]) -> dict[str, np.ndarray]:
    """All numbers of all fits, by "fit/number"."""
    results = {}
    for name, fit in cases().items():
        if only and not any(word in name for word in only):
            continue
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, rows = fit()
            found = numbers(model, rows, time.process_time() - start)
        print(f"{name:28s} {found['seconds'][0]:7.2f} s", flush=True)
        results.update({f"{name}/{key}": value for key, value in found.items()})
    return results


def difference(old: np.ndarray, new: np.ndarray) -> float:
    """The largest difference over the largest magnitude; infinite where shapes or NaN differ."""
    if old.shape != new.shape or np.any(np.isnan(old) != np.isnan(new)):
        return np.inf
    old, new = np.nan_to_num(old), np.nan_to_num(new)
    size = np.max(np.abs(old), initial=0.0)
    return float(np.max(np.abs(old - new), initial=0.0) / (size if size > 0 else 1.0))


def compare(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> int:
    """Print what differs; 1 if anything but a time does."""
    differing = 0
    for key in after:
        if key.endswith("/seconds") or key not in before:
            continue
        exact = key.endswith(("/active", "/steps"))
        gap = difference(before[key].astype(float), after[key].astype(float))
        if gap > (0.0 if exact else TOLERANCE):
            differing += 1
            change = ""
            if key.endswith("/evidence"):
                change = f": {before[key].sum():.6f} -> {after[key].sum():.6f}"
            print(f"differs by {gap:.2e}: {key}{change}")
    shared = [key for key in after if key.endswith("/seconds") and key in before]
    old, new = (sum(float(part[key][0]) for key in shared) for part in (before, after))
    print(f"{differing} of {len(after)} numbers differ; time {new:.1f} s, was {old:.1f} s")
    return int(differing > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", help="where the numbers of the code before are")
    parser.add_argument("--only", nargs="*", default=[], help="words that a fit's name must have")
    options = parser.parse_args()
    results = run(options.only)
    if options.action == "record":
        np.savez(options.file, **results)
        return 0
    with np.load(options.file) as before:
        return compare(dict(before), results)


if __name__ == "__main__":
    sys.exit(main())
