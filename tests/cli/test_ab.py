import json
from argparse import Namespace
from itertools import cycle
from random import Random

import pytest

from gpudash.cli.ab import conclude, progress_line, two_values
from gpudash.cli.ab_report import StartFinding, StartFindings, document, sides_line
from gpudash.compare.ab import Comparison, Question
from gpudash.compare.experiment import BLOCK_S, MIN_STEPS
from gpudash.errors import Exit
from gpudash.reference_levers import reference_levers
from gpudash.snapshot import Snapshot
from tests.scripted_run import host
from tests.scripted_session import ScriptedSession, called
from tests.scripted_worker import Conducted, Worker
from tests.tui.comparisons import judged_as


def question(pairs=6, **values):
    return Question(**{"lever": "pipelined", "a": "off", "b": "on", "pairs": pairs, **values})


def a_quarter_faster(settings):
    return 40.0 if settings["pipelined"] == "on" else 50.0


def run(session, *words, lever="pipelined=off,on"):
    return called("ab", "encdec", "--lever", lever, "--pairs", "6", *words, trains=[session])


# ── the question ───────────────────────────────────────────────────────────────────────


def test_a_lever_and_two_values_in_their_canonical_form():
    levers = reference_levers("encdec", {})
    for text, a, b in (("pipelined=off,on", "off", "on"), ("batch_size=08,16", "8", "16")):
        assert two_values(levers, text)[1:] == (a, b)
    assert two_values(levers, "pipelined=on,on")[1:] == ("on", "on")  # A/A


# ── what is printed ─────────────────────────────────────────────────────────────────────


def test_the_verdict_and_both_rates_are_printed(capsys):
    assert run(ScriptedSession(Worker(a_quarter_faster))) == 0
    verdict, rates, losses = capsys.readouterr().out.splitlines()
    assert verdict.startswith("pipelined=on is 25.0 % faster [")
    assert rates == (
        "pipelined=off: 20.0 steps/s, host busy 2 ms a step; "
        "pipelined=on: 25.0 steps/s, host busy 2 ms a step"
    )
    assert losses == "losses not compared"


def test_the_hosts_time_is_left_out_if_not_measured():
    comparison = Comparison(question())
    Conducted(comparison, Worker(a_quarter_faster)).run()
    shown = judged_as(comparison.shown(), host_ms=(None, None))
    assert sides_line(shown) == "pipelined=off: 20.0 steps/s; pipelined=on: 25.0 steps/s"


def test_the_rates_of_two_batch_sizes_agree_with_the_verdict(capsys):
    """With the larger batch there are fewer steps, and the throughput is higher."""

    def compared(*words):
        worker = Worker(lambda settings: 50.0 if settings["batch_size"] == "8" else 100.0)
        assert run(ScriptedSession(worker), *words, lever="batch_size=8,32") == 0

    compared()
    verdict, rates, _ = capsys.readouterr().out.splitlines()
    assert verdict.startswith("batch_size=32 is 100.0 % faster [")
    assert rates == (
        "batch_size=8: 160.0 samples/s, host busy 2 ms a step; "
        "batch_size=32: 320.0 samples/s, host busy 2 ms a step"
    )
    compared("--json")
    found = json.loads(capsys.readouterr().out)
    assert found["steps_per_s"] == pytest.approx([20.0, 10.0])
    assert found["samples_per_s"] == pytest.approx([160.0, 320.0])


