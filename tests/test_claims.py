"""Claims of papers, with confidence intervals over seeds, and aggregates over games."""

from math import inf, nan
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastweights.core.metric import RETURN, Display
from fastweights.experiments.claim import Above, Claim, Each, Evidence, Gap, Until, Verdict, above, below
from fastweights.experiments.experiment import Summary
from fastweights.registry import EXPERIMENTS
from fastweights.report.aggregates import aggregates, intervals, measures
from fastweights.report.document import Grid
from fastweights.report.verdicts import ItemVerdict, Judged, paper_items, verdicts

A, B, C, D = ((name, "column") for name in "abcd")


def evidence(low_is_good=False, curves=None, **models):
    """Results of models for seeds 1, 2, ..."""
    values = {(name, "column"): dict(enumerate(numbers, 1)) for name, numbers in models.items()}
    return Evidence(values, curves or {}, low_is_good)


def test_95_per_cent_of_intervals_contain_the_true_difference():
    random, hits = np.random.default_rng(0), 0
    for _ in range(2000):
        shared = random.normal(size=3)
        results = evidence(a=1 + shared + random.normal(size=3), b=shared + random.normal(size=3))
        interval = Above(A, B).interval(results)
        hits += interval.low < 1 < interval.high
    assert 0.93 < hits / 2000 < 0.97


def test_variance_shared_by_seeds_does_not_widen_an_interval():
    noise = [0.0, 50.0, -50.0]
    assert Above(A, B).verdict(evidence(a=[2 + x for x in noise], b=[1.1, 51.0, -49.1])) == Verdict.SUPPORTED


@pytest.mark.parametrize("by", [-1.0, 0.0, 3.0])
@pytest.mark.parametrize("times", [0.5, 1.0, 2.0])
def test_reversed_comparison_has_the_opposite_verdict(by, times):
    results = evidence(a=[5.0, 5.5, 4.9], b=[1.0, 1.2, 1.1])
    opposite = {
        Verdict.SUPPORTED: Verdict.CONTRADICTED,
        Verdict.CONTRADICTED: Verdict.SUPPORTED,
        Verdict.UNDECIDED: Verdict.UNDECIDED,
    }
    verdict = Above(A, B, by, times).verdict(results)
    assert Above(B, A, -by / times, 1 / times).verdict(results) == opposite[verdict]


def test_one_seed_equal_numbers_and_nan_are_inconclusive():
    for numbers in ({"a": [9.0], "b": [1.0]}, {"a": [1.0, 1.0], "b": [1.0, 1.0]}):
        assert Above(A, B).verdict(evidence(**numbers)) == Verdict.UNDECIDED
    for broken in (nan, inf):
        assert Above(A, B).verdict(evidence(a=[9.0, broken], b=[1.0, 1.0])) == Verdict.UNDECIDED


def test_seeds_of_one_side_only_are_ignored():
    assert Above(A, B).interval(evidence(a=[3.0, 4.0, 99.0], b=[1.0, 1.0])).samples == 2
    assert Above(A, B).verdict(evidence(a=[3.0, 4.0])) == Verdict.NOT_TESTED


def test_constants_gaps_and_groups_are_compared_per_sample():
    results = evidence(a=[5.0, 6.0], b=[1.0, 1.0], c=[3.0, 3.5], d=[2.0, 2.5])
    assert above(A, 4.0)[0].interval(results).mean == 1.5
    assert below(A, 4.0)[0].interval(results).mean == -1.5
    assert Above(Gap(A, B), Gap(C, D)).interval(results).mean == 3.5
    interval = Above(Each((A, C)), Each((B, D))).interval(results)
    assert (interval.samples, interval.mean) == (4, fmean([4.0, 5.0, 1.0, 1.0]))


@pytest.mark.parametrize("low_is_good", [True, False])
def test_training_steps_until_a_value_or_the_end(low_is_good):
    sign = 1 if low_is_good else -1
    curves = {
        A: {1: [(10, 5.0 * sign), (20, 2.0 * sign), (30, 1.0 * sign)]},
        B: {1: [(10, 5.0 * sign), (40, 4.0 * sign)]},
    }
    results = evidence(low_is_good, curves)
    assert results.samples(Until(*A, 2.0 * sign)) == {(1, 0): 20.0}
    assert results.samples(Until(*B, 2.0 * sign)) == {(1, 0): 40.0}


