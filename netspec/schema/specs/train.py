"""Fields of a training file: the net, the data, the solver and the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from netspec.errors import Problem
from netspec.schema.language.blocks import Include
from netspec.schema.specs.data import DataSpec
from netspec.schema.specs.expect import TrainExpectation
from netspec.schema.specs.field_types import Bytes, Name
from netspec.schema.specs.init_from import InitFromSpec
from netspec.schema.specs.kinds import AnyCallback, AnySolver, AnyStrategy
from netspec.schema.specs.monitor import EarlyStoppingFields, Monitor, set_modes, without_evaluations
from netspec.schema.specs.net import NetSpec, Variable
from netspec.schema.specs.search import SearchSpec
from netspec.schema.specs.spec import Spec, describe, parts_of, problem
from netspec.schema.specs.stages import StageSpec, stage_specs

Count = Annotated[int, Field(ge=0)]
AutotuneLevel = Literal["off", "quick", "full"]
RoundingLevel = Literal["fast", "direct"]
PrecisionName = Literal["float32", "float64", "tf32", "bfloat16", "float16"]


class LossScale(Spec):
    """A factor on the loss that is halved if gradients overflow, and doubled after many steps without overflow."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "init_scale": "`init_scale` is PyTorch's name: use `initial`",
        "initial_scale": "use `initial`",
        "growth_interval": "`growth_interval` is PyTorch's name: use `growth_steps`",
        "dynamic_growth_steps": "use `growth_steps`",
        "growth_factor": "not needed: the scale is always doubled, since powers of two cause no rounding",
        "backoff_factor": "not needed: the scale is always halved, since powers of two cause no rounding",
    }

    initial: float = Field(default=2.0**15, gt=0)
    """Factor of the first step."""
    growth_steps: PositiveInt | None = 2000
    """Number of consecutive steps with finite gradients after which the factor is doubled.

    A step with gradients that are not finite is skipped, and halves the factor. With `null`, the factor is constant and
    no step is skipped.
    """


def _loss_scale(value: object) -> object:
    """Convert `dynamic` or a number to the mapping that it abbreviates."""
    if value == "dynamic":
        return LossScale()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not value > 0:
            raise problem("a loss scale must be positive", expected="a number above 0", got=describe(value))
        return LossScale(initial=float(value), growth_steps=None)
    if not isinstance(value, (dict, LossScale)):
        raise problem("has an invalid value", expected="`dynamic`, a number, or a mapping", got=describe(value))
    return value


Scaling = Annotated[
    LossScale,
    BeforeValidator(_loss_scale, json_schema_input_type=Literal["dynamic"] | Annotated[float, Field(gt=0)] | LossScale),
]
"""A factor on the loss: `dynamic`, a number, or a mapping."""


