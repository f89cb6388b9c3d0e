"""Evaluation samples in two parts."""

from dataclasses import dataclass

__all__ = ["Division"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Which samples of the last measurement the search has seen: the first ones.

    Attributes:
        n_search: Samples that the search compared candidates on.
        n_held_out: Samples after them that nothing has seen before.
        is_pooled: Whether the SNR of a member is over both; otherwise over the first part alone, the held-out samples
            being other data.
    """

    n_search: int
    n_held_out: int = 0
    is_pooled: bool = True

    def __len__(self) -> int:
        return self.n_search + self.n_held_out

    @property
    def search(self) -> range:
        """Indices of the samples that the search saw."""
        return range(self.n_search)

    @property
    def held_out(self) -> range:
        """Indices of the others."""
        return range(self.n_search, len(self))

    @property
    def pooled(self) -> range:
        """Indices of the samples behind a member's SNR."""
        return range(len(self)) if self.is_pooled else self.search

    def shortened(self, n_search: int) -> "Division":
        """With fewer samples of the search, and the same share of the others, at least one where there are some."""
        if n_search >= self.n_search or not self.n_held_out:
            return Division(n_search=min(n_search, self.n_search), n_held_out=self.n_held_out, is_pooled=self.is_pooled)
        n_held_out = max(1, round(self.n_held_out * n_search / self.n_search))
        return Division(n_search=n_search, n_held_out=n_held_out, is_pooled=self.is_pooled)
