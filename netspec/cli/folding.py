"""`netspec import --fold-batch-norm`: a net with BatchNormalization in the layers before, compared with the first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from netspec.cli.comparing import compare_models
from netspec.compile import Purpose
from netspec.errors import InputError, RunError, counted, listing
from netspec.exchange.normalized import fold_batch_norm
from netspec.exchange.onnx_verify import TOLERANCE
from netspec.schema.load import load_net
from netspec.schema.reader import parse_yaml
from netspec.schema.tree import Map
from netspec.train.model import Model, assigned, load

if TYPE_CHECKING:
    from netspec.exchange.imported import Imported


def folded(found: Imported, source: Path) -> Imported:
    """The same net, folded, without a training. Raises `InputError` where there is nothing that could be folded."""
    if found.draft is None or not found.arrays:
        raise InputError(
            f"{source} gives no net with weights of another program",
            expected="a model of ONNX, Keras or Caffe for --fold-batch-norm",
            got="weights that are laid onto a net, or a net without any" if found.draft is None else "no weights",
        )
    before = _model(found, source)
    graph = before.compiler.graph(Purpose.PREDICT, 1)
    made = fold_batch_norm(found.draft, {name: value.shape for name, value in graph.named.items()})
    told = [f"{counted(made.folded, 'BatchNormalization')} folded into the layer before"]
    if made.kept:
        told.append(f"kept, since the layer before cannot take it in: {listing(made.kept)}")
    if found.train:
        told.append("how the model was trained is left out: the folded net is another one to train")
    new = replace(
        found, net=made.draft.text(), arrays=made.draft.arrays(), notes=(*found.notes, *told), train="", slots={},
        step=0, draft=made.draft,
    )  # fmt: skip
    comparison, why_not = compare_models(before, _model(new, source))
    gap = comparison.whole if comparison is not None else None
    if gap is None or not gap.scaled <= TOLERANCE:
        raise RunError(
            f"{source}: folded, the net does not compute the same", expected=f"at most {TOLERANCE:g} apart",
            got=gap.relative if gap is not None else why_not, hint="import it without --fold-batch-norm",
        )  # fmt: skip
    return new


def _model(found: Imported, source: Path) -> Model:
    tree = parse_yaml(found.net, f"{source} (its net)")
    assert isinstance(tree, Map)
    model = load(load_net(tree), device="cpu")
    assigned(model.compiler, found.arrays, source=str(source))
    return model
