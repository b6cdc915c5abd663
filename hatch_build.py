"""Takes uPlot from npm into dashboards/vendor/ while rooflens is built; without it the pages do without its charts.

python hatch_build.py    does the same by hand

The files are not part of the repository. What is fetched is checked against the digest below. Offline, or without npm
and NPM_CONFIG_REGISTRY, the build goes on with a warning.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE, VERSION = "uplot", "1.6.32"
SHA512 = "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="  # as npm states it
TARBALL = f"{PACKAGE}-{VERSION}.tgz"
FILES = {
    "package/dist/uPlot.iife.min.js": "uPlot.iife.min.js",
    "package/dist/uPlot.min.css": "uPlot.min.css",
    "package/LICENSE": "uPlot.LICENSE.txt",
}
STAMP = "uPlot.version.txt"
FOLDER = "src/rooflens/dashboards/vendor"
LIMIT_S = 30.0
MOST_BYTES = 5_000_000


class VendorHook(BuildHookInterface[Any]):
    """Fetches before the files of a wheel or sdist are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Never fails a build."""
        if problem := fetched(Path(self.root) / FOLDER):
            self.app.display_warning(problem)


def fetched(folder: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """None once the files are in ``folder``, else one line that says why they are not."""
    stamp = f"{PACKAGE} {VERSION} {SHA512}\n"
    if _read(folder / STAMP) == stamp and all((folder / name).is_file() for name in FILES.values()):
        return None
    try:
        data = _packed(environment)
        if base64.b64encode(hashlib.sha512(data).digest()).decode() != SHA512:
            raise OSError(f"{TARBALL} is not the one whose digest is known")
        _unpack(data, folder, stamp)
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        line = " ".join(str(error).split())[:200]
        return f"{PACKAGE} {VERSION} could not be fetched, pages will show pictures that do not move: {line}"
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def _packed(environment: Mapping[str, str]) -> bytes:
    """The package as npm packs it; by its address where there is no npm but a registry is named."""
    beside = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), environment.get("PATH"))))
    npm = shutil.which("npm", path=beside if sys.prefix != sys.base_prefix else environment.get("PATH", ""))
    if npm is not None:
        with tempfile.TemporaryDirectory() as folder:
            command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--loglevel=error", "--ignore-scripts", "--fetch-retries=0"]
            command += [f"--fetch-timeout={LIMIT_S * 500:.0f}", "--pack-destination", folder]
            quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "cwd": folder}
            try:
                subprocess.run(command, check=True, timeout=LIMIT_S, env={**environment, "PATH": beside}, **quiet)
            except subprocess.TimeoutExpired as error:
                raise OSError(f"npm took more than {LIMIT_S:g} s") from error
            except subprocess.CalledProcessError as error:
                raise OSError(f"npm failed: {error.stderr.decode(errors='replace')}") from error
            return (Path(folder) / TARBALL).read_bytes()
    registry = environment.get("NPM_CONFIG_REGISTRY") or environment.get("npm_config_registry")
    if not registry or not registry.startswith(("https://", "http://")):
        raise OSError("neither npm nor NPM_CONFIG_REGISTRY is there")
    with urllib.request.urlopen(f"{registry.rstrip('/')}/{PACKAGE}/-/{TARBALL}", timeout=LIMIT_S) as answer:
        return bytes(answer.read(MOST_BYTES))


def _unpack(data: bytes, folder: Path, stamp: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member, name in FILES.items():
            content = archive.extractfile(member)
            if content is None:
                raise OSError(f"{TARBALL} lacks {member}")
            (folder / f"{name}.new").write_bytes(content.read())
            os.replace(folder / f"{name}.new", folder / name)
    (folder / STAMP).write_text(stamp, encoding="utf-8")


if __name__ == "__main__":
    if problem := fetched(Path(__file__).parent / FOLDER):
        print(f"warning: {problem}", file=sys.stderr)
