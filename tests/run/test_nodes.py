"""The listening end, over peers that say whatever they like."""

import json
import os
import platform
import select
import socket
import subprocess
import time
from contextlib import closing

import msgspec
import pytest

from gpudash import rendezvous
from gpudash.errors import UsageError
from gpudash.protocol import (
    Change,
    Device,
    Envelope,
    GpuReading,
    Hello,
    HostReading,
    Joined,
    Progress,
    Refused,
    Resumed,
    Stack,
    Stacks,
    Started,
    Step,
)
from gpudash.run import handshake, nodes, stacks
from gpudash.run.addresses import LOOPBACK, Address
from gpudash.run.handshake import Answer, Challenge, Denied, Welcome
from gpudash.run.link import Parting, Ping, Pong, line_of, own_line
from gpudash.run.nodes import MOST_STRANGERS, Nodes
from gpudash.run.normalise import Normaliser
from gpudash.run.training_processes import TrainingProcesses

TOKEN = "a token of the tests"
WAIT_S = 20.0


@pytest.fixture
def place(monkeypatch, short_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    return rendezvous.begin()


@pytest.fixture
def here(place):
    here = Here(place)
    yield here
    here.processes.close()


class Here:
    """The processes of a run that other nodes may connect to, and all that was told."""

    def __init__(self, place):
        self.nodes = Nodes(Address(LOOPBACK, 0), TOKEN)
        self.processes = TrainingProcesses(place, self.nodes)
        self.told, self.sentences = [], []

    def turn(self):
        self.told += self.processes.read()
        self.sentences += [notice.text for notice in self.processes.notices()]

    def until(self, predicate):
        end_s = time.monotonic() + WAIT_S
        while time.monotonic() < end_s:
            self.turn()
            if found := predicate():
                return found
            time.sleep(0.005)
        raise AssertionError((self.told, self.sentences))

    def bodies(self, kind):
        return [one.body for one in self.told if isinstance(one.body, kind)]

    def hears(self, words):
        return self.until(lambda: [one for one in self.sentences if words in one])[0]


class Peer:
    """Who connects: it may prove itself, and say what it likes."""

    def __init__(self, here, clock_s=time.monotonic):
        self.here, self.clock_s = here, clock_s
        self.socket = socket.create_connection(here.nodes.address)
        self.file = self.socket.makefile("rwb")

    def hear(self, kind=None):
        self.here.until(lambda: select.select([self.socket], [], [], 0)[0])
        line = self.file.readline()
        return line if kind is None else msgspec.json.decode(line, type=kind)

    def say(self, line):
        self.file.write(line + b"\n")
        self.file.flush()

    def prove(self, node="gpu2", run="r", token=TOKEN, can=("stacks",)):
        challenge = self.hear(Challenge)
        said = handshake.answer(token, challenge, node=node, run=run, clock_s=self.clock_s())
        said = msgspec.structs.replace(said, can=can)
        self.say(msgspec.json.encode(said))
        return challenge, said

    def tell(self, body, rank=8, process=412, source="training"):
        envelope = Envelope(source=source, rank=rank, seq=0, sent_s=self.clock_s(), body=body)
        self.say(line_of(process, msgspec.json.encode(envelope)))

    @property
    def is_let_go(self):
        def ended():
            readable = select.select([self.socket], [], [], 0)[0]
            return bool(readable) and not self.socket.recv(1 << 16)

        return self.here.until(ended)


@pytest.fixture
def node(here):
    return connected(here)


def connected(here, **options):
    clock_s = options.pop("clock_s", time.monotonic)
    peer = Peer(here, clock_s)
    challenge, said = peer.prove(**options)
    assert handshake.is_welcome(TOKEN, challenge, said, peer.hear(Welcome))
    return peer


def started(at_s, uuid=None):
    return Started(
        at_s=at_s,
        pid=412,
        workload="train.py",
        device=Device(kind="cuda" if uuid else "cpu", name="x", uuid=uuid),
        settings={},
        warmup_steps=0,
        versions={},
    )


# ── who holds the token ─────────────────────────────────────────────────────────────────


def test_what_a_node_tells_stands_beside_what_is_told_here(here, node):
    node.tell(Hello(pid=412))
    node.tell(started(time.monotonic()))
    here.until(lambda: here.bodies(Started))
    assert [(one.source, one.rank) for one in here.told] == [("training", 8)]
    assert here.bodies(Started)[0].node == "gpu2"
    assert here.hears("node gpu2 is connected; clocks within ")


def test_a_command_reaches_the_process_that_it_is_for(here, node):
    node.tell(Hello(), rank=0)
    here.until(lambda: here.processes._members and here.processes._members[0].rank == 0)
    assert here.processes.send(Change(id=3, settings={"precision": "bf16"})) == []
    process, _, command = node.hear().partition(b" ")
    assert (process, json.loads(command)["settings"]) == (b"412", {"precision": "bf16"})


def ask_for_stacks(here, ranks=1):
    here.until(lambda: len(here.processes._ranks) == ranks)
    here.processes.ask_for_stacks(Stacks(id=4))


def test_where_a_process_elsewhere_is_its_node_tells(here, node):
    node.tell(Hello())
    node.tell(Hello(), rank=9, process=413)
    ask_for_stacks(here, ranks=2)
    process, _, asked = node.hear().partition(b" ")
    assert (process, json.loads(asked)["type"]) == (b"0", "Stacks")
    joined = (Joined(group="0", newest=7),)
    node.tell(Stack(at_s=1.0, text="File", joined=joined), rank=0)
    node.tell(Stack(at_s=1.0, why="has ended"), rank=0, process=413)
    here.until(lambda: len(here.bodies(Stack)) == 2)
    told = [(one.rank, one.body.text, one.body.why, one.body.answers) for one in here.told[-2:]]
    assert told == [(8, "File", "", (4,)), (9, "", "has ended", (4,))]
    assert here.bodies(Stack)[0].joined == joined


def test_a_node_of_an_older_version_is_not_asked_where_its_processes_are(here):
    older = connected(here, can=())
    older.tell(Hello())
    ask_for_stacks(here)
    (stack,) = here.until(lambda: here.bodies(Stack))
    assert (stack.why, stack.is_known) == ("is on gpu2, where nobody asks it", False)
    assert not select.select([older.socket], [], [], 0)[0]


def test_a_node_that_does_not_tell_where_its_processes_are_holds_nobody_up(here, node, monkeypatch):
    monkeypatch.setattr(stacks, "ELSEWHERE_S", 0.05)
    node.tell(Hello())
    ask_for_stacks(here)
    (stack,) = here.until(lambda: here.bodies(Stack))
    assert (stack.why, stack.is_known) == ("is on gpu2, which does not answer", False)


def test_a_command_to_a_node_that_is_lost_is_answered(here, node):
    node.tell(Hello(), rank=0)
    here.until(lambda: here.processes._members and here.processes._members[0].rank == 0)
    here.processes.send(Change(id=3, settings={"precision": "bf16"}))
    node.file.close()
    node.socket.close()
    here.until(lambda: here.bodies(Refused))
    assert here.bodies(Refused)[0].answers == (3,)


def test_times_are_told_by_the_clock_here_wherever_the_others_began(here):
    behind_s = 5e6
    peer = connected(here, clock_s=lambda: time.monotonic() - behind_s)
    before_s = time.monotonic()
    peer.tell(Hello())
    step = Step(step=1, segment=0, samples=None, finished_s=peer.clock_s(), step_ms=2.0)
    told = Progress(until_s=peer.clock_s(), steps=(step,), total_steps=1, total_samples=None)
    peer.tell(told)
    here.until(lambda: here.bodies(Progress))
    (arrived,) = here.bodies(Progress)
    within_s = here.nodes._nodes[0].difference.within_s
    after_s = time.monotonic()
    for at_s in (arrived.until_s, arrived.steps[0].finished_s, here.told[-1].sent_s):
        assert before_s - within_s <= at_s <= after_s + within_s


def test_a_gpu_is_read_under_the_rank_that_trains_on_it(here, node):
    node.tell(Hello())
    node.tell(started(1.0, uuid="GPU-7"))
    here.until(lambda: here.bodies(Started))
    for uuid in ("GPU-7", "GPU-of-nobody"):
        reading = GpuReading(at_s=1.0, index=0, uuid=uuid, name="H200", values={"power_w": 300.0})
        node.say(own_line(reading))
    here.until(lambda: here.bodies(GpuReading))
    (envelope,) = [one for one in here.told if isinstance(one.body, GpuReading)]
    assert (envelope.source, envelope.rank, envelope.body.uuid) == ("node", 8, "GPU-7")


def test_the_processes_of_a_rank_are_read_under_that_rank_unless_it_is_refused(here, node):
    node.tell(Hello(), rank=8, process=412)
    node.tell(Hello(), rank=8, process=413)
    here.hears("training process 413 on gpu2 is left out")
    for process in (413, 1, 412):
        node.say(own_line(HostReading(at_s=1.0, pid=process, values={"cpu_pct": 50.0})))
    here.until(lambda: here.bodies(HostReading))
    (envelope,) = [one for one in here.told if isinstance(one.body, HostReading)]
    assert (envelope.source, envelope.rank, envelope.body.pid) == ("node", 8, 412)


def test_what_a_node_reads_of_rank_0_is_new_whatever_was_read_here(here, node):
    normaliser = Normaliser()
    read_here = GpuReading(at_s=1.0, index=0, uuid="GPU-8", name="H200", values={})
    sampled = Envelope(source="telemetry", seq=1_000, sent_s=1.0, body=read_here)
    assert normaliser.take(sampled) is not None
    node.tell(Hello(), rank=0)
    here.until(lambda: here.processes._ranks)
    node.say(own_line(HostReading(at_s=1.0, pid=412, values={"cpu_pct": 50.0})))
    here.until(lambda: here.bodies(HostReading))
    (envelope,) = [one for one in here.told if isinstance(one.body, HostReading)]
    assert normaliser.take(envelope) is not None


def test_a_node_of_our_own_name_is_told_apart(here):
    node = connected(here, node=platform.node())
    node.tell(Hello())
    node.tell(started(time.monotonic()))
    here.until(lambda: here.bodies(Started))
    assert here.bodies(Started)[0].node == f"another {platform.node()}"


def test_clocks_are_compared_again_and_again(here, node, monkeypatch):
    monkeypatch.setattr(nodes, "PING_S", 0.0)
    for _ in range(3):
        process, _, ping = node.hear().partition(b" ")
        asked = msgspec.json.decode(ping, type=Ping)
        assert process == b"0"
        node.say(own_line(Pong(asked_s=asked.asked_s, clock_s=time.monotonic())))


def test_the_answer_of_a_clock_wakes_who_waits_for_it(here, node, monkeypatch):
    monkeypatch.setattr(nodes, "PING_S", 0.0)
    asked = msgspec.json.decode(node.hear().partition(b" ")[2], type=Ping)
    assert not select.select([here.nodes], [], [], 0)[0]
    node.say(own_line(Pong(asked_s=asked.asked_s, clock_s=time.monotonic())))
    assert select.select([here.nodes], [], [], WAIT_S)[0]


# ── how a node ends ─────────────────────────────────────────────────────────────────────


def test_a_node_that_is_lost_is_told_once_whatever_it_trains(here, node):
    for rank in range(8):
        node.tell(Hello(), rank=rank, process=400 + rank)
    here.until(lambda: len(here.processes._members) == 8)
    node.file.close()
    node.socket.close()
    here.hears("node gpu2 is lost: it has hung up; its training goes on unwatched")
    assert here.processes.parted_s is not None
    assert not here.processes._gone


def test_a_node_whose_command_ends_says_how(here, node):
    node.say(own_line(Parting(text="train.py exited with 3")))
    node.file.close()
    node.socket.close()
    assert here.hears("gpu2: ") == "node gpu2: train.py exited with 3"


def test_a_process_that_ends_is_named_with_its_node(here, node, monkeypatch):
    monkeypatch.setattr("gpudash.run.training_processes.PATIENCE_S", 0.0)
    node.tell(Hello())
    node.say(line_of(412, b""))
    assert here.hears("has ended") == "training process 412 (rank 8) on gpu2 has ended"


def test_a_node_that_says_nothing_for_long_is_lost(here, node, monkeypatch):
    monkeypatch.setattr(nodes, "SILENT_S", 0.0)
    assert here.hears("is lost").startswith("node gpu2 is lost: nothing has come for ")
    assert node.is_let_go


def test_a_gpudash_that_comes_again_replaces_itself(here, node):
    node.tell(Hello())
    here.until(lambda: here.processes._members)
    again = connected(here)
    again.tell(Hello())
    again.tell(Resumed(at_s=1.0))
    here.until(lambda: here.bodies(Resumed))
    assert (len(here.nodes._nodes), len(here.processes._members)) == (1, 1)
    assert not [one for one in here.sentences if "lost" in one or "rank" in one]


def test_a_process_that_follows_another_of_its_rank_is_heard_where_both_come_at_once(here, node):
    node.tell(Hello())
    here.until(lambda: here.processes._members)
    node.tell(Resumed(at_s=1.0))
    node.say(line_of(412, b""))
    node.tell(Hello(), process=413)
    node.tell(Resumed(at_s=2.0), process=413)
    here.until(lambda: len(here.bodies(Resumed)) == 2)
    assert here.hears("rank 8") == "rank 8 began again: training process 413 follows 412"


def left_and_begun_anew(here, node, before, after, of="gpu3"):
    """Ranks 0 and 1 of a node that says no more, and a rank 0 of another port beside it."""
    other = node if of == "gpu2" else connected(here, node=of, run="s")
    for rank in (0, 1):
        node.tell(Hello(job=before), rank=rank, process=412 + rank)
    here.until(lambda: len(here.processes._ranks) == 2)
    other.tell(Hello(job=after), rank=0, process=99)
    other.tell(Resumed(at_s=1.0), rank=0, process=99)
    return other  # else it hangs up


def test_a_job_that_begins_anew_without_a_node_is_watched_though_its_port_is_new(
    here, node, monkeypatch
):
    monkeypatch.setattr("gpudash.run.training_processes.PATIENCE_S", 0.0)
    _other = left_and_begun_anew(here, node, "mine:29500", "mine:41234")
    here.until(lambda: here.bodies(Resumed))
    assert [node.hear(), node.hear()] == [b"412 \n", b"413 \n"]  # those of before are let go
    assert list(here.processes._ranks) == [0]
    assert here.hears("rank 0 began again") == "rank 0 began again: training process 99 follows 412"
    here.hears("training process 413 (rank 1) on gpu2 has ended")
    assert not [one for one in here.sentences if "another job" in one]


@pytest.mark.parametrize(
    ("before", "after", "of"),
    [
        ("none:29500", "none:41234", "gpu3"),  # torchrun's default
        ("29500", "41234", "gpu3"),
        ("mine:29500", "yours:29500", "gpu3"),
        ("mine:29500", "mine:41234", "gpu2"),  # whose ranks of before train on
    ],
)
def test_another_job_is_not_taken_for_one_that_begins_anew(here, node, before, after, of):
    _other = left_and_begun_anew(here, node, before, after, of)
    assert here.hears("another job").endswith("its other ranks train on, unwatched")
    assert set(here.processes._ranks) == {0, 1}
    assert not here.bodies(Resumed)


def test_a_second_gpudash_of_the_same_machine_is_another_node(here, node):
    other = connected(here, run="s")
    node.tell(Hello(), rank=8)
    other.tell(Hello(), rank=9)
    here.until(lambda: len(here.processes._members) == 2)
    assert {member.rank for member in here.processes._members} == {8, 9}


# ── what is refused ─────────────────────────────────────────────────────────────────────


def test_a_rank_that_is_taken_is_refused_and_its_process_let_go(here, node):
    node.tell(Hello(), rank=8)
    other = connected(here, node="gpu3", run="s")
    here.until(lambda: here.processes._members)
    other.tell(Hello(), rank=8, process=99)
    words = "it says it is rank 8, which another process is"
    assert here.hears("rank 8") == f"training process 99 on gpu3 is left out: {words}"
    assert other.hear() == b"99 \n"
    other.tell(Resumed(at_s=1.0), rank=8, process=99)
    node.tell(Resumed(at_s=2.0))
    here.until(lambda: here.bodies(Resumed))
    assert [one.rank for one in here.told] == [8]
    assert len(here.bodies(Resumed)) == 1
    assert not here.processes._refused


def test_a_rank_here_that_another_node_has_already_is_told(here, node, place):
    node.tell(Hello(), rank=0)
    here.until(lambda: here.processes._members)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place.socket(os.getpid())))
        listening.listen()
        here.until(lambda: select.select([listening], [], [], 0)[0])
        connection, _ = listening.accept()
        with connection:
            hello = Envelope(source="training", seq=0, sent_s=0.0, body=Hello())
            connection.sendall(msgspec.json.encode(hello) + b"\n")
            words = "rank 0 is on gpu2 already; the one here is shown as rank 1"
            assert here.hears("rank 0 ") == words


