"""Einsum: EinsumDense if an operand is a constant matrix of floats, else the layer of the same name."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature


@rule("Einsum")
def einsum(ctx: LiftContext, node: OperatorNode) -> None:
    """Import Einsum: all operands must begin with the letter of the batch, which is added for a single sample."""
    terms, output = _spelled(ctx, node, *_equation(node))
    if not ctx.tensors.single_sample and _dense(ctx, node, terms, output):
        return
    if ctx.tensors.single_sample:
        letter = next((letter for letter in ascii_letters if letter not in "".join((*terms, output))), None)
        if letter is None:
            raise UnsupportedFeature("the equation uses all 52 letters, and one more is needed for the batch axis")
        terms, output = [letter + term for term in terms], letter + output
    elif len({term[:1] for term in (*terms, output)}) != 1 or output[:1] in ("", "."):
        raise MixesSamples("the batch axis is not the first axis of every operand and of the result")
    ctx.layers.add(node, "Einsum", node.inputs, {"equation": f"{','.join(terms)}->{output}"})


def _equation(node: OperatorNode) -> tuple[list[str], str]:
    """The letters of each operand and of the result; by default the result has the letters that occur once, sorted."""
    equation = node.attributes["equation"]
    text = (equation if isinstance(equation, str) else equation.decode()).replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace(",", "").replace(".", "")
        once = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
        output = ("..." if "..." in inputs else "") + once
    return terms, output


def _spelled(ctx: LiftContext, node: OperatorNode, terms: list[str], output: str) -> tuple[list[str], str]:
    """The equation with letters in place of `...`: the last of these axes broadcast with each other, as in NumPy."""
    if "..." not in "".join(terms) or len(terms) != len(node.inputs):
        return terms, output
    ranks = list(map(ctx.tensors.rank, node.inputs))
    hidden = [rank - len(term.replace(".", "")) for rank, term in zip(ranks, terms, strict=True)]
    spare = [letter for letter in ascii_letters if letter not in "".join((*terms, output))]
    if not 0 <= min(hidden) <= max(hidden) <= len(spare):
        return terms, output
    dots = "".join(spare[: max(hidden)])
    spelled = [term.replace("...", dots[len(dots) - count :]) for term, count in zip(terms, hidden, strict=True)]
    return spelled, output.replace("...", dots)


def _dense(ctx: LiftContext, node: OperatorNode, terms: list[str], output: str) -> bool:
    """Lift two operands, one of them constant, to a layer with a kernel. False if that is not possible."""
    constants = [name for name in node.inputs if not ctx.tensors.is_computed(name)]
    if len(terms) != 2 or len(constants) != 1:
        return False
    index = node.inputs.index(constants[0])
    kernel, (x, letters) = ctx.tensors.constants[constants[0]], (terms[1 - index], terms[index])
    shape = ctx.tensors.shape(node.inputs[1 - index])
    fits = kernel.dtype.kind == "f" and kernel.ndim == len(letters) and len(shape) == len(x)
    alone = set(letters) <= {*x, *output} and len(set(letters)) == len(letters) and len(set(x)) == len(x)
    if not letters or not fits or not alone or x[:1] != output[:1] or x[0] in letters:
        return False
    kernel_sizes, sizes = dict(zip(letters, kernel.shape, strict=True)), dict(zip(x, shape, strict=True))
    if any(sizes.setdefault(letter, size) != size for letter, size in kernel_sizes.items()):  # sizes broadcast
        return False
    fields: dict[str, Any] = {
        "equation": f"{x},{letters}->{output}",
        "output_shape": [sizes[letter] for letter in output[1:]],
    }
    ctx.layers.add(node, "EinsumDense", [node.inputs[1 - index]], fields, {"kernel": kernel})
    return True
