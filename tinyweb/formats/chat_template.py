"""Chat templates: Jinja2 text that comes with a model and turns messages into a prompt.

A template is a program somebody else wrote. It runs in Jinja2's immutable sandbox, and under a budget: loops and
calls are counted, and every value is measured where it is put together, so that a hostile template ends in an error
instead of a hanging process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import sync_do_map
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tinyweb.errors import ModelFormatError

MAX_TEMPLATE = 1 << 20  # characters of the template itself
MAX_TEXT = 4 << 20  # units of one value: a character is one, an item of a list is NODE
MAX_WORK = 64 << 20  # units looked at in one rendering
NODE = 16
MAX_STEPS = 200_000  # loop iterations, calls and operators of one rendering
MAX_NUMBER = 1 << 256
MAX_SEPARATORS = 16  # characters between the items of JSON
# methods of text whose result no measure of their arguments bounds; bytes would have them all again
UNBOUNDED = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate", "encode"}
)


class ChatTemplate:
    """A compiled template. Raises ModelFormatError where it is no valid Jinja2."""

    def __init__(self, source: str, where: str, tokens: Mapping[str, str]):
        """`tokens`: the special tokens by their names in the template (bos_token, eos_token, …). `where`: for
        messages.
        """
        self.source, self.where, self.tokens = source, where, dict(tokens)
        if len(source) > MAX_TEMPLATE:
            raise ModelFormatError(
                f"{where}: a chat template of {len(source)} characters is beyond the limit of {MAX_TEMPLATE}; refused"
            )
        self._environment = _Environment()
        try:
            self._template = self._environment.from_string(source)
        except (TemplateError, RecursionError, SyntaxError, MemoryError) as e:
            raise ModelFormatError(
                f"{where}: the chat template is not valid Jinja2 ({(str(e) or type(e).__name__)[:500]})"
            ) from None

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt's text for messages of the form {"role": …, "content": …}.

        Raises ModelFormatError where the template refuses the messages (it says why) or breaks off.
        """
        self._environment.steps = self._environment.work = 0
        try:
            return self._template.render(
                messages=[dict(m) for m in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                **self.tokens,
            )
        except _BREAKS as e:
            raise ModelFormatError(
                f"{self.where}: the chat template cannot render these messages: {(str(e) or type(e).__name__)[:500]}"
            ) from None


# whatever Python or Jinja2 raises inside a template is the template's fault
_BREAKS = (
    TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}` marks the assistant's words for training; for a prompt it means
    nothing.
    """

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox with what Hugging Face templates expect, and with a budget."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        self.steps = self.work = 0
        for name in UNBOUNDED | {"batch", "indent", "pprint", "round", "slice", "urlize", "wordwrap", "xmlattr"}:
            self.filters.pop(name, None)
        self.filters |= {"tojson": _to_json, "replace": _replace, "join": _join}
        # looking at the context keeps Jinja2 from applying these two once and for all when it compiles
        self.filters |= {"stepped": self._stepped, "measured": self._measured, "map": self._map}
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = _now
        self.globals.pop("lipsum", None)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Every loop counts its steps, and all that text and lists are put together from is measured first."""
        tree = super()._parse(source, name, filename)
        for node in list(
            tree.find_all((nodes.For, nodes.Concat, nodes.Output, nodes.Filter, nodes.List, nodes.Tuple, nodes.Pair))
        ):
            if isinstance(node, nodes.For):
                node.iter = _filtered(node.iter, "stepped")
            elif isinstance(node, nodes.Concat | nodes.Output):
                node.nodes = [_filtered(n, "measured") for n in node.nodes]
            elif isinstance(node, nodes.Filter) and node.node is not None:
                node.node = _filtered(node.node, "measured")
            elif isinstance(node, nodes.List) or (isinstance(node, nodes.Tuple) and node.ctx == "load"):
                node.items = [_filtered(n, "measured") for n in node.items]
            elif isinstance(node, nodes.Pair):
                node.value = _filtered(node.value, "measured")
        tree.set_environment(self)
        return tree

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise SecurityError(f"it takes more than {MAX_STEPS} steps")

    @pass_context
    def _stepped(self, _: Context, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._step()
            yield item

    @pass_context
    def _measured(self, _: Context, value: Any) -> Any:
        self.measure(value)
        return value

    @pass_context
    def _map(self, context: Context, items: Iterable[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Jinja2's own, with each of its results measured: they wait side by side in a list."""
        for item in sync_do_map(context, items, *args, **kwargs):
            self.measure(item)
            yield item

    def measure(self, *values: Any) -> None:
        """Charge the size of values, everything inside counted; SecurityError where it is too much."""
        units = 0
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            units += NODE
            if isinstance(value, str):
                units += len(value)
            elif isinstance(value, dict):
                waiting.extend(value.keys())
                waiting.extend(value.values())
            elif isinstance(value, list | tuple | set | frozenset):
                waiting.extend(value)
            elif isinstance(value, int) and not -MAX_NUMBER < value < MAX_NUMBER:
                raise SecurityError("it computes with huge numbers")
            if units > MAX_TEXT or self.work + units > MAX_WORK:
                raise SecurityError(f"it builds a text or a list of more than {MAX_TEXT} characters")
        self.work += units

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, int | float) or (isinstance(obj, str) and attr in UNBOUNDED):  # (1).to_bytes(10**10)
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Jinja2 would allow str.format; a field's width makes it unbounded."""

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        self._step()
        self.measure(*args, *kwargs.values())
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str) and __obj.__name__ in ("replace", "join"):
            self.measure(owner)
            # without what Jinja2 adds for its own functions
            kwargs = {k: v for k, v in kwargs.items() if not k.startswith("_")}
            if __obj.__name__ == "replace":
                return _replace(owner, *args, **kwargs)
            return _join(args[0] if args else (), owner)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self._step()
        self.measure(left, right)
        if operator == "%" and isinstance(left, str):
            raise SecurityError("it formats with %, which chat templates here may not")
        if operator == "*":
            for items, times in ((left, right), (right, left)):
                if (
                    isinstance(items, str | list | tuple)
                    and isinstance(times, int)
                    and len(items) * times > MAX_TEXT // NODE
                ):
                    raise SecurityError(f"it builds a text or a list of more than {MAX_TEXT} characters")
        if operator == "**" and isinstance(right, int) and right > 64:
            raise SecurityError("it computes with huge numbers")
        return super().call_binop(context, operator, left, right)


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _raise(message: str) -> NoReturn:
    raise TemplateError(str(message))


def _now(form: str) -> str:
    # each directive on its own: field widths ("%1000000d") are not understood
    return re.sub(r"%[-_]?[A-Za-z%]", lambda m: datetime.now().strftime(m.group()), str(form)[:200])


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Plain JSON: unlike Jinja2's own filter it does not escape for HTML."""
    spaces = indent if indent is None else max(0, min(int(indent), 16))
    if separators is not None and sum(len(str(s)) for s in separators) > MAX_SEPARATORS:
        raise SecurityError(f"it separates JSON by more than {MAX_SEPARATORS} characters")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=spaces, separators=separators, sort_keys=sort_keys)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    text, old, new = str(text), str(old), str(new)
    if len(text) + (text.count(old) + 1) * len(new) > MAX_TEXT:
        raise SecurityError(f"it builds a text or a list of more than {MAX_TEXT} characters")
    return text.replace(old, new, -1 if count is None else count)


def _join(items: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    words = [str(i[attribute] if attribute is not None else i) for i in items]
    if sum(map(len, words)) + len(words) * len(d) > MAX_TEXT:
        raise SecurityError(f"it builds a text or a list of more than {MAX_TEXT} characters")
    return str(d).join(words)
