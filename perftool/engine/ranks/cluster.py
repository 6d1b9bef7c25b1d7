"""Tasks on a Dask cluster."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perftool.engine.ranks.batch import Batch
from perftool.engine.ranks.schedule import WORKER_MEMORY_MB, Count, Lost, Made, Progress, Work
from perftool.errors import MissingExtraError, PerfToolError, SettingsError

_SCHEME = "dask://"
_CONNECT_S = 20.0
# An error of a task that is none of its input may pass: a full disk, a network that is down.
_RETRIES = 2


@dataclass(frozen=True)
class Cluster:
    """The workers behind ``client``, a Dask client. They must see the files and have the same version installed."""

    client: Any

    @property
    def workers(self) -> int:
        """The threads of all workers that are there now."""
        return max(1, sum(map(int, self.client.nthreads().values())))

    def share(self) -> tuple[int, int]:
        """A core for each task: a worker may run several."""
        return WORKER_MEMORY_MB, 1

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | Lost]:
        """Work on the cluster. Dask gives the task of a lost worker to another one."""
        # Pure tasks of the same arguments would share results, though the files may have changed. What is shared is
        # part of the graph: scattered data would be lost with the workers that hold it.
        futures = self.client.map(work, tasks, pure=False, retries=_RETRIES)
        task_of = {future.key: task for task, future in zip(tasks, futures, strict=True)}
        show = Count(tasks, progress)
        results: dict[str, Made | Lost] = {}
        for future in _distributed("").as_completed(futures, loop=self.client.loop):
            # Fetched at once: a worker that dies later takes the results it still holds with it.
            results[future.key] = _result(future)
            show.add(task_of[future.key])
        yield from (results[future.key] for future in futures)


def connect(address: str) -> Cluster:
    """The cluster at ``dask://HOST:PORT``.

    Raises SettingsError for another address, MissingExtraError without Dask, PerfToolError when no scheduler answers.
    """
    place = address.removeprefix(_SCHEME)
    if not address.startswith(_SCHEME) or not place:
        raise SettingsError(f"--scheduler {address}: must be local or dask://HOST:PORT")
    distributed = _distributed(address)
    try:
        return Cluster(distributed.Client(f"tcp://{place}", timeout=_CONNECT_S, set_as_default=False))
    except (OSError, ValueError) as error:
        raise PerfToolError(f"--scheduler {address}: no Dask scheduler answers ({error})") from None


def _distributed(address: str) -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        text = f"--scheduler {address}: needs Dask (pip install 'habana-perf-tool[cluster]')"
        raise MissingExtraError(text) from None


def _result(future: Any) -> Any:
    """What ``future`` gives. Its state is not asked: one that was finished is not when its worker has died since."""
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001 - what a task raised, or Dask in its place, costs its ranks only
        return Lost(f"the cluster could not analyse it ({' '.join(str(error).split())})")
