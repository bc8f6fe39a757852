"""Names that are handed out once."""

from __future__ import annotations

from netspec.exchange.names import UniqueNames


def test_a_name_in_use_gets_the_next_number() -> None:
    unique = UniqueNames(["conv_1"])
    assert [unique("conv") for _ in range(3)] == ["conv", "conv_2", "conv_3"]
    assert unique("conv_2") == "conv_2_1"


def test_numbering_starts_at_first() -> None:
    unique = UniqueNames(first=2)
    assert [unique("pool") for _ in range(2)] == ["pool", "pool_2"]


def test_endings_are_free_with_the_name() -> None:
    unique = UniqueNames(["split.1"])
    assert unique("split", [".0", ".1"]) == "split_1"
    assert unique("split_1.0") == "split_1.0_1"
    assert unique("split") == "split"


def test_names_in_use_get_a_number() -> None:
    unique = UniqueNames()
    unique.take(["loss"])
    assert unique("loss") == "loss_1"


def test_many_of_one_name_take_no_more_time_each() -> None:
    unique = UniqueNames()
    assert [unique("constant") for _ in range(100_000)][-1] == "constant_99999"
