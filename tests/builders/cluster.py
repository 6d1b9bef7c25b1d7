"""Simulates runs of many ranks and writes each rank's Kineto trace. A host launches work and continues. A stream runs
its work in order. A collective starts to move data once its kernel has started on every member, and ends for all of
them when the transfer is done. Nothing else blocks, so the cost of a culprit is the difference between a run with it
and the same run without it.

Times are microseconds.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

COMPUTE, COPIES = 7, 8
LAUNCH, LATENCY, DEPTH = 5.0, 3.0, 250
RANKS_PER_HOST = 8
BUS_BYTES_PER_S = 140e9
DEVICE_FLOPS_PER_US = 312e6


class World:
    """All activities, as nodes of a graph. A node begins when its predecessors have ended."""

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self.follows: list[list[tuple[int, float]]] = []
        self.begins: list[float] = []
        self.ends: list[float] = []
        self.meetings: dict[tuple[Any, ...], int] = {}

    def node(self, length: float, *follows: tuple[int, float] | int) -> int:
        """Add a node of ``length`` that begins once each node of ``follows`` has ended and its delay has passed."""
        self.lengths.append(length)
        self.follows.append([one if isinstance(one, tuple) else (one, 0.0) for one in follows])
        return len(self.lengths) - 1

    def meet(self, key: tuple[Any, ...], wire: float, arrival: int) -> int:
        """Return the node for the transfer of the collective ``key``, which now also waits for ``arrival``."""
        if key not in self.meetings:
            self.meetings[key] = self.node(wire)
        self.follows[self.meetings[key]].append((arrival, 0.0))
        return self.meetings[key]

    def run(self) -> None:
        followers: dict[int, list[int]] = defaultdict(list)
        missing = [len(follows) for follows in self.follows]
        for node, follows in enumerate(self.follows):
            for before, _ in follows:
                followers[before].append(node)
        self.begins, self.ends = [0.0] * len(missing), [0.0] * len(missing)
        ready = deque(node for node, count in enumerate(missing) if not count)
        done = 0
        while ready:
            node = ready.popleft()
            done += 1
            begin = max((self.ends[before] + lag for before, lag in self.follows[node]), default=0.0)
            self.begins[node], self.ends[node] = begin, begin + self.lengths[node]
            for after in followers[node]:
                missing[after] -= 1
                if not missing[after]:
                    ready.append(after)
        assert done == len(missing), "ranks wait for each other in a circle"


@dataclass(frozen=True)
class Trouble:
    """A problem that affects ``ranks`` in every ``every``-th step from ``first`` on.

    ``device``: kernels take ``amount`` times as long. ``tokens``: there are ``amount`` times as many kernels. ``host``:
    launching and Python take ``amount`` times as long. ``link``: the collectives of the group that ``ranks`` form take
    ``amount`` times as long. ``loader``, ``pause`` and ``save`` add ``amount`` us: for loading a batch, pausing the
    host, or saving a checkpoint after the optimizer.
    """

    kind: str
    ranks: tuple[int, ...]
    amount: float
    every: int = 1
    first: int = 0

    def at(self, rank: int, step: int) -> bool:
        return rank in self.ranks and step >= self.first and (step - self.first) % self.every == 0


@dataclass
class Slice:
    """A trace event from the start of one node to the end of another."""

    name: str
    cat: str
    lane: tuple[int, int]
    begin: int
    end: int
    args: dict[str, Any]


@dataclass(frozen=True)
class Group:
    """A process group: its role, name and ranks."""

    role: str
    name: str
    ranks: tuple[int, ...]


class Rank:
    """A rank. Its program calls these methods in order, and each call adds activities to the world."""

    def __init__(self, world: World, number: int, troubles: Sequence[Trouble]) -> None:
        self.world, self.number, self.troubles = world, number, troubles
        self.host = world.node(0.0)
        self.tails: dict[int, int] = {}
        self.slices: list[Slice] = []
        self.step = 0
        self.recorded = False
        self._random = random.Random(number)
        self._called: dict[str, int] = defaultdict(int)
        self._correlation = 0
        self._more = 0.0
        self._launched: deque[int] = deque()
        self._groups: dict[str, Group] = {}
        self._marks: list[tuple[int, int]] = []

    # Host activities.

    def work(self, us: float, name: str = "", cat: str = "cpu_op") -> None:
        """Keep the host busy for ``us``; the slice is called ``name``."""
        before = self.host
        self.host = self.world.node(us * self._times("host"), before)
        if name:
            self._seen(name, cat, (1, 1), self.host, self.host)

    def load(self, us: float) -> None:
        """Fetch a batch on the host."""
        self.host = self.world.node(us + self._longer("loader"), self.host)
        self._seen(
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            "user_annotation",
            (1, 1),
            self.host,
            self.host,
        )

    def sync(self) -> None:
        """Make the host wait until the compute stream has finished all launched work."""
        begin = self.world.node(0.0, self.host)
        self.host = self.world.node(2.0, begin, (self.tails.get(COMPUTE, begin), 3.0))
        self._seen("cudaDeviceSynchronize", "cuda_runtime", (1, 1), begin, self.host)

    def pause(self) -> None:
        """Interrupt the host in the middle of a step, as garbage collection or another job would."""
        if longer := self._longer("pause"):
            self.host = self.world.node(longer, self.host)

    def save(self) -> None:
        """Save a checkpoint: copy the weights to the host and write them to a file."""
        if longer := self._longer("save"):
            self.copy("Memcpy DtoH (Device -> Pageable)", 0.2 * longer)
            self.sync()
            self.host = self.world.node(0.8 * longer, self.host)

    def begin_step(self, number: int, *, recorded: bool) -> None:
        self.step, self.recorded = number, recorded
        self._marks.append((self.world.node(0.0, self.host), -1))

    def end_step(self) -> None:
        last = self.world.node(0.0, self.host)
        begin = self._marks[-1][0]
        self._marks[-1] = (begin, self.world.node(0.0, last, *self.tails.values()))
        self._seen(f"ProfilerStep#{self.step}", "user_annotation", (1, 1), begin, last)

    # Device work.

    def kernel(self, name: str, us: float, op: str = "aten::mm") -> None:
        """Launch a kernel on the compute stream."""
        self._more += self._times("tokens") - 1.0
        again, self._more = int(self._more), self._more % 1.0
        for _ in range(1 + again):
            begin = self.world.node(0.0, self.host)
            self.work(6.0)
            length = us * self._times("device") * self._random.uniform(0.99, 1.01)
            self._launch("cudaLaunchKernel", name, "kernel", COMPUTE, length, {})
            self._seen(op, "cpu_op", (1, 1), begin, self.host, self._shapes(op, us))

    def _shapes(self, op: str, us: float) -> dict[str, Any]:
        """Return operands for a matmul that takes ``us`` at 80 % of the device's peak rate."""
        if op != "aten::mm":
            return {}
        rows = max(1, round(0.8 * us * DEVICE_FLOPS_PER_US / (2 * 4_096 * 4_096))) + self.number
        types = ["c10::BFloat16", "c10::BFloat16"]
        return {"Input Dims": [[rows, 4_096], [4_096, 4_096]], "Input type": types}

    def copy(self, name: str, us: float) -> None:
        self._launch("cudaMemcpyAsync", name, "gpu_memcpy", COMPUTE, us, {})

    def collective(self, operation: str, group: Group, wire: float, stream: int) -> None:
        """Launch a collective on ``stream``; it starts after the work already launched on the compute stream."""
        self._groups[group.name] = group
        nth = self._called[group.name]
        self._called[group.name] += 1
        slow = max(
            (
                t.amount
                for t in self.troubles
                if t.kind == "link" and t.ranks == group.ranks and t.at(t.ranks[0], self.step)
            ),
            default=1.0,
        )
        elements = self._elements(operation, len(group.ranks), wire)
        args = {"Collective name": operation, "In msg nelems": elements, "Out msg nelems": elements}
        self._communicate((group.name, nth), operation, group, wire * slow, stream, args)

    @staticmethod
    def _elements(operation: str, ranks: int, wire: float) -> int:
        """Return the number of two-byte elements that the links can transfer in ``wire`` us."""
        passes = {"allreduce": 2 * (ranks - 1) / ranks, "_allgather_base": ranks - 1}.get(
            operation, (ranks - 1) / ranks
        )
        return int(wire * 1e-6 * BUS_BYTES_PER_S / passes / 2)

    def send(self, to: int, group: Group, wire: float, elements: int) -> None:
        self._pass("send", self.number, to, group, wire, elements)

    def receive(self, sender: int, group: Group, wire: float, elements: int) -> None:
        self._pass("recv", sender, self.number, group, wire, elements)

    def wait(self, stream: int) -> None:
        """Make the compute stream wait for all work already launched on ``stream``."""
        follows = [self.tails[one] for one in (COMPUTE, stream) if one in self.tails]
        self.tails[COMPUTE] = self.world.node(0.0, *follows)

    def _pass(self, name: str, sender: int, receiver: int, group: Group, wire: float, elements: int) -> None:
        self._groups[group.name] = group
        pair = f"{group.name} {sender}>{receiver}"
        nth = self._called[pair]
        self._called[pair] += 1
        peer = {"Dst Rank": receiver} if name == "send" else {"Src Rank": sender}
        args = {"Collective name": name, "In msg nelems": elements, "Out msg nelems": elements, **peer}
        other = receiver if name == "send" else sender
        self._communicate((pair, nth), name, group, wire, 100 + 2 * other + (name == "send"), args)

    def stream_of(self, other: int) -> int:
        """Return the stream on which this rank receives from ``other``."""
        return 100 + 2 * other

    def _communicate(
        self, key: tuple[Any, ...], name: str, group: Group, wire: float, stream: int, args: dict[str, Any]
    ) -> None:
        begin = self.world.node(0.0, self.host)
        self.work(15.0)
        kind = "SendRecv" if name in ("send", "recv") else "".join(part.title() for part in name.strip("_").split("_"))
        args |= {"Group size": len(group.ranks), "dtype": "BFloat16", "Process Group Name": group.name,
                 "Process Group Description": group.role, "Process Group Ranks": listed(group.ranks)}  # fmt: skip
        self._launch(
            "cudaLaunchKernelExC", f"ncclDevKernel_{kind}_RING_LL", "kernel", stream, 0.0, args, meet=(key, wire)
        )
        self._seen(f"nccl:{name}", "user_annotation", (1, 1), begin, self.host)

    def _launch(
        self, call: str, name: str, cat: str, stream: int, us: float, args: dict[str, Any],
        meet: tuple[tuple[Any, ...], float] | None = None,
    ) -> None:  # fmt: skip
        full = [self._launched.popleft()] if len(self._launched) >= DEPTH else []
        called = self.world.node(0.0, self.host, *full)
        self.host = self.world.node(LAUNCH * self._times("host"), called)
        follows: list[int | tuple[int, float]] = [(called, LATENCY)]
        follows += [self.tails[one] for one in {stream, COMPUTE} if one in self.tails]
        begin = end = self.world.node(us, *follows)
        if meet is not None:
            end = self.world.node(0.0, self.world.meet(*meet, begin))
        self.tails[stream] = end
        self._launched.append(begin)
        self._correlation += 1
        link = {"correlation": self._correlation}
        self._seen(call, "cuda_runtime", (1, 1), called, self.host, link)
        self._seen(
            name,
            cat,
            (0, stream),
            begin,
            end,
            {"device": self.number % RANKS_PER_HOST, "stream": stream, **link, **args},
        )

    def _times(self, kind: str) -> float:
        return max((t.amount for t in self.troubles if t.kind == kind and t.at(self.number, self.step)), default=1.0)

    def _longer(self, kind: str) -> float:
        return sum(t.amount for t in self.troubles if t.kind == kind and t.at(self.number, self.step))

    def _seen(
        self, name: str, cat: str, lane: tuple[int, int], begin: int, end: int, args: dict[str, Any] | None = None
    ) -> None:
        if self.recorded or not lane[0]:
            self.slices.append(Slice(name, cat, lane, begin, end, args or {}))

    # Recording.

    def events(self, clock: float, steps: int | None = None, drift: float = 0.0) -> list[dict[str, Any]]:
        """Return the trace of the first ``steps`` recorded steps (all if None), on a clock that drifts by ``drift``."""
        begins, ends, rate = self.world.begins, self.world.ends, 1 + drift
        until = float("inf") if steps is None or steps + 1 >= len(self._marks) else begins[self._marks[steps + 1][0]]
        # A recording includes all device work that starts during it, even if the launch came before.
        since = begins[self._marks[1][0]]
        return [
            {"ph": "X", "cat": one.cat, "name": one.name, "pid": one.lane[0], "tid": one.lane[1],
             "ts": round(rate * begins[one.begin] + clock, 3),
             "dur": round(rate * (ends[one.end] - begins[one.begin]), 3),
             **({"args": one.args} if one.args else {})}
            for one in self.slices if since <= begins[one.begin] < until
        ]  # fmt: skip

    def document(self, ranks: int, clock: float, steps: int | None = None, drift: float = 0.0) -> bytes:
        config = [
            {"pg_name": group.name, "pg_desc": group.role, "pg_size": len(group.ranks), "ranks": list(group.ranks),
             "backend_config": "cuda:nccl"}
            for group in self._groups.values()
        ]  # fmt: skip
        info = {
            "backend": "nccl",
            "rank": self.number,
            "world_size": ranks,
            "pg_count": len(config),
            "pg_config": config,
        }
        devices = [{"id": self.number % RANKS_PER_HOST, "name": "NVIDIA A100-SXM4-80GB"}]
        return orjson.dumps(
            {"distributedInfo": info, "deviceProperties": devices, "traceEvents": self.events(clock, steps, drift)}
        )

    def last_of(self, step: int) -> float:
        """Return the time at which both host and device of this rank have finished ``step``."""
        return self.world.ends[self._marks[step][1]]


