import ast
import pickle
import re
import shutil
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from papers import PAPERS, benshimon2006, load_paper, pages, sun2006
from papers import __main__ as command
from papers.__main__ import main
from papers.data import list_datasets
from papers.frame import Cell, Measured, Paper, Printed, Store, Table, outcome, run_cells
from papers.show import Reproduced

FOLDER = Path(__file__).parents[2] / "papers"


@pytest.mark.parametrize("name", PAPERS)
def test_every_printed_value_belongs_to_a_table_and_every_cell_can_be_sent_to_a_worker(name):
    paper, printed = load_paper(name)
    assert paper.name == name
    assert paper.protocol.strip()
    assert {table for table, _, _ in printed} <= {table.number for table in paper.tables}
    for table in paper.tables:
        full, quick = table.cells(False), table.cells(True)
        assert full
        assert len(quick) <= len(full)
        pickle.dumps([cell.run for cell in quick])
        assert len({(c.table, c.row, c.column, c.seed) for c in full}) == len(full)


def test_printed_quotients_of_times_are_quotients_of_printed_times():
    _, printed = load_paper("partition")
    found = 0
    for (table, row, column), value in printed.items():
        if table == "4" and "/" in column:
            method, basic = column.split(" / ")
            quotient = printed["4", row, method].mean / printed["4", row, basic].mean
            assert value.mean == pytest.approx(quotient, rel=1e-3)
            found += 1
        if table == "5" and "/" in column:
            quotient = printed["5", row, "seconds"].mean / printed["5", "P = 50", "seconds"].mean
            assert value.mean == pytest.approx(quotient, rel=1e-3)
            found += 1
    assert found == 5 * 3 + 8


def test_quick_chen_reproduces_what_is_held_reproducible(tmp_path):
    paper, printed = load_paper("lrols")
    store = Store(tmp_path, "lrols", True)
    for table in paper.tables:
        cells = table.cells(True)
        assert not any(run_cells([(store, cells)]).values())
        found = outcome(table, cells, store, printed)
        missed = [line for line in found.lines if line.printed and not line.within]
        assert all(line.printed.reproducible != "yes" for line in missed), found.reasons
        assert all(line.n > 0 for line in found.lines)


def test_quick_chen_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["lrols", "--quick", "--table", "figure 1", "--report", "r.html"]) == 0
    assert "Figure 1" in capsys.readouterr().out
    assert (tmp_path / "r.html").stat().st_size > 10_000
    assert (tmp_path / "reproduce" / "lrols.jsonl").is_file()


def _needs(name):
    found = {entry.name: entry.path for entry in list_datasets()}[name]
    return pytest.mark.skipif(found is None, reason=f"the data set {name} is not on this machine")


@pytest.mark.parametrize("method", ["Forward", "Old RVM", "New RVM"])
@pytest.mark.parametrize("data", [pytest.param("Ozone", marks=_needs("ozone"))])
def test_errors_of_table_1_of_sun_are_within_one_sd(data, method):
    errors = [sun2006.measure(data, method, seed)["MSE"] for seed in range(5)]
    printed = load_paper("forward")[1]["1", data, f"{method} MSE"]
    assert abs(sum(errors) / len(errors) - printed.mean) <= printed.sd


def test_the_t_test_of_sun_is_paired_and_against_the_better_rvm():
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(0)
    level = rng.normal(10.0, 3.0, 20)  # splits differ far more than methods
    errors = {
        "Forward": level,
        "Old RVM": level + 0.3 + 0.3 * rng.standard_normal(20),
        "New RVM": level + 5.0,
    }
    results = {
        ("Ozone", method): [{"MSE": e, "seed": i} for i, e in enumerate(values)]
        for method, values in errors.items()
    }
    found = sun2006.paired_t_test(results)
    ((p,),) = found.values()
    assert list(found) == [("Ozone", "Forward and the better RVM, paired t-test p")]
    assert p == pytest.approx(ttest_1samp(errors["Old RVM"] - level, 0.0).pvalue)
    assert p < 0.01


@_needs("california")
def test_low_rank_forward_of_sun_is_as_good_on_california_as_noted():
    assert sun2006.scale("Forward", 1000, 0)["NMSE"] < 0.31


def test_ours_is_the_papers_rule_and_the_library_a_further_line():
    columns = {cell.column for cell in benshimon2006._cells(True)}
    assert columns == {*benshimon2006.METHODS, *benshimon2006.LIBRARY}
    for method in benshimon2006.SCHEDULES:
        assert benshimon2006.make("Sinc", method).stopping == "paper"
        library = benshimon2006.make("Sinc", f"{method}, library")
        assert (library.stopping, library.partition_size) == ("auto", "auto")
    _, printed = load_paper("partition")
    assert not any("library" in column for _, _, column in printed)


@pytest.mark.slow
def test_partitions_are_as_accurate_as_the_basic_rvm_on_sinc():
    basic = benshimon2006.measure("Sinc", "BasicRVM", 50, 0)
    for method in (*benshimon2006.SCHEDULES, *benshimon2006.LIBRARY):
        found = benshimon2006.measure("Sinc", method, 50, 0)
        assert found["RMSE"] < 1.1 * basic["RMSE"]


