"""The geometry that convolutions and poolings share, for any number of spatial axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from netspec.graph.op import Array, Xp
from netspec.graph.value import ShapeMismatch


@dataclass(frozen=True)
class Window:
    """A window that slides over the spatial axes: its size, stride, dilation, and the padding around the input."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(
        cls,
        spatial: tuple[int, ...],
        size: tuple[int, ...],
        strides: tuple[int, ...],
        padding: str | tuple[tuple[int, int], ...],
        dilation: tuple[int, ...] | None = None,
    ) -> Window:
        """Create the window for an input of `spatial` sizes, with padding resolved to sizes by Keras's rules.

        `same`: the output has ⌈size / stride⌉ elements; of an odd padding the larger half is at the end. `causal`: all
        padding is at the beginning, so that no output depends on later elements.
        """
        dilation = dilation or (1,) * len(size)
        if padding == "valid":
            pads: tuple[tuple[int, int], ...] = ((0, 0),) * len(size)
        elif padding == "same":
            pads = tuple(map(_same_pads, spatial, size, strides, dilation))
        elif padding == "causal":
            pads = tuple(((window - 1) * step, 0) for window, step in zip(size, dilation, strict=True))
        else:
            assert not isinstance(padding, str)
            pads = padding
        return cls(size, strides, pads, dilation)

    def out(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """Output sizes: ⌊(in + pads - reach) / stride⌋ + 1 per axis, where reach = (size - 1) · dilation + 1."""
        result = []
        for size, window, stride, (begin, end), dilation in zip(
            spatial, self.size, self.strides, self.pads, self.dilation, strict=True
        ):
            reach = (window - 1) * dilation + 1
            if size + begin + end < reach:
                raise ShapeMismatch(
                    f"the window is larger than the input: it spans {reach} elements",
                    expected=f"an input of {reach - begin - end} elements or more along each axis",
                    got=f"spatial sizes {list(spatial)}, window {list(self.size)}",
                    hint=_too_small_hint(spatial),
                )
            result.append((size + begin + end - reach) // stride + 1)
        return tuple(result)

    def ceil_mode(self, spatial: tuple[int, ...]) -> Window:
        """The window with more padding at the end, so that the last elements are in a window too (`ceil_mode`).

        The last window must begin inside the input, or inside the padding before it, as in PyTorch.
        """
        pads = tuple(map(_ceil_mode_pads, spatial, self.size, self.strides, self.pads, self.dilation))
        return replace(self, pads=pads)

    def always_inside(self) -> bool:
        """Whether each window contains an element of the input, not only padding."""
        axes = zip(self.size, self.pads, self.dilation, strict=True)
        return all(not any(pads) or (dilation == 1 and max(pads) < size) for size, pads, dilation in axes)

    def padded(self, xp: Xp, x: Array, value: float = 0.0) -> Array:
        """`x` (N, C, …), padded with `value` along its spatial axes."""
        if not any(map(any, self.pads)):
            return x
        return xp.pad(x, ((0, 0), (0, 0), *self.pads), constant_values=value)

    def views(self, xp: Xp, x: Array, out: tuple[int, ...]) -> Array:
        """Padded `x` (N, C, …) viewed as (N, C, size…, out…): one element for each position in the window. No copy."""
        steps = x.strides[2:]
        inner = tuple(step * dilation for step, dilation in zip(steps, self.dilation, strict=True))
        outer = tuple(step * stride for step, stride in zip(steps, self.strides, strict=True))
        return xp.lib.stride_tricks.as_strided(x, (*x.shape[:2], *self.size, *out), (*x.strides[:2], *inner, *outer))

    def offsets(self, out: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Yield each index within the window, and the slices of the padded input that this element reads."""
        for index in product(*map(range, self.size)):
            slices = []
            for axis_index, stride, dilation, count in zip(index, self.strides, self.dilation, out, strict=True):
                start = axis_index * dilation
                slices.append(slice(start, start + (count - 1) * stride + 1, stride))
            yield index, (slice(None), slice(None), *slices)

    def unpadded(self, x: Array) -> Array:
        """The inverse of `padded`."""
        inside = tuple(slice(begin, size - end) for (begin, end), size in zip(self.pads, x.shape[2:], strict=True))
        return x[(slice(None), slice(None), *inside)]

    def padded_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape (N, C, …) with the padding added."""
        spatial = (size + begin + end for size, (begin, end) in zip(shape[2:], self.pads, strict=True))
        return (*shape[:2], *spatial)


def _too_small_hint(spatial: tuple[int, ...]) -> str:
    if len(spatial) == 2 and spatial[-1] <= 4 < spatial[0]:  # 28 x 1 or 32 x 3: probably channels-last
        return "data is channels-first: the shape of an input is [channels, height, width]"
    return "use a smaller window, `padding: same`, or fewer poolings before this layer"


def _same_pads(size: int, window: int, stride: int, dilation: int) -> tuple[int, int]:
    reach = (window - 1) * dilation + 1
    total = max(0, (-(-size // stride) - 1) * stride + reach - size)
    return total // 2, total - total // 2


def _ceil_mode_pads(size: int, window: int, stride: int, pads: tuple[int, int], dilation: int) -> tuple[int, int]:
    begin, end = pads
    reach = (window - 1) * dilation + 1
    count = -(-(size + begin + end - reach) // stride) + 1
    if (count - 1) * stride >= size + begin:
        count -= 1
    return begin, max(end, (count - 1) * stride + reach - size - begin)
