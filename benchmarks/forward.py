"""Forward selection: speed against the limits of the machine, evidence lost, and accuracy.

    python benchmarks/forward.py [--quick] [--only NAME ...]

gram        the streamed Gram matrix at n = 100,000, m = 2000, d = 8, over the time that its
            multiplications (at the speed of a plain product) and exponentials alone would take
exact       seconds per term over all 10,000 candidates of 10,000 rows, over one read of them at
            the bandwidth of a dot product
scaling     whole fits from 10^4 to 10^6 rows, and the exponent of n
million     10^6 rows, 2000 candidates, 500 terms: seconds and peak memory (run it alone)
evidence    what each approximation loses of the exact greedy gain at n = 10,000
california  NMSE and seconds beside SVR, an exact GP, Nystroem + BayesianRidge and the RVM
friedman    240 rows, widths learnt
terms       how many functions: 300, 1,000, "auto" and all (the process itself, up to 2,000 rows),
            California with a rough kernel of learnt widths

Table 1 and Figure 1 of the paper: `python3 dev.py papers forward`. Each speed here is a ratio to a
limit measured in the same run. With OMP_NUM_THREADS=1 seconds are CPU seconds of one core, which a
busy machine does not spoil; otherwise those of the wall clock.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from scipy.linalg.blas import dsyrk
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

from papers.data import load_california
from sparsebayes.designs import CentredDesign, KernelDesign
from sparsebayes.estimators import ForwardRegressor, RVMRegressor, SparseGPRegressor
from sparsebayes.kernels import StationaryKernel
from sparsebayes.linalg import pivoted_cholesky
from sparsebayes.solvers import Forward, run
from sparsebayes.solvers.forward.routes import columns_route, gram_route, low_rank_route

ONE_CORE = os.environ.get("OMP_NUM_THREADS") == "1"
now = time.process_time if ONE_CORE else time.perf_counter


def clock(function):
    start = now()
    out = function()
    return now() - start, out


def best_of(function, repeats):
    return min(clock(function)[0] for _ in range(repeats))


def wavy(n, d=8, seed=0, noise=0.45):
    """A function of eight inputs with more structure than 500 kernel functions can hold."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    f = np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(X[:, 2] + X[:, 3]) + 0.5 * np.tanh(X[:, 4] * X[:, 5])
    return X, f + noise * rng.standard_normal(n), f


# Limits.


def product_speed(m, rows=2048):
    """Multiplications and additions per second of a symmetric product (n m^2 for n rows)."""
    A = np.random.default_rng(0).random((rows, m))
    C = np.zeros((m, m), order="F")
    seconds = best_of(lambda: dsyrk(1.0, A.T, beta=1.0, c=C, lower=True, overwrite_c=True), 5)
    return rows * m * m / seconds


def exp_speed(size=2**18):
    """Exponentials per second, in the cache."""
    x = -np.random.default_rng(0).random(size)
    out = np.empty_like(x)
    return size / best_of(lambda: np.exp(x, out=out), 50)


def bandwidth(size=2**26):
    """Bytes per second that a dot product reads."""
    x, y = np.ones(size), np.ones(size)
    return 16 * size / best_of(lambda: x @ y, 4)


# Speed.


def gram(quick):
    n, m = (20_000, 1000) if quick else (100_000, 2000)
    X, y, _ = wavy(n)
    design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", 1 / 8), np.arange(m)))
    t = design.target(y)
    products, exps = n * m * m / product_speed(m), n * m / exp_speed()
    seconds, _ = clock(lambda: design.moments(t))
    print(f"\nGram route, n = {n}, m = {m}, d = 8")
    print(
        f"  products {products:.2f} s + exponentials {exps:.2f} s = limit {products + exps:.2f} s"
    )
    print(f"  streamed Gram matrix {seconds:.2f} s, ratio {seconds / (products + exps):.2f}")
    solver = Forward(max_terms=300, cut=False, replays=0, route=gram_route)
    state = solver.init(design, t)
    chosen, _ = clock(lambda: run(solver, design, t, max_iter=299, state=state))
    print(f"  299 terms from it {chosen:.2f} s")


def exact(quick):
    n, terms = (4000, 30) if quick else (10_000, 60)
    X, y, _ = wavy(n)
    design = CentredDesign(KernelDesign(X, StationaryKernel("rbf", 1 / 8), cache_size=1e4))
    t = design.target(y)
    design.project(t)
    solver = Forward(0.2, 0.01, max_terms=500, cut=False, route=columns_route)
    state = solver.init(design, t)
    run(solver, design, t, max_iter=3, state=state)
    limit = 8.0 * n * n / bandwidth()
    seconds, _ = clock(lambda: run(solver, design, t, max_iter=terms, state=state))
    seconds /= terms
    print(f"\nExact route, n = m = {n}")
    print(
        f"  {1e3 * seconds:.1f} ms a term, one read {1e3 * limit:.1f} ms "
        f"({8e-9 * n * n / limit:.1f} GB/s), ratio {seconds / limit:.2f}"
    )


