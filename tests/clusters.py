"""A real cluster of two worker processes on this machine."""

from __future__ import annotations

from contextlib import contextmanager

import pytest


@contextmanager
def two_workers(memory_limit="2GiB", **settings):
    """A client of a LocalCluster; `settings` are those of Dask, dots written as __."""
    pytest.importorskip("distributed")
    import dask
    from distributed import Client, LocalCluster

    values = {name.replace("__", "."): value for name, value in settings.items()}
    with (
        dask.config.set(values),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit=memory_limit,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
