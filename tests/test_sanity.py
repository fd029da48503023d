"""Sanity checks: every model of a reduced preset can learn an easy version of its task."""

from dataclasses import replace

import pytest

from fastweights import cli
from fastweights.experiments.experiment import SANITY, Sanity
from fastweights.recipes.ba2016 import table_1 as retrieval
from fastweights.recipes.irie2022 import table_1 as few_shot
from fastweights.recipes.schlag2021 import table_5 as feature_maps
from fastweights.registry import EXPERIMENTS
from fastweights.report.runs import collect
from fastweights.report.sanity import checks

REDUCED = [name for name in EXPERIMENTS.names() if "cpu" in EXPERIMENTS.load(name).presets]
CHECKED = [name for name in REDUCED if isinstance(EXPERIMENTS.load(name).sanity, Sanity)]
EASY = {"task": {"pairs": 1, "sizes": (100, 10, 10)}, "training": {"steps": 2, "evaluate_every": 1, "patience": 0}}


@pytest.mark.parametrize("name", REDUCED)
def test_every_reduced_preset_has_a_sanity_check_or_a_reason(name):
    experiment = EXPERIMENTS.load(name)
    assert experiment.sanity, "neither a check nor a reason"
    assert (SANITY in experiment.presets) == isinstance(experiment.sanity, Sanity)


@pytest.mark.parametrize("name", CHECKED)
def test_a_sanity_check_changes_only_its_listed_settings(name):
    experiment = EXPERIMENTS.load(name)
    places = experiment.preset(SANITY).places
    assert places
    assert set(places) <= set(experiment.presets["cpu"].places)
    assert experiment.sanity.own.keys() <= experiment.models.keys()
    for place in places:
        easy, cpu = (experiment.trial(*place, preset).facts() for preset in (SANITY, "cpu"))
        for part, changes in (("task_options", "task"), ("model_options", "model"), ("training", "training")):
            assert easy[part] == {**cpu[part], **getattr(experiment.sanity, changes)}


@pytest.mark.parametrize("name", CHECKED)
def test_models_of_preset_cpu_have_the_required_sizes(name):
    experiment = EXPERIMENTS.load(name)
    sized = [check for check in checks(experiment, None) if check.reached is not None]
    assert all(check.passed for check in sized)
    assert len({check.subject for check in sized}) == len(sized)
    assert bool(sized) == bool(experiment.sanity.sizes)


def failed(experiment):
    return [str(check) for check in checks(experiment, None) if check.reached is not None and not check.passed]


def test_256_features_instead_of_32_fail(monkeypatch):
    monkeypatch.setattr(feature_maps, "FEATURE_MAPS", {"performer": "row-favor-128", "dpfp": "dpfp-8"})
    assert failed(feature_maps.EXPERIMENT) == [
        f"FAILED: {label}, small, features per head: 256, bound 32" for label in feature_maps.MODELS.values()
    ]


def test_heads_of_4_fail(monkeypatch):
    small = {"cpu": {"d_model": 128, "num_layers": 2, "num_heads": 32, "d_ff": 256}}
    column = few_shot.COLUMNS["omniglot-1"]._replace(blocks=small)
    monkeypatch.setitem(few_shot.COLUMNS, "omniglot-1", column)
    assert "FAILED: SRWM, Omniglot, 1-shot, size of a head: 4, bound 16" in failed(few_shot.EXPERIMENT)


@pytest.fixture
def check(monkeypatch, tmp_path, real_data):
    """Function that runs a tiny sanity check and returns its exit status."""

    def run(**options):
        sanity = Sanity(columns=("20",), models=("lstm", "irnn"), **EASY, **options)
        monkeypatch.setattr(retrieval, "EXPERIMENT", replace(retrieval.EXPERIMENT, sanity=sanity))
        return cli.main(["reproduce", "ba2016/table-1", "--sanity", "--runs-dir", str(tmp_path)])

    return run


def test_a_sanity_check_fails_if_one_model_is_below_its_bound(check, tmp_path, capsys):
    assert check(bound=100.0) == 0
    output = capsys.readouterr().out
    assert "passed: LSTM, R = 20:" in output
    assert "passed: IRNN, R = 20:" in output
    assert check(bound=100.0, own={"irnn": -1.0}) == 1
    output = capsys.readouterr().out
    assert "passed: LSTM, R = 20:" in output
    assert "FAILED: IRNN, R = 20:" in output
    page = (tmp_path / "ba2016" / "table-1" / "sanity" / "report.md").read_text(encoding="utf-8")
    assert "Sanity check" in page
    assert "Verdict" not in page


def test_the_report_of_preset_cpu_shows_the_sanity_check(check, tmp_path):
    assert check(bound=100.0) == 0
    group = collect(tmp_path).groups[0]
    shown = list(checks(group.experiment, group))
    assert [c.passed for c in shown] == [True, True]


def test_an_experiment_without_a_check_prints_the_reason(capsys):
    assert cli.main(["reproduce", "ba2016/rates", "--sanity"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("ba2016/rates has no sanity check. ")
    assert len(output.splitlines()) == 1


def test_a_preset_with_the_sanity_check_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["reproduce", "ba2016/table-1", "--sanity", "--preset", "paper"])
    assert "not allowed with" in capsys.readouterr().err
