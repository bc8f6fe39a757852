"""Implement `onnx.backend.base.Backend`, ONNX's interface to run models and its test suite, with the importer.

A net has static shapes, and constants as weights and fields. A model may leave shapes open, and may compute what a net
needs as a constant. So a model is specialized when inputs are passed in: to their shapes, and to the values of those
inputs that the net needs as constants (the target of a Reshape, the kernel of a Conv). Compiled specializations are
kept.

A subclass defines how a net is compiled, by `compiled`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.backend.base import Backend, BackendRep, namedtupledict

from netspec.errors import InputError, Problem
from netspec.exchange.formats.onnx.importing import model_of
from netspec.exchange.interface import Imported, ImportOptions
from netspec.exchange.lift.model import LiftedModel, UnsupportedModel, lift_model
from netspec.exchange.lift.registry import SHAPE_OPERATORS
from netspec.exchange.operator_graph.constant_folding import fold
from netspec.exchange.operator_graph.graph import ImportedGraph
from netspec.exchange.unsupported import UnsupportedFeature

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
Run: TypeAlias = "Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]"

MAX_SPECIALIZATIONS = 8
"""Number of specializations of a model that stay compiled."""
ORIGIN = "the model"


class ImportingBackend(Backend):
    """A backend that runs models as nets. A subclass defines how a net is compiled, and on which devices."""

    @classmethod
    @abstractmethod
    def compiled(cls, net: Imported, device: str) -> Run:
        """The net as a function from its inputs to its outputs, by name. `device` is in ONNX's notation (CPU, CUDA)."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """Prepare a model to be run repeatedly. Raises `InputError` if it is damaged, or the device does not exist."""
        if not cls.supports_device(device):
            raise InputError(f"there is no device `{device}` for ONNX models here", expected="CPU, or CUDA with a GPU")
        return PreparedModel(model, lambda net: cls.compiled(net, device))

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The results of one node for arrays, in the order of its operands that are not left out.

        `outputs_info`, the element types and shapes of the results, is inferred by default;
        `opset_version` is the newest by default.
        """
        opset = int(kwargs.pop("opset_version", onnx.defs.onnx_opset_version()))
        return cls.run_model(_model_of_node(node, inputs, outputs_info, opset), inputs, device, **kwargs)


def _model_of_node(node: onnx.NodeProto, inputs: Sequence[Any], outputs_info: Any, opset: int) -> onnx.ModelProto:
    helper = onnx.helper

    def info(name: str, dtype: Any, shape: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    input_names, output_names = [name for name in node.input if name], [name for name in node.output if name]
    named_inputs = zip(input_names, map(np.asarray, inputs), strict=True)
    input_infos = [info(name, array.dtype, array.shape) for name, array in named_inputs]
    output_infos = [info(name, *facts) for name, facts in zip(output_names, outputs_info or (), strict=False)]
    results = output_infos or [onnx.ValueInfoProto(name=name) for name in output_names]
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(node.domain, 1)] if node.domain else [])]
    model = helper.make_model(helper.make_graph([node], "node", input_infos, results), opset_imports=opsets)
    return model if output_infos else onnx.shape_inference.infer_shapes(model)


@dataclass(frozen=True)
class _Specialization:
    """A model for certain shapes of its inputs, and for certain values of some."""

    constants: Arrays
    """Outputs that do not depend on the remaining inputs."""
    lifted: LiftedModel | None
    run: Run


class PreparedModel(BackendRep):
    """A model that runs as a net, compiled for each set of shapes (and of values that must be constants)."""

    def __init__(self, proto: onnx.ModelProto, compiled: Callable[[Imported], Run]) -> None:
        self._model = model_of(proto, ORIGIN)
        self._compiled = compiled
        self._fixed: set[str] = set()
        self._specialized: OrderedDict[object, _Specialization] = OrderedDict()
        self._types = {output.name: _element_type(output) for output in proto.graph.output}
        outputs = self._model.outputs
        self._tuple = namedtupledict("Outputs", outputs)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's outputs, of their declared element types, for arrays in the order of its inputs or by name.

        Raises `InputError` if the inputs are not the model's, or the model has nodes without a layer.
        """
        arrays = self._input_arrays(inputs)
        special = self._specialization(arrays)
        results_of = dict(special.constants)
        if special.lifted is not None:
            inputs, outputs = special.lifted.inputs, special.lifted.outputs
            results = special.run({source.name: source.to_net(arrays[name]) for name, source in inputs.items()})
            results_of |= {name: output.from_net(results[output.name]) for name, output in outputs.items()}
        return self._tuple(*(results_of[name].astype(self._types[name], copy=False) for name in self._model.outputs))

    def _input_arrays(self, inputs: Any) -> Arrays:
        names = [model_input.name for model_input in self._model.inputs]
        if isinstance(inputs, Mapping):
            named = dict(inputs)
        else:
            arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            named = dict(zip(names, arrays, strict=False))
            if len(arrays) > len(names):
                raise InputError(f"{ORIGIN} has {len(names)} inputs", got=f"{len(arrays)} arrays")
        problems = [Problem(f"the input `{name}` is missing") for name in names if name not in named]
        problems += [Problem(f"{ORIGIN} has no input `{name}`") for name in named if name not in names]
        problems += [
            Problem(f"the input `{name}` must be a numeric array", got=type(tensor).__name__)
            for name, tensor in named.items()
            if np.asarray(tensor).dtype.kind in "OUS"
        ]
        if problems:
            raise InputError(problems)
        return {name: np.asarray(named[name]) for name in names}

    def _specialization(self, arrays: Arrays) -> _Specialization:
        """The model for these shapes and values; compiled unless it is kept from an earlier call."""
        key = self._key(arrays)
        if key not in self._specialized:
            specialization = self._specialize(arrays)
            key = self._key(arrays)  # it changes if more inputs turned out to be needed as constants
            self._specialized[key] = specialization
            if len(self._specialized) > MAX_SPECIALIZATIONS:
                self._specialized.popitem(last=False)
        self._specialized.move_to_end(key)
        return self._specialized[key]

    def _key(self, arrays: Arrays) -> object:
        shapes = tuple((name, array.shape) for name, array in arrays.items())
        return shapes, tuple((name, arrays[name].tobytes()) for name in sorted(self._fixed))

    def _specialize(self, arrays: Arrays) -> _Specialization:
        while True:
            model = self._with(arrays)
            computed = _computed(model)
            constants = {name: computed[name] for name in model.outputs if name in computed}
            if len(constants) == len(model.outputs):
                return _Specialization(constants, None, lambda inputs: {})
            reduced = replace(model, outputs=[name for name in model.outputs if name not in constants])
            try:
                lifted = lift_model(reduced, ImportOptions(), ORIGIN)
            except UnsupportedModel as error:
                more = self._needed(error.needed_constants, arrays) - self._fixed
                if not more:
                    raise
                self._fixed |= more
            else:
                return _Specialization(constants, lifted, self._compiled(lifted.imported))

    def _needed(self, names: Iterable[str], arrays: Arrays) -> set[str]:
        """The inputs that the tensors depend on; all integer inputs for tensors within a function."""
        inside = set(names) - {name for node in self._model.nodes for name in node.outputs} - arrays.keys()
        integer_inputs = {name for name, array in arrays.items() if array.dtype.kind in "iu"} if inside else set()
        return _origins(self._model, names) & arrays.keys() | integer_inputs

    def _with(self, arrays: Arrays) -> ImportedGraph:
        """The model with the shapes of the inputs, and with the values of those that are needed as constants."""
        inputs = [
            replace(model_input, dims=arrays[model_input.name].shape)
            for model_input in self._model.inputs
            if model_input.name not in self._fixed
        ]
        values = {name: arrays[name] for name in self._fixed}
        return replace(self._model, inputs=inputs, constants={**self._model.constants, **values})


