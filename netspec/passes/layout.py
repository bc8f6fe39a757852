"""Layout assignment, and with it the choice of kernels: by cost over the whole graph.

Kernels offer ways to run a node: what they read and write, and about how long a call takes then. A value that lies
otherwise than its reader wants is copied, once for all readers that want the same, which takes the time of its bytes;
of what is steady a copy costs nothing. Each node in turn takes the offer that costs least together with its copies, the
kernel of the highest rank where none is clearly cheaper. What only some kernels want, an order of axes or forms of
their own, may gain at a node and lose elsewhere (at its borders; where another reader would have shared a copy): for
each such wish the whole graph is assigned once more without it, and the cheaper assignment stays.

Elementwise ops take any order, and so want that of an operand. An opaque layout is for the kernel that asked for it: to
everybody else the value is a plain one. Inputs, states and results are never opaque. What may lie in fewer bits does so
where the kernel that makes it, or the product that reads it, takes it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from netspec.graph.graph import Graph, rebuild, users
from netspec.graph.kernel import Candidates, Choice, Kernel, Kernels, Offer, moving
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.rates import rated, rates
from netspec.graph.types import DType, Precision
from netspec.graph.value import Node, Scope, Value, in_scope
from netspec.passes.precision import contracted
from netspec.passes.steady import steady_nodes

MARGIN = 0.95
"""What an offer must cost at most, as a share of what the usual kernel's costs, to be taken instead."""


@dataclass(frozen=True)
class Narrow:
    """The values that may lie in fewer bits, and the type they have then."""

    values: frozenset[Value]
    dtype: DType


@dataclass(frozen=True, eq=False)
class Assigned:
    """A graph with copies where layouts change, the layout of every value, and the kernel of every node."""

    graph: Graph
    layouts: dict[Value, Layout]
    choices: dict[Node, Choice]
    seconds: float
    """What a run costs by the ratings of kernels, copies included; of use in comparison alone."""
    avoidable: frozenset[str]
    """Wishes that some kernel was granted, and that the node could do without: orders of axes, a kernel's own forms."""


def assign_layouts(
    graph: Graph, kernels: Kernels, narrow: Narrow | None = None, precision: Precision = Precision.FLOAT32
) -> Assigned:
    """The cheapest assignment of those that were tried, by kernels that may round as `precision` says."""
    chooser = _Chooser(graph, kernels, narrow, precision)
    with rated(kernels.rates):
        first = best = _Assignment(chooser).run()
        refused: frozenset[str] = frozenset()
        for wish in sorted(first.avoidable):
            other = _Assignment(chooser, refused | {wish}).run()
            if other.seconds < best.seconds:
                best, refused = other, refused | {wish}
    return best


def alike(value: Value, one: Layout, other: Layout) -> bool:
    """Whether the elements of a value lie the same way in two layouts."""
    if one.dtype != other.dtype:
        return False
    return one == other or (one.is_plain(value.type) and other.is_plain(value.type))


