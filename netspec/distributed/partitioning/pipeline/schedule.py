"""Schedules of a pipeline stage: the order of the forward and backward tasks of the micro-batches of a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """The forward or backward pass of a micro-batch."""

    forward: bool
    part: int
    """Index of the micro-batch, from 0."""


def gpipe(parts: int) -> list[Task]:
    """Return the forward tasks of all micro-batches, then all backward tasks, in reverse order.

    Huang et al. 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism",
    arXiv:1811.06965, figure 2. All micro-batches are kept until their backward.
    """
    return [*(Task(True, part) for part in range(parts)), *(Task(False, part) for part in reversed(range(parts)))]


def one_forward_one_backward(parts: int, stage: int, stages: int) -> list[Task]:
    """Return forward tasks until the first micro-batch comes back, then backward and forward tasks in turn.

    Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM",
    arXiv:2104.04473, section 2.2.1 (PipeDream-flush). A stage keeps at most one micro-batch more than
    there are stages after it.
    """
    ahead = min(stages - stage - 1, parts)
    tasks = [Task(True, part) for part in range(ahead)]
    for part in range(parts):
        if part + ahead < parts:
            tasks.append(Task(True, part + ahead))
        tasks.append(Task(False, part))
    return tasks
