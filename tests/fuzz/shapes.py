"""Inputs with shapes for which joins or readers once took quadratic time or memory.

Each may take ten times the time and four times the memory of a good input of the same kind and size. A cost below
``FREE`` needs no comparison. Imports do not count, because the commands run in forks of a process that has done them.
"""

from __future__ import annotations

import atexit
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from events import Event, document, kernel, loader, memcpy, meta, runtime, step, x

ROOT = Path(__file__).parents[2]
MOST_TIMES, MOST_GROWN = 10, 4
_LAUNCHES = 6000
_SPAN = 50 * _LAUNCHES
_LONG = "y" * 60_000


@dataclass(frozen=True)
class Cost:
    """The CPU seconds and the peak memory in bytes of a whole analysis."""

    cpu_s: float
    peak: int

    def within(self, most: Cost) -> bool:
        return self.cpu_s <= most.cpu_s and self.peak <= most.peak


FREE = Cost(7.0, 400 << 20)
# For a run of several shapes. Each of them alone may take as much, because its benign version takes over 0.9 s and
# 120 MB.
FREE_RUN = Cost(9.0, 480 << 20)


@cache
def _forks() -> subprocess.Popen[str]:
    """Return the process whose forks run the commands, until this process exits."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(Path(__file__).with_name("forks.py"))]
    pipe = subprocess.PIPE
    started = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)
    atexit.register(started.communicate)
    return started


def cost_of(path: Path, command: str = "analyze -q", most_s: int = 120) -> Cost:
    """Return the cost of ``command`` on ``path``. The command is stopped after ``most_s`` CPU seconds."""
    forks = _forks()
    assert forks.stdin
    assert forks.stdout
    forks.stdin.write(json.dumps({"command": [*command.split(), str(path)], "most_s": most_s}) + "\n")
    forks.stdin.flush()
    done = json.loads(forks.stdout.readline())
    # A quadratic rule reaches its time limit and crashes. A rule with too many findings crashes after it has finished.
    assert "rule crashed" not in done["output"] or " x 1000" in done["output"], done["output"]
    # A command that stopped for a reason other than its limit says nothing about costs.
    assert "internal error" not in done["output"], done["output"]
    assert done["code"] in (0, 1, 2) or done["cpu_s"] >= most_s, done
    return Cost(done["cpu_s"], done["peak"])


def may_take(good: Cost) -> Cost:
    """Return the limit for an input whose benign version costs ``good``."""
    return Cost(max(FREE.cpu_s, MOST_TIMES * good.cpu_s), max(FREE.peak, MOST_GROWN * good.peak))


def _steps(count: int, span: float = _SPAN) -> list[Event]:
    return [step(number, number * span / count, span / count) for number in range(count)]


def _trace(
    steps: list[Event],
    correlation: Callable[[int], int] = lambda number: number,
    stream: Callable[[int], int] = lambda number: 7,
    launches: int = _LAUNCHES,
    name: Callable[[int], str] = lambda number: "k",
    thread: Callable[[int], int] = lambda number: 1,
) -> bytes:
    events = list(steps)
    for number in range(launches):
        at, link, tid = 50 * number, correlation(number), thread(number)
        events += [x("aten::mm", at, 20, tid=tid), runtime("cudaLaunchKernel", at + 5, 3, link, tid=tid)]
        events += [kernel(name(number), at + 20, 25, link, stream=stream(number))]
    return document(events, deviceProperties=[{"id": 0, "name": "A100"}])


def shaped(random: Random) -> bytes:
    """Return a trace of a few hundred launches. Each id used in a join is the same for all launches, has one of a few
    values, or is unique."""
    launches = random.choice((200, 600, 1200))
    span, few = 50 * launches, random.randint(2, 40)

    def any_number(number: int) -> int:
        return random.randrange(launches)

    numbers: tuple[Callable[[int], int], ...] = (
        lambda number: 7, lambda number: number, lambda number: number % few, lambda number: number // few, any_number,
    )  # fmt: skip
    steps = random.choice((
        [], _steps(5, span), _steps(launches, span), _steps(few, span) * 2,
        [step(number, number, span) for number in range(launches)],
        [step(7, number * span / few, span / few) for number in range(few)],
    ))  # fmt: skip
    named, link, stream, thread = (random.choice(numbers) for _ in range(4))
    return _trace(steps, link, stream, launches, lambda number: f"k{named(number)}", thread)


def _gzipped(name: bytes) -> bytes:
    event = b'{"ph":"X","name":"%b","cat":"cpu_op","ts":1,"dur":1,"pid":1,"tid":1}'
    return gzip.compress(b'{"traceEvents":[' + event % name + b"]}", mtime=0)


def _dump(groups: int, entries: int) -> bytes:
    config = {str(number): {"name": str(number), "desc": "d", "ranks": "[0]"} for number in range(groups)}
    entry = {"collective_seq_id": 1, "profiling_name": "x", "state": "started"}
    calls = [{**entry, "process_group": [str(number % groups), "d"]} for number in range(entries)]
    return json.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": calls}).encode()


def _sends(peers: int, state: str) -> bytes:
    config = {"0": {"name": "0", "desc": "d", "ranks": str(list(range(20_000)))}}
    call = {"process_group": ["0", "d"], "state": state, "is_p2p": True}
    calls = [
        {**call, "p2p_seq_id": number, "profiling_name": f"nccl:send 0->{1 + number % peers}"}
        for number in range(20_000)
    ]
    return json.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": calls}).encode()


def with_secrets(count: int) -> bytes:
    """Return a trace of 1,000 launches whose metadata contains secrets."""
    tokens = {f"X{number}_TOKEN": f"{number:08}{'ab' * (number % 10)}" for number in range(count)}
    events = [kernel("0" * 100, 50 * number, 25) for number in range(1000)]
    return document(events, env=tokens, deviceProperties=[{"id": 0, "name": "A100"}])


def _beside(made: Callable[[int], list[Event]], count: int = 20_000, steps: int = 5) -> bytes:
    """Return a trace of 2,000 launches, and the events that ``made`` returns for each of ``count`` numbers."""
    launches = 2000
    events = _steps(steps, 50 * launches)
    for number in range(launches):
        events += [runtime("cudaLaunchKernel", 50 * number + 5, 3, number), kernel("k", 50 * number + 20, 25, number)]
    return document([*events, *(one for number in range(count) for one in made(number))])


def _decode(number: int) -> list[Event]:
    """Return an iteration as vLLM's high-level profiler on Gaudi writes it."""
    at = 10 * number + 10
    return [x("decode", at, 8, ""), x("model_forward_bs4_seq1_ctx10_graphsT", at + 1, 5, "")]


