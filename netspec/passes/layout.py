"""Layout assignment and kernel choice, by estimated cost over the whole graph.

Kernels offer ways to run a node: the layouts that they read and write, and an estimated time. A value whose layout is
not the one that a reader needs is copied, once for all readers that need the same layout; the copy costs the time to
move its bytes, or nothing for an invariant value. Each node in turn takes the offer that is cheapest together with its
copies, or the kernel of the highest rank if none is clearly cheaper. A requirement of only some kernels (an order of
axes, or a kernel's own layout) may gain at one node and lose elsewhere, for example at graph borders. For each such
requirement the whole graph is assigned again without it, and the cheaper assignment is kept.

Elementwise ops accept any order, and so take that of an operand. Only the kernel that asked for an opaque layout sees
it; to all others the value is plain. Inputs, states and results are never opaque. A value that may be stored in fewer
bits is stored so if the kernel that computes it, or a contraction that reads it, supports that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from netspec.graph.cost_model import machine_model, use_machine_model
from netspec.graph.graph import Graph, rebuild, users
from netspec.graph.kernel import Kernel, KernelCandidates, KernelChoice, KernelOption, KernelProvider, transfer_seconds
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, Precision
from netspec.graph.value import Node, Scope, Value, in_scope
from netspec.passes.invariant import invariant_nodes
from netspec.passes.mixed_precision import contracted_operand_count

MARGIN = 0.95
"""The first offer (of the highest-ranked kernel) is replaced only by one that costs less than this fraction of it."""


@dataclass(frozen=True)
class NarrowedValues:
    """The values that may be stored in fewer bits, and the type in which they are stored."""

    values: frozenset[Value]
    dtype: DType


@dataclass(frozen=True, eq=False)
class LayoutAssignment:
    """A graph with copies where layouts change, the layout of each value, and the kernel of each node."""

    graph: Graph
    layouts: dict[Value, Layout]
    choices: dict[Node, KernelChoice]
    seconds: float
    """Estimated duration of a run, including copies; only meaningful in comparisons."""
    avoidable: frozenset[str]
    """Requirements (axis orders, kernels' own layouts) that this assignment meets, and that could be refused."""


def assign_layouts(
    graph: Graph,
    kernels: KernelProvider,
    narrow: NarrowedValues | None = None,
    precision: Precision = Precision.FLOAT32,
) -> LayoutAssignment:
    """The cheapest of the assignments that were tried, with kernels that may round to `precision`."""
    kernel_offers = _KernelOffers(graph, kernels, narrow, precision)
    with use_machine_model(kernels.rates):
        first = best = _Assignment(kernel_offers).run()
        refused: frozenset[str] = frozenset()
        for requirement in sorted(first.avoidable):
            candidate = _Assignment(kernel_offers, refused | {requirement}).run()
            if candidate.seconds < best.seconds:
                best, refused = candidate, refused | {requirement}
    return best


def same_storage(value: Value, first: Layout, second: Layout) -> bool:
    """Whether a value's elements are stored in the same order in two layouts."""
    if first.dtype != second.dtype:
        return False
    return first == second or (first.is_plain(value.type) and second.is_plain(value.type))


class _KernelOffers:
    """The ways in which kernels offer to run the nodes of a graph."""

    def __init__(
        self, graph: Graph, kernels: KernelProvider, narrow: NarrowedValues | None, precision: Precision
    ) -> None:
        self.graph, self.kernels, self.narrow, self._precision = graph, kernels, narrow, precision
        self.invariant, self.read = invariant_nodes(graph), users(graph.nodes())
        self._candidates: dict[Node, KernelCandidates] = {}
        self._offers: dict[tuple[Node, tuple[Layout, ...]], list[KernelOption]] = {}

    def candidates(self, node: Node) -> KernelCandidates:
        """The kernels that accept a node."""
        if node not in self._candidates:
            self._candidates[node] = self.kernels.candidates(node, self._precision)
        return self._candidates[node]

    def offers(self, node: Node, operand_layouts: Sequence[Layout]) -> list[KernelOption]:
        """Ways to run a node whose operands have these layouts; those of the highest-ranked kernel come first."""
        key = node, tuple(operand_layouts)
        if key not in self._offers:
            self._offers[key] = self._query_offers(node, operand_layouts)
        return self._offers[key]

    def _query_offers(self, node: Node, operand_layouts: Sequence[Layout]) -> list[KernelOption]:
        wide = [layout.with_dtype(None) for layout in operand_layouts]
        signatures: dict[tuple[Kernel, LayoutSignature], None] = {}
        for kernel in self.candidates(node).kernels:
            for order in self._orders(kernel, node, wide):
                stored = self._stored(node, operand_layouts, order)
                signatures[
                    kernel, order if stored == order else kernel.low_precision_signature(node, stored) or order
                ] = None
        offers = [
            KernelOption(kernel, signature, kernel.estimated_seconds(node, signature))
            for kernel, signature in signatures
        ]
        contenders = [*offers, *self._tuning_offers(node, offers)] if self.kernels.has_tuner else offers
        measured = self.kernels.measured_seconds(node, contenders) if len(contenders) > 1 else None
        if measured is None:
            return offers
        return [
            replace(offer, seconds=seconds, was_measured=True)
            for offer, seconds in zip(contenders, measured, strict=True)
        ]

    @staticmethod
    def _tuning_offers(node: Node, offers: Sequence[KernelOption]) -> Iterator[KernelOption]:
        """Tuning variants of the kernels in `offers`."""
        for offer in offers:
            for kernel in offer.kernel.tuning_variants(node, offer.layouts):
                yield replace(offer, kernel=kernel)

    def reader_layouts(self, value: Value, layout: Layout) -> set[Layout]:
        """Layouts to which readers would copy a value stored in `layout`, if all other values were plain."""
        layouts = set()
        for node in self.read.get(value, ()):
            if node.op.traits.elementwise:
                continue  # the reader accepts any layout
            required = PLAIN
            if not node.op.traits.view:
                operand_layouts = [_without_opaque(layout) if operand is value else PLAIN for operand in node.inputs]
                required = self.offers(node, operand_layouts)[0].layouts.inputs[node.inputs.index(value)]
            if not same_storage(value, layout.with_dtype(None), required.with_dtype(None)):
                layouts.add(required)
        return layouts

    def _orders(self, kernel: Kernel, node: Node, operand_layouts: Sequence[Layout]) -> Iterator[LayoutSignature]:
        """The element orders that a kernel could read and write."""
        if isinstance(node.op, Reorder):
            yield LayoutSignature((node.op.source,), (node.op.target,))
        elif node.op.traits.elementwise:
            shape = node.types[0].shape
            has_result_shape = [value.shape == shape for value in node.inputs]
            signature = dict.fromkeys(
                layout for layout, fits in zip(operand_layouts, has_result_shape, strict=True) if fits
            )
            for chosen in sorted(signature or [PLAIN], key=lambda layout: layout == PLAIN):
                inputs = [
                    chosen if fits else layout for layout, fits in zip(operand_layouts, has_result_shape, strict=True)
                ]
                yield LayoutSignature(tuple(inputs), (chosen,) * len(node.outputs))
        else:
            yield kernel.layouts(node, operand_layouts)
            yield from kernel.alternatives(node, operand_layouts)

    def _stored(self, node: Node, operand_layouts: Sequence[Layout], wide: LayoutSignature) -> LayoutSignature:
        """`wide` with the element types to store: fewer bits for narrowed results and for operands of contractions."""
        if self.narrow is None or isinstance(node.op, Reorder):
            return wide
        narrow, rounded = self.narrow, contracted_operand_count(node)
        inputs = [
            order.with_dtype(narrow.dtype if index < rounded and value.dtype == DType.FLOAT32 else current.dtype)
            for index, (value, order, current) in enumerate(zip(node.inputs, wide.inputs, operand_layouts, strict=True))
        ]
        outputs = [
            order.with_dtype(narrow.dtype if value in narrow.values else None)
            for value, order in zip(node.outputs, wide.outputs, strict=True)
        ]
        return LayoutSignature(tuple(inputs), tuple(outputs))


@dataclass(frozen=True)
class _CostedOffer:
    """An offer and the cost of the copies that it needs."""

    offer: KernelOption
    copies: float

    @property
    def seconds(self) -> float:
        return self.offer.seconds + self.copies

    def __str__(self) -> str:
        copies = f" and {self.copies * 1e6:,.1f} µs of copies" if self.copies else ""
        return f"{self.offer.seconds * 1e6:,.1f} µs{copies}"


class _Assignment:
    """One assignment under construction: nodes are decided in execution order."""

    def __init__(self, kernel_offers: _KernelOffers, refused: frozenset[str] = frozenset()) -> None:
        """Skip offers with a requirement in `refused` if there are others."""
        self._kernel_offers, self._refused = kernel_offers, refused
        self._new: dict[Value, Value] = {}
        self._layouts: dict[Value, Layout] = {}
        self._choices: dict[Node, KernelChoice] = {}
        self._copies: dict[tuple[Value, Layout], Value] = {}
        self._invariant = set(kernel_offers.invariant)
        self._seconds = 0.0
        self._avoidable: set[str] = set()

    def run(self) -> LayoutAssignment:
        """Decide all nodes and return the assignment."""
        graph, new = self._kernel_offers.graph, self._new
        for node in graph.nodes():
            operands = [new[value] for value in node.inputs]
            signature, choice = self._decide(node, operands)
            requests = zip(operands, signature.inputs, strict=True)
            operands = [self._in_layout(value, layout, node.scope) for value, layout in requests]
            results = node.outputs if tuple(operands) == node.inputs else rebuild(node, operands)
            new.update(zip(node.outputs, results, strict=True))
            self._add(results, signature.outputs, choice, invariant=node in self._invariant)
        ends = graph.remap(new)
        outputs = {name: self._readable(value) for name, value in ends.outputs.items()}
        updates = {name: self._in_layout(value, PLAIN, value.node.scope) for name, value in ends.updates.items()}
        guard = None if ends.guard is None else self._readable(ends.guard)
        assigned = Graph(outputs, updates, guard)
        return LayoutAssignment(assigned, self._layouts, self._choices, self._seconds, frozenset(self._avoidable))

    def _add(
        self, results: Sequence[Value], layouts: Sequence[Layout], choice: KernelChoice | None, *, invariant: bool
    ) -> None:
        self._layouts.update(zip(results, layouts, strict=True))
        if choice is not None:
            self._choices[results[0].node] = choice
        if invariant:
            self._invariant.add(results[0].node)

    def _in_layout(self, value: Value, layout: Layout, scope: Scope) -> Value:
        """`value`, or its copy in `layout`; a copy in an opaque layout belongs to the reader's `scope`."""
        current = self._layouts[value]
        if same_storage(value, current, layout):
            return value
        if (
            (current.opaque or layout.opaque)
            and PLAIN not in (current, layout)
            and not same_storage(value, current, PLAIN)
        ):
            return self._in_layout(self._in_layout(value, PLAIN, scope), layout, scope)
        key = value, layout
        if key not in self._copies:
            self._seconds += self._copy_seconds(value, layout)
            with in_scope(scope if layout.opaque else value.node.scope):
                copy = self._copies[key] = Reorder(current, layout)(value)
            _, choice = self._choose_offer(copy.node, [value], [current])
            self._add([copy], [layout], choice, invariant=value.node in self._invariant)
        return self._copies[key]

    def _readable(self, value: Value) -> Value:
        """`value` in a layout that the caller of the program can read."""
        return value if self._layouts[value].opaque is None else self._in_layout(value, PLAIN, value.node.scope)

    def _copy_seconds(self, value: Value, layout: Layout) -> float:
        """Cost of a copy of a value, or 0 if the copy exists."""
        current = self._layouts[value]
        if same_storage(value, current, layout) or (value, layout) in self._copies or value.node in self._invariant:
            return 0.0
        return machine_model().call_seconds + transfer_seconds(current.nbytes(value.type) + layout.nbytes(value.type))

    def _decide(self, node: Node, operands: Sequence[Value]) -> tuple[LayoutSignature, KernelChoice | None]:
        """The layouts of a node, and its kernel if it needs one."""
        operand_layouts = [_without_opaque(self._layouts[value]) for value in operands]
        if node.op.traits.source:
            return LayoutSignature((), (self._input_layouts.get(node, PLAIN),)), None
        if node.op.traits.view:
            flat = PLAIN.with_dtype(operand_layouts[0].dtype)
            return LayoutSignature((flat, *(PLAIN for _ in operand_layouts[1:])), (flat,)), None
        chosen, choice = self._choose_offer(node, operands, operand_layouts)
        if node not in self._invariant:
            self._seconds += chosen.seconds
        return chosen.layouts, choice

    def _choose_offer(
        self, node: Node, operands: Sequence[Value], operand_layouts: Sequence[Layout]
    ) -> tuple[KernelOption, KernelChoice]:
        """The cheapest offer, and the resulting choice with the reasons against the other offers."""
        offers, declined = (
            self._kernel_offers.offers(node, operand_layouts),
            self._kernel_offers.candidates(node).rejected,
        )
        if len(offers) == 1:
            return offers[0], _kernel_choice(_CostedOffer(offers[0], 0.0), (), declined)
        offers = self._allowed(offers, operands)
        varied = len({offer.layouts.outputs for offer in offers}) > 1
        costed = [
            _CostedOffer(
                offer,
                sum(map(self._copy_seconds, operands, offer.layouts.inputs))
                + (self._reader_copy_seconds(node, offer.layouts) if varied else 0.0),
            )
            for offer in offers
        ]
        best = _cheapest(costed)
        if not node.op.traits.elementwise:
            met_requirements = self._requirements(best.offer, operands)
            for offer in offers:
                avoided = met_requirements - self._requirements(offer, operands)
                # If this kernel has no offer without its own layouts, they cannot be refused: another kernel's offer
                # was compared with their cost included.
                self._avoidable |= (
                    avoided if offer.kernel is best.offer.kernel else avoided - {_own_layout_requirement(best.offer)}
                )
        return best.offer, _kernel_choice(best, costed, declined)

    def _allowed(self, offers: list[KernelOption], operands: Sequence[Value]) -> list[KernelOption]:
        return [offer for offer in offers if self._refused.isdisjoint(self._requirements(offer, operands))] or offers

    def _requirements(self, offer: KernelOption, operands: Sequence[Value]) -> set[str]:
        """Requirements of an offer: axis orders other than plain, and own layouts of non-invariant operands."""
        signature = {
            layout.with_dtype(None)
            for layout in (*offer.layouts.inputs, *offer.layouts.outputs)
            if layout.opaque is None
        }
        needs_opaque = any(
            layout.opaque is not None and value.node not in self._invariant
            for value, layout in zip(operands, offer.layouts.inputs, strict=True)
        )
        return {*map(str, signature - {PLAIN}), *([_own_layout_requirement(offer)] if needs_opaque else [])}

    def _reader_copy_seconds(self, node: Node, signature: LayoutSignature) -> float:
        """Cost of the copies that direct readers of the node's results need."""
        return sum(
            machine_model().call_seconds + transfer_seconds(layout.nbytes(value.type) + required.nbytes(value.type))
            for value, layout in zip(node.outputs, signature.outputs, strict=True)
            for required in self._kernel_offers.reader_layouts(value, layout)
        )

    @cached_property
    def _input_layouts(self) -> dict[Node, Layout]:
        """The layout of each input, which is the one its first reader needs: inputs are copied to the device anyway.

        An input that needs a different order as well as fewer bits stays plain: a kernel does both faster.
        """
        layout_of: dict[Node, Layout] = {}
        kernel_offers = self._kernel_offers
        for node in kernel_offers.graph.nodes():
            if node.op.traits.source or node.op.traits.view or node.op.traits.elementwise:
                continue
            for index, value in enumerate(node.inputs):
                if isinstance(value.op, Input) and value.node not in layout_of:
                    offers = self._allowed(kernel_offers.offers(node, (PLAIN,) * len(node.inputs)), node.inputs)
                    preferred = _cheapest([_CostedOffer(offer, 0.0) for offer in offers]).offer.layouts.inputs[index]
                    layout_of[value.node] = _without_opaque(preferred).with_dtype(None)
        if kernel_offers.narrow is None:
            return layout_of
        flat = PLAIN.with_dtype(kernel_offers.narrow.dtype)
        rounded = {value.node: value.type for value in kernel_offers.narrow.values if isinstance(value.op, Input)}
        return layout_of | {
            node: flat if layout_of.get(node, PLAIN).is_plain(kind) else PLAIN for node, kind in rounded.items()
        }


def _own_layout_requirement(offer: KernelOption) -> str:
    """Name of the requirement that a kernel reads and writes its own (opaque) layouts."""
    return f"own layouts of {offer.kernel.label}"


def _cheapest(costed: Sequence[_CostedOffer]) -> _CostedOffer:
    """The first offer, unless another is clearly cheaper."""
    usual, best = costed[0], min(costed, key=lambda offer: offer.seconds)
    return best if best.seconds < MARGIN * usual.seconds else usual


def _kernel_choice(
    best: _CostedOffer, costed: Sequence[_CostedOffer], declined: Sequence[tuple[Kernel, str]]
) -> KernelChoice:
    """The choice, with reasons against kernels of higher rank, tuning variants and offers with other layouts."""
    chosen, rejected = best.offer, []
    for kernel, reason in declined:
        if kernel.rank > chosen.kernel.rank:
            rejected.append((kernel.label, reason))
    for candidate in costed:
        offer = candidate.offer
        lower = offer.kernel.rank <= chosen.kernel.rank
        if candidate is best or (offer.layouts == chosen.layouts and lower and not offer.was_measured):
            continue
        signature = "" if offer.layouts == chosen.layouts else f" on {', '.join(map(str, offer.layouts.inputs))}"
        verb = "lost the race" if offer.was_measured else "is rated slower"
        rejected.append((f"{offer.kernel.label}{signature}", f"{verb}: {candidate} to {best}"))
    return KernelChoice(chosen.kernel, tuple(rejected), chosen.seconds if chosen.was_measured else None)


def _without_opaque(layout: Layout) -> Layout:
    """The layout, or the plain one if it is opaque."""
    return PLAIN if layout.opaque is not None else layout
