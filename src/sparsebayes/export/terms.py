"""Constants of a fitted model, as they are written by the exporters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from ..designs import Basis
from ..estimators._base import SparseRegressor
from ..estimators._sklearn import check_is_fitted
from ..estimators.table import TableModel
from ..kernels import StationaryKernel, WarpedKernel
from ..posterior import Extrapolation, ResidualProcess

# For each family: the power of the differences that are summed, their factor, and the kernel as a
# function of the sum u (for powers 2 of its root a) in C and in NumPy.
MATERN52, MATERN32 = "(1 + a + a * a / 3) * exp(-a)", "(1 + a) * exp(-a)"
FORMULAS = {
    "rbf": (2, 1.0, "exp(-u)"),
    "rq": (2, 1.0, "1 / (1 + u)"),
    "matern52": (2, 10.0, MATERN52),
    "matern32": (2, 6.0, MATERN32),
    "matern12": (2, 2.0, "exp(-a)"),
    "laplacian": (1, 1.0, "exp(-u)"),
}
_MOST_TERMS = 5_000  # whose covariance, k x k numbers, is written out


Residual: TypeAlias = tuple[float, np.ndarray, float, float]  # a, U (lower), j, h


class Explored(NamedTuple):
    """Constants of `posterior.added.Explored`, without its centres."""

    triangle: np.ndarray  # R, lower
    most: float  # 1 less the typical variance


@dataclass(frozen=True)
class Part:
    """Part of a kernel: share * formula(sum_i |rate_i (x_i - shift_i) - centre_ki|^power)."""

    family: str
    share: float
    columns: np.ndarray
    shift: np.ndarray
    rate: np.ndarray
    centres: np.ndarray  # (k, len(columns)), scaled like the inputs
    low: np.ndarray  # the box of the training rows, scaled like the inputs
    high: np.ndarray


@dataclass(frozen=True)
class Terms:
    """Constants of a model; the docstring of the package explains the letters."""

    about: str
    inputs: list[str]
    parts: list[Part]  # of kernel functions, one or two; none: columns
    columns: np.ndarray  # phi_k = rate_k (x[columns_k] - shift_k)
    shift: np.ndarray
    rate: np.ndarray
    weights: np.ndarray
    intercept: float
    centre: np.ndarray
    variance: float
    triangle: np.ndarray | None  # T, lower
    residual: Residual | None  # of the process, not captured by the functions
    beyond: tuple[float, float] | None  # amplitude and shift of `Extrapolation`
    explored: Explored | None = None  # where rows are rare

    @property
    def n_centres(self) -> int:
        """Number of kernel functions: those of the model, then those that tell where rows are."""
        return len(self.weights) + (0 if self.explored is None else len(self.explored.triangle))

    @property
    def triangles(self) -> dict[str, np.ndarray]:
        """The lower triangles of the variance, by name."""
        all_of_them = {
            "triangle": self.triangle,
            "left": None if self.residual is None else self.residual[1],
            "explored": None if self.explored is None else self.explored.triangle,
        }
        return {name: values for name, values in all_of_them.items() if values is not None}

    @property
    def n_constants(self) -> int:
        """Number of constants that are written."""
        sizes = [a.size for label, a in arrays(self) if not label.startswith("columns")]
        return sum(sizes) + sum(len(t) * (len(t) + 1) // 2 for t in self.triangles.values())


def arrays(terms: Terms) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and numbers of the arrays of a model, except for the triangles."""
    for p, part in enumerate(terms.parts):
        yield f"columns_{p}", part.columns
        yield f"shift_{p}", part.shift
        yield f"rate_{p}", part.rate
        yield f"centres_{p}", part.centres
        if terms.beyond is not None:
            yield f"low_{p}", part.low
            yield f"high_{p}", part.high
    if not terms.parts:
        yield "columns", terms.columns
        yield "shift", terms.shift
        yield "rate", terms.rate
    yield "weights", terms.weights
    if terms.triangle is not None:
        yield "centre", terms.centre


