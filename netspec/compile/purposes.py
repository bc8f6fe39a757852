"""Purposes of the programs of a net, and roles of processes in a training step."""

from __future__ import annotations

from enum import StrEnum


class ProgramKind(StrEnum):
    """Purpose of a program: decides what it computes, and in which form layers are built."""

    TRAIN = "train"
    """One training step: losses, gradients, update."""
    ACCUMULATE = "accumulate"
    """One of several batches of a step: losses, and gradients that are added to those of the preceding batches."""
    UPDATE = "update"
    """The update by the gradients of several batches. It reads no data; its batch size is always 1."""
    GRADIENTS = "gradients"
    """Losses and gradients in the training form; no state changes."""
    FORWARD = "forward"
    """Outputs, losses and new states in the training form, without gradients: for training in another framework."""
    TEST = "test"
    """Losses and totals of the metrics, in the inference form, with the weights for evaluation."""
    ADAPT = "adapt"
    """Statistics that layers collect from a batch before training (`Builder.adapt`), in the inference form."""
    PREDICT = "predict"
    """The net's outputs, in the inference form, with the weights for evaluation."""


STEPS = (ProgramKind.TRAIN, ProgramKind.ACCUMULATE, ProgramKind.UPDATE)
"""The programs that training steps consist of."""


class ProcessRole(StrEnum):
    """Role of one of several processes in a training step."""

    ALL = "all"
    """Computes gradients and updates the parameters."""
    GRADIENTS = "gradients"
    """Computes gradients and stores them in states; other processes update the parameters."""
    UPDATE = "update"
    """Updates its shards of the parameters by gradients from other processes; has no other part of the net."""
