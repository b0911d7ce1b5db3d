"""A command on a keeper's terminal: its environment, its output and its end."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpudash.errors import UsageError
from gpudash.run import keeper, runs
from gpudash.run.command_process import attach, keep
from gpudash.run.keeper import Messages, message
from gpudash.run.user_command import UserCommand
from tests.waiting import until


@pytest.fixture
def changed_keeper(monkeypatch, tmp_path):
    """Return a function that has keepers begin with these lines, which change what they see."""

    def begin_with(lines):
        program = tmp_path / "keeper.py"
        runs = f"import runpy; runpy.run_path({keeper.__file__!r}, run_name='__main__')"
        program.write_text(f"{lines}\n{runs}")
        monkeypatch.setattr(keeper, "__file__", str(program))

    return begin_with


def start(place, code, *arguments):
    return keep(UserCommand("train.py", (sys.executable, "-c", code, *arguments)), place)


def output(held, wanted=None):
    """Return the output until `wanted` is in it, or until the end."""
    printed = bytearray()

    def is_there():
        printed.extend(held.read())
        return held.over if wanted is None else wanted in printed

    until(is_there)
    return bytes(printed)


def typed(held, text):
    """Type this; return what is printed from then on."""
    held.type(text)
    return output(held)


def alive(pid):
    return keeper.began_ticks(pid) >= 0


def test_messages_are_decoded_from_any_pieces():
    wire = message(keeper.TYPE, "é") + message(keeper.END) + message(keeper.SIZE, "80 24")
    whole = [(keeper.TYPE, "é".encode()), (keeper.END, b""), (keeper.SIZE, b"80 24")]
    apart = Messages()
    assert [one for byte in wire for one in apart.take(bytes([byte]))] == whole
    assert list(Messages().take(wire)) == whole


def test_a_commands_streams_are_a_terminal_of_the_user_alone_and_what_is_typed_is_read(place):
    terminals = "import sys; print([s.isatty() for s in (sys.stdin, sys.stdout)])"
    held = start(place, f"{terminals}; print('hello', input('name? '))")
    assert stat.S_IMODE((place.path / keeper.SOCKET).stat().st_mode) == 0o600
    assert b"[True, True]\r\n" in output(held, b"name? ")
    assert b"hello Eve" in typed(held, "Eve\n")
    held.close()


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("", 0),
        ("raise SystemExit(1)", 1),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os, time\nif os.fork(): os._exit(5)\ntime.sleep(2)", 5),
    ],
)
def test_its_exit_code_arrives(place, code, exit_code):
    held = start(place, code)
    output(held)
    assert held.exit_code == exit_code
    held.close()


def test_a_command_that_cannot_be_started_says_so_on_its_terminal(place):
    held = keep(UserCommand("gone", ("/nowhere/gone",)), place)
    assert b"cannot start /nowhere/gone: No such file or directory" in output(held)
    assert held.exit_code == 127


@pytest.mark.parametrize("how", ["typed", "sent"])
def test_ctrl_c_is_the_commands_own(place, how):
    held = start(
        place,
        "import time\ntry:\n  print('ready')\n  time.sleep(60)\n"
        "except KeyboardInterrupt: raise SystemExit(3)",
    )
    output(held, b"ready")
    held.type("\x03") if how == "typed" else held.signal(signal.SIGINT)
    output(held)
    assert held.exit_code == 3


def test_it_has_the_default_signals_and_its_own_environment(place):
    held = start(
        place,
        "import os, signal\n"
        "names = ['SIGINT', 'SIGHUP', 'SIGTERM', 'SIGTTOU', 'SIGQUIT']\n"
        "print([n for n in names if signal.getsignal(getattr(signal, n)) == signal.SIG_IGN])\n"
        "me = os.getpid()\n"
        "print(os.environ['_GPUDASH_RUN'], os.getpgrp() == me, os.tcgetpgrp(0) == me)\n"
        "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:4])",
    )
    printed = output(held).decode()
    assert f"[]\r\n{place.path} True True\r\n[0, 1, 2, 3]" in printed  # 3: of listing them


def test_a_killed_dashboard_leaves_it_running_and_another_finds_it(place):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from gpudash.rendezvous import Rendezvous\n"
        "from gpudash.run.command_process import keep\n"
        "from gpudash.run.user_command import UserCommand\n"
        f"place = Rendezvous(Path({str(place.path)!r}))\n"
        "code = \"import os; print('began', os.getpid()); print('got', input())\"\n"
        "held = keep(UserCommand('train.py', (sys.executable, '-c', code)), place)\n"
        "while b'began' not in held.read(): time.sleep(0.01)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    dashboard = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert dashboard.stdout.readline() == b"up\n"
    (run,) = runs.living()
    with pytest.raises(UsageError, match=r"train\.py is watched by another gpudash"):
        run.open()
    dashboard.kill()
    dashboard.wait()
    assert alive(run.facts.pid)

    held = until(lambda: quietly(run.open))
    assert b"began" in output(held, b"began")  # earlier output is sent again
    assert b"got on" in typed(held, "on\n")
    assert held.exit_code == 0
    held.close()
    until(lambda: not place.path.exists())  # nothing is left behind
    assert runs.living() == []


def quietly(call, *how):
    try:
        return call(*how)
    except UsageError:
        return None


def attached(place):
    return until(lambda: quietly(attach, place.path, "train.py"))


STANDING, LEAPING = "lambda: 0.0", f"itertools.count(0.0, {keeper.LINGER_S + 1}).__next__"
"""Clocks of a keeper: what it does only after a while it never does, or does at once."""


def test_a_dashboard_may_leave_and_come_back_after_the_end(place, changed_keeper):
    changed_keeper(f"import time; time.monotonic = {STANDING}")
    held = start(place, "input(); print('over')")
    until(runs.living)
    held.close()
    again = attached(place)
    typed(again, "\n")
    again.over = False  # it did not see the end: somebody may still want to
    again.close()
    last = attached(place)
    assert b"over" in output(last)
    last.close()


@pytest.mark.parametrize(("knows_the_end", "clock"), [(True, STANDING), (False, LEAPING)])
def test_a_keeper_without_dashboards_ends_by_itself(place, changed_keeper, knows_the_end, clock):
    changed_keeper(f"import itertools, time; time.monotonic = {clock}")
    held = start(place, "input(); print('over')")
    typed(held, "\n")
    held.over = knows_the_end  # a dashboard that does not know of the end leaves in silence
    held.close()
    until(lambda: not place.path.exists())


def test_100_mb_of_output_are_drained_and_take_no_memory(place):
    held = start(
        place,
        "import sys\nline = 'x' * 99 + '\\n'\n"
        "for _ in range(1000): sys.stdout.write(line * 1000)\n"
        "print('done')",
    )
    (run,) = until(runs.living)  # nobody reads
    watcher = run.facts.processes[1][0]
    until(lambda: not alive(run.facts.pid))
    status = Path(f"/proc/{watcher}/status").read_text()
    assert int(status.partition("VmHWM:")[2].split()[0]) < 40_000
    printed = output(held)
    assert printed.endswith(b"done\r\n")
    assert len(printed) < 3 * keeper.KEPT_BYTES
    assert keeper.LEFT_OUT in printed


def test_a_killed_keeper_is_reported(place):
    held = start(place, "import time; time.sleep(60)")
    (run,) = until(runs.living)
    os.kill(run.facts.processes[1][0], signal.SIGKILL)
    output(held)
    assert (held.lost, held.exit_code) == (True, None)
    until(lambda: not alive(run.facts.pid))  # as with any terminal that closes
    until(lambda: runs.living() == [])
    assert not place.path.exists()


def test_a_keeper_disconnects_another_user(place, changed_keeper):
    changed_keeper("import os; us = os.geteuid(); os.geteuid = lambda: us + 1")
    held = start(place, "print('a secret')")
    assert output(held) == b""
    assert held.lost


def test_the_terminal_takes_the_size_it_is_given(place):
    held = start(place, "import os; input(); print(os.get_terminal_size())")
    held._send(keeper.SIZE, "77 33")
    assert b"columns=77, lines=33" in typed(held, "\n")


def test_words_that_are_no_text_do_not_hide_a_run(place):
    keeper.write_facts(
        place.path, name="x", command=["x", "b\udce4r"], pid=os.getpid(), is_kept=False
    )
    assert [run.facts.command for run in runs.living()] == [("x", "b?r")]


@pytest.mark.parametrize("facts", [b"", b'{"name": "\xff"}', b'{"a":' + b"[" * 100_000])
def test_a_run_with_invalid_facts_is_not_listed(place, facts):
    (place.path / keeper.FACTS).write_bytes(facts)
    assert runs.living() == []


def test_a_run_of_another_container_is_left_alone(place, monkeypatch):
    keeper.write_facts(place.path, name="x", command=["x"], pid=2**22, is_kept=True)
    monkeypatch.setattr(keeper, "space", lambda: "elsewhere")
    assert runs.living() == []
    assert place.path.exists()
