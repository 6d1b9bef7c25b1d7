"""Time on the device by module of the model."""

from __future__ import annotations

from dataclasses import dataclass

# Between the classes of a path, from the outermost module to the innermost.
INSIDE = " > "
NO_MODULE = "outside of modules"


@dataclass(frozen=True)
class ModuleTime:
    """The work of one place in the hierarchy of modules, on ``rank``; ``path`` and ``module`` are None for work outside
    modules, whose ``depth`` is 0.

    ``modules`` share the place (the layers of a model) and were called ``calls`` times. ``forward_ns`` and
    ``backward_ns`` include the modules inside them, ``own_ns`` does not. ``share`` is that of both in the rank's work.
    """

    rank: int
    path: str | None
    module: str | None
    depth: int
    modules: int
    calls: int
    forward_ns: int
    backward_ns: int
    own_ns: int
    share: float


@dataclass(frozen=True)
class Part:
    """A part of the work of a rank that the program names, and its share of that work."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class OpLoop:
    """A loop of about ``length`` ops that runs ``times`` in a step, for ``share`` of the time.

    ``names`` lists its longest ops; it is None if the ops that run once in the loop take little of it.
    """

    length: int
    times: float
    share: float
    names: str | None
