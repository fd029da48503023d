"""Gradient accumulation and gradient checkpointing train the same weights in less memory."""

from importlib.util import find_spec

import pytest
import torch
from torch._inductor import config

from fastweights import cli
from fastweights.models import LanguageModel, RecurrentModel
from fastweights.models.translator import Translator
from fastweights.tasks import IGNORE, AssociativeRecall, Batch
from fastweights.tasks.kinds.pairs import PairBatch
from fastweights.tasks.kinds.stream import Windows
from fastweights.testing.tolerance import TOLERANCES, error
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.distributed.model_blocks import compile_blocks, compiles, recompute
from fastweights.training.loops import language_modelling, supervised, translation
from fastweights.training.run_folder.run import Run
from fastweights.training.settings.language_modelling import LanguageModelling
from fastweights.training.settings.supervised import Supervised
from fastweights.training.settings.translation import Translation

SMALL = ["--preset", "smoke", "--device", "cpu", "--dropout", "0"]
LAYERS = ["delta-net", "delta-rnn", "softmax-attention", "lstm"]
STEP = {"steps": 1, "batch_size": 4, "learning_rate": 1.0, "evaluate_every": 1, "device": "cpu"}


def model(layer, dropout=0.0):
    torch.manual_seed(3)
    return LanguageModel(30, layer, d_model=16, num_layers=3, num_heads=2, dropout=dropout).double()


@pytest.mark.parametrize("layer", LAYERS)
def test_gradient_accumulation_equals_the_whole_batch(layer):
    """Includes the state that is carried from window to window."""
    windows, results = Windows(torch.randint(30, (201,)), batch_size=4, window=7), {}
    for accumulate in (1, 2, 4):
        fabric = make_fabric(LanguageModelling(**STEP, window=7, gradient_accumulation_steps=accumulate))
        net, optimiser = fabric.setup(net := model(layer), torch.optim.SGD(net.parameters(), 0.1))
        state, losses = net.initial_state(4), []
        for window in range(3):
            loss, state = language_modelling.update(fabric, net, optimiser, windows[window], state, 1.0, accumulate)
            losses.append(loss)
        results[accumulate] = [
            torch.tensor(losses),
            *torch.utils._pytree.tree_leaves(state),
            *net.state_dict().values(),
        ]
    for parts in (2, 4):
        for got, want in zip(results[parts], results[1], strict=True):
            assert error(got, want) < TOLERANCES[torch.float64].gradient


def supervised_step(accumulate):
    """Loss and weights after a batch whose sequences have between one and eight targets."""
    torch.manual_seed(1)
    task = AssociativeRecall(vocab_size=16, length=32, pairs=4, evaluation_size=1)
    inputs, targets = next(task.train_batches(8, seed=0))
    targets = torch.where(torch.arange(32) < 4 * torch.arange(1, 9)[:, None], targets.roll(-2, 1), IGNORE)
    net = RecurrentModel("tokens", task.input_size, task.output_size, "lstm", 8).double()
    fabric = make_fabric(Supervised(**STEP, gradient_accumulation_steps=accumulate))
    net, optimiser = fabric.setup(net, torch.optim.SGD(net.parameters(), 1.0))
    loss = supervised.update(fabric, net, optimiser, task, Batch(inputs, targets), 1.0, accumulate)
    return [torch.tensor(loss), *net.state_dict().values()]


def translation_step(accumulate):
    """Loss and weights after a batch of five pairs, which has no equal parts."""
    torch.manual_seed(1)
    lengths, words = torch.tensor([6, 2, 5, 1, 4]), torch.randint(11, (5, 6))
    labels = torch.where(torch.arange(6) < lengths[:, None], words, IGNORE)
    net = Translator(11, d_model=16, num_layers=2, num_heads=2, d_ff=24, dropout=0.0).double()
    settings = Translation(**STEP, gradient_accumulation_steps=accumulate)
    fabric = make_fabric(settings)
    net, optimiser = fabric.setup(net, torch.optim.SGD(net.parameters(), 1.0))
    loss = translation.update(fabric, net, optimiser, PairBatch(words, lengths, words, lengths, labels), settings)
    return [torch.tensor(loss), *net.state_dict().values()]


