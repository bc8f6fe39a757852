"""A net → Caffe's net, layer by layer: the form that is deployed, and the one that is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, product
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, Problem, by_place
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.writing.sequences import sequences
from netspec.exchange.caffe.writing.writer import Blob, Layer, Made, Writer
from netspec.exchange.formats import Exportable
from netspec.exchange.masks import reads_a_mask
from netspec.schema.links import Links, resolve_names

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class CaffeNet:
    """A net with its arrays, and what the user should know of it."""

    message: Message
    layers: list[Made] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: dict[str, Message] = field(default_factory=dict)
    """Further files that its layers name."""

    def owned(self) -> Iterator[Blob]:
        """The arrays of all layers in order, as Caffe's solvers count them: shared ones once, where they first are."""
        seen: set[str] = set()
        for made in self.layers:
            for blob in made.blobs:
                if not blob.state or blob.state not in seen:
                    yield blob
                seen.add(blob.state)

    def with_arrays(self) -> Message:
        """The net with the arrays of its layers in them, as `.caffemodel` files have it."""
        from netspec.exchange.caffe.blobs import array_blob

        net = Message("NetParameter", name=self.message["name"])
        for made in self.layers:
            layer = made.message.copy()
            for blob in made.blobs:
                layer.add("blobs", array_blob(_plain(blob.values)))
            net.add("layer", layer)
        return net


def deployed(made: Exportable) -> CaffeNet:
    """The net for inference. Raises `InputError` with every layer that has no form in Caffe, and why."""
    links = resolve_names(made.net)
    writer = writer_for(made, links, set(links.outputs))
    for name in needed_inputs(made, links, links.outputs):
        shape = Message("BlobShape", dim=list(writer.shape(name)))
        writer.layer(name, "Input", [], [name], params={"input_param": {"shape": [shape]}})
        if name in writer.sequences:
            writer.note(f"`{name}` is (T, N, …) in Caffe: its steps before its samples")
    layers = needed(links, links.outputs)
    for one in layers:
        if reads_a_mask(made.graph_for(1), one.sources, one.outputs):
            what = f"`{one.name}` ({one.fields.type}) has no form in Caffe: it computes with a mask of an earlier layer"
            writer.problems.append(Problem(what, one.fields.where("type")))
    for one in layers:
        writer.write(one)
    if not writer.problems:
        given_out(writer, links.outputs)
    return finished(made, writer)


def given_out(writer: Writer, outputs: Iterable[str]) -> None:
    """Have a blob of each output that no layer reads: Caffe's nets give those, and those alone.

    What is read too is copied by a Split; its first blob gets another name. Outputs that are one blob become two.
    """
    given: set[str] = set()
    for output in outputs:
        blob = writer.blob(output)
        messages = [one.message for one in writer.layers]
        if blob not in given and not any(blob in one["bottom"] and blob not in one["top"] for one in messages):
            given.add(blob)
            continue
        source = blob
        if output == blob:
            taken = {name for one in messages for side in ("bottom", "top") for name in one[side]}
            source = next(name for number in count() if (name := f"{blob}_{number}") not in taken)
            for one, side in product(messages, ("bottom", "top")):
                if blob in one[side]:
                    one[side] = [source if each == blob else each for each in one[side]]
        last = max(number for number, one in enumerate(messages) if source in one["top"])
        writer.layer(f"{output}_output", "Split", [source], [output])
        writer.layers.insert(last + 1, writer.layers.pop())
        given.add(output)


def writer_for(made: Exportable, links: Links, ends: Iterable[str], *, training: bool = False) -> Writer:
    """A writer that knows the shapes of all values that are computed."""
    ends = list(ends)
    types = {name: value.type for name, value in made.graph_for(1).named.items()}
    readers: dict[str, list[str]] = {name: ["output"] for name in ends}
    for link in links.layers:
        for source in link.sources:
            readers.setdefault(source, []).append(str(getattr(link.fields, "type", "")))
    sharing = frozenset(link.fields.share for link in links.layers if link.fields.share)
    steps = sequences(needed(links, ends))
    return Writer(types, made.arrays, readers, training=training, sequences=steps, sharing=sharing)


def finished(made: Exportable, writer: Writer) -> CaffeNet:
    """The net of what is written. Raises `InputError` with all that has no form."""
    if writer.problems:
        raise InputError(sorted(writer.problems, key=by_place))
    net = Message("NetParameter", name=made.net.name)
    for one in writer.layers:
        net.add("layer", one.message)
    return CaffeNet(net, writer.layers, writer.notes, writer.files)


def needed(links: Links, ends: Iterable[str]) -> list[Layer]:
    """The layers that these values are computed by, in order."""
    wanted, found = set(ends), []
    for link in reversed(links.layers):
        if wanted & {link.name, *link.outputs}:
            found.append(Layer(link.name, link.fields, link.sources, link.outputs))
            wanted |= set(link.sources)
    return found[::-1]


def needed_inputs(made: Exportable, links: Links, ends: Iterable[str]) -> list[str]:
    """The inputs that these values are computed from, as the net declares them."""
    ends = set(ends)
    wanted = {source for link in needed(links, ends) for source in link.sources} | ends
    return [name for name in made.net.inputs if name in wanted]


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers as Caffe keeps them, float32."""
    import numpy as np

    return np.asarray(values, np.float32, order="C")
