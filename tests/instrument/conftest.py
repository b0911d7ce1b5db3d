"""A clock over a fake device, for the phases of the test's module."""

import pytest

from gpudash.instrument.clock import Clock
from tests.instrument.fake_device import Device


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def clock(device: Device, request: pytest.FixtureRequest) -> Clock[int]:
    return Clock(device, request.module.PHASES, now=device.now, phases_every_s=0.0)
