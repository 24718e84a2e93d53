"""Our `dataclass` makes the classes that Python's does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sardonyx
from sardonyx import records

PARAMETERS: list[dict[str, Any]] = [
    {"frozen": frozen, "slots": slots, "kw_only": kw_only, "eq": eq}
    for frozen in (False, True)
    for slots in (False, True)
    for kw_only in (False, True)
    for eq in (False, True)
]


def classes(decorate: Callable[..., Any], parameters: dict[str, Any]) -> tuple[Any, Any, Any]:
    class Base:
        """A base."""

        kind: ClassVar[str] = "base"
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    base = decorate(**parameters)(Base)

    class Derived(base):  # type: ignore[misc, valid-type]
        """One more field."""

        d: float = 0.5

    derived = decorate(**parameters)(Derived)

    class Own:
        """Has methods of its own."""

        a: Any

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    return base, derived, decorate(**parameters)(Own)


def outcome(action: Callable[[], Any]) -> Any:
    """What is returned, or the type of what is raised."""
    try:
        return action()
    except Exception as error:
        return type(error), str(error).replace("test_records.", "")


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_classes_are_those_of_python(parameters: dict[str, Any]) -> None:
    def seen(decorate: Callable[..., Any]) -> list[Any]:
        base, derived, own = classes(decorate, parameters)
        one, other, more = base(a=1), base(a=1, b="x", c=[1]), derived(a=1, d=2.5)
        return [
            repr(one), repr(more), repr(own(a=3)),
            outcome(lambda: repr(base(1, "x"))), outcome(lambda: derived(1, "b", [], 3.0).d), outcome(base),
            outcome(lambda: base(a=-1)), outcome(lambda: base(a=1, z=2)),
            one == base(a=1, c=[5]), one == other, one == derived(a=1), one == 1, one != other, own(a=1) == own(a=2),
            outcome(lambda: hash(base(a=1, c=[5])) == hash((1, "b")) if parameters["frozen"] and parameters["eq"] else 0),
            outcome(lambda: hash(derived(a=1)) == hash((1, "b", 0.5)) if parameters["eq"] else 0), hash(own(a=1)),
            outcome(lambda: setattr(one, "a", 5)), outcome(lambda: delattr(other, "b")),
            outcome(lambda: setattr(more, "z", 5))[0] if parameters["frozen"] and not parameters["slots"] else 0,
            [each.name for each in fields(derived)], replace(more, a=9).a, more.c, base(a=1).c is base(a=1).c,
            base.__match_args__, base.__doc__, hasattr(one, "__dict__"), base.kind,
            copy.copy(more).d, copy.deepcopy(more).b, dataclasses.asdict(more), dataclasses.is_dataclass(own),
        ]  # fmt: skip

    ours, theirs = seen(records.dataclass), seen(dataclasses.dataclass)
    assert ours == theirs


@records.dataclass(frozen=True, slots=True)
class Pickled:
    """Frozen, with slots."""

    a: int
    b: tuple[int, ...] = ()


def test_frozen_classes_with_slots_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pickled(1, (2, 3)))) == Pickled(1, (2, 3))


def test_a_number_that_is_not_equal_to_itself_is_as_in_python() -> None:
    @records.dataclass(frozen=True)
    class One:
        a: float

    nan = float("nan")
    assert One(nan) == One(nan)


def test_a_class_that_refers_to_itself_can_be_printed() -> None:
    @records.dataclass
    class Node:
        next: Any = None

    node = Node()
    node.next = node
    assert "..." in repr(node)


def test_frozen_and_other_classes_do_not_inherit_from_each_other() -> None:
    @records.dataclass
    class Open:
        a: int = 0

    class Closed(Open):
        b: int = 0

    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(frozen=True)(Closed)


def test_a_plain_class_below_a_frozen_one_may_have_more() -> None:
    class More(Pickled):
        pass

    more = More(1)
    more.extra = 3  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        more.a = 2  # type: ignore[misc]


def test_rarer_parameters_are_left_to_python() -> None:
    @records.dataclass(order=True, frozen=True)
    class Ordered:
        a: int

    assert Ordered(1) < Ordered(2)

    with pytest.raises(TypeError, match="`dataclasses"):

        @records.dataclass
        class Unusual:
            a: int
            b: dataclasses.InitVar[int] = 0


def test_all_of_ours_are_made_this_way() -> None:
    source = Path(sardonyx.__file__).parent
    found = re.compile(r"^ *from dataclasses import .*\bdataclass\b", re.MULTILINE)
    others = [str(path) for path in source.rglob("*.py") if path.name != "records.py" and found.search(path.read_text("utf-8"))]
    assert others == [], "import dataclass from sardonyx.records: it takes a third of the time"


def test_an_initializer_is_made_when_it_is_asked_for_and_has_its_signature() -> None:
    @records.dataclass
    class Point:
        """Two numbers."""

        x: int
        y: int = 2

    assert not inspect.isfunction(Point.__dict__["__init__"])
    assert str(inspect.signature(Point)) == "(x, y=2)"
    assert Point(1) == Point(1, 2)
    assert inspect.isfunction(Point.__dict__["__init__"])
    assert Point.__init__.__qualname__.endswith("Point.__init__")


def test_an_initializer_that_somebody_replaces_stays() -> None:
    @records.dataclass
    class Point:
        """A number."""

        x: int

    placeholder = Point.__dict__["__init__"]
    with_another = Point

    def replaced(self: Any, x: int) -> None:
        self.x = -x

    with_another.__init__ = replaced  # type: ignore[method-assign]
    placeholder.__get__(None, Point)
    assert Point(3).x == -3
