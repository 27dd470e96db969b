"""What an answer says to do next can be done: every command it prints runs."""

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.implementations.offers import Offer, Offers
from magus.advisor.implementations.predict import Promise
from magus.compiler import compile_file
from magus.examples import path
from magus.tui.text.next_steps import next_steps
from tests.helpers.commands import magus
from tests.helpers.marks import thinned
from tests.helpers.plans.plans import text_of
from tests.helpers.some import some

SEVERAL = """
use "amd/mi300x"
param M = 2048
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload first on quad { x = tensor bf16[512, 1024] shard rows; y = all_gather(x) }
workload second on quad {
  x = tensor bf16[M, 4096] shard rows
  w = tensor bf16[4096, 8192] shard cols
  y = gemm(all_gather(x), w)
}
schedule by_hand for first {
  plan by dma(3)
  t1 = put y.shard(0) to 1 signal s1
  t2 = put y.shard(0) to 2 signal s2
  t3 = put y.shard(0) to 3 signal s3
}
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MAGUS_NO_CACHE", "1")


def next_of(*words: str | Path) -> list[dict[str, Any]]:
    done = magus("advise", *words, "--json")
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["next"]
    assert 0 < len(found) <= 5
    return found


def run(steps: list[dict[str, Any]]) -> list[str]:
    """Run the commands, which takes tenths of a second without simulations, and return their names."""
    names = []
    for step in some(steps):
        name, *words = shlex.split(step["command"])[1:]
        names.append(name)
        done = magus(name, *words, *(["--no-verify"] if name == "advise" else []))
        assert done.exit_code == 0, (step["command"], done.output)
    return names


@pytest.mark.parametrize(
    "body", thinned(["AG+GEMM", "GEMM+AR", "uneven A2A+GEMM", "all_reduce", "GEMM+A2A+GEMM", "kernel"], 5)
)
def test_the_commands_run(body: str) -> None:
    Path("a b.mgs").write_text(text_of(body))
    names = run(next_of("a b.mgs", "--no-verify"))

    # The library is the answer for an all_reduce, and has no plan to write.
    assert (
        names[0] == ("run" if body == "all_reduce" else "plan")
        and ("run" in names) is (body != "kernel")
        and "advise" in names
    )


def test_settings_and_workload_are_kept() -> None:
    Path("a.mgs").write_text(SEVERAL)
    steps = next_of("a.mgs", "--workload", "second", "--set", "M = 1024", "--no-verify")

    assert run(steps) == ["plan", "run", *["advise"] * (len(steps) - 2)]
    assert all("--workload second --set M=1024" in step["command"] for step in steps)


@pytest.mark.slow
def test_attention_beside_a_collective_may_be_run() -> None:
    steps = next_of(path("ring_attention_h100"), "--no-verify")

    assert "run" in [shlex.split(step["command"])[1] for step in steps]


@pytest.mark.slow
def test_the_call_of_a_library_is_not_written_as_a_plan() -> None:
    steps = next_of(path("all_reduce_h100"), "--no-verify")

    assert run(steps)[0] == "run" and "library" in steps[0]["command"]


def test_a_command_of_several_lines_can_be_copied() -> None:
    file = path("llama70b_tp8_mi300x")
    steps = next_of(file, "--no-verify")
    printed = magus("advise", file, "--no-verify", "--full").stdout.partition("\nNext:\n")[2]
    listing = 'magus() { for word in magus "$@"; do printf "%s\\0" "$word"; done; }\n'
    copied = subprocess.run(["sh", "-c", listing + printed], capture_output=True, text=True, check=True).stdout

    wanted = [word for step in steps for word in shlex.split(step["command"])]
    assert [" ".join(word.split()) for word in copied.split("\0")[:-1]] == wanted
    assert all(len(line) <= 80 or str(file) in line for line in printed.splitlines())


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "speedups, wanted",
    [
        ({"torch_async_tp": 1.3, "flux": 1.1}, "switch on torch_async_tp, 1.30x over torch_nccl; it works as "),
        ({"flux": 1.1, "torch_async_tp": 1.05}, "try flux, 1.10x over torch_nccl; it works as "),
        ({"flux": 0.9}, "write the plan"),
    ],
)
def test_what_can_be_switched_on_comes_first(speedups: dict[str, float], wanted: str) -> None:
    file = path("gemm_rs_h100")
    advice = Advisor().recommend(compile_file(file).scenario(), AdviceOptions(verify=False, bespoke=0))
    offers = tuple(Offer(name, 500 / gain, Promise(gain, 0.18)) for name, gain in speedups.items())
    found = next_steps(replace(advice, offers=Offers("torch_nccl", 500.0, offers)), [str(file)], how=False)

    assert found[0].what.startswith(wanted)
    run([{"command": found[0].command}])


def test_what_was_requested_is_not_offered() -> None:
    Path("a.mgs").write_text(text_of("AG+GEMM").replace("full_mesh", "ring"))  # where no library is known
    steps = next_of("a.mgs", "--no-verify", "--how")

    assert [step["command"].split()[-1] for step in steps] == ["plan.json", "plan.json", "--threshold"]
