"""Fitted regressors as code that needs nothing of this package: a C file, a NumPy function, ONNX.

A sparse model is k functions, their weights and a triangle that holds the covariance of the
weights. With phi(x) the functions and c what is subtracted from them,

    mean = b + w'phi,      variance = s + |T'(phi - c)|^2 + a max(1 - 2 j - |U'phi|^2, 0),

s the noise and the variance of the intercept; the last part, of amplitude a, is there where
a Gaussian process was fitted and is left out by its functions (`posterior.added.ResidualProcess`).
Beyond the box of the training rows prior variance is added (`posterior.added.Extrapolation`).
`_read` finds these numbers in a model, folding a `StandardScaler` and the widths of the kernel into
one shift and one rate for each input; the three writers spell them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from ._extras import require
from .designs import Basis
from .estimators._base import SparseRegressor
from .estimators._sklearn import check_is_fitted
from .estimators.table import TableModel
from .kernels import StationaryKernel, WarpedKernel
from .posterior import Extrapolation, ResidualProcess

# Of each family: the power of the differences that are summed, their factor, and the kernel as a
# function of the sum u (of powers 2 its root a) in C and in NumPy.
_MATERN52, _MATERN32 = "(1 + a + a * a / 3) * exp(-a)", "(1 + a) * exp(-a)"
_FORMULAS = {
    "rbf": (2, 1.0, "exp(-u)"),
    "rq": (2, 1.0, "1 / (1 + u)"),
    "matern52": (2, 10.0, _MATERN52),
    "matern32": (2, 6.0, _MATERN32),
    "matern12": (2, 2.0, "exp(-a)"),
    "laplacian": (1, 1.0, "exp(-u)"),
}
_MOST_TERMS = 5_000  # whose covariance, k x k numbers, is written out
FORMATS = ("c", "python", "onnx")


def export_model(model: Any, to: str = "c", *, name: str = "model", return_std: bool = True) -> Any:
    """Write a fitted regressor as code that needs nothing of this package.

    Parameters
    ----------
    model : fitted regressor
        Any of this package with Gaussian weights on kernel functions or columns, by itself, at
        the end of a pipeline after `StandardScaler`, or in a `table_model`: its inputs are then the
        numbers that ``model.transform`` gives, named in the file.
    to : {"c", "python", "onnx"}, default="c"
        ``"c"``: one C file with ``void NAME_predict(const double *x, double *mean, double *std)``
        that includes math.h only. ``"python"``: a module whose ``predict(X, return_std=False)``
        needs NumPy only. ``"onnx"``: a graph of opset 18, in double precision, from ``X`` of shape
        (n, n_inputs) to ``mean`` and ``std`` of shape (n,). Needs onnx.
    name : str, default="model"
        Prefix of what the C file defines, and name of the graph.
    return_std : bool, default=True
        Whether the standard deviation of a new observation is written, too. It takes k (k + 1)/2
        numbers more.

    Returns
    -------
    code : str, or bytes for ``"onnx"``

    Raises
    ------
    ValueError
        Where the model has a part that is not written: classes, several targets, a transform of
        the target, other kernels than the stationary ones, or a standard deviation that depends on
        more than the functions (noise by the input, healing).

    Examples
    --------
    >>> from sparsebayes import RVMRegressor, export_model
    >>> from sparsebayes.datasets import make_sinc
    >>> X, y = make_sinc(n_samples=100, noise=0.1, random_state=0)
    >>> model = RVMRegressor("rbf", gamma=0.1).fit(X, y)
    >>> names = {}
    >>> exec(export_model(model, to="python"), names)
    >>> mean, std = names["predict"](X, return_std=True)
    >>> bool(abs(mean - model.predict(X)).max() < 1e-9)
    True
    """
    if to not in FORMATS:
        raise ValueError(f"to must be one of {', '.join(FORMATS)}, got {to!r}.")
    if not name.isidentifier():
        raise ValueError(f"name must be a name in C and Python, got {name!r}.")
    if to == "onnx":
        require("onnx", "An ONNX graph", "onnx")
    terms = _read(model, return_std)
    return {"c": _as_c, "python": _as_python, "onnx": _as_onnx}[to](terms, name)


@dataclass(frozen=True)
class _Part:
    """Values formula(sum_i |rate_i (x_i - shift_i) - centre_ki|^power), times a share."""

    family: str
    share: float
    columns: np.ndarray
    shift: np.ndarray
    rate: np.ndarray
    centres: np.ndarray  # (k, len(columns)), scaled like the inputs
    low: np.ndarray  # the box of the training rows, scaled like the inputs
    high: np.ndarray


@dataclass(frozen=True)
class _Terms:
    """The numbers of a model: see the module docstring for the letters."""

    about: str
    inputs: list[str]
    parts: list[_Part]  # of kernel functions, one or two; none: columns
    columns: np.ndarray  # phi_k = rate_k (x[columns_k] - shift_k)
    shift: np.ndarray
    rate: np.ndarray
    weights: np.ndarray
    intercept: float
    centre: np.ndarray
    variance: float
    triangle: np.ndarray | None  # T, lower
    left: tuple[float, np.ndarray, float] | None  # a, U (lower), j
    beyond: float | None  # variance of the process beyond the box of the training rows

    @property
    def n_constants(self) -> int:
        """How many numbers are written."""
        k = len(self.weights)
        triangles = (self.triangle is not None) + (self.left is not None)
        sizes = [a.size for label, a in _arrays(self) if not label.startswith("columns")]
        return sum(sizes) + triangles * k * (k + 1) // 2


def _arrays(terms: _Terms) -> Iterator[tuple[str, np.ndarray]]:
    """What a file holds but for the triangles: names and numbers."""
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


# From a fitted model to its numbers.


def _read(model: Any, return_std: bool) -> _Terms:
    check_is_fitted(model)
    model = getattr(model, "best_estimator_", model)
    names: list[str] | None = None
    shift: Any = 0.0
    rate: Any = 1.0
    if isinstance(model, TableModel):
        names, model = [str(n) for n in model.get_feature_names_out()], model.estimator_
    if isinstance(model, Pipeline):
        for step in model[:-1]:
            if not isinstance(step, StandardScaler):
                raise ValueError(
                    f"The pipeline has a {type(step).__name__} before the model, and only a "
                    "StandardScaler is written: export the model at its end, and transform "
                    "its inputs before."
                )
            mean = step.mean_ if step.with_mean else 0.0
            scale = step.scale_ if step.with_std else 1.0
            shift, rate = shift + mean / rate, rate / scale
        model = model[-1]
    if not isinstance(model, SparseRegressor):
        kind = type(model).__name__
        why = "it transforms the target" if hasattr(model, "target_transform_") else ""
        why = "it predicts classes" if hasattr(model, "classes_") else why
        raise ValueError(
            f"{kind} cannot be exported{f': {why}' if why else ''}. What can be: regressors of "
            "this package with Gaussian weights on kernel functions or columns."
        )
    d = int(model.n_features_in_)
    if names is None:
        names = [str(n) for n in getattr(model, "feature_names_in_", [f"x{j}" for j in range(d)])]
    shift, rate = np.broadcast_to(shift, d), np.broadcast_to(rate, d)
    posterior = model.posterior_
    if posterior.mean.ndim == 2:
        raise ValueError("A model of several targets cannot be exported: fit one for each.")
    if getattr(model, "neighbours_", 0):
        raise ValueError(
            "A model with neighbours keeps its rows and cannot be exported: fit with neighbours=0."
        )
    basis: Basis = model.basis_
    means, kernel = basis.centre, basis.kernel
    parts: list[_Part] = []
    columns, own_shift, own_rate = np.zeros(0, np.intp), np.zeros(0), np.zeros(0)
    if basis.indices is not None:
        columns = basis.indices
        own_shift, own_rate = shift[columns], rate[columns] * basis.scale
    elif isinstance(kernel, StationaryKernel) and basis.centres is not None:
        added = model._fitted.predictor.added
        box = (added.low, added.high) if isinstance(added, Extrapolation) else (shift, shift)
        parts = _kernel_parts(kernel, basis.centres, shift, rate, box)
    elif isinstance(kernel, WarpedKernel):
        raise ValueError(
            "A model of inputs and their normal scores cannot be exported: fit with warp=False."
        )
    else:
        what = getattr(model, "kernel", type(basis.functions).__name__)
        raise ValueError(
            f"Functions of kernel={what!r} cannot be exported: only those of "
            f"{', '.join(_FORMULAS)}, sum, and columns (kernel=None)."
        )
    triangle, left, variance, beyond = None, None, 0.0, None
    if return_std:
        triangle, left, variance, beyond = _spread(model, basis)
    centre = means if posterior.centre is None else means + posterior.centre
    about = f"{type(model).__name__}, {len(posterior.mean)} terms of {d} inputs"
    return _Terms(
        about,
        names,
        parts,
        columns,
        own_shift,
        own_rate,
        np.asarray(posterior.mean),
        float(posterior.intercept - means @ posterior.mean),
        centre,
        variance,
        triangle,
        left,
        beyond,
    )


def _kernel_parts(
    kernel: StationaryKernel,
    centres: np.ndarray,
    shift: np.ndarray,
    rate: np.ndarray,
    box: tuple[np.ndarray, np.ndarray],
) -> list[_Part]:
    if kernel.family == "sum":
        smooth, rough = np.asarray(kernel.gamma)
        halves = [("matern52", 1.0 - kernel.share, smooth), ("laplacian", kernel.share, rough)]
    else:
        halves = [(kernel.family, 1.0, kernel.gamma)]
    parts = []
    for family, share, gamma in halves:
        power, factor, _ = _FORMULAS[family]
        width = (factor * np.broadcast_to(np.asarray(gamma, np.float64), shift.shape)) ** (
            1 / power
        )
        used = np.flatnonzero(width)  # inputs without a part in it are not written
        scaled = np.asarray(centres, np.float64)[:, used] * width[used]
        low, high = (edge[used] * width[used] for edge in box)
        own_rate = (rate * width)[used]
        parts.append(_Part(family, share, used, shift[used], own_rate, scaled, low, high))
    return parts


def _spread(model: Any, basis: Basis) -> tuple[np.ndarray, Any, float, float | None]:
    """Return T, (a, U, j) or None, s, and the variance beyond the training rows or None."""
    posterior = model._fitted.predictor.posterior  # calibrated
    k = len(posterior.mean)
    mean_only = "export it with return_std=False, the mean alone."
    if model.noise_model_ is not None:
        raise ValueError(f"Noise that depends on the inputs cannot be exported: {mean_only}")
    if k > _MOST_TERMS:
        raise ValueError(f"The covariance of {k:,} weights is too large to be written: {mean_only}")
    left, beyond = None, None
    added = model._fitted.predictor.added
    if isinstance(added, Extrapolation):
        beyond = float(added.amplitude)
    elif added is not None:
        if not (
            isinstance(added, ResidualProcess)
            and basis.centres is not None
            and added.functions.centres is not None
            and np.array_equal(added.functions.centres, basis.centres)
        ):
            raise ValueError(
                f"The variance that {type(added).__name__} adds needs more than the functions of "
                f"the model: {mean_only}"
            )
        inverse = solve_triangular(added.L, np.eye(k), lower=True)
        left = (float(added.amplitude), _lower(inverse.T), float(added.jitter))
    form = posterior.form
    if hasattr(form, "root") and hasattr(form, "scale") and np.ndim(form.root) == 2:
        root = form.root * np.sqrt(form.scale)
    else:
        values, vectors = np.linalg.eigh(posterior.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
    variance = float(posterior.noise_variance + posterior.offset_variance)
    return _lower(root), left, variance, beyond


def _lower(root: np.ndarray) -> np.ndarray:
    """A lower triangle T with T T' = root root'."""
    k, m = root.shape
    if k == 0:
        return np.zeros((0, 0))
    full = np.column_stack([root, np.zeros((k, max(0, k - m)))])
    return np.asarray(np.linalg.qr(full.T, mode="r")).T


# The writers.


def _numbers(values: Any, each: str = "{}") -> str:
    """Numbers with all their digits, in lines."""
    texts = [each.format(v if isinstance(v, int) else repr(float(v))) for v in values]
    lines: list[str] = []
    line = ""
    for text in texts:
        if len(line) + len(text) > 96:
            lines, line = [*lines, line], ""
        line += f"{text}, "
    return "\n    ".join([*lines, line.rstrip()])


def _packed(triangle: np.ndarray) -> np.ndarray:
    """The rows of a lower triangle, one after the other."""
    return triangle[np.tril_indices(len(triangle))]


def _head(terms: _Terms) -> list[str]:
    from . import __version__

    inputs = [f"  x[{j}]: {name}" for j, name in enumerate(terms.inputs)]
    size = terms.n_constants
    return [
        f"{terms.about}, written by sparsebayes {__version__}.",
        f"{size:,} constants: {8 * size:,} bytes in double, {4 * size:,} in single precision.",
        "Inputs, in this order and in the units of the training data:",
        *inputs,
    ]


def _as_python(terms: _Terms, name: str) -> str:
    k = len(terms.weights)
    out = ['"""' + "\n".join(_head(terms)).replace("\\", "/").replace('"""', "'''")]
    out += ['"""', "", "import numpy as np", ""]

    def array(label: str, values: Any, dtype: str = "float") -> None:
        shape = "" if np.ndim(values) < 2 else f".reshape({np.shape(values)})"
        values = [v.item() for v in np.ravel(np.asarray(values))]
        out.append(f"{label} = np.array([\n    {_numbers(values)}\n], dtype={dtype}){shape}")

    for label, values in _arrays(terms):
        array(label.upper(), values, "int" if label.startswith("columns") else "float")
    triangles = {"TRIANGLE": terms.triangle, "LEFT": terms.left and terms.left[1]}
    for label, triangle in triangles.items():
        if triangle is not None:
            out.append(f"{label} = np.zeros(({k}, {k}))")
            array(f"{label}[np.tril_indices({k})]", _packed(triangle))
    out += ["", "", "def functions(X):"]
    out += ['    """The values of the functions, one column each."""']
    if not terms.parts:
        out += ["    return (X[:, COLUMNS] - SHIFT) * RATE"]
    else:
        out += ["    exp, sqrt, out = np.exp, np.sqrt, 0.0"]
        for p, part in enumerate(terms.parts):
            power, _, formula = _FORMULAS[part.family]
            out += [
                f"    x = (X[:, COLUMNS_{p}] - SHIFT_{p}) * RATE_{p}",
                f"    u = sum(abs(x[:, i, None] - c) ** {power} for i, c in "
                f"enumerate(CENTRES_{p}.T)) + np.zeros((len(X), {k}))",
                *(["    a = sqrt(u)"] if "a" in formula else []),
                f"    out = out + {part.share!r} * ({formula})",
            ]
        out += ["    return out"]
    if terms.beyond is not None:
        out += ["", "", "def beyond(X):"]
        out += ['    """The share of the prior variance beyond the box of the training rows."""']
        out += ["    exp, sqrt, out = np.exp, np.sqrt, 0.0"]
        for p, part in enumerate(terms.parts):
            power, _, formula = _FORMULAS[part.family]
            out += [
                f"    x = (X[:, COLUMNS_{p}] - SHIFT_{p}) * RATE_{p}",
                f"    u = np.sum(abs(x - np.clip(x, LOW_{p}, HIGH_{p})) ** {power}, axis=1)",
                *(["    a = sqrt(u)"] if "a" in formula else []),
                f"    out = out + {part.share!r} * ({formula})",
            ]
        out += ["    return np.maximum(1.0 - out**2, 0.0)"]
    out += ["", "", "def predict(X, return_std=False):"]
    out += ['    """Mean, and the standard deviation of a new observation, at each row."""']
    out += [
        "    X = np.asarray(X, dtype=float)",
        "    phi = functions(X)",
        f"    mean = {terms.intercept!r} + phi @ WEIGHTS",
        "    if not return_std:",
        "        return mean",
    ]
    if terms.triangle is None:
        out += ['    raise ValueError("This model was written without its standard deviation.")']
    else:
        out += [
            f"    variance = {terms.variance!r} + np.sum(((phi - CENTRE) @ TRIANGLE) ** 2, axis=1)"
        ]
        if terms.left is not None:
            amplitude, _, jitter = terms.left
            out += [
                "    left = 1.0 - np.sum((phi @ LEFT) ** 2, axis=1)",
                f"    variance += {amplitude!r} * np.maximum(left - {2 * jitter!r}, 0.0)",
            ]
        if terms.beyond is not None:
            out += [f"    variance += {terms.beyond!r} * beyond(X)"]
        out += ["    return mean, np.sqrt(variance)"]
    return "\n".join(out) + "\n"


