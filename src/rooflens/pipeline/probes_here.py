"""The probes of a sidecar: the drivers of this machine, the dcgm-exporters that were named, and its processes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rooflens.pipeline.probes import Sampled

if TYPE_CHECKING:
    from rooflens.adapters.scrape.address import Address

PACED_S = 1.0  # a page may change sooner than it was said to; the probe itself decides when to read it


def probes_here(
    period_s: float, dcgm_urls: Sequence[str] = (), dcgm_period_s: float = 30.0, *, nvml: bool = True
) -> tuple[Sampled, ...]:
    """Every probe there is, each asked every so many seconds; RooflensError for an address that is none.

    Without ``nvml`` NVIDIA's library is left alone: one that crashes would take this process with it.

    A library that is not installed, or finds no device, is told of by its probe and hinders no other.
    """
    from rooflens.adapters.scrape.address import address_of
    from rooflens.collector.amd import AmdProbe
    from rooflens.collector.dcgm import DcgmProbe
    from rooflens.collector.host import HostProbe
    from rooflens.collector.nvml import NvmlProbe

    found = [Sampled("NVML", "nvml", NvmlProbe(period_s=period_s), period_s)] if nvml else []
    found.append(Sampled("amdsmi", "amdsmi", AmdProbe(), period_s))
    for url in dict.fromkeys(dcgm_urls):
        address = address_of(url)
        probe = DcgmProbe(address.name, partial(_page, address), dcgm_period_s)
        found.append(
            Sampled(f"dcgm-exporter {address.name}", "dcgm", probe, dcgm_period_s, asked_for=True, ask_s=PACED_S)
        )
    return (*found, Sampled("the host's processes", "host", HostProbe(), period_s))


def _page(address: Address) -> bytes:
    from rooflens.adapters.scrape.fetch import EXPORTER, fetch

    return fetch(address, kind=EXPORTER).text.encode("utf-8", "replace")
