"""Write synthetic ratings of items by users: FOLDER/train.csv and FOLDER/test.csv with the columns user, item, rating.

    python make_ratings.py FOLDER

A rating is the product of hidden vectors of user and item, plus offsets of both and noise, rounded to 1 … 5. Needs NumPy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

USERS, ITEMS, RATINGS, FACTORS = 600, 400, 40_000, 4


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder to write")
    folder = parser.parse_args().folder
    random = np.random.default_rng(1)
    users, items = random.normal(0, 0.6, (USERS, FACTORS)), random.normal(0, 0.6, (ITEMS, FACTORS))
    user_offsets, item_offsets = random.normal(0, 0.3, USERS), random.normal(0, 0.5, ITEMS)
    pairs = random.choice(USERS * ITEMS, RATINGS, replace=False)
    user, item = pairs // ITEMS, pairs % ITEMS
    scores = 3.4 + (users[user] * items[item]).sum(1) + user_offsets[user] + item_offsets[item]
    ratings = np.clip(np.rint(scores + random.normal(0, 0.5, RATINGS)), 1, 5).astype(int)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", slice(0, RATINGS * 9 // 10)), ("test", slice(RATINGS * 9 // 10, None))):
        rows = [f"{u},{i},{r}\n" for u, i, r in zip(user[part], item[part], ratings[part], strict=True)]
        (folder / f"{name}.csv").write_text("user,item,rating\n" + "".join(rows), encoding="utf-8")
        print(f"{len(rows):,} ratings in {folder / name}.csv")


if __name__ == "__main__":
    main()
