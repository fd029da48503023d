"""Custom data: every recipe trains, resumes and prints how to use its result, and invalid files are refused."""

import io
import re
import shlex
import shutil
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import fastweights
import my_memories
from fastweights import InputError, cli
from fastweights.core.measurements import Detail
from fastweights.experiments.trial import _shared_task
from fastweights.models.sequence_classifier import SequenceClassifier
from fastweights.registry import COMMANDS, RECIPES, TABLES, marked
from fastweights.tasks import ParallelFiles, SequenceFiles, TextFiles
from fastweights.tasks.sources.arrays import read_array
from fastweights.tasks.sources.examples import read_examples
from fastweights.testing import checks_in, labelled_checks, pairs_checks, stream_checks
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.progress import Interrupted
from fastweights.training.session import Session

pytest.importorskip("tokenizers")
pytest.importorskip("sacrebleu")

OWN = [name for name in RECIPES.names() if marked(RECIPES.docstring(name), "Data: yours:")]
WORDS = {"fruit": "apple pear plum fig", "tool": "saw axe file drill"}
LENGTHS = (3, 4, 5, 6)


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """Folder with files of every format. All formats with classes have the same classes."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    _make_sentences(folder, rng)
    _make_texts(folder, rng)
    _make_series(folder, rng)
    for name, n in np.ndindex(15, 3):
        (folder / "pictures" / str(name)).mkdir(parents=True, exist_ok=True)
        noise = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "pictures" / str(name) / f"{n}.png")
    return folder


def _make_sentences(folder, rng):
    words = [" ".join(rng.choice(["red", "dog", "big", "cat", "one", "sun"], 4)) + f" {n}" for n in range(90)]
    (folder / "source.txt").write_text("\n".join(words) + "\n")
    (folder / "target.txt").write_text("\n".join(line[::-1] for line in words) + "\n")
    (folder / "book.txt").write_text("".join(f"{line}. " for line in words * 5))


def _make_texts(folder, rng):
    rows = []
    for label, words in WORDS.items():
        (folder / "texts" / label).mkdir(parents=True)
        for n in range(20):
            text = " ".join(rng.choice(words.split(), 2 + n % 3)) + f" {n}"
            (folder / "texts" / label / f"{n}.txt").write_text(text)
            rows.append(f"{label},{text}")
    (folder / "texts.csv").write_text("\n".join(["label,text", *rows]))
    with zipfile.ZipFile(folder / "texts.zip", "w") as archive:
        for path in sorted((folder / "texts").rglob("*.txt")):
            archive.write(path, Path("mine") / path.relative_to(folder / "texts"))


def _make_series(folder, rng):
    wide, long, x, y, lengths = ["label,a,b,c,d,e,f"], ["label,sequence,u,v"], np.zeros((40, 6, 2)), [], []
    for n in range(40):
        label, length = ("fruit", "tool")[n % 2], LENGTHS[n % 4]
        values = np.round(rng.normal(n % 2, 1, (length, 2)), 3)
        wide.append(",".join([label, *map(str, values[:, 0]), *[""] * (6 - length)]))
        long += [f"{label},s{n},{u},{v}" for u, v in values]
        x[n, :length] = values
        y.append(label)
        lengths.append(length)
        (folder / "series" / label).mkdir(parents=True, exist_ok=True)
        np.save(folder / "series" / label / f"{n}.npy", values)
        (folder / "rows" / label).mkdir(parents=True, exist_ok=True)
        (folder / "rows" / label / f"{n}.csv").write_text("\n".join(["u,v", *(f"{u},{v}" for u, v in values)]))
    (folder / "wide.csv").write_text("\n".join(wide))
    (folder / "long.tsv").write_text("\n".join(long).replace(",", "\t"))
    np.savez(folder / "arrays.npz", x=x, y=np.array(y), lengths=np.array(lengths))


FORMATS = ("texts", "texts.csv", "texts.zip", "series", "rows", "wide.csv", "long.tsv", "arrays.npz")
EXAMPLES = {
    "classifier": ["texts"],
    "few-shot": ["pictures", "--ways", "3", "--held-out", "20"],
    "language-model": ["--text", "book.txt", "--sample", "4"],
    "translation": ["--source", "source.txt", "--target", "target.txt"],
}
"""Arguments of recipes in the data folder."""


@pytest.fixture
def here(data_folder, tmp_path, monkeypatch):
    """Copy of the data in the current folder."""
    shutil.copytree(data_folder, tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    return tmp_path / "files"


def train(name, run, *flags):
    return cli.main(["train", name, *EXAMPLES[name], "--preset", "smoke", "--run", run, *map(str, flags)])


def refused(arguments, capsys):
    """Asserts status 2 with one line of output, and returns the line."""
    capsys.readouterr()
    assert cli.main(list(map(str, arguments))) == 2
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1, message
    return message


@pytest.mark.parametrize("name", RECIPES.names())
def test_every_recipe_names_a_command_for_its_result(name):
    command, run, *_ = RECIPES.load(name).USE.split()
    assert command in COMMANDS.names()
    assert run == "RUN"
    assert name in TABLES.names(), "a report has a table for its runs"


def test_help_names_the_recipes_for_own_data_first(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    own, named = capsys.readouterr().out.split("\nyour data:\n")[1].split("named data sets:")
    assert re.findall(r"^  (\S+)", own, re.MULTILINE) == OWN
    assert all(name in named for name in set(RECIPES.names()) - set(OWN))


def test_help_of_multi30k_names_the_recipe_for_own_data(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "multi30k", "--help"])
    assert "For your data: fastweights train translation." in " ".join(capsys.readouterr().out.split())


def _files(run, *names):
    return [(Path(run) / name).read_bytes() for name in ("last.safetensors", "best.safetensors", *names)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_interrupted_run_resumes_bit_identically(name, here, monkeypatch, capsys):
    end_step = Session.end_step

    def stop(session, *arguments):
        end_step(session, *arguments)
        if session.progress.step == 3:
            raise Interrupted("Stopped.")

    assert train(name, "whole") == 0
    with monkeypatch.context() as patch:
        patch.setattr(Session, "end_step", stop)
        assert train(name, "killed") == 130
    assert cli.main(["train", name, "--run", "killed", "--resume"]) == 0
    assert _files("killed") == _files("whole")
    assert "left" in capsys.readouterr().out


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("layer", ["lstm", f"{my_memories.__file__}:fading"])
def test_any_layer_trains_and_the_printed_commands_run(name, layer, here, capsys):
    assert train(name, "run", "--layer", layer) == 0
    output = capsys.readouterr().out
    (command,) = re.findall(r"^Use it: fastweights (.+)$", output, re.MULTILINE)
    (call,) = re.findall(r"^In Python: model, task = (.+)$", output, re.MULTILINE)
    _lay_out_for_use(here)
    words = [{"FILE": "use.txt", "FOLDER": "use"}.get(word, word) for word in shlex.split(command)]
    # The prompt must consist of characters of the text.
    words = ["red" if word == "The" else word for word in words]
    assert cli.main(words) == 0
    assert capsys.readouterr().out.strip()
    model, _ = eval(call, {"fastweights": fastweights})
    assert not model.training


def _lay_out_for_use(here):
    (here / "use.txt").write_text("apple pear")
    for name in ("a", "b"):
        shutil.copytree(here / "pictures" / "0", here / "use" / name, dirs_exist_ok=True)
        for extra in (here / "use" / name).glob("[12].png"):
            extra.unlink()
    shutil.copy(here / "pictures" / "1" / "0.png", here / "use")


@pytest.mark.parametrize("name", ["classifier", "translation"])
def test_a_layer_without_lengths_is_refused(name, here, capsys):
    flags = ["--layer", f"{my_memories.__file__}:Wrapped", "--preset", "smoke", "--run", "run"]
    assert "layer must be a layer with the argument lengths" in refused(
        ["train", name, *EXAMPLES[name], *flags], capsys
    )


CHANGED = {"classifier": "texts/tool/1.txt", "language-model": "book.txt", "translation": "target.txt"}


@pytest.mark.parametrize("name", CHANGED)
def test_changed_files_are_refused(name, here, capsys):
    assert train(name, "run") == 0
    file = here / CHANGED[name]
    file.write_text("another" + file.read_text())
    _shared_task.cache_clear()  # the cache reads data once per process
    for command in (["train", name, "--run", "run", "--resume"], ["evaluate", "run"]):
        assert "must be the data that run was started with" in refused(command, capsys)


@pytest.mark.parametrize("name", OWN)
def test_missing_files_leave_no_run(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Without flags, few-shot trains on Omniglot and an agent trains in CartPole.
    if name not in ("few-shot", "agent"):
        assert " must be " in refused(["train", name], capsys)
    for flags in (EXAMPLES.get(name, ["--env", "NoSuchEnvironment-v0"]), ["--no-such-flag", "1"]):
        refused(["train", name, *flags, "--run", "run"], capsys)
    assert not list(tmp_path.iterdir())


def test_reports_have_a_table_of_runs_on_own_data(here, capsys):
    for layer in ("lstm", "delta-net"):
        assert train("classifier", f"runs/{layer}", "--layer", layer) == 0
    assert cli.main(["report", "runs"]) == 0
    text = (here / "runs" / "report.md").read_text()
    assert "Classification of your sequences" in text
    assert "lstm, preset smoke" in text
    assert "not counted" not in text


@pytest.mark.parametrize("words", [["texts", "--steps", "7"], ["--steps", "7", "texts"], ["--data=texts", "--steps=7"]])
def test_the_data_of_a_classifier_may_be_a_positional_argument(words, here, capsys):
    shutil.rmtree(here / "texts" / "fruit")
    assert "at least two classes" in refused(["train", "classifier", *words], capsys)


# Sequences


def task_of(folder, name, **changes):
    return SequenceFiles(**{"data": str(folder / name), "data_seed": 1, **changes})


@pytest.mark.parametrize("check", list(checks_in(labelled_checks)))
@pytest.mark.parametrize("name", FORMATS)
def test_sequences_have_the_guarantees_of_labelled_tasks(name, check, data_folder):
    checks_in(labelled_checks)[check](lambda **changes: task_of(data_folder, name, **changes))


@pytest.mark.parametrize("names", [("texts", "texts.csv", "texts.zip"), ("series", "rows", "long.tsv", "arrays.npz")])
def test_all_formats_contain_the_same_sequences(names, data_folder):
    def content(name):
        return sorted((e.label, np.asarray(e.value).tolist()) for e in read_examples(data_folder / name))

    assert all(content(name) == content(names[0]) for name in names)


def test_features_are_normalised_with_the_training_set_alone(data_folder, tmp_path):
    task = task_of(data_folder, "arrays.npz")
    whole = torch.cat(
        [batch.inputs.values[n, :t] for batch in _epoch(task) for n, t in enumerate(batch.inputs.lengths)]
    )
    assert whole.mean(0).abs().max() < 1e-5
    assert (whole.std(0, correction=0) - 1).abs().max() < 1e-4
    arrays = dict(np.load(data_folder / "arrays.npz"))
    np.savez(tmp_path / "other.npz", **(arrays | {"x": 100 * arrays["x"]}))
    others = task_of(data_folder, "arrays.npz", test_data=str(tmp_path / "other.npz"))
    assert (
        others.encoding.moments.tolist()
        == task_of(data_folder, "arrays.npz", test_data=str(data_folder / "arrays.npz")).encoding.moments.tolist()
    )


def _epoch(task):
    batches = task.train_batches(8, 0)
    return [next(batches) for _ in range(-(-task.training_size // 8))]


def test_parts_contain_every_class_and_separate_test_files_are_whole(data_folder):
    task = task_of(data_folder, "texts")
    assert [sorted(part.labels.tolist()) for part in task.sets[1:]] == [[0, 0, 1, 1]] * 2
    separate = task_of(data_folder, "texts", test_data=str(data_folder / "texts.csv"))
    assert [len(part.labels) for part in separate.sets] == [36, 4, 40]
    other = task_of(data_folder, "texts", data_seed=2)
    assert other.facts()["sha256"] != task.facts()["sha256"]


def test_the_majority_class_is_the_baseline(tmp_path):
    rows = ["label,a,b"] + [f"{'rare' if n % 5 == 0 else 'usual'},{n % 7},{n % 3}" for n in range(100)]
    (tmp_path / "data.csv").write_text("\n".join(rows))
    task = SequenceFiles(data=str(tmp_path / "data.csv"))
    assert task.chance["accuracy"] == 0.8
    assert "2 classes, of which 'usual' has 80 %" in task.summary_line
    targets = torch.cat([batch.targets for batch in task.test(3)])
    summary = task.summary(task.details(task.baseline_outputs(targets), targets))
    assert (summary["accuracy"], summary["balanced_accuracy"]) == pytest.approx((0.8, 0.5))
    assert (summary[Detail("recall of", "rare")], summary[Detail("recall of", "usual")]) == (0, 1)


@pytest.mark.parametrize("name", ["texts", "series"])
@pytest.mark.parametrize("layer", ["delta-net", "lstm", "softmax-attention"])
def test_padding_and_batching_do_not_change_the_class(name, layer, data_folder):
    """The class of a sequence is the same alone and in a batch with arbitrary padding."""
    task = task_of(data_folder, name)
    model = SequenceClassifier(*task.arguments, layer, d_model=16, num_heads=2, conv_size=4).double()
    batch = next(task.test(4)).inputs
    values = batch.values.double() if batch.values.is_floating_point() else batch.values
    whole = model.eval()(batch._replace(values=values))
    for n, length in enumerate(batch.lengths):
        alone = model(type(batch)(values[n : n + 1, :length], batch.lengths[n : n + 1]))
        assert error(whole[n : n + 1], alone) < tolerance(torch.float64).forward
    noise = (
        values.masked_fill(torch.arange(values.shape[1])[None, :, None] >= batch.lengths[:, None, None], 1e9)
        if name == "series"
        else values
    )
    assert error(model(batch._replace(values=noise)), whole) < tolerance(torch.float64).forward


@pytest.mark.parametrize("name", ["texts", "arrays.npz"])
def test_classification_needs_the_run_folder_only(name, here, capsys):
    """The run folder contains class names, tokenizer and moments. The training files may be missing."""
    assert cli.main(["train", "classifier", name, "--preset", "smoke", "--run", "run"]) == 0
    examples = task_of(here, name).read(here / name)
    before = fastweights.load("run").task.batch([example.value for example in examples])
    file = here / ("new.npz" if name == "arrays.npz" else "new.txt")
    if name == "arrays.npz":
        arrays = dict(np.load(here / name))
        del arrays["y"]
        np.savez(file, **arrays)
    else:
        file.write_text(examples[0].value)
    (here / name).rename(here / "moved")
    task = fastweights.load("run").task
    assert all(torch.equal(*pair) for pair in zip(before, task.batch([e.value for e in examples]), strict=True))
    capsys.readouterr()
    assert cli.main(["classify", "run", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (40 if name == "arrays.npz" else 1)
    assert all(re.fullmatch(r".+: (fruit|tool), \d+ %", line) for line in lines)


def test_other_models_and_other_data_are_refused(here, capsys):
    assert train("classifier", "texts-run") == 0
    assert train("language-model", "book-run") == 0
    assert "run must be a run of a classifier or a few-shot network" in refused(
        ["classify", "book-run", "use.txt"], capsys
    )
    assert "data must be texts, as in training, got numbers" in refused(["classify", "texts-run", "series"], capsys)
    assert "an existing file or folder" in refused(["classify", "texts-run", "nowhere"], capsys)


WRONG_TABLES = {
    "no header": ("1,2,3\n4,5,6\n", "with a header"),
    "no label": ("a,b\n1,2\n", "without labels"),
    "one class": ("label,a\nx,1\nx,2\nx,3\n", "at least two classes"),
    "few": ("label,a\nx,1\ny,2\n", "at least 3 sequences of one class"),
    "a word": ("label,a\nx,1\ny,no\n", "a table of numbers"),
    "not a number": ("label,a\nx,1\ny,nan\n", "a table of finite numbers"),
    "too large": ("label,a\nx,1\ny,1e99\n", "a table of finite numbers"),
    "a gap": ("label,a,b\nx,1,2\ny,,2\n", "a table of numbers"),
    "uneven": ("label,a,b\nx,1,2\ny,2\n", "of 3 columns in every row"),
    "twice": ("label,a,a\nx,1,2\n", "different names of columns"),
    "no features": ("label\nx\ny\n", "columns of features"),
    "label missing": ("label,a\nx,1\n,2\n", "a label in every row"),
    "two labels": ("label,sequence,a\nx,s,1\ny,s,2\n", "one label per sequence"),
    "length": ("label,length,a\nx,2,1\ny,1,2\n", "a whole number from 1 to 1"),
    "and text": ("label,text,id\nx,a,1\n", "columns label and text"),
    "open quote": ('label,text\na,"b\n', "must be a table, got something else: unexpected end of data"),
    "no name": ("label,a\n" + '" ",1\ny,2\n' * 3, "a label in every row"),
    "nothing": ("", "a file that is not empty, got the empty one"),
    "UTF-16": ("label,a\nx,1\n".encode("utf-16"), "must be UTF-8, got one with a bad byte at 0"),
    "control characters": ("label,a\n" + "x\x1b[2J,1\ny,2\n" * 3, "printable characters"),
}


@pytest.mark.parametrize(("content", "message"), WRONG_TABLES.values(), ids=WRONG_TABLES)
def test_wrong_tables_are_refused_in_one_line(content, message, tmp_path, capsys):
    file = tmp_path / "data.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused(["train", "classifier", file, "--run", tmp_path / "run"], capsys)
    assert not (tmp_path / "run").exists()


def test_empty_texts_are_left_out(tmp_path):
    x, y = np.array(["", "  ", "a b", "c d"] * 10), np.arange(40) % 2
    np.savez(tmp_path / "data.npz", x=x, y=y)
    task = SequenceFiles(data=str(tmp_path / "data.npz"), tokenizer="words")
    assert sum(len(part.labels) for part in task.sets) == 20


def test_folders_of_splits_are_not_classes(here, capsys):
    for part in ("train", "test"):
        shutil.copytree(here / "texts", here / "split" / part)
    message = refused(["train", "classifier", "split"], capsys)
    assert f"--data {here}/split/train" in message
    flags = ["split/train", "--test-data", "split/test", "--preset", "smoke", "--run", "run"]
    assert cli.main(["train", "classifier", *flags]) == 0


def test_hidden_folders_are_not_classes(here):
    for name in (".ipynb_checkpoints", "__MACOSX"):
        shutil.copytree(here / "texts" / "tool", here / "texts" / name)
    assert task_of(here, "texts").classes == ("fruit", "tool")


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    np.arange(4, dtype=">f4"),
    np.array(["a", "bcd", "\u00fc\U0001f600"]),
    np.array([True, False]),
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_equal_those_written_by_numpy(array):
    read = read_array(npy(array), "x")
    assert read.tolist() == array.tolist()
    assert read.dtype == array.dtype


def test_a_false_shape_in_a_header_allocates_nothing():
    """Headers may state any number of values. Objects and structured arrays are refused."""
    whole = npy(np.zeros((2, 3)))
    claims = ["(999999999, 999999999)", "(2, 4)", "(0, 999999999999)", "()", "(-1, 3)", "(2,)", f"({'9' * 60},)"]
    contents = [whole.replace(b"(2, 3)", claim.encode()) for claim in claims]
    contents += [whole.replace(b"<f8", kind) for kind in (b"|O8", b"<U9999999", b"<U0", b"<c8", b"<M8[s]", b"<f3")]
    contents += [npy(np.array(["a"])).replace(b"a\0\0\0", b"\xff\xff\xff\xff"), npy(np.zeros(2, "f4,i4"))]
    contents += [whole[:n] for n in range(0, len(whole), 7)]
    tracemalloc.start()
    for content in contents:
        with pytest.raises(InputError):
            read_array(content, "x")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_objects_are_never_unpickled(tmp_path, capsys):
    np.savez(tmp_path / "data.npz", x=np.array([{"a": 1}, None], dtype=object), y=np.array([0, 1]))
    assert "numbers or strings" in refused(["train", "classifier", tmp_path / "data.npz"], capsys)


def _read_or_refused(read):
    """Calls `read`, which may raise `InputError` only."""
    with suppress(InputError):
        read()


@settings(max_examples=150)
@given(
    name=st.sampled_from(["texts.csv", "wide.csv", "long.tsv", "arrays.npz", "texts.zip", "series/tool/1.npy"]),
    place=st.floats(0, 1),
    noise=st.binary(max_size=40),
    cut=st.booleans(),
)
def test_damaged_files_are_read_or_refused(name, place, noise, cut, data_folder, tmp_path):
    content = (data_folder / name).read_bytes()
    start = int(place * len(content))
    damaged = content[:start] + noise + (b"" if cut else content[start + len(noise) :])
    file = tmp_path / Path(name).name
    file.write_bytes(damaged)
    _read_or_refused(lambda: SequenceFiles(data=str(file)).sets)
    _read_or_refused(lambda: read_examples(file, "files"))


@settings(max_examples=100)
@given(content=st.binary(max_size=200), suffix=st.sampled_from([".csv", ".tsv", ".npy", ".npz", ".txt", ".zip", ".gz"]))
def test_random_bytes_are_read_or_refused(content, suffix, tmp_path):
    (tmp_path / f"x{suffix}").write_bytes(content)
    _read_or_refused(lambda: read_examples(tmp_path / f"x{suffix}"))


# Sentences


def files(folder, source, target, **others):
    names = {}
    for name, content in {"source": source, "target": target, **others}.items():
        names[name] = str(folder / f"{name}.txt")
        Path(names[name]).write_bytes(content if isinstance(content, bytes) else content.encode())
    return names


@pytest.mark.parametrize("check", checks_in(pairs_checks))
def test_parallel_files_have_the_guarantees_of_pairs(check, data_folder):
    own = {"source": str(data_folder / "source.txt"), "target": str(data_folder / "target.txt"), "pieces": 300}
    checks_in(pairs_checks)[check](lambda **changes: ParallelFiles(**(own | changes)))


def test_unequal_line_counts_are_refused_with_both_counts(tmp_path, capsys):
    names = files(tmp_path, "a\nb\nc\n", "a\nb\n")
    message = refused(["train", "translation", "--source", names["source"], "--target", names["target"]], capsys)
    assert f"3 in {names['source']} and 2 in {names['target']}" in message


def pairs_of(task):
    parts = (task.training, task.validation, task.test)
    return [[(task.decode(s), r) for s, r in zip(part.sources, part.references, strict=True)] for part in parts]


def test_every_usable_pair_is_in_exactly_one_part(tmp_path):
    rows = [(f"s{n}", f"t{n}") for n in range(40)]
    unusable = [("", "t"), ("s", ""), (" ", " "), ("s0", "t0"), ("x" * 10_001, "t"), ("s", "y " * 400)]
    source, target = ("\n".join(side) for side in zip(*rows, *unusable, strict=True))
    task = ParallelFiles(**files(tmp_path, source, target), pieces=256, held_out=5)
    training, validation, test = pairs_of(task)
    assert (len(validation), len(test)) == (5, 5)
    assert sorted([*training, *validation, *test]) == sorted(rows)
    assert "30 sentence pairs for training, 5 for validation, 5 for the test; 6 are left out" in task.summary_line
    assert pairs_of(ParallelFiles(**files(tmp_path, source, target), pieces=256, held_out=5, data_seed=1)) != pairs_of(
        task
    )


def test_held_out_files_are_never_used_for_training(tmp_path):
    source, target = ("\n".join(f"{side}{n}" for n in range(20)) for side in "st")
    held_out = {"test_source": "s1\ns99\n", "test_target": "t1\nt99\n"}
    training, validation, test = pairs_of(ParallelFiles(**files(tmp_path, source, target, **held_out), pieces=256))
    assert test == [("s1", "t1"), ("s99", "t99")]
    assert len(validation) == 1
    assert ("s1", "t1") not in [*training, *validation]


def test_the_tokenizer_learns_from_training_pairs_alone(tmp_path):
    source, target = ("\n".join(f"{side}{n}" for n in range(20)) for side in "st")
    rare = "qqqqqqqq qqqqqqqq"
    names = files(tmp_path, source, target, test_source=rare, test_target=rare)
    assert "qq" not in ParallelFiles(**names, pieces=400).tokenizer.facts()


@settings(max_examples=60)
@given(source=st.binary(max_size=300), target=st.binary(max_size=300))
def test_random_parallel_files_are_read_or_refused(source, target, tmp_path):
    names = files(tmp_path, source, target)
    _read_or_refused(lambda: ParallelFiles(**names, pieces=256).test)


# Texts


@pytest.mark.parametrize("check", checks_in(stream_checks))
def test_texts_in_several_files_have_the_guarantees_of_streams(check, data_folder):
    own = {
        "text": str(data_folder / "book.txt"),
        "test_text": str(data_folder / "source.txt"),
        "validation_text": str(data_folder / "target.txt"),
    }
    checks_in(stream_checks)[check](lambda **changes: TextFiles(**(own | changes)))


def test_separate_parts_of_a_text_are_used_whole(data_folder):
    book, other = str(data_folder / "book.txt"), str(data_folder / "source.txt")
    task = TextFiles(text=book, test_text=other)
    assert task.decode(task.test) == Path(other).read_text()
    assert task.decode(torch.cat([task.training, task.validation])) == Path(book).read_text()
    both = TextFiles(text=book, test_text=other, validation_text=other)
    assert both.decode(both.training) == Path(book).read_text()
    assert both.sha256 != task.sha256 != TextFiles(text=book).sha256
