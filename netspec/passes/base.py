"""`Pass` and the function that runs a sequence of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from netspec.graph.graph import Graph
from netspec.graph.verify import verify


class Pass:
    """One rewriting of the graph. It keeps the names of results and updates, and what they are.

    A pass may rely on nothing but what the verifier checks and what the passes in `needs` leave behind. It decides by
    the traits of ops.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    """Names of passes that must have run before."""
    exact: ClassVar[bool] = True
    """True if every result is bitwise the same as without the pass, where the reference kernels compute it."""

    def run(self, graph: Graph) -> Graph:
        """The rewritten graph."""
        raise NotImplementedError  # abstract: subclasses say


def run_passes(graph: Graph, passes: Iterable[Pass], *, check: bool = False) -> Graph:
    """Run the passes in order; with `check`, the verifier runs after each."""
    done: set[str] = set()
    for one in passes:
        missing = one.needs - done
        if missing:
            raise ValueError(f"pass {one.name} needs {', '.join(sorted(missing))} before it")
        graph = one.run(graph)
        if check:
            verify(graph)
        done.add(one.name)
    return graph
