"""A scripted worker beside an energy counter that ticks."""

from gpudash.protocol.readings import EnergyTick
from tests.scripted_run import DEVICE

TICK_S = 0.1


class Metered:
    """Beside a `Worker`: tells the ticks of a GPU that draws `power_w(settings)`."""

    def __init__(self, *words, power_w, **about):
        super().__init__(*words, **about)
        self.power_w = power_w
        self.energy_j, self.ticked = 5000.0, int(self.now_s / TICK_S)

    def turn(self):
        before_s = self.now_s
        super().turn()
        power_w = self.power_w(self.settings)
        while (self.ticked + 1) * TICK_S <= self.now_s:
            self.ticked += 1
            at_s = self.ticked * TICK_S
            energy_j = self.energy_j + (at_s - before_s) * power_w
            tick = EnergyTick(at_s=at_s, uuid=DEVICE.uuid, energy_j=energy_j, within_s=0.003)
            self.sent.insert(-1, tick)
        self.energy_j += (self.now_s - before_s) * power_w
