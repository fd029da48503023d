"""The page of a report: small screens, dark mode, accessibility, and content of tables and figures."""

import re
import shutil
from dataclasses import fields, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fastweights.core.docstrings import arguments
from fastweights.core.measurements import Detail, OnValidation
from fastweights.core.metric import ACCURACY, LOSS
from fastweights.experiments.experiment import Summary
from fastweights.registry import EXPERIMENTS, MODELS, TASKS
from fastweights.report.bars import draw_bars
from fastweights.report.document import Grid, Heading, Paragraph, to_html, to_markdown
from fastweights.report.numbers import format_summary
from fastweights.report.page import _numbers, write_report
from fastweights.report.palette import DARK, LIGHT
from fastweights.report.plots import curves_on_test_data, improvements, learning_curves, over_axis
from fastweights.report.runs import Group, Record, collect
from fastweights.report.settings import are_the_papers, settings
from fastweights.training.run_folder.result import Result
from fastweights.training.run_folder.run import Run
from fastweights.training.run_folder.runs_file import RUNS
from fastweights.training.settings._training import HARDWARE, Training
from fastweights.training.settings.language_modelling import LanguageModelling
from tiers import in_tiers

BLOCKS = [
    Heading(1, "Experiments"),
    *[
        block
        for name in ("ba2016/table-1: R & S < 3", "irie2021/table-2")
        for block in (Heading(2, name), Heading(3, "Test error, %"), Grid(["", "a"], [["b", "1"]]), Heading(3, "Notes"))
    ],
    Paragraph("From `fastweights list layers`."),
    Grid(["setting", "value"], [["layer", "delta"]], words=True),
]


