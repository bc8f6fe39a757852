"""`python -m tests.backends.cuda.gaps`: the ops that run reference code on a GPU, as docs/gpu.md lists them.

No kernel of the backend accepts some tested call of these ops, in any precision, and no pass replaces the ops by
simpler ones. Ops that passes create only if a kernel accepts them are left out.
"""

from __future__ import annotations

import netspec.distributed  # noqa: F401  # it registers the backend nccl
from netspec.backends.backend import load_kernels
from netspec.backends.op_call import OpCall
from netspec.graph.fused import EpilogueFused
from netspec.graph.kernel import kernels_for
from netspec.graph.ops.attention import Attention, AttentionGrad
from netspec.tools.verification.op_calls import all_calls

load_kernels("cuda", "nccl")
WHERE_TAKEN = EpilogueFused, Attention, AttentionGrad


def gaps() -> str:
    """Return the names of the ops, in one line."""
    actual = {result.op.name for result in all_calls() if not isinstance(result.op, WHERE_TAKEN) and _is_left(result)}
    return ", ".join(f"`{name}`" for name in sorted(actual))


def _is_left(result: OpCall) -> bool:
    types = [value.type for value in result.node.inputs]
    if any(
        kernel.reject_reason(result.op, *types) is None for kernel in kernels_for(type(result.op), ("cuda", "nccl"))
    ):
        return False
    return result.op.simplify(*result.node.inputs) is None


if __name__ == "__main__":
    print(gaps())
