"""What all tests share: one cluster for those that ask for it, and which checks are slow."""

import pytest
from sklearn.base import is_classifier

from tests.clusters import time_limit, two_workers

# The checks of scikit-learn's contract whose outcome depends most on the settings of an estimator.
# The others are mainly about names, types, containers of rows and weights, and error messages: code
# that runs before the settings matter. They run on the first settings of each estimator, and with
# `-m slow` on all of them.
CHECKS_OF_SETTINGS = {
    "check_class_weight_classifiers",
    "check_classifiers_one_label",
    "check_classifiers_train",
    "check_estimators_pickle",
    "check_fit2d_1sample",
    "check_methods_subset_invariance",
    "check_regressor_multioutput",
    "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
}


def _name_and_keywords(check):
    """The name of a check of scikit-learn, which may be a partial, and its keywords."""
    function = getattr(check, "func", check)
    return function.__name__, getattr(check, "keywords", {})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    first = {}
    for item in items:
        if getattr(item, "originalname", "") != "test_scikit_learn_contract":
            continue
        estimator, check = (item.callspec.params[name] for name in ("estimator", "check"))
        settings = repr(estimator)
        if first.setdefault((type(estimator), is_classifier(estimator)), settings) == settings:
            continue
        name, keywords = _name_and_keywords(check)
        if name not in CHECKS_OF_SETTINGS or keywords.get("readonly_memmap"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def client():
    """A client of two worker processes."""
    cluster = two_workers()
    with time_limit():
        client = cluster.__enter__()
    yield client
    with time_limit():
        cluster.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def _limited(request):
    if "client" not in request.fixturenames:
        yield
        return
    with time_limit():
        yield
