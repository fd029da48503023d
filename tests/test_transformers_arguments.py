"""Arguments of the models for transformers: each has its effect, or is refused by its name."""

import inspect
from importlib.util import find_spec

import pytest
import torch
from torch.nn.functional import cross_entropy

from fastweights.core.errors import InputError
from fastweights.layers import layer_names
from fastweights.testing.tolerance import error, tolerance

pytestmark = pytest.mark.skipif(not find_spec("transformers"), reason="needs fastweights[transformers]")
CLOSE, CLOSE_GRADIENT = tolerance(torch.float32)
N, PADDING = 20, -100


def make(**options):
    from fastweights.adapters.transformers.causal_lm import FastWeightConfig, FastWeightForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": N, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return FastWeightForCausalLM(FastWeightConfig(**{**sizes, **options})).eval()


def cache_of(result):
    from fastweights.adapters.transformers.causal_lm import CACHE

    return getattr(result, CACHE)


def draw(*shape):
    return torch.randint(N, shape)


def masked(tokens, mask):
    """Tokens, with a number that no token has where the mask is 0."""
    return tokens.masked_fill(mask == 0, PADDING)


def losses(model, sequence):
    """The summed loss of a sequence, and its number of predicted tokens."""
    logits = model(sequence[None]).logits[0, :-1]
    return cross_entropy(logits, sequence[1:], reduction="sum"), len(sequence) - 1


def check_masked_batch(model, tokens, mask, cut):
    """Results of masked rows, read in two pieces, and those of every row without the masked positions."""
    first = model(masked(tokens[:, :cut], mask[:, :cut]), mask[:, :cut])
    rest = model(masked(tokens[:, cut:], mask[:, cut:]), mask, past_key_values=cache_of(first))
    pieces = torch.cat([first.logits, rest.logits], 1)
    whole = model(masked(tokens, mask), mask, labels=tokens)
    total = [losses(model, row[kept]) for row, kept in zip(tokens, mask.bool(), strict=True) if kept.any()]
    if sum(n for _, n in total):
        assert error(whole.loss, sum(loss for loss, _ in total) / sum(n for _, n in total)) < CLOSE
    for row, kept, once, twice in zip(tokens, mask.bool(), whole.logits, pieces, strict=True):
        if kept.any():
            alone = model(row[kept][None]).logits[0]
            assert error(once[kept], alone) < CLOSE
            assert error(twice[kept], alone) < CLOSE
            assert error(once[-1], alone[-1]) < CLOSE, "the token to generate next"


@pytest.mark.parametrize("seed", range(30))
def test_masked_positions_have_no_influence_wherever_they_are(seed):
    model = make(layer=["delta-net", "lstm"], conv_size=3)
    torch.manual_seed(seed)
    B, T, kept = 1 + seed % 3, 2 + seed % 8, torch.rand(1)
    check_masked_batch(model, draw(B, T), (torch.rand(B, T) < kept).long(), 1 + seed % (T - 1))


@pytest.mark.parametrize("layer", layer_names())
def test_masked_positions_have_no_influence_on_any_layer(layer):
    mask = torch.tensor([[1, 1, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0, 1], [1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1]])
    check_masked_batch(make(layer=layer, num_hidden_layers=1), draw(4, 7), mask, 4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_generation_from_padded_prompts_is_that_of_each_alone(side):
    model, (long, short) = make(layer=["delta-net", "srwm"]), (draw(6), draw(3))
    padding, kept = torch.full((3,), PADDING), torch.tensor([1, 1, 1, 0, 0, 0])
    row, kept = (torch.cat([padding, short]), kept.flip(0)) if side == "left" else (torch.cat([short, padding]), kept)
    mask = torch.stack([torch.ones_like(kept), kept])
    for how in ({"num_beams": 1}, {"num_beams": 3}):
        how = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, **how}
        together = model.generate(torch.stack([long, row]), attention_mask=mask, **how)
        for got, prompt in zip(together, (long, short), strict=True):
            alone = model.generate(prompt[None], attention_mask=torch.ones_like(prompt[None]), **how)
            assert torch.equal(got[-5:], alone[0, -5:])


MARKS = {
    "position_ids": {"return_position_ids": True},
    "seq_idx": {"return_position_ids": False, "return_seq_idx": True},
    "cu_seq_lens": {"return_position_ids": False, "return_flash_attn_kwargs": True},
    "all": {"return_position_ids": True, "return_seq_idx": True, "return_flash_attn_kwargs": True},
}


