"""Several ranks in a recording: a row for each is written, and read again."""

from contextlib import closing
from datetime import UTC, datetime
from random import Random

import msgspec
import pytest

from gpudash.metrics import METRICS
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Progress, State
from gpudash.recording.intervals import GRACE_S, Interval
from gpudash.recording.log import Origin, RowReader, line_of
from gpudash.recording.rank_steps import HELD_S, MOST_READINGS
from gpudash.recording.rows import Rows
from gpudash.run.clocks import moved
from gpudash.run.replayed import replayed
from gpudash.sinks.export import export
from tests import simulated_ranks
from tests.lives import in_process, parted
from tests.recording import record
from tests.recording.record import sent
from tests.recording.test_csv_format import cells_of
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, measured

OTHER = "GPU-2222"


def started(rank: int, run: Trainer) -> State:
    state = in_process(run.start(), world_size=2)
    device = state.process.device
    uuid = OTHER if rank else device.uuid
    return in_process(state, device=msgspec.structs.replace(device, uuid=uuid))


def waiting(progress: Progress, wait_ms: float) -> Progress:
    """Return the progress of a rank that waited `wait_ms` for the other in each step."""
    steps = (measured(step, forward_ms=None, communication_ms=wait_ms) for step in progress.steps)
    return msgspec.structs.replace(progress, steps=tuple(steps))


def two_ranks() -> list[tuple[int, object]]:
    """Return the messages of rank 0, 20 steps of 50 ms, and of rank 1, 20 of 48 ms."""
    runs = Trainer(), Trainer()
    messages = [(rank, started(rank, run)) for rank, run in enumerate(runs)]
    for _ in range(20):
        messages += [
            (0, waiting(runs[0].step(50.0), 12.49265)),
            (1, waiting(runs[1].step(48.0), 10.16)),
        ]
        at_s = runs[0].now_s
        messages += [
            (0, gpu(at_s, power_w=500.0)),
            (0, gpu(at_s, uuid=OTHER, index=1, power_w=400.0)),
        ]
        messages += [(rank, host(at_s, core_wait_pct=10.0 + rank)) for rank in (0, 1)]
    return messages


def rows_of(
    messages: list[tuple[int, object]], close_s: float = BEGAN_S + 1.0, began_s: float = BEGAN_S
) -> list[Interval]:
    return record.rows_of(sent(messages, began_s), close_s, origin_of(began_s))


def origin_of(began_s: float) -> Origin:
    began_utc = datetime(2026, 1, 2, tzinfo=UTC)
    return Origin(began_s=began_s, began_utc=began_utc, interval_s=0.5, command=())


@pytest.fixture
def recorded(tmp_path):
    """Return the CSV of both ranks; its log is beside it."""
    return recorded_from(BEGAN_S, tmp_path / "run.csv")


def recorded_from(began_s, path, messages=None):
    found = sent(messages or two_ranks(), began_s)
    record.record(path, found, BEGAN_S + 1.0, origin_of(began_s))
    return path


def test_each_rank_has_a_row_with_its_own_times_and_its_gpu(recorded):
    rows = cells_of(recorded)
    assert [(row["rank"], row["world_size"]) for row in rows] == [("0", "2"), ("1", "2")] * 2
    names = ("time_s", "step_ms_p50", "gpu_uuid", "power_w", "core_wait_pct")
    assert [[row[name] for name in names] for row in rows[2:]] == [
        ["1.000", "50.0000", "GPU-1111", "500.0", "10.0"],
        ["1.000", "48.0000", OTHER, "400.0", "11.0"],
    ]


def test_what_a_training_process_tells_of_itself_is_in_its_own_row(tmp_path):
    told = [
        (
            rank,
            msgspec.structs.replace(
                body, values={"mem_peak_mib": 100.0 + rank}, skipped_samples=rank
            ),
        )
        if isinstance(body, Progress)
        else (rank, body)
        for rank, body in two_ranks()
    ]
    rows = cells_of(recorded_from(BEGAN_S, tmp_path / "run.csv", told))
    assert [row["mem_peak_mib"] for row in rows] == ["100.0", "101.0"] * 2
    assert [row["skipped_samples"] for row in rows] == ["0", "1"] * 2


