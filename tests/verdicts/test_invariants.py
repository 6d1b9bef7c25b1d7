"""The invariants hold for traces that hypothesis generates. test_samples and test_recordings check recorded traces."""

from __future__ import annotations

import tempfile
from pathlib import Path

from events import Event, document, kernel, runtime, step, x
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import breaches

from perftool.engine.analysis import analyze
from perftool.readers.files.runs import list_runs

TIMES = st.integers(0, 4000)
DEVICES = ("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X", "A new one")
WORK = {
    "aten::mm": ("cudaLaunchKernel", "ampere_sgemm_128x64_tn", "kernel"),
    "aten::linear": ("cudaLaunchKernel", "sm80_xmma_gemm_bf16bf16_bf16f32", "kernel"),
    "aten::add": ("cudaLaunchKernel", "elementwise_kernel", "kernel"),
    "c10d::allreduce_": ("cudaLaunchKernelExC", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel"),
    "vllm::all_reduce": ("cudaLaunchKernel", "cross_device_reduce_1stage", "kernel"),
    "aten::copy_": ("cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy"),
    "aten::_local_scalar_dense": ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", "gpu_memcpy"),
    "aten::clone": ("cudaMemcpyAsync", "Memcpy DtoD (Device -> Device)", "gpu_memcpy"),
    "aten::zero_": ("cudaMemsetAsync", "Memset (Device)", "gpu_memset"),
    "aten::nonzero": ("cudaGraphLaunch", "spin_kernel", "kernel"),
}
HOST = (
    "aten::add_",
    "aten::item",
    "aten::lerp_",
    "autograd::engine::evaluate_function: MmBackward0",
    "entire_frame_compile",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "nccl:all_reduce",
    "Optimizer.step#Adam.step",
    "Optimizer.zero_grad#SGD.zero_grad",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
    "Torch-Compiled Region: 0/0",
)
CALLS = ("cudaDeviceSynchronize", "cudaMalloc", "cudaMemcpy", "hipGraphLaunch", "cudaFree")
PART = st.one_of(
    # An op: the number of its calls, the length of the call, the delay until its work starts, and the length of the
    # work.
    st.tuples(st.sampled_from(sorted(WORK)), st.sampled_from((1, 1, 30)), TIMES, TIMES, TIMES, st.integers(7, 8)),
    st.tuples(st.sampled_from(HOST), st.sampled_from((1, 1, 30)), TIMES, st.integers(1, 2)),
    st.tuples(st.sampled_from(CALLS), st.just(1), TIMES, st.integers(1, 2)),
)


def made(parts: list[tuple[tuple[int, int], tuple[object, ...]]], steps: int) -> list[Event]:
    """Return the events of ``parts`` one after the other, divided into ``steps`` steps of 4 ms."""
    events: list[Event] = [step(number, 4000 * number, 4000) for number in range(steps)]
    at, number = 0.0, 0
    for (pause, shrink), (name, times, *numbers) in parts:
        at += pause
        scale = (1.0, 0.01)[shrink]
        for _ in range(int(str(times))):
            number += 1
            dur = float(str(numbers[0])) * scale
            if name in WORK:
                call, work, cat = WORK[str(name)]
                delay, length, stream = (float(str(value)) for value in numbers[1:])
                events.append(x(str(name), at, dur + 1, **{"Input type": ["float", "float"], "External id": number}))
                events.append(runtime(call, at, dur, number))
                events.append(
                    kernel(work, at + delay * scale, length * scale, number, int(stream), cat=cat, bytes=4096)
                )
            elif name in CALLS:
                events.append(runtime(str(name), at, dur))
            else:
                cat = "user_annotation" if "#" in str(name) else "cpu_op"
                events.append(x(str(name), at, dur, cat, tid=int(str(numbers[1]))))
            at += dur
    return events


@settings(max_examples=6)
@given(
    st.lists(st.tuples(st.tuples(TIMES, st.integers(0, 1)), PART), min_size=1, max_size=14),
    st.integers(0, 4),
    st.sampled_from(DEVICES),
)
def test_generated_traces_break_no_invariant(
    parts: list[tuple[tuple[int, int], tuple[object, ...]]], steps: int, device: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(document(made(parts, steps), deviceProperties=[{"name": device}]))
        assert list(breaches(analyze([str(path)]))) == []


WORLDS, KNOWN = (None, 2, 4), (None, *DEVICES[:2])
RANK = st.tuples(st.integers(0, 2), st.sampled_from(WORLDS), st.sampled_from(KNOWN), st.integers(0, 1))


@settings(max_examples=12)
@given(st.lists(RANK, min_size=2, max_size=6))
def test_files_of_different_runs_are_not_ranks_of_one_run(ranks: list[tuple[int, int | None, str | None, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for number, (rank, world, device, day) in enumerate(ranks):
            path = Path(folder) / f"{number}.json"
            info = {"rank": rank, **({} if world is None else {"world_size": world})}
            properties = [] if device is None else [{"name": device}]
            at = 1_700_000_000_000_000 + day * 86_400_000_000
            path.write_bytes(document([x("aten::mm", at, 5)], distributedInfo=info, deviceProperties=properties))
            files[str(path)] = (rank, world, device, day)
        runs = list_runs(list(files))

    assert sorted(file for run in runs for file in run.files) == sorted(files)
    for run in runs:
        own = [files[file] for file in run.files]
        assert len({rank for rank, *_ in own}) == len(own)
        for known in (1, 2):
            assert len({facts[known] for facts in own} - {None}) <= 1
        assert len({day for *_, day in own}) == 1
