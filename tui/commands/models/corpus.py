"""``magus corpus``: search drawn scenarios and keep what was found in a store."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....advisor.corpus.build import BuildReport, build_corpus
from ....advisor.corpus.keys import engine_version
from ....advisor.corpus.searches import Backend
from ....advisor.corpus.store import CorpusError, open_store
from ....advisor.failures import failure_sentences
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.progress import duration_text, progress_line
from ...text.wrap import bullet, hanging
from ..console import say_rejection
from ..running import run_command


@dataclass(frozen=True, slots=True)
class CorpusRequest:
    """The store to build: the first ``scenarios`` of ``seed``, searched here by ``workers``, or by a dask scheduler."""

    path: Path
    scenarios: int
    seed: int
    workers: int
    scheduler: str | None = None

    def backend(self) -> Backend:
        """Return what searches."""
        if self.scheduler is not None:
            from ....advisor.corpus.on_dask import on_dask

            return on_dask(self.scheduler)
        from ....advisor.corpus.searches import on_this_machine

        return on_this_machine(self.workers)


def build_store(request: CorpusRequest, *, as_json: bool) -> Exit:
    """Search what the store lacks and print what it then has; also after Ctrl-C."""

    def action() -> Exit:
        try:
            with progress_line() as progress, open_store(request.path, engine_version()) as store:
                report = build_corpus(store, request.seed, request.scenarios, request.backend(), progress)
        except CorpusError as error:
            say_rejection(error.rejection)
            return Exit.INPUT
        if as_json:
            print_json(_document(request, report))
        else:
            put("\n".join(_lines(request, report)))
        if report.interrupted:
            say("magus corpus: stopped; the same command goes on from here")
            return Exit.INTERRUPTED
        return Exit.INPUT if report.failures else Exit.DONE

    return run_command(action)


def _document(request: CorpusRequest, report: BuildReport) -> dict[str, object]:
    return {
        "schema": "magus-corpus/1",
        "store": str(request.path),
        "seed": report.seed,
        "scenarios": report.scenarios,
        "stored": report.stored,
        "new": report.new,
        "failed": len(report.failures),
        "failures": list(failure_sentences(report.failures)),
        "runs": report.runs,
        "patterns": dict(report.patterns),
        "of_other_versions": report.others,
        "seconds": round(report.seconds, 1),
        "per_minute": round(report.per_minute, 2),
        "interrupted": report.interrupted,
    }


def _lines(request: CorpusRequest, report: BuildReport) -> Iterator[str]:
    stored = f"{report.stored} of {report.scenarios} scenarios of seed {report.seed} are stored"
    pace = f", {report.per_minute:.3g} a minute" if report.new else ""
    new = f"{report.new} new in {duration_text(report.seconds)}{pace}"
    failed = f"; {len(report.failures)} failed" if report.failures else ""
    yield from hanging(f"{request.path}: {stored}, {new}{failed}", 2)
    patterns = ", ".join(f"{pattern} {count}" for pattern, count in report.patterns)
    if patterns:
        yield from hanging(f"{report.runs:,} simulated plans; {patterns}", 4, "  ")
    if report.others:
        yield from bullet("!", f"{report.others} more are of other versions of Magus: they stay and are not used")
    for sentence in failure_sentences(report.failures):
        yield from bullet("!", sentence)
