"""Print what each page downloads besides its model, gzipped, and fail when that is more than promised.

usage: python tools/page_size.py [SITE]        SITE: an exported site (default: every page of tinyweb/export/site)
"""

import gzip
import sys
from collections.abc import Mapping
from pathlib import Path

from tinyweb.export.site import ASSETS, BUILT, LIBRARY, LICENSES, TASK_LIBRARY

KB = 1000
RUNTIME_BUDGET = 47 * KB
PAGE_BUDGETS = {"chat": 130 * KB, "detect": 110 * KB, "image": 120 * KB, "embed": 130 * KB}
PAGE_BUDGET = 150 * KB  # of an exported site: its loader is on top


def exported_files(site: Path) -> dict[str, Path]:
    """Everything of a site that is neither the model itself nor the texts of licences, which nobody loads unasked;
    the model's generated loader counts as the page's."""
    files = {path.relative_to(site).as_posix(): path for path in sorted(site.rglob("*")) if path.is_file()}
    others = {name: path for name, path in files.items() if not name.startswith("model/") or name == "model/model.js"}
    return {name: path for name, path in others.items() if name != LICENSES}


def built_files(task: str) -> dict[str, Path]:
    """What `copy_page` would put into a site."""
    library = {f"{ASSETS}/{name}": BUILT / "library" / name for name in TASK_LIBRARY[task]}
    return exported_files(BUILT / task) | library


def over_budget(title: str, files: Mapping[str, Path], page_budget: int = PAGE_BUDGET) -> bool:
    """Print the sizes of a page's files; whether they are more than promised."""
    missing = [name for name in ("index.html", *(f"{ASSETS}/{name}" for name in LIBRARY)) if name not in files]
    missing += [name for name, path in files.items() if not path.is_file()]
    if missing:
        sys.exit(f"tinyweb: {title} has no {missing[0]}: run `make setup` first.")
    zipped = {name: len(gzip.compress(path.read_bytes(), 9)) for name, path in files.items()}
    print(f"{title}:")
    for name, size in zipped.items():
        print(f"  {size / KB:7.1f} KB  {name}")
    over = False
    runtime = sum(zipped[f"{ASSETS}/{name}"] for name in LIBRARY)
    for what, size, budget in (
        ("runtime library", runtime, RUNTIME_BUDGET),
        ("whole page", sum(zipped.values()), page_budget),
    ):
        print(f"  {what}: {size / KB:.1f} KB gzipped of {budget / KB:.0f} KB")
        over |= size > budget
    return over


def main() -> None:
    if len(sys.argv) > 1:
        pages = {sys.argv[1]: exported_files(Path(sys.argv[1]))}
    else:
        pages = {task: built_files(task) for task in TASK_LIBRARY if (BUILT / task).is_dir()}
        if not pages:
            sys.exit("tinyweb: no page has been built: run `make setup` first.")
    if any([over_budget(title, files, PAGE_BUDGETS.get(title, PAGE_BUDGET)) for title, files in pages.items()]):
        sys.exit("tinyweb: a page is larger than promised.")


if __name__ == "__main__":
    main()
