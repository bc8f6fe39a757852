"""`class_weight: balanced`: weights of losses, from the number of targets of each class in the training data.

They replace `balanced` in the spec before the net is compiled. The resolved spec of a run contains them, so a resumed
run uses the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netspec.data.base import Dataset, Source, located_at
from netspec.data.class_counts import count_classes
from netspec.errors import InputError, and_more, listing
from netspec.layers.targets import BALANCED
from netspec.schema.specs.kinds import LossFields
from netspec.schema.specs.links import LossLink, resolve_names
from netspec.schema.specs.train import TrainSpec

DIGITS = 6
"""Significant digits of a weight, so that specs remain readable."""


def with_class_weights(spec: TrainSpec) -> tuple[TrainSpec, list[str]]:
    """Return the spec with a weight for each class in place of `balanced`, and a note for each such loss.

    Reads the targets of all training samples if there is such a loss. Raises `InputError`, located at the loss, if its
    targets are not class indices of the source.
    """
    links = [link for link in resolve_names(spec.net).losses if _is_balanced(link.fields)]
    if not links:
        return spec, []
    split = spec.data.train
    assert isinstance(split, Source)
    dataset = split.open(seed=spec.train.seed)
    losses, notes = list(spec.net.losses), []
    for link in links:
        with located_at(link.fields, "class_weight"):
            weights, note = _weights(link, split, dataset)
        losses = [loss.model_copy(update={"class_weight": weights}) if loss is link.fields else loss for loss in losses]
        notes.append(note)
    return spec.model_copy(update={"net": spec.net.model_copy(update={"losses": losses})}), notes


def _is_balanced(loss: LossFields) -> bool:
    return getattr(loss, "class_weight", None) == BALANCED


def _weights(link: LossLink, split: Source, dataset: Dataset) -> tuple[dict[int, float], str]:
    """Return the weights of a loss, and a note about them."""
    target = link.sources[1] if len(link.sources) > 1 else ""
    field = split.inputs.get(target, target)
    if field not in dataset.fields:
        raise InputError(
            f"the target `{target}` of loss `{link.name}` is not a field of the training data",
            expected=f"one of {listing(list(dataset.fields))}, with class indices",
        )
    samples = min(len(dataset), split.limit or len(dataset))
    counts = count_classes(dataset, field, samples, skip=split.on_error == "skip")
    ignored = getattr(link.fields, "ignore_class", None)
    weights = balanced_weights({index: count for index, count in counts.items() if index != ignored})
    return weights, _note(link.name, weights, counts, dataset.classes.get(field, ()))


def balanced_weights(counts: Mapping[int, int]) -> dict[int, float]:
    """Return n / (k · m) for each class with m of all n targets, where k classes occur, as in scikit-learn."""
    total = sum(counts.values())
    return {index: float(f"{total / (len(counts) * count):.{DIGITS}g}") for index, count in counts.items()}


def _note(loss: str, weights: Mapping[int, float], counts: Mapping[int, int], names: Sequence[str]) -> str:
    entries = [
        f"{names[index] if 0 <= index < len(names) else index} {weight:g} ({counts[index]:,})"
        for index, weight in list(weights.items())[:10]
    ]
    listed = f"{', '.join(entries)}{and_more(len(weights) - 10)}"
    return f"class_weight: balanced: weight of each class in loss `{loss}` (number of targets in parentheses): {listed}"
