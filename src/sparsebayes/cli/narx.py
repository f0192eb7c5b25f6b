"""The command ``sparsebayes narx``: a dynamic system from a table of time steps."""

from __future__ import annotations

import argparse

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
    known = np.isfinite(y[lag:])
    error = (y - free)[lag:][known]
    covered = np.abs(error) < 1.96 * std[lag:][known]
    one_step = (y - np.asarray(model.predict(u, y)))[lag:]
    facts = [
        ["RMSE one step ahead", f"{np.sqrt(np.nanmean(one_step**2)):.6g}"],
        ["RMSE free run", f"{np.sqrt(np.mean(error**2)):.6g}"],
        ["95 % coverage", f"{np.mean(covered):.3f}"],
    ]
    rows = "held out" if options.test_share else "fitted"
    print(f"{model}\n\n{model.terms_}\n\non {len(y)} time steps {rows}:")
    for label, value in facts:
        print(f"  {label:<22} {value}")
    if options.report:
        from .report import write_narx_report

        write_narx_report(options.report, model, u, y, facts, options.output)
        print(f"report written to {options.report}")
