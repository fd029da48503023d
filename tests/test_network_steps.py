"""Compiled steps of whole networks equal the modules that they are compiled from."""

import copy
import gc
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from fastweights import InputError
from fastweights.compiler.network.leaves import leaves
from fastweights.compiler.network.network_step import CHECKED, NetworkStep
from fastweights.compiler.targets.cpp.toolchain import missing_requirement
from fastweights.layers import layer_names, make_layer
from fastweights.models import Agent, LanguageModel
from fastweights.models import _writing as writing
from fastweights.registry import NORMS
from fastweights.steps import AFTER, MOST, Recurrence, compile_step, compiled_after
from fastweights.testing.tolerance import error
from test_layers import MAKERS, D
from tiers import base_of, in_tiers

pytestmark = pytest.mark.skipif(bool(missing_requirement()), reason="needs a C++ compiler")
N, BOUND = 23, 1e-5
COPIES, SPREADS = 4, 4
SHAPE = (4, 3)
PARTS = {
    "plain": {},
    "behind a convolution": {"conv_size": 4},
    "positions": {"positions": "ascending", "scale_embeddings": True},
    "tied": {"tie_word_embeddings": True},
    "adaptive softmax": {"cutoffs": (5, 12), "scale_embeddings": True},
    "alternating": {"layer": ("delta-rnn", "softmax-attention")},
    **{f"norm {name}": {"norm": name} for name in NORMS.names()},
}
AGENTS = {
    "no memory": {"layer": None},
    "lstm": {"layer": "lstm", "num_layers": 0},
    "recurrent-delta-net": {"layer": "recurrent-delta-net", "hidden": 16},
    "srwm": {"layer": "srwm", "use_last_action": True},
}


