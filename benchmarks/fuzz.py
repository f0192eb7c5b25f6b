"""Random problems for every estimator, hard ones too: what fails, and the line that repeats it.

    python benchmarks/fuzz.py [--n 1000] [--seed 0] [--jobs 2] [--only RVM] [--limit 30]

Each problem has a number. With its estimator the number says all: data, scales, weights, container
and parameters, so `--only NAME --seed NUMBER --n 1` repeats it. Fits run in child processes and may
take `--limit` seconds of CPU; a process that does not answer is killed and replaced.

A failure is one of
    crash      anything raised but a ValueError in words of ours or of scikit-learn's validation
    hang       no end within the limit, with the second fit of "moves" where there is one
    numpy      a RuntimeWarning of NumPy out of our code (overflow, invalid value, ...)
    nan        NaN or infinity in predictions or fitted numbers
    variance   a negative variance, less than the noise, or two answers for it; bad probabilities
    evidence   log_evidence_ differs from the dense formula at the fitted numbers
    moves      `converged_`, but the evidence moves by more than 0.1 nat when it goes on
A refusal in words (too few rows, one class, ...) is counted, but is no failure.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import signal
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import log_expit
from sklearn.base import is_classifier
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests is beside this folder

import sparsebayes as sb
from sparsebayes.data import Data, merge_labelled_duplicates
from sparsebayes.estimators._estimator import checked_rows
from sparsebayes.posterior import laplace_posterior
from sparsebayes.problem import with_chosen_kernel
from tests import registry

MOVED = 0.1  # nats
DIGITS = 1e-14  # of the target, as a standard deviation: float64 has hardly more
IDLE = 25  # steps in which the evidence of a fit at rest does not move
PATIENCE = 20  # seconds to wait for a second of CPU
KINDS = ("crash", "hang", "numpy", "nan", "variance", "evidence", "moves")

# What a problem is made of; the first of each is the plainest.
PROBLEM = {
    "n": [30, 60, 120, 12, 20, 40, 80, 10, 5, 4, 3, 2, 1],
    "d": [3, 1, 2, 8, 40],
    "x": [
        "normal",
        "uniform",
        "whole",
        "repeated rows",
        "repeated columns",
        "constant column",
        "constant",
        "rank one",
        "scales",
        "nearly equal columns",
    ],
    "y": ["sum", "sine", "no noise", "noise", "few values", "constant", "outlier", "a column"],
    "x_scale": [1.0, 1.0, 1.0, 1e-3, 1e3, 1e-6, 1e6, 1e-150, 1e150],
    "y_scale": [1.0, 1.0, 1.0, 1e-3, 1e3, 1e-6, 1e6, 1e-150, 1e150],
    "y_shift": [0.0, 0.0, 1.0, 1e6],
    "weight": [None, None, None, "zeros", "whole", "tiny", "large", "spread"],
    "container": ["float64", "float64", "float64", "float32", "int", "sparse", "frame"],
    "n_classes": [2, 2, 3],
}
# Rarer problems: what they change in a plain one. They came later, and numbers below FIRST_RARE
# keep the problems that they had before.
FIRST_RARE = 702_000
RARE = {
    "weights of 1e-8 to 1e8": {"weight": "wide"},
    "equal weights": {"weight": "threes"},
    "target of 1e175": {"y_scale": 1e175},
    "constant target of 1e200": {"y": "constant", "y_scale": 1e200},
    "offset of 1e12": {"y_shift": 1e12, "y_scale": 1.0},
    "offset of the inputs": {"x_shift": 1e8},
    "strings": {"y_type": "strings"},
    "whole target": {"y_type": "whole", "y_scale": 10.0},
    "column": {"y_type": "column"},
    "blocks": {"container": "blocks"},
    "four classes": {"n": 80, "d": 30, "n_classes": 4, "weight": "wide"},
    "rare class": {"n": 200, "d": 2, "y": "rare"},
    "two rows of a class": {"n": 30, "y": "rare"},
    "square": {"n": 30, "d": 30},
    "wide": {"n": 20, "d": 60},
    "many rows": {"n": 400, "d": 4},
    "tails": {"params": {"likelihood": "student"}},
    "noise of the inputs": {"params": {"noise_variance": "input"}},
    "tails of the noise": {"params": {"likelihood": "student", "noise_variance": "input"}},
    "noise of the rows": {"params": {"noise_variance": "rows"}},
    "all neighbours": {"n": 800, "d": 2, "params": {"neighbours": 800}},
}
# Parameters that are drawn, by estimator.
ESTIMATORS = {
    **{entry.name: entry.choices for entry in registry.ENTRIES if entry.choices},
    # An entry of its own: the numbers of the problems without stay what they were.
    "SparseGPRegressor+neighbours": {
        **registry.NOISE,
        "kernel": ["rbf", "matern32", "auto", "laplacian", "sum"],
        "gamma": registry.KERNEL["gamma"],
        "fit_intercept": [True, True, False],
        "neighbours": [8, "auto", 64, 1],
        "max_terms": ["auto", 3],
        "likelihood": ["gaussian", "gaussian", "student"],
    },
}
ESTIMATORS["GroupARDRegressor+flat prior"] = ESTIMATORS["GroupARDRegressor"]

ALWAYS = (
    "inference",
    "n_chains",
    "n_samples",
    "n_warmup",
    "max_terms",
    "neighbours",
)

SEEDS = {
    **{entry.name: entry.seed for entry in registry.ENTRIES},
    "SparseGPRegressor+neighbours": 15,
}
SEEDS["GroupARDRegressor+flat prior"] = SEEDS["GroupARDRegressor"]


def draw(name, number):
    """Problem `number` of an estimator: choices out of PROBLEM and of its parameters."""
    rng = np.random.default_rng([number, SEEDS[name]])
    problem = {key: values[rng.integers(len(values))] for key, values in PROBLEM.items()}
    every = ESTIMATORS[name]
    # Half of the fits by defaults, the others with a few parameters changed.
    chosen = [key for key in every if rng.random() < 0.5] if rng.random() < 0.5 else []
    problem["params"] = {
        key: values[rng.integers(len(values))]
        for key, values in every.items()
        if key in chosen or key in ALWAYS
    }
    problem["seed"] = number
    return rarer(name, problem) if number >= FIRST_RARE else problem


def rarer(name, problem):
    """The problem, or in one of three cases a rare one."""
    rng = np.random.default_rng([problem["seed"], SEEDS[name], 1])
    possible = getattr(sb, name.split("+")[0])().get_params()
    kinds = [kind for kind in RARE if set(RARE[kind].get("params", ())) <= possible.keys()]
    if "+neighbours" not in name:
        kinds.remove("all neighbours") if "all neighbours" in kinds else None
    kind = kinds[rng.integers(len(kinds))]
    if rng.random() > 1 / 3:
        return problem
    params = {**problem["params"], **RARE[kind].get("params", {})}
    return {**problem, **RARE[kind], "params": params, "kind": kind}


def data(problem, classes):
    """X, y, weight as NumPy arrays."""
    rng = np.random.default_rng(problem["seed"])
    n, d, kind = problem["n"], problem["d"], problem["x"]
    X = rng.uniform(-1.0, 1.0, (n, d)) if kind == "uniform" else rng.standard_normal((n, d))
    if kind == "whole":
        X = np.round(2.0 * X)
    elif kind == "repeated rows":
        X = X[rng.integers(max(1, n // 3), size=n)]
    elif kind == "repeated columns":
        X = X[:, rng.integers(max(1, d // 2), size=d)]
    elif kind == "constant column":
        X[:, 0] = 1.0
    elif kind == "constant":
        X[:] = 1.0
    elif kind == "rank one":
        X = np.outer(X[:, 0], X[0])
    elif kind == "scales":
        X = X * np.logspace(-3, 3, d)
    elif kind == "nearly equal columns":
        X = X[:, :1] + 1e-7 * X
    size = np.max(np.abs(X)) or 1.0
    columns = X / np.where(np.max(np.abs(X), axis=0) > 0, np.max(np.abs(X), axis=0), 1.0)
    y = columns @ np.where(np.arange(d) < 2, 1.0, 0.0)
    if problem["y"] == "sine":
        y = np.sin(3.0 * y)
    if problem["y"] not in ("no noise", "a column"):
        y = y + 0.2 * rng.standard_normal(n)
    if problem["y"] == "noise":
        y = rng.standard_normal(n)
    elif problem["y"] == "few values":
        y = np.round(y)
    elif problem["y"] == "constant":
        y = np.ones(n)
    elif problem["y"] == "outlier":
        y[0] += 100.0
    elif problem["y"] == "rare":
        y = np.where(np.arange(n) < 2, 1.0 + np.arange(n), y - np.max(y))
    elif problem["y"] == "a column":
        y = columns[:, 0].copy()
    X = (X / size + problem.get("x_shift", 0.0)) * problem["x_scale"]
    if classes and problem["y"] == "rare":
        y = (y > 0).astype(int)
    elif classes:
        edges = np.quantile(y, np.arange(1, problem["n_classes"]) / problem["n_classes"])
        y = np.searchsorted(edges, y, side="right" if problem["y"] == "constant" else "left")
        y = np.array(["one", "two", "three", "four"])[y] if problem["y"] == "sine" else y
    else:
        # The square of the target has to be a number: it is the unit of the noise variance.
        shift = problem["y_shift"] if problem["y_scale"] < 1e100 else min(1.0, problem["y_shift"])
        y = (y + shift) * problem["y_scale"]
    weight = {
        None: None,
        "zeros": rng.integers(0, 2, n) * rng.uniform(0.5, 2.0, n),
        "whole": rng.integers(0, 4, n),
        "tiny": rng.uniform(0.0, 1e-3, n),
        "large": rng.uniform(0.0, 1e3, n),
        "spread": 10.0 ** rng.uniform(-8, 2, n),
        "wide": 10.0 ** rng.uniform(-8, 8, n),
        "threes": np.full(n, 3.0),
    }[problem["weight"]]
    return X, y, weight


def contained(X, container, sparse):
    """X as the user might hand it over."""
    if container == "float32":
        with np.errstate(over="ignore"):
            return X.astype(np.float32)
    if container == "int":
        return np.round(X / (np.max(np.abs(X)) or 1.0) * 10).astype(int)
    if container == "blocks":
        return np.array_split(X, 3)
    if container == "sparse":
        return csr_array(X) if sparse else X
    if container == "frame":
        import pandas as pd

        return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    return X


def typed(y, kind):
    """y as the user might hand it over."""
    if kind == "strings":
        return y.astype(str)
    if kind == "whole":
        return y if y.dtype.kind in "OU" else np.round(y).astype(int)
    return y[:, None] if kind == "column" else y


def make(name, problem):
    """The estimator of a problem."""
    params = dict(problem["params"])
    if "+flat prior" in name:
        params["inclusion_prior"] = None
    if params.get("groups") == "pairs":
        params["groups"] = np.arange(problem["d"]) // 2
    if params.get("inference") == "ep":
        params = {key: value for key, value in params.items() if key not in registry.CHAINS}
    if params.get("regressor") == "rvm":
        params["regressor"] = sb.RVMRegressor("rbf", gamma="scale")
    if params.get("kernel", 0) is None and "gamma" in params:
        params.pop("gamma")
    if isinstance(params.get("gamma"), float):
        # In units of the inputs; beyond 1e300 there is no such number.
        whole = problem["container"] == "int" and problem["seed"] >= FIRST_RARE
        size = 10.0 if whole else problem["x_scale"]
        params["gamma"] = float(np.clip(params["gamma"] / size**2, 1e-290, 1e290))
    with np.errstate(over="ignore"):
        unit = float(np.square(problem["y_scale"]))
    if params.get("noise_variance") == "rows":
        rng = np.random.default_rng(problem["seed"])
        params["noise_variance"] = rng.uniform(0.01, 0.1, problem["n"]) * unit
    elif params.get("noise_variance", "learn") not in ("learn", "input"):
        params["noise_variance"] *= unit
        if not 0 < params["noise_variance"] < np.inf:
            params.pop("noise_variance")
    return getattr(sb, name.split("+")[0])(**params)


def judge(name, problem):
    """What is wrong with one fit: pairs (kind, detail)."""
    model = make(name, problem)
    X, y, weight = data(problem, is_classifier(model))
    if getattr(model, "kernel", None) == "precomputed":
        X = X @ X.T
    given = contained(X, problem["container"], get_tags(model).input_tags.sparse)
    X = X if problem["container"] == "blocks" else given
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            weight = weight if has_fit_parameter(model, "sample_weight") else None
            args = (given, typed(y, problem.get("y_type")))
            args = args if weight is None else (*args, weight)
            model.fit(*args)
            y = typed(y, "whole") if problem.get("y_type") == "whole" else y
            found += answers(model, X, y, weight)
            found += goes_on(model, name, problem, args, (X, y, weight))
        except Exception as error:
            refused = in_words(error)
            detail = f"{type(error).__name__}: {error} {where(error)}"
            found.append(("refused" if refused else "crash", detail))
    for warning in caught:
        if issubclass(warning.category, RuntimeWarning) and "sparsebayes" in warning.filename:
            at = f"{os.path.basename(warning.filename)}:{warning.lineno}"
            found.append(("numpy", f"{warning.message} {at}"))
    return list(dict.fromkeys(found))


def in_words(error):
    """Whether this is a refusal: raised by us or by scikit-learn's validation, as a sentence."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = any(f"{os.sep}{name}{os.sep}" in last.filename for name in ("sparsebayes", "sklearn"))
    kind = type(error).__name__  # the second is scikit-learn's own, also a TypeError
    if kind not in ("ValueError", "InvalidParameterError"):
        return isinstance(error, TypeError) and "Sparse data was passed" in str(error)
    return ours and (last.line or "").startswith("raise")


