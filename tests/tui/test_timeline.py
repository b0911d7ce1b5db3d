"""The screen of a profile: what it shows, and what its keys and the mouse do."""

from itertools import cycle, pairwise

import pytest
from msgspec.structs import replace as changed
from textual import events
from textual.content import Content

from gpudash.metrics import METRICS
from gpudash.protocol.commands import Plan
from gpudash.trace.accounting import summarise
from gpudash.tui.app import Dashboard
from gpudash.tui.keys import TIMELINE_KEYS
from gpudash.tui.screens.timeline import TimelineScreen
from tests.tui.driving import showing, strips_of
from tests.tui.fake_engine import FakeEngine, answered, training
from tests.tui.test_profiling import is_open, until
from tests.tui.traces import LANES, SUMMARY, WAITING, shown, trace_of, training_trace

RUNNING = changed(training(), can=(*training().can, "profile"))
ANSWERED = changed(answered(RUNNING), profile_of=("train.py", {}))
WAITS_DOES = ("copy", "forward", "backward", "optimizer")
WAITS = changed(training_trace(3, WAITING), device="NVIDIA H200")


def tracing(trace=None, before=None, summary=SUMMARY, snapshot=RUNNING, size=(80, 24)):
    """Say of which trace a test's dashboard shows the profile."""

    def of(test):
        test.profile = shown(training_trace() if trace is None else trace, before, summary)
        return showing(snapshot, size=size)(test)

    return of


@pytest.fixture
async def d(d, request):
    """The profile of a trace, above the dashboard."""
    d.app.push_screen(TimelineScreen(d.app.control, request.function.profile))
    await d.settle()
    return d


def view(d):
    return d.app.screen.lanes.view


# ── what is seen ────────────────────────────────────────────────────────────────────────

LOOK = """\
 train.py  profile  NVIDIA H200                      step 2 of 3  10.0 ms shown
 ─ step ───┊ 10,341 · 10.0 ms ──────────────────────────────────────────────────
           10 ms       12 ms        14 ms       16 ms          ▾
 phase     waits for data 7.00 ms ·····················▃  ▃fwd bwd      ▆
▸stream 7  ┊                                           ▂  ▃con…wgrad    ▆   26 %
 copies    ┊                                           ▂  ▂    │             4 %
 waits     ┊                                                   │ ▆cudaS…▆   12 %
 main      next(DataLoader) ···························▄  ▆ ▃ ▅▅▄▆cudaS…▆   91 %
           ┊                                           ▁  ▁  ▁ ▁             0 %
 ─ under the cursor ────────────────────────────────────────────────────────────
 wgrad
 1.00 ms from 18.3 ms · stream 7 · launched 350 µs before it began
 in autograd::engine::evaluate_function: Conv > cudaLaunchKernel
 ─ one step, mean of 3 ───────────────── ─ kernels and copies (* tensor cores) ─
   waits for data  7.00 ms  70 %  ····     autograd: Conv wgrad      1.00 ms  ██
   copy            0.40 ms   4 %  ▎        conv<float, 4> in Net     0.70 ms  █▍
   forward         0.70 ms   7 %  ▍        adamw                     0.50 ms  █
   backward        1.00 ms  10 %  ▋        copy to device, pageable  0.40 ms  ▊
   optimizer       0.50 ms   5 %  ▎      ─ what follows: the dashboard's answer
   otherwise idle  0.40 ms   4 %           x  try fused_optimizer off → on
   step            10.0 ms 100 %              up to +14 %
 ─ arithmetic and memory ───────────────   GPU-bound
   0 % of kernel time in tensor cores      the GPU is busy 91 % of the step
 tab event  / find  . step  [ zoom  s summary  T new  ? help  ^p menu  esc back
"""


@tracing(WAITS, snapshot=ANSWERED, summary=summarise(WAITS))
async def test_a_step_in_the_middle_is_shown_first_with_the_longest_kernel_and_the_summary(d):
    shown = "".join(f"{line.rstrip()}\n" for line in d.lines())
    assert shown.replace("\N{NO-BREAK SPACE}", " ") == LOOK


