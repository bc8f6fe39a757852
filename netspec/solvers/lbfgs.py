"""L-BFGS: steps along a direction that the last gradients tell, by all training data at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from netspec.errors import Problem
from netspec.graph.types import DType, TensorType
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.base import CLIPPING, SolverSpec
from netspec.solvers.schedules.constant import Constant, Schedule

DIRECTION, GRADIENT, MOVES, CHANGES, NUMBERS = (
    f"solver/lbfgs/{name}" for name in ("direction", "gradient", "moves", "changes", "numbers")
)
"""States: the last direction and gradient, the moves and changes of gradients of the steps before, and in `numbers` how
many steps were done, how many pairs are kept, how far the last one went, and the scale of the first Hessian."""


def unread(batches: int, loop: Any) -> Problem | None:
    """A problem where a step of a training `loop` does not read all the batches that an epoch has."""
    if batches <= loop.accumulate:
        return None
    return Problem(
        "LBFGS reads the whole training set in each step", loop.where("accumulate"),
        expected=f"`train.accumulate: {batches}`, or larger batches", got=f"{loop.accumulate}",
    )  # fmt: skip


@SOLVERS.register
class LBFGS(SolverSpec):
    """Limited-memory BFGS: steps along -H · g, where H is the inverse Hessian as the last steps tell it.

    A step reads the whole training set, in as many batches as it has, several times over where a line is searched; set
    `train.accumulate` to at least their number. The first step goes min(1, 1 / ‖g‖₁) · lr along -g. Liu and Nocedal
    1989, "On the limited memory BFGS method for large scale optimization"; torch.optim.LBFGS with `max_iter=1`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "line_search_fn": "`line_search_fn` is PyTorch's name: here it is `line_search`",
        "max_eval": "here it is `max_evaluations`, of one line search",
        "max_iter": "a step is one iteration: how long to train is said in `train`: `max_steps`",
        "history": "here it is `history_size`",
        "momentum": "LBFGS has no momentum: its steps are those of the last gradients already",
    }

    type: Literal["LBFGS"] = "LBFGS"
    learning_rate: Schedule = Constant(initial=1.0)
    """length of a step, or with a line search its first trial"""
    history_size: PositiveInt = 10
    """how many steps before are remembered"""
    line_search: Literal["strong_wolfe"] | None = "strong_wolfe"
    """how the length of a step is found: by the strong Wolfe conditions, or null: it is the learning rate"""
    max_evaluations: PositiveInt = 25
    """most passes over the data that a line search makes after its first"""
    tolerance_grad: float = Field(default=1e-7, ge=0)
    """where no number of the gradient is larger, nothing moves any more"""
    tolerance_change: float = Field(default=1e-9, ge=0)
    """what can be won by a step, or the interval of a search, that is too small to go on"""
    full_batch: ClassVar[bool] = True
    samples: ClassVar = ({}, {"history_size": 3, "line_search": None, "learning_rate": 0.1})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        for name in (*CLIPPING, "weight_decay", "ema", "groups"):
            if getattr(self, name):
                yield Problem(
                    f"LBFGS has no `{name}`: its steps must be those of the loss alone", self.where(name, key=True),
                    name, hint="a `kernel_regularizer` of the layers is a part of the loss",
                )  # fmt: skip
        samples, loop = training.data.train.known_samples(), training.train
        if samples is not None and (found := unread(-(-samples // training.data.train.batch_size), loop)) is not None:
            yield found
        if loop.scaling is not None:
            name, hint = "loss_scale", "a skipped step has no place in a line search"
            if loop.loss_scale is None:
                name, hint = "precision", f"float16 has one unless it is given, and {hint}"
            yield Problem("LBFGS has no `loss_scale`", loop.where(name, key=True), hint=hint)

    def history_types(self, size: int, dtype: DType) -> dict[str, TensorType]:
        """Types of the states for parameters with `count` elements in total."""
        vector, several = TensorType((size,), dtype), TensorType((self.history_size, size), dtype)
        numbers = TensorType((4,), DType.FLOAT64)
        return {DIRECTION: vector, GRADIENT: vector, MOVES: several, CHANGES: several, NUMBERS: numbers}

    def transforms(self) -> Sequence[Any]:
        raise TypeError("the update of LBFGS is not a chain of transforms: `training/lbfgs.py` runs it")
