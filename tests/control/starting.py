"""Starting a program may be tried a second time; nothing else is.

Where a machine stands still for seconds, a browser or a server may give up while it starts. `started` tries again, for
the exceptions that it is told, and notes it; what runs in the program is never repeated: that would hide races. Run as
a script, this says what was noted by a whole `make test`, and fails if it is more than MOST.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LOG = "TINYWEB_RETRY_LOG"  # a file with one line for each second try, shared by all processes of a run
MOST = 5

T = TypeVar("T")


def started(what: str, start: Callable[[], T], *errors: type[Exception]) -> T:
    """What `start()` returns; called once more if it raises one of `errors`."""
    try:
        return start()
    except errors as error:
        note = f"{what}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        with Path(os.environ[LOG]).open("a") as log:
            log.write(note + "\n")
        return start()


def noted() -> list[str]:
    """The second tries of this run so far."""
    log = Path(os.environ[LOG])
    return log.read_text().splitlines() if log.exists() else []


def summary() -> str:
    """One line for each second try; "" if there was none."""
    lines = noted()
    return "\n".join(
        [f"programs that had to be started twice: {len(lines)} (more than {MOST} fail)", *lines] if lines else []
    )


if __name__ == "__main__":  # of Python's and JavaScript's tests together
    print(summary() or "tinyweb: no program had to be started twice")
    sys.exit(len(noted()) > MOST)