class Page(HTMLParser):
    """Elements of an HTML page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.tables, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if "href" in values else []
        if tag == "table":
            self.tables.append(self.open[-1])
        if tag not in ("meta", "img"):
            self.open.append(values | {"tag": tag})

    def handle_endtag(self, tag):
        self.open.pop()


def test_contents_link_to_every_heading():
    page = Page(to_html("t", BLOCKS))
    assert len(set(page.ids)) == len(page.ids), "headings have different names"
    assert page.links == [f"#{name}" for name in page.ids[1:]]
    assert "notes-1" in page.ids


def test_contents_of_markdown_have_the_anchors_of_github():
    contents, *rest = to_markdown(BLOCKS, "figures").partition("\n## ")
    headings = [unescape(text).lower() for text in re.findall("^#+ (.*)", "".join(rest), re.MULTILINE)]
    names = [re.sub(r"[^\w -]", "", text).replace(" ", "-") for text in headings]
    names = [f"{name}-{names[:n].count(name)}".removesuffix("-0") for n, name in enumerate(names)]
    assert re.findall(r"\]\(#(.*?)\)", contents) == names


def test_every_table_scrolls_separately():
    page = Page(to_html("t", BLOCKS))
    assert len(page.tables) == 3
    for around in page.tables:
        assert "wide" in around["class"].split()
        assert around["tabindex"] == "0", "scrolls with the keyboard"
        assert around["aria-labelledby"] in page.ids
    assert re.search(r"\.wide \{[^}]*overflow-x: auto", to_html("t", BLOCKS))


def test_a_page_has_light_and_dark_colours():
    page = to_html("t", BLOCKS)
    day, night = page.split("@media (prefers-color-scheme: dark)")
    assert LIGHT.paper in day
    assert DARK.paper in night
    used = set(re.findall(r"var\((--\w+)\)", page))
    assert used == set(re.findall(r"(--\w+):", day)) == set(re.findall(r"(--\w+):", night.partition("}")[0]))


def test_code_is_marked_as_code():
    assert "<code>fastweights list layers</code>" in to_html("t", BLOCKS)


def group(name, preset="cpu"):
    """Group of finished runs of all models and columns of an experiment."""
    experiment = EXPERIMENTS.load(name)
    places = experiment.preset(preset).places
    facts, metric = {"experiment": name, "preset": preset, "seed": 1}, LOSS.shown(experiment.display)
    configs = [{**facts, "model": m, "column": c, "trial": experiment.trial(m, c, preset).facts()} for m, c in places]
    return Group(name, preset, experiment, [Record(Run(Path()), config, {}, {}, [], metric, 0.0) for config in configs])


LINES = [{"step": 5 * n, "seconds": 30.0 * n, "validation": {"loss": loss}} for n, loss in enumerate((0.5, 0.4), 1)]


def rows(name, preset="cpu"):
    tables = [block for block in settings(group(name, preset)) if isinstance(block, Grid)]
    return {row[0]: dict(zip(table.header[1:], row[1:], strict=True)) for table in tables for row in table.rows}


USUAL = {
    field.name: field.default for field in (*fields(LanguageModelling), *fields(Training)) if field.name in HARDWARE
}
"""Defaults of the hardware settings. A loop may have others."""


@pytest.mark.parametrize(("name", "preset"), [(n, p) for n in EXPERIMENTS.names() for p in EXPERIMENTS.load(n).presets])
def test_all_settings_are_listed_and_described(name, preset):
    experiment = EXPERIMENTS.load(name)
    table = rows(name, preset)
    for place in experiment.preset(preset).places:
        trial = experiment.trial(*place, preset)
        facts, own = trial.facts(), {field.name: field.default for field in fields(trial.training)}
        usual = [(name, default) for name in USUAL for default in (USUAL[name], own.get(name))]
        special = {name: value for name, value in facts["training"].items() if (name, value) not in usual}
        options = {**facts["task_options"], **facts["model_options"], **special}
        one_for_all = {option.replace("_", " ") for option in options} - {"seed", experiment.fold}
        assert one_for_all | {"task", "model"} <= set(table)
    words = arguments(type(trial.training).__doc__)
    for option, meaning in words.items():
        row = table.get(option.replace("_", " "))
        assert option == "seed" or option in USUAL or row["meaning"] == meaning
    if preset == "paper":
        assert all(set(row) <= {"preset paper", "meaning"} for row in table.values()), (
            "no comparison of a preset with itself"
        )


def test_hardware_settings_are_listed_if_they_differ_from_the_defaults():
    assert not {name.replace("_", " ") for name in USUAL} & set(rows("ba2016/table-1"))
    assert rows("schlag2021/table-2")["precision"]["preset cpu"] == "bf16-mixed"


def test_fewer_columns_with_the_papers_settings_are_not_a_reduced_preset():
    assert are_the_papers(group("schlag2021/figure-5"))
    assert not are_the_papers(group("ba2016/table-1"))
    assert not are_the_papers(group("schlag2021/figure-5", "paper"))
    old, other = (group("schlag2021/figure-5") for _ in range(2))
    del old.records[0].config["trial"]["training"]["compile"]
    assert are_the_papers(old), "a setting that does not change the model may be missing in an older run"
    other.records[0].config["trial"]["training"]["steps"] = 5
    assert not are_the_papers(other)


def test_settings_name_the_models_and_columns_of_a_value():
    table = rows("irie2021/table-2")
    assert table["units"]["preset cpu"] == "128 for LSTM"
    assert table["d model"] | {"meaning": 0} == {
        "preset cpu": "64 for all but LSTM",
        "preset paper": "256 for all but LSTM",
        "meaning": 0,
    }
    assert table["batch size"]["preset cpu"] == "8 for ListOps, depth 10, ListOps, depth 15; 16 for the others"
    assert table["batch size"]["preset paper"] == "16 for Code, 3 variables, 100 statements; 64 for the others"
    assert table["betas"]["preset cpu"] == "0.9, 0.995"
    assert table["betas"]["preset paper"] == "", "an equal value is not repeated"
    assert table["steps"]["preset cpu"] == "20,000", "one value for all columns is not repeated"
    assert rows("schlag2021/figure-3")["learning rate"]["preset cpu"] == (
        "0.0001 for Rule of Schlag (2021), tanh; 0.001 for the others"
    )


@pytest.mark.parametrize("folder", [TASKS, MODELS], ids=["tasks", "models"])
def test_descriptions_of_options_are_read_from_docstrings(folder):
    for name in folder.names():
        docstring = folder.docstring(name)
        assert bool(arguments(docstring)) == ("\nArgs:\n" in docstring), name
    assert arguments(TASKS.docstring("retrieval"))["symbols"] == "S, the number of keys and of values."


@pytest.mark.parametrize("logarithmic", [False, True])
def test_axes_are_logarithmic_as_the_experiment_states(logarithmic, monkeypatch):
    of_experiment = group("schlag2021/figure-5", "smoke")
    records = [record._replace(value=0.4, metrics=LINES) for record in of_experiment.records]
    experiment = replace(of_experiment.experiment, published={}, logarithmic=logarithmic)
    charts = []
    monkeypatch.setattr("fastweights.report.plots.draw", lambda chart: charts.append(chart) or b"")
    of_experiment = of_experiment._replace(experiment=experiment, records=records)
    assert [figure.content for figure in (*over_axis(of_experiment), *learning_curves(of_experiment))] == [b""] * 3
    assert [chart.limits.logarithmic for chart in charts] == [logarithmic] * 3
    assert [chart.across for chart in charts] == ["S, number of keys", "training steps", "minutes"]


def record(model, seed, costs, stopped="steps"):
    """Parts of a run with these losses on validation data."""
    config = {"experiment": RETRIEVAL, "preset": "smoke", "model": model, "column": "20", "seed": seed}
    measured = {"validation": {"loss": min(costs)}, "test": {"loss": min(costs)}}
    numbers = {"step": 1, "steps": len(costs), "seconds": 1.0, "parameters": 1}
    lines = [{"step": n, "seconds": float(n), "validation": {"loss": cost}} for n, cost in enumerate(costs, 1)]
    return config, Result(**numbers, stopped=stopped, **measured), lines


def test_baselines_are_means_over_seeds_that_hold_out_different_data():
    """With the same data for all seeds, a baseline is one number."""
    for fold, text in (("", "2.00"), ("fold", "1.50 ± 0.71 (2)")):
        experiment = replace(EXPERIMENTS.load(RETRIEVAL), fold=fold)
        made = (record("softmax", seed, FLAT) for seed in (1, 2))
        records = [
            Record(Run(Path()), config, {}, replace(result, baselines={"ridge": float(config["seed"])}), [], LOSS, 1.0)
            for config, result, _ in made
        ]
        assert _numbers(Group(RETRIEVAL, "smoke", experiment, records)).rows[-1][:2] == ["ridge", text]


RETRIEVAL = "schlag2021/figure-2"
FLAT, FALLING = [3.0, 1.0, 1.1, 1.2, 1.1, 1.0], [3.0, 2.0, 1.5, 1.3, 1.2, 1.1]
LOSS_CURVES = {
    "flat": (record("softmax", 1, FLAT), False),
    "falling": (record("softmax", 1, FALLING), True),
    "falling until it was good enough": (record("softmax", 1, FALLING, "goal"), False),
    "falling until NaN": (record("softmax", 1, [*FALLING, float("nan")], "diverged"), False),
    "fallen to the lower bound": (record("softmax", 1, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]), False),
    "one evaluation": (record("softmax", 1, [1.0]), True),
}


@pytest.mark.parametrize("curve", LOSS_CURVES)
def test_a_run_that_was_cut_off_while_improving_is_marked(curve, tmp_path):
    written, cut_off = LOSS_CURVES[curve]
    text = page_of(tmp_path, written)
    assert ("Cut off while improving" in text) == cut_off
    assert ("(1) † |" in text) == cut_off
    assert ("All seeds of a marked number were cut off." in text) == cut_off


def test_a_report_lists_cells_with_some_cut_off_seeds(tmp_path):
    text = page_of(tmp_path, record("softmax", 1, FALLING), record("softmax", 2, FLAT))
    assert "All seeds of a marked number were cut off, except here:\n\n- Softmax, S = 20 (1 of 2)\n" in text


def page_of(folder, *records):
    """Report of runs of one table."""
    experiment = EXPERIMENTS.load(RETRIEVAL)
    for config, result, lines in records:
        trial = experiment.trial(config["model"], config["column"], "smoke").facts()
        run = Run(folder / f"seed-{config['seed']}")
        run.begin(RETRIEVAL, {**config, "trial": trial}, {}, LOSS)
        for line in lines:
            run.log(**line)
        run.write_result(result)
    write_report(collect(folder))
    return (folder / "report.md").read_text(encoding="utf-8")


RESULTS = Path(__file__).parents[1] / "docs" / "results"
WITH_RUNS = [path.parent for path in sorted(RESULTS.rglob(RUNS))]


def id_of(folder):
    return str(folder.relative_to(RESULTS))


def kinds_of_training(name):
    """Types of the training settings of an experiment's smoke preset."""
    experiment = EXPERIMENTS.load(name)
    preset = experiment.preset("smoke")
    return {type(experiment.trial(model, preset.columns[0], "smoke").training) for model in preset.models}


