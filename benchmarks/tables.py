"""`table_model()` on raw tables, beside gradient boosting with defaults.

    python benchmarks/tables.py [--tables NAME ...] [--splits 3] [--models NAME ...] [--rows FILE]
    OMP_NUM_THREADS=1 python benchmarks/tables.py --times [SHAPE ...]

The tables are `$SPARSEBAYES_DATA/tables/{regression,classification}/*.csv.gz`, the target last.
Each split is a random fifth for testing and at most 4,000 other rows (3,000 for classes) for
training, the same for all models. A row of JSON is appended to FILE for each table, split and
model; rows that are there already are not computed again. Packages that are not installed are left
out: HistGradientBoosting (scikit-learn), CatBoost, LightGBM, EBM (interpret-core) and NGBoost, with
their defaults and categories declared where they take them; CatBoost has a second model with
uncertainty for densities.

Printed at the end: RMSE or log-loss of `table_model()` over that of each package, medians over
tables of means over splits with standard errors over splits, wins, and the goals: at most .96 of
CatBoost and better on 15 of 20 (log-loss .97, 8 of 12), none above 1.05 (1.10 up to 600 rows); NLL
and CRPS better than CatBoost's on 18 of 20; coverage of 95 % intervals within .93 and .97 on 17 of
20; 8 s (classes 12 s) of CPU time at 4,000 (3,000) rows and up to 20 inputs.

With `--times` CPU seconds and peak memory of default fits of `table_model()` to made tables of
several shapes (half of the inputs are skewed, a positive target; `--times digits` for some alone),
each in a process of its own. Memory is beyond that of a process that has fitted 60 rows.
"""

import argparse
import json
import multiprocessing
import os
import resource
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from sparsebayes import table_model

MOST_ROWS = {"regression": 4000, "classification": 3000}
OTHERS = {"histgb": "sklearn", "catboost": "catboost", "lightgbm": "lightgbm"}
OTHERS |= {"ebm": "interpret", "ngboost": "ngboost"}
LEAST = 1e-15  # probability in a log-loss


def tables(names):
    """Yield task, name and frame of each table."""
    root = Path(os.environ["SPARSEBAYES_DATA"]) / "tables"
    for task in MOST_ROWS:
        for path in sorted((root / task).glob("*.csv.gz")):
            name = path.name.removesuffix(".csv.gz")
            if not names or name in names:
                yield task, name, pd.read_csv(path)


def split_rows(n, split, most):
    """Return the rows for training and for testing."""
    order = np.random.default_rng(split).permutation(n)
    return order[n // 5 :][:most], order[: n // 5]


def normal_crps(y, mean, std):
    """Return the mean CRPS of normal distributions."""
    z = (y - mean) / std
    each = z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi)
    return float(np.mean(std * each))


def score_numbers(y, mean, std=None):
    """Return the scores of predictions, normal where they have a standard deviation."""
    found = {"rmse": float(np.sqrt(np.mean((mean - y) ** 2)))}
    if std is not None:
        found["nll"] = float(-np.mean(norm.logpdf(y, mean, std)))
        found["crps"] = normal_crps(y, mean, std)
        found["coverage"] = float(np.mean(np.abs(y - mean) < 1.96 * std))
    return found


def score_classes(y, classes, proba):
    """Return the log-loss; a class that the model does not know has the least probability."""
    column = {label: j for j, label in enumerate(classes)}
    own = [p[column[label]] if label in column else 0.0 for label, p in zip(y, proba, strict=True)]
    return {"log_loss": float(-np.mean(np.log(np.maximum(own, LEAST))))}


def ours(task, X, y, new, truth):
    """Fit and score `table_model()`."""
    started = time.process_time()
    model = table_model(task).fit(X, y)
    seconds = time.process_time() - started
    if task == "classification":
        return score_classes(truth, model.classes_, model.predict_proba(new)), seconds
    predictive = model._predictive(new)
    low, high = model.predict_interval(new).T
    found = score_numbers(truth, predictive.mean)
    found["nll"] = float(-np.mean(predictive.log_density(truth)))
    found["crps"] = float(np.mean(predictive.crps(truth)))
    found["coverage"] = float(np.mean((low <= truth) & (truth <= high)))
    found["members"] = dict(
        zip(model.choices_["member"], np.round(model.choices_["weight"], 3).tolist(), strict=True)
    )
    return found, seconds


