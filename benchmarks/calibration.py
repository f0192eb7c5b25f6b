"""Do error bars keep their word? Noise by the inputs, tails, intervals; beside others.

    OMP_NUM_THREADS=1 python benchmarks/calibration.py PART [--splits N] [--first N] [--data NAME]

Parts, each in minutes:

    simulated   sd(x) linear, periodic and in steps; n = 300, 3,000, 30,000; normal and t noise:
                coverage in each tenth of x within 3 points from n = 3,000, error of log v falling
    refused     200 draws with one level: the noise model refused in 95 %, < .01 nat lost otherwise
    tables      NLL, CRPS, coverage of 90 and 95 % on the shared tables, with and without the model
    packages    the same beside CatBoost (RMSEWithUncertainty), NGBoost, boosted quantiles, MAPIE
    few         30, 60 and 120 rows of each table: coverage of 95 %, NLL and RMSE in units of the
                spread of the rest; a fit that learns no noise from few rows shows in the NLL
    gaps        a table with gaps in the input that matters: rows with gaps and others apart, as
                `table_model` fits it and with one level of noise
    far         values far outside in one input (1e6 once; -9999 in a twentieth of the rows)
    onehot      176 rows and 80 one-hot columns: coverage of 95 % >= .92
    time        at most 1.6 times the fit without the noise model at n = 10,000 (CPU seconds)
    outliers    10 % gross outliers cost at most 10 % of RMSE with likelihood="student"
    labels      log-loss, Brier score and calibration error of classifiers, rare classes too

NLL is minus the mean log density of the whole predictive distribution, in the units of the target;
"normal" that of N(mean, std^2), all that there was before. The tables are looked for where
`sparsebayes.datasets` does, concrete.csv and energy.csv in $SPARSEBAYES_DATA.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import norm
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

import sparsebayes as sb
from papers.data import load_abalone, load_boston, load_california, load_cpu, load_ozone
from sparsebayes.metrics import (
    coverage,
    crps,
    interval_coverage,
    interval_score,
    negative_log_density,
)


def forward(**settings):
    return sb.ForwardRegressor(random_state=0, **settings)


# Data.


def csv(name):
    table = np.genfromtxt(
        Path(os.environ["SPARSEBAYES_DATA"]) / f"{name}.csv", delimiter=",", skip_header=1
    )
    return lambda: (table[:, :8], table[:, 8])


def one_hot(seed, n=220):
    """Seven categories, 80 columns: a table of few rows."""
    rng = np.random.default_rng(seed)
    sizes = (4, 6, 8, 10, 12, 16, 24)
    codes = [rng.integers(0, k, n) for k in sizes]
    X = np.column_stack([np.eye(k)[c] for k, c in zip(sizes, codes, strict=True)])
    spreads = (1.0, 1.0, 0.7, 0.5, 0.3, 0.2, 0.6)
    effects = [s * rng.standard_normal(k) for k, s in zip(sizes, spreads, strict=True)]
    y = sum(effect[c] for effect, c in zip(effects, codes, strict=True))
    return X, y + 0.5 * rng.standard_normal(n)


TABLES = {
    "boston": (lambda: load_boston(return_X_y=True), 0.8),
    "concrete": (lambda: csv("concrete")(), 0.9),
    "energy": (lambda: csv("energy")(), 0.9),
    "abalone": (lambda: load_abalone(return_X_y=True), 0.7),
    "california": (lambda: load_california(return_X_y=True), 0.15),
    "ozone": (lambda: load_ozone(return_X_y=True), 0.8),
    "cpu": (lambda: load_cpu(return_X_y=True), 0.8),
}


def split(name, seed):
    load, share = TABLES[name]
    X, y = load()
    order = np.random.default_rng(seed).permutation(len(y))
    X, y, n = X[order], y[order], int(share * len(y))
    Z = StandardScaler().fit(X[:n]).transform(X)
    return Z[:n], y[:n], Z[n:][:4000], y[n:][:4000]


# Methods: fitted on rows, they give NLL, CRPS and two intervals.


@cache
def fitted(noise, name, seed):
    model = forward(noise_variance=noise).fit(*split(name, seed)[:2])
    return model


def ours(noise):
    def method(X, y, new, target, model):
        there = model._predictive(new)
        return {
            "rmse": np.sqrt(np.mean((there.mean - target) ** 2)),
            "nll": -np.mean(there.log_density(target)),
            "crps": np.mean(there.crps(target)),
            **intervals(target, lambda c: model.predict_interval(new, c)),
            "conformal": interval_coverage(
                target, model.predict_interval(new, 0.95, calibrated="conformal")
            ),
        }

    return lambda name, seed: method(*split(name, seed), fitted(noise, name, seed))


def today(name, seed):
    """One level, and a normal distribution."""
    _, _, new, target = split(name, seed)
    return gaussian(*fitted("learn", name, seed).predict(new, return_std=True), target)


def other_package(method):
    return lambda name, seed: method(*split(name, seed))


def gaussian(mean, std, target):
    def ends(c):
        half = norm.ppf(0.5 + 0.5 * c) * std
        return np.column_stack([mean - half, mean + half])

    return {
        "rmse": np.sqrt(np.mean((mean - target) ** 2)),
        "nll": negative_log_density(target, mean, std),
        "crps": crps(target, mean, std),
        **intervals(target, ends),
        "conformal": np.nan,
    }


def intervals(target, ends):
    return {
        "in 90": interval_coverage(target, ends(0.9)),
        "in 95": interval_coverage(target, ends(0.95)),
        "score": interval_score(target, ends(0.95)),
    }


def catboost(X, y, new, target):
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", verbose=False, thread_count=1, random_seed=0
    )
    mean, variance = model.fit(X, y).predict(new).T
    return gaussian(mean, np.sqrt(variance), target)


def ngboost(X, y, new, target):
    from ngboost import NGBRegressor

    found = NGBRegressor(verbose=False, random_state=0).fit(X, y).pred_dist(new)
    return gaussian(found.params["loc"], found.params["scale"], target)


def boosted_quantiles(X, y, new, target):
    from sklearn.ensemble import HistGradientBoostingRegressor

    def at(alpha):
        model = HistGradientBoostingRegressor(loss="quantile", quantile=alpha, random_state=0)
        return model.fit(X, y).predict(new)

    found = {alpha: at(alpha) for alpha in (0.025, 0.05, 0.95, 0.975)}
    mean = HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(new)
    return {
        "rmse": np.sqrt(np.mean((mean - target) ** 2)),
        "nll": np.nan,
        "crps": np.nan,
        **intervals(
            target,
            lambda c: np.column_stack(
                [found[round(0.5 - 0.5 * c, 3)], found[round(0.5 + 0.5 * c, 3)]]
            ),
        ),
        "conformal": np.nan,
    }


def mapie(X, y, new, target):
    """Split conformal around ours: its intervals, our mean."""
    from mapie.regression import SplitConformalRegressor

    n = int(0.8 * len(y))
    levels = [0.9, 0.95]
    model = SplitConformalRegressor(forward(), confidence_level=levels, prefit=False)
    mean, ends = model.fit(X[:n], y[:n]).conformalize(X[n:], y[n:]).predict_interval(new)
    return {
        "rmse": np.sqrt(np.mean((mean - target) ** 2)),
        "nll": np.nan,
        "crps": np.nan,
        **intervals(target, lambda c: ends[:, :, levels.index(c)]),
        "conformal": np.nan,
    }


METHODS = {"today": today, "learn": ours("learn"), "input": ours("input")}
OTHER_PACKAGES = {
    "input": METHODS["input"],
    "CatBoost": other_package(catboost),
    "NGBoost": other_package(ngboost),
    "quantiles": other_package(boosted_quantiles),
    "MAPIE, ours": other_package(mapie),
}


def tables(names, splits, methods, first=0):
    head = ("rmse", "nll", "crps", "in 90", "in 95", "score", "conformal", "CPU s")
    print(f"{'':22s}" + "".join(f"{h:>12s}" for h in head))
    for name in names:
        for method, run in methods.items():
            rows = []
            for seed in range(first, first + splits):
                started = time.process_time()
                found = run(name, seed)
                rows.append([*found.values(), time.process_time() - started])
            mean = np.mean(rows, axis=0)
            print(f"{name:11s}{method:11s}" + "".join(f"{v:12.4g}" for v in mean), flush=True)


# Simulated noise.

SHAPES = {
    "linear": lambda x: 0.1 + 0.4 * (x + 3.0) / 3.0,
    "periodic": lambda x: 0.4 + 0.3 * np.sin(2.0 * x),
    "steps": lambda x: np.where(x < -1.0, 0.15, np.where(x < 1.0, 0.6, 0.3)),
}


def draw(shape, n, seed, df=None):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    sd = SHAPES[shape](X[:, 0])
    unit = rng.standard_normal(n) if df is None else rng.standard_t(df, n) * np.sqrt((df - 2) / df)
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + sd * unit, sd


def simulated(names):
    print(f"{'noise':10s}{'':4s}{'n':>7s}{'in 95':>8s}{'worst tenth':>13s}{'log v error':>13s}")
    for shape in names or SHAPES:
        for df in (None, 5):
            for n in (300, 3000, 30_000):
                X, y, _ = draw(shape, n, 0, df)
                model = forward(noise_variance="input").fit(X, y)
                new, target, sd = draw(shape, 20_000, 1, df)
                ends = model.predict_interval(new)
                tenth = np.digitize(new[:, 0], np.linspace(-3, 3, 11)[1:-1])
                inside = [
                    interval_coverage(target[tenth == k], ends[tenth == k]) for k in range(10)
                ]
                v = model._fitted.predictive_noise.variance(new, model._fitted.predictor) * np.ones(
                    len(new)
                )
                error = np.sqrt(np.mean((np.log(v) - 2.0 * np.log(sd)) ** 2))
                worst = max(inside, key=lambda c: abs(c - 0.95))
                print(
                    f"{shape:10s}{'t' if df else 'N':4s}{n:7d}"
                    f"{interval_coverage(target, ends):8.3f}{worst:13.3f}{error:13.3f}",
                    flush=True,
                )


def refused(draws):
    kept, lost = 0, []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([200, 300, 600]))
        X = rng.uniform(-3.0, 3.0, (n + 1000, 3))
        e = rng.standard_normal(len(X)) if seed % 2 else rng.standard_t(4, len(X))
        y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.4 * e
        model = sb.OrthogonalLeastSquaresRegressor("rbf", gamma=0.2)
        plain = model.fit(X[:n], y[:n])._predictive(X[n:]).log_density(y[n:]).mean()
        model.set_params(noise_variance="input").fit(X[:n], y[:n])
        kept += model.noise_model_ is None
        lost.append(plain - model._predictive(X[n:]).log_density(y[n:]).mean())
    print(f"one level kept in {kept} of {draws} draws; {np.mean(lost):.4f} nat lost on average")


def few(names, splits):
    print(f"{'':16s}{'rows':>6s}" + 2 * f"{'in 95':>8s}{'NLL':>9s}{'RMSE':>8s}")
    for n in (30, 60, 120):
        found = []
        for name in names:
            X, y = TABLES[name][0]()
            for seed in range(splits):
                order = np.random.default_rng(seed).permutation(len(y))
                a, b = order[:n], order[n : n + 600]
                Z = StandardScaler().fit(X[a]).transform(X)
                for model in (forward(), sb.RVMRegressor()):
                    mean, std = model.fit(Z[a], y[a]).predict(Z[b], return_std=True)
                    row = gaussian(mean / y[b].std(), std / y[b].std(), y[b] / y[b].std())
                    found.append([coverage(y[b], mean, std), row["nll"], row["rmse"]])
        found = np.reshape(found, (len(names), splits, 6)).mean(axis=1)
        for name, row in zip([*names, "mean"], [*found, found.mean(axis=0)], strict=True):
            print(
                f"{name:16s}{n:6d}"
                + "".join(f"{v:8.3f}{w:9.3f}{u:8.3f}" for v, w, u in (row[:3], row[3:]))
            )


def gaps(splits):
    """5 a + b + noise of .5 with a tenth of `a` missing: the best interval there is 20 wide."""
    import pandas as pd

    print(f"{'rows':>6s}{'noise':>8s}{'gaps in 95':>12s}{'lowest':>8s}{'others':>8s}{'width':>8s}")
    for n in (150, 300, 1000):
        for settings in ({}, {"noise_variance": "learn"}):
            found = []
            for seed in range(splits):
                rng = np.random.default_rng(seed)
                a, b, e = rng.standard_normal((3, n + 3000))
                y, gap = 5 * a + b + 0.5 * e, rng.random(n + 3000) < 0.1
                frame = pd.DataFrame({"a": np.where(gap, np.nan, a), "b": b})
                model = sb.table_model(**settings).fit(frame[:n], y[:n])
                low, high = model.predict_interval(frame[n:]).T
                inside, gap = (low < y[n:]) & (y[n:] < high), gap[n:]
                found.append([inside[gap].mean(), inside[~gap].mean(), (high - low)[~gap].mean()])
            (mean, others, width), lowest = np.mean(found, axis=0), np.min(found, axis=0)[0]
            name = settings.get("noise_variance", "input")
            print(f"{n:6d}{name:>8s}{mean:12.3f}{lowest:8.3f}{others:8.3f}{width:8.2f}", flush=True)


def far(splits):
    """sin(2 a) + b/2 + noise of .2, 300 rows, with values of `a` that are no values."""
    cases = {"none": (0, 0.0), "1e6 once": (1, 1e6), "-9999": (15, -9999.0)}
    print(f"{'far outside':12s}{'RMSE':>8s}{'in 95':>8s}")
    for name, (count, value) in cases.items():
        found = []
        for seed in range(splits):
            rng = np.random.default_rng(seed)
            X, e = rng.standard_normal((1800, 4)), rng.standard_normal(1800)
            y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * e
            X[rng.permutation(300)[:count], 0] = value
            mean, std = forward().fit(X[:300], y[:300]).predict(X[300:], return_std=True)
            found.append([np.sqrt(np.mean((mean - y[300:]) ** 2)), coverage(y[300:], mean, std)])
        print("{:12s}{:8.3f}{:8.3f}".format(name, *np.mean(found, axis=0)), flush=True)


def one_hots(splits):
    rows = []
    for seed in range(splits):
        X, y = one_hot(seed)
        for model in (
            forward(),
            forward(noise_variance="input"),
            sb.RVMRegressor(noise_variance="input"),
        ):
            model.fit(X[:176], y[:176])
            rows.append(interval_coverage(y[176:], model.predict_interval(X[176:])))
    found = np.reshape(rows, (splits, 3)).mean(axis=0)
    print(
        "176 x 80 one-hot, coverage of 95 %: one level {:.3f}, input {:.3f} (>= .92), "
        "RVM input {:.3f}".format(*found)
    )


def times():
    X, y, new, target = split_california(10_000)
    for name, settings in (
        ("default", {}),
        ("rbf, gamma='ard'", {"kernel": "rbf", "gamma": "ard"}),
        ("rbf, gamma='scale'", {"kernel": "rbf", "gamma": "scale"}),
    ):
        seconds = []
        for noise in ("learn", "input"):
            started = time.process_time()
            forward(noise_variance=noise, **settings).fit(X, y)
            seconds.append(time.process_time() - started)
        print(
            f"{name:20s} {seconds[0]:6.1f} s, with the noise model {seconds[1]:6.1f} s: "
            f"{seconds[1] / seconds[0]:.2f} times (at most 1.6)",
            flush=True,
        )


def split_california(n):
    X, y = load_california(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    Z = StandardScaler().fit_transform(X)[order]
    return Z[:n], y[order][:n], Z[n:], y[order][n:]


def outliers():
    for name, model in (
        ("forward", sb.ForwardRegressor("rbf", gamma="ard")),
        ("rvm", sb.RVMRegressor("rbf", gamma="scale")),
        ("ols", sb.OrthogonalLeastSquaresRegressor("rbf", gamma="scale")),
        ("linear", sb.RVMRegressor(None)),
    ):
        rows = []
        for seed in range(5):
            rng = np.random.default_rng(seed)
            X = rng.uniform(-2.0, 2.0, (2400, 4))
            f = X[:, 0] + X[:, 1] if name == "linear" else np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2
            y = f + 0.3 * rng.standard_normal(len(X))
            spoilt = y[:400].copy()
            bad = rng.choice(400, 40, replace=False)
            spoilt[bad] += 10.0 * rng.standard_normal(40)
            row = []
            for likelihood, t in (
                ("gaussian", y[:400]),
                ("gaussian", spoilt),
                ("student", spoilt),
                ("student", y[:400]),
            ):
                model.set_params(likelihood=likelihood).fit(X[:400], t)
                row.append(np.sqrt(np.mean((model.predict(X[400:]) - y[400:]) ** 2)))
            rows.append(row)
        a = np.mean(rows, axis=0)
        print(
            f"{name:8s} RMSE clean {a[0]:.4f}; 10 % outliers: gaussian {a[1]:.4f}, student "
            f"{a[2]:.4f} ({100 * (a[2] / a[0] - 1):+.1f} %, at most 10); clean, student {a[3]:.4f}",
            flush=True,
        )


# Labels.


def calibration_error(p, hit, bins=10):
    """Mean distance between probability and frequency, over bins of equal size."""
    parts = np.array_split(np.argsort(p), bins)
    gaps = [abs(np.mean(p[part]) - np.mean(hit[part])) * len(part) for part in parts if len(part)]
    return sum(gaps) / len(p)


def labels():
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.datasets import load_breast_cancer, load_digits, make_classification
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    digits = load_digits(return_X_y=True)
    some = rng.permutation(len(digits[1]))[:900]
    rare = make_classification(
        2400, 10, n_informative=6, n_classes=3, weights=[0.93, 0.05, 0.02], random_state=0
    )
    sets = {
        "breast cancer": load_breast_cancer(return_X_y=True),
        "digits": (digits[0][some], digits[1][some]),
        "rare classes": rare,
    }
    models = {
        "RVM": lambda: sb.RVMClassifier(),
        "SVC, sigmoid": lambda: CalibratedClassifierCV(SVC(), method="sigmoid"),
        "trees, isotonic": lambda: CalibratedClassifierCV(
            HistGradientBoostingClassifier(random_state=0), method="isotonic"
        ),
        "logistic": lambda: LogisticRegression(max_iter=2000),
    }
    print(f"{'':30s}{'log-loss':>10s}{'Brier':>10s}{'off by':>10s}{'rarest':>10s}{'CPU s':>8s}")
    for name, (X, y) in sets.items():
        X = StandardScaler().fit_transform(X)
        order = rng.permutation(len(y))
        a, b = order[: len(y) // 2], order[len(y) // 2 :]
        for label, make in models.items():
            started = time.process_time()
            p = make().fit(X[a], y[a]).predict_proba(X[b])
            seconds = time.process_time() - started
            hit = np.equal.outer(y[b], np.unique(y)).astype(float)
            rarest = int(np.argmin(hit.sum(axis=0)))
            print(
                f"{name:14s}{label:16s}{log_loss(y[b], p, labels=np.unique(y)):10.4f}"
                f"{np.mean(np.sum((p - hit) ** 2, axis=1)):10.4f}"
                f"{calibration_error(p.ravel(), hit.ravel()):10.4f}"
                f"{calibration_error(p[:, rarest], hit[:, rarest]):10.4f}{seconds:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = (
        "simulated",
        "refused",
        "tables",
        "packages",
        "few",
        "gaps",
        "far",
        "onehot",
        "time",
        "outliers",
        "labels",
    )
    parser.add_argument("part", choices=parts)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first split")
    parser.add_argument("--data", nargs="*", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.part == "simulated":
        simulated(options.data)
    elif options.part == "refused":
        refused(20 * options.splits)
    elif options.part in ("tables", "packages"):
        methods = METHODS if options.part == "tables" else OTHER_PACKAGES
        tables(options.data or list(TABLES), options.splits, methods, options.first)
    elif options.part == "few":
        few(options.data or list(TABLES), options.splits)
    elif options.part in ("gaps", "far", "onehot"):
        {"gaps": gaps, "far": far, "onehot": one_hots}[options.part](options.splits)
    else:
        {"time": times, "outliers": outliers, "labels": labels}[options.part]()
