"""Python imports this module when it starts, because ``habana_perf_tool record`` put its folder on the path. A program
may start any other version of Python, so this file uses only what all versions understand. The system's own
``sitecustomize`` still runs.
"""

import os
import sys

if sys.version_info >= (3, 7):  # noqa: UP036
    import perftool_hook  # type: ignore[import-not-found] # noqa: F401

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [place for place in sys.path if place != _HERE]
# The next import finds the module that this one hides, and that module replaces this one. Python does not mind if there
# is no such module.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found] # noqa: E402, F401
