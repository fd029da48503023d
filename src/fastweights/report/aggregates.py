"""Agents over several games: aggregates of few runs, with confidence intervals."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fastweights.report.document import Block, Grid, Heading, Paragraph
from fastweights.report.runs import Group

RESAMPLES = 2_000
CHANCE = "random actions"
MEASURES = ("IQM", "median", "mean", "optimality gap")
Scores = Sequence[NDArray[np.float64]]
"""The scores of one model: `[seeds]` per column, or `[resamples, seeds]` per column of a bootstrap."""


def aggregates(group: Group) -> Iterator[Block]:
    """Measures over all columns with 95 % intervals, for agents with several seeds.

    A score is (x - x_0) / (x_1 - x_0): x_0 is the result of random actions, x_1 the mean of the column's best model.
    A hyperparameter search has no aggregates, because its columns are choices.

    Source: Agarwal et al. 2021 (rliable).
    """
    spans, results = {column: _span(group, column) for column in group.columns}, group.results
    values = {m: [results[m, c].values if (m, c) in results else () for c in spans] for m in group.models}
    several = {model: columns for model, columns in values.items() if all(columns) and max(map(len, columns)) > 1}
    searched = group.metric.display.data == "validation"
    if searched or not several or any(span is None for span in spans.values()):
        return
    ends = [span for span in spans.values() if span is not None]
    rows = []
    for model, columns in several.items():
        scores = [(np.array(x) - low) / (high - low) for x, (low, high) in zip(columns, ends, strict=True)]
        rows.append([group.models[model], *map(_cell, measures(scores), intervals(scores))])
    yield Heading(3, "Over all columns")
    yield Grid(["", *MEASURES], rows)
    yield Paragraph(
        "Scores are 0 for random actions and 1 for the mean of a column's best model. IQM: mean of the middle half of "
        "all runs. Median: median of the means of columns. Optimality gap: mean distance of runs below 1. Brackets: 95 "
        f"% of {RESAMPLES:,} stratified bootstrap samples, which draw the seeds of every column separately."
    )


def measures(scores: Scores) -> NDArray[np.float64]:
    """IQM, median, mean and optimality gap of the scores `[..., seeds]` of all columns: `[..., 4]`.

    >>> measures([np.array([0.0, 1.0]), np.array([0.5, 0.7])]).round(6).tolist()
    [0.6, 0.55, 0.55, 0.45]
    """
    runs = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = runs.shape[-1] // 4
    middle = runs[..., cut : runs.shape[-1] - cut].mean(-1)
    columns = np.stack([part.mean(-1) for part in scores], axis=-1)
    gap = (1 - np.minimum(runs, 1)).mean(-1)
    return np.stack([middle, np.median(columns, axis=-1), columns.mean(-1), gap], axis=-1)


def intervals(scores: Scores, seed: int = 0) -> NDArray[np.float64]:
    """The 2.5th and the 97.5th percentile of every measure over stratified bootstrap samples: `[4, 2]`.

    Every sample draws the seeds of every column separately, so that no column is left out.

    >>> intervals([np.array([0.2, 0.2]), np.array([0.9])])[1].round(6).tolist()
    [0.55, 0.55]
    """
    draw = np.random.default_rng(seed)
    samples = [part[draw.integers(0, len(part), (RESAMPLES, len(part)))] for part in scores]
    ends: NDArray[np.float64] = np.percentile(measures(samples), (2.5, 97.5), axis=0).T
    return ends


def _span(group: Group, column: str) -> tuple[float, float] | None:
    """The mean results of random actions and of the best model; None unless the best model is better."""
    chance = group.baselines.get((CHANCE, column))
    low = None if chance is None else chance.mean
    means = [summary.mean for (_, c), summary in group.results.items() if c == column]
    high = group.metric.best(means, default=None)
    return None if low is None or high is None or not low < high else (low, high)


def _cell(value: float, interval: NDArray[np.float64]) -> str:
    return f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"
