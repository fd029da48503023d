"""Trained models as C programs: the programs print the results of the models in Python."""

import functools
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy
import pytest
import torch
from PIL import Image

from fastweights import InputError, cli
from fastweights.adapters.standalone import write
from fastweights.adapters.standalone.pieces import _kinds
from fastweights.adapters.standalone.write import BUILD, FOLDER, PROGRAMS
from fastweights.compiler.targets.cpp.network.c_files import _checksum
from fastweights.core.action_spaces import Box, MultiDiscrete
from fastweights.core.files import normalised
from fastweights.experiments.adaptation import adapt
from fastweights.experiments.classification import classify
from fastweights.models import Agent, FewShotNetwork, LanguageModel, SequenceClassifier, Translator
from fastweights.registry import TOKENIZERS
from fastweights.tasks import ImageFolder, ParallelFiles, SequenceFiles
from fastweights.testing.tolerance import error
from fastweights.tokenizers import BPE, Bytes, Characters, Words
from test_network_steps import PARTS, layer_by_layer
from tiers import in_tiers

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
TEXT = "Größe, \N{SNOWMAN}\n and 0123456"
BOUND = 1e-5
IMAGE = " 7" * 256
ZIG = f"{sys.executable} -m ziglang c++ -fno-exceptions"
NODE = "node --no-warnings --experimental-wasi-unstable-preview1"
BUILDS = {
    "g++": BUILD,
    "clang++": BUILD.replace("g++", "clang++"),
    "without the C++ library": f"{BUILD.replace('g++', 'gcc')} -lm",
    "sanitised": BUILD.replace("-O3 -march=native", "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"),
    "threads": BUILD.replace("-O3", "-O1 -g -fsanitize=thread"),
    "aarch64": BUILD.replace("g++", "aarch64-linux-gnu-g++ -static").replace(" -march=native", ""),
    "zig-aarch64": BUILD.replace("g++", f"{ZIG} -target aarch64-linux-musl").replace(" -march=native", ""),
    "wasm": BUILD.replace("g++", f"{ZIG} -target wasm32-wasi")
    .replace(" -march=native", " -msimd128")
    .replace(" -pthread", ""),
}
RUNNERS = {"aarch64": "qemu-aarch64", "zig-aarch64": "qemu-aarch64", "wasm": f"{NODE} wasi.mjs"}
WASI = """
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";
const wasi = new WASI({ version: "preview1", args: process.argv.slice(2), preopens: { ".": "." } });
const program = await WebAssembly.compile(await readFile(process.argv[2]));
process.exitCode = wasi.start(await WebAssembly.instantiate(program, wasi.getImportObject()));
"""


def task_of(tokenizer):
    return SimpleNamespace(trained_tokenizer=tokenizer)


