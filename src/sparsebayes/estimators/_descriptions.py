"""Descriptions of parameters and attributes, written once in a base class.

The docstring of an estimator describes what is particular to it. Parameters that it leaves out, and
names that it lists without a word, have the description of the nearest base class; a description
that starts with ``...`` continues that of the base class. Docstrings are completed when a class is
made, so that `help` and the reference show all of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

# A section: its title, and the lines before the next title, which is underlined.
_SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=\n\n\S[^\n]*\n--|\Z)", re.M | re.S)
_ENTRY = re.compile(r"^(\S[^:\n]*?)(?: : (.*))?$((?:\n(?:    .*)?)*)", re.M)


class Entry(NamedTuple):
    """One entry of a section: ``names : kind``, and the indented lines that describe it."""

    names: tuple[str, ...]
    kind: str = ""
    words: str = ""

    def __str__(self) -> str:
        return (
            ", ".join(self.names) + (f" : {self.kind}" if self.kind else "") + f"\n    {self.words}"
        )


def complete_docstring(cls: type) -> None:
    """Add what base classes say to the sections of a docstring, in the order of the signature."""
    if not (docstring := vars(cls).get("__doc__")):  # none was written, or Python runs with -OO
        return
    signature = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    places = {name: place for place, name in enumerate(signature)}

    def completed(section: re.Match) -> str:
        title, own = section[1], list(_entries(section[2]))
        parameters = signature if title == "Parameters" else {}
        described = {name.lstrip("*") for entry in own for name in entry.names}
        own += [Entry((name,)) for name in parameters if name not in described]
        entries = [full for entry in own for full in _complete(cls, title, entry, parameters)]
        if parameters:
            entries.sort(key=lambda entry: places.get(entry.names[0], len(places)))
        return "\n".join([title, "-" * len(title), *map(str, entries)])

    cls.__doc__ = _SECTION.sub(completed, inspect.cleandoc(docstring))


@cache
def _sections(docstring: str) -> dict[str, tuple[Entry, ...]]:
    """Return the entries of the sections of a docstring."""
    sections = _SECTION.finditer(inspect.cleandoc(docstring))
    return {section[1]: tuple(_entries(section[2])) for section in sections}


def _entries(lines: str) -> Iterator[Entry]:
    """Yield the entries in the lines of a section."""
    for m in _ENTRY.finditer(lines):
        yield Entry(tuple(m[1].split(", ")), m[2] or "", m[3].strip())


def _complete(
    cls: type, title: str, entry: Entry, parameters: Mapping[str, inspect.Parameter]
) -> Iterator[Entry]:
    """Yield an entry as it is, or one for each of its names with what a base class says of it."""
    if entry.words and not entry.words.startswith("..."):
        yield entry
        return
    for name in entry.names:
        if base := _inherited(cls, title, name):
            kind = entry.kind or base.kind.partition(", default=")[0]
            default = parameters[name].default if name in parameters else inspect.Parameter.empty
            if default is not inspect.Parameter.empty:
                kind += f', default="{default}"' if isinstance(default, str) else f", {default=}"
            yield Entry((name,), kind, base.words + entry.words.replace("...", "\n   ", 1))


def _inherited(cls: type, title: str, name: str) -> Entry | None:
    """Return the entry of the nearest base class that describes a name."""
    for base in cls.__mro__[1:]:
        for entry in _sections(base.__doc__ or "").get(title, ()):
            if name in entry.names:
                return entry
    return None
