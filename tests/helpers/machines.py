"""Dumps of machines: the files in ``golden/machines``, how each is imported, and small ones in the form of NCCL."""

from collections.abc import Callable, Sequence
from pathlib import Path

from magus.compiler.ir import OpCase
from magus.compiler.machine.machine import DumpedMachine
from magus.compiler.machine.read import machine_text, read_machine
from magus.compiler.text.diagnostics import CompileError, Diagnostic, Report, Source
from tests.helpers.paths import GOLDEN

MACHINES = GOLDEN / "machines"
REFUSED = ("cloud.xml", "graph.xml", "infragraph.yaml")
GPU = {
    "a100_pairs.xml": "A100",
    "h100_pcie.xml": "H100",
    "a100_pcie_topo.txt": "A100",
    "h200_islands_topo.txt": "H200",
    "ring_of_4_topo.txt": "MI325X",
    "rtx3090_bridges.xml": "A100",
    "rtx4090_topo.txt": "H100",
}
"""The GPU that is named by ``--gpu`` where the library lacks that of the file, or the file does not say it."""


def dumps() -> list[Path]:
    """All files that a machine is read from."""
    return [path for path in sorted(MACHINES.iterdir()) if path.suffix != ".mgs" and path.name not in REFUSED]


def imported(text: str, gpu: str = "", name: str = "dump") -> tuple[DumpedMachine, str, tuple[Diagnostic, ...]]:
    """The machine that a text describes, the file written of it, and the warnings.

    Raises
    ------
    CompileError
        If the text is refused.
    """
    report = Report()
    with report.attempt():
        machine = read_machine(Source(name, text), gpu, report)
        return machine, machine_text(machine, name, report), report.diagnostics
    raise CompileError(report.diagnostics)


def routes(of: OpCase) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Links, rate and latency between every two GPUs."""
    network = of.network
    return {
        (source, target): (
            len(route := network.route(source, target)),
            min(edge.bytes_per_s for edge in route),
            sum(edge.latency_ticks for edge in route),
        )
        for source in range(of.num_ranks)
        for target in range(of.num_ranks)
        if source != target
    }


def topo_table(rows: Sequence[Sequence[str]], head: str = "", name: str = "", tail: str = "\t0-47\t0\t\tN/A") -> str:
    """A table of ``nvidia-smi topo -m``, after the list of ``nvidia-smi -L`` if the GPUs have a name."""
    listed = [f"GPU {number}: {name} (UUID: GPU-{number})" for number in range(len(rows)) if name]
    columns = head or "".join(f"\tGPU{number}" for number in range(len(rows)))
    lines = [f"GPU{number}\t" + "\t".join(row) + tail for number, row in enumerate(rows)]
    return "\n".join([*listed, f"{columns}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID", *lines]) + "\n"


def topo_rows(num_gpus: int, word: Callable[[int, int], str]) -> list[list[str]]:
    """The words of a table, of which ``word`` gives that of two GPUs, the lower number first."""
    gpus = range(num_gpus)
    return [["X" if row == to else word(min(row, to), max(row, to)) for to in gpus] for row in gpus]


def nccl_gpu(number: int, rows: str = "", *, device: str = "0x2330", sm: int = 90, pci: str = "") -> str:
    """A GPU in the form of a topology dump, at bus ``number + 1``; ``pci`` are further attributes of its device."""
    head = f'<pci busid="0000:{number + 1:02x}:00.0" class="0x030200" vendor="0x10de" device="{device}" {pci}>'
    return f'{head}<gpu dev="{number}" sm="{sm}" rank="{number}" gdr="1">{rows}</gpu></pci>'


def nvlink(target: int | str, count: int) -> str:
    """A row of links to the GPU of that number, or to an address."""
    address = f"0000:{target + 1:02x}:00.0" if isinstance(target, int) else target
    return f'<nvlink target="{address}" count="{count}" tclass="0x030200"/>'


def nccl_dump(parts: Sequence[str]) -> str:
    """A topology dump of one CPU with these parts."""
    return f'<system version="1"><cpu host_hash="0x1" numaid="0">{"".join(parts)}</cpu></system>'