def catboost(task, X, y, new, truth):
    """Fit and score CatBoost; densities are those of a second model, with uncertainty."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    texts = _texts(X)
    X, new = (frame.assign(**{c: frame[c].astype(str) for c in texts}) for frame in (X, new))
    options = {"verbose": 0, "thread_count": 1, "random_seed": 0, "allow_writing_files": False}
    made = CatBoostRegressor if task == "regression" else CatBoostClassifier
    started = time.process_time()
    model = made(**options).fit(X, y, cat_features=texts)
    seconds = time.process_time() - started
    if task == "classification":
        return score_classes(truth, model.classes_, model.predict_proba(new)), seconds
    unsure = CatBoostRegressor(loss_function="RMSEWithUncertainty", **options)
    mean, variance = unsure.fit(X, y, cat_features=texts).predict(new).T
    found = score_numbers(truth, mean, np.sqrt(variance))
    return {**found, **score_numbers(truth, model.predict(new))}, seconds


def other(name, task, X, y, new, truth):
    """Fit and score another package; columns are numbered, since LightGBM refuses some names."""
    classes = task == "classification"
    columns = [f"x{j}" for j in range(X.shape[1])]
    X, new = _as_categories(X.set_axis(columns, axis=1), new.set_axis(columns, axis=1))
    started = time.process_time()
    if name == "histgb":
        from sklearn import ensemble

        made = "HistGradientBoostingClassifier" if classes else "HistGradientBoostingRegressor"
        model = getattr(ensemble, made)(random_state=0, categorical_features="from_dtype")
    elif name == "lightgbm":
        import lightgbm

        made = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
        model = made(random_state=0, n_jobs=1, verbose=-1)
    elif name == "ebm":
        from interpret import glassbox

        made = "ExplainableBoostingClassifier" if classes else "ExplainableBoostingRegressor"
        model = getattr(glassbox, made)(random_state=0, n_jobs=1)
    else:
        import ngboost

        X, new = _as_numbers(X, new)
        if classes:
            y, names = pd.factorize(y, sort=True)
            kind = ngboost.distns.k_categorical(len(names))
            model = ngboost.NGBClassifier(Dist=kind, verbose=False, random_state=0).fit(X, y)
            seconds = time.process_time() - started
            return score_classes(truth, names, model.predict_proba(new)), seconds
        model = ngboost.NGBRegressor(verbose=False, random_state=0).fit(X, y)
        seconds = time.process_time() - started
        found = model.pred_dist(new)
        return score_numbers(truth, found.loc, found.scale), seconds
    model.fit(X, y)
    seconds = time.process_time() - started
    if classes:
        return score_classes(truth, model.classes_, model.predict_proba(new)), seconds
    return score_numbers(truth, model.predict(new)), seconds


def _texts(X):
    return [c for c in X if not pd.api.types.is_numeric_dtype(X[c]) or X[c].dtype == bool]


def _as_categories(X, new):
    """Return both frames with text as categoricals of the training rows."""
    X, new = X.copy(), new.copy()
    for c in _texts(X):
        levels = X[c].astype(str).unique()[:254]  # the most that HistGradientBoosting takes
        for frame in (X, new):
            frame[c] = pd.Categorical(frame[c].astype(str), categories=levels)
    return X, new


def _as_numbers(X, new):
    """Return both frames with categories as 0/1 columns and gaps as medians."""
    both = pd.get_dummies(pd.concat([X, new]), dtype=float)
    both = both.fillna(both.iloc[: len(X)].median()).to_numpy(float)
    return both[: len(X)], both[len(X) :]


def run(task, name, frame, split, model):
    """Return one row of results."""
    y, X = frame.iloc[:, -1].to_numpy(), frame.iloc[:, :-1]
    train, test = split_rows(len(frame), split, MOST_ROWS[task])
    if task == "regression":
        y = y.astype(float)
    else:
        y = y.astype(str)
    data = (task, X.iloc[train], y[train], X.iloc[test], y[test])
    function = {"sparsebayes": ours, "catboost": catboost}.get(model)
    found, seconds = other(model, *data) if function is None else function(*data)
    row = {"task": task, "table": name, "split": split, "model": model, "n": len(train)}
    return {**row, "d": X.shape[1], "cpu": seconds, **found}


def report(rows):
    """Print a line per table, and the summary compared with each other package."""
    found = pd.DataFrame(rows)
    for task, key in (("regression", "rmse"), ("classification", "log_loss")):
        some = found[found["task"] == task]
        if len(some) == 0 or key not in some:
            continue
        wide = some.pivot_table(index=["table", "split"], columns="model", values=key)
        print(f"\n{task}: {key} of sparsebayes over that of each package, mean (error) over splits")
        others = [name for name in wide.columns if name != "sparsebayes"]
        ratios = wide[others].rdiv(wide["sparsebayes"], axis=0)
        mean, error = (getattr(ratios.groupby("table"), m)() for m in ("mean", "sem"))
        sizes = some.groupby("table")[["n", "d"]].max()
        own = some[some["model"] == "sparsebayes"].groupby("table").mean(numeric_only=True)
        for name in mean.index:
            cells = [f"{r} {mean.loc[name, r]:.3f} ({error.loc[name, r]:.3f})" for r in others]
            more = f"cpu {own.loc[name, 'cpu']:6.1f}"
            if task == "regression":
                more += f"  coverage {own.loc[name, 'coverage']:.3f}"
            n, d = sizes.loc[name]
            print(f"{name:22} {n:5.0f} x {d:3.0f}  {'  '.join(cells)}  {more}")
        for r in others:
            known = mean[r].dropna()
            geometric = np.exp(np.log(known).mean())
            print(
                f"over {r:9} median {known.median():.3f}  geometric {geometric:.3f}"
                f"  better on {np.sum(known < 1)} of {len(known)}  worst {known.max():.3f}"
            )
        if task == "regression":
            inside = own["coverage"].between(0.93, 0.97)
            print(f"coverage within .93 and .97 on {inside.sum()} of {len(own)}")
            for score in ("nll", "crps"):
                both = some.pivot_table(index="table", columns="model", values=score)
                for r in both.columns.intersection(["catboost", "ngboost"]):
                    pair = both[["sparsebayes", r]].dropna()
                    better = np.sum(pair["sparsebayes"] < pair[r])
                    print(f"{score} better than {r} on {better} of {len(pair)}")


def made(n, d, n_classes=0, n_categories=0):
    """Return a made table: skewed inputs, categories, and a positive target or classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X[:, 1::2] = np.exp(X[:, 1::2])
    z = np.clip(X, -3.0, 3.0)
    f = np.sin(2.0 * z[:, 0]) + 0.25 * z[:, 1] * z[:, 2] + np.abs(z[:, 3]) + 0.3 * z[:, 5]
    f -= z[:, 4] > 0.5
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
    for j, n_levels in enumerate((2, 4, 6, 12)[:n_categories]):
        level = rng.integers(0, n_levels, n)
        f += 0.3 * rng.standard_normal(n_levels)[level]
        frame[f"x{d - 1 - j}"] = [f"level {k}" for k in level]
    f += 0.4 * rng.standard_normal(n)
    if not n_classes:
        return frame, np.exp(0.5 * f)
    ends = np.quantile(f, np.arange(1, n_classes) / n_classes)
    return frame, np.searchsorted(ends, f).astype(str)


