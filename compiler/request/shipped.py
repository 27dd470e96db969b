"""GPUs that ship, found by their names or by those that drivers give them, with the fabric they are sold with."""

import re
from dataclasses import dataclass
from functools import cache

from ..codes import Code
from ..text.diagnostics import Report, did_you_mean, listing
from ..text.load import load, shipped_libraries
from ..text.names import Kind
from ..text.source import Source
from .errors import RequestError

_VENDORS = ("amd/", "nvidia/")
# Boards of the same name with other clocks, memory or links than the one that ships.
_OTHER_BOARDS = frozenset({"pcie", "nvl", "cnx", "mig", "40gb", "64gb", "94gb", "96gb"})
# What drivers say before and behind the name of a GPU.
_MAKERS = frozenset({"nvidia", "amd", "instinct", "tesla", "graphics"})
_OF_A_BOARD = re.compile(r"\d+(\.\d+)?gb|hbm\d*e?|sxm\d*|oam|hgx|vf|\d+g\.\d+gb")
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class ShippedGpu:
    """A GPU of the library ``library``, its link, and its switch; empty if it is sold without one."""

    name: str
    library: str
    link: str
    switch: str

    def fabric(self, topology: str = "") -> str:
        """Return a fabric in the language; an empty ``topology`` is the one that the GPU is sold with.

        >>> ShippedGpu("H100", "nvidia/h100", "nvlink", "nvswitch").fabric()
        'switch(nvswitch, link=nvlink)'
        """
        kind = topology or ("switch" if self.switch else "full_mesh")
        if kind != "switch":
            return f"{kind}({self.link})"
        if not self.switch:
            raise RequestError(Code.MGS203, "topology", f"no switch ships for {self.name}", "'full_mesh' or 'ring'")
        return f"switch({self.switch}, link={self.link})"

    def rails(self, node: int, nic: str) -> str:
        """Return the fabric of several nodes of ``node`` GPUs, each with a link ``nic`` to its rail.

        >>> ShippedGpu("H100", "nvidia/h100", "nvlink", "nvswitch").rails(8, "ib")
        'rails(nvswitch, link=nvlink, node=8, nic=ib)'

        Raises
        ------
        RequestError
            If the GPU is sold without a switch.
        """
        if not self.switch:
            message = f"nodes of {self.name} have no switch, and rails join those that have one"
            raise RequestError(Code.MGS203, "gpu", message, "as many GPUs as a node has, or a system of your own")
        return f"rails({self.switch}, link={self.link}, node={node}, nic={nic})"


@cache
def shipped_gpu(name: str) -> ShippedGpu:
    """Return the GPU of that name, or the one that a driver's name is about.

    Raises
    ------
    RequestError
        If none ships.

    >>> shipped_gpu("NVIDIA H100 80GB HBM3").name, shipped_gpu("AMD Instinct MI300X").name
    ('H100', 'MI300X')
    """
    by_name = {
        library.split("/")[1].upper(): library for library in shipped_libraries() if library.startswith(_VENDORS)
    }
    words = re.split(r"[ _-]+", name.lower()) if len(name) <= MAX_NAME else []
    found = [gpu for gpu in by_name if gpu.lower() in words]
    place = words.index(found[0].lower()) if found else 0
    board = all(each in _OTHER_BOARDS or _OF_A_BOARD.fullmatch(each) for each in words[place + 1 :])
    if len(found) != 1 or not board or not _MAKERS.issuperset(words[:place]):
        hint = did_you_mean(name, by_name) or f"GPUs that ship: {listing(by_name)}"
        raise RequestError(Code.MGS203, "gpu", f"unknown GPU '{name[:64]}'", hint)
    if others := _OTHER_BOARDS.intersection(words):
        message = f"'{name[:64]}' is another board than the {found[0]} that ships ({', '.join(sorted(others))})"
        hint = "say it in a file: gpu mine extends ...; system_file names the file"
        raise RequestError(Code.MGS203, "gpu", message, hint)
    return _read(found[0], by_name[found[0]])


def _read(name: str, library: str) -> ShippedGpu:
    scope = load(Source("<shipped>", f'use "{library}"'), Report())
    links, switches = scope.names(Kind.LINK), scope.names(Kind.SWITCH)
    return ShippedGpu(name, library, links[0], switches[0] if switches else "")