def language_model(**options):
    torch.manual_seed(0)
    return LanguageModel(
        N, **{"layer": "delta-net", "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 24, **options}
    ).eval()


def layer_by_layer(module, *arguments):
    with torch.inference_mode(), compiled_after(None):
        return module(*arguments)


def compiled(module, *arguments):
    with torch.inference_mode(), compiled_after(0):
        return module(*arguments)


def same(x):
    return x


def float64(x):
    """An input or a part of a state in float64."""
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def samples(x):
    """`COPIES` copies of an input or of a part of a state along the batch, all but the first with rounding noise."""
    if not isinstance(x, torch.Tensor):
        return x
    x = x.repeat(COPIES, *[1] * (x.dim() - 1))
    if x.is_floating_point():
        x[len(x) // COPIES :] *= 1 + torch.finfo(x.dtype).eps * torch.randn_like(x[len(x) // COPIES :])
    return x


def assert_near(got, exact, sampled):
    """Asserts that a result is as near to the float64 module as the float32 module is.

    Both are within `BOUND` where the result is well-conditioned. It is not where numbers cancel, and over time in
    chaotic memories. There the error of the float32 module is that of the worst of the samples.
    """
    spread = max(error(one, exact, least=1e-3) for one in sampled.chunk(COPIES))
    assert error(got, exact, least=1e-3) < max(BOUND, SPREADS * spread)


def assert_all_near(*results):
    for parts in zip(*map(tree_leaves, results), strict=True):
        assert_near(*parts)


class Run:
    """Runs single steps of a module from its own state, and records the results."""

    def __init__(self, call, module, form, state):
        self.call, self.module, self.form = call, module, form
        self.state, self.results = tree_map(form, state), []

    def __call__(self, arguments):
        """The results of a step from a given state. The step from the state of the run has the same inputs."""
        arguments = tree_map(self.form, list(arguments))
        own = [self.state if isinstance(x, tuple) else x for x in arguments]
        *y, self.state = self.call(self.module, *own)
        self.results.append(torch.cat([x.flatten(1) for x in y], 1))
        return self.call(self.module, *arguments)


def assert_equal_over_time(module, state, draw, steps):
    """Asserts that a compiled step equals the module: every step from the same state, and all steps in a run.

    `draw(state)` returns the arguments of a step. The state is the one that is a tuple.
    """
    explanation = compile_step(module, *draw(state))
    assert explanation.is_compiled, explanation
    runs = (
        Run(compiled, module, same, state),
        Run(layer_by_layer, copy.deepcopy(module).double(), float64, state),
        Run(layer_by_layer, module, samples, state),
    )
    for _ in range(steps):
        arguments = draw(state)
        assert_all_near(*[run(arguments) for run in runs])
        *_, state = layer_by_layer(module, *arguments)
    assert_near(*[torch.stack(run.results, 1) for run in runs])
    # The ordinary module continues from the state of the compiled step.
    arguments = draw(runs[0].state)
    results = [layer_by_layer(run.module, *tree_map(run.form, list(arguments))) for run in runs]
    assert_all_near(*results)


def check_layer(name, batch, steps):
    torch.manual_seed(1)
    layer = MAKERS[name]().eval()
    _, state = layer_by_layer(layer, torch.randn(batch, 6, D))

    def draw(state):
        return torch.randn(batch, 1, D), state, torch.rand(batch, 1) < 0.05 if batch > 1 else None

    assert_equal_over_time(layer, state, draw, steps)


@pytest.mark.parametrize("name", in_tiers({name: {base_of(name)} for name in layer_names()}))
def test_layer_with_resets_from_the_state_of_a_prefill(name):
    check_layer(name, batch=2, steps=50)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize("name", MAKERS)
def test_layer_over_a_thousand_steps(name, batch):
    check_layer(name, batch, steps=1000)


def check_language_model(part, batch, steps):
    model = language_model(**PARTS[part])
    _, state = layer_by_layer(model, torch.randint(N, (batch, 7)))
    assert_equal_over_time(model, state, lambda state: (torch.randint(N, (batch, 1)), state), steps)


@pytest.mark.parametrize("part", PARTS)
def test_language_model(part):
    check_language_model(part, batch=2, steps=50)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize("part", PARTS)
def test_language_model_over_a_thousand_steps(part, batch):
    check_language_model(part, batch, steps=1000)


@pytest.mark.parametrize("name", AGENTS)
def test_agent(name):
    torch.manual_seed(0)
    options = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 24, **AGENTS[name]}
    agent = Agent(SHAPE, 3, from_pixels=False, **options).eval()

    def draw(state):
        inputs = torch.rand(2, 1, *SHAPE), torch.randn(2, 1), torch.randint(3, (2, 1)), torch.rand(2, 1) < 0.1
        return *inputs, state

    assert_equal_over_time(agent, agent.initial_state(2), draw, 50)


@pytest.mark.parametrize(("vision", "side"), [("impala", 11), ("a3c", 36), ("dqn", 36)])
def test_agent_with_images(vision, side):
    torch.manual_seed(0)
    options = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 24, "vision": vision}
    agent = Agent((2, side, side), 3, from_pixels=True, **options).eval()

    def draw(state):
        image = torch.randint(256, (2, 1, 2, side, side))
        return image.float(), torch.randn(2, 1), torch.randint(3, (2, 1)), torch.rand(2, 1) < 0.1, state

    assert_equal_over_time(agent, agent.initial_state(2), draw, 10)
    image, *others = draw(agent.initial_state(2))
    assert compile_step(agent, image.byte(), *others).is_compiled
    assert torch.equal(compiled(agent, image.byte(), *others)[0], compiled(agent, image, *others)[0])


@pytest.mark.parametrize("options", [{"stride": 2}, {"padding": 2, "dilation": 2}, {"bias": False}])
@pytest.mark.parametrize("axes", [1, 2])
def test_convolution_and_pooling_windows(axes, options):
    """Convolutions and maximum pooling, over one axis and over two."""
    kind = {1: nn.Conv1d, 2: nn.Conv2d}[axes]

    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = kind(3, 4, 3, **options)

        def forward(self, x, state):
            y = self.convolution(x.flatten(0, 1))
            y = nn.functional.max_pool2d(y, 3, 2, 1) if axes == 2 else y
            return y.unflatten(0, x.shape[:2]), (state[0] + 1,)

    module = Windows().eval()
    assert_equal_over_time(module, (torch.zeros(2),), lambda state: (torch.randn(2, 1, 3, *[9] * axes), state), 3)


