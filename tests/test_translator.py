"""Encoder and decoder: padding, streaming, reordering, and beam search."""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch import nn

from fastweights import InputError
from fastweights.models.beam_search import beam_search
from fastweights.models.cross_attention import make_cross_attention
from fastweights.models.translator import Translator
from fastweights.registry import FEATURE_MAPS
from fastweights.tasks.kinds.pairs import Sentences
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.loops.translation import translate
from tiers import in_tiers

N = 11
EXACT = tolerance(torch.float64).forward
KINDS = {
    "softmax": {"layer": "softmax-attention"},
    "linear": {"layer": "linear-attention", "encoder_feature_map": "elu", "cross_feature_map": "elu"},
    "dpfp": {
        "layer": "linear-attention",
        "encoder_feature_map": "dpfp-2",
        "cross_feature_map": "dpfp-2",
        "options": {"feature_map": "dpfp-2"},
    },
    "favor": {
        **{"layer": "performer", "encoder_feature_map": "scaled-favor-32", "cross_feature_map": "scaled-favor-32"},
        "options": {"feature_map": "scaled-favor-32"},
    },
    "delta": {"layer": "delta-net", "cross_feature_map": "elu"},
}


def make(kind, norm="post"):
    torch.manual_seed(0)
    return Translator(N, d_model=16, num_layers=2, num_heads=2, d_ff=24, norm=norm, **KINDS[kind]).double().eval()


def sentences(batch=3, S=7, T=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    source, target = (torch.randint(N, (batch, steps), generator=generator) for steps in (S, T))
    return source, torch.tensor([S, 1, S - 3][:batch]), target, torch.tensor([T, T - 2, 1][:batch])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", KINDS)
def test_streaming_equals_one_pass_and_padding_has_no_effect(kind, norm):
    model = make(kind, norm)
    source, source_lengths, target, _ = sentences()
    whole = model(source, source_lengths, target, None)
    state, logits = model.encode(source, source_lengths), []
    for t in range(target.shape[1]):
        step, state = model.decode(target[:, t : t + 1], state)
        logits.append(step)
    assert error(torch.cat(logits, dim=1), whole) <= EXACT
    for member, length in enumerate(source_lengths.tolist()):
        alone = model(source[member : member + 1, :length], None, target[member : member + 1], None)
        assert error(alone[0], whole[member]) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
def test_padding_has_no_gradient_and_may_be_any_number(kind):
    model = make(kind)
    source, source_lengths, target, target_lengths = sentences()
    inside = torch.arange(target.shape[1]) < target_lengths[:, None]

    def gradients(fill):
        padded = source.masked_fill(torch.arange(source.shape[1]) >= source_lengths[:, None], fill)
        model.zero_grad()
        model(padded, source_lengths, target.masked_fill(~inside, fill), target_lengths)[
            inside
        ].square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    for one, other in zip(gradients(0), gradients(-1), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "source",
    [torch.zeros(2, 3), torch.zeros(3, dtype=torch.long), torch.full((2, 3), N), torch.zeros(2, 0).long(), [[1, 2]]],
)
def test_invalid_tokens_are_refused_in_one_line(source):
    with pytest.raises(InputError, match="tokens must be") as refusal:
        make("linear").encode(source)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_with_softmax_attention_it_equals_nn_transformer(norm):
    """Vaswani et al. 2017: sqrt(D) times the embedding plus sinusoids, `nn.Transformer`, tied embeddings."""
    model = Translator(
        N, "softmax-attention", d_model=16, num_layers=2, num_heads=2, d_ff=24, norm=norm,
        options={"use_rope": False, "bias": True},
    ).double().eval()  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    theirs = torch_transformer(model, norm == "pre").double().eval()
    source, source_lengths, target, target_lengths = sentences()
    x, y = (sinusoids(4 * model.embedding(tokens)) for tokens in (source, target))
    padding = torch.arange(source.shape[1]) >= source_lengths[:, None]
    later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    h = theirs(x, y, tgt_mask=later, src_key_padding_mask=padding, memory_key_padding_mask=padding)
    inside = torch.arange(target.shape[1]) < target_lengths[:, None]
    want = h @ model.embedding.weight.T
    assert error(model(source, source_lengths, target, target_lengths)[inside], want[inside]) <= EXACT


def torch_transformer(model, pre):
    """`nn.Transformer` with the weights of a translator. Pre-norm has a LayerNorm at the ends."""
    options = {"dim_feedforward": 24, "batch_first": True, "norm_first": pre}
    ends = [model.source_norm, model.norm] if pre else [None, None]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, **options), 2, ends[0], False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, **options), 2, ends[1])
    theirs = nn.Transformer(16, 2, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for layer, block in zip(encoder.layers, model.encoder, strict=True):
        copy(layer, [*whole_attention(block.layer.attention), *feed_forward(block)])
    for layer, block in zip(decoder.layers, model.decoder, strict=True):
        attention, cross = [block.layer.projection, block.layer.output], whole_attention(block.cross)
        copy(layer, [*attention, *cross, *feed_forward(block)])
    return theirs


def copy(layer, parts):
    for parameter, value in zip(layer.parameters(), [p for part in parts for p in part.parameters()], strict=True):
        parameter.data = value.detach().clone()


def whole_attention(attention):
    """Query, key and value in one map, as in torch."""
    joined = nn.Linear(16, 48).double()
    for name in ("weight", "bias"):
        parts = [getattr(attention.query, name), getattr(attention.key_and_value, name)]
        getattr(joined, name).data = torch.cat(parts).detach()
    return [joined, attention.output]


def feed_forward(block):
    """Feed-forward network, then the LayerNorms in the order of torch."""
    norms = [getattr(block, f"{part}_norm", None) for part in ("layer", "cross", "feed_forward")]
    return [block.feed_forward[0], block.feed_forward[3], *filter(None, norms)]


def sinusoids(x):
    """x plus alternating sines and cosines with wavelengths from 2 pi to 20,000 pi."""
    for t in range(x.shape[1]):
        for i in range(8):
            angle = t / 10_000 ** (2 * i / 16)
            x[:, t, 2 * i] += math.sin(angle)
            x[:, t, 2 * i + 1] += math.cos(angle)
    return x


@pytest.mark.parametrize("feature_map", FEATURE_MAPS.names())
def test_linear_cross_attention_equals_its_definition(feature_map):
    attention = make_cross_attention(8, 2, feature_map).double().eval()
    x, source = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 4, 8, dtype=torch.float64)
    y = attention(x, attention.encode(source, torch.tensor([4, 2])))
    phi = attention.keys
    for member, length in enumerate([4, 2]):
        k, v = attention.key_and_value(source[member, :length]).view(length, 2, 2, 4).unbind(1)
        q = attention.query(x[member]).view(3, 2, 4)
        weights = torch.einsum("thk,shk->hts", phi(q), phi(k))
        read = torch.einsum("hts,shv->thv", weights, v) / (weights.sum(-1).T.unsqueeze(-1) + 1e-5)
        assert error(y[member], attention.output(read.flatten(1))) <= EXACT


