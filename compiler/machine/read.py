"""Read a machine from a dump, whose kind its content tells."""

import re
from collections import Counter
from collections.abc import Callable

from ..codes import Code
from ..text.diagnostics import Report, Source, Span
from ..text.fmt import format_text
from ..text.rewriting import comment_lines
from .infragraph import is_infragraph, read_infragraph
from .known_gpus import LibraryGpu
from .machine import UNSAID, DumpedMachine, Nic, check_partners, requested_gpu
from .nccl_xml import read_nccl_xml
from .smi import is_nvidia_smi, is_rocm_smi, read_nvidia_smi, read_rocm_smi
from .wiring import Wiring, wiring_of

# Write a machine as a ``system`` of the language, with what is known and what is in doubt as comments.

SYSTEM, CLUSTER = "node", "cluster"
_MAX_NAME = 32
_NO_RATE = "of a rate that is not said"
_GB_PER_GBIT = 8


def machine_text(machine: DumpedMachine, name: str, report: Report) -> str:
    """Return the text of a file that declares the machine; ``name`` is that of the file that it was read from.

    Broken parts of the machine are reported as warnings.
    """
    wiring = wiring_of(machine, report)
    head = [f"Read from {name[:128]}, {machine.origin}.", _gpus(machine)]
    head += _nics(machine.nics, len(machine.gpus)) if machine.network is None else [_hosts(machine)]
    doubts = [*machine.doubts, *wiring.doubts]
    comments = [line for sentence in head for line in comment_lines(sentence)]
    if doubts:
        comments += ["#", "# In doubt:", *(line for doubt in doubts for line in comment_lines(doubt, "- "))]
    return format_text("\n".join(["mgs 1", "", *comments, "", *_declarations(machine, wiring)]) + "\n")


def system_name(machine: DumpedMachine) -> str:
    """Return the name of the system that is written."""
    return SYSTEM if machine.hosts == 1 else CLUSTER


def _declarations(machine: DumpedMachine, wiring: Wiring) -> list[str]:
    blocks = [f"{block}\n" for block in wiring.declarations]
    gpus = f"{machine.num_gpus} x {machine.model.name}"
    system = f"system {system_name(machine)} {{ gpus {gpus}; fabric {wiring.fabric} }}"
    return [f'use "{machine.model.library}"', "", *blocks, system]


def _gpus(machine: DumpedMachine) -> str:
    names = Counter(gpu.name for gpu in machine.gpus)
    return f"GPUs: {', '.join(_times(count, name) for name, count in names.most_common(4))}."


def _hosts(machine: DumpedMachine) -> str:
    num_gpus = len(machine.gpus)
    return f"Hosts: {machine.hosts} with {num_gpus} of these each; GPU g of host h is rank {num_gpus} * h + g."


def _times(count: int, name: str) -> str:
    return f"{count} {name}" if name in (UNSAID, _NO_RATE) else f"{count} x {name}"


def _nics(nics: tuple[Nic, ...], num_gpus: int) -> list[str]:
    if not nics:
        return ["NICs: none in the file."]
    groups = Counter((nic.gbit_per_s, nic.reaches_gpus) for nic in nics)
    words = []
    for (rate, reaches), count in groups.most_common(4):
        names = [nic.name[:_MAX_NAME] for nic in nics if (nic.gbit_per_s, nic.reaches_gpus) == (rate, reaches)]
        shown = names[0] if count == 1 else f"{names[0]} to {names[-1]}"
        words.append(f"{_times(count, _rate(rate))} ({shown}{'' if reaches else ', no GPUDirect'})")
    usable = [nic for nic in nics if nic.reaches_gpus and nic.gbit_per_s]
    lines = [f"NICs: {', '.join(words)}. The system is one node, and leaves them out."]
    if len(usable) >= num_gpus > 1 and len({nic.gbit_per_s for nic in usable}) == 1:
        gb_per_s = (usable[0].gbit_per_s or 0) * (len(usable) // num_gpus) / _GB_PER_GBIT
        lines.append(
            f"For several nodes: fabric rails with node={num_gpus} and a link nic {{ bandwidth {gb_per_s:g} GB/s }},"
            " what a GPU has of them; its achieved rate and latency are not in the file."
        )
    return lines


def _rate(gbit_per_s: float | None) -> str:
    return _NO_RATE if gbit_per_s is None else f"{gbit_per_s:g} Gb/s"


MAX_BYTES = 16 << 20
"""Largest dump that is read; that of 72 GPUs with their NICs takes less than one MiB."""


_READERS: tuple[tuple[Callable[[str], bool], Callable[[Source, LibraryGpu | None, Report], DumpedMachine]], ...] = (
    (lambda text: text.lstrip().startswith("<"), read_nccl_xml),
    (is_infragraph, read_infragraph),
    (is_rocm_smi, read_rocm_smi),
    (is_nvidia_smi, read_nvidia_smi),
)
"""How a dump is known by its text, and read."""


def read_machine(source: Source, gpu: str, report: Report) -> DumpedMachine:
    """Return the machine that a dump describes; ``gpu`` names the GPU, or is empty if the file says it."""
    whole = Span(source, 0, min(1, len(source.text)))
    requested = requested_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report) if gpu else None
    reader = next((read for is_one, read in _READERS if is_one(source.text)), None)
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