def where(error):
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f"{os.sep}sparsebayes{os.sep}" in f.filename]
    return f"({os.path.basename(ours[-1].filename)}:{ours[-1].lineno})" if ours else ""


def answers(model, X, y, weight):
    """Predictions and fitted numbers that cannot be."""
    found = []
    if is_classifier(model):
        p = model.predict_proba(X)
        if not np.all(np.isfinite(p)):
            found.append(("nan", "predict_proba"))
        elif np.any(p < 0) or np.any(np.abs(p.sum(axis=1) - 1) > 1e-6):
            found.append(("variance", "probabilities"))
        model.predict(X)
    else:
        mean, std = model.predict(X, return_std=True)
        for what, value in (("mean", mean), ("std", std)):
            if not np.all(np.isfinite(value)):
                found.append(("nan", what))
        noise = getattr(model, "noise_variance_", None)
        # Kernels of rows in float32 are those of float32, whatever the type of the target.
        single = np.float32 in (np.asarray(std).dtype, getattr(X, "dtype", None))
        rough = 1e-3 if single else 1e-6
        if np.any(std < 0):
            found.append(("variance", "negative std"))
        if np.ndim(getattr(model, "noise_variance", 0)):  # a new row has none of these variances
            noise = None
        if noise is not None and np.any(std < np.sqrt(noise) * (1 - rough)):
            found.append(("variance", "std below the noise"))
        if hasattr(model, "basis_"):
            same, cov = model.predict(X, return_cov=True)
            size = np.max(std) or 1.0
            diag = np.diag(cov) / size / size
            # With neighbours a variance is the difference of numbers as large as the process, and
            # rows that are predicted together share theirs: another model than each alone.
            together, digits = False, 0.0
            if getattr(model, "neighbours_", 0):
                process = model._fitted.model.process
                together = model.neighbours_ < len(process.rows)
                digits = 1e-10 * process.amplitude * (process.scale / size) ** 2
            near = {"rtol": 10 * rough, "atol": 1e-12 + digits}
            if not together and not np.allclose(diag, np.square(std / size), **near):
                found.append(("variance", "std is not the root of the covariance"))
            near["atol"] = rough * np.max(np.abs(mean))
            if not together and not np.allclose(same, mean, **near):
                found.append(("variance", "two means"))
            if np.all(np.isfinite(cov)) and np.linalg.eigvalsh(cov / size / size)[0] < -0.01:
                found.append(("variance", "covariance is not one"))
    # Draws have no evidence, nor has an improper prior.
    none = any(word in repr(model) for word in ("gibbs", "Horseshoe", "Lasso", "prior='none'"))
    for attribute in ("coef_", "intercept_", "noise_variance_", "log_evidence_"):
        value = getattr(model, attribute, None)
        if attribute == "log_evidence_" and none:
            continue
        if value is not None and not np.all(np.isfinite(value)):
            found.append(("nan", attribute))
    if not found:
        found += evidence(model, X, y, weight)
    return found


