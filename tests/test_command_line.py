"""The command line, as users call it."""

import argparse
import os
import subprocess
import sys
import time
from importlib import import_module

import pytest

from fastweights import cli
from fastweights.registry import COMMANDS, KINDS, descriptions


@pytest.mark.parametrize("kind", KINDS)
def test_list_fits_100_columns(kind, capsys):
    assert cli.main(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(descriptions(kind))
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("kind", KINDS)
def test_long_list_has_formulas_and_sources(kind, capsys):
    assert cli.main(["list", kind, "--long"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in descriptions(kind).values():
        assert all(" ".join(words.split()) in text for words in (part.formula, part.source))


def test_list_without_arguments_lists_the_kinds(capsys):
    assert cli.main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(KINDS)


@pytest.mark.parametrize("kind", ["rules", "cells", "feature-maps", "layers"])
def test_every_part_has_formula_and_source(kind):
    for name, part in descriptions(kind).items():
        formula = part.formula or part.summary
        assert "<-" in formula or "=" in formula, name
        assert part.source, name


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["train", "char-lm", "--help"], ["list", "--help"]]
)
def test_help_has_a_usage_line(arguments, fastweights):
    start = time.perf_counter()
    result = fastweights(*arguments)
    assert result.returncode == 0
    assert "usage: fastweights" in result.stdout
    # No bound on the time here: it is short because torch is not loaded (test_architecture.py).
    print(f"{time.perf_counter() - start:.2f} s")


def test_explain_names_the_backend_and_the_reasons(capsys):
    assert cli.main(["explain", "delta", "--size", "T=4096", "--dtype", "bfloat16"]) == 0
    assert "T=4096" in (out := capsys.readouterr().out)
    assert "compiled   runs" in out
    assert "chunkwise  could run" in out


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--steps", "many", "steps must be a whole number"),
        ("--learning-rate", "fast", "learning_rate must be a number"),
        ("--device", "tpu", "device must be one of auto, cpu, cuda, mps"),
        ("--betas", "[1, 2, 3]", "betas must be a tuple with 2 elements"),
    ],
)
def test_error_names_the_required_type_of_a_flag(flag, value, expected, capsys):
    assert cli.main(["train", "char-lm", flag, value]) == 2
    assert f"fastweights: {expected}, got '{value}'. See fastweights train char-lm --help." in capsys.readouterr().err


INVALID = {
    "nothing": [],
    "unknown command": ["trian"],
    "unknown kind": ["list", "rule"],
    "unknown cell": ["explain", "detla"],
    "size of zero": ["explain", "delta", "--size", "H=0"],
    "unknown device": ["explain", "delta", "--device", "cdua"],
    "unknown device to check on": ["check", "delta", "--device", "cdua"],
    "unknown module": ["check", "no_such_module:cell"],
    "not a function": ["check", "math:pi"],
    "unknown recipe": ["train", "ozz"],
    "unknown preset": ["train", "char-lm", "--preset", "lnog"],
    "unknown flag": ["train", "char-lm", "--stepz", "3"],
    "no number": ["train", "char-lm", "--steps", "many"],
    "unknown layer": ["train", "char-lm", "--layer", "deltanet"],
    "wrong heads": ["train", "char-lm", "--num-heads", "7"],
    "no device": ["train", "char-lm", "--device", "mps"],
    "no batch": ["train", "char-lm", "--batch-size", "0"],
    "huge batch": ["train", "char-lm", "--batch-size", "100000"],
    "all dropped": ["train", "char-lm", "--dropout", "1.5"],
    "huge seed": ["train", "char-lm", "--seed", str(2**70)],
    "no learning rate": ["train", "char-lm", "--learning-rate", "-1"],
    "missing text": ["train", "char-lm", "--text", "/no/such/file"],
    "resume without a run": ["train", "char-lm", "--resume"],
    "resume of no run": ["train", "char-lm", "--run", "/no/such/run", "--resume"],
    "evaluate no run": ["evaluate", "/no/such/run"],
    "generate no run": ["generate", "/no/such/run", "--prompt", "a"],
    "translate no run": ["translate", "/no/such/run", "a"],
    "config that is not there": ["train", "char-lm", "--config", "/no/such.yaml"],
    "config of another coding": ["train", "char-lm", "--config", sys.executable],
    "a search": ["train", "online-memory-rates"],
    "memories of a layer without": ["train", "char-lm", "--preset", "smoke", "--test-mem-lens", "[5]"],
}


