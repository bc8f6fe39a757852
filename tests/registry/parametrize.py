"""Registry-wide tests as one test per class, which runs over the samples of the class.

A test per sample would be tens of thousands, and pytest spends more time on each than most of them take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from netspec.backends.op_call import OpCall
from netspec.tools.verification.cases import KINDS, SampleCase, SampleGraph, built, cases
from netspec.tools.verification.op_calls import calls
from tests.registry.op_classes import op_classes

Arguments = Callable[[SampleCase], Sequence[tuple[Any, ...]]]
"""The arguments of each call of a check, in addition to the case."""


def training_and_inference(case: SampleCase) -> Sequence[tuple[bool]]:
    """Arguments `training` of a check that runs in both forms."""
    return ((True,), (False,))


@cache
def different_forms(case: SampleCase) -> Sequence[tuple[bool]]:
    """Arguments `training` of a check that runs in both forms if their graphs differ, else only in training."""
    training, inference = (_structure(built(case, form)) for form in (True, False))
    return ((True,),) if training == inference else ((True,), (False,))


def _structure(net: SampleGraph) -> Any:
    """Return everything that results and derivatives depend on; graphs with equal structures compute the same."""
    graph = net.graph(order=0)
    nodes = graph.nodes()
    position = {value: (at, value.index) for at, node in enumerate(nodes) for value in node.outputs}
    computed = [(node.op, node.types, [position[value] for value in node.inputs]) for node in nodes]
    variables = [(name, position.get(value)) for name, value in net.wrt.items()]
    return computed, [*graph.outputs], [*graph.updates], [position[value] for value in graph.roots()], variables


def each_class(
    *kinds: str,
    arguments: Arguments = lambda case: ((),),
    costly: bool = False,
    others: pytest.MarkDecorator = pytest.mark.slow,
) -> Callable[[Callable[..., None]], Any]:
    """Turn a check of a case into a test per class, which calls it for every sample and all its `arguments`.

    If it is costly, one test calls it for the first sample, and a second test, marked `others`, for the remaining ones.
    """
    params = [
        param for kind in kinds for type_ in KINDS[kind].names() for param in _params(kind, type_, costly, others)
    ]

    def decorate(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize(("kind", "type_", "samples"), params)
        def test(kind: str, type_: str, samples: slice) -> None:
            runs = [(case.id, (case, *more)) for case in cases(kind, only=type_)[samples] for more in arguments(case)]
            run_all(check, runs)

        return named_like(check, test)

    return decorate


def _params(kind: str, type_: str, costly: bool, others: pytest.MarkDecorator) -> Iterator[Any]:
    """Yield a class with the samples of one test."""
    label = f"{kind}-{type_}"
    if not costly or len(KINDS[kind][type_].samples) <= 1:
        yield pytest.param(kind, type_, slice(None), id=label)
        return
    yield pytest.param(kind, type_, slice(0, 1), id=label)
    yield pytest.param(kind, type_, slice(1, None), id=f"{label}-others", marks=others)


def each_op(*, dtypes: Iterable[Any], applies: Callable[[OpCall], bool] = lambda _: True) -> Callable[..., Any]:
    """Turn a check of a call into a test per op, which calls it with every call of the op that it applies to."""

    def decorate(check: Callable[[OpCall], None]) -> Any:
        @pytest.mark.parametrize("op", op_classes(), ids=lambda op: op.__name__)
        def test(op: type[Any]) -> None:
            of_op = [each for dtype in dtypes for each in calls(dtype) if type(each.op) is op and applies(each)]
            run_all(check, [(each.name, (each,)) for each in of_op])

        return named_like(check, test)

    return decorate


def run_all(check: Callable[..., None], runs: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
    """Call a check with the arguments of each run; an error names its run and hides no other."""
    errors = []
    for label, arguments in runs:
        try:
            check(*arguments)
        except Exception as error:
            more = ", ".join(str(argument) for argument in arguments[1:])
            error.add_note(f"in {label}" + (f" with {more}" if more else ""))
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{len(errors)} samples", errors)


def named_like(check: Callable[..., None], test: Callable[..., None]) -> Callable[..., None]:
    """Give a test the name, the docstring and the module of the check that it runs."""
    test.__name__, test.__qualname__ = check.__name__, check.__qualname__
    test.__doc__, test.__module__ = check.__doc__, check.__module__
    return test
