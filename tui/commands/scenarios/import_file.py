"""``magus import`` and ``from-model``: machines, measured rows and traces read in; layers of a model."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ....advisor.measured.nccl_logs import is_log, is_other_table, read_log, refuse_other_table
from ....advisor.measured.traces.workloads import HEAD, byte_pieces, is_trace, text_pieces
from ....compiler.codes import Code
from ....compiler.from_model.config import ModelConfig, read_config
from ....compiler.from_model.frameworks import Parallelism, parallelism_for
from ....compiler.from_model.layer import layer_text, number_text
from ....compiler.from_model.request import shipped_model
from ....compiler.machine.read import MAX_BYTES, machine_text, read_machine, system_name
from ....compiler.request.request import RequestError
from ....compiler.text.diagnostics import Report, Source
from ....compiler.text.fmt import format_text
from ...text.door import Exit, say
from ..inputs import deliver, is_stdin, name_of, reading, reporting, source_of

TABLE = "nccl_collectives_*.csv"


@reporting
def import_files(files: Sequence[Path], *, gpu: str, collective: str, traffic: bool, out: Path | None) -> Exit:
    """Write what ``files`` describe, a system, rows of a table, workloads or ``traffic``, to ``out`` or stdout.

    The files may not say which ``gpu`` and, a log, which ``collective``. Of several files, which are traces, each is of
    another rank.
    """
    file, traced, source = files[0], False, Source("", "")
    if traffic and collective:
        return _misused("--collective is for logs of nccl-tests, --traffic for profiles")
    if not traffic:
        other = next((each for each in files if not _is_trace(each)), None)
        if other is not None and len(files) > 1:
            what = "several files are traces of several ranks, or read with --traffic"
            return _misused(f"{name_of(other)} is no file with a trace: {what}")
        traced = other is None
        source = Source(name_of(file), "") if traced else source_of(file, MAX_BYTES)
    log = is_log(source.text)
    if collective and not log:
        return _misused("--collective is for logs of nccl-tests, and this file is none")
    with reading() as report:
        if traffic:
            text, about = _traffic(files, gpu, report)
        elif traced or is_trace(source.text[:HEAD]):
            text, about = _workloads(files, source.text, gpu, report)
        elif log:
            text, about = _rows(source, gpu, collective, report)
        else:
            text, about = _system(source, gpu, report)
    done = deliver(text, out, about)
    if log and done is Exit.DONE and out is not None and not out.match(TABLE):
        say(f"magus validate and calibrate read tables that are called {TABLE}")
    return done


def _misused(why: str) -> Exit:
    say(f"magus import: {why}")
    return Exit.USAGE


def _traffic(files: Sequence[Path], gpu: str, report: Report) -> tuple[str, str]:
    """The text that is written, and what it holds; as of the others."""
    from ....advisor.measured.traces.traffic import traffic_table

    table = traffic_table(files, gpu, report)
    return table.text, f"{table.count:,} writes"


def _system(source: Source, gpu: str, report: Report) -> tuple[str, str]:
    if is_other_table(source.text):
        raise refuse_other_table(source, report)
    machine = read_machine(source, gpu, report)
    text = machine_text(machine, Path(source.path).name, report)
    return text, f"system {system_name(machine)} of {machine.num_gpus} x {machine.model.name}"


def _rows(source: Source, gpu: str, collective: str, report: Report) -> tuple[str, str]:
    rows = read_log(source, gpu, collective, report)
    return rows.text, f"{rows.count} rows"


def _workloads(files: Sequence[Path], text: str, gpu: str, report: Report) -> tuple[str, str]:
    """The workloads of traces in ``files``, or of the one that was read as ``text``."""
    from ....advisor.measured.traces import workloads  # here: it needs numpy, which dumps of machines do not

    read = [(name_of(file), partial(workloads.run_of, file)) for file in files]
    if text:
        read = [(name_of(files[0]), partial(workloads.read_text, text))]
    found = workloads.read_traces(read, gpu, report)
    return found.text, f"{found.count} workloads"


def _is_trace(file: Path) -> bool:
    """Whether a file holds a trace, which may be longer than what is read of other files."""
    from ....advisor.measured.traces.chakra import is_chakra

    if not is_stdin(file) and file.is_file():
        with suppress(OSError, ValueError):  # what cannot be read is told by whoever reads it whole
            return is_chakra(byte_pieces(file)) or is_trace(next(text_pieces(file), "")[:HEAD])
    return False


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """GPUs that share a layer, and how: as a ``framework`` does, which ``dp`` and ``ep`` are for, or as is said.

    ``keys`` are those of each sequence in a step of decode.
    """

    gpu: str
    tp: int
    node: int
    sequence: bool
    framework: str = ""
    dp: int = 1
    ep: int = 1
    keys: int | None = None

    def parallelism(self) -> Parallelism:
        """Return how the layer is shared.

        Raises
        ------
        RequestError
            If the options contradict each other.
        """
        if self.framework and not self.sequence:
            message = f"{self.framework} decides how activations are sharded"
            raise RequestError(Code.MGS310, "no-sequence-parallel", message, "leave it out")
        if self.framework:
            found = parallelism_for(self.framework, self.gpu, self.tp, self.dp, self.ep, self.node)
            return replace(found, keys=self.keys)
        if (self.dp, self.ep) != (1, 1):
            raise RequestError(Code.MGS209, "for", "--dp and --ep are of a framework", "say which: --for vllm")
        if self.tp == 1:
            raise RequestError(Code.MGS307, "tp", "one GPU shares nothing", "take --tp 8")
        return Parallelism(self.gpu, self.tp, self.sequence, self.node, keys=self.keys)


def write_step(config: Path, gpu: str, gpus: int, node: int, batch: tuple[int, int], out: Path | None) -> Exit:
    """Write a training step of the model in ``config``; ``batch`` are sequences, and tokens of each."""
    from ....compiler.from_model.step import StepRequest, step_text

    return _write(config, lambda model: step_text(model, StepRequest(gpu, gpus, *batch, node)), "a training step", out)


def write_layer(config: Path, options: ModelOptions, out: Path | None, *, whole: bool) -> Exit:
    """Write the scenario of the model in ``config`` to ``out`` or stdout, as a ``whole`` layer if that can be."""
    return _write(config, lambda model: layer_text(model, options.parallelism(), whole=whole), "a layer", out)


@reporting
def _write(config: Path, text_of: Callable[[ModelConfig], str], what: str, out: Path | None) -> Exit:
    """Write ``text_of`` a model, which is ``what`` of it, to ``out`` or stdout: of a file, or of one that ships."""
    is_file = config.suffix == ".json" or config.exists()
    model = read_config(config) if is_file else shipped_model(str(config))
    about = f"{what} of {model.name}, {number_text(model.parameters)} parameters"
    return deliver(format_text(text_of(model)), out, about)
