"""Object stores as the place of a trace, through fsspec: each file is put whole, nothing of its credentials is told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rooflens.collector.trace.listing import LOCAL
from rooflens.collector.trace.place import ASIDE, LocalPlace, Place, reason
from rooflens.records import RooflensError

# Where an object is there as a whole or not at all. Elsewhere it is written aside and renamed.
WHOLE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "memory")


def place_of(place: str) -> Place:
    """The place that ``place`` names, a local folder or an address such as s3://bucket/prefix.

    RooflensError in one line for one that cannot be used; of an address it is only looked whether it can be read.
    """
    if "://" not in place:
        return LocalPlace(Path(place).expanduser())
    scheme, _, rest = place.partition("://")
    if scheme in LOCAL:
        return LocalPlace(Path(rest))
    return StorePlace(place)


def shown(place: str) -> str:
    """An address without user, password and query."""
    try:
        parts = urlsplit(place)
    except ValueError:
        return place.partition("://")[0] + "://..."
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class StorePlace:
    """An address that fsspec knows; its credentials are those of the environment or of the library's own files."""

    def __init__(self, place: str) -> None:
        self.shown = shown(place)
        self._whole = place.partition("://")[0] in WHOLE
        try:
            from fsspec.core import url_to_fs

            filesystem, root = url_to_fs(place, use_listings_cache=False)
        except ImportError as error:
            needs = (
                "rooflens[trace]" if error.name == "fsspec" else f"the fsspec library for {self._scheme}:// addresses"
            )
            raise RooflensError(f"trace {self.shown}: a library is missing: install {needs}") from None
        except Exception as error:
            raise RooflensError(
                f"trace {self.shown}: {self._scheme}:// cannot be opened ({type(error).__name__}); "
                "give --trace a folder or an address that fsspec knows"
            ) from None
        self._filesystem: Any = filesystem
        self._root = str(root).rstrip("/")

    @property
    def _scheme(self) -> str:
        return self.shown.partition("://")[0]

    def write(self, folders: Sequence[str], name: str, data: Any) -> None:
        """See place.Place; what the library says is left out of the line, since it may name credentials."""
        folder = "/".join((self._root, *folders))
        try:
            if self._whole:
                self._filesystem.pipe_file(f"{folder}/{name}", bytes(data))
            else:
                self._aside(folder, name, bytes(data))
        except PermissionError:
            raise RooflensError(f"trace {self.shown}: permission denied; allow this process to put objects") from None
        except FileNotFoundError:
            raise RooflensError(f"trace {self.shown}: the bucket or folder is not there; create it") from None
        except OSError as error:
            raise RooflensError(f"trace {self.shown}: {reason(error)}; it is tried again") from None
        except Exception as error:
            raise RooflensError(f"trace {self.shown}: {type(error).__name__}; it is tried again") from None

    def _aside(self, folder: str, name: str, data: bytes) -> None:
        aside = f"{folder}/.{name}{ASIDE}"
        self._filesystem.makedirs(folder, exist_ok=True)
        try:
            self._filesystem.pipe_file(aside, data)
            self._filesystem.mv(aside, f"{folder}/{name}")
        except BaseException:
            with suppress(Exception):
                self._filesystem.rm_file(aside)
            raise
