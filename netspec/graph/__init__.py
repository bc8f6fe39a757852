"""The static graph: typed values, ops, autodiff, layouts, the verifier and the kernel contract.

For packages that add layers:

- `Value`: a typed value of the graph, with arithmetic operators;
- every op by its class name, which is ONNX's: `Add`, `Cast`, `Concat`, `Conv`, `Exp`, `Gather`, `MatMul`, `ReduceMean`,
  `Relu`, `Reshape`, `Sigmoid`, `Softmax`, `Where`, … (`dir(netspec.graph)` lists them). `Sigmoid()(x)` adds a node.

For packages that add ops: `Op`, or `NoGradient` for those without a gradient; `Traits`, `TensorType`, `DType`,
`broadcast_shapes`, `ShapeMismatch`; the ONNX form `OnnxMap`, `OnnxExpansion`, `Decomposed` or `NoOnnxForm`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspec.graph.onnx_map import Decomposed as Decomposed
    from netspec.graph.onnx_map import NoOnnxForm as NoOnnxForm
    from netspec.graph.onnx_map import OnnxExpansion as OnnxExpansion
    from netspec.graph.onnx_map import OnnxMap as OnnxMap
    from netspec.graph.op import NoGradient as NoGradient
    from netspec.graph.op import Op as Op
    from netspec.graph.op import Traits as Traits
    from netspec.graph.types import DType as DType
    from netspec.graph.types import TensorType as TensorType
    from netspec.graph.types import broadcast_shapes as broadcast_shapes
    from netspec.graph.value import ShapeMismatch as ShapeMismatch
    from netspec.graph.value import Value as Value

_NAMES = {
    "netspec.graph.onnx_map": "Decomposed NoOnnxForm OnnxExpansion OnnxMap",
    "netspec.graph.op": "NoGradient Op Traits",
    "netspec.graph.types": "DType TensorType broadcast_shapes",
    "netspec.graph.value": "ShapeMismatch Value",
}
"""Names by the module that defines them, which is imported when one of them is first used."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
if not TYPE_CHECKING:
    __all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name[0].isupper():
        from netspec.graph.ops import op_classes

        if name in op_classes():
            return op_classes()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from netspec.graph.ops import op_classes

    return [*_MODULES, *op_classes()]
