"""A recording as a page: what ran where, charts, results, verdicts, where the time went. No I/O."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element

from gpudash import format as fmt
from gpudash.metrics import METRICS
from gpudash.protocol import ComparisonShown, Device
from gpudash.recording.csv_file import wall_time
from gpudash.recording.csv_reader import NOT_RECORDED
from gpudash.report.charts import (
    Bins,
    bins_of,
    interval_chart,
    reach_of,
    reading_chart,
    share_bar,
    step_chart,
    throughput_chart,
)
from gpudash.report.markup import document, element
from gpudash.run.replayed import Replayed
from gpudash.snapshot import Snapshot, unreadable
from gpudash.tui.axes import means
from gpudash.tui.sparks import Reading, quantity, readings
from gpudash.tui.stacks import Part
from gpudash.tui.timeview import TimeView
from gpudash.tui.widgets.ranks import columns_of, job_of
from gpudash.tui.widgets.results import Table, table_of
from gpudash.views.answer import answer

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser itself refuses whatever would be fetched or run."""
FEW = 12
"""Lever changes that are listed at once; more are folded away."""
MOST_LINES = 50
"""Of failures, and of what gpudash said: the newest."""
SPENT = {
    "phases_s": ("training", "line-3"),
    "data_s": ("waiting for data", "line-0"),
    "paused_s": ("paused", "line-2"),
    "switching_s": ("switching levers", "line-5"),
    "restarting_s": ("restarting", "line-1"),
    "evaluation_s": ("evaluation", "line-4"),
    "checkpoint_s": ("saving checkpoints", "line-6"),
    "profile_s": ("profiling", "line-7"),
    "unattributed_s": ("unattributed", "idle"),
}
"""What wall time goes into, with its hue."""


def page(run: Replayed, command: Sequence[str]) -> str:
    """Return the page of a recording; `command` made it."""
    style = element("style")
    style.text = files("gpudash.report").joinpath("style.css").read_text(encoding="utf-8")
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
    bins = bins_of(snapshot.series, snapshot.elapsed_s)
    main = element(
        "main",
        _header(run, title),
        *_unknown(run),
        *_failures(run),
        *_charts(snapshot, bins),
        *_changes(snapshot),
        *_ranks(snapshot),
        *_results(snapshot),
        *_verdicts(snapshot),
        *_account(run),
        *_settings(snapshot),
        *_provenance(run),
        element("footer", "Made by ", _code(shlex.join(command))),
    )
    return document(element("html", head, element("body", main), lang="en"))


# ── what ran ────────────────────────────────────────────────────────────────────────────


def _title(run: Replayed) -> str:
    device = _device(run.snapshot)
    return f"{run.snapshot.workload or run.name}{f' on {device.name}' if device else ''}"


def _device(snapshot: Snapshot) -> Device | None:
    known = snapshot.device is not None and snapshot.device.name != NOT_RECORDED
    return snapshot.device if known else None


def _header(run: Replayed, title: str) -> Element:
    snapshot = run.snapshot
    whole = run.metadata is not None and run.metadata.complete
    facts = [
        run.name,
        _began(run),
        f"{fmt.clock(snapshot.elapsed_s)} recorded",
        "complete" if whole else "not complete" if run.metadata else "",
    ]
    rate = run.steps_per_s
    samples = (
        rate * snapshot.total_samples / snapshot.total_steps
        if rate and snapshot.total_samples and snapshot.total_steps
        else None
    )
    tiles = [
        ("steps/s, whole run", fmt.significant(rate)),
        ("samples/s, whole run", fmt.significant(samples)),
        ("steps", fmt.count(snapshot.total_steps)),
        ("settings tried", str(sum(not one.verdict for one in snapshot.results))),
        ("A/B verdicts", str(len(snapshot.verdicts))),
    ]
    return element(
        "header",
        element("h1", title),
        element("p", " · ".join(filter(None, facts)), class_="facts"),
        element("dl", *(_tile(name, value) for name, value in tiles), class_="tiles"),
        *_limit(snapshot),
    )


def _began(run: Replayed) -> str:
    known = run.origin.began_utc.year > 1970  # a CSV without its JSON does not know
    return wall_time(run.origin.began_utc)[:19].replace("T", " ") + " UTC" if known else ""


def _tile(name: str, value: str) -> Element:
    return element("div", element("dt", name), element("dd", value))


def _limit(snapshot: Snapshot) -> Iterator[Element]:
    """Yield what limited the training at the end, as the dashboard says it."""
    found = answer(snapshot, ())
    if found.evidence:
        title = found.title[:1].upper() + found.title[1:]
        yield element(
            "p", element("strong", title), f": {'; '.join(found.evidence)}", class_="limit"
        )


