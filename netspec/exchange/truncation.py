"""Cut a net: at named layers or tensors (`--until`), or before its last layers with parameters (`--drop-head`).

Importers cut before they translate, so that the dropped part need not be supported; they look up names with `lookup`.
`truncated` cuts a net that has been imported. The remaining layers keep their weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from netspec.errors import InputError, Problem, SpecError, and_more, counted, did_you_mean, listing, nearest
from netspec.exchange.interface import Imported, ImportOptions
from netspec.exchange.names import layer_of_state
from netspec.exchange.net_yaml_writer import Draft
from netspec.exchange.notes import Note
from netspec.exchange.reachability import needed_steps
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, in_scope, mismatch_problem
from netspec.layers.base import Builder
from netspec.layers.core.identity import Parameter
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.load import load_net
from netspec.schema.specs.links import LayerLink, Links, LossLink, MetricLink, resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.yaml.reader import parse_yaml
from netspec.schema.yaml.tree import Map

T = TypeVar("T")
MAX_NAMED = 10
"""Number of names that a message lists."""
DROPPED_TRAINING = "the training file is left out: the net was cut"


class CutFailed(InputError):
    """A file cannot be cut before it is imported: a name is unknown, or weights are stored for the whole net."""


def lookup(names: Iterable[str], by_name: Mapping[str, T], subject: str, listed_names: Collection[str] = ()) -> list[T]:
    """Look up the names given by `--until`. Raises one `CutFailed` with all unknown names.

    `subject` describes the model in messages; these list `listed_names`, by default all of `by_name`.
    """
    problems = []
    for name in dict.fromkeys(names):
        if name not in by_name:
            hint, meant = did_you_mean(name, by_name), nearest(name, by_name)
            listed = list(dict.fromkeys([*([meant] if meant else []), *sorted(listed_names or by_name)]))
            expected = f"a layer or tensor: {', '.join(listed[:MAX_NAMED])}{and_more(len(listed) - MAX_NAMED)}"
            problems.append(Problem(f"{subject} has no `{name}` to cut at", expected=expected, hint=hint))
    if problems:
        raise CutFailed(problems)
    return [by_name[name] for name in dict.fromkeys(names)]


def dropped(judge: str, read: Sequence[str], name: str) -> tuple[str, str, str]:
    """Arguments of `Note` for a loss or metric whose inputs `read` are dropped."""
    text = f"{judge} is left out: it reads {listing(read, MAX_NAMED)}"
    return text, "{count} losses and metrics are left out, since their inputs are dropped", name


@dataclass(frozen=True)
class _Part:
    """The part of a net that is kept."""

    layers: Sequence[LayerLink]
    outputs: Sequence[str]
    losses: Sequence[int]
    """Indices of the kept losses."""
    metrics: Sequence[int]
    """Indices of the kept metrics."""
    inputs: Collection[str]


def truncated(imported: Imported, options: ImportOptions, subject: str, *, until: bool = True) -> Imported:
    """Cut a net at `options.until`, and drop its last `options.drop_head` layers with parameters.

    With `until` false the importer has already cut at `options.until`. Losses and metrics that read dropped layers are
    dropped too, and so is the training, with notes; messages call the net `subject`. Raises `InputError` for an unknown
    name, or if no layer would be left.
    """
    if not options.drop_head and not (until and options.until):
        return imported
    tree = parse_yaml(imported.net, f"{subject} (its net)")
    assert isinstance(tree, Map)
    net = load_net(tree)
    links = resolve_names(net)
    outputs = list(links.outputs)
    if until and options.until:
        values_by_name = {name: name for link in links.layers for name in (link.name, *link.outputs)}
        outputs = lookup(options.until, values_by_name, subject)
    if options.drop_head:
        outputs = _before_head(net, _needed(links, outputs), outputs, options.drop_head, subject)
    kept_layers = _needed(links, outputs)
    names = [link.name for link in links.layers]
    dropped_layers = [name for name in names if name not in {link.name for link in kept_layers}]
    notes = [
        f"the net is cut at {listing(outputs, MAX_NAMED)}; dropped: {listing(dropped_layers, MAX_NAMED) or 'nothing'}"
    ]
    part = _part(net, links, kept_layers, outputs, notes)
    if imported.train:
        notes.append(DROPPED_TRAINING)
    new = replace(
        imported,
        arrays={
            name: array for name, array in imported.arrays.items() if layer_of_state(name, names) not in dropped_layers
        },
        notes=(*imported.notes, *notes),
        train="",
        slots={},
        step=0,
    )
    if imported.draft is None:
        return replace(new, net=canonical_yaml(_cut_net(net, links, part)))
    draft = _cut_draft(imported.draft, part)
    return replace(new, net=draft.text(), draft=draft)


def _needed(links: Links, outputs: Iterable[str]) -> list[LayerLink]:
    """The layers that the outputs depend on, in order; with a layer that shares weights, also their owner."""
    return needed_steps(
        links.layers,
        outputs,
        lambda link: (*link.sources, *([link.fields.share] if link.fields.share else [])),
        lambda link: (link.name, *link.outputs),
    )


def _before_head(
    net: NetSpec, layers: Sequence[LayerLink], outputs: Sequence[str], count: int, subject: str
) -> list[str]:  # fmt: skip
    """New outputs: the inputs of the last `count` layers with parameters, and outputs that do not depend on these."""
    candidates = _with_parameters(net, layers)
    if count >= len(candidates):
        raise InputError(
            f"{subject} has {counted(len(candidates), 'layer')} with parameters",
            expected=f"--drop-head below {len(candidates)}", got=f"--drop-head {count}",
        )  # fmt: skip
    head = candidates[-count:]
    dropped_values = {name for link in head for name in (link.name, *link.outputs)}
    for link in layers:
        if not dropped_values.isdisjoint(link.sources):
            dropped_values.update((link.name, *link.outputs))
    read = [
        source for link in head for source in link.sources if source not in dropped_values and source not in net.inputs
    ]
    new_outputs = list(dict.fromkeys([*(name for name in outputs if name not in dropped_values), *read]))
    if not new_outputs:
        raise InputError(f"{subject}: its last {counted(count, 'layer')} with parameters read inputs: no layer is left")
    return new_outputs


def _with_parameters(net: NetSpec, layers: Sequence[LayerLink]) -> list[LayerLink]:
    """The layers that have parameters, or share those of another layer; `Parameter` layers do not count."""
    builder = Builder(training=False, dtype=DType.FLOAT32)
    values = {
        name: builder.input(name, TensorType((1, *entry.shape), DType(entry.dtype)))
        for name, entry in net.inputs.items()
    }
    with_parameters = []
    for link in layers:
        layer: Any = link.fields
        before, inputs = len(builder.states), [values[source] for source in link.sources]
        with in_scope(builder.enter(layer, link.name)):
            try:
                results = layer.call(builder, *inputs)
            except ShapeMismatch as mismatch:
                raise SpecError(mismatch_problem(inputs, mismatch)) from None
        results = results if isinstance(results, tuple) else (results,)
        values |= {link.name: results[0], **dict(zip(link.outputs, results, strict=False))}
        if (len(builder.states) > before or layer.share) and not isinstance(layer, Parameter):
            with_parameters.append(link)
    return with_parameters


def _part(
    net: NetSpec, links: Links, layers: Sequence[LayerLink], outputs: Sequence[str], notes: list[str]
) -> _Part:  # fmt: skip
    """The part of a net with these layers; losses and metrics that read other layers are left out, with a note."""
    values = {*net.inputs, *(name for link in layers for name in (link.name, *link.outputs))}
    inputs = {source for link in layers for source in link.sources}
    kept_indices: dict[str, list[int]] = {"loss": [], "metric": []}
    judged: tuple[tuple[str, Sequence[LossLink | MetricLink]], ...] = (
        ("loss", links.losses),
        ("metric", links.metrics),
    )
    for kind, judges in judged:
        for index, judge in enumerate(judges):
            weight = judge.fields.sample_weight
            read = (*judge.sources, *([weight] if weight else []))
            dropped_values = sorted(f"`{name}`" for name in read if name not in values)
            if dropped_values:
                notes.append(Note(*dropped(f"the {kind} `{judge.name}`", dropped_values, f"`{judge.name}`")))
            else:
                kept_indices[kind].append(index)
                inputs.update(read)
    return _Part(layers, outputs, kept_indices["loss"], kept_indices["metric"], inputs & net.inputs.keys())


def _cut_draft(draft: Draft, part: _Part) -> Draft:
    names = {link.name for link in part.layers}
    return replace(
        draft,
        inputs={name: entry for name, entry in draft.inputs.items() if name in part.inputs},
        layers=[layer for layer in draft.layers if layer.name in names],
        outputs=list(part.outputs),
        losses=[draft.losses[index] for index in part.losses],
        metrics=[draft.metrics[index] for index in part.metrics],
    )


def _cut_net(net: NetSpec, links: Links, part: _Part) -> NetSpec:
    def named(link: LayerLink | LossLink | MetricLink) -> Any:
        return link.fields.model_copy(update={"name": link.name, "from_": link.sources})

    return net.model_copy(
        update={
            "inputs": {name: entry for name, entry in net.inputs.items() if name in part.inputs},
            "layers": [named(link) for link in part.layers],
            "outputs": tuple(part.outputs),
            "losses": [named(links.losses[index]) for index in part.losses],
            "metrics": [named(links.metrics[index]) for index in part.metrics],
            "expect": None,  # it describes the whole net
        }
    )
