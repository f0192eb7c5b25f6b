"""Finished cells that are kept in the repository, ``papers/cells``: one file per paper.

A line of such a file has all repetitions of one table, row and column that one code has measured:
its seeds, CPU seconds, and each value as a list over the seeds. Numbers have eight digits. Lists
that only a figure needs are kept for the first repetition. With these files the first repetition
of each line can be compared with that of later code (`frame.carry_over`) in any clone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .files import write_whole

FOLDER = Path(__file__).resolve().parent / "cells"
_SHARED = ("table", "row", "column", "code", "carried", "machine")


def read_kept(paper: str) -> Iterator[dict[str, Any]]:
    """Yield the kept cells of a paper as lines of its results file; none without a file."""
    path = FOLDER / f"{paper}.jsonl"
    for text in path.read_text("utf-8").splitlines() if path.is_file() else ():
        kept = json.loads(text)
        shared = {name: kept[name] for name in _SHARED if name in kept}
        for i, (seed, seconds) in enumerate(zip(kept["seeds"], kept["seconds"], strict=True)):
            values = {k: v[i] for k, v in kept["values"].items() if v[i] is not None}
            yield {**shared, "seed": seed, "seconds": seconds, "values": values}


def write_kept(paper: str, cells: Iterable[dict[str, Any]]) -> None:
    """Write the finished cells of a paper, given as lines of its results file."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.get(name, "") for name in _SHARED), []).append(cell)
    lines = []
    for key, some in sorted(groups.items()):
        some.sort(key=lambda cell: cell["seed"])
        names = dict.fromkeys(name for cell in some for name in cell["values"])
        line = {name: value for name, value in zip(_SHARED, key, strict=True) if value}
        line["seeds"] = [cell["seed"] for cell in some]
        line["seconds"] = [_short(cell["seconds"], 3) for cell in some]
        values = {name: [_kept(cell, name) for cell in some] for name in names}
        line["values"] = {k: v for k, v in values.items() if any(x is not None for x in v)}
        lines.append(json.dumps({"column": "", "row": "", **line}) + "\n")
    FOLDER.mkdir(exist_ok=True)
    write_whole(str(FOLDER / f"{paper}.jsonl"), "".join(lines).encode())


def _kept(cell: dict[str, Any], name: str) -> Any:
    value = cell["values"].get(name)
    if isinstance(value, list):
        return [_short(each) for each in value] if cell["seed"] == 0 else None
    return None if value is None else _short(value)


def _short(value: float, digits: int = 8) -> float:
    number = float(f"{value:.{digits}g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
