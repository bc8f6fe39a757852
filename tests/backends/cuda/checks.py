"""Checks of each kernel of the backend `cuda`, on the emulator.

A check is a generator: it binds kernels, yields, and then runs them, so that many kernels are compiled in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.device import Device
from netspec.backends.kernel_check import agree, array, bound, fetch, is_narrow, operands, workspace_of
from netspec.backends.op_call import OpCall, code_of, inplace_choices, is_double
from netspec.graph.execution_plan import ALIGNMENT
from netspec.graph.kernel import Kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.types import TensorType
from tests.backends.cuda.calls import DEVICE, EmulatedDevice, in_layouts, taken
from tests.backends.cuda.emulator import Emulator
from tests.interpret import evaluate

FEW_BLOCKS = 2
"""Number of blocks that is so small that each block does several units of work."""
Check: TypeAlias = Iterator[None]


class Displaced(EmulatedDevice):
    """Places arrays one element after an aligned address, where vectors of several elements are misaligned."""

    def allocate(self, nbytes: int) -> Any:
        return super().allocate(nbytes + ALIGNMENT)

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> Any:
        return super().view(arena, offset + layout.stored_dtype(kind).itemsize, kind, layout)


@dataclass(frozen=True)
class Placement:
    """The devices whose memory contains arrays and workspaces."""

    arrays: Device
    workspaces: Device


ALIGNED, DISPLACED = Placement(DEVICE, DEVICE), Placement(Displaced(), DEVICE)


@dataclass(frozen=True)
class Case:
    """A call of a kernel in one of the layouts that it offers."""

    kernel: Kernel
    call: OpCall
    layouts: LayoutSignature

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """The results of the reference."""
        with np.errstate(all="ignore"):
            return evaluate(self.call.node.outputs, self.call.feeds)

    @property
    def label(self) -> str:
        """Description of the case, different for each."""
        types = [str(value.type) for value in self.call.node.inputs]
        layouts = [str(layout) for layout in (*self.layouts.inputs, *self.layouts.outputs)]
        return f"{self.kernel.label} {str(self.call.op)[:300]} {types} {layouts}"


class Trial:
    """A case that is bound to newly allocated arrays."""

    def __init__(
        self,
        case: Case,
        placement: Placement = ALIGNED,
        indices: Sequence[int] | None = None,
        over: tuple[int, int] | None = None,
    ) -> None:
        """Allocate the results `indices`, or all; `over`: a result, and the operand whose memory it overwrites."""
        self.case, self.device = case, placement.arrays
        device = self.device
        self.inputs = operands(device, case.call, case.layouts)
        outputs = zip(case.call.node.outputs, case.layouts.outputs, strict=True)
        self.outputs = [
            array(device, value.type, None, layout) if indices is None or index in indices else None
            for index, (value, layout) in enumerate(outputs)
        ]
        self.written = [result for result in self.outputs if result is not None]
        if over is not None:
            result, operand = over
            self.written = [output for index, output in enumerate(self.outputs) if index != result]
            self.outputs[result] = self.inputs[operand]
        workspace = workspace_of(placement.workspaces, case.kernel, case.call, case.layouts)
        self.workspaces = [] if workspace is None else [workspace]
        self._run = bound(device, case.kernel, case.call, case.layouts, self.inputs, self.outputs, workspace)

    def results(self, emulator: Emulator) -> list[np.ndarray | None]:
        """Run the kernel, which must write each element of its results, and read none before writing it."""
        for buffer in (*self.written, *self.workspaces):
            emulator.undefine(buffer)
        try:
            self._run()
            unwritten = [emulator.unwritten(buffer) for buffer in self.written]
        finally:
            emulator.define()
        assert not any(unwritten), f"elements of the results that are not written: {unwritten}"
        return [
            None if output is None else fetch(self.device, output, value.type, layout)
            for output, value, layout in zip(
                self.outputs, self.case.call.node.outputs, self.case.layouts.outputs, strict=True
            )
        ]

    def check(self, emulator: Emulator) -> list[np.ndarray | None]:
        """Run the kernel, compare with the reference, and return the results."""
        actual = self.results(emulator)
        for result, expected in zip(actual, self.case.expected, strict=True):
            if result is not None:
                agree(result, expected)
        return actual


@contextmanager
def few_blocks() -> Iterator[None]:
    """Launch kernels that are bound in the block with at most `FEW_BLOCKS` blocks."""
    before, launch.MAX_BLOCKS = launch.MAX_BLOCKS, FEW_BLOCKS
    try:
        yield
    finally:
        launch.MAX_BLOCKS = before


def agrees(emulator: Emulator, case: Case) -> Check:
    """Results agree with the reference, bit-identical for any blocks and alignment; operands are unchanged."""
    with few_blocks():
        trials = [Trial(case)]
    trials.append(Trial(case, DISPLACED))
    yield
    before = [DEVICE.fetch(model_input) for model_input in trials[0].inputs]
    first, second = (trial.check(emulator) for trial in trials)
    for operand, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(operand, other)
    for trial in trials:
        for operand, copy in zip(trial.inputs, before, strict=True):
            np.testing.assert_array_equal(DEVICE.fetch(operand), copy)


def writes_over_operands(emulator: Emulator, case: Case) -> Check:
    """Results agree with the reference in the memory of each operand that the op allows to overwrite."""
    node, layouts, trials = case.call.node, case.layouts, list[Trial]()
    for result, (value, layout) in enumerate(zip(node.outputs, layouts.outputs, strict=True)):
        for operand in inplace_choices(case.call)[result]:
            if node.inputs[operand].type == value.type and layouts.inputs[operand] == layout:
                with few_blocks():
                    trials.append(Trial(case, over=(result, operand)))
    yield
    for trial in trials:
        trial.check(emulator)


def keeps_nan(emulator: Emulator, case: Case) -> Check:
    """If all operands are NaN, results are NaN wherever the reference's are."""
    node = case.call.node
    spoiled = tuple(
        np.full_like(x, np.nan) if value.dtype.is_float else x
        for value, x in zip(node.inputs, case.call.operands, strict=True)
    )
    trial = Trial(Case(case.kernel, OpCall(node, spoiled), case.layouts))
    yield
    for value, actual, expected in zip(node.outputs, trial.results(emulator), trial.case.expected, strict=True):
        if value.dtype.is_float:
            assert actual is not None
            lost = int((np.isnan(expected) & ~np.isnan(actual)).sum())
            assert not lost, f"NaN is lost in {lost} elements"


