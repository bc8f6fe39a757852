"""`PreprocessingRecord`: how a training prepared its samples. Weights files store it, for later inference."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from netspec.data.loader import Loader
from netspec.data.pipeline import Learned
from netspec.data.sources.image_folder import ImageFileSource
from netspec.data.transforms.resizing import Resizing
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Spec
from netspec.schema.specs.train import TrainSpec

IMAGE = "image"
"""Field of the images of a source."""
MAX_VALUES = 4
"""Number of values of a list that are shown."""


@dataclass(frozen=True)
class PreprocessingRecord:
    """The transforms of a training's samples and the values learned from its data, as plain data."""

    transforms: tuple[dict[str, Any], ...] | None = None
    """Transforms in their order: `{"input": INPUT, "type": "Rescaling", "scale": 0.00390625, …}`. None if unknown."""
    learned: Learned | None = None
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Meaning of outputs of a model of another program, by name: `{"classes": […], "function": "softmax"}`, where
    `softmax` or `sigmoid` turns the output into probabilities."""
    held_out: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Samples that were held out from the training data, by split: `{"test": {"samples": 60, "digest": "…"}}`."""

    @classmethod
    def of(cls, loader: Loader, held_out: Mapping[str, Loader]) -> Self:
        """Return the record of a loader; `held_out` has the loaders of samples held out from the training data."""
        steps = tuple(record_of(name, step) for name, step in loader.transforms)
        samples = {name: {"samples": split.samples, "digest": split.digest} for name, split in held_out.items()}
        return cls(steps, loader.learned, held_out=samples)

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Self:
        """Read the record from the metadata of a weights file or checkpoint."""
        record = meta.get("progress", meta)
        learned = record.get("learned")
        steps = record.get("transforms")
        transforms = None if steps is None else tuple(step for step in steps if isinstance(step, dict))
        return cls(
            transforms, None if learned is None else Learned.from_json(learned), record.get("outputs", {}),
            record.get("held_out", {}),
        )  # fmt: skip

    def as_meta(self) -> dict[str, Any]:
        """Return the metadata that `from_meta` reads."""
        meta: dict[str, Any] = {} if self.transforms is None else {"transforms": list(self.transforms)}
        meta |= {"outputs": {name: dict(meaning) for name, meaning in self.outputs.items()}} if self.outputs else {}
        meta |= {"held_out": {name: dict(split) for name, split in self.held_out.items()}} if self.held_out else {}
        return meta if self.learned is None else {**meta, "learned": self.learned.as_json()}

    def or_declared_in(self, spec: NetSpec | TrainSpec) -> PreprocessingRecord:
        """Return this record, or that of the training file if there is none, plus the resizing by its source."""
        if not isinstance(spec, TrainSpec):
            return self
        split = spec.data.deployed
        if self.transforms is not None:
            resizing = [step for step in _resizing_by(split) if step not in self.transforms]
            return replace(self, transforms=(*resizing, *self.transforms))
        fed = {field: name for name, field in split.inputs.items()}
        fields = [str(getattr(step, "apply_to", None) or "") for step in split.transforms]  # "": unknown
        steps = zip(fields, split.transforms, strict=True)
        declared = (record_of(fed.get(name, name), step) for name, step in steps)
        return PreprocessingRecord((*_resizing_by(split), *declared), self.learned)

    def of_inputs(self, inputs: Collection[str]) -> list[dict[str, Any]]:
        """Return the transforms of these inputs, and those whose input is unknown."""
        return [step for step in self.transforms or () if not step.get("input") or step["input"] in inputs]

    def describe(self, inputs: Collection[str]) -> list[str]:
        """Return a line for each transform of these inputs: "`image`: Rescaling, scale 0.00390625, offset 0.0"."""
        return [_line(step) for step in self.of_inputs(inputs)]


def _resizing_by(split: object) -> list[dict[str, Any]]:
    """Return the resizing that a source of image files does itself, for each input that takes its images."""
    if not isinstance(split, ImageFileSource) or split.size is None:
        return []
    names = [name for name, field in split.inputs.items() if field == IMAGE] or [IMAGE]
    height, width = split.size
    step = Resizing(height=height, width=width, interpolation=split.interpolation)
    return [record_of(name, step) for name in names]


def record_of(name: str, transform: Spec) -> dict[str, Any]:
    """Return a transform of an input as plain data."""
    return {"input": name, **transform.model_dump(exclude={"apply_to"}, exclude_none=True)}


def _line(step: Mapping[str, Any]) -> str:
    fields = [f"{name} {_format(value)}" for name, value in step.items() if name not in ("input", "type")]
    where = f"`{step['input']}`" if step.get("input") else "the first input that is not a label"
    return f"{where}: {', '.join([str(step.get('type')), *fields])}"


def _format(value: Any) -> str:
    if isinstance(value, list) and len(value) > MAX_VALUES:
        return f"[{', '.join(map(str, value[:MAX_VALUES]))}, … {len(value)} values]"
    return str(value)
