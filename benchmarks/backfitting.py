"""Backfitting: its promises, recovery at scale, a real sparse set, and the RVM beside it.

    python benchmarks/backfitting.py [--quick] [--only NAME ...] [--sets NAME ...]

promises    the largest fall of the bound over random problems (priors, variants, labels), distances
            to least squares, to the exact posterior mean and to the dense covariance; and their
            limits
sweep       seconds of one sweep over 100,000 sparse columns, over those of two sparse products
recovery    2,400 rows, 100,000 sparse columns, 71 of them relevant: precision and recall of the
            columns found, seconds and peak memory, beside Lasso and PLSRegression. ARDRegression
            would need a matrix of 100,000 x 100,000 (80 GB): it is given 200 of the columns, all
            relevant ones among them
wide        more columns than rows, three of them relevant, standard normal, noise of standard
            deviation .5: columns kept, RMSE and 95 % coverage on 1,000 new rows with its standard
            error, and CPU seconds, for all models of columns, ARDRegression and LassoCV
coefficients  correlated columns, 80 rows, four of six relevant: share of the true coefficients
            within 1.96 standard deviations, of all and of those that are kept, and the coverage of
            95 % intervals of new rows
sentiment   stars of 8,000 reviews from counts of 4,434 terms: RMSE on a fifth held out, seconds and
            terms kept, beside Ridge, LassoCV, and the Lasso with as many terms as were kept
labels      the same reviews as good or bad: log-loss beside LogisticRegression
kernels     sinc, Boston and Abalone over 20 splits: nMSE and seconds over those of RVMRegressor at
            the same width, and the paper's own scheme (fake targets) beside them
bound       what the paper's scheme costs: sweeps to the least squares solution

The sets are looked for in $SPARSEBAYES_DATA. The recovery problem is the neuroscience shape of the
paper (few rows, spike counts, most neurons irrelevant) grown by a factor of a thousand: counts at a
rate of about 1 %, every relevant column with an effect of .5 to 1.5 of its own spread, and noise of
a fifth of the variance of the target.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.cross_decomposition import PLSRegression
from sklearn.linear_model import (
    ARDRegression,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    Ridge,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers is beside this folder

from papers.data import load_abalone, load_boston, load_sentiment
from sparsebayes import (
    BackfittingClassifier,
    BackfittingRegressor,
    ForwardRegressor,
    GroupARDRegressor,
    GroupSpikeSlabRegressor,
    OrthogonalLeastSquaresRegressor,
    RVMRegressor,
)
from sparsebayes.datasets import make_sinc
from sparsebayes.designs import DenseDesign
from sparsebayes.designs.sparse import CentredSparseDesign, SparseDesign
from sparsebayes.solvers import run
from sparsebayes.solvers.backfitting.fake_targets import FakeTargets
from sparsebayes.solvers.backfitting.mean_solvers import conjugate_gradients
from sparsebayes.solvers.backfitting.regression import Backfitting


def clock(function):
    start = time.perf_counter()
    out = function()
    return time.perf_counter() - start, out


def spikes(n, d, k, seed, share=0.8, rate=0.01):
    """Sparse counts, a target that is `share` explained by k of the columns, and these."""
    rng = np.random.default_rng(seed)
    count = np.maximum(5, rng.binomial(n, np.clip(rate * rng.gamma(2.0, 0.5, d), 0.0, 0.5)))
    rows = np.concatenate([rng.choice(n, c, replace=False) for c in count])
    values = 1.0 + rng.poisson(0.3, len(rows))
    ends = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
    X = sparse.csc_matrix((values, rows.astype(np.int32), ends), shape=(n, d))
    truth = np.sort(rng.choice(d, k, replace=False))
    part = X[:, truth].toarray()
    effect = rng.choice([-1.0, 1.0], k) * rng.uniform(0.5, 1.5, k)
    signal = (part - part.mean(axis=0)) / part.std(axis=0) @ effect
    noise = np.sqrt(np.var(signal) * (1.0 - share) / share)
    return X, signal + noise * rng.standard_normal(n), truth


def found(active, truth):
    hits = len(np.intersect1d(active, truth))
    return hits / max(1, len(active)), hits / len(truth)


def promises(quick):
    print("promises  largest over random problems, its limit, and their ratio")
    rows = {}

    def note(label, value, limit):
        rows[label] = (max(rows.get(label, (0.0,))[0], value), limit)

    def fall(label, model, X, y):
        bound = model.fit(X, y).bound_
        size = max(1.0, float(np.abs(bound).max()))
        note(f"fall of the bound, {label}", -float(np.diff(bound).min(initial=0.0)) / size, 1e-9)

    for seed in range(10 if quick else 60):
        X, f = odd_problem(seed)
        labels = f > np.median(f)
        for prior in ("ard", "ridge"):
            for variance in ("exact", "factorised"):
                settings = {"prior": prior, "variance": variance, "max_iter": 100}
                fall(f"{prior}, {variance}", BackfittingRegressor(**settings), X, f)
                fall(f"{prior}, {variance}, labels", BackfittingClassifier(**settings), X, labels)
            fake = BackfittingRegressor(prior=prior, variant="fake-targets", max_iter=50)
            fall(f"{prior}, fake targets", fake, X, f)
        fall("ard, rbf", BackfittingRegressor("rbf", max_iter=100), X, f)

        n, m = 80, 15
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, m)) + 0.7 * rng.standard_normal((n, 1))
        y = X[:, :3].sum(axis=1) + 0.5 * rng.standard_normal(n)
        ols = LinearRegression().fit(X, y).coef_
        for variance in ("exact", "factorised"):
            ours = BackfittingRegressor(prior="none", variance=variance).fit(X, y).coef_
            note("prior='none' less least squares", relative(ours, ols), 1e-8)
        design, t = DenseDesign(X), y - y.mean()
        alpha, sigma2 = rng.uniform(0.1, 10.0, m), 0.3
        covariance = np.linalg.inv(X.T @ X / sigma2 + np.diag(alpha))
        mean = covariance @ X.T @ t / sigma2
        for inner in ("cg", "gauss-seidel"):
            solver = Backfitting(inner=inner)
            state = solver.init(design, t)
            state.alpha, state.sigma2 = alpha, sigma2
            note("mean less the exact one", relative(solver.solve(state, t).mu, mean), 1e-8)
        fitted = BackfittingRegressor(inclusion_prior=None, fit_intercept=False).fit(X, y)
        active, noise = fitted.active_, fitted.noise_variance_
        dense = X[:, active].T @ X[:, active] / noise + np.diag(fitted.weight_precision_)
        ours = fitted.posterior_.covariance * fitted.basis_.scale[:, None] * fitted.basis_.scale
        ours = ours * (noise / fitted.posterior_.noise_variance)
        note("exact covariance less the dense one", relative(ours, np.linalg.inv(dense)), 1e-8)
    for label, (value, limit) in rows.items():
        print(f"{label:>45}  {value:.1e}  {limit:.0e}  ratio {value / limit:.2f}")


def relative(a, b):
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def odd_problem(seed):
    """Any shape and any scales, now and then with sparse, constant or repeated columns."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(10, 80), rng.integers(3, 60)
    X = rng.standard_normal((n, m)) * rng.choice([1.0, 1e-3, 10.0], m)
    if rng.random() < 0.5:
        X = X * (rng.random((n, m)) < 0.2)
    if rng.random() < 0.3:
        X[:, 0] = 1.0
    if rng.random() < 0.3:
        X[:, -1] = X[:, 0]
    return X, X[:, :3].sum(axis=1) + rng.standard_normal(n)