def computes_any_one_result(emulator: Emulator, case: Case) -> Check:
    """Each of several results agrees with the reference if only that one is computed."""
    several = range(len(case.call.node.outputs))
    trials = [Trial(case, indices=[index]) for index in several if len(several) > 1]
    yield
    for trial in trials:
        trial.check(emulator)


Make: TypeAlias = Callable[[Emulator, Case], Check]
CHECKS: tuple[Make, ...] = (
    agrees, writes_over_operands, keeps_nan, computes_any_one_result,
)  # fmt: skip


def cases(kernel: Kernel, calls: Iterable[OpCall] | None = None) -> list[Case]:
    """The cases of a kernel: all in the registry, or those of `calls`."""
    return [
        Case(kernel, result, signature)
        for result, signature in in_layouts(kernel, taken(kernel) if calls is None else calls)
    ]


def checked(check: Make, actual: Iterable[Case]) -> Iterator[Case]:
    """The cases to check: all for `agrees`; for other checks, one per kind of code, in one precision."""
    checked_kinds = set[Any]()
    for case in actual:
        kind = (
            code_of(case.call),
            inplace_choices(case.call),
            is_narrow(case.layouts),
            case.call.node.types[0].shape == (),
        )
        if check is agrees or (kind not in checked_kinds and not is_double(case.call)):
            checked_kinds.add(kind)
            yield case
