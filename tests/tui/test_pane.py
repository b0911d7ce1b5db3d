"""The pane at the bottom, mounted alone: tabs, history, log, and scrolling."""

import math
import re
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events
from textual.app import App

from gpudash import format as fmt
from gpudash.snapshot import KEPT_LINES, SampleEnergy, Snapshot
from gpudash.tui.cells import bar_of, fitted
from gpudash.tui.scroll import Scroll
from gpudash.tui.widgets.history import history_rows, table_of
from gpudash.tui.widgets.log import is_trouble, log_rows
from gpudash.tui.widgets.pane import TITLES, Pane
from tests.tui.comparisons import CONCLUDED, compared, comparing, text_of
from tests.tui.driving import mouse
from tests.tui.fake_engine import result, settings, training

changed = msgspec.structs.replace
SIZES = [(200, 12), (120, 10), (80, 8), (60, 8), (40, 6), (20, 5), (8, 3), (3, 2), (1, 1)]
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


class Alone(App[None]):
    """Nothing but the pane."""

    CSS = "Pane { width: 1fr; height: 1fr; }"

    def __init__(self):
        super().__init__()
        self.ran = []

    def compose(self):
        yield Pane()

    async def run_action(self, action, *args, **kwargs):
        self.ran.append(action)
        return True


@asynccontextmanager
async def pane(snapshot=None, size=(120, 10), lines=()):
    app = Alone()
    async with app.run_test(size=size) as pilot:
        app.pilot = pilot
        one = app.query_one(Pane)
        one.show(snapshot or training(), lines)
        await pilot.pause()
        yield one


def seen(one):
    return [one.render_line(y).text for y in range(one.size.height)]


def numbers(one):
    """Of the rows in sight."""
    return [line.strip("▸ ").split()[0] for line in seen(one)[2:-1]]


def drawn(results, width, *, rows=9, price=None, **options):
    table = table_of(Snapshot(results=results, price=price), on_gpu=True)
    shown = Scroll().in_sight(len(table.results), rows)
    return text_of(history_rows(table, shown, width, **options))


# ── tabs ────────────────────────────────────────────────────────────────────────────────


async def test_tabs_stand_in_the_rule_with_what_is_in_them():
    snapshot = changed(CONCLUDED, verdicts=(CONCLUDED.comparison,))
    async with pane(snapshot, lines=["one", "two"]) as one:
        assert "⁵history 2 ━ A/B 1 ━ profile ━ log 2 ━" in seen(one)[0]


async def test_the_open_tab_is_marked_without_colour():
    async with pane() as one:
        for tab, (title, _) in TITLES.items():
            one.open(tab)
            assert f"⁵{title}" in seen(one)[0]
            assert seen(one)[0].count("⁵") == 1


async def test_next_tab_goes_round():
    async with pane() as one:
        tabs = []
        for _ in range(5):
            tabs.append(one.tab)
            one.next_tab()
        assert tabs == ["history", "ab", "profile", "log", "history"]


async def test_a_tab_is_a_button():
    async with pane() as one:
        x = seen(one)[0].index("profile")
        await one.app.pilot.click(offset=(x + 2, 0))
        assert "pane('profile')" in one.app.ran


async def test_titles_shorten_where_there_is_little_room():
    async with pane(size=(34, 6)) as one:
        assert seen(one)[0].startswith(" ━ ⁵hist ━ A/B ━ prof ━ log ━")


async def test_a_running_comparison_is_seen_from_every_tab():
    async with pane(comparing(9)) as one:
        assert "A/B ◌" in seen(one)[0]


async def test_nothing_but_the_user_opens_a_tab():
    async with pane() as one:
        one.show(comparing(2), ["Traceback (most recent call last):"])
        one.show(CONCLUDED)
        assert one.tab == "history"


async def test_the_timeline_says_that_nothing_has_been_profiled():
    async with pane() as one:
        one.open("profile")
        assert "no profile of this run yet" in seen(one)[1]


async def test_only_rows_that_changed_are_painted_and_none_without_news(monkeypatch):
    async with pane() as one:
        drawn_rows = []
        monkeypatch.setattr(one, "refresh", lambda *regions, **_: drawn_rows.extend(regions))
        one.show(training(moved=1.0))
        assert [region.y for region in drawn_rows] == [3]
        monkeypatch.setattr(one, "rows", None)  # would fail if it were called
        one.show(training(moved=1.0))


# ── history ─────────────────────────────────────────────────────────────────────────────


def test_each_number_stands_under_its_title_with_a_unit():
    (head, first, _) = drawn(training().results, 118)
    assert " ".join(head.split()) == "samples/s step, ms GPU busy setting"
    for title, number in (("step, ms", "3.62"), ("GPU busy", "86 %")):
        assert head.index(title) + len(title) == first.index(number) + len(number)
    assert head.index("setting") == first.index("batch_size=8")


def test_no_row_says_how_it_compares_with_another():
    text = "\n".join(drawn((*training().results, result(3, "fast", 552.8)), 118))
    for sign in ("×", "%", "faster", "proven"):
        assert sign not in text.replace("86 %", "").replace("87 %", "").replace("88 %", "")


