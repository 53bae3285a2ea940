"""One part of the campaign: how many attempts it made, and which of them failed."""

from dataclasses import dataclass, field


@dataclass
class Part:
    """Attempts of one kind. ``promise`` says in one line what must hold. ``failures`` lists the attempts that broke it.

    ``notes`` are texts to show next to the counts, and ``peaks`` are the largest measured values, such as the memory.
    """

    name: str
    promise: str
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    peaks: dict[str, tuple[float, str]] = field(default_factory=dict)

    def expect(self, is_kept: bool, failure: str) -> None:
        """Count an attempt, and note the failure if the promise was not kept."""
        self.tried += 1
        if not is_kept:
            self.failures.append(failure)

    def add(self, other: "Part") -> None:
        """Add the attempts of another process."""
        self.tried += other.tried
        self.failures += other.failures
        self.notes = other.notes | self.notes
        for name, (value, unit) in other.peaks.items():
            self.measure(name, value, unit)

    def measure(self, name: str, value: float, unit: str) -> None:
        """Note a measured value if it is the largest one with this name."""
        self.peaks[name] = (max(value, self.peaks.get(name, (value, unit))[0]), unit)

    @property
    def shown_notes(self) -> list[str]:
        """The notes and the largest values, as texts."""
        notes = [f"{name} {text}" for name, text in self.notes.items()]
        return notes + [f"{name} {value:.{int(unit == 's')}f} {unit}" for name, (value, unit) in self.peaks.items()]

    @property
    def kept(self) -> int:
        """The number of attempts in which the promise was kept."""
        return self.tried - len(self.failures)
