"""The table of the five papers in the README, with the verdicts of the committed reports."""

from collections import Counter
from pathlib import Path

from fastweights.report.runs import collect
from fastweights.report.verdicts import ItemVerdict, verdicts

BEGIN, END = "<!-- docs/generate.py writes from here -->", "<!-- to here -->"
PAPERS = {
    "Ba 2016": ("Using fast weights to attend to the recent past", "Ba et al. 2016", "1610.06258"),
    "Gregor 2020": ("Finding online neural update rules by learning to remember", "Gregor 2020", "2003.03124"),
    "Schlag 2021": ("Linear Transformers are secretly fast weight programmers", "Schlag et al. 2021", "2102.11174"),
    "Irie 2021": ("Going beyond linear Transformers with recurrent fast weight programmers", "Irie et al. 2021", "2106.06295"),
    "Irie 2022": ("A modern self-referential weight matrix that learns to modify itself", "Irie et al. 2022", "2202.05780"),
}
"""Title, authors and arXiv number of each paper, by the first author and the year."""


def readme(text: str, results: Path) -> str:
    """The README with the table between its marks, from the runs in the folder of results."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{paper_table(results)}\n\n{END}{after}"


def paper_table(results: Path) -> str:
    """A row per paper: its title, its link, and the number of its tables and figures with each verdict."""
    rows = verdicts(collect(results).groups).rows
    lines = ["| paper | verdicts on its tables and figures |", "|---|---|"]
    return "\n".join([*lines, *(_row(name, [row[1] for row in rows if row[0].startswith(name)]) for name in PAPERS)])


def _row(name: str, outcomes: list[str]) -> str:
    title, authors, number = PAPERS[name]
    counts = Counter(outcomes)
    summary = ", ".join(f"{counts[one.value]} {one.value}" for one in ItemVerdict if counts[one.value])
    return f"| [{authors}](https://arxiv.org/abs/{number}), {title} | {summary} |"