def sweep(quick):
    n, d = (600, 10_000) if quick else (2400, 100_000)
    X, y, _ = spikes(n, d, 71, 0)
    design = CentredSparseDesign(SparseDesign(X))
    t = design.target(y)
    w, norms = np.zeros(d), design.sqnorms()
    lam = np.full(d, 10.0) * norms
    matrix = design.base.matrix

    def products():
        for _ in range(20):
            matrix.T @ (matrix @ w)

    def sweeps():
        return conjugate_gradients(design, t, lam, norms, w, 20, 0.0)

    products()
    limit = min(clock(products)[0] for _ in range(5)) / 20
    ours = min(clock(sweeps)[0] for _ in range(5)) / 21
    print(
        f"sweep  {n} x {d}, {matrix.nnz} entries: two sparse products {1e3 * limit:.2f} ms, ",
        end="",
    )
    print(f"one sweep {1e3 * ours:.2f} ms, ratio {ours / limit:.2f} (limit 2)")


def recovery(quick):
    n, d, k = (600, 10_000, 18) if quick else (2400, 100_000, 71)
    print(f"recovery  {n} x {d}, {k} relevant")
    print("            seed  columns  precision  recall  seconds  cycles  sweeps")
    worst = 1.0
    for seed in range(2 if quick else 5):
        X, y, truth = spikes(n, d, k, seed)
        for variance in ("exact", "factorised"):
            model = BackfittingRegressor(variance=variance)
            seconds, _ = clock(lambda: model.fit(X, y))  # noqa: B023
            precision, recall = found(model.active_, truth)
            worst = min(worst, precision, recall)
            print(
                f"{variance:>10}  {seed:>4}  {len(model.active_):>7}  {precision:>9.3f}  "
                f"{recall:>6.3f}  {seconds:>7.2f}  {model.n_iter_:>6}  "
                f"{int(model.history_['sweeps'].sum()):>6}"
            )
    print(f"  worst precision or recall {worst:.3f}, over its limit of .93: {worst / 0.93:.2f}")
    X, y, truth = spikes(n, d, k, 0)
    X = X.tocsr()
    tracemalloc.start()
    BackfittingRegressor().fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    print(f"  peak memory of a fit {peak / 1e6:.0f} MB, {peak / size:.1f} x the matrix itself")
    scaled = StandardScaler(with_mean=False).fit_transform(X)
    seconds, lasso = clock(lambda: LassoCV(alphas=20, eps=0.03, cv=3, max_iter=300).fit(scaled, y))
    active = np.flatnonzero(lasso.coef_)
    precision, recall = found(active, truth)
    top = np.argsort(-np.abs(lasso.coef_))[:k]
    print(
        f"  LassoCV: {len(active)} columns, precision {precision:.3f}, recall {recall:.3f}, "
        f"{seconds:.1f} s; its {k} largest: {found(top, truth)[0]:.3f}"
    )
    seconds, pls = clock(lambda: PLSRegression(5, copy=False).fit(scaled.toarray(), y.copy()))
    top = np.argsort(-np.abs(pls.coef_.ravel()))[:k]
    print(f"  PLSRegression(5), its {k} largest: {found(top, truth)[0]:.3f}, {seconds:.1f} s")
    some = np.union1d(truth, np.random.default_rng(0).choice(d, 200 - k, replace=False))
    few = X[:, some].toarray()
    print(f"  {len(some)} of the columns (all {d}: a matrix of {8e-9 * d * d:.1f} GB)")
    for model in (ARDRegression(), BackfittingRegressor()):
        seconds, _ = clock(lambda: model.fit(few, y))  # noqa: B023
        active = some[np.flatnonzero(model.coef_)]
        precision, recall = found(active, truth)
        print(
            f"    {type(model).__name__}: {len(active)} columns, precision {precision:.3f}, "
            f"recall {recall:.3f}, {seconds:.1f} s"
        )


