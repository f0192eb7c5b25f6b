"""Orthogonal least squares: Chen's example, NARX compared with other packages, and bandwidth.

    python benchmarks/ols.py [--quick] [--only chen|narx|speed]

1. Chen's example (100 noisy values of a sine, 100 Gaussian candidates), mean [min, median, max]
   over draws; the error to the true function is taken on a grid over (0, 1). The last rows iterate
   the paper's own rule: its six effective terms are those of 30 passes, not of the limit.
2. A polynomial NARX system with noise 20 dB below its output: how often exactly the true terms are
   found, the free-run error against the noise-free output of new inputs, and the time to fit from
   the raw series. SysIdentPy and PySINDy are run where they are installed (SysIdentPy asks for
   numpy < 2.4). PySINDy has no stopping rule: it is given 15 terms to choose from as the others,
   and, in a second row, the true number of terms.
3. The solver at n = 100,000, m = 500, k = 50 as a ratio to k times the fastest read of the columns.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from narx import TRUE, system
from sklearn.metrics.pairwise import rbf_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

from papers.chen2001 import papers_rule
from sparsebayes.datasets import make_chen_example
from sparsebayes.designs import CentredDesign, DenseDesign
from sparsebayes.estimators.lrols import OrthogonalLeastSquaresRegressor
from sparsebayes.narx import lagged, simulate
from sparsebayes.solvers import OrthogonalLeastSquares, run


def chen(draws):
    print(f"Chen's example, {draws} draws: mean [min, median, max]")
    print(
        f"{'':28}{'terms':>19}{'effective':>19}{'training MSE':>29}{'MSE to truth':>33}"
        f"{'log10 max weight':>25}"
    )
    grid = np.linspace(0, 1, 201)[:, None]
    truth = np.sin(2 * np.pi * grid[:, 0])
    methods = {
        "OLS, guard 1e-14": {"regularization": "none", "guard": 1e-14},
        "OLS, guard 1e-12": {"regularization": "none"},
        "UROLS": {"regularization": "uniform"},
        "LROLS, guard 1e-14": {"regularization": "local", "guard": 1e-14},
        "LROLS, guard 1e-12": {"regularization": "local"},
        "LROLS, BIC (the default)": {"stopping": "bic"},
        "PRESS stopping, lam 1e-3": {"regularization": 1e-3, "stopping": "press"},
        "D-optimality .1, lam 1e-2": {"regularization": 1e-2, "criterion": "d-optimality"},
    }
    for passes in (30, 300):
        methods[f"LROLS, paper's rule, {passes}"] = passes
    for name, settings in methods.items():
        rows = []
        for seed in range(draws):
            X, y = make_chen_example(random_state=seed)
            if isinstance(settings, int):
                found = papers_rule(X, y, settings)
                weights, centres, effective = (
                    found[name] for name in ("weights", "centres", "effective")
                )
            else:
                model = OrthogonalLeastSquaresRegressor(
                    gamma=12.5, fit_intercept=False, **{"stopping": None} | settings
                ).fit(X, y)
                weights, centres = model.coef_, model.relevance_vectors_
                effective = model.effective_terms_
            rows.append(
                (
                    len(weights),
                    effective,
                    np.mean((y - rbf_kernel(X, centres, 12.5) @ weights) ** 2),
                    np.mean((truth - rbf_kernel(grid, centres, 12.5) @ weights) ** 2),
                    np.log10(np.max(np.abs(weights))),
                )
            )
        cells = []
        for values, form in zip(np.array(rows, dtype=float).T, (0, 0, 3, 4, 1), strict=True):
            low, middle, high = np.quantile(values, [0, 0.5, 1])
            mean = f"{np.mean(values):.{max(form, 1)}f}"
            cells.append(f"{mean} [{low:.{form}f}, {middle:.{form}f}, {high:.{form}f}]")
        widths = (19, 19, 29, 33, 25)
        print(f"{name:28}" + "".join(c.rjust(w) for c, w in zip(cells, widths, strict=True)))
    print()


def ours(lags, degree, **settings):
    def fit(u, y):
        X, target, terms = lagged(u, y, lags, degree, constant=True)
        model = OrthogonalLeastSquaresRegressor(kernel=None, fit_intercept=False, **settings)
        model.fit(X, target)
        found = {terms.names[j] for j in model.active_}
        return found, lambda u, start: simulate(model, terms, u, start)

    return fit


def sysidentpy(lags, degree, criterion):
    from sysidentpy.basis_function import Polynomial
    from sysidentpy.model_structure_selection import FROLS
    from sysidentpy.parameter_estimation import LeastSquares
    from sysidentpy.utils.display_results import results

    def fit(u, y):
        model = FROLS(
            xlag=lags,
            ylag=lags,
            info_criteria=criterion,
            n_info_values=15,
            estimator=LeastSquares(),
            basis_function=Polynomial(degree=degree),
        )
        model.fit(X=u[:, None], y=y[:, None])
        table = results(model.final_model, model.theta, model.err, model.n_terms)
        found = {_plain(row[0]) for row in table}
        return found, lambda u, start: model.predict(X=u[:, None], y=start[:, None]).ravel()

    return fit


def _plain(name):
    """x1(k-2)y(k-1)^2 in the order and manner of our names."""
    parts = name.replace(")", ") ").replace(" ^", "^").split()
    parts = [part.replace("x1", "u") for part in parts]
    return "*".join(sorted(parts, key=lambda part: part[0] != "y"))


def pysindy(lags, degree, n_terms):
    from pysindy.optimizers import FROLS

    def fit(u, y):
        X, target, terms = lagged(u, y, lags, degree, constant=True)
        optimizer = FROLS(max_iter=n_terms, alpha=1e-8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.fit(X, target[:, None])
        coef = np.ravel(optimizer.coef_)
        model = SimpleNamespace(coef_=coef, intercept_=0.0)
        found = {terms.names[j] for j in np.flatnonzero(coef)}
        return found, lambda u, start: simulate(model, terms, u, start)

    return fit


def narx(seeds):
    for n, lags, degree in [(1000, 3, 2), (1000, 3, 3), (5000, 5, 3)]:
        others = {
            "ours, BIC (the default)": (ours, {"stopping": "bic"}),
            "ours, PRESS": (ours, {"stopping": "press"}),
            "ours, BIC, threshold 1": (ours, {"stopping": "bic", "threshold": 1}),
            "ours, OLS with BIC": (ours, {"stopping": "bic", "regularization": "none"}),
            "SysIdentPy FROLS, BIC": (sysidentpy, {"criterion": "bic"}),
            "PySINDy FROLS, 15 terms": (pysindy, {"n_terms": 15}),
            "PySINDy FROLS, true number": (pysindy, {"n_terms": 5}),
        }
        m = lagged(np.zeros(50), np.zeros(50), lags, degree, constant=True).candidates.shape[1]
        print(f"NARX, n = {n}, lags {lags}, degree {degree}: {m} candidates, {seeds} seeds, 20 dB")
        print(f"{'':28}{'true terms':>11}{'terms':>7}{'free-run RMSE':>15}{'ms':>9}{'ratio':>8}")
        first = None
        for name, (make, settings) in others.items():
            try:
                fit = make(lags, degree, **settings)
            except ImportError as error:
                print(f"{name:28}  not installed ({error.name})")
                continue
            rows = []
            for seed in range(seeds):
                u, y, _ = system(seed, n)
                fit(u, y) if seed == 0 else None  # imports and caches
                started = time.perf_counter()
                found, free_run = fit(u, y)
                seconds = time.perf_counter() - started
                u, _, clean = system(1000 + seed, 500)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    error = clean - free_run(u, clean[:lags])
                rms = np.sqrt(np.mean(error[lags:] ** 2)) / np.std(clean)
                rows.append((found == set(TRUE), len(found), rms, seconds))
            exact, terms, rms, seconds = np.mean(rows, axis=0)
            first = first or seconds
            print(
                f"{name:28}{round(exact * seeds):>8}/{seeds}{terms:>7.1f}{rms:>15.5f}"
                f"{1e3 * seconds:>9.1f}{seconds / first:>8.1f}"
            )
        print()


def speed(n, m, k, repeats):
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((n, m))
    t = Phi[:, : k + 10] @ rng.standard_normal(k + 10) + rng.standard_normal(n)
    solver = OrthogonalLeastSquares(regularization="none", max_terms=k)
    by_press = OrthogonalLeastSquares(regularization="none", max_terms=k, criterion="press")
    whole = OrthogonalLeastSquaresRegressor(kernel=None, max_terms=k)
    jobs = {
        "product with the columns": lambda: Phi.T @ t,
        "plain read": lambda: Phi.ravel() @ Phi.ravel(),
        "solver": lambda: run(solver, DenseDesign(Phi), t, max_iter=2 * k),
        "solver, intercept": lambda: run(
            solver, CentredDesign(DenseDesign(Phi)), t, max_iter=2 * k
        ),
        "solver, leave-one-out": lambda: run(by_press, DenseDesign(Phi), t, max_iter=2 * k),
        "estimator": lambda: whole.fit(Phi, t),
    }
    best = dict.fromkeys(jobs, np.inf)
    for _ in range(repeats):  # taken in turns: a busy moment slows all of them
        for name, job in jobs.items():
            for _ in range(5 if "solver" not in name and name != "estimator" else 1):
                started = time.perf_counter()
                job()
                best[name] = min(best[name], time.perf_counter() - started)
    read = min(best["product with the columns"], best["plain read"])
    print(f"Speed, n = {n}, m = {m}, k = {k}: {8e-9 * n * m / read:.1f} GB/s")
    print(f"{'':28}{'seconds':>9}{'over k reads':>14}")
    for name in ("solver", "solver, intercept", "solver, leave-one-out", "estimator"):
        print(f"{name:28}{best[name]:>9.3f}{best[name] / (k * read):>14.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer draws and smaller arrays")
    parser.add_argument("--only", choices=["chen", "narx", "speed"])
    arguments = parser.parse_args()
    if arguments.only in (None, "chen"):
        chen(20 if arguments.quick else 100)
    if arguments.only in (None, "narx"):
        narx(3 if arguments.quick else 20)
    if arguments.only in (None, "speed"):
        speed(*((20_000, 200, 20, 2) if arguments.quick else (100_000, 500, 50, 4)))


if __name__ == "__main__":
    main()
