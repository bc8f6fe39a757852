"""Programs as CUDA graphs, on a simulated GPU that runs work as late as it can, or some of it as early as it can."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from netspec.backends.cuda import launch
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.program import NonFiniteLoss, Program
from netspec.backends.states import States
from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind, make_plan
from netspec.graph.graph import Graph
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.ops.source import Input, State
from netspec.graph.types import DType, TensorType
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from tests.backends.cuda import library
from tests.backends.cuda.emulator import compiler as cxx
from tests.backends.cuda.fake import Machine, StreamEngine
from tests.backends.cuda.library import ArrayCodeDevice, LibraryDevice, UpdatingDevice

pytestmark = pytest.mark.skipif(cxx() is None, reason="no C++ compiler to run CUDA C++ with")
NET = """
netspec: 1
name: small
inputs: {x: {shape: [12]}, label: {shape: [], dtype: int32}}
layers:
  - {name: fc1, type: Dense, units: 8, activation: relu}
  - {name: norm, type: BatchNormalization, axis: 1}
  - {name: drop, type: Dropout, rate: 0.25}
  - {name: fc2, type: Dense, units: 5}
outputs: [fc2]
losses: [{type: SparseCategoricalCrossentropy, from: [fc2, label], from_logits: true}]
"""
BATCH = 6
ALL_LATE, COPIES_EARLY, STEPS_EARLY = (), (1,), (0,)
Open = Callable[..., tuple[Machine, Compiler, Program]]


@pytest.fixture(scope="module")
def engine() -> StreamEngine:
    """Share compiled kernels between all tests."""
    return StreamEngine(Machine())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: StreamEngine) -> Open:
    (tmp_path / "net.yaml").write_text(NET)

    def make(kind: type[CudaDevice] = LibraryDevice, eager: tuple[int, ...] = ALL_LATE) -> Any:
        machine = engine.machine = library.machine = Machine(eager=eager)
        monkeypatch.setitem(sys.modules, "cupy", machine.cupy())
        monkeypatch.setattr(launch, "engine", engine)
        device = kind()
        solver = SGD.model_validate({"type": "SGD", "momentum": 0.9, "learning_rate": 0.1})
        compiler = Compiler(load_net(tmp_path / "net.yaml"), solver=solver, device=device, seed=5)
        return machine, compiler, compiler.program(ProgramKind.TRAIN, BATCH)

    return make


def feeds(program: Program, step: int) -> dict[str, Any]:
    """Return the inputs of a step."""
    random = np.random.default_rng(step)
    result: dict[str, Any] = {
        LEARNING_RATE: np.array(0.1 / (step + 1)), STEP: np.array(step + 1.0), RNG_INPUT: np.array([5, step, 0])
    }  # fmt: skip
    for name, value in program.inputs.items():
        if value.dtype.is_float and name not in result:
            result[name] = random.random(value.shape, np.float32)
        elif name not in result:
            result[name] = random.integers(0, 5, value.shape).astype(str(value.dtype))
    return result


def written(program: Program, spec: dict[str, Any]) -> None:
    """Write inputs from arrays that the caller overwrites afterwards."""
    copies = {name: array.copy() for name, array in spec.items()}
    program.write(copies)
    for array in copies.values():
        array.fill(77)


def steps(program: Program, count: int) -> list[float]:
    """Return the losses of some steps, each read after the next step has started."""
    outcomes = []
    for step in range(count):
        written(program, feeds(program, step))
        program.run()
        outcomes.append(program.outcome)
    return [outcome() for outcome in outcomes]


def loss_of_step(program: Program, step: int) -> float:
    """The loss of one step."""
    written(program, feeds(program, step))
    program.run()
    return program.outcome()


def one_by_one(opened: Open, count: int) -> tuple[list[float], dict[str, Any]]:
    """Return losses and states of a run that calls kernels one by one, which a graph must reproduce."""
    _, compiler, program = opened(eager=(0, 1))
    losses = []
    for step in range(count):
        program.write(feeds(program, step))
        program.timed()
        losses.append(float(program._arrays[program.plan.graph.guard]))  # type: ignore[index]  # there is a guard
    return losses, dict(compiler.states)


def same(first: dict[str, Any], other: dict[str, Any]) -> None:
    assert first.keys() == other.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("eager", [ALL_LATE, COPIES_EARLY, STEPS_EARLY], ids=["late", "copies early", "steps early"])
def test_replayed_graph_equals_calls(opened: Open, eager: tuple[int, ...]) -> None:
    """Inputs of a step never overwrite those that the previous step still reads, however early they are copied."""
    expected, states = one_by_one(opened, 6)
    machine, compiler, program = opened(eager=eager)
    assert compiler.device.notes(program.plan) == ["one CUDA graph"]
    assert steps(program, 6) == expected
    same(dict(compiler.states), states)
    assert (machine.recorded, machine.launched) == (2, 5), "one of each slot; the first step is called"


@pytest.mark.parametrize("eager", [ALL_LATE, STEPS_EARLY], ids=["late", "steps early"])
def test_profiled_calls_are_timed_by_events_and_compute_the_same(opened: Open, eager: tuple[int, ...]) -> None:
    expected, states = one_by_one(opened, 3)
    machine, compiler, program = opened(eager=eager)
    before = perf_counter()
    timer = compiler.device.call_timer()  # reads the clock, to which the simulated GPU's times are added
    program.profile(timer)
    nodes = [node for node in program.plan.order if node in program.plan.choices]
    for step in range(3):
        assert loss_of_step(program, step) == expected[step]
        calls = timer.take()
        assert [node for node, _, _ in calls if node is not None] == nodes
        times = [time for _, began, ended in calls for time in (began, ended)]
        assert times == sorted(times)
        assert before <= times[0]
    same(dict(compiler.states), states)
    assert machine.recorded == 0, "no graph"
    assert timer.take() == []


def test_a_step_allocates_nothing_and_starts_nothing_but_its_graph(opened: Open) -> None:
    machine, _, program = opened()
    steps(program, 3)
    before = machine.allocated, machine.started, machine.recorded
    steps(program, 3)
    assert (machine.allocated, machine.started, machine.recorded) == before


def test_planned_memory_is_allocated_memory(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planned memory includes the staging buffers of inputs."""
    sizes: list[int] = []
    _, compiler, _ = opened()
    allocate = compiler.device.allocate

    def noted(nbytes: int) -> Any:
        sizes.append(nbytes)
        return allocate(nbytes)

    monkeypatch.setattr(compiler.device, "allocate", noted)
    memory = compiler.program(ProgramKind.TEST, 3).plan.memory
    assert memory.staged_bytes > 2 * 3 * 12 * 4
    assert sum(sizes) == memory.nbytes


