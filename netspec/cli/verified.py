"""A model with weights → a verified ONNX file: what the exporter is given of a compiled net."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec import __version__
from netspec.backends.program import Program
from netspec.compile import NEW, Compiler, Purpose, make_plan
from netspec.exchange.onnx_export import ExportReport, export_verified
from netspec.exchange.onnx_verify import TOLERANCE
from netspec.graph.graph import Graph
from netspec.schema.plainjson import json_text
from netspec.schema.provenance import spec_sha256
from netspec.train.inputs import checked_inputs
from netspec.train.model import Model
from netspec.train.preparation import Preparation

if TYPE_CHECKING:
    from numpy.typing import NDArray


def export_model(
    model: Model,
    path: Path,
    preparation: Preparation,
    *,
    batch: int | None,
    opset: int | None,
    training: bool = False,
    given: Mapping[str, Any] | None = None,
    tolerance: float | None = None,
) -> ExportReport:
    """Export a model, compared in onnxruntime with what the model itself computes: on random inputs and on those given.

    With `training` in the form of training, losses and new states included; it is compared without what is drawn at
    random. The transforms of its training are recorded in the metadata, since they are not part of the model.
    Raises `InputError` where the net has no ONNX form, `RunError` where the results differ.
    """
    compiler, purpose = model.compiler, Purpose.FORWARD if training else Purpose.PREDICT

    def undrawn(samples: int) -> Graph:
        return compiler.graph(purpose, samples).undrawn()

    if given is not None:
        wanted = undrawn(1).inputs()
        arrays, _ = checked_inputs(compiler, given, list(wanted))
        given = {name: array.astype(str(wanted[name].dtype)) for name, array in arrays.items()}

    def computed(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        return Program(make_plan(graph, compiler.device), compiler.device, compiler.states)(inputs)

    def in_training(inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        return computed(undrawn(len(next(iter(inputs.values())))), inputs)

    def all_values(inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The output of every layer, to name the first that differs."""
        samples = len(next(iter(inputs.values())))
        layers = compiler.built(purpose, samples).values
        graph = Graph({name: value for name, value in layers.items() if name not in model.spec.inputs})
        return computed(graph.undrawn(), inputs)

    return export_verified(
        lambda size: compiler.graph(purpose, size),
        dict(model.parameters),
        path,
        in_training if training else model.predict,
        domains=compiler.domains,
        given=given,
        all_values=all_values,
        undrawn_for=undrawn if training else None,
        tolerance=TOLERANCE if tolerance is None else tolerance,
        batch=batch,
        opset=opset,
        name=model.spec.name,
        doc=model.spec.description,
        metadata={
            "netspec_version": __version__,
            "netspec_spec_sha256": spec_sha256(model.spec),
            "netspec_transforms": json_text(preparation.of_inputs(compiler.graph(Purpose.PREDICT, 1).inputs())),
            **(_of_training(compiler) if training else {}),
        },
    )


def _of_training(compiler: Compiler) -> dict[str, str]:
    """What a training elsewhere wants to know: what gradients move, and which output is the next value of a state."""
    graph = compiler.graph(Purpose.FORWARD, 1)
    read, ends = graph.states(), {f"{name}/{NEW}": name for name in compiler.info}
    return {
        "netspec_form": "training",
        "netspec_trainable": json_text(
            [name for name, info in compiler.info.items() if info.trainable and name in read]
        ),
        "netspec_updates": json_text({ends[name]: name for name in graph.outputs if name in ends}),
    }
