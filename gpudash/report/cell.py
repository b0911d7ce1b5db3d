"""What `%gpudash` shows in a cell: the answer as text, and a picture of the steps. No I/O."""

import re
from collections.abc import Iterator
from importlib.resources import files
from xml.etree.ElementTree import Element, tostring

from gpudash import format as fmt
from gpudash.diagnosis.headline import answer_lines
from gpudash.present.markup import NAMESPACE, element
from gpudash.present.step_time import StepPart
from gpudash.report.charts import WIDTH, bins_of_all, step_chart, throughput_chart
from gpudash.snapshot import Snapshot

SCOPE = "gpudash-cell"
"""The class of the whole picture."""
MARGIN = 12.0
BETWEEN = 22.0
"""Height of a line of text, above each chart."""
SWATCH = 11.0
LETTER = 6.6
"""Approximate width of a letter of a legend."""


def lines(snapshot: Snapshot, steps_per_s: float | None) -> Iterator[str]:
    if not snapshot.total_steps:
        yield "gpudash: no training step was seen so far"
        return
    name, answer = fmt.plain(snapshot.workload), snapshot.answer
    rate = f"{fmt.figure(steps_per_s)} steps/s" if steps_per_s is not None else "no rate yet"
    device = f" on {snapshot.device.name}" if snapshot.device is not None else ""
    yield f"{name}{device}: {fmt.steps(snapshot.total_steps)}, {rate}; {snapshot.found}"
    if answer is not None:
        yield from answer_lines(snapshot, answer)
    else:
        yield "too few steps were measured so far to say what limits it"


def picture(snapshot: Snapshot) -> str:
    """Empty before a step was measured."""
    bins = bins_of_all(snapshot.series, snapshot.elapsed_s)
    rate = throughput_chart(snapshot, bins)
    if rate is None:
        return ""
    steps, parts = step_chart(snapshot, bins)
    unit = "samples a second" if snapshot.series.of("samples_per_s") else "steps a second"
    inside, y = [_caption(unit, BETWEEN)], BETWEEN
    y = _place(rate, inside, y)
    if steps is not None:
        inside.append(_caption("a step's time, ms", y + BETWEEN))
        inside += _legend(parts, y + BETWEEN)
        y = _place(steps, inside, y + BETWEEN)
    drawn = element(
        "svg",
        _style(),
        element("rect", x=-MARGIN, width="100%", height="100%", style="fill: var(--card)"),
        *inside,
        viewBox=f"{-MARGIN:.0f} 0 {WIDTH + 2 * MARGIN:.0f} {y:.0f}",
        width=f"{WIDTH:.0f}",
        style="max-width: 100%; height: auto; font-family: system-ui, sans-serif",
        role="img",
        aria_label="gpudash",
        class_=SCOPE,
        xmlns=NAMESPACE,
    )
    return tostring(drawn, encoding="unicode")


def _style() -> Element:
    """Style this picture alone, as a notebook may put it into its own page."""
    css = files("gpudash.report").joinpath("charts.css").read_text(encoding="utf-8")
    scope = f".{SCOPE}"
    style = element("style")
    style.text = re.sub(r"^(?=\.)", f"{scope} ", css, flags=re.MULTILINE).replace(":root", scope)
    return style


def _place(chart: Element, inside: list[Element], y: float) -> float:
    """Add the chart to `inside` below `y`; return where it ends."""
    *_, height = map(float, chart.attrib["viewBox"].split())
    chart.attrib |= {"y": f"{y + 6:.0f}", "width": f"{WIDTH:.0f}", "height": f"{height:.0f}"}
    chart.attrib.pop("class", None)
    inside.append(chart)
    return y + 6 + height


def _caption(text: str, y: float) -> Element:
    return element("text", text, x=0.0, y=y - 6, class_="label")


def _legend(parts: list[StepPart], y: float) -> Iterator[Element]:
    x = 150.0
    for part in parts:
        yield element("rect", x=x, y=y - 15, width=SWATCH, height=SWATCH, class_=f"fill {part.ink}")
        yield element("text", part.label, x=x + SWATCH + 5, y=y - 6, class_="label")
        x += SWATCH + 22 + LETTER * len(part.label)