@pytest.mark.parametrize("source", ["session", "telemetry", "recording", "\x1b[2J"])
def test_a_process_speaks_as_a_training_alone(here, node, source):
    node.tell(Hello())
    node.tell(Resumed(at_s=1.0), source=source)
    here.hears("training process 412 (rank 8) on gpu2 is left out: it speaks as ")
    assert not here.told


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"-1 {}",
        b'0 {"type":"Ping","asked_s":1}',
        b"0 {",
        b"99999999999 {}",
        b'0 {"type":"Parting","text":"\xff"}',
        b'0 {"x":' + b"[" * 10_000,
    ],
)
def test_a_node_that_makes_no_sense_is_let_go(here, node, line):
    node.say(line)
    here.hears("node gpu2 is lost: a line of it makes no sense")
    assert node.is_let_go


def test_a_process_that_tells_of_no_step_as_if_it_were_one_is_left_out(here, node):
    node.tell(Hello())
    step = Step(step=1, segment=0, finished_s=1.0, step_ms=1.0, count=0)
    node.tell(Progress(until_s=1.0, steps=(step,), total_steps=1, total_samples=None))
    here.hears("training process 412 (rank 8) on gpu2 is left out: Expected `int` >= 1")


def test_a_line_without_end_is_read_no_further(here, node, monkeypatch):
    here.nodes._nodes[0].lines.longest = 1000
    node.say(b"412 " + b"x" * 2000)
    here.hears("node gpu2 is lost: a line of it is too long")