@pytest.mark.parametrize("marks", MARKS)
def test_packed_documents_do_not_see_each_other(marks):
    """With every mark of the collator alone, and with all of them."""
    from transformers import DataCollatorWithFlattening

    wanted = {"return_position_ids": False, "return_seq_idx": False, "return_flash_attn_kwargs": False, **MARKS[marks]}
    known = inspect.signature(DataCollatorWithFlattening).parameters
    if not wanted.keys() <= known.keys():
        pytest.skip("this version of transformers has no such mark")
    model, documents = make(layer=["delta-net", "lstm"], conv_size=3), [draw(5), draw(1), draw(4)]
    batch = DataCollatorWithFlattening(**wanted)([{"input_ids": d.tolist()} for d in documents])
    packed = model(**batch)
    alone = [losses(model, d) for d in documents if len(d) > 1]
    loss = sum(loss for loss, _ in alone) / sum(n for _, n in alone)
    assert error(packed.logits, torch.cat([model(d[None]).logits for d in documents], 1)) < CLOSE
    assert error(packed.loss, loss) < CLOSE
    wanted, got = (torch.autograd.grad(x, [*model.parameters()]) for x in (loss, packed.loss))
    for one, other in zip(got, wanted, strict=True):
        assert error(one, other, least=1e-3) < CLOSE_GRADIENT


def test_first_tokens_of_packed_documents_have_no_loss_whatever_their_labels():
    model, (first, second) = make(), (draw(5), draw(4))
    tokens, numbers = torch.cat([first, second])[None], torch.tensor([[0] * 5 + [1] * 4])
    (one, n), (other, m) = losses(model, first), losses(model, second)
    assert error(model(tokens, labels=tokens, seq_idx=numbers).loss, (one + other) / (n + m)) < CLOSE


def test_padding_among_packed_documents_has_no_influence():
    model, mask = make(), torch.tensor([[1, 0, 1, 1, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1, 1, 1]])
    tokens, numbers = draw(2, 8), torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    logits = model(tokens, mask, seq_idx=numbers).logits
    for row, kept, got in zip(tokens, mask.bool(), logits, strict=True):
        for part in (slice(0, 4), slice(4, 8)):
            assert error(got[part][kept[part]], model(row[part][kept[part]][None]).logits[0]) < CLOSE


def test_positions_with_gaps_are_no_new_documents():
    """Holes leave gaps in the positions; generation numbers masked positions with 0."""
    model, tokens, mask = make(), draw(1, 6), torch.tensor([[1, 1, 0, 0, 1, 1]])
    alone = model(tokens[mask.bool()][None]).logits
    for places in (torch.arange(6)[None], torch.tensor([[0, 1, 0, 0, 2, 3]])):
        logits = model(tokens, mask, position_ids=places).logits
        assert error(logits[mask.bool()], alone[0]) < CLOSE


# Effects of arguments: a function for every argument that the models honour.


def effect_of_input_ids(model, x):
    assert model(input_ids=x).logits.shape == (*x.shape, N)


def effect_of_attention_mask(model, x):
    mask = torch.ones_like(x)
    mask[:, 1] = 0
    assert error(model(x, attention_mask=mask).logits[:, 2:], model(x[:, [0, 2, 3, 4]]).logits[:, 1:]) < CLOSE


def check_mark(model, x, **marks):
    apart = torch.cat([model(x[:1, :2]).logits, model(x[:1, 2:]).logits], 1)
    assert error(model(x[:1], **marks).logits, apart) < CLOSE
    assert error(model(x[:1]).logits, apart) > CLOSE


def effect_of_position_ids(model, x):
    check_mark(model, x, position_ids=torch.tensor([[0, 1, 0, 1, 2]]))
    check_mark(model, x, position_ids=torch.tensor([[2, 3, 2, 3, 4]]))


def effect_of_seq_idx(model, x):
    check_mark(model, x, seq_idx=torch.tensor([[0, 0, 1, 1, 1]], dtype=torch.int32))


def effect_of_cu_seq_lens_q(model, x):
    check_mark(model, x, cu_seq_lens_q=torch.tensor([0, 2, 5], dtype=torch.int32))


def effect_of_cu_seq_lens_k(model, x):
    check_mark(model, x, cu_seq_lens_k=torch.tensor([0, 2, 5], dtype=torch.int32))


def effect_of_max_length_q(model, x):
    """It follows from the ends."""
    check_mark(model, x, cu_seq_lens_q=torch.tensor([0, 2, 5]), max_length_q=3)


def effect_of_max_length_k(model, x):
    check_mark(model, x, cu_seq_lens_k=torch.tensor([0, 2, 5]), max_length_k=3)


def effect_of_past_key_values(model, x, name="past_key_values"):
    rest = model(x[:, 2:], **{name: cache_of(model(x[:, :2]))})
    assert error(rest.logits, model(x).logits[:, 2:]) < CLOSE


def effect_of_cache(model, x):
    effect_of_past_key_values(model, x, "cache")


def effect_of_inputs_embeds(model, x):
    assert torch.equal(model(inputs_embeds=model.get_input_embeddings()(x)).logits, model(x).logits)


def effect_of_labels(model, x):
    wanted = cross_entropy(model(x).logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())
    assert error(model(x, labels=x).loss, wanted) < CLOSE


def effect_of_shift_labels(model, x):
    shifted = torch.nn.functional.pad(x[:, 1:], (0, 1), value=-100)
    assert torch.equal(model(x, shift_labels=shifted).loss, model(x, labels=x).loss)