def test_host_waits_only_for_the_step_before_the_last(opened: Open) -> None:
    _, compiler, program = opened()
    steps(program, 3)
    written(program, feeds(program, 3))
    program.run()
    before = program.outcome
    written(program, feeds(program, 4))
    program.run()
    main = compiler.device.flow.stream  # type: ignore[attr-defined]  # a GPU's device has one
    assert len(main.waiting) > 10, "the last step has only been started"
    assert np.isfinite(before())
    assert len(main.waiting) > 10, "the step before was known already"
    assert np.isfinite(program.guard)
    assert not main.waiting


@pytest.mark.parametrize("kind", [LibraryDevice, UpdatingDevice])
@pytest.mark.parametrize("bad", [0, 1, 4])
def test_non_finite_loss_leaves_states_unchanged(opened: Open, kind: type[CudaDevice], bad: int) -> None:
    """A non-finite loss is noticed one step late, unless the CPU waits; neither of the two steps changes the states."""
    _, compiler, program = opened(kind, eager=COPIES_EARLY)
    steps(program, bad)
    before = dict(compiler.states)
    data = feeds(program, bad)
    data["x"][2, 3] = np.nan

    def two_steps() -> None:
        for inputs in (data, feeds(program, bad + 1)):
            written(program, inputs)
            program.run()

    with pytest.raises(NonFiniteLoss) as caught:
        two_steps()
    assert caught.value.late == (kind is LibraryDevice)
    assert caught.value.node is not None
    assert caught.value.node.op.label == "x"  # type: ignore[attr-defined]  # an input's
    same(dict(compiler.states), before)
    for step in (bad, bad + 1):
        written(program, feeds(program, step))
        program.run()
    assert np.isfinite(program.guard)
    _, states = one_by_one(opened, bad + 2)
    same(dict(compiler.states), states)


