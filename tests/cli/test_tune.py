"""`gpudash tune`: what it prints, saves and remembers, and how it ends."""

import itertools
import json
import re
import sys
import tomllib
from argparse import Namespace
from pathlib import Path

import jsonschema
import msgspec
import pytest

from gpudash.cli import tune_memory
from gpudash.cli.headless import News
from gpudash.cli.main import main
from gpudash.cli.measure import Ended
from gpudash.cli.tune import ANSWER_S, Tune, TuneReport, conclude, document, lines, progress
from gpudash.compare.tune.tunable import Chosen, LeftOut
from gpudash.errors import Exit, RecordingError
from gpudash.protocol.answer import Answer
from gpudash.protocol.training import Device
from gpudash.run.guarded import Guarded
from gpudash.snapshot import Snapshot
from tests.cli.test_why import TRAIN
from tests.compare.test_tuning import Training, faster_in_nhwc, tuning
from tests.recording.test_csv_format import FullDisk
from tests.scripted_session import ScriptedSession
from tests.scripted_worker import Conducted
from tests.waiting import done, until
from workloads.levers import LeverError

LEFT_OUT = (
    LeftOut(lever="seed", why="it changes the training itself: --levers tries it"),
    LeftOut(lever="data", why="it changes the training itself: --levers tries it"),
    LeftOut(lever="pin_memory", why="it needs a GPU"),
)


