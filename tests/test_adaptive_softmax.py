"""The adaptive softmax against plain probabilities, and the papers' models by their parameter counts."""

import pytest
import torch
from torch import nn

from fastweights import InputError
from fastweights.models import adaptive_softmax
from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.language_model import LanguageModel
from fastweights.testing.tolerance import error, tolerance

N, D = 23, 6
EXACT, EXACT_GRADIENT = tolerance(torch.float64)


@pytest.fixture
def softmax():
    softmax = AdaptiveSoftmax(nn.Embedding(N, D), (5, 9, 20)).double()
    nn.init.normal_(softmax.bias)
    return softmax


@pytest.fixture
def h():
    return torch.randn(4, 7, D, dtype=torch.float64, requires_grad=True)


def test_probabilities_sum_to_one(softmax, h):
    total = softmax.log_prob(h).exp().sum(-1)
    assert error(total, torch.ones_like(total)) < EXACT


def test_probability_is_the_cluster_s_times_the_word_s_within(softmax, h):
    """Word 12 is the fourth of the second cluster, which has the last column but one of the head."""
    table, bias = softmax.embedding.weight, softmax.bias
    head = torch.cat([h @ table[:5].T + bias[:5], softmax.clusters(h)], dim=-1).softmax(-1)
    within = (h @ table[9:20].T + bias[9:20]).softmax(-1)
    assert error(softmax.log_prob(h)[..., 12].exp(), head[..., -2] * within[..., 3]) < EXACT
    assert error(softmax.log_prob(h)[..., 2].exp(), head[..., 2]) < EXACT


@pytest.mark.parametrize("highest", [N, 9, 5])
def test_nll_is_the_log_probability_gathered_and_so_are_its_gradients(softmax, h, highest):
    targets = torch.arange(28).view(4, 7) % highest
    want = -softmax.log_prob(h).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    got = softmax.nll(h, targets)
    assert error(got, want) < EXACT
    weights = torch.rand_like(want)
    leaves = [h, *softmax.parameters()]
    gradients = (torch.autograd.grad((loss * weights).sum(), leaves) for loss in (got, want))
    for mine, theirs in zip(*gradients, strict=True):
        assert error(mine, theirs) < EXACT_GRADIENT


def test_clusters_without_a_target_are_not_computed(softmax, h, monkeypatch):
    computed, linear = [], adaptive_softmax.linear
    monkeypatch.setattr(
        adaptive_softmax, "linear", lambda h, *part: computed.append((len(h), len(part[0]))) or linear(h, *part)
    )
    softmax.nll(h[0], torch.tensor([0, 4, 20, 1, 22, 3, 2]))
    assert computed == [(7, 5), (2, N - 20)]


def test_the_embedding_is_cut_once(softmax, h):
    """The gradient of a slice is as large as the embedding: with 267,735 words, a slice a cluster takes 137 MB each."""
    loss = softmax.nll(h[0], torch.tensor([0, 6, 20, 1, 22, 10, 2])).sum()
    names = [node.name() for node in _history(loss.grad_fn)]
    assert "SliceBackward0" not in names
    assert names.count("SplitWithSizesBackward0") == 2


def _history(node):
    seen = {node}
    ahead = [node]
    while ahead:
        found = {n for n, _ in ahead.pop().next_functions if n is not None} - seen
        seen |= found
        ahead.extend(found)
    return seen


@pytest.mark.parametrize("cutoffs", [(), (0,), (5, 5), (9, 5), (5, N)])
def test_bad_cutoffs_are_refused(cutoffs):
    with pytest.raises(InputError, match="cutoffs must be ascending between 0 and N=23"):
        AdaptiveSoftmax(nn.Embedding(N, D), cutoffs)


def test_targets_of_another_shape_are_refused(softmax, h):
    with pytest.raises(InputError, match=r"targets must be \[4, 7\] like h, got \[4\]"):
        softmax.nll(h, torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("options", [{"tie_word_embeddings": True}, {"cutoffs": (5, 9)}])
def test_tied_model_trains_one_table_and_loads_what_it_saved(options):
    model, other = (LanguageModel(N, d_model=16, num_layers=1, num_heads=2, **options) for _ in range(2))
    tables = [p for p in model.parameters() if p.shape == (N, 16)]
    assert len(tables) == 1
    tokens = torch.randint(N, (2, 5))
    model(tokens)[0].sum().backward()
    assert tables[0].grad is not None
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens)[0], model(tokens)[0])


def test_loss_from_hidden_is_the_loss_from_logits():
    model = LanguageModel(N, d_model=16, num_layers=1, num_heads=2, cutoffs=(5, 9, 20)).double()
    tokens, targets = torch.randint(N, (2, 3, 8))
    want = nn.functional.cross_entropy(model(tokens)[0].transpose(1, 2), targets, reduction="none")
    assert error(model.output.nll(model.hidden(tokens)[0], targets), want) < EXACT


@pytest.mark.parametrize(
    ("layer", "d_model", "millions"),
    [("delta-net", 128, 44.03), ("linear-attention", 128, 44.02), ("delta-net", 256, 89.87)],
    ids=["small DeltaNet", "small Linear Transformer", "medium DeltaNet"],
)
def test_language_models_have_the_papers_parameter_counts(layer, d_model, millions):
    """WikiText-103: 267,735 words. Irie et al. 2021, Table 1, print 44.0 M, Schlag et al. 2021, Table 4, 89.9 M."""
    sizes = {"d_model": d_model, "num_layers": 16, "num_heads": 8, "d_ff": 2048}
    with torch.device("meta"):
        model = LanguageModel(267_735, layer, norm="post", cutoffs=(20_000, 40_000, 200_000), **sizes)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == millions
