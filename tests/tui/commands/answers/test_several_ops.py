"""The commands on several ops: times of each, their schedules, and what the options of one op tell of them."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.helpers.commands import document, magus
from tests.helpers.scenarios.graph_runs import TEXT

FEW = f"{TEXT}\nexplore mlp {{ engine sm(16); chunks 4, 8 }}\n"
"""The same with a part of the candidates, among them the answer."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.mgs"
    path.write_text(TEXT)
    return path


def test_check_and_fmt(file: Path) -> None:
    assert magus("check", file).exit_code == 0
    assert magus("fmt", file).exit_code == 0
    assert magus("check", file).exit_code == 0


@pytest.mark.slow
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


@pytest.mark.slow
def test_losses_are_of_a_layer_and_its_neighbours(file: Path) -> None:
    done = magus("simulate", file, "--schedule", "whole", "--granularity", "packet")
    assert "Loss waterfall of 3 layers, us (simulated at 1024 B):" in done.stdout

    found = document("simulate", file, "--schedule", "whole", "--granularity", "packet")
    losses, layers = found["waterfall"], found["layers"]
    assert isinstance(losses, dict) and isinstance(layers, dict)
    assert losses["layers"] == 3 and found["cil"] is not None
    terms = ("launch_sync", "contention", "decomposition", "exposed", "bound")
    assert sum(losses[f"{term}_us"] for term in terms) == pytest.approx(losses["makespan_us"])
    period = (layers["makespan_us"] - found["makespan_us"]) / (layers["count"] - layers["simulated"])
    assert losses["makespan_us"] == pytest.approx(found["makespan_us"] - (layers["simulated"] - 3) * period)


def test_pictures(file: Path, tmp_path: Path) -> None:
    trace, svg = tmp_path / "out.json.gz", tmp_path / "out.svg"
    done = magus("simulate", file, "--granularity", "packet", "--trace", trace, "--svg", svg)

    assert done.exit_code == 0, done.output
    document_of_trace = json.loads(gzip.decompress(trace.read_bytes()))
    assert document_of_trace["magus"]["layers"] == 40 and document_of_trace["magus"]["schedule"] == "pairs"
    assert ">u_norm</text>" in svg.read_text()


def test_advise(file: Path) -> None:
    file.write_text(FEW)
    done = magus("advise", file, "--full")
    assert done.exit_code == 0, done.output
    for words in (
        "by the library",
        "Confidence medium",
        "no overlap",
        "each pair's own best, one after the other",
        "Why:",
        "Lower bound",
    ):
        assert words in " ".join(done.stdout.split())
    assert all(len(line) <= 80 for line in done.stdout.splitlines())

    found = document("advise", file)
    candidates = found["candidates"]
    assert isinstance(candidates, list)
    by_name = {each["schedule"]: each for each in candidates}
    best, serial = by_name[found["recommended"]], by_name[found["serial"]]
    assert found["schema"] == "magus-advice/1" and found["verdict"] in ("overlap", "worth_trying")
    assert best["simulated_us"] < serial["simulated_us"]
    with_block = file.read_text() + str(found["block"])
    file.write_text(with_block)
    assert best["granularity"] == "line"
    layers = document("simulate", file, "--schedule", best["schedule"])["layers"]
    assert isinstance(layers, dict) and layers["makespan_us"] == best["simulated_us"]


def test_schedules(file: Path) -> None:
    found = document("schedules", file)

    assert found["schedules"] == ["pairs", "whole"]
    assert found["layers"] == 40 and found["batches"] == [1]
    done = magus("schedules", file)
    assert "GEMM+RS" in done.output and "serial is always there" in done.output


def test_what_is_not_answered_is_said(file: Path) -> None:
    unknown = magus("simulate", file, "--schedule", "pear")
    assert unknown.exit_code == 1 and "did you mean 'pairs'?" in unknown.output
    recorded = magus("simulate", file, "--record-writes", file.with_name("w.csv"), "--granularity", "packet")
    assert (
        recorded.exit_code == 1 and "MGS523 error: pairs has 4 parts, and writes are recorded of one" in recorded.output
    )
    kernel = magus("plan", file, "--format", "triton")
    assert kernel.exit_code == 1 and "mlp has 4 ops, and a Triton kernel is of one op" in kernel.output
    assert magus("simulate", file, "--schedule", "serial", "--set", "M=512").exit_code == 0


def test_what_does_not_fit_into_memory_is_refused(file: Path) -> None:
    file.write_text(TEXT.replace("[1024, 4096]", "[1024, 4194304]").replace("[4096, 1024]", "[4194304, 1024]"))
    done = magus("simulate", file, "--granularity", "packet")

    assert done.exit_code == 1
    assert "MGS402" in done.output and ": the tensors of 40 layers take" in " ".join(done.output.split())
    assert re.search(
        r"\.mgs:\d+:1: MGS402 error: workload (\w+): .*\n  workload \1 on ", done.output
    )  # where it is declared


