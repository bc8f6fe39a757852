"""The largest batch that fits into the memory of this machine, or of a GPU that is planned for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from netspec.backends.device_registry import PlannedGpu
from netspec.backends.memory import machine_memory
from netspec.compile import Compiler, ProgramKind
from netspec.compile.largest_batch import largest_batch
from netspec.errors import RunError
from netspec.graph.execution_plan import align_up

ATTEMPTS = 20
"""Largest number of batch sizes that are planned."""


@dataclass(frozen=True)
class BatchLimit:
    """The largest batch that fits into memory without recomputation."""

    program: str
    """Program that the memory is planned for: `train` or `accumulate`, or `predict` for a net without a solver."""
    samples: int | None
    """Number of samples of the batch; None if not even one fits."""
    needed_bytes: int
    """Bytes that a batch of that size needs, states included; those of one sample if not even one fits."""
    memory_bytes: int
    """Bytes of memory that the batch has to fit into."""
    memory_of: str
    """Owner of the memory: `this machine`, or the title of a GPU."""


def batch_limit(compiler: Compiler, start: int) -> BatchLimit:
    """Return the largest batch that fits, from memory plans of a few sizes, the first of which is `start`.

    Raises `RunError` if the system does not report its memory.
    """
    device = compiler.device
    title, memory = (
        (device.gpu.title, device.gpu.memory) if isinstance(device, PlannedGpu) else ("this machine", machine_memory())
    )
    if memory is None:
        raise RunError("the system does not report its memory", hint="plan for a GPU: `--device h200`")
    plain = _without_recomputation(compiler)
    program = plain.batch_program if plain.solver is not None else ProgramKind.PREDICT
    states = sum(align_up(state.value.type.nbytes) for state in plain.info.values())
    update = plain.plan(ProgramKind.UPDATE, 1).memory.nbytes if plain.updates else 0

    @cache
    def needed(samples: int) -> int:
        return states + max(plain.plan(program, samples).memory.nbytes, update)

    largest = largest_batch(needed, memory, start, ATTEMPTS)
    return BatchLimit(str(program), largest, needed(largest or 1), memory, title)


def _without_recomputation(compiler: Compiler) -> Compiler:
    loop = compiler.loop.model_copy(update={"recompute": "none", "memory_budget": None}) if compiler.loop else None
    return Compiler(
        compiler.spec, dtype=compiler.precision, solver=compiler.solver, device=compiler.device, loop=loop
    )  # fmt: skip
