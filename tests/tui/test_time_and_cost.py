"""Where a step's time goes and what gpudash itself costs, as the whole screen says it."""

import re

import pytest
from msgspec.structs import replace as changed

from tests.tui.driving import still
from tests.tui.fake_engine import CPU, training, with_series

TRANSFORM_MS = {"read": 0.31, "decode": 2.345, "crop": 0.02}


def lasting(**values):
    """A run whose newest steps all took so long."""
    ticks, rate = len(training().series.at_s), 1e3 / values.get("step_ms", 1e3 / 296)
    series = {name: (value,) * ticks for name, value in values.items()}
    return with_series(changed(training(), steps_per_s=rate), **series)


@pytest.mark.parametrize(
    ("what", "snapshot", "shown", "hidden"),
    [
        ("on a CPU nobody runs ahead of anybody",
         changed(lasting(host_ms=3.9, step_ms=4.0), device=CPU), "host", "ahead"),
        ("an idle host that waits for data does not either",
         lasting(host_ms=2.2, data_ms=19.8, step_ms=22.0), "INPUT-BOUND", "0.00 ahead"),
        ("a training that waits for data names its slowest transform",
         changed(lasting(data_ms=3.0, step_ms=4.0, device_ms=1.0), transform_ms=TRANSFORM_MS),
         "slowest transform: decode, 2.35 ms a sample", "crop"),
        ("the time in which both streams were busy is a line of the activity",
         lasting(overlap_ms=1.0, step_ms=4.0), r"both streams .* 25 %", "SM active"),
    ],
)  # fmt: skip
def test_where_time_goes(what, snapshot, shown, hidden):
    text = still((200, 60), snapshot=snapshot).text()
    assert re.search(shown, text), what
    assert hidden not in text, what
