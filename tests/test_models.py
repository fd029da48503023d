import pytest
import torch

from fastweights import InputError
from fastweights.core.padding import within
from fastweights.layers import layer_names
from fastweights.models._reader import MappedEmbedding
from fastweights.models.language_model import LanguageModel
from fastweights.testing.tolerance import error, tolerance

N = 11
EXACT = tolerance(torch.float64).forward


def model(layer="delta-net", **options):
    return LanguageModel(N, layer, d_model=16, num_layers=2, num_heads=2, **options).double().eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("conv_size", [0, 3])
@pytest.mark.parametrize("layer", layer_names())
def test_streaming_equals_reading_whole(layer, norm, conv_size):
    net = model(layer, norm=norm, conv_size=conv_size)
    tokens = torch.randint(N, (2, 13))
    state, logits = net.initial_state(2), []
    for t in range(13):
        step, state = net(tokens[:, t : t + 1], state)
        logits.append(step)
    assert error(torch.cat(logits, dim=1), net(tokens)[0]) < tolerance(torch.float64).forward


def test_documents_packed_with_resets_do_not_see_each_other():
    net = model(conv_size=3)
    tokens, reset = torch.randint(N, (1, 20)), torch.zeros(1, 20, dtype=torch.bool)
    reset[:, 8] = True
    want = torch.cat([net(tokens[:, :8])[0], net(tokens[:, 8:])[0]], dim=1)
    assert error(net(tokens, reset=reset)[0], want) < tolerance(torch.float64).forward


def test_greedy_generation_is_the_argmax_of_the_whole():
    net, prompt = model(), torch.randint(N, (2, 5))
    continued = net.generate(prompt, 6, temperature=0)
    logits, _ = net(torch.cat([prompt, continued], dim=1))
    assert torch.equal(logits[:, 4:-1].argmax(-1), continued)


def test_generation_repeats_with_its_seed():
    net, prompt = model(), torch.randint(N, (1, 5))
    assert torch.equal(net.generate(prompt, 20, seed=5), net.generate(prompt, 20, seed=5))
    assert net.generate(prompt, 0).shape == (1, 0)


@pytest.mark.parametrize(("prompt", "temperature"), [((1, 0), 1.0), ((3,), 1.0), ((1, 3), -1.0)])
def test_bad_generation_is_refused(prompt, temperature):
    with pytest.raises(InputError):
        model().generate(torch.zeros(prompt, dtype=torch.long), 3, temperature)


NO_TOKENS = {
    "numbers": torch.zeros(2, 3),
    "bools": torch.zeros(2, 3, dtype=torch.bool),
    "a list": [[1, 2]],
    "no batch": torch.tensor([1, 2]),
    "no step": torch.zeros(2, 0, dtype=torch.long),
    "too large a token": torch.tensor([[1, N]]),
    "a negative token": torch.tensor([[-1, 1]]),
}


@pytest.mark.parametrize("tokens", NO_TOKENS.values(), ids=NO_TOKENS)
def test_what_are_no_tokens_is_refused_in_one_line(tokens):
    net = model()
    for read in (net, net.hidden, lambda given: net.generate(given, 2)):
        with pytest.raises(InputError, match=r"\w+ must be .*, got .*"):
            read(tokens)


def test_tokens_of_32_bits_and_under_vmap():
    net, tokens = model("sum"), torch.randint(N, (3, 1, 4))
    assert torch.equal(net(tokens[0].int())[0], net(tokens[0])[0])
    assert error(torch.vmap(lambda row: net(row)[0])(tokens), net(tokens[:, 0])[0].unsqueeze(1)) < EXACT


@pytest.mark.parametrize(
    ("option", "value"), [("vocab_size", 0), ("vocab_size", 2.5), ("d_model", 0), ("d_model", "8")]
)
def test_sizes_of_a_model_are_whole_numbers(option, value):
    with pytest.raises(InputError, match=f"{option} must be a whole number of at least 1"):
        LanguageModel(**{"vocab_size": N, option: value})


def test_unknown_norm_is_refused():
    with pytest.raises(InputError, match=r"norm must be one of .*post, pre, raw-input"):
        model(norm="none")


@pytest.mark.parametrize("layer", layer_names())
def test_padded_batch_equals_its_members(layer):
    """Logits and states of sequences of 3, 9 and no tokens, whatever stands behind them; on from there as well."""
    net = model(layer, conv_size=3)
    tokens, lengths = torch.randint(N, (3, 9)), torch.tensor([3, 9, 0])
    padded = torch.where(within(lengths, 9), tokens, -100)
    logits, state = net(padded, lengths=lengths)
    onwards, _ = net(tokens[:, :2], state)
    for b, end in enumerate(lengths.tolist()):
        alone, after = net(tokens[b : b + 1, :end]) if end else (torch.empty(1, 0, N), None)
        assert error(logits[b : b + 1, :end], alone) <= EXACT
        assert (logits[b, end:] == 0).all()
        assert error(onwards[b : b + 1], net(tokens[b : b + 1, :2], after)[0]) < EXACT


def test_padding_has_no_gradient():
    net = model("gated-delta")
    tokens, lengths = torch.tensor([[1, 2, 5, 5]]), torch.tensor([2])
    logits, _ = net(tokens, lengths=lengths)
    logits.square().sum().backward()
    used = net.embedding.weight.grad.abs().sum(1).nonzero().flatten()
    assert used.tolist() == [1, 2]


def test_what_is_said_of_a_symbol_is_the_same_once_a_symbol_and_once_a_step():
    """Values and gradients, with fewer tokens than symbols and with more."""
    torch.manual_seed(0)
    reader = MappedEmbedding(torch.nn.Embedding(N, 5), torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)).double()
    embedding, *maps = reader
    for shape in ((1, 4), (3, 9)):
        tokens = torch.randint(N, shape)
        want = embedding(tokens)
        for linear in maps:
            want = linear(want)
        got = reader(tokens)
        assert error(got, want) < EXACT
        upstream = torch.randn_like(got)
        found, wanted = (torch.autograd.grad(y, list(reader.parameters()), upstream) for y in (got, want))
        assert all(error(a, b) < tolerance(torch.float64).gradient for a, b in zip(found, wanted, strict=True))
