"""Two ends prove that they hold the same token, and a token is kept from others."""

import os

import pytest
from msgspec.structs import replace

from gpudash.errors import UsageError
from gpudash.run import node_protocol
from gpudash.run.node_protocol import VARIABLE, Challenge, Credentials, Welcome, given_token

TOKEN = "correct horse battery"


def answered(token=TOKEN, challenge=None):
    challenge = challenge or Challenge(nonce=node_protocol.new_nonce())
    said = node_protocol.answer(token, challenge, node="gpu2", run="r", clock_s=1.0)
    return challenge, said


def test_both_ends_prove_the_same_token():
    challenge, said = answered()
    assert node_protocol.is_valid_answer(TOKEN, challenge, said)
    back = node_protocol.welcome(TOKEN, challenge, said)
    assert node_protocol.is_valid_welcome(TOKEN, challenge, said, back)
    assert not any(TOKEN in str(one) for one in (challenge, said, back))
    reflected = Welcome(proof=said.proof)
    assert not node_protocol.is_valid_welcome(TOKEN, challenge, said, reflected)


@pytest.mark.parametrize("changes", [{"node": "gpu3"}, {"run": "s"}, {"proof": "½" * 64}, {}])
def test_an_answer_of_another_node_or_of_an_earlier_time_proves_nothing(changes):
    challenge, said = answered()
    asked = challenge if changes else Challenge(nonce=node_protocol.new_nonce())
    assert not node_protocol.is_valid_answer(TOKEN, asked, replace(said, **changes))


def test_no_two_challenges_and_answers_are_alike():
    challenge, said = answered()
    assert answered(challenge=challenge)[1].nonce != said.nonce
    assert isinstance(said, Credentials)
    assert node_protocol.new_nonce() != node_protocol.new_nonce()
    assert len(node_protocol.new_token()) >= node_protocol.SHORTEST


# ── where a token comes from ────────────────────────────────────────────────────────────


def test_the_environment_gives_a_token_and_loses_it(monkeypatch):
    monkeypatch.setenv("GPUDASH_TOKEN", TOKEN)
    assert given_token(None) == TOKEN
    assert given_token(None) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_token_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"others can read --token-file {path}; valid: chmod 600"):
        given_token(path)


@pytest.mark.parametrize(
    ("content", "why"), [(b"short", "too short"), (b"", "too short"), (b"\xff" * 40, "no text")]
)
def test_an_invalid_token_is_refused_and_a_valid_one_read(tmp_path, content, why, monkeypatch):
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=why):
        given_token(path)
    if content:
        monkeypatch.setenv(VARIABLE, os.fsdecode(content))
        with pytest.raises(UsageError, match=f"the token in {VARIABLE} .*{why}"):
            given_token(None)
    path.write_text(f"{TOKEN}\n")
    assert given_token(path) == TOKEN


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    tmp_path.chmod(0o700)
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=f"cannot read --token-file {path}: "):
            given_token(path)
