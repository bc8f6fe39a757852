"""The pages of the reference: one for each kind of class; layers have one for each family."""

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
from netspec.schema.specs.json_schema import class_schema
from netspec.schema.specs.kinds import LAYERS, REGISTRIES, LayerFields, LossFields, MetricFields
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Registry, Spec, plural
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.flow_style import flow
from netspec.solvers.base import SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.tools.reference.examples import Case, cases_of, example, onnx_operators
from netspec.tools.reference.fields import Link, inherited, inner_tables, row, sentence, table
from netspec.training.callbacks.base import CallbackSpec

MARK = "<!-- Generated from the classes by `make docs`. -->\n"
INDEX = "README.md"
INTRODUCTION = """# Reference

Every type and field of net and training files, with defaults, shapes and formulas. The
[spec language](../guide/spec.md) explains how a file is written.

Each example is a complete net file or a section of a training file; tests check all of them. Shapes start with the
batch axis N, which specs leave out.
"""
INTRODUCTIONS: Mapping[str, str] = {
    "layer": "Layers are the entries of `layers` in a net file. Names and fields are Keras's. Convolutions, poolings "
    "and BatchNormalization read channels first, (N, C, …); recurrent layers, attention and Dense read "
    "(N, T, features).",
    "loss": "Losses are the entries of `losses` in a net file. Training minimizes their weighted sum.",
    "metric": "Metrics are the entries of `metrics` in a net file, computed over the validation or test data.",
    "activation": "Activations are values of fields such as `activation`.",
    "initializer": "Initializers are values of fields such as `kernel_initializer`.",
    "regularizer": "Regularizers are values of fields such as `kernel_regularizer`. They add a penalty to the loss.",
    "constraint": "Constraints are values of fields such as `kernel_constraint`. They are applied after each step.",
    "cell": "Cells are values of `cell` in the layer RNN. They compute one step of a sequence.",
    "solver": "A solver is the value of `solver` in a training file: the update rule and its learning rate. "
    "[Solvers and schedules](../guide/solvers.md) compares them.",
    "schedule": "Schedules are values of `learning_rate`, and of other fields that may change during a run.",
    "strategy": "A strategy is the value of `parallel` in a training file: how several workers train together. "
    "[Several workers](../guide/workers.md) compares them.",
    "callback": "Callbacks are the entries of `callbacks` in a training file. They run between steps.",
    "data source": "Data sources are the values of `data.train`, `data.validation`, `data.test` and "
    "`data.evaluate.NAME` in a training file.",
    "transform": "Transforms are the entries of `transforms` of a data source. They change samples before the net "
    "reads them.",
    "tokenizer": "Tokenizers are values of `tokenizer` in data sources and columns of text.",
    "column": "Columns are the values of `columns` in a table. They say how a column becomes input of the net.",
}
"""First paragraph of the page of each kind."""

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
MAX_SAMPLES = 4
"""Number of samples of a class whose shapes are shown."""


def pages(package: str = "") -> dict[str, str]:
    """Pages by their paths below the folder of the reference, for the classes whose modules start with `package`."""
    files = {f"{name}.md": _file_page(name, cls) for name, cls in FILES.items()}
    index = [INTRODUCTION]
    index += [f"- [`{name}.yaml`]({name}.md): {_summary(cls)}" for name, cls in FILES.items()]
    for kind, registry in REGISTRIES.items():
        classes = [registry[name] for name in sorted(registry.names(), key=str.lower)]
        classes = [cls for cls in classes if f"{cls.__module__}.".startswith(package)]
        files |= _layer_pages(registry, classes) if registry is LAYERS else _pages(registry, classes)
        index.append(f"- [{plural(kind).capitalize()}]({_page_of(kind)})")
    return {path: f"{MARK}\n{text.rstrip()}\n" for path, text in {INDEX: "\n".join(index), **files}.items()}


def _page_of(kind: str) -> str:
    return f"layers/{INDEX}" if kind == LAYERS.kind else f"{plural(kind).replace(' ', '_')}.md"


def _link(up: str) -> Link:
    """Make the links of a page; `up` ("" or "../") leads from the page to the folder of the reference."""
    return lambda kind: f"{up}{_page_of(kind)}"


def _name(registry: Registry[Any], cls: type[Spec]) -> str:
    """The name that users write."""
    return str(cls.model_fields[registry.tag].default)


