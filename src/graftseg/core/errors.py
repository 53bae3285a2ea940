"""What a user did, or has, that the program cannot work with."""

from pathlib import Path


def in_one_line(text: str) -> str:
    """The text with what would move the cursor or set colours, such as in the name of a file, written out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class UserError(Exception):
    """A mistake in the input, told in one sentence: where, what was found, how to mend it.

    The command line prints the sentence and exits with code 2; a traceback is never shown for it.
    """

    def __init__(self, where: str | Path, finding: str, remedy: str) -> None:
        self.where = str(where)
        self.finding = finding
        self.remedy = remedy
        super().__init__(in_one_line(f"{self.where}: {finding}; {remedy}."))

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, str, str]]:
        """Travel between processes without losing the three parts."""
        return type(self), (self.where, self.finding, self.remedy)


class StoppedError(Exception):
    """A training was asked to stop, by Ctrl-C or SIGTERM, and has saved where it was, unless nobody will go on."""

    def __init__(self, signal: int, steps: int, *, where: str = "", is_saved: bool = True) -> None:
        place = f" in {where}," if where else ""
        super().__init__(f"stopped{place} after step {steps}" + (", which is saved" if is_saved else ""))
        self.signal, self.steps = signal, steps
