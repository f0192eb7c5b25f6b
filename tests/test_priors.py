import numpy as np
import pytest

from sparsebayes.priors import fit_slab, group_index


def test_slab_fit_is_the_dense_formula():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((5, 3, 3))
    B, r, v0 = A @ A.swapaxes(1, 2), rng.standard_normal((5, 3)), rng.uniform(0.1, 10, 5)
    fit = fit_slab(B, r, v0)
    for g in range(5):
        Sigma = np.linalg.inv(B[g] + np.eye(3) / v0[g])
        want = -0.5 * np.linalg.slogdet(np.eye(3) + v0[g] * B[g])[1] + 0.5 * r[g] @ Sigma @ r[g]
        assert fit.log_bayes_factor[g] == pytest.approx(want, abs=1e-12)
        np.testing.assert_allclose(fit.mean[g], Sigma @ r[g], rtol=1e-10)
        moment = np.trace(Sigma) + np.sum((Sigma @ r[g]) ** 2)
        assert fit.second_moment()[g] == pytest.approx(moment)


def test_no_data_leaves_the_odds_alone():
    fit = fit_slab(np.zeros((1, 2, 2)), np.zeros((1, 2)), np.array([3.0]))
    assert fit.log_bayes_factor[0] == pytest.approx(0.0, abs=1e-15)


def test_labels_lists_and_nothing_name_the_same_groups():
    labels, names = group_index(["b", "a", "b", "c"], 4)
    np.testing.assert_array_equal(names[labels], ["b", "a", "b", "c"])
    lists, numbers = group_index([[1], np.array([0, 2]), range(3, 4)], 4)
    np.testing.assert_array_equal(lists, [1, 0, 1, 2])
    np.testing.assert_array_equal(numbers, [0, 1, 2])
    np.testing.assert_array_equal(group_index(None, 3)[0], [0, 1, 2])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 0, 1], "3 labels, but X has 4 columns"),
        ([[0, 1], [1, 2, 3]], r"groups\[1\] contains column 1, which is already"),
        ([[0, 1, 1], [2, 3]], r"groups\[0\] contains column 1 twice"),
        ([[0, 1], [2]], "omits 1 of 4 columns .the first is column 3."),
        ([[0, 1], [2, 3, 4]], "contains column 4, but X has columns 0 to 3"),
        ([[0, 1], [], [2, 3]], r"groups\[1\] must be a non-empty list"),
        ([[0.5, 1], [2, 3]], r"groups\[0\] must be a non-empty list"),
        ("abcd", "one label per column"),
        (3, "one label per column"),
    ],
)
def test_wrong_groups_are_told_in_a_sentence(groups, message):
    with pytest.raises(ValueError, match=message):
        group_index(groups, 4)
