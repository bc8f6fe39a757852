"""A net from netspec's own weights file, which carries the net's YAML."""

from __future__ import annotations

from pathlib import Path

from netspec.errors import InputError
from netspec.exchange.hdf5 import read_weights
from netspec.exchange.imported import Imported


def import_hdf5(path: str | Path) -> Imported:
    """The net and the weights in one of netspec's own weights files, which carries its net."""
    found = read_weights(path)
    if not found.net:
        raise InputError(
            f"{path} holds weights without the net they belong to",
            expected="weights with their net, as `netspec train` writes them",
            got="a checkpoint" if found.kind == "checkpoint" else "weights alone",
            hint="use it with its net: `netspec test NET --weights FILE`",
        )
    return Imported(found.net, found.arrays)
