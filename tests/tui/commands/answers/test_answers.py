"""Commands that have no answer, half of one, or one that rests on something broken: what they say, and how they end."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import Advisor, ModelError
from magus.compiler.ir import Cancelled
from magus.simcore import RunOutcome, RunTooLarge, simulate_op
from magus.tui.text.door import Exit
from tests.helpers.commands import magus

FILE = """
use "amd/mi300x"
system pair { gpus 2 x MI300X; fabric full_mesh(xgmi) }
workload up on pair {
  x = tensor bf16[256, 256] shard rows
  w = tensor bf16[256, 512] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = uniform_fused_1d(chunks=4, engine=dma(1))
explore up { schedules serial, uniform_fused_1d; chunks 4; engine dma }
expect up { verdict == serial }
"""
SIMULATE = "magus.tui.commands.scenarios.simulate.simulate_op"
FAST = ("--no-verify", "--bespoke", "0", "--workers", "1")


def raising(error: BaseException) -> Callable[..., Any]:
    def fails(*_words: object, **_more: object) -> None:
        raise error

    return fails


@pytest.mark.parametrize("words", [("simulate",), ("advise", *FAST[1:])], ids=lambda words: words[0])
def test_a_core_that_does_not_exist_is_a_mistake_of_usage(
    file: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGUS_ENGINE", "turbo")

    done = magus(words[0], file, *words[1:])

    assert (done.exit_code, done.stdout) == (Exit.USAGE, "")
    assert "'turbo'" in done.stderr and "windows, compiled" in done.stderr


def test_a_damaged_model_is_reported_and_only_advice_needs_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Advisor, "load", raising(ModelError("proposals.model is damaged")))

    advice = magus("advise", file, *FAST)

    assert (advice.exit_code, advice.stdout) == (Exit.INPUT, "")
    assert advice.stderr == "magus: proposals.model is damaged\n"
    assert magus("schedules", file).exit_code == magus("simulate", file).exit_code == Exit.DONE


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_a_run_that_is_too_large_has_a_code(
    file: Path, json_too: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SIMULATE, raising(RunTooLarge("about 9 hours; the limit is 1")))

    done = magus("simulate", file, *json_too)

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "")
    first, shown, _ = done.stderr.splitlines()
    assert first.startswith(f"{file}:") and first.endswith(": MGS406 error: about 9 hours; the limit is 1")
    assert shown.startswith("  workload "), "where the workload is declared"


def test_a_deadlock_is_shown_and_explained(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(*words: Any, **more: Any) -> Any:
        return replace(simulate_op(*words, **more), outcome=RunOutcome.DEADLOCK, deadlock=("g0 waits for x1",))

    monkeypatch.setattr(SIMULATE, stuck)
    text, document = magus("simulate", file), magus("simulate", file, "--seeds", "2", "--json")

    assert text.exit_code == document.exit_code == Exit.INPUT
    assert text.stderr == document.stderr == f"magus: {RunOutcome.DEADLOCK.value}\n  g0 waits for x1\n"
    found = json.loads(document.stdout)
    assert (found["outcome"], found["deadlock"]) == ("deadlock", ["g0 waits for x1"])
    assert "seeds" not in found, "there are no percentiles of runs that do not end"


def test_a_stop_before_anything_was_found_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Advisor, "recommend", raising(Cancelled()))

    done = magus("advise", file, *FAST)

    assert (done.exit_code, done.stdout) == (Exit.INTERRUPTED, "")
    assert done.stderr.endswith("magus: stopped before anything was found\n")


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_advice_that_was_interrupted_is_printed_and_has_the_exit_code_of_an_interrupt(
    file: Path, json_too: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    recommend = Advisor.recommend
    monkeypatch.setattr(
        Advisor, "recommend", lambda *words, **more: replace(recommend(*words, **more), interrupted=True)
    )

    done = magus("advise", file, *FAST, *json_too)

    assert done.exit_code == Exit.INTERRUPTED and done.stdout
    assert not json_too or json.loads(done.stdout)["interrupted"] is True


def test_one_file_whose_advice_fails_does_not_stop_the_next(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = file.with_name("b.mgs")
    other.write_text(FILE.replace("verdict == serial", "mine.makespan > 1 us"))
    monkeypatch.setattr(Advisor, "load", raising(ModelError("gone")))

    done = magus("test", file, other, "--workers", "1")

    assert done.exit_code == Exit.INPUT
    assert f"{other}: 1 passed, 0 failed" in done.stdout


TUNED = """
@triton.autotune(configs=[triton.Config({{"BLOCK_M": m, "BLOCK_N": n}}) for m, n in {tiles}], key=["M"])
@triton.jit
def gemm(a, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc = tl.dot(a, a, acc)
"""


def test_the_tiles_of_a_kernel_are_tried(file: Path) -> None:
    kernel = file.with_name("gemm.py")
    kernel.write_text(TUNED.format(tiles=[[64, 64], [48, 64]]), encoding="utf-8")

    advice = magus("advise", file, "--kernel", kernel, *FAST, "--json")

    assert advice.exit_code == Exit.DONE, advice.stderr
    assert "magus: left out: tiles of 48 x 64: their times are not known on" in " ".join(advice.stderr.split())
    said = {each["schedule"] for each in json.loads(advice.stdout)["candidates"]}
    overlapping = [each for each in said if "kernel=persistent" in each]
    assert overlapping and all("tile=[64, 64]" in each for each in overlapping)


@pytest.mark.parametrize(
    ("tiles", "message"), [("[[48, 64]]", "known are"), ("elsewhere()", "MGS542"), ("[]", "has no configurations")]
)
def test_a_kernel_without_tiles_that_are_known_is_refused(file: Path, tiles: str, message: str) -> None:
    kernel = file.with_name("gemm.py")
    kernel.write_text(TUNED.format(tiles=tiles), encoding="utf-8")

    advice = magus("advise", file, "--kernel", kernel, *FAST)

    assert advice.exit_code == Exit.INPUT and message in " ".join(advice.stderr.split())
