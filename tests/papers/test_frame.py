import gzip
import json
from functools import partial

import numpy as np
import pytest

from papers import __main__ as command
from papers import frame, kept
from papers.__main__ import main
from papers.frame import (
    Cell,
    Line,
    Paper,
    Printed,
    Store,
    Table,
    code_digest,
    measured_csv,
    outcome,
    read_measured,
    read_printed,
    run_cells,
)
from papers.show import Reproduced, as_text

LOG = []  # cells that were run, in this process


def measure(row, seed, size=1.0):
    LOG.append((row, seed))
    if row == "broken":
        raise FileNotFoundError("The data file x.csv was not found.")
    noise = np.random.default_rng(seed).standard_normal()
    return {"error": 10.0 + noise, "terms": 5 * size, "path": [1.0, 2.0]}


def cells(rows, quick):
    return [
        Cell("1", row, "A", seed, partial(measure, row, seed))
        for row in rows
        for seed in range(2 if quick else 4)
    ]


def draw(results):
    from papers.figures import make_figure

    figure, ax = make_figure()
    ax.plot(results[("easy", "A")][0]["path"])
    return figure


def paper(*rows):
    return Paper(
        "fake",
        "A fake paper",
        "Nobody, 1999",
        "How it was done.",
        (
            Table("1", "errors", partial(cells, rows), value="error"),
            Table("2", "everything", partial(cells, rows)),
            Table("figure 1", "a path", partial(cells, rows), figure=draw, value="nothing"),
        ),
    )


CSV = """table,row,column,mean,sd,reproducible,note
1,easy,A,10.1,2.0,yes,
1,hard,A,99,1.0,no,Nobody knows the data.
2,easy,A terms,5,,yes,
"""
PRINTED = read_printed(CSV.splitlines())


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """The fake paper in place of the real ones, and an empty folder as the current one."""
    LOG.clear()
    monkeypatch.setattr(command, "PAPERS", {"fake": "fake1999"})
    monkeypatch.setattr(command, "load_paper", lambda name: (paper("easy", "hard"), PRINTED))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_cells_are_run_once_and_a_second_run_reads_them(fake, capsys):
    assert main(["fake"]) == 0
    first = capsys.readouterr().out
    assert len(LOG) == 8  # three tables share them
    assert main(["fake"]) == 0
    assert len(LOG) == 8
    assert capsys.readouterr().out == first


def test_an_interrupted_run_goes_on_where_it_was(fake, monkeypatch):
    chosen = paper("easy", "hard").tables[0].cells(False)
    store = Store("reproduce", "fake", False)
    run_cells([(store, chosen[:3])])
    path = fake / "reproduce" / "fake.jsonl"
    path.write_text(path.read_text() + '{"paper": "fake", "ta')  # killed while it wrote
    assert main(["fake"]) == 0
    assert len(LOG) == 8
    assert len([line for line in path.read_text().splitlines() if line.endswith("}")]) == 8
    assert Store("reproduce", "fake", False).get(chosen[-1])


def test_a_deleted_result_is_measured_again_and_is_the_same(fake, capsys):
    main(["fake"])
    first = capsys.readouterr().out
    path = fake / "reproduce" / "fake.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2] + lines[3:]))
    main(["fake"])
    assert LOG[8:] == [("easy", 1)]
    assert capsys.readouterr().out == first
    values = [json.loads(line)["values"] for line in path.read_text().splitlines()]
    assert json.loads(lines[2])["values"] == values[-1]


def test_results_of_a_quick_run_or_of_another_version_do_not_count(fake, monkeypatch):
    main(["fake", "--quick"])
    assert len(LOG) == 4
    main(["fake"])
    assert len(LOG) == 12
    monkeypatch.setattr("papers.frame.__version__", "99")
    main(["fake"])
    assert len(LOG) == 20


def test_show_runs_nothing_and_says_what_was_not_run(fake, capsys):
    assert main(["fake", "--show"]) == 0
    assert LOG == []
    assert "-> not run" in capsys.readouterr().out


def test_lower_seeds_come_first_and_a_run_can_be_limited_in_time(fake):
    main(["fake", "--minutes", "0"])
    assert LOG == []
    main(["fake"])
    assert [seed for _, seed in LOG] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_cells_that_took_long_before_come_first_among_the_repetitions_of_one_stage(fake):
    main(["fake"])
    path = fake / "reproduce" / "fake.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    for line in lines:
        line["seconds"] = 9.0 if line["row"] == "hard" else 1.0
        line["code"] = "changed"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    LOG.clear()
    main(["fake"])
    stages = ([0], [1, 2], [3])
    assert LOG == [(row, i) for seeds in stages for row in ("hard", "easy") for i in seeds]


