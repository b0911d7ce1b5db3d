"""What a record is compared with where a test speaks of some of its fields alone."""

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Having:
    """Equals every record with these fields."""

    fields: dict[str, object]

    def __eq__(self, record: object) -> bool:
        return not self.differing(record)

    __hash__ = None  # type: ignore[assignment]  # it equals records of any hash

    def differing(self, record: object) -> dict[str, object]:
        """What the record has where it differs."""
        found = {name: getattr(record, name) for name in self.fields}
        return {name: is_there for name, is_there in found.items() if is_there != self.fields[name]}


def having(**fields: object) -> Having:
    return Having(fields)
