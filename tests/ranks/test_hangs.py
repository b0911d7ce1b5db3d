"""When a hang is suspected, where each rank is, and which ranks are missing."""

from itertools import count

import pytest

from gpudash.protocol.commands import Stacks
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import Joined, Stack
from gpudash.protocol.training import Device
from gpudash.ranks.hangs import Hangs, clauses, log_lines, missing
from gpudash.snapshot import Hang, RankStack
from tests.lives import Narrator, failed, in_process, parted
from tests.scripted_run import BEGAN_S, Trainer

SEQ = count()
LOAD = 'Stack (most recent call first):\n  File "/home/u/data.py", line 41 in load\n'
REDUCE = (
    "Stack (most recent call first):\n"
    '  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
    '  File "/home/u/train.py", line 7 in step\n'
)
BACKWARD = (
    "Stack (most recent call first):\n"
    '  File "/v/site-packages/torch/autograd/graph.py", line 9 in _engine_run_backward\n'
    '  File "/home/u/train.py", line 8 in step\n'
)


class Job:
    """Some ranks in lockstep, on a made-up clock."""

    def __init__(self, ranks=3, step_ms=50.0, steps=20, device="cpu"):
        self.hangs, self.narrator = Hangs(), Narrator()
        self.ranks = {rank: Trainer(stamps=False) for rank in range(ranks)}
        for rank, trainer in self.ranks.items():
            self.say(rank, in_process(trainer.start(), device=Device(kind=device, name="")))
        self.train(steps, step_ms)

    @property
    def ended_s(self):
        return self.ranks[0].now_s

    def train(self, steps, step_ms=50.0):
        for _ in range(steps):
            for rank, trainer in self.ranks.items():
                self.say(rank, trainer.step(step_ms))

    def say(self, rank, body, at_s=BEGAN_S, source="training"):
        body = self.narrator.tell(body, rank)
        self.hangs.take(Envelope(source=source, rank=rank, seq=next(SEQ), sent_s=at_s, body=body))

    def answer(self, *texts, why=""):
        for rank, text in enumerate(texts):
            self.say(rank, Stack(at_s=self.ended_s, text=text, why="" if text else why))

    def wants_stacks(self, after_s):
        return self.hangs.wants_stacks(self.ended_s + after_s)

    def after(self, seconds):
        return self.hangs.hang(self.ended_s + seconds)


def asked(job, after_s):
    """Have stacks been asked for, so long after the last step."""
    job.say(0, Stacks(id=1), job.ended_s + after_s, source="session")


def hang_of(*texts, why="", device="cpu"):
    job = Job(len(texts), device=device)
    job.answer(*texts, why=why)
    return job.after(34)


def test_a_first_step_may_take_longer():
    job = Job(steps=0)
    assert job.after(29.0) is None
    assert job.after(31.0)
    job.train(1)
    assert job.after(11.0)
    job.say(0, job.ranks[0].change(compile="on"))
    assert job.after(29.0) is None


def test_a_hang_is_suspected_from_those_times_on():
    job = Job(step_ms=1000.0, steps=1)
    assert (job.after(19.999), job.after(20.0).for_s) == (None, pytest.approx(20.0))
    job.train(40, 500.0)  # the usual time follows
    assert job.after(11.0)
    first = Job(steps=0)
    assert first.wants_stacks(30.0)
    asked(first, 30.0)
    assert [first.wants_stacks(s) for s in (59.9, 60.0)] == [False, True]


def test_one_rank_that_goes_on_is_no_hang():
    job = Job()
    ahead = job.ranks[2]
    for _ in range(400):
        job.say(2, ahead.step())
    assert job.hangs.hang(ahead.now_s + 5.0) is None


def test_a_pause_of_all_is_none_and_one_of_a_rank_alone_may_be_a_hang():
    job = Job(2)
    job.say(0, job.ranks[0].pause())
    assert job.after(60.0)
    job.say(1, job.ranks[1].pause())
    assert job.after(60.0) is None
    job.say(0, job.ranks[0].resume())
    assert job.after(60.0)


def test_nothing_is_suspected_before_training_and_after_its_end():
    assert Hangs().hang(1e9) is None
    died, left = Job(2), Job(2)
    died.say(0, failed(died.ended_s, "it died"))
    for rank in (0, 1):
        left.say(rank, parted(left.ended_s))
    assert died.after(60.0) is left.after(60.0) is None


def test_stacks_are_asked_for_once_and_again_every_thirty_seconds():
    job = Job()
    assert [job.wants_stacks(s) for s in (5, 11)] == [False, True]
    asked(job, 11)
    assert [job.wants_stacks(s) for s in (40, 42)] == [False, True]


