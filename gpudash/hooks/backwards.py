"""How many backward passes a step has, as far as it can be told."""

ODD = 3
"""After so many steps in a row that agree neither with what was told nor with each other, the
number varies."""


class Backwards:
    """Told of each step's number; the last step of an epoch may have fewer."""

    def __init__(self) -> None:
        self.usual: int | None = None
        """None: not known, or it varies."""
        self._newest = 0
        self._odd = 0

    def take(self, number: int) -> bool:
        """Take the number of a step; return whether `usual` has changed."""
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
