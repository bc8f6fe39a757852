"""Einsum: products of several inputs, summed over any axes, as an equation says."""

from __future__ import annotations

import re
from string import ascii_letters
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from netspec.graph.ops import contraction
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import describe, problem

_TERM = r"[a-zA-Z]*(?:\.\.\.)?[a-zA-Z]*"
_FORM = re.compile(rf"{_TERM}(?:,{_TERM})*->{_TERM}")


def _equation(value: Any) -> Any:
    text = value.replace(" ", "") if isinstance(value, str) else ""
    if not _FORM.fullmatch(text):
        expected = "letters for the axes of each input and of the output, such as `bij,bjk->bik`"
        raise problem("not an equation", expected=expected, got=describe(value))
    inputs, _, output = text.partition("->")
    terms, letters = inputs.split(","), output.replace(".", "")
    for term in (*terms, output):
        if not term or term[0] == "." or term[0] != output[0]:
            raise problem(
                "the first axis of all is the batch",
                expected="one letter that all begin with, as the `b` of `bij,bjk->bik`",
                got=repr(value),
            )
    if len(set(letters)) < len(letters) or not set(letters) <= set(inputs):
        raise problem("the output has other axes than the inputs, or one twice", expected="each once", got=repr(value))
    if letters[0] in "".join(term[1:] for term in (*terms, output)):
        raise problem("the batch is one axis", expected=f"`{letters[0]}` once for each input", got=repr(value))
    if "..." in output and not any("..." in term for term in terms):
        raise problem("nothing says what the dots of the output are", expected="dots in an input", got=repr(value))
    return text


Equation = Annotated[str, AfterValidator(_equation)]
"""As NumPy's einsum has it, with the output said."""


@LAYERS.register
class Einsum(LayerSpec):
    """Multiply inputs and sum over axes, as an equation in letters says: `bij,bjk->bik` is a matrix product.

    A letter for each axis of each input, the batch first, then those of the output; what it has not is summed over. A
    letter that stands twice for one input is its diagonal; `...` are all axes that are not named, which broadcast.
    (A product with learned numbers is EinsumDense.)
    """

    type: Literal["Einsum"] = "Einsum"
    equation: Equation
    """the axes of the inputs and of the output"""

    samples: ClassVar = (
        Sample.of((2, 3, 4), (2, 4, 5), equation="bij,bjk->bik"),
        Sample.of((2, 3, 4), equation="bij -> bji"),
        Sample.of((2, 3, 4), (2, 4), (2, 3), equation="bij,bj,bi->bj"),
        Sample.of((2, 3, 3, 2), equation="biij->bij"),
        Sample.of((2, 2, 3, 4), (2, 1, 4, 5), equation="b...ij,b...jk->b...ki"),
        Sample.of((2, 3), (2, 4), equation="bi,bj->bij"),
        Sample.of((2, 3), (2, 3), equation="bi,bi->b"),
    )

    def build(self, net: Builder, first: Value, *others: Value) -> Value:
        """Inputs: (N, …) → (N, …)."""
        inputs, _, output = self.equation.partition("->")
        terms, values = inputs.split(","), net.common([first, *others])
        need(
            len(terms) == len(values), "the equation is of another number of inputs",
            expected=f"{len(terms)} inputs", got=len(values),
        )  # fmt: skip
        hidden = [_hidden(term, x.type) for term, x in zip(terms, values, strict=True)]
        spare = [letter for letter in ascii_letters if letter not in self.equation]
        most = max(hidden)
        need(most <= len(spare), "there are more axes than letters", expected=f"up to {len(ascii_letters)}", got=most)
        dots = "".join(spare[:most])  # counted from the last, as sizes broadcast
        named = [term.replace("...", dots[most - count :]) for term, count in zip(terms, hidden, strict=True)]
        return contraction.Einsum(tuple(named), output.replace("...", dots))(*values)


def _hidden(term: str, x: TensorType) -> int:
    """How many axes of an input the dots of its term stand for."""
    named = len(term.replace(".", ""))
    fits = x.rank >= named if "." in term else x.rank == named
    need(fits, f"`{term}` does not name the axes of an input", expected=f"{named} axes", got=x)
    return x.rank - named