def one_level(model):
    """Whether the noise is normal and the same for all rows."""
    variance = getattr(model, "noise_variance", "learn")
    same = np.ndim(variance) == 0 and variance != "input"
    return bool(same) and getattr(model, "likelihood", "") != "student"


def independent(model):
    """Whether the prior is a precision for each weight, learnt, beside Gaussian noise."""
    if not one_level(model):
        return False
    name = type(model).__name__
    exact = name in ("RVMRegressor", "PartitionedRVMRegressor")
    exact |= (
        name == "BackfittingRegressor"
        and model.smoothers is None
        and (model.prior, getattr(model, "variance_", "")) == ("ard", "exact")
    )
    return exact


def counted(weight, n):
    """Weights as the estimators take them: counts, or relative importance."""
    weight = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    if np.sum(weight) <= 2 and not np.all(weight == np.round(weight)):
        weight = weight * (np.count_nonzero(weight) / np.sum(weight))
    return weight


def precisions(model, X, y, weight):
    """Those weights; where the noise was learnt duplicates are one observation.

    Row by row, as the docstring of `fit` says it.
    """
    weight = counted(weight, len(y))
    if model.noise_variance != "learn":
        return weight, False
    copies, targets = {}, {}
    rows = checked_rows(model, X)
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    for i, row in enumerate(np.asarray(rows, dtype=np.float64) + 0.0):
        if weight[i] > 0:
            copies.setdefault((row.tobytes(), y[i]), []).append(i)
            targets.setdefault(row.tobytes(), set()).add(y[i])
    total = {key: np.sum(weight[rows]) for key, rows in copies.items()}
    again = {}
    for (row, _), count in total.items():
        again[row] = again.get(row, 0.0) + count
    again = [row for row, count in again.items() if count > 1]
    several = sum(len(targets[row]) > 1 for row in again)
    n = sum(min(count, 1.0) for count in total.values())
    if not again or 2 * several >= len(again) or n <= 2:
        return weight, False
    once = np.zeros(len(y))
    for key, rows in copies.items():
        once[rows[0]] = total[key] * n / sum(total.values())
    return once, True


