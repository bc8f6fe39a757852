"""PyTorch's results for layers and fields that Keras does not have, recorded by `record.py`.

A function takes a `Call` and returns the output, or a tuple of outputs; weights have netspec's names and shapes, and so
do their gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from netspec.graph.graph import topological_order
from netspec.graph.ops.random import RandomUniform
from netspec.tools.verification.cases import SampleCase, built
from tests.interpret import evaluate


@dataclass
class Call:
    """One sample of a layer as PyTorch's tensors."""

    fields: dict[str, Any]
    inputs: list[Any]
    weights: dict[str, Any]
    training: bool
    drawn: Any = None
    """The random numbers that netspec draws, if any."""
    updates: dict[str, Any] = field(default_factory=dict)
    """New values of states, to be set by the layer's function."""


Answer: TypeAlias = Callable[[Call], Any]


def local_response_normalization(call: Call) -> Any:
    fields = {"size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0} | call.fields
    return functional().local_response_norm(*call.inputs, *(fields[name] for name in ("size", "alpha", "beta", "k")))


def fractional_max_pooling(call: Call) -> Any:
    """In inference, pass samples of ½, as netspec uses them."""
    torch, rank = import_module("torch"), call.inputs[0].ndim - 2
    samples = call.drawn if call.training else np.full((*call.inputs[0].shape[:2], rank), 0.5)
    if rank == 2:
        samples = samples[..., ::-1].copy()  # PyTorch has the width first, but in volumes the depth
    fields = {"kernel_size": call.fields.get("pool_size", 2)}
    fields |= {name: call.fields[name] for name in ("output_size", "output_ratio") if name in call.fields}
    return getattr(torch.nn, f"FractionalMaxPool{rank}d")(**fields, _random_samples=torch.tensor(samples))(*call.inputs)


def multi_head_attention(call: Call) -> Any:
    """Keys and values have as many features as the query, as PyTorch requires."""
    torch, fields, weights = import_module("torch"), call.fields, call.weights
    query, value, key, mask = [*call.inputs, None, None, None][:4]
    value = query if value is None else value
    key = value if key is None else key
    batch, steps, features = query.shape
    heads, looks = fields["num_heads"], key.shape[1]
    near = torch.ones(batch, heads, steps, looks, dtype=torch.bool)
    if fields.get("use_causal_mask"):
        near = near.tril()
    if mask is not None:
        near = near & (mask != 0)[:, None]
    learned: list[Any] = [weights[name].reshape(1, 1, features) for name in ("bias_k", "bias_v") if name in weights]
    y, scores = functional().multi_head_attention_forward(
        *(x.transpose(0, 1) for x in (query, key, value)), features, heads, None,
        torch.cat([weights[f"{name}/bias"].reshape(-1) for name in ("query", "key", "value")]),
        *(learned or [None, None]), fields.get("add_zero_attn", False), 0.0,
        weights["attention_output/kernel"].reshape(features, features).T, weights["attention_output/bias"],
        attn_mask=~near.reshape(batch * heads, steps, looks), average_attn_weights=False, use_separate_proj_weight=True,
        **{f"{name[0]}_proj_weight": weights[f"{name}/kernel"].reshape(features, -1).T
           for name in ("query", "key", "value")},
    )  # fmt: skip
    y = y.transpose(0, 1)
    return (y, scores) if fields.get("return_attention_scores") else y


def lstm(call: Call) -> Any:
    """Gates are i, f, g, o in both; PyTorch's kernels are transposed, and it has two biases."""
    torch, fields, weights = import_module("torch"), call.fields, call.weights
    x, *states = call.inputs
    x = x.flip(1) if fields.get("go_backwards") else x
    module = torch.nn.LSTM(
        x.shape[2], fields["units"], bias=fields.get("use_bias", True), batch_first=True,
        proj_size=fields["projection_units"],
    )  # fmt: skip
    names = {"kernel": "weight_ih_l0", "recurrent_kernel": "weight_hh_l0", "projection_kernel": "weight_hr_l0"}
    parameters = {theirs: weights[ours].T for ours, theirs in names.items()}
    if "bias" in weights:
        parameters |= {"bias_ih_l0": weights["bias"], "bias_hh_l0": torch.zeros_like(weights["bias"])}
    initial = tuple(state[None] for state in states) or None
    y, last = torch.func.functional_call(module, parameters, (x, initial))
    output = y if fields.get("return_sequences") else y[:, -1]
    return (output, *(state[0] for state in last)) if fields.get("return_state") else output


def instance_normalization(call: Call) -> Any:
    """PyTorch updates moving averages in place, with 1 - momentum, and without gradients."""
    fields, weights = call.fields, call.weights
    axis = fields.get("axis", 1)
    names = ("moving_mean", "moving_variance")
    moving = [weights[name].detach().clone() for name in names if name in weights]
    in_batch = call.training or not moving
    y = functional().instance_norm(
        call.inputs[0].movedim(axis, 1), *(moving or (None, None)), weights.get("gamma"), weights.get("beta"), in_batch,
        1 - fields.get("momentum", 0.9), fields.get("epsilon", 1e-5),
    )  # fmt: skip
    call.updates |= dict(zip(names, moving, strict=False)) if call.training else {}
    return y.movedim(1, axis)


POOLING = {"pool_size", "output_size", "output_ratio"}
NOT_OF_KERAS = {"add_bias_kv", "add_zero_attn", "projection_units"}
"""Fields that only PyTorch has, of layers that Keras has too: Keras answers samples without them."""
TORCH: dict[str, tuple[Answer, set[str]]] = {
    "FractionalMaxPooling2D": (fractional_max_pooling, POOLING),
    "FractionalMaxPooling3D": (fractional_max_pooling, POOLING),
    "MultiHeadAttention": (multi_head_attention, {
        "num_heads", "key_dim", "use_causal_mask", "return_attention_scores", "add_bias_kv", "add_zero_attn",
    }),
    "InstanceNormalization": (instance_normalization, {
        "axis", "epsilon", "momentum", "center", "scale", "track_running_stats",
    }),
    "LSTM": (lstm, {
        "units", "projection_units", "use_bias", "go_backwards", "return_sequences", "return_state",
    }),
    "LocalResponseNormalization": (local_response_normalization, {"size", "alpha", "beta", "k"}),
}  # fmt: skip
"""For each layer, the function that answers, and the fields that PyTorch has too."""


def functional() -> Any:
    return import_module("torch").nn.functional


def answers(case: SampleCase) -> bool:
    """Whether PyTorch has a result for a sample."""
    fields = case.sample.fields.keys()
    in_keras = hasattr(import_module("keras").layers, case.type) and not fields & NOT_OF_KERAS
    # In this case, PyTorch's InstanceNorm does not update its averages.
    if case.sample.fields.get("momentum", 0.9) is None:
        return False
    return case.type in TORCH and fields <= TORCH[case.type][1] and not in_keras


def answered(case: SampleCase, training: bool) -> dict[str, np.ndarray]:
    """Outputs, gradients of their weighted sum, and new values of states, in the form of `record.layer`."""
    torch, layer = import_module("torch"), built(case, training)

    def leaf(name: str) -> Any:
        tensor = torch.tensor(layer.feeds[name])
        return tensor.requires_grad_(tensor.is_floating_point())

    inputs = {name: leaf(name) for name in layer.feeds if name.startswith("x")}
    states = {name: leaf(name) for name in layer.builder.states}
    weights = {name.removeprefix("sample/"): state for name, state in states.items()}
    draws = [node.outputs[0] for node in topological_order(layer.outputs) if isinstance(node.op, RandomUniform)]
    drawn = evaluate(draws, layer.feeds)[0] if draws else None
    call = Call(dict(case.sample.fields), list(inputs.values()), weights, training, drawn)
    result = TORCH[case.type][0](call)
    outputs = result if isinstance(result, tuple) else (result,)
    total = sum((y * torch.tensor(layer.feeds[f"weights/{index}"])).sum() for index, y in enumerate(outputs))
    total.backward()
    results = {f"output{index or ''}": y.detach().numpy() for index, y in enumerate(outputs)}
    leaves = {**inputs, **states}
    results |= {f"gradient/{name}": x.grad.numpy() for name, x in leaves.items() if x.grad is not None}
    return results | {f"update/sample/{name}": new.detach().numpy() for name, new in call.updates.items()}
