"""Values do not depend on the processor: dtypes without a kernel are computed in a wider dtype and rounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sim.runs import run

torch = pytest.importorskip("torch")

from perftool.sim.ops.computing import compute  # noqa: E402

aten = torch.ops.aten


class WithoutLowPrecision:
    """An operator as it behaves on a processor that supports only 32-bit floats."""

    def __init__(self, plain: Any, said: str = "could not create a primitive") -> None:
        self.calls = 0
        self._plain, self._said = plain, said
        self._schema, self.overloadpacket = plain._schema, plain.overloadpacket

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        real = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor) and not each.is_meta]
        if any(each.dtype in (torch.bfloat16, torch.float16) for each in real):
            raise RuntimeError(self._said)
        return self._plain(*args, **kwargs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_type_that_the_processor_lacks_is_computed_in_fp32_and_rounded(dtype: Any) -> None:
    one, other = (torch.linspace(-3, 4, 30).reshape(shape).to(dtype) for shape in ((5, 6), (6, 5)))

    result = compute(WithoutLowPrecision(aten.mm.default), (one, other), {})

    assert torch.equal(result, (one.float() @ other.float()).to(dtype))


def test_products_do_not_ask_the_processor_at_all() -> None:
    low = torch.linspace(-3, 4, 36).reshape(6, 6).to(torch.bfloat16)
    product = WithoutLowPrecision(aten.mm.default)

    result = compute(product, (low, low), {})

    assert product.calls == 1
    assert torch.equal(result, (low.float() @ low.float()).to(torch.bfloat16))


def test_results_keep_the_types_that_the_op_gives() -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4).to(torch.bfloat16)

    values, places = compute(WithoutLowPrecision(aten.max.dim), (x, 1), {})
    total = compute(WithoutLowPrecision(aten.sum.default), (x,), {"dtype": torch.float32})

    assert (values.dtype, places.dtype, total.dtype) == (torch.bfloat16, torch.int64, torch.float32)


def test_results_are_written_into_the_argument_itself() -> None:
    x = torch.linspace(-1, 1, 8).to(torch.bfloat16)
    wanted = x.float().exp().to(torch.bfloat16)

    result = compute(WithoutLowPrecision(aten.exp_.default), (x,), {})

    assert result is x
    assert torch.equal(x, wanted)


def test_integer_types_that_the_processor_lacks_are_computed() -> None:
    chosen = torch.tensor([0, 3, 3, 1])

    counted = compute(aten.histc.default, (chosen, 4, 0, 3), {})

    assert (counted.tolist(), counted.dtype) == ([1, 1, 0, 2], torch.int64)


def test_errors_of_the_script_are_passed_on() -> None:
    low, full = torch.ones(2, 2, dtype=torch.bfloat16), torch.ones(2, 2)
    broken = WithoutLowPrecision(aten.mm.default, said="expected m1 and m2 to have the same dtype")

    with pytest.raises(RuntimeError, match="same dtype"):
        compute(broken, (low, full), {})
    assert broken.calls == 1
    with pytest.raises(RuntimeError, match="must match the size"):
        compute(WithoutLowPrecision(aten.add.Tensor), (low.float(), torch.ones(3, 3)), {})


def test_a_recurrent_layer_is_the_chain_of_ops_that_an_hpu_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "torch.nn.LSTM(4, 8).to('hpu')(torch.randn(3, 2, 4).to('hpu'))")

    assert (done.done.exit_code, len(done.named("aten::sigmoid_"))) == (0, 9)