def test_recorded_numbers_of_rows_that_are_no_longer_measured_are_dropped(fake):
    table = paper("easy").tables[0]
    known = {("1", "gone", "A"): frame.Measured(77.0, 1.0, 9, "old")}
    found = outcome(table, table.cells(False), Store("no", "fake", False), {}, None, known)
    assert found.lines == []


def test_verdicts_say_reproduced_only_where_every_printed_figure_is_within_two_errors(fake):
    store = Store("reproduce", "fake", True)

    def verdict(number, printed):
        table = next(t for t in paper("easy", "hard").tables if t.number == number)
        run_cells([(store, table.cells(True))])
        return outcome(table, table.cells(True), store, printed)

    found = verdict("1", PRINTED)
    assert found.verdict == "reproduced where it can be"
    assert found.counts == (
        "two standard errors: 1 of 1 expected to be reproducible, 1 of 2 in all; "
        "one standard deviation: 1 of 1 expected to be reproducible, 1 of 2 in all"
    )
    assert "Outside: hard A. Nobody knows the data." in found.reasons
    assert verdict("2", PRINTED).verdict == "reproduced"
    assert verdict("figure 1", PRINTED).verdict == "redrawn"
    wrong = {("1", "easy", "A"): Printed(50.0, 1.0, "yes", "")}
    found = verdict("1", wrong)
    assert found.verdict == "not reproduced"
    assert any("Expected to be reproducible, and not" in reason for reason in found.reasons)
    hard = {("1", "hard", "A"): Printed(99.0, 1.0, "partly", "Half known.")}
    assert verdict("1", PRINTED | hard).verdict == "partly"
    missing = {("1", "nowhere", "A"): Printed(50.0, 1.0, "yes", "")}
    assert verdict("1", missing).verdict == "not run"
    found = verdict("2", PRINTED | {("2", "nowhere", "A"): Printed(50.0, 1.0, "yes", "")})
    assert found.verdict == "partly"  # what was not measured is not reproduced
    assert "Not measured: nowhere A." in found.reasons


def test_derived_numbers_are_compared_too(fake):
    def twice(results):
        return {("easy", "twice"): [2 * v["terms"] + v["seed"] for v in results["easy", "A"]]}

    table = Table("3", "more", partial(cells, ["easy"]), value="error", derive=twice)
    store = Store("reproduce", "fake", False)
    run_cells([(store, table.cells(False))])
    printed = {("3", "easy", "twice"): Printed(11.5, 1.0, "yes", "")}
    found = outcome(table, table.cells(False), store, printed)
    assert [line.mean for line in found.lines if line.column == "twice"] == [11.5]
    assert found.verdict == "reproduced"


def test_a_difference_is_in_the_papers_sd_and_else_in_ours(fake):
    table = paper("easy").tables[0]
    store = Store("reproduce", "fake", False)
    run_cells([(store, table.cells(False))])
    measured = [10.0 + np.random.default_rng(s).standard_normal() for s in range(4)]
    for sd, scale in [(2.0, 2.0), (None, np.std(measured, ddof=1))]:
        printed = {("1", "easy", "A"): Printed(11.0, sd, "yes", "")}
        (line,) = outcome(table, table.cells(False), store, printed).lines
        assert line.difference == pytest.approx((np.mean(measured) - 11.0) / scale)
    once = outcome(table, table.cells(False)[:1], store, printed).lines[0]
    assert np.isnan(once.difference)  # one repetition has no spread to measure with
    assert not once.within


def test_standard_errors_are_those_of_the_difference_of_the_two_means():
    printed = Printed(11.0, 2.0, "yes", "", n=25)
    line = Line("easy", "A", 10.0, 2.0, 100, printed)
    assert line.errors == pytest.approx(-1.0 / np.sqrt(2.0**2 / 25 + 2.0**2 / 100))
    assert line.within
    assert not line.agrees
    # As many as ours, and with our spread, where the paper does not say.
    line = Line("easy", "A", 10.0, 3.0, 100, Printed(11.0, None, "yes", ""))
    assert line.errors == pytest.approx(-1.0 / np.sqrt(2 * 3.0**2 / 100))
    # A paper that shows one draw can be a standard deviation away.
    line = Line("easy", "A", 10.0, 1.0, 100, Printed(11.5, None, "yes", "", n=1))
    assert line.agrees
    once = Line("easy", "A", 10.0, 0.0, 1, printed)  # one repetition has no deviation of its own
    assert once.errors == pytest.approx(-1.0 / np.sqrt(2.0**2 / 25 + 2.0**2))
    assert np.isnan(
        Line("easy", "A", 10.0, 0.0, 1, Printed(11.0, None, "yes", "", unit=1.0)).errors
    )
    assert not line.within
    assert Line("easy", "A", 11.0, 0.0, 9, printed).agrees
    assert not Line("easy", "A", 10.0, 0.0, 9, Printed(11.0, None, "yes", "")).agrees