def test_json_holds_everything_in_one_line(capsys):
    assert run(ScriptedSession(Worker(a_quarter_faster)), "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["verdict"].startswith("pipelined=on is")
    assert found["settings"]["pipelined"] == "off"
    asked = {"workload": "encdec", "lever": "pipelined", "a": "off", "b": "on", "pairs": 5}
    how = {"device": "NVIDIA H200", "min_steps": MIN_STEPS, "min_s": BLOCK_S, "seed": 0}
    change = {"change": pytest.approx(0.25), "low": pytest.approx(0.25), "confidence": 0.95}
    rates = {"steps_per_s": pytest.approx([20.0, 25.0])}
    assert found | asked | how | change | rates == found


class Hindered(Worker):
    """A worker whose cores other jobs use, and of whose samples three are unreadable."""

    def __init__(self):
        super().__init__(a_quarter_faster)
        self.skipped = 3

    def take(self):
        return [*super().take(), host(self.now_s, core_wait_pct=48.0)]


def test_what_took_time_beside_the_lever_is_reported(capsys):
    """Otherwise it would be taken for the lever's: waits for a core, samples decoded again."""

    def out(worker, *words):
        assert run(ScriptedSession(worker), *words) == 0
        return capsys.readouterr().out

    verdict, _, _, samples = out(Hindered()).splitlines()
    assert verdict.endswith("; cores were short: the training waited for one 48 % of the time")
    assert samples == "3 unreadable samples skipped"
    for worker, wait, skipped in ((Hindered(), 48.0, 3), (Worker(a_quarter_faster), None, 0)):
        found = json.loads(out(worker, "--json"))
        assert found | {"core_wait_pct": wait, "skipped_samples": skipped} == found


def test_the_check_says_whether_it_passed():
    noise = Random(2)
    comparison = Comparison(question(pairs=20))
    Conducted(comparison, Worker(lambda _settings: noise.lognormvariate(4.0, 0.5))).run()
    assert document(StartFindings([StartFinding(comparison, Snapshot())])).check.passed
    few = Comparison(question(pairs=2))
    Conducted(few, Worker(a_quarter_faster)).run()
    assert document(StartFindings([StartFinding(few, Snapshot())])).check is None


@pytest.mark.parametrize(
    ("step_ms", "code"),
    [
        (a_quarter_faster, Exit.DONE),
        (lambda settings: 1000 / a_quarter_faster(settings), Exit.SLOWER),
        (lambda settings: 50.0, Exit.NOT_SHOWN),
    ],
    ids=["faster", "slower", "no difference"],
)
def test_scripts_learn_the_verdict_from_the_exit_code(step_ms, code, capsys):
    assert run(ScriptedSession(Worker(step_ms)), "--exit-code") == code
    assert run(ScriptedSession(Worker(step_ms))) == 0
    assert ("no difference above 1 %" in capsys.readouterr().out) == (code == Exit.NOT_SHOWN)


@pytest.mark.parametrize(
    ("ctrl_c", "code", "reason"), [(False, 1, "the training ended"), (True, 130, "interrupted")]
)
def test_a_comparison_ended_early_has_no_verdict(ctrl_c, code, reason, capsys):
    session = ScriptedSession(Worker(a_quarter_faster), turns=30, ctrl_c=ctrl_c)
    assert run(session) == code
    assert f"gpudash: no verdict: {reason}" in capsys.readouterr().err


def test_an_interrupted_comparison_prints_the_verdict_so_far_and_its_code_says_so(capsys):
    noise = cycle([1.0, 1.6, 0.7, 1.3, 0.8, 1.0, 1.4])
    comparison = Comparison(question())
    worker = Worker(lambda settings: next(noise) * a_quarter_faster(settings))
    conducted = Conducted(comparison, worker)
    while comparison.shown().pairs < 5:
        conducted.turn()
    comparison.cancel("the training was stopped")
    arguments = Namespace(json=False, exit_code=False, card=None, price=None)
    found = StartFinding(comparison, Snapshot(), interrupted=True)
    assert conclude(StartFindings([found], failed=130), arguments) == 130
    assert "5 pairs" in capsys.readouterr().out


# ── the losses ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("loss", "starts", "found"),
    [
        (lambda step, value, start: 1 / step, "on off off", "identical over 64 steps"),
        (
            lambda step, value, start: 1 / step + (step > 4 and value == "on"),
            "on off off on off on",
            "moved from step 5 on",
        ),
        (
            lambda step, value, start: 1 / step + start / 1000,
            "on off off on off on",
            "within the spread of each side's own starts",
        ),
    ],
    ids=["alike", "moved", "no fixed seed"],
)
def test_short_starts_say_whether_the_training_is_the_same(loss, starts, found, tmp_path, capsys):
    begun = []

    def begin(plan, **_):
        value, number = plan.settings["pipelined"], len(begun)
        begun.append(value)
        worker = Worker(a_quarter_faster)
        worker.first_loss = lambda step: loss(step, value, number)
        return ScriptedSession(worker)

    card = tmp_path / "ab.md"
    words = ("--lever", "pipelined=off,on", "--losses", "--pairs", "6", "--card", str(card))
    assert called("ab", "encdec", *words, trains=begin) == Exit.DONE
    assert begun == [*starts.split(), "off"]  # the last is of the A/B
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"losses {found}")
    assert said in card.read_text()
    assert "gpudash ab encdec --lever pipelined=off,on --pairs 6 --losses" in card.read_text()


