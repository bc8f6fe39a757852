"""Read and write files of named arrays: safetensors with PyTorch's names, `.npz` with netspec's.

Files that netspec writes contain the net's YAML too; weights of other programs are loaded into a net.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError, Problem, command
from netspec.exchange.formats.native.npz import NET, holds, read_npz, write_npz
from netspec.exchange.formats.native.safetensors import read_safetensors, write_safetensors
from netspec.exchange.formats.pytorch.state_dicts import OPTIMIZER_STATE, collisions, from_state_dict, to_state_dict
from netspec.exchange.formats.registry import Exportable, ExportOptions, Lost
from netspec.exchange.interface import Imported, ImportOptions, Target, WithoutNet
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.plain_json import json_text
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec

NET_KEY, SHAPES_KEY = "netspec_net", "netspec_shapes"
"""Metadata of a safetensors file that netspec wrote: the net's YAML, and the shapes of its states as JSON."""


def import_safetensors(path: Path, options: ImportOptions) -> Imported:
    """The net and the weights in a file that netspec wrote."""
    arrays, metadata = read_safetensors(path)
    net, shapes = metadata.get(NET_KEY), metadata.get(SHAPES_KEY)
    if net is None or shapes is None:
        raise without_net(path)
    try:
        shape_of = {name: tuple(shape) for name, shape in json.loads(shapes).items()}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged: its `{SHAPES_KEY}` can't be read", got=str(error)) from error
    return Imported(net, from_state_dict(arrays, shape_of))


def safetensors_for(path: Path, target: Target) -> dict[str, NDArray[Any]]:
    """Read PyTorch's state dict, or arrays with netspec's names, for a net; optimizer states are ignored."""
    arrays = {name: array for name, array in read_safetensors(path)[0].items() if not name.startswith(OPTIMIZER_STATE)}
    return from_state_dict(target.renamed(arrays), target.shapes())


def export_safetensors(path: Path, exported: Exportable) -> tuple[str, ...]:
    """Write all states by PyTorch's names and in its shapes. Raises `InputError` if two layers would get one name."""
    lost = _lost(exported.net, {name: array.shape for name, array in exported.arrays.items()})
    if lost.problems:
        raise InputError(lost.problems)
    shapes = json_text({name: list(array.shape) for name, array in exported.arrays.items()})
    metadata = {"format": "pt", NET_KEY: canonical_yaml(exported.net), SHAPES_KEY: shapes}
    write_safetensors(path, to_state_dict(exported.arrays), metadata)
    return ()


def preflight_safetensors(exported: Exportable, options: ExportOptions) -> Lost:
    """Layers whose arrays would get the same name, such as `a/b` and `a.b`."""
    return _lost(exported.net, {name: value.shape for name, value in exported.graph_for(1).states().items()})


def _lost(net: NetSpec, shapes: Mapping[str, tuple[int, ...]]) -> Lost:
    problems: dict[tuple[str, str], Problem] = {}
    for first, second, name in collisions(shapes):
        link = max(
            (link for link in resolve_names(net).layers if f"{second}/".startswith(f"{link.name}/")),
            key=lambda link: len(link.name),
        )
        message = f"the layers `{first}` and `{second}` would both have `{name}` in a safetensors file"
        hint = "PyTorch's names have a dot for `/`: give one of the layers another name"
        problems.setdefault((first, second), Problem(message, link.fields.where("name"), hint=hint))
    return Lost(tuple(problems.values()))


def import_npz(path: Path, options: ImportOptions) -> Imported:
    """The net and the weights in a file that netspec wrote."""
    if not holds(path, NET):  # before anything is unpacked
        raise without_net(path)
    arrays = read_npz(path)
    net = arrays.pop(NET)
    if not net.dtype.str.startswith("<U") or net.shape:
        raise without_net(path)
    try:
        # `str` raises a SystemError if the text is damaged.
        text = net.tobytes().decode("utf-32-le").rstrip("\0")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: its `{NET}` is not text", got=str(error)) from error
    return Imported(text, arrays)


def npz_for(path: Path, target: Target) -> dict[str, NDArray[Any]]:
    """Load arrays into a net by netspec's names or by those of a state dict."""
    arrays = {name: array for name, array in read_npz(path).items() if array.dtype.kind != "U"}
    return from_state_dict(target.renamed(arrays), target.shapes())


def export_npz(path: Path, exported: Exportable) -> tuple[str, ...]:
    """Write all states by netspec's names."""
    write_npz(path, {NET: np.asarray(canonical_yaml(exported.net)), **exported.arrays})
    return ()


def without_net(path: Path) -> WithoutNet:
    """The error for weights without a net."""
    return WithoutNet(
        f"{path} holds weights without the net they belong to",
        expected="a model, or weights that netspec wrote",
        hint=f"lay them onto a net: `{command('import', path, '--net', 'net.yaml')}`",
    )
