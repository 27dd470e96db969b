"""Graphs in traces and drawings: ops by name, with the figures of the result."""

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from magus.compiler.ir import TICKS_PER_US
from magus.simcore import ShownRun
from magus.tui.drawing.chrome_trace import chrome_trace
from magus.tui.drawing.timeline_svg import timeline_svg
from tests.helpers.scenarios.graph_runs import ONE_LAYER, SCHEDULES, graph_run

pytestmark = pytest.mark.usefixtures("compiled_core")
Event = dict[str, Any]


def events_of(run: ShownRun) -> list[Event]:
    events = json.loads(chrome_trace(run).text)["traceEvents"]
    assert isinstance(events, list)
    return events


def union_us(events: Iterable[Event]) -> float:
    total = reached = 0.0
    for start, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        total, reached = total + max(0.0, end - max(start, reached)), max(reached, end)
    return total


@pytest.mark.quick(1)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_trace_has_the_times_of_each_op(schedule: str) -> None:
    run = graph_run(schedule)
    events = [event for event in events_of(run) if event["ph"] == "X" and event["pid"] == 0]
    steps = [event for event in events if event["cat"] == "kernel"]
    exposed = [event for event in events if event["cat"] == "exposed"]
    ops = {event["name"]: event for event in events if event["cat"] == "op"}

    result = run.result
    assert union_us(exposed) == pytest.approx((result.union_ticks - result.compute_ticks) / TICKS_PER_US, abs=1e-3)
    assert set(ops) == {op.name for op in run.ops}
    kernels = [event for event in steps if not event["name"].startswith("ncclDevKernel_")]
    for op in run.ops:
        own = [event for event in steps if event["args"]["op"] == op.name]
        copies = [event for event in own if event["name"].startswith("ncclDevKernel_")]
        assert ops[op.name]["ts"] == pytest.approx(op.begin_ticks / TICKS_PER_US, abs=1e-5)
        assert ops[op.name]["dur"] == pytest.approx(op.makespan_ticks / TICKS_PER_US, abs=1e-5)
        compute = union_us(event for event in own if event not in copies)
        assert compute == pytest.approx(op.compute_ticks / TICKS_PER_US, abs=1e-3)
        assert union_us(copies) == pytest.approx(op.comm_ticks / TICKS_PER_US, abs=1e-3)
        alone = union_us((*copies, *kernels)) - union_us(kernels)
        assert alone == pytest.approx(op.exposed_ticks / TICKS_PER_US, abs=1e-3)


def test_slices_lie_side_by_side_and_arrows_join_ops() -> None:
    events = events_of(graph_run("pairs"))
    threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}

    assert set(threads) <= set(named) and {"op u", "op y", "stream 0", "dma 0"} <= set(named.values())
    for slices in threads.values():
        slices.sort(key=lambda event: event["ts"])
        assert all(one["ts"] + one["dur"] <= after["ts"] + 1e-6 for one, after in pairwise(slices))
    arrows = [event for event in events if event["ph"] in "sf"]
    assert {"u", "u_norm", "y"} <= {event["name"] for event in arrows}
    for arrow in arrows:
        slices = threads[arrow["pid"], arrow["tid"]]
        assert any(one["ts"] - 1e-6 <= arrow["ts"] <= one["ts"] + one["dur"] + 1e-6 for one in slices)
    layers = {event["args"].get("layer") for event in events if event.get("cat") == "kernel"}
    assert layers == {1, 2, 3, 4, 5}


def test_the_drawing_has_a_lane_for_each_op_and_shows_one_layer() -> None:
    many, one = timeline_svg(graph_run("pairs")), timeline_svg(graph_run("pairs", ONE_LAYER))

    for name in ("u_norm", "u", "y", "y_add"):
        assert f">{name}</text>" in many and f">{name}</text>" in one
    assert "u@3.g0" in many and "u@5.g0" not in many
    assert "40 layers take" in many and "layers" not in one


def test_hta_finds_the_overlap_of_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hta = pytest.importorskip("hta.trace_analysis", reason="the extra peers is not installed")
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")  # else it rounds to whole microseconds
    run, file = graph_run("whole", ONE_LAYER), tmp_path / "0.json"
    file.write_text(chrome_trace(run, range(1)).text)

    found = hta.TraceAnalysis(trace_files={0: str(file)}).get_comm_comp_overlap(visualize=False)

    result = run.result
    hidden = 100 * (result.comm_ticks + result.compute_ticks - result.union_ticks) / result.comm_ticks
    assert list(found["comp_comm_overlap_pctg"]) == pytest.approx([hidden], abs=0.02)
