"""Names of a package that are loaded on first access."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy(
    package: str, homes: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package; `homes` maps names to its modules.

    A name that is its own home is a module: ``{"rvm": "rvm"}``.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{homes[name]}")
        return module if homes[name] == name else getattr(module, name)

    def names() -> list[str]:
        return sorted(homes)

    return load, names
