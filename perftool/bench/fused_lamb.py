"""LAMB: one tensor after the other against all of them at once."""

from __future__ import annotations

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, optimizer_form
from perftool.bench.workloads.plain_optimizers import Lamb
from perftool.fused import FusedLamb

# Far above the norm of the gradients: the norm is computed, and nothing is clipped.
_MAX_GRAD_NORM = 1e3


def build(form: FormName, setting: Setting) -> Form:
    """LAMB as a loop over tensors, as it is commonly written, or FusedLamb."""
    if form == "naive":
        return optimizer_form("a loop over tensors", lambda params: Lamb(params, max_grad_norm=_MAX_GRAD_NORM), setting)
    return optimizer_form("FusedLamb", lambda params: FusedLamb(params, max_grad_norm=_MAX_GRAD_NORM), setting)


BENCHMARK = Benchmark(
    name="fused_lamb",
    rules=("FUS101",),
    summary="LAMB over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
)
