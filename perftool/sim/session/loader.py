"""Simulates data loaders: fetching data takes virtual time, in worker processes in parallel with the training thread.

A worker measures the virtual cost of each batch in its own process and sends it with the batch. The parent computes
when a real worker would have finished the batch, and waits until then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import dataloader

from perftool.sim.machine.costs import ms
from perftool.sim.ops.op_work import Call, tensors
from perftool.sim.patches import attribute
from perftool.sim.session.simulation import Simulation

_current: list[Simulation] = []


@dataclass(frozen=True)
class CostedBatch:
    """A batch from a worker, with its cost in nanoseconds."""

    data: Any
    cost: int


class MeteredFetcher:
    """Fetches batches; in a worker process, returns each batch with its cost."""

    def __init__(self, plain: Any, simulation: Simulation) -> None:
        self._plain = plain
        self._simulation = simulation

    def fetch(self, index: Any) -> Any:
        """Fetch a batch; in a worker, return it with its cost."""
        begin = self._simulation.machine.now
        data = self._plain.fetch(index)
        if os.getpid() == self._simulation.owner:
            return data
        return CostedBatch(data, self._simulation.machine.now - begin)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


@dataclass
class WorkerClocks:
    """The times when each worker of a loader is free, and when each batch was requested."""

    free: list[int]
    requested: dict[int, int] = field(default_factory=dict)

    def ready(self, batch: int, worker: int, cost: int) -> int:
        """Return when ``worker`` finishes ``batch``. Call this method for the batches of a worker in order."""
        begin = max(self.requested.pop(batch, 0), self.free[worker])
        self.free[worker] = begin + cost
        return self.free[worker]


@contextmanager
def metered_loaders(simulation: Simulation) -> Iterator[None]:
    """Within the block, new data loaders take virtual time."""
    base, several = dataloader._BaseDataLoaderIter, dataloader._MultiProcessingDataLoaderIter
    with ExitStack() as stack:
        patches = (
            (dataloader._DatasetKind, "create_fetcher", _create_fetcher(simulation)),
            (base, "__init__", _open()),
            (base, "__next__", _next(simulation)),
            (several, "__init__", _start(simulation)),
            (several, "_try_put_index", _ask(simulation)),
            (several, "_get_data", _unpack(simulation)),
            (several, "_process_data", _receive(simulation)),
        )
        for owner, name, value in patches:
            stack.enter_context(attribute(owner, name, value))
        _current.append(simulation)
        stack.callback(_current.pop)
        yield


def _after_fork() -> None:
    """In a child process, count only host work: it has no device and writes no trace."""
    for simulation in _current:
        simulation.become_worker()


os.register_at_fork(after_in_child=_after_fork)


def _create_fetcher(simulation: Simulation) -> Any:
    plain = dataloader._DatasetKind.create_fetcher

    def create_fetcher(*args: Any, **kwargs: Any) -> MeteredFetcher:
        return MeteredFetcher(plain(*args, **kwargs), simulation)  # type: ignore[no-untyped-call]

    return staticmethod(create_fetcher)


def _open() -> Callable[..., None]:
    plain: Callable[..., None] = dataloader._BaseDataLoaderIter.__init__

    def __init__(self: Any, loader: Any) -> None:  # noqa: N807 - it becomes the method of that name
        plain(self, loader)
        self._perftool_pinned = loader.pin_memory

    return __init__


def _next(simulation: Simulation) -> Callable[[Any], Any]:
    plain = dataloader._BaseDataLoaderIter.__next__

    def __next__(self: Any) -> Any:  # noqa: N807
        try:
            data = plain(self)
        except StopIteration:
            simulation.annotations.no_batch()
            raise
        if self._perftool_pinned:
            for each in tensors(data):
                simulation.placement.pin(each)
        return data

    return __next__


def _start(simulation: Simulation) -> Callable[..., None]:
    plain: Callable[..., None] = dataloader._MultiProcessingDataLoaderIter.__init__

    def __init__(self: Any, loader: Any) -> None:  # noqa: N807
        machine = simulation.machine
        started = machine.now + ms(machine.costs.loader_start_ms)
        self._perftool_clocks = WorkerClocks([started] * loader.num_workers)
        plain(self, loader)

    return __init__


def _ask(simulation: Simulation) -> Callable[[Any], None]:
    plain = dataloader._MultiProcessingDataLoaderIter._try_put_index

    def _try_put_index(self: Any) -> None:
        self._perftool_clocks.requested[self._send_idx] = simulation.machine.now
        plain(self)

    return _try_put_index


def _unpack(simulation: Simulation) -> Callable[[Any], Any]:
    plain: Callable[[Any], Any] = dataloader._MultiProcessingDataLoaderIter._get_data

    def _get_data(self: Any) -> Any:
        # The order in which batches arrive differs from run to run, so ops on their tensors are not accounted for here.
        with simulation.dispatch.handing_to(_ignore):
            return plain(self)

    return _get_data


def _receive(simulation: Simulation) -> Callable[..., Any]:
    plain: Callable[..., Any] = dataloader._MultiProcessingDataLoaderIter._process_data

    def _process_data(self: Any, data: Any, *worker: Any) -> Any:
        if isinstance(data, CostedBatch):
            # _rcvd_idx is already the number of the next batch.
            place = worker[0] if worker else (self._rcvd_idx - 1) % len(self._perftool_clocks.free)
            ready = self._perftool_clocks.ready(self._rcvd_idx - 1, place, data.cost)
            simulation.machine.now = max(simulation.machine.now, ready)
            simulation.machine.spend(simulation.machine.costs.loader_receive_us)
            data = data.data
        return plain(self, data, *worker)

    return _process_data


def _ignore(call: Call) -> None:
    """Do not account for an op."""
