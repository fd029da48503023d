"""Pairs of sentences: batches within a budget, parallel files, and training, resuming and use of a translator."""

import io
from contextlib import nullcontext
from itertools import islice

import numpy as np
import pytest
import torch

import fastweights
from fastweights.cli import main
from fastweights.core.errors import InputError
from fastweights.tasks.kinds.labelled import IGNORE
from fastweights.tasks.kinds.pairs import PairBatch, Sentences
from fastweights.tasks.multi30k import Multi30k
from fastweights.tasks.sources.data_files import MissingFile
from fastweights.tasks.sources.parallel_text import Parallel
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.loops import translation
from fastweights.training.settings.translation import Translation

pytest.importorskip("tokenizers")
pytest.importorskip("sacrebleu")


class Few(Parallel):
    """Sentences whose translation is the reversed text."""

    def read(self, part, language):
        rows = [f"ab{n} cd{n % 7}" + " ef" * (n % 5) for n in range(60 if part == "train" else 5)]
        sentences = rows if language == "source" else [row[::-1] for row in rows]
        return ("\n".join(sentences) + "\n").encode()


TASK = Few(pieces=280)


def test_sentences_are_stored_in_order():
    rows = [torch.tensor(row) for row in ([3, 1], [], [5], [2, 2, 2])]
    sentences = Sentences.of(rows)
    assert [sentence.tolist() for sentence in sentences] == [row.tolist() for row in rows]
    assert sentences.lengths.tolist() == [2, 0, 1, 3]
    assert list(Sentences.of([])) == []


@pytest.mark.parametrize("budget", [40, 64, 500, 100_000])
def test_every_sentence_is_read_once_per_epoch_within_the_budget(budget):
    sources = []
    epoch = islice(TASK.train_batches(budget, seed=1), len(plan(budget)))
    for batch in epoch:
        assert batch.source.numel() <= budget
        assert batch.target.numel() <= budget
        for n, length in enumerate(batch.target_lengths.tolist()):
            target, labels = batch.target[n, :length], batch.labels[n]
            assert target[0] == TASK.bos_token_id
            assert labels[length - 1] == TASK.eos_token_id
            assert torch.equal(target[1:], labels[: length - 1])
            assert (labels[length:] == IGNORE).all()
            source = TASK.decode(batch.source[n, : batch.source_lengths[n]])
            assert TASK.decode(target[1:]) == source[::-1]
            sources.append(source)
    assert sorted(sources) == sorted(TASK.read("train", "source").decode().splitlines())


def plan(budget):
    return TASK.plan(budget, np.random.default_rng(0))


@pytest.mark.parametrize("start", [0, 1, 5, 17])
def test_batches_do_not_depend_on_the_start_step(start):
    whole = islice(TASK.train_batches(100, seed=3), start, start + 8)
    for one, other in zip(whole, TASK.train_batches(100, seed=3, start=start), strict=False):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_batches_depend_on_epoch_and_seed():
    steps = len(plan(100))
    first, second = (next(islice(TASK.train_batches(100, seed=1), start, None)).source for start in (0, steps))
    other = next(TASK.train_batches(100, seed=2)).source
    assert not (first.shape == second.shape and torch.equal(first, second))
    assert not (first.shape == other.shape and torch.equal(first, other))


def test_sentence_longer_than_the_budget_is_refused():
    with pytest.raises(InputError, match="batch_size must be at least the length of every sentence, got 4 for"):
        next(TASK.train_batches(4, seed=1))


def of_files(train, validation=("a\n", "b\n")):
    class Files(Parallel):
        def read(self, part, language):
            text = (train if part == "train" else validation)[language == "target"]
            return text if isinstance(text, bytes) else text.encode()

    return Files(pieces=256)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (("a\nb\n", "a\n"), "files with equal numbers of lines, got 2 and 1"),
        (("", "a\n"), "a file that is not empty, got the empty one"),
        ((b"\xff\xfe", b"a\n"), "must be UTF-8"),
        ((b"a\0\n", b"a\n"), "must be a text without zero bytes, got one, which has a zero byte"),
    ],
)
def test_invalid_parallel_files_are_refused_in_one_line(train, message):
    with pytest.raises(InputError, match=message) as refusal:
        _ = of_files(train).training
    assert "\n" not in str(refusal.value)


def test_empty_lines_are_left_out_of_training_only():
    assert len(of_files(("a\n\nc\n", "d\ne\n\n")).training.sources) == 1
    with pytest.raises(InputError, match="without empty lines, got line 2"):
        _ = of_files(("a\n", "b\n"), ("a\n\n", "b\nc\n")).validation


def test_facts_of_a_run_folder_suffice_to_use_a_model():
    known = Multi30k().restored_from(TASK.facts())
    assert known.decode(known.encode("ab1 cd1")) == "ab1 cd1"
    assert (known.vocab_size, known.bos_token_id, known.eos_token_id) == (
        TASK.vocab_size,
        TASK.bos_token_id,
        TASK.eos_token_id,
    )
    with pytest.raises(InputError):
        Multi30k().restored_from({})


