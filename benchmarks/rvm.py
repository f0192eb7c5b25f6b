"""Optima, speed and memory of RVMRegressor compared with fastrvm and scikit-learn.

    OMP_NUM_THREADS=1 python benchmarks/rvm.py [--quick] [--only PART ...]

Parts: optima, speed, optimality, warm, predict, many.

Friedman#1 is drawn from seeds 1000 to 1009. Ten draws of 240 rows have a mean evidence that differs
by 5 nats (sd) from that of another ten: figures are to be compared on the same draws.

Gaussian kernel, gamma = 1/(2 median^2), inputs and target standardised, no intercept, the same
splits for all, one thread. `fastrvm` (C++, `pip install sparsebayes[bench]`) is the fastest peer.
In the second table every method runs in a process of its own: CPU seconds of the fit (the best of
three up to n = 5000) and peak resident memory; "x" is the time over that of fastrvm in the same
run. Then: what the best single addition to the default model would gain, by n x n arrays; a refit
on a tenth more rows from the last model beside one from scratch; the speed of prediction; and fits
with hundreds of relevant functions: steps in two and three inputs under a rough kernel, and the
reach of an arm of eight joints, which is smooth and has hardly any noise.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

from papers.data import load_boston, load_california
from sparsebayes import RVMRegressor
from sparsebayes.kernels import StationaryKernel, resolve_gamma
from sparsebayes.metrics import coverage, negative_log_density
from sparsebayes.solvers.rvm.one_column import optimal_lam

MODELS = ("fastrvm", "auto", "auto, 1 start", "svr", "gp", "nystroem")


def standardised(X, y, train, test):
    m, s, c, d = X[train].mean(0), X[train].std(0), y[train].mean(), y[train].std()
    return (X[train] - m) / s, (y[train] - c) / d, (X[test] - m) / s, y[test], c, d


def friedman(seed, n=240):
    X, y = make_friedman1(n + 1000, noise=1.0, random_state=1000 + seed)
    return standardised(X, y, np.arange(n), np.arange(n, n + 1000))


def boston(seed, n=481):
    X, y = load_boston(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return standardised(X, y, order[:n], order[n:])


def california(seed, n):
    X, y = load_california(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return standardised(X, y, order[:n], order[-5000:])


def make(name, gamma):
    if name == "fastrvm":
        from fastrvm import RVR

        return RVR(kernel="rbf", gamma=float(gamma), fit_intercept=False)
    if name.startswith("auto"):
        return RVMRegressor(
            "rbf", gamma=gamma, fit_intercept=False, n_starts=1 if "1" in name else 3
        )
    if name == "svr":
        from sklearn.svm import SVR

        return SVR(gamma=gamma)
    if name == "gp":
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, WhiteKernel

        scale = float(np.sqrt(0.5 / gamma))
        return GaussianProcessRegressor(
            1.0 * RBF(scale, length_scale_bounds="fixed") + WhiteKernel(0.1)
        )
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline

    return make_pipeline(Nystroem(gamma=gamma, n_components=300, random_state=0), BayesianRidge())


def evidence(model, n):
    """Log evidence in nats; fastrvm's own figure lacks the constant."""
    if hasattr(model, "log_evidence_"):
        return model.log_evidence_
    scores = getattr(model, "scores_", None)
    return float("nan") if scores is None else float(scores[-1]) - 0.5 * n * np.log(2 * np.pi)


def vectors(model):
    for attribute in ("active_", "relevance_vectors_", "support_", "X_train_"):
        if hasattr(model, attribute):
            return len(getattr(model, attribute))
    return model[0].n_components


