"""Measure whether error bars hold: estimators times kinds of trouble in the data.

    OMP_NUM_THREADS=1 python benchmarks/trust.py [--quick] [--draws N] [--only NAME] [--cells a,b]
                                                 [--confirm N]
    OMP_NUM_THREADS=1 python benchmarks/trust.py bands [--sets N] [--only NAME]

`--jobs N` fits in N processes, `--first N` begins with draw N, and `--show` prints what the file
has without fitting any more.

The first command fits every public regressor and classifier, at its defaults and with the options
that change how the noise is estimated, to small tables (30 to 200 rows, at most 300 inputs), each
with one kind of trouble: a cell (`CELLS` in trouble.py). The function is a draw from a Gaussian
process (from a linear one for models of columns), so the oracle, the process with its true kernel
and noise, is exact; it is one of the columns of the printed table.

    regression      coverage of the 50, 80 and 95 % intervals of `predict_interval`; mean width of
                    the 95 % intervals over that of the oracle; root mean square of the predicted
                    std over that of the actual errors
    classification  mean confidence in the predicted class less its true probability (gap); sum of
                    the predicted probabilities of the rarest class on the training rows over the
                    number of its rows (share); expected log-loss (loss). The expected gap of the
                    oracle, which samples the latent function given the labels, is zero. Its gap and
                    loss in the same draw are subtracted from those of a model: this removes most of
                    the noise of the labels.
                    Each draw of a regression counts as four of a classification.

A cell is bad if, without a warning, the 95 % intervals cover less than 85 %, the std is more than
twice the error, the gap exceeds .05, the share exceeds 1.25, or a score is not finite; or if the
fit ends in an exception other than ValueError. Means are over the draws without a warning. Marks:
``!`` bad and silent, ``w`` a warning in at least one draw, ``E`` an exception, ``R`` refused with
ValueError, ``T`` beyond the time limit of one fit (`--limit`, in CPU seconds). A std or share that
is too large is printed in place of the coverage or gap: ``x3.1``.

With `--confirm N` every cell that is bad is measured again on N fresh draws, which had no part in
flagging it, and these alone decide whether it is bad: of some thousand cells with one draw each, a
few are flagged by chance. Both are printed, the first draws and the mean over the fresh ones with
its standard error. A flagged cell that fresh draws clear is marked ``?`` in place of ``!``. Cells
that are bad but had a lucky first draw are not found in this way; more draws find them.

The second command prints coverage by number of rows: 216 generated sets of nine kinds with 30 to
300 rows and 1 to 20 inputs.

Each fit is appended as a line of JSON to `--file` and not repeated: use a new file for another
version of the library.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import signal
import sys
import time
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import norm, poisson
from scipy.stats import t as student
from sklearn.utils.validation import has_fit_parameter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the parent of this folder

import sparsebayes as sb
from benchmarks.trouble import CELLS, class_oracle, draw, generated

COVERAGES = (0.5, 0.8, 0.95)
LOWEST_COVERAGE, LARGEST_STD, LARGEST_GAP, LARGEST_SHARE = 0.85, 2.0, 0.05, 1.25
REGRESSION_ONLY = {
    *("t noise", "uneven noise", "counts", "outliers", "one outlier", "drift"),
    *("censored", "zero-inflated", "lognormal target", "precision weights", "subjects", "levels"),
    "averages",
}
N_DRAWS = 1000  # of `sample_y` at each new row
CLASS_DRAWS = 4  # for each of regression: 100 labels say less than 100 numbers
FIRST_FRESH = 100_000  # number of the first draw that confirms
CLASSES_ONLY = {"rare class", "two of a class", "few labels", "flipped labels", "three classes"}
# Cells of the options; the other cells are for the estimators at their defaults.
OPTION_CELLS = {
    *("plain", "duplicates", "bootstrap", "weights", "weights 2.5", "30 rows", "p > n", "t noise"),
    *("noise-free", "pure noise", "beyond", "grades", "rare class", "two of a class", "replicates"),
    *("sorted", "gap", "precision weights", "levels", "averages"),
}
# Settings that cannot know the noise of single observations from means: it is given, or rows arrive
# in parts.
NO_AVERAGES = {"float", "array", "parts"}


# Estimators.


class Oracle:
    """A model that knows the kernel and the noise."""

    def __init__(self, draw):
        self.draw = draw

    def fit(self, X, y, sample_weight=None):
        return self

    def predict(self, X, return_std=False):
        return self.draw.mean, self.draw.std

    def predict_interval(self, X, coverage):
        d, ends = self.draw, np.array([[0.5 - coverage / 2, 0.5 + coverage / 2]])
        if np.all(d.target == np.round(d.target)):
            return poisson.ppf(ends, d.mean[:, None])
        unit = norm.ppf(ends) if np.isinf(d.df) else student.ppf(ends, d.df) * (1 - 2 / d.df) ** 0.5
        return d.mean[:, None] + unit * d.std[:, None]


class ClassOracle:
    """A classifier that knows the kernel and the likelihood."""

    def __init__(self, draw):
        self.draw = draw

    def fit(self, X, y, sample_weight=None):
        self.P, self.share = class_oracle(self.draw), np.bincount(y) / len(y)
        return self

    def predict_proba(self, X):
        return self.P if X is self.draw.new else np.tile(self.share, (len(X), 1))


class Series:
    """A model of a dynamic system, which reads the rows as a record.

    It sees the past target, or simulates from the first value alone.
    """

    def __init__(self, draw, free=False):
        self.model, self.target, self.free = sb.NARXRegressor(1, 1, degree=1), draw.target, free

    def fit(self, X, y):
        self.model.fit(X, y)
        return self

    def predict(self, X, return_std=False):
        if self.free:
            both = self.model.simulate(X, self.target[:1], return_std=True)
        else:
            both = self.model.predict(X, self.target, return_std=True)
        return tuple(map(self._complete, both))

    def predict_interval(self, X, coverage):
        if self.free:
            mean, std = self.predict(X)
            return mean[:, None] + std[:, None] * norm.ppf([0.5 - coverage / 2, 0.5 + coverage / 2])
        return self._complete(self.model.predict_interval(X, self.target, coverage))

    def _complete(self, values):
        values[0] = values[1]  # the first row has no past
        return values


class Route:
    """A regressor whose rows arrive in another way than as one array of numbers.

    Or whose intervals are taken in another way: from draws, or from conformal prediction.
    """

    def __init__(self, model, way):
        self.model, self.way = model, way

    def fit(self, X, y, sample_weight=None):
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        self.X = X
        if self.way == "parts":
            for rows in np.array_split(np.arange(len(y)), 3):
                self.model.partial_fit(X[rows], y[rows], sample_weight=weight[rows])
            return self
        if self.way == "warm":
            half = slice(len(y) // 2)
            self.model.fit(X[half], y[half], sample_weight=weight[half])
        if self.way == "targets":
            y = np.column_stack([y, np.sin(X[:, 0]) - y])  # copies of rows copy both
        if self.way == "dask":
            from dask.array import from_array

            y, weight = from_array(y, 50), from_array(weight, 50)
        given = {} if sample_weight is None else {"sample_weight": weight}
        self.model.fit(self.rows(X), y, **given)
        return self

    def rows(self, X):
        """Return the rows in the form of this route."""
        if self.way == "dask":
            from dask.array import from_array

            return from_array(X, (50, X.shape[1]))
        if self.way == "pairs":
            return np.exp(-0.5 * ((X[:, None] - self.X[None]) ** 2).sum(-1))
        if self.way == "single":
            return X.astype(np.float32)
        return csr_array(X) if self.way == "sparse" else X

    def predict(self, X, return_std=False):
        both = self.model.predict(self.rows(X), return_std=True)
        return tuple(self.first(np.asarray(values)) for values in both)

    def predict_interval(self, X, coverage):
        if self.way == "draws":
            draws = self.model.sample_y(X, N_DRAWS, random_state=0)
            return np.quantile(draws, [0.5 - coverage / 2, 0.5 + coverage / 2], axis=1).T
        options = {"calibrated": "conformal"} if self.way == "conformal" else {}
        interval = np.asarray(self.model.predict_interval(self.rows(X), coverage, **options))
        return interval[:, 0] if self.way == "targets" else interval

    def first(self, values):
        """Return the values of the first target."""
        return values[:, 0] if self.way == "targets" else values


@dataclass(frozen=True)
class Setting:
    """An estimator with its parameters; values that are functions are called with the draw."""

    name: str
    cls: Any
    params: dict[str, Any]
    columns: bool = False
    classes: bool = False
    option: bool = False

    def make(self, draw):
        return self.cls(**{k: v(draw) if callable(v) else v for k, v in self.params.items()})

    def has(self, cell):
        """Return whether the setting is measured in this cell."""
        skipped = REGRESSION_ONLY if self.classes else CLASSES_ONLY
        if cell == "averages" and not NO_AVERAGES.isdisjoint(self.name.split()):
            return False
        return cell not in skipped and not (self.option and cell not in OPTION_CELLS)


OPTIONS = {
    "gamma": {"kernel": "rbf", "gamma": 0.5},  # the true width
    "wide": {"kernel": "rbf", "gamma": 0.05},
    "narrow": {"kernel": "rbf", "gamma": 5.0},
    "scale": {"kernel": "rbf", "gamma": "scale"},
    "ard": {"kernel": "rbf", "gamma": "ard"},
    "no-intercept": {"fit_intercept": False},
    "input": {"noise_variance": "input"},
    "float": {"noise_variance": lambda d: float(np.mean(d.noise))},
    "array": {"noise_variance": lambda d: d.noise},
    "student": {"likelihood": "student"},
    "heal": {"heal": True},
    "fast": {"algorithm": "fast"},
    "em": {"algorithm": "em"},
    "few": {"max_terms": 50},
    "no-refit": {"refit": None},
    "neighbours": {"neighbours": 32},
    "median": {"kernel": "rbf", "gamma": "median"},
    "laplacian": {"kernel": "laplacian", "gamma": 0.5},
    "poly": {"kernel": "poly", "gamma": 0.3, "coef0": 1.0},
    "ridge": {"prior": "ridge"},
    "factorised": {"variance": "factorised"},
}
GIVEN = "gamma,wide,narrow"  # widths that are measured in all cells
WIDTHS = f"{GIVEN},scale,ard,no-intercept"
NOISES = "input,float,array,student,gamma input,gamma float,gamma array,gamma student,input student"
OF_RVM = f"{WIDTHS},{NOISES},heal,gamma heal,gamma fast,gamma em,median,poly"
OF_FORWARD = f"{WIDTHS},{NOISES},gamma no-refit,median,laplacian,poly"
OF_BACKFITTING = f"{GIVEN},float,no-intercept,gamma ridge,gamma factorised"
OF_GP = f"{WIDTHS},{NOISES},few,gamma few,neighbours"
OF_OLS = f"{GIVEN},ard,no-intercept,input,float,array,student"
OF_RVM_CLASSES = f"{WIDTHS},gamma fast,gamma em,heal,gamma heal,median,poly"
OF_BACKFITTING_CLASSES = f"{GIVEN},ard,no-intercept,gamma ridge,gamma factorised"
SHORT_CHAINS = {"n_chains": 2, "n_samples": 300, "n_warmup": 200}


def settings(name, cls, options="", columns=False, **base):
    """Return a class with the parameters `base`, and with each of the combinations of options."""
    flags = {"columns": columns, "classes": name.endswith(" classes")}
    out = [Setting(name, cls, base, **flags)]
    for words in options.split(",") if options else []:
        params = {k: v for word in words.split() for k, v in OPTIONS[word].items()}
        is_option = words not in GIVEN.split(",")
        out += [Setting(f"{name} {words}", cls, base | params, option=is_option, **flags)]
    return out


def pairs_of_columns(draw):
    """Return groups of two columns."""
    return np.arange(draw.X.shape[1]) // 2


def chain_of_columns(draw):
    """Return groups of three columns, each of which shares a column with the next."""
    p = draw.X.shape[1]
    return [list(range(i, min(i + 3, p))) for i in range(0, p - 1, 2)]


def routed(name, cls, ways, columns=False, **params):
    """Return settings of a regressor whose rows arrive in each of these ways."""

    def setting(way):
        own = params | ({"kernel": "precomputed"} if way == "pairs" else {})
        own |= {"warm_start": True} if way == "warm" else {}
        both = {"model": lambda d: Setting("", cls, own).make(d), "way": way}
        return Setting(f"{name} {way}", Route, both, columns=columns, option=True)

    return [setting(way) for way in ways.split(",")]


SETTINGS = [
    *settings("oracle", Oracle, draw=lambda d: d),
    *settings("RVM", sb.RVMRegressor, OF_RVM),
    *settings("GP", sb.SparseGPRegressor, OF_GP),
    *settings("Forward", sb.ForwardRegressor, OF_FORWARD),
    *settings("OLS", sb.OrthogonalLeastSquaresRegressor, OF_OLS),
    *settings("Backfitting rbf", sb.BackfittingRegressor, OF_BACKFITTING, kernel="rbf"),
    *settings("Partitioned", sb.PartitionedRVMRegressor, f"{WIDTHS},{NOISES}"),
    *settings("transform", sb.SparseTargetTransform),
    *settings("table", sb.table_model, task="regression"),
    *settings("table small", sb.table_model, task="regression", prefer="small"),
    *routed("RVM", sb.RVMRegressor, "parts,warm,targets,sparse,dask,single,draws,conformal"),
    *routed("RVM gamma", sb.RVMRegressor, "parts,pairs,targets,draws", kernel="rbf", gamma=0.5),
    *routed("RVM student", sb.RVMRegressor, "draws,conformal", **OPTIONS["student"]),
    *routed("RVM input", sb.RVMRegressor, "draws,conformal", **OPTIONS["input"]),
    *routed("GP", sb.SparseGPRegressor, "targets,sparse,dask,draws,conformal"),
    *routed("Forward", sb.ForwardRegressor, "parts,pairs,targets,sparse,dask"),
    *routed("Forward known", sb.ForwardRegressor, "parts", **OPTIONS["float"]),
    *routed("OLS", sb.OrthogonalLeastSquaresRegressor, "parts,pairs,sparse,dask"),
    *settings("linear oracle", Oracle, "", True, draw=lambda d: d),
    *settings("RVM columns", sb.RVMRegressor, "input,float,student", True, kernel=None),
    *settings("Forward columns", sb.ForwardRegressor, "float", True, kernel=None),
    *settings("OLS columns", sb.OrthogonalLeastSquaresRegressor, "float", True, kernel=None),
    *settings("Backfitting", sb.BackfittingRegressor, "float,no-intercept,ridge,ridge float", True),
    *settings("SpikeSlab", sb.GroupSpikeSlabRegressor, "float,no-intercept", True),
    *settings("SpikeSlab groups", sb.GroupSpikeSlabRegressor, "", True, groups=pairs_of_columns),
    *settings("SpikeSlab overlap", sb.GroupSpikeSlabRegressor, "", True, groups=chain_of_columns),
    *routed("SpikeSlab", sb.GroupSpikeSlabRegressor, "warm", True),
    *settings("GroupARD groups", sb.GroupARDRegressor, "", True, groups=pairs_of_columns),
    *settings("GroupARD", sb.GroupARDRegressor, "float", True),
    *settings("GroupLasso", sb.BayesianGroupLassoRegressor, "", True, **SHORT_CHAINS),
    *settings("Horseshoe", sb.GroupHorseshoeRegressor, "", True, **SHORT_CHAINS),
    *settings("NARX", Series, "", True, draw=lambda d: d),
    *settings("NARX free", Series, "", True, draw=lambda d: d, free=True),
    *settings("oracle classes", ClassOracle, draw=lambda d: d),
    *settings("linear oracle classes", ClassOracle, "", True, draw=lambda d: d),
    *settings("RVM classes", sb.RVMClassifier, OF_RVM_CLASSES),
    *settings("GP classes", sb.SparseGPClassifier, WIDTHS),
    *settings("Partitioned classes", sb.PartitionedRVMClassifier, GIVEN),
    *settings(
        "Backfitting rbf classes", sb.BackfittingClassifier, OF_BACKFITTING_CLASSES, kernel="rbf"
    ),
    *settings("table classes", sb.table_model, task="classification"),
    *settings("table small classes", sb.table_model, task="classification", prefer="small"),
    *settings("RVM columns classes", sb.RVMClassifier, "no-intercept", True, kernel=None),
    *settings("Backfitting classes", sb.BackfittingClassifier, "no-intercept,ridge", True),
    *settings("SpikeSlab classes", sb.GroupSpikeSlabClassifier, "no-intercept", True),
    *settings(
        "SpikeSlab groups classes", sb.GroupSpikeSlabClassifier, "", True, groups=pairs_of_columns
    ),
]
QUICK = ("oracle", "RVM", "Forward gamma", "OLS", "Backfitting", "RVM classes gamma")


# Measures.


def out_of_time(*_):
    raise TimeoutError("beyond the time limit")


def measure(setting, d, limit=None):
    """Fit and predict; return the scores, the warnings and the CPU seconds."""
    model = setting.make(d)
    options = {} if d.weight is None else {"sample_weight": d.weight}
    if options and not has_fit_parameter(model, "sample_weight"):
        return {"skipped": "the estimator takes no weights"}
    row = {"error": "", "scores": {}}
    started = time.process_time()
    if limit is not None:
        signal.signal(signal.SIGPROF, out_of_time)
        signal.setitimer(signal.ITIMER_PROF, limit)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(d.X, d.y, **options)
            row["scores"] = class_scores(model, d) if setting.classes else scores(model, d)
        except ImportError as error:
            return {"skipped": str(error)}
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)  # no limit
    advice = {str(w.message)[:100] for w in caught if issubclass(w.category, UserWarning)}
    return row | {"warnings": sorted(advice), "seconds": time.process_time() - started}


def scores(model, d):
    """Return coverage, width over that of the oracle, and std over the error."""
    mean, std = model.predict(d.new, return_std=True)
    out = {}
    for coverage in COVERAGES:
        low, high = model.predict_interval(d.new, coverage).T
        out[f"in {100 * coverage:.0f}"] = float(np.mean((low <= d.target) & (d.target <= high)))
    if d.std is not None:
        least, most = Oracle(d).predict_interval(d.new, COVERAGES[-1]).T
        out["width"] = float(np.mean(high - low) / np.mean(most - least))
    return out | {"std": float((np.mean(std**2) / np.mean((d.target - mean) ** 2)) ** 0.5)}


def class_scores(model, d):
    """Return confidence less accuracy, the predicted share of the rarest class, and the loss."""
    P, count = model.predict_proba(d.new), np.bincount(d.y, d.weight)
    accuracy = np.mean(d.P[np.arange(len(P)), np.argmax(P, axis=1)])
    rarest = np.average(model.predict_proba(d.X)[:, np.argmin(count)], weights=d.weight)
    share = rarest / (np.min(count) / np.sum(count))
    gap = float(np.mean(np.max(P, axis=1)) - accuracy)
    loss = -float(np.mean(np.sum(d.P * np.log(np.maximum(P, 1e-12)), axis=1)))
    return {"gap": gap, "share": float(share), "loss": loss}


@dataclass(frozen=True)
class Verdict:
    """A cell of a setting over all draws: whether it is bad, the text of the table, the means."""

    text: str
    bad: bool
    warned: bool
    means: dict[str, float]
    message: str
    errors: dict[str, float] = field(default_factory=dict)  # standard errors of the means


def judge(rows):
    """Return whether the error bars of a cell hold, or a warning says that they may not."""
    message = max((row["error"] or "; ".join(row["warnings"]) for row in rows), key=len)
    for row in rows:
        if row["error"]:
            kind = row["error"].split(":")[0]
            mark = {"TimeoutError": "T", "ValueError": "R"}.get(kind, "E!")
            return Verdict(mark, mark == "E!", True, {}, row["error"])
    silent = [row for row in rows if not row["warnings"]]
    values = {k: [row["scores"][k] for row in silent or rows] for k in rows[0]["scores"]}
    mean = {k: float(np.mean(v)) for k, v in values.items()}
    error = {k: float(np.std(v, ddof=1) / len(v) ** 0.5) for k, v in values.items() if len(v) > 1}
    if "gap" in mean:
        wrong, size, largest = mean["gap"] > LARGEST_GAP, mean["share"], LARGEST_SHARE
        text = f"{mean['gap']:+.2f}"
    else:
        wrong, size, largest = mean["in 95"] < LOWEST_COVERAGE, mean["std"], LARGEST_STD
        text = f"{mean['in 95']:.2f}"
    if not wrong and not size <= largest:
        wrong, text = True, f"x{size:.3g}"
    bad, warned = bool(wrong and silent), len(silent) < len(rows)
    return Verdict(text + "!" * bad + "w" * warned, bad, warned, mean, message, error)


class Store:
    """Rows in a file of JSON lines, by what was measured: (cell or "bands", setting, number)."""

    def __init__(self, path, limit, n_jobs, show):
        lines = path.read_text().splitlines() if path.exists() else []
        self.path, self.rows = path, {tuple(row["key"]): row for row in map(json.loads, lines)}
        self.limit, self.n_jobs, self.show = limit, n_jobs, show

    def measure(self, keys):
        """Return the rows of these keys; measure those that are not in the file."""
        missing = [] if self.show else [key for key in keys if key not in self.rows]
        if missing:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            work = partial(measured, limit=self.limit)
            with self.path.open("a") as file, mp.Pool(self.n_jobs) as pool:
                # In random order: the slow ones are evenly spread, and a part is a fair sample.
                np.random.default_rng(0).shuffle(missing)
                for key, row in pool.imap_unordered(work, map(tuple, missing)):
                    self.rows[key] = row
                    print(json.dumps(row), file=file, flush=True)
        return {key: self.rows[key] for key in keys if key in self.rows}


def measured(key, limit):
    """Return a key and what was measured for it."""
    cell, name, number = key[0], key[1], int(key[2])
    s = next(s for s in SETTINGS if s.name == name)
    d = generated(number) if cell == "bands" else draw(cell, number, s.columns, s.classes)
    return (cell, name, number), {"key": [cell, name, number], **measure(s, d, limit)}


def kind_of(setting):
    """Return how the name of the oracle of a setting begins."""
    return "linear " if setting.columns else ""


def less_oracle(row, setting, rows):
    """Return a row of a classifier with gap and loss of the oracle in its draw subtracted."""
    cell, name, number = row["key"]
    oracle = rows.get((cell, f"{kind_of(setting)}oracle classes", number), {})
    if "oracle" in name or "gap" not in row.get("scores", {}) or not oracle.get("scores"):
        return row
    less = {k: row["scores"][k] - oracle["scores"][k] for k in ("gap", "loss")}
    return row | {"scores": row["scores"] | less}


def judged(pairs, first, draws, store):
    """Return the verdict on each pair of a cell and a setting, from some draws."""
    oracles = {f"{kind_of(s)}oracle classes" for _, s in pairs if s.classes}
    cells = {cell for cell, _ in pairs}
    further = [(cell, s) for s in SETTINGS if s.name in oracles for cell in cells if s.has(cell)]
    number = {False: draws, True: CLASS_DRAWS * draws}
    numbers = {s.name: range(first, first + number[s.classes]) for _, s in [*pairs, *further]}
    needed = dict.fromkeys((cell, s.name) for cell, s in [*pairs, *further])
    rows = store.measure([(cell, name, k) for cell, name in needed for k in numbers[name]])
    verdicts = {}
    for cell, s in pairs:
        own = [rows.get((cell, s.name, k)) for k in numbers[s.name]]
        own = [less_oracle(row, s, rows) for row in own if row is not None]
        if own and "skipped" not in own[0]:
            verdicts[cell, s.name] = judge(own)
            if s.cls is ClassOracle:  # a column to compare with, right but for the draw
                verdicts[cell, s.name] = replace(verdicts[cell, s.name], bad=False)
    return verdicts


def grid(chosen, cells, draws, store, first=0, n_fresh=0):
    """Measure all cells and print the table, the bad cells and the medians."""
    pairs = [(cell, s) for cell in cells for s in chosen if s.has(cell)]
    verdicts = judged(pairs, first, draws, store)
    flagged = {key: v for key, v in verdicts.items() if v.bad}
    again = [(cell, s) for cell, s in pairs if (cell, s.name) in flagged] if n_fresh else []
    fresh = judged(again, FIRST_FRESH + first, n_fresh, store)
    for key, v in fresh.items():
        if not v.bad:
            text = flagged[key].text.replace("!", "?")
            verdicts[key] = replace(flagged[key], bad=False, text=text)
    for classes in (False, True):
        some = [s for s in chosen if s.classes == classes]
        for block in (some[i : i + 8] for i in range(0, len(some), 8)):
            print_block(block, cells, verdicts)
    warned = sum(v.warned for v in verdicts.values())
    print(f"\n{len(flagged)} bad silent cells of {len(verdicts)}; {warned} cells with a warning")
    if n_fresh:
        n_bad = sum(v.bad for v in fresh.values())
        unit = f"{n_fresh} fresh draws (classes: {CLASS_DRAWS * n_fresh})"
        print(f"{len(fresh)} of these {len(flagged)} were measured on {unit}, and {n_bad} are bad")
    for key, v in flagged.items():
        print(f"  {key[0]:16} {key[1]:28} {v.text:8} {details(v)}")
        if key in fresh:
            print(f"  {'':16} {'on fresh draws':28} {fresh[key].text:8} {details(fresh[key])}")


def details(verdict):
    """Return the means of all scores with their standard errors, or what was raised."""
    some = {k: f" +- {error:.2g}" for k, error in verdict.errors.items()}
    scores = (f"{k} {value:.3g}{some.get(k, '')}" for k, value in verdict.means.items())
    return ", ".join(scores) or verdict.message


def print_block(block, cells, verdicts):
    """Print some columns of the table, and the medians over the cells below them."""
    print()
    for words in zip_longest(
        *(s.name.replace(" classes", "").split() for s in block), fillvalue=""
    ):
        print(f"{'':15}" + "".join(f"{word:>13}" for word in words))
    for cell in cells:
        line = [verdicts.get((cell, s.name)) for s in block]
        if any(line):
            print(f"{cell:15}" + "".join(f"{v.text if v else '-':>13}" for v in line))
    means = [
        [v.means for key, v in verdicts.items() if key[1] == s.name and v.means] for s in block
    ]
    for score in (
        ("gap", "share", "loss")
        if block[0].classes
        else ("in 50", "in 80", "in 95", "width", "std")
    ):
        values = [np.median([m[score] for m in some]) if some else np.nan for some in means]
        print(f"median {score:8}" + "".join(f"{value:13.3f}" for value in values))


# Coverage by number of rows.

BANDS = ((30, 60), (60, 120), (120, 301))
BAND_SETTINGS = (
    "RVM",
    "GP",
    "Forward",
    "OLS",
    "Backfitting rbf",
    "Partitioned",
    "Backfitting",
    "table",
)


def bands(chosen, n_sets, store):
    """Print the coverage of each setting over the generated sets, and by number of rows."""
    heads = [f"n {a}-{b - b % 10}" for a, b in BANDS]
    print(
        f"{'':16}      50      80      95" + "".join(f"{h:>17}" for h in heads) + "  < .90  failed"
    )
    size = np.array([len(generated(k).y) for k in range(n_sets)])
    found = store.measure([("bands", s.name, k) for s in chosen for k in range(n_sets)])
    for s in chosen:
        keys = [("bands", s.name, k) for k in range(n_sets)]
        rows = [found.get(key, {}).get("scores", {}) for key in keys]
        inside = np.array([[row.get(f"in {c}", np.nan) for c in (50, 80, 95)] for row in rows])
        line = "".join(f"{value:8.3f}" for value in np.nanmean(inside, axis=0))
        for a, b in BANDS:
            some = inside[(a <= size) & (size < b) & np.isfinite(inside[:, 2]), 2]
            line += f"{np.mean(some):8.3f} +- {np.std(some) / len(some) ** 0.5:.3f}"
        low, failed = np.sum(inside[:, 2] < 0.9), np.sum(np.isnan(inside[:, 2]))
        print(f"{s.name:16}{line}{low:7}{failed:8}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", nargs="?", default="grid", choices=("grid", "bands"))
    parser.add_argument("--quick", action="store_true", help="2 draws, few estimators")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--confirm", type=int, default=0, help="fresh draws for each bad cell")
    parser.add_argument("--sets", type=int, default=216, help="generated sets of `bands`")
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument("--without", default="?", help="leave out settings with this in their name")
    parser.add_argument("--cells", default=",".join(CELLS), help="cells, separated by commas")
    parser.add_argument("--limit", type=int, default=60, help="CPU seconds that one fit may take")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--show", action="store_true", help="print the file, fit nothing")
    parser.add_argument("--file", type=Path, default=Path("benchmarks/results/trust.jsonl"))
    options = parser.parse_args()
    cells = options.cells.split(",")
    if unknown := [cell for cell in cells if cell not in CELLS]:
        parser.error(f"unknown cells {unknown}; choose from {', '.join(CELLS)}")
    chosen = [s for s in SETTINGS if options.only in s.name and options.without not in s.name]
    store = Store(options.file, options.limit, options.jobs, options.show)
    if options.part == "bands":
        bands([s for s in chosen if s.name in BAND_SETTINGS], options.sets, store)
    else:
        chosen = [s for s in chosen if s.name in QUICK] if options.quick else chosen
        draws = 2 if options.quick else options.draws
        grid(chosen, cells, draws, store, options.first, options.confirm)
