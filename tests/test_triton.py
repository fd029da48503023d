"""The Triton kernels: results under Triton's interpreter, and compilation for several chips. No GPU is needed."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path

import pytest
import torch

from fastweights import Cell, cli
from fastweights.backends.chunkwise.fused_scan import FusedForm, ScanOperands, missing_kernels
from fastweights.backends.chunkwise.lowering import ScanStage, lowering_for
from fastweights.backends.chunkwise.stage_scan import erasing_writes, limit, stage_form
from fastweights.backends.chunkwise.step_functions import operand_maps
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.op import sizes_of
from fastweights.compiler.pipeline import passes, source
from fastweights.compiler.targets.triton import occupancy, target
from fastweights.compiler.targets.triton.functions import CODE
from fastweights.compiler.targets.triton.partition import cut
from fastweights.compiler.targets.triton.source import TritonSource, sourced
from fastweights.testing.samples import Shape, sample_inputs, sample_params, sample_state
from test_cells import RUNS_ON
from tiers import first_of

pytest.importorskip("triton")

SCRIPT = Path(__file__).parent / "interpreted.py"


def failures(checks: Mapping[str, Sequence[str]], script: Path = SCRIPT) -> dict[tuple[str, str], str]:
    """The errors of checks of cases, from one process that interprets the kernels. Every check has its own fork."""
    groups = [["--", check, *cases] for check, cases in checks.items() if cases]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), *chain.from_iterable(groups)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    pairs, lines = [(check, case) for check, cases in checks.items() for case in cases], done.stdout.splitlines()
    assert len(lines) == len(pairs), done.stderr
    results = {pair: line.removeprefix(pair[1]) for pair, line in zip(pairs, lines, strict=True)}
    return {pair: result for pair, result in results.items() if result not in (" ok", ": ok")}


@pytest.mark.parametrize("part", [0, 1])
def test_kernels_of_every_cell_equal_the_reference(part):
    """Values, gradients and resets, with T that is no multiple of a chunk. Unwritten memory contains NaN."""
    assert not failures({"equals_the_reference": Cell.names()[part::2]})


OUT_OF_ORDER = [
    f"{SCRIPT.with_name('my_memories.py')}:{name}"
    for name in ("flipped", "summed_so_far", "turned_around", "from_all_sides")
]
"""Cells whose tensors are read out of order, by a new state, an output and a gradient. They are in memory."""
EVERY_AFFINE = ("gated-delta", "gated-slot-attention", "gated-oja")


@pytest.mark.parametrize(
    "checks",
    [
        {
            "equals_the_reference_everywhere": ["delta"],
            "equals_the_reference_cut": ["linear-attention", *OUT_OF_ORDER],
            "every_variant_equals_the_reference": ["delta-rnn"],
            "chunks_alone_are_those_in_a_batch": ["gated-delta"],
            "gradients_pass_two_layers": ["delta-rnn"],
            "check_compiles": ["delta"],
            "is_an_operation": ["delta-rnn"],
        },
        pytest.param({"equals_the_reference_everywhere": OUT_OF_ORDER}, marks=pytest.mark.slow),
        pytest.param({"chunks_equal_the_reference_everywhere": EVERY_AFFINE}, marks=pytest.mark.slow),
        pytest.param({"chunks_alone_are_those_in_a_batch": [*EVERY_AFFINE, "titans"]}, marks=pytest.mark.slow),
    ],
    ids=["every property", "other shapes", "other shapes in chunks", "bits of chunks"],
)
def test_guarantees(checks):
    assert not failures(checks)


def test_half_precision_is_not_rounded_between_stages():
    """An input read by a stage of the loop, an input read by two stages, and reads across the rows of a state."""
    checks = {"results_are_rounded_twice": ["delta-rnn", "printed-delta-mlp", "hopfield-slots"]}
    assert not failures(checks, SCRIPT.with_name("interpreted_half.py"))


RECURRENT = [name for name, backends in RUNS_ON.items() if "chunkwise" not in backends]
AFFINE = [name for name, backends in RUNS_ON.items() if "chunkwise" in backends]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECURRENT)
def test_every_variant_of_every_recurrent_cell_equals_the_reference(name):
    """Tensors computed ahead or in the loop, with and without prefetching, and heads divided into programs."""
    assert not failures({"every_variant_equals_the_reference": [name], "equals_the_reference_cut": [name]})


def sources(name: str, num_heads: int) -> TritonSource:
    cell, shape = Cell.from_name(name), Shape(1, 1, 1, 8, 8)
    sizes = sizes_of(cell, tensors_of(cell, shape))
    return sourced(passes(cell, sizes, torch.float32), name, torch.float32, num_heads)


@pytest.mark.parametrize("name", ["delta-rnn", "recurrent-delta-net", "srwm"])
def test_the_recompute_pass_saves_tensors_smaller_than_the_state(name):
    """The gradient reads these tensors and does not compute them again."""
    generated = sources(name, 1024)
    recompute, backward = generated.text.partition("for n in range(0, stop - start)")[::2]
    saved = {*re.findall(r"(kept_\d+) =", recompute)}
    assert len(saved) == len(generated.passes.recompute.made) > 0
    assert saved == {*re.findall(r"next_(kept_\d+) =", backward)}
    assert generated.chunk_numbers <= 2 * sum(d.size for d in generated.step.state.values())


def test_tensors_of_inputs_only_are_computed_ahead_for_few_heads():
    few, many = (sources("delta-rnn", heads).text for heads in (256, 1024))
    prepare, (_, *passes_over_time) = few.partition("def prepare")[2], few.partition("def prepare")[0].split("for t in")
    assert "tl.exp(" in prepare
    assert [text.count("tl.exp(") for text in passes_over_time] == [1, 1], "only softmax(y) remains"
    assert "def prepare" not in many


TURNING = f"{SCRIPT.with_name('my_memories.py')}:turning"


def scan_stages(cell: Cell) -> list[ScanStage]:
    """The stages of a cell that scan states."""
    inner = cell if cell.inner_cell is None else cell.inner_cell[0]
    sizes = sizes_of(inner, tensors_of(inner, Shape(1, 1, 1, 5, 4)))
    return [
        stage
        for stage in lowering_for(inner.key, tuple(sizes.items()), torch.float32).stages
        if isinstance(stage, ScanStage)
    ]


def kernel_kinds(cell: Cell) -> set[Hashable]:
    """The properties of the scans of a cell that select the code of its kernels."""
    kinds: set[Hashable] = set()
    for stage in scan_stages(cell):
        form = None if limit(stage) else stage_form(stage, False)
        kernel = form and (form.decay_kind, form.states, form.erases > 0, form.reads_after)
        kinds.add((kernel, bool(stage.across)))
    return kinds


def size_of_scans(cell: Cell) -> int:
    """The number of writes and reads of a cell."""
    return sum(len(stage.writes) + len(stage.queries) + len(stage.across) for stage in scan_stages(cell))


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_chunks_of_every_affine_cell_equal_the_reference(is_first):
    """The smallest cells of every kind of kernels, and all others."""
    names = sorted((*AFFINE, TURNING), key=lambda name: size_of_scans(Cell.from_function(name)))
    kinds = {name: kernel_kinds(Cell.from_function(name)) for name in names}
    first = first_of(kinds)
    assert not failures(
        {"chunks_equal_the_reference": first if is_first else [name for name in kinds if name not in first]}
    )


def test_scan_stages_of_every_cell_are_fused():
    """Hence `test_chunks_of_every_affine_cell_equal_the_reference` compares fused kernels with the reference."""
    reasons = {name: {limit(stage) for stage in scan_stages(Cell.from_name(name))} - {""} for name in AFFINE}
    # Eight states of one head mix.
    assert reasons.pop("log-linear-attention") == {"more than two of its states mix"}
    assert len(reasons) > 40
    assert not any(reasons.values()), reasons


def test_operands_of_a_delta_rule_read_inputs_once_and_copy_none():
    """The kernel computes what erases and the values. Queries and keys are the inputs themselves."""
    ((_, delta, dtypes),) = operand_maps(Cell.from_name("delta"), {"K": 8, "V": 8}, torch.bfloat16)
    assert (delta.copies, delta.computed, dtypes[0]) == ({0: 0, 1: 1}, [2, 3], torch.bfloat16)
    ((_, gla, _),) = operand_maps(Cell.from_name("gla"), {"K": 8, "V": 8}, torch.bfloat16)
    assert gla.computed == []


@pytest.mark.parametrize(
    "chip", ["sm_90", "gfx942", *(pytest.param(c, marks=pytest.mark.slow) for c in ("sm_80", "sm_100"))]
)
def test_kernels_of_operands_build_for_other_chips(chip):
    from fastweights.compiler.targets.triton.target import step_map

    ((_, function, dtypes),) = operand_maps(Cell.from_name("gated-delta"), {"K": 64, "V": 64}, torch.bfloat16)
    kernel = step_map(function, "operands", torch.float32)
    assert [kernel.assembled(name, dtypes, chip).spills for name in ("forward", "backward")] == [0, 0]


def test_operands_of_every_affine_cell_have_a_kernel():
    """`operand_maps` raises if the compiler does not know an operation."""
    for name in AFFINE:
        cell = Cell.from_name(name)
        inner = cell if cell.inner_cell is None else cell.inner_cell[0]
        sizes = sizes_of(inner, tensors_of(inner, Shape(1, 1, 1, 5, 4)))
        fused = [stage for stage in scan_stages(cell) if not limit(stage)]
        scans = sum(bool(stage.queries) + bool(stage.across) for stage in fused)
        assert len([*operand_maps(inner, sizes, torch.bfloat16)]) == scans, name


def test_three_erasing_writes_with_reads_on_both_sides_are_fused():
    """Three writes fill up a group of four. A read before the step and one after it do not fit into one group."""
    (stage,) = lowering_for(Cell.from_function(TURNING).key, (("K", 3), ("V", 2)), torch.float32).stages
    assert (limit(stage), erasing_writes(stage), len(stage.queries)) == ("", 3, 2)


CHUNKS = SCRIPT.with_name("interpreted_chunks.py")
KEYS = ("sum", "one key", "similar keys", "other erase")
DECAYS = ("no decay", "decay", "decay by column")


def cases_of(*decays: str) -> list[str]:
    """All kinds of keys with some decays: equal keys with rates up to 2, and decays of 0 and below."""
    return [f"{keys}, {decay}" for keys, decay in product(KEYS, decays)]


@pytest.mark.parametrize("decay", DECAYS)
def test_fused_chunk_kernels_equal_a_loop(decay):
    """Values, the last S and all gradients, at one of the shapes per kind of keys."""
    assert not failures({"equals_the_loop": cases_of(decay)}, CHUNKS)


@pytest.mark.slow
@pytest.mark.parametrize("decay", [*DECAYS, "mixing", "mixing by column"])
def test_fused_chunk_kernels_equal_a_loop_at_all_shapes(decay):
    further = {"equals_the_loop_further": cases_of(decay)}
    assert not failures(further if decay in DECAYS else further | {"equals_the_loop": cases_of(decay)}, CHUNKS)


@pytest.mark.parametrize(
    "checks",
    [
        {
            "equals_the_loop_cut": ["one key, decay"],
            "is_alone_what_it_is_in_a_batch": ["one key, decay"],
            "is_an_operation": ["sum, no decay"],
            "traces_whole": ["gated-delta"],
            "reads_half_precision": ["delta"],
            "refuses_second_derivatives": ["gla", "mlstm"],
            "running_maxima_equal_the_loop": ["float64", "float32", "bfloat16"],
            "running_maximum_is_an_operation": ["any"],
        },
        pytest.param(
            {
                "equals_the_loop_cut": ["sum, no decay", "other erase, decay by column", "similar keys, mixing"],
                "is_alone_what_it_is_in_a_batch": ["one key, decay by column"],
                "is_alone_what_it_is_in_a_batch_cut": ["one key, decay"],
                "traces_whole": ["gated-slot-attention", "mlstm"],
                "reads_half_precision": ["gla"],
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["every property", "other cases"],
)
def test_guarantees_of_the_fused_chunk_kernels(checks):
    """`equals_the_loop_cut` has segments, of which the last is shorter."""
    assert not failures(checks, CHUNKS)


def test_only_long_sequences_that_do_not_fill_a_gpu_have_segments():
    """The batch size has no influence, so that a sequence is bit-identical alone and in a batch."""
    from fastweights.backends.chunkwise.triton.fused_scan import LONG, SEGMENT, segment_chunks

    form = FusedForm(128, 128, 1, states=1, erases=1, reads_after=True, is_half=True)
    assert segment_chunks(form, 32, LONG, processors=132) == SEGMENT
    assert segment_chunks(form, 32, LONG - 1, processors=132) == LONG - 1
    assert segment_chunks(form, 132, LONG, processors=132) == LONG
    assert segment_chunks(form._replace(K=256), 32, LONG, processors=132) == LONG
    assert segment_chunks(form, 32, 0, processors=132) == 1


@pytest.mark.parametrize(
    ("chip", "decay", "states"),
    [
        ("sm_90", 4, 2),
        ("gfx942", 64, 1),
        *(
            pytest.param(*form, marks=pytest.mark.slow)
            for form in (("sm_80", 1, 1), ("sm_90", 64, 1), ("sm_100", 1, 1))
        ),
    ],
)
def test_fused_chunk_kernels_build_for_other_chips(chip, decay, states):
    from fastweights.backends.chunkwise.triton import fused_scan

    form = FusedForm(64, 64, decay, states, erases=2 // states, reads_after=True, is_half=True)
    spills = {name: fused_scan.assembled(name, form, torch.float32, chip).spills for name in fused_scan.KERNELS}
    assert max(spills.values()) <= 64, spills


def test_the_first_axis_of_a_grid_has_most_programs():
    """The other axes have at most 65,535 programs."""
    from fastweights.backends.chunkwise.triton.fused_scan import Launch

    q, k, v = torch.empty(3, 3000, 17, 32, 16, device="meta").unbind()
    operands = ScanOperands(q, k, None, v, None, torch.empty(3000, 32, 16, 16, device="meta"))
    launch = Launch(operands, FusedForm(16, 16, 0, states=1, erases=0, reads_after=True, is_half=False))
    assert launch.chunks == (3000 * 32 * 2,)
    assert launch.rows == (3000 * 32, 1)


def test_explain_names_fused_chunk_kernels_or_the_reason_against(monkeypatch, capsys):
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


def test_every_function_has_triton_code():
    assert CODE.keys() == FUNCTIONS.keys()


def test_every_function_equals_torch_at_extreme_values():
    assert not failures({"function_equals_torch": [*FUNCTIONS]})


def tensors_of(cell: Cell, shape: Shape) -> list[torch.Tensor]:
    """Inputs, state and slow weights of a cell."""
    parts = (sample_inputs(cell, shape), sample_state(cell, shape), sample_params(cell, shape) or ())
    return [x for part in parts for x in part]


def lowered(cell: Cell, shape: Shape):
    return passes(cell, sizes_of(cell, tensors_of(cell, shape)), torch.float64).step


@pytest.mark.parametrize("name", Cell.names())
def test_divided_rows_are_independent(name):
    """Autograd shows that a row of a new state depends on no other row of the old state."""
    cell, shape = Cell.from_name(name), Shape(1, 1, 1, 5, 4)
    division = cut(lowered(cell, shape))
    if division is None:
        assert name not in ("sum", "delta", "gated-delta", "linear-attention")
        return
    state = [x[0, 0] for x in sample_state(cell, shape)]
    inputs = cell.Inputs(*(x[0, 0, 0] for x in sample_inputs(cell, shape)))
    params = [] if cell.Params is None else [cell.Params(*(x[0] for x in sample_params(cell, shape)))]
    jacobians = torch.autograd.functional.jacobian(
        lambda *leaves: tuple(cell.step(cell.State(*leaves), inputs, *params)[0]), tuple(state)
    )
    for new, (name_of_new, axis) in zip(jacobians, division.leaves.items(), strict=True):
        for jacobian, old, other in zip(new, state, division.leaves.values(), strict=True):
            if axis is not None and other is not None:
                moved = jacobian.movedim((axis, new[0].ndim - old.ndim + other), (0, 1))
                across = moved.flatten(2).abs().sum(-1)
                assert not across.triu(1).any(), name_of_new
                assert not across.tril(-1).any(), name_of_new


@pytest.mark.parametrize(
    ("name", "chip"), [("delta", "sm_80"), ("delta-rnn", "sm_90"), ("delta", "sm_100"), ("sum", "gfx942")]
)
def test_kernels_build_for_other_chips(name, chip, capsys):
    assert cli.main(["explain", name, "--target", chip, "--size", "K=16", "V=16"]) == 0
    printed = capsys.readouterr().out
    kernels = re.findall(
        r"(forward|backward) .* (\d+) registers a thread, (\d+) bytes spilt, (\d+) bytes shared", printed
    )
    # The kernels of the operands of chunks, if there are any, and those that run step by step.
    assert [direction for direction, *_ in kernels] == ["forward", "backward"] * max(1, len(kernels) // 2)
    assert all(0 < int(registers) <= 512 and spilt == "0" for _, registers, spilt, _ in kernels)
    assert "@triton.jit" in printed


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_running_maxima_build_for_other_chips_without_spills(chip):
    from fastweights.backends.chunkwise.triton import fused_max

    assert [fused_max.assembled(name, torch.float32, chip).spills for name in fused_max.KERNELS] == [0, 0]


@pytest.mark.parametrize(
    "dtypes",
    [["float32"], pytest.param(["float64", "float16", "bfloat16"], marks=pytest.mark.slow)],
    ids=["float32", "other dtypes"],
)
def test_kernels_of_chosen_logits_equal_pytorch(dtypes):
    """Values and gradients. Rows outside of the bounds have no influence. A graph contains a training step."""
    script = SCRIPT.with_name("interpreted_logits.py")
    checks = ["equals_pytorch", "rows_outside_may_be_nan", "rows_are_alone_what_they_are_in_a_batch"]
    checks += ["adaptive_softmax_equals_its_log_probabilities", "is_an_operation", "refuses_second_derivatives"]
    assert not failures(dict.fromkeys(checks, dtypes) | {"training_step_is_a_graph": ["float32"]}, script)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_kernels_of_chosen_logits_build_for_other_chips(chip):
    from fastweights.compiler.targets.triton import chosen_logits

    for name, dtype in product(chosen_logits.KERNELS, (torch.float32, torch.bfloat16)):
        assert chosen_logits.assembled(name, 128, dtype, chip).spills <= 64, (name, dtype)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_state_passing_builds_for_other_chips_without_spills(chip):
    from fastweights.backends.chunkwise.triton import state_passing

    for direction, K in product(("forward", "backward"), (16, 100)):
        assert state_passing.assembled(direction, K, torch.float32, chip).spills == 0


@pytest.mark.parametrize("seed", range(50))
def test_the_chosen_build_has_the_fewest_spills_and_then_the_fewest_warps(seed, monkeypatch):
    """As a search of all builds, where loading the state ahead never has fewer spills."""
    draw, warps = random.Random(seed), [2, 4, 8, 16]
    late = {n: draw.choice([0, 8, 16, 80]) for n in warps}
    ahead = {n: late[n] + draw.choice([0, 0, 8]) for n in warps}
    builds = {
        (n, is_ahead): occupancy.Assembled(n, 255, (ahead if is_ahead else late)[n], 0, is_ahead)
        for n in warps
        for is_ahead in (True, False)
    }
    monkeypatch.setattr(occupancy, "_fewest", lambda source, target: warps[0])
    monkeypatch.setattr(occupancy, "assemble", lambda a, b, c, n, loads_ahead=True: builds[n, loads_ahead])
    want = min(builds.values(), key=lambda a: (a.spills, a.warps, not a.loads_ahead))
    assert occupancy.choose(object(), "backward", None) == want


def test_kernels_have_no_fixed_length_and_no_atomic_sums():
    cell = Cell.from_name("recurrent-delta-net")
    text = source(cell, {"K": 16, "V": 16}, torch.float32, "cuda")
    assert "T: tl.int64" in text
    assert "static_range" not in text
    assert "atomic" not in text


def test_missing_requirements_are_named_with_a_remedy(monkeypatch, capsys):
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
def test_invalid_flags_are_refused_in_one_line(flags, message, capsys):
    assert cli.main(["explain", "delta", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