@tracing(WAITS, size=(120, 40), summary=summarise(WAITS))
async def test_a_tall_screen_has_all_steps_above_the_one_shown_and_says_what_the_trace_has_not(d):
    lane, bracket = d.lines()[2:4]
    assert d.lines()[1].startswith(" ─ all 3 steps · 30.0 ms ─")
    assert lane.count("··········") >= 3
    assert "┘ shown below" in bracket
    titles = ("the host waits", "the GPU", "not in the trace", "arithmetic and memory")
    assert all(f"─ {title} ─" in d.text() for title in titles)
    assert "what loader workers do: they are processes of their own" in d.text()
    assert "how long a step takes untraced: tracing slows it" in d.text()
    # phases have the dashboard's colours, and waits for data are dotted
    await d.resize(120, 24)
    lanes = d.app.screen.lanes
    (_, *phases, _) = list(lanes.rows(*lanes.size))[2]
    dotted = "".join(text for text, ink in phases if ink == "line-0")
    assert dotted.count("·") > 40
    filled = [int(ink[-1]) for _, ink in phases if ink.startswith("fill-")]
    assert filled == [METRICS[f"{one}_ms"].hue for one in WAITS_DOES]


@tracing(WAITS, snapshot=ANSWERED)
async def test_what_follows_is_what_the_dashboard_answers_now_and_x_goes_back_and_proves_it(d):
    assert "x  try fused_optimizer" in d.text()
    found = changed(ANSWERED.answer, title="input-bound", tries=(), evidence=())
    await d.show(changed(ANSWERED, answer=found))
    await d.press("right", shows="   input-bound", hides="x  try")
    await d.show(ANSWERED)
    await d.press("x")
    assert d.app.screen is d.app.main_screen
    await until(d, lambda: d.engine.calls_of("compare"))


ALTERNATING = [(10 * n, 10, "kernel", "k", 1) for n in range(4)] + [(0, 40, "sync", "wait", 0)]


@tracing(trace_of(ALTERNATING))
async def test_waits_are_red_and_neighbours_alternate_in_brightness(d):
    lanes = d.app.screen.lanes
    await d.press("down")
    rows = list(lanes.rows(*lanes.size))
    fills = [ink for _, ink in rows[1][1:-1]]
    assert len(set(fills)) == 2
    assert all(one != other for one, other in pairwise(fills))
    assert {ink for _, ink in rows[3][1:-1]} == {"lit-sync"}


NAMES = ["[bold]k[/bold]", "a\x1b[31mb", "[/x]", "核函数" * 9, "", "(anonymous namespace)::f()"]


@tracing(trace_of([(10 * n, 10, "kernel", name, 1) for n, name in enumerate(NAMES)]))
async def test_a_name_is_shown_as_it_is_whatever_it_contains(d):
    assert "[bold]k" in d.text()
    for _ in NAMES:
        await d.press("tab", hides="\x1b")
    assert "(anonymous namespace)::f()" in d.text()


TRACES = [
    training_trace(),
    trace_of([]),
    trace_of([(0, 5, "operator", "aten::add", 0)], LANES[:1]),
    trace_of([(3, 0, "kernel", "k", 1)]),
    trace_of([(n, 0.5, "kernel", "k", 0) for n in range(3)], LANES[1:2], steps=400),
]
LEAVING = {"escape", "q", "t", "x", "slash", "question_mark", "T", "ctrl+p", "colon"}
STAYING = [name for key in TIMELINE_KEYS for name in key.keys.split(",") if name not in LEAVING]


@tracing()
async def test_every_key_at_every_size_leaves_the_screen_whole(d):
    for trace, (width, height) in zip(TRACES, cycle([(20, 5), (400, 120)])):
        d.app.switch_screen(TimelineScreen(d.app.control, shown(trace, SUMMARY)))
        await d.resize(width, height)
        for key in STAYING:
            await d.press(key)
            assert is_open(d), key
            assert width > 80 or {*map(len, d.lines())} == {width}
        assert [*map(len, d.lines())] == [width] * height