def _frame(name: str, at: float, dur: float, tid: int) -> Event:
    return x(name, at, dur, "python_function", tid=tid)


def _save(number: int, dur: float) -> list[Event]:
    """Return a checkpoint on a separate thread, and an interval of the profiler's own work."""
    return [
        _frame("torch/serialization.py(500): save", number / 1000, dur, 200 + number),
        _frame("torch/profiler/profiler.py(500): step", 40 * number, 20, 5),
    ]


def _module(number: int) -> list[Event]:
    """Return one of 31 nested modules with different names."""
    outer, depth = divmod(number, 31)
    return [_frame(f"nn.Module: {'a' * 90}{number}", 155 * outer + depth / 10, 154 - depth / 5, 1)]


def _optimizer(number: int, at: float, dur: float) -> list[Event]:
    return [x("Optimizer.step#Adam.step", at, dur, "user_annotation"), x("aten::add_", 100 + 10 * number, 5)]


def _gradients(count: int, shapes: int) -> bytes:
    """Return a step with ``count`` gradients of ``shapes`` shapes, and as many ops of the optimizer, which read tensors
    of other shapes.
    """
    events = [step(1, 0, 30 * count), x("Optimizer.step#SGD.step", 15 * count, 14 * count, "user_annotation")]
    for number in range(count):
        dims, others = [[[number % shapes + add, 3]] for add in (1, 1 + count)]
        events += [x("torch::autograd::AccumulateGrad", 10 * number, 5, **{"Input Dims": dims})]
        events += [x("aten::add_", 15 * count + 10 * number + 1, 5, **{"Input Dims": others})]
    for number in range(200):
        events += [runtime("cudaLaunchKernel", 50 * number + 5, 3, number), kernel("k", 50 * number + 20, 25, number)]
    return document(events, deviceProperties=[{"id": 0, "name": "A100"}])


def _pass(at: float, dur: float, sequence: int) -> list[Event]:
    """Return an op and its backward pass."""
    of_engine = {"Sequence number": sequence, "Fwd thread id": 1}
    name = "autograd::engine::evaluate_function: AddmmBackward0"
    return [
        x("aten::linear", at, dur, **{"Sequence number": sequence, "Fwd thread id": 0}),
        x(name, 200_000 + at, dur, tid=2, **of_engine),
    ]


