"""Two recordings, matched setting by setting."""

import shutil
from random import Random

import msgspec
import pytest

from gpudash.compare.runs import table
from gpudash.compare.runs.comparison import CAVEAT, compared, judge
from gpudash.compare.runs.run import MeasuredSetting, RecordedRun, read_run
from gpudash.compare.sweep.file import CELLS
from gpudash.compare.unpaired_t import RunPart
from gpudash.errors import UsageError
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import Progress, State
from gpudash.recording.log import Origin, line_of
from tests.lives import changed
from tests.recording.record import record, sent
from tests.recording.test_csv_format import BEGAN_UTC
from tests.scripted_run import BEGAN_S, step
from tests.scripted_run import started as worker_started

OFF = {"pipelined": "off", "batch_size": "8", "seed": "0"}
ON = OFF | {"pipelined": "on"}


def recorded(path, *stretches, versions=None, warmup_steps=2, log=True, varies=True):
    """Write a recording from (settings, rows, steps in a row), with rows of 0.5 s."""
    origin = Origin(
        began_s=BEGAN_S,
        began_utc=BEGAN_UTC,
        interval_s=0.5,
        command=(),
        platform="Linux",
        machine="node1",
        versions=versions or {"gpudash": "0.1.0", "driver": "570.1"},
    )
    begun = msgspec.structs.replace(
        worker_started(BEGAN_S, stretches[0][0]), warmup_steps=warmup_steps
    )
    at_s, number, random, bodies = BEGAN_S, 0, Random(0), [begun]
    for segment, (settings, rows, steps) in enumerate(stretches):
        if segment:
            begun = changed(
                at_s,
                segment=segment,
                after_step=number,
                changes=dict(settings.items() - stretches[segment - 1][0].items()),
                settings=settings,
            ).after(begun)
            bodies.append(begun)
        for _ in range(rows):
            count = steps + (random.choice((-1, 0, 1)) if varies else 0)
            number, at_s = number + count, at_s + 0.5
            done = step(number, at_s, 500 / count, segment)
            done = msgspec.structs.replace(done, count=count, samples=8 * count)
            trained = {"total_steps": number, "total_samples": 8 * number}
            bodies.append(Progress(until_s=at_s, steps=(done,), **trained))
            bodies.append(HostReading(at_s=at_s, values={"core_wait_pct": 2.0}))
    record(path, sent(bodies, BEGAN_S), at_s, origin, log=log)
    return path


def run(*measured, **circumstances):
    return RecordedRun(path="run.csv", circumstances=circumstances, measured=measured)


def measured(settings, steps=100, rows=40, workload="encdec", **more):
    random = Random(f"{settings} {steps}")
    parts = tuple(RunPart(steps + random.choice((-1, 0, 1)), 0.5) for _ in range(rows))
    return MeasuredSetting(workload=workload, settings=settings, parts=parts, **more)


# ── reading ─────────────────────────────────────────────────────────────────────────────


def test_a_state_without_a_process_takes_no_circumstance_away(tmp_path):
    recorded(tmp_path / "run.csv", (OFF, 50, 100))
    log = tmp_path / "run.jsonl"
    known = read_run(log).circumstances
    assert known["device"] == "NVIDIA H200"
    bare = State(at_s=BEGAN_S + 30.0, phase="starting")
    last = Envelope(source="training", seq=9, sent_s=BEGAN_S + 30.0, body=bare)
    log.write_bytes(log.read_bytes() + line_of(last))
    assert read_run(log).circumstances == known


def test_of_a_recording_without_a_process_only_the_machine_is_known(tmp_path):
    log = tmp_path / "run.jsonl"
    recorded(tmp_path / "run.csv", (OFF, 1, 100))
    log.write_bytes(log.read_bytes().partition(b"\n")[0] + b"\n")
    found = read_run(log)
    assert (found.circumstances["machine"], found.measured) == ("node1", ())


