"""Write the table of `model_zoo/README.md` from the cards: `python -m tests.zoo.table`; a test compares them."""

from __future__ import annotations

from netspec.schema.bundled import zoo_root
from netspec.schema.specs.card import RecordedResult
from netspec.tools.zoo import zoo

README = zoo_root() / "README.md"
HEAD = ("| model | task | parameters | FLOPs per sample | result | weights |", "|---|---|---|---|---|---|")
UNITS = ((1e9, " G"), (1e6, " M"), (1e3, " k"))


def model_table() -> str:
    """Return the table, a row for each model."""
    rows = [
        f"| [{model.name}]({model.name}/README.md) | {model.card.task} | {model.card.parameters.count:,} "
        f"| {_scaled(model.card.flops.count)} | {_result(model.card.results)} "
        f"| {f'{model.weights.stat().st_size / 1e6:.2f} MB' if model.weights else ''} |"
        for model in zoo()
    ]
    return "\n".join([*HEAD, *rows])


def with_table(text: str) -> str:
    """Return the text of the page with the current table in place of its own."""
    before, _, rest = text.partition(HEAD[0])
    after = rest.partition("\n\n")[2]
    return f"{before}{model_table()}\n\n{after}"


def _result(results: list[RecordedResult]) -> str:
    return f"{results[0].metric} {results[0].value:g} on {results[0].on}" if results else "not trained"


def _scaled(number: int) -> str:
    return next((f"{number / unit:.3g}{name}" for unit, name in UNITS if number >= unit), str(number))


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
