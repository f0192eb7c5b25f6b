import pickle

import pytest

from sparsebayes.cli import main
from sparsebayes.experiments import PAPERS, load_paper
from sparsebayes.experiments._frame import Store, outcome, run_cells


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


def test_quick_chen_reproduces_what_is_held_reproducible(tmp_path):
    paper, printed = load_paper("lrols")
    store = Store(tmp_path, "lrols", True)
    for table in paper.tables:
        cells = table.cells(True)
        assert run_cells(cells, store) == {}
        found = outcome(table, cells, store, printed)
        missed = [line for line in found.lines if line.printed and not line.within]
        assert all(line.printed.reproducible != "yes" for line in missed), found.reasons
        assert all(line.n > 0 for line in found.lines)


def test_quick_chen_on_the_command_line(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "lrols", "--quick", "--table", "figure 1", "--report", "r.html"]) == 0
    assert "Figure 1" in capsys.readouterr().out
    assert (tmp_path / "r.html").stat().st_size > 10_000
    assert (tmp_path / "reproduce" / "lrols.jsonl").is_file()
