"""Drawings are seen as they are meant in every viewer: colours are attributes, on paper of their own."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from magus.advisor.policy.table import SweepPoint
from magus.compiler import compile_text
from magus.compiler.ir import Pattern
from magus.compiler.resolve.expect.expectation import Verdict
from magus.simcore import run_of
from magus.simcore.figures.result import Waterfall
from magus.tui.drawing.svg import LETTER_WIDTH, compared_svg, map_svg, sweep_svg, waterfall_svg
from magus.tui.drawing.timeline_svg import loads_svg, timeline_svg
from tests.helpers import paths
from tests.helpers.scenarios.graph_runs import ONE_LAYER, graph_run
from tests.helpers.scenarios.simulated import persistent_run, runs
from tests.helpers.some import some
from tests.helpers.tui import fakes

pytestmark = pytest.mark.usefixtures("compiled_core")
DRAW = (timeline_svg, loads_svg)
SVG = "{http://www.w3.org/2000/svg}"
SHAPES = (f"{SVG}rect", f"{SVG}text", f"{SVG}path")
COLOUR = re.compile(r"#[0-9a-f]{6}")
PAIR = """use "nvidia/h100"
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload up on s { x = tensor bf16[1024, 1024] shard rows; w = tensor bf16[1024, 512]; y = gemm(all_gather(x), w) }
"""


def timelines() -> Iterator[str]:
    yield from (draw(run_of(*each)) for each in (*runs(Pattern.GEMM_RS, 4), persistent_run()) for draw in DRAW)


def layers() -> Iterator[str]:
    yield timeline_svg(graph_run("pairs", ONE_LAYER))


def losses() -> Iterator[str]:
    yield waterfall_svg(Waterfall(1024, 131, 20, -5, 7, 9, 100))


def sweeps() -> Iterator[str]:
    scenario = compile_text(PAIR).scenario().case
    answers = [fakes.advice(scenario, verdict) for verdict in (Verdict.SERIAL, Verdict.OVERLAP)]
    yield sweep_svg([SweepPoint((("M", str(rows)),), advice) for rows, advice in enumerate(answers, 1)], "M")
    points = [
        SweepPoint((("M", str(rows)), ("N", str(cols))), advice)
        for rows in (64, 128)
        for cols, advice in enumerate(answers, 1)
    ]
    drawing = map_svg(points, "M", "N")
    assert drawing.count("fill-opacity") == len(points) and ">M ↓" in drawing
    yield drawing
    yield compared_svg(answers)


def pictures() -> Iterator[str]:
    yield from (each.read_text(encoding="utf-8") for each in sorted(paths.DOCS.glob("*.svg")))


@pytest.mark.parametrize("drawn", [timelines, layers, losses, sweeps, pictures])
def test_every_viewer_sees_the_colours(drawn: object) -> None:
    for text in some(drawn()):  # type: ignore[operator]
        assert "var(" not in text and "currentColor" not in text and "<style" not in text and "url(http" not in text
        root = ElementTree.fromstring(text)
        clips = {each for clip in root.iter(f"{SVG}clipPath") for each in clip.iter()}
        shapes = [each for each in root.iter() if each.tag in SHAPES and each not in clips]
        assert COLOUR.fullmatch(shapes[0].get("fill", ""))  # opaque, so that a dark page behind it changes nothing
        for each in shapes:
            fill, stroke = each.get("fill", ""), each.get("stroke", "")
            assert COLOUR.fullmatch(fill) or (fill == "none" and COLOUR.fullmatch(stroke)), each.attrib


def luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_letters_stand_out_from_the_paper() -> None:
    (text,) = layers()
    letters = [each for each in ElementTree.fromstring(text).iter(f"{SVG}text") if "on" not in each.get("class", "")]
    for each in some(letters):
        assert 1.05 / (luminance(each.get("fill", "")) + 0.05) >= 4.5


def test_words_of_compared_systems_lie_inside() -> None:
    scenario = compile_text(PAIR).scenario().case
    slow = fakes.advice(scenario, Verdict.SERIAL)
    drawing = ElementTree.fromstring(compared_svg([slow, fakes.advice(scenario, Verdict.OVERLAP)]))
    words = [each for each in some(drawing.iter(f"{SVG}text")) if each.get("text-anchor") is None]
    ends = [float(each.get("x", "")) + LETTER_WIDTH * len(each.text or "") for each in words]

    assert max(ends) <= float(drawing.get("width", "0"))
    names = [slow.name_of(slow.recommended.expression)]
    assert [each.text for each in words if each.text in names], "the schedule is named in full"