def test_rates_can_be_summed_over_the_rows(recorded):
    first, second = cells_of(recorded)[:2]
    assert (first["steps"], second["steps"]) == ("10", "")
    assert (first["steps_per_s"], second["steps_per_s"]) == ("20.0000", "")
    assert (first["samples_per_s"], second["samples_per_s"]) == ("160.000", "160.000")


def test_a_row_waits_for_the_steps_of_every_rank_but_not_for_long():
    run, rows = Trainer(), Rows(BEGAN_S, 0.5)
    begun = [(0, started(0, run)), (1, started(1, Trainer())), (1, Trainer().progress())]
    on_time = [*begun, *((0, report) for report in run.steps(12))]
    assert [row for one in sent(on_time, BEGAN_S) for row in rows.take(one)] == []
    late = sent(run.steps(int(GRACE_S * 20)), BEGAN_S, seq=len(on_time))
    assert [row.steps for one in late for row in rows.take(one)] == [10]


def test_repeated_steps_count_once():
    messages = two_ranks()
    again = [(rank, body) for rank, body in messages if rank]
    rows = rows_of([*messages[:20], *again[:5], *messages[20:]])
    assert [row.ranks[1].steps for row in rows] == [10, 10]


def test_no_step_is_lost_when_a_nodes_clock_is_corrected():
    messages, since = two_ranks(), 20
    corrected = [
        (rank, moved(body, -0.1)) if rank and isinstance(body, Progress) else (rank, body)
        for rank, body in messages[since:]
    ]
    rows = rows_of([*messages[:since], *corrected])
    assert sum(row.ranks[1].steps for row in rows) == 20


def test_a_process_that_follows_another_begins_at_its_first_step():
    messages, again = two_ranks(), Trainer(BEGAN_S + 1.0)
    follows = {"worker": 2, "turns": ("starts", "replaces")}
    begun = msgspec.structs.replace(in_process(started(1, again), pid=43), **follows)
    rows = rows_of([*messages, (1, begun), *((1, one) for one in again.steps(5))], BEGAN_S + 1.5)
    assert [row.ranks[1].steps for row in rows] == [10, 10, 5]


def test_while_rank_0_is_silent_the_newest_steps_of_the_others_are_held_and_no_more():
    run = Trainer()
    others = [one for _ in range(1000) for one in ((1, run.step(50.0)), (1, host(run.now_s)))]
    rows = rows_of([(0, started(0, Trainer())), (1, started(1, Trainer())), *others], run.now_s)
    ranks = [row.ranks[1] for row in rows]
    assert sum(one.steps for one in ranks) == pytest.approx((0.5 + HELD_S) / 0.05, abs=1)
    assert ranks[-1].step == 1000


def test_readings_of_a_rank_in_a_long_hang_are_in_its_rows():
    messages = two_ranks()
    hang = range(1, 121)
    read = [(rank, host(BEGAN_S + 1.0 + at_s)) for at_s in hang for rank in (0, 1)]
    rows = rows_of([*messages, *read], BEGAN_S + 1.0 + hang[-1])
    assert sum("cpu_pct" in row.values for row in rows if row.ended_s > BEGAN_S + 1.0) == len(hang)
    for row in rows:
        assert ("cpu_pct" in row.ranks[1].values) == ("cpu_pct" in row.values)


def test_held_readings_stay_bounded_in_an_endless_hang():
    read = [(1, host(BEGAN_S + at_s)) for at_s in range(10 * MOST_READINGS)]
    messages = [(rank, started(rank, Trainer())) for rank in (0, 1)]
    rows = rows_of([*messages, *read], BEGAN_S + 10 * MOST_READINGS)
    assert 0 < sum("cpu_pct" in row.ranks[1].values for row in rows) <= MOST_READINGS


def test_the_log_holds_what_the_rows_say(recorded):
    again = recorded.with_name("again.csv")
    export(recorded.with_suffix(".jsonl"), again)
    assert again.read_text() == recorded.read_text()


def test_a_replay_shows_every_rank_and_its_gpu(recorded):
    first, second = replayed(recorded).snapshot.ranks
    assert (first.step_ms_p50, second.step_ms_p50) == pytest.approx((50.0, 48.0))
    assert second.samples_per_s == pytest.approx(8 / 0.048, rel=0.01)
    assert (first.gpu.number("power_w"), second.gpu.number("power_w")) == (500.0, 400.0)
    waits_pct = [row.host.number("core_wait_pct") for row in (first, second)]
    assert waits_pct == [10.0, 11.0]