def functions(model, X):
    """The functions on these rows, and what they are multiplied by for the weights of the user."""
    Phi = np.asarray(model.basis_(checked_rows(model, X).astype(np.float64)), dtype=np.float64)
    return Phi, np.asarray(getattr(getattr(model.basis_, "functions", model.basis_), "scale", 1.0))


def fitted_noise(model):
    """The standard deviation of the noise in the fit."""
    return np.sqrt(model.posterior_.noise_variance)


def integrates_intercept(model):
    """Whether the intercept is integrated out; one that would run away is held at the mean."""
    return model.fit_intercept and np.all(model.posterior_.offset_variance > 0.0)


def whitened(model, X, y, weight):
    """Functions and target in units of prior and noise, and `precisions`; None without numbers.

    An intercept that is held is subtracted from the target.
    """
    # Numbers that float64 does not have (a target of 1e-150) cannot be put into a formula, nor can
    # those that have no digits in it (precisions below 1e-308, of a target of 1e150).
    alpha = model.weight_precision_
    if np.any(np.isinf(alpha)) or np.any(alpha < np.finfo(np.float64).tiny):
        return None
    if not fitted_noise(model) > 1e-150:
        return None
    Phi, scale = functions(model, X)
    weight, once = precisions(model, X, y, weight)
    root = np.sqrt(weight)
    if model.fit_intercept and not integrates_intercept(model):
        y = y - model.posterior_.offset
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        spread = Phi / scale / np.sqrt(model.weight_precision_) / fitted_noise(model)
        t = root * (y / fitted_noise(model))
    spread = root[:, None] * spread
    if not np.all(np.isfinite(spread)) or not np.all(np.isfinite(t)):
        return None
    if (
        spread.size and np.linalg.norm(spread, 2) ** 2 > 1e9
    ):  # the dense formula itself has no digits left
        return None
    return spread, t, weight, once


