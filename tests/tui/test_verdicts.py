"""After an A/B: keep, back, more pairs, and how its verdict is told and copied."""

import shlex

import pytest
from msgspec.structs import replace as changed

from gpudash.cli.main import parse
from gpudash.compare.ab import Question
from gpudash.errors import UsageError
from gpudash.present.wording import result_text, verdict_text
from gpudash.protocol.commands import Plan
from tests.tui.comparisons import VERDICT, compared
from tests.tui.fake_engine import FakeEngine, result, settings, training
from tests.tui.test_run import ask, running


@pytest.fixture
def control():
    return running()


def others(**values):
    """What the levers beside the one compared were set to."""
    return {name: value for name, value in settings(**values).items() if name != "pipelined"}


CONCLUDED = compared(40, a="off", b="on", verdict=VERDICT, settings=others())


def after(shown=CONCLUDED, /, **values):
    """A control that has seen a comparison end."""
    control = running(**values)
    verdicts = (shown,) if shown.verdict else ()
    control.take(changed(control.snapshot, comparison=shown, verdicts=verdicts))
    return control


def rows(control):
    return {row.lever.name: row for row in control.levers.rows()}


LOADER = compared(9000, lever="batch_size", a="8", b="16", verdict="slower")


def ended(measured):
    return compared(measured, failure="it was ended", planned_pairs=40)


@pytest.mark.parametrize(
    ("what", "shown", "now", "said", "pairs"),
    [
        ("it goes on to twice as many", CONCLUDED, {}, "pipelined goes on", 80),
        ("but not for ever", LOADER, {}, "batch_size goes on", 10_000),
        *[("after one that was ended to twice those measured", ended(measured), {},
           "pipelined goes on", pairs) for measured, pairs in [(9, 18), (1, 10), (0, 10)]],
        ("where other settings have changed it begins anew", CONCLUDED, {"batch_size": "64"},
         "pipelined begins anew", 80),
    ],
)  # fmt: skip
def test_more_pairs(what, shown, now, said, pairs):
    control = after(shown, **now)
    assert control.ab.more_pairs() == f"the A/B of {said}, up to {pairs} pairs", what
    sides = {"lever": shown.lever, "a": shown.a, "b": shown.b}
    question = Question(**sides, pairs=pairs, short_runs=shown.lever == "batch_size")
    goes_on = [True] * said.endswith("goes on")
    assert control.engine.calls_of("compare") == [(question, *goes_on)]
    assert control.comparing


def test_a_value_that_stands_for_another_one_is_not_compared(control):
    with pytest.raises(UsageError, match="model_scale=auto stands for another value"):
        control.ab.compare("model_scale", "auto")
    assert control.engine.calls_of("compare") == []


# ── rows of levers ──────────────────────────────────────────────────────────────────────


def test_a_lever_knows_where_its_newest_ab_was():
    slower = compared(40, a="off", b="on", change=-0.02, low=-0.03, high=-0.01, verdict="slower")
    control = after(batch_size="32")
    row = rows(control)["pipelined"]
    assert row.context == "against off, 40 pairs, batch_size=8"
    assert rows(control)["batch_size"].context == ""
    snapshot = control.snapshot
    newer = changed(slower, settings=others(batch_size="32"))
    control.take(changed(snapshot, verdicts=(*snapshot.verdicts, newer)))
    row = rows(control)["pipelined"]
    assert row.context == "against off, 40 pairs"


# ── copying ─────────────────────────────────────────────────────────────────────────────


def test_a_verdict_is_copied_with_all_that_it_depends_on():
    device = training().device
    assert verdict_text(CONCLUDED, "encdec", device).split("\n") == [
        f"{VERDICT}; losses not compared",
        "off: 277.0 steps/s, on: 295.0 steps/s",
        "encdec on NVIDIA H200, num_workers=8, precision=tf32, model_scale=full",
    ]
    failed = changed(CONCLUDED, verdict=None, failure="another change ended it")
    text = verdict_text(failed, "encdec", device)
    assert text.startswith(
        "no verdict for pipelined=on: another change ended it; so far on +6.0 % ["
    )
    few = verdict_text(changed(failed, pairs=3, low=None, high=None), "encdec", device)
    assert few.splitlines()[0] == "no verdict for pipelined=on: another change ended it"


def test_a_command_for_new_starts_has_as_many_pairs_as_such_a_start():
    shown = changed(CONCLUDED, planned_pairs=80)
    _, *words = shlex.split(running().ab.command(shown, starts=4))
    _, arguments = parse(words)
    assert (arguments.starts, arguments.pairs) == (4, None)


def test_a_command_names_what_a_cpu_would_set_by_itself():
    command = running().ab.command(CONCLUDED)
    assert "--set precision=tf32" in command  # where it runs, fp32 may be the default
    assert "--device" not in command
    assert "--pairs" not in command


def test_a_training_that_is_none_of_the_catalogues_has_no_command(control):
    control.take(changed(training(), workload="my own; rm -rf"))
    with pytest.raises(UsageError, match="the arguments of my own; rm -rf are not known here"):
        control.ab.command(CONCLUDED)


def test_a_verdict_on_a_script_is_copied_with_its_own_command():
    words = ("python", "train.py", "--name", "it's mine", "--pairs")
    control = running(FakeEngine(Plan(workload="train.py", settings={}, command=words)))
    command = control.ab.command(changed(CONCLUDED, planned_pairs=80))
    asked = ["gpudash", "ab", "--lever", "pipelined=off,on", "--pairs", "80", "--", *words]
    assert shlex.split(command) == asked


def test_a_row_is_copied_with_its_numbers_and_its_levers():
    row = result(2, "pipelined=on", 295.7, settings=settings(pipelined="on"))
    device = training().device
    first, second = result_text(row, device).split("\n")
    assert first.startswith("2,366 samples/s, 296 steps/s, step p50 3.38 ms, p95 4.40 ms, ")
    assert second.startswith("encdec on NVIDIA H200, pipelined=on, num_workers=8")


def test_what_is_kept_is_what_the_next_start_uses_where_nothing_runs():
    control = after()
    control.take(changed(control.snapshot, state="failed"))
    control.ab.keep()
    assert control.levers.next_start == {"pipelined": "on"}
    with pytest.raises(UsageError, match="press R first"):
        control.ab.more_pairs()
    ask(control, pipelined="off")
    assert control.levers.next_start == {}
