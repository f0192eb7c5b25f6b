"""Finding, checking and fetching data files.

A file is looked for in `data_home`, then in the folder `$SPARSEBAYES_DATA`, then in the cache
folder (`$SPARSEBAYES_CACHE`, else the platform's). If it is in none of them and
`$SPARSEBAYES_DATA_URL` names a place to download from, it is fetched into `data_home`, or else
into the cache folder. It gets its name only when its checksum is right and it is written whole, so
a broken download is never mistaken for the file. Files are checked wherever they come from.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import sys
import urllib.request
from pathlib import Path

import numpy as np

from ..files import write_whole
from .registry import DataFile

# No public host has the files yet, so without the variable nothing is downloaded.
DEFAULT_URL: str | None = None
TIMEOUT = 60.0  # seconds without an answer

PathLike = str | os.PathLike[str]


def cache_folder() -> Path:
    """The folder downloads go to."""
    if chosen := os.environ.get("SPARSEBAYES_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "sparsebayes"


def folders(data_home: PathLike | None = None) -> list[Path]:
    """Where files are looked for, first to last."""
    chosen = [data_home, os.environ.get("SPARSEBAYES_DATA")]
    return [Path(folder).expanduser() for folder in chosen if folder] + [cache_folder()]


def locate(file: DataFile, data_home: PathLike | None = None) -> Path | None:
    """The first place that has the file, or None; neither read nor fetched."""
    places = (folder / file.name for folder in folders(data_home))
    return next((place for place in places if place.is_file()), None)


def read(file: DataFile, data_home: PathLike | None = None) -> bytes:
    """The checked content of a file, fetched first if need be."""
    path = locate(file, data_home) or _download(file, data_home)
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise OSError(
            f"{path} is not the data set it should be: its sha256 is {found}, expected "
            f"{file.sha256}. It may be cut short or edited; delete or replace it and try again."
        )
    return content


def read_table(
    file: DataFile, data_home: PathLike | None = None
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file, as text. No field of ours has a comma or quotes inside."""
    header, *rows = (line.split(",") for line in _read_text(file, data_home).splitlines())
    return header, rows


def read_numbers(
    file: DataFile, data_home: PathLike | None = None
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Header, inputs and target of a CSV file of numbers with the target last."""
    header, _, body = _read_text(file, data_home).partition("\n")
    table = np.loadtxt(io.StringIO(body), delimiter=",", ndmin=2)
    return header.strip().split(","), np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()


def read_arrays(file: DataFile, data_home: PathLike | None = None) -> dict[str, np.ndarray]:
    """The arrays of an npz file."""
    with np.load(io.BytesIO(read(file, data_home)), allow_pickle=False) as archive:
        return dict(archive)


def _read_text(file: DataFile, data_home: PathLike | None) -> str:
    content = read(file, data_home)
    return (gzip.decompress(content) if file.name.endswith(".gz") else content).decode("utf-8")


def _download(file: DataFile, data_home: PathLike | None) -> Path:
    base = os.environ.get("SPARSEBAYES_DATA_URL") or DEFAULT_URL
    if base is None:
        raise _not_found(file, data_home, "No address to download it from is known.")
    url = f"{base.rstrip('/')}/{file.name}"
    folder = Path(data_home).expanduser() if data_home else cache_folder()
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            content = answer.read()
    # No network and time-outs are OSErrors; an address urllib cannot read is a ValueError; an
    # answer cut short is an HTTPException.
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _not_found(file, data_home, f"The download of {url} failed: {error}.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise OSError(
            f"The download of {url} was refused: its sha256 is {found}, expected {file.sha256}. "
            "Nothing was kept; check the address in SPARSEBAYES_DATA_URL and try again."
        )
    folder.mkdir(parents=True, exist_ok=True)
    return write_whole(folder / file.name, content)


def _not_found(file: DataFile, data_home: PathLike | None, why: str) -> FileNotFoundError:
    looked = ", ".join(str(folder) for folder in folders(data_home))
    return FileNotFoundError(
        f"The data file {file.name} was not found; looked in: {looked}. {why} Put the file into "
        "one of these folders, or name the folder that has it with data_home or in the "
        "environment variable SPARSEBAYES_DATA; or set SPARSEBAYES_DATA_URL to an address that "
        "serves it."
    )
