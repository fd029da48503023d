"""Models: streaming, saved weights, dropout, initialisation, and the adaptive softmax."""

import copy
import pickle
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from fastweights import InputError
from fastweights.cells.delta_delta_net import DeltaDeltaNetState
from fastweights.core.padding import valid_steps
from fastweights.layers import LSTM, layer_names, make_layer
from fastweights.layers.lstm import LSTMState
from fastweights.models import LanguageModel, Translator, _chosen_logits, adaptive_softmax
from fastweights.models._input_embedding import MappedEmbedding
from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.dropout import Dropout
from fastweights.models.word_dropout import WordDropout
from fastweights.registry import EXPERIMENTS, FEATURE_MAPS, MODELS, POSITIONS, TASKS, VISION_ENCODERS
from fastweights.tasks import MissingFile
from fastweights.testing.layer_checks import (
    check_is_initialised_by_reset_parameters,
    emptied,
    initialise_again,
    tensors_of,
)
from fastweights.testing.tolerance import error, tolerance

N = 11
EXACT = tolerance(torch.float64).forward


def model(layer="delta-net", **options):
    return LanguageModel(N, layer, d_model=16, num_layers=2, num_heads=2, **options).double().eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("conv_size", [0, 3])
@pytest.mark.parametrize("layer", layer_names())
def test_streaming_equals_one_forward_pass(layer, norm, conv_size):
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


def test_greedy_generation_equals_the_argmax_of_one_pass():
    net, prompt = model(), torch.randint(N, (2, 5))
    continued = net.generate(prompt, 6, temperature=0)
    logits, _ = net(torch.cat([prompt, continued], dim=1))
    assert torch.equal(logits[:, 4:-1].argmax(-1), continued)


def test_generation_is_reproducible_with_its_seed():
    net, prompt = model(), torch.randint(N, (1, 5))
    assert torch.equal(net.generate(prompt, 20, seed=5), net.generate(prompt, 20, seed=5))
    assert net.generate(prompt, 0).shape == (1, 0)


@pytest.mark.parametrize(("prompt", "temperature"), [((1, 0), 1.0), ((3,), 1.0), ((1, 3), -1.0)])
def test_invalid_prompts_and_temperatures_are_refused(prompt, temperature):
    with pytest.raises(InputError):
        model().generate(torch.zeros(prompt, dtype=torch.long), 3, temperature)


INVALID_TOKENS = {
    "numbers": torch.zeros(2, 3),
    "bools": torch.zeros(2, 3, dtype=torch.bool),
    "a list": [[1, 2]],
    "no batch": torch.tensor([1, 2]),
    "no step": torch.zeros(2, 0, dtype=torch.long),
    "too large a token": torch.tensor([[1, N]]),
    "a negative token": torch.tensor([[-1, 1]]),
}


@pytest.mark.parametrize("tokens", INVALID_TOKENS.values(), ids=INVALID_TOKENS)
def test_invalid_tokens_are_refused_in_one_line(tokens):
    net = model()
    for read in (net, net.hidden, lambda tokens: net.generate(tokens, 2)):
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
    """Logits, states and continuations of sequences of 3, 9 and 0 tokens, with arbitrary padding."""
    net = model(layer, conv_size=3)
    tokens, lengths = torch.randint(N, (3, 9)), torch.tensor([3, 9, 0])
    padded = torch.where(valid_steps(lengths, 9), tokens, -100)
    logits, state = net(padded, lengths=lengths)
    continued, _ = net(tokens[:, :2], state)
    for b, end in enumerate(lengths.tolist()):
        alone, after = net(tokens[b : b + 1, :end]) if end else (torch.empty(1, 0, N), None)
        assert error(logits[b : b + 1, :end], alone) <= EXACT
        assert (logits[b, end:] == 0).all()
        assert error(continued[b : b + 1], net(tokens[b : b + 1, :2], after)[0]) < EXACT


def test_padding_has_no_gradient():
    net = model("gated-delta")
    tokens, lengths = torch.tensor([[1, 2, 5, 5]]), torch.tensor([2])
    logits, _ = net(tokens, lengths=lengths)
    logits.square().sum().backward()
    used = net.embedding.weight.grad.abs().sum(1).nonzero().flatten()
    assert used.tolist() == [1, 2]


