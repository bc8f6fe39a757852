"""Execution of thunks in order: the number of threads of each, and report and cleanup after a failure."""

from __future__ import annotations

import pytest

from netspec.backends.executor import CallSequence
from netspec.errors import RunError
from netspec.graph.kernel import Thunk
from netspec.graph.ops.source import Input
from netspec.graph.ops.unary import Relu
from netspec.graph.value import Node, Scope, in_scope
from tests.passes.graphs import typed


class Pool:
    """A thread pool that records its number of threads at each call, and counts how often the number is set."""

    def __init__(self) -> None:
        self.count, self.changes, self.seen = 4, 0, list[int]()

    def set_threads(self, count: int) -> None:
        self.count, self.changes = count, self.changes + 1

    def look(self) -> None:
        self.seen.append(self.count)

    def calls(self, *threads: int | None) -> CallSequence:
        result = CallSequence(self.set_threads, self.count)
        for thread in threads:
            result.add(lambda: self.look(), node(), thread)
        return result


def node() -> Node:
    with in_scope(Scope("relu", "Activation")):
        return Relu()(Input("x", typed((2,)))()).node


def test_the_number_of_threads_changes_only_sums_of_neighbors() -> None:
    pool = Pool()
    result = pool.calls(4, None, 1, None, 1, 4, 1)
    for _ in range(2):
        result.run()
        assert pool.count == 4
    assert pool.seen == [4, 4, 1, 1, 1, 4, 1] * 2
    assert pool.changes == 2 * 4  # to 1, to 4, to 1, and back


def test_no_remark_without_effect() -> None:
    pool = Pool()
    pool.calls(4, None, 4).run()
    assert pool.changes == 0


def test_serial_runs_agree() -> None:
    pool = Pool()
    result = pool.calls(1, 4, None)
    timed = list(result.timed_calls())
    assert pool.seen == [1, 4, 4]
    assert [node.op.name for node, seconds in timed if node and seconds > 0] == ["Relu"] * 3
    for _ in result.timed_calls():
        break
    assert (pool.seen, pool.count) == ([1, 4, 4, 1], 4)


def test_a_failure_names_the_layer_and_leaves_the_threads_as_they_were() -> None:
    pool = Pool()
    result = pool.calls(1)

    def fail() -> None:
        raise IndexError("too far")

    result.add(fail, node(), 1)
    with pytest.raises(RunError, match="layer `relu` \\(Activation\\): Relu failed: too far"):
        result.run()
    assert pool.count == 4


def test_wrapped_thunks_run_in_place_of_theirs() -> None:
    pool, called = Pool(), list[Node | None]()
    result = pool.calls(4, 1, 4)

    def wrapper(node: Node | None, thunk: Thunk) -> Thunk:
        def wrapped() -> None:
            called.append(node)
            thunk()

        return wrapped

    result.wrap(wrapper)
    result.run()
    assert pool.seen == [4, 1, 4], "the numbers of threads are still set in between"
    ran = called.copy()
    assert len(set(ran)) == 3
    assert [node for node, _ in result.timed_calls()] == ran


def test_a_failure_of_a_wrapped_thunk_names_its_layer() -> None:
    result = CallSequence(lambda count: None, 1)

    def fail() -> None:
        raise IndexError("too far")

    result.add(fail, node())
    result.wrap(lambda node, thunk: lambda: thunk())
    with pytest.raises(RunError, match="relu"):
        result.run()
