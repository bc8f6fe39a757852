"""Einsum: EinsumDense where an operand is a constant matrix of floats, else the layer of the same name."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("Einsum")
def einsum(net: Translator, node: Node) -> None:
    """In batches the first letter of all operands is the batch; a whole model gets a letter more for it."""
    terms, output = _spelled(net, node, *_equation(node))
    if not net.whole and _dense(net, node, terms, output):
        return
    if net.whole:
        letter = next((one for one in ascii_letters if one not in "".join((*terms, output))), None)
        if letter is None:
            raise Unsupported("it has all letters")
        terms, output = [letter + term for term in terms], letter + output
    elif len({term[:1] for term in (*terms, output)}) != 1 or output[:1] in ("", "."):
        raise Mixed("it sums over the samples of a batch")
    net.add(node, "Einsum", node.inputs, {"equation": f"{','.join(terms)}->{output}"})


def _equation(node: Node) -> tuple[list[str], str]:
    """The letters of each operand, and of the result: if it is not said, those that stand once, in order."""
    given = node.attributes["equation"]
    text = (given if isinstance(given, str) else given.decode()).replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace(",", "").replace(".", "")
        once = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
        output = ("..." if "..." in inputs else "") + once
    return terms, output


def _spelled(net: Translator, node: Node, terms: list[str], output: str) -> tuple[list[str], str]:
    """The equation with letters for what dots stand for, counted from the last: sizes broadcast there."""
    if "..." not in "".join(terms) or len(terms) != len(node.inputs):
        return terms, output
    ranks = list(map(net.rank, node.inputs))
    hidden = [rank - len(term.replace(".", "")) for rank, term in zip(ranks, terms, strict=True)]
    spare = [one for one in ascii_letters if one not in "".join((*terms, output))]
    if not 0 <= min(hidden) <= max(hidden) <= len(spare):
        return terms, output
    dots = "".join(spare[: max(hidden)])
    spelled = [term.replace("...", dots[len(dots) - count :]) for term, count in zip(terms, hidden, strict=True)]
    return spelled, output.replace("...", dots)


def _dense(net: Translator, node: Node, terms: list[str], output: str) -> bool:
    """Two operands of which one is constant, as a layer with a kernel; False where it cannot be that."""
    constants = [name for name in node.inputs if not net.is_computed(name)]
    if len(terms) != 2 or len(constants) != 1:
        return False
    place = node.inputs.index(constants[0])
    kernel, (x, letters) = net.constants[constants[0]], (terms[1 - place], terms[place])
    shape = net.shape(node.inputs[1 - place])
    fits = kernel.dtype.kind == "f" and kernel.ndim == len(letters) and len(shape) == len(x)
    alone = set(letters) <= {*x, *output} and len(set(letters)) == len(letters) and len(set(x)) == len(x)
    if not letters or not fits or not alone or x[:1] != output[:1] or x[0] in letters:
        return False
    own, sizes = dict(zip(letters, kernel.shape, strict=True)), dict(zip(x, shape, strict=True))
    if any(sizes.setdefault(letter, size) != size for letter, size in own.items()):  # one broadcasts
        return False
    fields: dict[str, Any] = {
        "equation": f"{x},{letters}->{output}",
        "output_shape": [sizes[letter] for letter in output[1:]],
    }
    net.add(node, "EinsumDense", [node.inputs[1 - place]], fields, {"kernel": kernel})
    return True
