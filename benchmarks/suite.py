"""Everything on the benchmark page, measured cell by cell; `page.py` makes the page of the rows.

    python benchmarks/suite.py [--sections NAME ...] [--only ours|others] [--methods NAME ...]
                               [--jobs N] [--minutes M] [--rows docs/benchmarks.jsonl]

A cell is one method on one data set and split. Its row is appended to the file as soon as it is
done, so that a run that was stopped goes on where it was. Rows of this package count for the commit
that measured them and are measured again on another one (`SPARSEBAYES_COMMIT` names the commit
where there is no git). Rows of other packages are measured once. Methods that are not installed are
left out. The first split of everything comes first, and cells that took long before come before
shorter ones. After `--minutes` no cell is started, and none that took longer before than the time
that is left. The sections are

    accuracy  nine regression sets, 10 splits          classes  seven sets of labels, 5 splits
    tables    34 tables with categories and gaps, 3 splits, `table_model()` and five others
    speed     seconds of a default fit over the number of rows
    rvm       evidence and time beside fastrvm         groups   beside susieR, knockoffs and abess
    narx      Silverbox, cascaded tanks and two systems with hysteresis
    dask      fits on two Dask workers and in one process, and how far their models are apart
    device    fits on a GPU and with NumPy, and how far their models are apart

All methods have their defaults and one thread; NumPy beside a GPU has all cores. Times of dask and
device are of the wall clock: run these two alone, with one job. The R package susieR needs Rscript.
The scripts of the sections' names print more.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
import warnings
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import accuracy
import anywhere
import group
import rvm
import tables
from _susie import susie, susie_version
from page import ROWS, commit, package_version

from papers.data import load_california, load_cascaded_tanks, load_silverbox
from sparsebayes import (
    ForwardRegressor,
    GroupSpikeSlabRegressor,
    NARXRegressor,
    PartitionedRVMRegressor,
    RVMRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
)


@dataclass(frozen=True)
class Cell:
    """One method on one data set and split; `run` returns its scores."""

    section: str
    data: str
    method: str
    seed: int
    run: object
    package: str = "sparsebayes"

    @property
    def key(self):
        return self.section, self.data, self.method, self.seed


# Sections.


SMALL = ("boston", "ozone", "cpu", "friedman 240")  # sets for an exact Gaussian process


def accuracy_cells():
    others = {"CatBoost": "catboost", "LightGBM": "lightgbm", "boosted trees": "sklearn"}
    others |= {"ARDRegression": "sklearn", "GaussianProcessRegressor": "sklearn"}
    for data in accuracy.REGRESSION:
        for method in ("sparse GP", "forward", "RVM", *others):
            for seed in range(10):
                if method != "GaussianProcessRegressor" or data in SMALL:
                    run, package = partial(_regression, data, method, seed), others.get(method)
                    yield Cell("accuracy", data, method, seed, run, package or "sparsebayes")


def _regression(data, method, seed):
    split = accuracy.regression_split(data, seed)
    if method in ("ARDRegression", "GaussianProcessRegressor"):
        return _with_std(method, *split)
    row = accuracy.regression_row(accuracy.REGRESSORS[method](), *split)
    heads = ("RMSE", "NLL", "CRPS", "95 % coverage", "functions", "CPU s")
    scores = dict(zip(heads, map(float, row), strict=True))
    if np.isnan(scores["95 % coverage"]):  # no standard deviations: NLL and CRPS would be ours
        scores = {name: scores[name] for name in ("RMSE", "CPU s")}
    return scores


def _with_std(method, X, y, new, truth):
    """Score a model of scikit-learn that has standard deviations, on standardised inputs."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.linear_model import ARDRegression

    started = time.process_time()
    centre, size = X.mean(axis=0), X.std(axis=0)
    X, new = (X - centre) / size, (new - centre) / size
    model = ARDRegression()
    if method == "GaussianProcessRegressor":
        kernel = ConstantKernel() * RBF(np.full(X.shape[1], 3.0)) + WhiteKernel(0.1)
        model = GaussianProcessRegressor(kernel, normalize_y=True)
    mean, std = model.fit(X, y).predict(new, return_std=True)
    seconds = time.process_time() - started
    nll, crps = accuracy.normal_scores(truth, mean, std)
    inside = float(np.mean(np.abs(truth - mean) < 1.96 * std))
    scores = {"RMSE": _rms(mean - truth), "NLL": float(nll), "CRPS": float(crps)}
    return {**scores, "95 % coverage": inside, "CPU s": seconds}


