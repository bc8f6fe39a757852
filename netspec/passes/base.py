"""`Pass`, the base of graph transformations, and `run_passes`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from netspec.graph.graph import Graph
from netspec.graph.verify import verify


class Pass:
    """A graph transformation that keeps the names and meanings of results and updates.

    A pass may rely on what the verifier checks and on the passes in `requires`, and decides by op traits.
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset()
    """Names of passes that must run before."""
    exact: ClassVar[bool] = True
    """Whether results of the reference kernels are bit-identical with and without the pass."""

    def run(self, graph: Graph) -> Graph:
        """The transformed graph."""
        raise NotImplementedError  # abstract


def run_passes(graph: Graph, passes: Iterable[Pass], *, check: bool = False) -> Graph:
    """Run the passes in order; with `check`, verify the graph after each."""
    finished: set[str] = set()
    for pass_ in passes:
        missing = pass_.requires - finished
        if missing:
            raise ValueError(f"pass {pass_.name} needs {', '.join(sorted(missing))} before it")
        graph = pass_.run(graph)
        if check:
            verify(graph)
        finished.add(pass_.name)
    return graph
