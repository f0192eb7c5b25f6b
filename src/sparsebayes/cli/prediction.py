"""The commands ``sparsebayes predict`` and ``sparsebayes export``, for saved models."""

from __future__ import annotations

import argparse

import numpy as np

from .._extras import require
from .._files import write_whole
from ..models import CLASSES
from .checks import check_packages, check_writable
from .model_files import load_model
from .prepared import named_columns
from .tables import TableError, read_table


def predict(options: argparse.Namespace) -> None:
    """Predict the rows of a table with a saved model."""
    check_packages("pandas", "skrub")
    check_writable(options.output)
    import pandas as pd

    from .comparison import interval
    from .comparison import predict as predict_rows

    if not 0.0 < options.level < 1.0:
        raise ValueError(f"--level must lie between 0 and 1, got {options.level}.")
    model = load_model(options.model_file)
    table = read_table(options.data)
    table.require(list(model.inputs_.kinds_))
    identifiers = named_columns(table, tuple(options.id)) or tuple(
        name for name in model.id_columns_ if name in table.frame
    )
    table.require(identifiers)
    if len(table.frame) == 0:
        raise TableError(f"{table.path} has no rows to predict.")
    columns = {name: table.frame[name].to_numpy() for name in identifiers}
    target = model.target_name_ or "prediction"
    if model.task_ == CLASSES:
        probability = model.predict_proba(table.frame)
        columns[target] = model.classes_[np.argmax(probability, axis=1)]
        columns |= {f"p_{c}": probability[:, j] for j, c in enumerate(model.classes_)}
    else:
        mean, std = predict_rows(model, table.frame)
        columns[target] = mean
        if std is not None:
            lower, upper = interval(model, table.frame, mean, std, options.level)
            columns |= {"std": std, "lower": lower, "upper": upper}
    text = pd.DataFrame(columns).to_csv(index=False, float_format="%.10g", lineterminator="\n")
    if options.output:
        write_whole(options.output, text.encode())
        print(f"{len(table.frame)} predictions written to {options.output}")
    else:
        print(text, end="")


def export(options: argparse.Namespace) -> None:
    """Write a saved model as C, as a NumPy module or as ONNX."""
    from ..export import export_model

    check_packages("pandas", "skrub")
    check_writable(options.output)
    if options.to == "onnx":
        require("onnx", "An ONNX graph", "onnx")
        if not options.output:
            raise ValueError("An ONNX model is binary; pass a file name with --output.")
    model = load_model(options.model_file)
    try:
        code = export_model(model, options.to, name=options.name, return_std=not options.no_std)
    except ValueError as error:  # which names the parameter, not the option
        raise ValueError(str(error).replace("return_std=False", "--no-std")) from None
    content = code if isinstance(code, bytes) else code.encode()
    if options.output:
        write_whole(options.output, content)
        print(f"{len(content):,} bytes written to {options.output}")
    else:
        print(code, end="")