def _unknown(run: Replayed) -> Iterator[Element]:
    """Yield what this recording does not say."""
    missing = [f"This is a CSV without its log: {run.unknown}."] if run.unknown else []
    if run.metadata is None and run.unknown:
        missing.append(
            "There is no JSON beside it: device, versions, command and wall clock are not known."
        )
    elif run.metadata is not None and not run.metadata.complete:
        missing.append(
            "It was not closed in order, or a failure ended it: its last rows may be missing."
        )
    if missing:
        yield element("aside", *(element("p", text) for text in missing), class_="note")


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
        yield _section("Throughput", element("p", "No step was measured.", class_="dim"))
        return
    names = ("a", "b") if snapshot.blocks else ()
    legend = _legend((name, f"A/B: blocks of {name.upper()}") for name in names)
    yield _section("Throughput", _figure(rate, legend), about=_unit(snapshot))
    steps, parts = step_chart(snapshot, bins)
    if steps is not None:
        yield _section("A step's time", _figure(steps, _parts(parts)), about="milliseconds")
    charts = [
        (one, chart)
        for one in readings(snapshot, TimeView())
        if (chart := reading_chart(snapshot, one, bins)) is not None
    ]
    if charts:
        rows = (_reading(snapshot, one, chart) for one, chart in charts)
        title = "GPU and host" if any(one.kind == "gpu" for one, _ in charts) else "Host"
        about = "the mean over the recording, and what the top of the curve stands for"
        yield _section(title, element("div", *rows, class_="readings"), about=about)


def _unit(snapshot: Snapshot) -> str:
    return "samples a second" if snapshot.series.of("samples_per_s") else "steps a second"


def _figure(chart: Element, legend: Element | None) -> Element:
    return element("figure", chart, legend)


def _parts(parts: Iterable[Part]) -> Element | None:
    return _legend((part.ink, part.label) for part in parts)


def _legend(entries: Iterable[tuple[str, str]]) -> Element | None:
    found = [element("span", element("i", class_=f"swatch {ink}"), label) for ink, label in entries]
    return element("figcaption", *found) if found else None


def _reading(snapshot: Snapshot, one: Reading, chart: Element) -> Element:
    """Return a row: label, curve, mean and scale."""
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


# ── tables ──────────────────────────────────────────────────────────────────────────────


def _changes(snapshot: Snapshot) -> Iterator[Element]:
    if snapshot.markers:
        rows = [(fmt.minutes(one.at_s), one.label) for one in snapshot.markers]
        inside = element(
            "details",
            element("summary", f"{len(rows)} on the charts"),
            _table(("at", "what"), rows),
            open="" if len(rows) <= FEW else None,
        )
        yield _section("Lever changes and pauses", inside)


def _ranks(snapshot: Snapshot) -> Iterator[Element]:
    """Yield a row for each of several ranks."""
    if not snapshot.ranks:
        return
    columns = columns_of(job_of(snapshot))
    head = element("tr", *(_th(title) for title in columns))
    rows = (
        element("tr", *(element("td", text_of(row)) for text_of in columns.values()))
        for row in snapshot.ranks
    )
    whole = element("table", element("thead", head), element("tbody", *rows), class_="numbers")
    about = "the last steps of each process; waits is the time in a step for the collectives"
    yield _section("Ranks", _scrolling(whole), about=about)


def _results(snapshot: Snapshot) -> Iterator[Element]:
    if not any(one.steps for one in snapshot.results):
        return
    on_gpu = snapshot.device is not None and snapshot.device.kind == "cuda"
    table = table_of(snapshot.results, on_gpu=on_gpu)
    head = ("#", "configuration", table.unit, *table.numbers)
    rows = [_result(table, index, len(head)) for index in range(len(table.results))]
    names = (_th(text, left=text == "configuration") for text in head)
    whole = element(
        "table", element("thead", element("tr", *names)), element("tbody", *rows), class_="numbers"
    )
    about = (
        "one row for each setting, warm-up left out; rows were measured one after the other, "
        "so drift is in their differences: an A/B proves what a lever is worth"
    )
    yield _section("Results", _scrolling(whole), about=about)


def _result(table: Table, index: int, columns: int) -> Element:
    one = table.results[index]
    if one.verdict:
        text = element(
            "td", f"A/B: {one.configuration}", colspan=columns - 1, class_="left verdict"
        )
        return element("tr", element("td"), text)
    share = (table.rate(one) or 0.0) / table.full
    return element(
        "tr",
        element("td", str(one.number)),
        element("td", one.configuration, class_="left"),
        element(
            "td",
            element("b", fmt.significant(table.rate(one))),
            style=f"--share:{min(share, 1.0):.3f}",
            class_="rated",
        ),
        *(element("td", text_of(one)) for text_of in table.numbers.values()),
    )


