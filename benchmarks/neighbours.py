"""A sparse model and the neighbours of its residual, beside boosted trees and exact processes.

    OMP_NUM_THREADS=1 python benchmarks/neighbours.py PART [--first N] [--splits N] [--rows N ...]

Parts, each of them within minutes on one core:

    exact        all rows as neighbours against the dense process; none; functions that span all
    tables       RMSE, NLL, coverage, size and time: `--data NAME ...`, with other packages
    widths       what each stage of the width search costs and brings (California)
    number       how many neighbours (California)
    size         a generated table of `--rows`: time of fit and predict, memory, error; smooth and
                 rough parts, 8 inputs. From 10^6 on 200 functions of 600 candidates
    slope        how the error on that table falls with the `--rows` (several), beside the exact
                 process with the kernel that drew the table (plain formulas, the best there is):
                 its slope is that of a line through 2,000, 5,000 and 10^4 rows, log-log
    wave         what none of them finds: a wave in the product of three of eight inputs. Does the
                 exact process of 2,000 rows see it? `--rows`, `--halves`: half waves along an input

The exact process is `max_terms=None`, of up to 2,000 rows. Tables are those of accuracy.py.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import time
import warnings

import numpy as np
from accuracy import REGRESSION, catboost, regression_split
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor

from sparsebayes import SparseGPRegressor

MOST_EXACT = 2000
SMOOTH = np.array([3, 2, 2, 1, 1, 0.5, 0.1, 0.1])  # rates of the two parts of the generated table
ROUGH = np.array([0.1, 0.1, 0.1, 0.3, 0.3, 3, 4, 5])


def rough_and_smooth(n, seed, noise=0.1):
    """A draw of a process on 8 inputs, seven tenths smooth and three tenths rough, and n rows.

    The smooth part has a Gaussian kernel (random cosines). The rough one is a mean of random grids
    with a value in each cell, whose kernel is exp(-sum_j gamma_j |x_j - z_j|); three inputs
    matter to it much, the others little.
    """
    draw, rng = np.random.default_rng(0), np.random.default_rng(seed + 1)
    X = rng.uniform(0, 1, (n, 8))
    waves = draw.standard_normal((8, 500)) * SMOOTH[:, None]
    phase, rate = draw.uniform(0, 2 * np.pi, 500), ROUGH
    f = np.zeros(n)
    for some in np.array_split(np.arange(n), 1 + n // 10_000):
        f[some] = np.sqrt(0.7 * 2 / 500) * np.cos(X[some] @ waves + phase).sum(axis=1)
    for _ in range(100):
        pitch = draw.gamma(2.0, 1.0 / rate)
        cells = np.floor((X - draw.uniform(0, 1, 8) * pitch) / pitch).astype(np.int64)
        values = draw.standard_normal(4099)
        f += np.sqrt(0.3 / 100) * values[(cells @ draw.integers(1, 2**40, 8)) % 4099]
    return X, f + noise * rng.standard_normal(n), f


def scored(name, fit, X, y, new, truth):
    """One line: a model on new rows."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit()
        model.fit(X, y)
    fitted = time.process_time() - started
    started = time.process_time()
    row = {"RMSE": np.sqrt(np.mean((model.predict(new) - truth) ** 2))}
    row["ms/row"] = 1e3 * (time.process_time() - started) / len(new)
    try:
        ends = model.predict_interval(new)
        row["NLL"] = -np.mean(model._predictive(new).log_density(truth))
        row["in 95 %"] = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    except AttributeError:  # no distribution: that of its own test error, which flatters it
        row["NLL"] = -np.mean(norm.logpdf(truth, model.predict(new), row["RMSE"]))
        row["in 95 %"] = np.nan
    row["fit s"] = fitted
    row["functions"] = len(getattr(model, "active_", ()))
    row["neighbours"] = getattr(model, "neighbours_", 0)
    row["MB"] = len(pickle.dumps(model)) / 1e6
    return model, row


def show(name, rows):
    """Mean over splits."""
    mean = {key: np.mean([row[key] for row in rows]) for key in rows[0]}
    print(
        f"{name:28s}" + "".join(f" {key} {value:<10.5g}" for key, value in mean.items()),
        flush=True,
    )
    return mean


