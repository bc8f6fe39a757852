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
    """Products of elements of all operands, summed over the letters that are not in `output`.

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
        sizes: dict[str, int] = {}
        for letters, x in zip(self.terms, xs, strict=True):
            self.check(len(letters) == x.rank, f"`{letters}` does not name the axes of an operand", got=x.describe())
            for letter, size in zip(letters, x.shape, strict=True):
                first_size = sizes.get(letter, 1)
                self.check(
                    1 in (size, first_size) or size == first_size,
                    f"axes named `{letter}` have different sizes",
                    expected=f"{first_size}, as in another input, or 1",
                    got=f"{size} in {x.describe()}",
                )
                sizes[letter] = max(size, first_size)
        return sizes

    def infer(self, *xs: TensorType) -> TensorType:
        self.check(len(xs) == len(self.terms), f"`{self.equation}` does not have {len(xs)} operands")
        self.check(len({x.dtype for x in xs}) == 1, "Einsum of different element types", expected="one element type")
        sizes = self.sizes(xs)
        self.check(
            len(set(self.output)) == len(self.output) and set(self.output) <= sizes.keys(),
            f"`{self.equation}` has a letter in its output that is repeated or not in an operand",
        )
        return xs[0].with_shape(*(sizes[letter] for letter in self.output))

    def forward(self, xp: Xp, *xs: Array) -> Array:
        return xp.einsum(self.equation, *xs).astype(xs[0].dtype)

    def decompose(self, *xs: Value) -> Value:
        """Multiply one operand after another, and sum each product over the letters that no later one reads."""
        factors = [_take_diagonal(_Term(letters, x)) for letters, x in zip(self.terms, xs, strict=True)]
        while len(factors) > 1:
            needed_later = {letter for factor in factors[2:] for letter in factor.letters} | set(self.output)
            factors = [_product(factors[0], factors[1], needed_later), *factors[2:]]
        (last,) = factors
        return _permute(_sum_letters(last, set(self.output)), self.output).x

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


def _take_diagonal(term: _Term) -> _Term:
    """Each letter once: axes that share a letter are replaced by their diagonal."""
    for letter in dict.fromkeys(term.letters):
        while term.letters.count(letter) > 1:
            first, second = [axis for axis, axis_letter in enumerate(term.letters) if axis_letter == letter][:2]
            rank, size = len(term.letters), term.x.shape[first]
            other_axes = [axis for axis in range(rank) if axis not in (first, second)]
            pair_adjacent = Transpose((*other_axes[:first], first, second, *other_axes[first:]))(term.x)
            shape = (*term.x.shape[:first], size * size, *(term.x.shape[axis] for axis in other_axes[first:]))
            diagonal = Take(first, tuple(range(0, size * size, size + 1)))(reshape_to(pair_adjacent, shape))
            term = _Term(term.letters[:second] + term.letters[second + 1 :], diagonal)
    return term


def _sum_letters(term: _Term, keep: set[str]) -> _Term:
    """Sum over the letters that are not in `keep`."""
    summed_axes = tuple(axis for axis, letter in enumerate(term.letters) if letter not in keep)
    letters = "".join(letter for letter in term.letters if letter in keep)
    return _Term(letters, ReduceSum(summed_axes)(term.x)) if summed_axes else term


def _permute(term: _Term, letters: str) -> _Term:
    order = tuple(term.letters.index(letter) for letter in letters)
    return _Term(letters, term.x if order == tuple(range(len(order))) else Transpose(order)(term.x))


def _drop_broadcast_axes(term: _Term, other: _Term) -> _Term:
    """Drop axes of size 1 that are larger in the other operand: they broadcast."""
    ones = [
        letter for letter in term.letters if letter in other.letters and term.size(letter) == 1 < other.size(letter)
    ]
    letters = "".join(letter for letter in term.letters if letter not in ones)
    return _Term(letters, reshape_to(term.x, tuple(map(term.size, letters)))) if ones else term


def _product(a: _Term, b: _Term, needed_later: set[str]) -> _Term:
    """A matrix product, batched over the letters that both operands and the result have."""
    a, b = _drop_broadcast_axes(a, b), _drop_broadcast_axes(b, a)
    a, b = _sum_letters(a, {*needed_later, *b.letters}), _sum_letters(b, {*needed_later, *a.letters})
    shared = [letter for letter in a.letters if letter in b.letters]
    batch = "".join(letter for letter in shared if letter in needed_later)
    inner = "".join(letter for letter in shared if letter not in needed_later)
    rows, columns = ("".join(letter for letter in x.letters if letter not in shared) for x in (a, b))
    lead = tuple(map(a.size, batch))
    left, right = _permute(a, batch + rows + inner).x, _permute(b, batch + inner + columns).x
    if not inner:  # nothing is summed: an outer product
        shapes = [
            (*lead, *map(a.size, rows), *(1 for _ in columns)),
            (*lead, *(1 for _ in rows), *map(b.size, columns)),
        ]
        outer = reduce(lambda x, y: x * y, map(reshape_to, (left, right), shapes))
        return _Term(batch + rows + columns, outer)
    left = reshape_to(left, (*lead, a.size(rows), a.size(inner)))
    right = reshape_to(right, (*lead, b.size(inner), b.size(columns)))
    shape = (*lead, *map(a.size, rows), *map(b.size, columns))
    return _Term(batch + rows + columns, reshape_to(MatMul()(left, right), shape))
