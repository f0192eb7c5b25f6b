"""A fitted model as a Python module that needs NumPy only."""

from __future__ import annotations

import numpy as np

from .terms import FORMULAS, Part, Terms, arrays, headline, number_lines, packed


def write_python(terms: Terms) -> str:
    """Return the source of a module with ``predict(X, return_std=False)``."""
    out = ['"""' + "\n".join(headline(terms)).replace("\\", "/").replace('"""', "'''")]
    out += ['"""', "", "import numpy as np", "", *_constants(terms), "", "", *_functions(terms)]
    if terms.beyond is not None:
        out += ["", "", *_beyond(terms)]
    return "\n".join([*out, "", "", *_predict(terms)]) + "\n"


def _constants(terms: Terms) -> list[str]:
    """Return the lines that define the arrays of the model."""
    out = [
        _array(label.upper(), values, "int" if label.startswith("columns") else "float")
        for label, values in arrays(terms)
    ]
    for label, triangle in terms.triangles.items():
        k = len(triangle)
        out.append(f"{label.upper()} = np.zeros(({k}, {k}))")
        out.append(_array(f"{label.upper()}[np.tril_indices({k})]", packed(triangle)))
    return out


def _array(label: str, values: np.ndarray, dtype: str = "float") -> str:
    shape = "" if values.ndim < 2 else f".reshape({values.shape})"
    return f"{label} = np.array([\n    {number_lines(values)}\n], dtype={dtype}){shape}"


def _functions(terms: Terms) -> list[str]:
    """Return the function that evaluates the basis functions."""
    out = ["def functions(X):", '    """The values of the functions, one column each."""']
    if not terms.parts:
        return [*out, "    return (X[:, COLUMNS] - SHIFT) * RATE"]
    out += ["    exp, sqrt, out = np.exp, np.sqrt, 0.0"]
    for p, part in enumerate(terms.parts):
        power = FORMULAS[part.family][0]
        distance = (
            f"    u = sum(abs(x[:, i, None] - c) ** {power} for i, c in "
            f"enumerate(CENTRES_{p}.T)) + np.zeros((len(X), {terms.n_centres}))"
        )
        out += _part_values(p, part, distance)
    return [*out, "    return out"]


def _beyond(terms: Terms) -> list[str]:
    """Return the function that measures how far rows are outside the range of the training rows."""
    out = [
        "def beyond(X):",
        '    """The share of the prior variance beyond the box of the training rows."""',
        "    exp, sqrt, out = np.exp, np.sqrt, 0.0",
    ]
    for p, part in enumerate(terms.parts):
        power = FORMULAS[part.family][0]
        distance = f"    u = np.sum(abs(x - np.clip(x, LOW_{p}, HIGH_{p})) ** {power}, axis=1)"
        out += _part_values(p, part, distance)
    return [*out, "    return np.maximum(1.0 - out**2, 0.0)"]


def _part_values(p: int, part: Part, distance: str) -> list[str]:
    """Return the lines that add the values of part `p` of the kernel, given a sum of powers."""
    formula = FORMULAS[part.family][2]
    return [
        f"    x = (X[:, COLUMNS_{p}] - SHIFT_{p}) * RATE_{p}",
        distance,
        *(["    a = sqrt(u)"] if "a" in formula else []),
        f"    out = out + {part.share!r} * ({formula})",
    ]


def _predict(terms: Terms) -> list[str]:
    """Return the function that predicts."""
    k = len(terms.weights)
    out = [
        "def predict(X, return_std=False):",
        '    """Mean, and the standard deviation of a new observation, at each row."""',
        "    X = np.asarray(X, dtype=float)",
        "    phi = functions(X)",
        *([f"    phi, near = phi[:, :{k}], phi[:, {k}:]"] if terms.explored is not None else []),
        f"    mean = {terms.intercept!r} + phi @ WEIGHTS",
        "    if not return_std:",
        "        return mean",
    ]
    if terms.triangle is None:
        message = '    raise ValueError("This model was written without its standard deviation.")'
        return [*out, message]
    out += [f"    variance = {terms.variance!r} + np.sum(((phi - CENTRE) @ TRIANGLE) ** 2, axis=1)"]
    if terms.residual is not None:
        amplitude, _, jitter, h = terms.residual
        out += [
            f"    left = np.maximum(1.0 - {2 * jitter!r} - np.sum((phi @ LEFT) ** 2, axis=1), 0.0)",
            f"    variance += {amplitude!r} * left * ({h!r} + {1.0 - h!r} * left)",
        ]
    more = "beyond(X)"
    if terms.explored is not None:
        out += [f"    lack = {terms.explored.most!r} - np.sum((near @ EXPLORED) ** 2, axis=1)"]
        more = f"np.maximum({more}, lack)"
    if terms.beyond is not None:
        amplitude, shift = terms.beyond
        out += [
            f"    more = {more}",
            f"    variance += {amplitude!r} * more",
            f"    variance += {shift!r} * (1.0 - np.sqrt(np.maximum(1.0 - more, 0.0))) ** 2",
        ]
    return [*out, "    return mean, np.sqrt(variance)"]
