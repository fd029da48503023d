"""Aggregates over games: held to sums by hand, and to what a stratified bootstrap must and must not vary."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastweights.core.metric import RETURN, Display
from fastweights.experiments.experiment import Summary
from fastweights.report.aggregates import aggregates, intervals, measures
from fastweights.report.document import Grid

COLUMN = st.lists(st.floats(-2, 2), min_size=1, max_size=6).map(np.array)


@given(st.lists(COLUMN, min_size=1, max_size=4))
def test_measures_are_what_their_names_say(scores):
    runs = sorted(x for part in scores for x in part)
    middle = runs[len(runs) // 4 : len(runs) - len(runs) // 4]
    means = [sum(part) / len(part) for part in scores]
    expected = [
        sum(middle) / len(middle),
        float(np.median(means)),
        sum(means) / len(means),
        sum(max(0.0, 1 - x) for x in runs) / len(runs),
    ]
    assert measures(scores).tolist() == pytest.approx(expected, abs=1e-12)


@given(st.lists(COLUMN, min_size=1, max_size=3))
def test_intervals_lie_within_what_seeds_allow(scores):
    """The mean of a sample lies between those of the worst and of the best seeds."""
    low, high = intervals(scores)[2]
    assert np.mean([x.min() for x in scores]) - 1e-9 <= low <= high <= np.mean([x.max() for x in scores]) + 1e-9


def test_only_seeds_are_drawn_anew():
    """Columns that differ widen nothing; seeds that differ do, by what the mean of that many varies."""
    assert np.ptp(intervals([np.full(3, 0.1), np.full(3, 0.9)]), axis=1).max() < 1e-12
    seeds = np.random.default_rng(0).normal(size=100)
    low, high = intervals([seeds])[2]
    assert high - low == pytest.approx(2 * 1.96 * seeds.std() / 10, rel=0.1)


def group(results, baselines, metric=RETURN):
    models, columns = ({place[n]: place[n].upper() for place in results} for n in (0, 1))
    found = {place: Summary(values) for place, values in results.items()}
    beside = {place: Summary((value,)) for place, value in baselines.items()}
    return SimpleNamespace(models=models, columns=columns, results=found, baselines=beside, metric=metric)


RESULTS = {("a", "pong"): (4.0, 6.0), ("a", "catch"): (0.0, 1.0), ("b", "pong"): (0.0, 0.0), ("b", "catch"): (1.0, 1.0)}
CHANCE = {("random actions", "pong"): -5.0, ("random actions", "catch"): -1.0}


def test_scores_are_between_random_actions_and_the_best_model():
    table = next(block for block in aggregates(group(RESULTS, CHANCE)) if isinstance(block, Grid))
    assert [row[0] for row in table.rows] == ["A", "B"]
    assert [row[3].partition(" ")[0] for row in table.rows] == ["0.88", "0.75"]


@pytest.mark.parametrize(
    ("results", "baselines"),
    [
        ({place: values[:1] for place, values in RESULTS.items()}, CHANCE),
        (RESULTS, {}),
        (RESULTS, CHANCE | {("random actions", "pong"): 5.0}),
    ],
)
def test_without_several_seeds_or_a_span_there_are_none(results, baselines):
    assert not list(aggregates(group(results, baselines)))


def test_choices_of_a_search_are_not_added_up():
    searched = RETURN.shown(Display("validation return", data="validation"))
    assert not list(aggregates(group(RESULTS, CHANCE, searched)))