@pytest.mark.parametrize(
    "folder",
    in_tiers({path: kinds_of_training(id_of(path.parent)) for path in WITH_RUNS}),
    ids=map(id_of, WITH_RUNS),
)
def test_committed_reports_follow_from_their_runs(folder, tmp_path):
    copy = tmp_path / folder.name
    made = shutil.ignore_patterns("figures", "report.*", ".*.lock", "*.safetensors")
    # A report also shows the sanity check of its experiment, which is in the folder next to its preset.
    for part in {folder, folder.parent / "sanity"}:
        if part.exists():
            shutil.copytree(part, tmp_path / part.name, ignore=made)
    write_report(collect(copy))
    report = (copy / "report.md").read_bytes()
    assert (folder / "report.md").read_bytes() == report, f"stale: fastweights report {folder}"
    shown = set(re.findall(rb"\]\(figures/([^)]*)\)", report))
    assert shown == {path.name.encode() for path in (copy / "figures").iterdir()}


def test_every_committed_report_has_its_runs():
    assert [path.parent for path in sorted(RESULTS.rglob("report.md"))] == WITH_RUNS


def test_only_figures_of_deleted_runs_are_deleted(tmp_path):
    """Includes a report that was edited by hand and names other files."""
    config, *rest = record("softmax", 2, FALLING)
    page_of(tmp_path, record("softmax", 1, FALLING), ({**config, "column": "40"}, *rest))
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    deleted = {name for name in drawn if "-40-" in name}
    assert deleted
    shutil.rmtree(tmp_path / "seed-2")
    for file in (tmp_path / "mine.svg", tmp_path / "figures" / "mine.svg"):
        file.write_text("<svg/>")
    with (tmp_path / "report.md").open("a") as report:
        report.write("![](figures/../mine.svg) ![](figures/gone.svg)\n")
    write_report(collect(tmp_path))
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {*drawn, "mine.svg"} - deleted
    assert (tmp_path / "mine.svg").is_file()


