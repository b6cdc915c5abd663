"""File systems of a test's own, in a private mount namespace."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_SCRIPT = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'


@cache
def private_mounts() -> tuple[str, ...] | None:
    """A prefix that gives a command a mount namespace of its own; None where the kernel grants none."""
    for prefix in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        run = subprocess.run([*prefix, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
        if run.returncode == 0:
            return prefix
    return None


def in_tmpfs(options: str, target: Path, command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` with a tmpfs on ``target``; for where private_mounts() grants one."""
    prefix = private_mounts()
    assert prefix is not None
    return [*prefix, "sh", "-c", _SCRIPT, "sh", options, str(target), *command]