class _Chooser:
    """What kernels offer for the nodes of a graph."""

    def __init__(self, graph: Graph, kernels: Kernels, narrow: Narrow | None, precision: Precision) -> None:
        self.graph, self.kernels, self.narrow, self._precision = graph, kernels, narrow, precision
        self.steady, self.read = steady_nodes(graph), users(graph.nodes())
        self._candidates: dict[Node, Candidates] = {}
        self._offers: dict[tuple[Node, tuple[Layout, ...]], list[Offer]] = {}

    def candidates(self, node: Node) -> Candidates:
        """The kernels that take a node."""
        if node not in self._candidates:
            self._candidates[node] = self.kernels.candidates(node, self._precision)
        return self._candidates[node]

    def offers(self, node: Node, given: Sequence[Layout]) -> list[Offer]:
        """Ways to run a node whose operands lie as `given`, the usual one first."""
        key = node, tuple(given)
        if key not in self._offers:
            self._offers[key] = self._asked(node, given)
        return self._offers[key]

    def _asked(self, node: Node, given: Sequence[Layout]) -> list[Offer]:
        wide = [one.as_stored(None) for one in given]
        found: dict[tuple[Kernel, Signature], None] = {}
        for kernel in self.candidates(node).kernels:
            for order in self._orders(kernel, node, wide):
                wanted = self._stored(node, given, order)
                found[kernel, order if wanted == order else kernel.narrowed(node, wanted) or order] = None
        offers = [Offer(kernel, lying, kernel.seconds(node, lying)) for kernel, lying in found]
        raced = [*offers, *self._varied(node, offers)] if self.kernels.races else offers
        measured = self.kernels.measured(node, raced) if len(raced) > 1 else None
        if measured is None:
            return offers
        return [replace(one, seconds=seconds, raced=True) for one, seconds in zip(raced, measured, strict=True)]

    @staticmethod
    def _varied(node: Node, offers: Sequence[Offer]) -> Iterator[Offer]:
        """What the kernels of the offers could do in other ways."""
        for offer in offers:
            for kernel in offer.kernel.variants(node, offer.layouts):
                yield replace(offer, kernel=kernel)

    def wanted(self, value: Value, layout: Layout) -> set[Layout]:
        """The layouts that readers want a value copied into that lies so, if all else lies plainly."""
        found = set()
        for node in self.read.get(value, ()):
            if node.op.traits.elementwise:
                continue  # takes it as it is
            taken = PLAIN
            if not node.op.traits.view:
                given = [_strided(layout) if one is value else PLAIN for one in node.inputs]
                taken = self.offers(node, given)[0].layouts.inputs[node.inputs.index(value)]
            if not alike(value, layout.as_stored(None), taken.as_stored(None)):
                found.add(taken)
        return found

    def _orders(self, kernel: Kernel, node: Node, given: Sequence[Layout]) -> Iterator[Signature]:
        """The layouts that a kernel could read and write, as to the order of elements."""
        if isinstance(node.op, Reorder):
            yield Signature((node.op.source,), (node.op.target,))
        elif node.op.traits.elementwise:
            shape = node.types[0].shape
            whole = [value.shape == shape for value in node.inputs]
            lying = dict.fromkeys(layout for layout, fits in zip(given, whole, strict=True) if fits)
            for chosen in sorted(lying or [PLAIN], key=lambda layout: layout == PLAIN):
                wanted = [chosen if fits else layout for layout, fits in zip(given, whole, strict=True)]
                yield Signature(tuple(wanted), (chosen,) * len(node.outputs))
        else:
            yield kernel.layouts(node, given)
            yield from kernel.alternatives(node, given)

    def _stored(self, node: Node, given: Sequence[Layout], wide: Signature) -> Signature:
        """The layouts with element types: as operands lie, and fewer bits for what products read and for results."""
        if self.narrow is None or isinstance(node.op, Reorder):
            return wide
        narrow, rounded = self.narrow, contracted(node)
        inputs = [
            order.as_stored(narrow.dtype if index < rounded and value.dtype == DType.FLOAT32 else lies.dtype)
            for index, (value, order, lies) in enumerate(zip(node.inputs, wide.inputs, given, strict=True))
        ]
        outputs = [
            order.as_stored(narrow.dtype if value in narrow.values else None)
            for value, order in zip(node.outputs, wide.outputs, strict=True)
        ]
        return Signature(tuple(inputs), tuple(outputs))


@dataclass(frozen=True)
class _Costed:
    """An offer, and what it costs with the copies that it wants."""

    offer: Offer
    copies: float

    @property
    def seconds(self) -> float:
        return self.offer.seconds + self.copies

    def __str__(self) -> str:
        copies = f" and {self.copies * 1e6:,.1f} µs of copies" if self.copies else ""
        return f"{self.offer.seconds * 1e6:,.1f} µs{copies}"


