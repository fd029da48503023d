"""Layers as models of transformers: saving, loading, generation and training."""

import json
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from fastweights.core.errors import InputError
from fastweights.layers import FakeSRWM, layer_names
from fastweights.testing.layer_checks import assert_same_distribution, tensors_of
from fastweights.testing.tolerance import error, tolerance

pytestmark = pytest.mark.skipif(not find_spec("transformers"), reason="needs fastweights[transformers]")
SMALL = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
CLOSE = tolerance(torch.float32).forward


if find_spec("transformers"):
    from transformers import PreTrainedModel

    from fastweights.adapters.transformers.state_cache import CACHE

    known = hasattr(PreTrainedModel, "is_activation_checkpointing")
    CHECKPOINTING = "activation_checkpointing" if known else "gradient_checkpointing"


def make(**options):
    from fastweights.adapters.transformers.causal_lm import FastWeightConfig, FastWeightForCausalLM

    return FastWeightForCausalLM(FastWeightConfig(**{**SMALL, **options})).eval()


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate("_abcdefghijklmnopqrs")}, "_"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="_", unk_token="_", padding_side="left")


def test_every_layer_can_be_saved_and_loaded(tmp_path):
    from transformers import AutoModelForCausalLM

    for name in layer_names():
        model = make(layer=name, num_hidden_layers=1)
        model.save_pretrained(tmp_path / name)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / name)
        assert type(loaded) is type(model)
        assert loaded.config.to_diff_dict()["layer"] == name
        one, other = (dict([*m.named_parameters(), *m.named_buffers()]) for m in (model, loaded))
        assert one.keys() == other.keys()
        assert all(torch.equal(tensor, other[key]) for key, tensor in one.items()), name


@pytest.mark.parametrize("tie_word_embeddings", [False, True])
def test_loaded_models_have_the_same_logits(tmp_path, tie_word_embeddings):
    model, tokens = (
        make(layer=["delta-net", "softmax-attention"], tie_word_embeddings=tie_word_embeddings),
        torch.arange(12).view(2, 6),
    )
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert (loaded.network.output.weight is loaded.network.embedding.weight) == tie_word_embeddings
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)


@pytest.fixture
def used_memory(monkeypatch):
    """Fills the memory of parameters that a checkpoint lacks with NaN."""
    empty_like = torch.empty_like

    def full_of_nan(*arguments, **options):
        tensor = empty_like(*arguments, **options)
        return tensor.fill_(torch.nan if tensor.is_floating_point() else 99)

    monkeypatch.setattr(torch, "empty_like", full_of_nan)


@pytest.mark.parametrize("tie_word_embeddings", [False, True])
@pytest.mark.parametrize("name", layer_names())
def test_parameters_missing_in_a_checkpoint_are_initialised(name, tie_word_embeddings, tmp_path, used_memory):
    """The model has one more block and more tokens. All other parameters are loaded."""
    from fastweights.adapters.transformers.causal_lm import FastWeightConfig

    saved = make(layer=name, num_hidden_layers=1, tie_word_embeddings=tie_word_embeddings)
    saved.save_pretrained(tmp_path)
    options = {
        **SMALL,
        "layer": name,
        "num_hidden_layers": 2,
        "vocab_size": 24,
        "tie_word_embeddings": tie_word_embeddings,
    }
    loaded = type(saved).from_pretrained(tmp_path, config=FastWeightConfig(**options), ignore_mismatched_sizes=True)
    stored, fresh = tensors_of(saved), tensors_of(make(**options))
    for key, got in tensors_of(loaded).items():
        if key in stored and stored[key].shape == got.shape:
            assert torch.equal(got, stored[key]), key
        else:
            assert_same_distribution(key, got, fresh[key])


def test_one_missing_parameter_of_a_module_is_initialised(tmp_path):
    """The other parameters of the same module are loaded."""
    from safetensors.torch import load_file, save_file

    saved, lost = make(layer="delta-mlp"), "network.blocks.0.layer.slow_weights.gain"
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.add_(1)
    saved.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({key: t for key, t in load_file(file).items() if key != lost}, file, {"format": "pt"})
    loaded = tensors_of(type(saved).from_pretrained(tmp_path))
    assert (loaded.pop(lost) == 1).all()
    assert all(torch.equal(got, tensors_of(saved)[key]) for key, got in loaded.items())