def effect_of_num_items_in_batch(model, x):
    assert (
        error(model(x, labels=x, num_items_in_batch=2).loss, model(x, labels=x).loss * (x.numel() - len(x)) / 2) < CLOSE
    )


def effect_of_use_cache(model, x):
    assert cache_of(model(x)) is not None
    assert cache_of(model(x, use_cache=False)) is None
    assert cache_of(model.train()(x)) is None
    assert cache_of(model(x, use_cache=True)) is not None


def effect_of_logits_to_keep(model, x):
    logits = model(x).logits
    for keep, wanted in ((0, logits), (2, logits[:, -2:]), (torch.tensor([1, 3]), logits[:, [1, 3]])):
        assert error(model(x, logits_to_keep=keep).logits, wanted) < CLOSE


def effect_of_output_hidden_states(model, x):
    assert model(x).hidden_states is None
    states = model(x, output_hidden_states=True).hidden_states
    assert len(states) == model.config.num_hidden_layers + 1
    assert torch.equal(states[0], model.get_input_embeddings()(x))
    assert error(model.get_output_embeddings()(states[-1]), model(x).logits) < CLOSE
    model.config.output_hidden_states = True
    assert len(model(x).hidden_states) == len(states)
    assert model(x, output_hidden_states=False).hidden_states is None


def effect_of_return_dict(model, x):
    parts = model(x, return_dict=False)
    assert type(parts) is tuple
    assert torch.equal(parts[0], model(x).logits)


EFFECTS = {name.removeprefix("effect_of_"): check for name, check in globals().items() if name.startswith("effect_of_")}


def known_to_transformers():
    """Keywords of the forward passes of other models, from their signatures and what is documented for all models."""
    if not find_spec("transformers"):
        return []
    from transformers import LlamaForCausalLM, Qwen3NextForCausalLM
    from transformers.utils import TransformersKwargs

    forwards = (LlamaForCausalLM.forward, Qwen3NextForCausalLM.forward)
    own = {name for f in forwards for name, p in inspect.signature(f).parameters.items() if p.kind != p.VAR_KEYWORD}
    return sorted({*own, *TransformersKwargs.__annotations__, *EFFECTS} - {"self"})


@pytest.mark.parametrize("name", known_to_transformers())
def test_every_argument_has_its_effect_or_is_refused_by_name(name):
    model, tokens = make(), draw(2, 5)
    if name in EFFECTS:
        EFFECTS[name](model, tokens)
        return
    for value in (True, False, 3, torch.zeros(2, 5)):
        if value is not {"output_attentions": False, "output_router_logits": False, "is_causal": True}.get(name):
            with pytest.raises(InputError, match=rf"^{name} must be (\w+ or )?left out, got"):
                model(tokens, **{name: value})
        else:
            assert torch.equal(model(tokens, **{name: value}).logits, model(tokens).logits)


def test_unknown_arguments_are_refused_by_name():
    with pytest.raises(InputError, match="token_type_ids must be left out, got a tensor"):
        make()(draw(2, 5), token_type_ids=torch.zeros(2, 5))


WRONG = {
    "input_ids": [{}, {"input_ids": draw(5)}],
    "inputs_embeds": [{"input_ids": draw(2, 5), "inputs_embeds": torch.zeros(2, 5, 16)}],
    "attention_mask": [{"attention_mask": x} for x in (torch.ones(2, 4), torch.ones(3, 5), torch.ones(2, 1, 5, 5))],
    "position_ids": [{"position_ids": x} for x in (torch.arange(5), torch.arange(4)[None], torch.rand(2, 5))],
    "seq_idx": [{"seq_idx": torch.zeros(3, 2, 5, dtype=torch.long)}],
    "cu_seq_lens_q": [{"cu_seq_lens_q": torch.tensor([0, 2, 5])}],
    "past_key_values": [{"past_key_values": ()}],
    "cache": [{"cache": 1}, {"cache": 1, "past_key_values": 2}],
    "logits_to_keep": [{"logits_to_keep": -1}, {"logits_to_keep": 2, "labels": draw(2, 5)}],
}


@pytest.mark.parametrize(("name", "wrong"), [(name, wrong) for name, several in WRONG.items() for wrong in several])
def test_arguments_that_do_not_fit_are_named(name, wrong):
    given = wrong if name in {"input_ids", "inputs_embeds"} else {"input_ids": draw(2, 5), **wrong}
    named = r"(past_key_values|cache)" if name == "past_key_values" or wrong == {"cache": 1} else name
    with pytest.raises(InputError, match=f"^{named} must be"):
        make()(**given)


@pytest.mark.parametrize("ends", [[0, 2, 4], [1, 5], [0, 3, 2, 5], [5], [0.0, 5.0]])
def test_ends_of_packed_documents_that_do_not_fit_are_named(ends):
    with pytest.raises(InputError, match=r"^cu_seq_lens_q must be int"):
        make()(draw(1, 5), cu_seq_lens_q=torch.tensor(ends))
