"""`python -m tests.exchange.backend.report`: how many of ONNX's cases netspec passes, by operator.

With an argument, only runs the cases whose names contain it. With `--write`, the failing cases that `excluded.yaml`
does not list become `pending.yaml`, with the reasons for their failures.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import yaml
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from netspec.errors import NetspecError
from tests.exchange.backend.suite import EXCLUDED, PENDING, backend_of, cases, exclusions, why_excluded


@dataclass(frozen=True)
class Result:
    """The result of a case; `error` is empty if it passed."""

    case: str
    operators: tuple[str, ...]
    error: str


def run(case: TestCase, suite: str) -> Result:
    """Run a case whose data is available."""
    model = case.model if case.model is not None else onnx.load(Path(case.model_dir or "", "model.onnx"))
    operators = tuple(dict.fromkeys(node.op_type for node in model.graph.node))
    try:
        prepared = backend_of(suite).prepare(model)
        for inputs, expected in case.data_sets or _stored(Path(case.model_dir or "")):
            results = prepared.run([_array(model_input) for model_input in inputs])
            Runner.assert_similar_outputs([_array(tensor) for tensor in expected], results, case.rtol, case.atol)
    except Exception as error:
        return Result(case.name, operators, _reason(error))
    return Result(case.name, operators, "")


def _stored(folder: Path) -> list[tuple[list[Any], list[Any]]]:
    """Load the data sets in the folder of a case. Raises an error for anything but tensors."""

    def tensors(data: Path, kind: str) -> list[onnx.TensorProto]:
        return [onnx.load_tensor(str(path)) for path in sorted(data.glob(f"{kind}_*.pb"))]

    return [(tensors(data, "input"), tensors(data, "output")) for data in sorted(folder.glob("test_data_set_*"))]


def _array(values: Any) -> Any:
    return onnx.numpy_helper.to_array(values) if isinstance(values, onnx.TensorProto) else values


def _reason(error: Exception) -> str:
    """Return why a case fails, without the name of the node; if there are several reasons, the first one."""
    if isinstance(error, NetspecError):
        first = error.problems[0].message.removeprefix("the model: ")
        match = re.fullmatch(r"node `[^`]*` \((\w+), opset \d+\) can't be imported: (.*)", first)
        return f"{match[1]}: {match[2]}" if match else re.sub(r" \(opset \d+\)", "", first)
    return "other results" if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}".split("\n")[0]


def report(results: Sequence[Result]) -> str:
    """Return a table by operator, unexpected failures, excluded cases that pass, and the share of passed cases."""
    by_operator: defaultdict[str, Counter[str]] = defaultdict(Counter)
    counts: Counter[str] = Counter()
    lines = []
    for result in results:
        excluded = why_excluded(result.case)
        state = "passed" if not result.error else "failed" if excluded is None else "excluded"
        counts[state] += 1
        counts["outside"] += excluded is not None and excluded.outside
        counts[excluded.reason if excluded else ""] += 1
        name = result.operators[0] if len(result.operators) == 1 else "functions, as several nodes"
        by_operator[name][state] += 1
        if state == "failed":
            lines.append(f"failed: {result.case}: {result.error}")
        elif excluded is not None and not result.error:
            lines.append(f"passed, though excluded: {result.case}")
    states = "passed", "excluded", "failed"
    table = [
        f"{name:30}" + "".join(f"{by_operator[name][state]:>10}" for state in states) for name in sorted(by_operator)
    ]
    reasons = [
        f"{counts[exclusion.reason]:>6}  {exclusion.reason}" for exclusion in exclusions() if counts[exclusion.reason]
    ]
    within = len(results) - counts["outside"]
    summary = (
        f"{len(results)} cases: {counts['passed']} passed, {counts['excluded']} excluded, {counts['failed']} failed; "
        f"{counts['passed'] / max(1, within):.1%} of the {within} of neural networks' operators"
    )
    return "\n".join([*table, "", *lines, "", *reasons, "", summary])


def pending(results: Sequence[Result]) -> str:
    """Return the cases that fail and are not permanently excluded, by reason."""
    excluded = [exclusion for exclusion in exclusions() if exclusion.origin == EXCLUDED]
    cases_by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.error and not any(entry.covers(result.case) for entry in excluded):
            cases_by_reason[result.error].append(result.case)
    entries = [{"reason": reason, "cases": sorted(cases_by_reason[reason])} for reason in sorted(cases_by_reason)]
    head = "# Written by `python -m tests.exchange.backend.report --write`: what netspec does not pass yet, and why."
    return f"{head}\n" + yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=118)


def main(arguments: Sequence[str]) -> None:
    """Run the cases whose data is available, or those of them whose names contain a text."""
    warnings.simplefilter("ignore")
    write, part = "--write" in arguments, next((argument for argument in arguments if argument != "--write"), "")
    results = [run(case, suite) for suite, case in cases() if suite != "real" and part in case.name]
    if write:
        PENDING.write_text(pending(results), encoding="utf-8")
        exclusions.cache_clear()
    print(report(results))


if __name__ == "__main__":
    main(sys.argv[1:])
