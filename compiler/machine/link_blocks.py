"""The links and switches of a machine that the library does not have as they are, as blocks of the language."""

from .machine import DumpedMachine, PcieSlot

SWITCH, PCIE, PCIE_ROOT = "nvswitch", "pcie", "pcie_root"
_LANES = 16


class LinkBlocks:
    """Names of links and switches; what the library lacks is declared in ``blocks``, by its name."""

    def __init__(self, machine: DumpedMachine, doubts: list[str]) -> None:
        self._machine, self._model, self._doubts = machine, machine.model, doubts
        self.blocks: dict[str, str] = {}

    def links(self, count: int) -> str:
        """Return the name of ``count`` links of the machine together."""
        name, whole = self._model.link, self._model.links
        if count == whole:
            return name
        part = f"{name}_{count}"
        if part not in self.blocks:
            self.blocks[part] = (
                f"link {part} extends {name} {{\n"
                f'  source derived "{count} links, of which {name} of {self._model.name} has {whole}"\n'
                f"  bandwidth base.bandwidth * {count} / {whole}\n"
                f"  achieved base.achieved * {count} / {whole}\n"
                "}"
            )
            if count > whole and self._model.is_nvidia:
                self._doubts.append(f"{count} links at one place are more than the {whole} that {self._model.name} has")
        return part

    def switch(self) -> str:
        """Return the name of a switch with a port for each GPU."""
        num_gpus, ports = len(self._machine.gpus), self._model.ports
        if num_gpus <= ports:
            return SWITCH
        name = f"{SWITCH}_{num_gpus}"
        self.blocks[name] = f'switch {name} extends {SWITCH} {{ ports {num_gpus} @assumed "one for each GPU" }}'
        self._doubts.append(f"{SWITCH} of the library has {ports} ports; {name} is the same with {num_gpus}")
        return name

    def pcie(self) -> str:
        """Return the name of the PCIe link of a GPU."""
        slot = self._slot
        lanes = f"{slot.lanes} lanes of {slot.gt_per_s:g} GT/s"
        if self._machine.pcie is None:
            self._doubts.append(f"the file does not say how fast PCIe is: {lanes} are written, as in the data sheet")
        self.blocks[PCIE] = (
            f"link {PCIE} {{\n"
            f'  bandwidth {_gb_per_s(slot)} @nominal "PCIe, {lanes}"\n'
            f'  achieved {_gb_per_s(slot, 0.8)} @assumed "80 % of it; not measured"\n'
            "  latency 1 us @assumed\n"
            "}"
        )
        return PCIE

    def pcie_root(self) -> str:
        """Return the name of a crossbar that stands for the bridges between GPUs."""
        self._doubts.append(
            f"the PCIe links meet in {PCIE_ROOT}, a crossbar that is as fast as all of them: bridges that several GPUs"
            " share, and the way from one CPU to the other, are slower"
        )
        self.blocks[PCIE_ROOT] = (
            f"switch {PCIE_ROOT} {{\n"
            f'  ports {len(self._machine.gpus)} @assumed "one for each GPU"\n'
            f'  bandwidth {_gb_per_s(self._slot)} @assumed "that of the links"\n'
            '  latency 500 ns @assumed "bridges and the root complex; not measured"\n'
            "}"
        )
        return PCIE_ROOT

    @property
    def _slot(self) -> PcieSlot:
        return self._machine.pcie or PcieSlot(self._model.pcie_gt_per_s, _LANES)


def _gb_per_s(slot: PcieSlot, share: float = 1.0) -> str:
    """One direction of a slot, without what the line code takes (8b/10b, 128b/130b, FLITs of 242 in 256 bytes)."""
    code = 0.8 if slot.gt_per_s < 8 else 128 / 130 if slot.gt_per_s < 64 else 242 / 256
    return f"{slot.gt_per_s * slot.lanes / 8 * code * share:.3g} GB/s"
