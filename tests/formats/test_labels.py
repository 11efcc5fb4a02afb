"""Names of classes in files of models."""

from __future__ import annotations

from typing import Any

import pytest

from tinyweb.formats.labels import MAX_LABEL, labels_of, literal


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('["sun", "moon"]', ["sun", "moon"]),
        ("{0: 'sun', 1: 'moon'}", ["sun", "moon"]),
        ('{"1": "moon", "0": "sun"}', ["sun", "moon"]),
        ('["\\ud800", "b"]', ["?", "b"]),
        (f'["{"x" * 200}"]', ["x" * MAX_LABEL]),
        ('{"1": "moon"}', None),
        ("{0: 'sun', '0': 'moon'}", None),
        (f'{{"{"9" * 5000}": "sun"}}', None),
        ('{"²": "sun"}', None),
        ("[]", None),
        ("[1, 2]", None),
        ("[" * 100_000, None),
        ("-" * 100_000 + "1", None),
        (None, None),
    ],
    ids=range(14),
)
def test_labels(text: str | None, labels: Any) -> None:
    assert labels_of(literal(text)) == labels
