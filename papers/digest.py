"""A digest of the code behind a paper's numbers.

The digest of a paper covers its own module and every module of the library and of this package that
it imports, directly or through others, also inside functions. Left out are modules that only draw,
print or report progress, and modules that are imported but not executed. ``unused.json`` lists the
latter for each paper, and ``python3 dev.py papers --record`` writes it; a module that it does not
list belongs to the digest. Formatting, comments, docstrings, annotations, and the text of errors
and warnings change no number, and are not part of a digest either.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)
PACKAGES = ("sparsebayes", "papers")
# Modules, and packages with all that is below them, that make no number of a table.
NO_NUMBERS = (
    "papers.digest",
    "papers.figures",
    "papers.frame",
    "papers.kept",
    "papers.progress",
    "papers.report",
    "papers.show",
    "sparsebayes.callbacks",
    "sparsebayes.cli",
    "sparsebayes.displays",
)


UNUSED = Path(__file__).with_name("unused.json")


@cache
def code_digest(module: str) -> str:
    """Return eight hexadecimal digits that change with the code behind an experiment's module."""
    digest = hashlib.sha256()
    left_out = unused(module)
    for name, path in sorted(sources(module).items()):
        if name not in left_out:
            digest.update(name.encode() + b"\0" + code(path.read_text("utf-8")).encode() + b"\0")
    return digest.hexdigest()[:8]


def unused(module: str) -> set[str]:
    """Return the modules that an experiment's module imports and does not execute."""
    return set(_recorded().get(module, ()))


def record(executed: dict[str, set[str]], whole: bool) -> None:
    """Write which modules the experiments of some modules import and do not execute.

    A run of all tables is a `whole` one and replaces what was recorded; another adds to it.
    """
    found = _recorded()
    for module, names in executed.items():
        imported_only = set(sources(module)) - needed(names | {module})
        if not whole:
            imported_only &= unused(module)
        found[module] = sorted(imported_only)
    UNUSED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    code_digest.cache_clear()


@contextmanager
def executed_modules() -> Iterator[set[str]]:
    """Collect the names of our modules that have a function called in the block."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        # Bodies of modules and classes are not optimised: to import is not to execute.
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            found.add(frame.f_globals.get("__name__", ""))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        found.intersection_update([name for name in found if _is_below(name, PACKAGES)])


def needed(executed: Iterable[str]) -> set[str]:
    """Return modules with those that their base classes and imported constants are from."""
    found, queue = set[str](), list(executed)
    while queue:
        name = queue.pop()
        if name in found or not _is_below(name, PACKAGES):
            continue
        found.add(name)
        module = import_module(name)
        own = [v for v in vars(module).values() if inspect.isclass(v) and v.__module__ == name]
        queue += [base.__module__ for each in own for base in each.__mro__]
        source = Path(str(module.__file__)).read_text("utf-8")
        for base, imports in _from_imports(source, name, hasattr(module, "__path__")):
            values = [getattr(import_module(base), each, None) for each in imports]
            if not all(callable(value) or isinstance(value, ModuleType) for value in values):
                queue.append(base)
    return found


def _recorded() -> dict[str, list[str]]:
    return json.loads(UNUSED.read_text("utf-8")) if UNUSED.is_file() else {}


def sources(module: str) -> dict[str, Path]:
    """Return the source files of a module and of all that it imports, by module name."""
    found: dict[str, Path] = {}
    queue = [module]
    while queue:
        name = queue.pop()
        spec = find_spec(name)
        if name in found or spec is None or spec.origin is None:
            continue
        found[name] = Path(spec.origin)
        is_package = spec.submodule_search_locations is not None
        queue += imported(found[name].read_text("utf-8"), name, is_package)
    return found


@cache
def imported(source: str, module: str, is_package: bool = False) -> tuple[str, ...]:
    """Return the modules of our packages that a source imports and that make numbers."""
    nodes = ast.walk(ast.parse(source))
    plain = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    named = [
        _home(base, name)
        for base, names in _from_imports(source, module, is_package)
        for name in names
    ]
    return tuple(
        name
        for name in (*plain, *named)
        if _is_below(name, PACKAGES) and not _is_below(name, NO_NUMBERS)
    )


def _from_imports(source: str, module: str, is_package: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield each ``from base import names`` whose base is in our packages."""
    parts = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if _is_below(base, PACKAGES):
                yield base, [alias.name for alias in node.names]


@cache
def code(source: str) -> str:
    """Return the syntax tree of a source as text, without the parts that change no number."""
    return _dump(_NumbersOnly().visit(ast.parse(source)))


def _dump(node: object) -> str:
    """Return a syntax tree as text that is the same for all versions of Python.

    `ast.dump` is not: versions differ in the empty fields that they have and show, and in where
    they cut the text of an f-string.
    """
    if isinstance(node, list):
        return f"[{','.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):
        return f"JoinedStr({_dump_text(node)})"
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return f"{type(node).__name__}({','.join(f'{name}={_dump(v)}' for name, v in fields)})"


def _dump_text(node: ast.JoinedStr) -> str:
    """Return the parts of an f-string, with neighbouring pieces of plain text joined."""
    parts: list[str | ast.expr] = []
    for value in node.values:
        if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
            parts.append(value)
        elif parts and isinstance(parts[-1], str):
            parts[-1] += value.value
        elif value.value:
            parts.append(value.value)
    return ",".join(map(_dump, parts))


class _NumbersOnly(ast.NodeTransformer):
    """Removes docstrings, annotations, and the text of errors and warnings from a syntax tree."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            node.body = [_PlainAssignments().visit(statement) for statement in node.body]
        if isinstance(node, ast.arg):
            node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Name("annotation", ast.Load())
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self.generic_visit(_without_text(node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else None
        name = node.func.id if isinstance(node.func, ast.Name) else name
        return self.generic_visit(_without_text(node) if name == "warn" else node)


class _PlainAssignments(ast.NodeTransformer):
    """Removes the annotations of variables of a function; those of a class declare its fields."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.Pass() if node.value is None else ast.Assign([node.target], node.value)


def _without_text(node: _Node) -> _Node:
    """Blank every string in a statement, also those with values formatted into them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.JoinedStr):
            inner.values = []
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            inner.value = ""
    return node


@cache
def _home(module: str, name: str) -> str:
    """Return the module that ``from module import name`` takes the name from.

    A package may pass on what one of its modules defines; the package's other modules are then not
    part of the code that is used.
    """
    spec = find_spec(module)
    if spec is None or spec.submodule_search_locations is None:
        return module
    if find_spec(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    home = getattr(getattr(import_module(module), name), "__module__", module)
    return home if _is_below(home, PACKAGES) else module


def _is_below(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)