class _Assignment:
    """One way to assign layouts, as it comes to be: nodes are taken in the order of execution."""

    def __init__(self, chooser: _Chooser, refused: frozenset[str] = frozenset()) -> None:
        """Offers with a wish that is `refused` are passed over where there are others."""
        self._chooser, self._refused = chooser, refused
        self._new: dict[Value, Value] = {}
        self._layouts: dict[Value, Layout] = {}
        self._choices: dict[Node, Choice] = {}
        self._copies: dict[tuple[Value, Layout], Value] = {}
        self._steady = set(chooser.steady)
        self._seconds = 0.0
        self._avoidable: set[str] = set()

    def run(self) -> Assigned:
        """Assign all."""
        graph, new = self._chooser.graph, self._new
        for node in graph.nodes():
            operands = [new[value] for value in node.inputs]
            signature, choice = self._decided(node, operands)
            wanted = zip(operands, signature.inputs, strict=True)
            operands = [self._lying(value, layout, node.scope) for value, layout in wanted]
            made = node.outputs if tuple(operands) == node.inputs else rebuild(node, operands)
            new.update(zip(node.outputs, made, strict=True))
            self._add(made, signature.outputs, choice, steady=node in self._steady)
        ends = graph.mapped(new)
        outputs = {name: self._readable(value) for name, value in ends.outputs.items()}
        updates = {name: self._lying(value, PLAIN, value.node.scope) for name, value in ends.updates.items()}
        guard = None if ends.guard is None else self._readable(ends.guard)
        made_of = Graph(outputs, updates, guard)
        return Assigned(made_of, self._layouts, self._choices, self._seconds, frozenset(self._avoidable))

    def _add(self, made: Sequence[Value], layouts: Sequence[Layout], choice: Choice | None, *, steady: bool) -> None:
        self._layouts.update(zip(made, layouts, strict=True))
        if choice is not None:
            self._choices[made[0].node] = choice
        if steady:
            self._steady.add(made[0].node)

    def _lying(self, value: Value, layout: Layout, scope: Scope) -> Value:
        """`value`, or a copy that lies as wanted; an opaque one belongs to the `scope` of the one who wants it."""
        lies = self._layouts[value]
        if alike(value, lies, layout):
            return value
        if (lies.form or layout.form) and PLAIN not in (lies, layout) and not alike(value, lies, PLAIN):
            return self._lying(self._lying(value, PLAIN, scope), layout, scope)
        key = value, layout
        if key not in self._copies:
            self._seconds += self._copying(value, layout)
            with in_scope(scope if layout.form else value.node.scope):
                copy = self._copies[key] = Reorder(lies, layout)(value)
            _, choice = self._chosen(copy.node, [value], [lies])
            self._add([copy], [layout], choice, steady=value.node in self._steady)
        return self._copies[key]

    def _readable(self, value: Value) -> Value:
        """`value` for whoever runs the program."""
        return value if self._layouts[value].form is None else self._lying(value, PLAIN, value.node.scope)

    def _copying(self, value: Value, layout: Layout) -> float:
        """What a copy of a value costs that is not there yet."""
        lies = self._layouts[value]
        if alike(value, lies, layout) or (value, layout) in self._copies or value.node in self._steady:
            return 0.0
        return rates().call + moving(lies.nbytes(value.type) + layout.nbytes(value.type))

    def _decided(self, node: Node, operands: Sequence[Value]) -> tuple[Signature, Choice | None]:
        """The layouts of a node, and its kernel if it needs one."""
        given = [_strided(self._layouts[value]) for value in operands]
        if node.op.traits.source:
            return Signature((), (self._inputs.get(node, PLAIN),)), None
        if node.op.traits.view:
            flat = PLAIN.as_stored(given[0].dtype)
            return Signature((flat, *(PLAIN for _ in given[1:])), (flat,)), None
        chosen, choice = self._chosen(node, operands, given)
        if node not in self._steady:
            self._seconds += chosen.seconds
        return chosen.layouts, choice

    def _chosen(self, node: Node, operands: Sequence[Value], given: Sequence[Layout]) -> tuple[Offer, Choice]:
        """The offer that costs least, and what is told of the others."""
        offers, declined = self._chooser.offers(node, given), self._chooser.candidates(node).declined
        if len(offers) == 1:
            return offers[0], _choice(_Costed(offers[0], 0.0), (), declined)
        offers = self._allowed(offers, operands)
        varied = len({one.layouts.outputs for one in offers}) > 1
        costed = [
            _Costed(
                one,
                sum(map(self._copying, operands, one.layouts.inputs))
                + (self._onward(node, one.layouts) if varied else 0.0),
            )
            for one in offers
        ]
        best = _cheapest(costed)
        if not node.op.traits.elementwise:
            granted = self._wishes(best.offer, operands)
            for one in offers:
                spared = granted - self._wishes(one, operands)
                # Forms are no wish where a kernel has nothing else to offer: another kernel is weighed as it is.
                self._avoidable |= spared if one.kernel is best.offer.kernel else spared - {_forms(best.offer)}
        return best.offer, _choice(best, costed, declined)

    def _allowed(self, offers: list[Offer], operands: Sequence[Value]) -> list[Offer]:
        return [one for one in offers if self._refused.isdisjoint(self._wishes(one, operands))] or offers

    def _wishes(self, offer: Offer, operands: Sequence[Value]) -> set[str]:
        """What an offer asks for: orders of axes other than that of the shape, its own forms of what is not steady."""
        lying = {one.as_stored(None) for one in (*offer.layouts.inputs, *offer.layouts.outputs) if one.form is None}
        own = any(
            layout.form is not None and value.node not in self._steady
            for value, layout in zip(operands, offer.layouts.inputs, strict=True)
        )
        return {*map(str, lying - {PLAIN}), *([_forms(offer)] if own else [])}

    def _onward(self, node: Node, lying: Signature) -> float:
        """What copies cost that the readers of a node's results want at once."""
        return sum(
            rates().call + moving(layout.nbytes(value.type) + wanted.nbytes(value.type))
            for value, layout in zip(node.outputs, lying.outputs, strict=True)
            for wanted in self._chooser.wanted(value, layout)
        )

    @cached_property
    def _inputs(self) -> dict[Node, Layout]:
        """Inputs are copied in anyway: each lies as its first reader wants it.

        One that is to lie in another order and in fewer bits is copied in as it is: a kernel does both faster.
        """
        found: dict[Node, Layout] = {}
        chooser = self._chooser
        for node in chooser.graph.nodes():
            if node.op.traits.source or node.op.traits.view or node.op.traits.elementwise:
                continue
            for index, value in enumerate(node.inputs):
                if isinstance(value.op, Input) and value.node not in found:
                    offers = self._allowed(chooser.offers(node, (PLAIN,) * len(node.inputs)), node.inputs)
                    wanted = _cheapest([_Costed(one, 0.0) for one in offers]).offer.layouts.inputs[index]
                    found[value.node] = _strided(wanted).as_stored(None)
        if chooser.narrow is None:
            return found
        flat = PLAIN.as_stored(chooser.narrow.dtype)
        rounded = {value.node: value.type for value in chooser.narrow.values if isinstance(value.op, Input)}
        return found | {
            node: flat if found.get(node, PLAIN).is_plain(kind) else PLAIN for node, kind in rounded.items()
        }