class LoopSpec(Monitor):
    """The training loop: its length, its intervals, precision, memory and the seed."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "epochs": "use `max_epochs`",
        "num_epochs": "use `max_epochs`",
        "steps": "use `max_steps`",
        "max_iter": "`max_iter` is Caffe's name: use `max_steps`",
        "iterations": "use `max_steps`",
        "test_interval": "`test_interval` is Caffe's name: use `test_every`",
        "test_iter": "not needed: an evaluation reads each test sample once",
        "snapshot": "`snapshot` is Caffe's name: use `checkpoint_every`",
        "display": "`display` is Caffe's name: use `log_every`",
        "random_seed": "use `seed`",
        "dtype": "use `precision`",
        "batch_size": "`batch_size` belongs under `data.train`",
        "class_weight": "it belongs to a loss of the net: `class_weight: balanced`",
        "learning_rate": "`learning_rate` belongs under `solver`",
        "base_lr": "`base_lr` is Caffe's name: it is `learning_rate` under `solver`",
        "gradient_checkpointing": "use `recompute: all`, or `auto` with a `memory_budget`",
        "remat": "use `recompute`",
        "iter_size": "`iter_size` is Caffe's name: use `accumulate`",
        "gradient_accumulation_steps": "use `accumulate`",
        "accumulate_grad_batches": "use `accumulate`",
        "loss_scale_factor": "use `loss_scale`",
        "grad_scaler": "use `loss_scale: dynamic`",
        "patience": "use `early_stopping: {patience: …}`",
        "restore_best_weights": "use `restore_best`",
        "load_best_model_at_end": "use `restore_best`",
        "metric_for_best_model": "use `monitor`",
        "greater_is_better": "use `mode`: `max` for true, `min` for false",
    }

    max_steps: PositiveInt | None = None
    """Number of steps (updates) after which the training ends."""
    max_epochs: PositiveInt | None = None
    """Number of passes over the training data after which the training ends. Exactly one of `max_steps` and
    `max_epochs` is required."""
    test_every: Count | None = None
    """Number of steps between two evaluations; 0: only at the end. By default once per epoch."""
    checkpoint_every: Count | None = None
    """Number of steps between two checkpoints; 0: only at the end. By default once per epoch."""
    early_stopping: EarlyStoppingFields | None = None
    """Condition that ends the run before its last step: evaluations no longer improve `monitor`. By default none."""
    restore_best: bool = True
    """Whether the run ends with the weights of its best evaluation, by `monitor`, or with those of its last step."""
    keep_checkpoints: PositiveInt = 2
    """Number of checkpoints to keep on disk."""
    log_every: PositiveInt | None = None
    """Number of steps between two lines of the log with the training loss. By default 100, or the interval of
    evaluations if that is shorter."""
    log_metrics: bool = True
    """Whether lines of the log with the training loss also have the metrics of the training batches since the previous
    line. They are those of the net in training, for example with dropout. Only metrics that are means, such as
    accuracies; not on GPUs, and not with the strategies `model`, `pipeline` and `parameter_server`."""
    log_gradient_norm: bool | None = None
    """Whether the log has the L2 norm of all gradients of the step together, before clipping (`gradient_norm`). By
    default if the solver's `global_clipnorm` needs it anyway. Workers that do not synchronize every step log the norm
    of the first worker. Not with the strategies `model`, `pipeline` and `parameter_server`."""
    seed: Count = 1
    """Seed of all random numbers: initial weights, shuffling, dropout, augmentation."""
    precision: PrecisionName = "float32"
    """Element type in which the net is computed.

    `bfloat16` and `float16` are mixed precision: matrix products take 16-bit operands and activations are stored in 16
    bits; parameters, statistics, losses and updates are float32. `tf32` is float32, except that matrix products may
    round operands to 10 bits of mantissa on devices where that is faster.
    """
    accumulate: PositiveInt = 1
    """Number of batches in a step (fewer at the end of an epoch). The update uses the mean of their gradients over all
    samples, as if they were one batch. Layers with batch statistics, such as BatchNormalization, see one batch at a
    time."""
    loss_scale: Scaling | None = None
    """Factor by which the loss is multiplied before its gradients are computed, so that small gradients do not
    underflow in 16 bits. The gradients are then divided by it.

    A number is a constant factor. With `dynamic` or a mapping the factor adapts: a step with gradients that are not
    finite is skipped, and halves the factor. By default `dynamic` with `precision: float16`, otherwise no factor.
    """
    recompute: Literal["auto", "none", "all"] = "auto"
    """Activations to recompute for the gradients instead of storing them (gradient checkpointing): as few as necessary
    to fit the step into memory (`auto`), none, or as many as reduce its memory (`all`). Results are bit-identical."""
    memory_budget: Bytes | None = None
    """Maximum memory of the training step, such as `2GiB`, as `netspec plan` reports it. By default the free memory of
    the machine."""

    @property
    def scaling(self) -> LossScale | None:
        """The value of `loss_scale`, or by default a dynamic scale for float16, in which small gradients underflow."""
        return LossScale() if self.loss_scale is None and self.precision == "float16" else self.loss_scale

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield a problem for each value that can't be monitored in a training."""
        yield from self.unknown_values(training)
        if self.early_stopping is not None:
            yield from without_evaluations(training, "`early_stopping`", self.early_stopping)

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.max_steps is None) == (self.max_epochs is None):
            both = self.max_steps is not None
            raise problem(
                "`max_steps` and `max_epochs` cannot be combined" if both else "`max_steps` or `max_epochs` is missing",
                field="max_epochs" if both else None,
                expected="exactly one of `max_steps` and `max_epochs`",
                got="both" if both else "neither",
                hint="remove one of them" if both else None,
            )
        return self


class CompileSpec(Spec):
    """Choice of the kernels that run on this machine."""

    autotune: AutotuneLevel = "off"
    """Whether to measure the kernels that can run the same operation, and use the fastest.

    `quick` measures for about two seconds in total, `full` measures all of them and takes longer. Results are stored
    for this machine. Another kernel may round differently; with the same kernels a training is bit-identical.
    """
    rounding: RoundingLevel = "fast"
    """`fast` allows convolutions with fewer multiplications (Winograd's algorithm), which round more: the relative
    error of results is up to 2e-6 instead of 1e-6. `direct` disables them."""
    deterministic: bool = True
    """Whether to use only kernels that add in the same order each time.

    false allows others, which GPUs have for gradients of convolutions: two runs of the same training then differ, at
    first only by rounding.
    """


