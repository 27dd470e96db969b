"""The report: its figures are those of ``advise --json``, it loads nothing, and all text in it is text."""

import json
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor
from magus.advisor.answer.export import advice_document
from magus.compiler import compile_text
from magus.compiler.ir import Scenario
from magus.simcore import Result, run_of
from magus.tui.report import ReportData, report_html
from magus.tui.report.shell import IDLE
from tests.helpers.chromium import CHROMIUM, opened
from tests.helpers.commands import document, magus
from tests.helpers.hostile_text import HTML, is_safe

TEXT = """use "nvidia/h100"
param M = 1024 in 512..1024 x2
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload up on s { x = tensor bf16[M, 1024] shard rows; w = tensor bf16[1024, 2048]; y = gemm(all_gather(x), w) }
explore up { schedules serial, shard_p2p, uniform_fused_1d; chunks 8; engine dma(3), sm(16) }
"""
QUICK = ("--bespoke", "0", "--top", "2", "--workers", "1")
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "section", "footer", "script"),
    *("h1", "h2", "h3", "p", "div", "ul", "li", "code", "pre", "output", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "path", "text"),
}


@dataclass
class Page(HTMLParser):
    """The tags of a page, its texts, and the cells of its tables by row."""

    tags: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    rows: list[list[str]] = field(default_factory=list)
    said: dict[str, list[str]] = field(default_factory=dict)
    path: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag != "meta":
            self.path.append((tag, dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        while self.path and self.path.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.path:
            tag, kind = self.path[-1]
            self.said.setdefault(kind or tag, []).append(data)
            if tag == "td" and self.rows[-1]:
                self.rows[-1][-1] += data


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    return page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "up.mgs"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def page_file(file: Path) -> Path:
    out = file.with_name("up.html")
    done = magus("report", file, "-o", out, *QUICK)
    assert done.exit_code == 0 and "up.html: up, one page" in done.stderr, done.output
    return out


@pytest.fixture(scope="module")
def reported(file: Path) -> dict[str, Any]:
    return dict(document("advise", file, *QUICK))


@pytest.fixture(scope="module")
def advice() -> Advice:
    options = AdviceOptions(top=2, bespoke=0)
    return Advisor.load().recommend(compile_text(TEXT).scenario(), options)


def report_of(advice: Advice, **changes: Any) -> ReportData:
    assert isinstance(advice.result, Result)
    return replace(ReportData(advice, run_of(advice.case, advice.result), advice_document(advice), "up.mgs"), **changes)


def test_the_figures_are_those_of_the_json(page_file: Path, reported: dict[str, Any]) -> None:
    page = parsed(page_file.read_text())

    shown = [
        row for row in page.rows if len(row) == 6 and row[1] in {each["schedule"] for each in reported["candidates"]}
    ]
    simulated = [each for each in reported["candidates"] if each["simulated_us"] is not None]
    assert [row[1] for row in shown] == [each["name"] for each in simulated]
    assert [float(row[3].lstrip("~")) for row in shown] == [round(each["simulated_us"], 1) for each in simulated]
    assert [row[4] for row in shown] == [f"{each['speedup_vs_serial']:.2f}x" for each in simulated]
    bound_gain = reported["baseline"]["us"] / reported["lower_bound_us"]
    offer = reported["implementations"]["offers"][0]["speedup_vs_library"] if reported["implementations"] else 1.0
    assert page.said["gain"] == [f"{gain:.2f}x" for gain in (offer, reported["promised"], bound_gain)]
    for row in reported["reasons"]:
        assert row in page.said["li"]


def test_the_data_of_the_page_is_the_json(page_file: Path, reported: dict[str, Any]) -> None:
    pattern = re.compile(r'<script type="application/json" id="advice">(.*?)</script>', re.DOTALL)
    (data,) = pattern.findall(page_file.read_text())

    carried = json.loads(data)

    assert carried.keys() == reported.keys() - {"next"}
    assert {**carried, "timing": None} == {**{name: reported[name] for name in carried}, "timing": None}


@pytest.mark.slow
def test_the_sweep_has_the_values_of_the_param(page_file: Path, file: Path) -> None:
    page = parsed(page_file.read_text())
    points = [row for row in page.rows if len(row) == 6 and row[0] in ("512", "1024")]

    swept = document("sweep", file, "--set", "M=512..1024", "--top", "4", "--workers", "1")["points"]

    assert isinstance(swept, list)
    assert [(row[0], row[2], row[3]) for row in points] == [
        (point["settings"]["M"], point["schedule"], f"{point['us']:.1f}") for point in swept
    ]


def test_every_number_of_the_devices_has_its_value_and_origin(page_file: Path) -> None:
    rows = {row[0]: row[1:] for row in parsed(page_file.read_text()).rows if len(row) == 4}

    stated = {each.path: each for each in compile_text(TEXT).numbers if each.device in ("H100", "nvswitch", "nvlink")}
    assert stated.keys() <= rows.keys() and len(stated) > 40
    assert all(rows[path][1] == each.origin.value for path, each in stated.items())
    assert rows["nvlink.achieved"][0].endswith("GB/s") and all(rows[path][0] for path in stated)


def test_a_page_without_a_sweep(file: Path, tmp_path: Path) -> None:
    for words in (("--no-sweep",), ("--set", "M=512")):
        done = magus("report", file, "-o", tmp_path / "out.html", *QUICK, *words)
        assert done.exit_code == 0 and "From size to size" not in (tmp_path / "out.html").read_text()


def test_a_sweep_for_which_there_is_no_time_is_left_out(file: Path, tmp_path: Path) -> None:
    done = magus("report", file, "-o", tmp_path / "out.html", *QUICK, "--sweep-within", "1ms")

    assert done.exit_code == 0, done.output
    assert "The sweep over M was left out" in (tmp_path / "out.html").read_text()


def test_the_page_loads_nothing_and_runs_no_other_script(page_file: Path) -> None:
    text = page_file.read_text()
    page = parsed(text)

    assert page.tags <= TAGS
    assert not page.attributes & {"src", "href", "action", "onload", "onclick", "onerror"}
    assert set(re.findall(r"https?://[^\s\"'<]+", re.sub(r"<td>.*?</td>", "", text))) <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text


@pytest.mark.parametrize("hostile", HTML)
def test_text_of_others_is_shown_as_text(hostile: str, advice: Advice) -> None:
    scenario, candidate = advice.case, advice.recommended
    scenario = replace(scenario, shape=replace(scenario.shape, name=hostile, about=hostile))
    gpu = replace(scenario.system.gpu, name=hostile)
    scenario = replace(scenario, system=replace(scenario.system, gpu=gpu))
    numbers = tuple(replace(each, path=f"{hostile}.x", source=hostile) for each in compile_text(TEXT).numbers)
    advice = replace(
        advice,
        scenario=Scenario.of_one(scenario),
        reasons=(hostile,),
        marks=(hostile,),
        confidence_reason=hostile,
        candidates=(replace(candidate, expression=hostile), *advice.candidates),
    )

    files = {"file": hostile, "settings": ((hostile, hostile),), "sweep_note": hostile, "numbers": numbers}
    text = report_html(report_of(advice, **files))

    page = parsed(text)
    assert page.tags <= TAGS and not page.attributes & {"onerror", "onload", "href", "src"}
    assert text.count("</script>") == 2 and is_safe(text)


def test_a_page_is_the_same_each_time(advice: Advice) -> None:
    assert report_html(report_of(advice)) == report_html(report_of(advice))


def test_a_missing_folder_is_reported_before_the_work(file: Path, tmp_path: Path) -> None:
    done = magus("report", file, "-o", tmp_path / "nowhere" / "out.html")

    assert (done.exit_code, done.stdout) == (1, "") and "there is no folder" in done.stderr
    assert "advising" not in done.stderr and not list(tmp_path.iterdir())


def test_a_report_needs_a_file_to_write_to(file: Path) -> None:
    done = magus("report", file)

    assert done.exit_code == 2 and "'-o'" in done.stderr


def test_an_error_of_the_scenario_is_reported_and_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "bad.mgs").write_text("workload w on nowhere {}\n")

    done = magus("report", tmp_path / "bad.mgs", "-o", tmp_path / "out.html")

    assert done.exit_code == 1 and "MGS" in done.stderr and not (tmp_path / "out.html").exists()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
def test_a_browser_opens_it_without_an_error(page_file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text("<!DOCTYPE html><title>x</title><script>nowhere.to.be = found;</script>")

    assert "nowhere is not defined" in "".join(opened(broken, tmp_path / "a").console)
    shown = opened(page_file, tmp_path / "b")
    assert shown.console == ()
    assert shown.dom.count(f">{IDLE}</output>") == page_file.read_text().count("<output")


POINT = """<script>
const bar = document.querySelector(".bar[data-waits]");
bar.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
</script>
</body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
def test_a_step_that_is_pointed_at_lights_up_what_it_waited_for(page_file: Path, tmp_path: Path) -> None:
    pointed = tmp_path / "pointed.html"
    pointed.write_text(page_file.read_text().replace("</body>", POINT))

    shown = opened(pointed, tmp_path / "profile")

    (waits,) = re.findall(r'data-waits="([^"]*)"', shown.dom)[:1]
    assert shown.console == () and shown.dom.count(" linked") == len(set(waits.split()))
    assert len(re.findall(r">g\w*: [^<]* us[^<]*</output>", shown.dom)) == 1