def _forms(offer: Offer) -> str:
    """The wish for forms of a kernel's own."""
    return f"forms of {offer.kernel.label}"


def _cheapest(costed: Sequence[_Costed]) -> _Costed:
    """The first one, unless another is clearly cheaper."""
    usual, best = costed[0], min(costed, key=lambda one: one.seconds)
    return best if best.seconds < MARGIN * usual.seconds else usual


def _choice(best: _Costed, costed: Sequence[_Costed], declined: Sequence[tuple[Kernel, str]]) -> Choice:
    """The kernel, and why it is not one that ranks higher, was raced against it, or reads and writes otherwise."""
    chosen, told = best.offer, []
    for kernel, reason in declined:
        if kernel.rank > chosen.kernel.rank:
            told.append((kernel.label, reason))
    for one in costed:
        offer = one.offer
        lower = offer.kernel.rank <= chosen.kernel.rank
        if one is best or (offer.layouts == chosen.layouts and lower and not offer.raced):
            continue
        lying = "" if offer.layouts == chosen.layouts else f" on {', '.join(map(str, offer.layouts.inputs))}"
        verb = "lost the race" if offer.raced else "is rated slower"
        told.append((f"{offer.kernel.label}{lying}", f"{verb}: {one} to {best}"))
    return Choice(chosen.kernel, tuple(told), chosen.seconds if chosen.raced else None)


def _strided(layout: Layout) -> Layout:
    """The layout, or the plain one for an opaque one."""
    return PLAIN if layout.form is not None else layout