def test_claim_needs_all_comparisons_or_its_minimum():
    results = evidence(a=[5.0, 5.1], b=[1.0, 1.0], c=[9.0, 9.0])
    yes, no, open_, missing = Above(A, B), Above(A, C), Above(A, 5.05), Above(A, D)
    cases = {
        (yes, yes): (Verdict.SUPPORTED, Verdict.SUPPORTED),
        (yes, no): (Verdict.CONTRADICTED, Verdict.SUPPORTED),
        (yes, open_): (Verdict.UNDECIDED, Verdict.SUPPORTED),
        (no, no): (Verdict.CONTRADICTED, Verdict.CONTRADICTED),
        (no, missing): (Verdict.CONTRADICTED, Verdict.NOT_TESTED),
        (open_, missing): (Verdict.NOT_TESTED, Verdict.NOT_TESTED),
    }
    for parts, (every, one) in cases.items():
        assert Claim("", "", parts).verdict(results) == every, parts
        assert Claim("", "", parts, at_least=1).verdict(results) == one, parts


def test_every_table_and_figure_has_a_verdict_also_without_runs():
    items = list(paper_items())
    assert len(items) == 32
    grid = verdicts([])
    assert [row[2] for row in grid.rows] == [ItemVerdict.NOT_RUN.value] * 32
    assert all(any(claim.source for claim in EXPERIMENTS.load(name).claims) for name in items)


@pytest.mark.parametrize(
    ("supported", "contradicted", "undecided", "missing", "outcome"),
    [
        (2, 0, 0, 0, ItemVerdict.REPRODUCED),
        (2, 1, 0, 0, ItemVerdict.PARTLY),
        (1, 0, 1, 0, ItemVerdict.PARTLY),
        (1, 0, 0, 1, ItemVerdict.PARTLY),
        (0, 1, 1, 1, ItemVerdict.NOT_REPRODUCED),
        (0, 0, 1, 0, ItemVerdict.INCONCLUSIVE),
        (0, 0, 0, 1, ItemVerdict.INCONCLUSIVE),
    ],
)
def test_verdict_of_an_item_follows_from_its_claims(supported, contradicted, undecided, missing, outcome):
    counts = dict(zip(Verdict, (supported, contradicted, undecided, missing), strict=True))
    assert Judged(None, counts).outcome == outcome


COLUMN = st.lists(st.floats(-2, 2), min_size=1, max_size=6).map(np.array)


@given(st.lists(COLUMN, min_size=1, max_size=4))
def test_aggregates_equal_their_definitions(scores):
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
def test_intervals_are_within_the_range_of_seeds(scores):
    """The mean of a sample is between the mean of the worst seeds and that of the best seeds."""
    low, high = intervals(scores)[2]
    assert np.mean([x.min() for x in scores]) - 1e-9 <= low <= high <= np.mean([x.max() for x in scores]) + 1e-9


def test_bootstrap_resamples_seeds_only():
    """Only differences between seeds widen an interval, by the variance of their mean."""
    assert np.ptp(intervals([np.full(3, 0.1), np.full(3, 0.9)]), axis=1).max() < 1e-12
    seeds = np.random.default_rng(0).normal(size=100)
    low, high = intervals([seeds])[2]
    assert high - low == pytest.approx(2 * 1.96 * seeds.std() / 10, rel=0.1)


def group(results_of_models, baselines, metric=RETURN):
    models, columns = ({place[n]: place[n].upper() for place in results_of_models} for n in (0, 1))
    results = {place: Summary(values) for place, values in results_of_models.items()}
    baseline_summaries = {place: Summary((value,)) for place, value in baselines.items()}
    return SimpleNamespace(models=models, columns=columns, results=results, baselines=baseline_summaries, metric=metric)


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
def test_aggregates_need_several_seeds_and_a_range_of_scores(results, baselines):
    assert not list(aggregates(group(results, baselines)))


def test_results_of_a_search_have_no_aggregates():
    searched = RETURN.shown(Display("validation return", data="validation"))
    assert not list(aggregates(group(RESULTS, CHANCE, searched)))