@pytest.mark.parametrize("name", ["gpu2", ""])
def test_a_process_elsewhere_is_never_taken_for_one_here(here, name):
    with subprocess.Popen(["sleep", "60"]) as bystander:
        peer = connected(here, node=name)
        peer.tell(Hello(), process=bystander.pid)
        here.until(lambda: here.processes._members)
        here.processes.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            bystander.wait(0.1)
        bystander.kill()


def test_a_process_counted_in_another_namespace_is_never_taken_for_the_one_of_its_number_here(
    here, place, monkeypatch
):
    monkeypatch.setattr("gpudash.run.training_processes.peer", lambda _connection: 0)
    with subprocess.Popen(["sleep", "60"]) as bystander, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place.socket(bystander.pid)))
        listening.listen()
        (member,) = here.until(lambda: here.processes._members)
        member.rank, here.processes._ranks[0] = 0, member
        here.processes.ask_for_stacks(Stacks(id=4))
        (stack,) = here.until(lambda: here.bodies(Stack))
        assert (stack.why, stack.is_known) == ("is in a container, where nobody asks it", False)
        here.processes.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            bystander.wait(0.1)
        bystander.kill()


def test_a_process_that_counts_itself_in_a_container_has_the_number_that_it_has_here(here, place):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place.socket(7)))
        listening.listen()
        here.until(lambda: here.processes._members)
        process, _ = listening.accept()
        with closing(process):
            begun = msgspec.structs.replace(started(time.monotonic()), pid=7)
            for seq, body in enumerate((Hello(pid=7), begun)):
                said = Envelope(source="training", seq=seq, sent_s=begun.at_s, body=body)
                process.sendall(msgspec.json.encode(said) + b"\n")
            here.until(lambda: here.bodies(Started))
    assert here.bodies(Started)[0].pid == os.getpid()


