"""The table of the five papers in the README, with the verdicts of the committed runs."""

import re
from collections import Counter

from results_pages import PAPERS, verdicts_of

from fastweights.report.verdicts import ItemVerdict

BEGIN, END = "<!-- docs/generate.py writes from here -->", "<!-- to here -->"


def readme(text: str) -> str:
    """The README with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{paper_table()}\n\n{END}{after}"


def paper_table() -> str:
    """Table with one row per paper: title, link, and linked numbers of tables and figures per verdict."""
    lines = ["| paper | verdicts on its tables and figures |", "|---|---|"]
    return "\n".join([*lines, *map(_row, PAPERS)])


def _row(folder: str) -> str:
    title, number = PAPERS[folder]
    authors, _, subject = title.partition(": ")
    grid = verdicts_of(folder)
    counts = Counter(row[grid.header.index("verdict")] for row in grid.rows)
    summary = ", ".join(f"{counts[one.value]} {one.value}" for one in ItemVerdict if counts[one.value])
    section = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
    return f"| [{authors}](https://arxiv.org/abs/{number}), {subject} | [{summary}](docs/results/README.md#{section}) |"
