"""Awkward tables, as files: each with what `sparsebayes fit` should make of it."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass, field

import numpy as np

N = 60


def _columns(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, n)
    kind = rng.choice(["red", "green", "blue"], n)
    y = 2.0 * x + 3.0 * (kind == "red") + 0.1 * rng.standard_normal(n)
    return {"x": [f"{v:.4f}" for v in x], "kind": list(kind), "y": [f"{v:.4f}" for v in y]}


def _text(columns, separator=",", header=True, end="\n"):
    lines = [separator.join(columns)] if header else []
    lines += [separator.join(row) for row in zip(*columns.values(), strict=True)]
    return end.join(lines) + end


def _with(**more):
    return {**_columns(), **more}


def _changed(name, rows, value):
    columns = _columns()
    for row in rows:
        columns[name][row] = value
    return columns


@dataclass
class Awkward:
    """A file and what to expect: a model that says `told`, or a refusal that says `sentence`."""

    content: bytes
    told: str = ""
    sentence: str = ""
    name: str = "table.csv"
    options: list[str] = field(default_factory=list)
    target: str = "y"


def _good(content, told="", **more):
    return Awkward(content.encode() if isinstance(content, str) else content, told, **more)


def _bad(content, sentence, **more):
    content = content.encode() if isinstance(content, str) else content
    return Awkward(content, sentence=sentence, **more)


def _commas():
    columns = {k: [v.replace(".", ",") for v in c] for k, c in _columns().items()}
    return _text(columns, ";")


def _wide():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 10, (40, 10_000))
    y = 2.0 * X[:, 7] - X[:, 70] + 0.1 * rng.standard_normal(40)
    head = ",".join([*(f"c{j}" for j in range(X.shape[1])), "y"])
    rows = [",".join(map(str, row)) + f",{t:.4f}" for row, t in zip(X, y, strict=True)]
    return "\n".join([head, *rows]) + "\n"


def _parquet():
    import pandas as pd

    columns = _columns()
    frame = pd.DataFrame(columns).astype({"x": float, "y": float, "kind": "category"})
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


def _many_levels():
    rng = np.random.default_rng(0)
    city = rng.integers(0, 50, 400)
    effect = 3.0 * rng.standard_normal(50)
    y = effect[city] + 0.1 * rng.standard_normal(400)
    names = [f"city {c}" for c in city]
    return _text({"city": names, "z": [str(v) for v in city % 3], "y": [f"{v:.3f}" for v in y]})


def tables():
    """All of them by name."""
    plain = _columns()
    half = [f"{v:.3f}" for v in np.linspace(0, 1, N)]
    return {
        # Files that only look different.
        "semicolon and decimal comma": _good(_commas(), "decimal comma"),
        "tab": _good(_text(plain, "\t"), "separator: tab"),
        "bar": _good(_text(plain, "|"), "separator: bar"),
        "byte order mark": _good("\ufeff" + _text(plain)),
        "utf-16": _good(_text(plain).encode("utf-16"), "UTF-16"),
        "latin-1": _good(
            _text(_changed("kind", range(20), "gr\u00fcn")).encode("latin-1"), "Windows-1252"
        ),
        "gzip": _good(gzip.compress(_text(plain).encode()), name="table.csv.gz"),
        "windows line ends": _good(_text(plain, end="\r\n")),
        "blank lines": _good(_text(plain).replace("\n", "\n\n")),
        "spaces around cells": _good(_text(plain, " , ")),
        "parquet": _good(_parquet(), "1 numeric, 1 categorical", name="table.parquet"),
        "no header": _good(_text(plain, header=False).replace("red", "1").replace("green", "2")
                           .replace("blue", "3"), "no header row", target="3"),
        "quoted commas and newlines": _good(
            _text(_with(note=['"two\nlines, a comma"', '"one ""quoted"" word"'] * (N // 2))),
            "2 categorical",
        ),
        # Columns that are not plain numbers.
        "gaps": _good(_text(_changed("x", [3, 5], "")), "with a 0/1 indicator column: x"),
        "gaps in a category": _good(_text(_changed("kind", range(0, N, 9), "NA"))),
        "question marks": _good(_text(_changed("x", [3], "?")), "column: x (1)"),
        "all missing": _good(_text(_with(empty=[""] * N)), "empty (all values missing)"),
        "one level": _good(_text(_with(same=["on"] * N)), "same (constant)"),
        "infinite input": _good(_text(_changed("x", [3], "inf")), "column: x (1)"),
        "huge numbers": _good(_text(_with(big=[f"{v}e300" for v in half]))),
        "names of rows": _good(_text(_with(name=[f"person {i}" for i in range(N)])),
                               "name (different in every row)"),
        "numbers of rows": _good(_text({"id": [str(i) for i in range(N)], **plain}),
                                 "id (different in every row)"),
        "dates": _good(_text(_with(when=[f"2021-{1 + i % 12:02}-{1 + i % 28}" for i in range(N)])),
                       "1 date"),
        "true and false": _good(_text(_with(flag=["true", "false"] * (N // 2)))),
        "many levels": _good(_many_levels(), "each replaced by its mean target: city"),
        "duplicate headers": _good(_text(_with(z=half)).replace("kind,y,z", "kind,y,x"),
                                   "renamed 'x.1'"),
        "target in the inputs": _good(_text(_with(copy=plain["y"])),
                                      "'copy' alone almost determines"),
        "gaps in the target": _good(_text(_changed("y", [3, 4], "")), "2 rows without a target"),
        "two rows": _good("x,y\n1,2\n2,4\n"),
        "10,000 columns": _good(_wide(), "10000 numeric", options=["--model", "auto"]),
        # Tables that say nothing, or something else.
        "empty": _bad("", "is empty"),
        "blank": _bad("\n\n  \n", "is empty"),
        "header only": _bad("x,y\n", "has a header row, but no rows of data"),
        "one row": _bad("x,y\n1,2\n", "has 1 sample"),
        "short row": _bad("x,y\n1,2\n3\n", "row 2 (line 3) has 1 cells, but the header has 2"),
        "long row": _bad("x,y\n1,2\n3,4,5\n6,7\n", "row 2 (line 3) has 3 cells"),
        "open quote": _bad('x,y\n1,"2\n3,4\n', "EOF inside string"),
        "unknown target": _bad("x,z\n1,2\n3,4\n", "has no column 'y'; its columns are 'x', 'z'"),
        "another separator": _bad("x\u00a7y\n1\u00a72\n3\u00a74\n", "it has one column,"),
        "target alone": _bad("y\n1\n2\n", "has no column besides the target"),
        "target twice": _bad("x,y,y\n1,2,3\n4,5,6\n", "has two columns named 'y'"),
        "target all missing": _bad("x,y\n1,\n3,\n", "is missing in every row"),
        "infinite target": _bad(_text(_changed("y", [5], "inf")), "needs finite numbers"),
        "text among the numbers": _bad(_text(_changed("y", [5], "low")),
                                       "has 'low' in row 6, but most rows contain numbers"),
        "too many classes": _bad(_text(_with(y=[f"n{i}" for i in range(N)])), "too many for"),
        "no input varies": _bad("x,y\n1,2\n1,3\n1,4\n", "No column is left to predict from"),
        "binary": _bad(b"\x00\x01\x02\xff\xfe" * 9, "neither text nor parquet"),
        "broken gzip": _bad(b"\x1f\x8b\x08broken", "is a damaged gz file", name="table.csv.gz"),
        "broken parquet": _bad(b"PAR1broken", "cannot be read as parquet", name="t.parquet"),
        "gaps refused": _bad(_text(_changed("x", [3], "")), "Column 'x' is missing in row 4",
                             options=["--missing", "error"]),
        "unknown column to drop": _bad(_text(plain), "has no column 'q'", options=["--drop", "q"]),
    }  # fmt: skip
