"""Which values are sequences as Caffe has them: (T, N, …), the steps before the samples; here they are (N, T, …)."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.exchange.caffe.wiring import Key, Ref, Wired

RECURRENT = ("LSTM", "RNN")
OF_STEPS = 2
"""The first inputs of a recurrent layer are sequences: what it reads, and where one goes on. Others have no steps."""


@dataclass(frozen=True)
class Sequences:
    """All that hangs together with recurrent layers."""

    layers: frozenset[Key] = frozenset()
    inputs: frozenset[str] = frozenset()
    """The inputs' blobs."""


def sequences(wired: Wired) -> Sequences:
    """Layers that read or write a sequence: all others of their values are sequences too."""
    found: set[Key] = set()
    values: set[Ref] = set()
    rest = list(wired.nodes)
    while rest:
        left = []
        for node in rest:
            bottoms = node.bottoms[:OF_STEPS] if node.type in RECURRENT else node.bottoms
            own = {*bottoms, *(Ref(node.key, index, top) for index, top in enumerate(node.layer["top"]))}
            if node.type in RECURRENT or own & values:
                found.add(node.key)
                values |= own
            else:
                left.append(node)
        if len(left) == len(rest):
            break
        rest = left
    return Sequences(frozenset(found), frozenset(ref.blob for ref in values if ref.layer is None))