def _as_c(terms: _Terms, name: str) -> str:
    k = len(terms.weights)
    head = "\n".join(f" * {line}".rstrip() for line in _head(terms)).replace("*/", "* /")
    out = [
        "/*",
        head,
        " *",
        f" *   double x[{len(terms.inputs)}], mean, std;",
        f" *   {name}_predict(x, &mean, &std);   // std may be NULL",
        " *",
        " * Compile with -lm. -DSPARSEBAYES_REAL=float halves the memory of the constants: check",
        " * what it costs, since weights of functions that overlap are large and cancel.",
        " */",
        "#include <math.h>",
        "",
        "#ifndef SPARSEBAYES_REAL",
        "#define SPARSEBAYES_REAL double",
        "#endif",
        "typedef SPARSEBAYES_REAL real;",
        "",
    ]

    def array(label: str, values: Any, kind: str = "real") -> None:
        values = [v.item() for v in np.ravel(np.asarray(values))] or [0]
        body = _numbers(values, "{}" if kind != "real" else "(real){}")
        out.append(f"static const {kind} {name}_{label}[] = {{\n    {body}\n}};")

    for label, values in _arrays(terms):
        array(label, values, "unsigned short" if label.startswith("columns") else "real")
    with_std = terms.triangle is not None
    if terms.triangle is not None:
        array("triangle", _packed(terms.triangle))
    if terms.left is not None:
        array("left", _packed(terms.left[1]))
    n = max(1, k)
    if with_std:
        out += [
            "",
            "/* The squared length of v times a lower triangle, whose rows are packed. */",
            f"static double {name}_square(const real *triangle, const double *v)",
            "{",
            "    double total = 0.0;",
            "    int i, j;",
            f"    for (j = 0; j < {k}; j++) {{",
            "        double t = 0.0;",
            f"        for (i = j; i < {k}; i++)",
            "            t += v[i] * (double)triangle[i * (i + 1) / 2 + j];",
            "        total += t * t;",
            "    }",
            "    return total;",
            "}",
        ]
    out += [
        "",
        f"void {name}_predict(const double *x, double *mean, double *std)",
        "{",
        f"    double phi[{n}], total = {terms.intercept!r};",
        *(["    double edge = 0.0;"] if terms.beyond is not None else []),
        "    int k;",
    ]
    for p, part in enumerate(terms.parts):
        power, _, formula = _FORMULAS[part.family]
        m = len(part.columns)
        step = "d * d" if power == 2 else "fabs(d)"
        root = ["        a = sqrt(u);"] if "a" in formula else []
        out += [
            "    {",
            f"    double z[{max(1, m)}];",
            "    int i;",
            f"    for (i = 0; i < {m}; i++)",
            f"        z[i] = (x[{name}_columns_{p}[i]] - {name}_shift_{p}[i])",
            f"               * {name}_rate_{p}[i];",
            f"    for (k = 0; k < {k}; k++) {{",
            f"        double u = 0.0{', a' if root else ''};",
            f"        for (i = 0; i < {m}; i++) {{",
            f"            double d = z[i] - {name}_centres_{p}[k * {m} + i];",
            f"            u += {step};",
            "        }",
            *root,
            f"        phi[k] {'+=' if p else '='} {part.share!r} * ({formula});",
            "    }",
        ]
        if terms.beyond is not None:
            out += [
                "    {",
                f"        double u = 0.0{', a' if root else ''};",
                f"        for (i = 0; i < {m}; i++) {{",
                "            double d = 0.0;",
                f"            if (z[i] < {name}_low_{p}[i]) d = {name}_low_{p}[i] - z[i];",
                f"            if (z[i] > {name}_high_{p}[i]) d = z[i] - {name}_high_{p}[i];",
                f"            u += {step};",
                "        }",
                *root,
                f"        edge += {part.share!r} * ({formula});",
                "    }",
            ]
        out += ["    }"]
    if not terms.parts:
        out += [
            f"    for (k = 0; k < {k}; k++)",
            f"        phi[k] = (x[{name}_columns[k]] - {name}_shift[k]) * {name}_rate[k];",
        ]
    out += [
        f"    for (k = 0; k < {k}; k++)",
        f"        total += {name}_weights[k] * phi[k];",
        "    *mean = total;",
    ]
    if not with_std:
        out += ["    (void)std; /* written without the standard deviation */", "}"]
        return "\n".join(out) + "\n"
    out += ["    if (std) {", f"        double variance = {terms.variance!r};"]
    if terms.left is not None:
        amplitude, _, jitter = terms.left
        out += [
            f"        double left = 1.0 - {2 * jitter!r} - {name}_square({name}_left, phi);",
            f"        if (left > 0.0) variance += {amplitude!r} * left;",
        ]
    beyond = []
    if terms.beyond is not None:
        beyond = [f"        if (edge < 1.0) variance += {terms.beyond!r} * (1.0 - edge * edge);"]
    out += [
        f"        for (k = 0; k < {k}; k++)",
        f"            phi[k] -= {name}_centre[k];",
        f"        variance += {name}_square({name}_triangle, phi);",
        *beyond,
        "        *std = sqrt(variance);",
        "    }",
        "}",
    ]
    return "\n".join(out) + "\n"


