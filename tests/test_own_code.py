"""Custom rules, cells and layers are accepted wherever the name of a layer is."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

import my_memories
from fastweights import Cell, FastWeightProgrammer, InputError, LanguageModel, cli, make_layer, scan
from fastweights.core.sealed_json import read_sealed, write_sealed
from fastweights.layers import layer_options, make_layers
from fastweights.models import BlockModel, RecurrentModel, RetrievalModel

FILE = Path(my_memories.__file__)
D = 8
FORMS = {
    "a name": "gated-delta",
    "a rule": my_memories.fading,
    "a step": my_memories.bounded,
    "a cell": my_memories.cell,
    "a closure": my_memories.leaky,
    "a member of a family": my_memories.member,
    "a class": my_memories.Wrapped,
    "a function that makes layers": my_memories.wrapped_twice,
    "a module's rule": "my_memories:fading",
    "a module's cell": "my_memories:cell",
    "a module's closure": "my_memories:leaky",
    "a module's family": "my_memories:leaky_family(0.5)",
    "a module's class": "my_memories:Wrapped",
    "a file's rule": f"{FILE}:fading",
    "a file's family": f"{FILE}:leaky_family(0.5)",
    "a file's function that makes layers": f"{FILE}:wrapped_twice",
}


@pytest.fixture(autouse=True)
def _forget_files():
    """Restores the module search path after every test."""
    paths = [*sys.path]
    yield
    sys.path[:] = paths
    sys.modules.pop("custom", None)


@pytest.mark.parametrize("layer", FORMS.values(), ids=FORMS)
def test_every_form_makes_a_layer(layer):
    made = make_layer(layer, D, num_heads=2)
    y, state = made(torch.randn(3, 5, D))
    assert y.shape == (3, 5, D)
    continued, _ = made(torch.randn(3, 1, D), state)
    assert continued.isfinite().all()


@pytest.mark.parametrize("layer", ["a rule", "a module's rule", "a file's rule"])
def test_every_model_accepts_a_custom_rule(layer):
    own, tokens = FORMS[layer], torch.randint(5, (2, 6))
    assert LanguageModel(5, own, D, num_layers=2, num_heads=2)(tokens)[0].shape == (2, 6, 5)
    assert BlockModel("tokens", 5, 3, own, D, 2, 2, 16)(tokens, 1).shape == (2, 1, 3)
    assert RecurrentModel("tokens", 5, 3, own, D, num_heads=2)(tokens, 1).shape == (2, 1, 3)
    programmer = FastWeightProgrammer(torch.nn.Linear(D, D), make_layer(own, D, num_heads=2), D)
    assert programmer(torch.randn(2, 6, D))[0].shape == (2, 6, D)


def test_the_retrieval_model_accepts_a_custom_rule():
    pairs = torch.randint(5, (2, 6, 2))
    assert RetrievalModel("pairs", 5, 5, "my_memories:leaky")(pairs, 2).shape == (2, 2, 5)


def test_different_addresses_of_a_rule_give_the_same_cell():
    assert (
        Cell.from_function("my_memories:fading")
        is Cell.from_function(my_memories.fading)
        is Cell.from_function(Cell.from_function(my_memories.fading))
    )
    assert Cell.from_function("my_memories:leaky_family(0.8)") is Cell.from_function(my_memories.member)
    assert Cell.from_function(f"{FILE}:fading") is Cell.from_function(f"{FILE.parent}/../tests/{FILE.name}:fading")


def test_scan_accepts_names():
    k, v = torch.randn(2, 1, 4, 1, 3).unbind()
    torch.testing.assert_close(
        scan("my_memories:bounded", my_memories.BoundedInputs(k, v))[0],
        scan(my_memories.bounded, my_memories.BoundedInputs(k, v))[0],
    )


def test_equal_family_arguments_of_different_types_give_different_rules():
    assert my_memories.leaky_family(1) is not my_memories.leaky_family(1.0)
    assert my_memories.leaky_family(True) is not my_memories.leaky_family(1)


@pytest.mark.parametrize("bad", [[0.5], float("nan"), torch.tensor(0.5), ({},)])
def test_families_accept_plain_arguments_only(bad):
    with pytest.raises(InputError, match="arguments of make_leaky must be finite numbers"):
        my_memories.leaky_family(bad)


def kinds(model):
    return [type(block.layer).__name__ for block in model.blocks]


def test_several_layers_alternate_over_the_blocks():
    stack = LanguageModel(5, "lstm, delta-net,softmax-attention", D, num_layers=5, num_heads=2)
    assert kinds(stack) == ["LSTM", "DeltaNet", "SoftmaxAttention", "LSTM", "DeltaNet"]
    stack = LanguageModel(5, [my_memories.Wrapped, "lstm"], D, num_layers=2, num_heads=2)
    assert kinds(stack) == ["Wrapped", "LSTM"]
    tokens = torch.randint(5, (2, 6))
    whole, state = stack(tokens)
    first, carried = stack(tokens[:, :4])
    last, carried = stack(tokens[:, 4:], carried)
    torch.testing.assert_close(torch.cat([first, last], 1), whole)
    for one, other in zip(tree_leaves(carried), tree_leaves(state), strict=True):
        torch.testing.assert_close(one, other)


def test_an_option_is_passed_to_the_layers_that_have_it():
    one, other = make_layers("delta-net,softmax-attention", 2, D, 2, feature_map="dpfp-2", window_size=3)
    assert one.slow_net.keys.output_size == 2 * 2 * D // 2
    assert other.window_size == 3
    assert {"feature_map", "window_size"} <= layer_options("delta-net,softmax-attention")


REFUSED = {
    "no layer": ([], "layer must be at least one"),
    "more layers than blocks": (["lstm"] * 3, "layer must be at most 2 layers for 2 blocks, got 3 layers"),
    "an unknown name among known ones": ("lstm,detla", r"Did you mean 'delta'\?"),
    "a missing module": ("no_such_module:rule", "no_such_module"),
    "a missing file": ("./no/such.py:rule", "No such file"),
    "a missing name": ("my_memories:fadign", "Did you mean 'fading'"),
    "a file without a name": (str(FILE), "must be MODULE:NAME or PATH.py:NAME"),
    "a number": ("my_memories:NUMBER", "layer must be a name, a rule, .* got a int"),
    "a call of a function without `family`": ("my_memories:make_leaky(0.5)", "must be a member of a family"),
    "a call with code in it": ("my_memories:leaky_family(__import__('os'))", "with plain arguments"),
    "an instance of a module": (torch.nn.Linear(2, 2), "layer must be a name, .* got a Linear"),
    "a class that is no layer": (
        torch.nn.LayerNorm,
        "layer must be a class or function of modules .* got LayerNorm",
    ),
    "a class with more arguments": (torch.nn.Linear, "options must be those of Linear, .*'out_features'"),
}


@pytest.mark.parametrize(("layer", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_layers_are_refused_in_one_line(layer, message):
    with pytest.raises(InputError, match=message) as refusal:
        LanguageModel(5, layer, D, num_layers=2, num_heads=2)
    assert "\n" not in str(refusal.value)


def test_failing_code_is_refused_with_its_line(tmp_path):
    (tmp_path / "custom.py").write_text("\n\nimport math\nmath.no_such_name\n")
    with pytest.raises(InputError, match=r"AttributeError.*no_such_name.*custom\.py, line 4"):
        Cell.from_function(f"{tmp_path}/custom.py:rule")


def test_a_file_can_import_modules_of_its_folder(tmp_path):
    (tmp_path / "custom.py").write_text("from my_memories import fading as mine\n")
    (tmp_path / "my rule-1.py").write_text("from custom import mine\n")
    assert Cell.from_function(f"{tmp_path}/my rule-1.py:mine") is Cell.from_function(my_memories.fading)


@pytest.mark.parametrize("where", ["./my_memories.py:bounded", "my_memories:bounded"])
def test_explain_accepts_files_and_modules(where, monkeypatch, capsys):
    monkeypatch.chdir(FILE.parent)
    assert cli.main(["explain", where]) == 0
    assert "bounded, B=8" in capsys.readouterr().out


SMALL = ["--preset", "smoke", "--steps", "2", "--evaluate-every", "2", "--sample", "5", "--characters", "6000"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run with a custom layer, in a file that writes a trace when it is executed."""
    folder = tmp_path_factory.mktemp("runs")
    trace = f"from pathlib import Path\nPath({str(folder / 'trace')!r}).touch()\n"
    (folder / "custom.py").write_text(FILE.read_text() + trace)
    layer = f"{folder}/custom.py:fading,lstm"
    assert cli.main(["train", "char-lm", *SMALL, "--layer", layer, "--run", str(folder / "run")]) == 0
    (folder / "trace").unlink()
    return folder / "run"