# ── how far it is ───────────────────────────────────────────────────────────────────────


def test_the_progress_line_shows_the_interval_closing_in():
    assert progress_line(Snapshot(workload="encdec", status="loading")) == "encdec: loading"
    comparison = Comparison(question())
    conducted = Conducted(comparison, Worker(a_quarter_faster))
    seen = []
    while not comparison.done:
        conducted.turn()
        seen.append(progress_line(Snapshot(comparison=comparison.shown())))
    assert seen[0] == "pipelined: off or on? 0/6 pairs"
    assert "pipelined: off or on? 1/6 pairs" in seen  # one pair has no interval
    assert seen[-1] == "pipelined: off or on? 5/6 pairs, +25.0 % [+25.0, +25.0]"
    compiling = Snapshot(comparison=comparison.shown(), quiet_s=31.4)
    assert progress_line(compiling) == f"{seen[-1]}, no step for 31 s"


# ── the card ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["ab.svg", "ab.md"])
def test_a_card_is_written_as_its_name_says(tmp_path, name, capsys):
    assert (
        run(ScriptedSession(Worker(a_quarter_faster)), "--card", str(tmp_path / name)) == Exit.DONE
    )
    text = (tmp_path / name).read_text()
    assert text.startswith("<svg" if name == "ab.svg" else "**pipelined off")
    assert "gpudash ab encdec --lever pipelined=off,on --pairs 6" in text
    assert "25.0 % faster" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["train.py", "-q"], ["--", "train.py", "-q"]])
def test_the_command_on_the_card_of_a_script_asks_the_same(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    comparison = Comparison(question())
    Conducted(comparison, Worker(a_quarter_faster)).run()
    off = dict.fromkeys(("json", "exit_code", "force"), False)
    how = {"starts": 1, "price": None, "user_command": words, "nproc": None, "device": "auto"}
    card = tmp_path / "ab.md"
    conclude(
        StartFindings([StartFinding(comparison, Snapshot())]), Namespace(**off, **how, card=card)
    )
    command = "gpudash ab --lever pipelined=off,on --pairs 6 -- train.py -q\n"
    assert card.read_text().endswith(f"    {command}")


ASKED = "--lever pipelined=off,on"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (f"{ASKED} --card ab.png", "cannot write a card to ab.png: its name has to end in .svg or"),
        (f"{ASKED} --card there.md", "there.md exists"),
        (f"{ASKED} --card folder.md --force", "folder.md: it is a folder"),
        (f"{ASKED} --card no/ab.md", "cannot write a card to no/ab.md: no is no folder that can"),
        (f"{ASKED} --force", "--force goes with --card FILE"),
        ("--no-instruments --card ab.md", "--card goes with --lever"),
    ],
)
def test_a_card_that_could_not_be_written_is_refused_at_once(private, refused, options, said):
    (private / "there.md").touch()
    (private / "folder.md").mkdir()
    assert said in refused("ab", "encdec", *options.split())
