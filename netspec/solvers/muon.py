"""Muon: momentum whose steps are made orthogonal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.value import Value
from netspec.schema.specs.field_types import Names, NamesOrNone
from netspec.schema.specs.kinds import SOLVERS
from netspec.schema.specs.patterns import matches
from netspec.solvers.adam import ScaleByAdam
from netspec.solvers.layerwise import norm
from netspec.solvers.rules import DecoupledSolver
from netspec.solvers.scaling import Descend, Scale
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import Chain, Declared, Either, Param, Slots, Step, Updates, UpdateTransform, for_each

LEAST_NORM = 1e-7
"""Added to the norm of a matrix, by which it is divided."""


@dataclass(frozen=True)
class Orthogonalize(UpdateTransform):
    """u ← m or with `nesterov` u + momentum · m, with m ← momentum · m + u, and then nearly U Vᵀ of its U S Vᵀ

    By steps of Newton and Schulz, X ← a · X + (b · A + c · A²) · X with A = X Xᵀ, from X = u / ‖u‖, the smaller side in
    front; times `rms_rate` · √(larger side).
    """

    momentum: float
    nesterov: bool
    steps: int
    coefficients: tuple[float, ...]
    rms_rate: float | None

    def init(self, param: Param) -> Declared:
        return {"momentum": 0.0}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            kept = self.momentum * slots["momentum"] + update
            ahead = update + self.momentum * kept if self.nesterov else kept
            matrix = reshape_to(ahead, (ahead.shape[0], ahead.type.size // ahead.shape[0]))
            scale = 1.0 if self.rms_rate is None else self.rms_rate * sqrt(max(matrix.shape))
            return reshape_to(self._orthogonal(matrix) * scale, update.shape), {"momentum": kept}

        return for_each(updates, slots, step, rule)

    def _orthogonal(self, x: Value) -> Value:
        a, b, c = self.coefficients
        tall = x.shape[0] > x.shape[1]
        x = x / (norm(x) + LEAST_NORM)
        for _ in range(self.steps):  # of a tall matrix Xᵀ X is the smaller product: no copy is turned for it
            square = MatMul(transpose_a=tall, transpose_b=not tall)(x, x)
            mixed = b * square + c * MatMul()(square, square)
            x = a * x + (MatMul()(x, mixed) if tall else MatMul()(mixed, x))
        return x


@SOLVERS.register
class Muon(DecoupledSolver):
    """Orthogonalized momentum, so that all directions of a matrix learn at one rate; AdamW for other parameters.

    w ← w - lr · weight_decay · w; m ← momentum · m + g; u = g + momentum · m, or m without `nesterov`;
    w ← w - lr · rms_rate · √(larger side) · O, where O is nearly U Vᵀ of u = U S Vᵀ, found by `ns_steps` steps of
    Newton and Schulz: X ← a · X + (b · A + c · A²) · X with A = X Xᵀ, from X = u / (‖u‖ + 1e-7). Jordan et al. 2024,
    "Muon: An optimizer for hidden layers in neural networks", https://kellerjordan.github.io/posts/muon/; the factor is
    that of Liu et al. 2025, arXiv:2502.16982. As in Keras; PyTorch's averages m (lerp) and iterates in bfloat16. AdamW
    updates parameters without exactly two axes and excluded ones (embeddings, and `exclude`: often the last layer).
    """

    type: Literal["Muon"] = "Muon"
    foreign_fields: ClassVar[dict[str, str]] = {
        "exclude_layers": "here it is `exclude`, with names of parameters or patterns such as `logits/*`",
        "exclude_embeddings": 'here it is `exclude`, which by default is `"*embeddings"`',
        "muon_a": "here it is the first of `ns_coefficients`",
        "muon_b": "here it is the second of `ns_coefficients`",
        "muon_c": "here it is the third of `ns_coefficients`",
        "beta_1": "here it is `adam_beta_1`, and `momentum` for matrices",
        "beta_2": "here it is `adam_beta_2`",
        "adjust_lr_fn": "here it is `rms_rate`: 0.2 for match_rms_adamw",
    }
    learning_rate: Schedule = Constant(initial=0.001)
    """factor of a step: a number, or a schedule such as `{type: CosineDecay, initial: 0.02}`"""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """share of the past gradients that is added to each"""
    nesterov: bool = True
    """Nesterov's momentum: the step is that of the gradient and the momentum ahead"""
    ns_steps: PositiveInt = 5
    """steps of the iteration that makes a matrix orthogonal"""
    ns_coefficients: Annotated[tuple[float, ...], Field(strict=False, min_length=3, max_length=3)] = (
        3.4445,
        -4.775,
        2.0315,
    )
    """a, b and c of the iteration"""
    rms_rate: Annotated[float, Field(gt=0)] | None = 0.2
    """root mean square of a step for lr 1, which is that of Adam's steps; null: the steps are orthogonal matrices"""
    exclude: NamesOrNone = ("*embeddings",)
    """matrices that AdamW moves: names, or patterns such as `logits/*`"""
    flatten: bool = False
    """kernels with more than two axes are matrices too: one row for each index along the first axis"""
    weight_decay: float = Field(default=0.004, ge=0)
    """decoupled weight decay of the matrices: each step takes lr · weight_decay · w off the weights first"""
    adam_weight_decay: float = Field(default=0.004, ge=0)
    """decoupled weight decay of what AdamW moves"""
    adam_lr_ratio: float = Field(default=1.0, gt=0)
    """factor of the learning rate of what AdamW moves"""
    adam_beta_1: float = Field(default=0.9, ge=0, lt=1)
    """share of the past in AdamW's moving average of the gradients"""
    adam_beta_2: float = Field(default=0.999, ge=0, lt=1)
    """share of the past in AdamW's moving average of the squared gradients"""
    epsilon: float = Field(default=1e-7, gt=0)
    """added by AdamW to the root of the average square"""
    samples: ClassVar = (
        {},
        {
            "learning_rate": 0.02,
            "momentum": 0.8,
            "nesterov": False,
            "ns_steps": 3,
            "ns_coefficients": [2.0, -1.5, 0.5],
            "rms_rate": None,
            "flatten": True,
            "exclude": "fc*",
            "weight_decay": 0.1,
            "adam_weight_decay": 0.05,
            "adam_lr_ratio": 0.5,
            "adam_beta_1": 0.7,
            "adam_beta_2": 0.8,
        },
    )

    def patterns(self) -> Mapping[str, Names]:
        return {"exclude": self.exclude}

    def orthogonalizes(self, param: Param) -> bool:
        """Whether a parameter is moved as a matrix."""
        return self.is_matrix(param.name, param.value.shape)

    def is_matrix(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether a parameter of this name and shape is moved as a matrix."""
        return (len(shape) == 2 or (self.flatten and len(shape) > 2)) and not matches(self.exclude, name)

    def usual_decay(self, param: Param) -> float:
        return self.weight_decay if self.orthogonalizes(param) else self.adam_weight_decay

    def transforms(self) -> Sequence[UpdateTransform]:
        coefficients = self.ns_coefficients
        muon = Orthogonalize(self.momentum, self.nesterov, self.ns_steps, coefficients, self.rms_rate)
        adam = Chain((ScaleByAdam(self.adam_beta_1, self.adam_beta_2, self.epsilon), Scale(self.adam_lr_ratio)))
        return [Either(self.orthogonalizes, muon, adam), Descend()]
