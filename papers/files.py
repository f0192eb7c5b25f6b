"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file under a temporary name, then rename it: a stopped run leaves no half file."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