@dataclass(frozen=True)
class Layout:
    """How a run is parallelised: ``kind`` (ddp, tp, pp, ep or hsdp) over ``ranks`` ranks, in groups of ``size``.

    The host of a rank waits for the device at the end of each step, unless the layout is ``free``.
    """

    kind: str
    ranks: int = 8
    size: int = 4
    layers: int = 6
    free: bool = False
    scale: float = 1.0
    micro: int = 8

    def inner(self, rank: int) -> Group:
        """Return the tensor-parallel, expert or sharding group of ``rank``."""
        first = rank // self.size * self.size
        role = {"tp": "tp", "ep": "ep", "hsdp": "shard"}.get(self.kind, "inner")
        return Group(role, f"{role}{first}", tuple(range(first, min(first + self.size, self.ranks))))

    def outer(self, rank: int) -> Group:
        """Return the group of ranks that hold the same part of the model."""
        if self.kind == "ddp":
            return Group("default_pg", "0", tuple(range(self.ranks)))
        if self.kind == "pp":
            stage = rank // self._per_stage
            return Group("dp", f"dp{stage}", tuple(range(stage * self._per_stage, (stage + 1) * self._per_stage)))
        role = "replicate" if self.kind == "hsdp" else "dp"
        return Group(role, f"{role}{rank % self.size}", tuple(range(rank % self.size, self.ranks, self.size)))

    @property
    def _per_stage(self) -> int:
        return self.ranks // self.size

    def pipe(self, rank: int) -> Group:
        """Return the group of the ``size`` pipeline stages that this rank's microbatches pass through."""
        return Group(
            "pp", f"pp{rank % self._per_stage}", tuple(range(rank % self._per_stage, self.ranks, self._per_stage))
        )


