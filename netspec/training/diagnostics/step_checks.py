"""Run one training step on a batch, and check what it computes: kernels, first loss, gradients, time and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from math import isfinite, log
from time import perf_counter
from typing import Any

import numpy as np

from netspec.backends.program import NonFiniteLoss
from netspec.compile import LOSS, Compiler, ProgramKind, build, gradient_sum_label
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.errors import Problem, counted, listing
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.types import Precision
from netspec.layers.losses_and_metrics import LossSpec
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.train import TrainSpec
from netspec.training.adaptation import adapt
from netspec.training.class_weights import with_class_weights
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.diagnostics.expectation_checks import ExpectationResult
from netspec.training.events import format_bytes, short_duration
from netspec.training.stepper import Stepper, run_steps, scheduled_rates
from netspec.training.transfer import init_from

TOLERANCES = {
    Precision.FLOAT64: 1e-9, Precision.FLOAT32: 1e-3, Precision.TF32: 5e-2, Precision.BFLOAT16: 0.3,
    Precision.FLOAT16: 0.1,
}  # fmt: skip
"""Largest accepted difference of a gradient from the reference, relative to its norm.

A layer rounds each value by 2⁻²⁴ (float32), 2⁻¹¹ (tf32, float16) or 2⁻⁸ (bfloat16) of its size; nets of many layers add
up such errors, and a rounded value may change which element a maximum takes.
"""
NEGLIGIBLE = 0.01
"""Differences of smaller gradients are relative to this fraction of the largest norm.

Gradients that are 0 except for rounding, such as that of a bias before a normalization, have no significant digits.
"""
MAX_FLOPS = 1e11
"""Operations of a step of the reference backend beyond which fewer samples are compared."""
MAX_FIRST_LOSS_RATIO = 3.0
"""Factor between the first loss and that of equal probabilities above which a warning is reported."""


def check_step(spec: TrainSpec, device: str = "auto") -> Iterator[ExpectationResult]:
    """Run a training step on the first batch; yield its loss, a comparison with the reference kernels, and its time.

    Raises `InputError` if the data is wrong.
    """
    spec, _ = with_class_weights(spec)
    reference = training_compiler(_of_reference(spec), "reference")
    transfer = init_from(spec, reference)
    reference.reset_copies()
    with open_training_loader(_of_reference(spec), reference) as loader:
        adapt(reference, loader, transfer.coverage.arrays if transfer is not None else ())
        compiler = training_compiler(spec, device)
        init_from(spec, compiler)
        for name in compiler.names("parameter", "statistic"):
            compiler.states.assign(name, reference.states[name])
        compiler.reset_copies()
        batch = next(iter(loader))
        computed = _gradients(compiler, batch, len(batch), spec.train.seed)
        loss = computed[LOSS]
        yield _first_loss(spec, float(loss), len(batch), transferred=transfer is not None)
        if not isfinite(loss):
            return
        if (wrong := _non_finite_gradients(computed, compiler)) is not None:
            yield wrong
            return
        yield from _zero_gradients(computed, compiler)
        yield _compare_with_reference(spec, compiler, reference, batch)
    yield from _step_time_and_memory(spec, compiler)


def _of_reference(spec: TrainSpec) -> TrainSpec:
    """Return the training in the type in which the reference computes."""
    precision = "float64" if spec.train.precision == "float64" else "float32"
    loop = spec.train.model_copy(update={"precision": precision, "loss_scale": None})
    return spec.model_copy(update={"train": loop, "parallel": None})


def _gradients(compiler: Compiler, batch: Batch, samples: int, seed: int) -> Mapping[str, Any]:
    """Compute loss and gradients of the first samples of a batch."""
    inputs = {name: array[:samples] for name, array in batch.inputs.items()}
    program = compiler.program(ProgramKind.GRADIENTS, samples)
    program.write({**inputs, RNG_INPUT: np.array([seed, 0, 0])})
    program.run()
    return program.read()


def _first_loss(spec: TrainSpec, loss: float, samples: int, *, transferred: bool) -> ExpectationResult:
    """Compare the loss of an untrained net with that of equal probabilities."""
    chance = chance_loss(spec)
    compared = f"; an untrained net has about {chance[1]:.4f} (ln {chance[0]})" if chance is not None else ""
    summary = f"one training step with a batch of {counted(samples, 'sample')}: loss {loss:.4f}{compared}"
    if not isfinite(loss):
        hint = "`netspec train` names the layer in which the first non-finite value occurs"
        message = "the loss of the first step is not finite"
        problem = Problem(message, spec.where("net"), "net", expected="a finite loss", got=f"{loss:g}", hint=hint)
        return ExpectationResult(summary, problem)
    warning = None
    if (
        chance is not None
        and not transferred
        and not chance[1] / MAX_FIRST_LOSS_RATIO <= loss <= chance[1] * MAX_FIRST_LOSS_RATIO
    ):
        high = "inputs are not scaled, initial weights are too large, or the loss gets probabilities as logits"
        low = "an input may contain the label, or nearly all samples have the same class"
        warning = Problem(
            "the first loss is far from that of an untrained net", spec.where("net"), "net",
            expected=f"about {chance[1]:.4f} (ln {chance[0]})", got=f"{loss:.4g}",
            hint=f"likely reasons: {high if loss > chance[1] else low}",
        )  # fmt: skip
    return ExpectationResult(summary, None, warning)


def chance_loss(spec: TrainSpec) -> tuple[int, float] | None:
    """Return the number of classes and the loss of equal probabilities, if the only loss is a cross-entropy."""
    links = resolve_names(spec.net).losses
    fields = links[0].fields if len(links) == 1 else None
    if not isinstance(fields, LossSpec) or not str(getattr(fields, "type", "")).endswith("CategoricalCrossentropy"):
        return None
    shape = build(spec.net, 1, training=False).values[links[0].sources[0]].shape
    classes = shape[int(getattr(fields, "axis", -1))]
    return (classes, log(classes)) if fields.weight == 1.0 else None


def _non_finite_gradients(computed: Mapping[str, Any], compiler: Compiler) -> ExpectationResult | None:
    """Report parameters whose gradient is not finite."""
    prefix = gradient_sum_label("")
    wrong = [name.removeprefix(prefix) for name, array in computed.items() if not np.isfinite(array).all()]
    if not wrong:
        return None
    scope = compiler.net_graph(ProgramKind.GRADIENTS, 1).builder.states[wrong[0]].value.node.scope
    problem = Problem(
        f"the gradient of {counted(len(wrong), 'parameter')} is not finite: {listing(wrong)}", scope.location,
        hint="`netspec train` names the layer in which the first non-finite value occurs",
    )  # fmt: skip
    return ExpectationResult("a gradient is not finite", problem)


def _zero_gradients(computed: Mapping[str, Any], compiler: Compiler) -> Iterator[ExpectationResult]:
    """Report parameters whose gradient is zero in all elements."""
    prefix = gradient_sum_label("")
    zero = [name.removeprefix(prefix) for name, array in computed.items()
            if name.startswith(prefix) and not np.any(array)]  # fmt: skip
    if not zero:
        return
    scope = compiler.net_graph(ProgramKind.GRADIENTS, 1).builder.states[zero[0]].value.node.scope
    warning = Problem(
        f"the gradient of {counted(len(zero), 'parameter')} is 0: {listing(zero)}", scope.location,
        hint="no loss depends on it, its inputs are all 0, or its activation is saturated (a dead ReLU)",
    )  # fmt: skip
    yield ExpectationResult(f"{counted(len(zero), 'parameter')} without a gradient", None, warning)


def _compare_with_reference(
    spec: TrainSpec, compiler: Compiler, reference: Compiler, batch: Batch
) -> ExpectationResult:
    """Compare loss and gradients of the device's kernels with those of the reference."""
    nodes = [node for node in reference.graph(ProgramKind.GRADIENTS, 1).nodes() if not node.op.traits.source]
    flops = sum(node.op.flops(*(value.type for value in node.inputs)) for node in nodes)
    samples = min(len(batch), max(int(MAX_FLOPS / max(flops, 1)), 1))
    computed = _gradients(compiler, batch, samples, spec.train.seed)
    expected = _gradients(reference, batch, samples, spec.train.seed)
    differences = _relative_differences(computed, expected)
    worst = max(differences, key=lambda name: differences[name])
    tolerance = TOLERANCES[Precision(spec.train.precision)]
    part = f" of {counted(samples, 'sample')}" if samples < len(batch) else ""
    described = worst.replace(gradient_sum_label(""), "the gradient of ")
    summary = (
        f"kernels of {compiler.device.name} in {spec.train.precision}: loss and gradients{part} differ from the "
        f"reference by up to {differences[worst]:.1e} ({described})"
    )
    problem = None
    if not differences[worst] <= tolerance:
        problem = Problem(
            f"{described} differs from the reference kernels", spec.where("net"), "net",
            expected=f"a relative difference of {tolerance:g} or less", got=f"{differences[worst]:.2g}",
            hint="compare `--device reference`; `netspec plan --kernels` names the kernels of each layer",
        )  # fmt: skip
    return ExpectationResult(summary, problem)


