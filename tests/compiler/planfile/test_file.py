"""``import "plan.json"`` and ``--schedule plan.json``: the plan of a file is a schedule like any other."""

import json
from pathlib import Path

import pytest

from magus.compiler import CompileError, compile_file, format_text
from magus.compiler.codes import Code
from magus.compiler.planfile.write import document_text, op_plan_document
from magus.compiler.planning.build import declared
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from tests.helpers.mscclpp import programs as mscclpp_programs
from tests.helpers.plans.documents import schedule_hash
from tests.helpers.plans.plans import all_schedules, scenario_of, text_of
from tests.helpers.some import some

IMPORT = 'schedule mine for w = import "p.json"\n'


def written(folder: Path, body: str = "AG+GEMM", at: int = 0, line: str = IMPORT) -> Path:
    """A file that imports the plan of a template, beside it."""
    text = document_text(op_plan_document(scenario_of(body), all_schedules(body)[at]))
    (folder / "p.json").write_text(text, encoding="utf-8")
    file = folder / "a.mgs"
    file.write_text(text_of(body) + line, encoding="utf-8")
    return file


def errors(file: Path) -> list[tuple[str, str]]:
    with pytest.raises(CompileError) as caught:
        compile_file(file)
    return [(found.code.name, found.message) for found in caught.value.diagnostics]


@pytest.mark.parametrize("body", ["AG+GEMM", "GEMM+RS", "all_reduce", "broadcast"])
def test_an_imported_plan_is_the_schedule_it_was_made_from(tmp_path: Path, body: str) -> None:
    for at, schedule in some(enumerate(all_schedules(body)[:6])):
        scenario = compile_file(written(tmp_path, body, at)).scenario().case

        found = declared(scenario, scenario.schedules[0])

        assert found.expression == "mine"
        assert schedule_hash(scenario, found) == schedule_hash(scenario, schedule)
        assert (found.compute_sms, found.staging_bytes) == (schedule.compute_sms, schedule.staging_bytes)


def test_the_statement_is_formatted_as_it_is_written() -> None:
    assert format_text('schedule   a for w =  import   "x/p.json"') == 'schedule a for w = import "x/p.json"\n'


@pytest.mark.parametrize("path", ["../p.json", "/etc/passwd", ".", "", "sub/../../p.json"])
def test_a_plan_lies_beside_the_file_or_below(tmp_path: Path, path: str) -> None:
    (tmp_path / "inner").mkdir()
    file = written(tmp_path / "inner", line=f'schedule mine for w = import "{path}"\n')

    assert errors(file)[0][0] == "MGS207"


def test_a_link_does_not_lead_outside(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    file = written(tmp_path / "inner", line='schedule mine for w = import "link.json"\n')
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "inner" / "link.json").symlink_to(tmp_path / "secret.json")

    assert [code for code, _ in errors(file)] == ["MGS207"]


def test_what_is_wrong_names_the_file_and_stands_where_it_is_imported(tmp_path: Path) -> None:
    file = written(tmp_path)
    document = json.loads((tmp_path / "p.json").read_text())
    document["plans"][0]["steps"][1]["peer"] = 77
    (tmp_path / "p.json").write_text(json.dumps(document))

    with pytest.raises(CompileError) as caught:
        compile_file(file)

    (found,) = caught.value.diagnostics
    assert found.code is Code.MGS307
    assert found.message == "p.json: plans[0].steps[1].peer: a number from 1 to 3 is expected here, got 77"
    assert (found.span.source.path, found.span.text) == (str(file), '"p.json"')


def test_a_plan_that_cannot_run_is_reported_with_its_step(tmp_path: Path) -> None:
    file = written(tmp_path)
    document = json.loads((tmp_path / "p.json").read_text())
    del document["hash"], document["plans"][0]["steps"][0]
    (tmp_path / "p.json").write_text(json.dumps(document))

    assert any(code == "MGS502" and "g0 waits for" in message for code, message in errors(file))


def test_engines_that_the_gpu_has_not(tmp_path: Path) -> None:
    file = written(tmp_path)
    document = json.loads((tmp_path / "p.json").read_text())
    del document["hash"]
    document["plans"][0]["engine"]["count"] = 400
    (tmp_path / "p.json").write_text(json.dumps(document))

    assert [code for code, _ in errors(file)] == ["MGS401"]
    with pytest.raises(CompileError, match="MGS401"):
        resolve_schedule(scenario_of("AG+GEMM"), str(tmp_path / "p.json"))


def test_a_large_binary_or_absent_file_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    with (tmp_path / "p.json").open("wb") as stream:
        stream.truncate((16 << 20) + 1)
    assert errors(file)[0] == ("MGS130", "'p.json' is larger than 16 MiB")
    (tmp_path / "p.json").write_bytes(b"\xff")
    assert errors(file)[0][0] == "MGS121"
    (tmp_path / "p.json").unlink()
    assert errors(file)[0][0] == "MGS120"
    (tmp_path / "p.json").mkdir()
    assert errors(file)[0][0] == "MGS120"


def test_a_plan_that_is_not_for_other_sizes_is_reported_under_them(tmp_path: Path) -> None:
    file = written(tmp_path)
    text = file.read_text().replace("512,", "m,").replace("workload w", "param m = 512\nworkload w")
    file.write_text(text)

    assert compile_file(file).scenario().case.schedules
    with pytest.raises(CompileError, match="MGS524"):
        compile_file(file, [("m", "1024")])


def test_an_execution_plan_is_known_by_its_keys(tmp_path: Path) -> None:
    file = written(tmp_path, "all_gather")
    (tmp_path / "p.json").write_text(json.dumps(mscclpp_programs.all_gather(4).document()))

    compiled = compile_file(file)

    assert [found.code for found in compiled.warnings] == [Code.MGS527]
    assert declared(compiled.scenario().case, compiled.scenario().case.schedules[0]).engine.count == 3


def test_a_schedule_of_a_file_by_its_path(tmp_path: Path) -> None:
    written(tmp_path)
    path = str(tmp_path / "p.json")

    found = resolve_schedule(scenario_of("AG+GEMM"), path)

    assert found.expression == path
    assert found.steps == all_schedules("AG+GEMM")[0].steps
    with pytest.raises(CompileError, match="MGS524"):
        resolve_schedule(scenario_of("GEMM+RS"), path)
    with pytest.raises(CompileError, match="MGS120"):
        resolve_schedule(scenario_of("AG+GEMM"), str(tmp_path / "q.json"))
