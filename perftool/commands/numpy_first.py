"""Loads numpy for a command."""

from __future__ import annotations

import os

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy with a single linear algebra thread, unless the environment sets another number.

    Otherwise its library starts a thread per core on import, and nothing here uses them. The environment is restored
    afterwards: programs started by a command, and Python code that imports ``perftool``, keep their threads.
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
