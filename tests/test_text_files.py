"""Every reader accepts texts with the line ends of any system, with and without a byte order mark."""

import ast
import io
from dataclasses import dataclass
from pathlib import Path

import pytest

import fastweights
from fastweights import InputError, cli
from fastweights.core.files import decoded, read_text
from fastweights.registry import TOKENIZERS
from fastweights.tasks.letters import Letters
from fastweights.tasks.list_ops import read_examples
from fastweights.tasks.sources.corpus import Corpus
from fastweights.tasks.sources.parallel_text import Parallel
from fastweights.tasks.sources.splits import read_tables
from fastweights.tasks.text import Text
from fastweights.tokenizers import BPE, Bytes, Words

ROOT = Path(fastweights.__file__).parent
LINES = "It was a dark night.\nThe wind blew.\n\nWho was it?\n"
FORMS = {
    "Unix": LINES.encode(),
    "Windows": LINES.replace("\n", "\r\n").encode(),
    "old Macintosh": LINES.replace("\n", "\r").encode(),
    "byte order mark": b"\xef\xbb\xbf" + LINES.encode(),
    "Windows with a byte order mark": b"\xef\xbb\xbf" + LINES.replace("\n", "\r\n").encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_the_same_in_every_form(tmp_path, form):
    (tmp_path / "text").write_bytes(FORMS[form])
    assert read_text(tmp_path / "text", "text") == decoded(FORMS[form], "text", "one") == LINES


@pytest.mark.parametrize("content", [b"caf\xe9", "é".encode("utf-16"), b"\xff\xfe", b"a\xc3"])
def test_other_encodings_are_refused_with_the_position_and_a_remedy(content):
    with pytest.raises(InputError, match=r"text must be UTF-8, got one with a bad byte at \d+\. Convert it"):
        decoded(content, "text", "one")


def test_no_other_part_of_the_library_decodes_text():
    """Exceptions are no texts of a user: names in archives, tables of data sets, JSON, own pages and notes."""
    allowed = {
        "core/files.py",
        "core/printable.py",
        "tokenizers/bytes.py",
        "tasks/sources/archives.py",
        "tasks/sources/arrays.py",
        "tasks/sources/cifar_100.py",
        "report/runs.py",
        "report/page.py",
        "experiments/status.py",
    }
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "decode"):
                continue
            # The decode methods of tokenizers and models have arguments that are no strings. base64 is ASCII.
            plain = all(isinstance(arg, ast.Constant) for arg in node.args)
            encoded = "b64encode" in ast.unparse(node)
            assert not plain or encoded or path.relative_to(ROOT).as_posix() in allowed, f"{path}:{node.lineno}"


@pytest.mark.parametrize("tokenizer", TOKENIZERS.names())
@pytest.mark.parametrize("form", FORMS)
def test_a_task_of_a_text_is_the_same_in_every_form(tmp_path, form, tokenizer):
    for name, content in {"a": FORMS["Unix"] * 20, "b": FORMS["Unix"] * 20 if form == "Unix" else None}.items():
        (tmp_path / name).write_bytes(content or FORMS[form][:3] * (FORMS[form][:1] == b"\xef") + body(form) * 20)
    texts = [Text(str(tmp_path / name), tokenizer=tokenizer) for name in "ab"]
    assert texts[0].facts() == texts[1].facts()
    assert texts[0].training.tolist() == texts[1].training.tolist()
    letters = [Letters(str(tmp_path / name), test_texts=(str(tmp_path / name),)) for name in "ab"]
    assert letters[0].whole == letters[1].whole


def body(form):
    return FORMS[form].removeprefix(b"\xef\xbb\xbf")


@dataclass(frozen=True)
class InForm(Corpus):
    form: str = "Unix"

    def read(self, part):
        return FORMS[self.form]


@dataclass(frozen=True)
class PairsInForm(Parallel):
    form: str = "Unix"

    def read(self, part, language):
        return FORMS[self.form].replace(b"\n\n", b"\n").replace(b"\r\n\r\n", b"\r\n").replace(b"\r\r", b"\r")


