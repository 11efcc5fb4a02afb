"""Every fault of docs/pages.md names a test that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(
    r"^\| (?P<fault>[^|]+) \| (?P<promise>[^|]+) \| `(?P<file>[^`:]+)(::(?P<test>\w+))?` \|$", re.MULTILINE
)


def test_faults_have_tests() -> None:
    section = (ROOT / "docs/pages.md").read_text(encoding="utf-8").partition("## Faults\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    found = list(ROW.finditer(section))
    assert len(found) == len(rows) >= 40
    assert len({row["fault"] for row in found}) == len(rows)
    for row in found:
        source = (ROOT / row["file"]).read_text(encoding="utf-8")
        if row["test"]:
            assert f"\ndef {row['test']}(" in source, row["fault"]
        else:
            assert row["file"].endswith(".test.ts"), row["fault"]
