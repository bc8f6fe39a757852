"""Sums over two workers with GPUs as parts of a step's CUDA graph; NCCL is a stand-in that records its calls."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pytest

from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.compile import WEIGHT, Compiler, ProgramKind
from netspec.distributed.communicators import nccl as parallel
from netspec.distributed.communicators.base import Communicator
from netspec.distributed.partitioning.bucketing import BucketGradients
from netspec.distributed.plans import DataParallelPlan
from netspec.distributed.world import acting_as
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from tests.backends.cuda import library, nccl
from tests.backends.cuda.emulator import compiler as cxx
from tests.backends.cuda.fake import Machine, StreamEngine
from tests.backends.cuda.test_graph import NET, feeds
from tests.backends.test_cuda import Worker

pytestmark = pytest.mark.skipif(cxx() is None, reason="no C++ compiler to run CUDA C++ with")


class Gpu(library.LibraryDevice):
    backends = ("reference", "nccl", "library", "cuda")

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        load_kernels("nccl")
        return super().kernels


@pytest.mark.parametrize("blocking", [False, True])
def test_groups_begin_and_end_in_one_order(blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order does not depend on the first request. Graphs refer to groups, and are destroyed before them."""
    monkeypatch.setattr(parallel, "_groups", {})
    machine, workers = Machine(2), Worker(0, 2)
    carrier = nccl.install(monkeypatch, machine)
    calls = carrier.calls

    class Graphs:
        def forget(self) -> None:
            calls.append(("forget", 0))

    graphs = Graphs()
    monkeypatch.setattr(parallel, "communicating_graphs", [graphs])
    groups = {worker: parallel.nccl_group(workers, blocking=worker) for worker in (blocking, not blocking)}
    assert groups[True] is not groups[False]
    assert [*parallel._groups.values()] == [groups[False], groups[True]]
    met = [(name, stream, 1, "uint8") for stream in (1, 2) for name in ("send", "recv") * 2]
    assert calls == met, "each sends each a byte, itself too"
    assert workers.sent == 0
    parallel.destroy_groups()
    assert calls[len(met) :] == [("forget", 0), ("destroy", 0), ("destroy", 0)]


def test_buckets_are_a_branch_of_the_graph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Calls are captured in one order, and counted each time that the graph runs."""
    (tmp_path / "net.yaml").write_text(NET.replace("axis: 1}", "axis: 1, synchronized: true}"))
    machine = library.machine = Machine(2)
    carrier = nccl.install(monkeypatch, machine)
    monkeypatch.setattr(launch, "engine", StreamEngine(machine))
    group: Communicator = Worker(0, 2)
    with acting_as(group):
        device = Gpu()
        solver = SGD.model_validate({"type": "SGD", "momentum": 0.9, "learning_rate": 0.1})
        compiler = Compiler(
            load_net(tmp_path / "net.yaml"), solver=solver, device=device, seed=5,
            distribution=DataParallelPlan(2, buckets=BucketGradients(100, 400)),
        )  # fmt: skip
        program = compiler.program(ProgramKind.TRAIN, 3)
        sent, recorded = [], []
        for step in range(6):
            before = group.sent, len(carrier.calls)
            program.write({**feeds(program, step), WEIGHT: 0.5})
            program.run()
            sent.append(group.sent - before[0])
            recorded.append(carrier.calls[before[1] :])
        program.outcome()
    assert machine.recorded == 2, "a graph for each slot"
    assert recorded[0] == recorded[1] == recorded[2], "the first is called, the next two are recorded"
    assert recorded[3:] == [[], [], []]
    assert len(set(sent)) == 1
    streams = {stream for _, stream, *_ in recorded[0]}
    assert len(streams) == 2, "buckets have a stream beside, what is waited for has that of the step"
    parallel.forget_graphs()
    program.run()
    assert machine.recorded == 3, "what was dropped is recorded anew"
    main = machine.streams.index(device.flow.stream) + 1
    assert main in streams
    assert sum(stream != main for _, stream, *_ in recorded[0]) > 1, "several buckets"
