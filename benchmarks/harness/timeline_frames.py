"""Frames of a timeline of very many intervals, as a key pans, zooms or moves through it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from textual.app import App, ComposeResult
from textual.geometry import Region

from magus.compiler.ir import OpCase
from magus.compiler.pipeline import compile_file
from magus.compiler.planning.build import build_op_plan
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.examples import path
from magus.simcore import run_of, simulate_op
from magus.simcore.figures.result import Interval, IntervalKind, Result, Timeline
from magus.tui.app.panes.timeline import TimelineView

SIZE = (200, 60)
NUM_RANKS = 8
LANES = ("stream 0", "stream 1", *(f"dma {engine}" for engine in range(7)))


class _Alone(App[None]):
    def __init__(self, view: TimelineView) -> None:
        super().__init__()
        self._view = view

    def compose(self) -> ComposeResult:
        yield self._view


def frames_ms(num_intervals: int = 100_000, num_frames: int = 40) -> dict[str, list[float]]:
    """Wall time in ms of each frame by what made it: ``pan``, ``zoom``, ``step`` (of the cursor).

    A frame is the key's action and all lines of a screen of 200 x 60 on which every rank and lane is shown.
    """
    return asyncio.run(_frames_ms(num_intervals, num_frames))


async def _frames_ms(num_intervals: int, num_frames: int) -> dict[str, list[float]]:
    scenario, result = _large(num_intervals)
    view = TimelineView(id="lanes")
    async with _Alone(view).run_test(size=SIZE) as pilot:
        view.show(run_of(scenario, result))
        view.focus()
        view.action_ranks()
        await pilot.pause()
        assert view.model is not None, "it was shown"
        view.model.zoom_about(4, view.model.viewport.total_ticks // 2)
        actions: dict[str, Callable[[int], None]] = {
            "pan": lambda frame: view.action_pan(1 if frame % 8 < 4 else -1),
            "zoom": lambda frame: view.action_zoom(1 if frame % 2 else -1),
            "step": lambda frame: view.action_step(1 if frame % 8 < 4 else -1),
        }
        return {name: [_timed(view, action, frame) for frame in range(num_frames)] for name, action in actions.items()}


def _timed(view: TimelineView, action: Callable[[int], None], frame: int) -> float:
    began = time.perf_counter()
    action(frame)
    view.render_lines(Region(0, 0, *view.size))
    return (time.perf_counter() - began) * 1e3


def _large(num_intervals: int) -> tuple[OpCase, Result]:
    """The Result of a real run, with a timeline of so many short intervals in place of its own."""
    scenario = compile_file(Path(path("gemm_rs_h100")), ()).scenario().case
    schedule = build_op_plan(scenario, read_choice(scenario, "shard_p2p(engine=dma(7))"))
    result = simulate_op(scenario, schedule, unit_bytes=4096)
    per_lane = max(1, num_intervals // (NUM_RANKS * len(LANES)))
    step = max(2, result.makespan_ticks // per_lane)
    intervals = tuple(
        Interval(
            rank,
            lane,
            f"x{number}",
            IntervalKind.COMM if lane.startswith("dma") else IntervalKind.COMPUTE,
            number * step,
            number * step + step * 3 // 4,
        )
        for rank in range(NUM_RANKS)
        for lane in LANES
        for number in range(per_lane)
    )
    return scenario, replace(result, timeline=Timeline(NUM_RANKS, per_lane * step, intervals, NUM_RANKS))
