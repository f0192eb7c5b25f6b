"""The command ``python3 dev.py papers``: run the tables of a paper and compare them with it.

A mistake of the user ends as one sentence on standard error and exit status 2, before the long work
starts. Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from . import PAPERS, digest, load_paper
from .data.files import folders, locate
from .data.registry import DATASETS
from .frame import (
    Key,
    Store,
    carry_over,
    measured_csv,
    outcome,
    read_measured,
    run_cells,
    run_recorded,
)
from .pages import FOLDER, write_numbers, write_pages
from .progress import CellProgress
from .show import Reproduced, as_text, write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 1 where a cell failed, 2 for a mistake."""
    options = _parser().parse_args(arguments)
    try:
        if options.list_data:
            list_data()
            return 0
        _check(options)
        return reproduce(options)
    except KeyboardInterrupt:
        print("papers: interrupted; the finished cells are kept", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"papers: {error}", file=sys.stderr)
        return 2


def reproduce(options: argparse.Namespace) -> int:
    """Run the chosen tables, print them beside the printed values, and write the pages."""
    names = list(PAPERS) if options.paper == "all" else [options.paper]
    papers = {name: load_paper(name) for name in names}
    chosen = {
        name: [(table, table.cells(options.quick)) for table in paper.choose(options.table)]
        for name, (paper, _) in papers.items()
    }
    stores = {name: Store(options.results, name, options.quick) for name in names}
    work = [
        (stores[name], [cell for _, cells in tables for cell in cells])
        for name, tables in chosen.items()
    ]
    if options.merge:
        merge_results(options.merge, stores)
    progress = CellProgress(options.paper)
    failures: dict[str, dict[Key, str]] = {}
    if options.record:
        executed = run_recorded(work, options.jobs, progress)
        modules = {f"{__package__}.{PAPERS[name]}": found for name, found in executed.items()}
        digest.record(modules, whole=options.table is None)
        print(f"modules that are imported and not executed were written to {digest.UNUSED}")
        return 0
    if options.carry_over:
        found = carry_over(work, options.jobs, progress, options.minutes)
        for name, (agreed, tried) in found.items():
            print(f"{name}: {agreed} of {tried} lines of other code have the same values again")
    elif not options.show:
        failures = run_cells(work, options.jobs, progress, options.minutes)
    if options.keep:
        for store, cells in work:
            store.keep(cells)
    reproduced = []
    for name, (paper, printed) in papers.items():
        known = read_measured(FOLDER / f"{name}.csv") if options.pages else {}
        outcomes = [
            outcome(table, cells, stores[name], printed, failures.get(name), known)
            for table, cells in chosen[name]
        ]
        reproduced.append(Reproduced(paper, outcomes, options.quick))
        if options.pages:
            write_numbers(measured_csv(known, outcomes, printed), name)
        else:
            print(as_text(reproduced[-1]))
    if options.report:
        write_report(options.report, reproduced)
        print(f"report written to {options.report}")
    if options.pages:
        write_pages(reproduced)
        print(f"pages written to {FOLDER}")
    return int(any(o.failures for r in reproduced for o in r.outcomes))


def merge_results(path: str, stores: dict[str, Store]) -> None:
    """Append finished cells of another machine to the results, from a file of lines, gzipped."""
    texts = gzip.decompress(Path(path).read_bytes()).decode().splitlines()
    for name, store in stores.items():
        print(f"{name}: {store.merge(texts)} of {len(texts)} lines merged")


def list_data() -> None:
    """Print every data set with its origin, its terms and the path of its file."""
    n_missing = 0
    for entry in DATASETS.values():
        path = locate(entry.file)
        n_missing += path is None
        print(
            f"{entry.name:<15} {entry.n_samples:>6} rows {entry.n_features:>5} inputs  "
            f"target: {entry.target}\n{'':16}from: {entry.origin} Terms: {entry.terms}\n"
            f"{'':16}{path or f'not found: {entry.file.name}'}"
        )
    if n_missing:
        print(
            f"\n{n_missing} of {len(DATASETS)} files were not found. Put them into one of these "
            "folders, or set SPARSEBAYES_DATA to the folder that has them:"
        )
        for folder in folders():
            print(f"  {folder}")


def _check(options: argparse.Namespace) -> None:
    """Refuse what cannot be run or written, before the run."""
    if options.table is not None and options.paper == "all":
        raise ValueError("--table chooses a table of one paper: name the paper, too.")
    if options.pages and (options.quick or options.paper != "all"):
        raise ValueError(
            "--pages writes the pages of all papers from full runs: leave out --quick."
        )
    if options.keep and options.quick:
        raise ValueError("--keep writes the cells of full runs: leave out --quick.")
    if options.merge and not Path(options.merge).is_file():
        raise ValueError(f"There is no file {options.merge} to merge.")
    if path := options.report:
        if not Path(path).absolute().parent.is_dir():
            raise ValueError(f"There is no folder {Path(path).parent} to write {path} into.")
        if Path(path).is_dir():
            raise ValueError(f"{path} is a folder; name a file to write.")
    if (options.report or options.pages) and find_spec("matplotlib") is None:
        raise ImportError("Figures need matplotlib: pip install 'sparsebayes[plot]'")
    if options.data:
        if not Path(options.data).is_dir():
            raise ValueError(f"There is no folder {options.data} to read data sets from.")
        os.environ["SPARSEBAYES_DATA"] = options.data  # the workers of --jobs inherit it


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev.py papers",
        description="Run the tables and figures of the papers and print ours beside theirs.",
    )
    papers = f"{', '.join(PAPERS)} or all (the default)"
    parser.add_argument("paper", metavar="PAPER", nargs="?", default="all", help=papers)
    parser.add_argument("--table", metavar="N", help="one table: 1, 2, ... or 'figure 1', ...")
    parser.add_argument("--quick", action="store_true", help="few repetitions: minutes, not hours")
    parser.add_argument("--jobs", type=int, default=1, help="cells at once; -1: one per core")
    parser.add_argument("--data", metavar="DIR", help="folder with the data sets")
    parser.add_argument(
        "--results", metavar="DIR", default="reproduce", help="finished cells (default: reproduce)"
    )
    parser.add_argument("--show", action="store_true", help="show finished cells, run nothing")
    parser.add_argument("--report", metavar="FILE", help="write a report (HTML)")
    parser.add_argument(
        "--pages", action="store_true", help="write docs/papers: a page and a CSV file per paper"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no further cell after so long"
    )
    parser.add_argument(
        "--carry-over",
        action="store_true",
        help="accept finished cells of other code whose first repetition has the same values again",
    )
    parser.add_argument(
        "--merge", metavar="FILE", help="add the results files of another machine, gzipped"
    )
    parser.add_argument(
        "--keep", action="store_true", help="write the finished cells to papers/cells"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="record which modules the experiments execute: the digests cover these alone",
    )
    parser.add_argument(
        "--list-data", action="store_true", help="list the data sets and where their files are"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
