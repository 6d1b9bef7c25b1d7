"""Matmuls with low-bit weights, by their public signatures in vLLM (csrc/torch_bindings.cpp), SGLang, AITER,
bitsandbytes and PyTorch.

Operations are counted as for a plain matmul. Bytes are the sizes of the tensors as stored, including packed weights and
scales. If both operands are narrow, the matmul runs at the rate of the narrow type. If only the weights are narrow, the
kernel converts them first, and the matmul runs at the rate of the other operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perftool.op_costs.call import Call, NoModelError, Tensor
from perftool.op_costs.cost import Cost, moved


@dataclass(frozen=True)
class Quantised:
    """A matmul op. ``a`` is the position of the left operand, and ``weight`` is the position of the right operand (None
    if it depends on the version).

    ``columns`` returns the number of columns of the matmul. ``result`` is the position of an output argument; if there
    is none, ``made`` is the type of the output that the op creates (by default the type of ``a``). ``packed_rows``
    elements of ``a`` share a byte.
    """

    columns: Callable[[Call, Tensor, Tensor], int]
    a: int = 0
    weight: int | None = 1
    result: int | None = None
    made: str | None = None
    packed_rows: int = 1

    def sizes(self, call: Call) -> tuple[int, int, int]:
        """Return the rows, columns and inner dimension of the matmul. Raise NoModelError if ``call`` is not a
        matmul.
        """
        a = call.tensor(self.a)
        weight = a if self.weight is None else call.tensor(self.weight)
        if not a.dims or len(weight.dims) < 2:
            raise NoModelError("not a matmul")
        rows = a.shaped(a.dims[:-1]).count
        return rows, self.columns(call, a, weight), a.dims[-1] * self.packed_rows

    def __call__(self, call: Call) -> Cost:
        m, n, k = self.sizes(call)
        a = call.tensor(self.a)
        operands = [call.tensor(at) for at in range(len(call.types)) if call.has(at) and at != self.result]
        kind = call.tensor(self.result).type if self.result is not None else self.made or a.type
        result = Tensor((m, n), kind)
        # Other arguments with the shape of the result are outputs, which are not read.
        read = [one for one in operands if one.dims != (m, n) or one is operands[0]]
        dtype = "fp4" if self.packed_rows > 1 else a.rate_name
        return Cost(2 * m * n * k, moved(*read, result), "matrix", dtype)


def _rows(call: Call, a: Tensor, weight: Tensor) -> int:
    """Return the number of columns of a matrix that is stored transposed, [columns, terms]."""
    return _fitting(weight.dims[0], a.dims[-1], weight.dims[1])


def _last(call: Call, a: Tensor, weight: Tensor) -> int:
    return _fitting(weight.dims[1], a.dims[-1], weight.dims[0])


def _fitting(columns: int, wanted: int, terms: int) -> int:
    if wanted != terms:
        raise NoModelError("not a matmul")
    return columns


def _packed(call: Call, a: Tensor, weight: Tensor) -> int:
    """Return the number of columns of a matrix that packs eight 4-bit weights of a row into one number."""
    return _fitting(8 * weight.dims[1], a.dims[-1], weight.dims[0])


def _packed_terms(call: Call, a: Tensor, weight: Tensor) -> int:
    """Return the number of columns of a matrix that packs several weights of a column into one number."""
    return weight.dims[1]


def _named(call: Call, a: Tensor, weight: Tensor) -> int:
    """Return the number of columns from the arguments, where rows, columns and inner dimension are consecutive, at a
    position that depends on the version."""
    for at in range(len(call.scalars) - 2):
        try:
            sizes = [call.numbers(place) for place in (at, at + 1, at + 2)]
        except NoModelError:
            continue
        if sizes[0] == [a.dims[0]] and sizes[2] == [a.dims[-1]] and len(sizes[1]) == 1:
            return sizes[1][0]
    raise NoModelError("sizes are not recorded")


def _by_scales(call: Call, a: Tensor, weight: Tensor) -> int:
    """Return the number of columns of ``_weight_int4pack_mm``, from its scales and zero points, [groups, columns,
    2].
    """
    scales = call.tensor(3)
    if len(scales.dims) != 3:
        raise NoModelError("not a matmul")
    return scales.dims[1]


_HALF = "c10::BFloat16"
QUANTISED: dict[str, Quantised] = {
    "_C::cutlass_scaled_mm": Quantised(_last, a=1, weight=2, result=0),
    "_C::cutlass_scaled_mm_azp": Quantised(_last, a=1, weight=2, result=0),
    "_C::cutlass_scaled_fp4_mm": Quantised(_rows, a=1, weight=2, result=0, packed_rows=2),
    "_C::gptq_marlin_gemm": Quantised(_named, weight=None), "_C::marlin_gemm": Quantised(_named, weight=None),
    "_C::awq_gemm": Quantised(_packed), "_C::gptq_gemm": Quantised(_packed_terms),
    "sgl_kernel::fp8_scaled_mm": Quantised(_last, made=_HALF),
    "sgl_kernel::int8_scaled_mm": Quantised(_last, made=_HALF),
    "aiter::gemm_a8w8": Quantised(_rows, result=4), "aiter::gemm_a8w8_blockscale": Quantised(_rows, made=_HALF),
    "aiter::gemm_a8w8_bpreshuffle": Quantised(_rows, made=_HALF),
    "vllm::w8a8_triton_block_scaled_mm_func": Quantised(_rows, made=_HALF),
    "vllm::w8a8_block_fp8_matmul": Quantised(_rows, made=_HALF),
    "bitsandbytes::int8_linear_matmul": Quantised(_rows, made="int"),
    "aten::_weight_int4pack_mm": Quantised(_by_scales), "aten::_weight_int8pack_mm": Quantised(_rows),
}  # fmt: skip
