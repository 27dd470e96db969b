"""``magus sweep`` and ``magus export``: grids of params, text, JSON and CSV, rules as files, and what is refused."""

import csv
import io
import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import Advisor, NoFeasibleSchedule
from magus.advisor.policy.reader import Policy
from magus.advisor.work.on_dask import RESUME, BackendError
from magus.advisor.work.processes import Processes
from magus.tui.commands.answers import sweep as command
from magus.tui.text.door import Exit
from tests.helpers.commands import magus

FILE = """use "nvidia/h100"
param M = 256 in 8..65536 x2
param K = 512
system pair { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }
workload up on pair {
  x = tensor bf16[M, K] shard rows
  w = tensor bf16[K, 1024] shard cols
  y = gemm(all_gather(x), w)
}
workload sum on pair { g = tensor bf16[M, K]; s = all_reduce(g) }
workload keys on pair {
  q = tensor bf16[M, 4096] shard rows
  kv = tensor bf16[M, 2048] shard rows
  o = attention(q, all_gather(kv), heads=32, kv_heads=8)
}
"""


@pytest.mark.slow
def test_a_line_for_each_point_and_the_rules(file: Path) -> None:
    done = magus("sweep", file, "--set", "M=64..1024", "--no-verify")
    lines = done.stdout.splitlines()

    assert done.exit_code == 0, done.output
    assert lines[0].startswith("Sizes of the first: up: AG+GEMM") and lines[2].split()[:5] == [
        "M",
        "verdict",
        "us",
        "gain",
        "schedule",
    ]
    assert [line.split()[0] for line in lines[3:8]] == ["64", "128", "256", "512", "1024"]
    assert "Rules, the first that matches wins (flips predicted" in done.stdout
    assert "  - m 64.." in done.stdout


def test_what_was_found_before_the_scheduler_was_lost_is_printed(file: Path, monkeypatch: Any) -> None:
    recommend, answered = Advisor.recommend, count()

    def losing(self: Advisor, *given: Any, **more: Any) -> Any:
        if next(answered) == 2:
            raise BackendError("the scheduler at tcp://head:8786 was lost", RESUME)
        return recommend(self, *given, **more)

    monkeypatch.setattr(Advisor, "recommend", losing)
    monkeypatch.setattr(Advisor, "on_cluster", lambda self, address: self)
    words = (file, "--workload", "sum", "--set", "M=64..512", "--no-verify", "--scheduler", "tcp://head:8786")
    done = magus("sweep", *words, "--json")
    answered = count()
    exported = magus("export", *words, "--to", "policy")

    found = json.loads(done.stdout)
    assert [point["settings"]["M"] for point in found["points"]] == ["64", "128"] and found["interrupted"]
    assert done.exit_code == exported.exit_code == Exit.INPUT and exported.stdout == ""
    assert "2 of 4 points, no rules" in done.stderr and "MGS432 error: the scheduler at" in done.stderr
    assert RESUME in done.stderr and RESUME in exported.stderr


@pytest.mark.slow
def test_processes_answer_the_same(file: Path, monkeypatch: Any) -> None:
    file.write_text(f"{FILE}explore up {{ engine dma(1); chunks 2 }}\n")
    words = ("sweep", file, "--workload", "up", "--set", "M=64..256", "--no-verify", "--no-cache")
    alone = magus(*words, "--workers", "1")
    requested: list[object] = []
    ask = Processes.ask

    def counting(self: Any, question: Any, *rest: Any) -> Any:
        requested.append(question)
        return ask(self, question, *rest)

    monkeypatch.setattr(Processes, "ask", counting)
    assert not magus(*words, "--workers", "2").exit_code and not requested  # too few to pay

    monkeypatch.setattr(command, "LEAST_ESTIMATED", 3)
    there = magus(*words, "--workers", "2")
    assert there.stdout == alone.stdout and len(requested) >= 3


