"""The claims of an experiment, tested on its runs with intervals over seeds."""

from collections.abc import Iterator
from itertools import combinations, product
from math import isfinite

from fastweights.experiments.claim import Above, Claim, Evidence, Interval, Place, Verdict
from fastweights.report.runs import Group, Record


def evidence(group: Group) -> Evidence:
    """The measured numbers of all runs of an experiment under one preset, by place and seed."""
    values: dict[Place, dict[int, float]] = {}
    curves: dict[Place, dict[int, list[tuple[int, float]]]] = {}
    metric = group.metric
    for record in group.records:
        _, _, model, column, seed = record.key
        for place, value in _numbers(group, record):
            values.setdefault(place, {})[seed] = value
        curves.setdefault((model, column), {})[seed] = [(line["step"], metric.at(line)) for line in record.metrics]
    return Evidence(values, curves, metric.best is min)


def _numbers(group: Group, record: Record) -> Iterator[tuple[Place, float]]:
    """The numbers of a run: its cell of the table, its details, and the baselines of its column."""
    _, _, model, column, _ = record.key
    metric, numbers = group.metric, record.result.measured
    yield (model, column), record.value
    for name in group.experiment.details.keys() & numbers.keys():
        yield (model, name), group.detail(name, numbers[name])
    for name, measured in record.result.baselines.items():
        yield (name, column), metric.value(measured)


def claims(group: Group) -> Iterator[str]:
    """One line per claim that the preset can test: the verdict, the source in the paper, the decisive difference."""
    measured, planned = evidence(group), _planned(group)
    tested = [claim for claim in group.experiment.claims if claim.places <= planned]
    for claim in tested:
        verdict = claim.verdict(measured)
        source = claim.source or "ours"
        yield f"{verdict.value} ({source}): {claim.sentence} {_decisive(claim, measured, verdict)}".rstrip()
    if not_tested := len(group.experiment.claims) - len(tested):
        yield f"Not tested: {not_tested} more claims about models or columns that preset {group.preset} does not have."


def _planned(group: Group) -> set[Place]:
    """The places that a preset measures."""
    preset, experiment = group.experiment.presets.get(group.preset), group.experiment
    places = preset.places if preset else product(experiment.models, experiment.columns)
    return {*places, *product(experiment.models, experiment.details), *group.baselines}


def _decisive(claim: Claim, measured: Evidence, verdict: Verdict) -> str:
    """The comparison with the verdict of the claim whose interval has the lowest end."""
    intervals = [part.interval(measured) for part in claim.parts if part.verdict(measured) == verdict]
    known = [interval for interval in intervals if interval is not None]
    return _difference(min(known, key=lambda interval: interval.low)) if known else ""


def _difference(interval: Interval) -> str:
    if interval.samples == 1:
        return f"Difference {interval.mean:.3g}, one seed."
    ends = f"95 % interval {interval.low:.3g} to {interval.high:.3g}, " if isfinite(interval.low) else ""
    return f"Difference {interval.mean:.3g}, {ends}{interval.samples} samples."


def orders(group: Group) -> Iterator[str]:
    """One line per column: how many pairs of models are in the paper's order, in the opposite one, and undecided."""
    experiment, measured = group.experiment, evidence(group)
    for column, label in experiment.columns.items():
        published = {m: n.value for (m, c), n in experiment.published.items() if c == column and not n.at_most}
        ran = [model for model in published if measured.values.get((model, column))]
        pairs = [(a, b) if published[a] > published[b] else (b, a) for a, b in combinations(ran, 2)]
        pairs = [(a, b) for a, b in pairs if published[a] != published[b]]
        verdicts = {(a, b): Above((a, column), (b, column)).verdict(measured) for a, b in pairs}
        if verdicts:
            counts = [sum(v == kind for v in verdicts.values()) for kind in (Verdict.SUPPORTED, Verdict.CONTRADICTED)]
            names = [_pair(group, pair) for pair, v in verdicts.items() if v == Verdict.CONTRADICTED]
            rest = f" In the opposite order: {'; '.join(names)}." if names else ""
            yield (
                f"Pairs of models, {label}: {counts[0]} in the paper's order, {counts[1]} in the opposite order, "
                f"{len(verdicts) - sum(counts)} undecided over seeds.{rest}"
            )


def _pair(group: Group, pair: tuple[str, str]) -> str:
    return " and ".join(group.experiment.models[model] for model in pair)