def read_terms(model: BaseEstimator, return_std: bool) -> Terms:
    """Return the constants of a fitted model, or raise an error if it cannot be exported."""
    check_is_fitted(model)
    model = getattr(model, "best_estimator_", model)
    names: list[str] | None = None
    if isinstance(model, TableModel):
        names, model = [str(n) for n in model.get_feature_names_out()], model.estimator_
    model, shift, rate = _unscaled(model)
    _check_writable(model)
    d = int(model.n_features_in_)
    if names is None:
        names = [str(n) for n in getattr(model, "feature_names_in_", [f"x{j}" for j in range(d)])]
    shift, rate = np.broadcast_to(shift, d), np.broadcast_to(rate, d)
    posterior, basis = model.posterior_, model.basis_
    parts, columns = _kernel_parts(model, shift, rate, return_std), np.zeros(0, np.intp)
    if not parts:
        columns = basis.indices
    triangle, residual, variance, beyond, explored = None, None, 0.0, None, None
    if return_std:
        triangle, residual, variance, beyond, explored = _spread(model, basis)
    means = basis.centre
    return Terms(
        f"{type(model).__name__}, {len(posterior.mean)} terms of {d} inputs",
        names,
        parts,
        columns,
        shift[columns],
        rate[columns] * basis.scale if len(columns) else np.zeros(0),
        np.asarray(posterior.mean),
        float(posterior.intercept - means @ posterior.mean),
        means if posterior.centre is None else means + posterior.centre,
        variance,
        triangle,
        residual,
        beyond,
        explored,
    )


def _unscaled(model: BaseEstimator) -> tuple[BaseEstimator, ArrayLike, ArrayLike]:
    """Return the model at the end of a pipeline, and the shift and rate of its scalers."""
    shift: np.ndarray | float = 0.0
    rate: np.ndarray | float = 1.0
    for step in _steps(model):
        if not isinstance(step, StandardScaler):
            raise ValueError(
                f"The pipeline contains a {type(step).__name__}, but only a "
                "StandardScaler can be exported. Export the last step, and transform its "
                "inputs yourself."
            )
        mean = step.mean_ if step.with_mean else 0.0
        scale = step.scale_ if step.with_std else 1.0
        shift, rate = shift + mean / rate, rate / scale
    return _last(model), shift, rate


def _steps(model: BaseEstimator) -> list[BaseEstimator]:
    """Return the steps before the last one, of a pipeline in a model as well."""
    if isinstance(model, Pipeline):
        return [*model[:-1], *_steps(model[-1])]
    return [] if (inner := _same_model(model)) is None else _steps(inner)


def _last(model: BaseEstimator) -> BaseEstimator:
    """Return the model that is fitted to the rows after all steps."""
    inner = model[-1] if isinstance(model, Pipeline) else _same_model(model)
    return model if inner is None else _last(inner)


def _same_model(model: BaseEstimator) -> BaseEstimator | None:
    """Return the model inside a mixture of one member, or inside a transform that is not applied.

    Its predictions are those of the model around it. The result is None for other models.
    """
    is_single = len(getattr(model, "members_", [model])) == 1
    if is_single and getattr(model, "target_transform_", "none") is None:
        return model.regressor_
    return None


def _check_writable(model: BaseEstimator) -> None:
    """Raise an error where a model has no Gaussian weights on functions of single rows."""
    if not isinstance(model, SparseRegressor):
        kind = type(model).__name__
        advice = (
            "Export a single regressor of sparsebayes, such as RVMRegressor, ForwardRegressor, "
            "SparseGPRegressor or BackfittingRegressor."
        )
        why = ""
        if hasattr(model, "classes_"):
            why = "it predicts classes"
        elif len(getattr(model, "members_", [])) > 1:
            why = "it is a mixture of models"
            advice = (
                "Fit a single model, such as 'rvm' or 'linear' (model= or --model), or use "
                "prefer='small'."
            )
        elif hasattr(model, "target_transform_"):
            why = "it predicts the logarithm of the target"
            advice = (
                "Fit with target_transform=None, or export its regressor_ and transform the "
                "predictions yourself."
            )
        raise ValueError(f"{kind} cannot be exported{f': {why}' if why else ''}. {advice}")
    if model.posterior_.mean.ndim == 2:
        raise ValueError("A model of several targets cannot be exported. Fit one model per target.")
    if getattr(model, "neighbours_", 0):
        raise ValueError(
            "A model with neighbours needs its training rows and cannot be exported. Fit "
            "with neighbours=0."
        )


