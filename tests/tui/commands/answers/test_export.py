"""``magus export``: options of targets, and what is refused, before and after the sweep."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import magus
from tests.helpers.paths import ROOT

GRADIENTS = """
use "nvidia/h100"
param M = 256 in 64..65536 x2
system hgx { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }
workload gradients on hgx { g = tensor bf16[M, 4096]; s = all_reduce(g) }
explore gradients { schedules ring, nvls; engine sm(16); chunks 8 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gradients.mgs"
    path.write_text(GRADIENTS)
    return path


def test_a_tuner_file_is_written_from_a_sweep(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuner.csv"

    done = magus(
        *("export", file, "--to", "nccl", "--set", "M=64,512", "--with", "channels=24", "--no-verify", "-o", out)
    )

    assert done.exit_code == 0, done.output
    lines = out.read_text().splitlines()
    assert lines[-1] == "allreduce,0,18446744073709551615,ring,simple,24,-1,-1"
    assert any(line.startswith("allreduce,524288,") for line in lines)


def test_options_are_refused_before_anything_is_simulated(file: Path) -> None:
    done = magus("export", file, "--to", "nccl", "--set", "M=64", "--with", "chanels=24")

    assert done.exit_code == 1
    assert "MGS203 error: nccl has no option 'chanels'\n  help: did you mean 'channels'?" in done.stderr
    assert "advising" not in done.stderr


def test_an_option_is_a_name_and_a_value(file: Path) -> None:
    done = magus("export", file, "--to", "nccl", "--set", "M=64", "--with", "channels")

    assert done.exit_code == 2
    assert "--with" in done.stderr


def test_what_a_format_cannot_say_is_refused(file: Path) -> None:
    done = magus("export", file, "--to", "rccl", "--set", "M=64", "--no-verify")

    assert done.exit_code == 1
    assert "MGS550 error" in done.stderr
    assert "help: let the search choose among what it has" in done.stderr
    assert not done.stdout


def test_a_trace_of_times_needs_no_advice(tmp_path: Path) -> None:
    file, out = tmp_path / "up.mgs", tmp_path / "trace.json"
    file.write_text(
        'use "nvidia/h100"\nparam M = 256 in 64..65536 x2\n'
        "system hgx { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n"
        "workload up on hgx { x = tensor bf16[M, 8192] shard rows; w = tensor bf16[8192, 28672] shard cols\n"
        "  y = gemm(all_gather(x), w) }\n"
    )

    done = magus("export", file, "--to", "pge", "--set", "M=1024,4096", "-o", out)

    assert done.exit_code == 0, done.output
    assert "advising" not in done.stderr
    events = json.loads(out.read_text())["traceEvents"]
    dims = [event["args"]["Input Dims"] for event in events if event["name"] == "aten::mm"]
    assert {str(each) for each in dims} == {"[[1024, 8192], [8192, 3584]]", "[[4096, 8192], [8192, 3584]]"}


def test_a_trace_without_a_known_time_is_refused() -> None:
    done = magus("export", ROOT / "examples/llama70b_tp8_mi300x.mgs", "--to", "pge")

    assert done.exit_code == 1
    assert "MGS550 error: no time is known" in done.stderr
