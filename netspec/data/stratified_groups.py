"""Assignment of groups of samples to parts, so that all parts have the same proportions of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netspec.data.base import Array

RANGES = 10
"""Number of ranges that take the place of numbers that hardly recur, such as prices."""
RECURRING = 5
"""Mean number of samples of a value from which on each number is a class of its own."""


def assign_groups(shares: Sequence[float], group_of: Array, order: Array, values: Array) -> Array:
    """Return the index of the share to which each group belongs, (G,).

    `group_of`: index of each sample's group, (N,). `order`: a random order of the groups, (G,). `values`: the classes
    of the samples, (N,), or numbers.

    Groups are assigned one by one: first those with large shares of the samples of a class, similar ones in `order`.
    Each goes where it reduces the sum of (count - expected count)² / expected count over the classes most.
    """
    classes = _classes(values)
    # A further class of all samples preserves the sizes of the parts.
    classes, groups = np.append(classes, np.full(len(classes), classes.max() + 1)), np.tile(group_of, 2)
    totals = np.bincount(classes)
    pairs, counts = np.unique(groups * len(totals) + classes, return_counts=True)
    group_of_pair, class_of_pair = np.divmod(pairs, len(totals))
    bounds = np.searchsorted(group_of_pair, np.arange(len(order) + 1))
    # Powers of two, so that the order of most groups is random.
    magnitudes = np.frexp(np.bincount(group_of_pair, counts / totals[class_of_pair]))[1]
    expected = np.outer(shares, totals)
    excess, chosen = -expected, np.zeros(len(order), np.intp)
    for group in order[np.argsort(-magnitudes[order], kind="stable")]:
        own = slice(bounds[group], bounds[group + 1])
        in_group, added = class_of_pair[own], counts[own]
        changes = added * (2 * excess[:, in_group] + added) / expected[:, in_group]
        chosen[group] = changes.sum(1).round(9).argmin()  # rounded, so that all processors choose alike
        excess[chosen[group], in_group] += added
    return chosen


def _classes(values: Array) -> Array:
    """Return the index of each value among the distinct ones; of numbers that hardly recur, the index of a range."""
    distinct, indices, counts = np.unique(values, return_inverse=True, return_counts=True)
    if distinct.dtype.kind not in "iuf" or RECURRING * len(distinct) <= len(values):
        return indices
    ranges = (np.cumsum(counts) - counts) * RANGES // len(values)
    range_of: Array = np.unique(ranges[indices], return_inverse=True)[1]
    return range_of
