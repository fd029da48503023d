"""Tables of docs/measurements, the CSV files of the scripts in benchmarks."""

import csv
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "measurements"


class Table(NamedTuple):
    """A table of a benchmark: comments such as the machine, and rows by column name."""

    comments: list[str]
    rows: list[dict[str, str]]


def read_table(name: str) -> Table:
    """Reads `docs/measurements/NAME.csv`."""
    lines = (FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    comments = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    return Table(comments, list(csv.DictReader(line for line in lines if not line.startswith("# "))))
