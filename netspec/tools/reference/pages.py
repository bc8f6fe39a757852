"""The pages of the reference: one for each kind of class, and of layers one for each family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import Any

from netspec.data.base import Source, Transform
from netspec.data.text.tokenizers.base import TokenizerSpec
from netspec.distributed.strategies.base import Strategy
from netspec.graph.types import DType, TensorType
from netspec.layers.base import LayerSpec
from netspec.layers.losses_and_metrics import LossSpec, MetricSpec
from netspec.schema.specs.kinds import LAYERS, REGISTRIES, LayerFields, LossFields, MetricFields
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Registry, Spec, plural
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.flow_style import flow
from netspec.solvers.base import SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.tools.reference.examples import Case, cases_of, example, onnx_operators
from netspec.tools.reference.fields import Link, inherited, inner_tables, row, table
from netspec.training.callbacks.base import CallbackSpec

MARK = "<!-- Generated from the classes by `make docs`. -->\n"
INDEX = "README.md"
INTRODUCTION = """# Reference

What may stand in a spec, told by the classes themselves: fields, defaults, shapes, formulas. Each example is a whole
net file, or a part of a train file, and is checked by the tests. Shapes begin with the batch axis, which a spec leaves
out. How a spec is written: [the spec language](../guide/spec.md).
"""

BASES: Mapping[str, type[Spec]] = {
    "layer": LayerFields,
    "loss": LossFields,
    "metric": MetricFields,
    "solver": SolverSpec,
    "schedule": ScheduleSpec,
    "strategy": Strategy,
    "callback": CallbackSpec,
    "data source": Source,
    "transform": Transform,
    "tokenizer": TokenizerSpec,
}
"""Base class of each kind, whose fields are documented once."""
FILES: Mapping[str, type[Spec]] = {"net": NetSpec, "train": TrainSpec}
MOST_SAMPLES = 4
"""How many samples of a class are shown by their shapes."""


def pages(package: str = "") -> dict[str, str]:
    """Each page by its path below the folder of the reference: of all classes, or of those that `package` defines."""
    made = {f"{name}.md": _file_page(name, cls) for name, cls in FILES.items()}
    index = [INTRODUCTION]
    index += [f"- [`{name}.yaml`]({name}.md): {_summary(cls)}" for name, cls in FILES.items()]
    for kind, registry in REGISTRIES.items():
        classes = [registry[name] for name in sorted(registry.names(), key=str.lower)]
        classes = [cls for cls in classes if f"{cls.__module__}.".startswith(package)]
        made |= _layer_pages(registry, classes) if registry is LAYERS else _pages(registry, classes)
        index.append(f"- [{plural(kind)}]({_page_of(kind)})")
    return {path: f"{MARK}\n{text.rstrip()}\n" for path, text in {INDEX: "\n".join(index), **made}.items()}


def _page_of(kind: str) -> str:
    return f"layers/{INDEX}" if kind == LAYERS.kind else f"{plural(kind).replace(' ', '_')}.md"


def _link(up: str) -> Link:
    """The links of a page from which `up` ("", "../") leads to the folder of the reference."""
    return lambda kind: f"{up}{_page_of(kind)}"


def _name(registry: Registry[Any], cls: type[Spec]) -> str:
    """What users write."""
    return str(cls.model_fields[registry.tag].default)


def _text(cls: type[Any]) -> str:
    return cleandoc(cls.__doc__ or "")


def _summary(cls: type[Any]) -> str:
    return _text(cls).partition("\n\n")[0].replace("\n", " ")


def _file_page(name: str, cls: type[Spec]) -> str:
    """The page of net files or of train files."""
    others = {other.__name__ for other in FILES.values()}
    lines = [f"# `{name}.yaml`\n", f"{_text(cls)}\n", *table(cls, _link("")), *inner_tables(cls, _link(""), others)]
    return "\n".join(lines)


def _pages(registry: Registry[Any], classes: Sequence[type[Spec]]) -> dict[str, str]:
    kind = registry.kind
    lines = [f"# {plural(kind).capitalize()}\n", *_common(registry, "")]
    for cls in classes:
        lines += _member(registry, cls, "")
    return {_page_of(kind): "\n".join(lines)}


def _layer_pages(registry: Registry[Any], classes: Sequence[type[Spec]]) -> dict[str, str]:
    """A page for each subpackage of layers, and one that links to them."""
    families: dict[str, list[type[Spec]]] = {}
    for cls in classes:
        families.setdefault(family_of(cls), []).append(cls)
    index, made = ["# Layers\n"], {}
    for family, members in sorted(families.items()):
        title = family.replace("_", " ").capitalize()
        index += [f"**[{title}]({family}.md)**\n"]
        names = [_name(registry, cls) for cls in members]
        told = zip(names, members, strict=True)
        index += [f"- [`{name}`]({family}.md#{name.lower()}): {_summary(cls)}" for name, cls in told]
        index.append("")
        lines = [f"# {title}\n"]
        for cls in members:
            lines += _member(registry, cls, "../")
        made[f"layers/{family}.md"] = "\n".join(lines)
    return {f"layers/{INDEX}": "\n".join([*index, *_common(registry, "../")]), **made}


def family_of(cls: type[Spec]) -> str:
    """The subpackage of `netspec.layers` that a layer is in; of a layer in another package, its module."""
    package, _, path = cls.__module__.partition("netspec.layers.")
    return path.partition(".")[0] if not package and path else cls.__module__.rpartition(".")[2]


def _common(registry: Registry[Any], up: str) -> list[str]:
    """The fields that all members of a kind have."""
    base = BASES.get(registry.kind)
    lines = [*table(base, _link(up), {registry.tag}), *inner_tables(base, _link(up))] if base else []
    return [f"## Fields of every {registry.kind}\n", *lines] if lines else []


def _member(registry: Registry[Any], cls: type[Spec], up: str) -> Iterator[str]:
    base, link = BASES.get(registry.kind), _link(up)
    yield f"## {_name(registry, cls)}\n"
    yield f"{_text(cls)}\n"
    yield from table(cls, link, {registry.tag} | (inherited(cls, base) if base else set()))
    if issubclass(cls, (LayerSpec, LossSpec, MetricSpec)):
        yield f"Operands and result: {' '.join(cleandoc(cls.build.__doc__ or '').split())}\n"
        yield from _shapes(cases_of(cls)[:MOST_SAMPLES])
    if issubclass(cls, LayerSpec):
        yield f"{_onnx(cls)}\n"
    shown = example(registry.kind, cls)
    if shown:
        yield f"```yaml\n{shown}```\n"


def _shapes(cases: Sequence[Case]) -> Iterator[str]:
    """What goes in and comes out, for some samples."""
    has_states = any(case.states for case in cases)
    yield row("fields", "operands", "results", *(["parameters"] if has_states else []))
    yield "|" + "---|" * (4 if has_states else 3)
    for case in cases:
        fields = ", ".join(f"{name}: {flow(value)}" for name, value in case.sample.fields.items())
        operands = zip(case.sample.shapes, case.sample.dtypes, strict=True)
        results = {name: value.type for name, value in case.results.items()}
        states = [f"`{name}` {_shape(kind)}" for name, kind in case.states.items()]
        yield row(
            f"`{fields}`" if fields else "",
            ", ".join(_shape(TensorType(shape, DType(dtype))) for shape, dtype in operands),
            ", ".join(
                _shape(kind) if len(results) == 1 else f"`{name}` {_shape(kind)}" for name, kind in results.items()
            ),
            *([", ".join(states)] if has_states else []),
        )
    yield ""


def _shape(kind: TensorType) -> str:
    sizes = f"({', '.join(map(str, kind.shape))})"
    return sizes if kind.dtype == DType.FLOAT32 else f"{sizes} {kind.dtype}"


def _onnx(cls: type[LayerSpec]) -> str:
    operators, reasons = onnx_operators(cls)
    written = f"ONNX: {', '.join(f'`{one}`' for one in operators)}."
    if reasons:
        written += f" Not all of it: {'; '.join(reasons)}."
    return (
        f"{written} It does not come back from a file: {cls.onnx_roundtrip_blocker}."
        if cls.onnx_roundtrip_blocker
        else written
    )
