"""Sequence classifiers for transformers."""

from importlib.util import find_spec

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from fastweights.core.errors import InputError
from fastweights.testing.tolerance import error, tolerance

pytestmark = pytest.mark.skipif(not find_spec("transformers"), reason="needs fastweights[transformers]")
SIZES = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
CLOSE = tolerance(torch.float32).forward


def make(**options):
    from fastweights.adapters.transformers import sequence_classification

    config = sequence_classification.FastWeightConfig(**{**SIZES, **options})
    return sequence_classification.FastWeightForSequenceClassification(config).eval()


@pytest.mark.parametrize("mask", [[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 1], [0, 1, 0, 1, 1]])
def test_class_is_that_of_the_kept_tokens(mask):
    model, mask, tokens = make(), torch.tensor([[1] * 5, mask]), torch.randint(20, (2, 5))
    logits = model(tokens, mask).logits
    assert logits.shape == (2, 3)
    assert error(logits[1:], model(tokens[1:, mask[1].bool()]).logits) < CLOSE
    embeddings = model.get_input_embeddings()(tokens)
    assert torch.equal(model(inputs_embeds=embeddings, attention_mask=mask).logits, logits)


def test_without_a_mask_the_last_token_is_the_last_that_is_no_padding():
    model, tokens = make(pad_token_id=0), torch.tensor([[3, 4, 5, 0, 0], [3, 4, 5, 6, 7]])
    logits = model(tokens).logits
    assert error(logits[:1], model(tokens[:1, :3]).logits) < CLOSE
    assert error(logits[1:], model(tokens[1:]).logits) < CLOSE


LOSSES = {
    "single_label_classification": (3, lambda: torch.tensor([0, 2]), cross_entropy),
    "multi_label_classification": (3, lambda: torch.rand(2, 3).round(), binary_cross_entropy_with_logits),
    "regression": (1, lambda: torch.randn(2), lambda logits, labels: mse_loss(logits.squeeze(), labels)),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_loss_is_that_of_the_kind_of_labels(kind):
    classes, draw, loss = LOSSES[kind]
    model, tokens, labels = make(num_labels=classes), torch.randint(20, (2, 5)), draw()
    result = model(tokens, labels=labels)
    assert model.config.problem_type == kind
    assert error(result.loss, loss(result.logits, labels)) < CLOSE
    result.loss.backward()
    assert all(p.grad is not None for p in model.parameters()), "no parameter is without use"


def test_state_continues_a_sequence():
    from fastweights.adapters.transformers.state_cache import CACHE

    model, tokens = make(), torch.randint(20, (2, 9))
    first = model(tokens[:, :4])
    rest = model(tokens[:, 4:], **{CACHE: getattr(first, CACHE)})
    assert error(rest.logits, model(tokens).logits) < CLOSE


def test_loaded_model_gives_the_same_outputs(tmp_path):
    from transformers import AutoModelForSequenceClassification

    model, tokens = make(layer=["delta-net", "softmax-attention"], tie_word_embeddings=True), torch.randint(20, (2, 6))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("tie_word_embeddings", [False, True])
def test_a_language_model_becomes_a_classifier(tmp_path, tie_word_embeddings):
    """It keeps its network; the map to the classes is new."""
    from transformers import AutoModelForSequenceClassification

    from fastweights.adapters.transformers.causal_lm import FastWeightConfig, FastWeightForCausalLM

    model = FastWeightForCausalLM(FastWeightConfig(**{**SIZES, "tie_word_embeddings": tie_word_embeddings})).eval()
    model.save_pretrained(tmp_path)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=4)
    tokens = torch.randint(20, (2, 6))
    hidden = [m(tokens, output_hidden_states=True).hidden_states[-1] for m in (model, classifier)]
    assert torch.equal(*hidden)
    assert classifier(tokens).logits.shape == (2, 4)
    assert 0 < classifier.score.weight.std() < 1


def test_trainer_learns(tmp_path):
    """With batches in parts, which must not change the size of the loss."""
    pytest.importorskip("accelerate", reason="needs accelerate")
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": torch.randint(3, (6,)) + 5 * (n % 3), "labels": n % 3} for n in range(48)]
    how = {"max_steps": 20, "learning_rate": 1e-2, "report_to": [], "disable_tqdm": True, "use_cpu": True}
    how |= {"gradient_accumulation_steps": 2}
    trainer = Trainer(make().train(), TrainingArguments(tmp_path, **how), train_dataset=rows, eval_dataset=rows[:9])
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before / 4


@pytest.mark.parametrize("name", ["seq_idx", "cu_seq_lens_q", "logits_to_keep", "output_attentions", "token_type_ids"])
def test_arguments_without_an_effect_are_refused_by_name(name):
    with pytest.raises(InputError, match=f"^{name} must be"):
        make()(torch.randint(20, (2, 5)), **{name: 2})
