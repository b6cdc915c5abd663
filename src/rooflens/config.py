"""The settings of a sidecar: a flag beats an environment variable, which beats the default."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rooflens.cli.amounts import age, memory_size
from rooflens.records import RooflensError

DEFAULT_LISTEN = "127.0.0.1:9980"
LONGEST_S = 3600.0
LONGEST_TOKEN_BYTES = 16_384  # more does not fit into the head of a request
SHORTEST_PUSH_TOKEN = 16  # what guards a door that takes something in
MAKE_ONE = "make one, as with 'openssl rand -hex 32'"
LEAST_TRACE_BYTES, LEAST_TRACE_AGE_S = 1e6, 600.0  # less would be gone before anybody looks
HOST_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
# Every option with its flag and the variable that stands for it.
NAMES: Mapping[str, tuple[str, str]] = {
    "listen": ("--listen", "ROOFLENS_LISTEN"),
    "scrape": ("--scrape", "ROOFLENS_SCRAPE"),
    "feed": ("--feed", "ROOFLENS_FEED"),
    "log": ("--log", "ROOFLENS_LOG"),
    "scrape_token": ("", "ROOFLENS_SCRAPE_TOKEN"),
    "scrape_token_file": ("--scrape-token-file", "ROOFLENS_SCRAPE_TOKEN_FILE"),
    "push_token": ("", "ROOFLENS_PUSH_TOKEN"),
    "push_token_file": ("--push-token-file", "ROOFLENS_PUSH_TOKEN_FILE"),
    "allow_host": ("--allow-host", "ROOFLENS_ALLOW_HOST"),
    "rings": ("--no-rings", "ROOFLENS_RINGS"),
    "hardware": ("--hardware", "ROOFLENS_HARDWARE"),
    "model": ("--model", "ROOFLENS_MODEL"),
    "calibration": ("--calibration", "ROOFLENS_CALIBRATION"),
    "window_s": ("--window", "ROOFLENS_WINDOW_S"),
    "scrape_period_s": ("--scrape-period", "ROOFLENS_SCRAPE_PERIOD_S"),
    "counters": ("--no-counters", "ROOFLENS_COUNTERS"),
    "counter_period_s": ("--counter-period", "ROOFLENS_COUNTER_PERIOD_S"),
    "dcgm": ("--dcgm", "ROOFLENS_DCGM"),
    "dcgm_period_s": ("--dcgm-period", "ROOFLENS_DCGM_PERIOD_S"),
    "state": ("--state", "ROOFLENS_STATE"),
    "keep_state": ("--no-state", "ROOFLENS_KEEP_STATE"),
    "serve": ("--no-serve", "ROOFLENS_SERVE"),
    "trace": ("--trace", "ROOFLENS_TRACE"),
    "trace_max_bytes": ("--trace-max-bytes", "ROOFLENS_TRACE_MAX_BYTES"),
    "trace_max_age": ("--trace-max-age", "ROOFLENS_TRACE_MAX_AGE"),
    "trace_period_s": ("--trace-period", "ROOFLENS_TRACE_PERIOD_S"),
}


class SidecarSettings(BaseSettings):
    """What `rooflens sidecar` can be told; times in seconds. ``scrape``, ``feed`` and ``dcgm`` hold addresses,
    ``log`` files and ``allow_host`` names, with spaces between them.

    ``scrape_token`` and ``push_token`` are never on a command line, where every user of the machine can read them.
    """

    model_config = SettingsConfigDict(env_prefix="ROOFLENS_", extra="ignore", frozen=True, env_ignore_empty=True)

    listen: str = DEFAULT_LISTEN
    allow_host: str = ""
    scrape: str = ""
    feed: str = ""
    log: str = ""
    scrape_token: SecretStr | None = None
    scrape_token_file: Path | None = None
    push_token: SecretStr | None = None
    push_token_file: Path | None = None
    rings: bool = True
    hardware: str | None = None
    model: str | None = None
    calibration: str | None = None
    window_s: Annotated[float, Field(ge=1.0, le=LONGEST_S)] = 10.0
    scrape_period_s: Annotated[float, Field(ge=0.5, le=LONGEST_S)] = 5.0
    counters: bool = True
    counter_period_s: Annotated[float, Field(ge=0.25, le=60.0)] = 1.0  # drivers refresh some counters every 100 ms
    dcgm: str = ""
    dcgm_period_s: Annotated[float, Field(ge=1.0, le=600.0)] = 30.0
    state: str | None = None
    keep_state: bool = True
    serve: bool = True
    trace: str | None = None
    trace_max_bytes: str = "10GiB"
    trace_max_age: str = "14d"
    trace_period_s: Annotated[float, Field(ge=1.0, le=LONGEST_S)] = 60.0

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        host_and_port(value)
        return value

    @field_validator("allow_host")
    @classmethod
    def _are_names(cls, value: str) -> str:
        if not all(HOST_NAME.fullmatch(name) for name in value.split()):
            raise ValueError("not the name of a host, such as rooflens.monitoring.svc, without scheme or port")
        return value

    @field_validator("trace_max_bytes")
    @classmethod
    def _is_a_size(cls, value: str) -> str:
        most(value, memory_size, LEAST_TRACE_BYTES, "1MB")
        return value

    @field_validator("trace_max_age")
    @classmethod
    def _is_an_age(cls, value: str) -> str:
        most(value, age, LEAST_TRACE_AGE_S, "10m")
        return value

    @property
    def trace_limits(self) -> tuple[float | None, float | None]:
        """The most bytes that a trace may take and the seconds that it may be old; None for without bound."""
        size = most(self.trace_max_bytes, memory_size, LEAST_TRACE_BYTES, "1MB")
        return size, most(self.trace_max_age, age, LEAST_TRACE_AGE_S, "10m")

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Names under which the sidecar may be asked, beside the machine's own."""
        return tuple(dict.fromkeys(self.allow_host.split()))

    @property
    def scrape_urls(self) -> tuple[str, ...]:
        """The metrics pages to read."""
        return tuple(dict.fromkeys(self.scrape.split()))

    @property
    def feed_urls(self) -> tuple[str, ...]:
        """The addresses at which engines publish their forward passes."""
        return tuple(dict.fromkeys(self.feed.split()))

    @property
    def log_paths(self) -> tuple[str, ...]:
        """The logs to follow; "-" is standard input."""
        return tuple(dict.fromkeys(self.log.split()))

    @property
    def dcgm_urls(self) -> tuple[str, ...]:
        """The pages of dcgm-exporters to read."""
        return tuple(dict.fromkeys(self.dcgm.split()))


