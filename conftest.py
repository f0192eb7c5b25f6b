"""For all tests and doctests: loaders run where their data file is; figures are closed."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Close what a test has drawn: matplotlib warns of more than twenty open figures."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    prefix = "papers.data.loaders.load_"
    examples = [item for item in items if item.name.startswith(prefix)]
    if not examples:
        return
    from papers.data import list_datasets

    found = {entry.name for entry in list_datasets() if entry.path is not None}
    for item in examples:
        name = item.name.removeprefix(prefix)
        if name not in found:
            item.add_marker(pytest.mark.skip(reason=f"the data file of {name} is not here"))
