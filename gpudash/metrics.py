"""Which values of a sample tell of the time since a moment, and of nothing before it."""

import msgspec

from gpudash.protocol import GpuReading

UTIL_WINDOW_S = 1.0
"""NVML averages utilisation over 1/6 to 1 s, depending on the GPU, and does not say over what."""
UTILISATION = ("util_pct", "mem_util_pct")
ACTIVITY = (
    "sm_active_pct",
    "sm_occupancy_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "pcie_rx_mib_s",
    "pcie_tx_mib_s",
)


def since(sample: GpuReading, began_s: float) -> GpuReading:
    """Return the sample without the means over a time that began before `began_s` (monotonic)."""
    before: tuple[str, ...] = ()
    if sample.at_s - UTIL_WINDOW_S < began_s:
        before += UTILISATION
    if sample.activity_since_s is not None and sample.activity_since_s < began_s:
        before += ACTIVITY
    return msgspec.structs.replace(sample, **dict.fromkeys(before)) if before else sample
