"""The events, lanes and planes that all parts of the trace builder share."""

from __future__ import annotations

from builders.gaudi_event import Event, Value


class EventSink:
    """Collects the events of a trace. Its methods take times in microseconds after the base of the trace."""

    def __init__(self, generation: str, device: str, pid: int) -> None:
        self.generation = generation
        self.device = device
        self.pid = pid
        self.events: list[Event] = []
        self._device_pid = 1 if generation == "A" else 0
        self._lanes: dict[tuple[int, int], str] = {}
        self._planes: dict[int, str] = {}
        self._synapse_threads: list[str] = []
        self._evidence = 0
        self._allocations = 0

    def _add(self, event: Event) -> Event:
        self.events.append(event)
        return event

    def _plane(self, offset: int, name: str) -> int:
        self._planes.setdefault(self.pid + offset, name)
        return self.pid + offset


def recipe_args(recipe: int, name: str | None, dtype: str) -> dict[str, Value]:
    """Return the five arguments of every device event and Synapse annotation; recipe 0 means no recipe."""
    default = f".graph_dumps/HabanaFusedOpLazy_{recipe - 1}" if recipe else ""
    return {
        "recipeId": recipe,
        "recipeName": default if name is None else name,
        "streamHandle": "0x7f30c4001b20" if recipe else "0x7f30c4001b40",
        "eventHandle": "0x0",
        "dataType": dtype,
    }
