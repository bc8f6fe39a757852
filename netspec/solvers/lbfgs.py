"""L-BFGS: steps along a quasi-Newton direction, with gradients over all training data."""

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
"""States: the last direction and gradient; the differences of weights and of gradients of earlier steps; and in
`numbers` the number of steps, of stored pairs, the length of the last step, and the scale of the initial Hessian."""


def partial_step_problem(batches: int, loop: Any) -> Problem | None:
    """Return a problem if a step of a training `loop` reads fewer than the `batches` of an epoch."""
    if batches <= loop.accumulate:
        return None
    return Problem(
        "LBFGS must read the whole training set in each step", loop.where("accumulate"),
        expected=f"`train.accumulate: {batches}`, or larger batches", got=f"{loop.accumulate}",
    )  # fmt: skip


@SOLVERS.register
class LBFGS(SolverSpec):
    """Limited-memory BFGS: steps along -H · g, with an estimate H of the inverse Hessian from the last steps.

    A step reads all batches of the training set, with a line search several times; set `train.accumulate` to at least
    their number. The first step is -min(1, 1 / ‖g‖₁) · lr · g. Liu and Nocedal
    1989, "On the limited memory BFGS method for large scale optimization"; torch.optim.LBFGS with `max_iter=1`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "line_search_fn": "`line_search_fn` is PyTorch's name: use `line_search`",
        "max_eval": "use `max_evaluations`, of one line search",
        "max_iter": "each step is one iteration: set `max_steps` under `train`",
        "history": "use `history_size`",
        "momentum": "LBFGS has no momentum: its steps already use the last gradients",
    }

    type: Literal["LBFGS"] = "LBFGS"
    learning_rate: Schedule = Constant(initial=1.0)
    """Length of a step; with a line search the first length to try."""
    history_size: PositiveInt = 10
    """Number of earlier steps from which the Hessian is estimated."""
    line_search: Literal["strong_wolfe"] | None = "strong_wolfe"
    """Line search for the length of a step, by the strong Wolfe conditions. null: the length is the learning rate."""
    max_evaluations: PositiveInt = 25
    """Maximum number of passes over the data in a line search, after the first."""
    tolerance_grad: float = Field(default=1e-7, ge=0)
    """The weights no longer change once no element of the gradient is larger than this."""
    tolerance_change: float = Field(default=1e-9, ge=0)
    """A step or an interval of a line search that is smaller than this is not taken."""
    full_batch: ClassVar[bool] = True
    samples: ClassVar = ({}, {"history_size": 3, "line_search": None, "learning_rate": 0.1})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        for name in (*CLIPPING, "weight_decay", "ema", "swa", "groups"):
            if getattr(self, name):
                hint = f"remove `{name}`"
                if name == "weight_decay":
                    hint = "use `kernel_regularizer` of the layers, which is part of the loss"
                message = f"LBFGS does not support `{name}`, because its steps must depend on the loss alone"
                yield Problem(message, self.where(name, key=True), name, hint=hint)
        split, loop = training.data.train, training.train
        samples = split.known_samples() if split.hold_out is None else None
        if samples is not None:
            partial = partial_step_problem(-(-samples // split.batch_size), loop)
            if partial is not None:
                yield partial
        if loop.scaling is not None:
            name, setting, fix = "loss_scale", "loss_scale", "remove `loss_scale`"
            if loop.loss_scale is None:
                name, setting, fix = "precision", "precision: float16", "use `precision: float32`"
            hint = f"{fix}: a line search cannot skip steps, as loss scaling does"
            yield Problem(f"LBFGS does not support `{setting}`", loop.where(name, key=True), hint=hint)

    def history_types(self, size: int, dtype: DType) -> dict[str, TensorType]:
        """Return the types of the states for `size` elements of parameters in total."""
        vector, history = TensorType((size,), dtype), TensorType((self.history_size, size), dtype)
        numbers = TensorType((4,), DType.FLOAT64)
        return {DIRECTION: vector, GRADIENT: vector, MOVES: history, CHANGES: history, NUMBERS: numbers}

    def transforms(self) -> Sequence[Any]:
        raise TypeError("the update of LBFGS is not a chain of transforms: `training/lbfgs.py` runs it")