def test_a_step_ends_a_hang_and_the_next_hang_requests_stacks_again():
    job = Job()
    asked(job, 11)
    job.answer(LOAD, REDUCE, REDUCE)
    assert len(job.after(12).stacks) == 3
    job.train(1)
    assert job.after(1) is None
    assert job.after(11).stacks == ()
    assert job.wants_stacks(11)


@pytest.mark.parametrize(
    ("texts", "absent", "said"),
    [
        (
            (REDUCE, REDUCE, LOAD),
            (2,),
            ("rank 2 is in load (data.py:41)", "the others wait in all_reduce (train.py:7)"),
        ),
        (
            (BACKWARD, LOAD),
            (1,),
            ("rank 1 is in load (data.py:41)", "rank 0 waits in backward (train.py:8)"),
        ),
        (
            (BACKWARD, BACKWARD, REDUCE),
            (2,),
            (
                "rank 2 waits in all_reduce (train.py:7)",
                "the others wait in backward (train.py:8)",
            ),
        ),
        ((BACKWARD, BACKWARD), (), ("all ranks are in backward (train.py:8)",)),
        (
            (BACKWARD, REDUCE),
            (),
            ("rank 0 is in backward (train.py:8)", "rank 1 waits in all_reduce (train.py:7)"),
        ),
        (
            (REDUCE, "", REDUCE),
            (1,),
            ("rank 1 is stopped by a signal", "the others wait in all_reduce (train.py:7)"),
        ),
        ((LOAD,), (), ("it is in load (data.py:41)",)),
    ],
)
def test_the_ranks_that_the_others_wait_for_are_named_first(texts, absent, said):
    hang = hang_of(*texts, why="is stopped by a signal")
    assert (hang.missing, clauses(hang)) == (absent, said)


STEP, *LINES = [
    LOAD.replace("data.py", "train.py").replace("41", line).replace("load", function)
    for line, function in (("41", "step"), ("5", "load"), ("6", "load"), ("7", "load"))
]
MISSING = {
    "at another line than most": (3, "cuda", (STEP, STEP, STEP, LOAD)),
    "of two at two lines none": (None, "cuda", (STEP, LOAD)),
    "in another function than most": (3, "cuda", (*LINES, LOAD)),
    "on a CPU at another line": (2, "cpu", (LINES[0], LINES[0], LINES[1])),
    "on a GPU a backward pass waits for nobody": (0, "cuda", (BACKWARD, *LINES[:2])),
}


@pytest.mark.parametrize(("rank", "device", "texts"), MISSING.values(), ids=MISSING)
def test_a_rank_elsewhere_than_most_is_missing(rank, device, texts):
    assert hang_of(*texts, device=device).missing == (() if rank is None else (rank,))


def test_a_rank_that_has_ended_is_missing():
    job = Job(2)
    job.say(1, parted(job.ended_s))
    assert job.after(12).stacks == ()  # it is not known yet who waits for it
    job.say(0, Stack(at_s=job.ended_s, text=REDUCE))
    hang = job.after(12)
    assert clauses(hang) == ("rank 1 has ended", "rank 0 waits in all_reduce (train.py:7)")


def test_a_rank_that_a_restarted_smaller_job_lacks_is_not_missing():
    job = Job(3)
    for rank in range(3):
        job.say(rank, parted(job.ended_s))
    del job.ranks[2]
    for rank, trainer in job.ranks.items():
        job.say(rank, trainer.start(world_size=2))
    job.train(20)
    job.answer(REDUCE, LOAD)
    assert job.after(15).missing == (1,)


@pytest.mark.parametrize(("texts", "absent"), [((REDUCE, LOAD), (1,)), ((REDUCE, REDUCE), ())])
def test_a_rank_that_nobody_could_ask_is_not_said_to_be_missing(texts, absent):
    job = Job(3)
    job.answer(*texts)
    why = "is on gpu2, where nobody asks it"
    job.say(2, Stack(at_s=job.ended_s, why=why, is_known=False))
    assert job.after(15).missing == absent
    assert f"rank 2 {why}" in clauses(job.after(15))


def recorded(*newest, collective="all_reduce"):
    """A job of ranks that have joined these collectives; all wait for the GPU in one line."""
    job = Job(len(newest), device="cuda")
    for rank, number in enumerate(newest):
        waits_in = 1418 if number >= 1418 else None
        one = Joined(group="0", newest=number, waits_in=waits_in, collective=collective, mib=25.0)
        job.say(rank, Stack(at_s=job.ended_s, text=LOAD, joined=(one,)))
    return job


