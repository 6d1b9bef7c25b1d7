"""Every decision that depends on a vendor's names is made in the vendor files, and nowhere else."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from events import Event, document, kernel, launch, memcpy, meta, runtime, step, x
from stores import Rows, store_over

import perftool
from perftool.engine.report.overview import engines, recipes
from perftool.engine.rules.pack import builtin_folder
from perftool.model import vendors
from perftool.store.device import detect_device
from perftool.store.trace_store import TraceStore

PACKAGE = Path(perftool.__file__).parent
# Calls to vendors' runtimes, and collective libraries.
VENDORS_NAMES = re.compile(
    r"""['"^(|](cu(da)?[A-Z]\w+|hip[A-Z]\w+|syn[A-Z]\w+|ze[A-Z]\w+|ur[A-Z]\w+|nccl|rccl|hccl|oneccl|gloo:|copy_hpu|
    SyncTensors|StepMarker|cpu_fallback'|dma_request|/device:hpu|Bridge[ ]Logs|mtia_)""",
    re.VERBOSE,
)


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the vendor files, which the program reads instead of the originals."""
    folder = tmp_path / "vendors"
    shutil.copytree(vendors.FOLDER, folder)
    monkeypatch.setattr(vendors, "FOLDER", folder)
    return folder


def roles_of(events: list[Event], name: str) -> list[str]:
    with store_over(events) as store:
        return sorted(row["role"] for row in store.rows("roles") if row["name"] == name)


def test_a_new_name_is_one_line_in_one_file(words: Path) -> None:
    events = [*launch(1, 0, 5, 10, 50), runtime("cudaFenceWait", 20, 30)]
    with store_over(events) as store:
        before = store.rows("syncs")
    file = words / "cuda.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("wait = [\n", 'wait = [\n    "cudaFenceWait",\n', 1), encoding="utf-8")
    vendors.vendors.cache_clear()

    with store_over(events) as store:
        after = [(row["name"], row["kind"], row["dur"]) for row in store.rows("syncs")]
    vendors.vendors.cache_clear()

    assert (before, after) == ([], [("cudaFenceWait", "explicit", 30_000)])


def test_a_new_vendor_is_one_file(words: Path) -> None:
    text = 'title = "A chip"\ntype = "chip"\nprecedence = 9\n[category]\nruntime = ["chip_rt"]\nsign = ["chip_rt"]\n'
    (words / "chip.toml").write_text(text, encoding="utf-8")
    vendors.vendors.cache_clear()

    with store_over([x("chipGo", 0, 5, "chip_rt"), x("k", 9, 5, "kernel", pid=0, tid=7)]) as store:
        device = detect_device(store).type
    vendors.vendors.cache_clear()

    assert device == "chip"


ASCEND = """
title = "Huawei Ascend NPUs"
type = "npu"
precedence = 9
[process]
sign = ["Ascend Hardware"]
device = ["Ascend Hardware"]
"""
CUBES = """
[[lane]]
engine = "CUBE"
process = "^ascend hardware"
"""


@pytest.mark.parametrize(
    ("lanes", "group", "shown"), [("", "compute", []), (CUBES, "CUBE", ["CUBE"])], ids=["without engines", "engines"]
)
def test_an_ascend_npu_is_one_file(words: Path, lanes: str, group: str, shown: list[str]) -> None:
    """The lanes have their own names and numbers, to which no other vendor's patterns apply."""
    (words / "ascend.toml").write_text(ASCEND + lanes, encoding="utf-8")
    vendors.vendors.cache_clear()
    lane = [meta("process_name", "Ascend Hardware", pid=9), x("MatMulV2", 10, 50, "kernel", pid=9, tid=2)]

    with store_over([x("aten::mm", 0, 80), *lane]) as store:
        device = detect_device(store).type
        work = [(row["name"], row["engine"]) for row in store.rows("device_ops")]
        reported = ([row.engine for row in engines(store)], recipes(store))
    vendors.vendors.cache_clear()

    assert device == "npu"
    assert work == [("MatMulV2", group)]
    assert reported == (shown, ())


