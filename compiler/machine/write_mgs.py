"""Write a machine as a ``system`` of the language, with what is known and what is in doubt as comments."""

from collections import Counter

from ..text.diagnostics import Report
from ..text.fmt import format_text
from ..text.rewriting import comment_lines
from .machine import UNSAID, DumpedMachine, Nic
from .wiring import Wiring, wiring_of

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