@pytest.fixture(autouse=True)
def _private(private, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(private / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(private / "config"))
    (private / ".git").mkdir()


def tuned(worker=None, **how):
    found = tuning("channels_last", "precision", **how)
    Conducted(found, worker or Training(faster_in_nhwc)).run()
    return found


def concluded(found, *, interrupted=False, circumstances=None, **how):
    about = {"json": False, "exit_code": False, "save": None, "project_file": Path("gpudash.toml")}
    about["price"] = None
    begun = Tune(Namespace())
    begun.tuning, begun.choice = found, Chosen(found.tunables, LEFT_OUT)
    begun.circumstances = circumstances
    return conclude(
        begun, Namespace(**about | how), Ended(Snapshot(workload="encdec"), interrupted)
    )


def test_levers_that_may_follow_are_waited_for_when_no_answer_is_any_more():
    news, asked = News(), Namespace(only="frozen_precision", numerics=False, budget=60.0)
    begun = Tune(asked).begin(ScriptedSession(), news)
    early = Snapshot(total_steps=1, levers_complete=False)
    late = msgspec.structs.replace(early, elapsed_s=2 * ANSWER_S)
    for snapshot in (early, late):
        news.on_snapshot(snapshot)
        assert not begun.is_over()
    news.on_snapshot(msgspec.structs.replace(late, levers_complete=True))
    with pytest.raises(LeverError, match="unknown lever 'frozen_precision'"):
        begun.is_over()


# ── what is printed ─────────────────────────────────────────────────────────────────────


def test_it_prints_what_was_tried_the_verdict_and_the_lines_of_pytorch():
    printed = list(lines(tuned(), LEFT_OUT))
    assert printed[0] == "tried, each against the best of then:"
    assert re.search(r"\n  channels_last off → on +taken\n", "\n".join(printed))
    assert (
        "not tried: seed, data (it changes the training itself: --levers tries it); "
        "pin_memory (it needs a GPU)"
    ) in printed
    verdict = next(at for at, one in enumerate(printed) if " % faster [" in one)
    assert any("channels_last" in one and one.startswith("+") for one in printed[verdict:])


def test_combinations_that_were_not_taken_are_counted_and_not_listed():
    *_, others, verdict = itertools.takewhile(bool, lines(tuned()))
    assert re.fullmatch(r"  and \d combinations? of these, none of them faster", others)
    assert re.search(r"; the best found of [56] settings tried$", verdict)


@pytest.mark.parametrize(("budget_s", "waits_s", "spent_s"), [(60.0, 9.0, 9.0), (10.0, 9.0, 5.0)])
def test_the_budget_begins_with_the_first_step(budget_s, waits_s, spent_s):
    news = News()
    asked = Namespace(
        only=None, numerics=True, fresh=True, energy=False, budget=budget_s, quiet=True
    )
    begun = Tune(asked).begin(ScriptedSession(), news)
    levers = tuple(one.lever for one in tuning("channels_last").tunables)
    early = Snapshot(
        total_steps=1, levers_complete=False, levers=levers, device=Device(kind="cuda", name="H100")
    )
    for snapshot in (early, msgspec.structs.replace(early, elapsed_s=waits_s)):
        news.on_snapshot(snapshot)
        assert not begun.is_over()
    known = msgspec.structs.replace(early, elapsed_s=waits_s, levers_complete=True)
    news.on_snapshot(msgspec.structs.replace(known, answer=Answer(limit="gpu", title="GPU-bound")))
    assert not begun.is_over()
    allowance = begun.tuning.allowance
    assert (allowance.budget_s, allowance.spent_s) == (budget_s, spent_s)


def test_why_a_value_could_not_be_tried_is_said():
    refuses = {"bf16": "no bf16 here"}
    worker = Training(faster_in_nhwc, refuses=lambda one: refuses.get(one["precision"]))
    assert re.search("bf16 +no bf16 here$", "\n".join(lines(tuned(worker))), re.MULTILINE)


def test_a_document_has_the_best_the_verdict_and_what_was_tried():
    report = document(tuned(), Snapshot(workload="encdec"), LEFT_OUT)
    found = json.loads(msgspec.json.encode(report))
    jsonschema.validate(found, msgspec.json.schema(TuneReport))
    assert found["best"] == {"channels_last": "on", "precision": "bf16"}
    assert found["start"] == {"channels_last": "off", "precision": "tf32"}
    assert found["verdict"].startswith("channels_last=on, precision=bf16 is ")
    assert {"changes", "before", "change", "taken", "why_not"} <= found["tried"][0].keys()
    assert found["low"] > 0.5


def test_the_progress_line_says_what_is_tried_and_the_best_so_far():
    found = tuning("channels_last", "precision")
    conducted, seen = Conducted(found, Training(faster_in_nhwc)), []
    while not found.done:
        conducted.turn()
        seen.append(progress(found))
    assert any(one.startswith("trying channels_last off or on, ") for one in seen)
    assert any("trying precision" in one and "best so far channels_last=on" in one for one in seen)
    assert seen[-1].startswith("proving channels_last=on, precision=bf16 against the start, ")


# ── how it ends ─────────────────────────────────────────────────────────────────────────


def nothing_faster():
    return tuned(Training(lambda _settings: 50.0, noise=0.001))


def test_scripts_learn_from_the_exit_code_whether_something_is_faster(capsys):
    same = nothing_faster()
    assert concluded(tuned(), exit_code=True) == Exit.DONE
    assert concluded(same, exit_code=True) == Exit.NOT_SHOWN
    assert concluded(same, save="fast") == Exit.DONE
    said = capsys.readouterr()
    assert "nothing faster was found" in said.out
    assert "no profile fast was saved" in said.err
    assert not Path("gpudash.toml").exists()


def test_what_was_proven_is_remembered_and_where_nothing_was_all_is_tried_again():
    """A second tune has to measure something: the script may be another one by then."""
    of = tune_memory.Circumstances(
        workload="encdec", command=(), found="", settings={}, levers=(), device="GPU", versions={}
    )
    concluded(tuned(), circumstances=of)
    assert tune_memory.recall(of) == {"channels_last": "on", "precision": "bf16"}
    concluded(nothing_faster(), circumstances=of)
    assert tune_memory.recall(of) is None


def test_a_gain_that_is_not_proven_above_1_percent_keeps_the_start(capsys):
    almost = Training(lambda one: 50.0 - 0.3 * (one["channels_last"] == "on"), noise=1e-4)
    found = tuned(almost, recall=lambda _state: {"channels_last": "on"})
    assert concluded(found, exit_code=True) == Exit.NOT_SHOWN
    assert "the start stays: no gain above 1 % is proven" in capsys.readouterr().out


def test_interrupted_it_says_the_best_so_far(capsys):
    found = tuning("channels_last", "precision")
    conducted = Conducted(found, Training(faster_in_nhwc))
    while not found.leader:
        conducted.turn()
    assert concluded(found, interrupted=True) == Exit.INTERRUPTED
    said = capsys.readouterr()
    assert "no verdict: interrupted; the best so far, not proven: channels_last=on" in said.err
    assert "channels_last off → on" in said.out
    early = tuning("channels_last")
    Conducted(early, Training(faster_in_nhwc)).turn(3)
    assert concluded(early, interrupted=True) == Exit.INTERRUPTED
    assert capsys.readouterr().err == "gpudash: no verdict: interrupted\n"


# ── a saved profile ─────────────────────────────────────────────────────────────────────


def test_the_best_is_saved_as_a_profile_beside_what_the_file_has(capfd, printed):
    Path("gpudash.toml").write_text("rate = 2  # slow link")
    assert concluded(tuned(), save="fast") == Exit.DONE
    assert "gpudash encdec --profile fast" in capfd.readouterr().err
    text = Path("gpudash.toml").read_text()
    assert text.startswith("rate = 2  # slow link\n\n[profiles.fast.levers.encdec]\n")
    found = tomllib.loads(text)["profiles"]["fast"]["levers"]["encdec"]
    assert found == {"channels_last": "on", "precision": "bf16"}
    assert "channels_last" in printed("info", "encdec", "--profile", "fast")


def test_a_profile_goes_into_pyproject_where_that_has_the_configuration_and_ends_lines_alike():
    path = Path("pyproject.toml")
    path.write_bytes(b"[tool.gpudash]\r\nrate = 2\r\n")
    tune_memory.save_profile(path, "fast", "encdec", {"precision": "bf16"})
    text = path.read_bytes()
    assert text.startswith(b"[tool.gpudash]\r\nrate = 2\r\n\r\n[tool.gpudash.profiles.fast.")
    assert text.count(b"\n") == text.count(b"\r\n") == 5


@pytest.mark.parametrize(
    ("name", "text", "room", "why"),
    [
        ("pyproject.toml", "[tool.gpudash]\nrate = 2\n", 40, "pyproject.toml: the disk is full"),
        ("gpudash.toml", "profiles = { a = { rate = 2 } }\n", 10**6, ""),
    ],
    ids=["a full disk", "no place for it"],
)
def test_a_file_that_cannot_take_it_stays_as_it_is(monkeypatch, name, text, room, why):
    path = Path(name)
    path.write_text(text)
    monkeypatch.setattr("os.write", FullDisk(room=room))
    with pytest.raises(RecordingError, match=rf"the profile was not saved: {why}"):
        tune_memory.save_profile(path, "fast", "encdec", {"precision": "bf16"})
    assert path.read_text() == text


# ── over a training ─────────────────────────────────────────────────────────────────────


def test_a_workload_in_which_nothing_is_faster_keeps_its_start(
    called_with_double, monkeypatch, capsys
):
    """Its steps take what the double says, however busy the machine is.

    What noise does is told by the simulations of tests/compare/test_tuning.py: the start is kept
    often, and no single tune is certain to keep it.
    """
    monkeypatch.setenv("DOUBLE_STEP_MS", "10")
    how = ("--device", "cpu", "--levers", "channels_last", "--budget", "6", "--json")
    assert main(["tune", "encdec", *how]) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["best"], found["workload"]) == ({}, "encdec")
    assert found["tried"][0]["changes"] == {"channels_last": "on"}


