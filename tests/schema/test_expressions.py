"""`${…}`: values, errors, and their locations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.schema.language.expressions import Expression
from netspec.schema.language.formula import ExpressionError
from netspec.schema.language.interpolation import Evaluator, escaped
from netspec.schema.yaml.reader import parse_yaml
from netspec.schema.yaml.tree import Map

SCOPE = {"width": 32, "rate": 0.5, "deep": True, "name": "conv", "_x1": 3,
         "sizes": [64, [96, 128]], "of": {"stem": 7, "branches": [1, 3]}, "none": []}  # fmt: skip

VALUES = [
    ("width * 2 + 1", 65),
    ("width / 2", 16.0),
    ("width // 3", 10),
    ("-7 // 2", -4),
    ("width % 5", 2),
    ("2 ** 10", 1024),
    ("2 ** -1", 0.5),
    ("rate < 1 and width > 3", True),
    ("not deep", False),
    ("1 if deep else 2", 1),
    ("1 if false else 2", 2),
    ("0 or width", 32),
    ("1 < 2 < 3", True),
    ("1 < 3 < 2", False),
    ("name + '_1'", "conv_1"),
    ("name == 'conv'", True),
    ("min(3, 1, 2)", 1),
    ("max(width, 64)", 64),
    ("abs(-3)", 3),
    ("round(2.5)", 2),
    ("round(2.345, 1)", 2.3),
    ("ceil(1.2) + floor(1.8)", 3),
    ("int(3.9)", 3),
    ("float(3)", 3.0),
    ("sqrt(16)", 4.0),
    ("log(exp(1))", 1.0),
    ("log(8, 2)", 3.0),
    (" ( width ) ", 32),
    ("_x1 + True", None),
    ("sizes", [64, [96, 128]]),
    ("sizes[0] * 2", 128),
    ("sizes[-1][1]", 128),
    ("sizes[width - 32]", 64),
    ("of['branches'][1] + of['stem']", 10),
    ("sizes[1] if deep else none", [96, 128]),
    ("len(sizes) + len(of) + len(name)", 8),
    ("64 in sizes and 96 not in sizes", True),
    ("'stem' in of and 'on' in name", True),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text, value):
    if value is None:
        with pytest.raises(ExpressionError, match="needs numbers"):
            Expression(text).evaluate(SCOPE)
        return
    result = Expression(text).evaluate(SCOPE)
    assert result == value
    assert type(result) is type(value)


REFUSED = [
    ("", "the expression is empty", 0),
    ("width *", "invalid expression", None),
    ("1 / 0", "division by zero: 1 / 0", 0),
    ("width % (1 - 1)", "division by zero", 0),
    ("widht + 1", "no variable `widht` is declared", 0),
    ("1 + widht", "no variable `widht` is declared", 4),
    ("eval('1')", "unknown function `eval`", 0),
    ("__import__('os')", "unknown function `__import__`", 0),
    ("name.upper()", "not allowed", 0),
    ("name.__class__", "not allowed", 0),
    ("name[0]", "`name` is text, which has no items", 0),
    ("width[0]", "`width` is a number, which has no items", 0),
    ("sizes[2]", "index 2 is out of range: `sizes` has 2 items", 6),
    ("none[0]", "index 0 is out of range: `none` has 0 items", 5),
    ("sizes['a']", "a list index must be an integer, not 'a'", 6),
    ("sizes[deep]", "a list index must be an integer, not true", 6),
    ("sizes[sizes]", "`sizes` is a list, which cannot be used here", 6),
    ("of['stme']", "`of` has no key 'stme'", 3),
    ("sizes[0:1]", "not allowed", 0),
    ("sizes[0, 1]", "not allowed", 0),
    ("sizes + 1", "`sizes` is a list, which cannot be used here", 0),
    ("not of", "`of` is a mapping, which cannot be used here", 4),
    ("1 if sizes else 2", "`sizes` is a list", 5),
    ("width and sizes", "`sizes` is a list", 10),
    ("sizes[1] == 96", "`sizes[1]` is a list", 0),
    ("max(sizes)", "`sizes` is a list", 4),
    ("int(sizes)", "int(sizes) cannot be computed", 0),
    ("len(3)", "len(3) cannot be computed", 0),
    ("[1, 2]", "not allowed", 0),
    ("{1: 2}", "not allowed", 0),
    ("lambda: 1", "not allowed", 0),
    ("[x for x in name]", "not allowed", 0),
    ("(x := 3)", "not allowed", 1),
    ("f'{width}'", "not allowed", 0),
    ("b'1'", "not allowed", 0),
    ("1j", "not allowed", 0),
    ("None", "not allowed", 0),
    ("min(*name)", "not allowed", 4),
    ("round(1.5, ndigits=1)", "not allowed", 0),
    ("width is 3", "not allowed", 0),
    ("width in name", "`in` cannot search text for 32", 9),
    ("width in rate", "`in` cannot search a number for 32", 9),
    ("~width", "not allowed", 0),
    ("1 << 3", "not allowed", 0),
    ("name * 3", "`*` needs numbers", 0),
    ("name + 1", "`+` needs numbers", 0),
    ("name < 3", "can't compare", 0),
    ("2 ** 64", "too large", 0),
    ("9 ** 9 ** 9", "too large", 0),
    ("2 ** 62 * 4", "too large", 0),
    ("exp(1000)", "too large", 0),
    ("1e308 * 10", "too large", 0),
    ("99999999999999999999", "too large", 0),
    ("(-8) ** 0.5", "not a real number", 0),
    ("log(-1)", "cannot be computed", 0),
    ("sqrt(-1)", "cannot be computed", 0),
    ("int('x')", "cannot be computed", 0),
    ("sqrt()", "`sqrt` takes 1 argument, got 0", 0),
    ("round(1, 2, 3)", "`round` takes 1 to 2 arguments", 0),
    ("min", "`min` is a function", 0),
    ("+".join(["1"] * 200), "nested too deeply", None),
    ("(" * 300 + "1" + ")" * 300, "invalid expression", None),
    ("1" * 1001, "too long", 0),
    ("1 + 'ä' + widht", "`+` needs numbers", 4),
    ("'äö' + widht", "no variable `widht`", 7),
]


@pytest.mark.parametrize(("text", "message", "offset"), REFUSED)
def test_refusals(text, message, offset):
    with pytest.raises(ExpressionError) as caught:
        Expression(text).evaluate(SCOPE)
    assert message in caught.value.message
    if offset is not None:
        assert caught.value.offset == offset


NUMBERS = st.integers(-1000, 1000).map(str) | st.floats(-1e3, 1e3).map(repr)
ARITHMETIC = st.recursive(
    NUMBERS,
    lambda below: st.one_of(
        st.tuples(below, st.sampled_from(["+", "-", "*", "/", "//", "%"]), below).map(lambda t: f"({' '.join(t)})"),
        below.map(lambda operand: f"(-{operand})"),
        st.tuples(below, below, below).map(lambda t: f"({t[0]} if {t[1]} < {t[2]} else {t[2]})"),
        st.tuples(below, below).map(lambda t: f"max({t[0]}, {t[1]})"),
    ),
    max_leaves=12,
)


@given(ARITHMETIC)
def test_arithmetic_equals_python(text):
    try:
        value = Expression(text).evaluate({})
    except ExpressionError:
        value = None
    try:
        expected = eval(text, {"__builtins__": {"max": max}})
    except (ZeroDivisionError, OverflowError):
        expected = None
    if value is not None:  # otherwise it, or an intermediate value, is out of bounds
        assert value == expected
        assert type(value) is type(expected)


@given(st.text(max_size=40) | st.text("abw123+-*/%().,'\" <>=!~[]{}:_\\n", max_size=40))
def test_any_text_has_a_value_or_is_refused(text):
    refused: ExpressionError | None = None
    value: object = 0
    try:
        value = Expression(text).evaluate({"a": 1, "b": 2.5, "w": "text"})
    except ExpressionError as error:
        refused = error
    assert refused is None or 0 <= refused.offset <= len(text)
    assert isinstance(value, (bool, int, float, str))


def evaluated(text: str) -> tuple[Map, Evaluator]:
    tree = parse_yaml(text, "t")
    evaluator = Evaluator()
    evaluator.evaluate(tree, evaluator.scope(tree))
    return tree, evaluator


def test_complete_values_keep_their_type_and_parts_become_text():
    tree, evaluator = evaluated(
        "vars: {w: 8, r: 0.5, on: true}\na: ${w}\nb: ${w / 2}\nc: x${w}_${r}_${on}\nd: $${w}\ne: ${on}\nf: $$${w}\n"
    )
    assert not evaluator.problems
    assert {key: tree[key] for key in "abcdef"} == {
        "a": 8,
        "b": 4.0,
        "c": "x8_0.5_true",
        "d": "${w}",
        "e": True,
        "f": "$${w}",
    }
    assert isinstance(tree["b"], float)


def test_variables_use_each_other_in_any_order():
    tree, evaluator = evaluated("vars: {a: '${b + 1}', b: '${c * 2}', c: 3}\nx: ['${a}', {y: '${b}'}]\n")
    assert not evaluator.problems
    assert tree["vars"] == {"a": 7, "b": 6, "c": 3}
    assert tree["x"] == [7, {"y": 6}]


def test_a_long_chain_of_variables():
    chain = "\n".join(f"  v{n}: ${{v{n + 1} + 1}}" for n in range(3000))
    tree, evaluator = evaluated(f"vars:\n{chain}\n  v3000: 0\nx: ${{v0}}\n")
    assert not evaluator.problems
    assert tree["x"] == 3000


PLACES = [
    ("x: ${widht}\n", 1, 6, "no variable `widht` is declared"),
    ("vars: {width: 3}\nx: [1, 'a${ 1 + widht }']\n", 2, 17, "no variable `widht` is declared"),
    ("x: ${1 / 0} ${2 / 0}\n", 1, 6, "division by zero: 1 / 0"),
    ("x: 1${1}${foo(1)}\n", 1, 11, "unknown function `foo`"),
    ("x: ${1\n", 1, 4, "this `${` is not closed"),
    ("x: ${'}\n", 1, 4, "this `${` is not closed"),
    ("vars:\n  a: ${b}\n  b: ${c}\n  c: ${a}\n", 2, 6, "these variables depend on each other"),
    ("vars: {a: '${a}'}\n", 1, 11, "a variable depends on itself"),
    ("vars: {my-var: 1}\n", 1, 8, "`my-var` cannot be the name of a variable"),
    ("vars: {if: 1}\n", 1, 8, "`if` cannot be the name of a variable"),
    ("x: >\n  some text ${nothing}\n", 1, 4, "no variable `nothing` is declared"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), PLACES)
def test_problems_point_at_the_expression(text, line, column, message):
    _, evaluator = evaluated(text)
    (problem,) = evaluator.problems
    assert str(problem.location) == f"t:{line}:{column}"
    assert problem.message == message


def test_a_wrong_variable_is_reported_once():
    _, evaluator = evaluated("vars: {a: '${1 / 0}', b: '${a}'}\nx: ${a}\ny: ${b + 1}\n")
    assert [problem.message for problem in evaluator.problems] == ["division by zero: 1 / 0"]
    assert len(evaluator.failed) == 4


def test_cycle_is_reported_with_its_chain():
    _, evaluator = evaluated("vars: {x: 1, a: '${b}', b: '${c}', c: '${a + x}', d: '${d}'}\n")
    assert {problem.got for problem in evaluator.problems} == {"a → b → c → a", "d → d"}


def test_texts_do_not_grow_without_bound():
    doubling = ", ".join(f"v{n}: '${{v{n + 1} + v{n + 1}}}'" for n in range(60))
    _, evaluator = evaluated(f"vars: {{{doubling}, v60: xx}}\n")
    assert [problem.message for problem in evaluator.problems] == ["the text is too long"]


@given(st.text("$ {}ab1+'\"", max_size=20))
def test_escaped_text_means_itself(text):
    tree = parse_yaml("x: ''", "t")
    tree["x"] = escaped(text)
    evaluator = Evaluator()
    evaluator.evaluate(tree, {})
    assert not evaluator.problems
    assert tree["x"] == text


def test_variables_are_lists_and_mappings_too():
    tree, evaluator = evaluated("""
vars:
  wide: ${widths[-1]}
  widths: [8, "${of['base'] * 2}"]
  of: {base: 16, text: '$${a}'}
x: ${widths}
y: ${of}
z: ${wide}
""")
    assert not evaluator.problems
    assert tree["vars"] == {"wide": 32, "widths": [8, 32], "of": {"base": 16, "text": "${a}"}}
    assert (tree["x"], tree["y"], tree["z"]) == ([8, 32], {"base": 16, "text": "${a}"}, 32)
    assert tree["x"] is not tree["vars"]["widths"], "what a value says is put in place as a copy"


def test_unknown_item_makes_a_list_unknown_and_is_reported_once():
    _, evaluator = evaluated("vars: {a: ['${oops}', 3], b: {c: '${a[1]}'}, d: '${b}'}\nx: ${a[0] + 1}\ny: ${d}\n")
    assert [problem.message for problem in evaluator.problems] == ["no variable `oops` is declared"]


def test_a_list_may_not_use_itself():
    _, evaluator = evaluated("vars: {a: [1, '${b}'], b: {c: '${a[0]}'}}\n")
    assert [problem.message for problem in evaluator.problems] == ["these variables depend on each other"]