def _computed(model: ImportedGraph) -> Arrays:
    """The constants of a model, and all values that follow from them and from the shapes of its inputs."""
    shapes = {
        model_input.name: np.broadcast_to(np.uint8(0), [size or 0 for size in model_input.dims or ()])
        for model_input in model.inputs
    }
    values = dict(model.constants)
    for node in model.nodes:
        inputs = {**shapes, **values} if node.op_type in SHAPE_OPERATORS and not node.domain else values
        if all(name in inputs for name in node.inputs if name):
            with suppress(UnsupportedFeature):
                values |= zip(node.outputs, fold(node, [inputs.get(name) for name in node.inputs]), strict=False)
    return values


def _origins(model: ImportedGraph, tensors: Iterable[str]) -> set[str]:
    """All tensors that the values of these tensors depend on, other than by their shapes."""
    makers = {name: node for node in model.nodes for name in node.outputs}
    sources: set[str] = set()
    waiting = list(tensors)
    while waiting:
        name = waiting.pop()
        node = makers.get(name)
        if name not in sources and node is not None and node.op_type not in ("Shape", "Size"):
            waiting += node.inputs
        sources.add(name)
    return sources


def _element_type(info: onnx.ValueInfoProto) -> Any:
    """NumPy's element type of an output."""
    return onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