@pytest.mark.slow
@_needs("boston")
def test_the_courses_of_the_partition_paper_are_drawn(tmp_path):
    paper, printed = load_paper("partition")
    store = Store(tmp_path, "partition", True)
    for number in ("figure 1", "figure 2"):
        (table,) = paper.choose(number)
        cells = table.cells(True)
        assert not any(run_cells([(store, cells)]).values())
        found = outcome(table, cells, store, printed)
        assert found.verdict == "redrawn"
        left, right = table.figure(found.results).axes
        assert len(left.lines) == len(right.lines) == len(cells)
        for values in found.results.values():
            assert values[0]["vectors"][-1] < 60


def test_the_pages_say_what_their_tables_of_numbers_say(tmp_path, monkeypatch):
    """Nothing on them is typed in: they can be written again where no experiment was run."""
    folder = FOLDER.parent / "docs" / "papers"
    shutil.copytree(folder, tmp_path / "papers")
    monkeypatch.setattr(pages, "FOLDER", tmp_path / "papers")
    monkeypatch.setattr(command, "FOLDER", tmp_path / "papers")
    monkeypatch.chdir(tmp_path)
    assert main(["all", "--show", "--pages"]) == 0
    for path in [*folder.glob("*.md"), *folder.glob("*.csv")]:
        here, there = (  # without the digest of the present code, which each change moves
            re.sub(r"the digest `\w+`", "", " ".join(p.read_text("utf-8").split()))
            for p in (path, tmp_path / "papers" / path.name)
        )
        assert here == there, path.name


@pytest.mark.parametrize("name", PAPERS)
def test_a_page_is_short_and_shows_its_table_and_picture(name):
    folder = FOLDER.parent / "docs" / "papers"
    text = (folder / f"{name}.md").read_text("utf-8")
    assert len(text.splitlines()) < 100
    assert f"(images/{name}.png)" in text
    assert (folder / "images" / f"{name}.png").is_file()
    assert f"]({name}.csv)" in text
    assert "<<" not in text


def test_papers_use_public_names_of_the_library_only():
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
                assert not [name for name in names if name.startswith("sparsebayes.")], path.name
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparsebayes"):
                public = {*import_module(node.module).__all__, "__version__"}
                assert {alias.name for alias in node.names} <= public, path.name
                assert node.module in {"sparsebayes", "sparsebayes.datasets"}, path.name


def test_the_list_of_data_names_origin_and_folders(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSEBAYES_DATA", str(tmp_path))
    monkeypatch.setenv("SPARSEBAYES_CACHE", str(tmp_path / "cache"))
    assert main(["--list-data"]) == 0
    shown = capsys.readouterr().out
    assert "from: Harrison and Rubinfeld (1978)" in shown
    assert "not found: boston.csv" in shown
    assert str(tmp_path / "cache") in shown


def _shown(own, tried, expected):
    """Return a paper of one printed value, ours, and those of other settings."""
    printed = {("1", "set", "A"): Printed(1.0, None, expected, "", n=100)}
    numbers = {("1", "set", "A"): own}
    numbers |= {("settings", f"set: {name}", "A error"): value for name, value in tried.items()}
    known = {place: Measured(value, 0.1, 25, "old") for place, value in numbers.items()}
    rows = [("1", "set", "A"), *(("settings", f"set: {name}", "A") for name in tried)]

    def cells(number, quick):
        return [Cell(table, row, column, 0, dict) for table, row, column in rows if table == number]

    tables = (
        Table("1", "errors", partial(cells, "1"), value="error"),
        Table("settings", "other settings", partial(cells, "settings")),
    )
    targets = (("set", "A", {"error": ("1", "set", "A")}),)
    paper = Paper("lrols", "A paper", "", "", tables, targets=targets)
    store = Store("nowhere", "lrols", True)
    outcomes = [outcome(t, t.cells(False), store, printed, None, known) for t in tables]
    return Reproduced(paper, outcomes, False)


def test_settings_are_listed_with_the_closest_first():
    tried = {"wide": 2.0, "our setting": 1.4, "narrow": 1.01}
    shown = _shown(own=1.5, tried=tried, expected="yes")
    text = pages.tried_table(shown, "set", "A")
    order = [
        "printed | 1 |",
        "our setting | 1.5 | 25",
        "our setting, the splits of the lines below",
    ]
    order += ["narrow | 1.01 | 25", "wide | 2 | 25"]
    assert sorted(order, key=text.index) == order
    row = "| set | A | error 1 | error 1.5 | narrow | error 1.01 | 25 | 0 of 1, then 1 of 1 | 2 |"
    assert row in pages.settings_table(shown)
    shown = _shown(own=1.01, tried=tried, expected="yes")
    assert "All values" in pages.settings_table(shown)


def test_values_that_were_expected_to_agree_and_do_not_are_named():
    assert "errors: Table 1, set, A (+" in pages.missed_sentence(_shown(1.5, {}, "yes"))
    for own, expected in ((1.5, "no"), (1.01, "yes")):
        assert "Every value" in pages.missed_sentence(_shown(own, {}, expected))


def test_values_that_agree_are_counted_by_what_was_expected():
    shown = _shown(own=1.0, tried={}, expected="partly")
    assert "| Table 1 | errors | – | 1 of 1 | – |" in pages.verdict_table(shown)
    assert "| – | 1 of 1 | – |" in pages.overview([shown])