def test_a_copy_to_the_host_is_recognised_for_every_vendor(store: Callable[..., TraceStore]) -> None:
    names = ["Memcpy DeviceToHost", "Memcpy D2H", "Memcpy DtoH (Device -> Pageable)", "Device->Host"]
    opened = store(*([x("aten::item", 0, 100), memcpy(name, 10, 20)] for name in [*names, "Memcpy HostToDevice"]))

    directions = {row["rank"]: row["direction"] for row in opened.rows("copies")}
    assert directions == {0: "device_to_host", 1: "device_to_host", 2: "device_to_host", 3: "device_to_host",
                          4: "host_to_device"}  # fmt: skip
    # A copy to the device is not a read by the host.
    assert {row["rank"]: row["kind"] for row in opened.rows("syncs")} == dict.fromkeys(range(4), "scalar_read")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([memcpy("Memcpy HtoD (Pinned -> Device)", 0, 10)], "cuda"),
        ([kernel("k", 0, 10)], "cuda"),
        ([runtime("hipLaunchKernel", 0, 5, 1), memcpy("Memcpy DtoD", 9, 9, 1)], "rocm"),
        ([x("zeX", 0, 5, "xpu_runtime")], "xpu"),
        ([x("w", 0, 5, "mtia_ccp_events", pid=0)], "mtia"),
        ([meta("process_name", "/device:HPU:0", pid=5), x("w", 0, 5, "runtime", pid=5, tid=2000)], "hpu"),
        ([x("aten::add", 0, 5)], "cpu"),
    ],
)
def test_the_device_is_recognised_by_events(events: list[Event], expected: str) -> None:
    with store_over(events) as store:
        assert detect_device(store).type == expected


@pytest.mark.parametrize("name", ["python (accel0)", "*python (accel0)", "/device:HPU:0"])
@pytest.mark.parametrize(
    "device", [{}, {"deviceProperties": [{"name": "AMD Instinct MI300X"}]}], ids=["unnamed", "named"]
)
def test_no_name_of_a_process_turns_the_work_of_a_gpu_into_a_gaudis(
    name: str, device: dict[str, object], tmp_path: Path
) -> None:
    mark = x("ProfilerStep#1", 0, 100, "gpu_user_annotation", pid=0, tid=7)
    events = [meta("process_name", name, pid=0), mark, *launch(1, 0, 5, 10, 50), memcpy("Memcpy HtoD", 70, 5)]
    path = tmp_path / "trace.json"
    path.write_bytes(document(events, **device))

    with TraceStore() as store:
        store.add_trace(str(path))
        work = sorted((row["kind"], row["engine"]) for row in store.rows("device_ops"))
        assert detect_device(store).type == ("rocm" if device else "cuda")

    assert work == [("kernel", "compute"), ("memcpy", "copy")]


def test_a_gaudi_with_an_event_of_another_vendor_keeps_its_engines(tmp_path: Path) -> None:
    lane = [meta("process_name", "/device:HPU:0", pid=5), x("GEMM", 10, 50, "Kernel", pid=5, tid=6001)]
    path = tmp_path / "trace.json"
    path.write_bytes(document([*lane, runtime("cudaFree", 0, 5)], deviceProperties=[{"name": "GAUDI2"}]))

    with TraceStore() as store:
        store.add_trace(str(path))
        assert [row["engine"] for row in store.rows("device_ops")] == ["MME"]
        assert detect_device(store).type == "hpu"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "cuda"), ("Tesla V100-SXM2-32GB", "cuda"), ("AMD Instinct MI300X", "rocm"),
        ("AMD Radeon Graphics", "rocm"), ("Intel(R) Data Center GPU Max 1550", "xpu"), ("GAUDI2", "hpu"),
        ("NVIDIA Architect", "cuda"), ("", None),
    ],
)  # fmt: skip
def test_the_device_is_recognised_by_its_name(name: str, expected: str | None) -> None:
    assert vendors.type_of_name(name) == expected


