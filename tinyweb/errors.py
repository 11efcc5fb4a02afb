"""Errors a user can cause. Each message is one sentence: what was wrong, where, and what to do.

The command line prints the message alone and exits with code 2; anything else is a defect and keeps its traceback.
"""


def printable(text: str) -> str:
    """A text with U+FFFD for what is no character to be seen: names in a file may hold sequences that a terminal
    obeys."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


class TinywebError(Exception):
    """Base of all errors that are meant for the user's eyes."""


class ModelFormatError(TinywebError):
    """A model folder or file is missing, damaged, or of a kind that is not supported.

    What names of the file would make longer than `LONGEST` characters is left out in the middle.
    """

    LONGEST = 1200

    def __init__(self, message: str = ""):
        half = self.LONGEST // 2
        super().__init__(message if len(message) <= self.LONGEST else f"{message[:half]} … {message[-half:]}")


class SourceError(ModelFormatError):
    """A model cannot be fetched: the name, the hub or the network does not allow it, or it lacks what a task needs."""


class ExportError(TinywebError):
    """A bundle cannot be written or read: the place, its contents or the requested options do not allow it."""


class DeviceError(TinywebError):
    """A device does not exist here, lacks what a program needs, or failed while running."""


class ToolchainError(TinywebError):
    """No usable C compiler was found, or the compiler refused the source it was given."""
