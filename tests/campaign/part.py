"""One part of the campaign: how many attempts it made, and which of them failed."""

from dataclasses import dataclass, field


@dataclass
class Part:
    """Attempts of one kind. ``promise`` says in one line what must hold. ``failures`` lists the attempts that broke it.

    ``notes`` are figures to show next to the counts, such as the largest memory.
    """

    name: str
    promise: str
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def expect(self, is_kept: bool, failure: str) -> None:
        """Count an attempt, and note the failure if the promise was not kept."""
        self.tried += 1
        if not is_kept:
            self.failures.append(failure)

    def add(self, other: "Part") -> None:
        """Add the attempts of another process."""
        self.tried += other.tried
        self.failures += other.failures

    @property
    def kept(self) -> int:
        """The number of attempts in which the promise was kept."""
        return self.tried - len(self.failures)