def test_immediate_read_is_not_late(opened: Open) -> None:
    _, compiler, program = opened()
    steps(program, 2)
    weights = {**dict(compiler.states), "fc1/kernel": np.full_like(compiler.states["fc1/kernel"], np.inf)}
    compiler.states.assign("fc1/kernel", weights["fc1/kernel"])
    written(program, feeds(program, 2))
    program.run()
    with pytest.raises(NonFiniteLoss) as caught:
        _ = program.guard
    assert (caught.value.late, caught.value.state) == (0, "fc1/kernel")
    same(dict(compiler.states), weights)


def test_kernels_that_ignore_the_stop_flag_wait_for_the_loss(opened: Open) -> None:
    expected, states = one_by_one(opened, 4)
    machine, compiler, program = opened(UpdatingDevice)
    graphs, why = compiler.device.notes(program.plan)
    assert graphs == "two CUDA graphs; the CPU checks the loss between them"
    assert why.endswith("x Fused from writing states")
    assert steps(program, 4) == expected
    same(dict(compiler.states), states)
    assert (machine.recorded, machine.launched) == (4, 6), "two of each slot; the first step is called"


@pytest.mark.parametrize("eager", [ALL_LATE, COPIES_EARLY, STEPS_EARLY], ids=["late", "copies early", "steps early"])
def test_runs_without_guard_are_not_awaited_and_own_their_inputs(opened: Open, eager: tuple[int, ...]) -> None:
    machine, compiler, _ = opened(eager=eager)
    kind = TensorType((40,), DType.FLOAT32)
    states = States({"sum": kind}, compiler.device)
    total = State("sum", kind)() * 3.0 + Input("x", kind)()
    program = Program(make_plan(Graph({}, {"sum": total}), compiler.device), compiler.device, states)
    expected = np.zeros(40, np.float32)
    for step in range(7):
        x = np.random.default_rng(step).random(40, np.float32)
        expected = expected * np.float32(3) + x
        written(program, {"x": x})
        program.run()
    assert machine.launched == 6
    np.testing.assert_allclose(states["sum"], expected, rtol=1e-6)  # product and sum may be fused into one instruction


def test_array_code_is_called_op_by_op(opened: Open) -> None:
    """Sums are computed by the library."""
    expected, states = one_by_one(opened, 3)
    machine, compiler, program = opened(ArrayCodeDevice, eager=(0, 1))
    (note,) = compiler.device.notes(program.plan)
    assert note.startswith("no CUDA graph, its kernels are called one by one: `fc1` (")
    assert note.endswith("run array-library code")
    assert steps(program, 3) == expected
    same(dict(compiler.states), states)
    assert machine.recorded == 0


def test_a_program_without_writes_reads_the_states_of_the_last_good_step(opened: Open) -> None:
    _, compiler, program = opened()
    steps(program, 2)
    predict = compiler.program(ProgramKind.PREDICT, BATCH)
    data = feeds(program, 2)
    good = predict({"x": data["x"]})
    bad = {**data, "x": np.full_like(data["x"], np.inf)}
    written(program, bad)
    program.run()
    predict.write({"x": data["x"]})
    with pytest.raises(NonFiniteLoss):
        predict.run()
    same(predict({"x": data["x"]}), good)
