"""Muon: momentum with orthogonalized steps."""

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
from netspec.solvers.transform import (
    Chain,
    DeclaredSlots,
    Param,
    ParamSlots,
    ParamUpdate,
    Partition,
    Step,
    UpdateTransform,
)

LEAST_NORM = 1e-7
"""Added to the norm of a matrix, to avoid division by 0."""


@dataclass(frozen=True)
class Orthogonalize(UpdateTransform):
    """u ← approximately U Vᵀ, where U S Vᵀ = m, or with `nesterov` u + momentum · m, with m ← momentum · m + u

    By Newton-Schulz iterations, X ← a · X + (b · A + c · A²) · X with A = X Xᵀ, from X = u / ‖u‖, with the smaller side
    first; the result is multiplied by `rms_rate` · √(larger side).
    """

    momentum: float
    nesterov: bool
    steps: int
    coefficients: tuple[float, ...]
    rms_rate: float | None

    def init(self, param: Param) -> DeclaredSlots:
        return {"momentum": 0.0}

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        momentum = self.momentum * slots["momentum"] + update
        direction = update + self.momentum * momentum if self.nesterov else momentum
        matrix = reshape_to(direction, (direction.shape[0], direction.type.size // direction.shape[0]))
        scale = 1.0 if self.rms_rate is None else self.rms_rate * sqrt(max(matrix.shape))
        return reshape_to(self._orthogonal(matrix) * scale, update.shape), {"momentum": momentum}

    def _orthogonal(self, x: Value) -> Value:
        a, b, c = self.coefficients
        tall = x.shape[0] > x.shape[1]
        x = x / (norm(x) + LEAST_NORM)
        for _ in range(self.steps):  # for a tall matrix Xᵀ X is the smaller product, and needs no transposed copy
            square = MatMul(transpose_a=tall, transpose_b=not tall)(x, x)
            mixed = b * square + c * MatMul()(square, square)
            x = a * x + (MatMul()(x, mixed) if tall else MatMul()(mixed, x))
        return x


@SOLVERS.register
class Muon(DecoupledSolver):
    """Orthogonalized momentum for matrices, so that all directions learn at one rate; AdamW for other parameters.

    w ← w - lr · weight_decay · w; m ← momentum · m + g; u = g + momentum · m, or m without `nesterov`;
    w ← w - lr · rms_rate · √(larger side) · O, where O is approximately U Vᵀ of u = U S Vᵀ, by `ns_steps` Newton-Schulz
    iterations: X ← a · X + (b · A + c · A²) · X with A = X Xᵀ, from X = u / (‖u‖ + 1e-7). Jordan et al. 2024,
    "Muon: An optimizer for hidden layers in neural networks", https://kellerjordan.github.io/posts/muon/; the factor is
    from Liu et al. 2025, arXiv:2502.16982. As in Keras; PyTorch's averages m (lerp) and iterates in bfloat16. AdamW
    updates parameters without exactly two axes and excluded ones (embeddings, and `exclude`: often the last layer).
    """

    type: Literal["Muon"] = "Muon"
    foreign_fields: ClassVar[dict[str, str]] = {
        "exclude_layers": "use `exclude`, with names of parameters or patterns such as `logits/*`",
        "exclude_embeddings": 'use `exclude`, which by default is `"*embeddings"`',
        "muon_a": "use the first of `ns_coefficients`",
        "muon_b": "use the second of `ns_coefficients`",
        "muon_c": "use the third of `ns_coefficients`",
        "beta_1": "use `adam_beta_1`, and `momentum` for matrices",
        "beta_2": "use `adam_beta_2`",
        "adjust_lr_fn": "use `rms_rate`: 0.2 for match_rms_adamw",
    }
    learning_rate: Schedule = Constant(initial=0.001)
    """Learning rate: a number, or a schedule such as `{type: CosineDecay, initial: 0.02}`."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """Momentum, the share of earlier gradients that is added to each gradient."""
    nesterov: bool = True
    """Whether to use Nesterov momentum."""
    ns_steps: PositiveInt = 5
    """Number of Newton-Schulz iterations."""
    ns_coefficients: Annotated[tuple[float, ...], Field(strict=False, min_length=3, max_length=3)] = (
        3.4445,
        -4.775,
        2.0315,
    )
    """Coefficients a, b and c of the iteration."""
    rms_rate: Annotated[float, Field(gt=0)] | None = 0.2
    """Root mean square of a step for lr 1; 0.2 is that of Adam's steps. null: steps are orthogonal matrices."""
    exclude: NamesOrNone = ("*embeddings",)
    """Matrices that AdamW updates: names, or patterns such as `logits/*`."""
    flatten: bool = False
    """Whether kernels with more than two axes are matrices too, with one row for each index along the first axis."""
    weight_decay: float = Field(default=0.004, ge=0)
    """Decoupled weight decay of the matrices: each step first subtracts lr · weight_decay · w from the weights."""
    adam_weight_decay: float = Field(default=0.004, ge=0)
    """Decoupled weight decay of the parameters that AdamW updates."""
    adam_lr_ratio: float = Field(default=1.0, gt=0)
    """Factor on the learning rate of the parameters that AdamW updates."""
    adam_beta_1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of AdamW's first moment."""
    adam_beta_2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of AdamW's second moment."""
    epsilon: float = Field(default=1e-7, gt=0)
    """Added by AdamW to the root of the second moment."""
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
        """Whether a parameter is updated as a matrix."""
        return self.is_matrix(param.name, param.value.shape)

    def is_matrix(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether a parameter of this name and shape is updated as a matrix."""
        return (len(shape) == 2 or (self.flatten and len(shape) > 2)) and not matches(self.exclude, name)

    def usual_decay(self, param: Param) -> float:
        return self.weight_decay if self.orthogonalizes(param) else self.adam_weight_decay

    def transforms(self) -> Sequence[UpdateTransform]:
        coefficients = self.ns_coefficients
        muon = Orthogonalize(self.momentum, self.nesterov, self.ns_steps, coefficients, self.rms_rate)
        adam = Chain((ScaleByAdam(self.adam_beta_1, self.adam_beta_2, self.epsilon), Scale(self.adam_lr_ratio)))
        return [Partition(self.orthogonalizes, muon, adam), Descend()]