def test_the_rounding_of_a_printed_value_is_part_of_the_standard_error():
    head = "table,row,column,mean,sd,reproducible,note,n"
    (printed,) = read_printed([head, "1,sinc,A,.011,.002,yes,,100"]).values()
    assert printed.unit == pytest.approx(0.001)
    line = Line("sinc", "A", 0.0102, 0.002, 100, printed)
    assert line.errors == pytest.approx(-0.0008 / np.sqrt(2 * 0.002**2 / 100 + 0.001**2 / 12))
    assert line.agrees


def test_lines_of_other_code_do_not_count(fake, monkeypatch):
    main(["fake", "--table", "1"])
    path = fake / "reproduce" / "fake.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["code"] for line in lines} == {code_digest("fake")}
    monkeypatch.setattr(frame, "code_digest", lambda paper: "changed")
    main(["fake", "--table", "1"])
    assert len(LOG) == 16


def test_lines_of_other_code_are_carried_over_where_the_first_repetition_is_the_same(
    fake, monkeypatch, capsys
):
    main(["fake", "--table", "1"])
    before = code_digest("fake")
    path = fake / "reproduce" / "fake.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if (line["row"], line["seed"]) == ("hard", 0):
            line["values"]["error"] += 1e-3
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(frame, "code_digest", lambda paper: "changed")
    LOG.clear()
    main(["fake", "--table", "1", "--carry-over"])
    assert sorted(LOG) == [("easy", 0), ("hard", 0)]  # the longer one first
    assert "1 of 2 lines of other code have the same values again" in capsys.readouterr().out
    store = Store("reproduce", "fake", False)
    chosen = paper("easy", "hard").tables[0].cells(False)
    done = {cell.key[1:4:2]: store.get(cell) for cell in chosen}
    assert all(done["easy", seed]["code"] == "changed" for seed in range(4))
    assert [done["easy", seed].get("carried") for seed in range(4)] == [None, *3 * [before]]
    assert [done["hard", seed] is None for seed in range(4)] == [False, True, True, True]
    main(["fake", "--table", "1"])  # only what was not carried over is run
    assert LOG[2:] == [("hard", 1), ("hard", 2), ("hard", 3)]


def test_lines_of_other_code_are_shown_where_there_are_none_of_this(fake, monkeypatch, capsys):
    main(["fake", "--table", "1"])
    before = code_digest("fake")
    capsys.readouterr()
    monkeypatch.setattr(frame, "code_digest", lambda paper: "changed")
    LOG.clear()
    main(["fake", "--table", "1", "--show"])
    assert f"Made by other code than this (changed): 2 of 2 lines ({before})." in (
        capsys.readouterr().out
    )
    store = Store("reproduce", "fake", False)
    chosen = paper("easy", "hard").tables[0].cells(False)
    run_cells([(store, [c for c in chosen if c.key[1:4:2] == ("easy", 0)])])
    main(["fake", "--table", "1", "--show"])  # of a line with both, only the present code
    out = capsys.readouterr().out
    assert f"1 of 2 lines ({before})" in out
    assert "Not complete: 5 of 8 cells" in out


def test_recorded_numbers_fill_lines_that_were_not_run(fake):
    table = paper("easy", "hard").tables[0]
    store = Store("reproduce", "fake", False)
    run_cells([(store, [c for c in table.cells(False) if c.row == "easy"])])
    known = {
        ("1", "easy", "A"): frame.Measured(77.0, 1.0, 3, "old"),
        ("1", "hard", "A"): frame.Measured(77.0, 1.0, 9, "old"),
    }
    found = outcome(table, table.cells(False), store, PRINTED, None, known)
    assert {line.row: line.code for line in found.lines} == {"easy": store.code, "hard": "old"}
    (fake / "fake.csv").write_text(measured_csv(known, [found], PRINTED))
    again = read_measured(fake / "fake.csv")
    assert again["1", "hard", "A"] == known["1", "hard", "A"]
    assert again["1", "easy", "A"].n == 4


def test_cells_kept_in_the_repository_serve_a_fresh_clone(fake, monkeypatch, capsys):
    monkeypatch.setattr(kept, "FOLDER", fake / "cells")
    main(["fake", "--keep"])
    before = capsys.readouterr().out
    (fake / "reproduce" / "fake.jsonl").unlink()
    LOG.clear()
    main(["fake"])
    assert LOG == []
    assert capsys.readouterr().out == before
    for line in (fake / "cells" / "fake.jsonl").read_text().splitlines():
        values = json.loads(line)["values"]
        assert values["path"] == [[1, 2], None, None, None]  # for a figure: one will do
        assert values["error"][1] == pytest.approx(10 + np.random.default_rng(1).standard_normal())
    monkeypatch.setattr(frame, "code_digest", lambda paper: "changed")
    main(["fake", "--carry-over"])
    assert sorted(LOG) == [("easy", 0), ("hard", 0)]  # the longer one first
    assert main(["fake", "--keep", "--quick"]) == 2


