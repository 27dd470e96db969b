"""``--trace``, ``--svg`` and ``--png``: a run as a trace for Perfetto, or as a drawing."""

import gzip
from dataclasses import dataclass
from pathlib import Path

from ....advisor.candidates.advice import Advice
from ....advisor.steps.outcome import StepOutcome
from ....compiler.text.writing import check_writable, write_whole
from ....simcore import ShownRun
from ...drawing import Shows
from ...drawing.drawn_runs import drawn_run
from ...exit_codes import Exit
from ...text.door import say
from ..console import report_errors, save

RANK = "{rank}"
"""Where it stands in the name of a trace, each rank has a file of its own, as torch.profiler writes them."""

MAX_FILES = 64
"""Files of one trace at most."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """The files to draw a run to, None for those that nobody asked for."""

    trace: Path | None = None
    svg: Path | None = None
    png: Path | None = None
    shows: Shows = Shows.TIMELINE

    @property
    def wanted(self) -> tuple[str, ...]:
        """The options that were given."""
        given = {"--trace": self.trace, "--svg": self.svg, "--png": self.png}
        return tuple(name for name, path in given.items() if path is not None)

    def check(self) -> None:
        """Raise the error of a file that cannot be written, before the work that it is for.

        Raises
        ------
        OSError
            If one cannot be written as things are now.
        """
        for path in (self.trace, self.svg, self.png):
            if path is not None:
                check_writable(_of_rank(path, 0))

    def save(self, run: ShownRun) -> Exit:
        """Write the files of a run and say so; errors are reported, so that the answer can still be printed."""
        codes = [Exit.DONE]
        if self.trace is not None:
            codes.append(_save_trace(self.trace, run))
        if self.svg is not None or self.png is not None:
            codes.append(self._save_drawing(run))
        return max(codes)

    def save_step(self, outcome: StepOutcome) -> Exit:
        """Write the files of a training step, and say so."""
        if not self.wanted:
            return Exit.DONE
        from ...drawing.step_svg import memory_svg, step_svg, step_trace  # few files have one

        codes = [Exit.DONE]
        if self.trace is not None:
            message = f"{self.trace}: the trace of a rank of each stage; open it in https://ui.perfetto.dev"
            codes.append(save(self.trace, _packed(self.trace, step_trace(outcome)), message))
        if self.shows is Shows.LOADS:
            return max(*codes, self.save_drawing(memory_svg(outcome), "the memory of each stage"))
        return max(*codes, self.save_drawing(step_svg(outcome), "the timeline"))

    def _save_drawing(self, run: ShownRun) -> Exit:
        from ...drawing.svg import waterfall_svg  # most runs are not drawn
        from ...drawing.timeline_svg import loads_svg, timeline_svg

        if self.shows is Shows.WATERFALL:
            losses = run.result.waterfall
            if losses is None:
                say("magus: nothing is drawn: this run has no losses; simulate it for itself, with what it is in lines")
                return Exit.INPUT
            return self.save_drawing(waterfall_svg(losses), "the losses")
        if self.shows is Shows.LOADS:
            return self.save_drawing(loads_svg(run), "the use of memory and links")
        return self.save_drawing(timeline_svg(run), "the timeline")

    def save_drawing(self, drawing: str, about: str) -> Exit:
        """Write a drawing to the files that were asked for, and say so."""
        from ...drawing.svg import png_of

        codes = [Exit.DONE]
        for path, content in ((self.svg, drawing), (self.png, drawing if self.png is None else png_of(drawing))):
            if path is not None:
                codes.append(save(path, content, f"{path}: {about} as a drawing"))
        return max(codes)

    def save_advice(self, advice: Advice) -> Exit:
        """Write the files of the run of the recommended schedule, which is simulated in packets if it was not."""
        if not self.wanted:
            return Exit.DONE
        run = drawn_run(advice)
        return Exit.INPUT if run is None else self.save(run)


NO_PICTURES = Pictures()


def _save_trace(path: Path, run: ShownRun) -> Exit:
    from ...drawing.chrome_trace import chrome_trace

    if RANK in path.name:
        return _save_each_rank(path, run)
    trace = chrome_trace(run)
    last = trace.ranks[-1]
    which = "" if last + 1 == trace.num_ranks else f"ranks 0 to {last} of " if last else "rank 0 of "
    message = f"{path}: the trace of {which}{trace.num_ranks} ranks; open it in https://ui.perfetto.dev"
    return save(path, _packed(path, trace.text), message)


def _save_each_rank(path: Path, run: ShownRun) -> Exit:
    from ...drawing.chrome_trace import chrome_trace

    ranks = range(min(MAX_FILES, run.num_ranks))

    def write() -> Exit:
        for rank in ranks:
            trace = chrome_trace(run, range(rank, rank + 1))
            write_whole(_of_rank(path, rank), _packed(path, trace.text))
        say(f"{_of_rank(path, 0)} to {_of_rank(path, ranks[-1]).name}: {len(ranks)} of {run.num_ranks} ranks")
        return Exit.DONE

    return report_errors(write)


def _of_rank(path: Path, rank: int) -> Path:
    return path.parent / path.name.replace(RANK, str(rank))


def _packed(path: Path, text: str) -> str | bytes:
    """Return what a file of this name holds: packed if it ends in .gz, the same bytes each time."""
    return gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text
