"""The scripts of the model zoo that write data: splits do not overlap, and files are those that train.yaml reads."""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path

import pytest

from netspec.schema.bundled import zoo_root


def run(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: Path) -> None:
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    runpy.run_path(str(zoo_root() / script), run_name="__main__")


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as table:
        return list(csv.DictReader(table))


def test_reviews_are_labeled_by_the_sign_of_their_rating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ratings = tmp_path / "ratings.txt"
    ratings.write_text("1\t2.5\tGreat fun.\n2\t-0.5\tToo long.\n3\t0.0\tA film.\n10\t-3\tAwful.\n20\t1\tFine.\n")
    run(monkeypatch, "text_cnn/make_reviews.py", ratings, tmp_path / "reviews")
    texts = {file.stem: file.read_text() for file in (tmp_path / "reviews").iterdir()}
    assert texts == {"train_positive": "Great fun.\n", "train_negative": "Too long.\n",
                     "test_negative": "Awful.\n", "test_positive": "Fine.\n"}  # fmt: skip


def test_no_date_of_the_test_is_in_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "seq2seq/make_dates.py", tmp_path)
    train, test = rows(tmp_path / "train.csv"), rows(tmp_path / "test.csv")
    assert not {row["target"] for row in train} & {row["target"] for row in test}
    assert {len(row["target"]) + 1 for row in train + test} == {11}  # length of train.yaml, with the end token
    assert max(len(row["source"]) for row in train + test) == 30  # source_length of train.yaml


def test_no_pair_of_user_and_item_is_rated_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "matrix_factorization/make_ratings.py", tmp_path)
    ratings = rows(tmp_path / "train.csv") + rows(tmp_path / "test.csv")
    assert len({(row["user"], row["item"]) for row in ratings}) == len(ratings) == 40_000
    assert {row["rating"] for row in ratings} == {"1", "2", "3", "4", "5"}
