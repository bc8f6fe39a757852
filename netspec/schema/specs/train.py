"""What a train file may say: the net, the data, the solver and the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from netspec.errors import Problem
from netspec.schema.language.blocks import Include
from netspec.schema.specs.data import DataSpec
from netspec.schema.specs.expect import TrainExpectation
from netspec.schema.specs.field_types import Bytes, Name
from netspec.schema.specs.init_from import InitFromSpec
from netspec.schema.specs.kinds import AnyCallback, AnySolver, AnyStrategy
from netspec.schema.specs.net import NetSpec, Variable
from netspec.schema.specs.spec import Spec, describe, parts_of, problem

Count = Annotated[int, Field(ge=0)]
AutotuneLevel = Literal["off", "quick", "full"]
RoundingLevel = Literal["fast", "direct"]
PrecisionName = Literal["float32", "float64", "tf32", "bfloat16", "float16"]


class LossScale(Spec):
    """An adaptive factor of the loss: halved when gradients overflow, doubled after many steps without overflow."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "init_scale": "`init_scale` is PyTorch's name: here it is `initial`",
        "initial_scale": "here it is `initial`",
        "growth_interval": "`growth_interval` is PyTorch's name: here it is `growth_steps`",
        "dynamic_growth_steps": "here it is `growth_steps`",
        "growth_factor": "the scale is always doubled: powers of two round nothing",
        "backoff_factor": "the scale is always halved: powers of two round nothing",
    }

    initial: float = Field(default=2.0**15, gt=0)
    """the factor of the first step"""
    growth_steps: PositiveInt | None = 2000
    """it is doubled after this many steps with finite gradients, one after the other, and halved where they are not;
    null: it stays as it is, and no step is skipped"""


def _loss_scale(value: object) -> object:
    """`dynamic`, or a number, as the mapping that it is short for."""
    if value == "dynamic":
        return LossScale()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not value > 0:
            raise problem("a loss scale must be positive", expected="a number above 0", got=describe(value))
        return LossScale(initial=float(value), growth_steps=None)
    if not isinstance(value, (dict, LossScale)):
        raise problem("not a loss scale", expected="`dynamic`, a number, or a mapping", got=describe(value))
    return value


Scaling = Annotated[
    LossScale,
    BeforeValidator(_loss_scale, json_schema_input_type=Literal["dynamic"] | Annotated[float, Field(gt=0)] | LossScale),
]
"""A factor on the loss: `dynamic`, a number, or a mapping."""


class LoopSpec(Spec):
    """The training loop: how long, how often what, and the seed."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "epochs": "here it is `max_epochs`",
        "num_epochs": "here it is `max_epochs`",
        "steps": "here it is `max_steps`",
        "max_iter": "`max_iter` is Caffe's name: here it is `max_steps`",
        "iterations": "here it is `max_steps`",
        "test_interval": "`test_interval` is Caffe's name: here it is `test_every`",
        "test_iter": "not needed: evaluation covers each test sample once",
        "snapshot": "`snapshot` is Caffe's name: here it is `checkpoint_every`",
        "display": "`display` is Caffe's name: here it is `log_every`",
        "random_seed": "here it is `seed`",
        "dtype": "here it is `precision`",
        "batch_size": "`batch_size` belongs under `data.train`",
        "learning_rate": "`learning_rate` belongs under `solver`",
        "base_lr": "`base_lr` is Caffe's name: it is `learning_rate` under `solver`",
        "gradient_checkpointing": "here it is `recompute: all`, or `auto` with a `memory_budget`",
        "remat": "here it is `recompute`",
        "iter_size": "`iter_size` is Caffe's name: here it is `accumulate`",
        "gradient_accumulation_steps": "here it is `accumulate`",
        "accumulate_grad_batches": "here it is `accumulate`",
        "loss_scale_factor": "here it is `loss_scale`",
        "grad_scaler": "here it is `loss_scale: dynamic`",
    }

    max_steps: PositiveInt | None = None
    """stop after this many steps (updates)"""
    max_epochs: PositiveInt | None = None
    """stop after this many passes over the training data; one of `max_steps` and `max_epochs` is needed"""
    test_every: Count | None = None
    """evaluate on the test data every this many steps; 0: only at the end; default: once an epoch"""
    checkpoint_every: Count | None = None
    """write a checkpoint every this many steps; 0: only at the end; default: once an epoch"""
    keep_checkpoints: PositiveInt = 2
    """how many checkpoints stay on disk"""
    log_every: PositiveInt = 100
    """write the training loss to the log every this many steps"""
    seed: Count = 1
    """seed of everything random: initial weights, shuffling, dropout, augmentation"""
    precision: PrecisionName = "float32"
    """element type the net is computed in. `bfloat16` and `float16` are mixed: products take operands of 16 bits, and
    activations are stored in 16 bits; parameters, statistics, losses and updates stay float32. With `tf32`, products
    may round operands of float32 to 10 bits, on devices where that is faster"""
    accumulate: PositiveInt = 1
    """how many batches a step reads (fewer at the end of an epoch): the update follows the mean of their gradients over
    all samples, as if they were one batch; layers with statistics of a batch see each by itself"""
    loss_scale: Scaling | None = None
    """factor on the loss before its gradients are made, so that small ones survive 16 bits; they are divided by it
    before anything else: a number, or `dynamic` (or a mapping): found out, and a step whose gradients are not finite is
    skipped; default: `dynamic` with `precision: float16`, else none"""
    recompute: Literal["auto", "none", "all"] = "auto"
    """activations computed a second time for the gradients instead of kept: as few as make the step fit into its memory
    (`auto`), none, or as many as make it need least (`all`); results are bit-identical"""
    memory_budget: Bytes | None = None
    """most memory for the training step, as `netspec plan` counts it: `2GiB`; default: what the machine has free"""

    @property
    def scaling(self) -> LossScale | None:
        """The factor on the loss: as given, or what float16 needs, whose least numbers are not small."""
        return LossScale() if self.loss_scale is None and self.precision == "float16" else self.loss_scale

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.max_steps is None) == (self.max_epochs is None):
            both = self.max_steps is not None
            raise problem(
                "both `max_steps` and `max_epochs` are given" if both else "`max_steps` or `max_epochs` is missing",
                field="max_epochs" if both else None,
                expected="exactly one of `max_steps` and `max_epochs`",
                got="both" if both else "neither",
                hint="remove one of them, on the command line by `~train.max_epochs`" if both else None,
            )
        return self


class CompileSpec(Spec):
    """How the net is compiled for the machine."""

    autotune: AutotuneLevel = "off"
    """race the kernels that can do the same, and remember this machine's winners: `quick` spends about two seconds,
    `full` races every one at length. Another winner may round otherwise; with the same ones results are bitwise the
    same"""
    rounding: RoundingLevel = "fast"
    """`direct`: no kernels that round more than sums of products do. `fast`: also those that do with fewer products, as
    convolutions can, and round more: errors of up to 2e-6 of a result's length instead of 1e-6"""
    deterministic: bool = True
    """false: also kernels that add up in another order each time, which GPUs have for gradients of convolutions: the
    same training ends with other weights each time, which differ by rounding at first"""