@pytest.mark.parametrize("named", ["run.csv", "run.jsonl"])
def test_a_recording_is_read_from_its_csv_or_its_log(tmp_path, named):
    recorded(tmp_path / "run.csv", (OFF, 50, 100), (ON, 50, 120), (OFF, 20, 100))
    found = read_run(tmp_path / named)
    assert [one.settings for one in found.measured] == [OFF, ON]
    off, on = found.measured
    assert off.steps_per_s == pytest.approx(200, rel=0.01)
    assert on.steps_per_s == pytest.approx(240, rel=0.01)
    assert (len(off.parts), len(on.parts)) == (49 + 19, 49)  # the first row of each is warm-up
    assert on.core_wait_pct == 2.0
    assert found.circumstances.items() >= {
        ("driver", "570.1"),
        ("device", "NVIDIA H200"),
        ("platform", "Linux"),
        ("machine", "node1"),
        ("seed", "0"),
    }


def test_a_csv_alone_gives_the_same_except_for_what_it_lacks(tmp_path):
    path = recorded(tmp_path / "run.csv", (OFF, 50, 100))
    whole = read_run(path)
    (tmp_path / "run.jsonl").unlink()
    assert read_run(path) == msgspec.structs.replace(whole, warmup_known=False)
    (tmp_path / "run.json").unlink()
    alone = read_run(path)
    assert alone.measured == whole.measured
    assert alone.circumstances == {"seed": "0"}


def test_as_many_steps_are_left_out_as_the_worker_says(tmp_path):
    path = recorded(tmp_path / "run.csv", (OFF, 50, 10), warmup_steps=45)
    (found,) = read_run(path).measured
    assert len(found.parts) == 45


@pytest.mark.parametrize(("steps", "cold"), [(4, 2), (5, 1), (6, 1)])
def test_five_steps_are_left_out_in_whole_rows(tmp_path, steps, cold):
    recorded(tmp_path / "run.csv", (OFF, 20, steps), varies=False)
    (found,) = read_run(tmp_path / "run.csv").measured
    assert len(found.parts) == 20 - cold
    (tmp_path / "run.jsonl").unlink()
    lines = (tmp_path / "run.csv").read_text().splitlines(keepends=True)
    lines[12] = lines[12].replace("0.500000", "0.300000")  # paused: none of its steps is warm
    (tmp_path / "run.csv").write_text("".join(lines))
    (found,) = read_run(tmp_path / "run.csv").measured
    assert len(found.parts) == 20 - cold - 1 - cold


def test_a_sweep_is_refused_in_a_line(tmp_path):
    (tmp_path / "s.csv").write_text(",".join(CELLS) + "\n")
    with pytest.raises(UsageError, match=r"s\.csv is a sweep: its own table has its intervals"):
        read_run(tmp_path / "s.csv")


# ── matching ────────────────────────────────────────────────────────────────────────────


def test_settings_are_matched_and_the_others_named():
    base = run(measured(OFF), measured(OFF | {"batch_size": "4"}))
    found = compared(base, run(measured(ON), measured(OFF, 105)))
    (matched,) = found.matched
    assert matched.ratio == pytest.approx(1.05, rel=0.01)
    assert matched.low < matched.ratio < matched.high
    assert [(one.run, one.settings) for one in found.alone] == [
        ("base", OFF | {"batch_size": "4"}),
        ("new", ON),
    ]


COMPILE = OFF | {"compile": "off"}
MATCHED = {
    "another workload is another setting": (
        run(measured(OFF)),
        run(measured(OFF, workload="augment")),
        0,
        [],
    ),
    "a seed is a circumstance": (
        run(measured(OFF), seed="0"),
        run(measured(OFF | {"seed": "1"}), seed="1"),
        1,
        [("seed", "0", "1")],
    ),
    "a lever that one version lacks is named, and settings still match": (
        run(measured(OFF)),
        run(measured(COMPILE)),
        1,
        [("compile", None, "off")],
    ),
    "several values of such a lever": (
        run(measured(OFF)),
        run(measured(COMPILE), measured(OFF | {"compile": "on"})),
        0,
        [],
    ),
    "only differences are named, and unrecorded ones are none": (
        run(measured(OFF), torch="2.11", driver="570", device="H100"),
        run(measured(OFF), torch="2.15", driver="570"),
        1,
        [("torch", "2.11", "2.15"), ("device", "H100", None)],
    ),
    "a lever that only another workload has is no circumstance": (
        run(measured(OFF), measured(OFF | {"loss": "where"}, workload="masked_loss")),
        run(measured(OFF)),
        1,
        [],
    ),
}


