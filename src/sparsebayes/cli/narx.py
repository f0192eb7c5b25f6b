"""The command ``sparsebayes narx``: a dynamic system from a table of time steps."""

from __future__ import annotations

import argparse
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..models import refuse_unknown
from .checks import check_packages, check_writable, parse_settings
from .tables import read_table


def narx(options: argparse.Namespace) -> None:
    """Identify a dynamic system from a CSV file with one row per time step."""
    from ..estimators.narx import NARXRegressor

    check_packages("pandas", report=options.report)
    check_writable(options.report)
    settings = {"input_lags": options.lags, "output_lags": options.lags, "degree": options.degree}
    settings |= parse_settings(options.set)
    refuse_unknown(NARXRegressor, settings)
    if not 0.0 <= options.test_share < 1.0:
        raise ValueError(f"--test-share must be from 0 to below 1, got {options.test_share}.")
    table = read_table(options.data)
    y = table.series(options.output)
    u = np.column_stack([table.series(name) for name in options.input]) if options.input else None
    n = len(y) - int(options.test_share * len(y))
    model = NARXRegressor(**settings).fit(None if u is None else u[:n], y[:n])
    if options.test_share:
        y = y[n:]
        u = None if u is None else u[n:]
    lag = model.max_lag_
    free, std = model.simulate(u, y[:lag], n_steps=len(y), return_std=True)
    observed = np.isfinite(y[lag:])
    error = (y - free)[lag:][observed]
    covered = np.abs(error) < 1.96 * std[lag:][observed]
    one_step = (y - np.asarray(model.predict(u, y)))[lag:]
    facts = [
        ["RMSE one step ahead", f"{np.sqrt(np.nanmean(one_step**2)):.4g}"],
        ["RMSE of the simulation", f"{np.sqrt(np.mean(error**2)):.4g}"],
        ["95 % coverage", f"{np.mean(covered):.1%}"],
    ]
    names = Names(options.output, tuple(options.input))
    rows = "held-out" if options.test_share else "training"
    terms = named_terms(model.terms_, names)
    print(f"{names.rename(str(model))}\n\n{terms}\n\non {len(y)} {rows} time steps:")
    for label, value in facts:
        print(f"  {label:<24} {value}")
    if options.report:
        from .report import write_narx_report

        time = time_column(table.frame, [options.output, *options.input])
        if time is not None:
            time = time.iloc[len(time) - len(y) :]
        write_narx_report(options.report, model, u, y, facts, names, rows, time)
        print(f"report written to {options.report}")


@dataclass(frozen=True)
class Names:
    """The columns of the output and the inputs of a dynamic model."""

    output: str
    inputs: tuple[str, ...]

    @property
    def labels(self) -> dict[str, str]:
        """The name of each variable of the model."""
        if len(self.inputs) == 1:
            return {"y": self.output, "u": self.inputs[0]}
        return {"y": self.output, **{f"u{i + 1}": name for i, name in enumerate(self.inputs)}}

    def rename(self, text: str) -> str:
        """Return an equation or a term with these names in place of y, u, u1, u2, ...

        Examples
        --------
        >>> from sparsebayes.cli.narx import Names
        >>> Names("level", ("pump",)).rename("y(k) = 0.5 y(k-1) + u(k)*y(k-2)")
        'level(k) = 0.5 level(k-1) + pump(k)*level(k-2)'
        """
        return re.sub(r"\b(y|u\d*)(?=\(k)", lambda match: self.labels[match[0]], text)


def named_terms(terms: Any, names: Names) -> Any:
    """Return the table of terms with the names of the columns."""
    return replace(terms, term=np.array([names.rename(str(term)) for term in terms.term]))


def time_column(frame: Any, used: list[str]) -> Any | None:
    """Return the first other column that increases from row to row: numbers or dates."""
    import pandas as pd

    for name in frame.columns:
        if name in used:
            continue
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of dates without a common format
                column = pd.to_datetime(column, errors="coerce")
        if column.notna().all() and column.is_monotonic_increasing and column.is_unique:
            return column
    return None
