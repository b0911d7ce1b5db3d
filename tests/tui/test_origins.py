"""Where each number comes from, as the table of metrics says it."""

from gpudash.metrics import METRICS
from gpudash.tui.origins import origin_lines
from tests.tui import scenes
from tests.tui.driving import dashboard

SHOWN = {name: one for name, one in METRICS.items() if one.label or one.spark or one.chart}


def test_every_number_of_the_screen_has_meaning_source_and_value():
    lines = [*origin_lines(scenes.running())]
    text = " ".join(" ".join(lines).split())
    for metric in SHOWN.values():
        assert metric.measured_by in text
        assert metric.meaning in text
    assert "power: 557 W" in lines


def test_what_was_not_measured_is_a_dash():
    assert "power: –" in [*origin_lines(scenes.without_gpu())]


async def test_its_key_shows_them():
    async with dashboard(snapshot=scenes.running()) as d:
        await d.press("i")
        assert "where the numbers come from" in d.text()
        await d.press("escape")
        assert "where the numbers come from" not in d.text()
