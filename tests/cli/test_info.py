"""`gpudash info`: versions, folders, and settings with their origin."""

import json
from pathlib import Path

import msgspec
import pytest

from gpudash.cli.info import Info
from gpudash.workload_levers import levers_of
from workloads import CATALOGUE


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def info(printed):
    """Return a function that calls it; it returns the document."""
    return lambda *words: json.loads(printed("info", "--json", *words))


def test_the_json_has_a_version_and_is_the_records(info):
    found = info()
    assert found["schema_version"] == 1
    record = msgspec.convert(found, Info, strict=True)
    assert json.loads(msgspec.json.encode(record)) == found


def test_every_setting_is_listed_with_its_origin(project, info):
    path = project / "gpudash.toml"
    path.write_text("rate = 2\n[levers]\nseed = 3\n[ab]\npairs = 8\n")
    settings = {
        one["key"]: (one["value"], one["set_by"])
        for one in info("augment", "--batch-size", "4")["settings"]
    }
    set_here = {
        "workload": ("augment", "command line"),
        "levers.batch_size": ("4", "command line"),
        "ab.pairs": (8, f"{path}:5"),
        "rate": (2.0, f"{path}:1"),
        "levers.seed": ("3", f"{path}:3"),
    }
    default = {"interval": (0.5, "default")}
    default |= dict.fromkeys(("theme", "sweep.rounds"), (None, "default"))
    assert settings | set_here | default == settings
    levers = {f"levers.{lever.name}" for lever in levers_of(CATALOGUE["augment"])}
    assert {key for key in settings if key.startswith("levers.")} == levers


def test_the_files_looked_for_are_named_whether_they_are_there_or_not(project, info):
    user = f"{project}/home/gpudash/config.toml"
    ours = f"{project}/gpudash.toml"
    assert info()["files"] == [
        {"path": ours, "found": False},
        {"path": user, "found": False},
    ]
    Path(ours).touch()
    assert info()["files"][0] == {"path": ours, "found": True}


def test_the_folders_are_those_that_are_used(project, monkeypatch, info):
    places = {
        "GPUDASH_DATA": "data",
        "XDG_CACHE_HOME": "caches",
        "XDG_STATE_HOME": "states",
        "TMPDIR": "tmp",
    }
    for variable, name in places.items():
        (project / name).mkdir()
        monkeypatch.setenv(variable, str(project / name))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    found = info()["paths"]
    found["scratch"] = None  # the folder's name may be too long for a socket's
    assert found == {
        "data": f"{project}/data",
        "cache": f"{project}/caches/gpudash",
        "compiled code": f"{project}/caches/gpudash/inductor",
        "preferences": f"{project}/states/gpudash/preferences.json",
        "scratch": None,
    }


def test_a_broken_configuration_is_shown_with_all_the_rest(project, info, printed):
    (project / "gpudash.toml").write_text("raet = 2")
    found = info()
    assert found["problem"].startswith(f"{project}/gpudash.toml:1: unknown key 'raet'")
    assert all(one["set_by"] == "default" for one in found["settings"])
    assert "not obeyed" in printed("info")


def test_the_text_names_the_profile_and_each_setting_in_a_line_of_its_own(project, printed):
    path = project / "gpudash.toml"
    path.write_text("[profiles.quick]\ninterval = 0.1\n")
    lines = [line.split() for line in printed("info", "--profile", "quick").splitlines()]
    ours = ["profile", "quick"], ["interval", "0.1", f"{path}:2"], ["ascii", "false", "default"]
    assert all(one in lines for one in ours)
