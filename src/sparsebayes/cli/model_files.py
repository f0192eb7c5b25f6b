"""Read and write fitted table models: skops or pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._files import write_whole
from .tables import TableError

_SKOPS, _PICKLE = b"PK\x03\x04", b"\x80"  # first bytes of the files


def save_model(path: str, model: Any) -> None:
    """Write a fitted model as skops or, with any other suffix, as pickle."""
    if Path(path).suffix == ".skops":
        from zipfile import ZIP_DEFLATED

        import skops.io as sio

        content = sio.dumps(model, compression=ZIP_DEFLATED)
    else:
        import pickle

        content = pickle.dumps(model)
    write_whole(path, content)


def load_model(path: str) -> Any:
    """Read a model that `save_model` wrote."""
    from ..estimators.table import TableModel

    if not Path(path).is_file():
        raise TableError(f"The model file {path} does not exist.")
    with open(path, "rb") as file:
        start = file.read(4)
    if start != _SKOPS and start[:1] != _PICKLE:
        raise TableError(
            f"{path} is not a model written by `sparsebayes fit --output`. Pass the model "
            "before the table: sparsebayes predict MODEL DATA."
        )
    try:
        if Path(path).suffix == ".skops":
            import skops.io as sio

            from .. import TRUSTED_TYPES

            model = sio.load(path, trusted=TRUSTED_TYPES)
        else:
            import pickle

            with open(path, "rb") as file:
                model = pickle.load(file)
        if not isinstance(model, TableModel):
            raise TypeError(f"it contains a {type(model).__name__}")
        return model
    except ImportError:
        raise
    except Exception as error:
        raise TableError(
            f"{path} is not a model written by `sparsebayes fit --output` of this version "
            f"({type(error).__name__}: {error})."
        ) from None
