"""Marks all samples of a class but the first as slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from netspec.tools.verification.cases import SampleCase


def first_is_fast(cases: Iterable[SampleCase]) -> list[Any]:
    """Parameters of a costly test of samples: all but the first sample of each class are slow."""
    import pytest  # this module does not exist where results of other programs are recorded

    classes = set[tuple[str, str]]()
    params = []
    for case in cases:
        is_first = (case.kind, case.type) not in classes
        classes.add((case.kind, case.type))
        params.append(pytest.param(case, marks=() if is_first else pytest.mark.slow, id=case.id))
    return params