def columns_kept(model):
    """Return how many columns a fitted model uses: those that are more likely in than out."""
    if hasattr(model, "inclusion_probability_"):
        return np.sum(model.inclusion_probability_ > 0.5)
    return np.sum(model.coef_ != 0.0)


def wide(quick):
    print("wide  rows, columns; mean of the draws: columns kept, RMSE, 95 % coverage, CPU seconds")
    models = [
        BackfittingRegressor(),
        GroupSpikeSlabRegressor(),
        RVMRegressor(kernel=None),
        ForwardRegressor(kernel=None),
        OrthogonalLeastSquaresRegressor(kernel=None),
        GroupARDRegressor(),
        ARDRegression(),
        LassoCV(),
    ]
    sizes = [(50, 200), (80, 1000)] if quick else [(50, 200), (80, 1000), (150, 300), (200, 2000)]
    for n, d in sizes:
        results = {}
        for seed in range(2 if quick else 10):
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((n + 1000, d))
            y = X[:, [3, 30, 130]] @ [2.0, -1.5, 1.0] + 0.5 * rng.standard_normal(len(X))
            for model in models:
                start = time.process_time()
                model.fit(X[:n], y[:n])
                seconds = time.process_time() - start
                if isinstance(model, LassoCV):
                    mean, inside = model.predict(X[n:]), np.nan
                elif isinstance(model, ARDRegression):
                    mean, std = model.predict(X[n:], return_std=True)
                    inside = np.mean(np.abs(y[n:] - mean) < 1.96 * std)
                else:
                    mean, (low, high) = model.predict(X[n:]), model.predict_interval(X[n:]).T
                    inside = np.mean((low <= y[n:]) & (y[n:] <= high))
                rmse = np.sqrt(np.mean((y[n:] - mean) ** 2))
                scores = [columns_kept(model), rmse, inside, seconds]
                results.setdefault(type(model).__name__, []).append(scores)
        for name, scores in results.items():
            kept, rmse, inside, seconds = np.mean(scores, axis=0)
            spread = np.std(scores, axis=0, ddof=1)[2] / len(scores) ** 0.5
            cells = f"{kept:>7.1f}{rmse:>8.3f}{inside:>8.3f} +-{spread:.3f}{seconds:>8.2f}"
            print(f"  {n:>4} {d:>5}  {name:<32}{cells}", flush=True)


