"""The listening end, over peers that send anything."""

import json
import os
import platform
import select
import socket
import subprocess
import time

import msgspec
import pytest

from gpudash.addresses import Address
from gpudash.errors import UsageError
from gpudash.protocol.commands import Change, Stacks
from gpudash.protocol.inspections import Joined, Stack
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import (
    Device,
    Hello,
    Progress,
    Refused,
    State,
    Step,
    Timed,
    TrainingProcess,
)
from gpudash.ranks.normalise import Normaliser
from gpudash.run import node_protocol, nodes, stacks
from gpudash.run.node_protocol import (
    Challenge,
    Denied,
    Ping,
    Pong,
    Welcome,
    line_of,
    own_line,
)
from gpudash.run.nodes import MOST_STRANGERS, Nodes
from tests.lives import in_process, said
from tests.run.listening import TOKEN, Listening

WAIT_S = 20.0


@pytest.fixture
def here(place):
    here = Here(place)
    yield here
    here.processes.close()


def peers(place, pid):
    """Return a socket that listens as a process of this number would."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place.socket(pid)))
    listening.listen()
    return listening


def enveloped(body, seq=0, at_s=0.0):
    return msgspec.json.encode(said(body, seq=seq, at_s=at_s)) + b"\n"


class Here(Listening):
    """It may wait for one message, for ranks or for a sentence."""

    def envelope(self, kind):
        """Return the only message of this kind, once it has come."""
        self.first(kind)
        (found,) = [one for one in self.messages if isinstance(one.body, kind)]
        return found

    def knows(self, ranks=1):
        """Turn until so many ranks are known."""
        self.until(lambda: len(self.processes._ranks) == ranks)

    def sentence_with(self, words):
        return self.until(lambda: [one for one in self.sentences if words in one])[0]


class Peer:
    """A connecting end: it may prove itself, and send anything."""

    def __init__(self, here, clock_s=time.monotonic):
        self.here, self.clock_s = here, clock_s
        self.socket = socket.create_connection(here.nodes.address)
        self.file = self.socket.makefile("rwb")

    def receive(self, kind=None):
        self.here.until(lambda: select.select([self.socket], [], [], 0)[0])
        line = self.file.readline()
        return line if kind is None else msgspec.json.decode(line, type=kind)

    def send_line(self, line):
        self.file.write(line + b"\n")
        self.file.flush()

    def hang_up(self):
        self.file.close()
        self.socket.close()

    def prove(self, node="gpu2", run="r", token=TOKEN):
        challenge = self.receive(Challenge)
        said = node_protocol.answer(token, challenge, node=node, run=run, clock_s=self.clock_s())
        self.send_line(msgspec.json.encode(said))
        return challenge, said

    def send(self, body, rank=8, process=412, source="training"):
        one = said(body, rank, source=source, at_s=self.clock_s())
        self.send_line(line_of(process, msgspec.json.encode(one)))

    @property
    def is_disconnected(self):
        def ended():
            readable = select.select([self.socket], [], [], 0)[0]
            return bool(readable) and not self.socket.recv(1 << 16)

        return self.here.until(ended)


@pytest.fixture
def node(here):
    return connected(here)


def connected(here, **options):
    peer = Peer(here, options.pop("clock_s", time.monotonic))
    proven = peer.prove(**options)
    assert node_protocol.is_valid_welcome(TOKEN, *proven, peer.receive(Welcome))
    return peer


def started(at_s, uuid=None):
    device = Device(kind="cuda" if uuid else "cpu", name="x", uuid=uuid)
    process = TrainingProcess(pid=412, ready_s=at_s, device=device, versions={})
    return State(at_s=at_s, phase="training", process=process, workload="train.py")


def timed(at_s):
    """A message, whichever."""
    return Timed(at_s=at_s, block=0, steps=1, samples=None, seconds=1.0)


# ── nodes with the token ─────────────────────────────────────────────────────────────────


def test_a_nodes_messages_join_the_local_ones(here, node):
    node.send(Hello(pid=412))
    node.send(started(time.monotonic()))
    assert here.first("started").process.node == "gpu2"
    assert [(one.source, one.rank) for one in here.messages] == [("training", 8)]
    assert here.sentence_with("node gpu2 is connected; clocks within ")


def ask_for_stacks(here, ranks=1):
    here.knows(ranks)
    here.processes.ask_for_stacks(Stacks(id=4))


def test_a_nodes_processes_stacks_come_from_the_node(here, node):
    node.send(Hello())
    node.send(Hello(), rank=9, process=413)
    ask_for_stacks(here, ranks=2)
    process, _, asked = node.receive().partition(b" ")
    assert (process, json.loads(asked)["type"]) == (b"0", "Stacks")
    joined = (Joined(group="0", newest=7),)
    node.send(Stack(at_s=1.0, text="File", joined=joined), rank=0)
    node.send(Stack(at_s=1.0, why="has ended"), rank=0, process=413)
    here.until(lambda: len(here.bodies(Stack)) == 2)
    messages = [
        (one.rank, one.body.text, one.body.why, one.body.answers) for one in here.messages[-2:]
    ]
    assert messages == [(8, "File", "", (4,)), (9, "", "has ended", (4,))]
    assert here.bodies(Stack)[0].joined == joined


def test_a_node_that_sends_no_stacks_delays_no_other(here, node, monkeypatch):
    monkeypatch.setattr(stacks, "ELSEWHERE_S", 0.05)
    node.send(Hello())
    ask_for_stacks(here)
    stack = here.first(Stack)
    assert (stack.why, stack.is_known) == ("is on gpu2, which does not answer", False)


def test_a_command_to_a_node_that_is_lost_is_answered(here, node):
    node.send(Hello(), rank=0)
    here.knows()
    assert here.processes.send(Change(id=3, settings={"precision": "bf16"})) == []
    node.hang_up()
    assert here.first(Refused).answers == (3,)


def test_times_are_converted_to_the_local_clock(here):
    behind_s = 5e6
    peer = connected(here, clock_s=lambda: time.monotonic() - behind_s)
    before_s = time.monotonic()
    peer.send(Hello())
    step = Step(step=1, segment=0, samples=None, finished_s=peer.clock_s(), step_ms=2.0)
    peer.send(Progress(until_s=peer.clock_s(), steps=(step,), total_steps=1, total_samples=None))
    arrived = here.first(Progress)
    within_s = here.nodes._nodes[0].difference.within_s
    after_s = time.monotonic()
    for at_s in (arrived.until_s, arrived.steps[0].finished_s, here.messages[-1].sent_s):
        assert before_s - within_s <= at_s <= after_s + within_s


def test_a_gpu_is_read_under_the_rank_that_trains_on_it(here, node):
    node.send(Hello())
    node.send(started(1.0, uuid="GPU-7"))
    here.first("started")
    for uuid in ("GPU-7", "GPU-of-nobody"):
        reading = GpuReading(at_s=1.0, index=0, uuid=uuid, name="H200", values={"power_w": 300.0})
        node.send_line(own_line(reading))
    envelope = here.envelope(GpuReading)
    assert (envelope.source, envelope.rank, envelope.body.uuid) == ("node", 8, "GPU-7")


def test_the_processes_of_a_rank_are_read_under_that_rank_unless_it_is_refused(here, node):
    node.send(Hello(), rank=8, process=412)
    node.send(Hello(), rank=8, process=413)
    here.sentence_with("training process 413 on gpu2 is left out")
    for process in (413, 1, 412):
        node.send_line(own_line(HostReading(at_s=1.0, pid=process, values={"cpu_pct": 50.0})))
    envelope = here.envelope(HostReading)
    assert (envelope.source, envelope.rank, envelope.body.pid) == ("node", 8, 412)


def test_a_nodes_readings_of_rank_0_are_no_repeats_of_local_ones(here, node):
    normaliser = Normaliser()
    read_here = GpuReading(at_s=1.0, index=0, uuid="GPU-8", name="H200", values={})
    assert normaliser.take(said(read_here, seq=1_000, source="telemetry")) is not None
    node.send(Hello(), rank=0)
    here.knows()
    node.send_line(own_line(HostReading(at_s=1.0, pid=412, values={"cpu_pct": 50.0})))
    assert normaliser.take(here.envelope(HostReading)) is not None


def test_a_node_of_the_local_name_gets_another_name(here):
    node = connected(here, node=platform.node())
    node.send(Hello())
    node.send(started(time.monotonic()))
    assert here.first("started").process.node == f"another {platform.node()}"


def test_clocks_are_compared_again_and_again_and_each_answer_wakes_the_session(
    here, node, monkeypatch
):
    monkeypatch.setattr(nodes, "PING_S", 0.0)
    for _ in range(3):
        process, _, ping = node.receive().partition(b" ")
        asked = msgspec.json.decode(ping, type=Ping)
        assert process == b"0"
        assert not select.select([here.nodes], [], [], 0)[0]
        node.send_line(own_line(Pong(asked_s=asked.asked_s, clock_s=time.monotonic())))
        assert select.select([here.nodes], [], [], WAIT_S)[0]


# ── how a node ends ─────────────────────────────────────────────────────────────────────


def test_a_lost_node_is_reported_once_however_many_ranks_it_has(here, node):
    for rank in range(8):
        node.send(Hello(), rank=rank, process=400 + rank)
    here.until(lambda: len(here.processes._members) == 8)
    node.hang_up()
    here.sentence_with("node gpu2 is lost: it has hung up; its training goes on unwatched")
    assert (here.processes.parted_s is None, bool(here.processes._gone)) == (False, False)


def test_a_node_that_says_nothing_for_long_is_lost(here, node, monkeypatch):
    monkeypatch.setattr(nodes, "SILENT_S", 0.0)
    assert here.sentence_with("is lost").startswith("node gpu2 is lost: nothing has come for ")
    assert node.is_disconnected


def test_a_gpudash_that_comes_again_replaces_itself(here, node):
    node.send(Hello())
    here.knows()
    again = connected(here)
    again.send(Hello())
    again.send(timed(1.0))
    here.first(Timed)
    assert (len(here.nodes._nodes), len(here.processes._members)) == (1, 1)
    assert not [one for one in here.sentences if "lost" in one or "rank" in one]


def test_a_successor_of_a_rank_is_read_if_both_messages_arrive_at_once(here, node):
    node.send(Hello())
    here.until(lambda: here.processes._members)
    node.send(timed(1.0))
    node.send_line(line_of(412, b""))
    node.send(Hello(), process=413)
    node.send(timed(2.0), process=413)
    here.until(lambda: len(here.bodies(Timed)) == 2)
    assert here.sentence_with("rank 8") == "rank 8 began again: training process 413 follows 412"


def restarted_without(here, node, before, after, of="gpu3"):
    """Ranks 0 and 1 of a silent node, and a rank 0 with another port beside it."""
    other = node if of == "gpu2" else connected(here, node=of, run="s")
    for rank in (0, 1):
        node.send(Hello(job=before), rank=rank, process=412 + rank)
    here.knows(2)
    other.send(Hello(job=after), rank=0, process=99)
    other.send(timed(1.0), rank=0, process=99)
    return other  # else it hangs up


def test_a_job_restarted_without_a_node_is_watched_though_its_port_is_new(here, node, monkeypatch):
    monkeypatch.setattr("gpudash.run.training_processes.PATIENCE_S", 0.0)
    _other = restarted_without(here, node, "mine:29500", "mine:41234")
    here.first(Timed)
    assert [node.receive(), node.receive()] == [b"412 \n", b"413 \n"]  # those of before are let go
    assert list(here.processes._ranks) == [0]
    here.sentence_with("rank 0 began again: training process 99 follows 412")
    here.sentence_with("training process 413 (rank 1) on gpu2 has ended")
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
def test_another_job_is_not_taken_for_a_restart(here, node, before, after, of):
    _other = restarted_without(here, node, before, after, of)
    assert here.sentence_with("another job").endswith("its other ranks train on, unwatched")
    assert set(here.processes._ranks) == {0, 1}
    assert not here.bodies(Timed)


def test_a_second_gpudash_of_the_same_machine_is_another_node(here, node):
    other = connected(here, run="s")
    node.send(Hello(), rank=8)
    other.send(Hello(), rank=9)
    here.knows(2)
    assert {member.rank for member in here.processes._members} == {8, 9}


# ── refusals ─────────────────────────────────────────────────────────────────────


def test_a_rank_that_is_taken_is_refused_and_its_process_disconnected(here, node):
    node.send(Hello(), rank=8)
    other = connected(here, node="gpu3", run="s")
    here.until(lambda: here.processes._members)
    other.send(Hello(), rank=8, process=99)
    words = "it says it is rank 8, which another process is"
    assert here.sentence_with("rank 8") == f"training process 99 on gpu3 is left out: {words}"
    assert other.receive() == b"99 \n"
    other.send(timed(1.0), rank=8, process=99)
    node.send(timed(2.0))
    assert here.envelope(Timed).rank == 8
    assert len(here.messages) == 1
    assert not here.processes._refused


def test_a_local_rank_that_another_node_has_already_is_reported(here, node, place):
    node.send(Hello(), rank=0)
    here.until(lambda: here.processes._members)
    with peers(place, os.getpid()) as listening:
        here.until(lambda: select.select([listening], [], [], 0)[0])
        connection, _ = listening.accept()
        with connection:
            connection.sendall(enveloped(Hello()))
            words = "rank 0 is on gpu2 already; the one here is shown as rank 1"
            assert here.sentence_with("rank 0 ") == words


STEP = Step(step=1, segment=0, finished_s=1.0, step_ms=1.0, count=0)
INVALID = Progress(until_s=1.0, steps=(STEP,), total_steps=1, total_samples=None)


@pytest.mark.parametrize(
    ("body", "source", "why"),
    [
        *((timed(1.0), one, "it speaks as ") for one in ("session", "telemetry", "\x1b[2J")),
        (INVALID, "training", "Expected `int` >= 1"),
    ],
)
def test_a_process_may_send_only_what_a_training_does(here, node, body, source, why):
    node.send(Hello())
    node.send(body, source=source)
    here.sentence_with(f" on gpu2 is left out: {why}")  # its rank may not be known yet
    assert not here.messages


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
def test_a_node_that_sends_an_invalid_line_is_disconnected(here, node, line):
    node.send_line(line)
    here.sentence_with("node gpu2 is lost: a line of it makes no sense")
    assert node.is_disconnected


def spares(here, bystander):
    here.processes.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        bystander.wait(0.1)
    bystander.kill()


@pytest.mark.parametrize("name", ["gpu2", ""])
def test_a_process_elsewhere_is_never_taken_for_one_here(here, name):
    with subprocess.Popen(["sleep", "60"]) as bystander:
        peer = connected(here, node=name)
        peer.send(Hello(), process=bystander.pid)
        here.knows()
        spares(here, bystander)


def test_a_process_counted_in_another_namespace_is_never_taken_for_the_one_of_its_number_here(
    here, place, monkeypatch
):
    monkeypatch.setattr("gpudash.run.training_processes.peer", lambda _connection: 0)
    with subprocess.Popen(["sleep", "60"]) as bystander, peers(place, bystander.pid):
        (member,) = here.until(lambda: here.processes._members)
        member.rank, here.processes._ranks[0] = 0, member
        here.processes.ask_for_stacks(Stacks(id=4))
        stack = here.first(Stack)
        assert (stack.why, stack.is_known) == ("is in a container, where nobody asks it", False)
        spares(here, bystander)


def test_a_process_that_counts_itself_in_a_container_has_the_number_that_it_has_here(here, place):
    with peers(place, 7) as listening:
        here.until(lambda: here.processes._members)
        process, _ = listening.accept()
        with process:
            begun = in_process(started(time.monotonic()), pid=7)
            process.sendall(enveloped(Hello(pid=7)) + enveloped(begun, 1, begun.at_s))
            assert here.first("started").process.pid == os.getpid()


# ── strangers ───────────────────────────────────────────────────────────────────────────


def test_a_wrong_token_is_denied_and_reported_once(here):
    for _ in range(3):
        peer = Peer(here)
        peer.prove(token="another token of tests")
        peer.receive(Denied)
        assert peer.is_disconnected
    here.turn()
    assert here.sentences[1:] == ["127.0.0.1 was turned away: its token is wrong"]
    assert not here.nodes._nodes


def test_a_silent_stranger_is_disconnected_after_a_while(here, monkeypatch):
    monkeypatch.setattr(nodes, "STRANGER_S", 0.1)
    assert Peer(here).is_disconnected
    assert not here.nodes._strangers


@pytest.mark.parametrize(
    "words",
    [
        b"x" * 5000,
        b"GET / HTTP/1.1\r\n",
        b"{}\n",
        b"\xff\xff\n",
        b'{"type":"Credentials","nonce":"\xff"}\n',
        b'{"x":' + b"[" * 1015 + b"\n",
    ],
)
def test_a_stranger_that_sends_anything_else_is_disconnected_at_once(here, words):
    peer = Peer(here)
    peer.receive(Challenge)
    peer.socket.sendall(words)
    assert peer.is_disconnected
    assert here.sentences == [f"listens on {here.nodes.address} for other nodes"]


def test_silent_strangers_keep_no_node_out_the_oldest_gives_way(here, monkeypatch):
    monkeypatch.setattr(nodes, "STRANGER_S", float("inf"))
    crowd = [Peer(here) for _ in range(MOST_STRANGERS + 5)]
    connected(here)
    assert all(one.is_disconnected for one in crowd[:6])
    for one in crowd[6:]:
        one.receive(Challenge)


def test_an_answer_counts_that_arrived_before_a_crowd(here):
    peer = Peer(here)
    peer.prove()
    crowd = [Peer(here) for _ in range(MOST_STRANGERS)]
    peer.receive(Welcome)
    assert all(one.socket.fileno() >= 0 for one in crowd)  # they are held until here


# ── the address ─────────────────────────────────────────────────────────────────────────


def test_a_port_that_is_taken_and_a_host_that_is_unknown_are_refused(here):
    for address in (here.nodes.address, Address("no-such-host.invalid", 7070)):
        with pytest.raises(UsageError, match=f"cannot listen on {address}: "):
            Nodes(address, TOKEN)
