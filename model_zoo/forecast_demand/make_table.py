"""Write the half-hourly demand for electricity in England and Wales as a table: the columns time and demand (MW).

    pip install pmdarima
    python make_table.py demand.csv
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from pathlib import Path


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="the file to write")
    table = parser.parse_args().table

    from pmdarima.datasets import load_taylor

    first, step = datetime(2000, 6, 5), timedelta(minutes=30)  # the series has no times: local ones, without a zone
    rows = [f"{first + k * step:%Y-%m-%d %H:%M},{demand:.0f}\n" for k, demand in enumerate(load_taylor())]
    table.write_text("time,demand\n" + "".join(rows), encoding="utf-8")
    print(f"{len(rows):,} rows in {table}")


if __name__ == "__main__":
    main()
