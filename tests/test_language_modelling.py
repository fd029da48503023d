"""Language models with the papers' protocols: losses of chosen targets, sliding windows, texts in three files."""

import io
import math
import zipfile
from contextlib import suppress
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy

from fastweights.core.errors import InputError
from fastweights.core.measurements import Point
from fastweights.core.padding import valid_steps
from fastweights.models import language_model
from fastweights.models.language_model import LanguageModel
from fastweights.models.neuron_network import NeuronNetwork
from fastweights.models.symbol_model import SymbolModel
from fastweights.registry import NORMS, POSITIONS
from fastweights.tasks.sources.corpus import Corpus
from fastweights.tasks.sources.wikitext import member
from fastweights.tasks.wikitext_2 import Wikitext2
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.loops.language_modelling import measure, mem_len_of, sliding, state_norms
from fastweights.training.session import state_size
from fastweights.training.settings.language_modelling import LanguageModelling

N = 30
EXACT = tolerance(torch.float64).forward


def make(layer="delta-net", **options):
    torch.manual_seed(0)
    return LanguageModel(N, layer, d_model=16, num_layers=2, num_heads=2, d_ff=24, **options).double().eval()


@pytest.mark.parametrize("options", [{}, {"tie_word_embeddings": True}, {"cutoffs": (5, 12)}], ids=str)
def test_losses_equal_the_cross_entropy_of_the_logits(options):
    model, tokens = make(**options), torch.randint(N, (3, 8))
    targets = torch.randint(N, (3, 8)).masked_fill(torch.rand(3, 8) < 0.3, -1)
    losses, state = model(tokens, targets=targets)
    logits, logits_state = model(tokens)
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="none").view(3, 8)
    assert error(losses, expected) <= EXACT
    assert all(torch.equal(a, b) for a, b in zip(state.layers[0], logits_state.layers[0], strict=True))


def test_losses_that_read_no_targets_are_the_same(monkeypatch):
    """Values and gradients, as on a GPU in training, where some time steps have no target."""
    model, tokens = make(), torch.randint(N, (3, 8))
    targets = torch.randint(N, (3, 8)).masked_fill(torch.rand(3, 8) < 0.3, -1)
    lengths, results = torch.tensor([8, 5, 3]), []
    for can_be_read in (language_model.can_be_read, lambda x: False):
        monkeypatch.setattr(language_model, "can_be_read", can_be_read)
        losses, _ = model(tokens, lengths=lengths, targets=targets)
        results.append([losses, *torch.autograd.grad(losses.sum(), [*model.parameters()])])
    assert all(error(got, want) <= EXACT for got, want in zip(results[1], results[0], strict=True))
    assert torch.equal(results[0][0] == 0, results[1][0] == 0)


def test_targets_after_the_end_of_a_sequence_have_no_loss():
    """Padding may hold any target index."""
    model, tokens, lengths = make(), torch.randint(N, (3, 8)), torch.tensor([8, 0, 3])
    valid = valid_steps(lengths, 8)
    targets = torch.where(valid, torch.randint(N, (3, 8)), torch.tensor([0, N - 1, -1] * 8).view(3, 8))
    losses, _ = model(tokens, lengths=lengths, targets=targets)
    whole, _ = model(tokens, targets=targets)
    assert (losses[~valid] == 0).all()
    assert error(losses[valid], whole[valid]) <= EXACT