def coefficients(quick):
    print("coefficients  correlation of six columns; covered of all, of those kept; new rows")
    models = {
        "BackfittingRegressor()": BackfittingRegressor(),
        "BackfittingRegressor(prior='ridge')": BackfittingRegressor(prior="ridge"),
        "GroupSpikeSlabRegressor()": GroupSpikeSlabRegressor(),
    }
    truth = np.array([1.0, -1.0, 0.5, 0.3, 0.0, 0.0])
    for correlation in (0.0, 0.5, 0.9, 0.99):
        for name, model in models.items():
            covered, kept, inside = [], [], []
            for seed in range(10 if quick else 100):
                rng = np.random.default_rng(seed)
                X = correlation**0.5 * rng.standard_normal((480, 1))
                X = X + (1.0 - correlation) ** 0.5 * rng.standard_normal((480, 6))
                y = X @ truth + 0.7 * rng.standard_normal(len(X))
                model.fit(X[:80], y[:80])
                near = np.abs(model.coef_ - truth) <= 1.96 * model.coef_std_
                covered.extend(near[:4])
                kept.extend(near[:4][model.coef_[:4] != 0.0])
                low, high = model.predict_interval(X[80:]).T
                inside.append(np.mean((low <= y[80:]) & (y[80:] <= high)))
            shares = f"{np.mean(covered):>7.2f}{np.mean(kept):>7.2f}{np.mean(inside):>8.3f}"
            print(f"  {correlation:<5} {name:<38}{shares}", flush=True)