def test_kernels_of_every_communication_library_are_collectives_and_others_are_not(rows: Rows) -> None:
    communication = [
        "ncclDevKernel_AllReduce_Sum_bf16", "void (anonymous namespace)::multimem_all_reduce_kernel<int>",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>()", "void aiter::cross_device_reduce_2stage<half, 8>",
        "void c10d::symmetric_memory::two_shot_all_reduce_kernel_inplace<float>", "mscclKernel_Sum_half_Simple_LL",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<int>",
        "void quickreduce::allreduce_prototype_twoshot<half>", "hcclAllReduce", "ONECCL_kernel", "rcclGeneric",
    ]  # fmt: skip
    compute = ["reduce_kernel<512, 1>", "splitKreduce_kernel", "vectorized_gather_kernel", "reduce_segments"]
    found = rows("device_ops", [kernel(name, 20 * at, 10) for at, name in enumerate([*communication, *compute])])

    assert {row["name"]: row["kind"] for row in found} == {
        **dict.fromkeys(communication, "collective"), **dict.fromkeys(compute, "kernel"),
    }  # fmt: skip


def test_a_waiting_kernel_is_not_work(rows: Rows) -> None:
    events = [
        step(1, 0, 100),
        x("aten::add", 0, 100),
        kernel("add", 0, 20),
        kernel("at::cuda::spin_kernel(long)", 20, 80),
    ]

    assert sorted(row["kind"] for row in rows("device_ops", events)) == ["kernel", "wait"]
    assert [(row["ts"], row["dur"]) for row in rows("device_busy", events)] == [(0, 20_000)]
    assert [row["kernel"] for row in rows("steps", events)] == [20_000]


def test_the_roles_of_a_name() -> None:
    events = [x("cudaMemcpy", 0, 5, "cuda_runtime"), x("cudaMemcpyAsync", 6, 5, "cuda_runtime")]

    assert roles_of(events, "cudaMemcpy") == ["blocking_copy", "copy"]
    assert roles_of(events, "cudaMemcpyAsync") == ["copy"]
    assert roles_of([x("hipGraphLaunch", 0, 5, "cuda_runtime")], "hipGraphLaunch") == ["graph_launch", "sign"]
    # An op with that name has no role.
    assert roles_of([x("cudaMemcpy", 0, 5)], "cudaMemcpy") == []


def test_files_of_names_are_well_formed() -> None:
    known = vendors.vendors()
    names = [(vendor.title, name) for vendor in known for name in vendor.names]
    types = [vendor.type for vendor in known]

    assert len(set(names)) == len(names)
    assert sorted(str(kind) for kind in types) == ["None", "None", "cuda", "hpu", "mtia", "rocm", "xpu"]
    assert len({vendor.precedence for vendor in known}) == len(known)
    # Brackets would form a character class, but a single wildcard or bracket in brackets matches itself.
    assert [name for _, name in names if "[" in re.sub(r"\[[][*?]\]", "", name.pattern)] == []


def test_vendor_names_appear_only_in_the_vendor_files() -> None:
    rooms = [*(PACKAGE / "tables").rglob("*.sql"), *builtin_folder().rglob("*.toml")]
    rooms += [path for room in ("store", "engine", "reporters", "model") for path in (PACKAGE / room).rglob("*.py")]
    found = {}
    for path in rooms:
        text = path.read_text(encoding="utf-8")
        # This module writes the traces of rule cases, so it has to use vendor names.
        if path.stem == "case_traces":
            continue
        if path.suffix == ".toml":
            text = "\n".join(re.findall(r'^sql = """(.*?)"""', text, re.S | re.M))
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("--", "#")))
        if names := VENDORS_NAMES.findall(code):
            found[path.name] = names

    assert found == {}
