import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastweights import InputError
from fastweights.tasks._characters import OZ, Characters, Streams
from fastweights.tasks._kneser_ney import KneserNey

sequences = st.lists(st.integers(0, 3), min_size=5, max_size=60)


def test_book_is_whole_and_without_licence_text():
    text = Characters.read(OZ).text
    assert text.startswith("The Wonderful Wizard of Oz\n")
    assert text.endswith('so glad to be at home again!"\n')
    assert "gutenberg" not in text.lower()
    assert len(text) > 200_000


def test_parts_are_the_text_in_order():
    book = Characters.read(OZ)
    assert book.decode(torch.cat([book.training, book.validation, book.held_out])) == book.text
    assert len(book.held_out) == round(0.1 * len(book))
    assert torch.equal(book.before_held_out, torch.cat([book.training, book.validation]))


@given(st.text(min_size=1))
def test_decoding_undoes_encoding(text):
    characters = Characters.of(text)
    assert characters.decode(characters.encode(text)) == text


def test_unknown_character_is_named():
    with pytest.raises(InputError, match="'z'"):
        Characters.of("abc").encode("abz")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "characters in it"), (b"caf\xe9", "must be UTF-8.*bad byte at 3"), (None, "No such file")],
)
def test_unusable_files_are_refused(tmp_path, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        Characters.read(path)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 30))
def test_streams_are_the_text_without_gaps(batch_size, window, extra):
    tokens = torch.arange(batch_size * window + 1 + extra)
    streams = Streams(tokens, batch_size, window)
    inputs = torch.cat([streams[n][0] for n in range(len(streams))], dim=1)
    targets = torch.cat([streams[n][1] for n in range(len(streams))], dim=1)
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(inputs.shape[1]))
    assert tokens.numel() - 1 - inputs.numel() < batch_size * (window + 1)


def test_text_shorter_than_a_batch_is_refused():
    with pytest.raises(InputError, match="at least 21 training tokens, got 20"):
        Streams(torch.arange(20), batch_size=4, window=5)


def written_out(train, vocabulary, order, history, word):
    """Interpolated Kneser-Ney straight from its definition, with dictionaries and loops."""
    if order == 0:
        return 1 / vocabulary

    def count(gram, highest):
        if highest:
            return sum(tuple(train[i : i + len(gram)]) == gram for i in range(len(train) - len(gram) + 1))
        longer = len(gram) + 1
        return len({tuple(train[i : i + longer]) for i in range(len(train) - longer + 1)
                    if tuple(train[i + 1 : i + longer]) == gram})  # fmt: skip

    top = order == written_out.order
    history = tuple(history[len(history) - order + 1 :]) if order > 1 else ()
    grams = {g: c for g in itertools.product(range(vocabulary), repeat=order) if (c := count(g, top))}
    once, twice = (sum(c == n for c in grams.values()) for n in (1, 2))
    discount = once / (once + 2 * twice) if once else 0.0
    lower = written_out(train, vocabulary, order - 1, history[1:], word)
    seen = {g: c for g, c in grams.items() if g[:-1] == history}
    if not seen:
        return lower
    total = sum(seen.values())
    return max(seen.get((*history, word), 0) - discount, 0) / total + discount * len(seen) / total * lower


@pytest.mark.parametrize("order", [1, 2, 3])
def test_kneser_ney_is_its_definition(order):
    generator = np.random.default_rng(0)
    train, test = generator.integers(0, 4, 60), generator.integers(0, 5, 25)
    model = KneserNey(train, 5, order)
    written_out.order = order
    for t, p in enumerate(model.probabilities(test)):
        n = min(order, t + 1)
        if n == order:
            assert p == pytest.approx(written_out(train.tolist(), 5, n, test[:t].tolist(), test[t]))


@given(sequences, sequences, st.integers(1, 4))
def test_kneser_ney_probabilities_sum_to_one(train, history, order):
    model = KneserNey(np.array(train), 5, order)
    total = sum(model.probabilities(np.array([*history, word]))[-1] for word in range(5))
    assert total == pytest.approx(1)


def test_kneser_ney_baselines_of_the_book():
    """Longer histories help; the values were found with another program: 2.65, 2.14 and 1.94 bits."""
    book = Characters.read(OZ)
    bits = [
        KneserNey(book.before_held_out.numpy(), len(book.vocabulary), n).bits(book.held_out.numpy()) for n in (3, 4, 5)
    ]
    assert bits == pytest.approx([2.65, 2.14, 1.94], abs=0.02)


def test_kneser_ney_refuses_orders_that_overflow():
    with pytest.raises(InputError, match="order must be at most"):
        KneserNey(np.arange(100), 100, 10)


def test_kneser_ney_takes_the_longest_order_it_allows():
    tokens = np.random.default_rng(0).integers(0, 6000, 2000)
    assert KneserNey.longest(6000) == 5
    assert 0 < KneserNey(tokens, 6000, 5).bits(tokens) < 20


def test_uniform_text_costs_its_entropy():
    tokens = np.random.default_rng(0).integers(0, 8, 50_000)
    assert KneserNey(tokens, 8, 1).bits(tokens) == pytest.approx(math.log2(8), abs=1e-3)