def test_wide_tables_are_transposed():
    wide, long = Grid(["", "a", "b"], [["x", "1", "2"]]), Grid(("", "x"), [("a", "1"), ("b", "2")])
    assert wide.upright() == long
    assert long.upright() is long


def test_a_detail_belongs_to_the_column_of_its_measurement():
    of_experiment = group("gregor2020/figure-1")
    _, one, _ = record("srwm", 1, [0.5])
    numbers = {"10": 0.25, "80": 0.75}
    records = [
        run._replace(result=replace(one, details={"early": {run.config["column"]: numbers[run.config["column"]]}}))
        for run in of_experiment.records
        if run.config["model"] == "lstm+gated" and run.config["column"] in numbers
    ]
    details = of_experiment._replace(records=records).details
    assert {detail: summary.mean for (_, detail), summary in details.items()} == {
        Detail("early", delay): value for delay, value in numbers.items()
    }


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS.names() if EXPERIMENTS.load(name).improvement])
def test_improvements_are_relative_to_the_size_of_the_other_score(name, monkeypatch):
    """Bars from the worst to the best game: 100 (a - b) / |b|, for positive and negative scores."""
    charts = []
    monkeypatch.setattr("fastweights.report.plots.draw_bars", lambda chart: charts.append(chart) or b"")
    of_experiment = group(name, "paper")
    better, base = of_experiment.experiment.improvement
    scores = {"gopher": (30.0, 20.0), "qbert": (-10.0, -20.0), "zaxxon": (5.0, 20.0), "berzerk": (5.0, 0.0)}
    records = []
    for run in of_experiment.records:
        game, model = run.config["column"], run.config["model"]
        if game in scores:
            records.append(run._replace(value=scores[game][model == base]))
        elif model == better:
            records.append(run)
    improvements(of_experiment._replace(records=records))
    labels = of_experiment.experiment.columns
    assert charts[0].ordered == [(labels["zaxxon"], -75.0), *[(labels[g], 50.0) for g in ("gopher", "qbert")]]
    assert draw_bars(charts[0]).startswith(b"<?xml")
    assert improvements(of_experiment._replace(records=[])) == []