def evidence(model, X, y, weight):
    """log_evidence_ against the dense formula, where the prior is a precision for each weight."""
    forward = type(model).__name__ == "ForwardRegressor"
    forward = forward and (model.refit is None or model.kernel is None) and one_level(model)
    if not (independent(model) or forward):
        return []
    parts = whitened(model, X, y, weight)
    if parts is None:
        return []
    spread, t, weight, once = parts
    values, vectors = np.linalg.eigh(np.eye(len(t)) + spread @ spread.T)
    t, one = vectors.T @ t, vectors.T @ np.sqrt(weight)
    fit, log_det, n = t @ (t / values), np.sum(np.log(values)), float(np.sum(weight))
    if integrates_intercept(model):
        c, b = one @ (one / values), one @ (t / values)
        fit, log_det, n = fit - b * b / c, log_det + np.log(c), n - 1.0
    noise = 2.0 * np.log(fitted_noise(model))
    dense = -0.5 * (n * (np.log(2.0 * np.pi) + noise) + log_det + fit)
    if once:
        dense += 0.5 * np.sum(np.log(weight[weight > 0]))
    digits = 1e-7 * values[-1] * 1e-9 * (t @ t) + 1e-9 * (t @ t)
    if abs(model.log_evidence_ - dense) > 1e-3 + 1e-6 * abs(dense) + digits:
        return [("evidence", f"{model.log_evidence_:.4f}, dense {dense:.4f}")]
    return []


def goes_on(model, name, problem, args, plain):
    """Whether a fit that says it converged would have gone on.

    Which functions are chosen is a search with many ends, and a smaller tol may lead to another.
    That the numbers are at rest is another matter: for the functions that were chosen, precisions
    and noise are moved on by a method that has nothing to do with the solver. `args` are as they
    were handed over, `plain` the same arrays without a container.
    """
    if not getattr(model, "converged_", False) or "tol" not in model.get_params():
        return []
    if np.isnan(getattr(model, "log_evidence_", np.nan)) or "gibbs" in repr(model):
        return []
    if getattr(model, "neighbours", 0):  # other functions are another split of the same process
        return []
    if isinstance(model, sb.SparseGPClassifier):  # one step, to one variance, which is no precision
        return []
    if not is_classifier(model) and not one_level(model):  # rounds of fits, each with other weights
        return []
    if independent(model):
        if fitted_noise(model) < DIGITS * np.max(np.abs(plain[1])):
            return []  # the smallest noise beside an offset of these digits takes part
        moved = climbed(model, *plain)
    elif name in ("RVMClassifier", "PartitionedRVMClassifier"):
        moved = iterated(model, *plain)
    elif name == "BackfittingClassifier" and (model.prior, model.variance_) == ("ard", "exact"):
        moved = bound_climbed(model, *plain)
    elif isinstance(model, sb.GroupARDRegressor):
        moved = groups_climbed(model, *plain)
    elif name == "GroupSpikeSlabClassifier":
        moved = maximum_moved(model, make(name, problem), args)
    else:
        again = make(name, problem).set_params(tol=model.tol / 100)
        if "max_iter" in model.get_params():  # it need not end, but may not lead elsewhere
            again.set_params(max_iter=10 * int(model.n_iter_) + 100)
        moved = evidence_alone(again, args) - model.log_evidence_
        if name == "ForwardRegressor" and set(again.active_) != set(model.active_):
            moved = 0.0  # another end of a greedy search
        if name == "BackfittingRegressor" and model.smoothers is None:
            moved = max(moved, 0.0)  # no step lowers their evidence: a lower end is another one
    digits = 1e-7 * abs(getattr(model, "log_evidence_", 0.0))  # that a sum of so many nats has
    return [("moves", f"by {moved:.3g} nat")] if abs(moved) > MOVED + digits else []


def evidence_alone(model, args):
    """The log evidence of a fit; of a classifier on columns without the folds that calibrate it."""
    if not is_classifier(model) or model.kernel is not None:
        return model.fit(*args).log_evidence_
    return sum(posterior.log_evidence for posterior in without_folds(model, args).posteriors)


def without_folds(model, args):
    """The fit of a classifier on columns, without the folds that calibrate it."""
    X, y, weight = (*args, None)[:3]
    data, classes = model._read(X, y, weight)
    data = merge_labelled_duplicates(model._with_class_weight(data, classes))
    problem = with_chosen_kernel(model._problem(data, len(classes)), None, labels=True)
    return model._solve(problem)


def maximum_moved(model, again, args):
    """How far the evidence that EP maximises moves where it goes on, in sum over binary problems.

    `log_evidence_` is an average over slab variances within a factor of four of the maximum. On a
    ridge that is flat to hundredths of a nat the maximum moves by that factor, and the average by
    tenths: it is defined by the maximum, and says nothing about whether the search has ended.

    EP may have several fixed points, and rounding errors may lead from one to another. Where the
    finer fit was at rest at the end of the first one as well, that end was a fixed point.
    """
    again.set_params(tol=model.tol / 100, max_iter=10 * int(model.n_iter_) + 100)
    fits = model.history_, without_folds(again, args).history
    labels = [h.get("class_index", np.zeros(len(h["change"]))) for h in fits]
    moved = 0.0
    for c in np.unique(labels[0]):
        coarse, fine = (h["log_evidence"][of == c] for h, of in zip(fits, labels, strict=True))
        at_rest = fits[1]["change"][labels[1] == c] <= again.tol
        if not np.any(np.abs(fine[at_rest] - coarse[-1]) < 0.1 * MOVED):
            moved += fine[-1] - coarse[-1]
    return moved


