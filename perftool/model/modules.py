"""Device time by module of the model."""

from __future__ import annotations

from dataclasses import dataclass

# Separates the module classes in a path, which starts with the outermost module.
INSIDE = " > "
NO_MODULE = "outside of modules"


@dataclass(frozen=True)
class ModuleTime:
    """The work at one place in the module hierarchy, on ``rank``. For work outside modules, ``path`` and ``module`` are
    None and ``depth`` is 0.

    ``modules`` is the number of modules at this place (such as the layers of a model), with ``calls`` calls in total.
    ``forward_ns`` and ``backward_ns`` include submodules; ``own_ns`` does not. ``share`` is the sum of ``forward_ns``
    and ``backward_ns`` as a share of the rank's work.
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
    """A part of a rank's work, named after an annotation, a module or an op. ``share`` is its share of the work.

    ``backward`` is true if the share includes the backward pass.
    """

    name: str
    share: float
    backward: bool = False


@dataclass(frozen=True, slots=True)
class OpLoop:
    """A loop of about ``length`` ops that runs ``times`` times per step and takes ``share`` of the time.

    ``names`` lists the longest of the ops that run once per pass of the loop. It is None if these ops account for
    little of the time.
    """

    length: int
    times: float
    share: float
    names: str | None