FAILS = """
import sys
from tests.run.scripted_training import Worker, main
Worker.switch = lambda *_, **__: sys.exit(7)  # once a value is tried
main()
"""
TUNE = [sys.executable, "-m", "gpudash", "tune", "--json", "-q", "--levers"]
ENDLESS = ("--", "train.py", "100000000", "0.06", "0.03")


def test_a_script_that_fails_has_what_was_tried_and_its_own_exit_code(monkeypatch, capfd):
    looks = []

    class LateEnd(Guarded):
        def close(self):
            until(lambda: any(looks))  # the tune was seen to be over, but not yet the session
            super().close()

    is_over = Tune.is_over
    monkeypatch.setattr(Tune, "is_over", lambda tune: looks.append(is_over(tune)) or looks[-1])
    monkeypatch.setattr("gpudash.cli.measure.Guarded", LateEnd)
    Path("train.py").write_text(FAILS)
    assert main([*TUNE[3:], "num_workers", "--", "train.py"]) == 7
    output, errors = capfd.readouterr()
    assert errors.splitlines()[-1].startswith("gpudash: no verdict: train.py exited with 7")
    assert json.loads(output)["start"] == {"num_workers": "2"}


@pytest.fixture
def _training(with_torch, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(with_torch))
    Path("train.py").write_text(TRAIN)


@pytest.mark.usefixtures("_training", "shared_memory")
def test_nothing_to_tune_is_one_line():
    ended = done(*TUNE, "channels_last", *ENDLESS)
    assert ended.returncode == Exit.REFUSED
    assert ended.stderr.endswith(  # the training may have been printing
        "gpudash: nothing to tune in train.py: channels_last (the model has no 4-D weights)\n"
    )


@pytest.mark.usefixtures("_training", "shared_memory")
def test_a_script_gets_more_loader_workers_and_its_second_tune_only_the_proof():
    first, second = (json.loads(done(*TUNE, "num_workers", *ENDLESS).stdout) for _ in range(2))
    if not first["best"]:
        assert str(first["verdict"]).startswith("cannot tell")  # other jobs took the cores
        return
    assert int(first["best"]["num_workers"]) > 1
    assert not first["remembered"]
    assert second["remembered"]
    assert (second["leader"], second["tried"]) == (first["best"], [])
    assert json.loads(tune_memory.place().read_bytes())["findings"]