@dataclass
class Simulated:
    """A simulated run, with its time per step in us and its ranks."""

    step_us: float
    ranks: list[Rank]
    layout: Layout
    clocks: list[float] = field(default_factory=list)

    def write(
        self, folder: Path, *, clocks: bool = True, leave_out: Sequence[int] = (),
        steps: Mapping[int, int] = MappingProxyType({}), kept: Mapping[int, float] = MappingProxyType({}),
        drift: float = 0.0,
    ) -> None:  # fmt: skip
        """Write the trace of each rank to the folder of its host. Clocks differ by up to 40 ms and drift by up to
        ``drift``.

        ``steps``: how many steps a rank records. ``kept``: the share of a rank's file that is written; the file is
        truncated there.
        """
        for rank in self.ranks:
            if rank.number in leave_out:
                continue
            host = folder / f"node{rank.number // RANKS_PER_HOST:03d}"
            host.mkdir(exist_ok=True)
            clock = 1e9 + (random.Random(f"clock {rank.number}").uniform(-40_000, 40_000) if clocks else 0.0)
            rate = random.Random(f"rate {rank.number}").uniform(-drift, drift)
            text = rank.document(self.layout.ranks, clock, steps.get(rank.number), rate)
            left = round(kept.get(rank.number, 1.0) * len(text))
            (host / f"rank{rank.number}.json").write_bytes(text[:left])


