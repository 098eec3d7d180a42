"""What goes wrong, with what repairs it."""


class Error(Exception):
    """Of the program: `code` is its exit code (2 usage, 3 data, 4 checkpoint, 5 out of memory, 6 communication, 7 numbers that are
    not finite, 70 a bug of ours), `hint` what to do, `frames` what it was at, innermost first."""

    def __init__(self, message: str, code: int = 70, hint: str = "", frames: "list[str] | tuple[str, ...]" = ()) -> None:
        super().__init__(message, code, hint, list(frames))  # so that it can be pickled
        self.message, self.code, self.hint, self.frames = message, code, hint, list(frames)

    def __str__(self) -> str:
        text = "".join(f"{frame}: " for frame in reversed(self.frames)) + self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class Notice(UserWarning):
    """What a person should know that is no error, where nobody listens to events."""
