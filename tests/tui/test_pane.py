"""The pane at the bottom, mounted alone: tabs, history, log, and scrolling."""

import math
import re
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed
from rich.cells import cell_len
from textual import events

from gpudash import format as fmt
from gpudash.present.cells import Scroll, bar_of, fitted
from gpudash.present.history import history_rows, table_of
from gpudash.protocol.answer import Answer
from gpudash.snapshot import KEPT_LINES, SampleEnergy, Snapshot
from gpudash.tui.widgets.log import is_trouble, log_rows
from gpudash.tui.widgets.pane import TITLES, Pane
from tests.tui.alone import Alone
from tests.tui.comparisons import CONCLUDED, compared, comparing, text_of
from tests.tui.driving import mouse
from tests.tui.fake_engine import result, training
from tests.tui.frames import painted

SIZES = [(200, 12), (80, 8), (40, 6), (20, 5), (8, 3), (1, 1)]
NAMES = [
    "دفعة=8",
    "שכבות=on",
    "批量=" + "大" * 40,
    "batch_size=16 " * 12,
    "e\u0301" * 30,
    "\x1b[31m",
]
BATCHES = tuple(
    result(number, f"batch_size={number}", 200.0 + number, live=number == 500)
    for number in range(1, 501)
)


class Seen:
    """A pane at a size, and what it shows."""

    def __init__(self, snapshot=None, size=(120, 10), lines=()):
        self.pane, self.size = Pane(), size
        self.pane.show(snapshot or training(), lines)
        self.lines()  # it knows its size

    def lines(self, *, focused=True):
        return painted(self.pane, self.size, focused=focused)

    @property
    def rule(self):
        return self.lines()[0]

    @property
    def foot(self):
        return self.lines()[-1]

    @property
    def chosen(self):
        return self.pane.chosen_result.number

    def numbers(self):
        """Of the rows in sight."""
        return [line.strip("▸ ").split()[0] for line in self.lines()[2:-1]]


@asynccontextmanager
async def running(snapshot, size=(120, 10)):
    """A pane in an app, for the mouse."""
    app = Alone(Pane())
    async with app.run_test(size=size) as pilot:
        app.widget.show(snapshot)
        await pilot.pause()
        yield app, pilot


def drawn(results, width, *, rows=9, price=None):
    table = table_of(Snapshot(results=results, price=price), on_gpu=True)
    shown = Scroll().in_sight(len(table.results), rows)
    return text_of(history_rows(table, shown, width))


# ── tabs ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("what", "snapshot", "columns", "said"),
    [
        ("titles shorten where there is little room", None, 34,
         " ━ ⁵hist ━ A/B ━ prof ━ log ━"),
        ("a running comparison is seen from every tab", comparing(9), 120, "A/B ◌"),
        ("rows say that they prove nothing", None, 120, "tried one after another: no proof"),
    ],
)  # fmt: skip
def test_the_rule(what, snapshot, columns, said):
    assert said in Seen(snapshot, (columns, 6)).rule, what


def test_nothing_but_the_user_opens_a_tab():
    one = Seen().pane
    one.show(comparing(2), ["Traceback (most recent call last):"])
    one.show(CONCLUDED)
    assert one.tab == "history"


async def test_only_rows_that_changed_are_painted_and_none_without_news(monkeypatch):
    async with running(training()) as (app, _):
        one, drawn_rows = app.widget, []
        one.render_line(0)
        monkeypatch.setattr(one, "refresh", lambda *regions, **_: drawn_rows.extend(regions))
        one.show(training(moved=1.0))
        assert [region.y for region in drawn_rows] == [3]
        monkeypatch.setattr(one, "rows", None)  # would fail if it were called
        one.show(training(moved=1.0))


# ── history ─────────────────────────────────────────────────────────────────────────────


@given(st.floats(-1, 2), st.integers(-1, 60))
def test_a_bar_never_leaves_its_column(share, width):
    assert len(bar_of(share, width)) <= max(width, 0)