@pytest.mark.parametrize("name", in_tiers({name: {base_of(name)} for name in layer_names()}))
def test_chunk_of_a_layer(name):
    """A program of several time steps, as C programs run it, has the results of the layer."""
    torch.manual_seed(1)
    layer = MAKERS[name]().eval()
    _, state = layer_by_layer(layer, torch.randn(2, 6, D))
    arguments = torch.randn(2, 5, D), state, torch.rand(2, 5) < 0.3
    got = NetworkStep(layer, arguments)(leaves(arguments)[0])
    want = layer_by_layer(layer, *arguments)
    assert all(error(*x, least=1e-3) < BOUND for x in zip(tree_leaves(got), tree_leaves(want), strict=True))


def test_module_of_a_user():
    """A module of supported operations needs no code of its own."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.memory = nn.Linear(D, D), make_layer("delta", D, num_heads=2)

        def forward(self, x, state):
            y, after = self.memory(torch.tanh(self.mix(x)), state[0])
            return (y + x.cumsum(-1)) * state[1][:, None, None], (after, state[1] + 1)

    module = Counting().eval()
    state = module.memory.initial_state(2), torch.zeros(2, dtype=torch.long)
    assert_equal_over_time(module, state, lambda state: (torch.randn(2, 1, D), state), 20)


@pytest.fixture(scope="module")
def model():
    return language_model()


@pytest.fixture
def step(model):
    """Arguments of a step."""
    return torch.tensor([[3]]), layer_by_layer(model, torch.tensor([[1, 2]]))[1]


CHANGES = {
    "in place": lambda model: model.output.weight.data.mul_(2),
    "other memory": lambda model: setattr(model.output.weight, "data", 2 * model.output.weight.data),
    "another parameter": lambda model: setattr(model.output, "weight", nn.Parameter(2 * model.output.weight)),
    "another module": lambda model: setattr(model.output, "bias", None),
    "a hook": lambda model: model.output.register_forward_hook(lambda module, x, y: 2 * y),
}


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("change", ["in place", "other memory", "another parameter", "another module", "a hook"])
def test_changes_of_the_module_take_effect(change, weights):
    model = language_model()
    step = torch.tensor([[3]]), layer_by_layer(model, torch.tensor([[1, 2]]))[1]
    assert compile_step(model, *step, weights=weights).is_compiled
    before, _ = compiled(model, *step)
    CHANGES[change](model)
    got, want = compiled(model, *step)[0], layer_by_layer(model, *step)[0]
    assert error(got, want) < {"float32": BOUND, "bfloat16": 1e-2, "int8": 3e-2}[weights]
    assert error(got, before) > 0.1


@pytest.mark.parametrize(("weights", "bound"), [("bfloat16", 1e-2), ("int8", 3e-2)])
@pytest.mark.parametrize("part", ["plain", "tied", "adaptive softmax"])
def test_weights_in_another_precision(part, weights, bound):
    model = language_model(d_model=64, d_ff=64, **PARTS[part])
    step = torch.tensor([[3], [4]]), layer_by_layer(model, torch.tensor([[1, 2], [3, 4]]))[1]
    assert compile_step(model, *step, weights=weights).is_compiled
    assert BOUND < error(compiled(model, *step)[0], layer_by_layer(model, *step)[0]) < bound


def test_dropout_in_training_is_not_compiled():
    model = language_model(dropout=0.5)
    step = torch.tensor([[3]]), model.initial_state(1)
    compile_step(model, *step)
    first = compiled(model, *step)[0]
    torch.testing.assert_close(compiled(model, *step)[0], first)
    model.train()
    assert error(compiled(model, *step)[0], compiled(model, *step)[0]) > 1e-3


def test_uncompilable_part_is_named_and_the_rest_is_compiled():
    agent = Agent((3, 16, 16), 3, from_pixels=True, d_model=16, num_layers=1, num_heads=2, d_ff=16).eval()
    agent.encoder = nn.Sequential(nn.ConvTranspose2d(3, 3, 1), agent.encoder)
    inputs = torch.rand(1, 1, 3, 16, 16), torch.zeros(1, 1), torch.zeros(1, 1).long(), torch.ones(1, 1).bool()
    step = *inputs, agent.initial_state(1)
    text = str(compile_step(agent, *step))
    assert text.startswith("Agent: layer by layer: ")
    assert "convolution" in text
    assert "\n" not in text
    for got, want in zip(tree_leaves(compiled(agent, *step)), tree_leaves(layer_by_layer(agent, *step)), strict=True):
        assert error(got, want, least=1e-3) < BOUND
    memory = torch.randn(1, 1, 16), agent.initial_state(1), torch.ones(1, 1).bool()
    assert compile_step(agent.memory, *memory).is_compiled


def test_convolution_over_large_images_runs_layer_by_layer():
    agent = Agent((3, 128, 128), 3, from_pixels=True, d_model=16, num_layers=1, num_heads=2, d_ff=16).eval()
    inputs = torch.rand(4, 1, 3, 128, 128), torch.zeros(4, 1), torch.zeros(4, 1).long(), torch.ones(4, 1).bool()
    assert "large images" in str(compile_step(agent, *inputs, agent.initial_state(4)))


def test_unknown_token_is_refused_and_leaves_the_state(model, step):
    steps = Recurrence(model, step[1])
    with torch.inference_mode(), compiled_after(0):
        first = steps(step[0]), steps(step[0])
        with pytest.raises(InputError, match="tokens must be from 0 to"):
            steps(torch.tensor([[N]]))
        again = Recurrence(model, step[1])
        assert error(again(step[0]), first[0]) < BOUND
        assert error(again(step[0]), first[1]) < BOUND
        assert error(steps(step[0]), again(step[0])) < BOUND


def test_recurrence_notices_a_changed_module(step):
    model = language_model()
    steps = Recurrence(model, step[1])
    with torch.inference_mode(), compiled_after(0):
        for _ in range(3):
            steps(step[0])
        model.output.register_forward_hook(lambda module, x, y: 0 * y)
        results = [steps(step[0]) for _ in range(CHECKED + 1)]
    assert not results[-1].any()


def test_gradients_large_batches_and_short_streams_run_layer_by_layer():
    model = language_model()
    tokens, state = torch.tensor([[3]]), model.initial_state(1)
    calls = []
    model.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    with compiled_after(0):
        model(tokens, state)
    with torch.inference_mode():
        for _ in range(3):
            model(tokens, state)
        model(torch.zeros(MOST + 1, 1).long(), model.initial_state(MOST + 1))
    assert len(calls) == 5


def test_streaming_compiles_by_itself(step):
    model = language_model()
    (tokens, state), results = step, []
    with torch.inference_mode():
        for _ in range(AFTER + 3):
            y, _ = model(tokens, state)
            results.append(y)
    assert error(results[-1], results[0]) < BOUND
    assert (results[0] == results[AFTER - 1]).all()


@pytest.mark.parametrize("part", ["plain", "adaptive softmax", "alternating", "positions"])
def test_generated_tokens_equal_those_without_compilation(part, monkeypatch):
    prompt, long = torch.tensor([[1, 2, 3], [4, 5, 6]]), writing.LONG
    model = language_model(**PARTS[part])
    ours = model.stream(prompt, long, seed=3)
    got = [next(ours) for _ in range(long // 2)]
    saved = ours.state
    got += list(ours)
    monkeypatch.setattr(writing, "LONG", long + 1)
    assert torch.equal(torch.cat(got, 1), model.generate(prompt, long, seed=3))
    rest = model.generate(None, long - long // 2, state=saved)
    assert torch.equal(torch.cat(got[long // 2 :], 1), rest)


def test_threads_share_a_compiled_step(model, step):
    compile_step(model, *step)
    tokens = torch.arange(N)[:, None]
    want = [layer_by_layer(model, one[None], step[1])[0] for one in tokens]
    got = {}

    def run(first):
        for _ in range(20):
            for n in range(first, N, 4):
                got[n] = compiled(model, tokens[n][None], step[1])[0]

    threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(error(got[n], want[n]) < BOUND for n in range(N))


def test_module_can_be_collected():
    model = language_model()
    compile_step(model, torch.tensor([[3]]), model.initial_state(1))
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_unknown_precision_is_refused(model, step):
    with pytest.raises(InputError, match="weights must be one of bfloat16, float32, int8"):
        compile_step(model, *step, weights="int4")