def test_mapped_embedding_equals_maps_of_the_embedded_tokens():
    """Values and gradients, with fewer and with more tokens than symbols."""
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
        gradients, expected = (torch.autograd.grad(y, list(reader.parameters()), upstream) for y in (got, want))
        assert all(error(a, b) < tolerance(torch.float64).gradient for a, b in zip(gradients, expected, strict=True))


SHAPES = [(1,), (3,), (2, 37, 5), (0, 4), (64, 1000)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9999])
def test_units_are_dropped_or_scaled_and_so_are_gradients(shape, dtype, p):
    x = torch.rand(shape, dtype=dtype).add(1).requires_grad_()
    y = Dropout(p)(x)
    y.sum().backward()
    assert y.dtype == dtype
    assert y.shape == x.shape
    mask = y != 0
    scale = torch.full_like(x, 65536 / (65536 - round(p * 65536)))
    assert torch.equal(y, (x * scale).where(mask, 0.0))
    assert torch.equal(x.grad, scale.where(mask, 0.0))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_rate_is_exact_and_neighbours_are_independent(p):
    """A million units, within five standard deviations. Neighbours that share a random number are uncorrelated."""
    n = 1_000_000
    dropped = (Dropout(p)(torch.ones(n)) == 0).double()
    deviation = (p * (1 - p) / n) ** 0.5
    assert abs(dropped.mean().item() - p) < 5 * deviation
    for apart in (1, 2, 3, 4):
        correlation = torch.corrcoef(torch.stack([dropped[:-apart], dropped[apart:]]))[0, 1].item()
        assert abs(correlation) < 5 / n**0.5


def test_dropout_is_reproducible_with_its_seed():
    layer, x = Dropout(0.5), torch.ones(1000)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("p", [0.0, 1e-9])
def test_dropout_with_a_rate_of_nearly_0_is_the_identity(p):
    x = torch.randn(1000)
    assert torch.equal(Dropout(p)(x), x)


def test_dropout_with_a_rate_of_1_is_0():
    assert (Dropout(1.0)(torch.ones(1000)) == 0).all()


def test_dropout_in_evaluation_is_the_identity():
    x = torch.randn(1000)
    assert Dropout(0.9).eval()(x) is x


def test_dropout_accepts_strided_inputs():
    x = torch.ones(40, 50).T
    y = Dropout(0.5)(x)
    assert y.shape == (50, 40)
    assert set(y.unique().tolist()) == {0.0, 2.0}


def test_dropout_under_vmap_and_torch_compile():
    x = torch.ones(5, 200)
    rows = torch.func.vmap(Dropout(0.5), randomness="different")(x)
    compiled = torch.compile(Dropout(0.5), fullgraph=True, backend="eager")(x)
    for y in (rows, compiled):
        assert set(y.unique().tolist()) == {0.0, 2.0}


def test_a_dropped_word_is_dropped_at_every_occurrence():
    torch.manual_seed(0)
    tokens = torch.arange(1000).repeat(2, 2)
    dropped = WordDropout(0.25)(torch.ones(2, 2000, 3), tokens, 1000)
    assert torch.equal(dropped[:, :1000], dropped[:, 1000:])
    assert torch.equal(dropped[0], dropped[1])
    assert dropped.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert 0.15 < (dropped[0, :1000, 0] == 0).float().mean() < 0.35
    assert torch.equal(WordDropout(0.25).eval()(torch.ones(2, 2000, 3), tokens, 1000), torch.ones(2, 2000, 3))


D = 16


@pytest.mark.parametrize("name", layer_names())
def test_reset_parameters_draws_the_numbers_of_the_constructor(name):
    make = partial(make_layer, name, D, num_heads=2)
    empty = emptied(make)
    torch.manual_seed(1)
    made = make()
    torch.manual_seed(1)
    initialise_again(empty)
    for (name, want), got in zip(tensors_of(made).items(), tensors_of(empty).values(), strict=True):
        assert torch.equal(got, want), name


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_models_of_experiments_have_reset_parameters(name):
    experiment = EXPERIMENTS.load(name)
    for model, column in dict(reversed(experiment.preset("smoke").places)).items():
        trial = experiment.trial(model, column, "smoke")
        try:
            arguments = TASKS.load(trial.task)(**trial.task_options).arguments
        except MissingFile as missing:
            pytest.skip(str(missing))
        check_is_initialised_by_reset_parameters(partial(MODELS.load(trial.model), *arguments, **trial.model_options))


