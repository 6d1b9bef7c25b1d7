"""numpy as a command loads it."""

from __future__ import annotations

import os

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy with one thread for its linear algebra, unless the environment names another number.

    Its library starts a thread for each core when it is loaded, and nothing here uses them. The environment is the same
    afterwards: programs that a command starts have their threads, and so does who imports ``perftool`` in Python.
    """
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = given or "1"
    try:
        import numpy  # noqa: F401 - for those who use it later
    finally:
        if given is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = given
