"""Evaluation: losses and metrics over a full dataset, each sample exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np

from netspec.backends.device_registry import open_device
from netspec.compile import LOSS, Compiler, ProgramKind
from netspec.data.base import Source as DataSource
from netspec.data.batches import Batch
from netspec.data.loader import Loader, OpenLoader, open_loader
from netspec.data.missing_paths import missing_paths
from netspec.data.pipeline import Learned
from netspec.errors import InputError, Problem, counted, did_you_mean, listing
from netspec.graph.types import Precision
from netspec.layers.losses_and_metrics import LossSpec, MetricSpec, PairLoss, TableRow
from netspec.layers.vision.boxes import box_selection
from netspec.schema.load import Overrides, Source, load_spec
from netspec.schema.specs.data import SplitFields
from netspec.schema.specs.kinds import METRICS, MetricFields
from netspec.schema.specs.links import Links, resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.training.class_weights import with_class_weights
from netspec.training.events import MAX_EXAMPLES, SPLITS
from netspec.training.inference.model import load_weights
from netspec.training.preprocessing import PreprocessingRecord
from netspec.training.required_inputs import input_fields, input_ranges
from netspec.training.samples import with_samples
from netspec.training.session import LOCAL, Session

SIZE, TARGET_COUNTS, REPETITION = "$size", "$targets", "$repetition"
"""Keys among the results of a batch: number of samples, counts of targets, and totals of a metric for a forecast that
repeats the last value."""


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation."""

    samples: int
    """Number of samples that were evaluated."""
    loss: float | None
    """Mean total loss; None for a net without losses."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Scalar metrics, by name."""
    tables: dict[str, TableRow | Mapping[str, TableRow]] = field(default_factory=dict)
    """The other metrics, by name: values by name, or tables with named rows and columns."""
    in_units: dict[str, float] = field(default_factory=dict)
    """Metrics of normalized targets, converted to the unit of the data, by name."""
    skipped: int = 0
    """Number of damaged samples that `on_error: skip` left out."""
    damaged: tuple[str, ...] = ()
    """The problems of the first damaged samples."""
    notes: tuple[str, ...] = ()
    """The metrics that are not better than those of a constant prediction, each as a sentence."""
    remark: str | None = None
    """Remark on the choice of the device."""
    device_warnings: tuple[str, ...] = ()
    """Faults of the device, such as kernels that failed its check and are not used."""
    data_change: str | None = None
    """Change of the held-out samples since the training, as a sentence; None if they are the same."""
    others: dict[str, Evaluation] = field(default_factory=dict)
    """Evaluations of the sets in `data.evaluate` after the same step, by name."""

    @property
    def non_finite(self) -> list[str]:
        """Names of values that are nan or infinite: `loss`, or metrics."""
        return [name for name, value in self.values().items() if not isfinite(value)]

    def values(self) -> dict[str, float]:
        """Return the loss, if there is one, and the scalar metrics by name."""
        return {**({} if self.loss is None else {"loss": self.loss}), **self.metrics}

    def all_values(self) -> dict[str, float]:
        """Return `values`, and those of other sets under names such as `night/loss`."""
        others = {
            f"{name}/{key}": value for name, other in self.others.items() for key, value in other.values().items()
        }
        return {**others, **self.values()}

    def scalars(self) -> dict[str, Any]:
        """Return loss and scalar metrics as plain data. `non_finite` has the names of values that are null in JSON."""
        bad = self.non_finite
        data = {"samples": self.samples, "loss": self.loss, "metrics": dict(self.metrics)}
        skipped = {"skipped": self.skipped} if self.skipped else {}
        in_units = {"in_units": dict(self.in_units)} if self.in_units else {}
        others = {"others": {name: other.scalars() for name, other in self.others.items()}} if self.others else {}
        notes = {"notes": list(self.notes)} if self.notes else {}
        return {**data, **in_units, **skipped, **({"non_finite": bad} if bad else {}), **others, **notes}

    def as_json(self) -> dict[str, Any]:
        """Return the evaluation as plain data, with `tables` if it has tables."""
        change = {} if self.data_change is None else {"data_change": self.data_change}
        return {**self.scalars(), **change, **({"tables": dict(self.tables)} if self.tables else {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation that `as_json` describes, also after a round trip through JSON."""
        bad, metrics, tables = data.get("non_finite", ()), data["metrics"], data.get("tables", {})
        loss = nan if data["loss"] is None and "loss" in bad else data["loss"]
        metrics = {name: nan if value is None else value for name, value in metrics.items()}
        others = {name: cls.from_json(other) for name, other in data.get("others", {}).items()}
        return cls(
            data["samples"], loss, metrics, tables, data.get("in_units", {}), data.get("skipped", 0), others=others,
            notes=tuple(data.get("notes", ())),
        )  # fmt: skip


def evaluate(compiler: Compiler, loader: Loader, session: Session = LOCAL) -> Evaluation:
    """Return losses and metrics of the compiler's net over one pass of the loader.

    The loss is the mean over samples: each batch is weighted by its size. Sums are in float64 and in the order of the
    batches, so the result does not depend on the number of workers.
    """
    loss, samples, left_out = 0.0, 0, list[str]()
    totals: dict[str, np.ndarray[Any, Any]] = {}
    collected: dict[str, list[np.ndarray[Any, Any]]] = {}
    baselines: dict[str, np.ndarray[Any, Any]] = {}
    for by_worker in session.gather_batches(_results(compiler, loader, left_out)):
        for results in by_worker:
            size = int(results[SIZE])
            loss += float(results.get(LOSS, 0.0)) * size
            samples += size
            for name, value in results.items():
                if name in (LOSS, SIZE) or name.startswith(f"{LOSS}/"):
                    continue
                if name.startswith((f"{TARGET_COUNTS}/", f"{REPETITION}/")):
                    baselines[name] = _padded_sum(baselines.get(name, value[:0]), value)
                elif compiler.metrics[name.rpartition("/")[0]].collects:
                    collected.setdefault(name, []).append(value)
                else:
                    totals[name] = totals.get(name, 0.0) + value.astype(np.float64)
    more, damaged = total_skipped(session, len(left_out), left_out[:MAX_EXAMPLES])
    skipped, damaged = loader.skipped_at_opening + more, [*loader.damaged_at_opening, *damaged]
    mean = loss / samples if compiler.spec.losses else None
    evaluation = Evaluation(samples, mean, skipped=skipped, damaged=tuple(damaged[:MAX_EXAMPLES]))
    names, scales = class_names(compiler.spec, loader), target_scales(compiler.spec, loader.unit_scales)
    totals |= {name: np.concatenate(parts) for name, parts in collected.items()}
    for name, metric in compiler.metrics.items():
        keys = sorted((key for key in totals if key.rpartition("/")[0] == name), key=_number)
        named = metric.with_class_names(names.get(name, ()))
        result = (named.with_unit_scale(scales[name]) if name in scales else named).result(
            *(totals[key] for key in keys)
        )
        if isinstance(result, Mapping):
            evaluation.tables[name] = result
        else:
            evaluation.metrics[name] = result
    evaluation.in_units.update(in_target_units(compiler.spec, loader.unit_scales, evaluation.metrics))
    return replace(evaluation, notes=tuple(_baseline_notes(compiler, evaluation, totals, baselines, names)))


def _baseline_notes(
    compiler: Compiler, evaluation: Evaluation, totals: Mapping[str, Any], baselines: Mapping[str, Any],
    names: Mapping[str, Sequence[str]],
) -> Iterator[str]:  # fmt: skip
    """Yield a sentence for each metric that a constant prediction, or a repetition of the last value, would reach."""
    compared = {} if evaluation.non_finite else evaluation.metrics  # non-finite results have a warning already
    for name, value in compared.items():
        mean, counts = compiler.metrics[name].mean_baseline, baselines.get(f"{TARGET_COUNTS}/{name}")
        if (repetition := baselines.get(f"{REPETITION}/{name}")) is not None:
            repeated = compiler.metrics[name].result(*repetition)
            if isinstance(repeated, float) and value >= repeated:
                yield f"{name} {value:.4f} is not better than repeating the last value: {repeated:.4f}"
        if mean is not None and value <= mean:
            yield f"{name} {value:.4f} is not better than always predicting the mean of the targets"
        # The counts differ from the metric's own if elements have weights or are masked.
        elif counts is not None and 0 < counts.sum() == totals[f"{name}/1"] and value <= counts.max() / counts.sum():
            largest, classes = int(counts.argmax()), names.get(name, ())
            # For a target with one element per class, these are the counts of 0 and 1.
            is_class = largest < len(classes) and (len(counts) > 2 or len(classes) == 2)
            answer = f"`{classes[largest]}`" if is_class else f"class {largest}"
            share = f"{counts.max() / counts.sum():.4f}"
            yield f"{name} {value:.4f} is not better than always predicting {answer}, the most frequent class: {share}"


def _padded_sum(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the sum of two vectors, of which the shorter one is continued by zeros."""
    total = np.zeros(max(len(a), len(b)))
    total[: len(a)] += a
    total[: len(b)] += b
    return total


def in_target_units(net: NetSpec, scales: Mapping[str, float], metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that have a unit, converted to the unit of the data, if the net learned a normalized target.

    `scales` are the factors from the unit of an input to that of the data (`Loader.unit_scales`).
    """
    powers = {metric.name: metric.fields.unit_power for metric in resolve_names(net).metrics}
    return {
        name: metrics[name] * scale ** powers[name]
        for name, scale in target_scales(net, scales).items() if powers[name] and name in metrics
    }  # fmt: skip


def target_scales(net: NetSpec, scales: Mapping[str, float]) -> dict[str, float]:
    """Return the factor from the unit of a metric's target to that of the data, by metric, if they differ."""
    return {
        metric.name: scales[source] for metric in resolve_names(net).metrics for source in metric.sources[1:2]
        if source in scales
    }  # fmt: skip


def class_names(net: NetSpec, loader: Loader) -> dict[str, Sequence[str]]:
    """Return the class names that the data has for the target of a metric, by the name of the metric."""
    return {
        metric.name: names
        for metric in resolve_names(net).metrics
        for names in [loader.classes.get(source) for source in metric.sources[1:]]
        if names
    }


def total_skipped(session: Session, samples: int, examples: Sequence[str]) -> tuple[int, list[str]]:
    """Return how many damaged samples all workers left out, and examples."""
    by_worker = session.gather([samples, list(examples)])
    return sum(count for count, _ in by_worker), [line for _, lines in by_worker for line in lines]


def _results(compiler: Compiler, loader: Loader, left_out: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the results and the size of each batch. The problems of damaged samples are appended to `left_out`."""
    targets = {
        metric.name: metric.sources[1] for metric in resolve_names(compiler.spec).metrics if len(metric.sources) == 2
    }
    for batch in loader.one_pass():
        left_out += map(str, batch.skipped)
        results = compiler.program(ProgramKind.TEST, batch.rows)(batch.inputs)
        counts = {
            f"{TARGET_COUNTS}/{name}": compiler.metrics[name].target_counts(
                np.asarray(batch.inputs[target])[: len(batch)]
            )
            for name, target in targets.items() if name in compiler.metrics and target in batch.inputs
        }  # fmt: skip
        counts |= _repetition_totals(compiler.metrics, targets, batch, loader.forecast_inputs)
        counted = {key: value for key, value in counts.items() if value is not None}
        yield {SIZE: np.array(len(batch)), **_collected(compiler.metrics, results), **counted}


def _repetition_totals(
    metrics: Mapping[str, MetricSpec], targets: Mapping[str, str], batch: Batch, inputs: tuple[str, str] | None
) -> dict[str, Any]:
    """Return the totals of metrics for a forecast that repeats the last value. `inputs` are past and next values."""
    if inputs is None or not batch.inputs.keys() >= {*inputs}:
        return {}
    past, label = inputs
    last = np.asarray(batch.inputs[past])[: len(batch), -1]
    values = np.asarray(batch.inputs[label])[: len(batch)]
    repetition = {}
    for name, target in targets.items():
        if target == label and name in metrics:
            totals = metrics[name].error_totals(last.reshape(-1, *[1] * (values.ndim - 1)), values)
            repetition[f"{REPETITION}/{name}"] = None if totals is None else np.array(totals)
    return repetition


def _collected(metrics: Mapping[str, MetricSpec], results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a batch, with those of each metric that `collects` replaced by its `collect`."""
    changed = dict(results)
    for name, metric in metrics.items():
        if metric.collects:
            keys = sorted((key for key in results if key.rpartition("/")[0] == name), key=_number)
            rows = metric.collect(*(np.asarray(changed.pop(key)) for key in keys))
            changed |= {f"{name}/{index}": array for index, array in enumerate(rows)}
    return changed


def _number(key: str) -> int:
    return int(key.rpartition("/")[2])


def test(
    source: Source,
    weights: str | Path,
    overrides: Overrides = (),
    *,
    device: str = "auto",
    samples: Mapping[str, Any] | None = None,
    split: str = "test",
    report: bool = False,
) -> Evaluation:
    """Evaluate weights on a split of a training file, by default the test data.

    `samples` holds the data of splits with `source: python`. `report` adds the metrics of `with_reports`. Values
    learned from the training data (class names, means) come from the weights; if the weights do not have them, the
    training data is read.
    """
    spec, _ = with_class_weights(with_samples(with_split(source, split, overrides), samples))
    if report:
        spec = spec.model_copy(update={"net": with_reports(spec.net)})
    options = spec.compile
    opened = open_device(device, options.autotune, options.rounding, deterministic=options.deterministic)
    compiler = Compiler(spec.net, dtype=Precision(spec.train.precision), device=opened, seed=spec.train.seed)
    record = PreprocessingRecord.from_meta(load_weights(compiler, weights).meta)
    evaluation = evaluate_on(spec, compiler, record, split)
    return replace(evaluation, remark=opened.remark, device_warnings=tuple(opened.warnings))


def with_reports(net: NetSpec) -> NetSpec:
    """Return a net with reports as further metrics.

    A loss over class indices gets a confusion matrix and a report of the classes, a loss of numbers a report of the
    errors, a detector a report of the average precision of each class.
    """
    links = resolve_names(net)
    metrics: list[MetricFields] = _detection_reports(links)
    for loss in links.losses:
        target = net.inputs.get(loss.sources[1]) if len(loss.sources) > 1 else None
        assert isinstance(loss.fields, LossSpec)
        if loss.fields.prediction_kind == "values" and isinstance(loss.fields, PairLoss):
            metrics.append(METRICS.parse({"type": "RegressionReport", "from": list(loss.sources[:2])}))
        if loss.fields.prediction_kind != "classes" or target is None or target.dtype.startswith("float"):
            continue
        fields = {"from": list(loss.sources[:2]), "axis": getattr(loss.fields, "axis", -1)}
        ignored = getattr(loss.fields, "ignore_class", None)
        fields |= {} if ignored is None else {"ignore_class": ignored}
        pixels = {"iou": True} if len(target.shape) > 1 else {}
        metrics += [
            METRICS.parse({"type": "ClassificationReport", **pixels, **fields}),
            METRICS.parse({"type": "ConfusionMatrix", **fields}),
        ]
    return net.model_copy(update={"metrics": [*net.metrics, *metrics]})


def classifies_samples(net: NetSpec) -> bool:
    """Return whether a target is one class index per sample, so that `with_reports` adds a table of the classes."""
    for loss in resolve_names(net).losses:
        target = net.inputs.get(loss.sources[1]) if len(loss.sources) > 1 else None
        assert isinstance(loss.fields, LossSpec)
        is_index = target is not None and not target.shape and not target.dtype.startswith("float")
        if loss.fields.prediction_kind == "classes" and is_index:
            return True
    return False


def _detection_reports(links: Links) -> list[MetricFields]:
    """Return a report for each detector: for its layer of boxes, and the targets of the loss of that layer's input."""
    return [
        METRICS.parse({"type": "DetectionReport", "from": [layer.name, *loss.sources[1:]]})
        for layer in links.layers
        if box_selection(layer.fields) is not None
        for loss in links.losses
        if loss.sources[0] == layer.sources[0]
    ]


def with_split(source: Source, split: str = "test", overrides: Overrides = ()) -> TrainSpec:
    """Load the training in a file. Raises `InputError` if it is a net, or does not have the split."""
    spec = load_spec(source, overrides)
    if not isinstance(spec, TrainSpec):
        raise InputError(
            "this is a net file, which has no test data", location=spec.where(), expected="a training file",
            hint="use a training file with this `net`, such as train.yaml, or the spec.yaml of a run; "
            "`netspec predict` needs only the net",
        )  # fmt: skip
    split_of(spec, split)
    return spec


def split_of(spec: TrainSpec, name: str) -> SplitFields:
    """Return a split of a training by name. Raises `InputError` if there is no such split."""
    splits = spec.data.splits()
    if name in splits:
        return splits[name]
    if name not in SPLITS:
        allowed = [*SPLITS, *spec.data.evaluate]
        raise InputError(
            "--split: there is no such split", expected=f"one of {listing(allowed)}", got=name,
            hint=did_you_mean(name, allowed),
        )  # fmt: skip
    expected = f"`{name}:` next to `train:`"
    raise InputError(Problem(f"there is no {SPLITS[name]} data", spec.where("data"), "data", expected=expected))


@contextmanager
def swapped_weights(compiler: Compiler, arrays: Mapping[str, Any] | None, session: Session) -> Iterator[None]:
    """Evaluate with other weights inside the block, on all workers. Only the root has `arrays`. Collective."""
    current = {name: np.array(array) for name, array in sorted(compiler.weights().items())}
    session.barrier()  # workers may share memory: no worker replaces weights before all have copied them
    _replace(compiler, session.broadcast_arrays({name: (arrays or current)[name] for name in current}))
    try:
        yield
    finally:
        session.barrier()
        _replace(compiler, current)


def _replace(compiler: Compiler, weights: Mapping[str, Any]) -> None:
    """Assign the states that stand for the weights in evaluation."""
    for name, array in weights.items():
        compiler.states.assign(compiler.evaluated.get(name, name), array)


def evaluate_on(spec: TrainSpec, compiler: Compiler, record: PreprocessingRecord, split: str = "test") -> Evaluation:
    """Evaluate a net on a split of a training; if `record` has no learned values, read the training data.

    Raises `InputError` if its data does not exist.
    """
    part = split_of(spec, split)
    if isinstance(part, DataSource) and (missing := list(missing_paths(part, spec.data.path_of(split)))):
        raise InputError(missing)
    with open_evaluation_loader(spec, split, compiler, learned_of(spec, compiler, record.learned)) as loader:
        return replace(evaluate(compiler, loader), data_change=data_change(split, record, loader))


def data_change(name: str, record: PreprocessingRecord, loader: Loader) -> str | None:
    """Return how samples that are held out from the training data differ from those at the time of the training.

    Other samples are in files of their own, so they cannot be training samples by a change.
    """
    then = record.held_out.get(name)
    if then is None or not loader.is_held_out or then["digest"] == loader.digest:
        return None
    return (
        f"the data has changed since the run ({counted(then['samples'], f'{name} sample')} then, "
        f"{loader.samples:,} now): if `split` divides it differently, these samples include training samples"
    )


def learned_of(spec: TrainSpec, compiler: Compiler, learned: Learned | None) -> Learned:
    """Return the preprocessing learned in training: from the weights, else from the training data.

    If only class names are learned, the data need not exist: classes without known names are numbers.
    """
    if learned is not None:
        return learned
    if (classes := _classes_without_data(spec.data.train)) is not None:
        return Learned(classes)
    with open_loader(spec.data.train, seed=spec.train.seed, declared_inputs=compiler.spec.inputs) as training:
        return training.learned


def _classes_without_data(split: SplitFields) -> Mapping[str, Sequence[str]] | None:
    """Return the class names of a training split, if it learns nothing else and they are known without samples."""
    if not isinstance(split, DataSource) or any(getattr(step, "needs_data", True) for step in split.transforms):
        return None
    return split.classes_without_samples()


def open_evaluation_loader(
    spec: TrainSpec, split: str, compiler: Compiler, learned: Learned, session: Session = LOCAL,
    open_data: OpenLoader = open_loader,
) -> Loader:  # fmt: skip
    """Open a split to evaluate on, with the class names and statistics that were learned from the training data."""
    inputs, allowed = input_fields(compiler, [ProgramKind.TEST]), input_ranges(compiler)
    return open_data(
        split_of(spec, split), seed=spec.train.seed, inputs=inputs, ranges=allowed,
        declared_inputs=compiler.spec.inputs, learned=learned, share=session.share,
    )  # fmt: skip
