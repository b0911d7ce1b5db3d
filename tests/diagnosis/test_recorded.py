"""The forty trainings that an H200 recorded."""

import gzip
import re

from tests.diagnosis.recorded import FOLDER, NAMES, recorded


def test_forty_trainings_are_recorded():
    assert len(NAMES) == 40
    assert sum(recorded(name).known.summary is not None for name in NAMES) == 40


def test_no_recording_holds_a_machines_folders():
    for path in FOLDER.iterdir():
        held = path.read_bytes()
        text = (gzip.decompress(held) if path.suffix == ".gz" else held).decode()
        assert not re.search(r'"/\w+/', text), path.name
