"""One Ctrl-C ends any command, whatever it is in the middle of: soon, with nothing left behind and no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from magus.examples import path
from tests.helpers.paths import TABLE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "killpg"), reason="POSIX signals")]

HANGS_S = 60.0
"""Far more than it takes, on a machine that is busy with other things; what is not heard takes minutes."""

LARGE = """mgs 1

use "nvidia/h100"

system big {{ gpus 1024 x H100; fabric {fabric} }}

workload down on big {{
  h = tensor bf16[65536, 65536] shard cols
  w = tensor bf16[65536, 8192] shard rows
  p = gemm(h, w)
  y = reduce_scatter(p)
}}
"""
CHAIN = ", ".join(f"[{rank}, {(rank + 1) % 1024}]" for rank in range(1024))
FABRICS = {
    "torus": "torus(nvlink, shape=[1024])",
    "torus3": "torus(nvlink, shape=[16, 8, 8])",
    "mesh": "full_mesh(nvlink)",
    "rails": "rails(nvswitch, link=nvlink, node=8, nic=nvlink)",
    "edges": f"edges(nvlink=[{CHAIN}])",
}


def interrupted(arguments: list[str], after_s: float) -> tuple[int, str] | None:
    """Exit code and stderr; None if it was over before. The terminal tells its group."""
    process = subprocess.Popen(
        [sys.executable, "-m", "magus.tui.cli", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell may have switched off
    )
    try:
        process.wait(after_s)
        return None
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
    try:
        _, said = process.communicate(timeout=HANGS_S)
        deadline = time.monotonic() + HANGS_S
        while _group_lives(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _group_lives(process.pid)
    finally:
        if _group_lives(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def check(arguments: list[str], after_s: float) -> None:
    ended = interrupted(arguments, after_s)
    if ended is None:
        pytest.skip("it was over before")
    code, said = ended
    # A shell calls both 130; Python is killed by it if it is ending anyway.
    assert code in (130, -signal.SIGINT), said
    assert "Traceback" not in said


@pytest.mark.parametrize("after_s", [3.0, 8.0])
@pytest.mark.parametrize("verb", ["advise", "schedules", "simulate"])
@pytest.mark.parametrize("name", FABRICS)
def test_a_thousand_gpus(tmp_path: Path, name: str, verb: str, after_s: float) -> None:
    file = tmp_path / f"{name}.mgs"
    file.write_text(LARGE.format(fabric=FABRICS[name]))
    check([verb, str(file)], after_s)


@pytest.mark.parametrize("after_s", [3.0, 5.0, 9.0])
@pytest.mark.parametrize(
    "arguments",
    [
        ["advise", str(path("gemm_rs_h100"))],
        ["advise", str(path("gemm_rs_h100")), "--workers", "1"],
        ["simulate", str(path("llama70b_tp8_mi300x")), "--no-fold"],
        ["simulate", str(path("gemm_rs_h100")), "--seeds", "256"],
        ["test", str(path("papers/ficco"))],
        ["run", str(path("llama70b_tp8_mi300x")), "--seeds", "4096"],
    ],
    ids=lambda arguments: " ".join(map(str, [arguments[0], *arguments[2:]])),
)
def test_a_node(arguments: list[str], after_s: float) -> None:
    """A search that is interrupted answers with what it found."""
    check(arguments, after_s)


@pytest.mark.parametrize("after_s", [3.0, 8.0])
def test_training(tmp_path: Path, after_s: float) -> None:
    check(["train", str(TABLE), "--out", str(tmp_path / "model")], after_s)


@pytest.mark.parametrize("after_s", [3.0, 12.0])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_corpus(tmp_path: Path, workers: str, after_s: float) -> None:
    check(["corpus", str(tmp_path / "store.db"), "--scenarios", "100", "--workers", workers], after_s)
