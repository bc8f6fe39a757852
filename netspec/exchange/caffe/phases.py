"""Which layers a net has in training and in testing: `include`, `exclude`, and the state that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from netspec.errors import Problem, listing
from netspec.exchange.caffe.proto.message import Message

TRAIN, TEST = "TRAIN", "TEST"


@dataclass(frozen=True)
class State:
    """What a net is made for."""

    phase: str
    level: int = 0
    stages: frozenset[str] = frozenset()

    def joined(self, given: Message) -> State:
        """With what a NetState says beside it, as Caffe merges them: stages add up."""
        return State(
            given.get("phase", self.phase),
            given.get("level", self.level),
            self.stages | frozenset(given["stage"]),
        )


def included(layer: Message, state: State) -> bool:
    """Whether the layer is there in this state: no rules, or one to include it that is met, or none to exclude it."""
    if layer["include"]:
        return any(_meets(rule, state) for rule in layer["include"])
    return not any(_meets(rule, state) for rule in layer["exclude"])


def rule_problems(layers: Sequence[Message]) -> list[Problem]:
    """Layers that have rules of both kinds, which Caffe refuses."""
    return [
        Problem("a layer has rules to include it and rules to exclude it", one.location("exclude"),
                expected="`include` or `exclude`")
        for one in layers if one["include"] and one["exclude"]
    ]  # fmt: skip


def stages_of(layers: Sequence[Message]) -> frozenset[str]:
    """All stages that rules speak of."""
    rules = [rule for one in layers for rule in (*one["include"], *one["exclude"])]
    return reduce(or_, (frozenset((*rule["stage"], *rule["not_stage"])) for rule in rules), frozenset())


def unknown_stages(stages: Sequence[str], layers: Sequence[Message]) -> list[Problem]:
    """Stages asked for that no layer speaks of."""
    known = stages_of(layers)
    return [
        Problem(f"no layer speaks of the stage `{one}`", expected=listing(sorted(known)) if known else "no stage")
        for one in stages if one not in known
    ]  # fmt: skip


def _meets(rule: Message, state: State) -> bool:
    return (
        ("phase" not in rule or rule["phase"] == state.phase)
        and ("min_level" not in rule or state.level >= rule["min_level"])
        and ("max_level" not in rule or state.level <= rule["max_level"])
        and all(stage in state.stages for stage in rule["stage"])
        and not any(stage in state.stages for stage in rule["not_stage"])
    )
