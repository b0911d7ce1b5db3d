"""The receipt that the dashboard leaves on the terminal."""

import pytest
from msgspec.structs import replace as changed

from gpudash.present.own_line import OwnLine
from gpudash.present.receipt import MOST_LINES, WIDTH, receipt
from gpudash.protocol.answer import Answer, Gain, Try
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import Device, Lever
from gpudash.snapshot import Result, Snapshot

OWN = {"num_workers": "0", "precision": "fp32", "fused_optimizer": "off"}
NOW = OWN | {"num_workers": "4"}


def offered(name, default):
    return Lever(name=name, kind="choice", default=default, summary="", source="")


def compared(lever, a, b, change, low, high, **values):
    shown = ComparisonShown(
        lever=lever,
        a=a,
        b=b,
        pairs=18,
        planned_pairs=40,
        change=change,
        low=low,
        high=high,
        history=(),
        sides={"steps_per_s": (12.7, 47.6)},
        verdict="…",
        failure=None,
    )
    return changed(shown, **values)


WORKERS = compared("num_workers", "0", "4", 2.75, 2.65, 2.85)
FUSED = compared("fused_optimizer", "off", "on", 0.004, -0.011, 0.019)
BF16 = compared("precision", "fp32", "bf16", -0.05, -0.06, -0.04)
ANSWER = Answer(
    limit="data",
    title="input-bound",
    evidence=("the GPU waits for data 17.7 of 21.0 ms", "the loader sleeps"),
    tries=(
        Try(lever="compile", value="on", why="", before="off"),
        Try(lever="num_workers", value="8", why="", before="4", gain=Gain(70, 95)),
    ),
)
RUN = Snapshot(
    workload="train.py",
    state="training",
    elapsed_s=1300.0,
    total_steps=34_730,
    device=Device(kind="cuda", name="NVIDIA H200"),
    settings=NOW,
    levers=tuple(offered(*one) for one in OWN.items()),
    steps_per_s=47.6,
    samples_per_s=762.0,
    results=(Result(number=1, configuration="", settings=OWN, samples_per_s=203.0),),
    answer=ANSWER,
    verdicts=(FUSED, WORKERS),
)


PROVEN = "+275.0 % [+265.0, +285.0]"


def test_a_run_is_told_in_eight_lines():
    assert receipt(RUN, "gpudash replay run.csv") == [
        "gpudash: train.py, 34,730 steps in 21:40 on NVIDIA H200",
        "  rate     762 samples/s, 47.6 steps/s; 203 samples/s at the start",
        "  limit    input-bound: the GPU waits for data 17.7 of 21.0 ms",
        f"  proven   num_workers 0 → 4   {PROVEN}, 18 pairs, kept, losses not compared",
        "  A/B      fused_optimizer off → on   no difference shown, +0.4 % [-1.1, +1.9], 18 pairs",
        "  levers   num_workers=4",
        "  next     num_workers 4 → 8   +70 to +95 %, an estimate",
        "  again    gpudash replay run.csv",
    ]


def test_workloads_that_were_trained_one_after_another_are_all_named():
    first, *_ = receipt(changed(RUN, workload="augment", others=("encdec",)))
    assert first == "gpudash: encdec and augment, 34,730 steps in 21:40 on NVIDIA H200"


def test_a_single_lever_is_told_by_the_scripts_own_line():
    own = OwnLine("train.py:30", "x", "loader = DataLoader(data, num_workers=4)")
    asked = []

    def code(*lever):
        asked.append(lever)
        return own

    lines = receipt(RUN, code=code)
    assert asked == [("num_workers", "4")]
    assert "  code     train.py:30   loader = DataLoader(data, num_workers=4)" in lines
    assert not [line for line in lines if line.startswith("  levers")]
    two = changed(RUN, settings=NOW | {"precision": "bf16"})
    assert "  levers   num_workers=4, precision=bf16" in receipt(two, code=code)


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ({"samples_per_s": None, "steps_per_s": None, "results": ()}, "rate"),
        ({"answer": None}, "limit"),
        ({"answer": changed(ANSWER, limit="unknown")}, "limit"),
        ({"answer": changed(ANSWER, tries=ANSWER.tries[:1])}, "next"),
        ({"settings": NOW | {"num_workers": "8"}}, "next"),  # it is set already
        ({"verdicts": ()}, "proven"),
        ({"settings": OWN}, "levers"),
        ({}, "again"),  # nothing was recorded
    ],
)
def test_a_line_without_content_is_left_out(values, label):
    lines = receipt(changed(RUN, **values))
    assert not [line for line in lines if line.startswith(f"  {label}")]
    assert all(line.strip() for line in lines)


