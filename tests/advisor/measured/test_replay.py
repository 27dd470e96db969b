"""Whole steps of traces: every kernel with what it may have waited for, simulated as they ran."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.measured.traces.graph import RunOp, graph_of
from magus.advisor.measured.traces.kineto import ChromeTrace, read_run
from magus.advisor.measured.traces.replay import ReplayedStep, read_step
from magus.advisor.measured.traces.run import TracedKernel, TracedRun
from magus.compiler import CompileError, compile_text
from magus.compiler.text.diagnostics import Report
from magus.compiler.text.fmt import format_text
from tests.helpers.chakra import LAYERS as CHAKRA_LAYERS
from tests.helpers.marks import examples
from tests.helpers.some import some
from tests.helpers.traces import Event, collective, document, gemm, other, sharded_layer

pytestmark = pytest.mark.usefixtures("compiled_core")
AT = 1_700_000_000.0
LAYER = sharded_layer(1, AT)
STREAMS = 3


def run_of(events: Sequence[Event]) -> TracedRun:
    return read_run(ChromeTrace(iter((json.dumps(document(events)),))))


def step_of(folder: Path, events: Sequence[Event], step: int | None = None, **members: Any) -> ReplayedStep:
    file = folder / "step.json"
    file.write_text(json.dumps({**document(events), **members}))
    report = Report()
    with report.attempt():
        return read_step(file, "step.json", "", step, report)
    raise CompileError(report.diagnostics)


def refused(folder: Path, events: Sequence[Event], step: int | None = None, **members: Any) -> str:
    with pytest.raises(CompileError) as caught:
        step_of(folder, events, step, **members)
    (found,) = caught.value.diagnostics
    return f"{found.code.name} {found.message}"


def waits(ops: Sequence[RunOp]) -> dict[str, list[str]]:
    """The kernels that each op waits for, by the first word of their names."""

    def name(op: RunOp) -> str:
        return op.parts[0].name

    return {name(op): [name(ops[need]) for need in op.needs] for op in ops}


def test_all_kernels_of_a_layer_are_ops(tmp_path: Path) -> None:
    step = step_of(tmp_path, LAYER)
    text, scenario = step.text, compile_text(step.text).scenario("step")

    assert text == format_text(text)
    assert sum(len(each.op.parts) for each in step.ops) == sum(event["cat"] == "kernel" for event in LAYER) == 9
    assert [op.label for op in scenario.workload.ops if op.label != "timed"] == ["AG+GEMM", "GEMM+RS"]
    assert "norm_kernel_0 " in text and "takes=12.000 us" in text and "sms=32" in text
    assert "stream 1 copy_kernel" in text


def test_simulated_as_it_ran(tmp_path: Path) -> None:
    step = step_of(tmp_path, [event for event in LAYER if event["name"] != "copy_kernel"])  # which takes SMs of others
    result = step.simulated()
    kinds = {each.kind: each for each in step.kinds(result)}

    assert step.measured_us == pytest.approx(12 + 210 + 370 + 30 + 160 + 380 + 205 + 7 + 7 * 5)
    assert step.idle_us == pytest.approx(7 * 5)
    assert kinds["other kernels"].simulated_us == pytest.approx(kinds["other kernels"].measured_us, abs=0.01)
    assert {kind: each.count for kind, each in kinds.items()} == {
        "GEMM": 2,
        "all_gather": 1,
        "reduce_scatter": 1,
        "other kernels": 4,
    }
    busy = sum(each.simulated_us for each in kinds.values())
    assert result.makespan_us == pytest.approx(busy + step.idle_us, rel=0.02)


def test_each_waits_for_what_had_ended_when_it_began() -> None:
    ops = graph_of(
        run_of(
            [
                other("first", AT, 10),
                other("beside", AT + 5, 20, stream=9),
                other("second", AT + 12, 5),
                other("third", AT + 30, 5),
                other("early", AT + 36, 5),
                other("overlapping", AT + 39, 5),
            ]
        ),
        8,
    )

    assert waits(ops) == {
        "first": [],
        "beside": [],
        "second": ["first"],
        "third": ["beside", "second"],
        "early": ["third"],
        "overlapping": ["early"],
    }
    assert [op.gap_us for op in ops] == [0.0, 0.0, 2.0, 5.0, 1.0, 0.0]
    assert [op.idle_us for op in ops] == [0.0, 0.0, 0.0, 5.0, 1.0, 0.0]


KERNELS = st.lists(
    st.tuples(st.integers(0, STREAMS - 1), st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=30
)


@given(KERNELS)
@examples(200)
def test_nothing_that_had_ended_is_forgotten(drawn: list[tuple[int, int, int]]) -> None:
    free, kernels, now = [0] * STREAMS, list[TracedKernel](), 0
    for stream, gap, length in drawn:
        now = max(now + gap // 4, free[stream] + gap)
        free[stream] = now + length
        kernels.append(TracedKernel(f"k{len(kernels)}", stream, float(now), float(now + length)))
    run = TracedRun("", True, "", None, (), (), len(kernels), (), kernels=tuple(kernels))
    ops = graph_of(run, 8)
    behind: list[set[int]] = []
    for place, op in enumerate(some(ops)):
        direct = [behind[need] for need in op.needs]
        behind.append(set(op.needs).union(*direct))
        assert all(need < place for need in op.needs)
        assert not any(need in other for need in op.needs for other in direct)
        assert behind[place] == {at for at in range(place) if ops[at].end_us <= op.start_us}


def test_a_pair_that_ran_side_by_side_is_none() -> None:
    whole = 4096 * 8192
    events = [
        *gemm(1, (4096, 8192, 3584), AT, 380),
        collective("_reduce_scatter_base", (whole, whole // 8), AT + 300, 200),
    ]

    assert [op.shape for op in graph_of(run_of(events), 8)] == [None, None]


def test_collectives_of_other_ranks_take_the_time_that_was_measured(tmp_path: Path) -> None:
    step = step_of(tmp_path, [*LAYER, collective("_allgather_base", (1 << 20, 1 << 22), AT + 2000, 50, 4)])

    assert "takes=50.000 us" in step.text and "sms=16" in step.text
    assert any("1 collectives of other ranks" in doubt for doubt in step.doubts)


def test_elements_of_other_types_move_as_many_bytes(tmp_path: Path) -> None:
    wide = collective("_allreduce", (1 << 20, 1 << 20), AT + 2000, 50)
    wide["args"]["dtype"] = "Float"
    step = step_of(tmp_path, [*LAYER, wide])
    moved = [op.shape.moved for op in step.scenario.workload.ops if op.label == "all_reduce"]

    assert [tensor.num_bytes for tensor in moved if tensor is not None] == [4 << 20]


def test_a_step_that_is_marked(tmp_path: Path) -> None:
    def mark(number: int, start: float, on: str) -> Event:
        return {"ph": "X", "cat": on, "name": f"ProfilerStep#{number}", "ts": start, "dur": 5000, "args": {}}

    events = [*LAYER, *sharded_layer(2, AT + 10_000), other("late", AT + 12_000, 5)]
    marks = [
        mark(3, AT - 900, "user_annotation"),
        mark(4, AT + 9990, "gpu_user_annotation"),
        mark(4, AT, "user_annotation"),
    ]

    assert "late" in step_of(tmp_path, [*marks, *events]).text
    assert "late" not in step_of(tmp_path, [*marks, *events], 3).text
    assert refused(tmp_path, [*marks, *events], 5) == "MGS633 the trace marks no step 5"
    assert refused(tmp_path, events, 5) == "MGS633 the trace marks no step 5"
    assert refused(tmp_path, [mark(7, 0, "user_annotation"), *events], 7) == "MGS633 no kernel began in step 7"


def test_kernels_of_another_clock_are_left_out(tmp_path: Path) -> None:
    step = step_of(tmp_path, [other("far", 17.0, 5), *LAYER])

    assert "far" not in step.text
    assert any("1 kernels are a second or more from the others" in doubt for doubt in step.doubts)


def test_what_is_no_step(tmp_path: Path) -> None:
    assert refused(tmp_path, []) == "MGS631 the trace has no kernels of a GPU"
    assert refused(tmp_path, LAYER, deviceProperties=[]).startswith("MGS604")


@pytest.mark.parametrize("name", ["", "<>", "9 lives", "system", "a" * 900, "tensor\n}", "\u202e\x00", "timed", "step"])
def test_names_of_kernels_are_made_safe(tmp_path: Path, name: str) -> None:
    text = step_of(tmp_path, [other(name, AT + 7 * number, 5) for number in range(3)]).text

    assert len(compile_text(text).scenario("step").workload.ops) == 3


@given(st.lists(st.dictionaries(st.sampled_from(["ts", "dur", "cat", "args", "name"]), st.just(None) | st.integers())))
@examples(50)
def test_events_that_are_damaged(tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, Any]]) -> None:
    events = [{**event, **change} for event, change in zip(LAYER, changes, strict=False)]
    try:
        step = step_of(tmp_path_factory.mktemp("damaged"), events)
    except CompileError as error:
        assert error.diagnostics
    else:
        assert step.ops and step.simulated().makespan_ticks > 0


def test_of_a_chakra_trace_kernels_run_in_order(tmp_path: Path) -> None:
    file, report = tmp_path / "step.et", Report()
    file.write_bytes(CHAKRA_LAYERS)
    with report.attempt():
        step = read_step(file, "step.et", "h100", None, report)
    assert not report.diagnostics

    kinds = {each.kind: (each.count, each.measured_us) for each in step.kinds(step.simulated())}
    assert kinds == {"GEMM": (6, 2250.0), "all_gather": (3, 570.0), "reduce_scatter": (3, 600.0)}
    assert (step.measured_us, step.idle_us) == (3420.0, 0.0)


def test_of_a_long_step_the_first_kernels_are_taken(tmp_path: Path) -> None:
    events = [event for number in range(20) for event in sharded_layer(number, AT + 1500 * number)]
    step = step_of(tmp_path, events)

    assert sum(len(each.op.parts) for each in step.ops) == 128
    assert "only the first 128 of 180 kernels" in step.doubts[-1]