HEADS = {
    "linear map": {},
    "tie_word_embeddings": {"tie_word_embeddings": True},
    "adaptive softmax": {"cutoffs": (5, 12)},
    "small start": {"cutoffs": (5, 12), "small_init": True, "scale_embeddings": True},
    "dropout": {"dropout": 0.1, "output_dropout": 0.1, "conv_size": 3},
}
PREDICTORS = {
    **{
        f"{name}, norm {norm}": partial(LanguageModel, **HEADS[name], norm=norm)
        for name in HEADS
        for norm in NORMS.names()
    },
    **{f"positions {name}": partial(LanguageModel, positions=name) for name in POSITIONS.names()},
}
PREDICTORS = {
    name: partial(model, N, d_model=16, num_layers=1, num_heads=2, d_ff=24) for name, model in PREDICTORS.items()
} | {
    "symbol model": partial(SymbolModel, N, "delta-net", 16, 2),
    "neuron network": partial(NeuronNetwork, N),
}


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("make_model", PREDICTORS.values(), ids=PREDICTORS)
def test_losses_under_autocast_have_full_precision(make_model, training):
    """Perplexity is computed from the losses. Rounding to bfloat16 has an error of up to 0.4 %."""
    model, tokens = make_model().train(training), torch.randint(N, (3, 9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses, _ = model(tokens[:, :-1], targets=tokens[:, 1:])
    assert losses.dtype == torch.float32
    assert not torch.equal(losses, losses.bfloat16().float())


@pytest.mark.parametrize("make_model", PREDICTORS.values(), ids=PREDICTORS)
def test_targets_are_words_of_the_vocabulary(make_model):
    model, tokens = make_model().eval(), torch.randint(N, (3, 9))
    losses, _ = model(tokens, targets=tokens)
    assert torch.equal(model(tokens, targets=tokens.int())[0], losses)
    for targets in (tokens + N, tokens[:, 1:], tokens.float(), tokens.tolist()):
        with pytest.raises(InputError, match=r"targets must be .*, got .*"):
            model(tokens, targets=targets)


def settings(window, carry_state):
    return LanguageModelling(
        steps=1, batch_size=1, evaluate_every=1, window=window, carry_state=carry_state, learning_rate=1e-3
    )


@pytest.mark.parametrize("stride", [1, 3, 7])
@pytest.mark.parametrize("length", [5, 8, 9, 23])
def test_sliding_windows_equal_a_loop_over_windows(length, stride):
    model, tokens = make(), torch.randint(N, (length,))
    loss = measure(model, tokens, settings(7, carry_state=False), stride)["loss"]
    total = 0.0
    for place in range(length - 1):
        # The first window that covers a position: windows begin every `stride` steps, the last one ends with the text.
        first = -(-max(place - 6, 0) // stride) * stride
        start = min(first, max(length - 1 - 7, 0))
        logits, _ = model(tokens[None, start : place + 1])
        total += cross_entropy(logits[0, -1:], tokens[place + 1 : place + 2]).item()
    assert loss == pytest.approx(total / (length - 1), rel=1e-10)


@pytest.mark.parametrize("stride", [1, 2, 5, 6])
@pytest.mark.parametrize("length", [2, 3, 7, 8, 40])
def test_every_token_but_the_first_is_scored_once(length, stride):
    tokens = torch.arange(length)
    scored = torch.cat([targets[targets >= 0] for _, targets in sliding(tokens, 6, stride, 4)])
    assert torch.equal(scored, tokens[1:])


def test_a_shorter_memory_for_evaluation_equals_a_model_with_that_memory():
    """The memory length of the model is restored afterwards."""
    models = {steps: make("transformer-xl", options={"mem_len": steps}) for steps in (2, 9)}
    tokens, carried = torch.randint(N, (200,)), settings(7, carry_state=True)
    own = {steps: measure(model, tokens, carried, 1) for steps, model in models.items()}
    with mem_len_of(models[9], 2):
        assert measure(models[9], tokens, carried, 1) == own[2] != own[9]
    assert measure(models[9], tokens, carried, 1) == own[9]
    with pytest.raises(InputError, match="test_mem_lens must be empty"), mem_len_of(make(), 2):
        pass


def test_windows_with_a_carried_state_equal_one_pass():
    model, tokens = make(), torch.randint(N, (3000,))
    logits, _ = model(tokens[None, :-1])
    whole = cross_entropy(logits[0], tokens[1:]).item()
    measured = measure(model, tokens, settings(7, carry_state=True), 1)
    assert measured["loss"] == pytest.approx(whole, rel=1e-10)
    assert measured["perplexity"] == pytest.approx(math.exp(whole), rel=1e-10)


def archive(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in files.items():
            file.writestr(name.replace("__", "/").replace("_tokens", ".tokens").replace("wiki_", "wiki."), text)
    return content.getvalue()


def test_norms_of_the_state_are_measured_along_one_stream():
    """One norm over the states of all layers, after each complete block of tokens."""
    model, tokens = make(), torch.randint(N, (23,))
    norms = state_norms(model, tokens, 5)
    assert list(norms) == [Point("state", n) for n in range(1, 5)]
    for n in range(1, 5):
        _, state = model(tokens[None, : 5 * n])
        whole = sum(leaf.square().sum() for layer in state.layers for leaf in layer) ** 0.5
        assert norms[Point("state", n)] == pytest.approx(whole.item())
    with pytest.raises(InputError, match="state_every must be 0 without a carried state"):
        LanguageModelling(
            steps=1, batch_size=1, evaluate_every=1, window=4, learning_rate=1.0, carry_state=False, state_every=5
        )


def test_archive_and_extracted_files_give_the_same_text(tmp_path, monkeypatch):
    texts = {"train": "a b a\n\nc <unk>\n", "valid": "a c\n", "test": "b d\n"}
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    monkeypatch.setenv("FASTWEIGHTS_DATA", str(tmp_path))
    (folder / "wikitext-2-v1.zip").write_bytes(
        archive(**{f"wikitext-2__wiki_{name}_tokens": text for name, text in texts.items()})
    )
    packed = Wikitext2()
    assert packed.trained_tokenizer.facts() == ["<eos>", "a", "b", "c", "<unk>"]
    assert packed.training.tolist() == [1, 2, 1, 0, 0, 3, 4, 0]
    assert packed.test.tolist() == [2, 4, 0]
    for name, text in texts.items():
        (folder / f"wiki.{name}.tokens").write_text(text)
    assert Wikitext2().facts() == packed.facts()
    assert Wikitext2(lines=1).training.tolist() == [1, 2, 1, 0]


class Bad(Corpus):
    content = b""

    def read(self, part):
        return self.content


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the empty one"), (b" \n", "the empty one"), (b"\xff\xfe\x00", "bad byte"), (b"a\0", "zero byte")],
)
def test_empty_or_binary_text_is_refused_in_one_line(content, message):
    task = Bad()
    object.__setattr__(task, "content", content)
    with pytest.raises(InputError, match=message) as refusal:
        _ = task.training
    assert "\n" not in str(refusal.value)


def test_damaged_archive_is_refused():
    whole = archive(a="x" * 1000)
    random = torch.Generator().manual_seed(0)
    with pytest.raises(InputError, match="must be an archive with b"):
        member(whole, "b", "the archive")
    for _ in range(200):
        place, value = (int(torch.randint(n, (1,), generator=random)) for n in (len(whole), 256))
        damaged = bytes([*whole[:place], value, *whole[place + 1 :]])
        with suppress(InputError):
            assert member(damaged, "a", "the archive") == b"x" * 1000


@pytest.mark.parametrize(
    ("layer", "numbers"), [("delta-net", 2 * 2 * 4 * 4), ("lstm", 2 * 2 * 8), ("delta-rnn", 2 * 2 * (4 * 4 * 2 + 4))]
)
def test_state_size_is_that_of_the_formula(layer, numbers):
    """Schlag et al. 2021, Table 4: H d d numbers per block and fast weight matrix."""
    assert state_size(LanguageModel(5, layer, d_model=8, num_layers=2, num_heads=2)) == numbers


def test_a_model_without_a_state_has_state_size_0():
    assert state_size(torch.nn.Linear(2, 2)) == 0