def test_a_bar_ends_on_an_eighth_of_a_column():
    assert [bar_of(eighth / 16, 2) for eighth in (0, 1, 8, 9, 16)] == ["", "▏", "█", "█▏", "██"]


def test_steps_are_counted_where_samples_are_unknown():
    rows = tuple(changed(row, samples_per_s=None) for row in training().results)
    head, first, _ = drawn(rows, 118)
    assert "steps/s" in head
    assert "samples/s" not in head
    assert " 276 █" in first


@pytest.mark.parametrize("absent", [None, math.nan, math.inf])
def test_what_was_not_measured_is_a_dash_without_a_bar(absent):
    row = result(1, "a", 1.0, samples_per_s=absent, steps_per_s=absent, live=True)
    row = changed(row, values={"gpu_util_pct": 85.0})
    line = drawn((result(2, "b", 5.0), row), 118)[-1]
    assert line.count("–") == 2
    assert "█" not in line


@pytest.mark.parametrize("value", [1e-6, 4.3, 1e12])
@pytest.mark.parametrize("width", [58, 78, 118, 198, 400])
def test_no_number_is_cut_at_any_width(value, width):
    rows = (result(1, "pipelined=on batch_size=16", value), result(2, "x " * 60, value))
    head, *lines = drawn(rows, width)
    assert cell_len(head) <= width
    for line, row in zip(lines, rows, strict=True):
        assert cell_len(line) <= width
        assert fmt.significant(row.samples_per_s) in line.split()
        if "step, ms" in head:
            assert fmt.milliseconds(row.step_ms_p50) in line.split()


@given(st.text(), st.integers(0, 40))
def test_a_fitted_text_takes_exactly_its_room(text, width):
    assert cell_len(fitted(fmt.plain(text), width)) == width


def test_a_narrow_history_goes_without_columns_in_their_order():
    for width in range(50, 140):
        head = drawn(training().results, width)[0]
        kept = [title in head for title in ("GPU busy", "step, ms")]
        assert kept == sorted(kept)
        assert "samples/s" in head
        assert "setting" in head


def test_joules_of_a_sample_have_a_column_once_a_setting_has_them():
    plain, other = training().results[:2]
    metered = changed(other, energy=SampleEnergy(joules=1.25, within_j=0.0125))
    head, *rows = drawn((plain, metered), 140)
    end = head.index("J a sample") + len("J a sample")
    assert [row[:end].split("  ")[-1].strip() for row in rows] == ["–", "1.250 ± 0.013"]
    assert "J a sample" not in drawn((plain, other), 140)[0]
    assert "J a sample" not in drawn((plain, metered), 50)[0]


def test_with_a_price_each_setting_has_its_cost():
    rows = (result(1, "pipelined=off", 100.0), result(2, "pipelined=on", 200.0))
    head, *lines = drawn(rows, 140, price=28.8)
    end = head.index("cost of 1M") + len("cost of 1M")
    assert [line[:end].split()[-1] for line in lines] == ["10.00", "5.00"]
    assert "cost of 1M" not in drawn(rows, 140)[0]


def test_a_setting_loses_whole_words_not_half_a_number():
    lines = drawn((result(1, "pipelined=on channels_last=on batch_size=1024", 1.0),), 42)
    assert re.search(r"(channels_last=on…|pipelined=on…)", lines[1])
    assert "batch_size=1" not in lines[1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("batch_size=1048576", "batch_size=…  "),
        ("1048576", "1048576       "),
        ("大" * 9, "大" * 6 + "… "),
    ],
)
def test_a_text_of_one_word_loses_a_number_whole(text, shown):
    assert fitted(text, 14) == shown


