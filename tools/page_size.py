"""Print what a page downloads besides its model, gzipped, and fail when that is more than promised.

usage: python tools/page_size.py [SITE]        SITE: the built pages (default tinyweb/export/site) or an exported site
"""

import gzip
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KB = 1000
RUNTIME_BUDGET = 44 * KB
PAGE_BUDGET = 150 * KB
RUNTIME = ("assets/tinyweb.js", "assets/tinyweb-worker.js")


def page_files(site: Path) -> list[Path]:
    """Everything of a site that is not the model itself; the model's generated loader counts as the page's."""
    files = [path for path in sorted(site.rglob("*")) if path.is_file()]
    return [path for path in files if path.parts[len(site.parts)] != "model" or path.name == "model.js"]


def main() -> None:
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tinyweb" / "export" / "site"
    missing = [name for name in ("index.html", *RUNTIME) if not (site / name).is_file()]
    if missing:
        sys.exit(f"tinyweb: {site / missing[0]} is missing: run `make setup` first.")
    zipped = {path.relative_to(site).as_posix(): len(gzip.compress(path.read_bytes(), 9)) for path in page_files(site)}
    for name, size in zipped.items():
        print(f"  {size / KB:7.1f} KB  {name}")
    over = False
    sums = {
        "runtime library": (sum(zipped[name] for name in RUNTIME), RUNTIME_BUDGET),
        "whole page": (sum(zipped.values()), PAGE_BUDGET),
    }
    for what, (size, budget) in sums.items():
        print(f"{what}: {size / KB:.1f} KB gzipped of {budget / KB:.0f} KB")
        over |= size > budget
    if over:
        sys.exit("tinyweb: the page is larger than promised.")


if __name__ == "__main__":
    main()
