"""Where an engine publishes: tcp://HOST:PORT, or ipc://PATH on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from rooflens.records import RooflensError

LONGEST = 256


@dataclass(frozen=True, slots=True)
class Address:
    """``name`` is what is shown of it: an ipc path only by its last part. ``place`` is that as part of a name."""

    url: str
    name: str
    here: bool

    @property
    def place(self) -> str:
        """The name without what a label should not hold."""
        return self.name.partition("://")[2].replace("[", "").replace("]", "")


def address_of(url: str) -> Address:
    """RooflensError in one line for what is no address to connect to."""
    scheme, mark, rest = url.strip().partition("://")
    if len(url) > LONGEST or not rest.isprintable() or any(char.isspace() for char in rest):
        raise RooflensError("--feed: this is no address: give tcp://HOST:PORT")
    if not mark or scheme not in ("tcp", "ipc") or not rest:
        raise RooflensError(f"--feed {url[:80]}: not an address to connect to, such as tcp://127.0.0.1:20380")
    if scheme == "ipc":
        return Address(f"ipc://{rest}", f"ipc://{rest.rstrip('/').rpartition('/')[2]}", True)
    host, colon, port = rest.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    digits = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536
    if not colon or not bare or not digits or any(char in bare for char in "@/;?#"):
        raise RooflensError(f"--feed {scheme}://…: HOST:PORT expected, such as tcp://127.0.0.1:20380")
    if bare in ("*", "0.0.0.0", "::"):
        raise RooflensError(f"--feed {url[:80]}: rooflens connects and never listens: name the engine's host")
    return Address(f"tcp://{rest}", f"tcp://{rest}", _is_here(bare))


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
