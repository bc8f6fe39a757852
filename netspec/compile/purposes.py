"""Purposes of the programs of a net, and roles of processes in a training step."""

from __future__ import annotations

from enum import StrEnum


class ProgramKind(StrEnum):
    """Purpose of a program: decides what it computes, and in which form layers are built."""

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
    """Statistics that layers collect from a batch before training (`Builder.adapt`), in the inference form."""
    PREDICT = "predict"
    """The net's outputs, in the inference form, with the weights that are evaluated."""


STEPS = (ProgramKind.TRAIN, ProgramKind.ACCUMULATE, ProgramKind.UPDATE)
"""The purposes of which training steps consist."""


class ProcessRole(StrEnum):
    """Role of one of several processes in a training step."""

    ALL = "all"
    """Everything."""
    GRADIENTS = "gradients"
    """Computes gradients and stores them in states; other processes update the parameters."""
    UPDATE = "update"
    """Updates its pieces of the parameters by gradients from other processes; holds nothing else of the net."""
