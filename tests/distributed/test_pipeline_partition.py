"""Nets that are split into stages: the cuts, the values sent between stages, and the memory of schedules."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import yaml

from netspec.compile import Compiler, ProgramKind
from netspec.distributed.partitioning.pipeline.partition import (
    COST_TOLERANCE,
    PipelineConfig,
    PipelineStages,
    balance_stages,
    partition_sequence,
)
from netspec.distributed.plans import PipelinePlan
from netspec.errors import SpecError
from netspec.graph.types import DType
from netspec.schema.load import load_net
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.net import NetSpec
from netspec.solvers.base import SolverSpec
from tests.distributed.conftest import ROOT
from tests.distributed.programs.stages import IMAGES, SKIPS


def net(text: str) -> NetSpec:
    return load_net(yaml.safe_load(text))


def compiled(text: str, config: PipelineConfig) -> Compiler:
    solver = SOLVERS.parse({"type": "SGD", "learning_rate": 0.1})
    assert isinstance(solver, SolverSpec)
    return Compiler(net(text), solver=solver, device="null", distribution=PipelinePlan(config))


def stages_of(text: str, config: PipelineConfig) -> PipelineStages:
    plan = compiled(text, config).distribution
    assert isinstance(plan, PipelinePlan)
    return plan.stages_of(2)


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_cuts_are_the_best_of_all(parts: int) -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        costs, carried = ([int(index) for index in random.integers(1, 9, 6)] for _ in range(2))
        actual = partition_sequence(costs, carried, parts)

        def worst(begins: tuple[int, ...]) -> int:
            return max(sum(costs[a:b]) for a, b in pairwise((*begins, len(costs))))  # noqa: B023  # called at once

        every = [(0, *rest) for rest in combinations(range(1, 6), parts - 1)]
        good = [candidate for candidate in every if worst(candidate) <= COST_TOLERANCE * min(map(worst, every))]
        assert sum(carried[b - 1] for b in actual[1:]) == min(
            sum(carried[b - 1] for b in bounds[1:]) for bounds in good
        )
        assert tuple(actual) in good


def test_a_cut_after_a_pooling_is_preferred_if_it_sends_less() -> None:
    lenet = load_net(ROOT / "model_zoo" / "lenet_mnist" / "net.yaml")
    assert balance_stages(lenet, 3, 8, DType.FLOAT32) == ("conv2", "flat")
    assert len(set(balance_stages(net(IMAGES), 7, 4, DType.FLOAT32))) == 6


def test_values_between_stages() -> None:
    """Values are sent directly to the stages that read them; gradients are returned if an earlier layer is trained."""
    cut = stages_of(SKIPS, PipelineConfig(3, 0, 2, True, ("both", "tied")))
    assert cut.layers == [["one", "two"], ["both", "three", "sum"], ["tied", "all", "end"]]
    actual = sorted(
        (crossing.value.node.scope.layer, crossing.source, crossing.target, crossing.returns)
        for crossing in cut.crossings
    )
    # The parameters of `three` go to the stage of the layer that shares them.
    assert actual == [("one", 0, 1, True), ("one", 0, 2, True), ("sum", 1, 2, True), ("three", 1, 2, True),
                     ("three", 1, 2, True), ("two", 0, 1, True)]  # fmt: skip
    frozen = stages_of(IMAGES.replace("{name: conv1,", "{name: conv1, trainable: false,").replace(
        "{name: norm,", "{name: norm, trainable: false,"), PipelineConfig(2, 0, 2, True, ("drop",)))  # fmt: skip
    assert [crossing.returns for crossing in frozen.crossings] == [False]


def test_a_moving_average_has_one_stage() -> None:
    shared = IMAGES.replace(
        "  - {name: flat", "  - {name: again, type: BatchNormalization, share: norm}\n  - {name: flat"
    )
    compiled(shared, PipelineConfig(2, 0, 2, True, ("norm",)))
    with pytest.raises(SpecError) as caught:
        compiled(shared, PipelineConfig(2, 0, 2, True, ("drop",)))
    names = [problem.message for problem in caught.value.problems]
    assert len(names) == 2
    assert "`norm/moving_mean`" in names[0]


def test_one_forward_one_backward_needs_less_memory() -> None:
    """Memory is about proportional to the micro-batches that are kept: all 12, or 3, as many as stages."""
    layers = "".join(f"  - {{name: c{n}, type: Conv2D, filters: 8, kernel_size: 3, padding: same}}\n" for n in range(4))
    text = IMAGES.replace("  - {name: conv1, type: Conv2D, filters: 4, kernel_size: 3, padding: same}\n", layers)
    peaks = {
        interleaved: compiled(text, PipelineConfig(3, 0, 12, interleaved, ("c2", "norm")))
        .plan(ProgramKind.TRAIN, 96).memory.arena_bytes
        for interleaved in (False, True)
    }  # fmt: skip
    assert peaks[True] < 0.6 * peaks[False]  # both keep the inputs of the full batch
