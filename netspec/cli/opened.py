"""A net from whatever says one: a spec, a run, a folder that `netspec import` made, a file of any format known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netspec.cli.given import in_folder
from netspec.cli.specs import load_spec, net_of, precision_of
from netspec.exchange.imported import Imported, ImportOptions
from netspec.exchange.importing import import_model
from netspec.schema.load import load_net
from netspec.schema.net import NetSpec
from netspec.schema.reader import parse_yaml
from netspec.schema.train import TrainSpec
from netspec.schema.tree import Map
from netspec.train.model import Model, assigned, load
from netspec.train.preparation import Preparation


@dataclass(frozen=True)
class Opened:
    """A net, with weights where they are known."""

    spec: NetSpec | TrainSpec
    model: Model
    has_weights: bool
    """Whether the weights are somebody's; else they are fresh ones."""
    weights: Path | None = None
    """The file that they come from."""
    imported: Imported | None = None
    """What a file of another program gave."""
    notes: tuple[str, ...] = field(default=())

    @property
    def net(self) -> NetSpec:
        """The net, of a training too."""
        return net_of(self.spec)

    def with_weights(self, weights: Path) -> Opened:
        """The same net with the weights in a file. Raises `InputError` where they do not fit."""
        return _spec(self.spec, weights)


def open_any(
    path: str | Path, weights: str | Path | None = None, options: ImportOptions | None = None,
    overrides: Sequence[str] = (),
) -> Opened:  # fmt: skip
    """The net that `path` says, with the weights in `weights` or those that come with it.

    Raises `InputError` where it says none, or the weights do not fit.
    """
    path = Path(path)
    if path.is_dir():
        spec, beside = in_folder(path)
        return _spec(load_spec(spec, overrides), weights or beside)
    if path.suffix in (".yaml", ".yml"):
        return _spec(load_spec(path, overrides), weights)
    found = import_model(path, options)
    tree = parse_yaml(found.net, f"{path} (its net)")
    assert isinstance(tree, Map)
    net = load_net(tree)
    model = load(net, weights, device="cpu")
    if weights is None and found.arrays:
        assigned(model.compiler, found.arrays, source=str(path))
        model.preparation = Preparation.from_meta(found.meta)
    known = bool(found.arrays) or weights is not None
    return Opened(net, model, known, Path(weights or path), found, found.notes)


def _spec(spec: NetSpec | TrainSpec, weights: str | Path | None) -> Opened:
    model = load(net_of(spec), weights, device="cpu", precision=str(precision_of(spec).computed))
    return Opened(spec, model, weights is not None, None if weights is None else Path(weights))
