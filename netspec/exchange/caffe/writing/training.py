"""A training → Caffe's net with its data, losses and metrics, and the solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netspec.errors import InputError, Problem, by_place
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.writing.data import write_data
from netspec.exchange.caffe.writing.losses import write_loss, write_metric
from netspec.exchange.caffe.writing.model import CaffeNet, finished, needed, needed_inputs, writer_for
from netspec.exchange.caffe.writing.solver import solver_message
from netspec.exchange.caffe.writing.writer import NoForm
from netspec.exchange.formats import Exportable
from netspec.schema.links import LossLink, MetricLink, resolve_names
from netspec.schema.patterns import matches


def trained(made: Exportable, prefix: str) -> CaffeNet:
    """The net for training; further files are called `prefix_…`.

    Raises `InputError` with everything in it that has no form in Caffe.
    """
    links = resolve_names(made.net)
    train: Any = made.train
    judges: list[LossLink | MetricLink] = [*links.losses, *links.metrics]
    ends = [source for judge in links.losses for source in judge.sources]
    writer = writer_for(made, links, ends, training=True)
    writer.rates, writer.prefix = rates(train.solver), prefix
    inputs = needed_inputs(made, links, [*ends, *(source for one in judges for source in one.sources)])
    for phase, split in (("TRAIN", train.data.train), ("TEST", train.data.test)):
        if split is not None:
            write_data(writer, split, phase, inputs)
    problems = []
    if writer.sequences:
        told = "a training of recurrent layers has no form in Caffe: sequences are (T, N, …) there, and its data (N, …)"
        problems.append(Problem(told, made.net.where()))
    for link in needed(links, ends):
        writer.write(link)
        for name in type(link.fields).model_fields:
            if name.endswith(("_regularizer", "_constraint")) and getattr(link.fields, name) is not None:
                where = link.fields.where(name)
                problems.append(Problem(f"`{name}` of `{link.name}` has no form in Caffe", where))
    computed = {name for link in needed(links, ends) for name in (link.name, *link.outputs)} | set(inputs)
    for metric in links.metrics:
        if train.data.test is None or not (set(metric.sources) <= computed and write_metric(writer, metric)):
            writer.note(f"the metric `{metric.name}` is left out of the net for training")
    for loss in links.losses:
        try:
            write_loss(writer, loss)
        except NoForm as reason:
            problems.append(Problem(f"the loss `{loss.name}` has no form in Caffe: {reason}", loss.fields.where()))
    if problems or not links.losses:
        none = [] if links.losses else [Problem("a net without losses is not trained", made.net.where())]
        raise InputError(sorted([*writer.problems, *problems, *none], key=by_place))
    return finished(made, writer)


def rates(solver: Any) -> Callable[[str], tuple[float, float]]:
    """What the groups of a solver make of a parameter: a factor of its rate, and one of its decay."""

    def of(state: str) -> tuple[float, float]:
        group = next((one for one in solver.groups if matches(one.match, state)), None)
        if group is None:
            return 1.0, 1.0
        decay = 1.0 if group.weight_decay is None else group.weight_decay / (solver.weight_decay or 1.0)
        return group.learning_rate_multiplier, decay

    return of


def solver_of(made: Exportable, net: str, prefix: str, notes: list[str]) -> Message:
    """The solver of a training. Raises `NoForm` where Caffe has none that steps the same."""
    return solver_message(made.train, net, prefix, notes)
