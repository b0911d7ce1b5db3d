"""Settings asked for and not in force yet."""

from collections.abc import Mapping

from gpudash.protocol import Settings


class Pending:
    """The changes asked for that the worker has not answered, oldest first."""

    def __init__(self) -> None:
        self._asked: list[Settings] = []

    def ask(self, changes: Mapping[str, str]) -> None:
        """Take a change sent to the worker."""
        self._asked.append(dict(changes))

    def answer(self, changes: Mapping[str, str]) -> None:
        """Drop the changes that the worker has answered with `changes`, made or refused.

        It answers in order but may make several at one step, so the last one that the answer
        contains takes along those before it. An answer in other words than the question's
        (`auto` resolved) drops the oldest change of the same levers.
        """
        answered = [i for i, one in enumerate(self._asked) if one.items() <= changes.items()]
        if answered:
            del self._asked[: answered[-1] + 1]
            return
        alike = [i for i, one in enumerate(self._asked) if one.keys() <= changes.keys()]
        if alike:
            del self._asked[: alike[0] + 1]

    def clear(self) -> None:
        """Forget everything: there is nobody left to answer."""
        self._asked.clear()

    def beside(self, settings: Settings) -> Settings:
        """Return what is still asked for and differs from the settings in force."""
        merged: Settings = {}
        for changes in self._asked:
            merged |= changes
        return {name: value for name, value in merged.items() if settings.get(name) != value}
