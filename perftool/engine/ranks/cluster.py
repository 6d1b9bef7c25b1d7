"""Tasks on a Dask cluster."""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from perftool import __version__
from perftool.engine.ranks.batch import Batch
from perftool.engine.ranks.schedule import WORKER_MEMORY_MB, Count, Lost, Made, Progress, Work
from perftool.errors import MissingExtraError, PerfToolError, SettingsError

# What the address begins with, and what Dask calls it.
_SCHEMES = {"dask://": "tcp://", "tcp://": "tcp://", "tls://": "tls://"}
_CONNECT_S = 20.0
# An error of a task that is none of its input may pass: a full disk, a network that is down.
_RETRIES = 2
# Tasks that the scheduler knows of, for each thread: enough to keep it busy, few enough for ten thousand ranks.
_AHEAD = 4
# Nothing came back for so long: what is still out hangs.
_STALLED_S = 900.0


@dataclass(frozen=True)
class Cluster:
    """The workers behind ``client``, a Dask client. They must see the files, by the same absolute paths or by URL."""

    client: Any
    stalled_s: float = _STALLED_S

    @property
    def workers(self) -> int:
        """The threads of all workers that are there now."""
        return max(1, sum(map(int, self.client.nthreads().values())))

    def share(self) -> tuple[int, int]:
        """A core for each task: a worker may run several."""
        return WORKER_MEMORY_MB, 1

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | Lost]:
        """Work on the cluster. Dask gives the task of a lost worker to another one; one that hangs is lost.

        When the cluster is silent twice in a row, nothing is left that would do the other tasks: they are lost too.
        """
        waiting = deque(tasks)
        out: dict[Any, Batch] = {}
        results: dict[Batch, Made | Lost] = {}
        finished: SimpleQueue[Any] = SimpleQueue()
        show, silent = Count(tasks, progress), False
        here = os.getcwd()
        while waiting or out:
            while waiting and len(out) < _AHEAD * self.workers:
                task = waiting.popleft()
                # Pure tasks of the same arguments would share results, though the files may have changed.
                future = self.client.submit(work, task.seen_from(here), None, pure=False, retries=_RETRIES)
                out[future] = task
                future.add_done_callback(finished.put)
            future = self._next(finished)
            if future is None:
                results |= self._given_up(out, waiting if silent else ())
                out, waiting, silent = {}, deque() if silent else waiting, True
            elif future in out:
                task = out.pop(future)
                # Fetched at once: a worker that dies later takes the results it still holds with it.
                results[task], silent = self._result(future), False
                show.add(task)
        yield from (results[task] for task in tasks)

    def _next(self, finished: SimpleQueue[Any]) -> Any:
        """The next future that is finished, whatever came of it; None when nothing happens for too long."""
        try:
            return finished.get(timeout=self.stalled_s)
        except Empty:
            return None

    def _given_up(self, out: Mapping[Any, Batch], waiting: Iterable[Batch]) -> dict[Batch, Lost]:
        for future in out:
            future.cancel()
        return dict.fromkeys((*out.values(), *waiting), Lost(f"the cluster gave no answer for {self.stalled_s:g} s"))

    def _result(self, future: Any) -> Any:
        """What ``future`` gives. Its state is not asked: one that was finished is not when its worker has died since,
        and is done anew."""
        try:
            return future.result(timeout=self.stalled_s)
        except Exception as error:  # noqa: BLE001 - what a task raised, or Dask in its place, costs its ranks only
            return Lost(f"the cluster could not analyse it ({' '.join(str(error).split())})")


def connect(address: str) -> Cluster:
    """The cluster at ``dask://HOST:PORT`` or ``tls://HOST:PORT``, or that of a scheduler file.

    TLS takes its certificates from Dask's configuration. Raises SettingsError for another address, MissingExtraError
    without Dask, PerfToolError when no scheduler answers, or its workers are none or have another version of this
    program.
    """
    scheme = next((scheme for scheme in _SCHEMES if address.startswith(scheme)), None)
    place = address.removeprefix(scheme or "")
    if not place or (scheme is None and not address.endswith(".json")):
        raise SettingsError(
            f"--scheduler {address}: must be local, dask://HOST:PORT, tls://HOST:PORT or a scheduler file (*.json)"
        )
    if scheme is None and not os.path.isfile(address):
        raise PerfToolError(f"--scheduler {address}: no such file")
    distributed = _distributed(address)
    where = {"scheduler_file": address} if scheme is None else {"address": f"{_SCHEMES[scheme]}{place}"}
    try:
        client = distributed.Client(**where, timeout=_CONNECT_S, set_as_default=False)
    # Without certificates for TLS Dask raises TypeError.
    except (OSError, ValueError, KeyError, TypeError, distributed.TimeoutError) as error:
        raise PerfToolError(f"--scheduler {address}: no Dask scheduler answers ({error})") from None
    try:
        client.wait_for_workers(1, timeout=_CONNECT_S)
    except distributed.TimeoutError:
        raise PerfToolError(f"--scheduler {address}: the Dask scheduler has no workers") from None
    _require_version(address, client)
    return Cluster(client)


def _require_version(address: str, client: Any) -> None:
    """Raise PerfToolError unless every worker has this version of the program."""
    for worker, version in sorted(client.run(_version, on_error="return").items()):
        if version != __version__:
            has = f"habana_perf_tool {version}" if isinstance(version, str) else f"no habana_perf_tool ({version})"
            text = f"--scheduler {address}: the worker {worker} has {has}, and this is {__version__}; install the same"
            raise PerfToolError(text)


def _version() -> str:
    return __version__


def _distributed(address: str) -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        text = f"--scheduler {address}: needs Dask (pip install 'habana-perf-tool[cluster]')"
        raise MissingExtraError(text) from None
