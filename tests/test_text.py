"""Texts and tokenizers: windows, streams, encoding and decoding."""

import itertools
import json
import math
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastweights import InputError
from fastweights.registry import TOKENIZERS
from fastweights.tasks.kinds.stream import Windows
from fastweights.tasks.sources.data_files import find
from fastweights.tasks.sources.kneser_ney import KneserNey
from fastweights.tasks.text import Text
from fastweights.tokenizers._tokenizer import lines
from fastweights.tokenizers.words import Words

sequences = st.lists(st.integers(0, 3), min_size=5, max_size=60)


def test_book_is_complete_and_has_no_licence_text():
    text = Text().content
    assert text.startswith("The Wonderful Wizard of Oz\n")
    assert text.endswith('so glad to be at home again!"\n')
    assert "gutenberg" not in text.lower()
    assert len(text) > 200_000


def test_parts_are_the_text_in_order():
    book = Text()
    assert book.decode(torch.cat([book.training, book.validation, book.test])) == book.content
    assert len(book.test) == round(0.1 * len(book.content))
    assert torch.equal(book.before_test, torch.cat([book.training, book.validation]))


def test_only_the_character_tokenizer_learns_from_held_out_text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a b a b " * 50 + "new ", encoding="utf-8")
    words = Text(str(path), tokenizer="words")
    assert words.trained_tokenizer.facts() == ["<eos>", "a", "b", "<unk>"]
    assert words.test[-1] == 3
    assert "w" in Text(str(path)).trained_tokenizer.facts()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a file that is not empty"),
        (b"caf\xe9", "must be UTF-8.*bad byte at 3"),
        (b"a\0b", "zero byte"),
        (None, "No such file"),
    ],
)
def test_unusable_files_are_refused(tmp_path, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        Text(str(path)).training  # noqa: B018


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 30))
def test_streams_cover_the_text_without_gaps(batch_size, window, extra):
    tokens = torch.arange(batch_size * window + 1 + extra)
    windows = Windows(tokens, batch_size, window)
    inputs = torch.cat([windows[n][0] for n in range(len(windows))], dim=1)
    targets = torch.cat([windows[n][1] for n in range(len(windows))], dim=1)
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(inputs.shape[1]))
    assert tokens.numel() - 1 - inputs.numel() < batch_size * (window + 1)


def test_text_shorter_than_a_batch_is_refused():
    with pytest.raises(InputError, match="at least 21 training tokens long, got 20"):
        Windows(torch.arange(20), batch_size=4, window=5)


def kneser_ney_by_definition(train, vocab_size, order, history, word):
    """Interpolated Kneser-Ney by its definition, with dictionaries and loops."""
    if order == 0:
        return 1 / vocab_size

    def count(gram, highest):
        if highest:
            return sum(tuple(train[i : i + len(gram)]) == gram for i in range(len(train) - len(gram) + 1))
        longer = len(gram) + 1
        return len({tuple(train[i : i + longer]) for i in range(len(train) - longer + 1)
                    if tuple(train[i + 1 : i + longer]) == gram})  # fmt: skip

    top = order == kneser_ney_by_definition.order
    history = tuple(history[len(history) - order + 1 :]) if order > 1 else ()
    grams = {g: c for g in itertools.product(range(vocab_size), repeat=order) if (c := count(g, top))}
    once, twice = (sum(c == n for c in grams.values()) for n in (1, 2))
    discount = once / (once + 2 * twice) if once else 0.0
    lower = kneser_ney_by_definition(train, vocab_size, order - 1, history[1:], word)
    continuations = {g: c for g, c in grams.items() if g[:-1] == history}
    if not continuations:
        return lower
    total = sum(continuations.values())
    return (
        max(continuations.get((*history, word), 0) - discount, 0) / total
        + discount * len(continuations) / total * lower
    )


@pytest.mark.parametrize("order", [1, 2, 3])
def test_kneser_ney_equals_its_definition(order):
    generator = np.random.default_rng(0)
    train, test = generator.integers(0, 4, 60), generator.integers(0, 5, 25)
    model = KneserNey(train, 5, order)
    kneser_ney_by_definition.order = order
    for t, p in enumerate(model.probabilities(test)):
        n = min(order, t + 1)
        if n == order:
            assert p == pytest.approx(kneser_ney_by_definition(train.tolist(), 5, n, test[:t].tolist(), test[t]))


@given(sequences, sequences, st.integers(1, 4))
def test_kneser_ney_probabilities_sum_to_one(train, history, order):
    model = KneserNey(np.array(train), 5, order)
    total = sum(model.probabilities(np.array([*history, word]))[-1] for word in range(5))
    assert total == pytest.approx(1)


