"""``magus test``: the ``expect`` blocks of files, checked."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from ....advisor import Advisor
from ....advisor.expect.run import CheckResult, ExpectationRunner, PointFigures, Standing
from ....advisor.expect.values import FigureValue
from ....compiler import compile_text
from ....compiler.codes import Code
from ....compiler.ir import JsonObject, Settings
from ....compiler.pipeline import Compiled
from ....compiler.text.diagnostics import Diagnostic, Severity
from ...text.door import Exit, hanging, print_json, put, say
from ..inputs import name_of, show, source_of
from ..running import command

SCHEMA = "magus-test/1"
_INDENT = " " * 7
_NO_BREAK = "\N{NO-BREAK SPACE}"


def test_files(files: Sequence[Path], settings: Settings, workers: int, *, as_json: bool, strict: bool = False) -> Exit:
    """Check every ``expect`` block, each with its own settings; print text, or one JSON document.

    If it is ``strict``, a file without a statement to check has no success.
    """
    advisor = cache(Advisor.load)
    documents: list[JsonObject] = []

    @command
    def check(file: Path) -> Exit:
        results = _results(file, settings, advisor, workers)
        if as_json:
            checked = list(results)
            documents.append(file_document(file, checked))
        else:
            checked = _printed(file, results)
        show(tuple(_overridden(checked, settings)))
        if all(result.standing is Standing.SHOWN for result in checked):
            say(f"{name_of(file)}: nothing was checked: no expect block has a statement to check")
            return Exit.NOT_FEASIBLE if strict else Exit.DONE
        return Exit.DONE if all(result.passed for result in checked) else Exit.INPUT

    exits = list(map(check, files))
    if as_json:
        print_json({"schema": SCHEMA, "files": documents})
    return max(exits)


def _results(file: Path, settings: Settings, advisor: Callable[[], Advisor], workers: int) -> Iterator[CheckResult]:
    source = source_of(file)

    def compiled(bindings: Settings) -> Compiled:
        found = compile_text(source.text, source.path, [*settings, *bindings])
        if not bindings:
            show(found.warnings)
        return found

    return ExpectationRunner(compiled, advisor, workers).run()


def _overridden(results: Sequence[CheckResult], settings: Settings) -> Iterator[Diagnostic]:
    """Warn of what was set for nothing: blocks that set it themselves."""
    for name, text in settings:
        said = (result for result in results if name in dict(result.bindings) or _sweeps(result, name))
        first = next(said, None)
        if first is not None:
            message = f"'--set {name}={text}' has no effect here: its block sets {name} itself"
            yield Diagnostic(Code.MGS214, message, first.check.span, severity=Severity.WARNING)


def _sweeps(result: CheckResult, name: str) -> bool:
    return result.sweep is not None and result.sweep.param == name


def _printed(file: Path, results: Iterator[CheckResult]) -> list[CheckResult]:
    """Print each result as it comes, then how many there were of each kind."""
    printed: list[CheckResult] = []
    for result in results:
        printed.append(result)
        put("\n".join(result_lines(file, result)))
    count = _counts(printed)
    shown = f", {count['shown']} shown" if count["shown"] else ""
    put(f"{name_of(file)}: {count['passed']} passed, {count['failed']} failed{shown}")
    return printed


def result_lines(file: Path, result: CheckResult) -> Iterator[str]:
    """One statement: its standing, its text, the values found, the published value, and the points of a sweep."""
    where = f"{name_of(file)}:{result.check.span.location.line}"
    yield from _wrapped(f"{where}: {result.check.text}{_given(result)}", f"{result.standing.value:<{len(_INDENT)}}")
    if result.found:
        yield from _wrapped(result.found)
    if result.check.published:
        yield from _wrapped(f"published: {result.check.published}")
    if result.sweep is not None and result.points:
        points = ", ".join(_point_text(point).replace(" ", _NO_BREAK) for point in result.points)
        yield from (line.replace(_NO_BREAK, " ") for line in _wrapped(f"{result.sweep.param} {points}"))


def _given(result: CheckResult) -> str:
    bound = ", ".join(f"{name} = {value}" for name, value in result.bindings)
    swept = "" if result.sweep is None else f" for {result.sweep.param} in {result.sweep.domain}"
    return (f" with {bound}" if bound else "") + swept


def _point_text(point: PointFigures) -> str:
    return f"{point.setting}: {' vs '.join(value.text for value in point.values) or '-'}"


def _wrapped(text: str, first: str = _INDENT) -> list[str]:
    return hanging(text, len(_INDENT), first)


def _counts(results: Sequence[CheckResult]) -> dict[str, int]:
    standings = Counter(result.standing for result in results)
    return {
        "passed": standings[Standing.PASSED],
        "failed": standings[Standing.FAILED],
        "shown": standings[Standing.SHOWN],
    }


def file_document(file: Path, results: Sequence[CheckResult]) -> JsonObject:
    """One file as JSON: how many statements passed, failed and were shown, and each of them."""
    return {"file": name_of(file), **_counts(results), "statements": [_statement(result) for result in results]}


def _statement(result: CheckResult) -> JsonObject:
    check, sweep = result.check, result.sweep
    return {
        "line": check.span.location.line,
        "statement": check.text,
        "standing": result.standing.name.lower(),
        "bindings": dict(result.bindings),
        "found": result.found,
        "values": _values(result.values),
        "published": check.published or None,
        "sweep": None if sweep is None else {"param": sweep.param, "points": list(map(_point, result.points))},
    }


def _point(point: PointFigures) -> JsonObject:
    return {"setting": point.setting, "values": _values(point.values)}


def _values(values: Sequence[FigureValue]) -> JsonObject:
    return {value.name: {"value": value.number, "unit": value.unit} for value in values}