def verdicts_in(**values):
    lines = receipt(changed(RUN, **values), "gpudash replay run.csv")
    assert len(lines) <= MOST_LINES
    return [line for line in lines if "pairs" in line]


ALL = (FUSED, BF16, WORKERS)
RUNS = changed(WORKERS, verdict=None, pairs=7)
BEST = {"num_workers": "4", "precision": "fp32"}
TUNE = changed(WORKERS, doing="done", start={"num_workers": "0"}, best=BEST)


@pytest.mark.parametrize(
    ("what", "values", "told"),
    [
        ("what is kept comes first, then what was proven", {"verdicts": ALL, "answer": None},
         [("proven", "num_workers", "kept"), ("proven", "precision", "18 pairs"),
          ("A/B", "fused_optimizer", "18 pairs")]),
        ("where verdicts have no room the last ones are left out", {"verdicts": ALL},
         [("proven", "num_workers", "kept"), ("proven", "precision", "18 pairs")]),
        ("the same question is told once with its newest answer",
         {"verdicts": (WORKERS, changed(WORKERS, pairs=36))},
         [("proven", "num_workers", "36 pairs, kept")]),
        ("a control that failed proves nothing",
         {"verdicts": (changed(WORKERS, check_passed=False),)},
         [("A/B", "num_workers", "control failed")]),
        ("an A/B that runs is told as far as it is", {"verdicts": (), "comparison": RUNS},
         [("so far", "num_workers 0 → 4   +275.0 % [+265.0, +285.0]", "7 pairs")]),
        ("which may be nothing", {"verdicts": (), "comparison": changed(RUNS, low=None)}, []),
        ("a tune is told with all that it has found", {"verdicts": (TUNE,)},
         [("proven", "num_workers=0 → num_workers=4, precision=fp32", "kept")]),
        ("which may be nothing, too", {"verdicts": (changed(TUNE, best={}),)}, []),
    ],
)  # fmt: skip
def test_verdicts_are_told(what, values, told):
    shown = verdicts_in(**values)
    assert len(shown) == len(told), what
    for line, (label, question, end) in zip(shown, told, strict=True):
        assert line.startswith(f"  {label.ljust(8)} {question}"), what
        assert end in line


def test_before_the_first_step_there_is_nothing_to_tell_but_the_way_back():
    start = Snapshot(workload="train.py")
    assert receipt(start) == []
    assert receipt(start, "gpudash attach") == [
        "gpudash: train.py, no training step so far",
        "  again    gpudash attach",
    ]


@pytest.mark.parametrize("state", ["finished", "failed", "stopped"])
def test_an_end_is_named(state):
    assert receipt(changed(RUN, state=state))[0].startswith(f"gpudash: train.py {state}, 34,730")


def test_long_texts_are_cut_and_commands_are_not():
    levers = {f"lever_{number}": "on" for number in range(60)}
    found = changed(ANSWER, evidence=("very " * 100,))
    command = f"gpudash replay {'x' * 200}.csv"
    *lines, last = receipt(changed(RUN, settings=levers, answer=found), command)
    assert max(map(len, lines)) <= WIDTH
    assert last.endswith(command)


def test_nothing_that_a_terminal_would_obey_is_printed():
    lines = receipt(changed(RUN, workload="\x1b[31mtrain\n.py"))
    assert all(line.isprintable() for line in lines)
