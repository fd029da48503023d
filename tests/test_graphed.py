"""A training step as a CUDA graph equals the eager one. A recorder of operations stands in for the GPU."""

import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from fastweights import InputError, LanguageModel, cli
from fastweights.layers import associative_lstm, layer_names
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.graphed import WARM_UP, CudaGraphs, Graphed
from fastweights.training.loops import language_modelling
from fastweights.training.loops.language_modelling import make_optimiser, update
from fastweights.training.optimiser_step import make_capturable, set_learning_rate
from fastweights.training.progress import Interrupted
from fastweights.training.run_folder.run import Run
from fastweights.training.session import Session
from fastweights.training.settings.language_modelling import LanguageModelling
from recorded_graphs import RecordedGraphs
from tiers import base_of, in_tiers

EPOCH = ["--characters", "600", "--window", "16", "--batch-size", "4"]
"""A text of seven windows, so that 30 training steps are more than four epochs."""
SMALL = ["--preset", "smoke", "--sample", "0", "--device", "cpu", "--steps", "30", "--warmup-steps", "5", *EPOCH]
CASES = {
    "AdamW": ["--layer", "delta-net", "--optimizer", "adamw"],
    "Muon": ["--layer", "delta-net", "--optimizer", "muon"],
    "Delta RNN": ["--layer", "delta-rnn"],
    "several layers": ["--layer", "gated-delta,softmax-attention,lstm", "--num-layers", "3"],
    "accumulation": ["--layer", "delta-net", "--gradient-accumulation-steps", "2"],
    "no state": ["--layer", "softmax-attention", "--no-carry-state"],
    "mixed precision": ["--layer", "delta-net", "--precision", "bf16-mixed"],
}
SETTINGS = {"steps": 9, "batch_size": 4, "window": 6, "evaluate_every": 9, "learning_rate": 0.01}


def one_hot(indices, size):
    """PyTorch's function reads the indices on a CPU only."""
    return torch.eye(size, dtype=torch.int64)[indices]


@pytest.fixture
def like_a_gpu(monkeypatch):
    imitate_gpu(monkeypatch)


def imitate_gpu(monkeypatch):
    """Models read no values of their inputs, as on a GPU, and learning rates have the precision of its tensors."""
    for module in [module for name, module in sys.modules.items() if name.startswith("fastweights.")]:
        if hasattr(module, "can_be_read"):
            monkeypatch.setattr(module, "can_be_read", lambda x: False)
    monkeypatch.setattr(associative_lstm, "one_hot", one_hot)
    exact = LanguageModelling.learning_rate_at
    rounded = lambda self, step: torch.tensor(exact(self, step)).item()  # noqa: E731
    monkeypatch.setattr(LanguageModelling, "learning_rate_at", rounded)


@pytest.fixture
def recorders(like_a_gpu, monkeypatch):
    """The stand-ins that training loops create in place of `CudaGraphs`."""
    made = []
    monkeypatch.setattr(
        language_modelling, "CudaGraphs", lambda device: made.append(RecordedGraphs(device)) or made[-1]
    )
    return made


def train(run, *flags, status=0):
    assert cli.main(["train", "char-lm", *flags, "--run", str(run)]) == status
    return run


def stop_after_fifteen(session, *arguments, end_step=Session.end_step):
    end_step(session, *arguments)
    if session.progress.step == 15:
        raise Interrupted("Stopped.")


def require_same_training(run, other):
    """The weights, the state of the optimiser, the carried state, the random numbers and all measurements are equal."""
    for file in ("last.safetensors", "best.safetensors"):
        assert (run / file).read_bytes() == (other / file).read_bytes(), file
    lines, others = ([{**line, "seconds": 0} for line in Run(path).metrics()] for path in (run, other))
    assert lines == others


@pytest.mark.parametrize("flags", CASES.values(), ids=CASES)
def test_training_with_a_graph_equals_eager_training(flags, recorders, tmp_path):
    """With dropout, gradient clipping, a warm-up and a cosine decay of the learning rate, and several epochs."""
    eager = train(tmp_path / "eager", *SMALL, *flags)
    graphed = train(tmp_path / "graphed", *SMALL, *flags, "--cuda-graph")
    require_same_training(graphed, eager)
    (recorder,) = recorders
    # One graph for the first windows of epochs, which have no state, and one for all others.
    assert len(recorder.recordings) == 1 + ("--no-carry-state" not in flags)


@pytest.mark.parametrize("then", ["--cuda-graph", "--no-cuda-graph"])
def test_a_resumed_training_equals_an_uninterrupted_one(then, recorders, tmp_path, monkeypatch):
    """A run may be resumed with and without a graph."""
    whole = train(tmp_path / "whole", *SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "end_step", stop_after_fifteen)
        run = train(tmp_path / "run", *SMALL, "--cuda-graph", status=130)
    train(run, "--resume", then)
    require_same_training(run, whole)
    assert [len(recorder.recordings) for recorder in recorders] == [1, 1][: len(recorders)]


