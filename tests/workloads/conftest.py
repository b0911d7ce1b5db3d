"""What the tests of the workloads share."""

from collections.abc import Iterator

import pytest

from tests.workloads.trainings import COUNT, Make, deterministic_algorithms, making
from workloads.jpeg_files import JpegFiles


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> JpegFiles:
    """A few JPEG files, written once and read by many: whoever spoils one spoils a copy."""
    files = JpegFiles(tmp_path_factory.mktemp("data") / f"jpeg-800x533-{COUNT}-v1", COUNT)
    files.write()
    return files


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Trainings of the module's workload with its settings, as `MAKES` names them."""
    workload, settings = request.module.MAKES
    yield from making(workload, **settings)


@pytest.fixture
def deterministic() -> Iterator[None]:
    with deterministic_algorithms():
        yield