language_model = partial(LanguageModel, 23, d_model=D, num_layers=2, num_heads=2, d_ff=24)
PARTS = {
    **{f"vision encoder {name}": partial(VISION_ENCODERS.load(name), 3, 40) for name in VISION_ENCODERS.names()},
    **{
        f"feature map {name}": partial(make_layer, "delta-net", D, num_heads=2, feature_map=name)
        for name in FEATURE_MAPS.names()
    },
    **{f"positions {name}": partial(language_model, positions=name) for name in POSITIONS.names()},
    "tie_word_embeddings": partial(language_model, tie_word_embeddings=True),
    "adaptive softmax": partial(language_model, cutoffs=(5, 12)),
    "small start": partial(language_model, cutoffs=(5, 12), small_init=True),
    "small start, tied": partial(language_model, tie_word_embeddings=True, small_init=True),
    "translator": partial(Translator, 23, d_model=D, num_layers=1, num_heads=2, d_ff=24),
    "attention with biases": partial(make_layer, "softmax-attention", D, num_heads=2, bias=True),
    "learned programmer": partial(make_layer, "delta-delta-net", D, num_heads=2, learned_start=True),
    "learned state": partial(make_layer, "delta-net", D, num_heads=2, initial_state="learned"),
    "given state": partial(LSTM, D, initial_state=LSTMState(nn.Parameter(torch.arange(1.0, D + 1)), 2.0)),
}


@pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)
def test_parts_and_options_have_reset_parameters(make):
    check_is_initialised_by_reset_parameters(make)


@pytest.mark.parametrize("options", [{"tie_word_embeddings": True}, {"cutoffs": (5, 12)}], ids=str)
def test_shared_weights_stay_shared_after_reset_parameters(options):
    model = emptied(partial(language_model, **options))
    initialise_again(model)
    tokens = torch.randint(23, (2, 5))
    model(tokens, targets=tokens)[0].mean().backward()
    assert len(list(model.parameters())) == len(list(language_model(**options).parameters()))
    assert model.embedding.weight.std().item() == pytest.approx(D**-0.5, rel=0.2)


def test_learned_start_of_delta_delta_net_is_between_1_and_2():
    layer = emptied(partial(make_layer, "delta-delta-net", D, num_heads=2, learned_start=True))
    initialise_again(layer)
    start = layer.start()
    assert all(1 <= part.min() <= part.max() <= 2 for name, part in start._asdict().items() if name != "W")
    assert isinstance(start, DeltaDeltaNetState)
    assert (start.W == 0).all()


def test_copies_have_own_weights_and_deleted_models_are_freed():
    model = language_model(small_init=True, tie_word_embeddings=True)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        initialise_again(copied)
        one, other = copied.blocks[0].layer.output.weight, model.blocks[0].layer.output.weight
        assert not torch.equal(one, other)
        assert one.std().item() == pytest.approx(0.02, rel=0.2)
    weight = weakref.ref(model.embedding.weight)
    del model, other
    assert weight() is None


SOFTMAX_N, SOFTMAX_D = 23, 6
SOFTMAX_EXACT, EXACT_GRADIENT = tolerance(torch.float64)


@pytest.fixture
def softmax():
    softmax = AdaptiveSoftmax(nn.Embedding(SOFTMAX_N, SOFTMAX_D), (5, 9, 20)).double()
    nn.init.normal_(softmax.bias)
    return softmax


@pytest.fixture
def h():
    return torch.randn(4, 7, SOFTMAX_D, dtype=torch.float64, requires_grad=True)


def test_probabilities_sum_to_one(softmax, h):
    total = softmax.log_prob(h).exp().sum(-1)
    assert error(total, torch.ones_like(total)) < SOFTMAX_EXACT


