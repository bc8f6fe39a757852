"""Errors as Python users meet them: as text, with the place and what would be right."""

from __future__ import annotations

from netspec.errors import InputError, Location, Problem, RunError

WHERE = Location("net.yaml", 3, 5, "  - {units: 0}")


def test_an_error_as_text_says_all_that_the_command_line_says():
    error = InputError([Problem("too small", WHERE, expected="1 or more", got="0", hint="give one"), Problem("more")])
    assert str(error) == error.render()
    for part in ("net.yaml:3:5: error: too small", "- {units: 0}", "expected: 1 or more", "got: 0", "hint: give one"):
        assert part in str(error)
    assert str(error).endswith("error: more\n2 errors")


def test_a_summary_is_one_line_of_messages():
    assert InputError([Problem("one", WHERE, hint="h"), Problem("two")]).summary == "one; two"
    assert RunError("disk full", got="0 bytes").summary == "disk full"
