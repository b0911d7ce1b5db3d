"""Learns how many backward passes a step has."""

ODD = 3
"""After so many unusual steps in a row, each unlike the one before, the number is taken to vary."""


class Backwards:
    """Compares each step's number with the usual one; the last step of an epoch may have fewer."""

    def __init__(self) -> None:
        self.usual: int | None = None
        """Backward passes a step; None while not known, or where it varies."""
        self._newest = 0
        self._odd = 0

    def take(self, number: int) -> bool:
        """Add the number of a step; return whether `usual` has changed."""
        was, newest, self._newest = self.usual, self._newest, number
        if number == was:
            self._odd = 0
            return False
        if self._odd >= ODD:
            return False
        if not newest or number == newest:
            self._odd, self.usual = 0, number
        else:
            self._odd += 1
            self.usual = None if self._odd >= ODD else was
        return self.usual != was
