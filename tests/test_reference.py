"""The API reference says what the docstrings say, and every public name has one."""

import reference  # tools/reference.py


def test_pages_are_up_to_date() -> None:
    stale = [name for name, text in reference.pages().items() if (reference.REFERENCE / name).read_text() != text]
    assert not stale, f"docs/reference/{', '.join(stale)}: run `make docs`"
