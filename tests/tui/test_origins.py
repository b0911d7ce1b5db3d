"""Where each number comes from, as the table of metrics says it."""

from itertools import product

import pytest
from msgspec.structs import replace

from gpudash.metrics import METRICS
from gpudash.present.origins import origin, origin_lines
from tests.tui import scenes
from tests.tui.driving import showing

SHOWN = [one for one in METRICS.values() if one.label]


def test_every_number_of_the_screen_has_meaning_source_and_value():
    lines = [*origin_lines(scenes.running())]
    text = " ".join(" ".join(lines).split())
    for metric in SHOWN:
        assert metric.measured_by in text
        assert metric.meaning in text
    assert "power: 557 W" in lines


RUNNING = scenes.running()
COSTLY = replace(RUNNING.host, values={**RUNNING.host.values, "own_cpu_pct": 10.0})


@pytest.mark.parametrize(
    ("what", "snapshot", "said"),
    [
        ("a number is called as on the screen and has its unit", RUNNING,
         ["steps/s: 146", "step p50: 6.84 ms", "host busy: 2.61 ms", "DRAM traffic: 32 %",
          "encode: 5.58 ms", "loss: 2.303"]),
        ("what gpudash itself takes is told", replace(RUNNING, host=COSTLY),
         ["gpudash: CPU: 0.1 cores"]),
        ("what was not measured is a dash", scenes.without_gpu(), ["power: –"]),
    ],
)  # fmt: skip
def test_the_origins_say(what, snapshot, said):
    assert {*said} <= {*origin_lines(snapshot)}, what


def test_each_number_has_a_name_of_its_own_and_those_of_other_trainings_are_left_out():
    titles = [line for line in origin_lines(RUNNING) if not line.startswith(" ")]
    names = [title.rpartition(": ")[0] for title in titles]
    assert len({*names}) == len(names)
    assert not [name for name in names if "_" in name or "rollout" in name]


def test_values_of_steps_are_of_the_time_that_the_charts_name():
    fast, slow = scenes.running(), replace(scenes.running(), steps_per_s=1.0)
    assert origin(fast, "host_ms")["formula"] == "the mean of steps, last 2 s"
    assert origin(slow, "host_ms")["formula"] == "the mean of steps, last 5 steps"


def test_no_metric_lacks_formula_source_age_or_uncertainty():
    for snapshot, name in product((scenes.running(), scenes.without_gpu()), METRICS):
        found = origin(snapshot, name)
        assert [*found] == ["", "formula", "source", "age", "uncertainty"]
        assert all(found.values()), found


def test_a_readings_age_is_the_time_since_and_that_of_a_value_of_steps_too():
    snapshot = scenes.running()
    gpu, host = (replace(one, at_s=100.0) for one in (snapshot.gpu, snapshot.host))
    later = replace(
        snapshot, at_s=101.5, gpu=gpu, host=host, elapsed_s=snapshot.series.at_s[-1] + 3.0
    )
    assert origin(later, "power_w")["age"] == "1.5 s"
    assert origin(later, "cpu_pct")["age"] == "1.5 s"
    assert origin(later, "sm_active_pct")["age"] == "1.5 s, slow calls up to 1 s before"
    assert origin(later, "data_ms")["age"] == "3.0 s"
    assert origin(scenes.without_gpu(), "power_w")["age"] == "–"


def test_the_sensors_error_and_the_spread_of_the_newest_values_are_said():
    found = origin(scenes.running(), "power_w")["uncertainty"]
    assert found.startswith("± 5 % of the sensor, by NVIDIA's own figure; the last ")
    assert "values of the chart vary by ± " in found


@showing(scenes.running())
async def test_its_key_shows_them(d):
    await d.press("i", shows="where the numbers come from")
    await d.press("escape", hides="where the numbers come from")
