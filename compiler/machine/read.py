"""Read a machine from a dump, whose kind its content tells."""

import re
from collections.abc import Callable

from ..codes import Code
from ..text.diagnostics import Report, Source, Span
from .infragraph import is_infragraph, read_infragraph
from .known_gpus import LibraryGpu
from .machine import DumpedMachine, check_partners, requested_gpu
from .nccl_xml import read_nccl_xml
from .nvidia_smi import is_nvidia_smi, read_nvidia_smi
from .rocm_smi import is_rocm_smi, read_rocm_smi

MAX_BYTES = 16 << 20
"""Largest dump that is read; that of 72 GPUs with their NICs takes less than one MiB."""


_Reader = Callable[[Source, LibraryGpu | None, Report], DumpedMachine]


def read_machine(source: Source, gpu: str, report: Report) -> DumpedMachine:
    """Return the machine that a dump describes; ``gpu`` names the GPU, or is empty if the file says it."""
    whole = Span(source, 0, min(1, len(source.text)))
    requested = requested_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report) if gpu else None
    reader = _reader_of(source.text)
    if reader is None:
        what, hint = next((said for sign, *said in _RELATIVES if re.search(sign, source.text, re.MULTILINE)), _UNKNOWN)
        raise report.fail(Code.MGS601, f"this is {what}", whole, hint)
    machine = reader(source, requested, report)
    check_partners(machine, report)
    return machine


_KNOWN = (
    "known are topology dumps of NCCL and RCCL (NCCL_TOPO_DUMP_FILE), nvidia-smi topo -m, rocm-smi --showtopo,"
    " InfraGraph as JSON, logs of nccl-tests and traces of torch.profiler"
)


_UNKNOWN = ("no dump of a machine that is known", _KNOWN)


_RELATIVES = (
    (
        r"\(Topology\) ",
        "what rocm-smi writes as JSON or CSV",
        "its tables are read: rocm-smi --showtopo without --json",
    ),
    (r"^(ACCESS|WEIGHT|HOPS|LINK TYPE) TABLE", "a table of amd-smi topology", "that of rocm-smi --showtopo is read"),
    (r"^\s*Link \d+: ", "what nvidia-smi nvlink prints", "the table of nvidia-smi topo -m is read"),
    (
        r"^\s*GPU \d+: |^\| NVIDIA-SMI ",
        "a list of GPUs by nvidia-smi, without the links between them",
        "(nvidia-smi -L; nvidia-smi topo -m) > node.txt",
    ),
)
"""Signs of what comes from the tools that are known, and is not read; what it is, and what is read in its place."""


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
