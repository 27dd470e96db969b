"""Results outside what a profile was fitted to are marked in text and JSON, and refused with ``--strict``."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import magus

TEXT = """
use "nvidia/h100"
system node { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload up on node {
  x = tensor DTYPE[256, 512] shard rows
  w = tensor DTYPE[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
explore up { schedules serial, hetero_fused_1d; chunks 8; engine dma(3); kernel launched }
"""
FP32 = "gpu G extends H100 { peak fp32 60 TFLOP/s }\n"
SENTENCE = "fp32 GEMM: the constants of G (from a sibling) were fitted to bf16"


def file_of(folder: Path, dtype: str) -> Path:
    file = folder / f"{dtype}.mgs"
    text = TEXT.replace("DTYPE", dtype)
    file.write_text(text if dtype != "fp32" else text.replace("4 x H100", "4 x G").replace("system", f"{FP32}system"))
    return file


@pytest.mark.quick(1)
@pytest.mark.parametrize("command", [("simulate",), ("advise", "--workers", "1")])
def test_outside_is_marked(tmp_path: Path, command: tuple[str, ...]) -> None:
    text = magus(*command, file_of(tmp_path, "fp32"))
    document = json.loads(magus(*command, file_of(tmp_path, "fp32"), "--json").stdout)

    assert text.exit_code == 0
    assert f"  ! {SENTENCE}" in text.stdout.splitlines()
    assert document["outside_calibration"] == [SENTENCE]


@pytest.mark.quick(1)
@pytest.mark.parametrize("command", [("simulate",), ("advise", "--workers", "1")])
def test_inside_nothing_is_marked(tmp_path: Path, command: tuple[str, ...]) -> None:
    text = magus(*command, file_of(tmp_path, "bf16"), "--strict")
    document = json.loads(magus(*command, file_of(tmp_path, "bf16"), "--json").stdout)

    assert text.exit_code == 0 and "fitted" not in text.stdout
    assert document["outside_calibration"] == []


@pytest.mark.parametrize("command", [("simulate",), ("advise", "--no-verify")])
def test_strict_refuses_what_is_outside(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = magus(*command, file_of(tmp_path, "fp32"), "--strict")

    assert done.exit_code == 3
    assert f"magus: --strict: outside what was fitted: {SENTENCE}" in done.stderr


def test_a_malformed_statement_is_a_diagnostic(tmp_path: Path) -> None:
    file = file_of(tmp_path, "bf16")
    file.write_text(file.read_text().replace("system", "gpu G extends H100 { sm_copy { calibrated 4 } }\nsystem"))
    done = magus("check", file, "--format", "json")

    (found,) = json.loads(done.stdout)["diagnostics"]
    assert (done.exit_code, found["code"], found["line"]) == (1, "MGS116", 3)