def class_cells():
    others = {"CatBoost": "catboost", "LightGBM": "lightgbm", "SVC": "sklearn"}
    for data in accuracy.CLASSES:
        for method in ("sparse GP", "RVM", *others):
            for seed in range(5):
                run = partial(_classes, data, method, seed)
                yield Cell("classes", data, method, seed, run, others.get(method, "sparsebayes"))


def _classes(data, method, seed):
    makers = accuracy.CLASSIFIERS | {"sparse GP": SparseGPClassifier}
    row = accuracy.classes_row(makers[method](), *accuracy.classes_split(data, seed))
    return dict(zip(("log-loss", "error", "functions", "CPU s"), map(float, row), strict=True))


# Methods on tables, by their name on the page: the name in `tables.py`, and the package.
TABLE_METHODS = {
    "table_model": ("sparsebayes", "sparsebayes"),
    "CatBoost": ("catboost", "catboost"),
    "HistGradientBoosting": ("histgb", "sklearn"),
    "LightGBM": ("lightgbm", "lightgbm"),
    "EBM": ("ebm", "interpret"),
    "NGBoost": ("ngboost", "ngboost"),
}


def table_cells():
    if "SPARSEBAYES_DATA" not in os.environ:
        return
    root = Path(os.environ["SPARSEBAYES_DATA"]) / "tables"
    for task, section in (("regression", "tables"), ("classification", "tables with classes")):
        for path in sorted((root / task).glob("*.csv.gz")):
            name = path.name.removesuffix(".csv.gz")
            for method, (_, package) in TABLE_METHODS.items():
                if method == "NGBoost" and task == "classification":  # here for its densities
                    continue
                for seed in range(3):
                    run = partial(_table, task, name, method, seed)
                    yield Cell(section, name, method, seed, run, package)


def _table(task, name, method, seed):
    ((_, _, frame),) = tables.tables([name])
    row = tables.run(task, name, frame, seed, TABLE_METHODS[method][0])
    names = {"rmse": "RMSE", "log_loss": "log-loss", "nll": "NLL", "crps": "CRPS"}
    names |= {"coverage": "95 % coverage", "cpu": "CPU s"}
    return {label: row[key] for key, label in names.items() if key in row}


def speed_cells():
    makers = {"sparse GP": SparseGPRegressor, "forward": ForwardRegressor, "RVM": RVMRegressor}
    for n in (300, 1000, 3000, 10_000):
        for method in makers:
            if method != "RVM" or n <= 3000:
                run = partial(_speed, n, makers[method])
                yield Cell("speed", f"California, {n} rows", method, 0, run)
        run = partial(_speed, n, partial(accuracy.catboost, "Regressor"))
        yield Cell("speed", f"California, {n} rows", "CatBoost", 0, run, "catboost")


def _speed(n, make):
    X, y = load_california(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:n], order[-5000:]
    started = time.process_time()
    model = make().fit(X[train], y[train])
    seconds = time.process_time() - started
    error = model.predict(X[test]) - y[test]
    return {"CPU s": seconds, "RMSE": float(np.sqrt(np.mean(error**2)))}