def _kernel_parts(
    model: SparseRegressor, shift: np.ndarray, rate: np.ndarray, return_std: bool
) -> list[Part]:
    """Return the parts of the kernel functions of a model; none where they are columns."""
    basis: Basis = model.basis_
    kernel, centres = basis.kernel, basis.centres
    if basis.indices is not None:
        return []
    if isinstance(kernel, WarpedKernel):
        raise ValueError("A model with warped inputs cannot be exported. Fit with warp=False.")
    if not isinstance(kernel, StationaryKernel) or centres is None:
        name = getattr(model, "kernel", type(basis.functions).__name__)
        raise ValueError(
            f"kernel={name!r} cannot be exported. Use one of {', '.join(FORMULAS)}, sum or "
            "kernel=None."
        )
    beyond = _extrapolation(model)
    box = (shift, shift) if beyond is None else (beyond.box.low, beyond.box.high)
    if return_std and beyond is not None and beyond.explored is not None:
        centres = np.concatenate([centres, beyond.explored.functions.centres])
    if kernel.family == "sum":
        smooth, rough = np.asarray(kernel.gamma)
        halves = [("matern52", 1.0 - kernel.share, smooth), ("laplacian", kernel.share, rough)]
    else:
        halves = [(kernel.family, 1.0, kernel.gamma)]
    parts = []
    for family, share, gamma in halves:
        power, factor, _ = FORMULAS[family]
        width = (factor * np.broadcast_to(np.asarray(gamma, np.float64), shift.shape)) ** (
            1 / power
        )
        used = np.flatnonzero(width)  # inputs without a part in it are not written
        scaled = np.asarray(centres, np.float64)[:, used] * width[used]
        low, high = (edge[used] * width[used] for edge in box)
        own_rate = (rate * width)[used]
        parts.append(Part(family, share, used, shift[used], own_rate, scaled, low, high))
    return parts


def _extrapolation(model: SparseRegressor) -> Extrapolation | None:
    """Return the variance that is added beyond the box of the training rows, if there is any."""
    added = model._fitted.predictor.added
    return None if added is None else added.extrapolation


def _spread(
    model: SparseRegressor, basis: Basis
) -> tuple[np.ndarray, Residual | None, float, tuple[float, float] | None, Explored | None]:
    """Return T, (a, U, j, h) or None, s, and the variance beyond the rows, with where, or None."""
    posterior = model._fitted.predictor.posterior  # calibrated
    k = len(posterior.mean)
    mean_only = "Use return_std=False to export only the mean."
    if model.noise_model_ is not None:
        raise ValueError(f"Noise that depends on the inputs cannot be exported. {mean_only}")
    if k > _MOST_TERMS:
        raise ValueError(
            f"The covariance of {k:,} weights is too large to be exported. {mean_only}"
        )
    residual, beyond = None, _extrapolation(model)
    added = model._fitted.predictor.added
    if added is not None and beyond is None:
        if not (
            isinstance(added, ResidualProcess)
            and basis.centres is not None
            and added.functions.centres is not None
            and np.array_equal(added.functions.centres, basis.centres)
        ):
            raise ValueError(
                f"The variance that {type(added).__name__} adds cannot be exported. {mean_only}"
            )
        inverse = solve_triangular(added.L, np.eye(k), lower=True)
        jitter, between = float(added.jitter), float(added.between)
        residual = (float(added.amplitude), _lower(inverse.T), jitter, between)
    form = posterior.form
    if hasattr(form, "root") and hasattr(form, "scale") and np.ndim(form.root) == 2:
        root = form.root * np.sqrt(form.scale)
    else:
        values, vectors = np.linalg.eigh(posterior.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
    variance = float(model._fitted.predictive_noise.level + posterior.offset_variance)
    if beyond is None:
        return _lower(root), residual, variance, None, None
    explored = None
    if beyond.explored is not None:
        explored = Explored(_lower(beyond.explored.root), 1.0 - beyond.explored.typical)
    both = (float(beyond.amplitude), float(beyond.shift))
    return _lower(root), residual, variance, both, explored


def _lower(root: np.ndarray) -> np.ndarray:
    """Return a lower triangle T with T T' = root root'."""
    k, m = root.shape
    if k == 0:
        return np.zeros((0, 0))
    full = np.column_stack([root, np.zeros((k, max(0, k - m)))])
    return np.asarray(np.linalg.qr(full.T, mode="r")).T


def number_lines(values: np.ndarray, each: str = "{}") -> str:
    """Return numbers with all their digits, in lines."""
    numbers = np.ravel(values).tolist()
    texts = [each.format(v if isinstance(v, int) else repr(float(v))) for v in numbers]
    lines: list[str] = []
    line = ""
    for text in texts:
        if len(line) + len(text) > 96:
            lines, line = [*lines, line], ""
        line += f"{text}, "
    return "\n    ".join([*lines, line.rstrip()])


def packed(triangle: np.ndarray) -> np.ndarray:
    """Return the rows of a lower triangle, one after the other."""
    return triangle[np.tril_indices(len(triangle))]


def headline(terms: Terms) -> list[str]:
    """Return the lines that describe a model at the top of its file."""
    from .. import __version__

    inputs = [f"  x[{j}]: {name}" for j, name in enumerate(terms.inputs)]
    size = terms.n_constants
    return [
        f"{terms.about}, written by sparsebayes {__version__}.",
        f"{size:,} constants: {8 * size:,} bytes in double, {4 * size:,} in single precision.",
        "Inputs, in this order and in the units of the training data:",
        *inputs,
    ]