def test_curves_on_test_data_are_drawn_if_they_were_measured(monkeypatch):
    charts = []
    monkeypatch.setattr("fastweights.report.plots.draw", lambda chart: charts.append(chart) or b"")
    of_experiment = group("irie2022/figure-7", "cpu")
    lines = [{"step": n, "seconds": 1.0, "validation": {"accuracy": 0.5}, "test": {"accuracy": n / 10}} for n in (1, 2)]
    metric = ACCURACY.shown(of_experiment.experiment.display)
    measured = [run._replace(metrics=lines, metric=metric) for run in of_experiment.records]
    assert [figure.name for figure in curves_on_test_data(of_experiment._replace(records=measured))] == [
        "irie2022-figure-7-cpu-mini-imagenet-5-test"
    ]
    assert {tuple(line.points) for line in charts[0].lines} == {((1, 10.0), (2, 20.0))}
    without = [{name: value for name, value in line.items() if name != "test"} for line in lines]
    assert (
        curves_on_test_data(of_experiment._replace(records=[run._replace(metrics=without) for run in measured])) == []
    )


def test_returns_of_games_are_no_percentages():
    """The score of several games is a percentage, the return of each game is not. Training levels are listed."""
    of_experiment = group("irie2022/table-6")
    _, one, _ = record("srwm", 1, [0.5])
    result = replace(one, test={"score": 0.2, "bigfish": 9.0}, validation={"score": 0.35, "bigfish": 20.0})
    of_experiment = of_experiment._replace(
        records=[run._replace(result=result) for run in of_experiment.records if run.config["model"] == "srwm"]
    )
    means = {name: summary.mean for (_, name), summary in of_experiment.details.items()}
    assert means == {OnValidation("score"): 35.0, OnValidation("bigfish"): 20.0, "bigfish": 9.0}
    assert of_experiment.weights == "the last weights"


def test_charts_show_a_few_pairs_of_a_map(monkeypatch):
    of_experiment = group("gregor2020/figure-1", "cpu")
    monkeypatch.setattr("fastweights.report.plots.draw", lambda chart: charts.append(chart) or b"")
    charts = []
    over_axis(of_experiment._replace(records=[one._replace(value=0.4, metrics=LINES) for one in of_experiment.records]))
    drawn = {line.name for line in charts[0].lines}
    assert {"LSTM x GATED", "LSTM x GATED, 14 components", "LSTM with 16 units"} < drawn
    assert "MLP x MLP" not in drawn
    assert all(len(line.points) == len(of_experiment.columns) for line in charts[0].lines if line.dots)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.93, 0.94, 0.95), "0.940 ± 0.010 (3)"),
        ((0.9577,), "0.958 (1)"),
        ((-0.5, -0.51), "-0.505 ± 0.007 (2)"),
        ((0.098123, 0.098123), "0.0981 ± 0.0000 (2)"),
        ((97.35, 98.0), "97.67 ± 0.46 (2)"),
        ((-0.3, 0.3), "0.000 ± 0.424 (2)"),
        ((0.0, 0.0), "0.00 ± 0.00 (2)"),
        ((3e-5, 5e-5), "4e-05 ± 1.41e-05 (2)"),
    ],
)
def test_a_mean_and_its_deviation_have_the_same_digits(values, text):
    assert format_summary(Summary(values)) == text