def tables(names, first, splits, methods):
    for name in names:
        n_splits = min(splits or REGRESSION[name][1], REGRESSION[name][1])
        found = {}
        for seed in range(first, first + n_splits):
            X, y, new, truth = regression_split(name, seed)
            models = {
                "functions alone": SparseGPRegressor,
                "32 neighbours": lambda: SparseGPRegressor(neighbours=32),
                "64 neighbours": lambda: SparseGPRegressor(neighbours=64),
                "neighbours='auto'": lambda: SparseGPRegressor(neighbours="auto"),
                "64, noise by the inputs": lambda: SparseGPRegressor(
                    neighbours=64, noise_variance="input"
                ),
                "boosted trees": lambda: HistGradientBoostingRegressor(random_state=0),
                "CatBoost": lambda: catboost("Regressor"),
            }
            if len(X) <= MOST_EXACT:
                models["exact process, sum"] = lambda: SparseGPRegressor("sum", max_terms=None)
            for method, make in models.items():
                if methods and method not in methods:
                    continue
                try:
                    _, row = scored(method, make, X, y, new, truth)
                except ImportError:
                    continue
                found.setdefault(method, []).append(row)
        print(f"\n{name}: {len(X)} rows to fit, {n_splits} splits")
        for method, rows in found.items():
            show(method, rows)
            if method != "functions alone" and len(rows) > 1 and "functions alone" in found:
                pairs = zip(rows, found["functions alone"], strict=True)
                more = [row["NLL"] - alone["NLL"] for row, alone in pairs]
                error = np.std(more, ddof=1) / np.sqrt(len(more))
                print(f"    NLL over functions alone {np.mean(more):+.4f} +- {error:.4f}")


def exact():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 3))
    y = np.sin(2 * X[:, 0]) + np.floor(X[:, 1]) + 0.2 * rng.standard_normal(400)
    new = rng.uniform(-2, 2, (200, 3))
    known = {"kernel": "sum", "gamma": np.array([[0.1] * 3, [0.3] * 3])}
    dense = SparseGPRegressor(**known, max_terms=None).fit(X, y)
    truth = dense.predict(new, return_std=True)

    def gap(model):
        found = model.fit(X, y).predict(new, return_std=True)
        return [float(np.max(np.abs(a - b) / np.std(y))) for a, b in zip(found, truth, strict=True)]

    print("largest gap of mean and std to the dense process, in sd of y")
    for m in (8, 32, 128, 400):
        few = SparseGPRegressor(**known, max_terms=20, neighbours=m)
        print(f"  20 functions, {m:3d} neighbours: {gap(few)[0]:.1e} {gap(few)[1]:.1e}")
    mean, std = gap(SparseGPRegressor(**known, max_terms=20))
    print(f"  20 functions, none: {mean:.1e} {std:.1e}")
    smooth = {"kernel": "rbf", "gamma": 0.02, "max_terms": 150}
    near = SparseGPRegressor(**smooth, neighbours=16).fit(X, y).predict(new)
    whole = SparseGPRegressor("rbf", gamma=0.02, max_terms=None).fit(X, y).predict(new)
    print(f"functions that span a smooth process: {np.max(np.abs(near - whole)) / np.std(y):.1e}")


def widths():
    from sparsebayes.kernels import widths as module

    X, y, new, truth = regression_split("california", 0)
    whole = module._PROCESS
    for name, stages in (("none", None), ("1,000", whole[:1] * 2), ("1,000 and 2,500", whole)):
        if stages is not None:
            module._PROCESS = (stages[0], stages[1] if stages is whole else stages[0])
        started = time.process_time()
        found = module.learn_widths(X, y, family="auto", ard=True, process=stages is not None)
        took = time.process_time() - started
        module._PROCESS = whole
        # The share of a sum is one half where its widths are given.
        model = SparseGPRegressor(found.family, gamma=found.gamma, neighbours=64).fit(X, y)
        error = np.sqrt(np.mean((model.predict(new) - truth) ** 2))
        print(f"exact stages {name:16s} {found.family} RMSE {error:.0f}, search {took:.1f} s")


def number():
    X, y, new, truth = regression_split("california", 0)
    first = SparseGPRegressor(neighbours=16).fit(X, y)
    for m in (4, 16, 32, 64, 128):
        model = SparseGPRegressor(first.kernel_, gamma=first.gamma_, neighbours=m)
        show(f"{m} neighbours", [scored("", lambda model=model: model, X, y, new, truth)[1]])


def near(n):
    """The model of 64 neighbours.

    More than 10^5 rows: fewer candidates, whose products over all rows are what takes time.
    """
    settings = {"candidates": 600, "max_terms": 200} if n > 10**5 else {}
    return SparseGPRegressor(neighbours=64, **settings)


