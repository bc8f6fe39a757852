"""What the stages of a pipeline are and cost, before there are any."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from netspec.cli.output import count, scaled, size, table
from netspec.cli.sending import Imagined
from netspec.compile import Purpose
from netspec.parallel.strategies.pipeline import Pipeline
from netspec.schema.net import NetSpec
from netspec.schema.train import TrainSpec
from netspec.train.crew import Crew
from netspec.train.trainer import trainer


@dataclass(frozen=True)
class StageCost:
    """What one worker computes of a step, and needs for it."""

    stage: int
    layers: tuple[str, ...]
    parameters: int
    """Numbers that it moves."""
    flops: int
    """Of its part of a step, the update included."""
    memory_bytes: int
    """Of its program, beside the states."""


def stage_costs(spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null") -> list[StageCost]:
    """Those of a training whose strategy is a pipeline, on so many workers; of all others none."""
    if not isinstance(spec, TrainSpec) or not isinstance(spec.parallel, Pipeline) or workers == 1:
        return []
    return [_cost(spec, spec.parallel, workers, stage, batch_size, device) for stage in range(workers)]


def _cost(spec: TrainSpec, strategy: Pipeline, workers: int, stage: int, batch_size: int, device: str) -> StageCost:
    compiler = trainer(spec, device, Crew(Imagined(workers, workers, stage), strategy))
    plan = compiler.plan(Purpose.TRAIN, batch_size)
    own = [name for name in compiler.names("parameter") if compiler.owners[name] == stage]
    return StageCost(
        stage, tuple(compiler.in_stages(1).layers[stage]), sum(compiler.info[name].value.type.size for name in own),
        sum(node.op.flops(*(one.type for one in node.inputs)) for node in plan.order), plan.memory.nbytes,
    )  # fmt: skip


def as_json(found: list[StageCost]) -> dict[str, Any]:
    """The same as plain data."""
    return {"stages": [asdict(one) for one in found]} if found else {}


def show(found: list[StageCost]) -> None:
    """Print it."""
    rows = [
        [
            f"stage {one.stage}", one.layers[0], one.layers[-1], count(one.parameters), scaled(one.flops, "FLOP"),
            size(one.memory_bytes),
        ]
        for one in found
    ]  # fmt: skip
    table(["", "from", "to", "parameters", "a step", "memory beside states"], rows, right=(3, 4, 5))
