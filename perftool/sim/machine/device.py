"""The device's timeline. Recipes run one after the other; within a recipe, the engines run in parallel. Copies and
collectives have their own lanes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from perftool.sim.machine.costs import Roofline, us
from perftool.sim.machine.graph import Kernel
from perftool.sim.machine.network import Collective
from perftool.sim.machine.recorder import Recorder


class DeviceQueue:
    """Runs submitted work in first-in, first-out order. All times are in nanoseconds."""

    def __init__(self, recorder: Recorder, speed: Roofline) -> None:
        self.free = 0
        self.copies_free = 0
        self.links_free = 0
        self._recorder = recorder
        self._speed = speed
        self._ends: deque[int] = deque()

    @property
    def done(self) -> int:
        """The end of all submitted work except copies."""
        return max(self.free, self.links_free)

    def run(self, kernels: Sequence[Kernel], recipe: int, name: str, submitted: int, after: int = 0) -> int:
        """Run a recipe that was enqueued at ``submitted`` and starts at ``after`` or later. Return the end of its last
        kernel."""
        costs = self._speed.costs
        ready = max(submitted, self.copies_free, after)
        begin = max(ready + us(costs.device_start_us), self.free + us(costs.device_recipe_gap_us))
        engine_free: dict[str, int] = {}
        ends: list[int] = []
        for kernel in kernels:
            inputs = max((ends[source] for source in kernel.after), default=begin)
            start = max(inputs, engine_free.get(kernel.engine, begin))
            ends.append(start + kernel.length)
            engine_free[kernel.engine] = ends[-1]
            self._recorder.kernel(kernel.engine, kernel.name, start, ends[-1], recipe, name, kernel.dtype)
        self.free = max([begin, *ends])
        self._ends.append(self.free)
        return self.free

    def in_flight(self, now: int) -> int:
        """Return the number of launched recipes that are not done at ``now``."""
        while self._ends and self._ends[0] <= now:
            self._ends.popleft()
        return len(self._ends)

    def collective(self, collective: Collective, ready: int, begin: int) -> int:
        """Run a collective and return its end. This card is ready at ``ready``, the last card at ``begin``."""
        self.links_free = begin + collective.length(self._speed.facts, self._speed.costs)
        self._recorder.collective(collective.kind, ready, self.links_free, collective.args)
        return self.links_free

    def download(self, begin: int) -> None:
        """Download the commands of a new recipe to the device, in parallel with everything else."""
        self._recorder.commands(begin, begin + us(self._speed.costs.copies_setup_us))

    def transfer(self, size: int, direction: str, ready: int) -> int:
        """Copy ``size`` bytes over PCIe, at ``ready`` or later, and return the end of the copy."""
        begin = max(ready, self.copies_free)
        self.copies_free = begin + self._speed.transfer_ns(size)
        self._recorder.transfer(direction, begin, self.copies_free)
        return self.copies_free
