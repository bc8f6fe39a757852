"""Check the gradients of a net against central differences, layer by layer, in float64 on the reference backend.

The derivative along a random direction d is compared with (L(θ + h·d) − L(θ − h·d)) / 2h, for each parameter and input,
and for some single elements. At a kink, such as a ReLU at 0, both differ without an error: there, the one-sided
differences (L(θ + h·d) − L(θ)) / h and (L(θ) − L(θ − h·d)) / h do not approach each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.backends.program import Program
from netspec.backends.reference.interpreter import first_bad_operation
from netspec.compile import LOSS, Compiler, ProgramKind, make_plan
from netspec.compile.layer_costs import flops_of
from netspec.compile.steps import forward_graph
from netspec.errors import InputError, Problem, RunError
from netspec.exchange.formats.onnx.verify import random_inputs
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.types import Precision
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.train import TrainSpec
from netspec.tools.bounds import require_at_least
from netspec.tools.specs import load_spec, net_of
from netspec.training.class_weights import with_class_weights
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.diagnostics.non_finite import likely_fix
from netspec.training.inference.model import load_weights
from netspec.training.progress import Progress
from netspec.training.resume import StartingPoint
from netspec.training.run import set_first_values
from netspec.training.samples import with_samples

GradientResult: TypeAlias = Literal["ok", "zero", "kink", "failed"]
STEPS = (1e-4, 1e-6)
"""Lengths of a step along a direction whose elements are about 1, relative to the size of the elements."""
NOISE = 0.01
"""Relative size of the noise that is added to initial parameters, to leave kinks such as a ReLU of a bias of 0."""
ROUNDING = 1e-13
"""Relative rounding error of a loss."""
MAX_FLOPS = 2e11
"""Largest number of operations of all forward passes together; beyond, fewer elements and tensors are checked."""


@dataclass(frozen=True)
class TensorGradient:
    """Check of the gradient with respect to a parameter or an input."""

    name: str
    layer: str
    """The layer of a parameter; empty for an input of the net."""
    shape: tuple[int, ...]
    checked: int
    """Number of derivatives that were compared: along a direction, and of single elements."""
    error: float
    """Largest relative error of those that are not at a kink."""
    kinks: int
    """Number of derivatives at a kink of the loss."""
    result: GradientResult
    """`zero`: the loss does not depend on it."""
    cause: str = ""
    """Likely reason of a failure."""


@dataclass(frozen=True)
class GradientCheck:
    """Gradients of a net, compared with central differences."""

    name: str
    loss: float
    batch_size: int
    data: str
    """Origin of the batch: the training data, or random numbers and why."""
    tolerance: float
    tensors: tuple[TensorGradient, ...]
    sampled: str
    """Which tensors and elements were checked, if not all."""
    suspect: str | None
    """The layers in which the error may be."""

    @property
    def failed(self) -> list[TensorGradient]:
        """Tensors whose gradient is wrong."""
        return [tensor for tensor in self.tensors if tensor.result == "failed"]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {**asdict(self), "failed": [tensor.name for tensor in self.failed]}


def gradcheck(
    source: Source,
    *,
    overrides: Overrides = (),
    weights: str | Path | None = None,
    samples: Mapping[str, Any] | None = None,
    batch_size: int = 4,
    elements: int = 4,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> GradientCheck:
    """Compare the gradients of a net with central differences, in float64 on the reference backend.

    The batch is the first of the training data, or random if the spec has none or it cannot be read. Parameters have
    their initial values with a little noise, or those of `weights`. Derivatives are along one random direction for each
    parameter and input, and of `elements` elements. Large nets are sampled: see `GradientCheck.sampled`.

    Raises `InputError` if the spec or an argument is wrong, or the net has no loss.

        >>> netspec.gradcheck("train.yaml").failed
    """
    require_at_least(1, {"batch_size": batch_size})
    require_at_least(0, {"elements": elements})
    if not 0 < tolerance < 1:
        raise InputError("tolerance must be above 0 and below 1", got=f"{tolerance:g}")
    spec = load_spec(source, overrides)
    if isinstance(spec, TrainSpec):
        compiler, arrays, data = _from_training(with_samples(spec, samples), weights, batch_size, seed)
    else:
        compiler = Compiler(spec, dtype=Precision.FLOAT64, device="reference")
        if weights is not None:
            load_weights(compiler, weights, partial=False)
        arrays, data = None, "random inputs: a net file has no data"
    rows = batch_size if arrays is None else len(next(iter(arrays.values())))
    checker = _Checker(compiler, rows, arrays, np.random.default_rng(seed))
    if weights is None:
        checker.add_noise()
    checker.require_finite_loss()
    tensors, sampled = checker.check(elements, tolerance)
    net = net_of(spec)
    name = (spec.name if isinstance(spec, TrainSpec) else None) or net.name
    return GradientCheck(name, checker.loss(), rows, data, tolerance, tuple(tensors), sampled, _suspect(tensors))


def _from_training(
    spec: TrainSpec, weights: str | Path | None, batch_size: int, seed: int
) -> tuple[Compiler, dict[str, Any] | None, str]:
    """Return the compiled net of a training, its first batch if it can be read, and a description of the batch."""
    loop = spec.train.model_copy(update={"precision": "float64", "loss_scale": None, "accumulate": 1})
    split = spec.data.train.model_copy(update={"batch_size": batch_size})
    spec = spec.model_copy(
        update={"train": loop, "data": spec.data.model_copy(update={"train": split}), "parallel": None}
    )
    with suppress(InputError):  # the data cannot be read: opening the loader reports it
        spec, _ = with_class_weights(spec)
    compiler = training_compiler(spec, "reference")
    try:
        with open_training_loader(spec, compiler) as loader:
            set_first_values(spec, compiler, loader, StartingPoint(Progress()), weights)
            return compiler, dict(next(iter(loader)).inputs), "the first batch of the training data"
    except InputError as error:
        reason = error.summary
    compiler.reset()
    if weights is not None:
        load_weights(compiler, weights, partial=True)
    return compiler, None, f"random inputs: {reason}"


class _Checker:
    """The loss of a net as a function of its parameters and inputs, with its gradients."""

    def __init__(
        self, compiler: Compiler, rows: int, arrays: Mapping[str, Any] | None, random: np.random.Generator
    ) -> None:
        """`arrays` is a batch; None for random inputs."""
        self._compiler, self._random, self._states = compiler, random, compiler.states
        net = compiler.net_graph(ProgramKind.GRADIENTS, rows)
        forward = forward_graph(compiler.spec, net)
        self.infos = {name: info for name, info in net.builder.states.items() if info.trainable}
        loss_graph = Graph({LOSS: forward.outputs[LOSS]})
        types = {name: value.type for name, value in loss_graph.inputs().items() if name != RNG_INPUT}
        if arrays is None:
            arrays = random_inputs(types, compiler.domains, 0)
        self._inputs: dict[str, Any] = {name: np.array(arrays[name], str(kind.dtype)) for name, kind in types.items()}
        self._key = np.array([1, 0, 0])
        values = {name: info.value for name, info in self.infos.items()}
        fed = {name: value for name, value in loss_graph.inputs().items() if value.dtype.is_float and name in types}
        computed = gradients(forward.outputs[LOSS], [*values.values(), *fed.values()])
        self.inputs = list(fed)
        outputs = dict(zip([*values, *fed], computed, strict=True))
        self._loss_graph, self._program = loss_graph, self._bound(loss_graph)
        self._gradients = self._bound(Graph(outputs))
        self._flops = sum(flops_of(node) for node in loss_graph.nodes() if not node.op.traits.source)

    def _bound(self, graph: Graph) -> Program:
        device = self._compiler.device
        return Program(make_plan(graph, device, Precision.FLOAT64), device, self._states)

    def loss(self) -> float:
        """Compute the loss."""
        with np.errstate(all="ignore"):
            results = self._program({**self._inputs, RNG_INPUT: self._key})
        return float(results[LOSS])

    def require_finite_loss(self) -> None:
        """Raise `RunError` with the first operation whose result is not finite, if the loss is not."""
        if np.isfinite(self.loss()):
            return
        bad = first_bad_operation(self._loss_graph, {**self._inputs, **self._states, RNG_INPUT: self._key})
        where = f": first in {bad.layer}, the result of {bad.node.op.name}" if bad is not None else ""
        notes = [f"operand: {operand}" for operand in bad.operands] if bad is not None else []
        raise RunError(
            Problem(
                f"the loss is not finite, so it has no gradients to check{where}",
                bad.scope.location if bad is not None else None, hint=likely_fix(bad), notes=tuple(notes),
            )
        )  # fmt: skip

    def add_noise(self) -> None:
        """Move all parameters a little, away from kinks."""
        for name in self.infos:
            array = self._states[name]
            self._states.assign(name, array + NOISE * _rms(array) * self._random.standard_normal(array.shape))

    def check(self, elements: int, tolerance: float) -> tuple[list[TensorGradient], str]:
        """Check the gradients of all tensors, or of some; return a description of the choice."""
        names = [*self.infos, *self.inputs]
        passes = int(MAX_FLOPS / max(self._flops, 1))
        each = 2 * len(STEPS)
        affordable = max(passes // (each * max(len(names), 1)) - 1, 0)
        chosen, notes = min(elements, affordable), []
        if chosen < elements:
            notes.append(f"{chosen} of {elements} elements of each tensor, because the net is large")
        most = max(passes // each, 3)
        if most < len(names):
            picked = sorted({round(index * (len(names) - 1) / (most - 1)) for index in range(most)})
            notes.append(f"{len(picked)} of {len(names)} tensors, evenly spread, because the net is large")
            names = [names[index] for index in picked]
        with np.errstate(all="ignore"):
            analytic = self._gradients({**self._inputs, RNG_INPUT: self._key})
        return [self._tensor(name, analytic[name], chosen, tolerance) for name in names], "; ".join(notes)

    def _tensor(self, name: str, gradient: NDArray[Any], elements: int, tolerance: float) -> TensorGradient:
        """Check a tensor along a random direction, and at its elements with the largest gradients and at others."""
        array = self._states[name] if name in self.infos else self._inputs[name]
        directions = [self._random.standard_normal(array.shape)]
        largest = np.argsort(-abs(gradient).reshape(-1), kind="stable")[: (elements + 1) // 2]
        order = self._random.permutation(array.size)
        others = order[~np.isin(order, largest)][: elements - len(largest)]
        for index in (*largest.tolist(), *others.tolist()):
            direction = np.zeros(array.size)
            direction[index] = 1
            directions.append(direction.reshape(array.shape))
        compared = [self._compare(name, array, gradient, direction, tolerance) for direction in directions]
        errors = [each.error for each in compared if not each.kink]
        wrong = [each for each in compared if not each.kink and each.error > tolerance]
        kinks = sum(each.kink for each in compared)
        result: GradientResult = "ok" if gradient.any() else "zero"
        if wrong or kinks == len(compared):
            result = "failed" if wrong else "kink"
        layer = self.infos[name].value.node.scope.layer if name in self.infos else ""
        return TensorGradient(
            name, layer, array.shape, len(compared), max(errors, default=0.0), kinks, result,
            _cause(wrong) if wrong else "",
        )  # fmt: skip

    def _compare(
        self, name: str, array: NDArray[Any], gradient: NDArray[Any], direction: NDArray[Any], tolerance: float
    ) -> _Derivative:
        analytic, middle = float((gradient * direction).sum()), self.loss()
        best: _Derivative | None = None
        for relative in STEPS:
            step = relative * _rms(array)
            after, before = (self._loss_at(name, array + sign * step * direction) for sign in (1, -1))
            central = (after - before) / (2 * step)
            scale = max(abs(analytic), abs(central))
            difference, rounding = abs(analytic - central), ROUNDING * abs(middle) / step
            error = difference / scale if scale else 0.0
            if difference <= rounding:
                error = min(error, tolerance)
            bend = abs((after - middle) / step - (middle - before) / step)
            if not np.isfinite([central, analytic]).all():
                error = np.inf
            derivative = _Derivative(analytic, central, float(error), kink=bool(bend > 0.5 * difference > 0))
            if best is None or derivative.error < best.error:
                best = derivative
            if best.error <= tolerance:
                break
        assert best is not None
        # A kink is one only if it bends the loss at the smallest step; a smooth loss is straight there.
        return _Derivative(best.analytic, best.central, best.error, kink=best.error > tolerance and derivative.kink)

    def _loss_at(self, name: str, array: NDArray[Any]) -> float:
        """Compute the loss with a different value of a tensor."""
        if name in self.infos:
            before = self._states[name]
            self._states.assign(name, array)
            loss = self.loss()
            self._states.assign(name, before)
        else:
            before = self._inputs[name]
            self._inputs[name] = array
            loss = self.loss()
            self._inputs[name] = before
        return loss


@dataclass(frozen=True)
class _Derivative:
    """A derivative along a direction: from the gradient, and by central differences."""

    analytic: float
    central: float
    error: float
    kink: bool


def _rms(array: NDArray[Any]) -> float:
    """Return the root mean square of the elements, or 1 if they are all 0."""
    return float(np.sqrt(np.mean(np.square(array)))) or 1.0


def _cause(wrong: Sequence[_Derivative]) -> str:
    """Return the likely reason why derivatives are wrong."""
    if any(not np.isfinite(each.analytic) or not np.isfinite(each.central) for each in wrong):
        return "the loss or its gradient is not finite"
    if all(each.central == 0 for each in wrong):
        return (
            "the loss is constant around this point: a rounding layer whose gradient is an estimate (straight-through)"
        )
    if all(each.analytic == 0 for each in wrong):
        return "the gradient is 0 although the loss changes: it is stopped on its way"
    return "the gradient of an operation is wrong"


def _suspect(tensors: Sequence[TensorGradient]) -> str | None:
    """Name the layers in which the error may be: an error in a layer affects it and those before it."""
    # Parameters are in the order of their layers; inputs, which belong to no layer, come before all of them.
    order = list(dict.fromkeys(["", *(tensor.layer for tensor in tensors)]))
    failed = [order.index(tensor.layer) for tensor in tensors if tensor.result == "failed"]
    if not failed:
        return None
    last = max(failed)
    later = [place for tensor in tensors if tensor.result == "ok" and (place := order.index(tensor.layer)) > last]
    start = f"`{order[last]}` or a layer after it," if last else "a layer"
    end = f"`{order[min(later)]}`, whose gradient is right" if later else "the losses"
    return f"the error is in {start} before {end}"