def _verdicts(snapshot: Snapshot) -> Iterator[Element]:
    if snapshot.verdicts:
        reach = reach_of(snapshot.verdicts)
        rows = [_verdict(one, reach) for one in snapshot.verdicts]
        head = ("lever", "A → B", "change of throughput, 95 % interval", "", "A", "B", "verdict")
        names = (_th(text, left=True) for text in head)
        whole = element("table", element("thead", element("tr", *names)), element("tbody", *rows))
        about = "pairs of short blocks took turns in random order: drift cancels"
        yield _section("A/B verdicts", _scrolling(whole), about=about)


def _verdict(one: ComparisonShown, reach: float) -> Element:
    change = fmt.ABSENT if one.change is None else fmt.change(one.change, one.low, one.high)
    rates = [f"{fmt.figure(rate)} {one.unit}" for rate in one.rates]
    chart = interval_chart(one, reach)
    better = "better" if one.proven else None
    return element(
        "tr",
        element("td", one.lever, class_="left nowrap"),
        element("td", f"{one.a} → {one.b}", class_="left nowrap"),
        element("td", element("b", change, class_=better), class_="left nowrap"),
        element("td", chart, class_="left"),
        *(element("td", rate, class_="left nowrap") for rate in rates),
        element("td", one.verdict or one.failure or fmt.ABSENT, class_="left"),
    )


def _account(run: Replayed) -> Iterator[Element]:
    account = run.account
    if account.wall_s <= 0:
        return
    spent_s = {name: getattr(account, name) for name in SPENT}
    shown = [(*SPENT[name], seconds) for name, seconds in spent_s.items() if seconds >= 0.0005]
    shares = [(label, ink, seconds / account.wall_s) for label, ink, seconds in shown]
    rows = (
        element(
            "tr",
            element("td", element("i", class_=f"swatch {ink}"), label, class_="left"),
            element("td", fmt.with_unit(seconds, "s", 2)),
            element("td", fmt.with_unit(100 * seconds / account.wall_s, "%", 1)),
        )
        for label, ink, seconds in shown
    )
    device = _device(run.snapshot)
    on_cpu = (
        ", or in which other processes had the cores" if device and device.kind == "cpu" else ""
    )
    about = (
        f"{fmt.with_unit(account.wall_s, 's', 1)} from the worker's start to its last step; "
        f"unattributed is time that no measurement explains{on_cpu}"
    )
    bar = share_bar("Where the wall time went", shares)
    yield _section(
        "Where the wall time went", bar, element("table", element("tbody", *rows)), about=about
    )


def _settings(snapshot: Snapshot) -> Iterator[Element]:
    tried: dict[str, dict[str, None]] = {}
    for result in snapshot.results:
        if result.workload == snapshot.workload:
            for name, value in result.settings.items():
                tried.setdefault(name, {})[value] = None
    settings = [
        element(
            "div",
            element("dt", name),
            element("dd", value, *_others(tried.get(name, ()), value)),
        )
        for name, value in snapshot.settings.items()
    ]
    if settings:
        notes = [element("p", note, class_="dim") for note in snapshot.notes]
        about = "every active lever at the end, and what else was tried"
        yield _section("Settings", element("dl", *settings, class_="settings"), *notes, about=about)


def _others(tried: Iterable[str], value: str) -> Iterator[Element]:
    others = [one for one in tried if one != value]
    if others:
        yield element("small", f" also {', '.join(others)}")


def _provenance(run: Replayed) -> Iterator[Element]:
    started, origin = run.started, run.origin
    versions = origin.versions | (started.versions if started else {})
    device = _device(run.snapshot)
    rows = [
        ("command", shlex.join(origin.command)),
        ("device", device.name if device else ""),
        ("GPU", (device.uuid or "") if device else ""),
        ("machine", origin.machine or ""),
        ("platform", origin.platform),
        *versions.items(),
        ("recorded every", f"{origin.interval_s:g} s"),
        ("GPU readings", run.snapshot.gpu_missing or ""),
        ("samples", "; ".join(unreadable(run.snapshot.skipped_samples))),
    ]
    known = [(name, value) for name, value in rows if value]
    yield _section("How it was made", _scrolling(_table(("", ""), known)))
    if run.notices:
        items = (element("li", text) for text in run.notices[-MOST_LINES:])
        yield _section("What gpudash said", element("ul", *items))


# ── pieces ──────────────────────────────────────────────────────────────────────────────


def _section(title: str, *inside: Element, about: str = "") -> Element:
    hint = element("p", about, class_="about") if about else None
    return element("section", element("h2", title), hint, *inside)


def _scrolling(inside: Element) -> Element:
    return element("div", inside, class_="scrolling")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    body = element(
        "tbody",
        *(element("tr", *(element("td", text, class_="left") for text in row)) for row in rows),
    )
    if not any(head):
        return element("table", body)
    return element(
        "table", element("thead", element("tr", *(_th(text, left=True) for text in head))), body
    )


def _th(text: str, *, left: bool = False) -> Element:
    return element("th", text, scope="col", class_="left" if left else None)


def _code(text: str) -> Element:
    return element("code", text)