def listed(ranks: Sequence[int]) -> str:
    """Return the ranks of a group in PyTorch's format, which shortens lists of more than thirty."""
    first = ", ".join(map(str, ranks[:29]))
    return str(list(ranks)) if len(ranks) <= 30 else f"[{first}, ..., {ranks[-1]}]"


def simulate(layout: Layout, troubles: Sequence[Trouble] = (), steps: int = 5) -> Simulated:
    """Simulate one step to reach a steady state, then ``steps`` recorded steps."""
    world = World()
    ranks = [Rank(world, number, troubles) for number in range(layout.ranks)]
    for rank in ranks:
        for number in range(steps + 1):
            rank.begin_step(number, recorded=number > 0)
            _step(layout, rank)
            if not layout.free:
                rank.sync()
            rank.save()
            rank.end_step()
        rank.sync()
    world.run()
    took = max(rank.last_of(steps) for rank in ranks) - max(rank.last_of(0) for rank in ranks)
    return Simulated(took / steps, ranks, layout)


def _step(layout: Layout, rank: Rank) -> None:
    rank.load(300.0)
    rank.copy("Memcpy HtoD (Pinned -> Device)", 120.0)
    rank.pause()
    {"ddp": _ddp, "tp": _tp, "pp": _pp, "ep": _ep, "hsdp": _hsdp}[layout.kind](layout, rank)
    for _ in range(3):
        rank.kernel("multi_tensor_adam", 150.0 * layout.scale, "aten::_fused_adamw_")


