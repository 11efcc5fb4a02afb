"""The command line: `tinyweb export|serve|api|chat|run|bench|tune|inspect|doctor|completion`, a module for
each command.

Results go to standard output, progress and errors to standard error. What a user did wrong is one sentence and exit
code 2; Ctrl-C is exit code 130. Modules are imported by the command that needs them: `tinyweb --help` is quick.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any

import tinyweb
from tinyweb.requirements import advice, unmet

try:
    import typer
    from typer.exceptions import TyperException
except ImportError:
    if missing := unmet():
        sys.exit(f"tinyweb: {advice(missing)}.")
    raise

from tinyweb.cli import (
    api,
    bench,
    completion,
    doctor,
    export_chat,
    export_detect,
    export_embed,
    export_function,
    export_image,
    export_onnx,
    run_chat,
    run_embed,
    run_image,
    site,
    tune,
)
from tinyweb.cli.common import Debug, app
from tinyweb.errors import TinywebError, printable

__all__ = ["app", "main"]

# importing a module adds its commands
COMMANDS = (
    api,
    bench,
    completion,
    doctor,
    export_chat,
    export_detect,
    export_embed,
    export_function,
    export_image,
    export_onnx,
    run_chat,
    run_embed,
    run_image,
    site,
    tune,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tinyweb {tinyweb.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Debug = False,
) -> None:
    """Models that run inside the browser."""


def _stopped(signum: int, frame: FrameType | None) -> None:
    """Unwinds, so that what is half-written goes away."""
    if _in_hook(frame):  # what is raised there is lost too
        _send_again(signum)
    elif signum == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        sys.exit(128 + signum)


def _not_to_be_lost(lost: sys.UnraisableHookArgs, /) -> None:
    """Python drops what is raised within a finaliser, and so the wish to stop: it is sent again, a little later."""
    if isinstance(lost.exc_value, KeyboardInterrupt | SystemExit):
        _send_again(signal.SIGINT if isinstance(lost.exc_value, KeyboardInterrupt) else signal.SIGTERM)
    else:
        sys.__unraisablehook__(lost)


def _send_again(signum: int) -> None:
    def send(alarm: int, frame: FrameType | None) -> None:
        if not _in_hook(frame):  # otherwise at the next alarm
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.raise_signal(signum)

    if not hasattr(signal, "setitimer"):  # Windows: sent from another thread, handled in this one
        threading.Timer(0.01, signal.raise_signal, [signum]).start()
        return
    signal.signal(signal.SIGALRM, send)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)


def _in_hook(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not _not_to_be_lost.__code__:
        frame = frame.f_back
    return frame is not None


def _sentence(error: BaseException) -> str | None:
    """What a user is told about an error; None for a defect of tinyweb, which keeps its traceback."""
    if isinstance(error, TinywebError | TyperException):
        text = error.format_message() if isinstance(error, TyperException) else str(error)
        text = text.strip().replace("Value error, ", "")
        return text if text.endswith((".", "!", "?")) or not text else text + "."
    if isinstance(error, NotImplementedError) and str(error):
        return f"This is not supported yet: {str(error).rstrip('.')}."
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"The disk is full{_where(error)}: make room and try again."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{_where(error)}."
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return f"There is not enough memory{detail}: close other programs or take a smaller model."
    return None


def _seen(sentence: str) -> str:
    """What is printed of it: the bytes of a file's name that are no text are left to the stream."""
    return "".join(c if "\udc80" <= c <= "\udcff" else printable(c) for c in sentence)


def _where(error: OSError) -> str:
    return f": {error.filename}" if error.filename else ""


def _printable(error: UnicodeError) -> tuple[bytes, int]:
    """What is written for characters that a stream has not: a question mark; for the bytes of a file's name that are no
    text, those bytes, as Python holds them (PEP 383) and the shell expects them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return b"".join(bytes([ord(c) & 0xFF]) if "\udc80" <= c <= "\udcff" else b"?" for c in characters), error.end


def main(arguments: list[str] | None = None) -> None:
    """The `tinyweb` command; never returns."""
    arguments = sys.argv[1:] if arguments is None else arguments
    codecs.register_error("tinyweb", _printable)
    for stream in (sys.stdout, sys.stderr):  # a console that has not all characters is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="tinyweb")
    signal.signal(signal.SIGTERM, _stopped)
    # a script that starts us in the background leaves interrupts ignored; whoever sends one means it
    signal.signal(signal.SIGINT, _stopped)
    sys.unraisablehook = _not_to_be_lost
    if completion.VARIABLE in os.environ:
        completion.prepare()
    command: Callable[..., Any] = typer.main.get_command(app)
    try:
        code = command(arguments, prog_name="tinyweb", standalone_mode=False)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None or "--debug" in arguments:
            raise
        if sentence:  # none where the help was shown instead
            print(f"tinyweb: {_seen(sentence)}", file=sys.stderr)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)