def _relative_differences(computed: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, float]:
    """Return the norms of all differences, relative to the expected norms; for small gradients see `NEGLIGIBLE`."""
    norms = {name: float(np.linalg.norm(np.asarray(array, np.float64))) for name, array in expected.items()}
    prefix = gradient_sum_label("")
    least = NEGLIGIBLE * max((norm for name, norm in norms.items() if name.startswith(prefix)), default=0.0)
    return {
        name: float(np.linalg.norm(np.asarray(computed[name], np.float64) - np.asarray(expected[name], np.float64)))
        / max(norm, least if name.startswith(prefix) else 0.0, 1e-6)
        for name, norm in norms.items()
    }


def _step_time_and_memory(spec: TrainSpec, compiler: Compiler) -> Iterator[ExpectationResult]:
    """Run two training steps, and report the time of the second and the memory of the program."""
    with open_training_loader(spec, compiler) as loader:
        seconds = _seconds_of_second_step(spec, compiler, loader)
        rows = loader.batch_sizes[0]
    if seconds is None:
        return
    needed = compiler.plan(compiler.batch_program, rows).memory.nbytes + compiler.states.nbytes
    yield ExpectationResult(f"a step takes {short_duration(seconds)} and uses {format_bytes(needed)} of memory", None)


def _seconds_of_second_step(spec: TrainSpec, compiler: Compiler, loader: Loader) -> float | None:
    began, seconds = perf_counter(), 0.0
    try:
        for _, loss in islice(run_steps(Stepper(spec, compiler, loader), loader, scheduled_rates(spec, 2)), 2):
            loss()
            seconds, began = perf_counter() - began, perf_counter()
    except NonFiniteLoss:  # the first update was too large; other checks report its loss
        return None
    return seconds
