"""Chat templates: what Hugging Face templates use works, what a hostile one tries ends in an error at once."""

import resource
import time

import pytest

from tinyweb.errors import ModelFormatError
from tinyweb.formats.chat_template import ChatTemplate

MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": " Hi <b> "},
    {"role": "assistant", "content": "Hello"},
]


def render(source: str, **tokens: str) -> str:
    return ChatTemplate(source, "template.jinja", tokens).render(MESSAGES)


@pytest.mark.parametrize(
    ("source", "want"),
    [
        (
            "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] | trim }}{% endfor %}",
            "<s>[system]Be kind.[user]Hi <b>[assistant]Hello",
        ),
        (
            "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\n",
            " Hi <b> \n",
        ),
        (
            "{{ messages[:2] | tojson }}",
            '[{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi <b> "}]',
        ),
        ("{{ {'b': 'é', 'a': 1} | tojson(indent=2) }}", '{\n  "b": "é",\n  "a": 1\n}'),
        ("{% set loop_messages = messages[1:] %}{{ loop_messages | length }}", "2"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "3"),
        ("{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "system"),
        (
            "{% for m in messages %}{% if loop.last %}{{ loop.index }}{{ loop.previtem.role }}{% endif %}{% endfor %}",
            "3user",
        ),
        ("{% generation %}{{ messages[2].content }}{% endgeneration %}", "Hello"),
        ("{% macro say(x) %}<{{ x }}>{% endmacro %}{{ say(messages[2].content) }}", "<Hello>"),
        ("{{ messages[2].content.replace('l', 'L').split('L') | join('-') }}", "He--o"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "system, user, assistant"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{% if tools is none and add_generation_prompt %}yes{% endif %}", "yes"),
        (
            "{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] %}{% endif %}{{ first }}",
            "Be kind.",
        ),
        ("{{ 'a' ~ 1 ~ 'b' + 'c' }}{{ '-' * 3 }}", "a1bc---"),
        ("{{ messages[1].content.strip().upper().startswith('HI') }}", "True"),
        ("{{ missing is defined }}{{ missing }}", "False"),
        ("{{ strftime_now('%Y') | int > 2000 }}", "True"),
        ("{{ range(3) | list }}", "[0, 1, 2]"),
    ],
)
def test_what_templates_use(source: str, want: str) -> None:
    assert render(source, bos_token="<s>") == want


def test_templates_say_why_they_refuse() -> None:
    with pytest.raises(ModelFormatError, match=r"template\.jinja.*roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize("source", ["{% if", "{{ x | nosuchfilter }}", "{% for %}", "{{ 1 +", "{% nosuchtag %}"])
def test_not_jinja(source: str) -> None:
    with pytest.raises(ModelFormatError, match="not valid Jinja2"):
        ChatTemplate(source, "template.jinja", {})


def grow(body: str, start: str = "'aaaaaaaa'") -> str:
    """Sixty times round a loop that makes ns.x larger."""
    return "{% set ns = namespace(x=" + start + ") %}{% for i in range(60) %}" + body + "{% endfor %}{{ ns.x }}"


HOSTILE = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "long range": "{% for a in range(10**9) %}{% endfor %}",
    "repeated text": "{{ 'a' * 10**12 }}",
    "repeated list": "{{ [1] * 10**12 }}",
    "power": "{{ 9**9**9**9 }}",
    "large list": "{{ (range(99999) | list) * 99999 }}",
    "percent format": "{{ '%1000000000d' % 1 }}",
    "str.format": "{{ '{:1000000000}'.format(1) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "center": "{{ 'a'.center(10**12) }}",
    "center filter": "{{ 'a' | center(10**12) }}",
    "center by map": "{{ messages | map('center', 10**10) | list }}",
    "indent": "{{ 'a\nb' | indent(10**10) }}",
    "zfill": "{{ 'a'.zfill(10**12) }}",
    "bytes of a number": "{{ (1).to_bytes(10**10) }}",
    "text as bytes": "{{ 'a'.encode().center(10**10) }}",
    "round": "{{ 1.5 | round(10**8, 'ceil') }}",
    "separators": "{{ range(9999) | list | tojson(separators=(',' * 99999, ':')) }}",
    "many long texts": "{{ range(9999) | map('replace', '1', 'a' * 99999) | list | length }}",
    "end longer than the whole": "{{ 'abc' | truncate(1, true, 'abc', 0) }}",
    "attribute by item": "{{ 'a'['center'](10**12) }}",
    "recursive macro": "{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{{ loop([1]) }}{% endfor %}",
    "doubling by ~": grow("{% set ns.x = ns.x ~ ns.x %}"),
    "doubling by +": grow("{% set ns.x = ns.x + ns.x %}", "['a']"),
    "doubling by join": grow("{% set ns.x = [ns.x, ns.x] | join %}"),
    "doubling by block": grow("{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
    "doubling by list": grow("{% set ns.x = [ns.x, ns.x] %}"),
    "doubling by tuple": grow("{% set ns.x = (ns.x, ns.x) %}"),
    "doubling by dict": grow("{% set ns.x = {'a': ns.x, 'b': ns.x} %}"),
    "doubling by dict()": grow("{% set ns.x = dict(a=ns.x, b=ns.x) %}"),
    "doubling by tojson": grow("{% set ns.x = ns.x | tojson %}", "'\"'"),
    "doubling by replace": grow("{% set ns.x = ns.x.replace('a', 'aaaaaaaa') %}"),
    "doubling by replace filter": grow("{% set ns.x = ns.x | replace('a', 'aaaaaaaa') %}"),
    "text in a loop": "{% set y %}{% for a in range(99999) %}" + "x" * 100_000 + "{% endfor %}{% endset %}",
    "output in a loop": "{% for a in range(99999) %}" + "x" * 100_000 + "{% endfor %}",
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__.os.system('true') }}",
    "attr filter": "{{ (messages | attr('__class__')).__mro__ }}",
    "mutation": "{{ messages.append(1) }}",
    "import": "{% import 'os' as os %}",
    "include": "{% include '/etc/passwd' %}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_hostile(source: str) -> None:
    begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFormatError):
        render(source)
    assert time.process_time() - begin < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10  # KiB


def test_messages_stay_as_they_are() -> None:
    messages = [{"role": "user", "content": "x"}]
    template = ChatTemplate("{% set messages = [] %}{{ messages }}", "t", {})
    assert template.render(messages) == "[]" and messages == [{"role": "user", "content": "x"}]


def test_long_conversations_are_fine() -> None:
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": "word " * 200} for i in range(200)]
    source = (
        "{% set ns = namespace(out='') %}{% for m in messages %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
        "{% set ns.out = m.content | trim %}{{ '<' + m.role + '>' + ns.out + '</s>' }}{% endfor %}"
    )
    assert len(ChatTemplate(source, "t", {}).render(messages)) > 200_000
