"""`gpudash ab --starts`: one comparison in each of several starts, and one verdict over them."""

import json

import jsonschema
import msgspec
import pytest

from gpudash.cli.ab_report import ComparisonReport
from gpudash.errors import Exit, UsageError
from gpudash.protocol.training import Failed
from tests.scripted_session import ScriptedSession, called
from tests.scripted_worker import Worker

ASKED = ("ab", "encdec", "--lever", "pipelined=off,on", "--pairs", "16")


def gaining(*ratios):
    """Sessions in which `on` is faster by these ratios, one after the other."""
    return [
        ScriptedSession(
            Worker(lambda settings, r=ratio: 50 / (r if settings["pipelined"] == "on" else 1))
        )
        for ratio in ratios
    ]


def run(*trains, words=()):
    """Compare in so many starts of a training, and return the exit code."""
    return called(*ASKED, "--starts", str(len(trains)), *words, trains=trains)


# ── the verdict ─────────────────────────────────────────────────────────────────────────


def test_the_verdict_the_starts_and_the_rates_over_them_are_printed(capsys):
    trains = gaining(1.04, 1.05, 1.06)
    assert run(*trains) == Exit.DONE
    assert [one.experiment.question.seed for one in trains] == [0, 1, 2]  # its own order of blocks
    out, err = capsys.readouterr()
    verdict, starts, rates, _ = out.splitlines()
    assert verdict.startswith("pipelined=on is 5.0 % faster [2.5, 7.5], 3 starts, 48 pairs")
    assert starts == "the starts: +4.0, +5.0, +6.0 %"
    assert rates == (
        "pipelined=off: 20.0 steps/s, host busy 2 ms a step; "
        "pipelined=on: 21.0 steps/s, host busy 2 ms a step"
    )
    assert "start 2 of 3: pipelined=on is 5.0" in err
    assert "start 3 of 3, pipelined: off or on? 16/16 pairs" in err


def test_json_holds_each_start_and_the_interval_over_them(capsys):
    assert run(*gaining(1.04, 1.05, 1.06), words=["--json"]) == Exit.DONE
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    jsonschema.validate(found, msgspec.json.schema(ComparisonReport))
    assert found["pairs"] == 48
    over = (found["low"], found["change"], found["high"])
    assert over == pytest.approx((0.025, 0.05, 0.075), abs=1e-3)
    assert found["steps_per_s"][1] / found["steps_per_s"][0] == pytest.approx(1 + found["change"])
    for one, change, seed in zip(found["starts"], (0.04, 0.05, 0.06), (0, 1, 2), strict=True):
        near = pytest.approx(change)
        assert one | {"change": near, "low": near, "pairs": 16, "seed": seed} == one
    assert found["verdict"].startswith("pipelined=on is 5.0 % faster")


# ── fewer starts than planned ───────────────────────────────────────────────────────────

BROKEN = ScriptedSession(failure=Failed(kind="error", sentence="it cannot be"))


def interrupted():
    return ScriptedSession(Worker(), turns=30, ctrl_c=True)


@pytest.mark.parametrize(
    ("last", "code", "how", "why"),
    [
        (BROKEN, Exit.FAILED, "ended by a failure", "it cannot be; that was start 3 of 4"),
        (
            UsageError("lever gone"),
            Exit.REFUSED,
            "ended by a failure",
            "no verdict in start 3 of 4: lever gone",
        ),
        (interrupted(), Exit.INTERRUPTED, "interrupted", "no verdict in start 3 of 4: interrupted"),
    ],
    ids=["failure", "refusal", "Ctrl-C"],
)
def test_from_two_starts_on_there_is_a_verdict_and_the_code_says_how_it_ended(
    last, code, how, why, capsys
):
    assert run(*gaining(1.04, 1.06), last, BROKEN) == code
    out, err = capsys.readouterr()
    assert out.startswith("no difference shown for pipelined=on: +5.0 % [-7.0, +18.5], 2 starts")
    assert f"; {how} before its 4 starts; two starts give a wide interval" in out
    assert f"gpudash: {why}\n" in err


def test_of_one_start_it_says_what_that_has_found(capsys):
    assert run(*gaining(1.05), BROKEN, BROKEN, words=["-q"]) == Exit.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("gpudash: no verdict over starts: it needs 2; the only one says: ")
    assert "pipelined=on is 5.0" in last
    assert run(*gaining(1.05), BROKEN, words=["--json"]) == Exit.FAILED
    found = json.loads(capsys.readouterr().out)
    assert len(found["starts"]) == 1
    alone = {"verdict": None, "low": None, "confidence": 0.95, "change": pytest.approx(0.05)}
    assert found | alone == found


def test_if_the_first_start_fails_it_ends_as_an_ab_of_one_start_does(capsys):
    assert run(BROKEN, BROKEN) == Exit.FAILED
    assert run(UsageError("no such lever"), BROKEN) == Exit.REFUSED
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "gpudash: no such lever")


# ── what is asked for ───────────────────────────────────────────────────────────────────


def test_a_precision_does_not_go_with_starts(refused):
    words = ["ab", "--lever", "pipelined=off,on", "--starts", "2", "--within", "1%"]
    assert "--within does not go with --starts" in refused(*words)


def test_the_card_of_several_starts_tells_their_verdict(tmp_path):
    card = tmp_path / "ab.md"
    assert run(*gaining(1.24, 1.25, 1.26), words=["--card", str(card)]) == Exit.DONE
    text = card.read_text()
    assert "95 % interval over 3 starts" in text
    assert "gpudash ab encdec --lever pipelined=off,on --starts 3" in text


def test_one_start_of_several_has_no_card(tmp_path):
    card = tmp_path / "ab.md"
    assert run(*gaining(1.25), UsageError("no"), words=["--card", str(card)]) == Exit.REFUSED
    assert not card.exists()
