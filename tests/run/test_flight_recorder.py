"""PyTorch's flight recorder is read if the user has named pipes, and only then."""

import os
import pickle
import subprocess

import pytest

from gpudash.protocol.inspections import Joined
from gpudash.ranks.hangs import Awaited, awaited
from gpudash.rendezvous import Rendezvous
from gpudash.run import flight_recorder, stacks
from gpudash.run.flight_recorder import FILES, PIPE, ask, joined
from tests.waiting import until
from tests.warm import python

RANK = """
import os, sys, time
stem, file, dump, half = sys.argv[1:]
pipe = stem + "3.pipe"
os.mkfifo(pipe)
fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
print("ready", flush=True)
while True:
    time.sleep(0.02)
    if not os.read(fd, 128):
        continue
    whole = open(dump, "rb").read()
    with open(file, "wb") as written:
        written.write(whole[: len(whole) // 2])
        written.flush()
        time.sleep(0.2)
        if half == "whole":
            written.write(whole[len(whole) // 2 :])
"""
"""Acts like a PyTorch rank with pipes."""
REAL = """
import pickle, time, torch
from pathlib import Path
from torch import distributed
distributed.init_process_group(
    "gloo", store=distributed.HashStore(), rank=0, world_size=1
)
for _ in range(3):
    distributed.all_reduce(torch.ones(1 << 19))
while True:  # that one has completed is noted a moment later
    dumped = torch._C._distributed_c10d._dump_fr_trace()
    if all(one["retired"] for one in pickle.loads(dumped)["entries"]):
        break
    time.sleep(0.01)
Path({path!r}).write_bytes(dumped)
"""


def entry(number, name="all_reduce", state="completed", group=("0", "default_pg"), **fields):
    return {
        "record_id": number,
        "process_group": group,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{name}",
        "input_sizes": [[1 << 20], [4, 1 << 18]],
        "input_dtypes": ["Float", "BFloat16"],
        "state": state,
        "retired": state == "completed",
        "is_p2p": False,
        "frames": [{"name": "all_reduce", "filename": "x.py", "line": 1}],
    } | fields


def dump(*entries, groups=(("0", "default_pg"),)):
    config = {name: {"name": name, "desc": desc, "ranks": "[0, 1]"} for name, desc in groups}
    return pickle.dumps({"version": "2.10", "pg_config": config, "entries": [*entries]}, protocol=2)


WAITS = dump(entry(1417), entry(1418, state="started"), entry(1419, state="scheduled"))
JOINED = (
    Joined(
        group="0",
        group_name="default_pg",
        newest=1419,
        waits_in=1418,
        collective="all_reduce",
        mib=6.0,
    ),
)


# ── the dump ─────────────────────────────────────────────────────────────────────


DEFAULT = {"group": "0", "group_name": "default_pg"}
DUMPS = {
    "the newest and the oldest incomplete collective": (WAITS, JOINED),
    "a complete one": (dump(entry(3)), (Joined(**DEFAULT, newest=3),)),
    "a group without a collective": (
        dump(entry(3), groups=(("0", "default_pg"), ("7", "tp"))),
        (Joined(**DEFAULT, newest=3), Joined(group="7", group_name="tp")),
    ),
    "messages between two ranks are no collectives": (
        dump(entry(3), entry(9, state="started", is_p2p=True)),
        (Joined(**DEFAULT, newest=3),),
    ),
    "a type of unknown size has none": (
        dump(entry(3, state="started", input_dtypes=["Float4", "Float"])),
        (Joined(**DEFAULT, newest=3, waits_in=3, collective="all_reduce"),),
    ),
}


@pytest.mark.parametrize(("raw", "found"), DUMPS.values(), ids=DUMPS)
def test_a_dump_says_which_collectives_a_rank_has_joined(raw, found):
    assert joined(raw) == found


