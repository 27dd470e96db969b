"""The command line, command by command: output, exit codes, and bad input without a traceback."""

import json
import os
import re
from pathlib import Path

import pytest

from magus.advisor import Advisor
from magus.advisor.answer.export import advice_document
from magus.compiler import compile_file
from magus.examples import path as example
from tests.helpers.commands import magus
from tests.helpers.paths import DOCS

SMALL = """
use "amd/mi300x"
param M = 256 in 8..1024 x2
system pair { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on pair {
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = uniform_fused_1d(chunks=16, engine=dma(3))
explore up { chunks 8, 16; engine dma }
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.mgs"
    file.write_text(SMALL)
    return file


def test_check_says_nothing_on_stdout_and_counts_on_stderr(small: Path) -> None:
    done = magus("check", small)

    assert (done.exit_code, done.stdout) == (0, "")
    assert "1 file checked, no errors" in done.stderr


def test_check_shows_every_error_as_json(tmp_path: Path) -> None:
    file = tmp_path / "bad.mgs"
    file.write_text(SMALL.replace("gemm(", "gem(").replace("chunks 8, 16", "chunsk 8, 16"))

    done = magus("check", file, "--format", "json")

    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert document["schema"] == "magus-diagnostics/1"
    assert {"MGS201", "MGS204"} <= {found["code"] for found in document["diagnostics"]}


def test_fmt_rewrites_once_and_then_agrees(small: Path) -> None:
    assert magus("fmt", "--check", small).exit_code == 1
    assert magus("fmt", small).exit_code == 0
    assert magus("fmt", "--check", small).exit_code == 0


def test_fmt_prints_what_is_derived_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "back.mgs"
    text = (
        'use "nvidia/h100"\nsystem s { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }\n\n'
        "workload layer on s {\n  x = tensor bf16[64, 64]\n  y = norm(x)\n}\n\n"
        "workload back on s { backward layer }\n"
    )
    file.write_text(text)

    done = magus("fmt", "--derived", file)
    assert (done.exit_code, file.read_text()) == (0, text)
    assert done.stdout.startswith(text.split("workload back")[0]) and "d_x = norm_back(x, d_y)" in done.stdout
    assert magus("fmt", "--derived", tmp_path / "none.mgs").exit_code == 1


def test_simulate_prints_every_key_of_its_document(small: Path) -> None:
    done = magus("simulate", small, "--json")

    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert document["schema"] == "magus-result/1"
    assert document["schedule"] == "uniform_fused_1d(chunks=16, engine=dma(3))"
    assert document["granularity"] == "line"
    wanted = (
        "scenario outcome makespan_us makespan_cycles compute_us comm_us exposed_comm_us overlap_efficiency dil cil "
        "waterfall line_hops traffic utilization ranks"
    )
    assert set(wanted.split()) <= set(document)
    assert {"hbm_read_bytes", "hbm_write_bytes", "l2_bytes", "link_bytes", "flag_reads", "flag_bytes"} == set(
        document["traffic"]
    )
    losses = document["waterfall"]
    parts = ("launch_sync_us", "contention_us", "decomposition_us", "exposed_us", "bound_us")
    assert sum(losses[part] for part in parts) == pytest.approx(losses["makespan_us"])


def test_folding_changes_nothing_but_the_work(small: Path) -> None:
    folded = json.loads(magus("simulate", small, "--granularity", "packet", "--json").stdout)
    every = json.loads(magus("simulate", small, "--granularity", "packet", "--no-fold", "--json").stdout)

    assert folded["makespan_ticks"] == every["makespan_ticks"]
    assert every["line_hops"] == 4 * folded["line_hops"]
    assert (folded["ranks_simulated"], every["ranks_simulated"]) == (1, 4)


def test_a_schedule_can_be_named_by_its_expression(small: Path) -> None:
    text = "hetero_fused_1d(chunks=8, engine=sm(8))"
    done = magus("simulate", small, "--schedule", text, "--json")

    assert json.loads(done.stdout)["schedule"] == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("unifrom_fused_1d(chunks=8)", "MGS505"),
        ("uniform_fused_1d(chunks=7)", "MGS512"),
        ("serial(engine=dma(99))", "MGS401"),
        ("serial(engine=", "MGS1"),
    ],
)
def test_a_schedule_that_cannot_be_is_reported_with_a_code(small: Path, text: str, code: str) -> None:
    done = magus("simulate", small, "--schedule", text)

    assert done.exit_code == 1
    assert code in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_an_unknown_schedule_is_reported_what_the_file_declares(small: Path) -> None:
    done = magus("simulate", small, "--schedule", "nosuch")

    assert done.exit_code == 1
    assert "; the file declares mine" in done.stderr
    assert "'serial'? the file declares mine" in magus("simulate", small, "--schedule", "serail").stderr


WRONG_PLAN = """
schedule nothing for up {
  plan by dma(3)
  g0 = compute y.shard(0)[0:1, 0:256]
}
"""


@pytest.mark.parametrize("words", [("check",), ("simulate", "--schedule", "nothing"), ("advise",), ("test",)])
def test_a_plan_that_does_not_do_its_work_is_refused_everywhere(small: Path, words: tuple[str, ...]) -> None:
    small.write_text(SMALL + WRONG_PLAN)

    done = magus(words[0], small, *words[1:])

    assert done.exit_code == 1
    assert "MGS501" in done.stderr and "MGS507" in done.stderr


def test_a_schedule_that_does_not_fit_a_setting_is_left_out_and_said(small: Path) -> None:
    done = magus("advise", small, "--set", "M=8", "--no-verify")

    assert done.exit_code == 0
    assert "mine is left out" in done.stderr


def test_one_expectation_that_cannot_be_met_does_not_stop_the_others(small: Path) -> None:
    small.write_text(SMALL + "expect up with M = 8 { mine.makespan > 1 us }\nexpect up { mine.makespan > 1 us }\n")

    done = magus("test", small)

    assert done.exit_code == 1
    assert "does not fit these sizes" in done.stdout
    assert done.stdout.count("ok    ") == 1


def test_schedules_lists_the_space_and_the_bound(small: Path) -> None:
    done = magus("schedules", small, "--json")

    document = json.loads(done.stdout)
    assert "serial(engine=dma(3))" in document["schedules"]
    assert document["bound"]["us"] > 0
    assert document["bound"]["assumptions"]


def test_a_space_with_nothing_in_it_names_the_constraints(small: Path) -> None:
    small.write_text(SMALL.replace("engine dma }", "engine dma; staging <= 1 KiB }"))

    done = magus("advise", small)

    assert done.exit_code == 3
    assert "staging" in done.stderr


@pytest.mark.slow
def test_advise_prints_every_key_of_its_document(small: Path) -> None:
    done = magus("advise", small, "--json", "--workers", "1")

    document = json.loads(done.stdout)
    assert done.exit_code == 0
    wanted = (
        "schema workload recommended verdict speedup_vs_serial lower_bound_us gap_to_bound confidence threshold "
        "sensitivity reasons ties given_up candidates timing"
    )
    assert set(wanted.split()) <= set(document)
    assert document["verdict"] in ("overlap", "worth_trying", "serial")
    assert {"schedule", "predicted_us", "interval_us", "simulated_us"} <= set(document["candidates"][0])


@pytest.mark.slow
@pytest.mark.parametrize("part", ["threshold", "sensitivity"])
def test_a_part_is_found_where_it_is_requested_for(part: str, small: Path) -> None:
    words = ("advise", small, "--no-verify", "--json", "--workers", "1")

    assert json.loads(magus(*words).stdout)[part] is None
    assert json.loads(magus(*words, f"--{part}").stdout)[part]["checked"] == "predicted"


@pytest.mark.slow
def test_the_api_gives_the_same_answer_as_the_command(small: Path) -> None:
    by_command = json.loads(magus("advise", small, "--json", "--workers", "1").stdout)

    by_api = advice_document(Advisor.load().recommend(compile_file(small).scenario()))

    del by_command["timing"], by_api["timing"], by_command["next"]
    assert json.loads(json.dumps(by_api)) == by_command


def test_strict_refuses_a_profile_that_is_not_validated(small: Path) -> None:
    done = magus("advise", small, "--no-verify", "--strict")

    assert done.exit_code == 3
    assert "not validated" in done.stderr


@pytest.mark.slow
def test_the_text_of_advice_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(example("decode_small_batch"))
    monkeypatch.chdir(file.parent)  # commands to copy name it: a long path stays whole
    done = magus("advise", file.name, "--bespoke", "0", "--workers", "1")

    assert done.exit_code == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert re.search(r"^SERIAL: overlap does not pay here", done.stdout, re.MULTILINE)


def test_expectations_are_run_and_a_failed_one_is_an_exit_code(small: Path) -> None:
    small.write_text(SMALL + "expect up { mine.makespan < 1 us; mine.makespan > 1 us; verdict == overlap }\n")

    done = magus("test", small, "--workers", "1")

    assert done.exit_code == 1
    assert done.stdout.count("FAILED") >= 1
    assert done.stdout.count("ok    ") >= 1


@pytest.mark.parametrize("setting", ["M", "=4", "M="])
def test_a_setting_without_a_value_is_a_usage_error(small: Path, setting: str) -> None:
    assert magus("check", small, "--set", setting).exit_code == 2


def test_a_setting_outside_its_domain_is_reported(small: Path) -> None:
    done = magus("check", small, "--set", "M=4096")

    assert done.exit_code == 1
    assert "MGS311" in done.stderr


@pytest.mark.quick(9)
@pytest.mark.parametrize("verb", ["check", "fmt", "test", "simulate", "schedules", "advise"])
@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b"\xff\xfe", b"gpu {", b"((((" * 1000, b"x" * (1 << 20)])
def test_bad_files_never_give_a_traceback(tmp_path: Path, verb: str, content: bytes) -> None:
    file = tmp_path / "bad.mgs"
    file.write_bytes(content)

    done = magus(verb, file)

    assert done.exit_code in (0, 1)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "MGS" in done.stderr or done.exit_code == 0


@pytest.mark.parametrize("verb", ["check", "simulate", "advise"])
def test_a_missing_file_is_a_diagnostic(tmp_path: Path, verb: str) -> None:
    done = magus(verb, tmp_path / "nowhere.mgs")

    assert done.exit_code == 1
    assert "MGS120" in done.stderr


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A folder with one table: a good row, one of another kernel, one that is broken."""
    folder = tmp_path / "measured"
    folder.mkdir()
    rows = ["gpu,m,n,k,dtype,time_us", "H100,512,512,512,bf16,5.0", "H100,512,512,512,fp8,5.0", "H100,512,512"]
    (folder / "gemm_h100_sxm.csv").write_text("\n".join(rows))
    return folder


