"""netspec as a subject: one net's training step, or its prediction."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import netspec
from benchmarks import catalogue
from benchmarks.catalogue import Net
from netspec.backends.program import Program
from netspec.compile import LEARNING_RATE, STEP, WEIGHT, Compiler, ProgramKind
from netspec.distributed.partitioning.optimizer_sharding import ShardingConfig
from netspec.distributed.plans import DataParallelPlan, ShardedOptimizerPlan
from netspec.distributed.strategies.sharded_optimizer import ShardedOptimizer
from netspec.exchange.formats.onnx.exporting import to_onnx
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.types import Precision
from netspec.schema.specs.net import NetSpec
from netspec.solvers.base import slot_label
from netspec.solvers.sgd import SGD
from netspec.tools.measuring.roofline import measure_roofline
from netspec.tools.specs import load_spec
from netspec.training.generation.language_model import LanguageModelGenerator, Sampling, TokenWindow
from netspec.training.inference.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _load(net: Net, *, dropout: bool) -> NetSpec:
    spec = load_spec(net.file, ["vars.dropout=0"] if net.dropout and not dropout else [])
    assert isinstance(spec, NetSpec)
    return spec


def warm_up() -> None:
    """Run one step of a tiny net."""
    spec = load_spec(
        {
            "netspec": 1,
            "inputs": {"x": {"shape": [2]}, "label": {"shape": [], "dtype": "int32"}},
            "layers": [{"name": "logits", "type": "Dense", "units": 2}],
            "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
        }
    )
    assert isinstance(spec, NetSpec)
    compiler = Compiler(spec, solver=SGD(type="SGD", momentum=catalogue.MOMENTUM), device="cpu")
    program = compiler.program(ProgramKind.TRAIN, 1)
    program.write({"x": np.ones((1, 2)), "label": np.zeros(1, np.int32), LEARNING_RATE: np.array(0.1)})
    program.run()


def _set_weights(compiler: Compiler) -> None:
    names = compiler.names("parameter")
    parts = [(name.rsplit("/", 1)[1], compiler.info[name].value.shape) for name in names]
    for name, values in zip(names, catalogue.synthetic_weights(parts), strict=True):
        compiler.states.assign(name, values)


def trained_by(net: Net, workers: int, rank: int, *, sharded: bool) -> tuple[Program, dict[str, Any], int]:
    """Return the training step of one of several workers, its part of the batch, and the size of its solver states.

    With `sharded`, each worker updates some of the parameters, as with `sharded_optimizer`.
    """
    strategy = ShardedOptimizer(strategy="sharded_optimizer")
    plan = DataParallelPlan(workers)
    if sharded:
        config = ShardingConfig(rank, [1.0] * workers, strategy.first_bucket, strategy.bucket)
        plan = ShardedOptimizerPlan(workers, config=config)
    compiler = Compiler(
        _load(net, dropout=True), solver=SGD(type="SGD", momentum=catalogue.MOMENTUM), distribution=plan,
        device="cpu",
    )  # fmt: skip
    _set_weights(compiler)
    share = net.batch_size // workers
    image, label = compiler.spec.inputs
    images, labels = (
        array[rank * share : (rank + 1) * share] for array in catalogue.synthetic_batch(net, net.batch_size)
    )
    inputs = {image: images, label: labels.astype(np.int32), LEARNING_RATE: np.array(catalogue.STILL)}
    inputs |= {STEP: np.array(1.0), RNG_INPUT: np.array([0, 0, rank * share]), WEIGHT: np.array(1 / workers)}
    solver_bytes = sum(compiler.states.array(name).nbytes for name in compiler.names("slot"))
    return compiler.program(ProgramKind.TRAIN, share), inputs, solver_bytes


def planned(net: Net, precision: str) -> dict[str, Any]:
    """Return result shape, parameters, operations and bytes of a training step, without allocating memory."""
    solver = SGD(type="SGD", momentum=catalogue.MOMENTUM)
    compiler = Compiler(_load(net, dropout=True), solver=solver, dtype=Precision(precision), device="null")
    plan = compiler.plan(ProgramKind.TRAIN, net.batch_size)
    (result,) = compiler.net_graph(ProgramKind.TRAIN, net.batch_size).outputs.values()
    parameters = sum(compiler.info[name].value.type.size for name in compiler.names("parameter"))
    return {
        "shape": list(result.shape), "parameters": parameters, "nodes": len(plan.choices),
        "nbytes": compiler.states.nbytes + plan.memory.nbytes,
    }  # fmt: skip


class NetspecTraining:
    """Forward, backward and an update by SGD with momentum: the program that `netspec train` runs."""

    def __init__(self, net: Net, *, compared: bool, precision: str = "float32", device: str = "cpu") -> None:
        start = perf_counter()
        spec = _load(net, dropout=not compared)
        solver = SGD(type="SGD", momentum=catalogue.MOMENTUM)
        self.net = net
        self.precision = Precision(precision)
        self.compiler = Compiler(spec, solver=solver, dtype=self.precision, device=device)
        compiled_at = perf_counter()
        _set_weights(self.compiler)
        weighed = perf_counter()
        self.program = self.compiler.program(ProgramKind.TRAIN, net.batch_size)
        self.compile_seconds = (compiled_at - start) + (perf_counter() - weighed)
        self.flops = sum(
            node.op.flops(*(operand.type for operand in node.inputs)) for node in self.program.plan.choices
        )
        image, label = spec.inputs
        images, labels = catalogue.synthetic_batch(net, net.batch_size)
        rate = net.compared_rate if compared else catalogue.STILL
        self.inputs = {image: images, label: labels.astype(np.int32)}
        self.inputs |= {LEARNING_RATE: np.array(rate), STEP: np.array(1.0), RNG_INPUT: np.array([0, 0, 0])}
        self.step()

    @property
    def planned(self) -> int:
        """Return the bytes that `netspec plan` predicts for the step."""
        return self.compiler.states.nbytes + self.program.plan.memory.nbytes

    def step(self) -> None:
        """Run one training step, including the copy of the batch."""
        self.program.write(self.inputs)
        self.program.run()

    def forward(self) -> None:
        """Compute the outputs as in inference, including the copy of the batch."""
        self._run(ProgramKind.PREDICT)

    def gradients(self) -> None:
        """Compute loss and gradients, including the copy of the batch."""
        self._run(ProgramKind.GRADIENTS)

    def _run(self, kind: ProgramKind) -> None:
        program = self.compiler.program(kind, self.net.batch_size)
        program.write(self.inputs)
        program.run()

    def roofline(self) -> tuple[float, float]:
        """Return FLOP/s of a large matrix product and bytes/s of a large copy, on this device in this precision."""
        roofline = measure_roofline(self.compiler.device, self.precision)
        return roofline.flops_per_second, roofline.bytes_per_second

    def floor(self) -> float:
        """Return the minimum seconds of a step: of its arithmetic or its memory traffic, node by node."""
        rates, plan = measure_roofline(self.compiler.device, self.precision), self.program.plan
        return sum(
            rates.seconds(
                node.op.flops(*(operand.type for operand in node.inputs)),
                sum(plan.layouts[value].nbytes(value.type) for value in (*dict.fromkeys(node.inputs), *node.outputs)),
            )
            for node in plan.choices
        )

    def compare(self, folder: Path, steps: int) -> list[float]:
        """Return the losses of the first steps; write the gradients of the first one to the folder."""
        self.compiler.reset()
        _set_weights(self.compiler)
        self.step()
        losses = [self.program.guard]
        for index, name in enumerate(self.compiler.names("parameter")):
            # the first step is -rate · gradient, and the rate is a power of two
            gradient = self.compiler.states[slot_label(name, "velocity")] / np.float32(-self.net.compared_rate)
            np.save(folder / f"{index}.npy", gradient)
        for _ in range(steps - 1):
            self.step()
            losses.append(self.program.guard)
        return losses


class NetspecPrediction:
    """The net's outputs: the program that `netspec predict` runs."""

    def __init__(self, net: Net, batch_size: int) -> None:
        start = perf_counter()
        spec = _load(net, dropout=True)
        self.compiler = Compiler(spec, device="cpu")
        self.program = self.compiler.program(ProgramKind.PREDICT, batch_size)
        self.compile_seconds = perf_counter() - start
        self.batch_size = batch_size
        self.inputs: dict[str, Any] = {next(iter(spec.inputs)): catalogue.synthetic_batch(net, batch_size)[0]}
        _set_weights(self.compiler)
        self.step()

    def step(self) -> dict[str, NDArray[Any]]:
        """Run one prediction, including the copies of the batch and the results."""
        return self.program(self.inputs)

    def save(self, folder: Path) -> None:
        """Write the net for this batch size as `net.onnx`, its inputs and its outputs."""
        names = self.compiler.names("parameter", "statistic")
        states = {name: self.compiler.states[name] for name in names}
        to_onnx(lambda size: self.compiler.graph(ProgramKind.PREDICT, size), states, batch=self.batch_size).save(
            folder / "net.onnx"
        )
        np.savez(folder / "inputs.npz", **self.inputs)
        outputs: dict[str, Any] = self.step()
        np.savez(folder / "outputs.npz", **outputs)


class NetspecGeneration:
    """A language model of the zoo that generates a text; with `by_window`, from a full window for each token."""

    def __init__(self, name: str, tokens: int, *, by_window: bool) -> None:
        start = perf_counter()
        model = netspec.load(name, device="cpu")
        assert isinstance(model, Model)
        self._generator = LanguageModelGenerator(model)
        if by_window:
            generator = self._generator
            generator.net = TokenWindow(model, generator.input, generator.steps, generator.output)
        elif not self._generator.is_incremental:
            raise AssertionError(f"{name} cannot be generated step by step")
        self.compile_seconds = perf_counter() - start
        self.steps_per_call = tokens

    def step(self) -> None:
        """Generate the text."""
        self.text()

    def text(self) -> list[int]:
        """Return the most probable tokens after token 1."""
        tokens = self._generator.tokens([1], Sampling(temperature=0), seed=1)
        return list(islice(tokens, self.steps_per_call))
