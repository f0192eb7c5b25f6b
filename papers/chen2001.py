"""The simple example of the slides, over many draws of its data.

Data: 100 values of y = sin(2 pi x) + noise, x uniform on (0, 1), noise variance 0.16. The slides do
not name the function; the sine agrees with the accuracies they print stage by stage. They show one
draw, which is not public: ours are 100 draws (quick: 20), and a printed figure is compared with the
mean and the standard deviation over them.
Model: Gaussian kernel of variance 0.04, exp(-d^2 / 0.08), on each of the 100 rows; no intercept.
Selection ends where all candidates are degenerate: less than 1e-14 of their squared length is left
beside the chosen ones. That bound alone decides how many terms OLS keeps and how large its weights
get (1e-12: 13.6 terms on average); 1e-14 gives the 15 terms of the slides.
OLS and UROLS are the library's. LROLS iterates the slides' own rule for the regularisers, 30
passes: the rule lets a useless term fade geometrically, so the number of passes decides how many
still count (effective: regulariser below 1e6 w'w). The library's LROLS uses the closed form of the
same rule's limit, where they are gone; it is shown as a line of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from sparsebayes import OrthogonalLeastSquaresRegressor
from sparsebayes.datasets import make_chen_example

from .figures import make_figure
from .frame import Cell, Paper, Results, Table, Values

GAMMA = 12.5
GUARD = 1e-14
PASSES = 30
_GRID = np.linspace(0.0, 1.0, 201)[:, None]


def papers_rule(X: np.ndarray, y: np.ndarray, passes: int = PASSES) -> dict[str, np.ndarray]:
    """LROLS as published: lam = gamma sigma2 / g^2, a given number of passes over the selection.

    After the first pass only the selected columns compete.
    """
    K, n = _kernel(X, X), len(y)
    active, lam = np.arange(n), np.full(n, 1e-3)
    for step in range(passes + 1):
        order, V, R = select(K[:, active], y, lam[active])
        active = active[order]
        s = np.diag(R) ** 2
        g = np.diag(R) * (V.T @ y) / (s + lam[active])
        if step == passes:
            break
        gamma, e = s / (s + lam[active]), y - V @ (np.diag(R) * g)
        with np.errstate(divide="ignore"):
            lam[active] = np.minimum(gamma * (e @ e) / ((n - gamma.sum()) * g**2), 1e40)
    return {
        "centres": X[active],
        "weights": solve_triangular(R, np.diag(R) * g),
        "accuracy": 1.0 - np.cumsum((s + lam[active]) * g**2) / (y @ y),
        "regularizers": lam[active],
        "effective": np.count_nonzero(lam[active] < 1e6 * s),
    }


def select(
    columns: np.ndarray, y: np.ndarray, lam: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Select columns by error reduction until all others are degenerate: order, V and R.

    ``columns[:, order] = V @ R`` with orthonormal V, by modified Gram-Schmidt on all columns and
    once more on the selected one.
    """
    W, residual = columns.copy(), y.copy()
    norms = np.sum(columns**2, axis=0)
    V = np.empty((len(y), 0))
    order: list[int] = []
    candidates = np.ones(len(lam), dtype=bool)
    while np.any(candidates := candidates & (np.sum(W**2, axis=0) > GUARD * norms)):
        reduction = (W.T @ residual) ** 2 / (np.sum(W**2, axis=0) + lam)
        best = int(np.argmax(np.where(candidates, reduction, -np.inf)))
        v = W[:, best] - V @ (V.T @ W[:, best])
        v /= np.linalg.norm(v)
        V = np.column_stack([V, v])
        residual -= v * (v @ residual)
        W -= np.outer(v, v @ W)
        candidates[best] = False
        order.append(best)
    return np.array(order, dtype=np.intp), V, np.triu(V.T @ columns[:, order])


def library(X: np.ndarray, y: np.ndarray, regularization: str) -> dict[str, np.ndarray]:
    """The model of the library's estimator, described as `papers_rule` does."""
    model = OrthogonalLeastSquaresRegressor(
        gamma=GAMMA,
        fit_intercept=False,
        regularization=regularization,
        guard=GUARD,
        stopping=None,
    ).fit(X, y)
    return {
        "centres": model.relevance_vectors_,
        "weights": model.coef_,
        "accuracy": 1.0 - model.err_table_.cumulative,
        "regularizers": model.err_table_.regularizer,
        "effective": np.array(len(model.coef_)),
    }


