"""A small Gaudi 3 run in eager and compile mode: half-die lane names, recipe events (generation C of tests/builders).

Three steps replay one compiled graph and launch a handful of eager ops. A partial batch brings a new shape to the
third step, so a recipe is compiled and added to the cache in the middle of that step.
"""

from __future__ import annotations

from builders.gaudi import GaudiTrace
from gaudi_run import recipe_id

STEP_US = 3_000.0
COMPILE_US = 7_400.0
_START = 1_500_900_000_000.0
_LANE = "140233817864768"
_MONITORS = {"MME": "WB0_END", "TPC": "TPC_SPU_START_TO_SPU_HALT"}
_EAGER = ("aten::add", "aten::mul", "aten::sum", "aten::div")


def fill(trace: GaudiTrace) -> GaudiTrace:
    """Write the three steps into the trace."""
    at = _START
    for number in (10, 11, 12):
        late = number == 12
        dur = STEP_US + (COMPILE_US + 400 if late else 0.0)
        trace.step(number, at, dur)
        trace.dataloader(at + 20, 120)
        graph_at = _compile(trace, at + 200) if late else at + 200
        _graph(trace, graph_at, recipe=8 if late else 3)
        _eager_ops(trace, graph_at + 1_300)
        at += dur + 15
    return trace


def _compile(trace: GaudiTrace, at: float) -> float:
    trace.bridge("LaunchRecipeTask", at, COMPILE_US + 120)
    trace.annotation(
        "compileGraph", at + 30, COMPILE_US, recipe=recipe_id(8), recipe_name="graph_recipe_8", thread=_LANE
    )
    trace.bridge("add_new_recipe", at + COMPILE_US + 45, 22)
    return at + COMPILE_US + 140


def _graph(trace: GaudiTrace, at: float, recipe: int) -> None:
    name = f"graph_recipe_{recipe}"
    trace.host("CompiledFunction", at, 190)
    trace.bridge("launch_recipe", at + 40, 130)
    _launch(trace, at + 60, 70, recipe, name)
    begin = at + 140
    for layer in range(3):
        node = f"encoder/layers/{layer}"
        more = {"recipe": recipe_id(recipe), "recipe_name": name, "dtype": "bf16"}
        trace.mme("GEMM", begin, 180, lanes=8, EventName=f"{node}/gemm_12", monitor=_MONITORS["MME"], **more)
        lanes = [half * 8 + tpc for half in range(8) for tpc in range(6)]
        more["monitor"] = _MONITORS["TPC"]
        trace.tpc("fused_kernel_0x5F1C2A07_C_f32", begin + 60, 165, lanes=lanes, EventName=f"{node}/gelu", **more)
        begin += 250


def _eager_ops(trace: GaudiTrace, at: float) -> None:
    for index, op in enumerate(_EAGER):
        start = at + index * 150
        name = str(20 + index)
        trace.host(op, start, 95)
        trace.bridge(op, start + 10, 70)
        trace.bridge("launch_recipe", start + 30, 42)
        recipe = 20 + index
        _launch(trace, start + 34, 30, recipe, name)
        kernel = f"{op.removeprefix('aten::')}_fwd_f32"
        more = {"recipe": recipe_id(recipe), "recipe_name": name, "monitor": _MONITORS["TPC"]}
        trace.tpc(kernel, start + 80, 6, lanes=[0, 8], dtype="float32", **more)


def _launch(trace: GaudiTrace, at: float, dur: float, recipe: int, name: str) -> None:
    more = {"recipe": recipe_id(recipe), "recipe_name": name, "thread": _LANE}
    trace.annotation("enqueueWithExternalEventsExt", at, dur, **more)
