"""Parameters and buffers that were never initialised: after `to_empty()`, and where a checkpoint lacks them."""

import copy
import pickle
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from fastweights.cells.delta_delta_net import DeltaDeltaNetState
from fastweights.layers import LSTM, layer_names, make_layer
from fastweights.layers.lstm import LSTMState
from fastweights.models import LanguageModel, Translator
from fastweights.registry import EXPERIMENTS, FEATURE_MAPS, MODELS, POSITIONS, TASKS, VISION_NETS
from fastweights.tasks import MissingFile
from fastweights.testing.layer_checks import (
    check_is_initialised_by_reset_parameters,
    emptied,
    initialise_again,
    tensors_of,
)

D = 16


@pytest.mark.parametrize("name", layer_names())
def test_a_layer_gets_the_numbers_that_its_constructor_draws(name):
    make = partial(make_layer, name, D, num_heads=2)
    empty = emptied(make)
    torch.manual_seed(1)
    made = make()
    torch.manual_seed(1)
    initialise_again(empty)
    for (name, want), got in zip(tensors_of(made).items(), tensors_of(empty).values(), strict=True):
        assert torch.equal(got, want), name


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_models_of_experiments(name):
    experiment = EXPERIMENTS.load(name)
    for model, column in dict(reversed(experiment.preset("smoke").places)).items():
        trial = experiment.trial(model, column, "smoke")
        try:
            given = TASKS.load(trial.task)(**trial.task_options).arguments
        except MissingFile as missing:
            pytest.skip(str(missing))
        check_is_initialised_by_reset_parameters(partial(MODELS.load(trial.model), *given, **trial.model_options))


language_model = partial(LanguageModel, 23, d_model=D, num_layers=2, num_heads=2, d_ff=24)
MADE = {
    **{f"vision net {name}": partial(VISION_NETS.load(name), 3, 40) for name in VISION_NETS.names()},
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


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_other_parts_and_options(make):
    check_is_initialised_by_reset_parameters(make)


@pytest.mark.parametrize("options", [{"tie_word_embeddings": True}, {"cutoffs": (5, 12)}], ids=str)
def test_shared_weights_are_shared_again(options):
    model = emptied(partial(language_model, **options))
    initialise_again(model)
    tokens = torch.randint(23, (2, 5))
    model(tokens, targets=tokens)[0].mean().backward()
    assert len(list(model.parameters())) == len(list(language_model(**options).parameters()))
    assert model.embedding.weight.std().item() == pytest.approx(D**-0.5, rel=0.2)


def test_a_learned_programmer_starts_from_its_own_range():
    layer = emptied(partial(make_layer, "delta-delta-net", D, num_heads=2, learned_start=True))
    initialise_again(layer)
    start = layer.start()
    assert all(1 <= part.min() <= part.max() <= 2 for name, part in start._asdict().items() if name != "W")
    assert isinstance(start, DeltaDeltaNetState)
    assert (start.W == 0).all()


def test_a_copy_is_initialised_by_itself_and_nothing_keeps_a_deleted_model():
    model = language_model(small_init=True, tie_word_embeddings=True)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        initialise_again(again)
        one, other = again.blocks[0].layer.output.weight, model.blocks[0].layer.output.weight
        assert not torch.equal(one, other)
        assert one.std().item() == pytest.approx(0.02, rel=0.2)
    weight = weakref.ref(model.embedding.weight)
    del model, other
    assert weight() is None