def _text(cls: type[Any]) -> str:
    return sentence(cleandoc(cls.__doc__ or ""))


def _summary(cls: type[Any]) -> str:
    return sentence(_text(cls).partition("\n\n")[0].replace("\n", " "))


def _file_page(name: str, cls: type[Spec]) -> str:
    """Page of net files or of training files."""
    others = {registered.__name__ for registered in FILES.values()}
    lines = [f"# `{name}.yaml`\n", f"{_text(cls)}\n", *table(cls, _link("")), *inner_tables(cls, _link(""), others)]
    return "\n".join(lines)


def _pages(registry: Registry[Any], classes: Sequence[type[Spec]]) -> dict[str, str]:
    kind = registry.kind
    lines = [f"# {plural(kind).capitalize()}\n", f"{INTRODUCTIONS[kind]}\n", *_common(registry, "")]
    for cls in classes:
        lines += _member(registry, cls, "")
    return {_page_of(kind): "\n".join(lines)}


def _layer_pages(registry: Registry[Any], classes: Sequence[type[Spec]]) -> dict[str, str]:
    """One page for each subpackage of layers, and an index of all layers."""
    families: dict[str, list[type[Spec]]] = {}
    for cls in classes:
        families.setdefault(family_of(cls), []).append(cls)
    index, files = ["# Layers\n", f"{INTRODUCTIONS[registry.kind]}\n"], {}
    for family, members in sorted(families.items()):
        title = family.replace("_", " ").capitalize()
        index += [f"## [{title}]({family}.md)\n"]
        names = [_name(registry, cls) for cls in members]
        named = zip(names, members, strict=True)
        index += [f"- [`{name}`]({family}.md#{name.lower()}): {_summary(cls)}" for name, cls in named]
        index.append("")
        lines = [f"# {title}\n"]
        for cls in members:
            lines += _member(registry, cls, "../")
        files[f"layers/{family}.md"] = "\n".join(lines)
    return {f"layers/{INDEX}": "\n".join([*index, *_common(registry, "../")]), **files}


def family_of(cls: type[Spec]) -> str:
    """The layer's subpackage of `netspec.layers`, or the module of a layer from another package."""
    package, _, path = cls.__module__.partition("netspec.layers.")
    return path.partition(".")[0] if not package and path else cls.__module__.rpartition(".")[2]


def _common(registry: Registry[Any], up: str) -> list[str]:
    """Table of the fields that all members of a kind share."""
    base = BASES.get(registry.kind)
    lines = [*table(base, _link(up), {registry.tag}), *inner_tables(base, _link(up))] if base else []
    return [f"## Fields of every {registry.kind}\n", *lines] if lines else []


def _member(registry: Registry[Any], cls: type[Spec], up: str) -> Iterator[str]:
    base, link = BASES.get(registry.kind), _link(up)
    yield f"## {_name(registry, cls)}\n"
    yield f"{_text(cls)}\n"
    yaml = example(registry.kind, cls)
    if yaml:
        yield f"```yaml\n{yaml}```\n"
    yield from table(cls, link, {registry.tag} | (inherited(cls, base) if base else set()))
    yield from inner_tables(cls, link, class_schema(base)[1] if base else (), "###")
    if issubclass(cls, (LayerSpec, LossSpec, MetricSpec)):
        signature = " ".join(cleandoc(cls.build.__doc__ or "").split()).removesuffix(".")
        shapes = "Totals of a batch, summed over all batches" if issubclass(cls, MetricSpec) else "Shapes"
        yield f"{shapes}: {f'`{signature}`' if '→' in signature and '`' not in signature else signature}.\n"
        yield from _shapes(cases_of(cls)[:MAX_SAMPLES])
    if issubclass(cls, LayerSpec):
        yield f"{_onnx(cls)}\n"


def _shapes(cases: Sequence[Case]) -> Iterator[str]:
    """The table of input shapes, output shapes and parameters of some samples."""
    has_states = any(case.states for case in cases)
    yield row("fields", "inputs", "outputs", *(["parameters"] if has_states else []))
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
    text = f"ONNX operators: {', '.join(f'`{operator}`' for operator in operators)}."
    if reasons:
        text += f" Some forms cannot be exported: {'; '.join(reasons)}."
    if cls.onnx_roundtrip_blocker:
        text += f" An import does not restore this layer: {cls.onnx_roundtrip_blocker}."
    return text
