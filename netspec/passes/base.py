"""`Pass` and the function that runs a sequence of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from netspec.graph.graph import Graph
from netspec.graph.verify import verify


class Pass:
    """One rewriting of the graph that keeps what it computes."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    """Names of passes that must have run before."""
    exact: ClassVar[bool] = True
    """True if results stay bitwise the same."""

    def run(self, graph: Graph) -> Graph:
        """The rewritten graph."""
        raise NotImplementedError


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