def test_bars_are_to_scale():
    rows = (result(1, "a", 100.0), result(2, "b", 200.0), result(3, "c", 50.0))
    bars = [line.count("█") for line in drawn(rows, 118)[1:]]
    assert bars[1] >= 20
    assert bars[1] // 2 == bars[0]
    assert bars[1] // 4 == bars[2]


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
    row = result(1, "a", 1.0, samples_per_s=absent, step_ms_p50=absent, live=True)
    row = msgspec.structs.replace(row, values={"gpu_util_pct": 85.0})
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


def test_without_a_head_no_number_is_without_a_unit():
    (line,) = drawn((result(1, "pipelined=off", 100.0),), 80, rows=1, head=False)
    assert re.fullmatch(r" +1 +800 samples/s [█▏▎▍▌▋▊▉]+ +pipelined=off *", line)


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


def test_the_newest_rows_are_in_sight():
    lines = drawn(BATCHES, 118)
    assert [line.split()[0] for line in lines[1:]] == [*map(str, range(492, 501))]


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


async def test_a_single_row_has_the_newest_setting_and_no_head():
    async with pane(size=(80, 2)) as one:
        assert "pipelined=on" in seen(one)[1]
        assert "1 row above" in seen(one)[0]


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


async def test_the_row_under_the_cursor_is_marked_while_the_panel_has_the_focus():
    async with pane() as one:
        one.scroll_rows(-1)
        assert [line[1] for line in seen(one)[2:4]] == ["▸", " "]
        assert one.chosen_result.number == 1
        one.blur()
        await one.app.pilot.pause()
        assert "▸" not in "".join(seen(one))


async def test_the_cursor_stops_at_both_ends_and_follows_the_last_row_again():
    async with pane(changed(training(), results=BATCHES[:50])) as one:
        one.scroll_rows(-1000)
        assert one.chosen_result.number == 1
        one.scroll_rows(1000)
        one.show(changed(training(), results=BATCHES[:60]))
        assert one.chosen_result.number == 60


async def test_the_cursor_stays_on_its_row_as_the_oldest_ones_are_dropped():
    async with pane(changed(training(), results=BATCHES[:50])) as one:
        one.find("batch_size=30")
        before = numbers(one)
        one.show(changed(training(), results=BATCHES[4:53]))
        assert one.chosen_result.number == 30
        assert numbers(one) == before  # nothing has scrolled
        one.show(changed(training(), results=BATCHES[40:90]))
        assert one.chosen_result.number > 30  # it is gone itself


async def test_what_is_out_of_sight_is_counted_in_the_rule():
    async with pane(changed(training(), results=BATCHES)) as one:
        assert "493 rows above ↑" in seen(one)[0]
        one.scroll_pages(-1)
        one.scroll_pages(-1)
        before = re.findall(r"([\d,]+) rows? (above|below)", seen(one)[0])
        assert sum(int(count) for count, _ in before) == 493
        assert [where for _, where in before] == ["above", "below"]


async def test_a_click_chooses_the_row_under_the_pointer():
    async with pane(changed(training(), results=BATCHES)) as one:
        await one.app.pilot.click(offset=(20, 4))
        assert one.chosen_result.number == 496
        await one.app.pilot.click(offset=(20, 2))
        assert one.chosen_result.number == 494


async def test_the_wheel_moves_the_cursor():
    async with pane(changed(training(), results=BATCHES)) as one:
        await mouse(one.app.pilot, [events.MouseScrollUp], one, offset=(9, 4))
        assert one.chosen_result.number == 499


async def test_a_row_does_not_offer_its_levers_where_none_can_be_moved():
    async with pane(changed(training(), can=())) as one:
        assert "y copy" in seen(one)[-1]
        assert "use these levers" not in seen(one)[-1]
        one.show(training())
        assert "use these levers" in seen(one)[-1]


async def test_a_row_offers_its_levers_and_says_that_it_proves_nothing():
    async with pane() as one:
        assert seen(one)[-1].strip().startswith("tried one after another: no proof")
        assert "y copy" in seen(one)[-1]
        assert "⏎ use these levers" in seen(one)[-1]
        await one.app.pilot.click(offset=(seen(one)[-1].index("use these"), 9))
        assert "use_row" in one.app.ran


async def test_find_goes_from_one_match_to_the_next_and_round():
    async with pane(changed(training(), results=BATCHES)) as one:
        assert one.find("SIZE=49")
        assert one.chosen_result.number == 49
        assert one.find("size=49")
        assert one.chosen_result.number == 490
        for _ in range(10):
            one.find("size=49")
        assert one.chosen_result.number == 49
        assert not one.find("nowhere")
        assert one.chosen_result.number == 49


# ── the A/B ─────────────────────────────────────────────────────────────────────────────