def _net(value: object) -> object:
    if not isinstance(value, (dict, NetSpec)):  # a path has been replaced by the net it names
        raise problem("not a net", expected="the path of a net file, or the net itself", got=describe(value))
    return value


class TrainSpec(Spec):
    """A training: which net, on what data, how."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "model": "here it is `net`",
        "network": "here it is `net`",
        "optimizer": "here it is `solver`",
        "dataset": "here it is `data`",
        "training": "here it is `train`",
        "trainer": "here it is `train`",
        "layers": "`layers` go into the net file, which `net` names",
        "inputs": "`inputs` go into the net file, which `net` names",
        "outputs": "`outputs` go into the net file, which `net` names",
        "losses": "`losses` go into the net file, which `net` names",
        "loss": "losses go into the net file, under `losses`",
        "metrics": "`metrics` go into the net file, which `net` names",
        "epochs": "it belongs under `train`, as `max_epochs`",
        "max_epochs": "`max_epochs` belongs under `train`",
        "max_steps": "`max_steps` belongs under `train`",
        "max_iter": "it belongs under `train`, as `max_steps`",
        "seed": "`seed` belongs under `train`",
        "batch_size": "`batch_size` belongs under `data.train`",
        "learning_rate": "`learning_rate` belongs under `solver`",
        "base_lr": "it belongs under `solver`, as `learning_rate`",
        "momentum": "`momentum` belongs under `solver`",
        "weight_decay": "`weight_decay` belongs under `solver`",
        "variables": "here it is `vars`",
        "params": "here it is `vars`",
        "version": "here it is `netspec`",
        "includes": "here it is `include`",
        "distributed": "here it is `parallel`",
        "distribution": "here it is `parallel`",
        "workers": "how many they are is said when they are started: `netspec train … --workers 4`",
        "strategy": "`strategy` belongs under `parallel`",
    }

    netspec: Literal[1]
    """version of the spec language"""
    name: Name | None = None
    """name of the run; default: the net's name"""
    description: str = ""
    """what this training is for"""
    vars: dict[str, Variable] = Field(default_factory=dict)
    """values for `${…}` expressions: numbers, texts, lists and mappings of these"""
    include: Include = Field(default=(), exclude=True)
    """files (relative to this one) whose `vars` are taken as if they stood here"""
    net: Annotated[NetSpec, BeforeValidator(_net)]
    """the net: the path of a net file (relative to this file), or the net itself"""
    data: DataSpec
    """where the samples come from"""
    solver: AnySolver
    """the update rule and its learning rate"""
    train: LoopSpec
    """the training loop"""
    init_from: InitFromSpec | None = None
    """weights to start from; default: fresh ones"""
    callbacks: list[AnyCallback] = Field(default_factory=list)
    """what is done between steps besides evaluation, checkpoints and logs, in order"""
    expect: TrainExpectation | None = None
    """what `netspec check --run` is to find: the first loss, a few samples that are learned"""
    parallel: AnyStrategy | None = None
    """how several workers train together; default: `strategy: all_reduce`. How many they are is said on the command
    line, by `--workers`"""
    compile: CompileSpec = Field(default_factory=CompileSpec)
    """how the net is compiled for the machine"""

    def clashes(self) -> Iterator[Problem]:
        """What of the solver and the loop does not go together with the rest of the training."""
        parts = [(name, getattr(self, name)) for name in ("solver", "train", "parallel")]
        parts += [(f"callbacks.{index}", callback) for index, callback in enumerate(self.callbacks)]
        for name, given in parts:
            for path, part in parts_of(given) if given is not None else ():
                for conflict in part.conflicts(self):
                    yield replace(conflict, path=".".join(filter(None, (name, path, conflict.path))))