@pytest.mark.slow
def test_as_json_and_csv_it_has_the_same_points(file: Path) -> None:
    words = ("sweep", file, "--set", "M=64,256", "--set", "K=512,1024", "--no-verify")
    document = json.loads(magus(*words, "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(magus(*words, "--csv").stdout)))

    shown = magus(*words).stdout.splitlines()
    assert all(f"{each['gain']:.2f}x" in "\n".join(shown) for each in document["points"])
    assert all(each["gain"] == each["baseline_us"] / each["us"] for each in document["points"])
    assert [(each["settings"]["M"], each["settings"]["K"]) for each in document["points"]] == [
        ("64", "512"),
        ("64", "1024"),
        ("256", "512"),
        ("256", "1024"),
    ]
    assert document["schema"] == "magus-sweep/2" and document["policy"] is None  # two sizes vary
    flat = [
        {**each["settings"], **{key: each[key] for key in each if key != "settings"}} for each in document["points"]
    ]
    assert [{key: str(value) for key, value in each.items() if value is not None} for each in flat] == [
        {key: value for key, value in each.items() if value} for each in rows
    ]


@pytest.mark.slow
def test_a_param_named_like_a_column_keeps_its_own(file: Path) -> None:
    file.write_text(file.read_text().replace("param K", "param us").replace("K]", "us]").replace("[K", "[us"))
    rows = list(
        csv.DictReader(io.StringIO(magus("sweep", file, "--set", "us=512,1024", "--no-verify", "--csv").stdout))
    )
    assert [each["param.us"] for each in rows] == ["512", "1024"] and float(rows[0]["us"]) > 0


def test_a_point_without_a_feasible_schedule_leaves_the_others(file: Path, monkeypatch: Any) -> None:
    recommend = Advisor.recommend

    def failing(self: Advisor, scenario: Any, *args: Any, **kwargs: Any) -> Any:
        if scenario.case.shape.gemm.m == 128:
            raise NoFeasibleSchedule(("staging is 0",))
        return recommend(self, scenario, *args, **kwargs)

    monkeypatch.setattr(Advisor, "recommend", failing)
    done = magus("sweep", file, "--set", "M=64,128,256", "--no-verify")
    assert done.exit_code == 3 and "magus: with M = 128: " in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[3:]] == ["64", "256"]
    alone = file.with_name("alone.mgs")
    alone.write_text(re.sub(r"param M .*\n", "", file.read_text()).replace("[M, ", "[128, "))
    assert magus("sweep", alone, "--no-verify").stderr == "magus: no feasible schedule: staging is 0\n"


def test_what_is_searched_for_one_size_gives_no_rules(file: Path) -> None:
    done = magus("sweep", file, "--set", "M=4096,8192", "--no-verify", "--bespoke", "20")
    assert done.exit_code == 0 and "Rules" not in done.stdout


def test_a_workload_that_no_table_is_about_has_points_all_the_same(file: Path) -> None:
    done = magus("sweep", file, "--workload", "keys", "--set", "M=64,128", "--no-verify")
    assert done.exit_code == 0 and "Rules" not in done.stdout and "attention" in done.stdout


def test_points_with_errors_are_left_out_and_said(file: Path) -> None:
    done = magus("sweep", file, "--set", "M=64,65,128", "--no-verify")
    assert done.exit_code == 1
    assert "MGS304" in done.stderr and "64" in done.stdout and "\n 65" not in done.stdout

    nothing = magus("sweep", file, "--set", "M=65", "--no-verify")
    assert nothing.exit_code == 1 and "MGS304" in nothing.stderr and nothing.stdout == ""


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("M=64..", "MGS107"),
        ("M=1024..64", "MGS306"),
        ("M=64..1 KiB", "MGS303"),
        ("M=64..1024; x", "MGS101"),
        ("M=1..100000 step 1", "MGS305"),
        ("N=64..128", "MGS203"),
    ],
)
def test_values_that_are_none(file: Path, given: str, code: str) -> None:
    done = magus("sweep", file, "--set", given, "--no-verify")
    assert done.exit_code == 1 and done.stdout == ""
    assert code in done.stderr and "Traceback" not in done.output


def test_what_is_wrong_with_a_range_is_said_of_what_was_written(file: Path) -> None:
    done = magus("sweep", file, "--set", "M=8192..1024", "--no-verify")
    assert done.stderr.splitlines()[:3] == [
        "--set M:1:1: MGS306 error: the range 8192..1024 is empty",
        "  8192..1024",
        "  ^^^^^^^^^^",
    ]


def test_stopped_it_shows_what_it_has(file: Path, monkeypatch: Any) -> None:
    answered: list[object] = []
    recommend = Advisor.recommend

    def counting(self: Advisor, *args: Any, **kwargs: Any) -> Any:
        answered.append(args)
        return recommend(self, *args, **{**kwargs, "should_stop": None})

    class Pressed:
        def __enter__(self) -> Any:
            return lambda: len(answered) > 2

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(Advisor, "recommend", counting)
    monkeypatch.setattr(command, "interruptible", Pressed)
    done = magus("sweep", file, "--set", "M=64..1024", "--no-verify")

    assert done.exit_code == 130
    assert "stopped early: 2 of 5 points, no rules" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[3:]] == ["64", "128"]


@pytest.mark.slow
def test_the_rules_become_a_file(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "policy.json"
    done = magus("export", file, "--to", "policy", "--set", "M=64,512,4096", "--no-verify", "-o", out)

    assert done.exit_code == 0, done.output
    rule = Policy.load(str(out)).rule(
        pattern="AG+GEMM", gpu="H100", ranks=2, topology="switch", dtype="bf16", n=512, k=512, m=2048
    )
    assert rule is not None and rule["min"] <= 2048 <= rule["max"]


@pytest.mark.slow
def test_a_collective_alone_is_looked_up_by_bytes(file: Path) -> None:
    done = magus("export", file, "--workload", "sum", "--to", "policy", "--set", "M=64,512", "--no-verify")
    document = json.loads(done.stdout)

    assert {rule["axis"] for rule in document["rules"]} == {"num_bytes"}
    assert document["rules"][0]["min"] == 64 * 512 * 2


def test_what_cannot_be_exported_is_said(file: Path) -> None:
    target = magus("export", file, "--to", "poliky", "--set", "M=64..128")
    assert target.exit_code == 2 and "none of policy" in target.stderr.replace("\n", " ")

    table = magus("export", file, "--workload", "keys", "--to", "policy", "--set", "M=64,128", "--no-verify")
    assert table.exit_code == 1 and "MGS520 error: these points have no size that varies alone" in table.stderr
