"""A sparse X, such as OneHotEncoder gives, means the same as the dense one."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_matrix, random_array
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sparsebayes import (
    BackfittingRegressor,
    BayesianGroupLassoRegressor,
    ForwardRegressor,
    GroupARDRegressor,
    GroupHorseshoeRegressor,
    GroupSpikeSlabClassifier,
    GroupSpikeSlabRegressor,
    OrthogonalLeastSquaresRegressor,
    PartitionedRVMClassifier,
    PartitionedRVMRegressor,
    RVMClassifier,
    RVMRegressor,
)

REGRESSORS = [
    BackfittingRegressor("rbf"),
    BayesianGroupLassoRegressor(n_chains=1, n_samples=20, n_warmup=20),
    ForwardRegressor("rbf", gamma="scale"),
    ForwardRegressor(None),
    GroupARDRegressor(),
    GroupHorseshoeRegressor(n_chains=1, n_samples=20, n_warmup=20),
    GroupSpikeSlabRegressor(),
    OrthogonalLeastSquaresRegressor(),
    PartitionedRVMRegressor("rbf", gamma="scale"),
    RVMRegressor("rbf", gamma="scale"),
    RVMRegressor(None),
]
CLASSIFIERS = [
    GroupSpikeSlabClassifier(),
    PartitionedRVMClassifier("rbf", gamma="scale"),
    RVMClassifier("rbf", gamma="scale"),
]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = random_array((60, 6), density=0.4, rng=rng, format="csr")
    dense = X.toarray()
    return X, dense[:, 0] - dense[:, 1] + 0.1 * rng.standard_normal(60)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_regressors_fit_sparse_rows_as_dense_ones(model, data):
    X, y = data
    dense = model.fit(X.toarray(), y).predict(X.toarray(), return_std=True)
    sparse = model.fit(csc_array(X), y).predict(csr_matrix(X), return_std=True)
    np.testing.assert_allclose(sparse, dense, rtol=1e-10)
    if hasattr(model, "sample_y"):
        np.testing.assert_allclose(model.sample_y(X[:5]), model.sample_y(X[:5].toarray()))


@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_classifiers_fit_sparse_rows_as_dense_ones(model, data):
    X, y = data
    dense = model.fit(X.toarray(), y > 0).predict_proba(X.toarray())
    sparse = model.fit(csc_array(X), y > 0).predict_proba(csr_matrix(X))
    np.testing.assert_allclose(sparse, dense, rtol=1e-10)


def test_one_hot_columns_go_straight_into_a_kernel_model():
    kinds = np.random.default_rng(0).choice(["a", "b", "c"], (60, 1))
    y = (kinds[:, 0] == "a") + 0.01 * np.random.default_rng(1).standard_normal(60)
    assert (
        make_pipeline(OneHotEncoder(), RVMRegressor("rbf", gamma="scale"))
        .fit(kinds, y)
        .score(kinds, y)
        > 0.99
    )


def test_rows_too_many_to_be_made_dense_are_a_sentence_that_says_what_to_do(data):
    X, y = data
    with pytest.raises(
        ValueError, match=r"60 x 6 has to be converted.*more than cache_size=0\.001 MB"
    ):
        RVMRegressor("rbf", gamma="scale", cache_size=0.001).fit(X, y)
    wide = random_array((60, 10**6), density=1e-6, rng=0, format="csr")
    with pytest.raises(ValueError, match=r"480 MB, more than 200 MB. Reduce X first"):
        PartitionedRVMRegressor("rbf", gamma="scale").fit(wide, y)
