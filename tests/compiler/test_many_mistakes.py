"""As many mistakes as a report takes, and more: the file is never refused in silence, nor for its warnings."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from magus.compiler import CompileError, OpCase, compile_text
from magus.compiler.pipeline import examine_text
from magus.compiler.resolve.file import resolve
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.text.diagnostics import MAX_ERRORS, MAX_SHOWN, Severity, render_text
from magus.compiler.text.names import Scope
from magus.compiler.text.units import Quantity

AROUND_THE_LIMIT = (MAX_ERRORS - 1, MAX_ERRORS, MAX_ERRORS + 1)
_HEAD = 'use "nvidia/h100"\nsystem s { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n'
_PAIR = "x = tensor bf16[1024, 8192] shard rows; v = tensor bf16[8192, 8192] shard cols; y = gemm(all_gather(x), v)"
_LAYER = "x = tensor bf16[1024, 8192] shard rows; a = norm(x); b = norm(a); c = norm(b); d = norm(c)"


def _workload(name: str, *statements: str) -> str:
    return f"workload {name} on s {{\n" + "\n".join(statements) + "\n}\n"


def _unknown(count: int) -> list[str]:
    return [f"e{idx} = norm(q{idx})" for idx in range(count)]


def _unused(count: int) -> list[str]:
    return [f"u{idx} = tensor bf16[8, 8]" for idx in range(count)]


def _rows_by_param(count: int) -> str:
    cut = (f"u{idx} = tensor bf16[M, 8] shard rows" for idx in range(count))
    return "param M = 1024 in 1..4096\n" + _workload("w", _PAIR, *cut) + "expect w with M = 4 { verdict == serial }\n"


WRONG: dict[str, Callable[[int], str]] = {
    "top level": lambda count: "".join(f"let a{idx} = b{idx}\n" for idx in range(count)),
    "a pair": lambda count: _workload("w", _PAIR, *_unknown(count)),
    "a layer": lambda count: _workload("w", _LAYER, *_unknown(count)),
    "two workloads": lambda count: "".join(_workload(name, _PAIR, *_unknown(count // 2 + 1)) for name in "ab"),
    "schedules": lambda count: (
        _workload("w", _PAIR)
        + "".join(f"schedule s{idx} for w = serial(engine=dma({100 + idx}))\n" for idx in range(count))
    ),
    "another setting": _rows_by_param,
    "of what a backward pass is": lambda count: _workload("back", "backward w") + _workload("w", *_unknown(count)),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("count", AROUND_THE_LIMIT)
@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_errors_are_reported_however_many_there_are(text: Callable[[int], str], count: int) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(_HEAD + text(count))
    found = [each for each in caught.value.diagnostics if each.severity is Severity.ERROR]
    assert min(count, MAX_ERRORS) <= len(found) <= MAX_ERRORS
    assert render_text(caught.value.diagnostics).count("error:") == MAX_SHOWN
    assert examine_text(_HEAD + text(count)).diagnostics == caught.value.diagnostics


@pytest.mark.quick(2)
@pytest.mark.parametrize("count", AROUND_THE_LIMIT)
@pytest.mark.parametrize("workload", [_PAIR, _LAYER], ids=["pair", "layer"])
def test_a_file_with_many_warnings_is_valid(workload: str, count: int) -> None:
    compiled = compile_text(_HEAD + _workload("w", workload, *_unused(count)))
    assert len(compiled.workloads) == 1
    assert len(compiled.warnings) == count
    assert render_text(compiled.warnings).endswith(f"and {count - MAX_SHOWN} more")


def test_an_error_is_shown_before_many_warnings() -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(_HEAD + _workload("w", _PAIR, *_unused(MAX_ERRORS)) + _workload("z", "y = gemm(x, x)"))
    shown = render_text(caught.value.diagnostics)
    assert shown.count("error:") == 1
    assert shown.count("warning:") == MAX_SHOWN - 1


def test_that_a_graph_has_too_many_operations_is_reported_once() -> None:
    ops = [f"a{idx + 1} = norm(a{idx})" for idx in range(600)]
    with pytest.raises(CompileError) as caught:
        compile_text(_HEAD + _workload("w", "a0 = tensor bf16[64, 64] shard rows", *ops, "repeat 2 a600 as a0"))
    assert [each.code.name for each in caught.value.diagnostics] == ["MGS305"]


def test_a_schedule_on_the_command_line_with_many_mistakes() -> None:
    scenario: OpCase = compile_text(_HEAD + _workload("w", _PAIR)).scenario().case
    with pytest.raises(CompileError):
        resolve_schedule(scenario, "$" * (MAX_ERRORS + 1))


def test_settings_of_an_expectation_that_hold_already_are_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = list[Mapping[str, Quantity]]()

    def counting(scope: Scope, settings: Mapping[str, Quantity], *more: Any, **named: Any) -> Any:
        resolved.append(settings)
        return resolve(scope, settings, *more, **named)

    monkeypatch.setattr("magus.compiler.pipeline.resolve", counting)
    text = _HEAD + "param R = 1024 in 512..4096 x2\n" + _workload("w", _PAIR.replace("1024", "R"))
    compile_text(text + "expect w { sweep R in 512..2048 x2 { show serial.makespan } }")
    assert [int(settings["R"].amount) for settings in resolved if settings] == [512, 2048]

    with pytest.raises(CompileError) as caught:
        compile_text(text + "expect w with R = 8192 { show serial.makespan }")
    assert caught.value.first.message == "with R = 8192: R is set to 8192, its domain is 512..4096 x2"