def _as_onnx(terms: _Terms, name: str) -> bytes:
    from onnx import TensorProto, checker, helper, numpy_helper

    from . import __version__

    nodes: list[Any] = []
    constants: list[Any] = []

    def const(value: Any, dtype: Any = np.float64) -> str:
        label = f"c{len(constants)}"
        constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), label))
        return label

    def op(kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        label = out or f"v{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [label], **attributes))
        return label

    def pick(columns: np.ndarray, shift: np.ndarray, rate: np.ndarray) -> str:
        x = op("Gather", "X", const(columns, np.int64), axis=1)
        return op("Mul", op("Sub", x, const(shift)), const(rate))

    def times(x: str, matrix: np.ndarray) -> str:
        """The product, or a constant of zeros where there are no functions.

        onnxruntime leaves a product of inner dimension 0 uninitialised.
        """
        if matrix.size:
            return op("MatMul", x, const(matrix))
        n_rows = op("Shape", "X", end=1)
        if matrix.ndim == 2:
            n_rows = op("Concat", n_rows, const([1], np.int64), axis=0)
        return op("Expand", const(0.0), n_rows)

    def sum_of_squares(x: str) -> str:
        return op("ReduceSum", op("Mul", x, x), const([1], np.int64), keepdims=0)

    def kernel_values(u: str, family: str) -> str:
        formula = _FORMULAS[family][2]
        if formula == "1 / (1 + u)":
            return op("Div", const(1.0), op("Add", u, const(1.0)))
        a = u if formula == "exp(-u)" else op("Sqrt", u)
        values = op("Exp", op("Neg", a))
        if formula == _MATERN32:
            values = op("Mul", values, op("Add", a, const(1.0)))
        elif formula == _MATERN52:
            third = op("Mul", op("Mul", a, a), const(1.0 / 3.0))
            values = op("Mul", values, op("Add", op("Add", a, const(1.0)), third))
        return values

    def powers(difference: str, family: str) -> str:
        squared = _FORMULAS[family][0] == 2
        return op("Mul", difference, difference) if squared else op("Abs", difference)

    phi, edge = "", ""
    for part in terms.parts:
        z = pick(part.columns, part.shift, part.rate)
        difference = op("Sub", op("Unsqueeze", z, const([1], np.int64)), const(part.centres[None]))
        u = op("ReduceSum", powers(difference, part.family), const([2], np.int64), keepdims=0)
        values = op("Mul", kernel_values(u, part.family), const(part.share))
        phi = op("Add", phi, values) if phi else values
        if terms.beyond is not None:
            nearest = op("Max", op("Min", z, const(part.high)), const(part.low))
            each = powers(op("Sub", z, nearest), part.family)
            u = op("ReduceSum", each, const([1], np.int64), keepdims=0)
            values = op("Mul", kernel_values(u, part.family), const(part.share))
            edge = op("Add", edge, values) if edge else values
    if not terms.parts:
        phi = pick(terms.columns, terms.shift, terms.rate)
    op("Add", times(phi, terms.weights), const(terms.intercept), out="mean")
    outputs = ["mean"]
    if terms.triangle is not None:
        centred = op("Sub", phi, const(terms.centre))
        variance = sum_of_squares(times(centred, terms.triangle))
        variance = op("Add", variance, const(terms.variance))
        if terms.left is not None:
            amplitude, triangle, jitter = terms.left
            explained = sum_of_squares(times(phi, triangle))
            left = op("Max", op("Sub", const(1.0 - 2.0 * jitter), explained), const(0.0))
            variance = op("Add", variance, op("Mul", left, const(amplitude)))
        if terms.beyond is not None:
            share = op("Max", op("Sub", const(1.0), op("Mul", edge, edge)), const(0.0))
            variance = op("Add", variance, op("Mul", share, const(terms.beyond)))
        op("Sqrt", variance, out="std")
        outputs.append("std")
    double, d = TensorProto.DOUBLE, len(terms.inputs)
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("X", double, ["n", d])],
        [helper.make_tensor_value_info(label, double, ["n"]) for label in outputs],
        constants,
        doc_string="\n".join(_head(terms)),
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
        producer_name="sparsebayes",
        producer_version=__version__,
    )
    checker.check_model(made, full_check=True)
    return made.SerializeToString()
