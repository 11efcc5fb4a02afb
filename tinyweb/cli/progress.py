"""Progress on standard error: bars, or lines where that is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from tinyweb.export.compile import Progress as Report

DOWNLOADING = "downloading"  # the step whose amounts are bytes


class Amount(ProgressColumn):
    """Steps done, and the time left; of a download the bytes and their rate, too."""

    def __init__(self) -> None:
        super().__init__()
        left = TimeRemainingColumn(compact=True, elapsed_when_finished=False)
        self.bytes = (DownloadColumn(), TransferSpeedColumn(), left)
        self.steps = (MofNCompleteColumn(), left)

    def render(self, task: Task) -> Text:
        columns = self.bytes if task.description == DOWNLOADING else self.steps
        # nothing is known of the time of a single step
        shown = columns[:-1] if task.finished or task.total == 1 else columns
        return Text("  ").join(column.render(task) for column in shown)


@contextmanager
def lines(console: Console) -> Iterator[Report]:
    """A line for each kind of step."""
    said: set[str] = set()

    def say(step: str, done: int, total: int) -> None:
        if step not in said:
            said.add(step)
            console.print(f"tinyweb: {step}")

    yield say


@contextmanager
def bars(console: Console) -> Iterator[Report]:
    """A bar for each kind of step."""
    with Progress(
        TextColumn("{task.description}"), BarColumn(), Amount(), TimeElapsedColumn(), console=console
    ) as shown:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = shown.add_task(step, total=total)
            shown.update(tasks[step], completed=done, total=total)

        yield show
