"""Time on the device by module of the model."""

from __future__ import annotations

from dataclasses import dataclass

# Separates the classes in a path, which go from the outermost module to the innermost.
INSIDE = " > "
NO_MODULE = "outside of modules"


@dataclass(frozen=True)
class ModuleTime:
    """The work of one place in the hierarchy of modules, on ``rank``; ``path`` and ``module`` are None for work outside
    modules, whose ``depth`` is 0.

    ``modules`` is the number of modules at the place (the layers of a model), which were called ``calls`` times.
    ``forward_ns`` and ``backward_ns`` include inner modules, ``own_ns`` does not. ``share`` is the share of
    ``forward_ns`` and ``backward_ns`` in the rank's work.
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
    """A part of a rank's work that an annotation, a module or an op names, and its share of the work.

    ``backward`` is true if the share includes the backward pass.
    """

    name: str
    share: float
    backward: bool = False


@dataclass(frozen=True, slots=True)
class OpLoop:
    """A loop of about ``length`` ops that runs ``times`` times in a step and takes ``share`` of the time.

    ``names`` lists its longest ops; it is None if the ops that run once per pass take little of the loop's time.
    """

    length: int
    times: float
    share: float
    names: str | None
