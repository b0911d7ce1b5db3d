"""A session over sources without a process: messages, commands and protocol versions."""

import subprocess
import sys
from unittest.mock import Mock, call

import msgspec
import pytest

from gpudash.errors import SourceError
from gpudash.protocol.commands import AnyCommand, Change, Plan
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import GpuMissing, Reading
from gpudash.protocol.training import Hello, Printed, State
from gpudash.run import telemetry_source
from gpudash.run.session import Session
from gpudash.run.source import Decoder
from gpudash.run.telemetry_source import TelemetrySource
from tests.lives import in_process, said
from tests.run.screens import Screen
from tests.run.told import Told
from tests.scripted_run import Trainer, host
from tests.simulated_ranks import Ranks, enveloped, start
from tests.waiting import until

PLAN = Plan(workload="encdec", settings={})


class Script(Told):
    """A source that sends these, and keeps the commands it receives."""

    def __init__(
        self,
        *bodies: Event | Reading,
        rank: int = 0,
        ended: str | None = None,
        name: str = "training",
    ) -> None:
        numbered = enumerate(bodies)
        super().__init__((said(body, rank, i, source=name) for i, body in numbered), ended=ended)
        self.commands: list[AnyCommand] = []
        self.closed = False

    def send(self, command: AnyCommand, /) -> None:
        self.commands.append(command)

    def close(self) -> None:
        self.closed = True


def trained(*more: Event) -> list[Event]:
    run = Trainer()
    return [Hello(), run.start(), *run.steps(4), *more]


def followed(source: Script, *beside: Script, fails: bool = False) -> Screen:
    """Run a session over the source until its end; return its listener."""
    session = Session(PLAN, start_source=lambda _: source, beside=beside)
    screen = Screen(fails=fails)
    session.start(screen)
    assert session.wait(60)
    session.close()
    return screen


def test_a_session_reads_a_training_that_is_no_process_and_what_stands_beside_it():
    source = Script(*trained(State(at_s=1001.0, phase="finished", after_step=4)), ended="gone")
    device = Script(host(1000.1, 77.0), name="telemetry")
    screen = followed(source, device)
    assert (screen.newest.state, screen.newest.total_steps) == ("finished", 4)
    assert screen.newest.host.number("cpu_pct") == 77.0
    assert screen.newest.unattributed_pct == pytest.approx(83.6)  # 36 of 200 ms, and 800 ms after
    assert source.closed is device.closed is True


def test_a_source_that_ends_without_an_event_is_a_failure_with_its_reason():
    screen = followed(Script(*trained(), ended="the file ends here"))
    assert (screen.newest.state, screen.newest.status) == ("failed", "the file ends here")
    assert [failure.kind for failure in screen.failures] == ["error"]


def test_what_a_source_can_do_is_on_the_snapshot_and_the_samplers_hello_changes_nothing():
    source = Script(Hello(can=("pause",)), *trained()[1:], ended="gone")
    assert followed(source, Script(Hello(), name="telemetry")).newest.can == ("pause",)


def test_another_rank_changes_nothing_shown_and_ranks_stand_side_by_side_from_the_second_on():
    assert followed(Script(*trained(), rank=1, ended="gone")).newest.total_steps == 0
    other = Script(*trained(), rank=1)
    screen = followed(Script(*trained(), ended="gone"), other)
    assert [(row.rank, row.steps) for row in screen.newest.ranks] == [(0, 4), (1, 4)]


def test_output_of_a_terminal_is_not_logged():
    said = (Printed(lines=("epoch 1", "10 %")), Printed(lines=("20 %",), replaces=1))
    screen = followed(Script(Hello(can=("type",)), *said, ended="gone"))
    own = followed(Script(Hello(), *said, ended="gone"))
    assert (screen.output, screen.log) == (["epoch 1", "20 %"], [])
    assert (own.output, own.log) == ([], ["epoch 1", "10 %", "20 %"])


def test_a_listener_that_fails_is_not_called_again_and_the_run_goes_on(capsys):
    broken = followed(Script(*trained(Printed(lines=("a", "b"))), ended="gone"), fails=True)
    assert broken.failures == []
    assert "ZeroDivisionError: oops" in capsys.readouterr().err


def test_a_request_is_known_to_the_snapshot_by_its_id_and_pending_until_it_is_answered():
    source, screen = Script(*trained()), Screen()
    session = Session(PLAN, rate_hz=100, start_source=lambda _plan: source, beside=())
    session.start(screen)
    number = session.change({"batch_size": "16"})
    until(lambda: screen.newest.last_command >= number)
    assert screen.newest.pending == {"batch_size": "16"}
    assert source.commands == [Change(id=number, settings={"batch_size": "16"})]
    session.close()