async def test_nothing_of_it_is_unicode_in_ascii():
    app = Dashboard(FakeEngine, Plan(workload="encdec", settings={}), ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.push_screen(TimelineScreen(app.control, shown(training_trace())))
        for keys in ((), ("s",), ("s", "question_mark")):
            await pilot.press(*keys)
            await pilot.pause()
            rows = [strip.text for strip in strips_of(app)]
            assert any(row.strip() for row in rows)
            assert all(row.isascii() for row in rows)


# ── the cursor ──────────────────────────────────────────────────────────────────────────


@tracing()
async def test_arrows_move_by_a_cell_and_by_a_lane(d):
    before = view(d)
    await d.press("right")
    assert 0 < view(d).at_us - before.at_us < 2 * d.app.screen.lanes.cell_us
    await d.press("left", "left", shows="nothing here at")
    await d.press("down", "down")
    assert view(d).row.kind == "copies"
    for key, lane in (("up", 0), ("down", len(before.timeline.rows) - 1)):
        await d.press(*[key] * 9)
        assert view(d).lane == lane


@tracing()
async def test_tab_goes_from_event_to_event_beyond_what_is_shown_and_z_zooms_to_one(d):
    names = []
    for _ in range(4):
        await d.press("tab")
        names.append(view(d).details(1.0).name)
    assert names[:2] == ["wgrad[bold]", "Memcpy HtoD"]
    assert view(d).span.holds(view(d).at_us)
    await d.press("shift+tab")
    assert view(d).details(1.0).name == names[2]
    await d.press(*["tab"] * 9)
    assert view(d).details(1.0).name == "Memcpy HtoD"
    assert "4.00 MiB · 8.39 GB/s" in d.text()
    await d.press("shift+tab", "z")
    assert (view(d).span.begin_us, view(d).span.end_us) == (23_800, 26_200)
    assert view(d).details(1.0).name == "wgrad[bold]"


@tracing()
async def test_keys_go_from_step_to_step_zoom_and_pan(d):
    assert "2 of 3" in d.text()
    for key, number in (
        *[("full_stop", n) for n in (3, 3)],
        *[("comma", n) for n in (2, 1, 1)],
    ):
        await d.press(key, shows=f"{number} of 3")
    assert (view(d).span.begin_us, view(d).span.end_us) == (0, 10_000)
    await d.press("left_square_bracket")
    assert view(d).span.length_us == 5_000
    assert view(d).span.holds(view(d).at_us)
    await d.press("right_square_bracket", "0")
    assert view(d).span.length_us == 30_000
    await d.press("plus", "plus", "shift+right")
    begin_us = view(d).span.begin_us
    await d.press("shift+left")
    assert view(d).span.begin_us < begin_us
    await d.press("end")
    assert view(d).span.end_us == 30_000
    await d.press("home")
    assert view(d).span.begin_us == view(d).at_us == 0
    await d.press(*["plus"] * 22)  # as far as it goes
    assert "0.050 µs shown" in d.text()
    await d.press(
        "right", "left", "shift+right", "tab", "shift+tab", *["minus"] * 22, shows="30.0 ms shown"
    )


# ── searching ───────────────────────────────────────────────────────────────────────────


@tracing()
async def test_a_search_goes_from_match_to_match_and_ends_with_escape(d):
    before = view(d).at_us
    await d.press("slash", *"zzz", "enter")
    assert d.notices() == ["nothing found for 'zzz'"]
    await d.press("n")
    assert view(d).at_us == before
    await d.press("escape", "slash", *"nccl", "enter")
    assert view(d).details(1.0).name == "ncclAllReduce"
    for key, number in (("", 2), ("n", 3), ("n", 1), ("N", 3)):
        await d.press(*key, shows=f"/nccl: {number} of 3")
    await d.press("escape")
    assert is_open(d)
    assert "/nccl" not in d.text()
    await d.press("escape")
    assert not is_open(d)


# ── the mouse ───────────────────────────────────────────────────────────────────────────


@tracing(size=(120, 40))
async def test_a_click_puts_the_cursor_and_goes_to_a_step_but_from_the_summary_nowhere(d):
    await d.click("encode_kern")
    assert view(d).row.label == "stream 13"
    assert view(d).details(d.app.screen.lanes.cell_us).name == "encode_kernel"
    before = view(d).at_us
    await d.click("─ one step, mean of 3")
    assert view(d).at_us == before
    await d.pilot.click(offset=(14, 2))
    await d.settle()
    assert view(d).at_us < 10_000
    assert view(d).span.holds(view(d).at_us)
    await d.resize(120, 24)
    await d.click("0 all")  # a key of the footer
    assert view(d).span.length_us == 30_000


@tracing()
async def test_a_drag_pans_and_puts_no_cursor_and_the_wheel_zooms_around_the_pointer(d):
    before, lanes = view(d), d.app.screen.lanes
    await d.pilot.mouse_down(offset=(40, 6))
    await d.pilot.hover(offset=(30, 6))
    await d.pilot.mouse_up(offset=(30, 6))
    await d.settle()
    moved = view(d).span.begin_us - before.span.begin_us
    assert moved == pytest.approx(10 * lanes.cell_us)
    assert view(d).lane == before.lane
    at_us = lanes.time_at(40)
    await d.mouse([events.MouseScrollUp], offset=(40, 6))
    await d.settle()
    assert view(d).span.length_us == 5_000
    assert lanes.time_at(40) == pytest.approx(at_us, abs=lanes.cell_us)


# ── the other pages ─────────────────────────────────────────────────────────────────────


@tracing(size=(120, 40))
async def test_s_shows_the_whole_summary_in_place_of_the_lanes_which_scrolls(d):
    await d.press("s", shows="profile: summary", hides="stream 7   ┊")
    for words in ("train.py:41", "aten::item", "conv2d in Conv2d_0", "copy to device"):
        assert words in d.text()
    await d.press("s", shows="stream 13  ┊")
    await d.resize(60, 16)
    await d.press("s", "end", shows="not in the trace", hides="mean of 3")
    await d.press("home", shows="one step, mean of 3")
    await d.press("pagedown", "escape", shows="2 of 3")


@tracing(before=changed(SUMMARY, step_ms=12.0, kernels=SUMMARY.kernels[:1]), size=(100, 60))
async def test_c_lays_the_profile_before_beside_it(d):
    await d.press("c")
    (step,) = (line.split() for line in d.lines() if line.startswith(" step"))
    assert step == ["step", "(ms)", "12.0", "10.0", "−2.00"]
    assert "+2.00  wgrad[bold]" in d.text()
    await d.press("s", shows="one step, mean of 3")
    await d.press("escape", shows="2 of 3")


# ── taking it home ──────────────────────────────────────────────────────────────────────


@tracing()
async def test_keys_copy_the_path_and_what_is_under_the_cursor_or_lead_back(d):
    screen = d.app.screen
    await d.press("w")
    assert d.app.clipboard == "/traces/trace.json"
    assert d.notices() == ["copied; Perfetto opens it too: /traces/trace.json"]
    await d.press("y")
    assert d.app.clipboard.splitlines() == [
        "void cudnn::conv<float, 4>(int)",
        "3.00 ms from 11.0 ms · stream 7 · launched 500 µs before it began",
    ]
    await d.press("c")
    assert d.notices() == ["there is no profile before this one in this session"]
    await d.press("s", "y")
    assert "one step, mean of 3" in d.app.clipboard
    await d.press("escape")
    for key in ("escape", "q", "t"):
        await d.press(key)
        assert d.app.screen is d.app.main_screen
        d.app.push_screen(TimelineScreen(d.app.control, screen.shown))
        await d.settle()


@tracing(size=(100, 70))
async def test_help_lists_every_key_of_the_timeline_and_the_palette_its_actions(d):
    commands = d.app.get_system_commands(d.app.screen)
    words = {Content.from_markup(one.help).plain for one in commands}
    assert {f"key {key.shown}" for key in TIMELINE_KEYS if key.palette} <= words
    await d.press("question_mark")
    assert all(key.help in d.text() for key in TIMELINE_KEYS)
