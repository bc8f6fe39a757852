"""Rewrite dates with a trained run, by beam search; one beam is greedy decoding.

    python decode.py RUN "Tuesday, 3 May 2019" "7/28/1999" --beams 3
"""

from __future__ import annotations

import argparse

import numpy as np

import netspec

CHARACTERS = "\0-0123456789>"
"""The characters of the column `target` in the order of their indices; index 0 is padding."""
LENGTH = 11


def rewrite(model: netspec.Model, date: str, beams: int) -> list[tuple[float, str]]:
    """Return the most probable rewritings, each with the logarithm of its probability."""
    candidates = [(0.0, "")]
    for step in range(LENGTH):
        rows = [{"source": date, "previous": f"<{text}"} for _, text in candidates]
        logits = model.predict(rows)["logits"][:, step]
        scores = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        extended = [
            (total + float(score), text + character)
            for (total, text), row in zip(candidates, scores, strict=True)
            for character, score in zip(CHARACTERS, row, strict=True)
        ]
        candidates = sorted(extended, reverse=True)[:beams]
    return [(score, text.removesuffix(">")) for score, text in candidates]


def main() -> None:
    """Print the rewritings of each date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the run directory")
    parser.add_argument("dates", nargs="+", help="the dates to rewrite")
    parser.add_argument("--beams", type=int, default=1, help="number of candidates to keep [default: 1]")
    arguments = parser.parse_args()
    model = netspec.load(arguments.run)
    for date in arguments.dates:
        for score, text in rewrite(model, date, arguments.beams):
            print(f"{date}: {text}  ({np.exp(score):.2%})")


if __name__ == "__main__":
    main()