def climbed(model, X, y, weight):
    """What L-BFGS on the dense evidence gains over all precisions and the noise."""
    parts = whitened(model, X, y, weight)
    if parts is None or len(model.active_) == 0:
        return 0.0
    B, t, weight, _ = parts
    n = float(np.sum(weight))
    if integrates_intercept(model):
        one = np.sqrt(weight / n)
        B, t, n = B - np.outer(one, one @ B), t - one * (one @ t), n - 1.0
    if np.max(np.abs(t)) < 1e-12 * np.max(np.abs(y / fitted_noise(model))):
        return 0.0  # a constant, and the rounding of its mean
    squares = np.einsum("ij,ij->j", B, B)
    B, k = B[:, squares > 0], int(np.sum(squares > 0))
    learnt = model.noise_variance == "learn"
    # The smallest noise that is learnt: of the variation, and of the digits of a constant. It is
    # added to what is learnt, as in the solvers: where k of n rows are explained, learning ends at
    # n/(n - k) times it, and not at a bound.
    floor = 1e-10 * (t @ t) / n + 4e-30 * np.max(np.abs(y / fitted_noise(model))) ** 2

    def negative(u):
        lam = np.exp(u)
        Q, R = np.linalg.qr(np.vstack([B, np.diag(np.sqrt(lam))]))
        W = np.linalg.inv(R)
        mu = W @ (Q[: len(t)].T @ t)
        r = t - B @ mu
        E = r @ r + lam @ mu**2
        noise = E / n + floor if learnt else 1.0
        fit = n * np.log(noise) if learnt else E
        value = fit + 2 * np.sum(np.log(np.abs(np.diag(R)))) - np.sum(u)
        slope = lam * np.einsum("ij,ij->i", W, W) + lam * mu**2 / noise - 1.0
        return 0.5 * value, 0.5 * slope

    lowest = np.log(1e-12 * squares[squares > 0])
    found = minimize(
        negative,
        np.maximum(np.zeros(k), lowest),
        jac=True,
        method="L-BFGS-B",
        bounds=[(low, 40.0) for low in lowest],
        options={"maxiter": 200},
    )
    return negative(np.zeros(k))[0] - found.fun


def groups_climbed(model, X, y, weight):
    """What L-BFGS on the dense evidence gains over the variances of groups and noise.

    Where a group that is absent would gain more by entering, at given noise, it is that.
    """
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    weight, _ = precisions(model, X, y, weight)
    root, n = np.sqrt(weight), float(np.sum(weight))
    t = np.asarray(y, dtype=np.float64)
    if np.count_nonzero(weight) < 2:
        return 0.0
    if model.fit_intercept:
        largest = np.max(np.abs(X), axis=0)
        X, t, n = X - weight @ X / n, t - weight @ t / n, n - 1.0
        X = np.where(np.max(np.abs(X), axis=0) > 1e-12 * largest, X, 0.0)
    if np.max(np.abs(t)) <= 1e-12 * np.max(np.abs(y)):
        return 0.0  # a constant, and the rounding of its mean
    sigma = fitted_noise(model)
    size = np.max(np.abs(X), axis=0)
    X = root[:, None] * X / np.where(size > 0.0, size, 1.0)
    labels = np.arange(X.shape[1]) if model.groups is None else model.groups
    group = np.unique(labels, return_inverse=True)[1]
    m, t = int(np.max(group)) + 1, root * (t / sigma)
    present = (model.coef_ != 0.0) @ (group[:, None] == np.arange(m)) > 0
    precision = model.group_precision_[present]
    if np.any(np.isinf(precision)) or np.any(precision < np.finfo(np.float64).tiny):
        return 0.0  # a precision that float64 cannot hold, or not with all its digits
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        deviation = size / sigma / np.sqrt(model.group_precision_[group])
    B = X * np.where(present[group], deviation, 0.0)
    if not (np.max(np.abs(B)) < 1e6 and t @ t < 1e10):
        return 0.0  # the dense evidence has no digits
    to = group[:, None] == np.arange(m)
    floor = 1e-10 * (t @ t) / n + 4e-30 * np.max(np.abs(y / sigma)) ** 2  # as in `climbed`
    learnt = model.noise_variance == "learn"

    def evidence(u):
        C = (B * np.exp(u[:-1])[group]) @ B.T
        C[np.diag_indices(len(t))] += np.exp(u[-1])
        try:
            inverse = np.linalg.inv(C)
        except np.linalg.LinAlgError:
            return -1e300, 0.0 * u, C
        c = inverse @ t
        value = -0.5 * ((n - len(t)) * u[-1] + np.linalg.slogdet(C)[1] + t @ c)
        slope = ((B.T @ c) ** 2 - np.einsum("ij,ik,kj->j", B, inverse, B)) @ to
        noise = np.exp(u[-1]) * (c @ c - np.trace(inverse)) - (n - len(t))
        return value, 0.5 * np.append(np.exp(u[:-1]) * slope, noise), inverse

    lowest = min(0.0, float(np.log(floor)))
    found = minimize(
        lambda u: [-part for part in evidence(u)[:2]],
        np.zeros(m + 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-30.0, 30.0 if there else 0.0) for there in present]
        + [(lowest, 30.0) if learnt else (0.0, 0.0)],
        options={"maxiter": 200},
    )
    start, _, inverse = evidence(np.zeros(m + 1))
    moved, k = -found.fun - start, int(np.sum(present))
    price = 0.0
    if model.inclusion_prior == "learn":
        price = max(0.0, np.log(max(m - k, 1) / (k + 1)))
    for g in np.flatnonzero(~present):
        # The columns of a group have one variance as they were given, not in their own units.
        F = X[:, group == g] * (size[group == g] / max(np.max(size[group == g]), 1e-300))
        s, U = np.linalg.eigh(F.T @ inverse @ F)
        a = (U.T @ (F.T @ (inverse @ t))) ** 2
        v = np.logspace(-12.0, 12.0, 100)[:, None] / max(float(np.max(s)), 1e-300)
        gains = 0.5 * np.sum(v * a / (1.0 + v * s) - np.log1p(v * s), axis=1)
        moved = max(moved, float(np.max(gains)) - price)
    digits = 1e-15 * (1.0 + np.sum(B**2)) * (t @ inverse @ t)
    return moved if moved > digits else 0.0