def _net(value: object) -> object:
    if not isinstance(value, (dict, NetSpec)):  # loading has already replaced a path by the net in that file
        expected = "the path of a net file, or the content of one"
        raise problem("not a path or a net", expected=expected, got=describe(value))
    return value


class TrainSpec(Spec):
    """A training file: the net, the data, and how to train."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "model": "use `net`",
        "network": "use `net`",
        "optimizer": "use `solver`",
        "dataset": "use `data`",
        "training": "use `train`",
        "trainer": "use `train`",
        "layers": "`layers` belong in the net file that `net` names",
        "inputs": "`inputs` belong in the net file that `net` names",
        "outputs": "`outputs` belong in the net file that `net` names",
        "losses": "`losses` belong in the net file that `net` names",
        "loss": "losses belong in the net file, under `losses`",
        "metrics": "`metrics` belong in the net file that `net` names",
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
        "variables": "use `vars`",
        "params": "use `vars`",
        "version": "use `netspec`",
        "includes": "use `include`",
        "distributed": "use `parallel`",
        "distribution": "use `parallel`",
        "workers": "the number of workers is an option of the command line: `netspec train … --workers 4`",
        "strategy": "`strategy` belongs under `parallel`",
        "hyperparameters": "use `search`",
        "tune": "use `search`",
    }

    netspec: Literal[1]
    """Version of the spec language."""
    name: Name | None = None
    """Name of the run. By default the name of the net."""
    description: str = ""
    """Purpose of the run, in free text."""
    vars: dict[str, Variable] = Field(default_factory=dict)
    """Values for `${…}` expressions: numbers, texts, lists and mappings of these."""
    include: Include = Field(default=(), exclude=True)
    """Files whose `vars` are added to those of this file. Paths are relative to this file."""
    net: Annotated[NetSpec, BeforeValidator(_net)]
    """The net: the path of a net file, relative to this file, or the content of one."""
    data: DataSpec
    """The sources of the samples for training, validation and test."""
    solver: AnySolver
    """The update rule and its learning rate."""
    train: LoopSpec
    """The training loop: its length, its intervals, precision, memory and the seed."""
    stages: list[StageSpec] = Field(default_factory=list)
    """Parts of the run, one after the other, each with its own length, frozen layers and learning rates. By
    default the training has one part."""
    init_from: InitFromSpec | None = None
    """Weights to start from. By default the initializers of the layers set them."""
    callbacks: list[AnyCallback] = Field(default_factory=list)
    """Actions between steps, in order, in addition to evaluation, checkpoints and logs."""
    expect: TrainExpectation | None = None
    """Results that `netspec check --run` must find: the first loss, and that a few samples can be memorized."""
    parallel: AnyStrategy | None = None
    """Strategy by which several workers train together. By default `strategy: all_reduce`. The option `--workers` sets
    the number of workers."""
    compile: CompileSpec = Field(default_factory=CompileSpec)
    """Choice of the kernels that run on this machine."""
    search: SearchSpec | None = None
    """Values to try for other fields with `netspec search`. A training ignores it."""

    @model_validator(mode="after")
    def _fill_in_modes(self) -> Self:
        sections = (self.solver, self.train, *self.stages, *self.callbacks)
        set_modes((part for spec in sections for _, part in parts_of(spec)), self.net, self.data.evaluate)
        return self

    def clashes(self) -> Iterator[Problem]:
        """Yield the conflicts of the solver, the loop, the strategy and the callbacks with the rest of the file."""
        sections = [(name, getattr(self, name)) for name in ("solver", "train", "parallel", "search")]
        sections += [(f"callbacks.{index}", callback) for index, callback in enumerate(self.callbacks)]
        sections += [(f"stages.{index}", stage) for index, stage in enumerate(self.stages)]
        for name, section in sections:
            for path, spec in parts_of(section) if section is not None else ():
                for conflict in spec.conflicts(self):
                    yield replace(conflict, path=".".join(filter(None, (name, path, conflict.path))))
        yield from self._stage_problems()

    def _stage_problems(self) -> Iterator[Problem]:
        """Yield settings that exclude stages, and the conflicts in the training of each stage."""
        if self.stages and self.init_from is not None and self.init_from.freeze:
            yield Problem(
                "`init_from.freeze` would hold for all stages", self.init_from.where("freeze"), "init_from.freeze",
                expected="`freeze` in the stages that do not train these layers",
            )  # fmt: skip
        for stage in stage_specs(self) if self.stages else ():
            yield from stage.clashes()