@pytest.mark.parametrize(("base", "new", "count", "differences"), MATCHED.values(), ids=MATCHED)
def test_runs_match_by_setting_in_circumstances_that_may_differ(base, new, count, differences):
    found = compared(base, new)
    assert len(found.matched) == count
    assert len(found.alone) == len(base.measured) + len(new.measured) - 2 * count
    assert [(one.name, one.base, one.new) for one in found.differences] == differences


@pytest.mark.parametrize(
    ("low", "high", "judgement"),
    [
        (0.90, 0.96, "below"),
        (0.97, 1.02, "not below"),
        (0.95, 0.97, "unclear"),
        (0.95, 1.02, "unclear"),
        (None, None, "no interval"),
        (0.90, None, "no interval"),
    ],
)
def test_only_an_interval_that_lies_below_the_limit_shows_that_it_is_slower(low, high, judgement):
    assert judge(low, high, 0.97) == judgement


# ── in words ────────────────────────────────────────────────────────────────────────────


def test_the_text_names_differences_first_and_drift_always():
    found = compared(run(measured(OFF), torch="2.11"), run(measured(OFF, 105), torch="2.15"))
    text = table.text(found)
    assert text.index("torch: 2.11 → 2.15") < text.index("new/base")
    assert text.endswith(CAVEAT)
    assert CAVEAT in table.markdown(found)
    assert table.SAME not in text
    assert table.SAME in table.text(compared(run(measured(OFF)), run(measured(OFF))))
    assert "| encdec | 200" in table.markdown(found)


def test_the_table_has_both_rates_their_ratio_and_its_interval():
    found = compared(run(measured(OFF, 100)), run(measured(OFF, 105)))
    (_, base, new, ratio, interval), one = table.cells(found)[1], found.matched[0]
    assert (base, new, ratio) == ("200.0", "209.8", "1.049")
    assert interval == f"[{one.low:.3f}, {one.high:.3f}]"


def test_too_few_rows_have_no_interval_and_a_remark_says_why():
    found = compared(run(measured(OFF, rows=39)), run(measured(OFF, 105)))
    (row,) = table.cells(found)[1:]
    assert row[-1] == "–"
    assert table.NO_INTERVAL in table.text(found)
    assert table.NO_INTERVAL not in table.text(compared(run(measured(OFF)), run(measured(OFF))))


def test_a_setting_is_named_by_the_levers_that_differ():
    base = run(measured(OFF), measured(ON))
    found = compared(base, base)
    assert [row[0] for row in table.cells(found)[1:]] == [
        "encdec pipelined=off",
        "encdec pipelined=on",
    ]


def test_a_remark_says_if_only_one_of_the_runs_has_its_log(tmp_path):
    logged = read_run(recorded(tmp_path / "logged.csv", (OFF, 50, 10), warmup_steps=45))
    alone = read_run(recorded(tmp_path / "alone.csv", (OFF, 50, 10), warmup_steps=45, log=False))
    assert "base has no log (.jsonl)" in table.text(compared(alone, logged))
    assert "- new has no log (.jsonl)" in table.markdown(compared(logged, alone))
    for both in (logged, alone):
        assert "has no log" not in table.text(compared(both, both))


def test_short_cores_are_warned_about():
    found = compared(run(measured(OFF, core_wait_pct=48.0)), run(measured(OFF)))
    assert "cores were short: encdec of base waited for one 48 % of the time" in table.text(found)
    limit = compared(run(measured(OFF, core_wait_pct=15.0)), run(measured(OFF)))
    assert "waited for one 15 % of the time" in table.text(limit)
    quiet = compared(run(measured(OFF, core_wait_pct=14.9)), run(measured(OFF)))
    assert "cores were short" not in table.text(quiet)


def test_text_of_a_file_cannot_command_a_terminal():
    evil = "\x1b[2J"
    found = compared(
        run(measured({"lever": evil}), measured({"lever": "b"}), torch=evil),
        run(measured({"lever": evil}), measured({"lever": "c"}), torch="2"),
    )
    assert "\x1b" not in table.text(found) + table.markdown(found)


def test_a_recording_cut_short_is_compared_as_far_as_it_goes(tmp_path):
    whole = recorded(tmp_path / "run.csv", (OFF, 100, 100))
    torn = tmp_path / "torn.csv"
    shutil.copy(tmp_path / "run.json", tmp_path / "torn.json")
    torn.write_bytes(whole.read_bytes()[:-20])
    (one,) = read_run(torn).measured
    assert len(one.parts) == 98
