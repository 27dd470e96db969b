"""Workloads of one op are read as ops exactly as the reader of pairs reads them."""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import System, Workload
from magus.compiler.resolve import file
from magus.compiler.resolve.devices.system import SystemResolver
from magus.compiler.resolve.values.evaluate import ExpressionEvaluator
from magus.compiler.resolve.workloads.graph import GraphResolver
from magus.compiler.resolve.workloads.workload import resolve_workload
from magus.compiler.text.diagnostics import Report
from magus.compiler.text.names import Entry

_ROOT = Path(__file__).parents[4]
_BLOCK = re.compile(r"```mgs\n(.*?)```", re.DOTALL)
_UNUSED = {"double_equals.mgs"}
"""Files with a tensor that nothing uses: an op has those that it uses."""


def _texts() -> list[tuple[str, str]]:
    files = [path for folder in ("examples", "tests") for path in sorted((_ROOT / folder).rglob("*.mgs"))]
    texts = [(str(path), path.read_text(encoding="utf-8")) for path in files if path.name not in _UNUSED]
    pages = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
    blocks = [(str(page), block) for page in pages for block in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    return texts + blocks


def test_an_op_is_what_a_pair_was(monkeypatch: pytest.MonkeyPatch) -> None:
    same = 0

    def both(
        entry: Entry, systems: SystemResolver, evaluator: ExpressionEvaluator, report: Report
    ) -> tuple[System, object]:
        nonlocal same
        system, workload = resolve_workload(entry, systems, evaluator, report)
        if isinstance(workload, Workload):
            beside = report.beside()
            graph = GraphResolver(entry, system, evaluator, beside).resolve()
            (op,) = graph.ops
            assert replace(op.workload, name=graph.name, about=graph.about) == workload
            same += 1
        return system, workload

    monkeypatch.setattr(file, "resolve_workload", both)
    for path, text in _texts():
        with suppress(CompileError):
            compile_text(text, path)
    assert same > 560
