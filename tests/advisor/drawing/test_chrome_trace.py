"""Traces: events are whole, slices of a thread lie side by side, arrows begin and end in slices, counters add up."""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from magus.compiler.ir import TICKS_PER_US, EngineChoice, EngineKind, OpCase, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.simcore import Result, exposed_spans, run_of, simulate_op
from magus.tui.drawing import chrome_trace as writer
from magus.tui.drawing.chrome_trace import chrome_trace
from magus.tui.drawing.timeline_svg import timeline_svg
from tests.helpers.hostile_text import HTML
from tests.helpers.scenarios.scenarios import ag_gemm
from tests.helpers.scenarios.simulated import persistent_run, runs
from tests.helpers.some import some

PATTERNS = [Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.ALL_TO_ALL]
Event = dict[str, Any]


def events_of(scenario: OpCase, result: Result, ranks: range | None = None) -> dict[str, list[Event]]:
    """The events of a trace by their phase."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in json.loads(chrome_trace(run_of(scenario, result), ranks).text)["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def chunked() -> tuple[OpCase, Result]:
    scenario = ag_gemm(4096, 512, 4096)
    schedule = build_op_plan(scenario, OpChoice("uniform_fused_1d", 32, EngineChoice(EngineKind.DMA, 7)))
    return scenario, simulate_op(scenario, schedule)


@pytest.mark.quick(1)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_slices_of_a_thread_lie_side_by_side_and_arrows_join_slices(pattern: Pattern) -> None:
    for scenario, result in some([*runs(pattern, 4), persistent_run()]):
        events = events_of(scenario, result)

        threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for event in events["X"]:
            threads[event["pid"], event["tid"]].append(event)
        named = {(event["pid"], event["tid"]) for event in events["M"] if event["name"] == "thread_name"}
        assert set(threads) <= named
        for slices in threads.values():
            slices.sort(key=lambda event: event["ts"])
            assert all(one["ts"] + one["dur"] <= after["ts"] + 1e-6 for one, after in pairwise(slices))
        assert sorted(event["id"] for event in events["s"]) == sorted(event["id"] for event in events["f"])
        for arrow in events["s"] + events["f"]:
            slices = threads[arrow["pid"], arrow["tid"]]
            assert any(one["ts"] <= arrow["ts"] <= one["ts"] + one["dur"] for one in slices)


def test_every_step_of_every_rank_has_a_slice() -> None:
    scenario, result = chunked()

    slices = [event for event in events_of(scenario, result)["X"] if event["cat"] == "kernel"]

    steps = {(event["pid"], event["args"]["step"]) for event in slices}
    assert steps == {(rank, step.name) for rank in range(8) for step in result.schedule.steps_of(rank)}
    assert len({event["args"]["correlation"] for event in slices if event["pid"] == 0}) == len(slices) // 8
    put = next(event["args"] for event in slices if "bytes" in event["args"])
    assert put["bytes"] == put["In msg nelems"] * 2 and put["dtype"] == "BFloat16" and put["Group size"] == 8


def test_an_arrow_leads_from_each_put_to_its_kernel() -> None:
    scenario, result = chunked()
    events = events_of(scenario, result)

    begins = {event["id"]: event for event in events["s"]}
    ends = {event["id"]: event for event in events["f"]}

    assert len(begins) == 8 * sum(step.name.startswith("x") for step in result.schedule.steps)
    assert all(begins[arrow]["ts"] < ends[arrow]["ts"] and begins[arrow]["pid"] != ends[arrow]["pid"] for arrow in ends)


def test_exposed_spans_are_slices_without_a_stream() -> None:
    scenario, result = chunked()

    exposed = [event for event in events_of(scenario, result)["X"] if event["cat"] == "exposed" and event["pid"] == 5]

    spans = exposed_spans(result.timeline, 5)
    assert [event["ts"] for event in exposed] == pytest.approx([start / TICKS_PER_US for start, _ in spans])
    assert [event["dur"] for event in exposed] == pytest.approx([(end - start) / TICKS_PER_US for start, end in spans])
    assert exposed and not any("stream" in event["args"] for event in exposed)


def test_counters_hold_the_bytes_that_passed() -> None:
    scenario, result = chunked()
    counters: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in events_of(scenario, result)["C"]:
        counters[event["pid"], event["name"]].append(event)

    gigabytes = {
        name: sum(one["args"]["GB/s"] * (after["ts"] - one["ts"]) for one, after in pairwise(events)) / 1e6
        for name, events in counters.items()
    }

    in_memory = sum(passed for (_, name), passed in gigabytes.items() if name.startswith("HBM"))
    on_links = sum(passed for (_, name), passed in gigabytes.items() if name.startswith("link"))
    loads = result.loads
    memory = loads.memory(0)
    links = [row for row in range(len(loads.each)) if row != memory]
    assert in_memory == pytest.approx(8 * loads.num_bytes[memory].sum() / 1e9, rel=1e-4)
    assert on_links == pytest.approx(8 * loads.num_bytes[links].sum() / 1e9, rel=1e-4)
    assert len(counters) == 8 + 8 * 7


def test_of_many_ranks_the_first_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, result = chunked()
    whole = chrome_trace(run_of(scenario, result))
    monkeypatch.setattr(writer, "MAX_EVENTS", 6000)

    few = chrome_trace(run_of(scenario, result))

    assert whole.ranks == range(8) and 1 <= len(few.ranks) < 8 and few.num_ranks == 8
    assert len(json.loads(few.text)["traceEvents"]) <= 6000


def test_a_trace_of_one_rank_says_which() -> None:
    scenario, result = chunked()

    document = json.loads(chrome_trace(run_of(scenario, result), range(3, 4)).text)

    assert document["distributedInfo"]["rank"] == 3 and document["distributedInfo"]["world_size"] == 8
    assert {event["pid"] for event in document["traceEvents"]} == {3}


def test_ranks_that_a_profile_stands_for_are_left_out() -> None:
    scenario, result = chunked()
    own = tuple(each for each in result.timeline.intervals if each.rank == 0)
    result = replace(result, timeline=replace(result.timeline, intervals=own, period=8))

    assert chrome_trace(run_of(scenario, result)).ranks == range(1)
    assert timeline_svg(run_of(scenario, result)).count(">rank ") == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", HTML)
def test_names_of_others_are_shown_as_text(text: str) -> None:
    scenario, result = chunked()
    intervals = tuple(replace(each, name=each.name + text) for each in result.timeline.intervals)
    result = replace(result, scenario=text, timeline=replace(result.timeline, intervals=intervals))

    trace = chrome_trace(run_of(replace(scenario, shape=replace(scenario.shape, name=text)), result)).text

    assert json.loads(trace)["traceEvents"] and trace.isascii()
    assert "\x1b" not in json.loads(trace)["magus"]["workload"]
