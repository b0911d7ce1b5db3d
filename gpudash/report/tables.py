"""The tables of a page: changes, ranks, history, verdicts, wall time, settings. No I/O."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.compare.energy import worth_lines
from gpudash.diagnosis.slopes import slowed_label
from gpudash.present.history import COST, JOULES, Table, energy_text, table_of
from gpudash.present.markup import MOST_LINES, element, heads, scrolling, section, table, texts, th
from gpudash.present.ranks import columns_of
from gpudash.present.wording import change_of
from gpudash.protocol.session import ComparisonShown
from gpudash.report.charts import interval_chart, reach_of, share_bar
from gpudash.run.replayed import Replayed
from gpudash.snapshot import Result, Snapshot, unreadable

FEW = 12
"""Most lever changes that are listed unfolded."""
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
"""Label and CSS class of each part of the wall time."""


def limits(run: Replayed) -> Iterator[Element]:
    if len(run.limits) < 2:
        return
    began_s = run.origin.began_s
    rows = (
        (
            one.answer.title,
            fmt.percent(100 * one.share),
            fmt.with_unit(one.seconds, "s", 1),
            ", ".join(fmt.minutes(at_s - began_s) for at_s in one.began_s),
            "; ".join(one.answer.evidence),
        )
        for one in run.limits
    )
    head = heads("limit", "share", "training time", "from", "evidence of the last time")
    about = (
        "the answer of the dashboard; shares are of the time in steps, without A/Bs. What is "
        "missing from 100 % was too short between two changes for an answer"
    )
    yield section("What limited it", scrolling(table(head, map(texts, rows))), about=about)


def answer(run: Replayed) -> Iterator[Element]:
    """Both sections are of the limit that held longest."""
    for one in (limit.answer for limit in run.limits[:1]):
        parts = (
            (
                part.part,
                fmt.milliseconds(part.took_ms),
                fmt.milliseconds(part.low_ms),
                fmt.milliseconds(part.high_ms),
                slowed_label(part.part, one.slopes),
            )
            for part in one.parts
        )
        if one.parts:
            head = heads("part", "takes, ms", "a step without it, ms", "at most", "if slowed")
            step_ms = fmt.milliseconds(one.step_ms)
            about = (
                f"by the model of a step of {step_ms} ms. The last column is by how much a step "
                "grew with a part that was slowed, as a share of the delay"
            )
            yield section("A step without its parts", _scrolled(head, parts), about=about)
        changes = (
            (each.label, each.before, each.gain.label if each.gain else fmt.ABSENT, each.why)
            for each in one.tries
        )
        if one.tries:
            head = heads("change", "before", "throughput", "why")
            about = "foretold by the model of a step, or measured by an A/B"
            yield section("What to try", _scrolled(head, changes), about=about)


def _scrolled(head: Sequence[Element], rows: Iterable[Iterable[str]]) -> Element:
    return scrolling(table(head, map(texts, rows)))


def changes(snapshot: Snapshot) -> Iterator[Element]:
    if snapshot.markers:
        rows = [(fmt.minutes(one.at_s), one.label) for one in snapshot.markers]
        inside = element(
            "details",
            element("summary", f"{len(rows)} on the charts"),
            table(heads("at", "what"), map(texts, rows)),
            open="" if len(rows) <= FEW else None,
        )
        yield section("Lever changes and pauses", inside)


def ranks(snapshot: Snapshot) -> Iterator[Element]:
    if not snapshot.ranks:
        return
    columns = columns_of(snapshot)
    head = [th(title) for title in columns]
    rows = ([element("td", of(row)) for of in columns.values()] for row in snapshot.ranks)
    about = "the last steps of each process; waits is the time in a step for the collectives"
    yield section("Ranks", scrolling(table(head, rows, class_="numbers")), about=about)


def history(snapshot: Snapshot, price: float | None = None) -> Iterator[Element]:
    if not any(one.steps for one in snapshot.results):
        return
    on_gpu = snapshot.device is not None and snapshot.device.kind == "cuda"
    columns = _history_columns(table_of(replace(snapshot, price=price), on_gpu=on_gpu))
    head = [th(title, left=title == "setting") for title in columns]
    rows = ([cell(one) for cell in columns.values()] for one in snapshot.results)
    about = (
        "one row for each setting, warm-up left out; rows were measured one after the other, "
        "so drift is in their differences: an A/B proves what a lever is worth"
    )
    yield section("History", scrolling(table(head, rows, class_="numbers")), about=about)


def _history_columns(known: Table) -> dict[str, Callable[[Result], Element]]:
    def of(text: Callable[[Result], str]) -> Callable[[Result], Element]:
        return lambda one: element("td", text(one))

    def numbers(number: Callable[[Result], float | None]) -> Callable[[Result], Element]:
        return of(lambda one: fmt.significant(number(one)))

    def rate(one: Result) -> Element:
        share = min((known.rate(one) or 0.0) / known.full, 1.0)
        shown = element("b", fmt.significant(known.rate(one)))
        return element("td", shown, style=f"--share:{share:.3f}", class_="rated")

    columns = {
        "#": of(lambda one: str(one.number)),
        "setting": lambda one: element("td", one.configuration, class_="left"),
        known.unit: rate,
        "p50 ms": numbers(lambda one: one.step_ms_p50),
        "p95 ms": numbers(lambda one: one.step_ms_p95),
        "host ms": numbers(lambda one: one.values.get("host_ms")),
        "GPU busy" if known.on_gpu else "CPU cores": of(known.busy),
        "steps": of(lambda one: fmt.count(one.steps)),
    }
    if any(one.energy for one in known.results):
        columns[JOULES] = of(energy_text)
    if known.price is not None:
        columns[COST] = of(known.cost)
    return columns


def verdicts(snapshot: Snapshot, price: float | None = None) -> Iterator[Element]:
    if snapshot.verdicts:
        reach = reach_of(snapshot.verdicts)
        rows = (_verdict(one, reach, price) for one in snapshot.verdicts)
        change = "change of throughput, 95 % interval"
        head = heads("lever", "A → B", change, "", "A", "B", "verdict")
        about = "pairs of short blocks took turns in random order: drift cancels"
        yield section("A/B verdicts", scrolling(table(head, rows)), about=about)


def _verdict(one: ComparisonShown, reach: float, price: float | None) -> tuple[Element, ...]:
    rates = [f"{fmt.figure(rate)} {one.unit}" for rate in one.rates]
    chart = interval_chart(one, reach)
    said = [
        one.verdict or one.failure or fmt.ABSENT,
        *worth_lines(one, price, energy=one.energy is not None),
    ]
    better = "better" if one.proven else None
    return (
        element("td", one.lever, class_="left nowrap"),
        element("td", f"{one.a} → {one.b}", class_="left nowrap"),
        element("td", element("b", change_of(one), class_=better), class_="left nowrap"),
        element("td", chart, class_="left"),
        *(element("td", rate, class_="left nowrap") for rate in rates),
        element("td", "; ".join(said), class_="left"),
    )


def account(run: Replayed) -> Iterator[Element]:
    spent = run.account
    if spent.wall_s <= 0:
        return
    spent_s = {name: getattr(spent, name) for name in SPENT}
    shown = [(*SPENT[name], seconds) for name, seconds in spent_s.items() if seconds >= 0.0005]
    shares = [(label, ink, seconds / spent.wall_s) for label, ink, seconds in shown]
    rows = (
        (
            element("td", element("i", class_=f"swatch {ink}"), label, class_="left"),
            element("td", fmt.with_unit(seconds, "s", 2)),
            element("td", fmt.with_unit(100 * seconds / spent.wall_s, "%", 1)),
        )
        for label, ink, seconds in shown
    )
    device = run.snapshot.device
    is_cpu = device is not None and device.kind == "cpu"
    on_cpu = ", or in which other processes had the cores" if is_cpu else ""
    about = (
        f"{fmt.with_unit(spent.wall_s, 's', 1)} from the end of starting up to the last step; "
        f"unattributed is time that no measurement explains{on_cpu}"
    )
    title = "Where the wall time went"
    yield section(title, share_bar(title, shares), table((), rows), about=about)


def settings(snapshot: Snapshot) -> Iterator[Element]:
    tried: dict[str, dict[str, None]] = {}
    for result in snapshot.results:
        if result.workload == snapshot.workload:
            for name, value in result.settings.items():
                tried.setdefault(name, {})[value] = None
    active = [
        element(
            "div", element("dt", name), element("dd", value, *_others(tried.get(name, ()), value))
        )
        for name, value in snapshot.settings.items()
    ]
    if active:
        notes = [element("p", note, class_="dim") for note in snapshot.notes]
        about = "every active lever at the end, and what else was tried"
        yield section("Settings", element("dl", *active, class_="settings"), *notes, about=about)


def _others(tried: Iterable[str], value: str) -> Iterator[Element]:
    others = [one for one in tried if one != value]
    if others:
        yield element("small", f" also {', '.join(others)}")


def _unread(snapshot: Snapshot) -> str:
    """Return what could not be read of the GPUs at the end; empty if all was."""
    if snapshot.gpu_missing:
        return snapshot.gpu_missing
    missing = snapshot.gpu_unread | snapshot.gpus_lost
    return "; ".join(f"{what}: {why}" for what, why in missing.items())


def provenance(run: Replayed) -> Iterator[Element]:
    process, origin = run.process, run.origin
    versions = origin.versions | (process.versions if process else {})
    device = run.snapshot.device
    rows = [
        ("command", shlex.join(origin.command)),
        ("device", device.name if device else ""),
        ("GPU", (device.uuid or "") if device else ""),
        ("machine", origin.machine or ""),
        ("platform", origin.platform),
        *versions.items(),
        ("recorded every", f"{origin.interval_s:g} s"),
        ("GPU readings", _unread(run.snapshot)),
        ("samples", "; ".join(unreadable(run.snapshot.skipped_samples))),
    ]
    known = [(name, value) for name, value in rows if value]
    yield section("How it was made", scrolling(table((), map(texts, known))))
    if run.notices:
        items = (element("li", text) for text in run.notices[-MOST_LINES:])
        yield section("What gpudash said", element("ul", *items))
