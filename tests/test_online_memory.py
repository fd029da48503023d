"""Online memory: samples of the past, states of snippets, and resuming of a training run."""

import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from fastweights import InputError, cli
from fastweights.models.neuron_network import NeuronNetwork
from fastweights.models.symbol_model import SymbolModel
from fastweights.state import detach
from fastweights.tasks import Letters
from fastweights.training.loops.online_memory import SegmentReader, replace_fields
from fastweights.training.run_folder.run import Run
from fastweights.training.settings.online_memory import OnlineMemory

T = 5
BODIES = ("h", "p", "y", "tail")


def settings(**options):
    return OnlineMemory(**{"steps": 1, "evaluate_every": 1, "learning_rate": 1e-3, "segment": T, **options})


@pytest.mark.parametrize(("bounds", "delay", "reach"), [("behind", 3, 3 + T), ("printed", 9, 9)])
def test_snippets_start_at_every_position_within_the_bounds(bounds, delay, reach):
    reader = SegmentReader(torch.arange(10_000), settings(bounds=bounds, delay=delay), 1)
    distances = set()
    for segment in range(500, 1000):
        pair = reader.pair(segment, 0)
        last = int(pair.inputs[0, -1])
        assert last == (segment + 1) * T - 1
        assert torch.equal(pair.targets, pair.inputs + 1)
        assert torch.equal(pair.past_targets, pair.past_inputs + 1)
        assert pair.past_targets.max() <= last, "a snippet of text that was not yet read"
        distances.add(last - int(pair.past_inputs[0, 0]))
    assert distances == set(range(T, reach + 1))


def test_segments_are_in_order_and_repeat_from_the_start():
    symbols = torch.randperm(103)
    reader = SegmentReader(symbols, settings(), 1)
    read = torch.cat([reader.pair(segment, 0).inputs[0] for segment in range(50)])
    assert torch.equal(read, symbols.repeat(3)[: len(read)])


def test_the_first_snippets_start_within_the_read_text():
    reader = SegmentReader(torch.arange(1000), settings(delay=80), 2)
    for segment in range(40):
        pair = reader.pair(segment, 0)
        assert (pair.past_inputs[:, 0] >= reader.starts[:, 0]).all()