def test_a_layer_that_cannot_be_initialised_is_named(tmp_path, monkeypatch):
    """The layer has a parameter and no `reset_parameters`."""
    from fastweights.adapters.transformers.causal_lm import FastWeightConfig

    class WithoutReset(FakeSRWM):
        reset_parameters = property()  # hasattr is False

        def __init__(self, d_model):
            nn.Module.__init__(self)
            self.weight = nn.Parameter(torch.ones(2, d_model // 2, d_model // 2))
            self.output = nn.Linear(d_model, d_model, bias=False)

    monkeypatch.setattr(sys.modules[__name__], "WithoutReset", WithoutReset, raising=False)
    layer = f"{__name__}:WithoutReset"
    saved = make(layer=layer, num_hidden_layers=1)
    saved.save_pretrained(tmp_path)
    assert torch.equal(type(saved).from_pretrained(tmp_path).network.blocks[0].layer.weight, torch.ones(2, 8, 8))
    with pytest.raises(InputError, match=r"module must be a module with reset_parameters\(\), .*, got WithoutReset"):
        type(saved).from_pretrained(tmp_path, config=FastWeightConfig(**SMALL, layer=layer))


def test_new_tokens_have_the_initial_scale_of_the_others():
    model = make(vocab_size=500, hidden_size=64)
    model.resize_token_embeddings(1000, mean_resizing=False)
    assert model.get_input_embeddings().weight[500:].std().item() == pytest.approx(1 / 8, rel=0.1)


def test_a_model_continues_from_a_state():
    model, tokens = make(), torch.randint(20, (2, 9))
    whole = model(tokens).logits
    first = model(tokens[:, :4])
    rest = model(tokens[:, 4:], **{CACHE: getattr(first, CACHE)})
    assert error(torch.cat([first.logits, rest.logits], 1), whole) < CLOSE
    assert getattr(rest, CACHE).get_seq_length() == 9


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_with_and_without_a_state_is_equal(beams):
    model, prompt = make(layer=["delta-net", "lstm"]), torch.randint(20, (2, 5))
    settings = {"max_new_tokens": 7, "num_beams": beams, "do_sample": False, "pad_token_id": 0}
    carried, recomputed = (model.generate(prompt, use_cache=use_cache, **settings) for use_cache in (True, False))
    assert torch.equal(carried, recomputed)
    assert carried.shape == (2, 12)


def test_generation_continues_from_a_state():
    model, prompt = make(), torch.randint(20, (2, 5))
    settings = {"do_sample": False, "pad_token_id": 0}
    first = model.generate(prompt, max_new_tokens=4, return_dict_in_generate=True, **settings)
    carried = {CACHE: getattr(first, CACHE)}
    second = model.generate(first.sequences, **carried, max_new_tokens=4, **settings)
    assert torch.equal(second, model.generate(prompt, max_new_tokens=8, **settings))


def test_generation_reads_every_token_once(monkeypatch):
    """The prompt is read at once, then each token once. The cache has the name of the installed version."""
    model, read = make(), []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model),
        "forward",
        lambda self, **inputs: read.append(inputs["input_ids"].shape[1]) or forward(self, **inputs),
    )
    model.generate(torch.randint(1, 20, (2, 5)), max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert read == [5, 1, 1, 1]


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_from_embeddings_equals_generation_from_tokens(beams):
    model, prompt = make(), torch.randint(1, 20, (2, 5))
    settings = {"max_new_tokens": 4, "num_beams": beams, "do_sample": False, "pad_token_id": 0}
    embeddings = model.get_input_embeddings()(prompt)
    assert torch.equal(model.generate(inputs_embeds=embeddings, **settings), model.generate(prompt, **settings)[:, 5:])


def test_prompt_tuning_of_a_frozen_model_reduces_the_loss():
    """Soft prompts precede the embedded text, as in peft."""
    model, text = make().requires_grad_(False), torch.arange(8).repeat(2, 1) % 4
    prompt = torch.nn.Parameter(torch.randn(3, 16) / 4)
    optimizer, losses = torch.optim.Adam([prompt], 0.1), []
    labels = torch.cat([torch.full((2, 3), -100), text], 1)
    for _ in range(30):
        x = torch.cat([prompt.expand(2, -1, -1), model.get_input_embeddings()(text)], 1)
        loss = model(inputs_embeds=x, attention_mask=torch.ones(2, 11), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.skipif(not find_spec("peft"), reason="needs peft")
@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning", "ignore:Position ids:UserWarning")  # warnings of peft
@pytest.mark.parametrize("kind", ["PromptTuningConfig", "LoraConfig"])
def test_peft_trains_and_generates(kind):
    import peft

    settings = {"num_virtual_tokens": 3} if kind == "PromptTuningConfig" else {"target_modules": ["feed_forward.0"]}
    model = peft.get_peft_model(make(), getattr(peft, kind)(task_type="CAUSAL_LM", **settings))
    text = torch.arange(8).repeat(2, 1) % 4 + 1
    model(input_ids=text, attention_mask=torch.ones_like(text), labels=text).loss.backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    generated = model.generate(input_ids=text, attention_mask=torch.ones_like(text), max_new_tokens=3, do_sample=False)
    assert generated.shape[0] == 2


def saved_by(run):
    """Loss of a run, and the number of bytes saved for the backward pass."""
    sizes = {}

    def save(x):
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        loss = run()
    return loss, sum(sizes.values())


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("layer", ["delta-net", "lstm", "softmax-attention", "srwm"])
def test_gradient_checkpointing_saves_less_with_the_same_gradients(layer, reentrant):
    """With dropout, left padding and an initial state."""
    model, tokens = make(layer=layer, dropout=0.2, num_hidden_layers=4).train(), torch.randint(20, (2, 30))
    mask = torch.ones_like(tokens)
    mask[0, :5] = 0
    with torch.no_grad():
        start = getattr(model(tokens, use_cache=True), CACHE)

    def learn():
        torch.manual_seed(3)
        loss, size = saved_by(lambda: model(tokens, mask, labels=tokens, **{CACHE: start}).loss)
        model.zero_grad()
        loss.backward()
        return size, [p.grad.clone() for p in model.parameters()]

    size, expected = learn()
    getattr(model, f"{CHECKPOINTING}_enable")({"use_reentrant": reentrant})
    assert getattr(model, f"is_{CHECKPOINTING}")
    smaller_size, got = learn()
    assert smaller_size < size
    assert all(error(one, other, least=1e-3) < CLOSE for one, other in zip(got, expected, strict=True))
    getattr(model, f"{CHECKPOINTING}_disable")()
    assert not getattr(model, f"is_{CHECKPOINTING}")
    assert learn()[0] > smaller_size


def test_trainer_with_checkpointing_and_packing_reduces_the_loss(tmp_path):
    pytest.importorskip("accelerate", reason="needs accelerate")
    from transformers import DataCollatorWithFlattening, Trainer, TrainingArguments

    rows = [{"input_ids": (torch.arange(4 + n % 5) % 4).tolist()} for n in range(32)]
    settings = {"max_steps": 20, "learning_rate": 1e-2, "report_to": [], "disable_tqdm": True, "use_cpu": True}
    settings |= {CHECKPOINTING if hasattr(TrainingArguments, CHECKPOINTING) else "gradient_checkpointing": True}
    trainer = Trainer(
        make().train(),
        TrainingArguments(tmp_path, **settings),
        train_dataset=rows,
        eval_dataset=rows[:8],
        data_collator=DataCollatorWithFlattening(),
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert getattr(trainer.model, f"is_{CHECKPOINTING}")
    assert trainer.evaluate()["eval_loss"] < before / 2


@pytest.mark.parametrize("where", ["layer", "layer_options"])
def test_a_config_does_not_execute_the_code_that_it_names(where, tmp_path):
    from transformers import AutoModelForCausalLM

    make().save_pretrained(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    address = f"{tmp_path / 'evil.py'}:rule"
    config = json.loads((tmp_path / "config.json").read_text())
    config[where] = address if where == "layer" else {"feature_map": address}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="Load it first"):
        AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_left_padding_has_no_effect(tokenizer):
    model = make()
    both = tokenizer(["abcdefg", "cde"], return_tensors="pt", padding=True)
    alone = tokenizer(["cde"], return_tensors="pt")
    assert error(model(both.input_ids, both.attention_mask).logits[1:, -3:], model(alone.input_ids).logits) < CLOSE
    settings = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    together = model.generate(both.input_ids, attention_mask=both.attention_mask, **settings)
    assert torch.equal(together[1:, -5:], model.generate(alone.input_ids, **settings)[:, -5:])


def test_pipeline_generates_text(tokenizer):
    from transformers import pipeline

    write = pipeline("text-generation", model=make(), tokenizer=tokenizer)
    (result,) = write("abc", max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert result["generated_text"].startswith("a")


def test_trainer_reduces_the_loss(tmp_path):
    pytest.importorskip("accelerate", reason="needs accelerate")
    from transformers import Trainer, TrainingArguments

    text = torch.arange(8) % 4
    rows = [{"input_ids": text, "labels": text}] * 32
    settings = TrainingArguments(
        tmp_path, max_steps=30, learning_rate=1e-2, report_to=[], disable_tqdm=True, use_cpu=True
    )
    trainer = Trainer(make().train(), settings, train_dataset=rows, eval_dataset=rows[:2])
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before / 4


@pytest.mark.skipif(not find_spec("lm_eval"), reason="needs lm-eval")
def test_lm_eval_has_the_log_likelihoods_of_the_model(tokenizer):
    """Contexts of several lengths in one batch, with the padding of lm-eval."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = make(layer="gated-delta")
    pairs = [("abcab", "cab"), ("ab", "c"), ("cabbage", "d"), ("a", "bcdabc")]
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2, prefix_token_id=0)
    results = lm.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in pairs])
    for (context, continuation), (likelihood, _) in zip(pairs, results, strict=True):
        tokens = tokenizer(context + continuation, return_tensors="pt").input_ids
        logs = model(tokens[:, :-1]).logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze()
        assert likelihood == pytest.approx(logs[-len(continuation) :].sum().item(), rel=1e-4)
