"""Nets in netspec's own files: weights files contain the net's YAML, checkpoints the run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import CheckpointFile, read_checkpoint, read_weights, write_weights
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.interface import Imported, ImportOptions, Target, WithoutNet
from netspec.schema.language.provenance import canonical_yaml, resolved_yaml
from netspec.schema.load import load_net
from netspec.schema.yaml.reader import parse_yaml
from netspec.schema.yaml.tree import Map

OF_THE_DATA = ("transforms", "learned")
"""Keys of the preprocessing, in the metadata of weights and the progress of checkpoints."""


def import_hdf5(path: str | Path, options: ImportOptions | None = None) -> Imported:
    """The net and the weights in one of netspec's own files. Raises `InputError` if it has no net."""
    contents = read_weights(path)
    if contents.kind == "checkpoint":
        checkpoint = read_checkpoint(path)
        meta = {name: checkpoint.progress[name] for name in OF_THE_DATA if name in checkpoint.progress}
        return Imported(_net_of_run(path, checkpoint), contents.arrays, meta=meta)
    if not contents.net:
        raise WithoutNet(
            f"{path} holds weights without the net they belong to",
            expected="weights with their net, as `netspec train` writes them",
            got="weights alone",
            hint="name its net: `netspec predict NET --weights FILE` or `netspec import FILE --net NET`",
        )
    return Imported(contents.net, contents.arrays, meta=contents.meta)


def weights_of(path: str | Path, target: Target) -> dict[str, NDArray[Any]]:
    """The weights by the names of the net's states, which are those in the file."""
    return target.renamed(read_weights(path).arrays)


def export_hdf5(path: str | Path, exported: Exportable) -> tuple[str, ...]:
    """Write a weights file with its net."""
    write_weights(path, exported.arrays, net=canonical_yaml(exported.net), name=exported.net.name, **exported.meta)
    return ()


def _net_of_run(path: str | Path, checkpoint: CheckpointFile) -> str:
    """The net's YAML, from the run's."""
    net = parse_yaml(checkpoint.spec, f"{path} (its spec)").get("net")
    if not isinstance(net, Map):
        raise InputError(f"{path} does not say its net", expected="the run's spec, as `netspec train` writes it")
    return resolved_yaml(load_net(net))
