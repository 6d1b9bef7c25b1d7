"""Tasks on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perftool.engine.compose import unreadable
from perftool.engine.rank_part import RankTask, Shared, analyse_rank
from perftool.engine.schedule import WORKER_MEMORY_MB, Progress, Result
from perftool.errors import InputError, MissingExtraError, PerfToolError, SettingsError

if TYPE_CHECKING:
    from distributed import Client

_SCHEME = "dask://"
_CONNECT_S = 20.0
# A task whose worker died is done again; one that kills so many workers is at fault itself.
_RETRIES = 2


@dataclass(frozen=True)
class Cluster:
    """The workers of a Dask scheduler. They must see the files and have the same version installed."""

    client: Client

    def share(self) -> tuple[int, int]:
        """A core for each task: a worker may run several."""
        return WORKER_MEMORY_MB, 1

    def run(self, tasks: Sequence[RankTask], shared: Shared, progress: Progress | None) -> Iterator[Result]:
        """Analyse on the cluster. Dask gives the task of a lost worker to another one."""
        from distributed import as_completed

        given = self.client.scatter(shared, broadcast=True)
        # Without pure, two runs over changed files would share results.
        futures = self.client.map(analyse_rank, tasks, shared=given, pure=False, retries=_RETRIES)
        for done, _ in enumerate(as_completed(futures), 1):
            if progress:
                progress(f"{done} of {len(tasks)} ranks analysed on the cluster", 0)
        yield from (_result(task, future) for task, future in zip(tasks, futures, strict=True))


def connect(address: str) -> Cluster:
    """The cluster at ``dask://HOST:PORT``. Raises SettingsError, MissingExtraError, PerfToolError if none answers."""
    if not address.startswith(_SCHEME) or address == _SCHEME:
        raise SettingsError(f"--scheduler {address}: must be local or dask://HOST:PORT")
    try:
        from distributed import Client
    except ImportError:
        text = f"--scheduler {address}: needs Dask (pip install 'habana-perf-tool[cluster]')"
        raise MissingExtraError(text) from None
    try:
        client: Any = Client(f"tcp://{address.removeprefix(_SCHEME)}", timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise PerfToolError(f"--scheduler {address}: no Dask scheduler answers ({error})") from None
    return Cluster(client)


def _result(task: RankTask, future: Any) -> Result:
    if future.status == "finished":
        result: Result = future.result()
        return result
    error = InputError(f"{task.path}: the cluster could not analyse it ({future.exception()})")
    return unreadable(task.path, error)
