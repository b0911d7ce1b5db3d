"""Activity of SMs, tensor cores, memory, PCIe and NVLink between two moments (NVML's GPM).

It needs Hopper or newer, and no profiler's permission. The driver keeps running counters, and a
metric is the difference between two samples of them.
"""

import math

from gpudash.telemetry.nvml import GpuUnavailable, NotMeasured, Nvml

METRICS = {
    "sm_active_pct": 2,
    "sm_occupancy_pct": 3,
    "tensor_active_pct": 5,
    "dram_active_pct": 10,
    "pcie_tx_mib_s": 20,
    "pcie_rx_mib_s": 21,
    "nvlink_rx_mib_s": 60,
    "nvlink_tx_mib_s": 61,
}
"""Metric → its GPM number. NVML reports percent and MiB/s; `tx` is sent by the GPU."""

SHORTEST_S = 0.1
"""NVML refreshes its samples no faster: differences over less time are noise."""


class ActivityReader:
    """Reads the GPU's activity since the previous reading; owns two driver samples."""

    def __init__(self, nvml: Nvml, board: object, instance: int | None) -> None:
        """`board` is the handle of the physical GPU, `instance` its GPU instance under MIG."""
        self._nvml = nvml
        self._board = board
        self._instance = instance
        self._supported = False
        self._before: object = None
        self._before_s = -math.inf
        self._spare: object = None
        self.since_s = -math.inf
        """When the reading before the newest one was; infinitely long ago if there was none."""

    def read(self, now_s: float) -> dict[str, float | str]:
        """Return means since the previous reading; empty at first, or within 100 ms of it.

        Raises `NotMeasured` when this GPU has none of them, `GpuUnavailable` when it is gone.
        """
        self._require_support()
        if now_s - self._before_s < SHORTEST_S:
            return {}
        if self._spare is None:
            self._spare = self._nvml.call("nvmlGpmSampleAlloc")
        self._take(self._spare)
        before, self.since_s = self._before, self._before_s
        self._before, self._before_s, self._spare = self._spare, now_s, before
        return self._between(before, self._before) if math.isfinite(self.since_s) else {}

    def close(self) -> None:
        for sample in (self._before, self._spare):
            if sample is not None:
                try:
                    self._nvml.call("nvmlGpmSampleFree", sample)
                except (NotMeasured, GpuUnavailable):
                    continue  # with the driver gone, its memory is too
        self._before = self._spare = None
        self._before_s = -math.inf

    def _require_support(self) -> None:
        if not self._supported:
            answer = self._nvml.call("nvmlGpmQueryDeviceSupport", self._board)
            if not answer.isSupportedDevice:
                reason = "needs a Hopper GPU or newer"
                raise self._nvml.refuse("nvmlGpmQueryDeviceSupport", reason)
            self._supported = True

    def _take(self, sample: object) -> None:
        if self._instance is None:
            self._nvml.call("nvmlGpmSampleGet", self._board, sample)
        else:
            self._nvml.call("nvmlGpmMigSampleGet", self._board, self._instance, sample)

    def _between(self, before: object, after: object) -> dict[str, float | str]:
        question = self._nvml.constant("c_nvmlGpmMetricsGet_t")()
        question.version = self._nvml.constant("NVML_GPM_METRICS_GET_VERSION")
        question.sample1, question.sample2 = before, after
        question.numMetrics = len(METRICS)
        for slot, metric_id in zip(question.metrics, METRICS.values(), strict=False):
            slot.metricId = metric_id
        answer = self._nvml.call("nvmlGpmMetricsGet", question)
        return {
            field: slot.value
            for field, slot in zip(METRICS, answer.metrics, strict=False)
            if slot.nvmlReturn == 0 and math.isfinite(slot.value)
        }
