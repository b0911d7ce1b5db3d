"""Every JSON document of gpudash has a version and agrees with its schema."""

import json

import jsonschema
import msgspec
import pytest

from gpudash.cli.ab_report import StartFinding, StartFindings, document
from gpudash.cli.main import main
from gpudash.cli.schema import DOCUMENTS
from gpudash.cli.verbs import VERBS, load
from gpudash.snapshot import Snapshot
from tests.cli import test_ab, test_sweep
from tests.recording.test_log import recorded
from tests.scripted_session import ScriptedSession
from tests.scripted_worker import TRACE, Conducted, Worker


@pytest.fixture
def schema(printed):
    return lambda name: json.loads(printed("schema", name))


def agrees(text, schema):
    found = json.loads(text)
    jsonschema.validate(found, schema)
    assert found["schema_version"] >= 1
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_is_valid_and_has_a_version(schema, name):
    published = schema(name)
    jsonschema.Draft202012Validator.check_schema(published)
    top = published["$defs"][published["$ref"].rpartition("/")[2]]
    assert "schema_version" in top["properties"]


def test_what_verbs_print_as_json_has_a_schema():
    takes_json = {name for name in VERBS if "--json" in load(name).parser().format_usage()}
    assert takes_json <= {*DOCUMENTS}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list", []),
        ("doctor", []),
        ("info", []),
        ("profile", ["--read", str(TRACE), "--against", str(TRACE)]),
    ],
)
def test_what_a_verb_prints_agrees(schema, printed, monkeypatch, name, words):
    monkeypatch.setattr("gpudash.cli.doctor._torch", lambda: iter(()))
    agrees(printed(name, "--json", *words), schema(name))


def test_a_verdict_agrees(schema, capfd):
    assert test_ab.run(ScriptedSession(Worker(test_ab.a_quarter_faster)), "--json") == 0
    agrees(capfd.readouterr().out, schema("ab"))
    few = test_ab.Comparison(test_ab.question(pairs=2))
    Conducted(few, Worker(test_ab.a_quarter_faster)).run()
    agrees(
        msgspec.json.encode(document(StartFindings([StartFinding(few, Snapshot())]))), schema("ab")
    )


def test_a_sweep_agrees_on_the_screen_and_in_its_file(schema, capfd, tmp_path):
    session = ScriptedSession(Worker(test_sweep.step_ms))
    assert test_sweep.run(session, "--csv", tmp_path / "s.csv", "--json") == 0
    printed = agrees(capfd.readouterr().out, schema("sweep"))
    written = agrees((tmp_path / "s.json").read_text(), schema("sweep"))
    assert printed["table"] == written["table"]
    first, second, *_ = written["table"]
    assert first["settings"] == {"batch_size": "8", "pipelined": "off"}
    assert (first["change"], second["settings"]["pipelined"]) == (None, "on")
    assert second["low"] <= second["change"] <= second["high"]
    assert second["change"] == pytest.approx(0.25, abs=0.01)


def test_a_recording_agrees(schema, tmp_path):
    assert main(["export", str(recorded(tmp_path)), "-o", str(tmp_path / "again.csv")]) == 0
    agrees((tmp_path / "again.json").read_text(), schema("recording"))


def test_an_unknown_schema_names_the_nearest(refused):
    assert refused("schema", "swep").endswith("did you mean sweep?\n")