def test_keys_and_queries_have_the_same_random_features_in_training():
    attention = make_cross_attention(8, 2, "favor-8").train()
    memory = attention.encode(torch.randn(1, 4, 8))
    drawn = attention.keys.feature_map.directions.clone()
    attention(torch.randn(1, 3, 8), memory)
    assert torch.equal(drawn, attention.keys.feature_map.directions)
    attention.encode(torch.randn(1, 4, 8))
    assert not torch.equal(drawn, attention.keys.feature_map.directions)


BEGIN, END = 0, 1


def search(model, source, lengths, **options):
    return model.translate(source, lengths, BEGIN, END, **options)


def test_tokens_are_on_the_device_of_the_source():
    """The meta device has no values to choose from, so the search stops at the first step."""
    devices = []

    class Spy(NamedTuple):
        def select(self, which):
            devices.append(which.device.type)
            return self

    def step(tokens, state):
        devices.append(tokens.device.type)
        raise StopIteration

    with pytest.raises(StopIteration):
        beam_search(step, Spy(), torch.empty(2, dtype=torch.long, device="meta"), END, 5, 4, 1.0)
    assert devices == ["meta", "meta"]


def log_p(model, source, sequences):
    """Log probabilities of sequences of one length, by one call."""
    target = torch.tensor([[BEGIN, *tokens] for tokens in sequences])
    targets = torch.tensor([[*tokens, END] for tokens in sequences])
    scores = model(source.expand(len(target), -1), None, target, None).float().log_softmax(-1)
    return scores.gather(-1, targets.unsqueeze(-1)).sum((1, 2)).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_a_wide_beam_returns_the_best_of_all_sequences(kind, length_penalty):
    model = make(kind)
    source, *_ = sentences(batch=1)
    words = [token for token in range(N) if token != END]
    scores = {}
    for n in range(3):
        some = list(itertools.product(words, repeat=n))
        sums = log_p(model, source, some)
        scores |= {tokens: total / (n + 1) ** length_penalty for tokens, total in zip(some, sums, strict=True)}
    hypotheses = search(model, source, None, max_length=3, num_beams=N**3, length_penalty=length_penalty)[0]
    assert {tuple(one.tokens) for one in hypotheses} >= set(scores)
    best = max(scores, key=scores.__getitem__)
    assert tuple(hypotheses[0].tokens) == best
    assert hypotheses[0].score == pytest.approx(scores[best], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_beam_of_1_is_greedy(kind):
    model = make(kind)
    source, lengths, *_ = sentences()
    hypotheses = search(model, source, lengths, max_length=6, num_beams=1)
    state, tokens, steps = model.encode(source, lengths), torch.full((3, 1), BEGIN), []
    for _ in range(6):
        logits, state = model.decode(tokens, state)
        tokens = logits[:, -1].argmax(-1, keepdim=True)
        steps.append(tokens)
    for member, row in enumerate(torch.cat(steps, dim=1).tolist()):
        assert hypotheses[member][0].tokens == row[: row.index(END) if END in row else None]


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_of_a_batch_are_independent(kind):
    model = make(kind)
    source, lengths, *_ = sentences()
    together = search(model, source, lengths, max_length=6, num_beams=3)
    for member, length in enumerate(lengths.tolist()):
        alone = search(model, source[member : member + 1, :length], None, max_length=6, num_beams=3)[0]
        assert [one.tokens for one in alone] == [one.tokens for one in together[member]]


class Words:
    """The part of a task that `translate` needs."""

    bos_token_id, eos_token_id = BEGIN, END

    def decode(self, tokens):
        return " ".join(map(str, tokens.tolist()))


BEAMS = [
    (1, 0.0),
    (2, 1.0),
    (4, 0.0),
    *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((1, 1.0), (2, 0.0), (4, 1.0))),
]
"""Numbers of beams and length penalties."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_beams", "length_penalty"), BEAMS)
def test_a_translation_does_not_depend_on_the_other_sentences(kind, num_beams, length_penalty):
    """Untrained models seldom end a sentence, so most translations reach their limit."""
    for seed in range(2):
        torch.manual_seed(seed)
        model = (
            Translator(N, d_model=16, num_layers=1, num_heads=2, d_ff=16, dropout=0.0, **KINDS[kind]).double().eval()
        )
        rows = [torch.randint(2, N, (length,)) for length in torch.randperm(9).tolist() if length]
        together = translate(model, Words(), Sentences.of(rows), num_beams, length_penalty)
        alone = [translate(model, Words(), Sentences.of([row]), num_beams, length_penalty)[0] for row in rows]
        assert together == alone
        assert all(len(text.split()) <= 2 * len(row) + 10 for text, row in zip(alone, rows, strict=True))


def test_every_sentence_has_its_own_limit():
    model = make("linear")
    source, lengths, *_ = sentences()
    limits = torch.tensor([1, 7, 3])
    together = search(model, source, lengths, max_length=limits, num_beams=2)
    for member, limit in enumerate(limits.tolist()):
        assert together[member] == search(model, source, lengths, max_length=limit, num_beams=2)[member]
    for wrong in (torch.tensor([1, 7]), torch.tensor([1, 0, 3])):
        with pytest.raises(InputError, match="max_length must be"):
            search(model, source, lengths, max_length=wrong, num_beams=2)


@pytest.mark.parametrize("kind", in_tiers({"linear": {"learns"}} | {kind: {"learns"} for kind in KINDS}))
def test_translators_learn_to_copy(kind):
    """After training on random sequences, the model copies new ones."""
    torch.manual_seed(0)
    model = Translator(N, d_model=32, num_layers=1, num_heads=2, d_ff=64, dropout=0.0, **KINDS[kind])
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(600):
        words = torch.randint(2, N, (32, 3))
        target = torch.cat([torch.full((32, 1), BEGIN), words], dim=1)
        logits = model(words, None, target, None)
        labels = torch.cat([words, torch.full((32, 1), END)], dim=1)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        optimiser.step()
    words = torch.randint(2, N, (20, 3))
    hypotheses = search(model.eval(), words, None, max_length=6, num_beams=3)
    right = sum(one[0].tokens == row for one, row in zip(hypotheses, words.tolist(), strict=True))
    assert right >= 18