def binary(model, X, y, weight):
    """Columns, counts and precisions of each binary problem of a classifier."""
    Phi, scale = functions(model, X)
    if np.any(np.abs(np.log(scale)) > 200.0):  # precisions in these units are no numbers
        return
    weight = counted(weight, len(y))
    codes = np.where(weight > 0, np.searchsorted(model.classes_, y), 0)
    data = model._with_class_weight(Data(checked_rows(model, X), codes, weight), model.classes_)
    weight = merge_labelled_duplicates(data).counts
    several = len(model.classes_) > 2
    some = weight > 0
    for c, row in enumerate(np.atleast_2d(model.weight_precision_)):
        here = np.asarray(model._fitted.members[c], dtype=int)  # in the order of the posterior
        counts = np.column_stack([weight * (codes == (c if several else 1)), weight])
        alpha = row[here] * np.broadcast_to(scale, len(row))[here] ** 2
        yield Phi[np.ix_(some, here)], counts[some], alpha


def bound_climbed(model, X, y, weight):
    """What L-BFGS on the bound of Jaakkola & Jordan gains over all precisions and all xi."""
    moved = 0.0
    posteriors = model.posterior_ if isinstance(model.posterior_, tuple) else (model.posterior_,)
    problems = binary(model, X, y, weight)
    for (H, counts, alpha), posterior in zip(problems, posteriors, strict=False):
        n, k = H.shape
        mean, variance = posterior.predict(H)
        if model.fit_intercept:  # an offset of the columns is one of the intercept
            H = H - np.average(H, axis=0, weights=counts[:, 1])
        B = np.column_stack([H, np.ones(n)]) if model.fit_intercept else H
        positive, total = counts.T

        def negative(u, B=B, positive=positive, total=total, n=n, k=k):
            xi, alpha = np.exp(u[:n]), np.exp(u[n:])
            slope = np.tanh(0.5 * xi) / (4.0 * xi)
            A = np.append(alpha, np.zeros(B.shape[1] - k))
            root = np.sqrt(2.0 * total * slope)[:, None] * B
            R = np.linalg.qr(np.vstack([root, np.diag(np.sqrt(A))]), mode="r")
            W = np.linalg.inv(R)
            mu = W @ (W.T @ (B.T @ (positive - 0.5 * total)))
            square = (B @ mu) ** 2 + np.einsum("ij,ij->i", B @ W, B @ W)
            value = 0.5 * (positive - 0.5 * total) @ (B @ mu) - np.sum(np.log(np.abs(np.diag(R))))
            value += 0.5 * np.sum(u[n:]) + total @ (log_expit(xi) - 0.5 * xi + slope * xi**2)
            # lambda' of log xi
            change = 0.125 / np.cosh(np.minimum(0.5 * xi, 300.0)) ** 2 - slope
            d_xi = total * change * (xi**2 - square)
            V = np.einsum("ij,ij->i", W, W)[:k]
            return -value, -np.append(d_xi, 0.5 * (1.0 - alpha * (V + mu[:k] ** 2)))

        norms = np.maximum(total @ H**2, 1e-300)
        # A row at the origin, without an intercept, knows its label by nothing.
        u = np.append(0.5 * np.log(np.maximum(mean**2 + variance, 1e-20)), np.log(alpha))
        bounds = [(x - 10.0, x + 10.0) for x in u[:n]]
        ends = np.log(np.outer(norms, [1e-12, 1e12]))
        bounds += [(min(low, x), max(high, x)) for x, (low, high) in zip(u[n:], ends, strict=True)]
        options = {"maxiter": 300, "maxfun": 1000}
        found = minimize(negative, u, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        moved += negative(u)[0] - found.fun
    return moved


def iterated(model, X, y, weight):
    """How far MacKay's re-estimates (Tipping 2001) of labels move the Laplace evidence.

    They end where the evidence is at rest. Their map is no ascent: of two similar functions with
    equal precisions its fixed point is one that rounding leaves after a hundred idle steps.
    """
    moved = 0.0
    for H, counts, alpha in binary(model, X, y, weight):
        weight = counts[:, 1]
        floor = 1e-8 * (weight @ H**2) / np.sum(weight)
        start, values = None, []
        for _ in range(300):
            p, _ = laplace_posterior(H, counts, alpha, bool(model.fit_intercept), start)
            values.append(p.log_evidence)
            determined = 1.0 - alpha * np.einsum("ij,ij->i", p.form.root, p.form.root)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                new = np.where(determined > 1e-9, determined / p.mean**2, np.inf)
            new = np.clip(new, floor, 1e12 * np.maximum(floor, 1e-300) / 1e-8)
            if np.ptp(values[-IDLE:]) < 1e-3 * MOVED and len(values) >= IDLE:
                break
            alpha, start = new, (p.mean, p.intercept)
        moved += values[-1] - values[0]
    return moved


class TooLong(BaseException):
    """The CPU time of a problem is spent."""


def too_long(signum, frame):
    raise TooLong


def child(connection, limit):
    """Judge what is asked until the end, on one thread."""
    threadpool_limits(1)
    signal.signal(signal.SIGPROF, too_long)
    while (job := connection.recv()) is not None:
        name, number = job
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            found = judge(name, draw(name, number))
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        except TooLong as late:
            found = [("hang", f"more than {limit:g} s of CPU {where(late)}")]
        connection.send((name, number, found, time.process_time() - started))


class Worker:
    """A long-lived child, and what it is doing."""

    def __init__(self, limit):
        self.connection, theirs = mp.Pipe()
        self.process = mp.Process(target=child, args=(theirs, limit), daemon=True)
        self.process.start()
        theirs.close()
        self.job = None

    def ask(self, job):
        self.job, self.started = job, time.monotonic()
        self.connection.send(job)

    def kill(self):
        self.process.kill()
        self.process.join()


def campaign(jobs, n_workers, limit):
    """(name, number, found, seconds) of every job as it ends."""
    jobs = iter(jobs)
    workers = [Worker(limit) for _ in range(n_workers)]
    for worker in list(workers):
        job = next(jobs, None)
        worker.kill() if job is None else worker.ask(job)
    busy = [worker for worker in workers if worker.job]
    while busy:
        ready = wait([worker.connection for worker in busy], timeout=0.5)
        for i, worker in enumerate(busy):
            late = time.monotonic() - worker.started > PATIENCE * limit
            if worker.connection in ready:
                try:
                    yield worker.connection.recv()
                except EOFError:
                    yield (*worker.job, [("crash", "the process died")], limit)
                    late = True
            elif late:
                yield (*worker.job, [("hang", "its process did not answer")], limit)
            else:
                continue
            job = next(jobs, None)
            if late or job is None:
                worker.kill()
            if job is None:
                busy[i] = None
                continue
            if late:
                busy[i] = worker = Worker(limit)
            worker.ask(job)
        busy = [worker for worker in busy if worker is not None]


def show(counts, lines, seconds, refused):
    heads = ("problems", "refused", *KINDS, "s each")
    print(f"\n{'':32}" + "".join(f"{head:>9}" for head in heads))
    for name, times in seconds.items():
        if not times:
            continue
        row = "".join(f"{counts[name, kind] or '.':>9}" for kind in heads[1:-1])
        print(f"{name:32}{len(times):>9}{row}{np.mean(times):>9.2f}")
    total = "".join(f"{sum(counts[n, kind] for n in seconds):>9}" for kind in heads[1:-1])
    print(f"{'all':32}{sum(map(len, seconds.values())):>9}{total}\n")
    for (name, kind), entries in sorted(lines.items()):
        if kind == "refused" and not refused:
            continue
        for number, detail in entries:
            print(line(name, number, kind, detail))


def line(name, number, kind, detail):
    """One failure, and the arguments that repeat it."""
    return f"{kind:9} --only {name} --seed {number} --n 1   # {detail[:150]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000, help="problems, over all estimators")
    parser.add_argument("--seed", type=int, default=0, help="number of the first problem")
    parser.add_argument("--jobs", type=int, default=2, help="child processes")
    parser.add_argument("--only", default="", help="estimators whose name begins like this")
    parser.add_argument("--limit", type=float, default=30.0, help="CPU seconds for one problem")
    parser.add_argument("--lines", type=int, default=5, help="lines shown of each kind of failure")
    parser.add_argument("--refused", action="store_true", help="show refusals too")
    parser.add_argument("--each", action="store_true", help="show failures as they are found")
    args = parser.parse_args()
    names = [name for name in ESTIMATORS if name.startswith(args.only)]
    if args.only in ESTIMATORS:
        names = [args.only]
    jobs = [(names[i % len(names)], i) for i in range(args.seed, args.seed + args.n)]
    if args.n == 1:
        print(jobs[0][0], draw(*jobs[0]))
    counts, lines, seconds = Counter(), defaultdict(list), {name: [] for name in names}
    for name, number, found, took in campaign(jobs, args.jobs, args.limit):
        seconds[name].append(took)
        if args.each:
            for kind, detail in [entry for entry in found if entry[0] in KINDS]:
                print(line(name, number, kind, detail), flush=True)
        for kind in {kind for kind, _ in found}:
            counts[name, kind] += 1
        for kind, detail in found:
            if len(lines[name, kind]) < args.lines:
                lines[name, kind].append((number, detail))
    show(counts, lines, seconds, args.refused)
    raise SystemExit(any(kind in KINDS for _, kind in counts))


if __name__ == "__main__":
    main()
