"""Export of fitted regressors to C, NumPy or ONNX.

A sparse model has k functions, their weights and a triangular factor of the covariance of the
weights. With phi(x) the functions and c their centre,

    mean = b + w'phi,    variance = s + |T'(phi - c)|^2 + a r (h + (1 - h) r),

where s is the variance of the noise and of the intercept. The last part, of amplitude a and with
r = max(1 - 2 j - |U'phi|^2, 0), is the residual variance of a Gaussian process
(`posterior.added.ResidualProcess`, where h is `between`). Outside the range of the training rows,
and where these are rare, variance is added (`posterior.added.Extrapolation`, which needs further
kernel functions). `terms` reads these numbers from a model, and combines a `StandardScaler` and the
length scales of the kernel into one shift and one rate per input. The modules `c`, `python` and
`onnx` write them.
"""

from __future__ import annotations

from sklearn.base import BaseEstimator

from .._extras import require
from .c import write_c
from .onnx import write_onnx
from .python import write_python
from .terms import read_terms

FORMATS = ("c", "python", "onnx")


def export_model(
    model: BaseEstimator, to: str = "c", *, name: str = "model", return_std: bool = True
) -> str | bytes:
    """Write a fitted regressor as code that does not depend on this package.

    Parameters
    ----------
    model : fitted regressor
        A regressor of this package on kernel functions or columns, alone, in a pipeline after
        `StandardScaler`, or in a `table_model`. A mixture of models must have one member only, as
        with ``prefer="small"``. The inputs of a `table_model` are those of ``model.transform``; the
        file lists their names.
    to : {"c", "python", "onnx"}, default="c"
        ``"c"``: one C file with ``void NAME_predict(const double *x, double *mean, double *std)``
        that includes math.h only; without the parameter `std` if `return_std` is False.
        ``"python"``: a module whose ``predict(X, return_std=False)`` needs NumPy only. ``"onnx"``:
        a graph of opset 18, in double precision, from ``X`` of shape (n, n_inputs) to ``mean`` and
        ``std`` of shape (n,). Requires onnx.
    name : str, default="model"
        Prefix of the names in the C file; name of the ONNX graph.
    return_std : bool, default=True
        Whether to include the standard deviation of a new observation. It adds k (k + 1) / 2
        constants for k functions.

    Returns
    -------
    code : str, or bytes for ``"onnx"``

    Raises
    ------
    ValueError
        If the model cannot be exported: a classifier, a mixture of several models, several targets,
        a transformed target, a kernel that is not stationary; and with ``return_std=True`` if the
        noise depends on the inputs, or with ``heal=True``.

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
        raise ValueError(f"name must be a valid identifier in C and Python, got {name!r}.")
    if to == "onnx":
        require("onnx", "An ONNX graph", "onnx")
    terms = read_terms(model, return_std)
    if to == "onnx":
        return write_onnx(terms, name)
    return write_c(terms, name) if to == "c" else write_python(terms)
