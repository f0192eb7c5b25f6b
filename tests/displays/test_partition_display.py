import matplotlib.pyplot as plt
import numpy as np
import pytest

from sparsebayes import PartitionedRVMRegressor, RVMRegressor
from sparsebayes.displays import PartitionDisplay


def test_curves_are_the_history_and_several_fits_share_the_axes():
    X = np.linspace(-5, 5, 90)[:, None]
    y = np.sinc(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(90)
    ax = None
    for number, schedule in enumerate(("working-set", "split-merge"), start=1):
        model = PartitionedRVMRegressor(
            "rbf", gamma="scale", partition_size=30, schedule=schedule
        ).fit(X, y)
        display = PartitionDisplay.from_estimator(model, ax=ax)
        ax = display.ax_
        assert display.error_line_.get_label() == schedule
        np.testing.assert_array_equal(display.error_line_.get_ydata(), model.history_["rmse"])
        np.testing.assert_array_equal(display.active_line_.get_xdata(), model.history_["elapsed"])
        assert [len(a.lines) for a in ax] == [number, number]
    plt.close(display.figure_)


def test_a_model_without_runs_is_refused():
    X = np.linspace(-5, 5, 30)[:, None]
    with pytest.raises(ValueError, match="has no runs over time"):
        PartitionDisplay.from_estimator(RVMRegressor("rbf", gamma="scale").fit(X, X[:, 0]))
