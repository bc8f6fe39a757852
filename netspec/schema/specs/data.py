"""The field `data` of a training file: a source per split, batches, shuffling, transforms.

A split is one mapping, `{source: mnist, split: train, batch_size: 64, …}`: `source` selects the class, which inherits
the fields common to all sources from `SplitFields` and adds its own.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, PrivateAttr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from netspec.schema.messages.pydantic_messages import truth_hint
from netspec.schema.specs.hold_out import HoldOut, no_stored_part
from netspec.schema.specs.spec import Member, Registry, Spec, describe, problem

TRANSFORMS: Registry[Spec] = Registry("transform")
AnyTransform = Annotated[Spec, Member(TRANSFORMS)]
TOKENIZERS: Registry[Spec] = Registry("tokenizer")
COLUMNS: Registry[Spec] = Registry("column", noun="column type")
LABEL = "label"
"""The field whose classes `sampler: balanced` draws equally often."""


class ShuffleWindow(Spec):
    """A random order that keeps only some samples in memory: blocks of neighbors, mixed within a window."""

    window: PositiveInt
    """Number of samples that are mixed with each other; 1: none."""


def _as_shuffle(value: Any) -> Any:
    if isinstance(value, (bool, ShuffleWindow)):
        return value
    if not isinstance(value, dict):
        raise problem(
            "has an invalid value", expected="true, false, or `{window: 10000}`", got=describe(value),
            hint=truth_hint(value),
        )  # fmt: skip
    try:
        return ShuffleWindow.model_validate(value)
    except ValidationError as error:
        raise PydanticCustomError("nested", "{error}", {"error": error, "data": value, "cls": ShuffleWindow}) from None


class SplitFields(Spec):  # noqa: PLW1641  # pydantic makes the hash of a frozen model
    """Base of all data sources: the fields that turn samples into batches."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "batch": "use `batch_size`",
        "type": "use `source`",
        "transform": "use `transforms`, a list",
        "transform_param": "`transform_param` is Caffe's name: use `transforms`, a list",
        "preprocessing": "use `transforms`, a list",
        "num_workers": "use `workers`",
        "buffer_size": "use `shuffle: {window: …}`",
        "ignore_errors": "use `on_error: skip`",
        "seed": "`seed` belongs under `train`",
        "epochs": "it belongs under `train`, as `max_epochs`",
        "weighted_sampler": "use `sampler: balanced`",
        "class_weight": "it belongs to the loss; `sampler: balanced` draws rare classes more often",
        "drop_last": "not needed: each sample is read exactly once per epoch",
    }

    batch_size: PositiveInt
    """Number of samples in a batch, over all workers together."""
    shuffle: Annotated[bool | ShuffleWindow, BeforeValidator(_as_shuffle)] = False
    """Whether to shuffle the samples in each epoch. `{window: 10000}` mixes only about that many samples at a time, for
    data larger than memory."""
    transforms: list[AnyTransform] = Field(default_factory=list)
    """Transforms to apply to each sample, in order."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """The source's field for each input of the net, as `{net input: source field}`. By default the field of the same
    name."""
    limit: PositiveInt | None = None
    """Number of samples to use, from the first on. By default all."""
    prefetch: int = Field(default=2, ge=0, le=64)
    """Number of batches to prepare ahead of the step, if preparing one takes long enough to use threads."""
    workers: PositiveInt | None = Field(default=None, le=256)
    """Number of threads that prepare batches, if that takes long enough to use threads. By default one per CPU core.
    Results do not depend on it."""
    on_error: Literal["error", "skip"] = "error"
    """Whether a damaged sample (a file that cannot be read, a value that is not finite) ends the run (`error`), or is
    left out and counted in the log (`skip`). Labels that the net does not have are always an error."""

    split: Annotated[HoldOut | str | None, BeforeValidator(no_stored_part, json_schema_input_type=HoldOut | None)] = (
        None
    )
    """Samples of the source to hold out from training, for validation and test, as in `{validation: 0.15, test:
    0.15, stratify: label}`. Only in `train`. By default none."""

    sampler: Literal["balanced"] | None = None
    """Order of training samples other than `shuffle`. `balanced` draws every class of the field `label` equally often:
    samples of rare classes several times per epoch, those of frequent classes in some epochs only. An epoch keeps its
    length. Only in `train`."""

    _split_name: str = PrivateAttr(default="train")
    _fixed: bool = PrivateAttr(default=False)

    def __eq__(self, other: object) -> bool:
        """Whether class, values and the samples that are read are equal; locations are ignored."""
        if not super().__eq__(other):
            return False
        assert isinstance(other, SplitFields)
        return (self._split_name, self._fixed) == (other._split_name, other._fixed)

    @property
    def split_name(self) -> str:
        """`validation` or `test` if the samples are held out from the training split; else `train`."""
        return self._split_name

    @property
    def hold_out(self) -> HoldOut | None:
        """Return how the source is divided; None if all its samples belong to this split."""
        return self.split if isinstance(self.split, HoldOut) else None

    def stored_part(self, default: str | None = None) -> str | None:
        """Return which of the stored parts of the source is read, for sources that have several."""
        return (self.split.of or default) if isinstance(self.split, HoldOut) else self.split

    def held_out(self, part: str) -> Self:
        """Return the split of the samples that are held out for `validation` or `test`: with the fields of this one."""
        split = self.model_copy(update={"shuffle": False, "sampler": None})
        split._split_name = part
        return split

    @property
    def augments(self) -> bool:
        """Whether random transforms change the samples, as in training."""
        return self._split_name == "train" and not self._fixed

    def fixed(self) -> Self:
        """Return the split with the same samples in each epoch: in their order, without random transforms."""
        split = self.model_copy(update={"shuffle": False, "sampler": None})
        split._fixed = True
        return split

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if self.sampler is not None and isinstance(self.shuffle, ShuffleWindow):
            raise problem(
                "`sampler` and a shuffle window cannot be combined", field="sampler",
                expected="`shuffle: true` or `false`", hint="a balanced order needs all samples",
            )  # fmt: skip
        return self

    def known_samples(self) -> int | None:
        """Return the number of samples in an epoch, or None if it is only known after reading the data."""
        return None


SOURCES: Registry[SplitFields] = Registry("data source", tag="source")
AnySource = Annotated[SplitFields, Member(SOURCES)]


SPLITS = ("train", "validation", "test")
"""Names of splits that no set in `data.evaluate` can have."""
SetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$", max_length=100)]
"""Name of a further set; without a slash, which separates it from a metric."""


class DataSpec(Spec):
    """The data: samples for training, validation and test."""

    foreign_fields: ClassVar[dict[str, str]] = dict.fromkeys(
        ("valid", "val", "eval", "dev", "holdout"), "use `validation`"
    )

    train: AnySource
    """Samples to train on."""
    validation: AnySource | None = None
    """Samples to evaluate on during training: best weights, early stopping and plateau schedules depend on them."""
    test: AnySource | None = None
    """Samples to evaluate on after training; without `validation`, also during training."""
    evaluate: dict[SetName, AnySource] = Field(default_factory=dict)
    """Further sets of samples by name, as in `{night: {source: …}}`. They are evaluated whenever `validation` is, or
    `test` if `validation` is absent, and have no effect unless a `monitor` names one of their values, such as
    `night/accuracy`."""

    def splits(self) -> dict[str, SplitFields]:
        """Return the splits that the file has, by name."""
        hold_out = self.train.hold_out
        derived = {part: self.train.held_out(part) for part in hold_out.parts} if hold_out is not None else {}
        named = {"train": self.train, "validation": self.validation, "test": self.test, **self.evaluate}
        return {name: present for name, split in named.items() if (present := split or derived.get(name)) is not None}

    def path_of(self, split: str) -> str:
        """Return the dotted path of a split: `data.test`, `data.evaluate.night`."""
        return f"data.evaluate.{split}" if split in self.evaluate else f"data.{split}"

    @model_validator(mode="after")
    def _further_sets(self) -> Self:
        for name in self.evaluate:
            if name in SPLITS:
                expected = "a name that no split has" if name == "train" else f"`{name}` next to `evaluate`"
                raise problem(f"`{name}` cannot be the name of a further set", field="evaluate", expected=expected)
        if self.evaluate and self.monitored not in self.splits():
            raise problem(
                "`evaluate` lists further sets, and there is no first one", field="evaluate",
                expected="`validation` or `test` as well", hint="rename the set that decides to `validation`",
            )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _held_out_once(self) -> Self:
        parts = self.train.hold_out.parts if self.train.hold_out is not None else ()
        further = [(f"evaluate.{name}", split) for name, split in self.evaluate.items()]
        for name, split in (("validation", self.validation), ("test", self.test), *further):
            if split is not None and split.hold_out is not None:
                raise problem(
                    f"`data.{name}` is evaluated in full: its source cannot be divided", field=name.partition(".")[0],
                    expected="`split` with a mapping in `data.train` only",
                    hint="validation and test data that `data.train` holds out need no entry of their own",
                )  # fmt: skip
            if split is not None and split.sampler is not None:
                raise problem(
                    f"`data.{name}` is evaluated in full, each sample once", field=name.partition(".")[0],
                    expected="`sampler` in `data.train` only",
                )  # fmt: skip
            if split is not None and name in parts:
                raise problem(
                    f"the {name} data is defined twice", field=name,
                    expected=f"either `data.{name}`, or `{name}` in `split` of `data.train`",
                )  # fmt: skip
        return self

    @property
    def monitored(self) -> str:
        """Name of the split that is evaluated during the training, if there is one: `validation` or `test`."""
        return "validation" if "validation" in self.splits() else "test"

    @property
    def deployed(self) -> SplitFields:
        """The split that defines the transforms of new samples: one without augmentation, if there is any."""
        splits = self.splits()
        return splits.get("test") or splits.get("validation") or self.train