def seconds_of(call, repeats=1):
    """CPU seconds of a call, the best of several."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def measure(name, case, seed, n, repeats=1):
    """One fit: what the tables show."""
    X, y, X_test, y_test, centre, scale = case(seed, n)
    gamma = resolve_gamma("median", X)
    model = make(name, gamma)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = seconds_of(lambda: model.fit(X, y), repeats)
        try:
            mean, std = model.predict(X_test, return_std=True)
        except TypeError:
            mean, std = model.predict(X_test), None
    mean = centre + scale * mean
    nll = cover = float("nan")
    if std is not None:
        nll = negative_log_density(y_test, mean, scale * std)
        cover = coverage(y_test, mean, scale * std)
    return {
        "evidence": float(evidence(model, len(y))),
        "vectors": int(vectors(model)),
        "rmse": float(np.sqrt(np.mean((mean - y_test) ** 2))),
        "nll": nll,
        "cover": cover,
        "seconds": seconds,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


CASES = {"friedman": friedman, "boston": boston, "california": california}
HEAD = f"{'':>14} {'evidence':>9} {'vectors':>7} {'RMSE':>8} {'NLL':>7} {'cover':>6} {'CPU s':>7}"


def line(name, rows):
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    return (
        f"{name:>14} {mean['evidence']:>9.1f} {mean['vectors']:>7.1f} {mean['rmse']:>8.4g} "
        f"{mean['nll']:>7.3f} {mean['cover']:>6.3f} {mean['seconds']:>7.3f}"
    )


def optima(quick):
    for case, n in (("friedman", 240), ("boston", 481)):
        seeds = range(3 if quick else 10)
        results = {name: [measure(name, CASES[case], seed, n) for seed in seeds] for name in MODELS}
        print(f"\n{case}, n = {n}, {len(seeds)} seeds\n{HEAD}")
        for name, rows in results.items():
            print(line(name, rows))
        ours, theirs = (
            np.array([row["evidence"] for row in results[name]]) for name in ("auto", "fastrvm")
        )
        print(
            f"auto above fastrvm in {np.sum(ours > theirs)} of {len(ours)} fits, worst "
            f"{np.min(ours - theirs):+.1f} nats",
            flush=True,
        )


def speed(quick):
    sizes = (("boston", 481), ("california", 2500), ("california", 5000), ("california", 10_000))
    for case, n in sizes[:2] if quick else sizes:
        print(f"\n{case}, n = {n}, one split, a process each\n{HEAD}      x     MB")
        peer = None
        for name in MODELS:
            if name == "gp" and n > 2500:
                continue
            command = [sys.executable, __file__, "--one", name, case, str(n)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row = json.loads(done.stdout)
            peer = peer or row["seconds"]
            ratio = f"{row['seconds'] / peer:>6.3f} {row['megabytes']:>6.0f}"
            print(f"{line(name, [row])} {ratio}", flush=True)


def optimality(quick):
    """Additions looked at with n x n arrays and no solver code but the gain of one column."""
    print("\nthe best single addition to the default model, by n x n arrays")
    for case, n in (("friedman", 240), ("boston", 481), ("california", 1000), ("california", 3000)):
        if quick and n > 500:
            continue
        X, y, *_ = CASES[case](0, n)
        gamma = resolve_gamma("median", X)
        model = RVMRegressor("rbf", gamma=gamma, fit_intercept=False).fit(X, y)
        Phi = StationaryKernel("rbf", gamma).bind(X)(X)
        A = Phi[:, model.active_]
        lam = model.weight_precision_ * model.noise_variance_
        P = np.linalg.inv(np.eye(n) + (A / lam) @ A.T)
        S, Q, E = np.einsum("ij,ij->j", Phi, P @ Phi), Phi @ (P @ y), y @ P @ y
        _, gains = optimal_lam(S, Q, np.sum(Phi**2, axis=0), E, n, None)
        gains[model.active_] = 0.0
        evidence = -0.5 * (n * (np.log(2 * np.pi * E / n) + 1) - np.linalg.slogdet(P)[1])
        print(
            f"{case:>11} n = {n:>4}: {gains.max():.4f} nats, converged {model.converged_}, "
            f"reported evidence less the dense one {model.log_evidence_ - evidence:+.1e}",
            flush=True,
        )


def warm(quick):
    n = 1000 if quick else 4000
    X, y, *_ = california(0, n)
    old = n * 10 // 11
    again = RVMRegressor("rbf", gamma=resolve_gamma("median", X), warm_start=True)
    again.fit(X[:old], y[:old])
    cold = RVMRegressor("rbf", gamma=again.gamma_)
    seconds = [seconds_of(lambda m=m: m.fit(X, y)) for m in (again, cold)]
    print(
        f"\nrefit on {n} rows after {old}: {seconds[0]:.2f} s, {seconds[0] / seconds[1]:.2f} times "
        f"from scratch; evidence {again.log_evidence_:.1f} and {cold.log_evidence_:.1f}"
    )


def predict(quick):
    X, y, *_ = friedman(0, 2000)
    gamma = resolve_gamma("median", X)
    model = RVMRegressor("rbf", gamma=gamma).fit(X, y)
    rows = np.random.default_rng(0).standard_normal((10_000 if quick else 100_000, X.shape[1]))
    kernel = StationaryKernel("rbf", gamma).bind(model.relevance_vectors_)

    def product():
        step = 2**18 // len(model.active_)
        return [kernel(rows[i : i + step]) @ model.coef_ for i in range(0, len(rows), step)]

    limit, ours = seconds_of(product, 5), seconds_of(lambda: model.predict(rows), 5)
    print(
        f"\npredicting {len(rows)} rows with {len(model.active_)} functions: {ours:.4f} s, "
        f"{ours / limit:.2f} times one kernel product in blocks"
    )


def steps(n, d, noise):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.0, 1.0, (n, d)), np.zeros(n)
    for _ in range(60):
        inputs, cuts = rng.integers(d, size=2), rng.uniform(0.0, 1.0, 2)
        y += rng.standard_normal() * np.all(X[:, inputs] > cuts, axis=1)
    return X, y / y.std() + noise * rng.standard_normal(n)


def arm(n, noise):
    rng = np.random.default_rng(0)
    joints = rng.uniform(-np.pi / 2, np.pi / 2, (n, 8))
    angles, lengths = np.cumsum(joints, axis=1), np.linspace(1.0, 0.3, 8)
    y = np.hypot(np.cos(angles) @ lengths - 0.5, np.sin(angles) @ lengths - 0.3)
    return joints, y + noise * y.std() * rng.standard_normal(n)


def many(quick):
    n = 2500 if quick else 10_000
    print(f"\nmany relevant functions, {n} rows: functions, evidence, CPU seconds, how it ended")
    for name, (X, y), kernel, gamma in (
        ("steps, 3 inputs", steps(n, 3, 0.1), "matern12", 20.0),
        ("steps, 2 inputs", steps(n, 2, 0.03), "matern12", 20.0),
        ("arm, 5 % noise", arm(n, 0.05), "rbf", 0.1),
        ("arm, .1 % noise", arm(n, 0.001), "rbf", 0.1),
    ):
        model = RVMRegressor(kernel, gamma=gamma)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = seconds_of(lambda m=model, X=X, y=y: m.fit(X, y))
        print(
            f"  {name:16s} {len(model.active_):5d} {model.log_evidence_:10.1f} {seconds:6.1f} "
            f"{model.stop_reason_}",
            flush=True,
        )


PARTS = {
    "optima": optima,
    "speed": speed,
    "optimality": optimality,
    "warm": warm,
    "predict": predict,
    "many": many,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 seeds, n <= 2500")
    parser.add_argument("--only", nargs="*", default=list(PARTS))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, case, n = options.one
        repeats = 1 if int(n) > 5000 or name == "gp" else 3
        print(json.dumps(measure(name, CASES[case], 0, int(n), repeats)))
    else:
        for part in options.only:
            PARTS[part](options.quick)