# ── strangers ───────────────────────────────────────────────────────────────────────────


def test_a_wrong_token_is_denied_and_told_once(here):
    for _ in range(3):
        peer = Peer(here)
        peer.prove(token="another token of tests")
        peer.hear(Denied)
        assert peer.is_let_go
    here.turn()
    assert here.sentences[1:] == ["127.0.0.1 was turned away: its token is wrong"]
    assert not here.nodes._nodes


def test_an_answer_that_was_overheard_opens_nothing(here, node):
    peer = Peer(here)
    _, overheard = peer.prove(run="s")
    peer.hear(Welcome)
    thief = Peer(here)
    thief.hear(Challenge)
    thief.say(msgspec.json.encode(overheard))
    thief.hear(Denied)
    assert thief.is_let_go


def test_who_says_nothing_is_let_go_after_a_while(here, monkeypatch):
    monkeypatch.setattr(nodes, "STRANGER_S", 0.1)
    peer = Peer(here)
    assert peer.is_let_go
    assert not here.nodes._strangers


@pytest.mark.parametrize(
    "words",
    [
        b"x" * 5000,
        b"GET / HTTP/1.1\r\n",
        b"{}\n",
        b"\xff\xff\n",
        b'{"type":"Answer","nonce":"\xff"}\n',
        b'{"x":' + b"[" * 1015 + b"\n",
    ],
)
def test_who_says_something_else_is_let_go_at_once(here, words):
    peer = Peer(here)
    peer.hear(Challenge)
    peer.socket.sendall(words)
    assert peer.is_let_go
    assert here.sentences == [f"listens on {here.nodes.address} for other nodes"]