def test_validate_reports_and_writes_its_page(measured: Path, tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"

    done = magus("validate", "--data", measured, "--sample", "1", "--write", page)

    assert done.exit_code == 0
    assert done.stdout.startswith("All figures are in percent") and "  H100  " in done.stdout
    assert "gemm_h100_sxm.csv:4: 3 fields" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert page.read_text().startswith("# How far the models are from measurements")


def test_validate_prints_one_document(measured: Path) -> None:
    done = magus("validate", "--data", measured, "--sample", "0", "--json")

    document = json.loads(done.stdout)
    assert (done.exit_code, document["schema"], document["simulated"]) == (0, "magus-validate/1", [])
    assert document["targets_met"] is False


def test_validate_without_data_says_so(measured: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (measured / "gemm_h100_sxm.csv").write_text("gpu,m\n")
    for folder, says in (
        (tmp_path / "none", "no such folder"),
        (empty, "nothing to compare"),
        (measured, "no column dtype, n, k, time_us"),
        (measured / "gemm_h100_sxm.csv", "not a folder"),
    ):
        done = magus("validate", "--data", folder)

        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("magus validate: ") and says in done.stderr
        assert "internal error" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif("MAGUS_MEASURED_DATA" not in os.environ, reason="MAGUS_MEASURED_DATA names no folder")
def test_the_page_about_accuracy_is_what_validate_writes(tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"

    done = magus("validate", "--data", os.environ["MAGUS_MEASURED_DATA"], "--write", page)

    assert done.exit_code == 0
    assert page.read_text() == (DOCS / "accuracy.md").read_text()


VARIED = "variability { skew uniform(0 us, 5 us); jitter normal(2 %); late rank 1 by 2 us }"


@pytest.fixture
def varied(small: Path) -> Path:
    small.write_text(SMALL.replace("fabric full_mesh(xgmi)", f"fabric full_mesh(xgmi); {VARIED}"))
    return small


def test_seeds_give_percentiles_in_order(varied: Path) -> None:
    document = json.loads(magus("simulate", varied, "--seeds", "9", "--seed", "3", "--json").stdout)
    found = document["seeds"]

    assert (found["first"], found["count"], found["unit_bytes"]) == (3, 9, 1024)
    for name in ("makespan_us", "compute_us", "exposed_us"):
        assert list(found[name]) == ["min", "p5", "p50", "p95", "p99", "max"]
        assert list(found[name].values()) == sorted(found[name].values())
    assert found["makespan_us"]["min"] < found["makespan_us"]["max"]
    plain = json.loads(magus("simulate", varied, "--json").stdout)
    assert "seeds" not in plain
    assert document["makespan_ticks"] == plain["makespan_ticks"]


def test_one_seed_is_one_run(varied: Path) -> None:
    words = ("simulate", varied, "--granularity", "packet", "--json")
    seeded = [json.loads(magus(*words, "--seed", seed).stdout)["makespan_us"] for seed in ("3", "3", "4")]
    of_three = json.loads(magus(*words, "--seeds", "1", "--seed", "3").stdout)["seeds"]["makespan_us"]

    assert seeded[0] == seeded[1] != seeded[2]
    assert set(of_three.values()) == {seeded[0]}


def test_the_table_of_seeds_is_text(varied: Path) -> None:
    text = magus("simulate", varied, "--seeds", "4", "--granularity", "packet").stdout

    assert re.search(r"Seeds 0 to 3, us .*\n +min +p5 +p50 +p95 +p99 +max\n +makespan +[\d. ]+\n", text)


def test_recorded_writes_are_replayed(small: Path) -> None:
    profile = small.parent / "profile.csv"
    done = magus("simulate", small, "--schedule", "serial()", "--record-writes", profile, "--json")
    replaying = small.parent / "replaying.mgs"
    replaying.write_text(SMALL.replace("fabric full_mesh(xgmi)", 'fabric full_mesh(xgmi); replay "profile.csv"'))

    replayed = json.loads(magus("simulate", replaying, "--schedule", "serial()", "--json").stdout)
    other = magus("simulate", replaying)
    advice = magus("advise", replaying)
    tables = (magus("sweep", replaying), magus("export", replaying, "--to", "policy"))
    replaying.write_text(replaying.read_text().replace('replay "profile.csv"', 'traffic { file "profile.csv" }'))
    beside = magus("advise", replaying, "--bespoke", "0", "--full")

    assert replayed["makespan_ticks"] == json.loads(done.stdout)["makespan_ticks"]
    assert (replayed["ranks_simulated"], replayed["waterfall"]) == (1, None)
    assert (other.exit_code, "MGS521 error" in other.stderr) == (1, True)
    for each in (advice, *tables):
        assert (each.exit_code, f"{replaying}:5:1: MGS523 error" in each.stderr) == (1, True)
        assert 'say traffic { file "profile.csv" }' in " ".join(each.stderr.split())
    assert beside.exit_code == 0 and "simulated times are beside the traffic of others" in beside.stdout


def test_a_profile_that_cannot_be_written_is_reported(small: Path) -> None:
    done = magus("simulate", small, "--record-writes", small.parent / "none" / "p.csv")

    assert done.exit_code == 1
    assert "there is no folder" in done.stderr