async def test_a_running_comparison_says_how_far_it_is_and_one_that_is_over_offers_what_to_do():
    async with pane(comparing(9)) as one:
        one.open("ab")
        assert "pipelined=off ━ 9 of at most 40 pairs ━━" in seen(one)[0]
        one.show(CONCLUDED)
        for key, action in (
            ("⏎ sets off", "keep"),
            ("m more pairs", "more_pairs"),
            ("y copy the verdict", "copy"),
            ("Y card", "card"),
            ("S copy it for new starts", "new_starts"),
        ):
            await one.app.pilot.click(offset=(seen(one)[-1].index(key) + 1, 9))
            assert one.app.ran[-1] == action
        one.show(changed(CONCLUDED, settings=settings(pipelined="off")))
        await one.app.pilot.click(offset=(seen(one)[-1].index("o back to on") + 1, 9))
        assert one.app.ran[-1] == "go_back"


async def test_what_cannot_be_run_is_not_offered():
    async with pane(changed(CONCLUDED, can=())) as one:
        one.open("ab")
        assert "sets off" not in seen(one)[-1]
        assert "y copy the verdict" in seen(one)[-1]


# ── the log ─────────────────────────────────────────────────────────────────────────────


def test_the_log_is_wrapped_and_ends_with_its_newest_line():
    assert text_of(log_rows(["a", "b" * 25, ""], 2, 12, 4)) == [
        f" {'b' * 10}",
        f" {'b' * 10}",
        f" {'b' * 5}",
        " ",
    ]


@pytest.mark.parametrize("width", [20, 60, 80])
def test_a_call_of_a_stack_is_not_broken_within_a_word(width):
    call = "  /usr/lib/python3.11/site-packages/torch/autograd/graph.py:829 _engine_run_backward"
    rows = [*text_of(log_rows([call], 0, width, 9))]
    assert max(map(len, rows)) <= width - 1
    assert all(row.startswith("   ") for row in rows)
    for word in ("site-packages", "autograd", "graph.py:829"):
        assert any(word in row for row in rows)


def test_wide_characters_are_wrapped_by_the_cells_they_take():
    assert text_of(log_rows(["日本語 日本語"], 0, 9, 4)) == [" 日本語", " 日本語"]


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


async def test_lines_are_unread_until_the_log_is_seen_and_trouble_is_marked():
    async with pane(lines=["fine"]) as one:
        assert "log 1 " in seen(one)[0]
        one.show(training(), ["Traceback (most recent call last):", "fine"])
        assert "log 3! " in seen(one)[0]
        one.open("log")
        assert "⁵log ━" in seen(one)[0]
        one.show(training(), ["read at once"])
        one.open("history")
        assert " log ━" in seen(one)[0]


async def test_the_log_follows_its_end_until_it_is_scrolled():
    lines = [f"line {number}" for number in range(100)]
    async with pane(lines=lines) as one:
        one.open("log")
        assert "line 99 " in seen(one)[-1]
        one.scroll_rows(-1)
        one.show(training(), ["more"])
        assert "line 98 " in seen(one)[-1]
        assert "2 lines below ↓" in seen(one)[0]
        one.scroll_rows(-1000)
        assert "line 0 " in seen(one)[1]
        one.scroll_rows(1000)
        one.show(training(), ["last"])
        assert "last " in seen(one)[-1]


async def test_what_is_being_read_stays_as_the_oldest_lines_are_dropped():
    async with pane(lines=[f"line {number}." for number in range(KEPT_LINES)]) as one:
        one.open("log")
        one.find("line 1500.")
        one.show(training(), ["more"] * 100)
        assert "line 1500." in seen(one)[-1]


async def test_a_rewound_log_replaces_the_earlier_lines():
    async with pane(lines=["old"]) as one:
        one.open("log")
        one.show(training(), ["new"], rewound=True)
        assert "old" not in "".join(seen(one))
        assert "new" in seen(one)[1]


# ── whatever it is given ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tab", TITLES)
async def test_any_size_and_any_name_is_painted_whole(tab):
    rows = tuple(result(number, name, 10.0**number) for number, name in enumerate(NAMES, 1))
    hostile = [compared(n, a=name, b=name, lever=name) for n, name in enumerate(NAMES)]
    async with pane(changed(training(), results=rows), lines=NAMES) as one:
        one.open(tab)
        for size in SIZES:
            await one.app.pilot.resize_terminal(*size)
            await one.app.pilot.pause()
            for shown in (None, *hostile, changed(hostile[5], verdict="v " * 200)):
                one.show(changed(training(), results=rows, comparison=shown, verdicts=hostile))
                lines = seen(one)
                assert "failed" not in "".join(lines)
                assert "\x1b" not in "".join(lines)
                assert all(cell_len(line) == size[0] for line in lines)
            one.scroll_rows(-3)
            one.scroll_pages(1)
            one.find("批")


async def test_it_is_painted_without_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with pane(CONCLUDED, size=(80, 6)) as one:
        for tab in TITLES:
            one.open(tab)
            one.redraw()
            assert "failed" not in "".join(seen(one))
        one.open("history")
        one.redraw()
        assert " ▸ 2" in seen(one)[3]


def test_before_a_step_is_measured_the_rate_to_come_is_in_samples():
    unmeasured = changed(result(1, "a", 100.0), steps=0, steps_per_s=None, samples_per_s=None)
    assert table_of(Snapshot(results=(unmeasured,)), on_gpu=False).unit == "samples/s"