MODELS = {
    "neurons": (lambda: NeuronNetwork(27, neurons=1, width=3, backend="reference"), {"h", "p"}),
    "lstm": (lambda: SymbolModel(27, "lstm", 8), {"h"}),
    "delta-rnn": (lambda: SymbolModel(27, "delta-rnn", 8, 2, conv_size=2), {"y", "tail"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_snippet_keeps_the_memory_and_resets_the_activations(name):
    make, bodies = MODELS[name]
    model = make()
    start = model.initial_state(2)
    _, state = model(torch.randint(27, (2, T)), start)
    fresh = replace_fields(detach(state), start, BODIES)
    for field, now, before, mine in leaves(state, start, fresh):
        assert torch.equal(mine, before if field in bodies else now), field
        assert not torch.equal(now, before), f"{field} has not changed"


def leaves(*states):
    """Names of fields and their values in all states."""
    first = states[0]
    for field, parts in zip(first._fields, zip(*states, strict=True), strict=True):
        if isinstance(parts[0], tuple):
            yield from leaves(*parts)
        else:
            yield field, *parts


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_the_segment_through_the_memory(name):
    """The loss of the snippet has a gradient for the writes of the segment."""
    model = MODELS[name][0]()
    start = model.initial_state(1)
    _, after = model(torch.randint(27, (1, T)), start)
    memory = replace_fields(after, start, BODIES)
    (weights,) = (leaf for field, leaf in leaves(memory) if field in ("w", "c", "W"))
    weights.retain_grad()
    losses, _ = model(torch.randint(27, (1, T)), memory, targets=torch.randint(27, (1, T)))
    losses.mean().backward()
    assert weights.grad.abs().sum() > 0
    assert weights.grad_fn is not None


@pytest.mark.parametrize("name", MODELS)
def test_losses_equal_the_cross_entropy_of_the_logits(name):
    model = MODELS[name][0]()
    tokens, targets = torch.randint(27, (2, 2, T))
    logits, _ = model(tokens)
    losses, _ = model(tokens, targets=targets)
    want = -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(losses, want)


def test_letters_have_27_symbols(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("Été -- 3 Zoos!\n" * 9)
    task = Letters(text=str(path))
    assert task.content.startswith(" t       zoos   t ")
    assert (task.unknown, task.arguments) == ("é", (27,))
    assert Letters(text=str(path), merged=True).content.startswith(" t zoos t zoos")


SMOKE = ("train", "online-memory", "--preset", "smoke")


def test_other_texts_are_read_after_training_without_learning(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").write_text("a rose is a rose is a rose. " * 20)
    assert cli.main([*SMOKE, "--run", "plain"]) == 0
    assert cli.main([*SMOKE, "--run", "more", "--test-texts", "other.txt,noise"]) == 0
    plain, more = (Run(tmp_path / name).result() for name in ("plain", "more"))
    assert 0 < more.details["bits"]["other.txt"] < 5
    assert math.log2(27) < more.details["bits"]["noise"] < 5
    assert {**more.details, "bits": {}} == {**plain.details, "bits": {}}
    assert more.test == plain.test
    assert "other.txt, read once" in capsys.readouterr().out
    monkeypatch.chdir("/")
    assert cli.main(["evaluate", str(tmp_path / "more")]) == 0
    (tmp_path / "other.txt").write_text("a violet is no rose. " * 20)
    assert cli.main(["evaluate", str(tmp_path / "more")]) == 2
    assert "letters must be the data that" in capsys.readouterr().err


def test_a_missing_text_is_refused_before_training(tmp_path, capsys):
    assert cli.main([*SMOKE, "--run", str(tmp_path / "run"), "--test-texts", "babble"]) == 2
    written = capsys.readouterr()
    assert "test_texts must be names of texts, or text files, got babble." in written.err
    assert "step" not in written.out


@pytest.mark.slow
def test_resume_is_bit_identical_after_a_kill(tmp_path):
    flags = (*SMOKE, "--steps", "300", "--evaluate-every", "50")
    assert cli.main([*flags, "--run", str(tmp_path / "whole")]) == 0
    command = [sys.executable, "-m", "fastweights.cli", *flags, "--run", str(tmp_path / "killed")]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "last.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert Run(tmp_path / "killed").result() is None
    assert cli.main(["train", "online-memory", "--run", str(tmp_path / "killed"), "--resume"]) == 0
    for file in ("last.safetensors", "best.safetensors"):
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert Run(tmp_path / "killed").result().test == Run(tmp_path / "whole").result().test


def test_a_loss_that_is_not_finite_stops_training_and_names_the_step(tmp_path, capsys):
    path = str(tmp_path / "run")
    flags = ("--learning-rate", "1e30", "--steps", "60", "--evaluate-every", "5")
    assert cli.main([*SMOKE, *flags, "--run", path]) == 2
    error = capsys.readouterr().err
    assert "loss must be finite" in error
    assert "after step" in error
    assert "learning_rate" in error
    assert cli.main(["train", "online-memory", "--run", path, "--resume"]) == 2, "a resumed run stops at the same step"
    assert capsys.readouterr().err == error


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--characters", "300"), "text must be at least"),
        (("--delay", "10", "--bounds", "printed"), "delay must be above segment=10"),
        (("--segment", "0"), "segment must be from 1"),
        (("--layer", "lstmm"), "Did you mean 'lstm'?"),
    ],
)
def test_invalid_input_is_refused_in_one_line_and_leaves_no_run(flags, message, tmp_path, capsys):
    assert cli.main([*SMOKE, *flags, "--run", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert message in error
    assert not (tmp_path / "run").exists()


def test_gradient_accumulation_is_refused():
    with pytest.raises(InputError, match="gradient_accumulation_steps must be 1"):
        settings(batch_size=2, gradient_accumulation_steps=2)
