"""Notes of one kind are printed as one line; programs can read all of them."""

from __future__ import annotations

from pathlib import Path

from netspec.exchange.formats.keras.importing import import_keras
from netspec.exchange.notes import Note, Notes, summarized
from tests.exchange.formats.keras.written import archive, layer, sequential

KIND = "{count} layers have other names"


def test_notes_of_one_kind_are_one_line_in_the_position_of_the_first() -> None:
    notes = Notes()
    notes.add("alone")
    for number in range(7):
        for _ in range(2):  # each once
            notes.add(f"the layer `{number}` is called `l{number}`", KIND, f"`{number}` → `l{number}`")
    notes.add("the input `x` is left out", "{count} inputs are left out", "`x`")
    notes.append("as a text")
    assert len(notes) == 10
    assert summarized(notes) == [
        "alone",
        "7 layers have other names: `0` → `l0`, `1` → `l1`, `2` → `l2`, `3` → `l3`, `4` → `l4` and 2 more",
        "the input `x` is left out",
        "as a text",
    ]


def test_names_with_line_feeds_and_braces_stay_in_their_line() -> None:
    notes = [Note(f"`a\n{name}`", KIND, f"`a\n{{{name}}}`") for name in "xy"]
    assert notes[0] == "`a\\nx`"
    assert summarized(notes) == ["2 layers have other names: `a\\n{x}`, `a\\n{y}`"]


def test_an_argument_at_its_default_is_not_noted(tmp_path: Path) -> None:
    """netspec's loss uses the last axis, too."""
    model = sequential(layer("InputLayer", batch_shape=[None, 3], name="in"), layer("Softmax", name="out"))
    for axis, count in ((-1, 0), (1, 1)):
        loss = {
            "module": "keras.losses",
            "class_name": "BinaryCrossentropy",
            "config": {"axis": axis},
            "registered_name": None,
        }
        path = archive(tmp_path / f"{axis}.keras", {**model, "compile_config": {"loss": loss, "metrics": None}})
        actual = import_keras(path)
        assert sum("`axis`" in note for note in actual.notes) == count