@pytest.mark.parametrize("layer", in_tiers({name: {base_of(name)} for name in layer_names()}))
def test_a_training_step_asks_for_no_value_of_the_device(layer, like_a_gpu):
    """Its graph has the losses, the weights, the state of the optimiser and the carried state of eager steps."""
    (want, eager), (got, graphed) = (training_steps(layer, has_graph) for has_graph in (False, True))
    assert len(graphed.recordings) == 1
    assert not eager.recordings
    assert len(got) == len(want)
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def training_steps(layer, has_graph, number=WARM_UP + 3, **options):
    """All tensors after some training steps that start without a state, and the recorder."""
    torch.manual_seed(1)
    settings = LanguageModelling(**SETTINGS, optimizer="muon", device="cpu", weight_decay=0.1)
    model = LanguageModel(11, layer, d_model=8, num_layers=1, num_heads=2, d_ff=8, dropout=0.1, **options)
    fabric, recorder = make_fabric(settings), RecordedGraphs(torch.device("cpu"))
    model, optimiser = fabric.setup(model, make_optimiser(model, settings))
    step = lambda batch: update(fabric, model, optimiser, batch, None, 1.0)  # noqa: E731
    if has_graph:
        make_capturable(optimiser, fabric.device)
        step = Graphed(step, recorder)
    losses = []
    for n in range(number):
        tokens = torch.randint(11, (4, 7))
        set_learning_rate(optimiser, settings.learning_rate_at(n))
        loss, state = step((tokens[:, :-1], tokens[:, 1:]))
        losses.append(loss.clone())
    moments = [tensor for moments in optimiser.state.values() for tensor in moments.values()]
    return [*losses, *model.state_dict().values(), *moments, *torch.utils._pytree.tree_leaves(state)], recorder


def test_a_model_that_waits_for_values_is_refused(recorders, tmp_path, capsys, monkeypatch):
    forward = nn.LayerNorm.forward
    monkeypatch.setattr(nn.LayerNorm, "forward", lambda self, x: forward(self, x / x.abs().max().item()))
    train(tmp_path / "run", *SMALL, "--cuda-graph", status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "cuda_graph must be false for a model that reads values of the GPU on the host" in line
    assert "not permitted when stream is capturing" in line
    assert line.endswith("Use --no-cuda-graph.")


@pytest.mark.parametrize("fails_twice", [False, True])
@pytest.mark.parametrize(("cause", "error"), [(RuntimeError, InputError), (torch.OutOfMemoryError, None)], ids=str)
def test_an_error_in_a_capture_names_its_cause(cause, error, fails_twice):
    class Failing(RecordedGraphs):
        def capture(self, function):
            try:
                raise cause("the cause")
            finally:
                if fails_twice:
                    raise RuntimeError("the capture was invalid")

    graphed = Graphed(torch.neg, Failing(torch.device("cpu")))
    for _ in range(WARM_UP):
        graphed(torch.ones(2))
    with pytest.raises(error or cause, match="the cause"):
        graphed(torch.ones(2))


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        ({"devices": 2}, "false with devices=2"),
        ({"fsdp": True}, "false with fsdp=True"),
        ({"fsdp": True, "gradient_checkpointing": True}, "false with fsdp=True and gradient_checkpointing=True"),
    ],
    ids=str,
)
def test_settings_that_a_graph_cannot_have_are_refused(hardware, message):
    with pytest.raises(InputError, match=f"cuda_graph must be {message}, got true"):
        LanguageModelling(**SETTINGS, **hardware, cuda_graph=True)
    LanguageModelling(**SETTINGS, **hardware)


def test_other_devices_are_refused(tmp_path, capsys):
    train(tmp_path / "run", *SMALL, "--cuda-graph", status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "device must be cuda with cuda_graph, got cpu. Use --no-cuda-graph." in line
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="device must be cuda"):
        CudaGraphs(torch.device("mps"))


def test_every_structure_has_a_graph():
    """Of trees, shapes and dtypes. All calls have the results of the function."""
    recorder = RecordedGraphs(torch.device("cpu"))

    def function(x, state):
        return {"y": x.sum(0), "state": x if state is None else state[0] + x}

    call = Graphed(function, recorder)
    for number in range(WARM_UP + 3):
        for x in (torch.randn(2, 3), torch.randn(4, 3), torch.randn(2, 3, dtype=torch.float64)):
            for state in (None, (torch.randn(3),)):
                got, want = call(x, state), function(x, state)
                assert all(torch.equal(got[name], want[name]) for name in want)
        assert len(recorder.recordings) == (0 if number < WARM_UP else 6)


def test_results_may_be_arguments_in_another_order():
    """The next call gets the results of the last one."""
    call, pair = Graphed(lambda x, y: (y, x), RecordedGraphs(torch.device("cpu"))), torch.eye(2).unbind()
    for number in range(1, WARM_UP + 4):
        pair = call(*pair)
        assert torch.equal(torch.stack(pair), torch.eye(2).roll(number, 0))


def test_other_errors_of_a_capture_are_kept():
    class Full(RecordedGraphs):
        def capture(self, function):
            raise torch.OutOfMemoryError("full")

    call = Graphed(lambda x: x, Full(torch.device("cpu")))
    for number in range(WARM_UP + 1):
        with pytest.raises(torch.OutOfMemoryError) if number == WARM_UP else nullcontext():
            call(torch.ones(1))


def test_the_recorder_executes_nothing_and_keeps_numbers_of_python():
    """As a CUDA graph does, so that the other tests notice what a training step may not do."""
    weight, scale, drawn = torch.ones(3), [2.0], torch.get_rng_state()
    replay, result = RecordedGraphs(torch.device("cpu")).capture(lambda: weight.mul_(scale[0]) + torch.rand(3))
    assert weight.tolist() == [1.0] * 3
    assert result.isnan().all()
    assert torch.equal(torch.get_rng_state(), drawn)
    want = 2 + torch.rand(3)
    torch.set_rng_state(drawn)
    scale[0] = 5.0
    replay()
    assert torch.equal(result, want)
    replay()
    assert weight.tolist() == [4.0] * 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: x.index_put_((x > 0,), x),
        lambda x: x.nonzero(),
        lambda x: bool((x > 0).all()),
        lambda x: x + torch.tensor([1.0]),
    ],
)
def test_the_recorder_refuses_values_and_constants_of_the_host(function):
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        RecordedGraphs(torch.device("cpu")).capture(lambda: function(torch.ones(2)))
