"""Actions on levers: changes and A/Bs."""

from collections.abc import Callable
from functools import partial

from gpudash.compare.starts import STARTS
from gpudash.offers import canonical
from gpudash.protocol.training import Lever
from gpudash.tui.actions.asking import Asking
from gpudash.tui.screens.chooser import Chooser, ChosenValue
from gpudash.tui.screens.dialog import AskKey, copy


class LeverActions(Asking):
    """Actions on the lever under the cursor, on a row of results, or on the last A/B."""

    def action_pipelining(self) -> None:
        self._step("pipelined", 1)

    def action_batch(self, direction: int) -> None:
        """Go to the next power of two, up (+1) or down (-1)."""
        self._step("batch_size", direction)

    def action_nudge(self, direction: int) -> None:
        lever = self._chosen()
        if lever is not None:
            self._step(lever.name, direction)

    def _chosen(self) -> Lever | None:
        """Return the lever under the cursor; without one, show why."""
        lever = self.main_screen.levers.chosen
        if lever is None:
            self._ask(lambda: self.control.require("levers"))
        return lever

    def _step(self, name: str, direction: int) -> None:
        self._set(name, lambda: self.control.levers.step(name, direction))

    def _set(self, name: str, request: Callable[[], None]) -> None:
        if self._ask(request) and not self.control.levers.acts(name):
            self.notify(f"{name} needs a GPU: it does nothing here")

    def action_set(self, name: str, value: str) -> None:
        self._set(name, lambda: self.control.levers.change(self.control.levers.lever(name), value))

    def action_undo(self) -> None:
        self._ask(lambda: self.control.levers.go("undo"))

    def action_redo(self) -> None:
        self._ask(lambda: self.control.levers.go("redo"))

    def action_use_row(self) -> None:
        row = self.main_screen.pane.chosen_result
        if row is not None:
            self._ask(lambda: self.control.levers.use_row(row))

    def action_edit(self) -> None:
        lever = self._chosen()
        if lever is not None and self._ask(lambda: self.control.require("levers", lever.name)):
            self._open_chooser(lever)

    def _open_chooser(self, lever: Lever, *, compares: bool = False) -> None:
        def answered(chosen: ChosenValue | None) -> None:
            if chosen is None:
                return
            if chosen.verb == "set":
                self._set(lever.name, lambda: self.control.levers.change(lever, chosen.value))
            else:
                self._compare(lever.name, chosen.value)

        now, values = self.control.levers.value(lever), self.control.levers.values(lever)
        self._open(Chooser(lever, now, values, compares=compares), answered)

    def action_code(self) -> None:
        shown = self.control.snapshot.comparison
        if not self._ask(lambda: self.control.require("code")):
            return
        if self.main_screen.view.keys_of == "ab" and shown is not None:
            self.action_code_of(shown.lever)
        elif (lever := self._chosen()) is not None:
            self.action_code_of(lever.name)

    def action_code_of(self, name: str, value: str | None = None) -> None:
        """By default the value is the one that an A/B tests, or else the present one."""
        from gpudash.present.own_line import own_line  # noqa: PLC0415  # after the first frame
        from gpudash.tui.screens.recipe import TakeHome  # noqa: PLC0415  # …

        def show() -> None:
            lever = self.control.levers.lever(name)
            wanted = self.control.ab.value_of_interest(lever) if value is None else value
            command, found = self.control.plan.command, self.control.snapshot.found
            place = partial(own_line, command, found, lever.name)
            self._open(TakeHome(lever, canonical(lever, wanted), place))

        self._ask(show)

    # ── A/B ─────────────────────────────────────────────────────────────────────────────

    def action_compare(self) -> None:
        """Compare the lever's present value with another one, or end the running A/B."""
        if self.control.comparing:
            self._ask_and_notify(self.control.ab.end)
            self.main_screen.open_tab("ab")  # a small terminal hides its verdict behind the levers
            return
        lever = self._chosen()
        if lever is None or not self._ask(lambda: self.control.require("blocks", lever.name)):
            return
        if lever.kind == "switch":
            self._compare(lever.name, lever.step(self.control.levers.value(lever), 1))
        else:
            self._open_chooser(lever, compares=True)

    def action_try_it(self) -> None:
        """Run an A/B of the answer's first proposal, or set what one has proven.

        Where other jobs take cores it waits; what waits already begins at once.
        """
        headline = self.main_screen.headline
        proposed = headline.first
        if not self._ask(lambda: self.control.require("try_it")) or proposed is None:
            return
        self.main_screen.levers.find(proposed.lever)
        if proposed.gain is not None and proposed.gain.measured:
            self.action_set(proposed.lever, proposed.value)
        elif headline.caution and headline.waits is None:
            self._ask(lambda: self.control.ab.wait(proposed))
        else:
            self._compare(proposed.lever, proposed.value)

    def action_prove(self) -> None:
        self._ask_and_notify(self.control.ab.prove)

    def action_tune(self) -> None:
        """Ask first about levers that compute other numbers."""
        if not self._ask(lambda: self.control.require("tune")):
            return
        if not self.control.ab.asks_numbers:
            self._tune(numerics=self.control.levers.agreed)
        else:
            question = "Try levers that compute other numbers too? The weights will differ."
            answers = {"y": "try them too", "n": "leave them out"}

            def answered(key: str | None) -> None:
                if key is not None:
                    self._tune(numerics=key == "y")

            self._open(AskKey(question, answers, "tunes nothing"), answered)

    def _tune(self, *, numerics: bool) -> None:
        ab = self.control.ab
        self._begin(lambda: self.notify(ab.tune(numerics=numerics), markup=False))

    def _compare(self, name: str, value: str) -> None:
        self._begin(lambda: self.control.ab.compare(name, value))

    def _begin(self, request: Callable[[], None]) -> None:
        def begin() -> None:
            request()
            self.main_screen.open_tab("ab")

        self._ask(begin)

    def action_keep(self) -> None:
        """Keep the A/B's second value; end a running one that is sure."""
        ends = self.control.comparing and self.control.ab.is_sure
        self._ask_and_notify(self.control.ab.end if ends else self.control.ab.keep)

    def action_go_back(self) -> None:
        self._ask_and_notify(self.control.ab.back)

    def action_more_pairs(self) -> None:
        self._ask_and_notify(self.control.ab.more_pairs)

    def action_card(self) -> None:
        self._ask_and_notify(self.control.ab.card)

    def action_new_starts(self) -> None:
        """Only copy a command: two trainings on one GPU would disturb each other."""
        ab, told = self.control.ab, "copied, for when nothing else trains here"
        self._ask(lambda: copy(self, ab.command(ab.concluded("new_starts"), starts=STARTS), told))
