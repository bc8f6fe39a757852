"""PyTorch's results for losses that Keras does not have, recorded by `record.py`.

A function takes the sample's fields and its inputs as tensors, in netspec's order, and returns PyTorch's loss with
`reduction="none"`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from netspec.tools.verification.cases import WEIGHT, SampleCase, built

Fields: TypeAlias = dict[str, Any]
NONE: Any = {"reduction": "none"}


def functional() -> Any:
    return import_module("torch").nn.functional


def signs(target: Any) -> Any:
    """Replace targets of 0 by -1: PyTorch's are -1 and 1."""
    return target + (target == 0) * -1


def cosine_embedding(fields: Fields, first: Any, second: Any, target: Any) -> Any:
    return functional().cosine_embedding_loss(first, second, signs(target.reshape(-1)), **fields, **NONE)


def margin_ranking(fields: Fields, first: Any, second: Any, target: Any) -> Any:
    return functional().margin_ranking_loss(first, second, signs(target).reshape(first.shape), **fields, **NONE)


def hinge_embedding(fields: Fields, prediction: Any, target: Any) -> Any:
    return functional().hinge_embedding_loss(prediction, signs(target).reshape(prediction.shape), **fields, **NONE)


def multi_margin(fields: Fields, prediction: Any, target: Any) -> Any:
    return functional().multi_margin_loss(prediction, target.reshape(-1).long(), **weighted(fields), **NONE)


def multi_label_margin(fields: Fields, prediction: Any, target: Any) -> Any:
    return functional().multilabel_margin_loss(prediction, target.long(), **fields, **NONE)


def multi_label_soft_margin(fields: Fields, prediction: Any, target: Any) -> Any:
    return functional().multilabel_soft_margin_loss(prediction, target, **weighted(fields), **NONE)


def gaussian_nll(fields: Fields, prediction: Any, target: Any, variance: Any) -> Any:
    fields = {"eps" if name == "epsilon" else name: value for name, value in fields.items()}
    return functional().gaussian_nll_loss(prediction, target, variance, **fields, **NONE)


def poisson(fields: Fields, prediction: Any, target: Any) -> Any:
    arguments = {"log_input": False, "full": False, "epsilon": 1e-7} | fields
    arguments["eps"] = arguments.pop("epsilon")
    return functional().poisson_nll_loss(prediction, target.reshape(prediction.shape), **arguments, **NONE)


def value(fields: Fields, x: Any) -> Any:
    return x


def weighted(fields: Fields) -> Fields:
    """`class_weight` under PyTorch's name."""
    fields = dict(fields)
    weights = fields.pop("class_weight", None)
    return fields if weights is None else {**fields, "weight": import_module("torch").tensor(weights).double()}


TORCH: dict[str, Callable[..., Any]] = {
    "CosineEmbedding": cosine_embedding,
    "GaussianNLL": gaussian_nll,
    "HingeEmbedding": hinge_embedding,
    "MarginRanking": margin_ranking,
    "MultiLabelMargin": multi_label_margin,
    "MultiLabelSoftMargin": multi_label_soft_margin,
    "MultiMargin": multi_margin,
    "Poisson": poisson,
    "Value": value,
}


def answers(case: SampleCase) -> bool:
    """Whether PyTorch has a result for a sample. Its `sum` is over elements; netspec's, like Keras's, over samples."""
    is_own = case.type != "Poisson" or bool(case.sample.fields)  # Keras has the loss without these fields
    return case.type in TORCH and is_own and "reduction" not in case.sample.fields


def answered(case: SampleCase) -> dict[str, np.ndarray]:
    """Return the mean loss, and its gradients by all inputs that are floats."""
    torch, feeds = import_module("torch"), built(case, False).feeds
    inputs = {name: torch.tensor(array) for name, array in feeds.items() if name.startswith("x")}
    leaves = {name: x.requires_grad_() for name, x in inputs.items() if x.is_floating_point()}
    losses = TORCH[case.type](dict(case.sample.fields), *inputs.values())
    if WEIGHT in feeds:
        losses = losses * torch.tensor(feeds[WEIGHT]).reshape(-1, *(1,) * (losses.ndim - 1))
    losses.mean().backward()
    slopes = {f"gradient/{name}": x.grad.numpy() for name, x in leaves.items()}
    return {"output": losses.mean().detach().numpy(), **slopes}