# ── versions ────────────────────────────────────────────────────────────────────────────


def line(**hello: object) -> bytes:
    body = msgspec.to_builtins(Hello()) | hello
    return msgspec.json.encode(["training", 0, 0, 1.0, body])


FIRST_LINES = """
import sys, threading
from gpudash.run.source import Decoder
sys.setswitchinterval(1e-6)
together = threading.Barrier(4)
def decode():
    together.wait()
    Decoder("it").decode(sys.argv[1].encode())
threads = [threading.Thread(target=decode) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_several_threads_may_decode_their_first_line_at_once():
    for _ in range(3):  # msgspec crashes in 14 of 15 where it looks types up then
        subprocess.run([sys.executable, "-c", FIRST_LINES, line().decode()], check=True)


@pytest.mark.parametrize("more", [{}, {"can": ["levitate"]}, {"can": 1}])
def test_another_version_is_reported_in_one_line(more):
    with pytest.raises(SourceError, match=r"^it speaks protocol 9, this gpudash 3$"):
        Decoder("it").decode(line(protocol=9, **more))


@pytest.mark.parametrize(
    "first", [b"", b"{", b"[]", b"3", b'{"type": "Status", "text": "loading torch"}', b'["a", {}]']
)
def test_another_protocol_is_reported_in_one_line(first):
    with pytest.raises(SourceError, match=r"^it does not speak gpudash's protocol$"):
        Decoder("it").decode(first)


def test_another_version_ends_the_training_with_its_line():
    class Stranger(Script):
        def read(self) -> list[Envelope]:
            return [Decoder("the training process").decode(line(protocol=9))]

    screen = followed(Stranger())
    assert screen.newest.status == "the training process speaks protocol 9, this gpudash 3"
    assert len(screen.failures) == 1


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The sampler of all telemetry: it keeps what it should read."""
    sampler = Mock(missing=GpuMissing(why=None))
    monkeypatch.setattr(telemetry_source, "Sampler", lambda _emit, *, energy: sampler)
    return sampler


def test_each_rank_names_its_own_loader_workers_and_may_name_none(sampler: Mock):
    telemetry = TelemetrySource()
    first = Trainer(stamps=False).start()
    ranks = [in_process(first, pid=50 + rank, world_size=8) for rank in range(8)]
    for rank, state in enumerate(ranks[:7]):
        telemetry.watch(msgspec.structs.replace(state, loader_pids=(60 + rank, 70 + rank)), rank)
    telemetry.watch(ranks[7], 7)
    telemetry.watch(msgspec.structs.replace(ranks[0], loader_pids=()), 0)
    known = {50 + rank: (60 + rank, 70 + rank) for rank in range(1, 7)}
    told = dict(one.args for one in sampler.tell_loaders.call_args_list)
    assert told == known | {50: (), 57: None}


def test_after_a_restart_with_fewer_processes_no_gpu_of_those_before_is_read(sampler: Mock):
    telemetry = TelemetrySource()
    alone = Trainer(stamps=False).start()
    device = msgspec.structs.replace(alone.process.device, uuid="GPU-2222")
    second = in_process(alone, pid=43, device=device, world_size=2)
    two = Script(Hello(), in_process(alone, world_size=2))
    sources = iter((two, Script(Hello(), in_process(alone, pid=44), ended="gone")))
    session = Session(
        PLAN, start_source=lambda _plan: next(sources), beside=[telemetry, Script(second, rank=1)]
    )
    session.start(Screen())
    until(lambda: call({43}) in sampler.watch_processes.call_args_list)
    sampler.watch_others.assert_called_with({"GPU-2222"})
    session.restart(PLAN)
    assert session.wait(60)
    session.close()
    sampler.watch_others.assert_called_with(set())
    sampler.watch_processes.assert_called_with(set())


def test_after_a_restart_the_ranks_are_those_that_train_now():
    def source(seconds: float, ended: str | None) -> Told:
        begun = [(0, Hello()), *((rank, start(rank, world_size=2)) for rank in range(2))]
        return Told(enveloped([*begun, *Ranks(2, seed=1).train(seconds)]), ended=ended)

    first, second = source(15, None), source(2, "it has ended")
    many, few = (one.left[-1].body.total_steps for one in (first, second))
    sources, screen = iter((first, second)), Screen()
    session = Session(PLAN, start_source=lambda _: next(sources), beside=(), clock=lambda: 0.0)
    session.start(screen)
    screen.until(lambda s: any(row.steps == many for row in s.ranks))
    session.restart(PLAN)
    assert session.wait(60)
    session.close()
    assert [row.steps for row in screen.newest.ranks] == [few, few]
