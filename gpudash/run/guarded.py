"""Hold, by `guardian.py`, a command that is only measured: it is over with its last descendant."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from signal import SIGINT, SIGKILL

from gpudash.rendezvous import Rendezvous
from gpudash.run import guardian
from gpudash.run.command_process import Foreground
from gpudash.run.user_command import UserCommand, environment

WORD_BYTES = 1 << 12


class Guarded(Foreground):
    """A child of a guardian, with gpudash's streams and process group."""

    stops = (SIGINT,)  # the guardian asks harder by itself

    def _begin(
        self, command: UserCommand, run: Rendezvous, stdout: int | None, stderr: int | None
    ) -> int:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._last_word = b""
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guardian.__file__),
                    *(str(number), str(os.getpgrp())),
                    *command.argv,
                ],
                env=environment(run, command),
                cwd=command.folder,
                stdin=None if stderr is None else subprocess.DEVNULL,  # nor has it a terminal
                stdout=stdout,
                stderr=stderr,
                pass_fds=(number,),
                process_group=0,
            )
        said = self._receive()
        if said[:1] != guardian.STARTED:
            self._process.wait()
            raise OSError(said[1:].decode(errors="replace") or "its guardian was killed")
        return int(said[1:])

    def signal(self, number: int) -> None:
        """Follow a signal that asks to end by harder ones."""
        with suppress(OSError):  # it has ended
            self._connection.send(bytes([number]))

    def close(self) -> None:
        """End whatever is left, without waiting for that."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        super().close()

    def _code(self, code: int) -> int:  # noqa: ARG002  # its own the guardian has told
        if not self._last_word:
            self._last_word = self._receive() or str(-SIGKILL).encode()
            self._connection.close()
        return int(self._last_word)

    def _receive(self) -> bytes:
        with suppress(OSError):
            return self._connection.recv(WORD_BYTES)
        return b""