def test_flight_recorders_show_who_is_missing_if_stacks_do_not():
    hang = recorded(1420, 1419, 1417).after(15)
    assert hang.missing == (2,)
    assert clauses(hang) == (
        "rank 2 has not joined all_reduce #1,418 (25 MiB)",
        "rank 2 is in load (data.py:41)",
        "the others are in load (data.py:41)",
    )
    assert recorded(1418, 3, 3).after(15).recorded.startswith("ranks 1 and 2 have not joined")


def test_stacks_show_who_is_missing_if_all_have_joined():
    job = recorded(1420, 1419)
    assert clauses(job.after(15))[0] == "all ranks have joined all_reduce #1,418 (25 MiB)"
    job.say(0, Stack(at_s=job.ended_s, text=REDUCE, joined=job.after(15).stacks[0].joined))
    job.say(1, Stack(at_s=job.ended_s, text=LOAD))
    hang = job.after(15)
    assert hang.missing == (1,)
    assert clauses(hang)[0] == "all ranks that tell have joined all_reduce #1,418 (25 MiB)"


def test_a_rank_in_another_collective_of_the_same_number_is_named():
    job = recorded(1420, 1420, 1420)
    other = Joined(group="0", newest=1418, waits_in=1418, collective="broadcast")
    job.say(1, Stack(at_s=job.ended_s, text=LOAD, joined=(other,)))
    assert job.after(15).missing == (1,)
    assert (
        clauses(job.after(15))[0] == "rank 1 is in broadcast instead of all_reduce #1,418 (25 MiB)"
    )


def test_what_a_flight_recorder_names_is_shown_as_text():
    hang = recorded(1418, 3, collective="\x1b[31mred").after(15)
    assert "\x1b" not in "".join((*clauses(hang), *log_lines(hang)))


def test_the_log_has_every_call_and_equal_stacks_once():
    hang = hang_of(REDUCE, REDUCE, LOAD)
    assert [*log_lines(hang)] == [
        f"no rank has finished a step for 34 s: {', '.join(clauses(hang))}",
        "ranks 0 and 1:",
        "  /v/site-packages/torch/distributed/distributed_c10d.py:9 all_reduce",
        "  /home/u/train.py:7 step",
        "rank 2:",
        "  /home/u/data.py:41 load",
    ]


def test_ten_thousand_ranks_are_a_few_words():
    def said(stacks):
        return clauses(Hang(for_s=20.0, missing=missing(stacks), stacks=tuple(stacks)))

    many = [RankStack(rank=rank, doing=f"is at x.py:{rank}") for rank in range(9_990)]
    waiting = [RankStack(rank=9_990 + one, doing="waits in barrier") for one in range(10)]
    assert said(many + waiting)[-1] == "9,987 more are elsewhere"
    alike = [RankStack(rank=rank, doing="is at x.py:1") for rank in range(5)]
    waits = RankStack(rank=9, doing="waits in barrier", collective="barrier")
    some = ("ranks 0, 1, 2 and 2 more are at x.py:1", "rank 9 waits in barrier")
    assert said([*alike, waits]) == some
    assert said([*alike[:4], waits])[0] == "ranks 0, 1, 2 and 3 are at x.py:1"


def test_the_log_of_a_single_process_names_no_rank():
    assert [*log_lines(hang_of(LOAD))] == [
        "no step for 34 s: it is in load (data.py:41)",
        "its calls, innermost first:",
        "  /home/u/data.py:41 load",
    ]


@pytest.mark.parametrize(("mib", "size"), [(None, ""), (0.9, " (< 1 MiB)"), (1.0, " (1 MiB)")])
def test_of_two_groups_the_one_is_named_that_waits_for_a_rank_in_no_collective(mib, size):
    """Rank 0 waits for rank 1, which waits for rank 2, which is in none."""
    job = Job(3, device="cuda")

    def joined(group, newest, waits_in=None):
        return Joined(group=group, newest=newest, waits_in=waits_in, collective="gather", mib=mib)

    of_ranks = (joined("0", 8, 8),), (joined("0", 7), joined("1", 6, 6)), (joined("1", 5),)
    for rank, ones in enumerate(of_ranks):
        job.say(rank, Stack(at_s=job.ended_s, text=LOAD, joined=ones))
    assert job.after(15).missing == (2,)
    assert job.after(15).recorded == f"rank 2 has not joined gather #6{size}"
