"""Finished runs on disk, so that a fit that was killed can continue.

One file per run, written whole or not at all (a new file, then a rename), beside a note of which
data and settings they belong to. Files that are damaged or belong to another fit are refused: a
model put together from them would be wrong without saying so.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Generic

import numpy as np

from .._files import write_whole
from .schedules import OutcomeT

_FORMAT = 1
_NOTE = "partitions.json"


class Checkpoints(Generic[OutcomeT]):
    """The finished runs of one fit, in a folder that is made if it is not there.

    `fingerprint` is of everything that the outcome of a run depends on; `make` makes an outcome
    from its fields.
    """

    def __init__(
        self, folder: str | PathLike[str], fingerprint: str, make: Callable[..., OutcomeT]
    ) -> None:
        self.folder = Path(folder)
        self.make = make
        self.fingerprint = fingerprint
        self.folder.mkdir(parents=True, exist_ok=True)
        note = self.folder / _NOTE
        if note.exists():
            self._check(note)
        else:
            if any(self.folder.glob("run-*.npz")):
                raise ValueError(
                    f"checkpoint_dir {str(self.folder)!r} contains runs but no {_NOTE}, so "
                    "the fit that they belong to is unknown. Empty the folder, or use "
                    "another one."
                )
            content = json.dumps({"format": _FORMAT, "fingerprint": fingerprint})
            write_whole(note, content.encode())

    def save(self, key: str, outcome: OutcomeT) -> None:
        """Write a finished run."""
        buffer = io.BytesIO()
        np.savez(buffer, fingerprint=self.fingerprint, **outcome._asdict())
        write_whole(self.folder / f"run-{key}.npz", buffer.getvalue())

    def load(self) -> dict[str, OutcomeT]:
        """Return all finished runs."""
        paths = sorted(self.folder.glob("run-*.npz"))
        return {path.stem.removeprefix("run-"): self._read(path) for path in paths}

    def _check(self, note: Path) -> None:
        try:
            content = json.loads(note.read_text(encoding="utf-8"))
            theirs = content["fingerprint"] if content["format"] == _FORMAT else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{str(note)!r} cannot be read ({error}), so the checkpoints in this folder "
                "cannot be used. Empty the folder, or use another checkpoint_dir."
            ) from error
        if theirs != self.fingerprint:
            raise ValueError(
                f"The checkpoints in {str(self.folder)!r} belong to another fit (different "
                "data, parameters or version of sparsebayes). Empty the folder, or use "
                "another checkpoint_dir."
            )

    def _read(self, path: Path) -> OutcomeT:
        try:
            # Each member of the file carries a checksum, which reading it tests.
            with np.load(path, allow_pickle=False) as file:
                fields = {name: file[name] for name in file.files}
            theirs = str(fields.pop("fingerprint"))
            outcome = self.make(**{name: _without_axes(value) for name, value in fields.items()})
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"The checkpoint {str(path)!r} is damaged ({error}). Delete this file to "
                "repeat its run, or use another checkpoint_dir."
            ) from error
        if theirs != self.fingerprint:
            raise ValueError(
                f"The checkpoint {str(path)!r} belongs to another fit. Delete this file, or "
                "use another checkpoint_dir."
            )
        return outcome


def _without_axes(value: np.ndarray) -> Any:
    """Return the number or string of an array without axes, and other arrays unchanged."""
    return value.item() if value.ndim == 0 else value
