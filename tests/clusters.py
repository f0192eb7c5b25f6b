"""A real cluster of two worker processes on this machine, and a limit to how long a test waits."""

from __future__ import annotations

import faulthandler
import signal
import threading
from contextlib import contextmanager

SECONDS = 120  # far more than any of these tests takes, also on a machine that is busy


@contextmanager
def two_workers(memory_limit="2GiB", **settings):
    """A client of a LocalCluster; `settings` are those of Dask, dots written as __."""
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
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def time_limit(seconds=SECONDS):
    """Fail with a sentence, and the stacks of all threads, what waits longer than this."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def too_late(number, frame):
        faulthandler.dump_traceback(all_threads=True)
        raise AssertionError(f"The cluster did not answer within {seconds} s: see the stacks.")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
