"""For all tests and doctests: figures need no window and are closed, absent data are skipped."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")

# Packages that the `test` extra does not install: tests that need one are skipped without it.
OPTIONAL = ("torch", "finufft", "mapie", "skpro", "celer")


def pytest_report_header() -> str:
    """Report which optional packages this run tests, and which it skips."""
    present = [name for name in OPTIONAL if find_spec(name) is not None]
    absent = [name for name in OPTIONAL if name not in present]
    return (
        f"optional packages: {', '.join(present) or 'none'}; "
        f"not installed, their tests are skipped: {', '.join(absent) or 'none'}"
    )


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Close the figures of a test: matplotlib warns of more than twenty open ones."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the doctests of loaders whose data file is not on this machine."""
    prefix = "papers.data.loaders.load_"
    examples = [item for item in items if item.name.startswith(prefix)]
    if not examples:
        return
    from papers.data import list_datasets

    present = {entry.name for entry in list_datasets() if entry.path is not None}
    for item in examples:
        name = item.name.removeprefix(prefix)
        if name not in present:
            item.add_marker(pytest.mark.skip(reason=f"The data file of {name} was not found."))
