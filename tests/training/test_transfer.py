"""`init_from`: which arrays are loaded under which names, what is frozen, and which shapes must match."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_weights, write_weights
from netspec.exchange.formats.native.safetensors import write_safetensors
from netspec.exchange.formats.pytorch.state_dicts import to_state_dict
from netspec.schema.specs.patterns import Pattern

Spec = Callable[..., dict[str, Any]]


@pytest.fixture
def start(points: Path, spec: Spec) -> dict[str, np.ndarray[Any, Any]]:
    """Save the arrays of a trained net as `start.h5`."""
    run = netspec.train(spec(max_steps=3), run_dir=points / "before")
    arrays = read_weights(run.last_weights).arrays
    write_weights(points / "start.h5", arrays)
    return arrays


def plan(points: Path, spec: Spec, **fields: Any) -> dict[str, Any]:
    return {**spec(max_steps=1), "init_from": {"file": str(points / "start.h5"), **fields}}


def error_message(points: Path, training: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        netspec.train(training, run_dir=points / "wrong")
    return str(caught.value)


def test_all_weights_are_loaded_and_frozen_ones_stay(points, spec, start):
    run = netspec.train(plan(points, spec, freeze=["fc1", "no*"]), run_dir=points / "run")
    after = read_weights(run.last_weights).arrays
    for name in ("fc1/kernel", "fc1/bias", "norm/gamma", "norm/moving_mean"):
        np.testing.assert_array_equal(after[name], start[name], err_msg=name)
    assert not np.array_equal(after["logits/kernel"], start["logits/kernel"])
    events = [json.loads(line) for line in (points / "run" / "log.jsonl").read_text().splitlines()]
    (event,) = [event for event in events if event["event"] == "init_from"]
    assert event["loaded"] == len(start)
    assert "fc1/kernel  " in (points / "run" / "log.txt").read_text()
    assert "trainable: false" in (points / "run" / "spec.yaml").read_text()
    # It loads from the checkpoint, and freezes the same layers.
    resumed = netspec.train(points / "run" / "spec.yaml", resume=True)
    assert resumed.steps == run.steps


def test_the_file_is_named_without_parent_folders_in_its_path(points, spec, start):
    (points / "folder").mkdir()
    training = plan(points, spec)
    training["init_from"]["file"] = str(points / "folder" / ".." / "start.h5")
    netspec.train(training, run_dir=points / "run")
    assert f"weights from {points / 'start.h5'}:\n" in (points / "run" / "log.txt").read_text()


def test_names_are_mapped_and_left_out(points, spec, start):
    renamed = {name.replace("fc1/", "old/body/"): array for name, array in start.items()}
    write_weights(points / "start.h5", renamed)
    rules = {"old/*/kernel": "fc1/kernel", "old/body/*": "fc1/*", "logits/*": None}
    assert "`logits/kernel` is missing" in error_message(points, plan(points, spec, map=rules))
    training = plan(points, spec, map=rules, require=["fc1/*", "norm/*"], freeze="fc1")
    run = netspec.train(training, run_dir=points / "run")
    np.testing.assert_array_equal(read_weights(run.last_weights).arrays["fc1/bias"], start["fc1/bias"])


def test_weights_of_another_program_are_loaded_after_renaming(points, spec, start):
    theirs = {name.replace("fc1", "encoder.body"): array for name, array in to_state_dict(start).items()}
    write_safetensors(points / "theirs.safetensors", theirs, {})
    training = plan(points, spec, map={"encoder.body.*": "fc1.*"}, freeze=["fc1", "norm*"])
    training["init_from"]["file"] = str(points / "theirs.safetensors")
    run = netspec.train(training, run_dir=points / "run")
    after = read_weights(run.last_weights).arrays
    for name in ("fc1/kernel", "fc1/bias", "norm/moving_mean"):
        np.testing.assert_array_equal(after[name], start[name], err_msg=name)
    training["init_from"]["map"]["encoder.*.weight"] = "logits.weight"
    assert "`encoder.*.weight` fits no name in the file" in error_message(points, training)


def test_weights_that_do_not_fit_are_reported_by_plan(points, spec, start):
    del start["norm/gamma"]
    start["fc1/kernel"] = start["fc1/kernel"][:3]
    start["more"] = start["fc1/bias"]
    write_weights(points / "start.h5", start)
    all_ = error_message(points, plan(points, spec))
    assert "`norm/gamma` is missing" in all_
    assert "`fc1/kernel` has the wrong shape" in all_
    assert "the net has no `more`" in all_
    some = error_message(points, plan(points, spec, require=["norm/*", "nothing"]))
    assert "`norm/gamma` is missing" in some
    assert "`fc1/kernel`" not in some
    assert "`nothing` fits no name in the net" in some
    netspec.train(plan(points, spec, require="some"), run_dir=points / "run")


def test_rules_that_match_nothing_or_merge_names_are_refused(points, spec, start):
    assert "`encoder/*` fits no name in the file" in error_message(
        points, plan(points, spec, map={"encoder/*": "fc1/*"})
    )
    united = error_message(points, plan(points, spec, map={"*/bias": "fc1/bias"}))
    assert "two arrays of the file become `fc1/bias`" in united


def test_the_option_and_the_plan_exclude_each_other(points, spec, start):
    with pytest.raises(InputError, match="cannot be combined"):
        netspec.train(plan(points, spec), weights=points / "start.h5")


def test_a_missing_weight_file_is_reported_by_plan(points, spec):
    assert "does not exist" in error_message(points, plan(points, spec))


@pytest.mark.parametrize(
    ("pattern", "name", "target", "renamed"),
    [
        ("a/*", "a/b/c", "x/*", "x/b/c"),
        ("*/b/*", "a/b/c", "*.*", "a.c"),
        ("*/b/*", "a/b/c", "*", "a"),
        ("a", "a", "b", "b"),
        ("a.b", "axb", "c", None),
        ("a/*", "b/a/c", "c", None),
    ],
)
def test_patterns(pattern, name, target, renamed):
    assert Pattern(pattern).renamed(name, target) == renamed
    assert (name in Pattern(pattern)) is (renamed is not None)


def test_adapted_statistics_are_loaded_and_not_recomputed(points, spec):
    """Mean and variance of the data are loaded with the weights; without them, they are computed from the new data."""
    scaled = {"name": "scaled", "type": "Normalization"}
    first = {**spec(max_steps=2), "net": {**spec()["net"], "layers": [scaled, *spec()["net"]["layers"]]}}
    run = netspec.train(first, run_dir=points / "before")
    arrays = read_weights(run.last_weights).arrays
    moved = {name: array + 1 if name == "scaled/mean" else array for name, array in arrays.items()}
    write_weights(points / "start.h5", moved)
    second = {**first, "init_from": {"file": str(points / "start.h5")}}
    after = read_weights(netspec.train(second, run_dir=points / "after").last_weights).arrays
    np.testing.assert_array_equal(after["scaled/mean"], moved["scaled/mean"])
    np.testing.assert_array_equal(after["scaled/variance"], arrays["scaled/variance"])
    second["init_from"] |= {"map": {"scaled/*": None}, "require": ["fc1/*"]}
    after = read_weights(netspec.train(second, run_dir=points / "fresh").last_weights).arrays
    np.testing.assert_array_equal(after["scaled/mean"], arrays["scaled/mean"])
