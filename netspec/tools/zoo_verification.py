"""Check a model of the zoo against its card: counts, weights, exports, and the results that can be measured here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from netspec.compile import Compiler, ProgramKind
from netspec.compile.layer_costs import layer_costs
from netspec.data.base import Source
from netspec.data.missing_paths import missing_paths
from netspec.data.sources.known import KnownSource
from netspec.errors import InputError, NetspecError
from netspec.schema.load import load_net
from netspec.schema.specs.card import CardSpec, Count, RecordedResult
from netspec.schema.specs.data import SplitFields
from netspec.tools.checking.check import check
from netspec.tools.comparing.diff import compare_models
from netspec.tools.exporting.export import export_model
from netspec.tools.inference.predict import test
from netspec.tools.model_inputs import open_any
from netspec.tools.plain_data import PlainData
from netspec.tools.specs import load_train
from netspec.tools.zoo import ZooModel
from netspec.training.evaluation import Evaluation
from netspec.training.inference.model import load
from netspec.training.preprocessing import PreprocessingRecord

TOLERANCE = 1e-4
"""Largest accepted difference of the results of an ONNX model, relative to the largest value of an output."""


@dataclass(frozen=True)
class ZooCheck(PlainData):
    """One fact about a model, and whether it is true."""

    model: str
    name: str
    status: Literal["passed", "failed", "skipped"]
    detail: str = ""
    """What was found, or why it was not checked."""


class _Skipped(Exception):
    """The reason why a fact is not checked."""


def verify_zoo_model(model: ZooModel, overrides: Sequence[str] = ()) -> Iterator[ZooCheck]:
    """Check a model of the zoo against its card; yield each check when it ends.

    `overrides` change its training file, for instance the folder of its data. Results are measured again with the
    weights that netspec ships, if the data is here.
    """
    card = model.card
    checks: dict[str, Callable[[], str]] = {
        "specs": lambda: _check_specs(model),
        "parameters": lambda: _check_count(card.parameters, count_net(model)[0]),
        "FLOPs": lambda: _check_count(card.flops, count_net(model)[1]),
        "weights": lambda: _check_weights(model, card),
        "ONNX": lambda: _check_onnx(model),
        "goals": lambda: _check_goals(card),
        "results": lambda: _check_results(model, card, overrides),
    }
    for name, run in checks.items():
        yield _checked(model.name, name, run)


def count_net(model: ZooModel) -> tuple[int, int]:
    """Numbers of parameters and FLOPs of the net, as `netspec plan` counts them for one sample."""
    compiler = Compiler(load_net(model.net), device="null")
    layers = layer_costs(compiler, compiler.net_graph(ProgramKind.PREDICT, 1))
    parameters = (state.value.type.size for state in compiler.info.values() if state.role == "parameter")
    return sum(parameters), sum(layer.contraction_flops for layer in layers)


def _checked(model: str, name: str, run: Callable[[], str]) -> ZooCheck:
    try:
        return ZooCheck(model, name, "passed", run())
    except _Skipped as skipped:
        return ZooCheck(model, name, "skipped", str(skipped))
    except NetspecError as error:
        return ZooCheck(model, name, "failed", error.summary)


def _check_specs(model: ZooModel) -> str:
    for path in model.specs:
        check(path, data=False)
    return ", ".join(path.name for path in model.specs)


def _check_count(declared: Count, found: int) -> str:
    if found != declared.count:
        raise InputError(f"the net has {found:,}, and its card says {declared.count:,}")
    return f"{found:,}" + (f", as {declared.of}" if declared.of else "")


def _check_weights(model: ZooModel, card: CardSpec) -> str:
    path = model.weights
    if (path is None) != (card.weights_sha256 is None):
        raise InputError("weights.h5 and the card's `weights_sha256` must both be there, or neither")
    if path is None:
        raise _Skipped("no weights are shipped")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != card.weights_sha256:
        raise InputError(f"weights.h5 is not the file of the card: SHA-256 {digest}")
    load(model.net, path, device="reference")
    return f"SHA-256 {digest[:12]}…, {path.stat().st_size / 1e6:.2f} MB"


def _check_onnx(model: ZooModel) -> str:
    """Compare the model in onnxruntime, then read its ONNX file back and compare again."""
    loaded = load(model.net, model.weights)
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        report = export_model(loaded, loaded.spec, path, PreprocessingRecord(), batch=None, opset=None)
        there = report.comparison.whole.scaled if report.comparison is not None else None
        back, why_not = compare_models(loaded, open_any(path).model)
    if there is None or back is None:
        raise InputError(f"the results were not compared: {why_not or 'onnxruntime cannot run the model'}")
    if not max(there, back.whole.scaled) <= TOLERANCE:
        raise InputError(f"results differ by {there:.1e} in onnxruntime, by {back.whole.scaled:.1e} when read back")
    return f"differs by {there:.1e} in onnxruntime, by {back.whole.scaled:.1e} when read back"


def _check_goals(card: CardSpec) -> str:
    missed = [result for result in card.results if not result.reaches_its_goal]
    if missed:
        raise InputError("; ".join(f"{result.metric} {result.value:g} misses its goal" for result in missed))
    bounded = [result for result in card.results if (result.at_least, result.at_most) != (None, None)]
    if not bounded:
        raise _Skipped("the card has no goals")
    return "; ".join(_with_goal(result) for result in bounded)


def _with_goal(result: RecordedResult) -> str:
    low = f" ≥ {result.at_least:g}" if result.at_least is not None else ""
    return f"{result.metric} {result.value:g}{low}" + (f" ≤ {result.at_most:g}" if result.at_most is not None else "")


def _check_results(model: ZooModel, card: CardSpec, overrides: Sequence[str]) -> str:
    if model.weights is None or not card.results:
        raise _Skipped("no weights are shipped" if card.results else "the card has no results")
    missing = _missing_data(load_train(model.folder, overrides).data.splits().get("test"))
    if missing:
        raise _Skipped(f"{missing}; needed: {card.data}")
    evaluation = test(model.folder, weights=model.weights, overrides=overrides)
    return _compared(evaluation, card.results)


def _missing_data(split: SplitFields | None) -> str:
    """Return why the samples cannot be read here without a download; empty if they can."""
    if split is None:
        return "the training file has no test data"
    if isinstance(split, KnownSource) and not split.is_here():
        return f"`{split.known_set.name}` is not downloaded"
    assert isinstance(split, Source)
    return next((problem.message for problem in missing_paths(split, "data.test")), "")


def _compared(evaluation: Evaluation, results: Sequence[RecordedResult]) -> str:
    found = {**evaluation.metrics, **({"loss": evaluation.loss} if evaluation.loss is not None else {})}
    compared = [result for result in results if result.metric in found]
    if not compared:
        raise _Skipped("no result of the card is a metric of the net: its command repeats it")
    wrong = [result for result in compared if abs(found[result.metric] - result.value) > result.tolerance]
    if wrong:
        raise InputError(
            "; ".join(f"{result.metric} is {found[result.metric]:g}, not {result.value:g}" for result in wrong)
        )
    others = [result.metric for result in results if result not in compared]
    left_out = f"; not measured again: {', '.join(others)}" if others else ""
    return "; ".join(f"{result.metric} {found[result.metric]:g}" for result in compared) + left_out
