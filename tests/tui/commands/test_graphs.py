"""The commands on a file with a graph: times of each op, its schedules, and what is not answered yet."""

from pathlib import Path

import pytest

from tests.helpers.commands import document, magus

pytestmark = pytest.mark.usefixtures("compiled_core")
TEXT = """mgs 1

use "nvidia/h100"

param M = 1024 in 512..4096 x2

system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }

workload mlp on hgx {
  about "an MLP"
  x  = tensor bf16[M, 1024] shard rows
  wu = tensor bf16[1024, 4096] shard cols
  wd = tensor bf16[4096, 1024] shard rows
  u = gemm(all_gather(norm(x)), wu)
  y = add(x, reduce_scatter(gemm(gelu(u), wd)))
  repeat 40 y as x
}

schedule pairs for mlp {
  u = hetero_fused_1d(chunks=8)
  y = hetero_fused_1d(chunks=8)
}

schedule whole for mlp { apart y by dma(3); seams whole }
"""


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


def test_schedules(file: Path) -> None:
    found = document("schedules", file)

    assert found["schedules"] == ["pairs", "whole"]
    assert found["layers"] == 40
    done = magus("schedules", file)
    assert "GEMM+RS" in done.output and "serial is always there" in done.output


def test_what_is_not_answered_is_said(file: Path) -> None:
    advice = magus("advise", file)
    assert advice.exit_code == 1
    assert "magus simulate FILE --workload mlp" in advice.output
    unknown = magus("simulate", file, "--schedule", "pear")
    assert unknown.exit_code == 1 and "did you mean 'pairs'?" in unknown.output
    assert magus("simulate", file, "--seeds", "3").exit_code == 2
    assert magus("simulate", file, "--schedule", "serial", "--set", "M=512").exit_code == 0


def test_what_does_not_fit_into_memory_is_refused(file: Path) -> None:
    file.write_text(TEXT.replace("[1024, 4096]", "[1024, 4194304]").replace("[4096, 1024]", "[4194304, 1024]"))
    done = magus("simulate", file, "--granularity", "packet")

    assert done.exit_code == 1
    assert "MGS402" in done.output and "the tensors of 40 layers take" in " ".join(done.output.split())
