from collections.abc import Iterator

import pytest

from tests.workloads.trainings import one_thread


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with one_thread():
        yield
