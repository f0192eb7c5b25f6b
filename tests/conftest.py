"""One cluster for the tests of a module that ask for it; none of them waits for ever."""

import pytest

from tests.clusters import time_limit, two_workers


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
