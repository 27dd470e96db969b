"""Whole steps of traces: every kernel with what it may have waited for, simulated as they ran."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.measured.traces import replay
from magus.advisor.measured.traces.chrome import ChromeTrace
from magus.advisor.measured.traces.graph import SLACK_US, RunOp, graph_of
from magus.advisor.measured.traces.kineto import read_run
from magus.advisor.measured.traces.replay import ReplayedStep, parts_of, read_step
from magus.advisor.measured.traces.run import TracedKernel, TracedRun
from magus.compiler import CompileError, compile_text
from magus.compiler.text.diagnostics import Report
from magus.compiler.text.fmt import format_text
from magus.simcore.figures.result import Result
from tests.helpers.chakra import LAYERS as CHAKRA_LAYERS
from tests.helpers.marks import examples
from tests.helpers.some import some
from tests.helpers.traces import Event, collective, document, gemm, other, several_ranks, sharded_layer

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
    (part,) = step.parts

    assert text == format_text(text)
    assert sum(len(each.op.parts) for each in part.ops) == sum(event["cat"] == "kernel" for event in LAYER) == 9
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
    assert result[0].makespan_us == pytest.approx(busy + step.idle_us, rel=0.02)


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
    run = TracedRun("", True, "", None, tuple(kernels), len(kernels), ())
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
    moved = [op.shape.moved for op in step.parts[0].scenario.workload.ops if op.label == "all_reduce"]

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
        assert all(result.makespan_ticks > 0 for result in some(step.simulated()))


def test_of_a_chakra_trace_kernels_run_in_order(tmp_path: Path) -> None:
    file, report = tmp_path / "step.et", Report()
    file.write_bytes(CHAKRA_LAYERS)
    with report.attempt():
        step = read_step(file, "step.et", "h100", None, report)
    assert not report.diagnostics

    kinds = {each.kind: (each.count, each.measured_us) for each in step.kinds(step.simulated())}
    assert kinds == {"GEMM": (6, 2250.0), "all_gather": (3, 570.0), "reduce_scatter": (3, 600.0)}
    assert (step.measured_us, step.idle_us) == (3420.0, 0.0)


@pytest.mark.parametrize("moves", [False, True])
def test_a_step_of_one_kernel(tmp_path: Path, moves: bool) -> None:
    kernel = collective("_allgather_base", (1 << 21, 1 << 24), AT, 200) if moves else other("k", AT, 10)
    step = step_of(tmp_path, [kernel])
    (found,) = step.kinds(step.simulated())

    assert (found.kind, found.count) == ("all_gather" if moves else "other kernels", 1)
    assert 100 < found.simulated_us < 200 if moves else found.simulated_us == 10


@pytest.mark.slow
def test_a_long_step_is_simulated_in_parts(tmp_path: Path) -> None:
    events = [event for number in range(20) for event in sharded_layer(number, AT + 1500 * number)]
    step = step_of(tmp_path, events)
    results = step.simulated()
    kinds = {each.kind: each for each in step.kinds(results)}

    assert [part.scenario.name for part in step.parts] == ["step_1", "step_2"]
    assert [sum(len(each.op.parts) for each in part.ops) for part in step.parts] == [
        127,
        53,
    ]  # and not between an all_gather and its GEMM
    assert {kind: each.count for kind, each in kinds.items()} == {
        "GEMM": 40,
        "all_gather": 20,
        "reduce_scatter": 20,
        "other kernels": 100,
    }
    assert (
        step.doubts[-1] == "2 parts of at most 128 kernels are simulated one after the other, cut where no kernel ran"
    )
    assert step.measured_us == pytest.approx(1500 * 19 + 1409)
    times = [result.makespan_us for result in results]
    assert step.total_us(times) == pytest.approx(sum(times) + 5)  # of time between both parts
    assert 0.9 * step.measured_us < step.total_us(times) < step.measured_us


def test_of_a_very_long_step_the_first_kernels_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_KERNELS", 20)
    step = step_of(tmp_path, [other(f"k{number}", AT + 10 * number, 5) for number in range(30)])

    assert sum(len(part.ops) for part in step.parts) == 20
    assert step.doubts[-1] == "only the first 20 of 30 kernels are taken"


def test_no_cut_is_between_a_collective_and_its_gemm() -> None:
    run = run_of([event for number in range(4) for event in sharded_layer(number, AT + 1500 * number)])
    whole = len(graph_of(run, 8))
    for most in range(4, 20):
        cut = parts_of(run, most)
        assert [kernel for part in cut for kernel in part] == list(run.kernels)
        assert all(0 < len(part) <= most for part in cut)
        pairs = [graph_of(replace(run, kernels=part), 8) for part in cut]
        assert sum(map(len, pairs)) == whole


@given(KERNELS, st.integers(1, 8))
@examples(200)
def test_cuts_are_where_least_runs(drawn: list[tuple[int, int, int]], most: int) -> None:
    kernels, now = list[TracedKernel](), 0
    for stream, gap, length in drawn:
        now += gap // 4
        kernels.append(TracedKernel(f"k{len(kernels)}", stream, float(now), float(now + length)))
    rest = tuple(kernels)
    cut = parts_of(TracedRun("", True, "", None, rest, len(kernels), ()), most)
    assert [kernel for part in cut for kernel in part] == kernels
    for part in some(cut):
        assert 0 < len(part) <= most
        overlaps = [
            max(0.0, max(each.end_us for each in rest[:at]) - rest[at].start_us - SLACK_US)
            for at in range(1, min(most, len(rest) - 1) + 1)
        ]
        if part is not cut[-1]:
            assert overlaps[len(part) - 1] == min(overlaps)
        rest = rest[len(part) :]


def test_a_cut_through_what_runs_is_said(tmp_path: Path) -> None:
    long = other("long", AT, 150 * 10, stream=20, blocks=8)
    events = [long, *(other(f"k{number}", AT + 1 + 10 * number, 5) for number in range(140))]
    step = step_of(tmp_path, events)

    assert step.doubts[-1].endswith("; cuts through kernels that ran: 1")
    assert step.measured_us == 1500
    assert step.parts[1].gap_us < 0


def ranks_of(folder: Path, *runs: tuple[int, Sequence[Event]]) -> ReplayedStep:
    """The step of the first rank, with the traces of the others."""
    files = [folder / f"rank_{number}.json" for number in range(len(runs))]
    for file, (rank, events) in zip(files, runs, strict=True):
        file.write_text(json.dumps({**document(events), "distributedInfo": {"backend": "nccl", "rank": rank}}))
    report = Report()
    with report.attempt():
        return read_step(files[0], files[0].name, "", None, report, files[1:])
    raise CompileError(report.diagnostics)


def coarse(step: ReplayedStep) -> list[Result]:
    """Its simulation in units that are large, which takes little."""
    return [part.simulated(64 << 10) for part in step.parts]


def later(events: Sequence[Event], took: int, clock: float) -> list[Event]:
    """The events of a rank whose collectives take so long, with the same ends, by another clock."""
    return [
        {**event, "ts": event["ts"] + clock + (event["dur"] - took) * moves, "dur": took if moves else event["dur"]}
        for event in events
        for moves in ("Collective name" in event["args"],)
    ]


def test_what_collectives_wait_for_other_ranks_is_known_of_several(tmp_path: Path) -> None:
    alone = step_of(tmp_path, LAYER)
    step = ranks_of(tmp_path, (3, LAYER), (0, later(LAYER, 150, 5e7)), (1, later(LAYER, 190, -3e5)))
    kinds = {each.kind: each.measured_us for each in step.kinds(coarse(step))}

    assert (alone.waited_us, step.waited_us) == (0, (210 - 150) + (205 - 150))
    assert (kinds["all_gather"], kinds["reduce_scatter"], kinds["GEMM"]) == (150, 150, 750)
    assert "5 of 8 ranks have no trace: each is taken to be as rank 3" in step.doubts
    assert step.measured_us == alone.measured_us
    assert "took 370.0 us, 150.0 us" in step.text


def test_the_rank_that_comes_last_waits_for_none(tmp_path: Path) -> None:
    step = ranks_of(tmp_path, (0, later(LAYER, 150, 0)), (3, LAYER))
    times = {each.rank: (each.waited_us, each.simulated_waited_us) for each in step.rank_times(coarse(step))}

    assert step.waited_us == 0
    assert (times[0][0], times[3][0]) == (0, 115)


def test_traces_that_are_not_of_one_run(tmp_path: Path) -> None:
    fewer = [event for event in LAYER if "Collective name" not in event["args"]]
    for runs, said in (
        (((3, LAYER), (3, LAYER)), "MGS634 2 traces are of rank 3"),
        (((3, LAYER), (0, fewer)), "MGS634 no collective of rank 3 is in another trace"),
        (((3, LAYER), (0, [])), "MGS631 the trace has no kernels of a GPU"),
    ):
        with pytest.raises(CompileError) as caught:
            ranks_of(tmp_path, *runs)
        (found,) = caught.value.diagnostics
        assert f"{found.code.name} {found.message}".startswith(said)


def test_ranks_are_simulated_together(tmp_path: Path) -> None:
    """Who waits for whom is an outcome: ranks come when their own kernels have ended."""
    runs = list(enumerate(several_ranks(8, 1, 0.3)))
    first, alone = ranks_of(tmp_path, *runs), ranks_of(tmp_path, runs[0])
    results = coarse(first)
    (whole,), (one,) = results, coarse(alone)

    assert whole.ranks_simulated == 8
    assert abs(whole.makespan_us / first.measured_us - 1) < 0.03
    assert one.makespan_us / alone.measured_us < 0.9  # which knows nothing of ranks that it waited for
    for each in some(first.rank_times(results)):
        assert each.simulated_waited_us == pytest.approx(each.waited_us, abs=0.1)
        assert each.simulated_us / each.measured_us == pytest.approx(whole.makespan_us / first.measured_us, abs=1e-3)
    assert max(each.waited_us for each in first.rank_times(results)) > 100
    (other,) = (each for each in first.kinds(results) if each.kind == "other kernels")
    assert other.simulated_us == pytest.approx(other.measured_us, abs=0.1)
    assert compile_text(first.text).scenario("step").workload == first.parts[0].scenario.workload


def test_ranks_that_are_alike_are_simulated_once(tmp_path: Path) -> None:
    runs = list(enumerate(several_ranks(8, 1, 0.0)))
    step, alone = ranks_of(tmp_path, *runs), ranks_of(tmp_path, runs[0])

    assert coarse(step)[0].ranks_simulated == 1
    assert coarse(step)[0].makespan_ticks == coarse(alone)[0].makespan_ticks
    assert alone.rank_times(coarse(alone)) == ()


def test_long_steps_of_several_ranks_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "parts_of", partial(parts_of, most=10))
    runs = list(enumerate(several_ranks(8, 4, 0.3)))
    step = ranks_of(tmp_path, *runs)
    results = coarse(step)

    assert len(step.parts) == 2
    assert abs(step.total_us([each.makespan_us for each in results]) / step.measured_us - 1) < 0.03
    for each in step.rank_times(results):
        assert each.simulated_us / each.measured_us == pytest.approx(0.98, abs=0.02)


def test_kernels_that_a_rank_has_not(tmp_path: Path) -> None:
    runs = several_ranks(8, 1, 0.3)
    runs[2] = [event for event in runs[2] if event["name"] != "norm"]
    step = ranks_of(tmp_path, *enumerate(runs))

    assert "2 kernels of rank 0 are not as often in rank 2: taken to be as long" in step.doubts
    assert abs(coarse(step)[0].makespan_us / step.measured_us - 1) < 0.04


def test_a_rank_whose_clock_runs_a_thousand_times_as_fast_is_refused(tmp_path: Path) -> None:
    runs = several_ranks(8, 1, 0.3)[:2]
    for event in runs[1]:
        event["ts"] *= 1000
    with pytest.raises(CompileError) as caught:
        ranks_of(tmp_path, *enumerate(runs))

    (found,) = caught.value.diagnostics
    assert found.code.name == "MGS634" and "collectives of rank 1 end up to" in found.message


def test_ranks_of_other_groups_are_left_out(tmp_path: Path) -> None:
    runs = several_ranks(8, 1, 0.3)
    step = ranks_of(tmp_path, (0, runs[0]), (9, runs[1]))

    assert "1 of 2 traces are of ranks that move nothing with rank 0: left out" in step.doubts


def test_kernels_are_kept_of_the_last_steps_alone(tmp_path: Path) -> None:
    """Of each trace, so that many long ones may be read."""
    runs = several_ranks(8, 1, 0.3, layers=6)[:2]
    for events in runs:
        norms = [event["ts"] - 10 for event in events if event["name"] == "norm"]
        spans = zip(norms, [*norms[1:], norms[-1] + 1e5], strict=True)
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": at, "dur": end - at, "args": {}}
            for n, (at, end) in enumerate(spans)
        ]
    run = run_of(runs[0])
    kept, asked = replay._needed(run, None), replay._needed(run, 1)

    assert [len(each.kernels) for each in (run, kept, asked)] == [48, 32, 8]
    assert kept.kernels == run.kernels[16:]
    step = ranks_of(tmp_path, *enumerate(runs))
    assert "step 5 of those that the trace marks: 0, 1, 2, 3, 4, 5" in step.doubts


def test_the_last_step_that_all_ranks_mark(tmp_path: Path) -> None:
    def marked(events: Sequence[Event], *numbers: int) -> list[Event]:
        start = min(event["ts"] for event in events if event["cat"] == "kernel") - 10
        marks = [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": start, "dur": 9e3, "args": {}}
            for number in numbers
        ]
        return [*marks, *events]

    runs = several_ranks(8, 1, 0.3)
    step = ranks_of(tmp_path, (0, marked(runs[0], 4, 5)), (1, marked(runs[1], 3, 4)))
    assert "step 4 of those that the trace marks: 4, 5" in step.doubts


@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_times_in_another_unit_are_told_of_one_rank_and_of_many(tmp_path: Path, factor: float) -> None:
    def in_unit(events: Sequence[Event]) -> list[Event]:
        return [{**each, "ts": AT + (each["ts"] - AT) * factor, "dur": each["dur"] * factor} for each in events]

    runs = several_ranks(8, 1, 0.3)[:3]
    alone, plain = step_of(tmp_path, in_unit(LAYER)), step_of(tmp_path, LAYER)
    many = ranks_of(tmp_path, *((rank, in_unit(run)) for rank, run in enumerate(runs)))

    assert "as in another unit: times of a trace are in us" in alone.doubts[0]
    assert [doubt.partition(":")[0] for doubt in many.doubts[:3]] == ["rank 0", "rank 1", "rank 2"]
    assert not any("another unit" in doubt for doubt in plain.doubts)


def test_what_is_odd_in_the_trace_of_another_rank_is_told(tmp_path: Path) -> None:
    first, other_rank = several_ranks(8, 1, 0.3)[:2]
    kernels = [event for event in other_rank if event["cat"] == "kernel"]
    for event in kernels[-6:]:
        event["ts"] += 400
    for event in kernels[:1]:
        event["ts"] -= 3e6
    step = ranks_of(tmp_path, (0, first), (1, other_rank))

    assert "rank 1: 1 kernels are a second or more from the others: left out" in step.doubts
    assert any(
        "collectives of rank 1 end up to" in doubt and "its clock runs faster or slower" in doubt
        for doubt in step.doubts
    )
    (tmp_path / "rank_0.json").write_text(json.dumps({**document(first), "distributedInfo": {"rank": 0}}))
    cut = json.dumps({**document(first), "distributedInfo": {"rank": 1}})[:1500]
    (tmp_path / "cut.json").write_text(cut)
    report = Report()
    with report.attempt():
        read_step(tmp_path / "rank_0.json", "rank_0.json", "", None, report, [tmp_path / "cut.json"])
    (found,) = report.diagnostics
    assert found.code.name == "MGS634" and "rank 1: the trace ends early" in found.message
