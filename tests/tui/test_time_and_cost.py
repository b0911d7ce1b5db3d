"""Where a step's time goes and what gpudash itself costs, as the whole screen says it."""

import msgspec
import pytest

from gpudash.diagnosis.answer import FIGURES_S
from gpudash.protocol.readings import HostReading
from tests.tui.driving import dashboard, still
from tests.tui.fake_engine import CPU, training, with_series

changed = msgspec.structs.replace


def lasting(**values):
    """A run whose newest steps all took so long."""
    ticks = len(training().series.at_s)
    return with_series(training(), **{name: (value,) * ticks for name, value in values.items()})


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
def test_the_lane_of_the_host_says_by_how_much_it_runs_ahead(size):
    d = still(size, snapshot=lasting(host_ms=0.4, data_ms=0.0, step_ms=4.0))
    (host,) = [line for line in d.lines()[:7] if "host ▏" in line]
    assert "busy 0.40" in host or "ahead" in host
    assert "3.60 ahead" in host
    busy = lasting(host_ms=3.9, data_ms=0.0, step_ms=4.0)
    d.show(changed(busy, elapsed_s=busy.elapsed_s + FIGURES_S))
    (host,) = [line for line in d.lines()[:7] if "host ▏" in line]
    assert "busy 3.90" in host


def test_on_a_cpu_nobody_runs_ahead_of_anybody():
    on_cpu = changed(lasting(host_ms=3.9, step_ms=4.0), device=CPU)
    d = still(snapshot=on_cpu)
    assert "ahead" not in d.text()


def test_an_idle_host_that_waits_for_data_does_not_run_ahead():
    d = still(snapshot=lasting(host_ms=2.2, data_ms=19.8, step_ms=22.0))
    assert "INPUT-BOUND" in d.lines()[1]
    assert "0.00 ahead" not in d.text()


async def test_a_training_that_waits_for_data_names_its_slowest_transform():
    times = {"read": 0.31, "decode": 2.345, "crop": 0.02}
    starved = lasting(data_ms=3.0, step_ms=4.0, device_ms=1.0)
    async with dashboard((200, 60), snapshot=changed(starved, transform_ms=times)) as d:
        assert "slowest transform: decode, 2.35 ms a sample" in d.text()
        await d.press("d")
        assert all(name in d.text() for name in times)


def test_the_time_in_which_both_streams_were_busy_is_a_line_of_the_activity():
    d = still((200, 50), snapshot=training())
    assert "both streams" not in d.text()
    d.show(lasting(overlap_ms=1.0, step_ms=4.0))
    (line,) = [line for line in d.lines() if "both streams" in line]
    assert "25 %" in line


OWN = HostReading(at_s=0.0, values={"own_cpu_pct": 3.2, "own_rss_mib": 61.0})


async def test_its_own_cost_and_what_it_cannot_explain_stand_with_the_device():
    snapshot = changed(
        training(), host=OWN, instruments_ms=0.0123, unattributed_pct=1.26, skipped_samples=1234
    )
    async with dashboard((200, 50), snapshot=snapshot) as d:
        assert "1,234 unreadable samples skipped" in d.lines()[-2]
        await d.press("d")
        lines = d.lines()
        for name, value in (
            ("measuring", "0.012 ms a step"),
            ("unattributed time", "1.3 %"),
            ("unreadable, skipped", "1,234"),
        ):
            assert any(name in line and value in line for line in lines), name
