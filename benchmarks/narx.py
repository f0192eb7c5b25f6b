"""Dynamic systems: measured benchmarks in free run, stability, search, known systems, intervals.

    python benchmarks/narx.py [--quick] [--only PART]

1. silverbox: one fit, free-run error in mV on the multisine, the arrow and the arrow without
   extrapolation, and how much of each the 95 % band covers.
2. tanks: free-run error in V from the 50th sample on.
3. stability: lags 2 to 10, degrees 1 to 3 on both: does any free run diverge?
4. search: 9,880 monomials at n = 25,000, 20 terms, in CPU seconds.
5. known: a polynomial system with noise 20 dB below its output: are exactly its terms found?
6. intervals: how often the 95 % intervals of the coefficients cover the truth, with noise inside
   the recursion and on the output.

SysIdentPy and PySINDy are run where they are installed (SysIdentPy asks for numpy < 2.4). Figures
of GRU, LSTM and polynomial NARX are published ones of the benchmark sets.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

from papers.data import load_cascaded_tanks, load_silverbox
from sparsebayes import NARXRegressor
from sparsebayes.narx import lagged, simulate
from sparsebayes.narx.functions import Monomials
from sparsebayes.solvers import OrthogonalLeastSquares, run

TRUE = {
    "y(k-1)": 0.5,
    "y(k-2)": -0.3,
    "u(k-1)": 0.8,
    "u(k-2)^2": 0.4,
    "y(k-1)*u(k-1)": -0.2,
}


def rms(error):
    return np.sqrt(np.mean(np.square(error)))


def ours(u, y, **settings):
    model = NARXRegressor(**settings).fit(u, y)

    def free(u, y):
        return model.simulate(u, y[: model.max_lag_], return_std=True)

    return len(model.terms_), free, model


def sysidentpy(u, y, lags, degree, n_terms):
    from sysidentpy.basis_function import Polynomial
    from sysidentpy.model_structure_selection import FROLS
    from sysidentpy.parameter_estimation import LeastSquares

    model = FROLS(
        xlag=lags, ylag=lags, order_selection=False, n_terms=n_terms, estimator=LeastSquares(),
        basis_function=Polynomial(degree=degree),
    )  # fmt: skip
    model.fit(X=u[:, None], y=y[:, None])

    def free(u, y):
        return model.predict(X=u[:, None], y=y[:lags, None]).ravel(), None

    return n_terms, free, model


def pysindy(u, y, lags, degree, n_terms):
    from pysindy.optimizers import FROLS

    X, target, terms = lagged(u, y, ([*range(lags + 1)], lags), degree, constant=True)
    optimizer = FROLS(max_iter=n_terms, alpha=1e-8).fit(X, target[:, None])
    model = SimpleNamespace(coef_=np.ravel(optimizer.coef_), intercept_=0.0)

    def free(u, y):
        return simulate(model, terms, u, y), None

    return int(np.count_nonzero(model.coef_)), free, model


def other_packages(lags, degree, n_terms):
    return {
        f"SysIdentPy FROLS, lags {lags}, degree {degree}": (
            sysidentpy,
            {"lags": lags, "degree": degree, "n_terms": n_terms},
        ),
        f"PySINDy FROLS, lags {lags}, degree {degree}": (
            pysindy,
            {"lags": lags, "degree": degree, "n_terms": n_terms},
        ),
    }


def silverbox(quick):
    data = load_silverbox()
    u, y = data.data[:, 0], data.target
    n = 12_000 if quick else data.train.stop - data.train.start
    train = slice(data.train.start, data.train.start + n)
    print(f"Silverbox, {n} samples to fit: free-run RMSE in mV (share inside the 95 % band)")
    names = list(data.tests)
    print(f"{'':42}{'terms':>6}" + "".join(f"{name:>30}" for name in names) + f"{'CPU s':>8}")
    lags = {f"lags {k}": (ours, {"input_lags": k, "output_lags": k, "degree": 3}) for k in (2, 3)}
    ahead = {"input_lags": 2, "output_lags": 2, "degree": 3, "refine": None}
    methods = {f"NARXRegressor, {name}": value for name, value in lags.items()}
    methods["NARXRegressor, lags 2, one step only"] = (ours, ahead)
    methods |= other_packages(2, 3, 14)
    for name, (fit, settings) in methods.items():
        fitted = _fit(fit, u[train], y[train], settings, name)
        if fitted is None:
            continue
        terms, free, _, seconds = fitted
        cells = []
        for part in data.tests.values():
            simulated, std = _quiet(free, u[part], y[part])
            error = (y[part] - simulated)[data.n_ignored :]
            cell = f"{1e3 * rms(error):.3f}" if np.all(np.isfinite(error)) else "diverges"
            if std is not None:
                cell += f" ({np.mean(np.abs(error) < 1.96 * std[data.n_ignored :]):.3f})"
            cells.append(cell)
        print(f"{name:42}{terms:>6}" + "".join(f"{c:>30}" for c in cells) + f"{seconds:>8.1f}")
    published = {"GRU, published": (1.49, 2.80, 0.95), "LSTM, published": (1.50, 2.68, 0.96)}
    for name, values in published.items():
        print(f"{name:42}{'':>6}" + "".join(f"{value:>30.2f}" for value in values))
    print()


def tanks(quick):
    data = load_cascaded_tanks()
    u, y = data.data[:, 0], data.target
    print("Cascaded tanks: free-run RMSE in V, from the measured start")
    print(f"{'':42}{'terms':>6}{'held back':>11}{'test':>9}{'covered':>9}{'CPU s':>8}")
    grid = [(2, 2), (3, 2), (4, 2)] if quick else [(k, d) for d in (1, 2, 3) for k in (2, 3, 4)]
    methods = {
        f"NARXRegressor with hinges, lags {k}, degree {d}": (
            ours,
            {"input_lags": k, "output_lags": k, "degree": d, "candidates": ["polynomial", "hinge"]},
        )
        for k, d in grid
    }
    methods["NARXRegressor, polynomial, lags 2, degree 3"] = (ours, {})
    methods |= other_packages(3, 2, 10)
    for name, (fit, settings) in methods.items():
        fitted = _fit(fit, u, y, settings, name)
        if fitted is None:
            continue
        terms, free, model, seconds = fitted
        simulated, std = _quiet(free, data.test_data[:, 0], data.test_target)
        error = (data.test_target - simulated)[data.n_ignored :]
        held = getattr(model, "held_back_error_", None)
        value = (
            "" if held is None else f"{held['simulation' if model.refined_ else 'one step']:.3f}"
        )
        covered = (
            "" if std is None else f"{np.mean(np.abs(error) < 1.96 * std[data.n_ignored :]):.3f}"
        )
        test = f"{rms(error):.3f}" if np.all(np.isfinite(error)) else "diverges"
        print(f"{name:42}{terms:>6}{value:>11}{test:>9}{covered:>9}{seconds:>8.1f}")
    for name, value in {"polynomial NARX": 0.413, "GRU": 0.396, "LSTM": 0.490}.items():
        print(f"{name + ', published':42}{'':>6}{'':>11}{value:>9.3f}")
    print()


def stability(quick):
    """Any divergence is a NaN in the free run."""
    box, tank = load_silverbox(), load_cascaded_tanks()
    u, y = box.data[:, 0], box.target
    train = slice(box.train.start, box.train.start + (5_000 if quick else 10_000))
    print(f"Free runs that diverge; worst RMSE (Silverbox: fitted to {train.stop - train.start})")
    failed, worst = 0, {"silverbox": {}, "tanks": {}}
    for lags in (2, 5, 10) if quick else range(2, 11):
        for degree in (1, 2, 3):
            model = NARXRegressor(lags, lags, degree=degree).fit(u[train], y[train])
            for part in [box.tests["multisine"], box.tests["arrow"]]:
                free = _quiet(model.simulate, u[part], y[part][:lags])
                failed += not np.all(np.isfinite(free))
                value = 1e3 * rms((y[part] - free)[50:])
                worst["silverbox"][degree] = max(worst["silverbox"].get(degree, 0.0), value)
            model = NARXRegressor(lags, lags, degree=degree).fit(tank.data, tank.target)
            free = _quiet(model.simulate, tank.test_data, tank.test_target[:lags])
            failed += not np.all(np.isfinite(free))
            value = rms((tank.test_target - free)[50:])
            worst["tanks"][degree] = max(worst["tanks"].get(degree, 0.0), value)
    print(f"  diverged: {failed}")
    for name, unit in (("silverbox", "mV"), ("tanks", "V")):
        print(
            f"  worst on {name}, {unit}: "
            + ", ".join(f"degree {d}: {v:.2f}" for d, v in worst[name].items())
        )
    print()


def search(quick):
    n, variables = (5_000, 20) if quick else (25_000, 37)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((variables, n))
    monomials = Monomials.up_to([f"x{i}" for i in range(variables)], 3)
    chosen = rng.choice(len(monomials), 15, replace=False)
    t = monomials.take(np.sort(chosen))(x).sum(axis=0) + rng.standard_normal(n)
    started = time.process_time()
    solver = OrthogonalLeastSquares(regularization="none", max_terms=20)
    result = run(solver, monomials.design(x), t, max_iter=100)
    seconds = time.process_time() - started
    found = len(set(chosen) & set(result.state.active[:15]))
    print(
        f"Search: {len(monomials)} monomials stored nowhere, n = {n}, 20 terms: {seconds:.1f} CPU s"
    )
    print(f"  ({found} of the 15 true ones are the first 15; SysIdentPy says of itself: 166 s in")
    print("  NumPy, 4.4 s on a GPU)\n")


def system(seed, n, snr=20.0, output=False):
    """Input, noisy output and clean output of the known system; noise in the recursion or added."""
    rng = np.random.default_rng(seed)
    u, e = rng.uniform(-1, 1, n + 50), rng.standard_normal(n + 50)

    def respond(noise):
        y = np.zeros(n + 50)
        for k in range(2, n + 50):
            y[k] = 0.5 * y[k - 1] - 0.3 * y[k - 2] + 0.8 * u[k - 1]
            y[k] += 0.4 * u[k - 2] ** 2 - 0.2 * y[k - 1] * u[k - 1] + noise[k]
        return y

    clean = respond(np.zeros(n + 50))
    e *= 10 ** (-snr / 20) * np.std(clean)
    return u[50:], (clean + e if output else respond(e))[50:], clean[50:]


def known(quick):
    seeds = 3 if quick else 20
    for n, lags, degree in [(1000, 3, 2), (1000, 3, 3), (5000, 5, 3)]:
        found = {}
        for name, settings in {
            "delay 1": {"delay": 1},
            "u(k) too": {},
            "one step": {"refine": None},
        }.items():
            exact = 0
            for seed in range(seeds):
                model = NARXRegressor(lags, lags, degree=degree, **settings).fit(
                    *system(seed, n)[:2]
                )
                exact += set(model.terms_.term) == set(TRUE)
            found[name] = f"{exact}/{seeds}"
        print(
            f"Known system, n = {n}, lags {lags}, degree {degree}: exactly the true terms: {found}"
        )
    print()


def intervals(quick):
    n = 500
    for output in (False, True):
        for refine in ("auto", "simulation", None):
            inside, whole = [], 0
            records = 40 if quick else 500 if refine == "auto" else 100
            for seed in range(records):
                u, y, _ = system(10_000 + seed, n, output=output)
                model = NARXRegressor(2, 2, delay=1, degree=2, refine=refine).fit(u, y)
                terms = model.terms_
                whole += set(terms.term) == set(TRUE)
                for name, value, std in zip(terms.term, terms.coefficient, terms.std, strict=True):
                    if name in TRUE:
                        inside.append(abs(value - TRUE[name]) < 1.96 * std)
            where = "on the output" if output else "in the recursion"
            print(
                f"Intervals, noise {where}, refine={refine!r}: {np.mean(inside):.3f} of 95 % over "
                f"{records} records (exactly the true terms in {whole})"
            )
    print()


def _fit(fit, u, y, settings, name):
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            terms, free, model = fit(u, y, **settings)
    except ImportError as error:
        print(f"{name:42}  not installed ({error.name})")
        return None
    return terms, free, model, time.process_time() - started


def _quiet(function, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


PARTS = {f.__name__: f for f in (silverbox, tanks, stability, search, known, intervals)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter records")
    parser.add_argument("--only", choices=list(PARTS))
    arguments = parser.parse_args()
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            part(arguments.quick)


if __name__ == "__main__":
    main()
