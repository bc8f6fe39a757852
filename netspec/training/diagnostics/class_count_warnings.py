"""Nets that have another number of scores than their labels have classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from netspec.layers.losses_and_metrics import LossSpec
from netspec.layers.targets import describe_class_count
from netspec.schema.specs.links import resolve_names

if TYPE_CHECKING:
    from netspec.compile import Compiler
    from netspec.data.loader import Loader


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
