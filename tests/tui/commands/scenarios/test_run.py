"""``magus run``: what it carries out, what it prints, and what it says where it cannot."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from magus.compiler.ir import Plan, System, Workload
from magus.runtime import Outcome, RunReport, SeedRun, carry_out
from magus.tui.commands.scenarios import run
from tests.helpers.commands import document, magus
from tests.helpers.paths import ROOT

HEAD = 'use "nvidia/h100"\nsystem pair { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }\n'
FILE = f"""{HEAD}
param M = 256 in 8..1024 x2
workload up on pair {{
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  xg = all_gather(x)
  y = gemm(xg, w)
}}
workload sum on pair {{ g = tensor bf16[256, 512]; s = all_reduce(g) }}
schedule mine for up = uniform_fused_1d(chunks=8, engine=dma(1))
schedule by_hand for up {{
  plan by dma(1)
  x1 = put xg.shard(0) to 1 signal s1
  g0 = compute y.shard(0)
  g1 = compute y.shard(1) after s1
}}
"""


def test_every_declared_schedule_is_carried_out(file: Path) -> None:
    done = magus("run", file)

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        "uniform_fused_1d(chunks=8, engine=dma(1))\n"
        "  exact on 2 ranks: 8 copies, 8 kernels, 0 sums; seeds 0 to 2\n"
        "by_hand\n"
        "  exact on 2 ranks: 2 copies, 4 kernels, 0 sums; seeds 0 to 2\n"
    )


def test_one_schedule_by_its_expression_and_one_seed(file: Path) -> None:
    done = magus("run", file, "--schedule", "serial(engine=dma(1))", "--seeds", "1", "--seed", "7")

    assert done.stdout == "serial(engine=dma(1))\n  exact on 2 ranks: 2 copies, 2 kernels, 0 sums; seed 7\n"


def test_a_file_without_schedules_is_carried_out_one_after_the_other(file: Path) -> None:
    assert magus("run", file, "--workload", "sum").stdout.startswith("serial(engine=dma(")


def test_a_plan_in_a_file(file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.json"
    assert magus("plan", file, "--schedule", "mine", "--format", "json", "-o", plan).exit_code == 0

    assert "exact on 2 ranks: 8 copies" in magus("run", file, "--schedule", plan).stdout


def test_the_document_is_the_same_each_time(file: Path) -> None:
    words = ("run", file, "--set", "M=512", "--seeds", "5")
    found = document(*words)

    assert found == document(*words)
    assert found == {
        "schema": "magus-run/1",
        "workload": "up",
        "ranks": 2,
        "seeds": {"first": 0, "count": 5},
        "exact": True,
        "schedules": [
            {
                "schedule": name,
                "outcome": "exact",
                "seed": None,
                "copies": copies,
                "kernels": kernels,
                "sums": 0,
                "layers": 1,
                "notes": [],
                "sentences": [],
            }
            for name, copies, kernels in (("uniform_fused_1d(chunks=8, engine=dma(1))", 8, 8), ("by_hand", 2, 4))
        ],
    }


def test_what_is_wrong_is_said_and_the_rest_is_carried_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of a file are checked before; a plan that the check lets pass and that is wrong is found here."""

    def without_waits(system: System, graph: Workload, plan: Plan, seeds: range) -> RunReport:
        if plan.expression == "by_hand":
            return carry_out(system, graph, plan, seeds)
        (part,) = plan.parts
        steps = tuple(replace(step, after=()) for step in part.schedule.steps)
        parts = (replace(part, schedule=replace(part.schedule, steps=steps)),)
        return carry_out(system, graph, replace(plan, parts=parts), seeds)

    monkeypatch.setattr(run, "carry_out", without_waits)
    done = magus("run", file)
    _, summary, sentence, *_ = done.stdout.splitlines()

    assert done.exit_code == 1
    assert summary == "  wrong step on 2 ranks: 8 copies, 8 kernels, 0 sums; seed 0"
    assert " reads rows " in sentence
    assert "by_hand\n  exact" in done.stdout


def test_a_deadlock_in_the_document(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = SeedRun(2, Outcome.DEADLOCK, ("rank 0: g1 waits for s1",))
    monkeypatch.setattr(
        run, "carry_out", lambda *_: RunReport("by_hand", 2, 2, 4, 0, (SeedRun(1, Outcome.EXACT), waits))
    )
    done = magus("run", file, "--schedule", "by_hand", "--json")
    found = json.loads(done.stdout)

    assert (done.exit_code, found["exact"]) == (1, False)
    (only,) = found["schedules"]
    assert (only["outcome"], only["seed"], only["sentences"]) == ("deadlock", 2, ["rank 0: g1 waits for s1"])


def test_kernels_that_are_not_carried_out(tmp_path: Path) -> None:
    file = tmp_path / "k.mgs"
    file.write_text(f"{HEAD}workload w on pair {{ x = tensor bf16[64, 64]; y = tensor bf16[64, 64]; z = add(x, y) }}\n")
    done = magus("run", file)
    found = json.loads(magus("run", file, "--json").stdout)

    assert done.exit_code == 1
    assert (
        "  not carried out:\n    MGS540: w computes add alone, which is not carried out with real data\n" in done.stdout
    )
    assert (found["schedules"][0]["outcome"], found["schedules"][0]["copies"]) == ("refused", None)


def test_a_plan_of_too_many_steps(tmp_path: Path) -> None:
    file = tmp_path / "m.mgs"
    file.write_text(
        HEAD.replace("gpus 2", "gpus 64").replace("switch(nvswitch, link=nvlink)", "full_mesh(nvlink)")
        + "workload w on pair { x = tensor bf16[65536, 64]; y = all_reduce(x) }\n"
    )
    done = magus("run", file, "--schedule", "direct(chunks=1024, engine=dma(1))")

    assert done.exit_code == 1
    assert "MGS540: the plan has 130048 steps over all ranks, 65536 at most are carried out" in " ".join(
        done.stdout.split()
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--schedule", "nosuch"), 1, "MGS505"),
        (("--schedule", "none.json"), 1, "none.json"),
        (("--workload", "none"), 1, "MGS203"),
        (("--set", "M=7"), 1, "MGS"),
        (("--seeds", "0"), 2, "--seeds"),
        (("--seed", "-1"), 2, "--seed"),
        (("--schedule", "shard_p2p(engine=dma(99))"), 1, "MGS401"),
    ],
)
def test_bad_input(file: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = magus("run", file, *words)

    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.output


def test_the_documentation_shows_what_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "plans.md").read_text()

    assert magus("run", "examples/explicit_plan.mgs").stdout in text
    assert magus("run", "examples/gemm_rs_h100.mgs").stdout in text


@pytest.mark.slow
def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, magus.runtime; print([m for m in ('ortools', 'textual', 'lark', 'sklearn') if m in sys.modules])"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("name", ["explicit_plan.mgs", "layers/fsdp_h100.mgs"])
def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("magus.runtime.over_torch.launch.find_spec", lambda name: None)
    done = magus("run", ROOT / "examples" / name, "--on", "torch")

    assert done.exit_code == 2
    assert done.stderr == "MGS432 error: torch is not installed\n  help: pip install 'magus-gpu[torch]'\n"
