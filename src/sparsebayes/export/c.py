"""A fitted model as a C file that includes math.h only."""

from __future__ import annotations

import numpy as np

from .terms import FORMULAS, Part, Terms, arrays, headline, number_lines, packed


def write_c(terms: Terms, name: str) -> str:
    """Return a C file with ``void NAME_predict(const double *x, double *mean, double *std)``.

    The last parameter is left out where the model was written without its standard deviation.
    """
    out = [*_head(terms, name), *_constants(terms, name)]
    if terms.triangle is not None:
        out += ["", *_square(name)]
    return "\n".join([*out, "", *_predict(terms, name)]) + "\n"


def _head(terms: Terms, name: str) -> list[str]:
    with_std = terms.triangle is not None
    head = "\n".join(f" * {line}".rstrip() for line in headline(terms)).replace("*/", "* /")
    return [
        "/*",
        head,
        " *",
        f" *   double x[{len(terms.inputs)}], mean{', std' if with_std else ''};",
        f" *   {name}_predict(x, &mean{', &std' if with_std else ''});",
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


def _constants(terms: Terms, name: str) -> list[str]:
    """Return the lines that define the arrays of the model."""
    out = []
    for label, values in arrays(terms):
        kind = "unsigned short" if label.startswith("columns") else "real"
        out.append(_array(f"{name}_{label}", values, kind))
    return out + [_array(f"{name}_{label}", packed(t)) for label, t in terms.triangles.items()]


def _array(label: str, values: np.ndarray, kind: str = "real") -> str:
    values = values if values.size else np.zeros(1, dtype=np.intp)  # C has no empty arrays
    body = number_lines(values, "{}" if kind != "real" else "(real){}")
    return f"static const {kind} {label}[] = {{\n    {body}\n}};"


def _square(name: str) -> list[str]:
    return [
        "/* The squared length of n numbers v times a lower triangle, whose rows are packed. */",
        f"static double {name}_square(const real *triangle, const double *v, int n)",
        "{",
        "    double total = 0.0;",
        "    int i, j;",
        "    for (j = 0; j < n; j++) {",
        "        double t = 0.0;",
        "        for (i = j; i < n; i++)",
        "            t += v[i] * (double)triangle[i * (i + 1) / 2 + j];",
        "        total += t * t;",
        "    }",
        "    return total;",
        "}",
    ]


def _predict(terms: Terms, name: str) -> list[str]:
    k, std = len(terms.weights), "" if terms.triangle is None else ", double *std"
    out = [
        f"void {name}_predict(const double *x, double *mean{std})",
        "{",
        f"    double phi[{max(1, terms.n_centres)}], total = {terms.intercept!r};",
        *(["    double edge = 0.0;"] if terms.beyond is not None else []),
        "    int k;",
    ]
    for p, part in enumerate(terms.parts):
        out += _part_values(terms, name, p, part)
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
    return [*out, *_deviation(terms, name), "}"]


def _part_values(terms: Terms, name: str, p: int, part: Part) -> list[str]:
    """Return the lines that add the values of part `p` of the kernel."""
    power, _, formula = FORMULAS[part.family]
    k, m = terms.n_centres, len(part.columns)
    step = "d * d" if power == 2 else "fabs(d)"
    root = ["        a = sqrt(u);"] if "a" in formula else []
    out = [
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
    return [*out, "    }"]


def _deviation(terms: Terms, name: str) -> list[str]:
    """Return the lines that compute the standard deviation."""
    if terms.triangle is None:
        return []
    k = len(terms.weights)
    out = ["    if (std) {", f"        double variance = {terms.variance!r};"]
    if terms.beyond is not None:
        out += ["        double more = 1.0 - edge * edge;"]
    if terms.explored is not None:
        m, most = terms.explored.triangle, terms.explored.most
        square = f"{name}_square({name}_explored, phi + {k}, {len(m)})"
        out += [f"        double lack = {most!r} - {square};"]
    if terms.residual is not None:
        amplitude, _, jitter, h = terms.residual
        out += [
            f"        double left = 1.0 - {2 * jitter!r} - {name}_square({name}_left, phi, {k});",
            "        if (left > 0.0)",
            f"            variance += {amplitude!r} * left * ({h!r} + {1.0 - h!r} * left);",
        ]
    out += [
        f"        for (k = 0; k < {k}; k++)",
        f"            phi[k] -= {name}_centre[k];",
        f"        variance += {name}_square({name}_triangle, phi, {k});",
    ]
    if terms.explored is not None:
        out += ["        if (lack > more) more = lack;"]
    if terms.beyond is not None:
        amplitude, shift = terms.beyond
        out += [
            "        if (more > 0.0) {",
            "            double back = more < 1.0 ? 1.0 - sqrt(1.0 - more) : 1.0;",
            f"            variance += {amplitude!r} * more + {shift!r} * back * back;",
            "        }",
        ]
    return [*out, "        *std = sqrt(variance);", "    }"]
