"""The generated pages of docs/results: the table of verdicts, and the list of searches."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fastweights.experiments.experiment import SANITY
from fastweights.registry import EXPERIMENTS
from fastweights.report.document import Grid
from fastweights.report.runs import Group, collect
from fastweights.report.verdicts import ItemVerdict, paper_items, verdicts

RESULTS = Path(__file__).parent / "results"
PAPERS = {
    "ba2016": ("Ba et al. 2016: fast weights that attend to the recent past", "1610.06258"),
    "gregor2020": ("Gregor 2020: online neural update rules by learning to remember", "2003.03124"),
    "schlag2021": ("Schlag et al. 2021: linear transformers as fast weight programmers", "2102.11174"),
    "irie2021": ("Irie et al. 2021: recurrent fast weight programmers", "2106.06295"),
    "irie2022": ("Irie et al. 2022: a modern self-referential weight matrix", "2202.05780"),
}
"""Title and arXiv number of each paper, by the folder of its experiments."""


@cache
def committed() -> list[Group]:
    """All committed runs, in groups of an experiment and a preset."""
    return [group for group in collect(RESULTS).groups if group.name in EXPERIMENTS.names()]


@cache
def verdicts_of(folder: str) -> Grid:
    """The verdicts on the tables and figures of a paper."""
    return verdicts(committed(), [name for name in paper_items() if name.startswith(f"{folder}/")])


def results_pages() -> dict[str, str]:
    """Pages by name."""
    text = (RESULTS / "README.txt").read_text(encoding="utf-8")
    reports = [group for group in committed() if group.preset != SANITY]
    table = "\n\n".join(map(_paper, PAPERS))
    items = set(paper_items())
    others = _reports(g for g in reports if g.name not in items and not _is_search(g))
    return {
        "README": text.replace("SUMMARY", _summary()).replace("VERDICTS", table).replace("OTHERS", others),
        "learning-rates": _searches(reports),
    }


def _summary() -> str:
    """A row per paper with the names of its tables and figures, in a column per verdict."""
    return _table(["paper", *(verdict.value for verdict in ItemVerdict)], [_verdict_row(folder) for folder in PAPERS])


def _verdict_row(folder: str) -> list[str]:
    authors, _, _ = PAPERS[folder][0].partition(":")
    grid = verdicts_of(folder)
    items = [(row[grid.header.index("verdict")], _linked(row[0], row[-1])) for row in grid.rows]
    return [authors, *(", ".join(item for name, item in items if name == verdict.value) for verdict in ItemVerdict)]


def _paper(folder: str) -> str:
    """The heading and the table of a paper."""
    title, _ = PAPERS[folder]
    grid = verdicts_of(folder)
    rows = [
        [_linked(item, report), claim, f"**{verdict}**" + (f" ({counts})" if counts else ""), numbers, scale]
        for item, claim, verdict, numbers, counts, scale, report in grid.rows
    ]
    links = f"{arxiv(folder)} · [notes on our runs]({folder}.md)"
    return f"## {title}\n\n{links}\n\n{_table([*grid.header[:4], grid.header[5]], rows)}"


def arxiv(folder: str) -> str:
    """A link to the paper of a folder of experiments."""
    _, number = PAPERS[folder]
    return f"[arXiv:{number}](https://arxiv.org/abs/{number})"


def navigation(report: Path) -> str:
    """Links of a report to its paper, to the notes on the runs of that paper, and to all results."""
    folder, *below = report.relative_to(RESULTS).parts
    up = "../" * len(below)
    paper = [arxiv(folder), f"[notes on our runs]({up}{folder}.md)"] if folder in PAPERS else []
    return " · ".join([*paper, f"[all results]({up}README.md)"])


def _linked(item: str, report: str) -> str:
    item = item.split(", ")[-1]
    return f"[{item}]({report})" if report else item


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _is_search(group: Group) -> bool:
    return group.experiment.source.startswith("The search behind")


def _searches(groups: list[Group]) -> str:
    text = (RESULTS / "learning-rates.txt").read_text(encoding="utf-8")
    return text.replace("SEARCHES", _reports(group for group in groups if _is_search(group)))


def _reports(groups: Iterable[Group]) -> str:
    """A table of reports by title."""
    rows = [
        [
            f"[{group.experiment.title}]({group.name}/{group.preset}/report.md)",
            f"`{group.name}`" if group.preset == "cpu" else f"`{group.name} --preset {group.preset}`",
            str(len(group.records)),
        ]
        for group in groups
    ]
    return _table(["report", "name", "runs"], rows)
