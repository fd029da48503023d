"""Arguments under the names of other libraries: the error says the name here."""

import inspect

import pytest
import torch

from fastweights.core.errors import InputError
from fastweights.core.other_names import OTHER_NAMES
from fastweights.layers import layer_names, layer_options, make_layer
from fastweights.models import LanguageModel

CALLS = [(here, name) for here in ("state", "reset", "lengths") for name in OTHER_NAMES[here]]


@pytest.mark.parametrize("kind", layer_names())
def test_options_of_layers_under_other_names(kind):
    accepted = layer_options(kind)
    wrong = [(here, name) for here in accepted for name in OTHER_NAMES.get(here, ()) if name not in accepted]
    for here, name in wrong:
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {here}."):
            make_layer(kind, 8, 2, **{name: 4})


@pytest.mark.parametrize(("here", "name"), CALLS)
def test_arguments_of_calls_under_other_names(here, name):
    layer, model = make_layer("delta-net", 8, 2), LanguageModel(5, d_model=8, num_heads=2, num_layers=1)
    for module, x in ((layer, torch.zeros(1, 3, 8)), (model, torch.zeros(1, 3, dtype=torch.long))):
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {here}."):
            module(x, **{name: torch.ones(1, 3)})


@pytest.mark.parametrize("function", [LanguageModel, LanguageModel.generate, make_layer])
def test_arguments_of_functions_under_other_names(function):
    accepted = list(inspect.signature(function).parameters)
    wrong = [(here, name) for here in accepted for name in OTHER_NAMES.get(here, ()) if name not in accepted]
    for here, name in wrong:
        with pytest.raises(InputError, match=f"has no argument '{name}'. Use {here}."):
            function(**{name: 4})


def test_a_misspelt_option_gets_the_nearest():
    with pytest.raises(InputError, match=r"delta-net has no argument 'qknorm'\. Use qk_norm\."):
        make_layer("delta-net", 8, 2, qknorm="l2")