def language_model(tokenizer=None, **options):
    """A language model whose logits are far apart, and its task."""
    tokenizer = tokenizer or Characters.learn(TEXT)
    sizes = {"layer": "delta-net", "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 24}
    model = LanguageModel(len(tokenizer), **sizes | options).eval()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(0.3 * torch.randn_like(x))
    return model, task_of(tokenizer)


def build(folder, how="g++"):
    """Builds the program in a folder, and returns the command that runs it."""
    command = BUILDS[how].split()
    runner = RUNNERS.get(how, "").split()
    for program in [command[0], *runner[:1]]:
        if not (shutil.which(program)):
            pytest.skip(f"needs {program}")
    if "ziglang" in command and not importlib.util.find_spec("ziglang"):
        pytest.skip("needs ziglang")
    (folder / "wasi.mjs").write_text(WASI)
    subprocess.run([*command, "-Werror"], cwd=folder, check=True)
    return [*runner, "./run"]


def run(folder, command, *arguments, text=TEXT, weights="network.weights"):
    content = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run([*command, *map(str, arguments), weights], cwd=folder, input=content, capture_output=True)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode()


SENTENCES = [
    "A dog runs over the field.",
    " We'll see  it's  2,000 caf\N{LATIN SMALL LETTER E WITH ACUTE}s; isn't it?\t",
    "",
    "\N{CJK UNIFIED IDEOGRAPH-72AC}\N{HIRAGANA LETTER HA} 12\N{VULGAR FRACTION ONE HALF} \N{DOG FACE}",
    "\N{NO-BREAK SPACE}a \N{EM SPACE} b\rc",
    "x",
]
CORPUS = "\n".join(SENTENCES * 3 + ["A dog runs. We see the dogs; it runs over 2,000 fields."] * 3)


@functools.cache
def tokenizer_of(name):
    """A tokenizer that has read the corpus."""
    kind = TOKENIZERS.load(name)
    return kind.learn(CORPUS, 300) if kind is BPE else kind.learn(normalised(CORPUS))


def an_agent(actions=3):
    agent = Agent((2,), actions, from_pixels=False, d_model=16, num_layers=1).eval()
    return agent, SimpleNamespace(shape=(2,)), "1 0 0.5 0.5\n0 1 0.25 -3e-2\n"


def a_classifier(tokenizer=None):
    moments = [[0.0, 0.5], [1.0, 2.0]]
    encoding = SimpleNamespace(tokenizer=tokenizer, moments=moments, size=len(tokenizer) if tokenizer else 2)
    task = SimpleNamespace(encoding=encoding, classes=["a", "b"], max_length=90)
    model = SequenceClassifier("tokens" if tokenizer else "features", encoding.size, 2, d_model=16, num_layers=1)
    return model.eval(), task, normalised(CORPUS) if tokenizer else "0.5 1\n-2,3e0\n"


SAMPLES = {
    **{
        f"language model of {name}": lambda name=name: (*language_model(tokenizer_of(name)), normalised(CORPUS))
        for name in ("characters", "bpe", "words")
    },
    "agent": an_agent,
    "agent with several choices": lambda: an_agent(MultiDiscrete((3, 2))),
    "agent with real numbers": lambda: an_agent(Box((-1.0, 0.0), (1.0, float("inf")))),
    "classifier of numbers": a_classifier,
    "classifier of words": lambda: a_classifier(tokenizer_of("words")),
    "few-shot network": lambda: (*few_shot_network({}, {}), f"0{IMAGE}\n?{IMAGE}\n"),
    "translator": lambda: (*translator(), "\n".join(SENTENCES)),
}
"""A small model per program, its task, and an input of the program."""


class Program(NamedTuple):
    """A program, its model, and an input."""

    model: object
    task: object
    folder: Path
    command: list
    text: str


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Function that builds the program of a sample, once per build."""

    @functools.cache
    def build_program(name, how="g++"):
        torch.manual_seed(0)
        folder = tmp_path_factory.mktemp("program")
        model, task, text = SAMPLES[name]()
        write(model, task, folder)
        return Program(model, task, folder, build(folder, how), text)

    return build_program


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program of a language model of few characters."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("program")
    model, task = language_model()
    write(model, task, folder)
    return model, task, folder, build(folder)


def logits_of(model, prompt, new):
    """The logits behind a prompt and behind every new token, from the model layer by layer."""
    logits, _ = layer_by_layer(model, torch.cat([prompt[None], new], 1))
    return logits[0, len(prompt) - 1 :]


def assert_same_logits(model, task, folder, command, bound=BOUND, text=TEXT, tokens=40):
    """Asserts that the program has the logits of the model, behind a text and its continuation."""
    code, out, err = run(folder, command, "--logits", "--max-new-tokens", tokens, "--temperature", 0, text=text)
    assert (code, err) == (0, "")
    prompt = task.trained_tokenizer.encode(normalised(text))
    with torch.inference_mode():
        new = model.generate(prompt[None], tokens, temperature=0)
    want = logits_of(model, prompt, new)
    got = _numbers(out)
    assert got.shape == want.shape
    assert error(got, want) < bound


def assert_same_text(model, task, folder, command, text=TEXT):
    """Asserts that the program prints the most probable continuation as Python does."""
    prompt = task.trained_tokenizer.encode(normalised(text))
    (new,) = model.generate(prompt[None], 40, temperature=0)
    whole = task.trained_tokenizer.decode(torch.cat([prompt, new]))
    want = normalised(text) + whole[len(task.trained_tokenizer.decode(prompt)) :]
    code, out, _ = run(folder, command, "--max-new-tokens", 40, "--temperature", 0, text=text)
    assert (code, out) == (0, f"{want}\n")


def test_logits_and_text_equal_those_of_python(program):
    assert_same_logits(*program)
    assert_same_text(*program)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_programs_of_language_models_with_other_parts(part, tmp_path):
    model, task = language_model(**PARTS[part])
    write(model, task, tmp_path)
    assert_same_logits(model, task, tmp_path, build(tmp_path, "sanitised"))


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["srwm", "delta-rnn,softmax-attention", "recurrent-delta-net", "ttt-mlp", "mamba3"])
def test_programs_of_language_models_with_other_layers(layer, tmp_path):
    model, task = language_model(layer=tuple(layer.split(",")))
    write(model, task, tmp_path)
    assert_same_logits(model, task, tmp_path, build(tmp_path, "sanitised"))


@pytest.mark.parametrize(("weights", "bytes_per_weight", "bound"), [("bfloat16", 2, 0.05), ("int8", 1, 0.1)])
def test_weights_in_bfloat16_and_int8_take_less_memory(weights, bytes_per_weight, bound, tmp_path):
    model, task = language_model(d_model=64)
    sizes = {}
    for kind in ("float32", weights):
        write(model, task, tmp_path, kind)
        sizes[kind] = (tmp_path / "network.weights").stat().st_size
    assert sizes[weights] < 1.15 * sizes["float32"] * bytes_per_weight / 4 + 4096
    assert_same_logits(model, task, tmp_path, build(tmp_path), bound)


def test_tokens_are_sampled_with_their_probabilities(program):
    model, task, folder, command = program
    count, first = 400, TEXT[:3]
    logits, _ = model(task.trained_tokenizer.encode(first)[None])
    counts = torch.zeros(len(task.trained_tokenizer))
    for seed in range(count):
        code, out, _ = run(
            folder, command, "--max-new-tokens", 1, "--temperature", 2, "--seed", 1000 * seed, text=first
        )
        assert code == 0
        counts[task.trained_tokenizer.encode(out[len(first) : -1])] += 1
    want = (logits[0, -1] / 2).softmax(-1)
    assert ((counts / count - want).abs() < 5 * (want * (1 - want) / count).sqrt() + 0.01).all()


def test_seed_determines_the_text(program):
    *_, folder, command = program
    texts = [run(folder, command, "--seed", seed)[1] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def random_texts(count):
    """Texts of words of the corpus, blanks, line ends, and characters that are hard to split."""
    random = numpy.random.default_rng(0)
    parts = [*CORPUS.split(" "), " ", "  ", "\n", "\n\n", "\r\n", "\t", "unknown", "'s", "<eos>", "<unk>", "0", "\x1c"]
    parts += ["\x85", "\N{LINE SEPARATOR}", "\N{COMBINING ACUTE ACCENT}", "\N{ZERO WIDTH SPACE}", "\N{DOG FACE}"]
    return ["a" + "".join(random.choice(parts, 12)) for _ in range(count)]


def test_tokens_equal_those_of_python(tokenizer_name, tmp_path):
    tokenizer, texts = tokenizer_of(tokenizer_name), ["\ufeffa\r\n", "A dog\n\n\nruns ", "a " * 50, *random_texts(40)]
    texts += ["runs" * 5000, "".join(numpy.random.default_rng(1).choice([*"adegnorsu"], 5000))]
    if tokenizer_name == "characters":
        tokenizer = Characters.learn(normalised("".join(texts)))
    model, task = language_model(tokenizer)
    write(model, task, tmp_path)
    command = build(tmp_path)
    for text in texts:
        assert_same_logits(model, task, tmp_path, command, text=text, tokens=1)
    for text in texts[:6]:
        assert_same_text(model, task, tmp_path, command, text)


@pytest.fixture(params=TOKENIZERS.names())
def tokenizer_name(request):
    return request.param


def test_white_space_between_words_is_that_of_python(tmp_path):
    """The tokens of `a c b` are two words if c is white space, and one unknown word otherwise."""
    model, task = language_model(Words.learn("a b"))
    write(model, task, tmp_path)
    points = [*range(9, 0x3001), 0xFEFF, 0x1F600]
    assert_same_logits(model, task, tmp_path, build(tmp_path), text="".join(f"a{chr(c)}b\n" for c in points), tokens=1)


def test_unknown_word_is_refused_where_no_token_stands_for_it(tmp_path):
    write(*language_model(Words(["<eos>", "a"])), tmp_path)
    command = build(tmp_path)
    assert_refuses(tmp_path, command, "a word that the network does not have: byte 2", text="a b")
    assert_refuses(tmp_path, command, "at least one token", text=" \t ")
    assert_refuses(tmp_path, command, "must be UTF-8: byte 1", text=b"a\xff")


def test_long_names_and_words(tmp_path):
    """Sizes above 127 bytes take two bytes in the weight file."""
    word = "ab" * 200
    model, task = language_model(Words.learn(f"{word} a"))
    write(model, task, tmp_path)
    assert_same_logits(model, task, tmp_path, build(tmp_path), text=f"{word} a {word}b", tokens=1)


def wide_language_model():
    """A language model whose matrices and states are large enough for several threads."""
    return language_model(d_model=256, num_layers=1, d_ff=256)


@pytest.mark.parametrize("how", ["g++", pytest.param("threads", marks=pytest.mark.slow)])
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_results_are_the_same_with_several_threads(how, weights, tmp_path):
    torch.manual_seed(0)
    model, task = wide_language_model()
    write(model, task, tmp_path, weights)
    command = build(tmp_path, how)
    results = {n: run(tmp_path, command, "--logits", "--max-new-tokens", 20, "--threads", n) for n in (1, 2, 3, 5)}
    assert {results[n] for n in results} == {results[1]}
    assert results[1][::2] == (0, "")


@pytest.mark.parametrize("threads", [0, 257, 1e9])
def test_number_of_threads_out_of_range_is_refused(threads, program):
    *_, folder, command = program
    code, out, err = run(folder, command, "--threads", threads)
    assert (code, out, err) == (2, "", "error: --threads: the number of threads must be from 1 to 256.\n")


AGENTS = {
    "plain": {},
    "no memory": {"layer": None},
    "lstm": {"layer": "lstm", "num_layers": 0},
    "srwm": {"layer": "srwm", "use_last_action": True},
    "several choices": {"actions": MultiDiscrete((3, 2)), "use_last_action": True},
    "real numbers": {"actions": Box((-2.0, 0.0, -float("inf")), (2.0, 10.0, 1.0)), "use_last_action": True},
}


@pytest.mark.parametrize("name", in_tiers({name: {"actions" in AGENTS[name] and name} for name in AGENTS}))
def test_policy_of_an_agent_equals_that_of_python(name, tmp_path):
    options = {"actions": 3, "layer": "delta-net", "d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 24}
    torch.manual_seed(0)
    agent = Agent((2, 3), from_pixels=False, **options | AGENTS[name]).eval()
    write(agent, SimpleNamespace(shape=(2, 3)), tmp_path)
    command, T = build(tmp_path), 30
    observation, reward, first = torch.randn(1, T, 2, 3), torch.randn(1, T), torch.rand(1, T) < 0.2
    first[0, 0] = True
    rows = torch.cat([first[0, :, None].float(), reward[0, :, None], observation[0].flatten(1)], 1)
    text = "\n".join(" ".join(map(str, row)) for row in rows.tolist())
    actions = _numbers(run(tmp_path, command, "--seed", 3, "--temperature", 0, text=text)[1])
    got = _numbers(run(tmp_path, command, "--seed", 3, "--temperature", 0, "--policy", text=text)[1])
    best = agent.actions.distribution(got).mode.view(1, T, *agent.actions.shape)
    previous = torch.cat([torch.zeros_like(best[:, :1]), best[:, :-1]], 1)
    want, _, _ = agent(observation, reward, previous, first, agent.initial_state(1))
    assert error(got, want[0]) < BOUND
    in_environment = agent.actions.bounded(best) if isinstance(agent.actions, Box) else best.double()
    torch.testing.assert_close(actions.double(), in_environment.view(actions.shape), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("temperature", [1, 4])
def test_real_actions_have_the_distribution_of_the_policy(temperature, tmp_path):
    """Samples of an agent without memory at one observation: the density of the policy to the power 1 / temperature."""
    torch.manual_seed(0)
    unbounded = Box((-float("inf"),) * 2, (float("inf"),) * 2)
    agent = Agent((1,), unbounded, from_pixels=False, layer=None).eval()
    with torch.no_grad():
        agent.head.learned.copy_(torch.tensor([-1.0, 0.5]))
    write(agent, SimpleNamespace(shape=(1,)), tmp_path)
    text, count = "1 0 0.5\n" * 4000, 4000
    command = build(tmp_path)
    (policy,) = _numbers(run(tmp_path, command, "--policy", text="1 0 0.5\n")[1])
    samples = _numbers(run(tmp_path, command, "--temperature", temperature, text=text)[1])
    mean, deviation = policy[:2], policy[2:].exp() * temperature**0.5
    assert ((samples.mean(0) - mean).abs() < 5 * deviation / count**0.5).all()
    assert ((samples.std(0) / deviation - 1).abs() < 5 / (2 * count) ** 0.5).all()


@pytest.mark.slow
def test_policy_of_an_agent_with_images_equals_that_of_python(tmp_path):
    agent = Agent((3, 8, 8), 3, from_pixels=True, d_model=16, num_layers=1, num_heads=2, d_ff=24).eval()
    write(agent, SimpleNamespace(shape=(3, 8, 8)), tmp_path)
    T = 5
    observation, reward, first = (
        torch.randint(256, (1, T, 3, 8, 8)),
        torch.zeros(1, T),
        torch.zeros(1, T, dtype=torch.bool),
    )
    first[0, 0] = True
    text = "\n".join(" ".join(map(str, [int(t == 0), 0, *x.flatten().tolist()])) for t, x in enumerate(observation[0]))
    got = _numbers(run(tmp_path, build(tmp_path), "--policy", text=text)[1])
    want, _, _ = agent(observation.byte(), reward, torch.zeros(1, T).long(), first, agent.initial_state(1))
    assert error(got, want[0]) < BOUND


def _numbers(out):
    return torch.tensor([[float(x) for x in line.split()] for line in out.splitlines()])


@pytest.mark.parametrize("line", ["", "1", "1 0 0.5", "2 0 0.5 0.5", "1 0 0.5 nan", "1 0 0.5 0.5 0.5", "1 0 x 0.5"])
def test_line_without_the_numbers_of_a_time_step_is_refused(line, agent_program):
    folder, command = agent_program
    code, out, err = run(folder, command, text=f"1 0 0.5 0.5\n{line}\n")
    assert (code, out.count("\n")) == (2, 1)
    assert err == "error: a line must have the numbers of one time step: line 2.\n"


@pytest.fixture
def agent_program(make):
    return make("agent")[2:4]


def write_sequences(folder, kind):
    """Writes a folder with one subfolder per class."""
    for label, first in (("down", 1), ("up", 0)):
        (folder / label).mkdir(parents=True)
        for n in range(20):
            text = ("ab" if first else "ba") * (n % 4 + 2)
            rows = "\n".join(f"{n},{first}.5,{t}" for t in range(n % 5 + 2))
            (folder / label / f"{n}.{kind}").write_text(text if kind == "txt" else rows)


@pytest.mark.parametrize(("kind", "tokenizer"), [("csv", "bytes"), *(("txt", name) for name in TOKENIZERS.names())])
def test_classes_equal_those_of_python(kind, tokenizer, tmp_path):
    write_sequences(tmp_path / "data", kind)
    task = SequenceFiles(str(tmp_path / "data"), tokenizer=tokenizer, max_length=6)
    model = SequenceClassifier(task.input_kind, task.input_size, task.output_size, d_model=16, num_layers=1).eval()
    write(model, task, tmp_path)
    command = build(tmp_path, "sanitised")
    for example in classify(model, task, tmp_path / "data")[::9]:
        text = (tmp_path / "data" / example.name).read_text()
        code, out, err = run(tmp_path, command, text=text)
        assert (code, out, err) == (0, f"{example.label}, {100 * example.probability:.0f} %\n", "")
    logits = model(task.batch([x.value for x in task.read(tmp_path / "data")[::9][-1:]]))[0, 0]
    assert error(_numbers(run(tmp_path, command, "--logits", text=text)[1])[0], logits) < BOUND
    for text in ("1,2", "1,2,3,4", "1,2,x") if kind == "csv" else ("c",) if tokenizer == "characters" else ():
        assert_refuses(tmp_path, command, "that the network", text=text)
    assert_refuses(tmp_path, command, "the sequence must have", text="")


FEW_SHOT_NETWORKS = {
    "delta-net": ({}, {}),
    "delayed labels": ({"labels": "delayed", "unlabelled": "corrected"}, {}),
    "published code": ({"labels": "delayed"}, {"layer": "srwm", "normalise_features": True, "norm": "raw-input"}),
    "colours": ({"channels": 3}, {"layer": "softmax-attention"}),
    "one layer": ({}, {"memory": "layer", "layer": "lstm"}),
    "snail": ({}, {"memory": "snail", "length": 9}),
    "residual": ({}, {"vision": "res-12"}),
}


def few_shot_network(task_options, options):
    """An untrained network with running statistics, and its task."""
    task = ImageFolder(ways=4, side=16, shots=2, **{"channels": 1} | task_options)
    sizes = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 24}
    model = FewShotNetwork(*task.arguments, **sizes | options)
    model.classify(torch.randint(256, (8, 2, *task.shape, 16)).byte(), torch.zeros(8, 2).long())
    with torch.no_grad():
        model.head.weight.mul_(5)  # so that probabilities differ
    return model.eval(), task


def write_images(folder, task):
    """Writes three classes with two examples each, and five images to classify."""
    for name in [f"{label}/{n}" for label in "abc" for n in range(2)] + [f"{n}" for n in range(5)]:
        pixels = torch.randint(256, (16, 16, task.channels)).byte().numpy()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze(-1) if task.channels == 1 else pixels).save(folder / f"{name}.png")


def line_of(label, image):
    return " ".join(map(str, [label, *image.pixels.flatten().tolist()]))


@pytest.mark.parametrize("name", in_tiers({name: {"any", *FEW_SHOT_NETWORKS[name][0]} for name in FEW_SHOT_NETWORKS}))
def test_images_of_new_classes_are_classified_as_in_python(name, tmp_path):
    torch.manual_seed(0)
    model, task = few_shot_network(*FEW_SHOT_NETWORKS[name])
    write_images(tmp_path / "images", task)
    adaptation = adapt(model, task, tmp_path / "images")
    write(model, task, tmp_path)
    command = build(tmp_path)
    examples = [line_of(label, image) for image, label in adaptation.examples]
    text = "\n".join([*examples, *(line_of("?", image) for image in adaptation.images)])
    best, label = adaptation.certainties[-1].max(-1)
    want = [f"{n}, {100 * p:.0f} %" for n, p in zip(label.tolist(), best.tolist(), strict=True)]
    code, out, err = run(tmp_path, command, text=text)
    assert (code, out.splitlines(), err) == (0, want, "")
    logits = _numbers(run(tmp_path, command, "--logits", text=text)[1])
    assert error(logits[:, :3].softmax(-1), adaptation.certainties[-1]) < BOUND


@pytest.fixture
def few_shot_program(make):
    return make("few-shot network")[2:4]


@pytest.mark.parametrize(
    "line",
    ["", "0", "0 7", f"4{IMAGE}", f"-1{IMAGE}", f"0.5{IMAGE}", f"x{IMAGE}", f"?{IMAGE} 7", f"0{IMAGE[:-2]} 256"]
    + [f"0{IMAGE[:-2]} {pixel}" for pixel in ("-1", "0.5", "nan", "x", "1e30")],
)
def test_line_without_an_image_is_refused(line, few_shot_program):
    folder, command = few_shot_program
    code, out, err = run(folder, command, text=f"0{IMAGE}\n?{IMAGE}\n{line}\n")
    assert (code, out) == (2, "0, 100 %\n")
    assert err == "error: a line must have a label and the pixels of one image: line 3.\n"


@pytest.mark.parametrize(("text", "message"), [("", "at least one image"), (f"?{IMAGE}\n", "an example must come")])
def test_episode_without_examples_is_refused(text, message, few_shot_program):
    assert_refuses(*few_shot_program, message, text=text)


TRANSLATORS = {
    "linear-attention": {},
    "linear encoder": {"encoder_feature_map": "elu", "cross_feature_map": "dpfp", "num_layers": 2},
    "softmax-attention": {"layer": "softmax-attention", "options": {"use_rope": False}, "norm": "pre"},
    "delta-net": {"layer": "delta-net", "norm": "pre"},
}


def translator(**options):
    """An untrained translator, and its task."""
    task = ParallelFiles(longest=50)
    vars(task)["tokenizer"] = tokenizer_of("bpe")
    sizes = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 24}
    model = Translator(task.vocab_size, **sizes | options).eval()
    with torch.no_grad():
        for x in model.parameters():
            x.add_(0.3 * torch.randn_like(x))
    return model, task


def one_line(text):
    return text.replace("\n", " ").replace("\r", " ")


def greedy(model, task, sentence):
    """Logits of every token of greedy decoding, and the translation."""
    source = task.encode(" ".join(normalised(sentence).split("\n")).strip())
    if len(source) == 0:
        return torch.empty(0, task.vocab_size), ""
    limit = 2 * len(source) + 10
    (best,) = model.translate(source[None], None, task.bos_token_id, task.eos_token_id, limit, num_beams=1)[0]
    target = torch.tensor([task.bos_token_id, *best.tokens])[:limit]
    return model(source[None], None, target[None], None)[0], one_line(task.decode(torch.tensor(best.tokens).long()))


def assert_same_translations(model, task, folder, command, bound=BOUND):
    text = "\n".join(SENTENCES)
    want = [greedy(model, task, sentence) for sentence in SENTENCES]
    code, out, err = run(folder, command, "--logits", text=text)
    assert (code, err) == (0, "")
    assert error(_numbers(out), torch.cat([logits for logits, _ in want])) < bound
    assert run(folder, command, text=text) == (0, "".join(f"{line}\n" for _, line in want), "")


@pytest.mark.parametrize(
    "name", in_tiers({name: {"any", *TRANSLATORS[name].keys() & {"cross_feature_map"}} for name in TRANSLATORS})
)
def test_translations_equal_greedy_decoding_in_python(name, tmp_path):
    torch.manual_seed(0)
    model, task = translator(**TRANSLATORS[name])
    write(model, task, tmp_path)
    assert_same_translations(model, task, tmp_path, build(tmp_path))


@pytest.fixture
def translator_program(make):
    return make("translator")[2:4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff", "the text must be UTF-8: line 1"),
        (b"\n\xc3", "the text must be UTF-8: line 2"),
        (b"\xc0\x80", "the text must be UTF-8"),
        (b"\xed\xa0\x80", "the text must be UTF-8"),
        (b"\xf4\x90\x80\x80", "the text must be UTF-8"),
        ("@" * 51, "the sentence has more tokens than the network reads: line 1"),
    ],
)
def test_invalid_sentences_are_refused(text, message, translator_program):
    folder, command = translator_program
    code, out, err = run(folder, command, text=text)
    assert (code, out.strip()) == (2, "")
    assert err == f"error: {message}{'' if 'line' in message else ': line 1'}.\n"


def test_kinds_of_characters_equal_those_of_the_tokenizer():
    pre_tokenizer = tokenizer_of("bpe").tokenizer.pre_tokenizer
    kinds = _kinds(pre_tokenizer)
    points = [*range(0x3100), *range(0xA640, 0xAC10), *range(0x1D7C0, 0x1D810), 0x1F600, 0xE0001, 0x10FFFF]
    for point in points:
        c = chr(point)
        joins = {
            kind: len(pre_tokenizer.pre_tokenize_str(f"{other}{c}")) == 1
            for kind, other in ((0, "!"), (1, "a"), (2, "1"))
        }
        assert [kind for kind, does_join in joins.items() if does_join] == (
            [] if kinds[point] == 3 else [kinds[point]]
        ), hex(point)


DAMAGES = {
    "empty": (lambda x: b"", "no weights of a compiled network"),
    "short": (lambda x: x[:40], "no weights of a compiled network"),
    "text": (lambda x: b"once upon a time " * 100, "no weights of a compiled network"),
    "line ends": (lambda x: x.replace(b"\r\n", b"\n"), "no weights of a compiled network"),
    "cut": (lambda x: x[: len(x) // 2], "damaged"),
    "cut to the header": (lambda x: x[:64], "damaged"),
    "longer": (lambda x: x + b"\0" * 64, "damaged"),
    "one bit": (lambda x: x[:1000] + bytes([x[1000] ^ 4]) + x[1001:], "damaged"),
    "two signs": (
        lambda x: x[:1007] + bytes([x[1007] ^ 128]) + x[1008:1015] + bytes([x[1015] ^ 128]) + x[1016:],
        "damaged",
    ),
    "swapped": (lambda x: x[:512] + x[520:528] + x[512:520] + x[528:], "damaged"),
    "size of the text": (lambda x: x[:32] + b"\xff" * 8 + x[40:], "damaged"),
    "version": (lambda x: x[:8] + b"\2" + x[9:], "another version"),
}


def assert_refuses(folder, command, message, **options):
    code, out, err = run(folder, command, **options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def check_damage(folder, command):
    content = (folder / "network.weights").read_bytes()
    for change, message in DAMAGES.values():
        (folder / "damaged.weights").write_bytes(change(content))
        assert_refuses(folder, command, message, weights="damaged.weights")
    for path in ("missing.weights", "."):
        assert_refuses(folder, command, "cannot be read", weights=path)


def test_bad_input_is_refused_with_one_line(program, tmp_path):
    *_, folder, command = program
    check_damage(folder, command)
    for text in ("é", b"\xff", b"\xc3", "é and more"):
        assert_refuses(folder, command, "does not have: byte 0", text=text)
    assert_refuses(folder, command, "at least one token", text="")
    write(*language_model(Characters.learn("abcdefgh")), tmp_path)
    assert_refuses(folder, command, "another network", weights=tmp_path / "network.weights")


@pytest.mark.parametrize(
    "arguments", [["--seed"], ["--seed", "x"], ["--temperature", "-1"], ["--temperature", "nan"], ["--no", "1"]]
)
def test_invalid_options_print_the_usage(program, arguments):
    *_, folder, command = program
    assert_prints_the_usage(folder, command, arguments)


def assert_prints_the_usage(folder, command, arguments):
    code, out, err = run(folder, command, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: ./run")
    assert "invalid arguments" in err.splitlines()[-1]


def test_every_kind_of_model_and_every_header_has_a_sample(tmp_path):
    kinds, parts = set(), {"program.h"}
    for name, sample in SAMPLES.items():
        model, task, _ = sample()
        kinds.add(type(model))
        parts.update(PROGRAMS[type(model)](model, task).parts.values())
        assert name
    assert kinds == PROGRAMS.keys()
    assert parts == {path.name for path in FOLDER.glob("*.h")}


@pytest.mark.parametrize("name", SAMPLES)
def test_programs_refuse_invalid_arguments_weights_and_input(name, make):
    *_, folder, command, text = make(name)
    code, out, err = run(folder, command, text=text)
    assert (code, err) == (0, "")
    assert out
    assert run(folder, command, "--threads", 2, text=text) == (code, out, err)
    code, out, err = run(folder, command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith("usage: ")
    assert_prints_the_usage(folder, command, ["--no"])
    assert_prints_the_usage(folder, command, ["more.weights"])
    assert_refuses(folder, command, "cannot be read", weights="missing.weights", text=text)
    assert run(folder, command, text=b"\xff")[0] == 2


@pytest.mark.parametrize("name", SAMPLES)
def test_header_and_program_are_valid_c99(name, make):
    command = ["gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "main.c"]
    subprocess.run(command, cwd=make(name).folder, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how in BUILDS if how != "g++"])
@pytest.mark.parametrize("name", SAMPLES)
def test_programs_of_other_compilers_have_the_same_results(name, how, make):
    model, _, folder, command, text = make(name, how)
    numbers = "--policy" if isinstance(model, Agent) else "--logits"
    code, out, err = run(folder, command, numbers, text=text)
    assert (code, err) == (0, "")
    several = run(folder, command, numbers, "--threads", 2, text=text)
    assert several == ((2, "", NO_THREADS) if how == "wasm" else (code, out, err))
    *_, folder, command, text = make(name)
    assert error(_numbers(out), _numbers(run(folder, command, numbers, text=text)[1])) < BOUND


NO_THREADS = "error: --threads: the system cannot start the threads; use one thread.\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_input_has_no_undefined_behaviour(name, make):
    """The program reads a randomly changed input, or refuses it in one line."""
    *_, folder, command, text = make(name, "sanitised")
    random = numpy.random.default_rng(0)
    check_damage(folder, command)
    for _ in range(150):
        assert_reads_or_refuses(folder, command, text=damaged(text.encode(), random))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_weight_file_with_other_bytes_is_refused(name, make):
    *_, folder, command, text = make(name, "sanitised")
    content = (folder / "network.weights").read_bytes()
    random = numpy.random.default_rng(0)
    for _ in range(50):
        (folder / "damaged.weights").write_bytes(with_other_bytes(content, random, 0, len(content)))
        assert_refuses(folder, command, "damaged.weights: ", text=text, weights="damaged.weights")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_weight_file_with_another_text_has_no_undefined_behaviour(name, make):
    """The checksum is right, so that the program reads damaged tokens, names and sizes."""
    *_, folder, command, text = make(name, "sanitised")
    content = (folder / "network.weights").read_bytes()
    size = int.from_bytes(content[32:40], "little")
    first = len(content) - -(-size // 64) * 64
    random = numpy.random.default_rng(0)
    for last in [min(size, 32), size] * 75:
        changed = with_other_bytes(content, random, first, first + last)
        (folder / "damaged.weights").write_bytes(sealed(changed))
        assert_reads_or_refuses(folder, command, text=text, weights="damaged.weights")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_weight_file_with_other_numbers_has_no_undefined_behaviour(name, make):
    """The checksum is right, so that the program computes with NaN, infinities and huge numbers."""
    *_, folder, command, text = make(name, "sanitised")
    content = (folder / "network.weights").read_bytes()
    last = len(content) - -(-int.from_bytes(content[32:40], "little") // 64) * 64
    random = numpy.random.default_rng(0)
    for number in [numpy.nan, -numpy.nan, numpy.inf, -numpy.inf, 3e38, -3e38] * 5:
        changed = bytearray(content)
        for at in random.integers(64 // 4, last // 4, 20):
            changed[4 * at : 4 * at + 4] = numpy.float32(number).tobytes()
        (folder / "damaged.weights").write_bytes(sealed(changed))
        assert_reads_or_refuses(folder, command, text=text, weights="damaged.weights")


def with_other_bytes(content, random, first, last):
    """A weight file with other bytes in a few places of a part."""
    changed = bytearray(content)
    for at in set(random.integers(first, last, random.integers(1, 6)).tolist()):
        changed[at] ^= random.choice([1, 0x80, 0xFF, changed[at] or 1, random.integers(1, 256)])
    return changed


def sealed(content):
    """A weight file with the checksum of its content."""
    content[56:64] = bytes(8)
    content[56:64] = _checksum(content).to_bytes(8, "little")
    return content


def assert_reads_or_refuses(folder, command, **options):
    code, _, err = run(folder, command, **options)
    assert code in (0, 2), err
    assert err.count("\n") == (code == 2), err


@pytest.mark.slow
def test_weights_of_other_networks_are_refused(make):
    for name in SAMPLES:
        *_, folder, command, text = make(name, "sanitised")
        for other in SAMPLES.keys() - {name}:
            weights = make(other, "sanitised").folder / "network.weights"
            assert_refuses(folder, command, "another network", weights=weights, text=text)


def damaged(text, random):
    """A text with some replaced, removed or inserted bytes, and sometimes truncated."""
    content = bytearray(text)
    for at in random.integers(0, len(content), random.integers(1, 8)).tolist():
        new = random.choice([*b"\n ,?-.0129eEx'\r\0", *random.integers(0, 256, 8)])
        content[at : at + random.integers(0, 2)] = bytes([new]) * random.integers(0, 3)
    return bytes(content[: random.integers(0, len(content) + 1)] if random.random() < 0.2 else content)


def test_code_of_the_page_runs(program):
    """The example of a time step in the how-to, in a main function."""
    *_, folder, _ = program
    page = Path(__file__).parents[1] / "docs" / "how-to" / "deploy-without-python.md"
    code = page.read_text().split("```c\n")[1].split("```")[0]
    main = f'#include <stdio.h>\n#include "network.h"\nint main(void) {{\n{code}return error;\n}}\n'
    (folder / "example.c").write_text(main)
    command = ["g++", "-O1", "-Wno-psabi", "-x", "c++", "network.cpp", "example.c", "-o", "example"]
    subprocess.run(command, cwd=folder, check=True)
    assert subprocess.run(["./example"], cwd=folder, capture_output=True, check=True).stdout == b""


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [
        (torch.nn.Linear(2, 2), None, "model must be one of LanguageModel.*, got Linear"),
        (few_shot_network({}, {})[0], SimpleNamespace(normalisations=(0, 1)), "with one normalisation, got one with 2"),
        (translator()[0], task_of(Bytes()), "tokenizer must be byte-pair encoding, got NoneType"),
        (LanguageModel(7, d_model=8, num_heads=2), task_of(SimpleNamespace()), "must be a tokenizer of the library"),
    ],
)
def test_models_without_a_program_are_refused(model, task, message, tmp_path):
    with pytest.raises(InputError, match=message):
        write(model, task, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_part_that_does_not_compile_is_named(tmp_path):
    model, task = language_model()
    model.norm = torch.nn.Sequential(model.norm, WithShortConvolution())
    with pytest.raises(
        InputError,
        match=r"model must be a model that compiles, got LanguageModel: .*convolution.*Use fastweights generate",
    ) as caught:
        write(model, task, tmp_path / "none")
    assert "\n" not in str(caught.value)


class WithShortConvolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.map = torch.nn.ConvTranspose1d(1, 1, 3, padding=1)

    def forward(self, x):
        return self.map(x)


def test_command_writes_the_program_of_a_run(tmp_path, capsys):
    from test_trained import SMALL

    assert cli.main(["train", "char-lm", *SMALL, "--run", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    folder = tmp_path / "program"
    assert cli.main(["compile", str(tmp_path / "run"), "--output-dir", str(folder), "--weights", "int8"]) == 0
    names = ["network.cpp", "network.h", "network.weights", "program.h", "tokenizer.h", "main.c", "README.md"]
    assert capsys.readouterr().out.startswith(f"Written: {', '.join(str(folder / name) for name in names)}.")
    assert BUILD in (folder / "README.md").read_text()
    assert run(folder, build(folder), "--max-new-tokens", 5, text="Dorothy")[0] == 0


def test_command_needs_a_folder_for_a_run(tmp_path, capsys):
    assert cli.main(["compile", str(tmp_path)]) == 2
    assert "output_dir must be given for a run" in capsys.readouterr().err
