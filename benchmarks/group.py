"""Group spike-and-slab models: accuracy, recovery, designed experiments, robustness and speed.

    python benchmarks/group.py [--quick] [--only NAME]

enumeration   inclusion against all 2^G models on 200 random problems; both kinds of sites, with
              undecided groups looked at together (the default) and by EP alone
mixture       the same problems by the defaults: largest error of evidence, inclusion and the log
              density of three new observations (--from and --count: a part)
calibration   predicted inclusion probability against the share of groups that are active, in bins,
              with all hyperparameters learnt, on six kinds of problem drawn from the model
              (--from and --count: which draws of each; --append FILE: the summary is of all draws)
confidence    groups with internal correlation .999; near-duplicate groups
signals       100 sparse signals (d = 512, 128 groups, n = 64): mean error of each method
design        error from 32 to 64 rows: random rows, leading eigenvector, best of a pool of 256
about_groups  the same signals: rows until every group is right with probability > .95, chosen at
              random, for what they tell about the weights, and about which groups are in
recovery      d = 1000, 250 groups of 4, 10 active, noise .1, at n = 100, 75 and 60, nothing told
              but the groups; abess, celer and skglm (cross-validated) where they are installed. The
              oracle is least squares on the true groups: no method can be asked for less error
robustness    1000 random problems (n 5-200, d 2-2000, scales 1e+-6), settings in turn: nothing that
              is not finite, and converged_ tells the truth: asked to go on at a tenth of tol, the
              model stays where it is (--from and --count: a part)
sets          60 groups in clusters of 2, 3, 5 or 10 with correlation .9 to 1, one to three of
              them active, n = 100, all learnt: coverage of 95 % credible sets, what they claim,
              their size beside the ideal (all hyperparameters known), and false discovery rates
              at 5, 10 and 20 % (--from and --count: a part; --append FILE: a run that was
              stopped goes on where it was, and the summary is of all draws in the file)
packages      the same with groups of one column beside SuSiE (a reference of its own), knockoffs
              (hidimstat), abess and the lasso
group_packages  the same with groups of two columns beside the group lasso (celer) and abess
stored        columns that are not held: 0, 1 and 2 in a memory-mapped file of bytes, 20 of them
              active, fitted with everything learnt; time and peak memory (--rows, --columns)
speed         one EP step over one dsyrk in the same run, n = 200, d = 10^4 and 10^5; a whole fit;
              CPU times, as all times here: compare them at one BLAS thread (OMP_NUM_THREADS=1)
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy.linalg.blas import dsyrk
from sklearn.linear_model import LassoCV
from sklearn.model_selection import GridSearchCV

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparsebayes import (
    BayesianGroupLassoRegressor,
    GroupARDRegressor,
    GroupHorseshoeRegressor,
    GroupSpikeSlabRegressor,
    SequentialDesign,
)
from sparsebayes.designs import DenseDesign
from sparsebayes.estimators import group_spike_slab
from sparsebayes.solvers import GroupEP
from tests.group_helpers import (
    enumerate_density,
    enumerate_models,
    few_groups,
    random_problem,
    relative_error,
    signal,
)

SIGNAL = {
    "inclusion_prior": 4 / 128,
    "slab_variance": 1 / 3,
    "noise_variance": 1.0,
    "fit_intercept": False,
}


def enumeration(quick):
    count = 40 if quick else 200
    print(f"Inclusion against enumeration, {count} problems: median / 90 % / largest error")
    problems = []
    for seed in range(count):
        X, y, *model = random_problem(np.random.default_rng(seed))
        problems.append((X, y, model, enumerate_models(X, y, *model)))
    for sites, limits in (("group", ".0025 / .08"), ("column", ".02 / .13")):
        for most in (32, 0):
            errors, converged = [], 0
            for X, y, (groups, p0, v0, sigma2), exact in problems:
                model = GroupSpikeSlabRegressor(
                    groups,
                    inclusion_prior=p0,
                    slab_variance=v0,
                    noise_variance=sigma2,
                    sites=sites,
                    max_joint_groups=most,
                    fit_intercept=False,
                ).fit(X, y)
                converged += model.converged_
                errors.append(
                    (
                        np.max(np.abs(model.inclusion_probability_ - exact[0])),
                        np.max(np.abs(model.coef_ - exact[1])) / np.sqrt(v0),
                        abs(model.log_evidence_ - exact[3]),
                    )
                )
            table = np.quantile(errors, [0.5, 0.9, 1.0], axis=0).T
            cells = [" / ".join(f"{x:.4f}" for x in row) for row in table]
            print(
                f"  {sites:6} sites, {'joint look' if most else 'EP alone':10} inclusion {cells[0]}"
                f" (want {limits})  mean {cells[1]}  log Z {cells[2]}  converged {converged}"
            )


def mixture(quick, first=0, count=None):
    count = count or (20 if quick else 200)
    errors = []
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        X, y, groups, *known = random_problem(rng)
        exact = enumerate_models(X, y, groups, *known)
        X_new = X[:3] + 0.3 * rng.standard_normal((3, X.shape[1]))
        y_new = X_new @ exact[1] + np.sqrt(known[2]) * rng.standard_normal(3)
        names = ("inclusion_prior", "slab_variance", "noise_variance")
        model = GroupSpikeSlabRegressor(
            groups, fit_intercept=False, **dict(zip(names, known, strict=True))
        ).fit(X, y)
        density = enumerate_density(X, y, groups, *known, X_new, y_new)
        errors.append(
            (
                abs(model.log_evidence_ - exact[3]),
                np.max(np.abs(model.inclusion_probability_ - exact[0])),
                np.max(np.abs(model._predictive(X_new).log_density(y_new) - density)),
            )
        )
    worst, at = np.max(errors, axis=0), first + np.argmax(errors, axis=0)
    print(f"Problems {first} to {first + count - 1}, largest errors against enumeration: evidence "
          f"{worst[0]:.1e} (want .02), inclusion {worst[1]:.1e} (want .005), log density of new "
          f"observations {worst[2]:.1e} (want .001); in problems {at.tolist()}")  # fmt: skip


# Rows, groups, columns of a group, share of active groups, slab variance and correlation of all
# columns; unit noise. Most signals are weak: with strong ones no group is undecided.
CALIBRATION = {
    "few groups": (60, 10, 3, 0.3, 0.1, 0.0),
    "single columns": (50, 30, 1, 0.15, 0.15, 0.0),
    "correlated": (60, 12, 2, 0.25, 0.2, 0.7),
    "more columns than rows": (50, 40, 3, 0.08, 0.15, 0.0),
    "many groups": (100, 60, 1, 0.1, 0.1, 0.3),
    "strong signals": (60, 10, 3, 0.3, 1.0, 0.0),
    "wide correlated": (60, 120, 1, 0.04, 0.4, 0.5),
}
BINS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)


def calibration_draw(name, seed):
    n, G, k, p, v, rho = CALIBRATION[name]
    rng = np.random.default_rng([seed, *name.encode()])
    X = np.sqrt(1.0 - rho) * rng.standard_normal((n, G * k))
    X += np.sqrt(rho) * rng.standard_normal((n, 1))
    active = rng.random(G) < p
    w = np.repeat(active, k) * rng.normal(0.0, np.sqrt(v), G * k)
    return X, X @ w + rng.standard_normal(n), np.repeat(np.arange(G), k), active


def calibration(quick, first=0, count=None, append=None):
    draws, count = {name: [] for name in CALIBRATION}, count or (5 if quick else 60)
    if append and Path(append).exists():
        for line in Path(append).read_text().splitlines():
            name, *pair = json.loads(line)
            draws[name].append(pair)
    for name in CALIBRATION:
        for seed in range(first, first + count):
            X, y, groups, active = calibration_draw(name, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = GroupSpikeSlabRegressor(groups).fit(X, y)
            pair = (model.inclusion_probability_.tolist(), active.tolist())
            draws[name].append(pair)
            if append:
                with Path(append).open("a") as file:
                    file.write(json.dumps([name, *pair]) + "\n")
    print("Predicted probability / share active (groups) in bins of the predicted probability")
    print(f"  {'':24}" + "".join(f"{f'{a:g} to {b:g}':>19}" for a, b in itertools.pairwise(BINS)))
    joined = {**draws, "all": list(itertools.chain(*draws.values()))}
    for name, pairs in joined.items():
        p, active = (np.concatenate(x) for x in zip(*pairs, strict=True))
        bins, cells = np.clip(np.digitize(p, BINS) - 1, 0, len(BINS) - 2), []
        for i in range(len(BINS) - 1):
            inside = bins == i
            pair = f"{p[inside].mean():.2f} / {active[inside].mean():.2f}" if inside.any() else "-"
            cells.append(f"{pair} ({inside.sum()})")
        loss = -np.mean(np.log(np.clip(np.where(active, p, 1.0 - p), 1e-6, 1.0)))
        print(f"  {name:24}" + "".join(f"{c:>19}" for c in cells) + f"  log-loss {loss:.4f}")


def confidence(quick):
    count = 20 if quick else 100
    active, others = [], []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        X = np.repeat(rng.standard_normal((40, 8)), 5, axis=1)
        X = np.sqrt(0.999) * X + np.sqrt(0.001) * rng.standard_normal(X.shape)
        y = X[:, :5] @ rng.uniform(0.2, 1.0, 5) + 0.5 * rng.standard_normal(40)
        model = GroupSpikeSlabRegressor(np.arange(40) // 5).fit(X, y)
        active.append(model.inclusion_probability_[0])
        others.append(np.max(model.inclusion_probability_[1:]))
    print(f"Internal correlation .999, {count} draws: least inclusion of the active group "
          f"{min(active):.4f} (want > .95), others {np.median(others):.3f}")  # fmt: skip
    errors, sums = [], []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 8))
        X[:, 2:4] = X[:, :2] + 1e-3 * rng.standard_normal((40, 2))
        y = X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(40)
        groups, known = np.arange(8) // 2, (0.25, 1.0, 0.09)
        exact = enumerate_models(X, y, groups, *known)[0]
        names = ("inclusion_prior", "slab_variance", "noise_variance")
        model = GroupSpikeSlabRegressor(
            groups, fit_intercept=False, **dict(zip(names, known, strict=True))
        ).fit(X, y)
        p = model.inclusion_probability_
        errors.append(np.max(np.abs(p - exact)))
        sums.append(p[:2].sum())
    print(f"Near-duplicate groups, {count} draws: inclusion of the two {np.mean(sums) / 2:.3f} "
          f"each, their sum at least {min(sums):.3f}, largest error against enumeration "
          f"{max(errors):.4f}")  # fmt: skip


def _best_group_lasso(X, y, groups, w):
    """The smallest error that any penalty of the group lasso reaches."""
    from celer import GroupLasso

    lists = [np.flatnonzero(groups == g).tolist() for g in range(groups.max() + 1)]
    top = max(np.linalg.norm(X[:, g].T @ y) for g in lists) / len(y)
    path = [
        GroupLasso(groups=lists, alpha=top * s, fit_intercept=False).fit(X, y).coef_
        for s in np.geomspace(0.9, 0.01, 20)
    ]
    return min(path, key=lambda coef: relative_error(coef, w))


def signals(quick):
    count = 10 if quick else 100
    print(f"Sparse signals, {count} draws: |w^ - w|/|w|, mean +- sd (sampled: first 10 draws)")
    known = {"noise_variance": 1.0, "fit_intercept": False}
    chains = {"n_chains": 1, "n_samples": 1000, "n_warmup": 500}
    alone = {**SIGNAL, "inclusion_prior": 16 / 512}
    methods = {
        "grouped EP (want <= .29)": lambda g: GroupSpikeSlabRegressor(g, **SIGNAL),
        "  sites per column": lambda g: GroupSpikeSlabRegressor(g, sites="column", **SIGNAL),
        "  all learnt": lambda g: GroupSpikeSlabRegressor(g, fit_intercept=False),
        "grouped Gibbs": lambda g: GroupSpikeSlabRegressor(
            g, inference="gibbs", **SIGNAL, **chains
        ),
        "group horseshoe": lambda g: GroupHorseshoeRegressor(g, **known, **chains),
        "group ARD": lambda g: GroupARDRegressor(g, **known),
        "group lasso, best": _best_group_lasso,
        "ungrouped EP": lambda g: GroupSpikeSlabRegressor(None, **alone),
        "ungrouped ARD": lambda g: GroupARDRegressor(None, **known),
        "Bayesian group lasso": lambda g: BayesianGroupLassoRegressor(g, **known, **chains),
    }
    sampled = {"grouped Gibbs", "group horseshoe", "Bayesian group lasso"}
    for name, make in methods.items():
        errors, started = [], time.process_time()
        try:
            for seed in range(min(count, 10) if name in sampled else count):
                X, y, groups, w, _ = signal(seed)
                if make is _best_group_lasso:
                    coef = make(X, y, groups, w)
                else:
                    coef = make(groups).fit(X, y).coef_
                errors.append(relative_error(coef, w))
        except ImportError as error:
            print(f"  {name:26} {error}")
            continue
        cpu = (time.process_time() - started) / len(errors)
        print(f"  {name:26} {np.mean(errors):.3f} +- {np.std(errors):.3f}  {cpu:.2f} CPU s a fit")


def design(quick):
    count = 3 if quick else 20
    print(f"Designed experiments, {count} signals: error at n = 32, 40, 48, 56, 64")
    for name in ("random", "eigenvector", "pool of 256"):
        curves = []
        for seed in range(count):
            X, y, groups, w, _ = signal(seed)
            rng = np.random.default_rng(1000 + seed)
            model = GroupSpikeSlabRegressor(groups, max_iter=50, **SIGNAL)
            plan = SequentialDesign(model, X[:32], y[:32])
            curve = [relative_error(plan.model_.coef_, w)]
            for k in range(32, 64):
                if name == "random":
                    x = X[k : k + 1]
                elif name == "eigenvector":
                    x = plan.ask(norm=np.sqrt(512))
                else:
                    pool = rng.standard_normal((256, 512))
                    pool *= np.sqrt(512) / np.linalg.norm(pool, axis=1, keepdims=True)
                    x = plan.ask(pool)
                plan.tell(x, x @ w + rng.standard_normal(1))
                curve.append(relative_error(plan.model_.coef_, w))
            curves.append(np.array(curve)[[0, 8, 16, 24, 32]])
        want = {"random": "about .28", "eigenvector": "<= .11"}.get(name, "")
        print(f"  {name:12}" + "".join(f"{x:8.3f}" for x in np.mean(curves, axis=0)) + f"  {want}")


def about_groups(quick, first=0, count=None):
    count = count or (3 if quick else 30)
    print(f"Signals {first} to {first + count - 1}: rows until every group is right with "
          "probability > .95 (65: not by 64), mean; how often by 64; error at the end")  # fmt: skip
    for name in ("random", "weights", "groups"):
        needed, errors = [], []
        for seed in range(first, first + count):
            X, y, groups, w, active = signal(seed)
            rng = np.random.default_rng(1000 + seed)
            truth = np.isin(np.arange(groups.max() + 1), active)
            model = GroupSpikeSlabRegressor(groups, max_iter=50, **SIGNAL)
            plan = SequentialDesign(model, X[:32], y[:32])
            rows = 65
            for k in range(32, 64):
                if name == "random":
                    x = X[k : k + 1]
                else:
                    x = plan.ask(norm=np.sqrt(512), target=name)
                plan.tell(x, x @ w + rng.standard_normal(1))
                if np.all(np.abs(plan.model_.inclusion_probability_ - truth) < 0.05):
                    rows = k + 1
                    break
            needed.append(rows)
            errors.append(relative_error(plan.model_.coef_, w))
        needed = np.array(needed)
        print(f"  {name:8} {np.mean(needed):5.1f}  {np.mean(needed <= 64):.2f}  "
              f"{np.mean(errors):.3f}  {needed.tolist()}")  # fmt: skip


def _abess(X, y, groups):
    from abess import LinearRegression

    # Asked for more groups than 0.8 n / group size, its criterion takes a saturated fit.
    most = min(20, int(0.8 * len(y) / np.bincount(groups)[0]))
    return LinearRegression(group=groups, support_size=range(most + 1)).fit(X, y).coef_


def _celer(X, y, groups):
    from celer import GroupLasso  # its GroupLassoCV fails on scikit-learn 1.9

    return _cross_validated(GroupLasso(int(np.bincount(groups)[0])), X, y, groups)


def _skglm(X, y, groups):
    from skglm import GroupLasso

    return _cross_validated(GroupLasso(int(np.bincount(groups)[0])), X, y, groups)


def _cross_validated(model, X, y, groups):
    top = max(np.linalg.norm(X[:, groups == g].T @ y) for g in range(groups.max() + 1)) / len(y)
    grid = {"alpha": top * np.geomspace(0.5, 0.005, 12)}
    return GridSearchCV(model, grid, cv=5).fit(X, y).best_estimator_.coef_


def recovery(quick):
    count = 3 if quick else 10
    print(f"Recovery of 10 of 250 groups, {count} draws: exact groups; error <= .015; mean error "
          "(oracle's); CPU s a fit, mean and most")  # fmt: skip
    methods = {
        "sparsebayes": lambda X, y, g: GroupSpikeSlabRegressor(g).fit(X, y),
        "abess": _abess,
        "celer": _celer,
        "skglm": _skglm,
    }
    for n in (100, 75, 60):
        for name, fit in methods.items():
            exact, small, possible, errors, oracle, cpu = 0, 0, 0, [], [], []
            try:
                for seed in range(count):
                    X, y, groups, w, active = few_groups(n, seed)
                    started = time.process_time()
                    found = fit(X, y, groups)
                    cpu.append(time.process_time() - started)
                    coef = getattr(found, "coef_", found)
                    if name == "sparsebayes":
                        chosen = np.flatnonzero(found.inclusion_probability_ > 0.5)
                    else:
                        chosen = np.unique(groups[np.abs(coef) > 0])
                    exact += np.array_equal(chosen, active)
                    errors.append(relative_error(coef, w))
                    inside = np.isin(groups, active)
                    best = np.zeros_like(w)
                    best[inside] = np.linalg.lstsq(X[:, inside], y, rcond=None)[0]
                    oracle.append(relative_error(best, w))
                    small += errors[-1] <= 0.015
                    possible += oracle[-1] <= 0.015
            except ImportError as error:
                print(f"  n = {n:3} {name:12} {error}")
                continue
            print(f"  n = {n:3} {name:12} {exact:2} of {count};  {small} (oracle {possible});  "
                  f"{np.mean(errors):.4f} ({np.mean(oracle):.4f});  {np.mean(cpu):.2f}, "
                  f"{max(cpu):.2f}")  # fmt: skip


def robustness(quick, first=0, count=None):
    count = count or (50 if quick else 1000)
    bad, untrue, spent, reasons = 0, 0, [], Counter()
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(5, 201)), int(np.exp(rng.uniform(np.log(2), np.log(2000))))
        groups = np.sort(rng.integers(0, max(1, d // 3), d))
        X = 10.0 ** rng.uniform(-6, 6) * rng.standard_normal((n, d))
        y = X @ np.where(rng.random(d) < 0.1, rng.standard_normal(d), 0.0)
        y = 10.0 ** rng.uniform(-6, 6) * (y / (np.std(y) or 1.0) + rng.standard_normal(n))
        settings = (
            {},
            {"anneal": False, "sites": "column"},
            {"anneal": False, "inclusion_prior": 0.1},
            {"anneal": False, "fit_intercept": False},
        )[seed % 4]
        model = GroupSpikeSlabRegressor(groups, warm_start=True, **settings)
        started = time.process_time()
        model.fit(X, y)
        spent.append(time.process_time() - started)
        reasons[model.stop_reason_] += 1
        std = model.predict(X[:5], return_std=True)[1]
        before = model.inclusion_probability_
        values = (model.coef_, model.coef_std_, before, std, model.log_evidence_)
        bad += not all(np.all(np.isfinite(v)) for v in values)
        if model.converged_:
            model.set_params(tol=1e-5, anneal=False).fit(X, y)
            untrue += bool(np.max(np.abs(model.inclusion_probability_ - before)) > 0.02)
    print(f"Random problems {first} to {first + count - 1}: {bad} not finite, ended by "
          f"{dict(reasons)}, {untrue} of the converged moved on by more than .02 when asked to; "
          f"CPU s a fit: median {np.median(spent):.3f}, most {max(spent):.1f}")  # fmt: skip


def _clusters(seed, n=100):
    """Groups of one or two columns in clusters of near-duplicates, one to three of them active."""
    rng = np.random.default_rng(seed)
    size, r = 1 + seed % 2, rng.choice([0.9, 0.95, 0.99, 1.0])
    copies = int(rng.choice([2, 3, 5, 10]))
    clusters = 60 // copies
    shared = rng.standard_normal((n, clusters, 1, size))
    own = rng.standard_normal((n, clusters, copies, size))
    X = (np.sqrt(r) * shared + np.sqrt(1.0 - r) * own).reshape(n, -1)
    count = rng.integers(1, 4)
    active = copies * rng.choice(clusters, count, replace=False) + rng.integers(0, copies, count)
    groups = np.repeat(np.arange(clusters * copies), size)
    w = np.where(np.isin(groups, active), 0.5 * rng.standard_normal(len(groups)), 0.0)
    return X, X @ w + rng.standard_normal(n), groups, active, r, copies


def _told(X, y, groups, active):
    """The model with the hyperparameters that the data were drawn with."""
    return GroupSpikeSlabRegressor(
        groups,
        inclusion_prior=len(active) / (groups.max() + 1),
        slab_variance=0.25,
        noise_variance=1.0,
    ).fit(X, y)


def _sets(seed):
    """What credible sets and selection make of one draw."""
    X, y, groups, active, r, copies = _clusters(seed)
    started = time.process_time()
    model = GroupSpikeSlabRegressor(groups).fit(X, y)
    spent = time.process_time() - started
    found, probability, _ = model.credible_sets(return_details=True)
    false = {}
    for rate in (0.05, 0.1, 0.2):
        chosen = model.select(rate)
        false[str(rate)] = float(np.mean(~np.isin(chosen, active))) if len(chosen) else 0.0
    return {
        "seed": seed,
        "case": [float(r), copies],
        "converged": bool(model.converged_),
        "CPU s": spent,
        "false": false,
        "sets": [
            [bool(np.isin(s, active).any()), float(p), len(s)]
            for s, p in zip(found, probability, strict=True)
        ],
        "ideal": [len(s) for s in _told(X, y, groups, active).credible_sets()],
    }


def sets(quick, first=0, count=None, append=None):
    count = count or (40 if quick else 2000)
    draws = {}
    if append and Path(append).exists():
        lines = Path(append).read_text().splitlines()
        draws = {draw["seed"]: draw for draw in map(json.loads, lines)}
    for seed in range(first, first + count):
        if seed in draws:
            continue
        draws[seed] = _sets(seed)
        if append:
            with Path(append).open("a") as file:
                print(json.dumps(draws[seed]), file=file)
    draws = list(draws.values())
    rates = {k: np.mean([d["false"][k] for d in draws]) for k in draws[0]["false"]}
    ideal = np.concatenate([d["ideal"] for d in draws])
    print(f"{len(draws)} draws: {sum(d['converged'] for d in draws)} converged, "
          f"{np.mean([d['CPU s'] for d in draws]):.2f} CPU s a fit; false discoveries "
          + ", ".join(f"{v:.4f} at {k}" for k, v in rates.items()))  # fmt: skip
    print(f"  told the true p0, slab and noise variances the median size is {np.median(ideal):.0f} "
          f"and the mean {np.mean(ideal):.2f}")  # fmt: skip
    rows = np.array([d["case"] + s for d in draws for s in d["sets"]], dtype=float)
    cases = [("all", np.ones(len(rows), dtype=bool))]
    cases += [(f"r = {r}", rows[:, 0] == r) for r in (0.9, 0.95, 0.99, 1.0)]
    cases += [(f"{c} copies", rows[:, 1] == c) for c in (2, 3, 5, 10)]
    for name, case in cases:
        some = rows[case]
        print(f"  {name:10} {len(some):5} sets of 95 %: {np.mean(some[:, 2]):.3f} hold an active "
              f"group ({int(some[:, 2].sum())}), claimed {np.mean(some[:, 3]):.3f}, median size "
              f"{np.median(some[:, 4]):.0f}, mean {np.mean(some[:, 4]):.2f}")  # fmt: skip


def _susie(X, y, effects=10, coverage=0.95, purity=0.5, steps=100):
    """Credible sets of a sum of single effects (Wang and others 2020), its own reference.

    Each effect is one column with a normal weight; in turn each is fitted to what the others leave,
    its prior variance by a step of EM, then the noise. Sets of effects below `purity` are left out.
    """
    n, d = X.shape
    X, y = X - X.mean(axis=0), y - y.mean()
    square = np.sum(X**2, axis=0)
    alpha, mu = np.full((effects, d), 1.0 / d), np.zeros((effects, d))
    second = np.zeros((effects, d))
    V, s2 = np.full(effects, 0.2 * np.var(y)), float(np.var(y))
    fitted, before = X @ (alpha * mu).sum(axis=0), -np.inf
    for _ in range(steps):
        for k in range(effects):
            fitted -= X @ (alpha[k] * mu[k])
            b = X.T @ (y - fitted) / square
            shat = s2 / square
            log_bf = 0.5 * np.log(shat / (shat + V[k])) + 0.5 * b**2 / shat * V[k] / (V[k] + shat)
            weight = np.exp(log_bf - log_bf.max())
            alpha[k] = weight / weight.sum()
            variance = 1.0 / (1.0 / shat + 1.0 / max(V[k], 1e-12))
            mu[k] = variance * b / shat
            second[k] = variance + mu[k] ** 2
            V[k] = float(alpha[k] @ second[k])
            fitted += X @ (alpha[k] * mu[k])
        each = X @ (alpha * mu).T
        spread = np.sum(alpha * second * square) - np.sum(each**2)
        s2 = float((np.sum((y - fitted) ** 2) + spread) / n)
        if abs(np.log(s2) - before) < 1e-6:
            break
        before = np.log(s2)
    sets = []
    size = np.abs(np.corrcoef(X.T))
    for k in range(effects):
        order = np.argsort(-alpha[k], kind="stable")
        members = np.sort(order[: np.searchsorted(np.cumsum(alpha[k][order]), coverage) + 1])
        if size[np.ix_(members, members)].min() >= purity and V[k] > 1e-6 * np.var(y):
            sets.append(members)
    return [s for i, s in enumerate(sets) if not any(np.array_equal(s, t) for t in sets[:i])]


def packages(quick, first=0, count=None):
    from abess import LinearRegression
    from hidimstat import ModelXKnockoff

    count = count or (10 if quick else 200)
    print(f"{count} draws as in `sets`, groups of one: share of the active clusters that are "
          "found, share of finds that are false (clusters; columns), and their number")  # fmt: skip

    def knockoffs(X, y):
        model = ModelXKnockoff(random_state=0)
        model.fit_importance(X, y)
        return np.flatnonzero(model.fdr_selection(fdr=0.1))

    def ours(X, y):
        return GroupSpikeSlabRegressor().fit(X, y)

    methods = {
        "sets": lambda X, y: ours(X, y).credible_sets(),
        "select(.1)": lambda X, y: ours(X, y).select(0.1),
        "SuSiE sets": _susie,
        "knockoffs, .1": knockoffs,
        "abess": lambda X, y: np.flatnonzero(
            LinearRegression(support_size=range(20)).fit(X, y).coef_
        ),
        "lasso, CV": lambda X, y: np.flatnonzero(LassoCV().fit(X, y).coef_),
    }
    for name, method in methods.items():
        _power(name, lambda X, y, _, m=method: m(X, y), 2 * first, count)


def _power(name, method, first, count):
    """What a method finds in every second draw from `first` on."""
    power, wrong, alone, number = [], [], [], []
    for seed in range(first, first + 2 * count, 2):
        X, y, groups, active, _, copies = _clusters(seed)
        found = [np.atleast_1d(s) for s in method(X, y, groups)]
        where = {int(s[0]) // copies for s in found}
        truth = {int(a) // copies for a in active}
        power.append(len(where & truth) / len(truth))
        number.append(len(found))
        if found:
            wrong.append(np.mean([int(s[0]) // copies not in truth for s in found]))
            alone.append(np.mean([not np.isin(s, active).any() for s in found]))
    print(f"  {name:15} {np.mean(power):.3f}  {np.sum(wrong) / len(power):.3f}; "
          f"{np.sum(alone) / len(power):.3f}  {np.mean(number):.2f}", flush=True)  # fmt: skip


def group_packages(quick, first=0, count=None):
    """`packages` for groups of two columns."""
    count = count or (10 if quick else 200)
    print(f"{count} draws as in `sets`, groups of two: share of the active clusters found, "
          "share of finds that are false (clusters; groups), and their number")  # fmt: skip

    def chosen(coef, groups):
        return np.unique(groups[np.abs(coef) > 0])

    def ours(X, y, g):
        return GroupSpikeSlabRegressor(g).fit(X, y)

    methods = {
        "sets": lambda X, y, g: ours(X, y, g).credible_sets(),
        "select(.1)": lambda X, y, g: ours(X, y, g).select(0.1),
        "group lasso, CV": lambda X, y, g: chosen(_celer(X - X.mean(0), y - y.mean(), g), g),
        "abess": lambda X, y, g: chosen(_abess(X, y, g), g),
    }
    for name, method in methods.items():
        _power(name, lambda X, y, g, m=method: m(X, y, g), 2 * first + 1, count)


@contextmanager
def _own_memory():
    """The bytes that are no page of a file, every hundredth second (Linux)."""
    sizes, done = [0], threading.Event()

    def watch():
        while not done.wait(0.01):
            status = Path("/proc/self/status").read_text()
            sizes.append(1024 * int(status.partition("RssAnon:")[2].split()[0]))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield sizes
    finally:
        done.set()
        thread.join()


def stored(quick, n=500, d=300_000):
    n, d = (200, 100_000) if quick else (n, d)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        X = np.lib.format.open_memmap(path, mode="w+", dtype=np.int8, shape=(n, d))
        for first in range(0, n, 50):
            for row in (*range(first, min(first + 50, n)),) * 2:  # a row at a time: little memory
                X[row] += rng.random(d, dtype=np.float32) < 0.3
        active = np.sort(rng.choice(d, 20, replace=False))
        y = X[:, active] @ rng.standard_normal(20) + rng.standard_normal(n)
        del X
        X = np.load(path, mmap_mode="r")
        if 8 * n * d <= group_spike_slab._HELD:
            group_spike_slab._HELD = 0.0
        started = time.process_time()
        with _own_memory() as own:
            model = GroupSpikeSlabRegressor().fit(X, y)
        spent = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"Stored columns, n = {n}, d = {d}: {spent:.1f} CPU s, peak {1e-9 * peak:.2f} GB with "
          f"the pages of the file ({1e-9 * n * d:.2f} GB; {8e-9 * n * d:.1f} in float64), "
          f"{1e-9 * max(own):.2f} without; "
          f"{np.isin(model.active_, active).sum()} of 20 active columns found, "
          f"{(~np.isin(model.active_, active)).sum()} others, converged "
          f"{model.converged_}")  # fmt: skip


def speed(quick):
    n = 200
    print(f"One EP step over one dsyrk of the same columns (want <= 3), n = {n}, groups of 4")
    for d in (10_000,) if quick else (10_000, 100_000):
        rng = np.random.default_rng(0)
        X = np.asfortranarray(rng.standard_normal((n, d)))
        groups = np.arange(d) // 4
        active = np.sort(rng.choice(d // 4, 10, replace=False))
        w = np.where(np.isin(groups, active), rng.standard_normal(d), 0.0)
        y = X @ w + 0.5 * rng.standard_normal(n)
        data = DenseDesign(X)
        for sites in ("group", "column"):
            # One step is one pass over all columns: no extra updates of the likely groups.
            solver = GroupEP(groups, 40 / d, 1.0, 0.25, sites=sites, focus_from=np.inf)
            state = solver.init(data, y)
            steps, products = [], []
            while not solver.done(state) and len(steps) < 100:
                started = time.process_time()
                state, _ = solver.step(state, data, y)
                steps.append(time.process_time() - started)
                started = time.process_time()
                dsyrk(1.0, X, lower=1)
                products.append(time.process_time() - started)
            unit = np.median(products)
            print(f"  d = {d:6} {sites:6} sites: median of all {len(steps)} steps "
                  f"{np.median(steps) / unit:.2f}, mean {np.mean(steps) / unit:.2f}, first five "
                  f"(all sites move) {np.median(steps[:5]) / unit:.2f}; dsyrk "
                  f"{1e3 * unit:.0f} CPU ms")  # fmt: skip
        given = {"inclusion_prior": 40 / d, "slab_variance": 1.0, "noise_variance": 0.25}
        for name, settings in (
            ("all learnt", {}),
            ("given", given),
            ("given, one run", {**given, "anneal": False}),
        ):
            started = time.process_time()
            model = GroupSpikeSlabRegressor(groups, **settings).fit(X, y)
            spent = time.process_time() - started
            chosen = np.flatnonzero(model.inclusion_probability_ > 0.5)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / X.nbytes
            print(f"  d = {d:6} fit, {name:15} {spent:5.1f} CPU s = {spent / unit:.0f} dsyrk, "
                  f"{model.runs_['n_iter'].sum()} steps, exact groups "
                  f"{np.array_equal(chosen, active)}, peak {peak:.1f} times X")  # fmt: skip


_ALL = (
    enumeration,
    mixture,
    calibration,
    confidence,
    signals,
    design,
    about_groups,
    recovery,
    robustness,
    sets,
    packages,
    group_packages,
    stored,
    speed,
)
PARTS = {f.__name__: f for f in _ALL}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument(
        "--append", help="of `sets` and `calibration`: the draws, one a line; those there are kept"
    )
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--columns", type=int, default=300_000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, part in PARTS.items():
        if arguments.only not in (None, name):
            continue
        if part in (sets, calibration):
            part(arguments.quick, arguments.first, arguments.count, arguments.append)
        elif part in (about_groups, mixture, robustness, packages, group_packages):
            part(arguments.quick, arguments.first, arguments.count)
        elif part is stored:
            part(arguments.quick, arguments.rows, arguments.columns)
        else:
            part(arguments.quick)
