"""What the tests of the workloads share."""

import pytest

from tests.workloads.trainings import COUNT
from workloads.jpeg_files import JpegFiles


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> JpegFiles:
    """A few JPEG files, written once and read by many: whoever spoils one spoils a copy."""
    files = JpegFiles(tmp_path_factory.mktemp("data") / f"jpeg-800x533-{COUNT}-v1", COUNT)
    files.write()
    return files
