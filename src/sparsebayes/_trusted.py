"""The types that a fitted model may hold, for ``skops.io.load(path, trusted=...)``.

They are the classes of this package, except for the parts that no model is made of, and a few of
other libraries. The classes are found in the source, so that none has to be imported or listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

# Parts of the package that read or write files, start workers, draw or print.
_NOT_IN_MODELS = {
    "callbacks",
    "cli",
    "displays",
    "experimental_design",
    "export",
    "partition",
    "rows",
}
_OTHER_LIBRARIES = [
    "numpy.dtype",
    "scipy.sparse._csr.csr_array",
    "skrub._datetime_encoder.DatetimeEncoder",
    "skrub._to_datetime.ToDatetime",
]


def _own_classes() -> Iterator[str]:
    """Yield the dotted name of every class at the top level of a module that models use."""
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root).with_suffix("").parts
        if module[0] not in _NOT_IN_MODELS and module[-1] != "__init__":
            for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE):
                yield ".".join((__package__, *module, name))


TRUSTED_TYPES = [*_own_classes(), *_OTHER_LIBRARIES]