def _layer(layout: Layout, rank: Rank, us: float) -> None:
    for part in (0.6, 0.3, 0.1):
        rank.kernel("ampere_bf16_gemm" if part > 0.1 else "layer_norm_kernel", part * us * layout.scale)


def _ddp(layout: Layout, rank: Rank) -> None:
    world = layout.outer(rank.number)
    for _ in range(layout.layers):
        _layer(layout, rank, 900.0)
    for number in range(layout.layers):
        _layer(layout, rank, 1_800.0)
        if number % 2:
            rank.collective("allreduce", world, 2_600.0 * layout.scale, 20)
    rank.wait(20)


def _tp(layout: Layout, rank: Rank) -> None:
    tp, dp = layout.inner(rank.number), layout.outer(rank.number)
    for us in (900.0, 1_800.0):
        for number in range(layout.layers):
            _layer(layout, rank, us)
            rank.collective("allreduce", tp, 150.0 * layout.scale, 20)
            rank.wait(20)
            if us > 900.0 and number % 2:
                rank.collective("allreduce", dp, 1_500.0 * layout.scale, 21)
    rank.wait(21)


def _ep(layout: Layout, rank: Rank) -> None:
    ep, dp = layout.inner(rank.number), layout.outer(rank.number)
    for us in (700.0, 1_400.0):
        for number in range(layout.layers):
            _layer(layout, rank, us)
            for _ in range(2):
                rank.collective("all_to_allv", ep, 200.0 * layout.scale, 20)
                rank.wait(20)
                rank.kernel("grouped_gemm", 0.5 * us * layout.scale)
            if us > 700.0 and number % 2:
                rank.collective("allreduce", dp, 1_200.0 * layout.scale, 21)
    rank.wait(21)


def _hsdp(layout: Layout, rank: Rank) -> None:
    shard, replicas = layout.inner(rank.number), layout.outer(rank.number)
    rank.collective("_allgather_base", shard, 400.0 * layout.scale, 20)
    for number in range(layout.layers):
        rank.wait(20)
        if number + 1 < layout.layers:
            rank.collective("_allgather_base", shard, 400.0 * layout.scale, 20)
        _layer(layout, rank, 900.0)
    rank.collective("_allgather_base", shard, 400.0 * layout.scale, 20)
    for number in range(layout.layers):
        rank.wait(20)
        if number + 1 < layout.layers:
            rank.collective("_allgather_base", shard, 400.0 * layout.scale, 20)
        _layer(layout, rank, 1_800.0)
        rank.collective("_reduce_scatter_base", shard, 400.0 * layout.scale, 21)
        rank.collective("allreduce", replicas, 300.0 * layout.scale, 22)
    rank.wait(21)
    rank.wait(22)


def _pp(layout: Layout, rank: Rank) -> None:
    """The 1F1B schedule (one forward, one backward): each stage receives its inputs and sends its results."""
    pipe, dp = layout.pipe(rank.number), layout.outer(rank.number)
    stage, stages = pipe.ranks.index(rank.number), len(pipe.ranks)
    before = pipe.ranks[stage - 1] if stage else None
    after = pipe.ranks[stage + 1] if stage + 1 < stages else None

    def forward() -> None:
        if before is not None:
            rank.receive(before, pipe, 60.0, 1 << 18)
            rank.wait(rank.stream_of(before))
        _layer(layout, rank, 800.0)
        if after is not None:
            rank.send(after, pipe, 60.0, 1 << 18)

    def backward() -> None:
        if after is not None:
            rank.receive(after, pipe, 60.0, 1 << 18)
            rank.wait(rank.stream_of(after))
        _layer(layout, rank, 1_600.0)
        if before is not None:
            rank.send(before, pipe, 60.0, 1 << 18)

    ahead = min(stages - 1 - stage, layout.micro)
    for _ in range(ahead):
        forward()
    for _ in range(layout.micro - ahead):
        forward()
        backward()
    for _ in range(ahead):
        backward()
    rank.collective("allreduce", dp, 1_500.0 * layout.scale, 20)
    rank.wait(20)
