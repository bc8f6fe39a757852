"""Layer samples as Caffe files, and the samples that Caffe cannot express.

`python -m tests.exchange.formats.caffe.catalogue` counts them and writes `excluded.yaml`, with the reason for each that
cannot be exported.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from netspec.errors import InputError
from netspec.exchange.formats.caffe.writing.files import write_caffe
from netspec.exchange.formats.caffe.writing.writer import rules
from netspec.exchange.formats.registry import Exportable
from netspec.tools.verification.cases import cases
from tests.exchange.nets import Net
from tests.exchange.samples import one_layer

EXCLUDED = Path(__file__).with_name("excluded.yaml")


def exportable(net: Net) -> Exportable:
    """Return the net in the form that writers take."""
    return Exportable(net.spec, net.states, net.graph)


def written(net: Net) -> tuple[bytes, bytes] | None:
    """Return the written net and weights as bytes; None if Caffe cannot express the net."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.caffemodel"
        try:
            write_caffe(path, exportable(net))
        except InputError:
            return None
        return path.with_suffix(".prototxt").read_bytes(), path.read_bytes()


def why_not(net: Net) -> str:
    """Return why a net of one layer cannot be exported to Caffe; empty if it can."""
    with TemporaryDirectory() as folder:
        try:
            write_caffe(Path(folder) / "model.caffemodel", exportable(net))
        except InputError as refused:
            return reason(refused)
    return ""


def reason(refused: InputError) -> str:
    """Return the reason in an error, without the layer."""
    (problem,) = refused.problems
    assert " cannot be written for Caffe: " in problem.message
    return problem.message.partition(" cannot be written for Caffe: ")[2]


def excluded() -> dict[str, str]:
    """Return the reason for each case without a form in Caffe, including layers that the writer does not know."""
    unknown = {
        case.id: f"Caffe has no layer of type {case.type}" for case in cases("layer") if case.type not in rules()
    }
    return unknown | {case: why for why, those in yaml.safe_load(EXCLUDED.read_text()).items() for case in those}


def main() -> None:
    """Write `excluded.yaml`, and print the counts."""
    cases_of_reason: dict[str, list[str]] = {}
    all_cases = cases("layer")
    for case in all_cases:
        cases_of_reason.setdefault(why_not(one_layer(case)), []).append(case.id)
    written = cases_of_reason.pop("")
    for kind in {case.type for case in all_cases} - rules().keys():
        cases_of_reason.pop(f"Caffe has no layer of type {kind}")
    layers, types = ({case.split("-")[1] for case in some} for some in (written, [case.id for case in all_cases]))
    summary = f"{len(written)} of {len(all_cases)} samples, {len(layers)} of {len(types)} layers have a form in Caffe"
    text = yaml.safe_dump(dict(sorted(cases_of_reason.items())), width=118, default_flow_style=None, allow_unicode=True)
    EXCLUDED.write_text(
        f"# {summary}; why the others have none (written by tests.exchange.formats.caffe.catalogue):\n{text}"
    )
    print(summary)


def digest(files: tuple[bytes, bytes], inputs: dict[str, Any]) -> str:
    """Return a digest of the files and inputs, except the first line, which contains netspec's version."""
    text, weights = files
    return sha256(b"".join([text.split(b"\n", 1)[1], weights, *map(bytes, inputs.values())])).hexdigest()[:16]


if __name__ == "__main__":
    main()