def _memory(address: int, bytes_: int, at: float) -> Event:
    args = {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": bytes_, "Total Allocated": 1 << 30}
    return {**x("[memory]", at, 0, "cpu_instant_event"), "ph": "i", "s": "t", "args": args}


def _block(address: int, at: float, dur: float) -> list[Event]:
    return [_memory(address, 512, at), _memory(address, -512, at + dur)]


def _in_one(op: str, frame: str, made: Callable[[int], list[Event]], others: int) -> bytes:
    """Return the events that ``made`` returns for 20,000 numbers, inside one op and one function, and ``others`` events
    with different long names.
    """
    around = [x(op, 1, 399_998), _frame(frame, 0, 400_000, 1), *_steps(5, 400_000)]
    long = [x(f"{number}{_LONG}", 400_100 + number, 0.5) for number in range(others)]
    events = [*around, *long, *(one for number in range(20_000) for one in made(number))]
    return document(events, deviceProperties=[{"id": 0, "name": "A100"}])


def _block_of(number: int) -> list[Event]:
    return [_memory(512 * number, 512, 20 * number + 2)]


def _kernel_of(number: int) -> list[Event]:
    at = 20 * number + 2
    return [runtime("cudaLaunchKernel", at, 3, number), kernel("k", at + 4, 10, number)]


def _copy_of(number: int) -> list[Event]:
    at = 20 * number + 2
    return [
        runtime("cudaMemcpyAsync", at, 3, number), memcpy("Memcpy DtoH (Device -> Pageable)", at + 4, 5, number),
        runtime("cudaStreamSynchronize", at + 10, 5),
    ]  # fmt: skip


def _fetched(number: int, at: float, dur: float) -> list[Event]:
    """Return a fetch of the loader. Every second fetch contains an op, so its thread feeds the device."""
    return [loader(at, dur), *([x("aten::add", at, dur)] if number % 2 else [])]


def _copied(number: int, dur: float) -> list[Event]:
    """Return a copy of an input, and the op that calls it."""
    at, link = 10 * number, 10_000 + number
    return [
        x("aten::copy_", at, dur), runtime("cudaMemcpyAsync", at + 1e-3, 3, link),
        memcpy("Memcpy HtoD (Pinned -> Device)", at + 4, 1, link),
    ]  # fmt: skip


def _framed(number: int, op_at: float, dur: float, external_id: int) -> list[Event]:
    """Return an op written in Python, and a function with a kernel that has the id of the op."""
    of_op, at, link = {"External id": external_id}, 100 + 10 * number, 10_000 + number
    return [
        x("mine::op", op_at, dur, **{"Input Dims": [[2]]}, **of_op), _frame("a.py(1): f", at, 8, 1),
        runtime("cudaLaunchKernel", at + 1, 1, link, **of_op), kernel("k", at + 4, 1, link),
    ]  # fmt: skip


def _snapshot(devices: int) -> bytes:
    """Return a snapshot of the CUDA allocator that contains the history of only one device."""
    block = {"action": "alloc", "addr": 1, "size": 512, "time_us": 5}
    traces = [[block] * 20_000, *[[]] * (devices - 1)]
    return json.dumps({"segments": [{}] * 20_000, "device_traces": traces}).encode()


def _history(frames: int) -> bytes:
    """Return a 20 MB snapshot of the CUDA allocator, with allocations that have stacks of ``frames`` frames or nothing
    at all.
    """
    frame = {"filename": "/usr/lib/python3/site-packages/torch/nn/modules/module.py", "line": 7, "name": "forward"}
    block = {"addr": 1, "size": 512, "stream": 0, "time_us": 5, "frames": [frame] * frames} if frames else {}
    entry = json.dumps({"action": "alloc", **block})
    listed = ",".join([entry] * (20_000_000 // len(entry)))
    return f'{{"segments": [], "device_traces": [[{listed}]]}}'.encode()


def _buckets(warmed: int, missed: int) -> bytes:
    """Return a log of vLLM on Gaudi in which all shapes differ."""
    lines = [
        f"[Warmup][Prompt][{number}/{warmed}] batch_size:{number % 317 + 1} query_len:{number // 317 + 1} num_blocks:0"
        for number in range(warmed)
    ]
    lines += [
        f"Configuration: ('prompt', {number % 311 + 1}, {number // 311}, 7) was not warmed-up!"
        for number in range(missed)
    ]
    return "\n".join(lines).encode()


def _nodes(blanks: int) -> bytes:
    header = b"Unit,Node Name,Op Type,Duration,Active,a" + b" " * blanks + b"b\n"
    return header + b"TPC,n,op,1,1,5\n" * 20_000


def _positions(form: Callable[[int], tuple[list[int], int]]) -> bytes:
    """Layers with outputs [*form, 7], ops that read one position of each output, and backward nodes."""
    events = _steps(5, 60_000)
    for at in range(3_000):
        dims, number = form(at)
        args = {"Input Dims": [[*dims, 4], [7, 4]], "Sequence number": number}
        chosen = {"Input Dims": [[*dims, 7], [], []], "Concrete Inputs": ["", "1", "1"]}
        events += [
            x("aten::linear", 99 + 80 * at, 10, **args), x("aten::addmm", 100 + 80 * at, 8, **args),
            x("aten::select", 119 + 80 * at, 10, **chosen),
            x("aten::tanh", 139 + 80 * at, 10, **{"Input Dims": [[dims[0] * dims[1], 7]]}),
        ]  # fmt: skip
    return document(events)


def _numbered(number: Callable[[int], int]) -> bytes:
    """Layers of different shapes, ops that read one position of each output, and backward nodes with the layers'
    sequence numbers.
    """
    events = _steps(5, 500_000)
    for at in range(5_000):
        begin, of = 100 * at, {"Sequence number": number(at)}
        layer = {"Input Dims": [[3, at + 2, 4], [7, 4]]}
        chosen = {"Input Dims": [[3, at + 2, 7], [], []], "Concrete Inputs": ["", "1", "1"]}
        events += [
            x("aten::linear", begin, 20, **layer, **of), x("aten::addmm", begin + 1, 18, **layer, **of),
            x("aten::select", begin + 25, 5, **chosen),
            x("autograd::engine::evaluate_function: AddmmBackward0", begin + 40, 10, **of),
            x("aten::mm", begin + 41, 8),
        ]  # fmt: skip
    return document(events)


def _convolutions(side: Callable[[int], int]) -> bytes:
    """Convolutions of images with ``side`` x ``side`` pixels, each after a copy of another batch of images to NCHW."""
    events = _steps(5, 1_200_000)
    for at in range(12_000):
        size, begin = side(at), 100 * at
        args = {
            "Input Dims": [[8, 64, size, size], [64, 64, 3, 3]], "Input type": ["float"] * 2,
            "Input Strides": [[64 * size * size, size * size, size, 1], [576, 9, 3, 1]],
        }  # fmt: skip
        permuted = {"Input Dims": [[9, size, size, 64], []], "Concrete Inputs": ["", "[0, 3, 1, 2]"]}
        events += [
            x("aten::mkldnn_convolution", begin, 75, **args), x("aten::permute", begin + 80, 3, **permuted),
            x("aten::contiguous", begin + 85, 10, **{"Input Dims": [[9, 64, size, size]]}),
        ]  # fmt: skip
        if at < 3_000:
            result = {"Input Dims": [[8, 64, size, size]]}
            events += [x("aten::empty", begin + 21, 2), x("aten::as_strided_", begin + 60, 5, **result)]
    return document(events)


def _cosines(number: Callable[[int], int]) -> bytes:
    """Cosine similarities of all pairs, whose ops have the sequence number ``number``, and a backward node for each."""
    events = _steps(5, 800_000)
    for at in range(8_000):
        begin, of = 100 * at, {"Sequence number": number(at)}
        events += [
            x("aten::cosine_similarity", begin, 30, **{"Input Dims": [[7, 1, 4], [1, 7, 4], [], []]}, **of),
            x("aten::mul", begin + 11, 10, **{"Input Dims": [[7, 7, 4], [7, 7, 4]]}, **of),
            x("autograd::engine::evaluate_function: MulBackward0", begin + 40, 10, **of),
        ]
    return document(events)


def _distances(number: Callable[[int], int]) -> bytes:
    """Pairwise distances, whose ops have the sequence number ``number``, and a backward node for each."""
    events = _steps(5, 800_000)
    for at in range(8_000):
        begin, of = 100 * at, {"Sequence number": number(at)}
        summed = {"Input Dims": [[7, 5, 4], [], []], "Concrete Inputs": ["", "[-1]", "False"]}
        events += [
            x("aten::sub", begin, 10, **{"Input Dims": [[1, 5, 4], [7, 1, 4], []]}, **of),
            x("aten::abs", begin + 11, 10, **{"Input Dims": [[7, 5, 4]]}, **of),
            x("aten::sum", begin + 22, 10, **summed, **of),
            x("autograd::engine::evaluate_function: SumBackward1", begin + 40, 10, **of),
        ]  # fmt: skip
    return document(events)


def _standardised(number: Callable[[int], int]) -> bytes:
    """Standardised weights, whose ops have the sequence number ``number``, and a backward node for each."""
    events = _steps(5, 800_000)
    for at in range(8_000):
        begin, of = 100 * at, {"Sequence number": number(at)}
        variance = {"Input Dims": [[7, 5, 3, 3], [], [], []], "Concrete Inputs": ["", "[1, 2, 3]", "False", "True"]}
        events += [
            x("aten::var_mean", begin, 20, **variance, **of),
            x("aten::div", begin + 21, 10, **{"Input Dims": [[7, 5, 3, 3], [7, 1, 1, 1]]}, **of),
            x("aten::conv2d", begin + 32, 10, **{"Input Dims": [[2, 5, 9, 9], [7, 5, 3, 3], [], [], [], [], []]}),
            x("autograd::engine::evaluate_function: DivBackward0", begin + 50, 10, **of),
        ]  # fmt: skip
    return document(events)


def _slices(number: Callable[[int], int]) -> bytes:
    """Products whose results are sliced. The products and their backward functions have the sequence number ``number``,
    and the last product contains an op for each of them."""
    count, events = 2_000, _steps(3, 200_000)
    events += [x("aten::add", 20 * count + 5 * at + 1, 3) for at in range(count)]
    for at in range(count):
        product, sliced = ({"Sequence number": of, "Fwd thread id": 0} for of in (number(at), count + number(at)))
        begin, dur = (20 * at, 8) if at < count - 1 else (20 * count, 5 * count)
        sizes, whole, part = [[100, 50], [50, 100]], [[100, 100]], [[10, 100]]
        events += [
            x("aten::mm", begin, dur, **{"Input Dims": sizes}, **product),
            x("aten::slice", begin + dur + 2, 2, **{"Input Dims": whole}, **sliced),
            x("SliceBackward0", 80_000 + 50 * at, 2, tid=2, **{**sliced, "Input Dims": part, "Fwd thread id": 1}),
            x("MmBackward0", 80_005 + 50 * at, 20, tid=2, **{**product, "Input Dims": whole, "Fwd thread id": 1}),
            x("aten::mm", 80_006 + 50 * at, 18, tid=2, **{"Input Dims": [[50, 100], [100, 100]]}),
        ]
    return document(events)


def _slices_of_one(inputs: int) -> bytes:
    """Return an op with ``inputs`` inputs, and many backward functions with its sequence number."""
    of = {"Sequence number": 7}
    events = [*_steps(3, 50_000), x("aten::mm", 9, 90, **{"Input Dims": [[64, 64], [64, 64]]})]
    events += [x("aten::slice", 1, 3, **of, **{"Input Dims": [[64, 64], *[[1]] * inputs]})]
    part = {"Input Dims": [[32, 64]], "Fwd thread id": 1}
    events += [x("SliceBackward0", 100 + 10 * at, 5, tid=2, **of, **part) for at in range(4_000)]
    return document(events)


def _packed(number: Callable[[int], int]) -> bytes:
    """LSTM layers on packed sequences. The products in them and their backward functions have the sequence number
    ``number``."""
    events = _steps(5, 1_200_000)
    padded = {"Input Dims": [[8, 10, 16], [8], []], "Concrete Inputs": ["", "", "True"]}
    for at in range(10_000):
        begin, of = 120 * at, {"Sequence number": number(at)}
        events += [
            x("aten::_pack_padded_sequence", begin, 20, **padded),
            x("aten::lstm", begin + 20, 40, **{"Input Dims": [[20, 16], [5], [[1, 8, 32], [1, 8, 32]]]}),
            x("aten::addmm", begin + 25, 20, **{"Input Dims": [[128], [8, 32], [32, 128]]}, **of),
            x("autograd::engine::evaluate_function: AddmmBackward0", begin + 60, 50, **of),
            x("aten::mm", begin + 65, 40, **{"Input Dims": [[80, 128], [128, 32]]}),
        ]
    return document(events)


def _transforms(dims: int) -> bytes:
    """FFTs, most of them inverse, that state ``dims`` transformed dimensions."""
    given = {"Input Dims": [[64, 64], [], [], []], "Concrete Inputs": ["", str([0, 1] * (dims // 2)), "1", "64"]}
    names = ["aten::_fft_r2c", *["aten::_fft_c2r"] * 100]
    return document([*_steps(3, 10_100), *(x(name, 100 * at, 50, **given) for at, name in enumerate(names))])


def _derivatives(number: Callable[[int], int]) -> bytes:
    """Backward passes of one function each, which records an op. Both have the sequence number ``number``."""
    count, events = 12_000, _steps(3, 400_000)
    for at in range(count):
        of = {"Sequence number": number(at)}
        events += [
            x("aten::ones_like", 30 * at, 3, **{"Input Dims": [[100]]}),
            x("autograd::engine::evaluate_function: MmBackward0", 30 * at + 4, 20, **of, **{"Fwd thread id": 1}),
            x("aten::mm", 30 * at + 6, 10, **of, **{"Input Dims": [[50, 100], [100, 100]], "Fwd thread id": 0}),
        ]
    return document(events)


def _network_passes(passes: int) -> bytes:
    """Gradients of different shapes, computed in ``passes`` backward passes, and one step of an optimizer that changes
    as many tensors."""
    count, events = 6_000, _steps(3, 120_000)
    for at in range(count):
        if at % (count // passes) == 0:
            events += [x("aten::mm", 10 * at, 3, **{"Input Dims": [[100, 100], [100, 100]]})]
        events += [x("torch::autograd::AccumulateGrad", 10 * at + 4, 3, **{"Input Dims": [[at + 1, 3]]})]
        events += [x("aten::add_", 60_002 + 8 * at, 3, **{"Input Dims": [[at + 1, 3], [at + 1, 3], []]})]
    return document([*events, x("Optimizer.step#SGD.step", 60_000, 50_000, "user_annotation")])


def _embeddings(height: Callable[[int], int]) -> bytes:
    """Lookups in tables of ``height`` rows, their backward passes, and matmuls."""
    events = [*_steps(5, 1_500_000), x("Optimizer.step#SGD.step", 1_500_000 - 20, 10, "user_annotation")]
    for at in range(15_000):
        begin, rows = 100 * at, height(at)
        given = {"Input Dims": [[1, 16], [1], [], [], []], "Concrete Inputs": ["", "", str(rows), "-1", "False"]}
        events += [
            x("aten::embedding", begin, 10, **{"Input Dims": [[rows, 16], [1], [], [], []]}),
            x("aten::embedding_dense_backward", begin + 20, 10, **given),
            x("aten::mm", begin + 70, 10, **{"Input Dims": [[8, at + 1], [at + 1, 8]]}),
        ]  # fmt: skip
    return document(events)


def _padded(length: Callable[[int], int]) -> bytes:
    """Lookups of sequences of ``length`` tokens, and ops on them."""
    padded = {"vocabulary": 99, "width": 16, "tokens": 100, "padded": 90, "cut": 0}
    places = [{**padded, "path": f"{'p' * 900} > {number}"} for number in range(100)]
    events = _steps(5, 900_000)
    for at in range(15_000):
        events += [
            x("aten::embedding", 60 * at, 10, **{"Input Dims": [[99, 16], [64, length(at)], [], [], []]}),
            x("aten::add", 60 * at + 20, 30, **{"Input Dims": [[64, 64, length(at)], [64, at % 99 + 1, 64], []]}),
        ]
    return document(events, perftoolRecording={"version": 1, "padded_inputs": places})


def _ignored(classes: Callable[[int], int]) -> bytes:
    """Losses of many sizes that ignore targets, and ops on their scores."""
    places = [
        {"path": f"{'p' * 900} > {number}", "classes": number % 50 + 5, "targets": 100, "ignored": 90}
        for number in range(100)
    ]
    events = _steps(5, 900_000)
    for at in range(15_000):
        events += [
            x("aten::cross_entropy_loss", 60 * at, 10, **{"Input Dims": [[at + 2, classes(at)], [at + 2], [], []]}),
            x("aten::add", 60 * at + 20, 30, **{"Input Dims": [[at + 2, classes(at), 7], [at % 99 + 1]]}),
        ]
    return document(events, perftoolRecording={"version": 1, "ignored_targets": places})


def _dimensions(size: int) -> bytes:
    """Lookups of padded sequences, and products of tensors with 10,000 dimensions of ``size``."""
    place = {"vocabulary": 99, "width": 16, "tokens": 100, "padded": 90, "cut": 0, "path": "Embedding"}
    events = _steps(3, 100_000)
    for at in range(9):
        events += [x("aten::embedding", 20 * at, 10, **{"Input Dims": [[99, 16], [64, 65 + at]]})]
    for at in range(40):
        events += [x("aten::mm", 1_000 + 100 * at, 50, **{"Input Dims": [[size] * 10_000 + [at], [64, 64]]})]
    return document(events, perftoolRecording={"version": 1, "padded_inputs": [place]})


def _sparse(rows: Callable[[int], int]) -> bytes:
    """Sparse matrices with ``rows`` rows that are converted to dense matrices, and matmuls with them."""
    events = _steps(5, 2_400_000)
    for at in range(24_000):
        begin, shape = 100 * at, [rows(at), 999]
        events += [
            x("aten::to_dense", begin, 20, **{"Input Dims": [shape]}),
            x("aten::_to_dense", begin + 1, 8), x("aten::to", begin + 2, 5, **{"Input Dims": [[1]]}),
        ]  # fmt: skip
        events.append(x("aten::mm", begin + 30, 50, **{"Input Dims": [shape, [999, 8]]}))
    return document(events)


def _wide(inputs: int, kernels: int = 15_000, op: str = "aten::cat") -> bytes:
    """Return one ``op`` with ``inputs`` inputs around all kernels."""
    args = {"Input Dims": [[number + 1, 3] for number in range(inputs)], "Input type": ["float"] * inputs}
    events = [*_steps(5, 20 * kernels + 100), x(op, 2, 20 * kernels + 40, **args)]
    return document([*events, *(one for number in range(kernels) for one in _kernel_of(number))])


def _joined(parts: int) -> bytes:
    """20,000 calls of a module, and one op that joins ``parts`` tensors, on the CPU."""
    calls, made = 20_000, {"Sequence number": 1}
    end = 10 * calls + 100
    events = [step(1, 0, end + 400), x("aten::cat", end, 50, **{"Input Dims": [[[8, 4]] * parts, []]})]
    events += [x("nn.Module: Head_0", 10 * at + 50, 5, "python_function", **{"Python id": at}) for at in range(calls)]
    events += [x("aten::linear", end + 100, 50, **{"Input Dims": [[8, 16], [4, 16], [4]]}, **made)]
    return document([*events, x("autograd::engine::evaluate_function: AddmmBackward0", end + 200, 100, **made)])


def _repeated(weights: int) -> bytes:
    """20,000 concatenations of repeated rows, and a product with ``weights`` weights in each of four steps."""
    copied = {"Input Dims": [[1, 4], [], []], "Concrete Inputs": ["", "[8, 4]", "False"]}
    joined = {"Input Dims": [[[8, 4], [8, 4]], []], "Concrete Inputs": ["", "0"]}
    product = {"Input Dims": [[16, 4], *[[1_000_000, 1_000_000]] * weights]}
    events = _steps(4, 800_000)
    for number in range(4):
        at = 200_000 * number
        for pair in range(5_000):
            events += [x("aten::expand", at + 20 * pair, 5, **copied), x("aten::cat", at + 20 * pair + 9, 5, **joined)]
        events.append(x("aten::linear", at + 120_000, 50_000, **product))
    return document(events)


def _summed(inputs: int) -> bytes:
    """Return a sum with ``inputs`` inputs around 15,000 kernels, and the softmax of an output layer."""
    args = {"Input Dims": [[number + 1, 3] for number in range(inputs)]}
    layer = x("aten::_log_softmax", 300_060, 9, **{"Input Dims": [[64, 50_000], [], []]})
    events = [*_steps(5, 300_100), x("aten::sum", 2, 300_040, **args), layer]
    events += [runtime("cudaLaunchKernel", 300_061, 1, 15_000), kernel("softmax", 300_064, 3, 15_000)]
    return document([*events, *(one for number in range(15_000) for one in _kernel_of(number))])


def _saves(depth: int) -> bytes:
    """Saves inside ``depth`` nested functions, with ops between the saves."""
    events, save = _steps(5, 100 * 16_000), "torch/serialization.py(500): save"
    for nest in range(16_000 // depth):
        begin, length = 100 * nest * depth, 100 * depth
        for level in range(depth):
            inner, left = begin + level / 100, length - level / 50
            events.append(x(f"/home/u/a.py({level}): f", inner, left, "python_function"))
        for turn in range(depth):
            at = begin + 100 * turn + 40
            events += [x(save, at, 51, "python_function"), x("aten::mm", at + 52, 0.1)]
    return document(events)


def _stepping_threads(threads: int, steps: int = 3000) -> bytes:
    """Steps of a CPU run on ``threads`` threads, each with a long Python function."""
    events = []
    for number in range(steps):
        at, tid = 5000 * number, number % threads + 1
        events += [
            step(number, at, 4900) | {"tid": tid}, x("/a.py(3): work", at, 2500, "python_function", tid=tid),
            x("aten::mm", at + 2600, 1000, tid=tid), x("aten::add", at + 3700, 1000, tid=tid),
        ]  # fmt: skip
    return document(events)


def _graph(name: str, nodes: int) -> bytes:
    """14 MB of a compiled graph called ``name``."""
    node = '{"name": "a", "engine": "TPC", "guid": "relu", "id": 7, "origin_nodes": ["%s"]}'
    node %= "b" * (14_000_000 // nodes - len(node))
    head = f'{{"graphs": [{{"name": "{name}", "recipe_debug_id": 1, "nodes": ['
    return (head + ", ".join([node] * nodes) + "]}]}").encode()


_COMPILES = "_compile.compile_inner (dynamo_timed)"
_METRIC = b'{"metric_name": "graph_compilation", "triggered_by": "user", "metric_data": {"TotalNumber": 1}},\n'


def _card(device: str) -> bytes:
    """Return a table of Gaudi's profiler, with ends of work on the card ``device``."""
    row = "node,HW,e,{},{},{},\n"
    rows = [
        row.format("END" if number % 2 else "BEGIN", number, device if number < 2 else "0") for number in range(2000)
    ]
    return ("Name,Trace Source,Engine,Event type,Timestamp[usec],Device,SPMU value\n" + "".join(rows)).encode()


def _threads(name: str) -> bytes:
    """2,000 threads of a process called ``name``."""
    ops = [x("aten::mm", 2 * number, 1, tid=number + 2) for number in range(2000)]
    return document([meta("process_name", f"/device:HPU:0 {name}"), *ops])


def _recipe(name: str) -> bytes:
    """3,000 nodes of a Gaudi recipe, one of which states its ``name``."""
    works = [
        x("GEMM", 10 * at, 5, "kernel", 0, 6011, recipeId=65019, recipeName=name if at == 5 else "", device=0)
        for at in range(3000)
    ]
    return document([meta("process_name", "/device:HPU:0", pid=0), *_steps(5, 30_000), *works])


def _restarts(said: str) -> bytes:
    """30,000 recipes that leave the cache, and 30,000 statistics of a server, each with ``said`` after it."""
    removed = "Recipes total size exceeded the limit: 200/100. Trying to remove: r"
    server = (
        "INFO 11-30 22:00:00 [l.py:100] Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 9.0 tokens/s, "
        f"Running: 4 reqs, Waiting: 0 reqs\nINFO 11-30 22:00:00 [u.py:233] {said}: {{}}\n"
    )
    return "".join([*(f"{removed}{number}\n" for number in range(30_000)), server * 30_000]).encode()


# For each shape, the name of the file, and a benign and a hostile version of its content.
SHAPES: dict[str, tuple[str, Callable[[], bytes], Callable[[], bytes]]] = {
    "one correlation id": ("t.json", lambda: _trace(_steps(5)), lambda: _trace(_steps(5), lambda _: 7)),
    "steps that overlap": (
        "t.json", lambda: _trace(_steps(5)),
        lambda: _trace([step(number, number, _SPAN) for number in range(2000)]),
    ),
    "many steps": ("t.json", lambda: _trace(_steps(5)), lambda: _trace(_steps(20_000))),
    "steps on threads of their own": ("t.json", lambda: _stepping_threads(1), lambda: _stepping_threads(3000)),
    "many streams": ("t.json", lambda: _trace(_steps(5)), lambda: _trace(_steps(5), stream=lambda number: number)),
    "a name of 30 MB": ("t.json.gz", lambda: gzip.compress(_trace(_steps(5))), lambda: _gzipped(b"a" * (30 << 20))),
    "a name of escapes": ("t.json.gz", lambda: gzip.compress(_trace(_steps(5))), lambda: _gzipped(b'\\"' * (8 << 20))),
    "names that differ": (
        "t.json", lambda: _trace(_steps(5), launches=15_000, name=lambda _: "k" * 900),
        lambda: _trace(_steps(5), launches=15_000, name=lambda number: "k" * 900 + str(number)),
    ),
    "warm-ups around decodes": (
        "t.json", lambda: document([one for number in range(20_000) for one in _decode(number)]),
        lambda: document([
            one for number in range(20_000) for one in (x("warmup", number / 1000, 1e9, ""), *_decode(number))
        ]),
    ),
    "compilations around steps": (
        "t.json", lambda: _beside(lambda number: [x(_COMPILES, 10 * number, 1)], steps=20_000),
        lambda: _beside(lambda number: [x(_COMPILES, number / 1000, 1e5, tid=number)], steps=20_000),
    ),
    "checkpoints around pauses": (
        "t.json", lambda: _beside(lambda number: _save(number, 1)), lambda: _beside(lambda number: _save(number, 1e6)),
    ),
    "optimizers in optimizers": (
        "t.json", lambda: _beside(lambda number: _optimizer(number, 10 * number, 9), 40_000),
        lambda: _beside(lambda number: _optimizer(number, number / 1000, 1e6 - number / 500), 40_000),
    ),
    "modules that all differ": (
        "t.json", lambda: _beside(lambda number: [_frame(f"nn.Module: L_{number % 10}", 5 * number, 4, 1)]),
        lambda: _beside(_module),
    ),
    "backward passes of one number": (
        "t.json", lambda: _beside(lambda number: _pass(5 * number, 4, number)),
        lambda: _beside(lambda number: _pass(number / 1000, 1e5 - number / 500, 7)),
    ),
    "blocks that live together": (
        "t.json", lambda: _beside(lambda number: _block(number % 50, 5 * number, 2)),
        lambda: _beside(lambda number: _block(number, number / 1000, 1e5)),
    ),
    "ops of the CPU on many threads": (
        "t.json", lambda: document([x("aten::add", 5 * number, 4) for number in range(20_000)]),
        lambda: document([x("aten::add", number / 1000, 1e5, tid=number) for number in range(20_000)]),
    ),
    "blocks in one long name": (
        "t.json", lambda: _in_one("aten::mm", "/home/u/a.py(1): f", _block_of, 0),
        lambda: _in_one("aten::mm" + _LONG, f"/home/u/{_LONG}.py(1): f", _block_of, 20),
    ),
    "kernels in one long name": (
        "t.json", lambda: _in_one("aten::mm", "/home/u/a.py(1): f", _kernel_of, 0),
        lambda: _in_one("aten::mm" + _LONG, f"/home/u/{_LONG}.py(1): f", _kernel_of, 20),
    ),
    "copies in one long name": (
        "t.json", lambda: _in_one("aten::mm", "/home/u/a.py(1): f", _copy_of, 0),
        lambda: _in_one("aten::mm" + _LONG, f"/home/u/{_LONG}.py(1): f", _copy_of, 20),
    ),
    "fetches that overlap": (
        "t.json", lambda: _beside(lambda number: _fetched(number, 5 * number, 4)),
        lambda: _beside(lambda number: _fetched(number, number / 1000, 1e5)),
    ),
    "ops around copies": (
        "t.json", lambda: document([*_steps(5, 1e5), *(one for number in range(10_000) for one in _copied(number, 9))]),
        lambda: document([*_steps(5, 1e5), *(one for number in range(10_000) for one in _copied(number, 2e5))]),
    ),
    "ops of one id": (
        "t.json", lambda: _beside(lambda number: _framed(number, 99 + 10 * number, 9.5, number), 18_000),
        lambda: _beside(lambda number: _framed(number, number / 1000, 2e5, 7), 18_000),
    ),
    "values before the events": (
        "t.json", lambda: _trace(_steps(5), launches=20_000),
        lambda: b'{"a":[%b1],%b' % (b"[]," * 3_000_000, _trace(_steps(5))[1:]),
    ),
    "values after the events": (
        "t.json", lambda: _trace(_steps(5), launches=20_000),
        lambda: b'%b,"a":[%b1]}' % (_trace(_steps(5))[:-1], b"[]," * 3_000_000),
    ),
    "a snapshot of many devices": (
        "snapshot.json", lambda: _snapshot(1), lambda: _snapshot(20_000),
    ),
    "allocations without details": ("snapshot.json", lambda: _history(10), lambda: _history(0)),
    "shapes not warmed up": ("console.log", lambda: _buckets(98_000, 0), lambda: _buckets(49_000, 49_000)),
    "blanks in a header": ("r_analyzed_nodes.csv", lambda: _nodes(0), lambda: _nodes(200_000)),
    "digits in a device": ("accel0.csv", lambda: _card("0"), lambda: _card("1" * 60_000 + "x")),
    "many groups": ("nccl_trace_rank_0.json", lambda: _dump(1, 20_000), lambda: _dump(20_000, 20_000)),
    "sends to many": ("nccl_trace_rank_0.json", lambda: _sends(1, "completed"), lambda: _sends(19_999, "started")),
    "metrics cut off": (
        "metrics.json", lambda: b"[" + _METRIC * 30_000 + b"{}]", lambda: b"[" + b'{"metric_name":[{' * 200_000,
    ),
    "bars that never begin": (
        "console.log", lambda: b" 3%|# | 3/100 [00:01<00:32,  3.01it/s]\n" * 200_000,
        lambda: (b"1%|" * 60 + b"\n") * 44_000,
    ),
    "gradients and readers": ("t.json", lambda: _gradients(20_000, 1), lambda: _gradients(20_000, 20_000)),
    "positions of many shapes": (
        "t.json", lambda: _positions(lambda at: ([1, 5], at)), lambda: _positions(lambda at: ([0, at + 2], at)),
    ),
    "sliced products of one number": ("t.json", lambda: _slices(lambda at: at), lambda: _slices(lambda _: 7)),
    "packed layers of one number": ("t.json", lambda: _packed(lambda at: at), lambda: _packed(lambda _: 7)),
    "slices of an op of many inputs": ("t.json", lambda: _slices_of_one(1), lambda: _slices_of_one(7_000)),
    "tensors of many equal dimensions": ("t.json", lambda: _dimensions(63), lambda: _dimensions(64)),
    "transforms of many dimensions": ("t.json", lambda: _transforms(2), lambda: _transforms(10_000)),
    "losses of many sizes": ("t.json", lambda: _ignored(lambda _: 4), lambda: _ignored(lambda at: at % 50 + 5)),
    "padding of many lengths": ("t.json", lambda: _padded(lambda _: 50), lambda: _padded(lambda at: at + 2)),
    "derivatives of one number": ("t.json", lambda: _derivatives(lambda at: at), lambda: _derivatives(lambda _: 7)),
    "passes through a network": ("t.json", lambda: _network_passes(2), lambda: _network_passes(6_000)),
    "cosines of one number": ("t.json", lambda: _cosines(lambda at: at), lambda: _cosines(lambda _: 7)),
    "distances of one number": ("t.json", lambda: _distances(lambda at: at), lambda: _distances(lambda _: 7)),
    "weights of one number": ("t.json", lambda: _standardised(lambda at: at), lambda: _standardised(lambda _: 7)),
    "nodes of one number": ("t.json", lambda: _numbered(lambda at: at), lambda: _numbered(lambda _: 7)),
    "tables of many heights": (
        "t.json", lambda: _embeddings(lambda _: 999), lambda: _embeddings(lambda at: 1000 + at),
    ),
    "sparse matrices of many shapes": ("t.json", lambda: _sparse(lambda _: 999), lambda: _sparse(lambda at: 1000 + at)),
    "an op of many inputs around kernels": ("t.json", lambda: _wide(2), lambda: _wide(15_000)),
    "modules before an op of many inputs": ("t.json", lambda: _joined(10), lambda: _joined(5000)),
    "repeated rows before a product of many inputs": ("t.json", lambda: _repeated(5), lambda: _repeated(1_550)),
    "a product of many inputs around kernels": ("t.json", lambda: _wide(2), lambda: _wide(2_900, op="aten::mm")),
    "a layer of many inputs around kernels": ("t.json", lambda: _summed(2), lambda: _summed(2_900)),
    "functions around saves": ("t.json", lambda: _saves(1), lambda: _saves(16_000)),
    "convolutions and copies of many sizes": (
        "t.json", lambda: _convolutions(lambda _: 224), lambda: _convolutions(lambda at: 20 + at),
    ),
    "labels without an end": (
        "console.log", lambda: b"[INFO] loss 3\n" * 400_000, lambda: (b"[INFO]" * 170_000 + b"\n") * 6,
    ),
    "recompilations without a count": (
        "console.log", lambda: b"[DETECT_RECOMPILE_AUTO]]step:1 num_graphs:1\n" * 20_000,
        lambda: b"[DETECT_RECOMPILE_AUTO]" + b"]step:1 " * 120_000 + b"\n",
    ),
    "blanks behind a setting": (
        "console.log", lambda: b"max_seq_len = 512\n" * 6_000, lambda: b"max_seq_len" + b" " * 100_000 + b"x\n",
    ),
    "nodes of a graph with a long name": (
        "graph.json", lambda: _graph("g", 10_000), lambda: _graph("\U0001f600" * 1000, 107_000),
    ),
    "a long name of a process of many threads": ("t.json", lambda: _threads("p"), lambda: _threads("p" * 200_000)),
    "a long name of a recipe of many nodes": ("t.json", lambda: _recipe("r"), lambda: _recipe("r" * 200_000)),
    "restarts of a server between many events": (
        "console.log", lambda: _restarts("other arguments"), lambda: _restarts("non-default args"),
    ),
    "quotes in a configuration": (
        "ds_config.json", lambda: b'{"train_batch_size": 1, "x": [%b 1]}' % (b"1, " * 26_000),
        lambda: b'{"train_batch_size": 1, "x": "' + b'\\"' * 40_000,
    ),
}  # fmt: skip

# Shapes that single rules join. Each becomes a rank of one run, because an analysis takes 0.6 s whatever its input.
_RANKS = [
    ["sparse matrices of many shapes", "positions of many shapes", "slices of an op of many inputs",
     "transforms of many dimensions"],
    ["tables of many heights", "tensors of many equal dimensions", "sliced products of one number",
     "gradients and readers"],
    ["losses of many sizes", "derivatives of one number", "an op of many inputs around kernels",
     "cosines of one number"],
    ["padding of many lengths", "distances of one number", "nodes of one number",
     "a product of many inputs around kernels"],
    ["convolutions and copies of many sizes", "packed layers of one number", "weights of one number",
     "a layer of many inputs around kernels"],
    ["repeated rows before a product of many inputs", "passes through a network"],
]  # fmt: skip
RUNS = [*_RANKS, *([name] for name in SHAPES if not any(name in names for names in _RANKS))]