def test_results_of_another_machine_are_merged(fake, capsys):
    main(["fake"])
    path = fake / "reproduce" / "fake.jsonl"
    (fake / "there.gz").write_bytes(gzip.compress(b'{"paper": "other"}\n' + path.read_bytes()))
    path.unlink()
    LOG.clear()
    main(["fake", "--merge", "there.gz"])
    assert "fake: 8 of 9 lines merged" in capsys.readouterr().out
    assert LOG == []
    assert len(path.read_text().splitlines()) == 8
    assert main(["fake", "--merge", "nowhere.gz"]) == 2


def test_every_line_comes_before_more_repetitions_and_searches_are_a_stage_behind(fake):
    def cell(table, row, seed):
        return Cell(table, row, "", seed, partial(measure, f"{table} {row}", seed))

    store = Store("reproduce", "fake", False)
    for row, seconds in (("long", 7.0), ("short", 1.0)):
        store.add(cell("1", row, 99), {}, seconds)
    chosen = [cell("settings", "new", seed) for seed in (0, 1)]
    chosen += [cell("1", row, seed) for row in ("short", "long") for seed in (21, 3, 1, 0)]
    run_cells([(store, chosen)])
    assert LOG == [
        *(("1 long", 0), ("1 short", 0), ("settings new", 0), ("1 long", 1), ("1 short", 1)),
        *(("1 long", 3), ("1 short", 3), ("settings new", 1), ("1 short", 21), ("1 long", 21)),
    ]


def test_a_cell_that_would_not_be_done_in_time_is_not_started(fake):
    store = Store("reproduce", "fake", False)
    slow, fast = (paper(row).tables[0].cells(False) for row in ("easy", "hard"))
    store.add(slow[0], {}, 100.0)
    store.add(fast[0], {}, 0.01)
    run_cells([(store, slow + fast)], minutes=1.0)
    assert LOG == [("hard", 1), ("hard", 2), ("hard", 3)]


def test_a_failed_cell_is_shown_costs_no_other_and_is_tried_again(fake, monkeypatch, capsys):
    monkeypatch.setattr(command, "load_paper", lambda name: (paper("broken", "easy"), PRINTED))
    assert main(["fake", "--table", "1", "--quick"]) == 1
    out = capsys.readouterr().out
    assert "A cell failed: broken A, repetition 0: FileNotFoundError: The data file x.csv" in out
    assert "Not complete: 2 of 4 cells were run." in out
    LOG.clear()
    main(["fake", "--table", "1", "--quick"])
    assert LOG == [("broken", 0), ("broken", 1)]


def test_two_jobs_give_the_same_values(fake):
    chosen = paper("easy").tables[0].cells(False)
    here, there = Store("here", "fake", False), Store("there", "fake", False)
    run_cells([(here, chosen)])
    run_cells([(there, chosen)], jobs=2)
    assert [here.get(c)["values"] for c in chosen] == [there.get(c)["values"] for c in chosen]


def test_the_report_is_one_file_with_figures_and_protocol(fake):
    assert main(["fake", "--quick", "--report", "r.html"]) == 0
    page = (fake / "r.html").read_text()
    assert "How it was done." in page
    assert "<svg" in page
    assert "http" not in page
    assert "--quick" in page


def test_the_text_has_the_paper_beside_ours(fake):
    store = Store("reproduce", "fake", True)
    tables = paper("easy", "hard").tables
    run_cells([(store, tables[0].cells(True))])
    outcomes = [outcome(t, t.cells(True), store, PRINTED) for t in tables]
    shown = Reproduced(paper("easy", "hard"), outcomes, True)
    text = as_text(shown)
    assert "10.1 ± 2" in text
    assert "Nobody knows the data." in text
    assert "How it was done." in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "There is no paper 'nothing'; choose from "),
        (["lrols", "--table", "9"], "has no table '9': it has '1', '2', '3', 'figure 1'."),
        (["all", "--table", "1"], "--table chooses a table of one paper"),
        (["lrols", "--data", "nowhere"], "There is no folder nowhere to read data sets from."),
        (["lrols", "--report", "no/r.html"], "There is no folder no to write"),
    ],
)
def test_mistakes_are_refused_in_a_sentence(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_printed_values_are_refused_where_they_cannot_be_meant():
    with pytest.raises(ValueError, match="Line 2: reproducible must be yes, partly or no"):
        read_printed(CSV.replace("yes", "perhaps").splitlines())
    with pytest.raises(ValueError, match="Line 5: .* is listed twice"):
        read_printed((CSV + "1,easy,A,1,,no,\n").splitlines())
