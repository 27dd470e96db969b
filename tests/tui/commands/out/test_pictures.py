"""``--trace`` and ``--svg``: files of a run, whole or not at all."""

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.helpers.commands import document, magus

TEXT = """use "amd/mi300x"
system s { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on s { x = tensor bf16[512, 512] shard rows; w = tensor bf16[512, 256]; y = gemm(all_gather(x), w) }
"""
SCHEDULE = ("--schedule", "shard_p2p(engine=dma(3))", "--granularity", "packet")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "up.mgs"
    path.write_text(TEXT)
    return path


def test_the_trace_is_of_the_run_that_is_printed(file: Path, tmp_path: Path) -> None:
    trace, svg = tmp_path / "run.json", tmp_path / "run.svg"

    printed = document("simulate", file, *SCHEDULE, "--trace", trace, "--svg", svg)

    about = json.loads(trace.read_text())["magus"]
    assert about["makespan_us"] == printed["makespan_us"] and about["schedule"] == printed["schedule"]
    assert ElementTree.parse(svg).getroot().get("aria-label") == f"up: {printed['schedule']}"


def test_a_trace_may_be_packed(file: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "run.json", tmp_path / "run.json.gz"

    assert magus("simulate", file, *SCHEDULE, "--trace", plain).exit_code == 0
    assert magus("simulate", file, *SCHEDULE, "--trace", packed).exit_code == 0

    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_each_rank_may_have_a_file(file: Path, tmp_path: Path) -> None:
    done = magus("simulate", file, *SCHEDULE, "--trace", tmp_path / "rank-{rank}.json")

    assert done.exit_code == 0, done.output
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text())["distributedInfo"]["rank"] for rank in range(4)]
    assert ranks == [0, 1, 2, 3] and "4 of 4 ranks" in done.stderr


def test_advice_is_drawn_too(file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "advice.json"

    advice = document("advise", file, "--no-verify", "--trace", trace)

    assert json.loads(trace.read_text())["magus"]["schedule"] == advice["recommended"]


def test_a_folder_is_no_trace(file: Path) -> None:
    done = magus("simulate", file, "--trace", ".")

    assert (done.exit_code, done.stderr) == (1, "magus: .: Is a directory\n")


@pytest.mark.parametrize("verb", ["simulate", "advise"])
@pytest.mark.parametrize("option", ["--trace", "--svg"])
def test_a_file_that_cannot_be_written_is_reported_before_the_work(
    verb: str, option: str, file: Path, tmp_path: Path
) -> None:
    done = magus(verb, file, option, tmp_path / "nowhere" / "out.json")

    assert (done.exit_code, done.stdout) == (1, "")
    assert "there is no folder" in done.stderr and "nowhere" in done.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_a_picture_is_of_one_workload(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT + TEXT.splitlines()[2].replace("workload up", "workload more") + "\n")

    done = magus("advise", file, "--trace", tmp_path / "out.json")

    assert done.exit_code == 2 and "--trace is about one workload; --workload says which: up, more" in done.stderr
    assert not (tmp_path / "out.json").exists()


PNG = b"\x89PNG\r\n"


@pytest.mark.parametrize("what", ["timeline", "waterfall", "loads"])
def test_each_picture_is_a_png_too(file: Path, tmp_path: Path, what: str) -> None:
    pytest.importorskip("resvg_py")
    out = tmp_path / "run.png"

    done = magus("simulate", file, *SCHEDULE, "--draw", what, "--png", out)

    assert done.exit_code == 0 and f"{out}: " in done.stderr
    assert out.read_bytes().startswith(PNG) and len(out.read_bytes()) > 5000


def test_a_sweep_is_a_curve_over_one_param_and_a_map_over_two(file: Path, tmp_path: Path) -> None:
    text = TEXT.replace("[512, 512]", "[M, 512]").replace("256", "N")
    file.write_text(f"param M = 512\nparam N = 256\n{text}explore up {{ engine dma(3); chunks 4, 8 }}\n")
    words = ("sweep", file, "--no-verify", "--bespoke", "0", "--set", "M=512,1024")
    curve, chart = tmp_path / "curve.svg", tmp_path / "map.svg"

    assert magus(*words, "--plot", curve).exit_code == 0
    assert magus(*words, "--set", "N=128,256", "--plot", chart).exit_code == 0
    assert ElementTree.parse(curve).getroot().get("aria-label") == "Gain by M"
    assert ElementTree.parse(chart).getroot().get("aria-label") == "Gain by M and N"
    none = magus("sweep", file, "--no-verify", "--plot", tmp_path / "none.svg")
    assert none.exit_code == 2 and "draws one param or two that vary, not 0" in none.stderr


def test_png_without_its_extra_says_how_to_get_it(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magus.tui.verbs.options.find_spec", lambda name: None)

    done = magus("simulate", file, *SCHEDULE, "--png", tmp_path / "run.png")

    assert done.exit_code == 2 and "magus-gpu[png]" in done.stderr and not list(tmp_path.glob("*.png"))


def test_workloads_of_a_file_are_compared_in_a_picture(file: Path, tmp_path: Path) -> None:
    other = (
        TEXT.split("\n", 1)[1]
        .replace("system s", "system r")
        .replace("full_mesh", "ring")
        .replace("up on s", "two on r")
    )
    file.write_text(TEXT + other)

    assert magus("advise", file, "--no-verify", "--bespoke", "0", "--svg", tmp_path / "both.svg").exit_code == 0
    drawing = (tmp_path / "both.svg").read_text()
    assert ">4 x MI300X, ring<" in drawing and ">4 x MI300X, full_mesh<" in drawing
