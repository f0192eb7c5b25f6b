"""Small tables with one kind of trouble each, and generated sets of nine kinds, for trust.py.

The function is a draw from a Gaussian process, or from a linear one, of variance about one. So the
distribution of new observations given the rows is known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.datasets import make_friedman1

N_NEW = 400
NOISE = 0.3  # standard deviation; that of the function is about 1
JITTER = 1e-10  # variance without which the covariance of the function is singular

CELLS = {
    "plain": "160 rows, 3 inputs (columns: 8), two (three) of which matter",
    "duplicates": "100 rows, each of them twice",
    "near copies": "100 rows, each of them twice, with inputs that differ by .001",
    "bootstrap": "a bootstrap sample of the rows",
    "weights": "sample_weight uniform from .5 to 3",
    "weights 2.5": "sample_weight 2.5 for all rows",
    "30 rows": "30 rows",
    "p > n": "100 rows, 300 inputs, linear in three of them",
    "p = n": "150 rows, 150 inputs, linear in three of them",
    "skewed": "lognormal inputs; the function is smooth (linear) in their logarithms",
    "skewed tail": "the same; new rows have an input in its upper 5 %",
    "far cell": "one value of 1e6 in an input",
    "t noise": "Student's t with 3 degrees of freedom",
    "uneven noise": "a noise that grows tenfold along an input",
    "noise-free": "no noise; labels without overlap",
    "steps": "steps along two inputs",
    "pure noise": "no function at all",
    "counts": "Poisson counts",
    "beyond": "new rows .3 to 1.2 length scales outside the range of the rows",
    "sorted": "rows in order of the first input",
    "grades": "inputs are whole numbers from 1 to 5, so that many rows are equal",
    "one-hot": "three categorical inputs as 28 columns of 0 and 1",
    "copied columns": "every input three times",
    "codes": "a categorical input of eight levels, written as whole numbers in no order",
    "replicates": "25 different rows of inputs, each with six or so targets (labels) of its own",
    "far row": "one row a hundred times as far away in all inputs",
    "row number": "an input that is the number of the row; new rows have later numbers",
    "clusters": "two groups of rows, twenty length scales apart",
    "units": "inputs in units from 1e-6 to 1e6 around 1e3; a target of 1e6 and 1e3 around it",
    "rounded": "targets rounded to the next half",
    "rare level": "an input of 0 and 1, which is 1 in 6 rows and in half of the new rows",
    "gap": "no row in the middle third of an input, where all new rows are",
    "corner": "new rows in the corner of two inputs, inside their range",
    "combination": "two inputs that are nearly equal, and independent in new rows",
    "lone row": "one row far from the others in an input; new rows are in between",
    "wiggly": "a function of a quarter of the length scale, which the rows hardly resolve",
    "heavy inputs": "inputs with Cauchy tails; the function is smooth in their ranks",
    "imputed": "a tenth of the values replaced by the mean of their input",
    "censored": "targets below the mean are written as the mean",
    "zero-inflated": "two fifths of the targets are zero, the others positive",
    "lognormal target": "the exponential of a function and its noise",
    "one outlier": "a target that is a hundred times the noise away from its function",
    "outliers": "a tenth of the targets has ten times the noise",
    "drift": "noise that is correlated from row to row; new rows are later",
    "weights by input": "sample_weight from .2 to 5 that grows with an input",
    "precision weights": "noise that grows tenfold along an input; sample_weight is its precision",
    "averages": "rows are means of 1 to 11 observations, sample_weight their number",
    "subjects": "20 subjects with an effect and an input of their own; new rows are of others",
    "levels": "a smooth input that was set to twelve levels; new rows are between them",
    "rare class": "about 5 % of the rows in a class",
    "two of a class": "2 of 200 rows in a class, at random",
    "few labels": "40 rows",
    "flipped labels": "no overlap but for 15 % wrong labels",
    "three classes": "three classes",
}
RESHAPED = ("censored", "zero-inflated", "lognormal target")
N_SUBJECTS, EFFECT = 20, 0.5  # of "subjects": their number, and the std of what is their own
REPLICATED = 25  # different rows of "replicates"
ROWS = {"30 rows": 30, "few labels": 40, "p > n": 100, "p = n": 150}
ROWS |= {"duplicates": 100, "near copies": 100}
INPUTS = {"p = n": 150, "p > n": 300}


class Latent(NamedTuple):
    """The latent function of classes before its labels: f = root u, u ~ N(0, I)."""

    cell: str
    root: np.ndarray
    n_functions: int
    labels: np.ndarray
    seen: np.ndarray  # rows whose labels are among those to fit


@dataclass(frozen=True)
class Draw:
    """Rows to fit (X, y, weight) and new rows (new, target), with what an oracle knows.

    The oracle knows the noise variance of each row, the mean and std of each new observation given
    the rows, the degrees of freedom of the noise and the true probabilities P of the classes.
    """

    X: np.ndarray
    y: np.ndarray
    new: np.ndarray
    target: Any = None
    noise: Any = None
    mean: Any = None
    std: Any = None
    df: float = np.inf
    P: Any = None
    weight: Any = None
    posterior: Any = None  # of the latent function, for `class_oracle`


def draw(cell, seed, columns=False, classes=False):
    """Return a draw of a cell: `columns` of a linear function, `classes` with labels as target."""
    rng = np.random.default_rng(seed)
    n = 200 if cell == "two of a class" else ROWS.get(cell, 160)
    columns = columns or cell in INPUTS
    X, Z = inputs(cell, rng, n, INPUTS.get(cell, 8 if columns else 3))
    if columns:
        K = Z[:, :3] @ Z[:, :3].T / 4.0
    else:
        K = np.exp(-0.5 * ((Z[:, None, :2] - Z[None, :, :2]) ** 2).sum(-1))
    root = np.linalg.cholesky(K + JITTER * np.eye(len(K)))
    f = root @ rng.standard_normal((len(K), 3 if cell == "three classes" else 1))
    if cell == "steps":
        f = np.sign(Z[:, :1] - 0.5) * (0.3 + np.sign(Z[:, 1:2] + 0.3))
    elif cell in ("pure noise", "two of a class"):
        K, f = 0.0 * K, 0.0 * f
    if classes:
        y, P = labels(cell, rng, f, n)
        latent = Latent(cell, root, f.shape[1], y[:n], np.arange(n))
        plain = Draw(X[:n], y[:n], X[n:], P=P[n:], posterior=latent)
    else:
        plain = observe(cell, rng, X, Z, f[:, 0], K, n)
    return spoil(cell, rng, plain)


def inputs(cell, rng, n, d):
    """Return the inputs of old and new rows, and the variables that the function depends on."""
    N, new = n + N_NEW, np.arange(n, n + N_NEW)
    Z = rng.uniform(-2.0, 2.0, (N, d))
    if cell == "beyond":
        side = rng.choice([-1.0, 1.0], N_NEW)
        Z[new, rng.integers(0, 2, N_NEW)] = side * (2.0 + rng.uniform(0.3, 1.2, N_NEW))
    elif cell.startswith("skewed"):
        Z = rng.standard_normal((N, d))
        if cell == "skewed tail":
            Z[new, rng.integers(0, 2, N_NEW)] = norm.ppf(rng.uniform(0.95, 1.0, N_NEW))
        return np.exp(Z), Z
    elif cell == "codes":
        code = rng.integers(0, 8, N)
        Z[:, 0] = rng.uniform(-2.0, 2.0, 8)[code]
        return np.column_stack([code, Z[:, 1:]]), Z
    elif cell == "replicates":
        Z[:n] = Z[rng.integers(0, REPLICATED, n)]
    elif cell == "rare level":
        level = np.append(np.arange(n) < 6, rng.random(N_NEW) < 0.5)
        Z[:, 0] = np.where(level, 1.5, -0.5)
        return np.column_stack([level, Z[:, 1:]]).astype(float), Z
    elif cell == "subjects":
        Z[:n, 2] = rng.uniform(-2.0, 2.0, N_SUBJECTS)[np.arange(n) % N_SUBJECTS]
    elif cell == "levels":
        Z[:n, 0] = np.linspace(-2.0, 2.0, 12)[rng.integers(0, 12, n)]
    elif cell == "gap":
        Z[:n, 0] = np.sign(Z[:n, 0]) * rng.uniform(2.0 / 3.0, 2.0, n)
        Z[new, 0] = rng.uniform(-2.0 / 3.0, 2.0 / 3.0, N_NEW)
    elif cell == "corner":
        Z[new, :2] = rng.uniform(1.5, 1.9, (N_NEW, 2))
    elif cell == "combination":
        Z[:n, 1] = Z[:n, 0] + 0.1 * rng.standard_normal(n)
    elif cell == "lone row":
        Z[:n, 0] = 0.5 * Z[:n, 0] - 1.0
        Z[0, 0] = 2.0
        Z[new, 0] = rng.uniform(0.8, 1.8, N_NEW)
    elif cell == "wiggly":
        return Z.copy(), 4.0 * Z
    elif cell == "heavy inputs":
        return np.tan(0.25 * np.pi * 0.999 * Z), Z
    elif cell == "clusters":
        Z[:, 0] += 20.0 * rng.integers(0, 2, N)
    elif cell == "row number":
        return np.column_stack([Z, np.arange(N)]), Z
    elif cell == "units":
        return 1e3 + Z * np.logspace(-6, 6, d), Z
    elif cell == "grades":
        X = rng.integers(1, 6, (N, d)).astype(float)
        return X, X - 3.0
    elif cell == "one-hot":
        codes = [rng.integers(0, k, N) for k in (4, 8, 16)]
        X = np.column_stack([np.eye(k)[c] for k, c in zip((4, 8, 16), codes, strict=True)])
        effects = [rng.standard_normal(k)[c] for k, c in zip((4, 8, 16), codes, strict=True)]
        return X, np.column_stack(effects)
    return (np.tile(Z, 3) if cell == "copied columns" else Z), Z


def observe(cell, rng, X, Z, f, K, n):
    """Add noise to the function, and predict the new observations with the true kernel."""
    sd, df = np.full(len(f), NOISE), 3.0 if cell == "t noise" else np.inf
    e = rng.standard_normal(len(f)) if np.isinf(df) else rng.standard_t(df, len(f)) / 3**0.5
    if cell == "noise-free":
        sd = np.zeros(len(f))
    elif cell in ("uneven noise", "precision weights"):
        sd = 0.1 * 10 ** ((Z[:, 0] + 2.0) / 4.0)
    elif cell == "averages":
        sd[:n] /= rng.integers(1, 12, n) ** 0.5
    y = f + sd * e
    if cell == "rounded":
        y = np.round(2.0 * y) / 2.0
    if cell in RESHAPED:
        return reshaped(cell, rng, X, f, e, n)
    if cell == "outliers":
        e = e * np.where(rng.random(len(f)) < 0.1, 10.0, 1.0)
        y, sd = f + sd * e, np.full(len(f), NOISE * (0.9 + 0.1 * 100.0) ** 0.5)
    elif cell == "drift":
        for i in range(1, len(e)):
            e[i] = 0.9 * e[i - 1] + (1.0 - 0.9**2) ** 0.5 * e[i]
        y = f + sd * e
    elif cell == "subjects":
        effect = rng.standard_normal(len(f))
        effect[:n] = effect[np.arange(n) % N_SUBJECTS]
        y, sd = y + EFFECT * effect, np.sqrt(sd**2 + EFFECT**2)
    if cell == "counts":
        f = np.exp(0.5 + 0.7 * f)
        y, sd = rng.poisson(f).astype(float), np.sqrt(f)
    sd = np.sqrt(sd**2 + JITTER)
    mean, std = f[n:], sd[n:]
    if cell not in ("counts", "steps"):
        A = np.linalg.solve(K[:n, :n] + np.diag(sd[:n] ** 2), K[:n, n:])
        variance = np.diag(K)[n:] - np.einsum("ij,ij->j", A, K[:n, n:])
        mean, std = A.T @ y[:n], np.sqrt(np.maximum(variance, 0.0) + std**2)
    return Draw(X[:n], y[:n], X[n:], y[n:], sd[:n] ** 2, mean, std, df)


def reshaped(cell, rng, X, f, e, n):
    """Return targets that are no sum of function and noise, with their exact mean and std."""
    z = np.linspace(-6.0, 6.0, 241)
    weight = norm.pdf(z) / np.sum(norm.pdf(z))
    values, own = f[:, None] + NOISE * z, f + NOISE * e
    if cell == "censored":
        values, y = np.maximum(values, 0.0), np.maximum(own, 0.0)
    else:
        values, y = np.exp(values), np.exp(own)
    mean, square = values @ weight, values**2 @ weight
    if cell == "zero-inflated":
        y = np.where(rng.random(len(f)) < 0.4, 0.0, y)
        mean, square = 0.6 * mean, 0.6 * square
    variance = np.maximum(square - mean**2, 0.0) + JITTER
    std = np.sqrt(variance[n:])
    return Draw(X[:n], y[:n], X[n:], y[n:], variance[:n], mean[n:], std)


def probabilities(cell, f):
    """Return the probabilities of the classes of rows with these values of the function."""
    if cell == "three classes":
        return softmax(2.0 * f, axis=1)
    p = expit(2.0 * f[:, 0])
    if cell == "rare class":
        p = expit(1.5 * f[:, 0] - 4.0)
    elif cell == "two of a class":
        p = np.full(len(f), 0.01)
    elif cell in ("noise-free", "flipped labels", "steps"):
        wrong = {"noise-free": 0.0, "flipped labels": 0.15, "steps": 0.1}[cell]
        p = np.where(f[:, 0] > 0.0, 1.0 - wrong, wrong)
    return np.column_stack([1.0 - p, p])


def class_oracle(draw, n_steps=3000, n_burn=300, thin=5):
    """Return the probabilities of new rows given the labels, with the true kernel and likelihood.

    Elliptical slice sampling of the latent function (Murray, Adams and MacKay 2010). Where there is
    no such function the probabilities are known.
    """
    cell, root, m, codes, seen = draw.posterior
    if cell in ("pure noise", "two of a class", "steps"):
        return draw.P
    rng, n = np.random.default_rng(0), len(codes)
    own = codes[seen]

    def log_likelihood(f):
        p = probabilities(cell, f[seen])[np.arange(len(seen)), own]
        return np.sum(np.log(np.maximum(p, 1e-6)))

    f, total, count = np.zeros((len(root), m)), 0.0, 0
    value = log_likelihood(f)
    for step in range(n_steps):
        other = root @ rng.standard_normal((len(root), m))
        least, angle = value + np.log(rng.random()), rng.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        while True:
            new = np.cos(angle) * f + np.sin(angle) * other
            value = log_likelihood(new)
            if value > least:
                break
            low, high = (angle, high) if angle < 0.0 else (low, angle)
            angle = rng.uniform(low, high)
        f = new
        if step >= n_burn and step % thin == 0:
            total, count = total + probabilities(cell, f[n:]), count + 1
    return total / count


def labels(cell, rng, f, n):
    """Return labels of all rows and their true probabilities."""
    P = probabilities(cell, f)
    while True:  # until there are two rows of each class
        y = (rng.random((len(f), 1)) > np.cumsum(P, axis=1)[:, :-1]).sum(1)
        if cell == "two of a class":
            y[:n] = np.isin(np.arange(n), rng.permutation(n)[:2])
        if np.min(np.bincount(y[:n], minlength=P.shape[1])) >= 2:
            return y, P


def spoil(cell, rng, plain):
    """Return what a cell makes of rows that are otherwise plain."""
    n = len(plain.y)
    if cell == "far cell":
        plain.X[rng.integers(0, n), 0] = 1e6
    elif cell == "one outlier":
        plain.y[rng.integers(0, n)] += 100.0 * NOISE
    elif cell == "far row":
        plain.X[rng.integers(0, n)] *= 100.0
    elif cell == "units" and plain.P is None:
        scaled = {k: 1e6 + 1e3 * getattr(plain, k) for k in ("y", "target", "mean")}
        return replace(plain, **scaled, noise=1e6 * plain.noise, std=1e3 * plain.std)
    elif cell == "imputed":
        for X in (plain.X, plain.new):
            X[:] = np.where(rng.random(X.shape) < 0.1, plain.X.mean(axis=0), X)
    elif cell == "precision weights" and plain.P is None:
        return replace(plain, weight=np.mean(plain.noise) / plain.noise)
    elif cell == "averages":
        return replace(plain, weight=np.round(NOISE**2 / plain.noise))
    elif cell == "weights by input":
        order = np.argsort(np.argsort(plain.X[:, 0])) / n
        return replace(plain, weight=0.2 + 4.8 * order)
    elif cell.startswith("weights"):
        weight = rng.uniform(0.5, 3.0, n) if cell == "weights" else np.full(n, 2.5)
        return replace(plain, weight=weight)
    elif cell in ("duplicates", "near copies", "bootstrap", "sorted"):
        rows = np.argsort(plain.X[:, 0]) if cell == "sorted" else np.tile(np.arange(n), 2)
        rows = rng.integers(0, n, n) if cell == "bootstrap" else rows
        noise = None if plain.noise is None else plain.noise[rows]
        latent = plain.posterior
        if latent is not None:
            latent = latent._replace(seen=np.unique(rows))
        X = plain.X[rows]
        if cell == "near copies":
            X = X + 1e-3 * rng.standard_normal(X.shape)
        return replace(plain, X=X, y=plain.y[rows], noise=noise, posterior=latent)
    return plain


# Sets of nine kinds.

KINDS = ("smooth", "rough", "trees", "linear", "sparse", "t", "uneven", "friedman", "categories")


def generated(number):
    """Return one of the generated sets; its kind is `KINDS[number % 9]`."""
    rng, kind = np.random.default_rng([7, number]), KINDS[number % len(KINDS)]
    n, d = int(np.exp(rng.uniform(np.log(30), np.log(301)))), int(rng.integers(1, 21))
    N, sd = n + N_NEW, float(rng.choice([0.1, 0.3, 1.0]))
    X, e = rng.standard_normal((N, d)), rng.standard_normal(N)
    if kind in ("smooth", "rough", "t", "uneven"):
        gap = np.sqrt(((X[:, None, :3] - X[None, :, :3]) ** 2).sum(-1)) / rng.uniform(0.7, 2.0)
        K = np.exp(-gap) if kind == "rough" else np.exp(-0.5 * gap**2)
        f = np.linalg.cholesky(K + 1e-8 * np.eye(N)) @ rng.standard_normal(N)
        e = rng.standard_t(3, N) if kind == "t" else e * np.exp(X[:, 0] * (kind == "uneven"))
    elif kind == "trees":
        f = np.sign(X[:, rng.integers(0, d, 4)] - rng.uniform(-1, 1, 4)) @ rng.standard_normal(4)
    elif kind == "friedman":
        X, f = make_friedman1(N, max(d, 5), random_state=number)
        f = (f - f.mean()) / f.std()
    elif kind == "categories":
        codes = rng.integers(0, 5, (N, 1 + d // 5))
        f = rng.standard_normal((5, codes.shape[1]))[codes, np.arange(codes.shape[1])].sum(1)
        X = np.eye(5)[codes].reshape(N, -1)
    else:
        f = X @ (rng.standard_normal(d) * (np.arange(d) < 3 if kind == "sparse" else d**-0.5))
    y = f + sd * e
    return Draw(X[:n], y[:n], X[n:], y[n:])
