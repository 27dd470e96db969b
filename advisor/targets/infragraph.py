"""A system as a description of InfraGraph (infragraph.dev, 3.1): one device for all hosts, switches, and their links.

``magus import`` reads it back. Of a link the file has the rate of one direction and the latency. It has no place for
what of a rate is reached and for the cost of a switch: these stand in the description of a link in a form that is
read (``REACHED``), for both ways. It has none for links that lead one way.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, count, product
from typing import Any

from ... import __version__
from ...compiler.ir import TICKS_PER_US, OpCase, System
from ...compiler.ir.hardware import Link, Switch
from ...compiler.ir.topologies.base import Fabric, network_of
from ...compiler.ir.topologies.network import Edge, Ends, edge_over
from ...compiler.machine.infragraph import IN_ORDER, REACHED
from ...compiler.machine.machine import digits
from .base import Options, Target, refused

MAX_PAIRS = 100_000
"""Pairs that are written one by one; ``magus import`` reads as many."""
HOST, GPU, SWITCH = "host", "gpu", "switch"
ONE, MANY = "one2one", "many2many"
Part = tuple[str, int]  # a component of a host and its number
Document = dict[str, Any]
_TICKS_PER_NS = TICKS_PER_US / 1000
_UNIT = "gigabytes_per_second"


@dataclass(frozen=True, slots=True)
class _Lane:
    """A link between two nodes as it serves them: bytes per second and ticks from the lower number on, and back.

    ``name`` is that of the link, with a number where it serves others in another way.
    """

    link: Link
    there: tuple[int, int]
    back: tuple[int, int]
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Hosts:
    """How nodes of the graph lie in hosts: ``size`` GPUs of each, ``owner`` the host of a node, ``part`` its place."""

    size: int
    count: int
    owner: Mapping[int, int]
    part: Mapping[int, Part]


def _write(cases: Sequence[OpCase], options: Options) -> str:
    system = cases[0].system
    if system.of:
        raise refused(f"{system.title} is a group of a system", "write the whole system: of a workload on it")
    pairs = _pairs(system)
    hosts = _hosts(system, pairs)
    inside = {pair: link for pair, link in pairs.items() if _host_of(pair, hosts) == 0}
    between = {pair: link for pair, link in pairs.items() if _host_of(pair, hosts) is None}
    if len(between) > MAX_PAIRS or (len(inside) > MAX_PAIRS and not _all_joined(inside, hosts)):
        raise refused(f"{system.name} has more than {MAX_PAIRS:,} links that are written one by one")
    switches = _switches(between, hosts)
    document = {
        "name": system.name,
        "description": f"{system.title}, written by Magus {__version__}",
        "devices": [_host(system, hosts, inside), *([_switch_device()] if switches else [])],
        "links": _links(between),
        "instances": [_instances(HOST, hosts.count), *([_instances(SWITCH, len(switches))] if switches else [])],
        "edges": list(_network_edges(between, hosts)),
    }
    return json.dumps(document, indent=1) + "\n"


def _pairs(system: System) -> dict[Ends, _Lane]:
    """The link between each two neighbours, the lower number first."""
    edges = {edge.ends: edge for edge in network_of(system.fabric, system.num_ranks).edges}
    links = {ends: _link_of(edge, system.fabric) for ends, edge in edges.items()}
    lanes: dict[Ends, _Lane] = {}
    for (source, target), edge in edges.items():
        if (target, source) not in edges:
            raise refused(f"links of InfraGraph lead both ways, {source} -> {target} of {system.name} does not")
        if links[source, target].peak_bytes_per_s != links[target, source].peak_bytes_per_s:
            message = f"links of InfraGraph have one bandwidth, {source} -> {target} of {system.name} another than back"
            raise refused(message)
        if source < target:
            back = edges[target, source]
            services = (edge.bytes_per_s, edge.latency_ticks), (back.bytes_per_s, back.latency_ticks)
            lanes[source, target] = _Lane(links[source, target], *services)
    names = _names(dict.fromkeys(lanes.values()))
    return {ends: replace(lane, name=names[lane]) for ends, lane in lanes.items()}


def _names(lanes: Iterable[_Lane]) -> dict[_Lane, str]:
    """A name of its own for each: that of the link, or with a number behind it."""
    taken: dict[str, _Lane] = {}
    for lane in lanes:
        name = lane.link.name
        numbered = (f"{name}_{number}" for number in count(2))
        taken[next(each for each in chain((name,), numbered) if each not in taken)] = lane
    return {lane: name for name, lane in taken.items()}


def _link_of(edge: Edge, fabric: Fabric) -> Link:
    """The link that an edge lies over."""

    def over(link: Link, switch: Switch | None) -> tuple[int, int]:
        made = edge_over(link, edge.source, edge.target, edge.name, switch)
        return made.bytes_per_s, made.latency_ticks

    served = edge.bytes_per_s, edge.latency_ticks
    return next(link for link, switch in product(fabric.links, (None, fabric.switch)) if over(link, switch) == served)


def _hosts(system: System, pairs: Mapping[Ends, _Lane]) -> _Hosts:
    """The nodes of the system as hosts, if links join their GPUs and all are alike.

    Else all GPUs are in one host, or each in its own where switches are joined to switches.
    """
    size, num_ranks = system.fabric.node_size, system.num_ranks
    if 0 < size < num_ranks:
        hosts = _divided(num_ranks, size, pairs)
        inside: dict[int, set[tuple[Part, Part, _Lane]]] = defaultdict(set)
        for pair, link in pairs.items():
            host = _host_of(pair, hosts)
            if host is not None:
                inside[host].add((hosts.part[pair[0]], hosts.part[pair[1]], link))
        if inside and all(inside[host] == inside[0] for host in range(hosts.count)):
            return hosts
    has_tree = any(min(pair) >= num_ranks for pair in pairs)
    return _divided(num_ranks, 1 if has_tree else num_ranks, pairs)


def _divided(num_ranks: int, size: int, pairs: Iterable[Ends]) -> _Hosts:
    """Hosts of ``size`` GPUs; a switch belongs to the host with all its neighbours, or to the only host."""
    owner = {rank: rank // size for rank in range(num_ranks)}
    part = {rank: (GPU, rank % size) for rank in range(num_ranks)}
    beside: dict[int, set[int]] = defaultdict(set)
    for first, second in pairs:
        beside[second].add(owner.get(first, -1))
        beside[first].add(owner.get(second, -1))
    seen = Counter[int]()
    for switch in sorted(node for node in beside if node >= num_ranks):
        around = {0} if size == num_ranks else beside[switch]
        if len(around) == 1 and -1 not in around:
            owner[switch] = host = next(iter(around))
            part[switch] = (SWITCH, seen[host])
            seen[host] += 1
    return _Hosts(size, num_ranks // size, owner, part)


def _host_of(pair: Ends, hosts: _Hosts) -> int | None:
    """The host that both ends are in; None if there is none."""
    first, second = (hosts.owner.get(node) for node in pair)
    return first if first == second else None


def _host(system: System, hosts: _Hosts, inside: Mapping[Ends, _Lane]) -> Document:
    """The device of a host: its GPUs, its switches, and the links between them."""
    num_switches = len({node for pair in inside for node in pair if hosts.part[node][0] == SWITCH})
    components = [_component(GPU, "xpu", hosts.size, system.gpu.name)]
    if num_switches:
        components.append(_component(SWITCH, SWITCH, num_switches, SWITCH))
    if _all_joined(inside, hosts):
        every, link = {"component": f"{GPU}[0:{hosts.size}]"}, next(iter(inside.values()))
        edges = [_edge(every, every, link, MANY)]
    else:
        parts = {node: {"component": _sliced(*part)} for node, part in hosts.part.items()}
        edges = [_edge(parts[first], parts[second], link) for (first, second), link in inside.items()]
    return {"name": HOST, "components": components, "links": _links(inside), "edges": edges}


def _switch_device() -> Document:
    """The device of a switch between hosts."""
    components = [_component(SWITCH, SWITCH, 1, SWITCH)]
    return {"name": SWITCH, "components": components, "links": [], "edges": []}


def _component(name: str, kind: str, count: int, about: str) -> Document:
    return {"name": name, "choice": kind, "count": count, "description": about}


def _instances(device: str, count: int) -> Document:
    return {"name": device, "device": device, "count": count}


def _all_joined(inside: Mapping[Ends, _Lane], hosts: _Hosts) -> bool:
    """Whether a link of one kind joins any two GPUs of a host, and nothing else."""
    lanes = set(inside.values())
    alike = len(lanes) == 1 and all(lane.there == lane.back for lane in lanes)
    alike = alike and len(inside) == hosts.size * (hosts.size - 1) // 2 > 1
    return alike and all(pair in inside for pair in combinations(range(hosts.size), 2))


def _network_edges(between: Mapping[Ends, _Lane], hosts: _Hosts) -> Iterator[Document]:
    """The links between hosts; those of the same GPU of successive hosts to one switch as one edge."""
    number = {node: at for at, node in enumerate(_switches(between, hosts))}

    def end(node: int, count: int = 1) -> dict[str, str]:
        if node in number:
            return {"instance": _sliced(SWITCH, number[node]), "component": _sliced(SWITCH, 0)}
        return {"instance": _sliced(HOST, hosts.owner[node], count), "component": _sliced(*hosts.part[node])}

    rest = dict(between)
    for pair, link in between.items():
        if rest.pop(pair, None) is None:
            continue
        count, (first, second) = 1, pair
        to_switch = first not in number and second in number
        while to_switch and rest.get((first + count * hosts.size, second)) == link:
            del rest[first + count * hosts.size, second]
            count += 1
        yield _edge(end(first, count), end(second), link, MANY if count > 1 else ONE)


def _switches(between: Iterable[Ends], hosts: _Hosts) -> tuple[int, ...]:
    """The switches that are in no host."""
    return tuple(sorted({node for pair in between for node in pair if node not in hosts.owner}))


def _edge(first: Mapping[str, str], second: Mapping[str, str], link: _Lane, scheme: str = ONE) -> Document:
    return {"ep1": first, "ep2": second, "scheme": scheme, "link": link.name}


def _sliced(name: str, number: int, count: int = 1) -> str:
    """``count`` of a name from a number on, as a slice of Python."""
    return f"{name}[{number}]" if count == 1 else f"{name}[{number}:{number + count}]"


def _links(pairs: Mapping[Ends, _Lane]) -> list[Document]:
    """Each link once, with its rate and latency, and what it reaches both ways."""
    return [
        {
            "name": lane.name,
            "description": REACHED.format(_gb(lane.there[0]), _gb(lane.back[0]), digits(lane.back[1] / _TICKS_PER_NS))
            + f", {IN_ORDER}" * lane.link.ordered,
            "physical": {
                "bandwidth": {"choice": _UNIT, _UNIT: lane.link.peak_bytes_per_s / 1e9},
                "latency": {"choice": "ns", "ns": lane.there[1] / _TICKS_PER_NS},
            },
        }
        for lane in dict.fromkeys(pairs.values())
    ]


def _gb(bytes_per_s: int) -> str:
    return digits(bytes_per_s / 1e9)


INFRAGRAPH = Target("infragraph", "the system as a description of InfraGraph, as JSON", _write)
