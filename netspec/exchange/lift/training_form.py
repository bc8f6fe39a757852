"""Models that netspec wrote in the form for training, read as the nets that they are of.

What the net is in training is what its layers do there: BatchNormalization takes the averages of its own batch and
moves those that it keeps, Dropout draws. Losses and new averages, which that form has as outputs, are left out.
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


def is_of_training(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata are those of the form for training."""
    return metadata.get(FORM) == "training"


def as_net(model: ImportedGraph) -> ImportedGraph:
    """The model without the parts that only the training form has; a model in another form is unchanged."""
    if not is_of_training(model.metadata):
        return model
    averages = {name for node in model.nodes if node.op_type == "BatchNormalization" for name in node.outputs[1:]}
    extra = {*_names(model, UPDATES).values(), *averages, LOSS}
    outputs = [name for name in model.outputs if name not in extra and not name.startswith(f"{LOSS}/")]
    if not outputs:
        return model
    makers = {name: node for node in model.nodes for name in node.outputs}
    nodes = [_plain(_together(model, makers, node) or node) for node in model.nodes]
    nodes = needed(nodes, outputs)
    read = {name for node in nodes for name in (*node.inputs, *node.captured)} | set(outputs)
    inputs = [model_input for model_input in model.inputs if model_input.name in read]
    return replace(model, nodes=nodes, inputs=inputs, outputs=outputs, remarks=[*model.remarks, LEFT_OUT])


def freeze(model: ImportedGraph, layers: Iterable[DraftLayer]) -> None:
    """Have those layers fixed whose weights the form says that training does not move."""
    if not is_of_training(model.metadata) or TRAINABLE not in model.metadata:
        return
    moved = _names(model, TRAINABLE)
    for layer in layers:
        names = [f"{layer.name}/{name}" for name in layer.arrays]
        if names and model.constants.keys() >= set(names) and not any(name in moved for name in names):
            layer.fields["trainable"] = False


def _names(model: ImportedGraph, key: str) -> dict[str, str]:
    """Names of states and of their new values after a step, from the metadata; empty if these are malformed."""
    try:
        names: Any = json.loads(model.metadata.get(key, "{}"))
    except (ValueError, RecursionError):
        return {}
    mapping = dict.fromkeys(map(str, names), "") if isinstance(names, list) else names
    return {str(name): str(value) for name, value in mapping.items()} if isinstance(mapping, dict) else {}


def _plain(node: OperatorNode) -> OperatorNode:
    """The node as a layer has it, which knows by itself whether it is trained."""
    if node.op_type == "BatchNormalization" and not node.domain:
        return replace(node, outputs=node.outputs[:1], attributes={**node.attributes, "training_mode": 0})
    if node.op_type == "Dropout" and not node.domain:
        return replace(node, inputs=node.inputs[:2])
    return node


def _together(model: ImportedGraph, makers: Mapping[str, OperatorNode], node: OperatorNode) -> OperatorNode | None:
    """A tensor times a Dropout of ones of fewer elements, as one node; None if the node is something else."""
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
