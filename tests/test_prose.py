"""Language of the pages: short sentences, the words of the field, tutorials of one pattern whose scripts run."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SENTENCES = runpy.run_path(str(DOCS / "sentences.py"))

MEAN, LONGEST, COLUMNS = 18, 40, 88
"""Words of a sentence on average over a page, words of the longest sentence, and columns of code."""

QUAINT = re.compile(
    r"\b(nobody|whoever|somebody|everybody|strangers?|anew|way back|way forward|go(?:es)? on|gone on|went on"
    r"|(?:is|are|was|were) told|by heart|of (?:one|your|somebody)'s own|slow nets?|vision nets?|to the (?:same )?bits?"
    r"|first call waits|(?:page|paper|text|report|docstring|code) says|who (?:guesses|acts|has|gets|remembers)"
    r"|beside|the house)\b",
    re.IGNORECASE,
)
ALLOWED = ("CONTRIBUTING.md",)
"""Pages that quote the words they advise against."""

REQUIRED = {
    "docs/how-to/training.md": [
        *("mixed precision", "gradient checkpointing", "gradient accumulation", "early stopping", "torchrun", "resume"),
    ],
    "docs/how-to/sequences.md": ["variable-length", "padding", "packing", "attention mask", "initial state"],
    "docs/how-to/states.md": ["truncated backpropagation through time", "prefix caching", "beam search"],
    "docs/concepts/states-and-resets.md": ["hidden state", "recurrent state"],
    "docs/concepts/fast-weights.md": ["slow network", "fast network", "backpropagation", "delta rule", "outer product"],
    "docs/concepts/glossary.md": ["update rule", "few-shot classification", "chance level", "mixed precision"],
    "docs/concepts/backends.md": ["forward pass", "backward pass", "chunkwise parallel form"],
    "docs/tutorials/few-shot.md": ["support set", "query", "data augmentation", "overfit", "vision encoder"],
    "docs/tutorials/language-model.md": ["early stopping", "resume", "bit-identical"],
    "docs/how-to/agents.md": ["policy", "observation", "random policy", "truncation"],
    "docs/how-to/inspect.md": ["time series", "effective rank", "self-contained HTML page"],
    "docs/getting-started/faq.md": ["attention mask", "hidden state", "mixed precision", "pretrained"],
    "README.md": ["linear attention", "DeltaNet", "pip install", "arxiv.org", "update rule"],
}
"""Terms that a reader searches for, on the pages that describe the feature."""


def relative(path):
    return path.relative_to(ROOT).as_posix()


PAGES = SENTENCES["pages"]()


def prose(path):
    """The text of a page without code."""
    return re.sub(r"^( *)```.*?^\1```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_sentences_are_short(path):
    page = SENTENCES["read"](path)
    assert not [sentence for sentence in page.sentences if len(sentence.split()) > LONGEST]
    assert not page.sentences or mean(page.lengths) < MEAN


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_words_are_plain(path):
    if relative(path) not in ALLOWED:
        assert not [match[0] for match in QUAINT.finditer(prose(path))]


@pytest.mark.parametrize("page", REQUIRED)
def test_features_have_the_names_that_readers_search_for(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").lower().split())
    assert not [term for term in REQUIRED[page] if term.lower() not in text]


def requirements(path):
    """The requirements in the errors of a module: the text after "must be"."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("require", "invalid"):
            demand = call.args[2 if call.func.id == "require" else 1]
            yield ast.unparse(demand).lstrip("f").strip("'\"")


SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_errors_demand_a_noun_or_an_adjective():
    """Not "folder must be with images", but "folder must be a folder with images"."""
    texts = [text for path in SOURCES for text in requirements(path)]
    assert len(texts) > 300
    assert [text for text in texts if text.startswith(("with ", "without "))] == []


TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
GUIDES = [path for path in PAGES if not relative(path).startswith(("docs/cells/", "docs/contributing/compiler.md"))]
"""Pages with code of their own. Formulas of cells and kernels of the compiler are generated."""
SCRIPTED = [*TUTORIALS, DOCS / "getting-started" / "quick-start.md", ROOT / "README.md"]


def blocks(path, language):
    """The code blocks of a page in a language, those with prompts left out."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if not block.startswith(">>>")]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_have_one_pattern(path):
    text = path.read_text(encoding="utf-8")
    head = text.partition("\n## ")[0]
    assert [part for part in ("Goal", "Time", "Install", "Data") if f"**{part}:**" not in head] == []
    headings = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert {"Script", "What happened", "Next steps"} <= set(headings)
    assert headings[-1] == "Next steps"
    assert ">>>" not in text, "a script can be pasted"
    assert blocks(path, "python")
    assert blocks(path, "text"), "the expected output"


@pytest.mark.parametrize("path", GUIDES, ids=relative)
def test_code_fits_its_column(path):
    """Messages of errors, which are one line each, scroll."""
    text = path.read_text(encoding="utf-8")
    code = [line for block in re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL) for line in block.splitlines()]
    code += re.findall(r"^    (.*)", text, re.MULTILINE)
    assert not [line for line in code if len(line) > COLUMNS and "InputError: " not in line]


@pytest.mark.parametrize("path", SCRIPTED, ids=lambda path: path.stem)
def test_scripts_print_the_output_of_the_page(path, tmp_path):
    """All code of a page is one script. Its output ends with the blocks of output on the page."""
    if path.stem == "agent":
        pytest.importorskip("gymnasium", reason="needs the extra rl")
    script = tmp_path / "script.py"
    script.write_text("\n".join(blocks(path, "python")), encoding="utf-8")
    done = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("".join(blocks(path, "text")))
