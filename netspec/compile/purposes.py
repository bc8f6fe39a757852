"""What programs of a net are for, and what one of several processes does of the training steps."""

from __future__ import annotations

from enum import StrEnum


class Purpose(StrEnum):
    """What a program is for: it decides what is computed, and in which form layers are built."""

    TRAIN = "train"
    """One training step: losses, gradients, update."""
    ACCUMULATE = "accumulate"
    """One of several batches of a step: losses, gradients, added to those of the batches before."""
    UPDATE = "update"
    """The update by the gradients of several batches. It reads none: its batch size makes no difference, and is 1."""
    GRADIENTS = "gradients"
    """Losses and gradients in the training form; no state changes."""
    FORWARD = "forward"
    """Outputs, losses and new states in the training form, without gradients: for trainings elsewhere."""
    TEST = "test"
    """Losses and totals of the metrics, in the inference form, with the weights that are evaluated."""
    ADAPT = "adapt"
    """What layers want to know of a batch before training (`Builder.adapt`), in the inference form."""
    PREDICT = "predict"
    """The net's outputs, in the inference form, with the weights that are evaluated."""


STEPS = (Purpose.TRAIN, Purpose.ACCUMULATE, Purpose.UPDATE)
"""The purposes of which training steps consist."""


class Duty(StrEnum):
    """What one of several processes does of the training steps."""

    ALL = "all"
    """Everything."""
    GRADIENTS = "gradients"
    """It finds gradients, which are left in states, and others move the parameters."""
    UPDATE = "update"
    """It moves its pieces of the parameters by gradients that others find, and has nothing else of the net."""
