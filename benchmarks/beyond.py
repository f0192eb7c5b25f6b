"""Measure given widths inside, near and far outside the training rows (decision 0049).

    OMP_NUM_THREADS=1 python benchmarks/beyond.py [--draws 4] [--only OLS]

200 rows of two inputs within 1 of zero, with noise of .05 and .3, and three functions: a sine plus
a line, a product, and a draw of a Gaussian process. New rows are inside; near, up to .5 beyond the
range in an input; and far, .5 to 3 beyond it. For each model and `gamma` and each of these regions
the table has the coverage of 95 % intervals, the root mean square of std over error, and the root
mean square error (geometric means over functions, noise and draws for the last two).
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product

import numpy as np

import sparsebayes as sb

MODELS = {
    "RVM": sb.RVMRegressor,
    "Forward": sb.ForwardRegressor,
    "OLS": sb.OrthogonalLeastSquaresRegressor,
    "Backfitting": sb.BackfittingRegressor,
}
GAMMAS, NOISES = (0.03, 0.1, 0.3, 1.0), (0.05, 0.3)


def process(seed):
    """Return a draw of a Gaussian process with a length scale of .7, by random features."""
    rng = np.random.default_rng(seed + 100)
    slopes, phases = rng.standard_normal((2, 300)) / 0.7, rng.uniform(0, 6.28, 300)
    weights = rng.standard_normal(300) * np.sqrt(2 / 300)
    return lambda X: np.cos(X @ slopes + phases) @ weights


FUNCTIONS = {
    "sine": lambda seed: lambda X: np.sin(2 * X[:, 0]) + X[:, 1],
    "product": lambda seed: lambda X: np.sin(6 * X[:, 0]) * X[:, 1],
    "process": process,
}


def regions(rng):
    """Return rows inside, near and far outside the training rows."""
    inside = rng.uniform(-1, 1, (1000, 2))
    near, far = rng.uniform(-1.5, 1.5, (3000, 2)), rng.uniform(-4, 4, (1000, 2))
    return inside, near[np.abs(near).max(1) > 1], far[np.abs(far).max(1) > 1.5]


def measure(model, function, noise, seed):
    """Return coverage, std over error and error in each region, one after the other."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (200, 2))
    y = function(X) + noise * rng.standard_normal(200)
    new, row = regions(rng), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
        for Z in new:
            mean, std = model.predict(Z, return_std=True)
            error = function(Z) + noise * rng.standard_normal(len(Z)) - mean
            square = np.mean(error**2)
            covered = np.mean(np.abs(error) < 1.96 * std)
            row += [covered, np.sqrt(np.mean(std**2) / square), np.sqrt(square)]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--only", default="", help="models whose name contains this")
    options = parser.parse_args()
    print(f"{'':18}{'inside':>21}{'near':>21}{'far':>21}")
    print(f"{'model':12}{'gamma':>6}" + f"{'in 95':>8}{'std':>6}{'error':>7}" * 3)
    for name, gamma in product(MODELS, GAMMAS):
        if options.only not in name:
            continue
        rows = [
            measure(MODELS[name]("rbf", gamma=gamma), make(seed), noise, seed)
            for noise, make, seed in product(NOISES, FUNCTIONS.values(), range(options.draws))
        ]
        coverage = np.mean(rows, axis=0)
        values = np.where(np.arange(9) % 3 == 0, coverage, np.exp(np.mean(np.log(rows), axis=0)))
        cells = [f"{v:8.3f}{w:6.2f}{u:7.3f}" for v, w, u in values.reshape(3, 3)]
        print(f"{name:12}{gamma:6g}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
