"""A report has the dashboard's numbers, and text of a recording never becomes markup."""

import math
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from msgspec.structs import replace as change

from gpudash.diagnosis.limits import Limited
from gpudash.format import significant
from gpudash.present.markup import document, element, number
from gpudash.protocol.answer import Gain, Try, Without
from gpudash.protocol.session import EnergyFound, Slope
from gpudash.report.charts import (
    MOST_BINS,
    bins_of_all,
    interval_chart,
    reach_of,
    step_chart,
    throughput_chart,
)
from gpudash.report.page import POLICY
from gpudash.snapshot import Marker, Result, Series, Snapshot
from gpudash.views.time_breakdown import TimeBreakdown
from tests.diagnosis.trainings import answered
from tests.report.pages import FAILED, METADATA, page_of
from tests.tui import scenes, scripts

EVIL = "<script>alert(1)</script>\x1b[2J'\"&"
SCENES = ("starting", "running", "serial", "comparing", "decided", "without_gpu", "failed")


class Read(HTMLParser):
    """A page as a browser would parse it."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        return "\n".join(self.texts)


def long_run(ticks, markers=0, results=0, names=10):
    level = tuple(100 + 10 * math.sin(tick / 50) for tick in range(ticks))
    known = scenes.running()
    values = dict.fromkeys(list(known.series.values)[:names], level)
    return change(
        known,
        elapsed_s=ticks / 2,
        series=Series(at_s=tuple((tick + 1) / 2 for tick in range(ticks)), values=values),
        markers=tuple(
            Marker(kind="change", at_s=3.0 * one, label=f"batch_size={one}")
            for one in range(markers)
        ),
        results=tuple(
            Result(number=one, configuration=f"batch_size={one}", steps=10)
            for one in range(results)
        ),
    )


@pytest.mark.parametrize("scene", SCENES)
def test_every_state_of_a_run_is_a_page_in_which_every_tag_is_closed(scene):
    found = Read(page_of(getattr(scenes, scene)()))
    assert found.open == []
    assert found.tags.count("h1") == 1


def test_nothing_is_fetched_and_nothing_is_run():
    html = page_of(scenes.decided())
    found = Read(html)
    assert not {"script", "link", "img", "iframe", "object", "a"} & set(found.tags)
    assert not {"src", "href", "onload", "onclick"} & {name for name, _ in found.attributes}
    assert "url(" not in html
    assert "@import" not in html
    assert ("http-equiv", "Content-Security-Policy") in found.attributes
    assert ("content", POLICY) in found.attributes


def test_the_numbers_are_those_of_the_dashboard():
    snapshot = answered(scenes.decided())
    answer = snapshot.answer
    text = Read(page_of(snapshot, limits=(Limited(answer, 30.0, 1.0, (0.5,)),))).text
    for result in snapshot.results:
        assert significant(result.samples_per_s) in text
        assert significant(result.step_ms_p95) in text
    assert snapshot.verdicts[-1].verdict in text
    words = " ".join(text.split())
    said = f"Compute-bound for 100 % of the training time ; the last time: {answer.evidence[0]}"
    assert said.replace(" ;", ";") in words.replace(" ;", ";")
    assert "What limited it" not in text
    assert "encdec on NVIDIA H200" in text


def test_the_page_says_what_limited_the_run_for_which_share_and_when_that_changed():
    waits, busy = (answered(one()).answer for one in (scenes.serial, scenes.running))
    waits = change(waits, title="input-bound", evidence=("waits 3 of 10 ms", EVIL))
    limited = (Limited(waits, 42.0, 0.7, (0.5, 61.0)), Limited(busy, 15.0, 0.25, (30.0,)))
    text = Read(page_of(scenes.running(), limits=limited)).text
    assert "Input-bound for 70 % of the training time" in text
    for said in ("What limited it", "42.0 s", "0:00, 1:01", busy.title, "25 %", "0:30"):
        assert said in text
    assert "<script>" in text  # as text


def test_the_page_says_what_the_parts_of_a_step_take_and_what_each_lever_would_bring():
    known = answered(scenes.running()).answer
    gain = Gain(5.0, 20.0)
    tries = (Try("precision", "bf16", "half the bits", "fp32", gain), Try("compile", "on", "fuses"))
    slopes = (Slope(part="device", slope=1.02, low=0.94, high=1.1),)
    parts = (Without("device", 1.25, 2.5, 9.25), Without("data", 8.0, 8.0, 2.0))
    known = change(known, tries=tries, slopes=slopes, parts=parts)
    text = Read(page_of(scenes.running(), limits=(Limited(known, 30.0, 1.0, (0.5,)),))).text
    for said in ("A step without its parts", "9.25", "1.25", "2.50", "1.02 ± 0.08"):
        assert said in text
    for said in ("What to try", "precision=bf16", "+5 to +20 %", "compile=on", "–"):
        assert said in text


def test_lever_changes_are_marked_in_every_chart_and_named():
    snapshot = scenes.running()
    html = page_of(snapshot)
    for one in snapshot.markers:
        assert one.label in Read(html).text
    charts = html.count("<svg") - len(snapshot.verdicts) - 1  # of intervals, and of the account
    assert html.count('class="marker"') == charts * len(snapshot.markers)
    assert charts >= 5


OTHERS = "or in which other processes had the cores"
SPENT = TimeBreakdown(wall_s=10.0, phases_s=5.0, evaluation_s=4.0, checkpoint_s=1.0)
ENERGY = EnergyFound(
    per="sample",
    pairs=16,
    joules=(0.75, 0.6),
    within=(0.002, 0.002),
    change=-0.2,
    low=-0.21,
    high=-0.19,
    confidence=0.95,
    sensor=0.05,
)
METERED = change(scenes.decided().verdicts[0], energy=ENERGY, gpus=1)


@pytest.mark.parametrize(
    ("what", "snapshot", "how", "said", "hidden"),
    [
        ("that a recording was not closed", scenes.running(),
         {"metadata": change(METADATA, complete=False)}, ["It was not closed in order"], []),
        ("or that it is complete, what its time was spent on, and where it comes from",
         scenes.running(), {},
         ["complete", "60.0 s", "training", "paused", "4.00 s", "unattributed", "10.0 %",
          "gpudash encdec --record run.csv", "570.1", "Linux-6.1", "2026-01-02 03:04:05",
          "gpudash report run.csv -o run.html"],
         ["It was not closed", "waiting for data", "evaluation", OTHERS, "Ranks"]),
        ("nothing of a GPU without one, but that others may have had the cores",
         scenes.without_gpu(), {}, ["Host", OTHERS], ["GPU and host"]),
        ("that there was no step", Snapshot(), {}, ["No step was measured."], []),
        ("each failure with its moment", scenes.failed(), {"failures": (FAILED,)},
         ["1:05", "out of memory at batch_size=64"], []),
        ("the time of evaluations and checkpoints", scenes.running(), {"account": SPENT},
         ["evaluation", "40.0 %", "saving checkpoints", "10.0 %"], []),
        ("the joules of a verdict, and with a price what it saves",
         change(scenes.decided(), verdicts=(METERED,)), {"price": 2.75},
         ["0.7500 ± 0.0020 J", "at 2.75 an hour for a GPU, a million samples cost"], []),
        ("no price that nobody has named", scenes.decided(), {}, [], ["an hour"]),
        ("several ranks in a table", scripts.of_gpus(4), {}, ["Ranks", "1,410"], []),
    ],
)  # fmt: skip
def test_the_page_says(what, snapshot, how, said, hidden):
    text = Read(page_of(snapshot, **how)).text
    assert [words for words in said if words not in text] == [], what
    assert [words for words in hidden if words in text] == [], what


def test_markup_in_a_text_stays_text():
    known = scenes.decided()
    evil = change(
        known,
        workload=EVIL,
        device=change(known.device, name=EVIL, uuid=EVIL),
        settings={EVIL: EVIL},
        notes=(EVIL,),
        markers=(Marker(kind="change", at_s=3.0, label=EVIL),),
        phases=tuple(change(one, label=EVIL) for one in known.phases),
        results=(*(change(one, configuration=EVIL) for one in known.results),),
        verdicts=tuple(
            change(one, lever=EVIL, a=EVIL, b=EVIL, verdict=EVIL) for one in known.verdicts
        ),
    )
    html = page_of(evil, name=EVIL, failures=(change(FAILED, sentence=EVIL),), notices=(EVIL,))
    found = Read(html)
    assert "script" not in found.tags
    assert "<script" not in html
    assert "\x1b" not in html
    assert found.text.count("<script>alert(1)</script>␛[2J'\"&") >= 10


def test_a_page_stays_small_whatever_the_recordings_length():
    small = len(page_of(long_run(MOST_BINS)))
    assert len(page_of(long_run(1680, markers=200, results=200, names=40))) < 600_000
    assert len(page_of(long_run(1680))) < 1.2 * small


@pytest.mark.parametrize("ticks", [1, 2, 40, 319, 320, 321, 1680])
def test_bins_are_contiguous_and_have_every_tick_once(ticks):
    bins = bins_of_all(long_run(ticks).series, ticks / 2)
    assert len(bins.stretches) <= MOST_BINS
    assert [tick for one in bins.stretches for tick in range(*one.indices(ticks))] == list(
        range(ticks)
    )
    assert [column for column, _ in bins.bins] == list(range(len(bins.bins)))
    assert len(bins.bins) * bins.time_range.bin_s == pytest.approx(ticks / 2)


def test_neighbouring_columns_of_a_step_share_their_edges():
    """A gap of a tenth would be drawn as a white line."""
    snapshot = long_run(400)
    chart, parts = step_chart(snapshot, bins_of_all(snapshot.series, 200.0))
    assert len(parts) >= 2
    for path in (one.get("d") for one in chart if (one.get("class") or "").startswith("fill")):
        begins = re.findall(r"M([\d.]+) ", path)
        ends = re.findall(r"H([\d.]+)V", path)
        assert begins[1:] == ends[:-1]


def test_many_lever_changes_are_folded_away():
    assert "<details open" in page_of(long_run(400, markers=5))
    assert "<details>" in page_of(long_run(400, markers=60))


def test_a_curve_is_broken_where_nothing_was_measured():
    known = long_run(40)
    gap = tuple(None if 10 <= tick < 20 else 5.0 for tick in range(40))
    series = change(known.series, values={"samples_per_s": gap})
    snapshot = change(known, series=series, markers=())
    bins = bins_of_all(series, 20.0)
    runs = bins.runs(series, gap)
    assert [len(run) for run in runs] == [10, 20]
    chart = throughput_chart(snapshot, bins)
    lines = [one.get("d") for one in chart if one.get("class") == "line rate"]
    assert len(lines) == 2
    assert all(re.fullmatch(r"M[\d. L]+", line) for line in lines)


def test_labels_without_room_are_left_out_and_none_overlap():
    snapshot = long_run(400, markers=60)
    chart = throughput_chart(snapshot, bins_of_all(snapshot.series, 200.0))
    labels = [one for one in chart if one.get("class") == "label"]
    assert 0 < len(labels) < 60
    rows = {}
    for one in labels:
        rows.setdefault(one.get("y"), []).append((float(one.get("x")), len(one.text)))
    for row in rows.values():
        for (x, letters), (following, _) in pairwise(row):
            assert x + 6 * letters < following


def test_an_interval_is_drawn_to_scale():
    (shown,) = scenes.decided().verdicts
    chart = interval_chart(shown, reach_of([shown]))
    whisker = next(one for one in chart if one.get("class") == "whisker")
    zero = next(one for one in chart if one.get("class") == "zero")
    assert float(zero.get("x1")) < float(whisker.get("x1")) <= float(whisker.get("x2")) <= 180
    assert interval_chart(change(shown, low=None), 0.1) is None


def test_markup_escapes_and_rounds():
    made = element("p", "a<b", element("b", "&"), " c", None, class_="x", data_at=1.25, none=None)
    assert document(made) == (
        '<!DOCTYPE html>\n<p class="x" data-at="1.2">a&lt;b<b>&amp;</b> c</p>\n'
    )
    assert [number(value) for value in (1.0, 1.04, 1.06, -0.5)] == ["1", "1", "1.1", "-0.5"]