def test_what_pytorch_itself_writes_is_read(tmp_path):
    path = tmp_path / "trace"
    python("-c", REAL.format(path=str(path)))
    (found, *_) = [one for one in joined(path.read_bytes()) if one.newest]
    assert (found.newest, found.waits_in) == (3, None)


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm",)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        WAITS[:-1],
        WAITS[: len(WAITS) // 2],
        b"\x80\x02nonsense",
        pickle.dumps([1, 2]),
        pickle.dumps({"entries": [{"state": 1}]}),
        pickle.dumps({"entries": [Harmful()]}),
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02" + b"(" * 100_000 + b"]" * 10,
    ],
)
def test_an_invalid_dump_is_none_and_runs_no_code(raw, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert joined(raw) is None
    assert not any(tmp_path.iterdir())


# ── requests ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def start(tmp_path, start_child):
    (tmp_path / "dump").write_bytes(WAITS)

    def begin(stem=str(tmp_path / "pipe_"), file=str(tmp_path / "file_"), half="", **environment):
        words = [stem, f"{file}3", str(tmp_path / "dump"), half or "whole"]
        environment = {"HOME": str(tmp_path), PIPE: stem, FILES[1]: file} | environment
        set_ones = {name: value for name, value in environment.items() if value}
        return start_child(RANK, *words, env=set_ones, cwd=tmp_path)

    return begin


def test_a_rank_with_a_pipe_answers_each_request(start, tmp_path):
    rank = start()
    assert until(ask(rank.pid).joined) == JOINED
    (tmp_path / "dump").write_bytes(dump(entry(1500)))
    assert until(ask(rank.pid).joined)[0].newest == 1500
    assert rank.poll() is None


def test_its_names_may_be_seen_from_its_own_folder(start):
    assert until(ask(start(stem="here_", file="there_").pid).joined) == JOINED


@pytest.mark.parametrize("cache", ["", "cache"])
def test_the_file_is_where_pytorch_writes_it_by_itself(start, tmp_path, cache):
    folder = tmp_path / (cache or ".cache") / "torch"
    folder.mkdir(parents=True)
    variables = {FILES[1]: "", "XDG_CACHE_HOME": str(tmp_path / cache) if cache else ""}
    assert until(ask(start(file=str(folder / "comm_lib_trace_rank_"), **variables).pid).joined)


def test_the_newer_of_two_variables_names_the_file(start):
    assert until(ask(start(**{FILES[0]: "new_", FILES[1]: "old_"}, file="new_").pid).joined)


@pytest.mark.parametrize("pipe", ["", "/elsewhere/pipe_"])
def test_a_process_without_a_named_pipe_is_not_asked(start, tmp_path, pipe):
    assert ask(start(**{PIPE: pipe}).pid) is None
    assert not (tmp_path / "file_3").exists()


def test_a_process_without_an_open_pipe_is_not_asked(start, tmp_path):
    start()  # its pipe is another one's
    stem = str(tmp_path / "pipe_")
    with subprocess.Popen(["sleep", "60"], env={PIPE: stem, "PATH": os.environ["PATH"]}) as other:
        assert ask(other.pid) is None
        other.kill()
    assert ask(other.pid) is None  # it is gone


def test_a_rank_that_does_not_write_in_time_delays_no_other(start, tmp_path, monkeypatch):
    monkeypatch.setattr(flight_recorder, "PATIENCE_S", 0.5)
    monkeypatch.setattr(stacks, "PATIENCE_S", 0.1)
    slow, other = start(half="half"), start(stem=str(tmp_path / "b_"), file=str(tmp_path / "c_"))
    found = until(stacks.LocalStacks(Rendezvous(tmp_path), [slow.pid, other.pid]).answers)
    assert {pid: one.joined for pid, one in found.items()} == {slow.pid: (), other.pid: JOINED}


# ── absent ranks ───────────────────────────────────────────────────────────────────────


def of(*entries, groups=(("0", "default_pg"),)):
    return joined(dump(*entries, groups=groups))


REDUCES = of(entry(1418, state="started"), entry(1419, state="scheduled"))


BROADCASTS = of(entry(1418, "broadcast", "started"))
HAS_LEFT = of(entry(1418))
TINY = of(entry(2, state="started", input_sizes=[[1]], input_dtypes=["Long"]))
REDUCE = "all_reduce #1,418 (6 MiB)"
ABSENT = {
    "a rank that has not joined": ((REDUCES, REDUCES, of(entry(1417))), Awaited(REDUCE, (2,), "")),
    "none if all have": ((REDUCES, REDUCES), Awaited(REDUCE, (), "")),
    "none if one has left already": ((HAS_LEFT, REDUCES), Awaited(REDUCE, (), "")),
    "nothing is awaited if all have left": ((HAS_LEFT, HAS_LEFT), None),
    "another collective of the same number": (
        (REDUCES, BROADCASTS, REDUCES),
        Awaited(REDUCE, (1,), "broadcast"),
    ),
    "a small collective": ((TINY,), Awaited("all_reduce #2 (< 1 MiB)", (), "")),
}


@pytest.mark.parametrize(("of_ranks", "absent"), ABSENT.values(), ids=ABSENT)
def test_which_rank_is_absent(of_ranks, absent):
    assert awaited(dict(enumerate(of_ranks))) == absent


def test_with_several_groups_the_absent_rank_that_waits_in_none_counts():
    world, pair = ("0", "default_pg"), ("7", "tp")
    waits = {"state": "started"}
    found = {
        0: of(entry(5, group=world, **waits), groups=(world,)),
        1: of(entry(4, group=world), entry(9, group=pair, **waits), groups=(world, pair)),
        2: of(entry(4, group=world), groups=(world, pair)),
    }
    assert awaited(found) == Awaited("all_reduce #9 of tp (6 MiB)", (2,), "")
