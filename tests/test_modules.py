"""Layers with PyTorch's tools for modules: quantisation, adapters and sharding."""

import sys
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from fastweights.layers import layer_names, layer_options, make_layer
from fastweights.models import (
    BlockModel,
    LanguageModel,
    RecurrentModel,
    RetrievalModel,
    SNAILNetwork,
    SymbolModel,
    Translator,
)
from fastweights.testing.layer_checks import adapted, emptied, initialise_again, tensors_of
from fastweights.testing.tolerance import INT8, error, tolerance
from test_layers import MAKERS

D = 16


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_dynamic_int8_quantisation_is_accurate(make):
    layer, x = make().eval(), torch.randn(3, 21, D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates its quantisation
        small = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear, nn.LSTM}, dtype=torch.qint8)
    with torch.no_grad():
        want, _ = layer(x)
        got, state = small(x[:, :9])
        assert error(got, want[:, :9]) <= INT8
        # Continue from the state, and run from the initial state.
        assert error(small(x[:, 9:], state)[0], want[:, 9:]) <= INT8
        assert error(small(x, small.initial_state(3))[0], want) <= INT8


N, TOKENS = 11, torch.arange(24).view(2, 12) % 10
FEATURES = torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(0))
SMALL = {"d_model": D, "num_layers": 1, "num_heads": 2, "d_ff": 24}
MODELS = {
    "language model": (lambda: LanguageModel(N, **SMALL, conv_size=3, positions="ascending"), (TOKENS,)),
    "tied language model": (lambda: LanguageModel(N, **SMALL, tie_word_embeddings=True), (TOKENS,)),
    "adaptive language model": (lambda: LanguageModel(N, **SMALL, cutoffs=(3, 7)), (TOKENS, *[None] * 4, TOKENS)),
    "translator": (lambda: Translator(N, **SMALL, cross_feature_map="elu"), (TOKENS, None, TOKENS, None)),
    "symbol model": (lambda: SymbolModel(N, "delta-net", D, 2), (TOKENS,)),
    "block model": (lambda: BlockModel("tokens", N, 3, "delta-net", **SMALL), (TOKENS, 2)),
    "block model of features": (lambda: BlockModel("features", 5, 3, "delta-net", **SMALL), (FEATURES, 2)),
    "recurrent model": (lambda: RecurrentModel("tokens", N, 3, "delta-net", D), (TOKENS, 2)),
    "SNAIL": (lambda: SNAILNetwork("tokens", N, 3, 12), (TOKENS, 2)),
    "retrieval model": (lambda: RetrievalModel("pairs", N, N, "delta"), (torch.stack([TOKENS, TOKENS], -1), 3)),
}


@pytest.mark.parametrize(("make", "inputs"), MODELS.values(), ids=MODELS)
def test_every_linear_map_and_embedding_can_have_an_adapter(make, inputs):
    model = make().double().eval()
    inputs = [x.double() if x is FEATURES else x for x in inputs]

    def outputs(model):
        y = model(*inputs)
        return y[0] if isinstance(y, tuple) else y

    before = outputs(model)
    for name in [name for name, part in model.named_modules() if isinstance(part, nn.Linear | nn.Embedding)]:
        other, A = adapted(model, name)
        after = outputs(other)
        after.square().sum().backward()
        assert not torch.allclose(after, before), name
        assert A.grad.abs().max() > 0, name


@pytest.fixture(scope="module")
def one_process():
    """Process group with a single process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:DTensor random operators")
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")  # y may be a view; it is never written to
@pytest.mark.skipif(sys.platform != "linux", reason="gloo with a HashStore needs Linux")
@pytest.mark.parametrize("initial_state", ["zero", "learned"])
@pytest.mark.parametrize("name", layer_names())
def test_sharded_layers_have_the_same_weights_and_plain_states(name, initial_state, one_process):
    if initial_state == "learned" and "initial_state" not in layer_options(name):
        pytest.skip("its state is not learned")
    options = {"initial_state": initial_state} if initial_state == "learned" else {}
    layer = emptied(lambda: fully_shard(make_layer(name, D, num_heads=2, **options), mesh=one_process))
    torch.manual_seed(1)
    initialise_again(layer)
    torch.manual_seed(1)
    whole, x = make_layer(name, D, num_heads=2, **options), torch.randn(2, 5, D)
    for (parameter, want), got in zip(tensors_of(whole).items(), tensors_of(layer).values(), strict=True):
        assert torch.equal(got.full_tensor() if isinstance(got, DTensor) else got, want), parameter
    before = layer.eval().initial_state(2)
    y, after = layer(x, before)
    y.sum().backward()
    assert error(y, whole.eval()(x)[0]) <= tolerance(torch.float32).forward
    assert not any(isinstance(leaf, DTensor) for leaf in tree_leaves((before, after)))
