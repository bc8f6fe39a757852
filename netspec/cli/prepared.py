"""What a training did to its samples and nothing here does: told to whoever feeds the net from now on."""

from __future__ import annotations

import sys

from netspec.compile import Purpose
from netspec.train.model import Model
from netspec.train.preparation import Preparation


def note_preparation(model: Model, found: Preparation) -> None:
    """Say on stderr which transforms the inputs of `model` had in the training, if any."""
    told = found.told(model.compiler.graph(Purpose.PREDICT, 1).inputs())
    if told:
        print("note: inputs are taken as the net sees them; in training they had been transformed:", file=sys.stderr)
        print("".join(f"  {line}\n" for line in told), end="", file=sys.stderr)
