"""What workers do with states of which each has values of its own: go on from their mean."""

from __future__ import annotations

from netspec.parallel.base import Communicator
from netspec.parallel.strategies.base import Replica


def average(group: Communicator, replica: Replica, *roles: str) -> None:
    """Give the floats among the states with one of these roles the mean of all workers'."""
    for name in replica.names(*roles):
        array = replica.read(name)
        if array.dtype.kind == "f":
            group.all_reduce(array)
            array /= array.dtype.type(group.size)
            replica.write(name, array)
