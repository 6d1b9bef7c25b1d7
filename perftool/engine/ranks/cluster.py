"""Runs tasks on a Dask cluster."""

from __future__ import annotations

import importlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, cast

from perftool import __version__
from perftool.engine.ranks.batch import Batch
from perftool.engine.ranks.schedule import WORKER_MEMORY_MB, Count, Made, Progress, TaskFailed, Work
from perftool.errors import MissingExtraError, PerfToolError, SettingsError, is_interrupt

# The address schemes of --scheduler, and Dask's names for them.
_SCHEMES = {"dask://": "tcp://", "tcp://": "tcp://", "tls://": "tls://"}
_CONNECT_S = 20.0
_PATIENCE_S = 5.0
# Errors not caused by the input may be temporary, such as a full disk or a network outage.
_RETRIES = 2
# The number of tasks submitted per thread: enough to keep the thread busy, but few enough for ten thousand ranks.
_AHEAD = 4
# After this time without a result, the outstanding tasks are treated as hung.
_STALLED_S = 900.0


@dataclass(frozen=True)
class Cluster:
    """The workers of ``client``, a Dask client. They must be able to read the files, by absolute path or URL."""

    client: Any
    stalled_s: float = _STALLED_S

    @property
    def workers(self) -> int:
        """The number of threads of all workers that are currently connected."""
        return max(1, sum(map(int, self.client.nthreads().values())))

    def share(self) -> tuple[int, int]:
        """Return the database memory of a task in MB, and one core, because a worker may run several tasks at once."""
        return WORKER_MEMORY_MB, 1

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | TaskFailed]:
        """Run the tasks on the cluster. Dask reassigns the task of a lost worker; a hung task is lost.

        If no task finishes within ``stalled_s`` twice in a row, the remaining tasks are lost, too.
        """
        waiting = deque(tasks)
        out: dict[Any, Batch] = {}
        results: dict[Batch, Made | TaskFailed] = {}
        finished: SimpleQueue[Any] = SimpleQueue()
        show, silent = Count(tasks, progress), False
        here = os.getcwd()
        while waiting or out:
            while waiting and len(out) < _AHEAD * self.workers:
                task = waiting.popleft()
                # Dask would reuse the results of pure tasks with equal arguments, but the files may have changed.
                future = self.client.submit(work, task.seen_from(here), None, pure=False, retries=_RETRIES)
                out[future] = task
                future.add_done_callback(finished.put)
            future = self._next(finished)
            if future is None:
                results |= self._given_up(out, waiting if silent else ())
                out, waiting, silent = {}, deque() if silent else waiting, True
            elif future in out:
                task = out.pop(future)
                # Fetch each result immediately, because it is lost if its worker dies.
                results[task], silent = self._result(future), False
                show.add(task)
        yield from (results[task] for task in tasks)

    def _next(self, finished: SimpleQueue[Any]) -> Any:
        """Return the next future to finish, successfully or not, or None if nothing finishes in time."""
        try:
            return finished.get(timeout=self.stalled_s)
        except Empty:
            return None

    def _given_up(self, out: Mapping[Any, Batch], waiting: Iterable[Batch]) -> dict[Batch, TaskFailed]:
        for future in out:
            future.cancel()
        return dict.fromkeys(
            (*out.values(), *waiting), TaskFailed(f"the cluster did not answer for {self.stalled_s:g} s")
        )

    def _result(self, future: Any) -> Any:
        """Return the result of ``future``. The status of ``future`` is not checked: if its worker died after finishing,
        the future is pending again, and Dask recomputes it.
        """
        try:
            return future.result(timeout=self.stalled_s)
        except Exception as error:  # noqa: BLE001 - an error of a task or of Dask loses only its ranks
            return TaskFailed(f"the cluster could not analyse the trace ({' '.join(str(error).split())})")


def connect(address: str) -> Cluster:
    """Connect to the cluster at ``dask://HOST:PORT`` or ``tls://HOST:PORT``, or through a scheduler file.

    TLS uses the certificates in Dask's configuration. Raise SettingsError for any other address, and MissingExtraError
    if Dask is not installed. Raise PerfToolError if no scheduler answers, if it has no workers, or if they have a
    different version of this program.
    """
    scheme = next((scheme for scheme in _SCHEMES if address.startswith(scheme)), None)
    place = address.removeprefix(scheme or "")
    if not place or (scheme is None and not address.endswith(".json")):
        raise SettingsError(
            f"--scheduler {address}: expected local, dask://HOST:PORT, tls://HOST:PORT or a scheduler file (*.json)"
        )
    if scheme is None and not os.path.isfile(address):
        raise PerfToolError(f"--scheduler {address}: no such file")
    distributed = _distributed(address)
    where = {"scheduler_file": address} if scheme is None else {"address": f"{_SCHEMES[scheme]}{place}"}
    # Otherwise, Dask logs a traceback in addition to raising the error.
    logging.disable()
    try:
        client = _in_time(partial(distributed.Client, **where, timeout=_CONNECT_S, set_as_default=False))
    # Dask raises TypeError if TLS certificates are missing, and MemoryError or other errors if the server does not
    # speak Dask's protocol.
    except Exception as error:  # noqa: BLE001
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        why = str(error) or type(error).__name__
        raise PerfToolError(f"--scheduler {address}: no Dask scheduler responds ({why})") from None
    finally:
        logging.disable(logging.NOTSET)
    try:
        client.wait_for_workers(1, timeout=_CONNECT_S)
    except distributed.TimeoutError:
        raise PerfToolError(f"--scheduler {address}: the Dask scheduler has no workers") from None
    _require_version(address, client)
    return Cluster(client)


def _in_time(make: Callable[[], Made]) -> Made:
    """Return the result of ``make``. Raise TimeoutError if it takes too long.

    Dask has no time limit for a peer that accepts a connection but never answers. The thread of such a call keeps
    running until this process ends.
    """
    done: SimpleQueue[tuple[Made | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((make(), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            done.put((None, error))

    Thread(target=run, daemon=True).start()
    try:
        made, error = done.get(timeout=_CONNECT_S + _PATIENCE_S)
    except Empty:
        raise TimeoutError("it accepts the connection but does not respond") from None
    if error is not None:
        raise error
    return cast("Made", made)


def _require_version(address: str, client: Any) -> None:
    """Raise PerfToolError unless all workers have this version of the program."""
    try:
        versions = _in_time(partial(client.run, _version, on_error="return"))
    except TimeoutError:
        raise PerfToolError(f"--scheduler {address}: a worker does not respond; has it been stopped?") from None
    for worker, version in sorted(versions.items()):
        if version != __version__:
            has = f"habana_perf_tool {version}" if isinstance(version, str) else f"no habana_perf_tool ({version})"
            raise PerfToolError(
                f"--scheduler {address}: the worker {worker} has {has}, but this is {__version__}; install the same "
                "version"
            )


def _version() -> str:
    return __version__


def _distributed(address: str) -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        text = f"--scheduler {address}: Dask is missing (pip install 'habana-perf-tool[cluster]')"
        raise MissingExtraError(text) from None