def test_painting_reads_only_the_rows_in_sight():
    read = set()

    class Watched(tuple):
        __slots__ = ()

        def __getitem__(self, index):
            read.add(index)
            return super().__getitem__(index)

        def __iter__(self):
            raise AssertionError("all rows are read")

    table = changed(table_of(Snapshot(results=BATCHES), on_gpu=True), results=Watched(BATCHES))
    list(history_rows(table, Scroll().in_sight(len(table.results), 9), 118))
    assert len(read) == 9


def test_before_a_setting_was_tried_it_says_what_will_stand_here():
    assert drawn((), 78) == ["   each setting that you try has a row here"]


def test_nothing_in_the_history_is_coloured_and_the_present_setting_is_bold():
    rows = (*training().results, result(3, "slow", 10.0))
    table = table_of(Snapshot(results=rows), on_gpu=True)
    head, first, live, last = history_rows(table, range(3), 118)
    assert {ink for _, ink in head} == {"head"}
    for row in (first, last):
        assert {ink for _, ink in row} == {"dim", "text", "rate"}
    assert {ink for _, ink in live} == {"dim", "strong", "rate"}


# ── the cursor ──────────────────────────────────────────────────────────────────────────


def of_rows(begin, end=None):
    return changed(training(), results=BATCHES[begin:end])


def test_the_row_under_the_cursor_is_marked_while_the_panel_has_the_focus():
    one = Seen()
    one.pane.scroll_rows(-1)
    assert [line[1] for line in one.lines()[2:4]] == ["▸", " "]
    assert one.chosen == 1
    assert "▸" not in "".join(one.lines(focused=False))


def test_the_cursor_stops_at_both_ends_and_follows_the_last_row_again():
    one = Seen(of_rows(0, 50))
    one.pane.scroll_rows(-1000)
    assert one.chosen == 1
    one.pane.scroll_rows(1000)
    one.pane.show(of_rows(0, 60))
    assert one.chosen == 60


def test_the_cursor_stays_on_its_row_as_the_oldest_ones_are_dropped():
    one = Seen(of_rows(0, 50))
    one.pane.find("batch_size=30")
    before = one.numbers()
    one.pane.show(of_rows(4, 53))
    assert one.chosen == 30
    assert one.numbers() == before  # nothing has scrolled
    one.pane.show(of_rows(40, 90))
    assert one.chosen > 30  # it is gone itself


def test_what_is_out_of_sight_is_counted_in_the_rule():
    one = Seen(of_rows(0))
    assert "492 rows above ↑" in one.rule
    one.pane.scroll_pages(-1)
    one.pane.scroll_pages(-1)
    before = re.findall(r"([\d,]+) rows? (above|below)", one.rule)
    assert sum(int(count) for count, _ in before) == 492
    assert [where for _, where in before] == ["above", "below"]


async def test_a_click_chooses_the_row_under_the_pointer_and_the_wheel_moves_the_cursor():
    async with running(of_rows(0)) as (app, pilot):
        for y, number in ((4, 495), (2, 493)):
            await pilot.click(offset=(20, y))
            assert app.widget.chosen_result.number == number
        await mouse(pilot, [events.MouseScrollUp], app.widget, offset=(9, 4))
        assert app.widget.chosen_result.number == 492


def test_find_goes_from_one_match_to_the_next_and_round():
    one = Seen(of_rows(0))
    for text, found in (("SIZE=49", 49), ("size=49", 490)):
        assert one.pane.find(text)
        assert one.chosen == found
    for _ in range(10):
        one.pane.find("size=49")
    assert one.chosen == 49
    assert not one.pane.find("nowhere")
    assert one.chosen == 49


# ── the A/B ─────────────────────────────────────────────────────────────────────────────


async def test_tabs_are_buttons():
    async with running(training()) as (app, pilot):
        await pilot.click(offset=(app.lines()[0].index("profile") + 1, 0))
        assert app.asked == ["pane('profile')"]


