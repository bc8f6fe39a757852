"""What a net file expects of its net, found out without data."""

from __future__ import annotations

from collections.abc import Iterator

from netspec.compile import Built, build
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.graph.graph import topological
from netspec.graph.types import DType
from netspec.schema.expect import NetExpectation
from netspec.schema.net import NetSpec


def check_net(net: NetSpec, dtype: DType) -> None:
    """Compare a net with what it says under `expect`. Raises `InputError` with all that is otherwise."""
    if net.expect is None:
        return
    built = build(net, 1, training=False, dtype=dtype, judged=False)
    problems = list(_problems(net.expect, built))
    if problems:
        raise InputError(problems)


def _problems(expect: NetExpectation, built: Built) -> Iterator[Problem]:
    for name, shape in expect.outputs.items():
        path = f"expect.outputs.{name}"
        if name not in built.values:
            known = list(built.values)
            yield Problem(f"`{name}` is no output of a layer", expect.where("outputs", name, key=True), path,
                          expected=f"one of {listing(known)}", hint=did_you_mean(name, known))  # fmt: skip
        elif built.values[name].shape[1:] != shape:
            got = str(list(built.values[name].shape[1:]))
            place = expect.where("outputs", name)
            yield Problem(f"the output of `{name}` has another shape", place, path, expected=str(list(shape)), got=got)
    states = [info.value.type.size for info in built.builder.states.values() if info.role == "parameter"]
    if expect.parameters is not None and sum(states) != expect.parameters:
        yield Problem("the net has another number of parameters", expect.where("parameters"), "expect.parameters",
                      expected=f"{expect.parameters:,}", got=f"{sum(states):,}")  # fmt: skip
    flops = _flops(built)
    if expect.max_flops is not None and flops > expect.max_flops:
        yield Problem("the net needs more operations for a sample", expect.where("max_flops"), "expect.max_flops",
                      expected=f"at most {expect.max_flops:,.0f}", got=f"{flops:,}")  # fmt: skip


def _flops(built: Built) -> int:
    """Operations that the outputs take, in the forward direction."""
    nodes = [node for node in topological(built.outputs.values()) if not node.op.traits.source]
    return sum(node.op.flops(*(value.type for value in node.inputs)) for node in nodes if not node.op.traits.view)