def trace(run):
    return run.parent / "trace"


@pytest.mark.parametrize(
    "command", [["evaluate"], ["generate", "--prompt", "a"], ["train", "char-lm", "--resume", "--run"]]
)
def test_code_of_a_run_is_executed_only_if_the_user_names_it(run, command, capsys):
    assert cli.main([*command, str(run)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "If you trust that code, add --layer" in error
    assert not trace(run).exists()


@pytest.mark.parametrize("flag", ["feature_map", "qk_norm"])
def test_other_settings_of_a_run_execute_no_code(run, flag, tmp_path, capsys):
    """A user can confirm the code of the layer only."""
    shutil.copytree(run, tmp_path / "run")
    config = read_sealed(tmp_path / "run" / "config.json")
    config["config"]["flags"] |= {flag: f"{run.parent}/custom.py:fading", "layer": "delta-net"}
    write_sealed(tmp_path / "run" / "config.json", config)
    for command in (["evaluate"], ["generate", "--prompt", "a"], ["train", "char-lm", "--resume", "--run"]):
        assert cli.main([*command, str(tmp_path / "run")]) == 2
        assert f"{flag} in" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "run")]) == 0
    assert not trace(run).exists()


def test_a_report_executes_no_code_of_a_run(run):
    assert cli.main(["report", str(run)]) == 0
    assert "custom.py:fading,lstm" in (run / "report.md").read_text()
    assert not trace(run).exists()


