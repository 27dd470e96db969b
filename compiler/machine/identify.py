"""Which GPU of the library the GPUs of a machine are."""

import re
from collections import Counter
from collections.abc import Sequence

from ..codes import Code
from ..text.diagnostics import Report, Stopped, did_you_mean, listing
from ..text.source import Span
from .device_ids import LIBRARY_GPUS, LibraryGpu, library_gpu
from .machine import UNSAID, DumpedMachine, MachineGpu

_NAMES = tuple(gpu.name for gpu in LIBRARY_GPUS)


def asked_gpu(name: str, span: Span, report: Report) -> LibraryGpu:
    """Return the GPU that the user names."""
    found = library_gpu(name)
    if found is None:
        hint = did_you_mean(name, _NAMES) or f"the library has {listing(_NAMES)}"
        raise report.fail(Code.MGS604, f"the library has no GPU '{name[:64]}'", span, hint)
    return found


def identify(
    gpus: Sequence[MachineGpu], asked: LibraryGpu | None, whole: Span, report: Report
) -> tuple[LibraryGpu, tuple[str, ...]]:
    """Return the GPU of the library that all ``gpus`` are, or that was ``asked`` for, and doubts about it."""
    gpus = tuple(gpu for gpu in gpus if gpu.kind != UNSAID)
    if asked is not None:
        return asked, _contradictions(gpus, asked)
    for gpu in gpus:
        several = tuple(name for name in _NAMES if name in re.split(r"\W+", gpu.kind.upper()))
        if len(several) > 1:
            message = f"{gpu.label} may be {' or '.join(several)}: the file says '{gpu.kind}'"
            raise report.fail(Code.MGS604, message, gpu.span, f"say which: --gpu {' or --gpu '.join(several)}")
    if not gpus:
        raise report.fail(Code.MGS604, "the file does not say which GPUs these are", whole, f"say it: {_options()}")
    for gpu in gpus:
        if gpu.device is None or not gpu.device.nearest:
            raise report.fail(Code.MGS604, f"{gpu.label} is not in the library: {gpu.name}", gpu.span, _NEAREST)
        first = gpus[0].device
        if first is not None and gpu.device.nearest != first.nearest:
            message = f"GPUs of two kinds: {gpus[0].label} is {first.words}, {gpu.label} is {gpu.device.words}"
            raise report.fail(
                Code.MGS605, message, gpu.span, f"a system has equal GPUs; take all for one: {_options()}"
            )
    found = library_gpu(gpus[0].device.nearest if gpus[0].device is not None else "")
    assert found is not None, "the nearest GPU of a device is one of the library"
    return found, _differences(gpus, found)


def check_links(model: LibraryGpu, nvlinks: bool, span: Span, report: Report) -> None:
    """Refuse a GPU that has other links than the file, which has ``nvlinks`` or else xGMI links."""
    if model.is_nvidia is not nvlinks:
        found = "NVLinks" if nvlinks else "xGMI links"
        raise report.fail(
            Code.MGS604, f"the file has {found}, and {model.name} has {model.link_word}s", span, _options()
        )


def check_partners(machine: DumpedMachine, report: Report) -> None:
    """Refuse GPUs that are joined to more others than they have links to: they are partitions, or others."""
    partners = Counter(gpu for pair in machine.direct for gpu in pair)
    number, most = max(partners.items(), key=lambda item: item[1], default=(0, 0))
    model, gpu = machine.model, machine.gpus[number]
    if most > model.partners:
        message = f"{gpu.label} is joined to {most} others, and {model.name} has links to {model.partners}"
        raise refuse_partitions(message, gpu, report)


def refuse_partitions(message: str, gpu: MachineGpu, report: Report) -> Stopped:
    """Report that ``gpu`` is a part of one."""
    hint = (
        "partitions have a part of its compute units and memory (CPX of MI300X: 38 of 304, and an eighth) and share its"
        " links: import the machine as rocm-smi --setcomputepartition SPX makes it"
    )
    return report.fail(Code.MGS611, f"{message}: a partition is no full GPU", gpu.span, hint)


def refuse_hosts(found: str, span: Span, report: Report) -> Stopped:
    """Report that a file describes several hosts; ``found`` says what it has of them."""
    hint = "import a file of one host; fabric rails(...) in the system that is written joins several (docs/language.md)"
    return report.fail(Code.MGS612, f"{found}: a system is read of one host", span, hint)


def _options() -> str:
    return f"--gpu with {listing(_NAMES)}"


_NEAREST = (
    f"name the nearest one: {_options()}; compute, memory and the rate of a link between GPUs are then taken from it,"
    " as the file that is written says, and what joins the GPUs, and PCIe, from this file"
)


def _contradictions(gpus: Sequence[MachineGpu], asked: LibraryGpu) -> tuple[str, ...]:
    others = dict.fromkeys(gpu.name for gpu in gpus if gpu.device is None or gpu.device.nearest != asked.name)
    said = (
        f"the GPUs are taken for {asked.name} because --gpu says so; the file says {each}: compute, memory and the"
        f" rate of one {asked.link_word} are those of {asked.name}"
        for each in others
    )
    unsaid = () if gpus else (f"the GPUs are taken for {asked.name} because --gpu says so; the file does not say",)
    return (*said, *unsaid, *_differences(gpus, asked))


def _differences(gpus: Sequence[MachineGpu], model: LibraryGpu) -> tuple[str, ...]:
    devices = dict.fromkeys(gpu.device for gpu in gpus if gpu.device is not None)
    return tuple(
        f"{device.words} is written as {model.name}: {device.difference}"
        for device in devices
        if device.difference and device.nearest == model.name
    )
