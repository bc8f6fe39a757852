"""Einstein summation: sums of products of operands, given by an equation of letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from netspec.graph.onnx_map import OnnxExpansion
from netspec.graph.op import Array, Op, Traits, Xp
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.ops.shape import Take, Transpose
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Einsum(Op):
    """Products of elements of all operands, summed over the letters that `output` does not have.

    A letter that occurs twice in one operand selects its diagonal. Axes with the same letter have equal sizes, or size
    1.
    """

    terms: tuple[str, ...]
    output: str
    traits = Traits(is_contraction=True)
    onnx = OnnxExpansion(lambda g, y, *xs: g.node("Einsum", *xs, equation=y.op.equation))

    @property
    def equation(self) -> str:
        """The equation as NumPy and ONNX write it: `ij,jk->ik`."""
        return f"{','.join(self.terms)}->{self.output}"

    def sizes(self, xs: Sequence[TensorType]) -> dict[str, int]:
        """Size of the axes of each letter."""
        found: dict[str, int] = {}
        for letters, x in zip(self.terms, xs, strict=True):
            self.check(len(letters) == x.rank, f"`{letters}` does not name the axes of an operand", got=x)
            for letter, size in zip(letters, x.shape, strict=True):
                known = found.get(letter, 1)
                self.check(
                    1 in (size, known) or size == known,
                    f"the axes called `{letter}` differ",
                    expected=f"{known}, as before, or 1",
                    got=x,
                )
                found[letter] = max(size, known)
        return found

    def infer(self, *xs: TensorType) -> TensorType:
        self.check(len(xs) == len(self.terms), f"`{self.equation}` is not of {len(xs)} operands")
        self.check(len({x.dtype for x in xs}) == 1, "Einsum of different element types", expected="one element type")
        sizes = self.sizes(xs)
        self.check(
            len(set(self.output)) == len(self.output) and set(self.output) <= sizes.keys(),
            f"`{self.equation}` makes no axes of `{self.output}`",
        )
        return xs[0].with_shape(*(sizes[letter] for letter in self.output))

    def forward(self, xp: Xp, *xs: Array) -> Array:
        return xp.einsum(self.equation, *xs).astype(xs[0].dtype)

    def decompose(self, *xs: Value) -> Value:
        """One product after another, each summed over letters that no later one reads."""
        parts = [_take_diagonal(_Term(letters, x)) for letters, x in zip(self.terms, xs, strict=True)]
        while len(parts) > 1:
            later = {letter for part in parts[2:] for letter in part.letters} | set(self.output)
            parts = [_product(parts[0], parts[1], later), *parts[2:]]
        (one,) = parts
        return _permute(_sum_letters(one, set(self.output)), self.output).x

    def simplify(self, *xs: Value) -> Value:
        return self.decompose(*xs)

    def flops(self, *xs: TensorType) -> int:
        return 2 * prod(self.sizes(xs).values())


@dataclass(frozen=True)
class _Term:
    """A value and the letters of its axes."""

    letters: str
    x: Value

    def size(self, letters: str) -> int:
        return prod(self.x.shape[self.letters.index(letter)] for letter in letters)


def _take_diagonal(part: _Term) -> _Term:
    """Each letter once: axes that share a letter are replaced by their diagonal."""
    for letter in dict.fromkeys(part.letters):
        while part.letters.count(letter) > 1:
            first, second = [place for place, other in enumerate(part.letters) if other == letter][:2]
            rank, size = len(part.letters), part.x.shape[first]
            rest = [place for place in range(rank) if place not in (first, second)]
            turned = Transpose((*rest[:first], first, second, *rest[first:]))(part.x)
            shape = (*part.x.shape[:first], size * size, *(part.x.shape[place] for place in rest[first:]))
            taken = Take(first, tuple(range(0, size * size, size + 1)))(reshape_to(turned, shape))
            part = _Term(part.letters[:second] + part.letters[second + 1 :], taken)
    return part


def _sum_letters(part: _Term, kept: set[str]) -> _Term:
    """Sum over the letters that are not needed any more."""
    over = tuple(place for place, letter in enumerate(part.letters) if letter not in kept)
    letters = "".join(letter for letter in part.letters if letter in kept)
    return _Term(letters, ReduceSum(over)(part.x)) if over else part


def _permute(part: _Term, letters: str) -> _Term:
    order = tuple(part.letters.index(letter) for letter in letters)
    return _Term(letters, part.x if order == tuple(range(len(order))) else Transpose(order)(part.x))


def _drop_broadcast_axes(part: _Term, other: _Term) -> _Term:
    """Drop axes of size 1 that are larger in the other operand: they broadcast."""
    ones = [
        letter for letter in part.letters if letter in other.letters and part.size(letter) == 1 < other.size(letter)
    ]
    letters = "".join(letter for letter in part.letters if letter not in ones)
    return _Term(letters, reshape_to(part.x, tuple(map(part.size, letters)))) if ones else part


def _product(a: _Term, b: _Term, later: set[str]) -> _Term:
    """A matrix product, batched over the letters that both operands and the result have."""
    a, b = _drop_broadcast_axes(a, b), _drop_broadcast_axes(b, a)
    a, b = _sum_letters(a, {*later, *b.letters}), _sum_letters(b, {*later, *a.letters})
    both = [letter for letter in a.letters if letter in b.letters]
    each, inner = ("".join(one for one in both if (one in later) is stays) for stays in (True, False))
    rows, columns = ("".join(one for one in x.letters if one not in both) for x in (a, b))
    lead = tuple(map(a.size, each))
    left, right = _permute(a, each + rows + inner).x, _permute(b, each + inner + columns).x
    if not inner:  # nothing is summed: an outer product
        shapes = [
            (*lead, *map(a.size, rows), *(1 for _ in columns)),
            (*lead, *(1 for _ in rows), *map(b.size, columns)),
        ]
        made = reduce(lambda x, y: x * y, map(reshape_to, (left, right), shapes))
        return _Term(each + rows + columns, made)
    left = reshape_to(left, (*lead, a.size(rows), a.size(inner)))
    right = reshape_to(right, (*lead, b.size(inner), b.size(columns)))
    shape = (*lead, *map(a.size, rows), *map(b.size, columns))
    return _Term(each + rows + columns, reshape_to(MatMul()(left, right), shape))
