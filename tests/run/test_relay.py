"""The connecting end, over a double of a training process, which always trains on."""

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from gpudash import rendezvous
from gpudash.addresses import LOOPBACK, Address
from gpudash.errors import UsageError
from gpudash.protocol.commands import Change, Pause, Stacks
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import Stack
from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import PROTOCOL_VERSION, Device, Progress, State
from gpudash.run import relay as relays
from gpudash.run.lines import Lines
from gpudash.run.member import peer
from gpudash.run.node_protocol import Challenge, Welcome
from gpudash.run.relay import Relay
from tests.lives import in_process
from tests.run.listening import TOKEN, Listening
from tests.scripted_run import started
from tests.waiting import until

TRAINING = str(Path(__file__).with_name("scripted_training.py"))
WAIT_S = 20.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(relays, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(relays, "LONGEST_PAUSE_S", 0.1)


@pytest.fixture
def training(place):
    with ExitStack() as at_end:

        def start(*words):
            process = subprocess.Popen(
                [sys.executable, TRAINING, *words],
                env=os.environ | {"_GPUDASH_RUN": str(place.path)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            at_end.callback(process.wait)
            at_end.callback(process.kill)
            process.stdout.readline()  # it has come so far
            return process

        yield start


@pytest.fixture
def dashboard(short_path):
    own = short_path / "own"  # of the listening gpudash's own run
    own.mkdir()
    with ExitStack() as at_end:

        def listen(**options):
            one = Listening(rendezvous.Rendezvous(own), **options)
            at_end.callback(one.processes.close)
            return one

        yield listen


@pytest.fixture
def relayed(place):
    """Start a relay to this address; return the lines that its user reads."""
    with ExitStack() as at_end:

        def start(address, token=TOKEN):
            said = []
            at_end.enter_context(Relay(address, token, said.append).running(place))
            return said

        yield start


@pytest.fixture
def node(training, dashboard, relayed):
    """Start these trainings, each with its words, and a relay of them to a dashboard.

    Return the dashboard, what the relay's user reads, and the processes.
    """

    def start(*trainings, **options):
        there = dashboard(**options)
        processes = [training(*words) for words in trainings]
        return there, relayed(there.address), processes

    return start


def alone(why):
    return f"gpudash: {why}; the training goes on, unwatched"


# ── relayed messages ─────────────────────────────────────────────────────────────────────


def test_all_ranks_of_the_node_are_relayed_and_commands_come_back_and_are_answered(node):
    there, said, _ = node(("--rank", "0"), ("--rank", "9"))
    there.until(
        lambda: {one.rank for one in there.messages if isinstance(one.body, Progress)} == {0, 9}
    )
    there.processes.send(Change(id=4, settings={"num_workers": "5"}))
    assert there.first("changed").answers == (4,)
    there.processes.send(Pause(id=5))
    assert there.first("paused").answers == (5,)
    assert said == []


def test_the_processes_of_all_ranks_of_the_node_are_read(node):
    there, _, processes = node(*(("--rank", str(rank), "--world-size", "16") for rank in (0, 8, 9)))
    pids = dict(zip((0, 8, 9), (one.pid for one in processes), strict=True))
    there.until(
        lambda: {(one.rank, one.body.pid) for one in host_readings(there)} == set(pids.items())
    )
    assert all(one.body.number("worker_rss_mib") for one in host_readings(there))
    assert not any("own_rss_mib" in one.body.values for one in host_readings(there))


def test_a_process_in_a_container_is_not_read_by_its_number_there(
    training, dashboard, relayed, monkeypatch
):
    there = dashboard()
    pids = {rank: training("--rank", str(rank), "--world-size", "16").pid for rank in (8, 9)}
    monkeypatch.setattr(relays, "peer", lambda line: peer(line) if peer(line) == pids[9] else 0)
    relayed(there.address)
    there.until(
        lambda: {one.rank for one in there.messages if isinstance(one.body, State)} == {8, 9}
    )
    there.until(lambda: len([one for one in host_readings(there) if one.rank == 9]) > 1)
    assert {one.rank for one in host_readings(there)} == {9}


def host_readings(dashboard):
    return [one for one in dashboard.messages if isinstance(one.body, HostReading)]


def stack_of(there):
    there.until(lambda: there.processes._ranks)
    there.messages.clear()
    there.processes.ask_for_stacks(Stacks(id=6))
    return there.first(Stack)


def test_a_processs_stack_comes_from_its_node(node, tmp_path):
    file = tmp_path / "go on"
    there, *_ = node(("--late", str(file), "--rank", "8"))
    there.until(lambda: " in load\n" in stack_of(there).text)
    assert there.messages[-1].rank == 8
    file.touch()
    there.messages.clear()
    there.first(Progress)  # it trains on


def test_a_long_stack_is_cut_to_its_innermost_calls(node, tmp_path, monkeypatch):
    monkeypatch.setattr(relays, "STACK_CHARACTERS", 40)
    there, *_ = node(("--late", str(tmp_path / "go on")))
    text = stack_of(there).text
    assert text.startswith('  File "')
    assert len(text) == 40


@pytest.mark.parametrize(
    ("is_seen", "why"),
    [(True, "does not tell where it is"), (False, "is in a container, where nobody asks it")],
)
def test_why_a_process_sends_no_stack_comes_from_its_node(node, monkeypatch, is_seen, why):
    if not is_seen:
        monkeypatch.setattr(relays, "peer", lambda _connection: 0)
    there, *_ = node(())
    assert stack_of(there).why == why


def test_no_stack_is_sent_for_a_process_without_messages(place, node):
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(place.socket(os.getpid())))
        silent.listen()
        there, *_ = node(())
        stack_of(there)
    assert not [one for one in there.sentences if "left out" in one]


def test_at_the_end_of_the_command_its_last_messages_come_first(training, place, dashboard):
    there = dashboard()
    training("--steps", "50")
    relay = Relay(there.address, TOKEN, print)
    with relay.running(place):
        there.first("started")
        there.until(lambda: there.bodies(Progress)[-1:] and there.processes.parted_s)
        relay.set_parting("train.py has ended")
    there.until(lambda: [one for one in there.sentences if one.endswith(": train.py has ended")])
    assert there.bodies(Progress)[-1].total_steps > 0


def test_the_gpus_of_all_ranks_of_the_node_are_read(place, monkeypatch):
    telemetry = Mock(read=list)
    monkeypatch.setattr(relays, "TelemetrySource", lambda: telemetry)
    ours, theirs = socket.socketpair()
    processes = [socket.socketpair() for _ in range(2)]
    with theirs, closing(relays._Watched(place, Lines(ours))) as watched:
        for rank, (process, connection) in enumerate(processes, start=8):
            watched._processes[rank, 0] = Lines(connection)
            device = Device(kind="cuda", name="x", uuid=f"GPU-{rank}")
            body = in_process(started(0.0, {}), device=device, world_size=16)
            messages = Envelope(source="training", rank=rank, seq=0, sent_s=0.0, body=body)
            with process:
                process.sendall(msgspec.json.encode(messages) + b"\n")
            watched._turn()
    told = dict(reversed(one.args) for one in telemetry.watch.call_args_list)
    gpus = {rank: state.process.device.uuid for rank, state in told.items()}
    assert gpus == {8: "GPU-8", 9: "GPU-9"}


# ── whatever happens, the training goes on ──────────────────────────────────────────────


def test_a_dashboard_that_ends_leaves_the_training_unwatched_until_one_comes(node, dashboard):
    first, said, (process,) = node(())
    first.first("started")
    first.processes.close()
    until(lambda: said)
    Relay(first.address, TOKEN, print).try_once()  # nor does it prevent a start
    second = dashboard(address=first.address)
    second.first("started")
    assert process.poll() is None
    lost = f"cannot connect to {first.address}: Connection refused"
    assert said == [alone(lost), f"gpudash: connected to {first.address}"]


def test_a_wrong_token_is_one_line(node):
    there, said, (process,) = node((), token="another token of tests")
    there.until(lambda: said)
    for _ in range(20):
        there.until(lambda: time.sleep(0.02) or True)
    assert said == [alone(f"the gpudash at {there.address} has another token")]
    assert process.poll() is None
    assert there.messages == []


def test_a_gpudash_that_hangs_is_disconnected(node, monkeypatch):
    there, _, (process,) = node(())
    there.first("started")
    monkeypatch.setattr(relays, "SILENT_S", 0.3)
    (connected,) = there.nodes._nodes
    connected.say = lambda _line: None
    there.until(lambda: connected.is_closed)
    assert process.poll() is None


def test_a_refused_process_is_disconnected_and_not_relayed_again(node, training):
    there, *_ = node(("--rank", "8"))
    there.first("started")
    training("--rank", "8")
    there.until(lambda: [one for one in there.sentences if "it says it is rank 8" in one])
    for _ in range(30):
        there.until(lambda: time.sleep(0.05) or True)
    assert len([one for one in there.sentences if "it says it is rank 8" in one]) == 1


# ── other listeners at the address ───────────────────────────────────────────────────────────


@pytest.fixture
def impostor():
    """Something else that listens: it sends these lines, and keeps the answers."""
    with ExitStack() as at_end:

        def listen(*lines):
            server = at_end.enter_context(socket.create_server((LOOPBACK, 0)))
            heard = []

            def answer(connection):
                with connection, connection.makefile("rwb") as file:
                    for line in lines:
                        file.write(line + b"\n")
                        file.flush()
                        heard.append(file.readline())

            def serve():
                while server.fileno() >= 0:
                    with suppress(OSError):  # who connects may hang up at any time
                        answer(server.accept()[0])

            threading.Thread(target=serve, daemon=True).start()
            at_end.callback(server.shutdown, socket.SHUT_RDWR)
            return Address(*server.getsockname()), heard

        yield listen


CHALLENGE = msgspec.json.encode(Challenge(nonce="n"))


def test_a_listener_without_the_token_receives_nothing(training, impostor, relayed):
    address, heard = impostor(CHALLENGE, msgspec.json.encode(Welcome(proof="0" * 64)))
    training()
    said = relayed(address)
    until(lambda: said)
    assert f"whoever listens at {address} does not know the token" in said[0]
    until(lambda: len(heard) > 1)
    assert json.loads(heard[0])["type"] == "Credentials"
    assert heard[1] == b""


@pytest.mark.parametrize(
    "banner",
    [
        b"SSH-2.0-OpenSSH_9.6",
        b"{}",
        b"\xff",
        b"x" * 100_000,
        b'{"type":"Challenge","nonce":"\xff"}',
        b'{"x":' + b"[" * 10_000,
    ],
)
def test_another_program_is_reported_in_one_line(impostor, relayed, banner):
    address, _ = impostor(banner)
    said = relayed(address)
    until(lambda: said)
    assert said == [alone(f"what listens at {address} is no gpudash, or has just ended")]


def test_a_listener_that_names_another_version_does_not_prevent_the_start(impostor, relayed):
    address, heard = impostor(msgspec.json.encode(Challenge(protocol=99, nonce="n")))
    Relay(address, TOKEN, print).try_once()
    said = relayed(address)
    until(lambda: said)
    why = f"the gpudash at {address} speaks protocol 99, this one {PROTOCOL_VERSION}"
    assert said == [alone(f"{why}; valid: the same gpudash on all nodes")]
    assert heard[0] == b""


def test_a_host_that_is_unknown_is_refused():
    with pytest.raises(UsageError, match=r"cannot connect to no-such-host\.invalid:7070: "):
        Relay(Address("no-such-host.invalid", 7070), TOKEN, print)


def test_a_relay_without_a_connection_waits_for_no_answer_at_its_end(place, monkeypatch):
    monkeypatch.setattr(relays, "ANSWER_S", 1e4)  # longer than a test may last
    with socket.create_server((LOOPBACK, 0)) as silent:
        relay = Relay(Address(*silent.getsockname()), TOKEN, print)
        with relay.running(place):
            assert select.select([silent], [], [], WAIT_S)[0]