def test_probability_is_that_of_the_cluster_times_that_of_the_word(softmax, h):
    """Word 12 is the fourth of the second cluster. That cluster has the second last column of the head."""
    table, bias = softmax.embedding.weight, softmax.bias
    head = torch.cat([h @ table[:5].T + bias[:5], softmax.clusters(h)], dim=-1).softmax(-1)
    within = (h @ table[9:20].T + bias[9:20]).softmax(-1)
    assert error(softmax.log_prob(h)[..., 12].exp(), head[..., -2] * within[..., 3]) < SOFTMAX_EXACT
    assert error(softmax.log_prob(h)[..., 2].exp(), head[..., 2]) < SOFTMAX_EXACT


@pytest.mark.parametrize("highest", [SOFTMAX_N, 9, 5])
def test_nll_and_its_gradients_equal_those_of_log_prob(softmax, h, highest):
    targets = torch.arange(28).view(4, 7) % highest
    want = -softmax.log_prob(h).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    got = softmax.nll(h, targets)
    assert error(got, want) < SOFTMAX_EXACT
    weights = torch.rand_like(want)
    leaves = [h, *softmax.parameters()]
    gradients = (torch.autograd.grad((loss * weights).sum(), leaves) for loss in (got, want))
    for mine, theirs in zip(*gradients, strict=True):
        assert error(mine, theirs) < EXACT_GRADIENT


def test_clusters_without_a_target_are_not_computed(softmax, h, monkeypatch):
    computed, blocks = [], _chosen_logits._blocks
    monkeypatch.setattr(
        _chosen_logits, "_blocks", lambda h, weight: computed.append((len(h), len(weight))) or blocks(h, weight)
    )
    softmax.nll(h[0], torch.tensor([0, 4, 20, -1, 22, 3, 2]))
    assert computed == [(6, 5), (2, SOFTMAX_N - 20)]


@pytest.mark.parametrize("block", [1, 16, 10_000])
def test_losses_in_blocks_equal_those_of_all_logits(softmax, h, monkeypatch, block):
    """One or several blocks. Negative targets have a loss and gradients of 0."""
    monkeypatch.setattr(_chosen_logits, "BLOCK", block)
    targets = (torch.arange(28).view(4, 7) % SOFTMAX_N).masked_fill(torch.arange(7) % 3 == 1, -1)
    picked = softmax.log_prob(h).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    want, got = torch.where(targets < 0, 0.0, -picked), softmax.nll(h, targets)
    assert error(got, want) < SOFTMAX_EXACT
    weights, leaves = torch.rand_like(want), [h, *softmax.parameters()]
    gradients = (torch.autograd.grad((loss * weights).sum(), leaves) for loss in (got, want))
    for mine, theirs in zip(*gradients, strict=True):
        assert error(mine, theirs) < EXACT_GRADIENT


def test_losses_without_a_target_are_0_and_have_gradients(softmax, h):
    losses = softmax.nll(h, torch.full((4, 7), -1))
    assert not losses.any()
    assert not torch.autograd.grad(losses.sum(), h)[0].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_losses_and_gradients_are_in_float32(softmax, h, dtype):
    softmax, h, targets = softmax.float(), h.detach().float().requires_grad_(), torch.arange(28).view(4, 7) % SOFTMAX_N
    want = softmax.double().nll(h.double(), targets)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        got = softmax.float().nll(h, targets)
    assert got.dtype == torch.float32
    assert error(got.double(), want) < (1e-2 if dtype == torch.bfloat16 else 1e-6)
    d_h, d_weight = torch.autograd.grad(got.sum(), [h, softmax.embedding.weight])
    assert d_h.dtype == d_weight.dtype == torch.float32


def test_autocast_leaves_float64_alone(softmax, h):
    """As PyTorch's autocast does."""
    targets = torch.arange(28).view(4, 7) % SOFTMAX_N
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = softmax.nll(h, targets)
    assert torch.equal(got, softmax.nll(h, targets))


@pytest.mark.parametrize("through", ["autograd.grad", "backward"])
def test_a_second_derivative_of_nll_is_refused(softmax, h, through):
    losses = softmax.nll(h, torch.arange(28).view(4, 7) % SOFTMAX_N)
    (d_h,) = torch.autograd.grad(losses.square().sum(), h, create_graph=True)
    with pytest.raises(InputError, match=r"nll must be differentiated once.*Use log_prob"):
        torch.autograd.grad(d_h.sum(), h) if through == "autograd.grad" else d_h.sum().backward()


