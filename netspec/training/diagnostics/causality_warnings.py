"""Nets that read the tokens that they are to predict: their loss falls to almost 0, and they cannot write texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from netspec.compile import Compiler, ProgramKind
from netspec.data.sources.text import Text
from netspec.schema.specs.train import TrainSpec
from netspec.training.generation.encoder_decoder import decoder_columns
from netspec.training.generation.language_model import CAUSAL_HINT, reads_later_tokens

if TYPE_CHECKING:
    from netspec.training.session import Session


def causality_warnings(spec: TrainSpec, compiler: Compiler, session: Session) -> Iterator[str]:
    """Yield a warning for each input of previous tokens of which an output also depends on later ones.

    Workers that share a net are not checked: no process could run it alone.
    """
    split = spec.data.train
    fields = {"text"} if isinstance(split, Text) else {
        column.decoder_input for column in decoder_columns(spec).values()
    }  # fmt: skip
    if not fields or not session.alone:
        return
    outputs = compiler.net_graph(ProgramKind.PREDICT, 1).outputs
    for name, value in compiler.graph(ProgramKind.PREDICT, 1).inputs().items():
        if split.inputs.get(name, name) not in fields:
            continue
        for output, logits in outputs.items():
            if logits.shape[:2] == value.shape and reads_later_tokens(compiler, name, output):
                yield (
                    f"`{output}` depends on later tokens of `{name}`, which are unknown when the net writes a text: "
                    f"the loss will be misleadingly low, and generated texts poor; {CAUSAL_HINT}"
                )
