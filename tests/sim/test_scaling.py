"""Tests how the simulator's costs scale and compare with each other, without absolute times."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim.runs import run

MATMUL = """
    a = torch.ones({rows}, 2048, dtype=torch.{dtype}, device="hpu")
    b = torch.ones(2048, 2048, dtype=torch.{dtype}, device="hpu")
    htcore.mark_step()
    a @ b
    htcore.mark_step()
"""
STEPS = """
    model = torch.nn.Linear(8, 8).to("hpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    htcore.mark_step()
    for step in range({steps}):
        loss = model({inputs}).sum()
        loss.backward()
        htcore.mark_step()
        optimizer.step()
        optimizer.zero_grad()
        htcore.mark_step()
        {after}
"""
FIXED = 'torch.ones(4, 8, device="hpu")'


def steps(folder: Path, number: int = 4, inputs: str = FIXED, after: str = "pass", **options):
    return run(folder, STEPS.format(steps=number, inputs=inputs, after=after), **options)


def test_twice_the_matrix_work_takes_twice_the_time_of_the_matrix_engine(tmp_path: Path) -> None:
    small, large = (run(tmp_path, MATMUL.format(rows=rows, dtype="float32")).busy("MME") for rows in (1024, 2048))
    assert large == pytest.approx(2 * small, rel=1e-3)


def test_a_product_in_bf16_is_faster_than_in_fp32(tmp_path: Path) -> None:
    fp32, bf16 = (run(tmp_path, MATMUL.format(rows=1024, dtype=dtype)).busy("MME") for dtype in ("float32", "bfloat16"))
    assert bf16 < fp32 / 2


def test_a_newer_device_is_faster(tmp_path: Path) -> None:
    text = MATMUL.format(rows=1024, dtype="bfloat16")
    times = [
        sum(event["dur"] for event in run(tmp_path, text, device=device).events if event["name"] == "GEMM")
        for device in ("gaudi", "gaudi2", "gaudi3")
    ]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 3


def test_elementwise_work_is_bound_by_memory_and_stays_off_the_matrix_engine(tmp_path: Path) -> None:
    text = 'a = torch.ones({}, device="hpu")\nhtcore.mark_step()\na.exp()\nhtcore.mark_step()'
    runs = [run(tmp_path, text.format(size)) for size in (1 << 24, 1 << 25)]
    half, whole = (next(e["dur"] for e in each.events if e["name"].startswith("exp")) for each in runs)
    assert whole == pytest.approx(2 * half, rel=1e-3)
    assert not runs[0].kernels("MME")


def test_a_chain_of_elementwise_ops_is_one_kernel(tmp_path: Path) -> None:
    text = 'a = torch.ones(9, device="hpu")\nhtcore.mark_step()\n((a + 1) * 2).relu().exp()\nhtcore.mark_step()'
    names = [event["name"] for event in run(tmp_path, text).kernels("TPC")]
    assert len(names) == 2
    assert names[1].startswith("fused_kernel_0x")


@pytest.mark.parametrize(
    ("number", "inputs", "skipped"),
    [(6, FIXED, 2), (1, FIXED, 0), (9, 'torch.ones(4 + step, 8, device="hpu")', 3)],
)
def test_steps_that_warm_up_are_left_out(tmp_path: Path, number: int, inputs: str, skipped: int) -> None:
    whole, steady = (steps(tmp_path, number, inputs, skip_steps=skip) for skip in (0, None))
    assert (steady.done.skipped, steady.done.steps, whole.done.steps) == (skipped, number - skipped, number)
    assert steady.done.compilations == whole.done.compilations
    assert steady.done.compiling_ns == whole.done.compiling_ns > 0
    assert (steady.named("CompileSynapse") == []) == (skipped == 2)


def test_the_same_shapes_compile_once(tmp_path: Path) -> None:
    assert steps(tmp_path, 3).done.compilations == steps(tmp_path, 9).done.compilations


def test_a_new_shape_is_one_more_compilation(tmp_path: Path) -> None:
    inputs = 'torch.ones({}, 8, device="hpu")'
    same, other = (steps(tmp_path, 4, inputs.format(rows)).done.compilations for rows in ("4", "4 + (step == 3)"))
    assert other == same + 1


def test_a_number_in_the_graph_is_a_compilation_every_step(tmp_path: Path) -> None:
    rolled = f"{FIXED}.roll({{}}, 0)"
    same, other = (steps(tmp_path, 6, rolled.format(shift)).done.compilations for shift in ("1", "step"))
    assert other == same + 5


def test_a_number_that_the_bridge_turns_into_a_tensor_is_not_a_constant(tmp_path: Path) -> None:
    scaled = f"{FIXED} * {{}}"
    same, other = (steps(tmp_path, 6, scaled.format(factor)).done.compilations for factor in ("1.5", "(step + 1.5)"))
    assert other == same


def test_true_and_one_are_different_constants(tmp_path: Path) -> None:
    text = """
        a = torch.ones(4, 4, device="hpu")
        for keep in (True, 1, False, 0):
            a.sum(0, keepdim=bool(keep))
            htcore.mark_step()
    """
    assert (
        run(tmp_path, text).done.compilations == 3
    )  # torch.ones with the first sum, then one for each value of keepdim


def test_reading_a_value_every_step_is_slower_than_reading_it_rarely(tmp_path: Path) -> None:
    every, seldom = (steps(tmp_path, 40, after=after) for after in ("loss.item()", "step % 20 or loss.item()"))
    assert every.done.length_ns > seldom.done.length_ns
    assert (len(every.named("aten::item")), len(seldom.named("aten::item"))) == (40, 2)


def test_pinned_copies_that_do_not_wait_are_cheaper(tmp_path: Path) -> None:
    text = """
        host = torch.ones(1 << 22){pin}
        for _ in range(10):
            host.to("hpu", non_blocking={non_blocking})
    """
    pageable, blocking, pinned = (
        run(tmp_path, text.format(pin=pin, non_blocking=non_blocking)).done.length_ns
        for pin, non_blocking in (("", False), (".pin_memory()", False), (".pin_memory()", True))
    )
    assert pinned < blocking < pageable


def test_a_fused_optimizer_is_one_kernel(tmp_path: Path) -> None:
    text = """
        from habana_frameworks.torch.hpex.optimizers import FusedAdamW
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4))).to("hpu")
        optimizer = {cls}(model.parameters(), lr=0.1)
        model(torch.ones(2, 8, device="hpu")).sum().backward()
        htcore.mark_step()
        optimizer.step()
        htcore.mark_step()
    """
    fused, plain = (run(tmp_path, text.format(cls=cls)) for cls in ("FusedAdamW", "torch.optim.AdamW"))
    assert [event["name"] for event in fused.kernels()].count("optimizer_adamw") == 1
    assert len(fused.kernels()) + 20 < len(plain.kernels())


def test_an_hpu_graph_saves_host_time(tmp_path: Path) -> None:
    text = """
        import habana_frameworks.torch as ht
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(9))).to("hpu").eval()
        {wrap}
        with torch.no_grad():
            for _ in range(9):
                model(torch.ones(2, 8, device="hpu"))
                htcore.mark_step()
    """
    plain, graphed = (run(tmp_path, text.format(wrap=wrap)) for wrap in ("", "ht.hpu.wrap_in_hpu_graph(model)"))
    assert len(graphed.named("ExecuteCachedGraph")) == 8
    # Nine layers run nine times without the graph, and once with it, for the capture.
    assert [len(each.named("aten::addmm")) for each in (plain, graphed)] == [81, 9]


def test_modes_build_different_graphs(tmp_path: Path) -> None:
    text = """
        @torch.compile(backend="hpu_backend")
        def chain(x):
            return ((x + 1) * 2).relu()
        x = torch.ones(8, device="hpu")
        htcore.mark_step()
        for _ in range(3):
            chain(x)
            htcore.mark_step()
    """
    launches = {
        mode: len(run(tmp_path, text, mode=mode).named("synLaunchWithExternalEvents"))
        for mode in ("lazy", "eager", "compile")
    }
    assert launches == {"lazy": 4, "eager": 10, "compile": 4}


def test_workers_hide_the_work_of_the_loader(tmp_path: Path) -> None:
    text = """
        import time
        from torch.utils.data import DataLoader, Dataset
        class Slow(Dataset):
            def __len__(self):
                return 12
            def __getitem__(self, index):
                time.sleep(1)
                return torch.ones(4)
        for batch in DataLoader(Slow(), batch_size=2, num_workers={workers}):
            batch.to("hpu")
    """
    alone, two = (run(tmp_path, text.format(workers=workers)).done.length_ns for workers in (0, 2))
    assert alone > 12e9
    assert two == pytest.approx(alone / 2, rel=0.02)
