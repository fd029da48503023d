"""Every tokenizer: to numbers and back, from what it says of itself, and what it refuses."""

import json
import zipfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastweights.core.errors import InputError
from fastweights.registry import TOKENIZERS
from fastweights.tasks.sources.data_files import find
from fastweights.tokenizers._tokenizer import lines
from fastweights.tokenizers.words import Words

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
def test_back_to_the_text(name, rows):
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
def test_what_knows_bytes_can_write_every_text(name, text):
    tokenizer = learnt(name)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [0, 1, 5, 30])
def test_what_is_said_token_by_token_is_the_text(name, cut):
    text = TEXT + "\nÜÜ ber über \n = \n the cat\n" * 3
    tokenizer = learnt(name, text)
    tokens = tokenizer.encode(text)
    parts = list(tokenizer.said(tokens[cut:].split(1), tokens[:cut]))
    assert len(parts) == len(tokens) - cut
    assert tokenizer.decode(tokens[:cut]) + "".join(parts) == tokenizer.decode(tokens)


@pytest.mark.parametrize("name", NAMES)
def test_facts_make_the_same_tokenizer(name):
    tokenizer = learnt(name)
    again = type(tokenizer).from_facts(json.loads(json.dumps(tokenizer.facts())))
    assert len(again) == len(tokenizer)
    assert torch.equal(again.encode(TEXT), tokenizer.encode(TEXT))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("facts", [3, 0.5, True, [], {}, ["a", 3], ["a", "a"], "", {"a": 1}, [["a"]], "{"])
def test_facts_of_nothing_are_refused_in_a_line(name, facts):
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
def test_lines_are_those_of_a_file(text):
    assert list(lines(text)) == [line.removesuffix("\n") for line in text.splitlines(keepends=True)]


@pytest.mark.parametrize(("part", "tokens"), [("train", 2_088_628), ("valid", 217_646), ("test", 245_569)])
def test_words_of_wikitext_2_are_as_many_as_published(part, tokens, real_data):
    """Merity et al. 2017, Table 1, without the ends of lines; 33,278 words."""
    archive = find("wikitext-2/wikitext-2-v1.zip")
    if archive is None:
        pytest.skip("wikitext-2-v1.zip is not in the folder that FASTWEIGHTS_DATA names")
    with zipfile.ZipFile(archive) as file:
        text = {name: file.read(f"wikitext-2/wiki.{name}.tokens").decode() for name in ("train", part)}
    words = Words.learn(text["train"])
    assert len(words) == 33_278
    assert len(words.encode(text[part])) == tokens