def append_messages(path, *messages):
    """Append messages of ranks to the log."""
    log = path.with_suffix(".jsonl")
    said = [
        line_of(Envelope(source="training", rank=rank, seq=9, sent_s=BEGAN_S + 5.0, body=body))
        for rank, body in messages
    ]
    *lines, closed = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines, *said, closed]))


def ended(at_s: float) -> State:
    return State(at_s=at_s, phase="finished")


def test_the_ranks_last_values_are_shown_even_if_their_processes_have_ended(recorded):
    gone = [(rank, parted(BEGAN_S + 1.0)) for rank in (0, 1)]
    append_messages(recorded, *gone, (0, ended(BEGAN_S + 5.0)))
    rows = replayed(recorded).snapshot.ranks
    assert [row.step_ms_p50 for row in rows] == [50.0, 48.0]
    assert [row.steps_per_s for row in rows] == pytest.approx([20.0, 20.0], rel=0.1)


def test_the_others_last_steps_are_kept_if_a_rank_ends_before_the_last_row(recorded):
    append_messages(recorded, (1, ended(BEGAN_S + 0.7)), (0, ended(BEGAN_S + 1.0)))
    assert [row.steps for row in replayed(recorded).snapshot.ranks] == [20, 20]


def test_samples_from_before_the_recording_are_those_of_all_ranks_too(tmp_path):
    late = recorded_from(BEGAN_S + 0.5, tmp_path / "late.csv")
    assert replayed(late).snapshot.total_samples == 20 * 2 * 8


def test_the_rate_of_a_replay_is_that_of_all_ranks(recorded):
    shown = replayed(recorded).snapshot
    assert shown.samples_per_s == pytest.approx(2 * 8 * shown.steps_per_s)


def test_an_hour_of_a_rank_and_its_gpu_is_less_than_4_mb_in_the_csv_and_60_in_the_log(tmp_path):
    ranks, seconds, pick = 8, 20.0, Random(1)  # so long that the names of values hardly count
    uuids = [f"GPU-12345678-1234-1234-1234-12345678{rank:04}" for rank in range(ranks)]
    messages: list[tuple[int, object]] = []
    for rank, uuid in enumerate(uuids):
        event = simulated_ranks.start(rank, world_size=ranks)
        device = msgspec.structs.replace(event.process.device, uuid=uuid)
        messages.append((rank, in_process(event, device=device)))
    for number, (rank, progress) in enumerate(simulated_ranks.Ranks(ranks).train(seconds)):
        messages.append((rank, msgspec.structs.replace(progress, loss=pick.random())))
        if number // ranks % 4:  # the devices are read five times a second
            continue
        of_gpu = {
            name: pick.random() * 1000
            for name, metric in METRICS.items()
            if (metric.kind, metric.over_time) == ("gpu", "mean")
        }
        at_s = progress.until_s
        messages.append((0, gpu(at_s, uuid=uuids[rank], throttle="none", **of_gpu)))
        messages.append((rank, host(at_s, core_wait_pct=pick.random())))
    path = tmp_path / "run.csv"
    log = record.record(path, sent(messages, 0.0), seconds, origin_of(0.0))
    with closing(RowReader(log)) as reader:
        assert {len(row.ranks) for row in reader if isinstance(row, Interval)} == {ranks}
    for file, most in ((path, 4e6), (log, 60e6)):
        assert file.stat().st_size * 3600 / seconds / ranks < most


def test_a_replay_names_the_slow_rank_without_the_sessions_judgement(tmp_path):
    slow = simulated_ranks.Ranks(delay=lambda _, rank: {"backward": 3.0} if rank == 2 else {})
    messages = [(rank, simulated_ranks.start(rank)) for rank in range(4)]
    path = recorded_from(0.0, tmp_path / "run.csv", [*messages, *slow.train(20)])
    found = replayed(path.with_suffix(".jsonl")).snapshot.straggler
    assert (found.rank, found.phase) == (2, "backward")
