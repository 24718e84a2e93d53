"""The words of the text form: which names need quotes, how text is cut into tokens, constants whose data was left out."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from sardonyx.dtypes import DType
from sardonyx.errors import InvalidGraph
from sardonyx.ir.tensor import Tensor
from sardonyx.records import dataclass

RESERVED: Final = frozenset((
    "_", "attribute", "base64", "const", "doc", "false", "floordiv", "function", "graph", "inf", "map", "max", "metadata", "min",
    "mod", "model", "name", "nan", "none", "opset", "optional", "priority", "seq", "sparse", "tensor", "true", "type",
))  # fmt: skip
_BARE: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.]*")
_BARE_SYMBOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|\?[A-Za-z0-9_]+")
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
    |(?P<name>[A-Za-z_/][A-Za-z0-9_/.]*)
    |(?P<anonymous>\?[A-Za-z0-9_]+)
    |(?P<number>\d+(?:\.\d*)?(?:e[+-]?\d+)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<elided><[^<>\n]*>)
    |(?P<mark>->|::|\.\.\.|[][(){}:=,@*+-])""",
    re.VERBOSE,
)


def quoted(text: str) -> str:
    """A string in quotes, with escapes for all that is not ASCII."""
    return json.dumps(text)


def name_text(name: str) -> str:
    """A name as the text form writes it: bare if that reads back, else in quotes."""
    return name if _BARE.fullmatch(name) and name not in RESERVED else quoted(name)


def symbol_text(name: str) -> str:
    """The name of a dimension as the text form writes it."""
    return name if _BARE_SYMBOL.fullmatch(name) and name not in RESERVED else quoted(name)


@dataclass(frozen=True, slots=True)
class Token:
    """A word and where it stands; kind is name, anonymous, number, string, elided, mark or end."""

    kind: str
    text: str
    position: int


def tokens_of(text: str) -> list[Token]:
    """All tokens, with one of kind `end` after them."""
    found = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise text_error(text, position, f"{text[position]!r} starts nothing that can stand here")
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, match.group(), position))
        position = match.end()
    found.append(Token("end", "", len(text)))
    return found


def text_error(text: str, position: int, problem: str) -> InvalidGraph:
    """An error that says where in the text it is."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return InvalidGraph(f"line {line}, column {column}: {problem}")


class ElidedTensor(Tensor):
    """A constant of a text that shows a summary instead of the data; asking for the data fails."""

    __slots__ = ("summary",)

    def __init__(self, dtype: DType, shape: tuple[int, ...], summary: str, name: str = "") -> None:
        def load() -> Any:
            raise ValueError(f"the text form left out the data of {name or 'a constant'!r} {summary}")

        super().__init__(dtype, shape, load, name=name)
        self.summary = summary
