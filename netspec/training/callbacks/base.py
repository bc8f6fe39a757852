"""`Callback`, the base class of actions between training steps, and `CallbackSpec`, a callback in a training file.

The hooks of a training are called in this order:

    on_train_start
    for each step:  on_step_end
                    on_epoch_end       after the last step of an epoch
    on_train_end

`on_evaluation_end` and `on_checkpoint` are called whenever an evaluation or a checkpoint is complete, `on_event` for
each event of the log, and `on_exception` instead of `on_train_end` if the training fails. For each hook the callbacks
run in this order: the log and the best weights; those of `callbacks:` in the training file; those given to
`netspec.train`; checkpoints, evaluation and the final weights. So a checkpoint contains the state of each callback
after the same step. An evaluation that is due after the same step runs after the checkpoint, and again in a run that
resumes from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from netspec.errors import Problem, did_you_mean, listing
from netspec.schema.specs.spec import Spec

if TYPE_CHECKING:
    from netspec.training.evaluation import Evaluation
    from netspec.training.events import Event
    from netspec.training.loop import TrainingLoop

HOOKS = (
    "on_train_start",
    "on_step_end",
    "on_epoch_end",
    "on_evaluation_end",
    "on_checkpoint",
    "on_event",
    "on_train_end",
    "on_exception",
)
"""The methods of `Callback` that a training calls."""


class Callback:
    """Base of callbacks. Override the hooks that you need.

    All workers of a training call the same hooks, except `on_event`, which only rank 0 calls. Write files only if
    `training.is_root`. An `InputError` or `RunError` that a hook raises ends the training after a checkpoint.
    """

    reads_loss: ClassVar[bool] = True
    """Whether `on_step_end` reads `training.loss`: if not, a GPU does not have to finish the step first."""
    stop_training: bool = False
    """Set this to True to finish the training after the step: a resumed run does not continue. All workers must do so
    after the same step. It is stored in checkpoints. See also `TrainingLoop.request_stop`."""

    def on_train_start(self, training: TrainingLoop) -> None:
        """Called before the first step, after the states are initialized or loaded from a checkpoint."""

    def on_step_end(self, training: TrainingLoop) -> None:
        """Called after each step: `training.step` is the number of steps done."""

    def on_epoch_end(self, training: TrainingLoop) -> None:
        """Called after the last step of an epoch, after `on_step_end` of all callbacks."""

    def on_evaluation_end(self, training: TrainingLoop, evaluation: Evaluation) -> None:
        """Called after each evaluation on the validation data, or the test data if there is none.

        `evaluation.others` contains the evaluations of the sets in `data.evaluate`.
        """

    def on_checkpoint(self, training: TrainingLoop, path: Path) -> None:
        """Called after a checkpoint was written to `path`."""

    def on_event(self, training: TrainingLoop, event: Event) -> None:
        """Called for each event of the log: a mapping with the key `event`."""

    def on_train_end(self, training: TrainingLoop) -> None:
        """Called after the last step and its evaluation. A run that is stopped before its end is not evaluated."""

    def on_exception(self, training: TrainingLoop, error: Exception) -> None:
        """Called after the training failed. Errors that this hook raises are ignored."""

    def state_dict(self) -> dict[str, Any]:
        """Return what checkpoints store of this callback: data that JSON can hold."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Checkpoints without this callback do not call it."""


def unknown_hooks(callback: Callback) -> list[Problem]:
    """Return a problem for each method `on_…` that is not a hook. Base classes that are not callbacks may have any."""
    classes = [cls for cls in type(callback).__mro__ if issubclass(cls, Callback)]
    methods = {name for cls in classes for name, member in vars(cls).items() if callable(member)}
    unknown = sorted(name for name in methods if name.startswith("on_") and name not in HOOKS)
    return [
        Problem(
            f"the callback `{type(callback).__name__}` has a method `{name}`, which is not a hook",
            expected=f"one of {listing(HOOKS)}", hint=did_you_mean(name, HOOKS),
        )
        for name in unknown
    ]  # fmt: skip


class CallbackSpec(Spec):
    """Base of the callbacks that a training file can name."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    """Small configurations for the registry-wide tests."""

    def build(self) -> Callback:
        """Return the callback for one training."""
        raise NotImplementedError(f"{type(self).__name__} has no `build`")