def bearer_token(settings: SidecarSettings) -> str | None:
    """The token for pages that ask for one, the file's before the variable's; RooflensError if it cannot be read."""
    return _token("--scrape-token-file", settings.scrape_token_file, settings.scrape_token)


def push_token(settings: SidecarSettings) -> str | None:
    """The token that engines push with, None where none may; RooflensError if it cannot be read or is soon guessed."""
    token = _token("--push-token-file", settings.push_token_file, settings.push_token)
    if token is None:
        return None
    source = "ROOFLENS_PUSH_TOKEN" if settings.push_token_file is None else "--push-token-file"
    if len(token) < SHORTEST_PUSH_TOKEN:
        raise RooflensError(f"{source}: the token is shorter than {SHORTEST_PUSH_TOKEN} characters: {MAKE_ONE}")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise RooflensError(f"{source}: the token has a space or a sign that no header holds: {MAKE_ONE}")
    return token


def most(text: str, read: Callable[[str], float], least: float, least_text: str) -> float | None:
    """A bound as somebody writes it, None for "none"; ValueError for one that is none, or too small for any use."""
    if text.strip().lower() == "none":
        return None
    try:
        value = read(text)
    except ArgumentTypeError as error:
        raise ValueError(str(error)) from None
    if not least <= value < float("inf"):
        raise ValueError(f"it should be at least {least_text}, or none for without bound")
    return value


def _token(flag: str, file: Path | None, given: SecretStr | None) -> str | None:
    if file is None:
        return given.get_secret_value().strip() if given else None
    try:
        with file.open("rb") as opened:
            token = opened.read(LONGEST_TOKEN_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        raise RooflensError(f"{flag} {file}: {(error.strerror or 'cannot be read').lower()}") from None
    except ValueError:
        raise RooflensError(f"{flag} {file}: this is no token: it is not plain text") from None
    if not token or len(token) > LONGEST_TOKEN_BYTES:
        raise RooflensError(f"{flag} {file}: this is no token: it is {'too long' if token else 'empty'}")
    return token


def host_and_port(listen: str) -> tuple[str, int]:
    """The two parts of HOST:PORT; ValueError for anything else. An IPv6 address stands in brackets."""
    host, colon, port = listen.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    digits = port.isascii() and port.isdigit() and len(port) < 6
    if not colon or not bare or not digits or (":" in bare) != bracketed or int(port) > 65535:
        raise ValueError("not HOST:PORT, such as 127.0.0.1:9980 or [::1]:9980")
    return bare, int(port)


def sidecar_settings(given: Mapping[str, Any]) -> SidecarSettings:
    """The settings, those in ``given`` (by field, None for not given) before those of the environment.

    RooflensError in one line that names the flag or the variable of the first wrong one.
    """
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        return SidecarSettings(**flags)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        flag, variable = NAMES.get(field, (field, field))
        why = str(first["msg"]).removeprefix("Value error, ").replace("Input should be", "it should be")
        shown = str(first.get("input"))[:80]
        raise RooflensError(f"{flag if field in flags else variable} {shown}: {why}") from None
