"""Import models that netspec exported in the form for training.

A net needs no such form: in training, its BatchNormalization uses the statistics of the batch and updates the moving
averages, and its Dropout draws. The form's further outputs, losses and new averages, are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from netspec.exchange.lift.patterns.finding import DOMAIN
from netspec.exchange.net_yaml_writer import DraftLayer
from netspec.exchange.operator_graph.graph import ImportedGraph, OperatorNode, needed

FORM, TRAINABLE, UPDATES = "netspec_form", "netspec_trainable", "netspec_updates"
"""Keys in a model's metadata that mark the form."""
LOSS = "loss"
LEFT_OUT = "the model is in the form for training: the net has its layers; write its losses again there"


def is_training_form(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata mark a model in the form for training."""
    return metadata.get(FORM) == "training"


def as_net(model: ImportedGraph) -> ImportedGraph:
    """The model without the parts that only the training form has; a model in another form is unchanged."""
    if not is_training_form(model.metadata):
        return model
    averages = {name for node in model.nodes if node.op_type == "BatchNormalization" for name in node.outputs[1:]}
    extra = {*_names(model, UPDATES).values(), *averages, LOSS}
    outputs = [name for name in model.outputs if name not in extra and not name.startswith(f"{LOSS}/")]
    if not outputs:
        return model
    makers = {name: node for node in model.nodes for name in node.outputs}
    nodes = [_inference_form(_merged_dropout(model, makers, node) or node) for node in model.nodes]
    nodes = needed(nodes, outputs)
    read = {name for node in nodes for name in (*node.inputs, *node.captured)} | set(outputs)
    inputs = [model_input for model_input in model.inputs if model_input.name in read]
    return replace(model, nodes=nodes, inputs=inputs, outputs=outputs, remarks=[*model.remarks, LEFT_OUT])


def freeze(model: ImportedGraph, layers: Iterable[DraftLayer]) -> None:
    """Set `trainable: false` for layers none of whose weights are trained according to the metadata."""
    if not is_training_form(model.metadata) or TRAINABLE not in model.metadata:
        return
    trained = _names(model, TRAINABLE)
    for layer in layers:
        names = [f"{layer.name}/{name}" for name in layer.arrays]
        if names and model.constants.keys() >= set(names) and not any(name in trained for name in names):
            layer.fields["trainable"] = False


def _names(model: ImportedGraph, key: str) -> dict[str, str]:
    """Names of states and of their new values after a step, from the metadata; empty if these are malformed."""
    try:
        names: Any = json.loads(model.metadata.get(key, "{}"))
    except (ValueError, RecursionError):
        return {}
    mapping = dict.fromkeys(map(str, names), "") if isinstance(names, list) else names
    return {str(name): str(value) for name, value in mapping.items()} if isinstance(mapping, dict) else {}


def _inference_form(node: OperatorNode) -> OperatorNode:
    """The node in its form for inference: a layer knows by itself whether it is in training."""
    if node.op_type == "BatchNormalization" and not node.domain:
        return replace(node, outputs=node.outputs[:1], attributes={**node.attributes, "training_mode": 0})
    if node.op_type == "Dropout" and not node.domain:
        return replace(node, inputs=node.inputs[:2])
    return node


def _merged_dropout(
    model: ImportedGraph, makers: Mapping[str, OperatorNode], node: OperatorNode
) -> OperatorNode | None:
    """x · Dropout(ones of a smaller shape), as one Dropout node with `noise_shape`; None for other nodes."""
    if node.op_type != "Mul" or node.domain:
        return None
    for x, factors in (node.inputs, node.inputs[::-1]):
        drop = makers.get(factors)
        ones = makers.get(drop.inputs[0]) if drop is not None and drop.op_type == "Dropout" else None
        sizes = makers.get(ones.operand(1)) if ones is not None and ones.op_type == "Expand" else None
        if drop is None or sizes is None or sizes.op_type != "Where" or not {*sizes.inputs[:2]} <= {*model.constants}:
            continue
        numbers, operand_sizes = (model.constants[name].reshape(-1).tolist() for name in sizes.inputs[:2])
        noise = [int(size) if fixed else None for fixed, size in zip(numbers, operand_sizes, strict=True)]
        inputs = (x, drop.operand(1))
        return replace(node, op_type="Dropout", inputs=inputs, attributes={"noise_shape": noise}, domain=DOMAIN)
    return None
