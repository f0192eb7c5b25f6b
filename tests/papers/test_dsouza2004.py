import numpy as np
import pytest

from papers import dsouza2004 as paper
from papers import load_paper
from papers.data import list_datasets
from papers.frame import Store, outcome, run_cells
from sparsebayes.datasets import make_sinc


@pytest.mark.parametrize("method", paper.METHODS)
def test_every_method_fits_the_sinc_function(method):
    values = paper.compare("Sinc", method, 0, quick=True)
    assert values["nMSE"] < 0.1
    assert (method == "GP") == ("vectors" not in values)


def test_quick_sinc_fills_every_printed_place_but_lwpr(tmp_path):
    chosen, printed = load_paper("backfitting")
    store = Store(tmp_path, "backfitting", True)
    for table in chosen.tables[1:]:
        cells = [cell for cell in table.cells(True) if cell.row == "Sinc" and cell.seed == 0]
        assert not any(run_cells([(store, cells)]).values())
        found = outcome(table, cells, store, printed)
        empty = {line.column for line in found.lines if line.row == "Sinc" and line.n == 0}
        assert empty == ({"LWPR"} if table.number == "2" else set())


def test_figure_3_shows_every_relevance_vector():
    values = paper.compare("Sinc", "bRVM", 0, quick=True)
    figure = paper.draw_sinc({("Sinc", "bRVM"): [values]})
    assert len(figure.axes[0].collections[-1].get_offsets()) == values["vectors"]


def test_vectors_of_the_fake_targets_are_those_whose_precision_is_not_huge():
    X, y = make_sinc(60, random_state=0)
    model = paper.make_model("bRVM", gamma=0.1).fit(X, y)
    Phi = np.exp(-0.1 * (X - model.relevance_vectors_.T) ** 2)
    Phi = Phi - model.basis_.centre  # of the intercept, where it is not held
    penalty = model.weight_precision_ * model.noise_variance_ / np.sum(Phi**2, axis=0)
    assert paper.relevant(model, X) == np.sum(penalty < 1e3) > 0


def test_the_stand_in_has_the_shape_of_the_recordings_and_the_error_of_the_baseline():
    X, muscles, true = paper.neurons(0)
    assert X.shape == (2400, 71)
    assert muscles.shape == (2400, 11)
    assert all(5 <= len(chosen) <= 20 for chosen in true)
    assert abs(paper.stand_in("baseline", 0)["nMSE"] - 0.84) < 0.02


def test_backfitting_finds_the_neurons_of_the_stand_in():
    values = paper.stand_in("Bayesian backfitting", 0, quick=True)
    assert values["neuron match"] > 85
    assert values["nMSE"] < 0.88


def test_a_fifth_of_the_rows_is_held_out_and_inputs_are_standardised():
    found = [entry.name for entry in list_datasets() if entry.path]
    if not {"boston", "abalone"} <= set(found):
        pytest.skip("The files of Boston and Abalone are not here.")
    for name, sizes in (("Boston", (405, 101, 13)), ("Abalone", (3342, 835, 10))):
        X, y, new, truth = paper.split(name, 3)
        assert (len(y), len(truth), X.shape[1]) == sizes
        assert new.shape == (sizes[1], sizes[2])
        np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(X.std(axis=0), 1.0)