def rvm_cells():
    for case, n in (("friedman", 240), ("boston", 481), ("california", 2500)):
        for name, method in (("auto", "RVM"), ("fastrvm", "fastrvm")):
            for seed in range(10 if n < 1000 else 3):
                package = "sparsebayes" if method == "RVM" else "fastrvm"
                run = partial(_rvm, name, case, n, seed)
                yield Cell("rvm", f"{case}, {n} rows", method, seed, run, package)


def _rvm(name, case, n, seed):
    row = rvm.measure(name, rvm.CASES[case], seed, n)
    names = {"evidence": "minus log evidence", "rmse": "RMSE", "cover": "95 % coverage"}
    names |= {"vectors": "vectors", "seconds": "CPU s"}
    return {label: -row[k] if k == "evidence" else row[k] for k, label in names.items()}


def group_cells():
    others = {"susieR": "susieR", "knockoffs, FDR 0.1": "hidimstat", "abess": "abess"}
    for method in ("credible sets", "selection, FDR 0.1", *others):
        for seed in range(20 if method.startswith("knockoffs") else 100):
            run = partial(_groups, method, 2 * seed)
            package = others.get(method, "sparsebayes")
            yield Cell("groups", "60 columns in clusters", method, seed, run, package)


def _groups(method, seed):
    X, y, _, active, _, copies = group._clusters(seed)
    started, seconds = time.process_time(), None
    if method == "credible sets":
        found = GroupSpikeSlabRegressor().fit(X, y).credible_sets()
    elif method == "selection, FDR 0.1":
        found = GroupSpikeSlabRegressor().fit(X, y).select(0.1)
    elif method == "susieR":
        found, seconds = susie(X, y)
    elif method == "abess":
        from abess import LinearRegression

        found = np.flatnonzero(LinearRegression(support_size=range(20)).fit(X, y).coef_)
    else:
        from hidimstat import ModelXKnockoff

        model = ModelXKnockoff(random_state=0)
        model.fit_importance(X, y)
        found = np.flatnonzero(model.fdr_selection(fdr=0.1))
    seconds = time.process_time() - started if seconds is None else seconds
    places = [int(np.atleast_1d(part)[0]) // copies for part in found]
    truth = {int(a) // copies for a in active}
    wrong = float(np.mean([place not in truth for place in places])) if places else 0.0
    missed = 1.0 - len(set(places) & truth) / len(truth)
    return {"missed clusters": missed, "false discoveries": wrong, "CPU s": seconds}


PUBLISHED = {  # free-run errors of the benchmark sets' own page
    "Silverbox, multisine": {"GRU": 1.49, "LSTM": 1.50},
    "Silverbox, arrow": {"GRU": 2.80, "LSTM": 2.68},
    "tanks, window 50": {"GRU": 0.396, "LSTM": 0.490, "polynomial NARX": 0.413},
}


N_BLOCKS = 8  # of the training record of the tanks, each of which is left out once


TANKS = {
    f"lags {lags}, degree {degree}{', hinges' if hinges else ''}": {
        "input_lags": lags,
        "output_lags": lags,
        "degree": degree,
        "candidates": ["polynomial", "hinge"] if hinges else ["polynomial"],
    }
    for lags in (2, 3, 4)
    for degree in (1, 2, 3)
    for hinges in (False, True)
}


def narx_cells():
    yield Cell("narx average", "tanks", "all settings", 0, _tanks_average)
    for label, settings in TANKS.items():
        yield Cell("narx settings", "tanks", label, 0, partial(_tanks, settings))
    for lags in (2, 3):
        settings = {"input_lags": lags, "output_lags": lags, "degree": 3}
        run = partial(_silverbox, settings)
        yield Cell("narx settings", "Silverbox", f"lags {lags}, degree 3", 0, run)
    kinds = {
        "polynomial, degree 2": {"degree": 2},
        "polynomial, degree 3": {"degree": 3},
        "hysteresis": {"degree": 1, "candidates": ["polynomial", "hysteresis"]},
    }
    for system in ("Bouc-Wen element", "Bouc-Wen oscillator"):
        for label, settings in kinds.items():
            for seed in range(5):
                run = partial(_bouc_wen, system, settings, seed)
                yield Cell("hysteresis", system, label, seed, run)
    for data, known in PUBLISHED.items():
        for method, value in known.items():
            run = partial(_published, value, data)
            yield Cell("narx", data, method, 0, run, "published")


def _published(value, data):
    return {"RMSE, V" if data.startswith("tanks") else "RMSE, mV": value}


def _tanks(settings):
    """Score one setting on eighths of the training record, each left out once, and on the test.

    The held-back error is the geometric mean over the eighths: where the only stretch with an
    overflow is left out, every model extrapolates, and an arithmetic mean would be that one error.
    """
    bunch = load_cascaded_tanks()
    u, y = bunch.data[:, 0], bunch.target
    scores = {}
    for i, part in enumerate(np.array_split(np.arange(len(y)), N_BLOCKS)):
        ends = [(0, part[0]), (part[-1] + 1, len(y))]
        rest = [slice(a, b) for a, b in ends if b > a]
        model = NARXRegressor(**settings).fit([u[r] for r in rest], [y[r] for r in rest])
        error = model.simulate(u[part], y[part][: model.max_lag_]) - y[part]
        bad = np.ptp(y)  # a simulation that diverges counts as one of no use
        scores[f"held-back error {i}, V"] = _rms(error) if np.all(np.isfinite(error)) else bad
    started = time.process_time()
    model = NARXRegressor(**settings).fit(u, y)
    seconds = time.process_time() - started
    u, y, lag = bunch.test_data[:, 0], bunch.test_target, model.max_lag_
    for window in (5, 50):
        free = model.simulate(u[window - lag :], y[window - lag : window])[lag:]
        scores[f"RMSE, V, window {window}"] = _rms(free - y[window:])
    counts = {"candidates": float(model.n_candidates_), "terms": float(len(model.terms_))}
    return {**scores, **counts, "CPU s": seconds}


def _tanks_average():
    """Score averages of the simulations of all settings: plain, and by inverse variance."""
    bunch = load_cascaded_tanks()
    started = time.process_time()
    models = [NARXRegressor(**s).fit(bunch.data[:, 0], bunch.target) for s in TANKS.values()]
    scores = {"CPU s": time.process_time() - started}
    u, y = bunch.test_data[:, 0], bunch.test_target
    for window in (5, 50):
        runs = []
        for model in models:
            start = window - model.max_lag_
            free = model.simulate(u[start:], y[start:window], return_std=True)
            runs.append(np.array(free)[:, model.max_lag_ :])
        mean, std = np.array(runs).transpose(1, 0, 2)
        weighted = np.sum(mean / std**2, axis=0) / np.sum(std**-2.0, axis=0)
        scores[f"mean, window {window}"] = _rms(np.mean(mean, axis=0) - y[window:])
        scores[f"weighted mean, window {window}"] = _rms(weighted - y[window:])
    return scores


def _silverbox(settings):
    bunch = load_silverbox()
    u, y = bunch.data[:, 0], bunch.target
    started = time.process_time()
    model = NARXRegressor(**settings).fit(u[bunch.train], y[bunch.train])
    seconds = time.process_time() - started
    held = 1e3 * min(map(float, model.held_back_error_.values()))
    scores = {"held-back error 0, mV": held, "candidates": float(model.n_candidates_)}
    for name, part in bunch.tests.items():
        lag, skip = model.max_lag_, bunch.n_ignored
        free = model.simulate(u[part][skip - lag :], y[part][skip - lag : skip])[lag:]
        scores[f"RMSE, mV, {name}"] = 1e3 * _rms(free - y[part][skip:])
    return {**scores, "terms": float(len(model.terms_)), "CPU s": seconds}


def bouc_wen_element(u, beta=0.5, gamma=0.5, steps=10):
    """Force of an element with displacement u: z' = u' - beta |u'| z - gamma u' |z|."""
    z, last, force = 0.0, u[0], np.zeros(len(u))
    for k, position in enumerate(u):
        v = (position - last) / steps
        for _ in range(steps):
            z += v - beta * abs(v) * z - gamma * v * abs(z)
        last, force[k] = position, z
    return force


def bouc_wen_oscillator(u, dt=0.2, beta=0.8, gamma=0.4, steps=20):
    """Displacement of a mass on a Bouc-Wen spring with the force u: the force z is hidden."""
    y = v = z = 0.0
    out, h = np.zeros(len(u)), dt / steps
    for k, force in enumerate(u):
        for _ in range(steps):
            rate = v - beta * abs(v) * z - gamma * v * abs(z)
            v += h * (force - 0.1 * v - 0.2 * y - z)
            y += h * v
            z += h * rate
        out[k] = y
    return out


def _bouc_wen(system, settings, seed):
    rng = np.random.default_rng(seed)
    element = system == "Bouc-Wen element"
    highest, amplitude = (0.05, 3.0) if element else (0.12, 1.0)
    respond = bouc_wen_element if element else bouc_wen_oscillator
    lags = {} if element else {"input_lags": 3, "output_lags": 3}
    u, new = (_multisine(n, highest, amplitude, rng) for n in (3000, 2000))
    y, truth = respond(u), respond(new)
    y = y + 0.01 * np.std(y) * rng.standard_normal(len(y))
    started = time.process_time()
    model = NARXRegressor(**settings, **lags).fit(u, y)
    seconds = time.process_time() - started
    free = model.simulate(new, truth[: model.max_lag_])
    error = _rms((free - truth)[100:]) / np.std(truth[100:])
    return {"relative error": error, "terms": float(len(model.terms_)), "CPU s": seconds}


def _multisine(n, highest, amplitude, rng):
    spectrum = np.exp(2j * np.pi * rng.random(n // 2 + 1)) * (np.fft.rfftfreq(n) <= highest)
    spectrum[0] = 0.0
    u = np.fft.irfft(spectrum, n)
    return amplitude * u / np.std(u)


def _rms(error):
    return float(np.sqrt(np.mean(np.square(error))))


# Many rows.


def dask_cells():
    if find_spec("distributed") is None:
        return
    cases = {
        "forward selection, 10^6 rows, 100 of 500 functions": (_steps, _forward_of_many, 10**6),
        "partitioned RVM, 5,000 rows": (_friedman, _partitioned, 5000),
    }
    for data, case in cases.items():
        yield Cell("dask", data, "two workers", 0, partial(_dask, *case))


def _steps(n):
    return anywhere.rows(n, 0)


def _friedman(n):
    return make_friedman1(n, noise=1.0, random_state=0)


def _forward_of_many(**where):
    return ForwardRegressor("rbf", gamma=2.0, candidates=500, max_terms=100)


def _partitioned(**where):
    return PartitionedRVMRegressor(kernel="rbf", gamma=0.1, schedule="split-merge", **where)


def _dask(draw, make, n):
    """Fit rows in this process and on two workers: seconds, and how far predictions are apart."""
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    X, y = draw(n)
    started = time.perf_counter()
    here = make(n_jobs=1).fit(X, y)
    serial = time.perf_counter() - started
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        rows = da.from_array(X, chunks=(n // 20, X.shape[1])).persist()
        wait(rows)
        client.run(make, client=None)  # the library is imported before the clock runs
        started = time.perf_counter()
        there = make(client=client).fit(rows, y)
        parallel = time.perf_counter() - started
    off = np.max(np.abs(here.predict(X[:10_000]) - there.predict(X[:10_000]))) / np.std(y)
    return {"seconds": parallel, "one process": serial, "difference": float(off)}


def device_cells():
    if find_spec("torch") is None:
        return
    import device
    import torch

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        for what in device.ON_PAGE:
            run = partial(device.measure, what, "cuda")
            yield Cell("device", device.WORK[what][0], name, 0, run)


SECTIONS = {
    "accuracy": accuracy_cells,
    "classes": class_cells,
    "tables": table_cells,
    "speed": speed_cells,
    "rvm": rvm_cells,
    "groups": group_cells,
    "narx": narx_cells,
    "dask": dask_cells,
    "device": device_cells,
}


# Running.


def is_possible(cell):
    """Return whether the package of a cell is installed."""
    if cell.package == "susieR":
        return bool(susie_version())
    return cell.package == "published" or find_spec(cell.package) is not None


def execute(cell):
    """Run a cell and return its row."""
    from threadpoolctl import threadpool_limits

    row = {"section": cell.section, "data": cell.data, "method": cell.method, "seed": cell.seed}
    row["ours"] = cell.package == "sparsebayes"
    try:
        threads = None if cell.section == "device" else 1
        with threadpool_limits(threads), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = cell.run()
    except Exception as error:  # one failed cell must not cost the others
        return {**row, "failed": f"{type(error).__name__}: {error}"}
    row["scores"] = {name: float(f"{value:.5g}") for name, value in scores.items()}
    if cell.package == "susieR":
        row["version"] = susie_version()
    elif not row["ours"] and cell.package != "published":
        row["version"] = package_version(
            {"sklearn": "scikit-learn"}.get(cell.package, cell.package)
        )
    row |= {"code": commit(), "date": datetime.date.today().isoformat()}
    return row


def missing(cells, path, code):
    """Return the cells whose rows are not in the file, those of this package for this commit."""
    done = set()
    if Path(path).is_file():
        for line in Path(path).read_text("utf-8").splitlines():
            row = json.loads(line)
            if not row["ours"] or row["code"] == code:
                done.add((row["section"], row["data"], row["method"], row["seed"]))
    return [cell for cell in cells if cell.key not in done]


def expected(path):
    """Return the longest CPU seconds of the rows so far, by section, data set and method."""
    longest = {}
    if Path(path).is_file():
        for line in Path(path).read_text("utf-8").splitlines():
            row = json.loads(line)
            key = row["section"], row["data"], row["method"]
            longest[key] = max(longest.get(key, 0.0), row["scores"].get("CPU s", 0.0))
    return longest


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sections", nargs="*", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--only", choices=("ours", "others"))
    parser.add_argument("--methods", nargs="*", metavar="NAME", help="all unless named")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--rows", type=Path, default=ROWS)
    options = parser.parse_args()
    cells = [cell for name in options.sections for cell in SECTIONS[name]() if is_possible(cell)]
    if options.methods:
        cells = [cell for cell in cells if cell.method in options.methods]
    if options.only:
        cells = [c for c in cells if (c.package == "sparsebayes") == (options.only == "ours")]
    longest = expected(options.rows)

    def turn(cell):
        return cell.seed > 0, -longest.get(cell.key[:3], float("inf")), cell.seed

    todo = sorted(missing(cells, options.rows, commit()), key=turn)
    started, failed = time.monotonic(), 0

    def is_in_time(cell):
        left = 60.0 * options.minutes - (time.monotonic() - started)
        return left > longest.get(cell.key[:3], 0.0)

    in_time = filter(is_in_time, todo)
    if options.jobs == 1:
        rows = map(execute, in_time)
    else:
        from joblib import Parallel, delayed

        parallel = Parallel(options.jobs, return_as="generator_unordered", pre_dispatch="n_jobs")
        rows = parallel(delayed(execute)(cell) for cell in in_time)
    for done, row in enumerate(rows, start=1):
        if "failed" in row:
            failed += 1
            print(row, file=sys.stderr, flush=True)
            continue
        with options.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if done % 50 == 0:
            seconds = time.monotonic() - started
            print(f"{done} of {len(todo)}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
