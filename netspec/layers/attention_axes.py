"""Attention over some axes of images and volumes: as over sequences, of which each place of the other axes has one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.value import Value
from netspec.layers.checks import Axes, need, sample_axis


@dataclass(frozen=True)
class Folding:
    """Which axes of a query are attended over, `axes`, and which are as samples are, `others`."""

    axes: tuple[int, ...]
    others: tuple[int, ...]

    @classmethod
    def of(cls, query: Value, axes: Axes | None) -> Folding:
        """The axes that a field names, or all but those of the batch and the features."""
        middle = range(1, len(query.shape) - 1)
        chosen = tuple(sorted(sample_axis(query, axis, "to attend over") for axis in axes)) if axes else tuple(middle)
        fits = bool(chosen) and len(set(chosen)) == len(chosen) and set(chosen) <= set(middle)
        need(fits, "these are no axes to attend over", expected="different axes other than that of the features",
             got=list(axes or ()))  # fmt: skip
        return cls(chosen, tuple(axis for axis in middle if axis not in chosen))

    def folded(self, query: Value, x: Value) -> Value:
        """x, the query, a value or a key: (N, …, features) → (N · others, places, features)."""
        rank, kept = len(query.shape), (0, *self.others)
        need(
            len(x.shape) == rank and all(x.shape[axis] == query.shape[axis] for axis in kept),
            "the inputs differ in axes that are not attended over",
            expected=f"{rank} axes, and the sizes of the query besides axes {list(self.axes)}: {query.type}",
            got=x.type,
        )  # fmt: skip
        order = (0, *self.others, *self.axes, len(x.shape) - 1)
        turned = x if order == tuple(range(len(order))) else Transpose(order)(x)
        places = prod(x.shape[axis] for axis in self.axes)
        return reshape_to(turned, (turned.type.size // (places * x.shape[-1]), places, x.shape[-1]))

    def mask(self, query: Value, key: Value, mask: Value) -> Value:
        """A mask (N, others…, the query's places…, the key's places…) → (N · others, places, places)."""
        places = [tuple(x.shape[axis] for axis in self.axes) for x in (query, key)]
        samples = tuple(query.shape[axis] for axis in (0, *self.others))
        wanted = (*samples, *places[0], *places[1])
        need(mask.shape == wanted, "the mask does not say for each place where it may look",
             expected=f"(batch, {', '.join(map(str, wanted[1:]))})", got=mask.type)  # fmt: skip
        return reshape_to(mask, (prod(samples), prod(places[0]), prod(places[1])))

    def unfolded(self, query: Value, y: Value) -> Value:
        """y: (N · others, places, outputs) → as the query, with other features."""
        order = (0, *self.others, *self.axes, len(query.shape) - 1)
        sizes = tuple(query.shape[axis] for axis in order[:-1])
        back = tuple(sorted(range(len(order)), key=order.__getitem__))
        turned = reshape_to(y, (*sizes, y.shape[-1]))
        return turned if back == tuple(range(len(order))) else Transpose(back)(turned)