def test_what_is_said_before_the_proof_is_not_heard(here):
    peer = Peer(here)
    peer.tell(Hello())
    assert peer.is_let_go
    assert not here.processes._members


def test_many_strangers_keep_a_node_waiting_but_not_out(here, monkeypatch):
    monkeypatch.setattr(nodes, "STRANGER_S", 0.2)
    crowd = [socket.create_connection(here.nodes.address) for _ in range(MOST_STRANGERS + 5)]
    here.turn()
    assert len(here.nodes._strangers) == MOST_STRANGERS
    monkeypatch.setattr(nodes, "STRANGER_S", 5.0)
    for one in crowd[:10]:
        one.close()
    connected(here)
    for one in crowd:
        one.close()


def test_an_answer_is_of_a_known_form(here):
    peer = Peer(here)
    said = Answer(nonce="", proof="", node="", run="", clock_s=1e308)
    peer.hear(Challenge)
    peer.say(msgspec.json.encode(said))
    peer.hear(Denied)


# ── the address ─────────────────────────────────────────────────────────────────────────


def test_a_port_that_is_taken_is_refused(here):
    with pytest.raises(UsageError, match=f"cannot listen on {here.nodes.address}: Address already"):
        Nodes(here.nodes.address, TOKEN)


def test_a_host_that_is_unknown_is_refused():
    with pytest.raises(UsageError, match=r"cannot listen on no-such-host\.invalid:7070: "):
        Nodes(Address("no-such-host.invalid", 7070), TOKEN)


def test_only_this_machine_is_listened_to_unless_a_host_is_named(here):
    assert here.nodes._listening.getsockname()[0] == "127.0.0.1"