def digits():
    """Return the digits of scikit-learn."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True, as_frame=True)
    return X, y.to_numpy().astype(str)


# Shapes of `--times`: rows and goal in CPU seconds, where there is one.
SHAPES = {
    "300x8": (lambda: made(300, 8), 1),
    "1000x10": (lambda: made(1000, 10), None),
    "4000x8": (lambda: made(4000, 8), 8),
    "4000x20": (lambda: made(4000, 20), 8),
    "4000x28-categories": (lambda: made(4000, 28, n_categories=4), None),
    "50000x30": (lambda: made(50_000, 30), 60),
    "300x8-2-classes": (lambda: made(300, 8, n_classes=2), 1),
    "3000x15-2-classes": (lambda: made(3000, 15, n_classes=2), 12),
    "3000x15-3-classes": (lambda: made(3000, 15, n_classes=3), 12),
    "3500x15-2-classes": (lambda: made(3500, 15, n_classes=2), 12),
    "digits": (digits, None),
}


def peak_megabytes():
    """Return the largest memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def time_shape(name):
    """Print CPU seconds and peak memory of a default fit to one made table."""
    warnings.simplefilter("ignore")
    table, goal = SHAPES[name]
    X, y = table()
    task = "regression" if y.dtype == float else "classification"
    few = made(60, 6, n_classes=0 if task == "regression" else 2)
    table_model(task).fit(*few)  # imports
    before, started = peak_megabytes(), time.process_time()
    table_model(task).fit(X, y)
    seconds, memory = time.process_time() - started, peak_megabytes() - before
    goal = "" if goal is None else f"  (goal {goal})"
    print(
        f"{name:20} {len(X):6} x {X.shape[1]:3}  {seconds:6.2f} s  {memory:5.0f} MB{goal}",
        flush=True,
    )


def time_shapes(names):
    """Run each shape in a process of its own, so that memory is that of one fit."""
    context = multiprocessing.get_context("spawn")
    for name in names or SHAPES:
        process = context.Process(target=time_shape, args=(name,))
        process.start()
        process.join()


def main():
    """Compute what is missing and print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=["sparsebayes", *OTHERS])
    parser.add_argument("--rows", type=Path, default=Path("tables.jsonl"))
    parser.add_argument("--times", nargs="*", choices=list(SHAPES), metavar="SHAPE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.times is not None:
        time_shapes(options.times)
        return
    rows = []
    if options.rows.exists():
        rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    done = {(r["task"], r["table"], r["split"], r["model"]) for r in rows}
    models = [m for m in options.models if find_spec(OTHERS.get(m, "sparsebayes")) is not None]
    for split in range(options.splits):
        for task, name, frame in tables(options.tables):
            for model in models:
                if (task, name, split, model) in done:
                    continue
                rows.append(run(task, name, frame, split, model))
                with options.rows.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(json.dumps(rows[-1]), flush=True)
    report(rows)


if __name__ == "__main__":
    main()
