"""Print what each page downloads besides its model, gzipped, and fail when that is more than promised.

usage: python tools/page_size.py [SITE]        SITE: an exported site (default: every page of tinyweb/export/site)
"""

import gzip
import sys
from collections.abc import Mapping
from pathlib import Path

from tinyweb.export.site import ASSETS, BUILT, LICENSES, TASK_LIBRARY

KB = 1000
TO_SPARE = 0.05  # of a budget stays free, so that a small change does not break it
RUNTIME_BUDGETS = {"function": 27 * KB, "detect": 30 * KB, "image": 40 * KB, "embed": 50 * KB, "chat": 56 * KB}
"""Of the library, what a page of a task loads."""
PAGE_BUDGETS = {
    "chat": 140 * KB,
    "completion": 104 * KB,
    "detect": 110 * KB,
    "image": 120 * KB,
    "embed": 130 * KB,
    "function": 120 * KB,
}
"""Of a page with its library; the generated loader of an exported site is on top."""
PAGE_BUDGET = 150 * KB  # of an exported site


def exported_files(site: Path) -> dict[str, Path]:
    """Everything of a site that is neither the model itself nor licences or types, which nobody loads unasked; the
    model's generated loader counts as the page's."""
    files = {path.relative_to(site).as_posix(): path for path in sorted(site.rglob("*")) if path.is_file()}
    others = {name: path for name, path in files.items() if not name.startswith("model/") or name == "model/model.js"}
    return {name: path for name, path in others.items() if name != LICENSES and not name.endswith(".d.ts")}


def built_files(task: str) -> dict[str, Path]:
    """What `copy_page` would put into a site."""
    library = {f"{ASSETS}/{name}": BUILT / "library" / name for name in TASK_LIBRARY[task]}
    return exported_files(BUILT / task) | library


def over_budget(title: str, files: Mapping[str, Path], budget: int) -> bool:
    """Print the sizes of files; whether they are more than promised."""
    if missing := [name for name, path in files.items() if not path.is_file()]:
        sys.exit(f"tinyweb: {title} has no {missing[0]}: run `make setup` first.")
    zipped = {name: len(gzip.compress(path.read_bytes(), 9)) for name, path in files.items()}
    print(f"{title}:")
    for name, size in zipped.items():
        print(f"  {size / KB:7.1f} KB  {name}")
    total = sum(zipped.values())
    print(f"  all: {total / KB:.1f} KB gzipped of {budget / KB:.0f} KB, of which {TO_SPARE:.0%} are to stay free")
    return total > budget * (1 - TO_SPARE)


def main() -> None:
    if len(sys.argv) > 1:
        site = Path(sys.argv[1])
        over = [over_budget(sys.argv[1], exported_files(site), PAGE_BUDGET)]
    else:
        libraries = {task: {name: BUILT / "library" / name for name in names} for task, names in TASK_LIBRARY.items()}
        over = [over_budget(f"library, {task}", libraries[task], budget) for task, budget in RUNTIME_BUDGETS.items()]
        over += [over_budget(f"page, {task}", built_files(task), budget) for task, budget in PAGE_BUDGETS.items()]
    if any(over):
        sys.exit("tinyweb: a page is larger than promised.")


if __name__ == "__main__":
    main()