METHODS: dict[str, tuple[str, Any]] = {
    "OLS": ("1", partial(library, regularization="none")),
    "UROLS": ("2", partial(library, regularization="uniform")),
    "LROLS": ("3", papers_rule),
    "LROLS, library": ("3", partial(library, regularization="local")),
}


def measure(method: str, seed: int) -> Values:
    """One draw: stage by stage, and the whole model."""
    X, y = make_chen_example(random_state=seed)
    found = METHODS[method][1](X, y)
    weights, centres = found["weights"], found["centres"]
    curve = _kernel(_GRID, centres) @ weights
    values: Values = {
        "terms selected": len(weights),
        "terms in the model": int(found["effective"]),
        "training MSE": np.mean((y - _kernel(X, centres) @ weights) ** 2),
        "MSE to the true function": np.mean((np.sin(2 * np.pi * _GRID[:, 0]) - curve) ** 2),
        "log10 largest weight": np.log10(np.max(np.abs(weights))),
    }
    if method == "UROLS":
        values["log10 regulariser"] = np.log10(found["regularizers"][0])
    if method in ("OLS", "UROLS", "LROLS"):
        for stage, accuracy in enumerate(found["accuracy"], start=1):
            values[f"stage {stage} accuracy"] = accuracy
        for stage, weight in enumerate(np.abs(weights), start=1):
            if weight > 0:
                values[f"stage {stage} log10 weight"] = np.log10(weight)
    if method == "LROLS":
        for stage, lam in enumerate(found["regularizers"], start=1):
            values[f"stage {stage} log10 regulariser"] = np.log10(lam)
    if seed == 0:
        kept = np.abs(weights) > 1e-8 * np.max(np.abs(weights))
        values |= {
            "x": X[:, 0].tolist(),
            "y": y.tolist(),
            "curve": curve.tolist(),
            "centres": centres[kept, 0].tolist(),
        }
    return {k: v if isinstance(v, list) else float(v) for k, v in values.items()}


def _kernel(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return np.exp(-GAMMA * (X[:, :1] - Z[:, 0]) ** 2)


def _cells(numbers: tuple[str, ...], quick: bool) -> list[Cell]:
    return [
        Cell(number, method, "", seed, partial(measure, method, seed))
        for method, (number, _) in METHODS.items()
        if number in numbers
        for seed in range(20 if quick else 100)
    ]


def draw_fits(results: Results) -> Any:
    """The three fits of the slides: data, curve and centres of the first draw."""
    figure, axes = make_figure(1, 3, figsize=(11.0, 3.6))
    for ax, method in zip(axes, ("OLS", "UROLS", "LROLS"), strict=True):
        ax.set(title=method, xlabel="x", xlim=(0, 1), ylim=(-2.6, 2.6))
        values = results.get((method, ""), [{}])[0]
        if "curve" not in values:
            continue
        centres = np.array(values["centres"])
        ax.scatter(values["x"], values["y"], s=8, color="0.4", label="data")
        ax.plot(_GRID[:, 0], values["curve"], color="C0", label="model")
        heights = np.interp(centres, _GRID[:, 0], values["curve"])
        ax.scatter(centres, heights, s=40, facecolors="none", edgecolors="C3", label="centres")
        ax.plot(_GRID[:, 0], np.sin(2 * np.pi * _GRID[:, 0]), color="0.3", lw=1, ls="--",
                label="true function")  # fmt: skip
        ax.set_title(f"{method}: {len(centres)} terms")
    axes[0].set_ylabel("y")
    axes[0].legend(fontsize="small")
    return figure


PAPER = Paper(
    name="lrols",
    title="Kernel-based data modelling using orthogonal least squares selection with local "
    "regularisation",
    reference="S. Chen, presented at CACSCUK 2001, Nottingham, 22 September 2001 (slides)",
    protocol=__doc__ or "",
    tables=(
        Table("1", "OLS selection, stage by stage", partial(_cells, ("1",))),
        Table("2", "UROLS selection, stage by stage", partial(_cells, ("2",))),
        Table("3", "LROLS selection, stage by stage", partial(_cells, ("3",))),
        Table(
            "figure 1",
            "the three fits (15, 12 and 6 terms in the captions)",
            partial(_cells, ("1", "2", "3")),
            figure=draw_fits,
            value="terms in the model",
        ),
    ),
    headline=tuple(
        (table, column)
        for table in ("1", "2", "3")
        for column in (
            "terms selected",
            "training MSE",
            "log10 largest weight",
            "stage 6 accuracy",
            "MSE to the true function",
        )
    ),
    picture="figure 1",
)