@pytest.mark.parametrize("step", [supervised_step, translation_step])
def test_gradient_accumulation_weighs_every_target_equally(step):
    """Parts of a batch have different numbers of targets or tokens."""
    whole = step(1)
    for parts in (2, 4):
        for got, want in zip(step(parts), whole, strict=True):
            # The losses of translation are summed in float32.
            assert error(got, want) < TOLERANCES[torch.float32].gradient


@pytest.mark.parametrize("layer", LAYERS)
def test_gradient_checkpointing_is_bit_identical_and_saves_less(layer):
    """The recomputed forward pass has the same dropout masks."""
    gradients, totals = [], []
    tokens, targets = torch.randint(30, (2, 3, 40)).unbind()
    for checkpointing in (False, True):
        net = model(layer, dropout=0.2)
        state = net(tokens)[1]
        if checkpointing:
            recompute(net)
        torch.manual_seed(5)
        saved = {}

        def save(tensor, saved=saved):
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes(), tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            losses, after = net(tokens, state.detach(), targets=targets)
        (losses.mean() + sum(leaf.sum() for leaf in torch.utils._pytree.tree_leaves(after))).backward()
        gradients.append([p.grad for p in net.parameters()])
        totals.append(sum(size for size, _ in saved.values()))
    assert totals[1] < totals[0] / 2
    for got, want in zip(*reversed(gradients), strict=True):
        assert torch.equal(got, want)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch's own code
# Without vectors: torch.compile fails if $ATEN_CPU_CAPABILITY is below that of the CPU.
@config.patch({"cpp.simdlen": 1})
@pytest.mark.parametrize("checkpointing", [False, True], ids=["saved", "checkpointed"])
def test_compiled_blocks_have_the_same_losses_and_gradients(checkpointing):
    """Includes a carried state."""
    windows, results = torch.randint(30, (2, 3, 9)), []
    for compiled in (False, True):
        net = model("delta-net")
        if compiled:
            compile_blocks(net)
        if checkpointing:
            recompute(net)
        state, losses = None, []
        for tokens in windows:
            loss, state = net(tokens[:, :-1], state, targets=tokens[:, 1:])
            loss.mean().backward()
            state = state.detach()
            losses.append(loss)
        results.append([*losses, *torch.utils._pytree.tree_leaves(state), *(p.grad for p in net.parameters())])
    for got, want in zip(*reversed(results), strict=True):
        assert error(got, want) < TOLERANCES[torch.float64].gradient


def test_blocks_are_compiled_on_gpus_unless_the_settings_say_otherwise():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert (compiles(None, gpu), compiles(False, gpu)) == (find_spec("triton") is not None, False)
    assert (compiles(None, cpu), compiles(True, cpu)) == (False, True)


def test_memory_settings_leave_the_curves_equal(tmp_path):
    """A run may also resume with a different setting. Muon, whose products are in bfloat16, amplifies rounding."""
    curves = []
    for name, flags in {
        "whole": ["--optimizer", "adamw"],
        "less": ["--optimizer", "adamw", "--gradient-accumulation-steps", "2", "--gradient-checkpointing"],
    }.items():
        assert cli.main(["train", "char-lm", *SMALL, *flags, "--sample", "0", "--run", str(tmp_path / name)]) == 0
        curves.append(torch.tensor([line["validation"]["loss"] for line in Run(tmp_path / name).metrics()]))
    torch.testing.assert_close(curves[1], curves[0], rtol=1e-4, atol=1e-5)
    assert (
        cli.main(
            ["train", "char-lm", "--run", str(tmp_path / "less"), "--resume", "--gradient-accumulation-steps", "4"]
        )
        == 0
    )


def test_batch_size_must_be_a_multiple_of_the_parts(capsys):
    assert cli.main(["train", "char-lm", *SMALL, "--devices", "2", "--gradient-accumulation-steps", "3"]) == 2
    assert (
        "batch_size must be a multiple of 6, the number of devices times gradient_accumulation_steps"
        in capsys.readouterr().err
    )