def test_named_code_may_have_moved(run, tmp_path, capsys):
    moved = shutil.copy(FILE, tmp_path / "moved.py")
    generate = ["generate", str(run), "--prompt", "a", "--max-new-tokens", "9", "--seed", "1", "--layer"]
    texts = []
    for place in (run.parent / "custom.py", moved):
        assert cli.main([*generate, f"{place}:fading,lstm"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    resume = ["train", "char-lm", "--run", str(run), "--resume", "--layer", f"{moved}:fading,lstm"]
    assert cli.main(resume) == 0


@pytest.mark.parametrize("other", ["lstm", "my_memories:leaky,lstm", "my_memories:fading"])
def test_a_layer_that_differs_from_that_of_the_run_is_refused(run, other, capsys):
    assert cli.main(["evaluate", str(run), "--layer", other]) == 2
    assert "layer must be" in capsys.readouterr().err
    assert not trace(run).exists()


def test_a_layer_of_the_library_needs_no_confirmation(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    config = read_sealed(tmp_path / "run" / "config.json")
    config["config"]["flags"]["layer"] = "lstm"
    write_sealed(tmp_path / "run" / "config.json", config)
    assert cli.main(["generate", str(tmp_path / "run"), "--prompt", "a"]) == 2
    assert "checkpoint must be a checkpoint of the model in config.json" in capsys.readouterr().err
