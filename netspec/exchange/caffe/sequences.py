"""Which values are sequences as Caffe has them: (T, N, …), the steps before the samples; here they are (N, T, …)."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.exchange.caffe.wiring import Key, Node, Ref, Wired

RECURRENT = ("LSTM", "RNN")
OF_STEPS = {"LSTM": 2, "RNN": 2, "LSTMUnit": 3}
"""The first inputs of a recurrent layer are sequences: what it reads, and where one goes on. Others have no steps."""


def last_step(node: Node) -> bool:
    """Whether a layer makes a sequence of one step a value without steps: a Reshape that takes axis 0 away."""
    given = node.layer["reshape_param"]
    kept = given["axis"] or given["num_axes"] != 1 or [*given["shape"]["dim"]]
    return node.type == "Reshape" and "shape" in given and not kept


def marking(wired: Wired) -> set[Key]:
    """The layers that compute where sequences go on (the second input of recurrent layers), and nothing else."""
    read: dict[Key | None, bool] = {}
    """Of each layer that is read, whether nothing but marks is made of it."""
    for node in reversed(wired.nodes):
        marks = read.get(node.key, False)
        for place, ref in enumerate(node.bottoms):
            read[ref.layer] = read.get(ref.layer, True) and (marks or (node.type in RECURRENT and place == 1))
    return {key for key, marks in read.items() if marks and key is not None}


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
            bottoms = node.bottoms[: OF_STEPS.get(node.type)]
            own = {*bottoms}
            if not last_step(node):
                own |= {Ref(node.key, index, top) for index, top in enumerate(node.layer["top"])}
            if node.type in OF_STEPS or own & values:
                found.add(node.key)
                values |= own
            else:
                left.append(node)
        if len(left) == len(rest):
            break
        rest = left
    return Sequences(frozenset(found), frozenset(ref.blob for ref in values if ref.layer is None))