def test_facts_change_with_the_content_of_a_file():
    class Another(Few):
        def read(self, part, language):
            return super().read(part, language).replace(b"4", b"44" if part == "test" else b"4")

    facts, others = TASK.facts(), Another(pieces=280).facts()
    assert facts == Few(pieces=280).facts()
    assert [part for part, digest in facts["sha256"].items() if others["sha256"][part] != digest] == ["test"]


class Process:
    """Fabric of one of several processes, without communication."""

    device = torch.device("cpu")

    def __init__(self, rank, world):
        self.global_rank, self.world_size = rank, world

    def to_device(self, tensor):
        return tensor

    def no_backward_sync(self, model, enabled):
        return nullcontext()

    def backward(self, loss):
        loss.backward()


class ByTheLastToken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 81, dtype=torch.float64).view(9, 9))

    def forward(self, source, source_lengths, target, target_lengths):
        return self.weight[target]


@pytest.mark.parametrize("sentences", range(1, 10))
def test_gradients_of_processes_add_up_to_that_of_one(sentences):
    """Any number of sentences, also fewer than processes."""
    tokens = torch.arange(sentences * 5).view(sentences, 5) % 9
    lengths = torch.arange(sentences) % 5 + 1
    labels = tokens.masked_fill(torch.arange(5) >= lengths[:, None], IGNORE)
    batch = PairBatch(tokens, lengths, tokens, lengths, labels)
    settings = Translation(steps=1, batch_size=64, evaluate_every=1, learning_rate=1e-3)

    def gradient(rank, world):
        model = ByTheLastToken()
        translation.update(Process(rank, world), model, torch.optim.SGD(model.parameters(), 0.0), batch, settings)
        return model.weight.grad

    together = sum(gradient(rank, 4) for rank in range(4)) / 4
    assert error(together, gradient(0, 1)) < tolerance(torch.float64).gradient


@pytest.fixture
def captions(real_data):
    """Skips the test without the files of Multi30k."""
    try:
        _ = Multi30k().read("validation", "source")
    except MissingFile as missing:
        pytest.skip(str(missing))


@pytest.mark.usefixtures("captions")
def test_a_batch_size_that_is_too_small_leaves_no_run(tmp_path, capsys):
    flags = ["--preset", "smoke", "--sentences", "60", "--batch-size", "5", "--run", str(tmp_path / "run")]
    assert main(["train", "multi30k", *flags]) == 2
    assert "batch_size must be at least the length of every sentence" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("captions")
def test_translation_resumes_bit_identically(tmp_path, monkeypatch):
    flags = ["--preset", "smoke", "--sentences", "60", "--steps", "4", "--evaluate-every", "2"]
    assert main(["train", "multi30k", *flags, "--run", str(tmp_path / "whole")]) == 0
    real, calls = translation.update, []

    def stopped(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(translation, "update", stopped)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        raise SystemExit(main(["train", "multi30k", *flags, "--run", str(tmp_path / "cut")]))
    monkeypatch.setattr(translation, "update", real)
    assert main(["train", "multi30k", "--run", str(tmp_path / "cut"), "--resume"]) == 0
    for name in ("last.safetensors", "best.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.fixture
def translator(captions, tmp_path):
    """Short run of a translator."""
    run = str(tmp_path / "run")
    flags = ["--preset", "smoke", "--sentences", "60", "--steps", "2", "--evaluate-every", "2"]
    assert main(["train", "multi30k", *flags, "--run", run]) == 0
    return run


def test_translate_prints_a_line_per_sentence_and_keeps_blank_lines(translator, monkeypatch, capsys):
    lines = ["A dog runs.", " ", "Two men are in a boat."]
    model, task = fastweights.load(translator)
    rows = [task.encode(line) for line in lines if line.strip()]
    limits = [2 * len(row) + 10 for row in rows]
    alone = (
        model.translate(row[None], None, task.bos_token_id, task.eos_token_id, limit, 3)
        for row, limit in zip(rows, limits, strict=True)
    )
    tokens_of = [best.tokens for ((best, *_),) in alone]
    first, last = (" ".join(task.decode(torch.tensor(tokens)).splitlines()) for tokens in tokens_of)
    capsys.readouterr()
    assert main(["translate", translator, *lines, "--num-beams", "3"]) == 0
    assert capsys.readouterr().out == f"{first}\n\n{last}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert main(["translate", translator, "--num-beams", "3"]) == 0
    assert capsys.readouterr().out == f"{first}\n\n{last}\n"


def test_invalid_input_of_translate_is_refused_in_one_line(translator, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"A dog.\n\xff\n")))
    for arguments, message in {
        (): "line 2 must be UTF-8, got standard input with a bad byte at 0",
        ("a", "--num-beams", "0"): "num_beams must be a whole number of at least 1",
        ("a", "--length-penalty", "nan"): "length_penalty must be a finite number of at least 0",
    }.items():
        assert main(["translate", translator, *arguments]) == 2
        assert capsys.readouterr().err.startswith(f"fastweights: {message}")
