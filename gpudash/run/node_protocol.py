"""Define what two gpudash on different nodes say to each other, and how they prove who they are.

First each answers the other's fresh nonce with an HMAC of it by their common token: so the token
is never sent. Nothing is encrypted, and later lines carry no proof: use ssh for that.

Then each line begins with a process id: the rest is from that training process, or to it. An empty
rest closes the connection to it. Lines of process 0 are between the two gpudash themselves.
"""

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import TypeAlias

import msgspec

from gpudash.errors import UsageError
from gpudash.input_file import open_input
from gpudash.protocol.commands import Stacks
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.records import Record
from gpudash.protocol.training import PROTOCOL_VERSION
from gpudash.recording.files import reason
from gpudash.run.lines import Lost

VARIABLE = "GPUDASH_TOKEN"
SHORTEST = 16
"""Least characters of a token: whoever has seen an answer can try tokens offline."""
MOST_BYTES = 4096
"""Most bytes read of a token file."""
OURSELVES = 0
PING_S = 1.0
"""How often the listening end asks for the other's clock."""
SILENT_S = 15.0
"""A connection is lost after this many seconds without a line."""


class Challenge(Record, frozen=True, kw_only=True):
    """The listening end's first message."""

    protocol: int = PROTOCOL_VERSION
    nonce: str


class Credentials(Record, frozen=True, kw_only=True):
    """The connecting end's proof and identity."""

    nonce: str
    proof: str
    node: str
    """The machine's name."""
    run: str
    """Random per gpudash: one that connects again replaces its former connection."""
    clock_s: float
    """Its clock when it answers."""


class Welcome(Record, frozen=True, kw_only=True):
    """The listening end's proof."""

    proof: str


class Denied(Record, frozen=True, kw_only=True):
    """The proof was wrong."""


Said: TypeAlias = Challenge | Credentials | Welcome | Denied


def new_nonce() -> str:
    return secrets.token_hex(32)


def answer(token: str, challenge: Challenge, *, node: str, run: str, clock_s: float) -> Credentials:
    said = Credentials(nonce=new_nonce(), proof="", node=node, run=run, clock_s=clock_s)
    return msgspec.structs.replace(said, proof=_answer_proof(token, challenge, said))


def is_valid_answer(token: str, challenge: Challenge, said: Credentials) -> bool:
    return _is_equal(said.proof, _answer_proof(token, challenge, said))


def welcome(token: str, challenge: Challenge, said: Credentials) -> Welcome:
    return Welcome(proof=_proof(token, "listens", challenge.nonce, said.nonce))


def is_valid_welcome(token: str, challenge: Challenge, said: Credentials, back: Welcome) -> bool:
    return _is_equal(back.proof, welcome(token, challenge, said).proof)


def _answer_proof(token: str, challenge: Challenge, said: Credentials) -> str:
    return _proof(token, "connects", challenge.nonce, said.nonce, said.node, said.run)


def _proof(token: str, *words: str) -> str:
    """Begin with a word that prevents an answer from being reflected to its sender."""
    return hmac.digest(token.encode(), msgspec.json.encode(words), "sha256").hex()


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


# ── after the proof ─────────────────────────────────────────────────────────────────────


class Ping(Record, frozen=True, kw_only=True):
    """The listening end's request for the relay's clock."""

    asked_s: float


class Pong(Record, frozen=True, kw_only=True):
    """The relay's answer to a Ping."""

    asked_s: float
    clock_s: float


class Parting(Record, frozen=True, kw_only=True):
    """The end of the node's command, as a sentence."""

    text: str


FromRelay: TypeAlias = Pong | Parting | GpuReading | HostReading
ToRelay: TypeAlias = Ping | Stacks


def line_of(process: int, said: bytes) -> bytes:
    return b"%d %b" % (process, said)


def own_line(said: ToRelay | FromRelay) -> bytes:
    return line_of(OURSELVES, msgspec.json.encode(said))


def parsed(said: bytes) -> tuple[int, bytes]:
    process, _, rest = said.partition(b" ")
    if not process.isdigit() or len(process) > 10:
        raise Lost("a line of it makes no sense")
    return int(process), rest


# ── the token ───────────────────────────────────────────────────────────────────────────


def given_token(path: Path | None) -> str | None:
    """Take the token out of the environment: the training's processes need not know it."""
    said = os.environ.pop(VARIABLE, "")
    if path is None and not said:
        return None
    token, where = (said, VARIABLE) if path is None else (_read(path), f"--token-file {path}")
    token = token.strip()
    if not token.isprintable():  # bytes that are not UTF-8 are not either
        raise UsageError(f"the token in {where} holds no text")
    if len(token) < SHORTEST:
        raise UsageError(f"the token in {where} is too short; valid: {SHORTEST} characters or more")
    return token


def new_token() -> str:
    return secrets.token_urlsafe(24)


def _read(path: Path) -> str:
    try:
        with open_input(path) as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"others can read --token-file {path}; valid: chmod 600 {path}")
            return file.read(MOST_BYTES).decode()
    except OSError as error:
        raise UsageError(f"cannot read --token-file {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the token in --token-file {path} holds no text") from error