# ── the log ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("what", "lines", "last", "width", "rows"),
    [
        ("it is wrapped and ends with its newest line", ["a", "b" * 25, ""], 2, 12,
         [f" {'b' * 10}", f" {'b' * 10}", f" {'b' * 5}", " "]),
        ("wide characters are wrapped by the cells they take", ["日本語 日本語"], 0, 9,
         [" 日本語", " 日本語"]),
    ],
)  # fmt: skip
def test_the_log(what, lines, last, width, rows):
    assert text_of(log_rows(lines, last, width, 4)) == rows, what


@pytest.mark.parametrize("width", [20, 60, 80])
def test_a_call_of_a_stack_is_not_broken_within_a_word(width):
    call = "  /usr/lib/python3.11/site-packages/torch/autograd/graph.py:829 _engine_run_backward"
    rows = [*text_of(log_rows([call], 0, width, 9))]
    assert max(map(len, rows)) <= width - 1
    assert all(row.startswith("   ") for row in rows)
    for word in ("site-packages", "autograd", "graph.py:829"):
        assert any(word in row for row in rows)


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ("gpudash: the recording has ended", True),
        ("Traceback (most recent call last):", True),
        ("torch.cuda.OutOfMemoryError: no memory", True),
        ("/lib/x.py:12: UserWarning: slow", True),
        ("epoch 3, error 0.4", False),
        ("  File gpudash: no", False),
    ],
)
def test_warnings_and_errors_are_recognised(line, trouble):
    assert is_trouble(line) == trouble


def test_lines_are_unread_until_the_log_is_seen_and_trouble_is_marked():
    one = Seen(lines=["fine"])
    assert "log 1 " in one.rule
    one.pane.show(training(), ["Traceback (most recent call last):", "fine"])
    assert "log 3! " in one.rule
    one.pane.open("log")
    assert "⁵log ━" in one.rule
    one.pane.show(training(), ["read at once"])
    one.pane.open("history")
    assert " log ━" in one.rule


def test_the_log_follows_its_end_until_it_is_scrolled():
    one = Seen(lines=[f"line {number}" for number in range(100)])
    one.pane.open("log")
    assert "line 99 " in one.foot
    one.pane.scroll_rows(-1)
    one.pane.show(training(), ["more"])
    assert "line 98 " in one.foot
    assert "2 lines below ↓" in one.rule
    one.pane.scroll_rows(-1000)
    assert "line 0 " in one.lines()[1]
    one.pane.scroll_rows(1000)
    one.pane.show(training(), ["last"])
    assert "last " in one.foot


def test_what_is_being_read_stays_as_the_oldest_lines_are_dropped():
    one = Seen(lines=[f"line {number}." for number in range(KEPT_LINES)])
    one.pane.open("log")
    one.pane.find("line 1500.")
    one.pane.show(training(), ["more"] * 100)
    assert "line 1500." in one.foot


# ── whatever it is given ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tab", TITLES)
def test_any_size_and_any_name_is_painted_whole(tab):
    rows = tuple(result(number, name, 10.0**number) for number, name in enumerate(NAMES, 1))
    hostile = [compared(n, a=name, b=name, lever=name) for n, name in enumerate(NAMES)]
    one = Seen(changed(training(), results=rows), lines=NAMES)
    one.pane.open(tab)
    for one.size in SIZES:
        for shown in (None, *hostile, changed(hostile[5], verdict="v " * 200)):
            one.pane.show(changed(training(), results=rows, comparison=shown, verdicts=hostile))
            lines = one.lines()
            assert "\x1b" not in "".join(lines)
            assert {*map(cell_len, lines)} == {one.size[0]}
        one.pane.scroll_rows(-3)
        one.pane.scroll_pages(1)
        one.pane.find("批")


def test_what_a_tab_leaves_free_tells_why():
    why = ("without         it takes", "  data          4.00 ms")
    answer = Answer(limit="data", title="input-bound", why=why)
    pane = Pane()
    pane.show(changed(training(), answer=answer))
    assert why[1] in "\n".join(painted(pane, (80, 20)))
    assert why[1] not in "\n".join(painted(pane, (80, 8)))
