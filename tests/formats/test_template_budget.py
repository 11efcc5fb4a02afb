"""What a chat template is charged for, exactly; and the ends of what it may ask for."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jinja2.exceptions import SecurityError

from tinyweb.errors import ModelFormatError
from tinyweb.formats import chat_template
from tinyweb.formats.chat_template import ChatTemplate

MESSAGES = [{"role": "user", "content": "abc"}]
TEXT = 4 << 20  # units of one value
LIST = TEXT // 16  # items of a repeated one


def render(source: str, **tokens: Any) -> str:
    return ChatTemplate(source, "t", tokens).render(MESSAGES)


def refused(source: str, why: str, **tokens: Any) -> None:
    with pytest.raises(ModelFormatError, match=re.escape(f"t: the chat template cannot render these messages: {why}")):
        render(source, **tokens)


LONG = "it builds a text or a list of more than 4194304 characters"
HUGE = "it computes with huge numbers"

STEPS = {
    "{{ 1 }}": 0,
    "{{ 1 + 2 }}": 1,
    "{{ 1 + 2 * 3 }}": 2,
    "{{ 7 % 4 }}{{ 7 / 2 }}{{ 7 // 2 }}{{ 2 ** 3 }}{{ 7 - 1 }}": 5,
    "{{ range(5) | list }}": 1,
    "{% for i in (1, 2, 3) %}{% endfor %}": 3,
    "{% for i in range(4) %}{{ i + 1 }}{% endfor %}": 9,
    "{% for i in (1, 2) %}{% for j in (1, 2, 3) %}{% endfor %}{% endfor %}": 8,
    "{{ 'a'.upper() }}{{ 'a'.replace('a', 'b') }}": 2,
    "{% macro f() %}{% endmacro %}{{ f() }}{{ f() }}": 2,
}


@pytest.mark.parametrize(("source", "steps"), STEPS.items())
def test_steps(source: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each round of a loop, call and operator; each rendering begins anew."""
    monkeypatch.setattr(chat_template, "MAX_STEPS", steps)
    template = ChatTemplate(source, "t", {})
    assert template.render(MESSAGES) == template.render(MESSAGES)
    if steps:
        monkeypatch.setattr(chat_template, "MAX_STEPS", steps - 1)
        refused(source, f"it takes more than {steps - 1} steps")


def test_as_many_steps_as_allowed() -> None:
    loop = "{% for i in range(99999) %}{% endfor %}"
    assert render(loop + loop) == ""
    refused(loop + loop + "{{ 1 + 1 }}", "it takes more than 200000 steps")


N = 16  # units of a value beside its characters
WORK = {
    "ab": N + 2,
    "{{ 1 }}": N,
    "{{ none }}": N,
    "{{ v.text }}": N + 3,
    "{{ v.text }}{{ v.text }}": 2 * (N + 3),
    "a{{ v.text }}b": 2 * (N + 1) + N + 3,
    "{{ v.list }}": N + N + (N + 2),  # [1, "bc"]
    "{{ v.dict }}": N + (N + 1) + N + (N + 1),  # {"a": ("b",)}: key, tuple, its item
    "{{ v.text ~ v.text }}": 2 * (N + 3) + N + 6,
    "{% set x = v.list %}": 0,
    "{% set x = [v.text, 5] %}": N + 3 + N,
    "{% set x = (v.text, 5) %}": N + 3 + N,
    "{% set x = {'k': v.text} %}": N + 3,
    "{% set x, y = v.list %}": 0,
    "{% set x = v.text | upper %}": N + 3,
    "{% set x = v.text + v.text %}": 2 * (N + 3),
    "{% set x = 5 * v.one %}": 2 * N,
    "{% set x = v.text.upper() %}": 0,
    "{% set x = v.text.split(v.text) %}": N + 3,
    "{% set x = v.text.split(sep=v.text) %}": N + 3,
    "{% set x = v.text.replace(v.text, v.text) %}": 3 * (N + 3),
    "{% set x = v.text.join(v.pair) %}": N + 2 * (N + 1) + N + 3,
    "{% set x = v.pair | map('upper') | list %}": (N + 2 * (N + 1)) + 2 * (N + 1) + N,
}
VALUES: Any = {"text": "xyz", "list": [1, "bc"], "dict": {"a": ("b",)}, "one": 1, "pair": ["p", "q"]}


