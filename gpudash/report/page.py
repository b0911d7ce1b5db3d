"""The HTML page of a recording: what ran where, charts, history, verdicts, wall time. No I/O."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element

from gpudash import format as fmt
from gpudash.diagnosis.limits import said
from gpudash.metrics import METRICS
from gpudash.present.axes import TimeView, means
from gpudash.present.markup import MOST_LINES, document, element, section
from gpudash.present.readings import ShownReading, quantity, readings
from gpudash.recording.csv_format import wall_time
from gpudash.report import tables
from gpudash.report.charts import Bins, bins_of_all, reading_chart, step_chart, throughput_chart
from gpudash.run.replayed import Replayed
from gpudash.snapshot import Snapshot

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Content security policy: the browser refuses to fetch or run anything."""


def page(run: Replayed, command: Sequence[str], price: float | None = None) -> str:
    """With the price of a GPU for an hour, settings have a cost, and verdicts what they save."""
    style = element("style")
    folder = files("gpudash.report")
    style.text = "".join(
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("charts.css", "style.css")
    )
    title = _title(run)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} – gpudash"),
        style,
    )
    snapshot = run.snapshot
    bins = bins_of_all(snapshot.series, snapshot.elapsed_s)
    main = element(
        "main",
        _header(run, title),
        *_incomplete(run),
        *_failures(run),
        *tables.limits(run),
        *tables.answer(run),
        *_charts(snapshot, bins),
        *tables.changes(snapshot),
        *tables.ranks(snapshot),
        *tables.history(snapshot, price),
        *tables.verdicts(snapshot, price),
        *tables.account(run),
        *tables.settings(snapshot),
        *tables.provenance(run),
        element("footer", "Made by ", element("code", shlex.join(command))),
    )
    return document(element("html", head, element("body", main), lang="en"))


# ── what ran ────────────────────────────────────────────────────────────────────────────


def _title(run: Replayed) -> str:
    device = run.snapshot.device
    return f"{run.snapshot.workload or run.name}{f' on {device.name}' if device else ''}"


def _header(run: Replayed, title: str) -> Element:
    snapshot = run.snapshot
    whole = run.metadata is not None and run.metadata.complete
    facts = [
        run.name,
        wall_time(run.origin.began_utc)[:19].replace("T", " ") + " UTC",
        f"{fmt.clock(snapshot.elapsed_s)} recorded",
        "complete" if whole else "not complete" if run.metadata else "",
    ]
    rate = run.steps_per_s
    samples = (
        rate * snapshot.total_samples / snapshot.total_steps
        if rate and snapshot.total_samples and snapshot.total_steps
        else None
    )
    numbers = [
        ("steps/s, whole run", fmt.significant(rate)),
        ("samples/s, whole run", fmt.significant(samples)),
        ("steps", fmt.count(snapshot.total_steps)),
        ("settings tried", str(len(snapshot.results))),
        ("A/B verdicts", str(len(snapshot.verdicts))),
    ]
    tiles = (element("div", element("dt", name), element("dd", value)) for name, value in numbers)
    return element(
        "header",
        element("h1", title),
        element("p", " · ".join(filter(None, facts)), class_="facts"),
        element("dl", *tiles, class_="tiles"),
        *_limit(run),
    )


def _limit(run: Replayed) -> Iterator[Element]:
    for one in run.limits[:1]:
        text = said(one)
        evidence = "; ".join(one.answer.evidence)
        strong = element("strong", text[:1].upper() + text[1:])
        yield element("p", strong, f"; the last time: {evidence}", class_="limit")


def _incomplete(run: Replayed) -> Iterator[Element]:
    if run.metadata is not None and not run.metadata.complete:
        text = "It was not closed in order, or a failure ended it: its last rows may be missing."
        yield element("aside", element("p", text), class_="note")


def _failures(run: Replayed) -> Iterator[Element]:
    if run.failures:
        items = (
            element("li", element("b", fmt.minutes(one.at_s)), f" {one.sentence}")
            for one in run.failures[-MOST_LINES:]
        )
        yield element("aside", element("h2", "Failures"), element("ul", *items), class_="failure")


# ── charts ──────────────────────────────────────────────────────────────────────────────


def _charts(snapshot: Snapshot, bins: Bins) -> Iterator[Element]:
    rate = throughput_chart(snapshot, bins)
    if rate is None:
        yield section("Throughput", element("p", "No step was measured.", class_="dim"))
        return
    names = ("a", "b") if snapshot.blocks else ()
    legend = _legend((name, f"A/B: blocks of {name.upper()}") for name in names)
    unit = "samples a second" if snapshot.series.of("samples_per_s") else "steps a second"
    yield section("Throughput", element("figure", rate, legend), about=unit)
    steps, parts = step_chart(snapshot, bins)
    if steps is not None:
        legend = _legend((part.ink, part.label) for part in parts)
        yield section("A step's time", element("figure", steps, legend), about="milliseconds")
    charts = [
        (one, chart)
        for one in readings(snapshot, TimeView())
        if (chart := reading_chart(snapshot, one, bins)) is not None
    ]
    if charts:
        rows = (_reading(snapshot, one, chart) for one, chart in charts)
        title = "GPU and host" if any(one.kind == "gpu" for one, _ in charts) else "Host"
        about = "the mean over the recording, and what the top of the curve stands for"
        yield section(title, element("div", *rows, class_="readings"), about=about)


def _legend(entries: Iterable[tuple[str, str]]) -> Element | None:
    found = [element("span", element("i", class_=f"swatch {ink}"), label) for ink, label in entries]
    return element("figcaption", *found) if found else None


def _reading(snapshot: Snapshot, one: ShownReading, chart: Element) -> Element:
    series = snapshot.series
    (mean,) = means(one.past, series.at_s, [slice(0, len(series.at_s))])
    is_share = METRICS[one.metric].kind == "step"
    value = fmt.percent(mean) if is_share else quantity(one.metric, mean)
    return element(
        "div",
        element("span", one.label, title=METRICS[one.metric].meaning),
        chart,
        element("span", element("b", value), element("small", f"of {one.scale or '100 %'}")),
        class_="reading",
    )
