"""The code of the pages on pretrained models runs as it stands."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HOW_TO = Path(__file__).parents[1] / "docs" / "how-to"
SOURCE = Path(__file__).parents[1] / "src"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def code_of(page, section=""):
    """The Python code of a page, or of one section of it, without the examples that `pytest` runs."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    if section:
        text = re.split(r"^## ", text.partition(f"## {section}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return "\n".join(block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if ">>>" not in block)


def run(code, folder):
    """Runs a script in a folder, and returns what it prints."""
    (folder / "page.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCE, BENCHMARKS))), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "page.py"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not (find_spec("peft") and find_spec("transformers")), reason="needs peft and transformers")
def test_the_fine_tuning_page_reduces_the_loss(tmp_path):
    code = code_of("fine-tune.md")
    assert code.count("max_steps=40") == code.count("logging_steps=10") == 1
    printed = run(code.replace("max_steps=40", "max_steps=8").replace("logging_steps=10", "logging_steps=2"), tmp_path)
    losses = [float(loss) for loss in re.findall(r"'loss': '?([0-9.]+)", printed)]
    assert losses[-1] < losses[0]
    assert (tmp_path / "fine-tuned" / "adapter_model.safetensors").is_file()
    assert "The statement" in printed


MAKE = """
import torch
import fla_models
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

fla_models.small("DeltaNet").save_pretrained("small")
words = Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, "Fast": 3, "weights": 4, "are": 5}, "<pad>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>").save_pretrained("small")
"""


@pytest.mark.slow
@pytest.mark.skipif(not (find_spec("fla") and find_spec("triton")), reason="needs flash-linear-attention and triton")
def test_the_page_on_models_of_the_hub_generates_text(tmp_path):
    code = code_of("fla.md", "Run a model of the fla hub without a GPU")
    hub = '"fla-hub/delta_net-1.3B-100B"'
    assert code.count(hub) == 1
    run(MAKE, tmp_path)
    assert "Fast weights are" in run(code.replace(hub, '"small"'), tmp_path)
    code = code_of("fla.md", "Open a checkpoint without flash-linear-attention")
    checkpoint = '"path/to/delta_net-1.3B-100B"'
    assert code.count(checkpoint) == 1
    run(code.replace(checkpoint, '"small"'), tmp_path)


@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
def test_tables_of_the_pages_equal_the_committed_measurements(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hugging_face
    from page import written

    command = "run benchmarks/hugging_face.py"
    page = written(HOW_TO / "transformers.md", "hugging_face")
    assert page == hugging_face.page_tables(), f"{command} --into docs/how-to/transformers.md"
    page = written(HOW_TO / "fla.md", "hugging_face")
    assert page == hugging_face.fla_page_table(), f"{command} --fla --into docs/how-to/fla.md"
