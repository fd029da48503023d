"""The Triton kernels: what they mean to Triton's interpreter, and what assemblers make of them. No GPU is needed."""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch

from fastweights import Cell, cli
from fastweights.backends.chunkwise.fused_scan import FusedForm, ScanOperands, missing_kernels
from fastweights.backends.chunkwise.lowering import ScanStage, lowering_for
from fastweights.backends.chunkwise.stage_scan import erasing_writes, limit
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import passes, source
from fastweights.compiler.targets.triton import target
from fastweights.compiler.targets.triton.functions import CODE
from fastweights.compiler.targets.triton.partition import cut
from fastweights.compiler.targets.triton.source import TritonSource, sourced
from fastweights.testing import backends_of
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state

pytest.importorskip("triton")

SCRIPT = Path(__file__).parent / "interpreted.py"


def interpreted(check: str, *names: str, script: Path = SCRIPT, separator: str = " ") -> dict[str, str]:
    """The output of a check of cells, in a process with the interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), check, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    return dict(line.split(separator, 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("part", [0, 1])
def test_kernels_of_every_cell_equal_the_reference(part):
    """Values, all gradients, resets, T that is no multiple of a chunk; in memory that holds NaN until it is written."""
    names = Cell.names()[part::2]
    assert interpreted("equals_the_reference", *names) == dict.fromkeys(names, "ok")


@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("equals_the_reference_everywhere", "delta"),
        ("equals_the_reference_cut", "linear-attention"),
        ("every_variant_equals_the_reference", "delta-rnn"),
        pytest.param("chunks_equal_the_reference_everywhere", "gated-delta", marks=pytest.mark.slow),
        pytest.param("chunks_equal_the_reference_everywhere", "gated-slot-attention", marks=pytest.mark.slow),
        pytest.param("chunks_equal_the_reference_everywhere", "gated-oja", marks=pytest.mark.slow),
        ("gradients_pass_two_layers", "delta-rnn"),
        ("check_compiles", "delta"),
        ("is_an_operation", "delta-rnn"),
    ],
)
def test_guarantees(check, name):
    assert interpreted(check, name) == {name: "ok"}


RECURRENT = [name for name in Cell.names() if "chunkwise" not in backends_of(Cell.from_name(name))]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECURRENT)
def test_every_variant_of_every_recurrent_cell_equals_the_reference(name):
    """Tensors computed ahead or in the loop, and loads one step ahead or not; and heads that are cut into programs."""
    for check in ("every_variant_equals_the_reference", "equals_the_reference_cut"):
        assert interpreted(check, name) == {name: "ok"}


def sources(name: str, num_heads: int) -> TritonSource:
    cell, shape = Cell.from_name(name), Shape(1, 1, 1, 8, 8)
    sizes = sizes_of(cell, given(cell, shape))
    return sourced(passes(cell, sizes, torch.float32), name, torch.float32, num_heads)


@pytest.mark.parametrize("name", ["delta-rnn", "recurrent-delta-net", "srwm"])
def test_the_recompute_pass_keeps_tensors_that_are_smaller_than_the_state(name):
    """The gradient reads these tensors and does not compute them again."""
    made = sources(name, 1024)
    recompute, backward = made.text.partition("for n in range(0, stop - start)")[::2]
    kept = {*re.findall(r"(kept_\d+) =", recompute)}
    assert len(kept) == len(made.passes.recompute.made) > 0
    assert kept == {*re.findall(r"next_(kept_\d+) =", backward)}
    assert made.chunk_numbers <= 2 * sum(d.size for d in made.step.state.values())


def test_functions_of_inputs_leave_the_loop_for_few_heads():
    few, many = (sources("delta-rnn", heads).text for heads in (256, 1024))
    prepare, (_, *passes_over_time) = few.partition("def prepare")[2], few.partition("def prepare")[0].split("for t in")
    assert "tl.exp(" in prepare
    assert [text.count("tl.exp(") for text in passes_over_time] == [1, 1], "softmax(y) alone is left"
    assert "def prepare" not in many


def test_tensors_read_out_of_order_are_in_memory():
    """By a new state, an output or a gradient, too."""
    names = [f"{SCRIPT.with_name('my_memories.py')}:{name}" for name in OUT_OF_ORDER]
    for check in ("equals_the_reference_everywhere", "equals_the_reference_cut"):
        assert interpreted(check, *names) == dict.fromkeys(names, "ok")


OUT_OF_ORDER = ("flipped", "summed_so_far", "turned_around", "from_all_sides")


TURNING = f"{SCRIPT.with_name('my_memories.py')}:turning"


def test_chunks_of_every_affine_cell_equal_the_reference():
    names = [name for name in Cell.names() if "chunkwise" in backends_of(Cell.from_name(name))] + [TURNING]
    assert interpreted("chunks_equal_the_reference", *names) == dict.fromkeys(names, "ok")


def test_scan_stages_of_every_cell_are_fused():
    """So that `test_chunks_of_every_affine_cell_equal_the_reference` compares fused kernels with the reference."""
    reasons = {}
    for cell in map(Cell.from_name, Cell.names()):
        inner = cell if cell.inside is None else cell.inside[0]
        sizes = sizes_of(inner, given(inner, Shape(1, 1, 1, 5, 4)))
        lowering = lowering_for(inner.key, tuple(sizes.items()), torch.float32)
        if not isinstance(lowering, str):
            reasons[cell.name] = {limit(stage) for stage in lowering.stages if isinstance(stage, ScanStage)} - {""}
    # Eight states of one head mix.
    assert reasons.pop("log-linear-attention") == {"more than two of its states mix"}
    assert len(reasons) > 40
    assert not any(reasons.values()), reasons


def test_three_erasing_writes_with_reads_on_both_sides_are_fused():
    """Three writes fill up a group of four. A read before the step and one after it do not fit into one group."""
    (stage,) = lowering_for(Cell.from_function(TURNING).key, (("K", 3), ("V", 2)), torch.float32).stages
    assert (limit(stage), erasing_writes(stage), len(stage.queries)) == ("", 3, 2)


def interpreted_chunks(check: str, *cases: str) -> dict[str, str]:
    """The result of a check of the fused chunk kernels per case."""
    return interpreted(check, *cases, script=SCRIPT.with_name("interpreted_chunks.py"), separator=": ")


SLOW = [pytest.param(decay, marks=pytest.mark.slow) for decay in ("mixing", "mixing by column")]


@pytest.mark.parametrize("decay", ["no decay", "decay", "decay by column", *SLOW])
def test_fused_chunk_kernels_equal_a_loop(decay):
    """Values, the last S and all gradients: also for equal keys with rates up to 2, and for decays of 0 and below."""
    cases = [f"{keys}, {decay}" for keys in ("sum", "one key", "similar keys", "other erase")]
    assert interpreted_chunks("equals_the_loop", *cases) == dict.fromkeys(cases, "ok")


@pytest.mark.parametrize(
    "case",
    [
        "one key, decay",
        *(pytest.param(c, marks=pytest.mark.slow) for c in ("sum, no decay", "other erase, decay by column")),
        pytest.param("similar keys, mixing", marks=pytest.mark.slow),
    ],
)
def test_sequences_that_are_cut_into_segments_equal_a_loop(case):
    """Values, the last S and all gradients, where the last segment is shorter than the others."""
    assert interpreted_chunks("equals_the_loop_cut", case) == {case: "ok"}


def test_only_long_sequences_that_do_not_fill_a_gpu_are_cut():
    """The size of the batch does not matter, so a sequence has the same bits alone and in a batch."""
    from fastweights.backends.chunkwise.triton.fused_scan import LONG, SEGMENT, segment_chunks

    form = FusedForm(128, 128, 1, states=1, erases=1, reads_after=True, is_half=True)
    assert segment_chunks(form, 32, LONG, processors=132) == SEGMENT
    assert segment_chunks(form, 32, LONG - 1, processors=132) == LONG - 1
    assert segment_chunks(form, 132, LONG, processors=132) == LONG
    assert segment_chunks(form._replace(K=256), 32, LONG, processors=132) == LONG
    assert segment_chunks(form, 32, 0, processors=132) == 1


@pytest.mark.parametrize(
    ("check", "case"),
    [
        ("is_alone_what_it_is_in_a_batch", "one key, decay"),
        ("is_alone_what_it_is_in_a_batch", "one key, decay by column"),
        pytest.param("is_alone_what_it_is_in_a_batch_cut", "one key, decay", marks=pytest.mark.slow),
        ("is_an_operation", "sum, no decay"),
        ("traces_whole", "gated-delta"),
        ("reads_half_precision", "delta"),
        ("reads_half_precision", "gla"),
        ("traces_whole", "gated-slot-attention"),
    ],
)
def test_guarantees_of_the_fused_chunk_kernels(check, case):
    assert interpreted_chunks(check, case) == {case: "ok"}


@pytest.mark.parametrize(
    ("chip", "decay", "states"),
    [("sm_80", 1, 1), ("sm_90", 64, 1), ("sm_90", 4, 2), ("sm_100", 1, 1), ("gfx942", 64, 1)],
)
def test_fused_chunk_kernels_build_for_chips_that_are_not_here(chip, decay, states):
    from fastweights.backends.chunkwise.triton import fused_scan

    form = FusedForm(64, 64, decay, states, erases=2 // states, reads_after=True, is_half=True)
    spills = {name: fused_scan.assembled(name, form, torch.float32, chip).spills for name in fused_scan.KERNELS}
    assert max(spills.values()) <= 64, spills


def test_many_programs_lie_on_the_first_axis_of_a_grid():
    """The other axes have at most 65,535 programs."""
    from fastweights.backends.chunkwise.triton.fused_scan import Launch

    q, k, v = torch.empty(3, 3000, 17, 32, 16, device="meta").unbind()
    operands = ScanOperands(q, k, None, v, None, torch.empty(3000, 32, 16, 16, device="meta"))
    launch = Launch(operands, FusedForm(16, 16, 0, states=1, erases=0, reads_after=True, is_half=False))
    assert launch.chunks == (3000 * 32 * 2,)
    assert launch.rows == (3000 * 32, 1)


def test_the_explanation_of_chunks_names_fused_kernels_or_the_reason_against(monkeypatch, capsys):
    import triton

    assert missing_kernels("cuda") == ""
    assert missing_kernels("mps") == "there are none for mps"
    assert cli.main(["explain", "log-linear-attention", "--target", "sm_90"]) == 0
    assert "in PyTorch, not in fused kernels: more than two of its states mix" in capsys.readouterr().out
    assert cli.main(["explain", "delta", "--device", "meta"]) == 0
    assert "(in PyTorch, not in fused kernels: there are none for meta)" in capsys.readouterr().out
    large = lowering_for(Cell.from_name("delta").key, (("K", 300), ("V", 16)), torch.float32)
    assert limit(large.stages[0]) == "its state has more than 256 columns"
    monkeypatch.setattr(triton, "__version__", "3.5.1")
    assert missing_kernels("cuda") == "Triton is 3.5.1, and 3.6 is needed. pip install 'fastweights[gpu]'"


def test_every_function_has_its_code():
    assert CODE.keys() == FUNCTIONS.keys()


def test_every_function_is_torch_s_at_the_edges_of_its_range():
    assert interpreted("function_equals_torch", *FUNCTIONS) == dict.fromkeys(FUNCTIONS, "ok")


def given(cell: Cell, shape: Shape) -> list[torch.Tensor]:
    parts = (sample_inputs(cell, shape), sample_state(cell, shape), sample_params(cell, shape) or ())
    return [x for part in parts for x in part]


def lowered(cell: Cell, shape: Shape):
    return passes(cell, sizes_of(cell, given(cell, shape)), torch.float64).step


@pytest.mark.parametrize("name", Cell.names())
def test_rows_that_are_cut_never_meet(name):
    """By autograd: a row of a new state depends on no other row of the old one."""
    cell, shape = Cell.from_name(name), Shape(1, 1, 1, 5, 4)
    parts = cut(lowered(cell, shape))
    if parts is None:
        assert name not in ("sum", "delta", "gated-delta", "linear-attention")
        return
    state = [x[0, 0] for x in sample_state(cell, shape)]
    inputs = cell.Inputs(*(x[0, 0, 0] for x in sample_inputs(cell, shape)))
    params = [] if cell.Params is None else [cell.Params(*(x[0] for x in sample_params(cell, shape)))]
    jacobians = torch.autograd.functional.jacobian(
        lambda *leaves: tuple(cell.step(cell.State(*leaves), inputs, *params)[0]), tuple(state)
    )
    for new, (name_of_new, axis) in zip(jacobians, parts.leaves.items(), strict=True):
        for jacobian, old, other in zip(new, state, parts.leaves.values(), strict=True):
            if axis is not None and other is not None:
                moved = jacobian.movedim((axis, new[0].ndim - old.ndim + other), (0, 1))
                across = moved.flatten(2).abs().sum(-1)
                assert not across.triu(1).any(), name_of_new
                assert not across.tril(-1).any(), name_of_new


@pytest.mark.parametrize(
    ("name", "chip"), [("delta", "sm_80"), ("delta-rnn", "sm_90"), ("delta", "sm_100"), ("sum", "gfx942")]
)
def test_kernels_build_for_chips_that_are_not_here(name, chip, capsys):
    assert cli.main(["explain", name, "--target", chip, "--size", "K=16", "V=16"]) == 0
    printed = capsys.readouterr().out
    ways = re.findall(r"(forward|backward) .* (\d+) registers a thread, (\d+) bytes spilt, (\d+) bytes shared", printed)
    assert [way[0] for way in ways] == ["forward", "backward"]
    assert all(0 < int(registers) <= 512 and spilt == "0" for _, registers, spilt, _ in ways)
    assert "@triton.jit" in printed


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_state_passing_builds_for_them_and_spills_nothing(chip):
    from fastweights.backends.chunkwise.triton import state_passing

    for way, K in product(("forward", "backward"), (16, 100)):
        assert state_passing.assembled(way, K, torch.float32, chip).spills == 0


def test_kernels_serve_all_lengths_and_sums_have_a_fixed_order():
    cell = Cell.from_name("recurrent-delta-net")
    text = source(cell, {"K": 16, "V": 16}, torch.float32, "cuda")
    assert "T: tl.int64" in text
    assert "static_range" not in text
    assert "atomic" not in text


def test_error_names_the_remedy_for_a_missing_package(monkeypatch, capsys):
    import triton

    monkeypatch.setattr(triton, "__version__", "3.5.1")
    assert target.missing_requirement() == "Triton is 3.5.1, and 3.6 is needed. pip install 'fastweights[gpu]'"
    assert cli.main(["explain", "delta", "--target", "sm_90"]) == 2
    assert "Triton is 3.5.1" in capsys.readouterr().err
    monkeypatch.setattr(target, "find_spec", lambda name: None)
    assert target.missing_requirement() == "there is no Triton. pip install 'fastweights[gpu]'"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--target", "sm_12"], "target must be"),
        (["--target", "sm_90", "--size", "K"], "size must be"),
        (["--target", "sm_90", "--size", "J=3"], "size must be"),
    ],
)
def test_bad_flags_are_refused_in_one_line(flags, message, capsys):
    assert cli.main(["explain", "delta", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