@pytest.mark.parametrize("form", FORMS)
def test_corpora_are_the_same_in_every_form(form):
    assert InForm(form=form).facts() == InForm().facts()
    assert PairsInForm(pieces=256, form=form).facts() == PairsInForm(pieces=256).facts()


def test_a_stray_carriage_return_does_not_split_a_sentence():
    class Stray(PairsInForm):
        def read(self, part, language):
            return b"one\rtwo\nthree\n" if language == "source" else b"eins zwei\ndrei\n"

    assert len(Stray(pieces=256).training.sources) == 2


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_tables_and_lists_are_the_same_in_every_form(tmp_path, ends, mark):
    (tmp_path / "lists").write_bytes(f"{mark}7\t[MAX 7 4 ]{ends}1\t[MIN 1 2 ]{ends}".encode())
    assert [label for label, _ in read_examples(tmp_path / "lists")] == [7, 1]
    table = f"{mark}filename,label{ends}a.png,a{ends}"
    tables = {f"{part}.csv": table.replace(",a", f",{part}").encode() for part in ("train", "val", "test")}
    files, _ = read_tables(tables | {"a.png": b""}, "")
    assert list(files) == ["train", "val", "test"]


@pytest.mark.parametrize("tokenizer", [Bytes(), BPE.learn("a\n", 256), Words.learn("a\n")])
def test_lone_surrogates_are_refused(tokenizer):
    """Python represents a byte that is not UTF-8 by a lone surrogate."""
    if isinstance(tokenizer, Words):
        assert tokenizer.decode(tokenizer.encode("caf\udce9")) == "<unk>"
        return
    with pytest.raises(InputError, match="text must be encodable as UTF-8"):
        tokenizer.encode("caf\udce9")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run of a character language model on a text with Windows line ends."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text").write_bytes(FORMS["Windows with a byte order mark"] + body("Windows") * 100)
    sizes = ["--preset", "smoke", "--steps", "2", "--sample", "3", "--text", str(folder / "text")]
    assert cli.main(["train", "char-lm", *sizes, "--run", str(folder / "run")]) == 0
    return folder / "run"


@pytest.mark.parametrize("form", FORMS)
def test_commands_read_a_text_in_every_form(run, tmp_path, form, capsys):
    text, pages = body(form), []
    (tmp_path / "text").write_bytes(FORMS[form])
    for arguments in (["--file", str(tmp_path / "text")], ["--text", text.decode()]):
        assert cli.main(["inspect", str(run), *arguments, "--output", str(tmp_path / "page.html")]) == 0
        pages.append((tmp_path / "page.html").read_bytes())
    assert pages[0] == pages[1]
    capsys.readouterr()
    assert (
        cli.main(["generate", str(run), "--prompt", FORMS[form].decode(), "--max-new-tokens", "3", "--seed", "1"]) == 0
    )
    assert capsys.readouterr().out.startswith(LINES)
    assert cli.main(["evaluate", str(run)]) == 0


def test_commands_refuse_files_of_another_encoding(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_bytes(b"caf\xe9 " * 500)
    commands = [["inspect", str(run), "--file", "text"], ["train", "char-lm", "--preset", "smoke", "--text", "text"]]
    commands += [["train", "online-memory", "--preset", "smoke", "--text", "text"]]
    for command in commands:
        assert cli.main(command) == 2
        error = capsys.readouterr().err
        assert "must be UTF-8" in error
        assert "bad byte at 3" in error
        assert len(error.splitlines()) == 1


def test_standard_input_may_have_a_byte_order_mark_and_any_line_ends(monkeypatch):
    from fastweights.commands.translate import _read

    for form in ("Unix", "Windows", "byte order mark", "Windows with a byte order mark"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(FORMS[form])))
        assert [line.strip() for line in _read()] == LINES.split("\n")[:-1]
