"""Which files are still measured, and why the others are not."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["NO_MEMORY", "Roster"]

NO_MEMORY = "there is not enough memory"


@dataclass(slots=True)
class Roster:
    """The files of a measurement.

    Attributes:
        files: Ids of all of them, the most important first.
        kept: Of those that are still measured, in the same order.
        lost: Why files were dropped that ended a process or for which a metric failed, by id.
    """

    files: Sequence[str]
    kept: list[str] = field(init=False)
    lost: dict[str, str] = field(default_factory=dict)
    _begun: list[str] = field(default_factory=list)
    _halved: dict[str, str] = field(default_factory=dict)
    _left_out: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept = list(self.files)

    def begin(self) -> None:
        """Remember which files a process begins with."""
        self._begun = self.kept

    def lose(self, reasons: Mapping[str, str]) -> None:
        """Files that cannot be measured, by id."""
        self.lost.update(reasons)
        self.drop(reasons)

    def drop(self, keys: Collection[str]) -> None:
        """Files that nobody wants any more."""
        self.kept = [key for key in self.kept if key not in keys]

    def leave_out(self, keys: Sequence[str], why: str) -> None:
        """Files that could be measured, but are not; ``why`` has a place for how many."""
        self._left_out.update(dict.fromkeys(keys, why))
        self.drop(keys)

    def halve(self, reason: str, *, to_one: bool) -> bool:
        """Keep the more important half, or the first, of what the process began with and could be measured alone.

        Returns:
            Whether there was more than one.
        """
        whole = [key for key in self._begun if self.lost.get(key, NO_MEMORY) == NO_MEMORY]
        if len(whole) < 2:
            return False
        self.kept = whole[: 1 if to_one else len(whole) // 2]
        for key in whole:
            self.lost.pop(key, None)
        self._halved.update({key: reason for key in whole if key not in self.kept})
        return True

    @property
    def sentences(self) -> list[str]:
        """What was left out so that the others could be measured, and what for want of time or of patience."""
        reasons = list(dict.fromkeys(self._halved.values()))
        n = f"{len(self._halved)} of {len(self.files)} files"
        too_many = f"left out, as together they could not be measured: {n}, {'; '.join(reasons)}"
        others = {*self.kept, *self._halved, *self.lost}
        whys = [why for key, why in self._left_out.items() if key not in others]
        too_late = [why.format(f"{whys.count(why)} of {len(self.files)} files") for why in dict.fromkeys(whys)]
        return [*([too_many] if reasons else []), *too_late]