def test_batches_have_ops_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "mlp.mgs"
    said = TEXT.replace("repeat 40 y as x", "repeat 3 y as x\n  batch x by 256")
    path.write_text(f"{said}\nschedule halves for mlp {{\n  batches 2\n  separate u[1], y by dma(3)\n}}\n")

    assert document("schedules", path)["batches"] == [1, 2, 4]
    assert "Batches, of sequences of 256 rows of x: 1, 2, 4." in magus("schedules", path).output
    small = ("simulate", path, "--schedule", "halves", "--set", "M=512", "--granularity", "packet")
    done = magus(*small)
    assert done.exit_code == 0, done.output
    assert "u[1]@3" in done.output and "AG+GEMM" in done.output
    ops = document(*small)["ops"]
    assert isinstance(ops, list) and {op["name"] for op in ops} >= {"u[0]", "u[1]@2"}


SEEDED = """\
Seeds 0 to 2, us, of 5 layers (simulated at 1024 B):
                  min        p5       p50       p95       p99       max
"""

HOW = """\
Part 4, y.reduce_scatter, reduce_scatter, in the stream of collectives; it waits
for all of y.
How to carry out serial(engine=dma(3)):
  - Every rank r of 4 does the same. Ranks count modulo 4.
  - Block b of y_reduce_scatter_partial is the 256 rows whose sum rank b gets.
  - copies: by 3 copy engines; the first free one takes the next copy. A copy
    that has arrived sets a flag there.
  - Steps of one stream run one after the other; beyond that a step waits only
    for what it names.

  1. copies: for k = 1, 2, 3, put the own part of block r+k to rank r+k (512 KiB
     each)
  2. stream 0: when block r has arrived from ranks r+1, r+2, r+3, sum its 4
     parts
"""


def test_seeds_are_of_a_few_layers(file: Path) -> None:
    file.write_text(TEXT.replace("link=nvlink) }", "link=nvlink); variability { jitter normal(5 %) } }"))
    done = magus("simulate", file, "--seeds", "3", "--schedule", "whole", "--granularity", "packet")
    assert done.exit_code == 0, done.output
    assert SEEDED in done.stdout

    found = document("simulate", file, "--seeds", "3", "--schedule", "whole", "--granularity", "packet")["seeds"]
    assert isinstance(found, dict) and found["layers"] == 5 and found["count"] == 3
    assert found["makespan_us"]["min"] < found["makespan_us"]["max"]


def test_parts_are_reported_in_the_order_of_issue(file: Path) -> None:
    done = magus("plan", file, "--format", "steps", "--schedule", "whole")
    assert done.exit_code == 0, done.output
    heads = [line for line in done.stdout.splitlines() if line.startswith("Part ")]
    assert [line.split(",")[0] for line in heads] == [f"Part {number}" for number in range(1, len(heads) + 1)]
    assert HOW in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_the_answer_tells_how_draws_it_and_finds_what_changes_it(file: Path, tmp_path: Path) -> None:
    svg = tmp_path / "out.svg"
    file.write_text(FEW)
    quick = ("--bespoke", "0", "--set", "M=512")
    done = magus("advise", file, *quick, "--how", "--svg", svg, "--sensitivity", "--threshold")
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    for words in ("parts, issued in this order", "hardware numbers that its ops feel most", "Overlap pays at every M"):
        assert words in text
    assert "</svg>" in svg.read_text()

    found = document("advise", file, *quick, "--how", "--sensitivity", "--threshold")
    how, sensitivity, threshold = found["how"], found["sensitivity"], found["threshold"]
    assert isinstance(how, dict) and isinstance(sensitivity, dict) and isinstance(threshold, dict)
    assert {"part", "op", "waits", "step_waits", "groups", "code"} <= set(how["parts"][0])
    assert len(sensitivity["schedules"]) == 3 and 0 < len(sensitivity["changes"]) <= 9
    assert all(all(each["simulated"]) for each in sensitivity["changes"])
    assert threshold["param"] == "M" and threshold["tried"] == [512, 4096]


def test_a_threshold_names_its_parameter(file: Path) -> None:
    file.write_text(TEXT.replace("system hgx", "param N = 4096\n\nsystem hgx"))
    unnamed, unknown = magus("advise", file, "--threshold"), magus("advise", file, "--threshold", "--over", "K")
    for done in (unnamed, unknown):
        assert done.exit_code == 2 and "name it with --over, one of M, N" in done.stderr
