"""The commands on a file with a graph: times of each op, its schedules, and what is not answered yet."""

import gzip
import json
from pathlib import Path

import pytest

from tests.helpers.commands import document, magus
from tests.helpers.scenarios.graph_runs import TEXT

pytestmark = pytest.mark.usefixtures("compiled_core", "kept_results")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.mgs"
    path.write_text(TEXT)
    return path


def test_check_and_fmt(file: Path) -> None:
    assert magus("check", file).exit_code == 0
    assert magus("fmt", file).exit_code == 0
    assert magus("check", file).exit_code == 0


def test_simulate(file: Path) -> None:
    done = magus("simulate", file, "--granularity", "packet")
    assert done.exit_code == 0, done.output
    for words in ("4 ops, 40 layers", "all layers", "lower bound", "u_norm@3", "AG+GEMM", "Critical path"):
        assert words in done.output
    assert all(len(line) <= 80 for line in done.stdout.splitlines())

    found = document("simulate", file, "--schedule", "whole", "--granularity", "packet")
    layers, ops = found["layers"], found["ops"]
    assert isinstance(layers, dict) and isinstance(ops, list)
    assert layers["count"] == 40 and layers["simulated"] < 40
    assert found["schema"] == "magus-result/1" and found["schedule"] == "whole"
    assert len(ops) == layers["simulated"] * len({op["name"].partition("@")[0] for op in ops})
    makespan = found["makespan_us"]
    assert isinstance(makespan, float) and layers["makespan_us"] > makespan > 0
    bound = found["bound"]
    assert isinstance(bound, dict) and bound["us"] <= layers["makespan_us"]


def test_pictures(file: Path, tmp_path: Path) -> None:
    trace, svg = tmp_path / "out.json.gz", tmp_path / "out.svg"
    done = magus("simulate", file, "--granularity", "packet", "--trace", trace, "--svg", svg)

    assert done.exit_code == 0, done.output
    document_of_trace = json.loads(gzip.decompress(trace.read_bytes()))
    assert document_of_trace["magus"]["layers"] == 40 and document_of_trace["magus"]["schedule"] == "pairs"
    assert ">u_norm</text>" in svg.read_text()


def test_advise(file: Path) -> None:
    done = magus("advise", file)
    assert done.exit_code == 0, done.output
    for words in (
        "by the library",
        "Confidence medium",
        "no overlap",
        "each pair's own best, one after the other",
        "Why:",
        "lower bound",
    ):
        assert words in " ".join(done.stdout.split())
    assert all(len(line) <= 80 for line in done.stdout.splitlines())

    found = document("advise", file)
    best, serial = found["recommended"], found["serial"]
    assert isinstance(best, dict) and isinstance(serial, dict)
    assert found["schema"] == "magus-graph-advice/2" and found["verdict"] in ("overlap", "worth_trying")
    assert best["us"] < serial["us"]
    with_block = file.read_text() + str(best["block"])
    file.write_text(with_block)
    assert best["unit_bytes"] == 128  # lines
    layers = document("simulate", file, "--schedule", best["name"])["layers"]
    assert isinstance(layers, dict) and layers["makespan_ticks"] == best["ticks"]


def test_schedules(file: Path) -> None:
    found = document("schedules", file)

    assert found["schedules"] == ["pairs", "whole"]
    assert found["layers"] == 40 and found["batches"] == [1]
    done = magus("schedules", file)
    assert "GEMM+RS" in done.output and "serial is always there" in done.output


def test_what_is_not_answered_is_said(file: Path) -> None:
    sensitivity = magus("advise", file, "--sensitivity")
    assert sensitivity.exit_code == 2 and "--sensitivity is for pairs" in sensitivity.output
    unknown = magus("simulate", file, "--schedule", "pear")
    assert unknown.exit_code == 1 and "did you mean 'pairs'?" in unknown.output
    assert magus("simulate", file, "--seeds", "3").exit_code == 2
    assert magus("simulate", file, "--schedule", "serial", "--set", "M=512").exit_code == 0


def test_what_does_not_fit_into_memory_is_refused(file: Path) -> None:
    file.write_text(TEXT.replace("[1024, 4096]", "[1024, 4194304]").replace("[4096, 1024]", "[4194304, 1024]"))
    done = magus("simulate", file, "--granularity", "packet")

    assert done.exit_code == 1
    assert "MGS402" in done.output and "the tensors of 40 layers take" in " ".join(done.output.split())


def test_batches_have_ops_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "mlp.mgs"
    said = TEXT.replace("repeat 40 y as x", "repeat 3 y as x\n  batch x by 256")
    path.write_text(f"{said}\nschedule halves for mlp {{\n  batches 2\n  apart u[1], y by dma(3)\n}}\n")

    assert document("schedules", path)["batches"] == [1, 2, 4]
    assert "Batches, of sequences of 256 rows of x: 1, 2, 4." in magus("schedules", path).output
    done = magus("simulate", path, "--schedule", "halves", "--granularity", "packet")
    assert done.exit_code == 0, done.output
    assert "u[1]@3" in done.output and "AG+GEMM" in done.output
    ops = document("simulate", path, "--schedule", "halves", "--granularity", "packet")["ops"]
    assert isinstance(ops, list) and {op["name"] for op in ops} >= {"u[0]", "u[1]@2"}
    small = magus("simulate", path, "--schedule", "halves", "--set", "M=512")
    assert small.exit_code == 0, small.output
