"""How two gpudash on different nodes prove to each other that they hold the same token.

Each answers a number that the other has just drawn with an HMAC of it. So the token never travels,
and what was heard once opens nothing later. Nothing is encrypted: that is for ssh.
"""

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import TypeAlias

import msgspec

from gpudash.errors import UsageError
from gpudash.protocol import PROTOCOL_VERSION, Record
from gpudash.recording.files import reason

VARIABLE = "GPUDASH_TOKEN"
SHORTEST = 16
"""Characters of a token: who answers a challenge lets others try tokens at leisure."""
MOST_BYTES = 4096
"""Of a file with a token."""


class Challenge(Record, frozen=True, kw_only=True):
    """What the listening end says first."""

    protocol: int = PROTOCOL_VERSION
    nonce: str


class Answer(Record, frozen=True, kw_only=True):
    """The connecting end's proof, and who it is."""

    nonce: str
    proof: str
    node: str
    """The machine's name."""
    run: str
    """Drawn anew by each gpudash that connects: when it comes again, it replaces itself."""
    clock_s: float
    """Its clock as it answers."""
    can: tuple[str, ...] = ()
    """What may be asked of it, beside its clock: `stacks` of the processes that it relays."""


class Welcome(Record, frozen=True, kw_only=True):
    """The listening end's proof."""

    proof: str


class Denied(Record, frozen=True, kw_only=True):
    """The proof was wrong."""


Said: TypeAlias = Challenge | Answer | Welcome | Denied


def drawn() -> str:
    """Return a number that nobody can guess, as text."""
    return secrets.token_hex(32)


def answer(token: str, challenge: Challenge, *, node: str, run: str, clock_s: float) -> Answer:
    """Return what the connecting end answers."""
    said = Answer(nonce=drawn(), proof="", node=node, run=run, clock_s=clock_s, can=("stacks",))
    return msgspec.structs.replace(said, proof=_of_relay(token, challenge, said))


def is_right(token: str, challenge: Challenge, said: Answer) -> bool:
    """Tell whether the connecting end holds the token."""
    return _same(said.proof, _of_relay(token, challenge, said))


def welcome(token: str, challenge: Challenge, said: Answer) -> Welcome:
    """Return the proof of the listening end."""
    return Welcome(proof=_proof(token, "listens", challenge.nonce, said.nonce))


def is_welcome(token: str, challenge: Challenge, said: Answer, back: Welcome) -> bool:
    """Tell whether the listening end holds the token."""
    return _same(back.proof, welcome(token, challenge, said).proof)


def _of_relay(token: str, challenge: Challenge, said: Answer) -> str:
    return _proof(token, "connects", challenge.nonce, said.nonce, said.node, said.run)


def _proof(token: str, *words: str) -> str:
    """Return the HMAC; the first word keeps an answer from being handed back as one's own."""
    return hmac.digest(token.encode(), msgspec.json.encode(words), "sha256").hex()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


# ── the token ───────────────────────────────────────────────────────────────────────────


def given_token(path: Path | None) -> str | None:
    """Return the token of this file, else of the environment; None without one.

    It is taken out of the environment: the training's processes need not know it. Raises
    UsageError for one that others may know.
    """
    said = os.environ.pop(VARIABLE, "")
    if path is None and not said:
        return None
    token, where = (said, VARIABLE) if path is None else (_read(path), f"--token-file {path}")
    token = token.strip()
    if not token.isprintable():  # as bytes that are no UTF-8 are
        raise UsageError(f"the token in {where} holds no text")
    if len(token) < SHORTEST:
        raise UsageError(f"the token in {where} is too short; valid: {SHORTEST} characters or more")
    return token


def new_token() -> str:
    """Return a token for one run."""
    return secrets.token_urlsafe(24)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"others can read --token-file {path}; valid: chmod 600 {path}")
            return file.read(MOST_BYTES).decode()
    except OSError as error:
        raise UsageError(f"cannot read --token-file {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the token in --token-file {path} holds no text") from error
