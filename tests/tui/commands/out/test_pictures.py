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
    assert "No such file or directory" in done.stderr and "nowhere" in done.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_a_picture_is_of_one_workload(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT + TEXT.splitlines()[2].replace("workload up", "workload more") + "\n")

    done = magus("advise", file, "--trace", tmp_path / "out.json")

    assert done.exit_code == 2 and "--trace is about one workload; --workload says which: up, more" in done.stderr
    assert not (tmp_path / "out.json").exists()
