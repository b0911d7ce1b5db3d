"""Prove between two gpudash on different nodes that both hold the same token.

Each end answers the other's fresh nonce with an HMAC of it. So the token is never sent, and a
recorded answer is of no use later. Nothing is encrypted: use ssh for that.
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
"""Least characters of a token: whoever has seen an answer can try tokens offline."""
MOST_BYTES = 4096
"""Most bytes read of a token file."""


class Challenge(Record, frozen=True, kw_only=True):
    """The listening end's first message."""

    protocol: int = PROTOCOL_VERSION
    nonce: str


class Answer(Record, frozen=True, kw_only=True):
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


Said: TypeAlias = Challenge | Answer | Welcome | Denied


def new_nonce() -> str:
    """Return a random nonce as text."""
    return secrets.token_hex(32)


def answer(token: str, challenge: Challenge, *, node: str, run: str, clock_s: float) -> Answer:
    """Return the connecting end's answer."""
    said = Answer(nonce=new_nonce(), proof="", node=node, run=run, clock_s=clock_s)
    return msgspec.structs.replace(said, proof=_answer_proof(token, challenge, said))


def is_valid_answer(token: str, challenge: Challenge, said: Answer) -> bool:
    """Return whether the connecting end holds the token."""
    return _is_equal(said.proof, _answer_proof(token, challenge, said))


def welcome(token: str, challenge: Challenge, said: Answer) -> Welcome:
    """Return the proof of the listening end."""
    return Welcome(proof=_proof(token, "listens", challenge.nonce, said.nonce))


def is_valid_welcome(token: str, challenge: Challenge, said: Answer, back: Welcome) -> bool:
    """Return whether the listening end holds the token."""
    return _is_equal(back.proof, welcome(token, challenge, said).proof)


def _answer_proof(token: str, challenge: Challenge, said: Answer) -> str:
    return _proof(token, "connects", challenge.nonce, said.nonce, said.node, said.run)


def _proof(token: str, *words: str) -> str:
    """Return the HMAC; the first word prevents an answer from being reflected to its sender."""
    return hmac.digest(token.encode(), msgspec.json.encode(words), "sha256").hex()


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


# ── the token ───────────────────────────────────────────────────────────────────────────


def given_token(path: Path | None) -> str | None:
    """Return the token of this file, or else of the environment; None without one.

    The variable is removed from the environment: the training's processes need not know it. Raises
    UsageError for a token that is too short, not text, or in a file that others can read.
    """
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
