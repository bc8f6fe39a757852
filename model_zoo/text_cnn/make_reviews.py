"""Write sentences of movie reviews as text files, one sentence per line: FOLDER/train_negative.txt and so on.

    python make_reviews.py movieReviewSnippets_GroundTruth.txt FOLDER

The input has a number, the mean rating by about 20 people (-4 to 4) and the sentence in each row, separated by tabs.
A sentence is positive if its mean rating is above 0 and negative if it is below; those of 0 are left out. Every tenth
row is test data.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratings", type=Path, help="movieReviewSnippets_GroundTruth.txt")
    parser.add_argument("folder", type=Path, help="the folder to write")
    arguments = parser.parse_args()
    sentences: dict[str, list[str]] = {f"{s}_{c}": [] for s in ("train", "test") for c in ("negative", "positive")}
    for row in arguments.ratings.read_text(encoding="utf-8").splitlines():
        number, rating, sentence = row.split("\t")
        if float(rating):
            split, name = "train" if int(number) % 10 else "test", "positive" if float(rating) > 0 else "negative"
            sentences[f"{split}_{name}"].append(sentence)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, lines in sentences.items():
        (arguments.folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{len(lines):,} sentences in {arguments.folder / name}.txt")


if __name__ == "__main__":
    main()
