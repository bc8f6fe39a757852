"""Nets that have another number of scores than their labels have classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from netspec.errors import counted
from netspec.layers.losses_and_metrics import LossSpec
from netspec.schema.specs.links import resolve_names

if TYPE_CHECKING:
    from netspec.compile import Compiler
    from netspec.data.loader import Loader


def describe_class_count(prediction: str, scores: int, label: str, classes: int, *, is_exact: bool = True) -> str:
    """Return the sentence that a prediction has another number of scores than its label has classes."""
    only, more = "only " if classes < scores else "", "" if is_exact else " or more"
    class_count = f"{classes:,} class{'es' * (classes != 1)}{more}"
    return f"`{prediction}` has {counted(scores, 'score')}, but `{label}` has {only}{class_count}"


def class_count_warnings(compiler: Compiler, loader: Loader) -> Iterator[str]:
    """Yield a warning for each label that has fewer classes than the net has scores. More classes are an error."""
    for link in resolve_names(compiler.spec).losses:
        assert isinstance(link.fields, LossSpec)
        label = link.sources[1] if len(link.sources) > 1 else ""
        domain, classes = compiler.domains.get(label), loader.class_counts.get(label)
        if link.fields.prediction_kind != "classes" or domain is None or classes is None:
            continue
        if classes < domain.high:
            yield describe_class_count(link.sources[0], domain.high, label, classes)