def reviews(quick):
    """Counts of terms and stars, for training and for testing."""
    X, y = load_sentiment(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    if quick:
        order = order[:2000]
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    X = sparse.csr_array(X, dtype=np.float64)
    return X[train], y[train], X[test], y[test]


def sentiment(quick):
    X, y, new, truth = reviews(quick)
    models = {
        "backfitting, ard": BackfittingRegressor(),
        "backfitting, ard, flat": BackfittingRegressor(inclusion_prior=None),
        "backfitting, ridge": BackfittingRegressor(prior="ridge"),
        "Ridge (CV)": GridSearchCV(
            Ridge(solver="sparse_cg"), {"alpha": np.logspace(0, 4, 9)}, cv=5
        ),
        "LassoCV": LassoCV(alphas=30, eps=0.01, cv=5, max_iter=300),
    }
    print(f"sentiment  {X.shape[0]} rows, {X.shape[1]} terms; sd of the stars {truth.std():.3f}")
    print(f"{'':>24}   RMSE  terms  seconds")

    def row(name, model, seconds):
        rmse = np.sqrt(np.mean((model.predict(new) - truth) ** 2))
        coef = getattr(model, "best_estimator_", model).coef_
        print(f"{name:>24}  {rmse:.3f}  {np.count_nonzero(coef):>5}  {seconds:>7.1f}")
        return rmse

    errors = {}
    for name, model in models.items():
        seconds, _ = clock(lambda: model.fit(X, y))  # noqa: B023
        errors[name] = row(name, model, seconds)
    terms = np.count_nonzero(models["backfitting, ard"].coef_)
    largest = np.max(np.abs(X.T @ (y - y.mean()))) / len(y)
    for share in np.geomspace(1.0, 0.01, 100):
        lasso = Lasso(alpha=share * largest, max_iter=300)
        seconds, _ = clock(lambda: lasso.fit(X, y))  # noqa: B023
        if np.count_nonzero(lasso.coef_) >= terms:
            row("Lasso, as many terms", lasso, seconds)
            break
    ours = min(errors["backfitting, ard"], errors["backfitting, ridge"])
    others = min(errors["Ridge (CV)"], errors["LassoCV"])
    print(f"  best of ours over the best of Ridge and LassoCV: {ours / others:.3f}")


def labels(quick):
    X, y, new, truth = reviews(quick)
    y, truth = y > 3, truth > 3
    print(f"labels  {X.shape[0]} rows, {X.shape[1]} terms")
    print(f"{'':>28}  log-loss  error  terms  seconds")
    for name, model in {
        "backfitting, ard": BackfittingClassifier(),
        "backfitting, ard, factorised": BackfittingClassifier(variance="factorised"),
        "backfitting, ridge": BackfittingClassifier(prior="ridge"),
        "LogisticRegression (CV)": GridSearchCV(
            LogisticRegression(max_iter=1000),
            {"C": np.logspace(-3, 1, 5)},
            cv=5,
            scoring="neg_log_loss",
        ),
    }.items():
        seconds, _ = clock(lambda: model.fit(X, y))  # noqa: B023
        loss = log_loss(truth, model.predict_proba(new))
        error = np.mean(model.predict(new) != truth)
        coef = getattr(model, "best_estimator_", model).coef_
        print(
            f"{name:>28}  {loss:>8.4f}  {error:.3f}  {np.count_nonzero(coef):>5}  {seconds:>7.1f}"
        )


def split(name, seed):
    """Training and test rows, standardised, and the width."""
    if name == "sinc":
        X, y = make_sinc(100, noise=0.2, noise_kind="uniform", random_state=seed)
        new, truth = make_sinc(1000, noise=0.0, random_state=1000 + seed)
        return X, y, new, truth, 1.0 / 9.0
    load = {"boston": load_boston, "abalone": load_abalone}[name]
    X, y = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    return X[train], y[train], X[test], y[test], "scale"


def kernels(quick, sets=("sinc", "boston", "abalone")):
    print(
        "kernels  nMSE = test MSE / variance of the test targets; ratios to RVMRegressor on the "
        "same splits (limit of the first, for backfitting: 1.05)"
    )
    print(f"{'':>8}  {'':>16}  splits    nMSE   ratio  vectors  seconds   ratio")
    splits = 20
    for name in sets:
        few = 3 if name == "abalone" else splits  # what takes long there
        models = {
            "RVM": (RVMRegressor, {}, splits),
            "RVM, em": (RVMRegressor, {"algorithm": "em"}, few),
            "backfitting": (BackfittingRegressor, {"kernel": "rbf"}, splits),
            "factorised": (
                BackfittingRegressor,
                {"kernel": "rbf", "variance": "factorised"},
                few,
            ),
            "fake targets": (
                BackfittingRegressor,
                {"kernel": "rbf", "variant": "fake-targets", "max_iter": 30},
                1 if name == "abalone" else splits,
            ),
        }
        reference = {}
        for label, (kind, settings, many) in models.items():
            rows = []
            for seed in range(min(many, 2) if quick else many):
                X, y, new, truth, gamma = split(name, seed)
                model = kind(gamma=gamma, cache_size=400, **settings)
                seconds, _ = clock(lambda: model.fit(X, y))  # noqa: B023
                error = np.mean((model.predict(new) - truth) ** 2) / np.var(truth)
                rows.append((error, len(model.active_), seconds))
            rows = np.array(rows)
            reference.setdefault("rows", rows)
            base = reference["rows"][: len(rows)].mean(axis=0)
            error, vectors, seconds = rows.mean(axis=0)
            print(
                f"{name:>8}  {label:>16}  {len(rows):>6}  {error:.4f}  {error / base[0]:>6.3f}  "
                f"{vectors:>7.1f}  {seconds:>7.2f}  {seconds / base[2]:>6.2f}"
            )


def bound(quick):
    print("bound  sweeps to the least squares solution (5 digits), 40 rows, 10 columns")
    rng = np.random.default_rng(0)
    for condition in (1, 3, 10):
        U = np.linalg.qr(rng.standard_normal((40, 10)))[0]
        V = np.linalg.qr(rng.standard_normal((10, 10)))[0]
        Phi = U * np.geomspace(1, 1 / condition, 10) @ V * 10
        t = Phi @ rng.standard_normal(10) + 0.1 * rng.standard_normal(40)
        target = np.linalg.lstsq(Phi, t, rcond=None)[0]
        counts = {}
        for label, solver in (
            ("fake targets", FakeTargets("none", tol=1e-14)),
            ("Gauss-Seidel", Backfitting("none", variance="factorised", inner="gauss-seidel")),
            ("CG", Backfitting("none", variance="factorised")),
        ):
            counts[label] = _sweeps(solver, Phi, t, target)
        print(f"  cond {condition:>3}: " + ", ".join(f"{k} {v}" for k, v in counts.items()))


def _sweeps(solver, Phi, t, target):
    """Sweeps until the weights have five digits."""
    design = DenseDesign(Phi)
    state = solver.init(design, t)
    if isinstance(solver, FakeTargets):
        result = run(
            solver,
            design,
            t,
            max_iter=400,
            state=state,
            callback=lambda i, info, s: bool(
                np.max(np.abs(s.mu - target)) < 1e-5 * np.max(np.abs(target))
            ),
        )
        return int(result.history["sweeps"].sum())
    for sweeps in range(1, 2000):
        mu = solver.solve(state, t, sweeps, 0.0).mu
        if np.max(np.abs(mu - target)) < 1e-5 * np.max(np.abs(target)):
            return sweeps
    return -1


PARTS = {
    f.__name__: f
    for f in (promises, sweep, recovery, wide, coefficients, sentiment, labels, kernels, bound)
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer splits")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--sets", nargs="+", default=["sinc", "boston", "abalone"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # convergence, rows outside the range
    for name in arguments.only:
        extra = [arguments.sets] if name == "kernels" else []
        PARTS[name](arguments.quick, *extra)


if __name__ == "__main__":
    main()