@pytest.mark.parametrize("name", COMMANDS.names())
def test_help_of_every_command(name, capsys):
    """Its line in the list of commands, and a page with its purpose."""
    for arguments in (["--help"], [name, "--help"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        text = " ".join(capsys.readouterr().out.split())
        assert stop.value.code == 0
        assert " ".join(COMMANDS.describe(name).summary.split()) in text
    assert f"usage: fastweights {name} " in text


@pytest.mark.parametrize("arguments", INVALID.values(), ids=INVALID)
def test_invalid_input_gives_an_error_of_one_line_and_status_2(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(arguments)
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2, error
    assert len(error.splitlines()) == 1, error
    assert error.startswith("fastweights")
    assert not list(tmp_path.glob("runs/*")), "the command wrote a file"


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["explain", "detla"], "delta"),
        (["compile", "detla"], "delta"),
        (["train", "char-lm", "--layer", "deltanet"], "delta-net"),
    ],
)
def test_unknown_names_suggest_the_nearest(arguments, nearest, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert f"Did you mean '{nearest}'?" in capsys.readouterr().err


def takes_a_cell(name):
    """Whether the first argument of a command is a cell."""
    parser = argparse.ArgumentParser()
    import_module(f"fastweights.commands.{name}").add(parser)
    return any("CELL" in str(action.metavar) for action in parser._actions if not action.option_strings)


@pytest.mark.parametrize("name", [name for name in COMMANDS.names() if takes_a_cell(name)])
def test_error_for_a_path_in_place_of_a_cell_names_the_list(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([name, "runs/none"]) == 2
    error = capsys.readouterr().err
    assert "runs/none" in error
    assert "fastweights list cells" in error
    assert "delta-rnn" not in error


@pytest.mark.parametrize("options", [[], ["--output-dir", "made"]])
@pytest.mark.parametrize("name", ["runs/none", "none"])
def test_compile_names_the_remedy_for_a_run_that_does_not_exist(name, options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compile", name, *options]) == 2
    error = capsys.readouterr().err
    assert f"RUN|CELL must be an existing run folder, a cell or a layer, got '{name}'." in error
    assert "fastweights train" in error


@pytest.mark.parametrize("user_settings", [{}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_threads_spin_briefly_unless_the_user_sets_a_policy(user_settings, monkeypatch, capsys):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that pytest restores it after the command
        monkeypatch.delenv(name)
    for name, value in user_settings.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["list", "rules"]) == 0
    settings = {name: os.environ[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ}
    assert settings == (user_settings or {"GOMP_SPINCOUNT": "1000"})
    assert capsys.readouterr().out


WITHOUT_EXTRAS = (
    "import sys; sys.modules.update(dict.fromkeys({}, None)); from fastweights import cli; sys.exit(cli.main({}))"
)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["train", "char-lm", "--preset", "smoke"], 2),
        (["reproduce", "schlag2021/figure-2", "--preset", "smoke"], 2),
        (["list", "layers"], 0),
        (["explain", "delta"], 0),
    ],
    ids=lambda argument: argument[0] if isinstance(argument, list) else "",
)
def test_error_names_the_missing_extra(arguments, status, tmp_path):
    """In a process that cannot import any package of an extra."""
    code = WITHOUT_EXTRAS.format(list(cli.EXTRA), arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == status, done.stderr
    if status:
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "pip install 'fastweights[train]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_name_of_a_run_may_contain_markup(tmp_path, monkeypatch, capsys):
    """Square brackets and colons are markup in tables; not here."""
    monkeypatch.chdir(tmp_path)
    name = "a[/b] :smile:"
    sizes = ["--preset", "smoke", "--steps", "2", "--characters", "6000", "--sample", "3"]
    assert cli.main(["train", "char-lm", *sizes, "--run", name]) == 0
    assert f"run folder {name}" in capsys.readouterr().out
    assert cli.main(["generate", name, "--prompt", "[/a]", "--max-new-tokens", "3"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert cli.main(["generate", name, "--prompt", "a", "--temperature", "1e-320", "--max-new-tokens", "3"]) == 0


@pytest.mark.parametrize("flags", [["--preset", "smoke", "--print-config"], ["--print-config", "--preset", "smoke"]])
def test_printed_settings_are_those_of_the_preset(flags, fastweights):
    printed = fastweights("train", "char-lm", *flags)
    assert printed.returncode == 0, printed.stderr
    assert "steps: 20\n" in printed.stdout
    assert "characters: 20000\n" in printed.stdout
