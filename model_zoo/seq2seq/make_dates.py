"""Write dates as people write them, and in ISO 8601: FOLDER/train.csv and FOLDER/test.csv.

    python make_dates.py FOLDER

The columns are source (`Tuesday, 3 May 2019`) and target (`2019-05-03`).
No date of the test occurs in the training.
"""

from __future__ import annotations

import argparse
import csv
from datetime import date, timedelta
from pathlib import Path
from random import Random

TRAIN, TEST = 10_000, 1000


def written(day: date, random: Random) -> str:
    """Write a date in one of many ways."""
    ordinal = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    number, month = random.choice((f"{day.day}", f"{day.day:02}", f"{day.day}{ordinal}")), random.choice(("%B", "%b"))
    text = random.choice(
        (
            f"{number} {day:{month}} {day.year}",
            f"{day:{month}} {number}, {day.year}",
            f"{day:%A}, {number} {day:{month}} {day.year}",
            f"{day:{month}} {number} {day.year}",
            f"{day.day}.{day.month}.{day.year}",
            f"{day:%d.%m.%y}",
            f"{day.month}/{day.day}/{day.year}",
        )
    )
    return random.choice((text, text.lower()))


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder to write")
    folder = parser.parse_args().folder
    random = Random(1)
    days = random.sample(range((date(2050, 1, 1) - date(1970, 1, 1)).days), TRAIN + TEST)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", days[:TRAIN]), ("test", days[TRAIN:])):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(("source", "target"))
            for number in part:
                day = date(1970, 1, 1) + timedelta(number)
                rows.writerow((written(day, random), str(day)))
        print(f"{len(part):,} dates in {folder / name}.csv")


if __name__ == "__main__":
    main()