def test_kneser_ney_baselines_of_the_book_equal_those_of_another_program():
    """2.65, 2.14 and 1.94 bits for orders 3, 4 and 5."""
    book = Text()
    bits = [
        KneserNey(book.before_test.numpy(), len(book.trained_tokenizer), n).bits(book.test.numpy()) for n in (3, 4, 5)
    ]
    assert bits == pytest.approx([2.65, 2.14, 1.94], abs=0.02)


def test_kneser_ney_does_not_depend_on_the_indices_of_tokens():
    random = np.random.default_rng(0)
    tokens, names = random.integers(0, 50, 3000), random.permutation(300_000)
    small, large = (KneserNey(part, 300_000, 7) for part in (tokens, names[tokens]))
    test = random.integers(0, 60, 500)
    np.testing.assert_allclose(small.probabilities(test), large.probabilities(names[test]), rtol=1e-12)


def test_uniform_text_has_the_bits_of_its_entropy():
    tokens = np.random.default_rng(0).integers(0, 8, 50_000)
    assert KneserNey(tokens, 8, 1).bits(tokens) == pytest.approx(math.log2(8), abs=1e-3)


NAMES = TOKENIZERS.names()
TEXT = "the cat sat on the mat\n\n = Über <unk> = \nthe end"
UNIVERSAL = ("bytes", "bpe")
WORDS = st.lists(
    st.lists(st.sampled_from(["a", "b", "the", "Übung", "<unk>", "="]), max_size=5), min_size=1, max_size=5
)


def learnt(name, text=TEXT):
    pytest.importorskip("tokenizers") if name == "bpe" else None
    return TOKENIZERS.load(name).learn(text)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(rows=WORDS)
def test_decoding_inverts_encoding(name, rows):
    text = "".join(" ".join(row) + "\n" for row in rows)
    tokenizer = learnt(name, text)
    tokens = tokenizer.encode(text)
    assert tokens.dtype == torch.long
    assert tokens.ndim == 1
    assert len(tokens) == 0 or (tokens.min() >= 0 and tokens.max() < len(tokenizer))
    assert tokenizer.decode(tokens) == text


@pytest.mark.parametrize("name", UNIVERSAL)
@settings(max_examples=50)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_byte_tokenizers_can_encode_every_text(name, text):
    tokenizer = learnt(name)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [0, 1, 5, 30])
def test_decoding_token_by_token_gives_the_text(name, cut):
    text = TEXT + "\nÜÜ ber über \n = \n the cat\n" * 3
    tokenizer = learnt(name, text)
    tokens = tokenizer.encode(text)
    parts = list(tokenizer.decode_stream(tokens[cut:].split(1), tokens[:cut]))
    assert len(parts) == len(tokens) - cut
    assert tokenizer.decode(tokens[:cut]) + "".join(parts) == tokenizer.decode(tokens)


@pytest.mark.parametrize("name", NAMES)
def test_facts_restore_the_tokenizer(name):
    tokenizer = learnt(name)
    copy = type(tokenizer).from_facts(json.loads(json.dumps(tokenizer.facts())))
    assert len(copy) == len(tokenizer)
    assert torch.equal(copy.encode(TEXT), tokenizer.encode(TEXT))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("facts", [3, 0.5, True, [], {}, ["a", 3], ["a", "a"], "", {"a": 1}, [["a"]], "{"])
def test_invalid_facts_are_refused_in_one_line(name, facts):
    pytest.importorskip("tokenizers")
    if name == "characters" and facts == "{":
        return  # a character
    with pytest.raises(InputError) as refusal:
        TOKENIZERS.load(name).from_facts(facts)
    assert "\n" not in str(refusal.value)


def test_unknown_character_is_named():
    with pytest.raises(InputError, match="'z'"):
        learnt("characters").encode("cz")


@given(text=st.text("ab\n", max_size=20))
def test_lines_equal_those_of_a_file(text):
    assert list(lines(text)) == [line.removesuffix("\n") for line in text.splitlines(keepends=True)]


@pytest.mark.parametrize(("part", "tokens"), [("train", 2_088_628), ("valid", 217_646), ("test", 245_569)])
def test_wikitext_2_has_the_published_number_of_words(part, tokens, real_data):
    """Merity et al. 2017, Table 1, without line ends. The vocabulary has 33,278 words."""
    archive = find("wikitext-2/wikitext-2-v1.zip")
    if archive is None:
        pytest.skip("needs wikitext-2-v1.zip in the folder FASTWEIGHTS_DATA")
    with zipfile.ZipFile(archive) as file:
        text = {name: file.read(f"wikitext-2/wiki.{name}.tokens").decode() for name in ("train", part)}
    words = Words.learn(text["train"])
    assert len(words) == 33_278
    assert len(words.encode(text[part])) == tokens