def with_the_true_kernel(X, y, new, noise=0.1):
    """Mean of the exact process with the kernel that drew `rough_and_smooth`."""

    def kernel(A, B):
        K = 0.7 * np.exp(-0.5 * cdist(A * SMOOTH, B * SMOOTH, "sqeuclidean"))
        K += 0.3 * np.exp(-cdist(A * ROUGH, B * ROUGH, "cityblock"))
        return K

    K = kernel(X, X)
    K[np.diag_indices_from(K)] += noise**2
    return kernel(new, X) @ cho_solve(cho_factor(K, lower=True, overwrite_a=True), y)


def slope(sizes):
    """Errors, and how many powers of n they fall by, over those of the exact process."""
    new, _, f = rough_and_smooth(4000, 1)

    def error(mean):
        return np.sqrt(np.mean((mean - f) ** 2))

    exact = {}
    for n in (2000, 5000, 10_000):
        X, y, _ = rough_and_smooth(n, 0)
        exact[n] = error(with_the_true_kernel(X, y, new))
        print(f"{n:8d} rows, exact process      error {exact[n]:.4f}", flush=True)
    fall, level = np.polyfit(np.log(list(exact)), np.log(list(exact.values())), 1)
    print(f"exact process: n^{fall:.3f}")
    before = None
    for n in sizes:
        X, y, _ = rough_and_smooth(n, 0)
        ours = error(near(n).fit(X, y).predict(new))
        line = f"{n:8d} rows, 64 neighbours      error {ours:.4f}"
        line += f", of the exact process {ours / np.exp(level + fall * np.log(n)):.3f}"
        line += "" if n in exact else " (extrapolated)"
        if before is not None:
            falls = np.log(ours / before[1]) / np.log(n / before[0])
            line += f"; n^{falls:.3f} since {before[0]}: {falls / fall:.2f} of its slope"
        print(line, flush=True)
        before = n, ours


def wave(n, halves):
    """Errors on a function of which a wave is a part, and which inputs a model finds relevant."""

    def draw(n, seed):
        rng = np.random.default_rng(seed)
        X = rng.uniform(0, 1, (n, 8))
        waves = np.sqrt(2) * np.prod(np.sin(halves * np.pi * X[:, :3]), axis=1)
        f = np.sin(3 * X[:, 3]) + X[:, 4] ** 2 + 0.3 * (X[:, 5] > 0.5) + waves
        return X, f + 0.1 * rng.standard_normal(n), f, np.std(waves)

    new, _, f, spread = draw(3000, 99)
    X, y, _, _ = draw(n, n)
    models = {"64 neighbours": SparseGPRegressor(neighbours=64)}
    if n <= MOST_EXACT:
        models["exact process"] = SparseGPRegressor("sum", max_terms=None)
    models["boosted trees"] = HistGradientBoostingRegressor(random_state=0, max_iter=500)
    for name, model in models.items():
        error = np.sqrt(np.mean((model.fit(X, y).predict(new) - f) ** 2))
        seen = np.round(getattr(model, "feature_relevance_", []), 2)
        print(f"{n} rows, wave of sd {spread:.2f}, {name}: error {error:.3f}, relevance {seen}")


def size(n):
    X, y, _ = rough_and_smooth(n, 0)
    new, observed, f = rough_and_smooth(4000, 1)
    model, row = scored("", lambda: near(n), X, y, new, f)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    mean, std = model.predict(new, return_std=True)
    inside = np.mean(np.abs(observed - mean) < 1.96 * std)
    row["in 95 %"], row["NLL"] = inside, -np.mean(norm.logpdf(observed, mean, std))
    show(f"{n} rows, peak {peak:.2f} GB", [row])
    if n <= MOST_EXACT:
        _, row = scored("", lambda: SparseGPRegressor("sum", max_terms=None), X, y, new, f)
        show("  exact process", [row])
    if n <= 10**5:
        trees = HistGradientBoostingRegressor(random_state=0, max_iter=500).fit(X, y)
        print(f"  boosted trees of 500: RMSE {np.sqrt(np.mean((trees.predict(new) - f) ** 2)):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "part", choices=["exact", "tables", "widths", "number", "size", "slope", "wave"]
    )
    parser.add_argument("--data", nargs="*", default=list(REGRESSION))
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--first", type=int, default=0, help="the first split")
    parser.add_argument("--splits", type=int, default=0)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000])
    parser.add_argument("--halves", type=int, default=4)
    options = parser.parse_args()
    if options.part == "tables":
        tables(options.data, options.first, options.splits, options.methods)
    elif options.part == "size":
        for n in options.rows:
            size(n)
    elif options.part == "wave":
        for n in options.rows:
            wave(n, options.halves)
    elif options.part == "slope":
        slope(options.rows)
    else:
        {"exact": exact, "widths": widths, "number": number}[options.part]()


if __name__ == "__main__":
    main()