@pytest.mark.parametrize(("source", "units"), WORK.items())
def test_work(source: str, units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is sixteen units and its characters, everything in it counts; charged where values are put together."""
    monkeypatch.setattr(chat_template, "MAX_WORK", units)
    template = ChatTemplate(source, "t", {"v": VALUES})
    assert template.render(MESSAGES) == template.render(MESSAGES)
    if units:
        monkeypatch.setattr(chat_template, "MAX_WORK", units - 1)
        refused(source, LONG, v=VALUES)


def test_the_longest_value_and_the_most_work() -> None:
    longest = "x" * (TEXT - N)
    assert len(render("{{ t | length }}", t=longest)) == 7
    refused("{{ t | length }}", LONG, t=longest + "x")
    whole = "{% set a = [t, t] %}" * 8
    assert render(whole, t=longest) == ""
    refused(whole + "{{ 1 }}", LONG, t=longest)
    assert render("{% set a = [t] %}", t=[set(), frozenset({2}), (1,)] + [0] * (LIST - 6)) == ""
    refused("{% set a = [t] %}", LONG, t=[set(), frozenset({2}), (1,)] + [0] * (LIST - 5))


@pytest.mark.parametrize("items", ["'a'", "[1]", "(1,)"])
def test_repetition(items: str) -> None:
    for repeated in (f"{items} * n", f"n * {items}"):
        assert render(f"{{% set x = {repeated} %}}", n=LIST) == ""
        refused(f"{{% set x = {repeated} %}}", LONG, n=LIST + 1)
    assert render(f"{{{{ ({items} * 3) | length }}}}{{{{ ({items} + {items}) | length }}}}{{{{ 3 * 4 }}}}") == "3212"
    assert render("{% set x = ['a', 'b'] * n %}", n=LIST // 2) == ""
    refused("{% set x = ['a', 'b'] * n %}", LONG, n=LIST // 2 + 1)
    assert render("{{ n * 5 }}", n=LIST) == str(LIST * 5)  # numbers grow slowly


def test_numbers() -> None:
    largest = (1 << 256) - 1
    for n in (largest, -largest):
        assert render("{{ n }}", n=n) == str(n)
    for n in (largest + 1, -largest - 1):
        refused("{{ n }}", HUGE, n=n)
    assert (
        render("{{ 2 ** 64 }} {{ 2 ** 0.5 > 1 }} {{ 70 + 65 }} {{ 100 * 65 }}") == "18446744073709551616 True 135 6500"
    )
    refused("{{ 2 ** 65 }}", HUGE)
    refused("{{ 1 ** 65 }}", HUGE)


def test_formatting() -> None:
    assert render("{{ 17 % 5 }}") == "2"
    refused("{{ '%d' % 1 }}", "it formats with %, which chat templates here may not")
    for method in ("center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate", "encode"):
        refused(f"{{{{ 'a'.{method}(1) }}}}", "")
    for number in ("1", "1.5", "true"):
        refused(f"{{{{ ({number}).conjugate() }}}}", "")
    assert render("{{ v.format }}", v={"format": 3}) == "3"
    for name in ("batch", "center", "format", "indent", "pprint", "round", "slice", "urlize", "wordwrap", "xmlattr"):
        with pytest.raises(ModelFormatError, match=f"not valid Jinja2 .No filter named '{name}'"):
            ChatTemplate(f"{{{{ 'a' | {name} }}}}", "t", {})
    refused("{{ lipsum() }}", "'lipsum' is undefined")


def test_methods_of_text() -> None:
    assert render("{{ 'banana'.replace('a', 'o') }} {{ 'banana'.replace('a', 'o', 2) }}") == "bonono bonona"
    assert render("{{ '-'.join(['a', 'b']) }}{{ '-'.join('ab') }}{{ 'x'.split('y') }}") == "a-ba-b['x']"
    assert (
        render("{{ 'banana' | replace('a', 'o', 1) }}{{ 'aa' | replace('a', 'b') }}{{ 5 | replace(5, 6) }}")
        == "bonanabb6"
    )
    assert render("{{ 'aa' | replace('a', 'b', none) }}") == "bb"
    assert render("{{ [1, 2] | join }}{{ [1, 2] | join('+') }}{{ messages | join(',', 'role') }}") == "121+2user"
    assert render("{{ messages | join(attribute='content') }}{{ {'replace': 1}.get('replace') }}") == "abc1"


def test_results_of_replace_and_join() -> None:
    """As long as one value may be; of what is replaced an upper bound counts, the text with one more replacement."""
    half, quarter = "x" * (TEXT // 2), "y" * (TEXT // 4)
    assert render("{{ t.replace('a', q) | length }}", t="a" + "b" * (TEXT // 2 - 17), q=quarter) == str(
        TEXT // 4 * 3 - 17
    )
    assert chat_template._replace(half, "", "") == half  # nothing for nothing, half a million times
    assert len(chat_template._replace("a", "a", half[:-1])) == TEXT // 2 - 1
    for text, new in (("a", half), ("aa", "x" * (TEXT // 3 + 1)), (half, "x" * (TEXT // 2 + 1))):
        with pytest.raises(SecurityError, match=LONG):
            chat_template._replace(text, "a", new)
    assert len(chat_template._replace(half, "a", half)) == TEXT // 2
    assert len(chat_template._replace(half[:-1] + "a", "a", "x" * (TEXT // 4))) == TEXT // 4 * 3 - 1
    assert len(chat_template._join([half, half])) == TEXT
    assert len(chat_template._join([half, half[:-2]], "z")) == TEXT - 1
    for items, between in (([half, half, "x"], ""), ([half, half[:-1]], "z"), ([half], half + "x")):
        with pytest.raises(SecurityError, match=LONG):
            chat_template._join(items, between)


def test_json() -> None:
    assert render("{{ v | tojson }}", v={"b": [1, None], "a": "é<"}) == '{"b": [1, null], "a": "é<"}'
    assert render("{{ 'é' | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}") == (
        '"\\u00e9"{"a": 2, "b": 1}'
    )
    for given, spaces in ((0, 0), (1, 1), (16, 16), (17, 16), (999, 16), (-1, 0)):
        assert render(f"{{{{ [1] | tojson(indent={given}) }}}}") == f"[\n{' ' * spaces}1\n]"
    assert render("{{ [1, 2] | tojson(separators=(';' * 8, ':' * 8)) }}") == "[1;;;;;;;;2]"
    refused("{{ [1, 2] | tojson(separators=(';' * 8, ':' * 9)) }}", "it separates JSON by more than 16 characters")


def test_dates() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d %Q?.*", render("{{ strftime_now('%Y-%m-%d %%') }}"))
    assert re.fullmatch(r"\d{1,2}", render("{{ strftime_now('%-d') }}"))
    assert render("{{ strftime_now('%1000d') }}") == "%1000d"
    assert render("{{ strftime_now('x' * 300) }}") == "x" * 200
    assert len(render("{{ strftime_now('%Y' * 150) }}")) == 400
    assert render("{{ strftime_now('abcdef') }}") == "abcdef"


def test_blocks_and_lines() -> None:
    assert render("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"
    assert render("{% generation %}a{{ 1 }}{% endgeneration %}b") == "a1b"
    with pytest.raises(ModelFormatError, match="not valid Jinja2"):
        ChatTemplate("{% generation %}a", "t", {})
    template = ChatTemplate("{{ add_generation_prompt }}{{ tools }}", "t", {})
    assert template.render([]) == "TrueNone" and template.render([], False) == "FalseNone"
    refused("{{ raise_exception(5) }}", "5")
    with pytest.raises(ModelFormatError, match=r"^t: the chat template cannot render these messages: "):
        render("{{ 1 / 0 }}")