def test_targets_that_are_no_words_are_refused(softmax, h):
    with pytest.raises(InputError, match=f"targets must be below N={SOFTMAX_N}, got {SOFTMAX_N}"):
        softmax.nll(h[0], torch.tensor([0, 4, SOFTMAX_N, -1, 22, 3, 2]))


def test_targets_that_cannot_be_read_and_are_no_words_have_losses_of_nan(softmax, h, monkeypatch):
    monkeypatch.setattr(adaptive_softmax, "can_be_read", lambda x: False)
    losses = softmax.nll(h[0], torch.tensor([0, 4, SOFTMAX_N, -1, 22, SOFTMAX_N + 1, 2]))
    assert losses.isnan().tolist() == [False, False, True, False, False, True, False]


def test_nll_of_one_vector(softmax, h):
    target = torch.tensor(12)
    assert error(softmax.nll(h[0, 0], target), -softmax.log_prob(h[0, 0])[12]) < SOFTMAX_EXACT


def test_the_embedding_is_split_once(softmax, h):
    """The gradient of a slice is as large as the embedding: 137 MB per cluster with 267,735 words."""
    loss = softmax.nll(h[0], torch.tensor([0, 6, 20, 1, 22, 10, 2])).sum()
    nodes = _history(loss.grad_fn)
    assert all(node._saved_self_sym_sizes[0] == 7 for node in nodes if node.name() == "SliceBackward0")
    assert [node.name() for node in nodes].count("SplitWithSizesBackward0") == 2


def _history(node):
    """All nodes of the autograd graph that `node` depends on."""
    nodes = {node}
    waiting = [node]
    while waiting:
        new = {n for n, _ in waiting.pop().next_functions if n is not None} - nodes
        nodes |= new
        waiting.extend(new)
    return nodes


@pytest.mark.parametrize("cutoffs", [(), (0,), (5, 5), (9, 5), (5, SOFTMAX_N)])
def test_invalid_cutoffs_are_refused(cutoffs):
    with pytest.raises(InputError, match="cutoffs must be ascending between 0 and N=23"):
        AdaptiveSoftmax(nn.Embedding(SOFTMAX_N, SOFTMAX_D), cutoffs)


def test_targets_of_another_shape_are_refused(softmax, h):
    with pytest.raises(InputError, match=r"targets must be \[4, 7\] like h, got \[4\]"):
        softmax.nll(h, torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("options", [{"tie_word_embeddings": True}, {"cutoffs": (5, 9)}])
def test_tied_model_trains_one_table_and_loads_its_weights(options):
    model, other = (LanguageModel(SOFTMAX_N, d_model=16, num_layers=1, num_heads=2, **options) for _ in range(2))
    tables = [p for p in model.parameters() if p.shape == (SOFTMAX_N, 16)]
    assert len(tables) == 1
    tokens = torch.randint(SOFTMAX_N, (2, 5))
    model(tokens)[0].sum().backward()
    assert tables[0].grad is not None
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens)[0], model(tokens)[0])


def test_loss_from_hidden_states_equals_the_loss_from_logits():
    model = LanguageModel(SOFTMAX_N, d_model=16, num_layers=1, num_heads=2, cutoffs=(5, 9, 20)).double()
    tokens, targets = torch.randint(SOFTMAX_N, (2, 3, 8))
    want = nn.functional.cross_entropy(model(tokens)[0].transpose(1, 2), targets, reduction="none")
    assert error(model.output.nll(model.hidden(tokens)[0], targets), want) < SOFTMAX_EXACT


@pytest.mark.parametrize(
    ("layer", "d_model", "millions"),
    [("delta-net", 128, 44.03), ("linear-attention", 128, 44.02), ("delta-net", 256, 89.87)],
    ids=["small DeltaNet", "small Linear Transformer", "medium DeltaNet"],
)
def test_language_models_have_the_papers_parameter_counts(layer, d_model, millions):
    """WikiText-103 has 267,735 words. Irie et al. 2021, Table 1: 44.0 M. Schlag et al. 2021, Table 4: 89.9 M."""
    sizes = {"d_model": d_model, "num_layers": 16, "num_heads": 8, "d_ff": 2048}
    with torch.device("meta"):
        model = LanguageModel(267_735, layer, norm="post", cutoffs=(20_000, 40_000, 200_000), **sizes)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == millions
