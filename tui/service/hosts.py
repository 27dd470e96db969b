"""Requests for this service alone: names of other machines are those of pages that a browser was led to.

A page of another site may have its name resolve to this machine, and ask in the name of who reads it (DNS rebinding),
or send a request without seeing the answer. Both show in the headers ``Host`` and ``Origin``.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

ANY = "*"


@dataclass(frozen=True, slots=True)
class OwnHosts:
    """Under which names a service is asked: those of this machine, the address where it listens, and ``allowed``."""

    bound: str = "127.0.0.1"
    allowed: frozenset[str] = frozenset()

    def refusal(self, host: str | None, origin: str | None) -> str:
        """Why a request with these headers is not for this service; empty if it is, as without headers."""
        if ANY in self.allowed:
            return ""
        asked = None if host is None else _name_in(f"//{host}")
        if asked is not None and not (self._is_own(asked) or (_is_address(asked) and _is_everywhere(self.bound))):
            return f"Host {host!r:.64} is no name of this service"
        sender = None if origin is None else _name_in(origin)
        if sender is not None and not (self._is_own(sender) or sender == asked):
            return f"Origin {origin!r:.64} is a page of another site"
        return ""

    def _is_own(self, name: str) -> bool:
        own = {"localhost", self.bound.lower(), *(each.lower() for each in self.allowed)}
        return name in own or (_is_address(name) and ip_address(name).is_loopback)


def _name_in(url: str) -> str:
    """The name in a URL, or in a header with a port, in small letters; empty if there is none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_everywhere(bound: str) -> bool:
    """Whether a service listens at all addresses of its machine."""
    return _is_address(bound) and ip_address(bound).is_unspecified