def scaling(quick):
    sizes = (10_000, 30_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    m, k = (500, 100) if quick else (1000, 200)
    rows = []
    for n in sizes:
        X, y, _ = wavy(n)
        model = ForwardRegressor("rbf", gamma=1 / 8, candidates=m, max_terms=k, random_state=0)
        rows.append(clock(lambda model=model, X=X, y=y: model.fit(X, y))[0])
    slope = np.polyfit(np.log(sizes), np.log(rows), 1)[0]
    print(f"\nWhole fits, m = {m}, at most {k} terms")
    for n, seconds in zip(sizes, rows, strict=True):
        print(f"  n = {n:8d}  {seconds:8.2f} s   {1e6 * seconds / n:6.2f} us a row")
    print(f"  exponent of n: {slope:.3f}")


def million(quick):
    n, m, k = (100_000, 500, 100) if quick else (1_000_000, 2000, 500)
    X, y, f = wavy(n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    model = ForwardRegressor(
        "rbf", gamma=1 / 8, candidates=m, max_terms=k, random_state=0, verbose=1
    )
    seconds, _ = clock(lambda: model.fit(X, y))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    new, target, truth = wavy(20_000, seed=1)
    mean, std = model.predict(new, return_std=True)
    limit = n * m * m / product_speed(m) + n * m / exp_speed()
    print(f"\nn = {n}, m = {m}, {len(model.active_)} terms: {seconds:.0f} s, ", end="")
    print(f"{seconds / limit:.2f} times products and exponentials of one Gram matrix")
    print(f"  peak memory {peak:.2f} GB ({before:.2f} GB before the fit)")
    print(
        f"  error against the function {np.mean((mean - truth) ** 2) / np.var(truth):.3f} of its "
        f"variance, 95 % coverage {np.mean(np.abs(mean - target) < 1.96 * std):.3f}"
    )
    print(f"  {model.approximation_}")


# What approximations cost.


def evidence(quick):
    n, k = (2500, 100) if quick else (10_000, 500)
    X, y, _ = wavy(n)
    kernel = StationaryKernel("rbf", 1 / 8)
    rng = np.random.default_rng(0)

    def gain(route, centres=None, design=None):
        design = design or CentredDesign(KernelDesign(X, kernel, centres, cache_size=1e4))
        t = design.target(y)
        solver = Forward(0.2, 0.01, max_terms=k, cut=False, route=route)
        seconds, result = clock(lambda: run(solver, design, t, max_iter=k))
        path, found = solver.best_path(result.state, design, t)
        curve = path.curve(found.lam, result.state.noise)
        return seconds, curve[-1] - curve[0], found.claimed[-1] - found.claimed[0]

    full = CentredDesign(KernelDesign(X, kernel, cache_size=1e4))
    rows = [("exact, all rows", *gain(columns_route, design=full))]
    for m in (1000, 2000, 4000):
        if m < n:
            centres = np.sort(rng.choice(n, m, replace=False))
            rows.append((f"random m = {m}, gram", *gain(gram_route, centres)))
    for m in (1000, 2000):
        start = now()
        pivots = pivoted_cholesky(np.ones(n), lambda j: kernel.bind(X[j])(X), m)[1]
        spent = now() - start
        seconds, value, claimed = gain(gram_route, np.sort(pivots))
        rows.append((f"pivots m = {m}, gram", seconds + spent, value, claimed))
    for p in (k, 2 * k):
        rows.append((f"low rank p = {p}", *gain(partial(low_rank_route, rank=p), design=full)))
    reference = rows[0][2]
    print(f"\nEvidence gained by {k} terms, n = {n} (lam = 0.01, noise 0.2)")
    for name, seconds, value, claimed in rows:
        print(
            f"  {name:24s}{seconds:8.2f} s   gain {value:9.1f}   lost {1 - value / reference:6.1%}"
            f"   claimed {claimed:9.1f}"
        )


# Accuracy.


def score(model, X, y):
    mean, std = model.predict(X, return_std=True)
    z = (mean - y) / std
    return (
        np.mean((mean - y) ** 2) / np.var(y),
        np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * z**2),
        np.mean(np.abs(z) < 1.96),
    )


def standardised(X, y, train, test):
    mean, std = X[train].mean(axis=0), X[train].std(axis=0)
    level, size = y[train].mean(), y[train].std()
    return (
        (X[train] - mean) / std,
        (y[train] - level) / size,
        (X[test] - mean) / std,
        (y[test] - level) / size,
    )


def california(quick):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVR

    bunch = load_california()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    test = order[-10_640:]
    print("\nCalifornia, 10,640 test rows: NMSE, NLL, 95 % coverage, functions, seconds")
    for n in (1000, 4000) if quick else (1000, 2000, 4000, 7000, 10_000):
        X, y, Xt, yt = standardised(bunch.data, bunch.target, order[:n], test)
        k, d = min(n // 10, 500), X.shape[1]

        def line(name, model, size, X=X, y=y, Xt=Xt, yt=yt, n=n):
            seconds, _ = clock(lambda: model.fit(X, y))
            count = size(model)
            if hasattr(model, "support_"):
                error = np.mean((model.predict(Xt) - yt) ** 2) / np.var(yt)
                print(f"  {n:6d} {name:38s} {error:.4f}      -      - {count:6d} {seconds:7.2f}")
            else:
                error, nll, cover = score(model, Xt, yt)
                print(
                    f"  {n:6d} {name:38s} {error:.4f} {nll:6.3f} {cover:6.3f} {count:6d} "
                    f"{seconds:7.2f}"
                )

        def active(model):
            return len(model.active_)

        wide = 1 / (4 * d)
        paper = {"gamma": wide, "regularization": 1e-7, "early_stopping": None, "refit": None}
        for terms in (50, k):
            model = ForwardRegressor(
                max_terms=terms, random_state=0, **{"kernel": "rbf", "gamma": "scale", **paper}
            )
            line(f"forward, paper's lam, k = {terms}", model, active)
        model = ForwardRegressor("rbf", gamma=wide, max_terms=max(k, 300), random_state=0)
        line("forward, by evidence, GP refit", model, active)
        for terms in (50, 300):
            model = ForwardRegressor("auto", gamma="ard", max_terms=terms, random_state=0)
            line(f"forward, widths and family learnt, {terms}", model, active)
        nystroem = Nystroem(gamma=wide, n_components=k, random_state=0)
        line(
            f"Nystroem {k} + BayesianRidge",
            make_pipeline(nystroem, BayesianRidge()),
            lambda m, k=k: k,
        )
        nystroem = Nystroem(gamma=wide, n_components=50, random_state=0)
        line("Nystroem 50 + BayesianRidge", make_pipeline(nystroem, BayesianRidge()), lambda m: 50)
        line("SVR", SVR(gamma=wide, C=10.0), lambda m: len(m.support_))
        line("RVM", RVMRegressor("rbf", gamma=wide), active)
        if n <= 2000:
            kernel = ConstantKernel(1.0) * RBF(np.sqrt(0.5 / wide)) + WhiteKernel(0.2)
            gp = GaussianProcessRegressor(kernel, random_state=0)
            line("exact GP, width by evidence", gp, lambda m, n=n: n)
            learnt = gp.kernel_
        else:  # one factorisation, with what was learnt on fewer rows
            gp = GaussianProcessRegressor(learnt, optimizer=None)
            line("exact GP, width of fewer rows", gp, lambda m, n=n: n)


def friedman(quick):
    print(
        "\nFriedman 1, widths learnt per input: RMSE (noise 1), NLL, coverage, functions, seconds"
    )
    for n in (240,) if quick else (240, 2400):
        rows = []
        for seed in range(3 if quick else 10):
            X, y = make_friedman1(n, noise=1.0, random_state=seed)
            new, truth = make_friedman1(2000, noise=1.0, random_state=1000 + seed)
            model = ForwardRegressor("rbf", gamma="ard", random_state=0)
            seconds, _ = clock(lambda model=model, X=X, y=y: model.fit(X, y))
            _, nll, cover = score(model, new, truth)
            error = np.sqrt(np.mean((model.predict(new) - truth) ** 2))
            rows.append((error, nll, cover, len(model.active_), seconds))
        mean = np.mean(rows, axis=0)
        print(f"  {n:6d}  {mean[0]:.3f} {mean[1]:.3f} {mean[2]:.3f} {mean[3]:.0f} {mean[4]:.2f}")


def terms(quick):
    bunch = load_california()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    test = order[-5000:]
    print(
        "\nHow many functions: RMSE (dollars), NLL, coverage, leave-one-out density, functions, s"
    )
    for n in (2000,) if quick else (2000, 10_000):
        X, y = bunch.data[order[:n]], bunch.target[order[:n]]
        start = ForwardRegressor("matern12", gamma="ard", max_terms=20, candidates=300).fit(X, y)
        for most in (300, 1000, "auto", None) if n <= 2000 else (300, 1000, "auto"):
            # Without a limit it is the process of all rows.
            kind = SparseGPRegressor if most is None else ForwardRegressor
            model = kind("matern12", gamma=start.gamma_, max_terms=most)
            seconds, _ = clock(lambda model=model, X=X, y=y: model.fit(X, y))
            _, nll, cover = score(model, bunch.data[test], bunch.target[test])
            error = model.predict(bunch.data[test]) - bunch.target[test]
            print(
                f"  {n:6d} {most!s:5s} {np.sqrt(np.mean(error**2)):7.0f} {nll:.3f} {cover:.3f} "
                f"{np.mean(model.loo_.log_density):.3f} {len(model.active_):5d} {seconds:6.1f}",
                flush=True,
            )


SECTIONS = {
    f.__name__: f for f in (gram, exact, scaling, evidence, california, friedman, terms, million)
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("CPU seconds of one core" if ONE_CORE else "seconds of the wall clock")
    for name in options.only:
        SECTIONS[name](options.quick)


if __name__ == "__main__":
    main()
