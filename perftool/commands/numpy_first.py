"""Loads numpy with a single thread."""

from __future__ import annotations

import os

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy with a single linear algebra thread, unless the environment sets another number.

    On import, numpy's BLAS library would start a thread per core, and we do not use these threads. The environment is
    restored afterwards, so that child processes are not limited to one thread.
    """
    previous = os.environ.get(_THREADS)
    os.environ[_THREADS] = previous or "1"
    try:
        import numpy  # noqa: F401 - imported early, used later
    finally:
        if previous is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = previous
