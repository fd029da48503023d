"""One verdict per table and figure of the papers, computed from claims and their intervals."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from statistics import median
from typing import NamedTuple

from fastweights.experiments.claim import Verdict
from fastweights.experiments.experiment import SANITY, Experiment
from fastweights.registry import EXPERIMENTS
from fastweights.report.claims import evidence
from fastweights.report.document import Grid
from fastweights.report.numbers import format_published, format_summary
from fastweights.report.runs import Group

PAPER = "paper"
"""The preset with a paper's own settings."""

NO_EVIDENCE = ("smoke", SANITY)
"""Presets that are no evidence about the paper: they only show that everything works."""


MOST = 4
"""Largest number of models with numbers in a row."""


class ItemVerdict(Enum):
    """The verdict on one table or figure, over all sentences of the paper about it."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT_REPRODUCED = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"


class Judged(NamedTuple):
    """The runs of a preset, and how many of the paper's sentences have each verdict."""

    group: Group
    counts: dict[Verdict, int]

    @property
    def outcome(self) -> ItemVerdict:
        """Reproduced if all sentences are supported, partly if some are, not if some are contradicted and none is."""
        supported, total = self.counts[Verdict.SUPPORTED], sum(self.counts.values())
        if supported:
            return ItemVerdict.REPRODUCED if supported == total else ItemVerdict.PARTLY
        return ItemVerdict.NOT_REPRODUCED if self.counts[Verdict.CONTRADICTED] else ItemVerdict.INCONCLUSIVE

    @property
    def summary(self) -> str:
        """The number of sentences per verdict."""
        return ", ".join(f"{n} {verdict.value.lower()}" for verdict, n in self.counts.items() if n)

    def __str__(self) -> str:
        return f"{self.outcome.value}. Of the paper's sentences: {self.summary}."


def judge(group: Group) -> Judged:
    """Tests the paper's sentences on the runs of a group."""
    measured = evidence(group)
    outcomes = [claim.verdict(measured) for claim in group.experiment.claims if claim.source]
    return Judged(group, {verdict: outcomes.count(verdict) for verdict in Verdict})


def verdicts(groups: Sequence[Group], items: Iterable[str] | None = None) -> Grid:
    """One row per table and figure of the papers, including those without runs.

    Args:
        groups: The runs.
        items: Names of the tables and figures; all if None.
    """
    header = ["item", "claim of the paper", "verdict", "our numbers (the paper's)", "its claims", "our runs", "report"]
    return Grid(header, [_row(name, groups) for name in (paper_items() if items is None else items)], words=True)


def paper_items() -> Iterator[str]:
    """The names of all experiments that are a table or a figure of a paper."""
    return (name for name in EXPERIMENTS.names() if is_paper_item(EXPERIMENTS.load(name)))


def is_paper_item(experiment: Experiment) -> bool:
    """Whether an experiment is a table or a figure of a paper."""
    return PAPER in experiment.presets and re.search(r"(Table|Figure) \d+$", experiment.source) is not None


def _row(name: str, groups: Sequence[Group]) -> list[str]:
    experiment: Experiment = EXPERIMENTS.load(name)
    judged = [judge(group) for group in groups if group.name == name and group.preset not in NO_EVIDENCE]
    claim = next(claim for claim in experiment.claims if claim.source).sentence
    item = citation(experiment.source)
    if not judged:
        return [item, claim, ItemVerdict.NOT_RUN.value, "", "", "", ""]
    # Of several presets, the one that decides most claims.
    best = max(judged, key=lambda one: (_decided(one), one.group.preset == PAPER))
    report = f"{name}/{best.group.preset}/report.md"
    return [item, claim, best.outcome.value, _comparison(best.group), best.summary, scale(best.group), report]


def _comparison(group: Group) -> str:
    """Our numbers and, where they are printed, the paper's by model, in the column with the most claims."""
    experiment = group.experiment
    claimed = Counter(place for claim in experiment.claims if claim.source for place in claim.places)
    # Of equal counts the first place of the table, since the order of a set differs between processes.
    _, column = max(group.results, key=lambda place: claimed[place])
    models = [model for model in experiment.models if (model, column) in group.results][:MOST]
    numbers = [
        f"{experiment.models[model]} {format_summary(group.results[model, column])}"
        + (
            f" ({format_published(experiment.published[model, column])})"
            if (model, column) in experiment.published
            else ""
        )
        for model in models
    ]
    return f"{experiment.display.label}, {experiment.columns[column]}: {', '.join(numbers)}"


def citation(source: str) -> str:
    """First author, year and item: "Ba 2016, Table 1" for "Ba, Hinton ... 2016, Sec. 4.1, Table 1"."""
    author, year = re.findall(r"^\w+|\d{4}", source)
    return f"{author} {year}, {source.split(', ')[-1]}"


def _decided(judged: Judged) -> int:
    return judged.counts[Verdict.SUPPORTED] + judged.counts[Verdict.CONTRADICTED]


def scale(group: Group) -> str:
    """The number of seeds of our runs, and their share of the paper's table entries and training examples."""
    experiment = group.experiment
    seeds = sorted({len(group.of(*place)) for place in group.results})
    entries = f"{len(group.results)} of {len(experiment.presets[PAPER].places)} entries"
    return f"{_span(seeds)} {'seed' if seeds == [1] else 'seeds'}, {entries}, {_share(group)}"


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _share(group: Group) -> str:
    """The share of the paper's training examples in a run: the median over all runs that the paper has as well."""
    experiment = group.experiment
    shares = []
    for record in group.records:
        _, preset, model, column, _ = record.key
        if (model, column) in experiment.presets[PAPER].places and preset != PAPER:
            run = record.config["trial"]["training"]
            paper = experiment.trial(model, column, PAPER).training
            shares.append(paper.steps * paper.batch_size / (run["steps"] * run["batch_size"]))
    if group.preset == PAPER:
        return "the paper's settings"
    if not shares:
        return "other settings"
    share = median(shares)
    return f"1/{share:,.0f} of the training examples" if share >= 1.5 else "all of the training examples"
