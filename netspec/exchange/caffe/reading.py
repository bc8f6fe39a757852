"""Caffe's files as `netspec import` meets them: nets in text, weights with their net or without."""

from __future__ import annotations

from pathlib import Path

from netspec.errors import InputError, command
from netspec.exchange.caffe.blobs import WEIGHTS, Weights, read_mean, read_weights, weights_of
from netspec.exchange.caffe.nets import NetDraft, draft_net
from netspec.exchange.caffe.proto.text import read_text
from netspec.exchange.caffe.upgrade import upgraded
from netspec.exchange.imported import Imported, ImportOptions, WithoutNet

NET = "a net of Caffe's (.prototxt)"


def read_prototxt(path: Path, options: ImportOptions) -> Imported:
    """A net in text, with the weights that the options name."""
    net = read_text(path, "NetParameter", NET)
    weights: Weights | None
    if options.weights is not None:
        weights, name = read_weights(options.weights)[0], str(options.weights)
    else:  # a text may hold them too
        weights, name = weights_of(upgraded(net), path) or None, str(path)
    return imported(draft_net(net, options, weights=weights, weights_file=name, folder=path.parent))


def read_caffemodel(path: Path, options: ImportOptions) -> Imported:
    """Weights with the net that they were trained in."""
    if options.weights is not None:
        raise InputError(f"{path} holds weights itself", expected=NET, got=f"--weights {options.weights} beside it")
    weights, net = read_weights(path)
    if net is None:
        raise WithoutNet(
            f"{path} holds weights without their net", expected=NET, got=WEIGHTS,
            hint=f"name both: `{command('import', 'deploy.prototxt', '--weights', path)}`",
        )  # fmt: skip
    return imported(draft_net(net, options, weights=weights, weights_file=str(path), folder=path.parent))


def refuse_mean(path: Path, options: ImportOptions) -> Imported:
    """A mean image has no net: say where it goes."""
    shape = read_mean(path).shape
    raise InputError(
        f"{path} is a mean image, not a net", expected=NET, got=f"{' × '.join(map(str, shape))} numbers",
        hint=f"a training subtracts it: `transforms: [{{type: MeanImage, file: {path.name}}}]`",
    )  # fmt: skip


def imported(found: NetDraft) -> Imported:
    """A draft as importers give it."""
    return Imported(found.draft.text(), found.draft.arrays(), tuple(found.notes), draft=found.draft)
