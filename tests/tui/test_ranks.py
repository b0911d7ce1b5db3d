"""The table of ranks: waits, the slow rank, and the columns that fit."""

import math

import pytest
from msgspec.structs import replace

from gpudash.present.ranks import in_sight, rank_rows, spread, verdict
from gpudash.protocol.readings import HostReading
from gpudash.snapshot import Hang, RankRow, RankStack, Snapshot
from gpudash.tui.bars import header
from tests.tui import scripts
from tests.tui.driving import showing


def lines(job, width=120):
    rows = rank_rows(job, range(len(job.ranks)), width)
    return ["".join(text for text, _ in parts) for parts in rows]


def job(count=4, **changes):
    return scripts.changed(scripts.of_gpus(count), **changes)


def test_sparklines_have_one_scale():
    rows = job().ranks
    calm, busy = (replace(rows[0], history=(ms,) * 60) for ms in (3.0, 9.0))
    _, low, high = lines(Snapshot(ranks=(calm, busy)))
    assert "▂" in low
    assert "▆" in high


def test_a_second_without_a_step_is_blank():
    row = replace(job().ranks[0], history=(6.9, None, 6.9))
    assert "▅ ▅" in lines(Snapshot(ranks=(row, row)))[1]


@pytest.mark.parametrize("width", [18, 40, 58, 78, 118, 198, 398])
@pytest.mark.parametrize("count", [2, 8])
def test_rows_fit_and_numbers_are_whole(width, count):
    rows = lines(job(count), width)
    assert max(map(len, rows)) <= width
    for line in rows[1:]:
        assert "6.9" in line


def test_what_was_not_measured_is_unknown_or_has_no_column():
    measured, blind = job().ranks[0], RankRow(rank=1, state="starting")
    head, _, other = lines(Snapshot(ranks=(measured, blind)))
    assert "starting" in other
    assert "–" in other
    assert "GPU %" not in lines(Snapshot(ranks=(blind, blind)))[0]
    assert "GPU %" in head


def test_what_was_read_of_a_ranks_processes_has_columns_where_there_is_room():
    read = HostReading(
        at_s=0.0, values={"cpu_pct": 250.0, "core_wait_pct": 48.0, "worker_rss_mib": 3072.0}
    )
    row = replace(job().ranks[0], host=read)
    wide = lines(Snapshot(ranks=(row, replace(row, host=None))), 200)
    assert [title for title in ("cores", "core wait %", "RAM GiB") if title in wide[0]] == [
        "cores",
        "core wait %",
        "RAM GiB",
    ]
    assert [one for one in ("2.5", "48", "3.0") if one in wide[1].split()] == ["2.5", "48", "3.0"]
    assert "RAM GiB" not in lines(Snapshot(ranks=(row, row)), 80)[0]


def test_the_slow_rank_stays_in_sight_wherever_the_list_is_read():
    assert in_sight(job(64), range(20, 24)) == [scripts.SLOW, 21, 22, 23]
    assert in_sight(job(64), range(6)) == [*range(6)]
    assert in_sight(job(64, straggler=None), range(20, 24)) == [20, 21, 22, 23]


SLOW = job().straggler
IMBALANCE = replace(SLOW, kind="imbalance", why="", others_wait_ms=None)
STACKS = (
    RankStack(rank=0, collective="all_reduce", doing="waits in all_reduce (train.py:57)"),
    RankStack(rank=1, doing="is in load (data.py:41)"),
)
HANGS = Hang(for_s=34.0, missing=(1,), stacks=STACKS)


@pytest.mark.parametrize(
    ("what", "shown", "said"),
    [
        ("the slow rank is named with phase, cost and cause", job(),
         f"rank 3 is 36 % slow in backward; the others wait 2.50 ms a step; {SLOW.why}"),
        ("or that it has more to do", job(straggler=IMBALANCE),
         "rank 3 has more to work on: 36 % longer in backward"),
        ("or that another one is slow every now and then",
         job(straggler=replace(IMBALANCE, kind="wandering", phase="")),
         "now rank 3, another one every now and then, is slow"),
        ("without one nothing is said", job(straggler=None), ""),
        ("during a hang the ranks' positions are shown", job(2, hang=HANGS),
         ("no rank has finished a step for 34 s; rank 1 is in load (data.py:41); "
          "rank 0 waits in all_reduce (train.py:57)")),
        ("unless nobody has asked for them", job(2, hang=Hang(for_s=11.0)), ""),
    ],
)  # fmt: skip
def test_what_holds_the_ranks_up(what, shown, said):
    assert verdict(shown) == said, what


def text_of(snapshot):
    return "  ".join(text for cell in header(snapshot) for text, _ in cell.parts)


def test_ranks_whose_batches_differ_have_the_least_and_the_most_in_the_header():
    snapshot = scripts.of_ranks(2)
    first, second = snapshot.ranks
    more = replace(second, samples_per_s=3 * second.samples_per_s)
    assert "12 to 36 samples a step and rank" in text_of(
        scripts.changed(snapshot, ranks=(first, more))
    )


@showing(scripts.of_gpus(16))
async def test_the_pane_grows_for_the_ranks_and_shrinks_again(d):
    main, rows = d.app.main_screen, []
    for tab in ("output", "ranks", "history"):
        main.open_tab(tab)
        await d.settle()
        rows.append(main.pane.size.height)
    assert rows[0] == rows[2] < rows[1]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_shown_as_not_measured(value):
    first, second = job(2).ranks
    values = second.values | {"communication_ms": value}
    odd = replace(second, step_ms_p50=value, values=values, samples_per_s=value, history=(value,))
    before, after = lines(Snapshot(ranks=(first, first)))[1], lines(Snapshot(ranks=(first, odd)))
    assert after[1] == before
    assert after[2].count("–") >= 2
    shown = scripts.changed(scripts.of_gpus(2), ranks=(first, odd))
    assert "samples a step and rank" in text_of(shown)
    assert spread(Snapshot(ranks=(first, odd))) == spread(Snapshot(ranks=(first,)))


@showing(scripts.of_gpus(64))
async def test_no_size_raises(d):
    d.app.main_screen.open_tab("ranks")
    for size in [(20, 5), (80, 24), (400, 120)]:
        await d.resize(*size)
        for count in (2, 64):
            await d.show(scripts.of_gpus(count))
            await d.press("down", "pagedown", "end", "home")
            assert len(d.lines()) == size[1]
