"""Read a machine from a dump, whose kind its content tells."""

from collections.abc import Callable

from ..codes import Code
from ..text.diagnostics import Report
from ..text.source import Source, Span
from .device_ids import LibraryGpu
from .identify import asked_gpu
from .infragraph import is_infragraph, read_infragraph
from .machine import DumpedMachine
from .nccl_xml import read_nccl_xml
from .nvidia_smi import is_nvidia_smi, read_nvidia_smi
from .rocm_smi import is_rocm_smi, read_rocm_smi

MAX_BYTES = 16 << 20
"""Largest dump that is read; that of 72 GPUs with their NICs takes less than one MiB."""
_Reader = Callable[[Source, LibraryGpu | None, Report], DumpedMachine]


def read_machine(source: Source, gpu: str, report: Report) -> DumpedMachine:
    """Return the machine that a dump describes; ``gpu`` names the GPU, or is empty if the file says it."""
    whole = Span(source, 0, min(1, len(source.text)))
    asked = asked_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report) if gpu else None
    reader = _reader_of(source.text)
    if reader is None:
        raise report.fail(Code.MGS601, "this is no dump of a machine that is known", whole, _KNOWN)
    return reader(source, asked, report)


_KNOWN = (
    "known are topology dumps of NCCL and RCCL (NCCL_TOPO_DUMP_FILE), nvidia-smi topo -m, rocm-smi --showtopo,"
    " InfraGraph as JSON, logs of nccl-tests and traces of torch.profiler"
)


def _reader_of(text: str) -> _Reader | None:
    if text.lstrip().startswith("<"):
        return read_nccl_xml
    if is_infragraph(text):
        return read_infragraph
    if is_rocm_smi(text):
        return read_rocm_smi
    if is_nvidia_smi(text):
        return read_nvidia_smi
    return None
