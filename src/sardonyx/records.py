"""`dataclass`, made in a tenth of the time.

Python's own compiles up to six methods of every class from text, each for itself, when its module is imported, and looks long at
every annotation: for the classes that compiling a small model needs, that is a quarter of the whole time. Here one text is
compiled, that of `__init__`, when it is first asked for; the other methods are closures. What the classes do is the same: same
fields, equality, hashes and errors; `dataclasses.fields` and `replace` work on them. Classes with rarer parameters (`order`,
`unsafe_hash`) are left to Python's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for those who import it from here
else:
    import dataclasses
    from dataclasses import MISSING, Field, FrozenInstanceError
    from functools import partial
    from operator import attrgetter
    from reprlib import recursive_repr
    from types import MemberDescriptorType

    _OURS = frozenset(("eq", "frozen", "kw_only", "slots"))

    @dataclasses.dataclass(init=False, repr=False, eq=False)
    class _Plain:
        """What Python notes of a class and of its fields beside their names."""

        field: int

    _PARAMETERS = _Plain.__dataclass_params__
    _ORDINARY = _Plain.__dataclass_fields__["field"]._field_type

    def dataclass(cls=None, /, **parameters):
        """As `dataclasses.dataclass`."""

        def decorate(cls):
            if not _OURS.issuperset(parameters):
                return dataclasses.dataclass(cls, **parameters)
            return _decorated(cls, **parameters)

        return decorate if cls is None else decorate(cls)

    def _decorated(cls, *, eq=True, frozen=False, slots=False, kw_only=False):
        explicit_hash = "__hash__" in cls.__dict__ and not (cls.__dict__["__hash__"] is None and "__eq__" in cls.__dict__)
        bases = [base for base in cls.__mro__[1:] if "__dataclass_fields__" in base.__dict__]
        if any(base.__dict__.get("__frozen_record__", base.__dataclass_params__.frozen) != frozen for base in bases):
            raise TypeError(f"{cls.__name__}: a frozen dataclass cannot inherit from one that is not, nor the other way round")
        by_name = {name: each for base in reversed(bases) for name, each in base.__dataclass_fields__.items()}
        by_name.update(_own_fields(cls, kw_only))
        fields = [each for each in by_name.values() if each._field_type is _ORDINARY]
        cls.__dataclass_fields__, cls.__dataclass_params__ = by_name, _PARAMETERS
        if "__match_args__" not in cls.__dict__:
            cls.__match_args__ = tuple(each.name for each in fields if each.init and not each.kw_only)
        plain = _with_slots(cls, fields) if slots else cls
        own = plain.__dict__
        made = {"__frozen_record__": frozen}
        if "__init__" not in own:
            made["__init__"] = _Initializer(plain, partial(_initializer, plain, fields, frozen, slots))
        if "__repr__" not in own:
            made["__repr__"] = _represent
        if eq:
            if "__eq__" not in own:
                made["__eq__"] = _equality(_values([field.name for field in fields if field.compare]))
            if not explicit_hash:
                hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
                made["__hash__"] = _hash(_values(hashed)) if frozen else None
        if frozen:
            made["__setattr__"], made["__delattr__"] = _frozen(plain, frozenset(field.name for field in fields))
            if slots and "__getstate__" not in own:
                made["__getstate__"], made["__setstate__"] = _get_state, _set_state
        for name, value in made.items():
            if hasattr(value, "__qualname__") and value is not _represent:
                value.__qualname__ = f"{plain.__qualname__}.{name}"
                value.__name__ = name
            setattr(plain, name, value)
        return plain

    def _own_fields(cls, kw_only):
        """The fields that a class has beside those of its bases. Annotations are texts, as all modules of ours have them."""
        found = {}
        for name, annotation in cls.__annotations__.items():
            if annotation.startswith("ClassVar"):
                continue
            default = getattr(cls, name, MISSING)
            if isinstance(default, Field):
                each = default
                if each.default is MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, each.default)
            else:  # what describes a base's slot is no default
                each = dataclasses.field(default=MISSING if isinstance(default, MemberDescriptorType) else default)
            if "InitVar" in annotation or "KW_ONLY" in annotation or (not each.init and each.default is not MISSING):
                raise TypeError(f"{cls.__name__} has fields that only `dataclasses.dataclass` knows: use that")
            if each.default.__class__.__hash__ is None:
                raise ValueError(f"{cls.__name__}.{name} would be shared by all instances: use a default_factory")
            each.name, each.type, each._field_type = name, annotation, _ORDINARY
            if each.kw_only is MISSING:
                each.kw_only = kw_only
            found[name] = each
        return found

    def _with_slots(cls, fields):
        """The class again, with slots instead of a dictionary."""
        inherited = {name for base in cls.__mro__[1:-1] for name in _slots_of(base)}
        content = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
        for each in fields:
            content.pop(each.name, None)  # a default, which is in the place of the slot
        content["__slots__"] = tuple(each.name for each in fields if each.name not in inherited)
        again = type(cls)(cls.__name__, cls.__bases__, content)
        again.__qualname__ = cls.__qualname__
        return again

    def _slots_of(cls):
        slots = cls.__dict__.get("__slots__", ())
        return (slots,) if isinstance(slots, str) else slots

    class _Initializer:
        """Stands for `__init__` until somebody asks for it: most classes of a compiler are not used by most models."""

        def __init__(self, cls, make):
            self._cls = cls
            self._make = make

        def __get__(self, instance, owner):
            function = self._make()
            function.__qualname__ = f"{self._cls.__qualname__}.__init__"
            if self._cls.__dict__.get("__init__") is self:  # nobody was faster, or has put another one there
                self._cls.__init__ = function
            return function if instance is None else function.__get__(instance, owner)

    def _initializer(cls, fields, frozen, slots):
        """The only method whose text depends on the fields: calling it has to be quick."""
        scope = {"MISSING": MISSING, "set_": object.__setattr__}
        given = {False: [], True: []}  # by position, by keyword
        lines = []
        for field in fields:
            name, value = field.name, field.name
            if field.default_factory is not MISSING:
                scope[f"make_{name}"] = field.default_factory
                default, value = "=MISSING", f"make_{name}() if {name} is MISSING else {name}"
            elif field.default is not MISSING:
                scope[f"default_{name}"] = field.default
                default = f"=default_{name}"
            else:
                default = ""
            if field.init:
                given[field.kw_only].append(name + default)
            elif field.default_factory is not MISSING:
                value = f"make_{name}()"
            else:
                continue
            if not frozen:
                lines.append(f"self.{name} = {value}")
            elif slots:  # what a frozen class's fields are set by: faster than object.__setattr__, which looks for it
                scope[f"set_{name}"] = getattr(cls, name).__set__
                lines.append(f"set_{name}(self, {value})")
            else:
                lines.append(f"set_(self, {name!r}, {value})")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        arguments = ["self", *given[False], *(["*", *given[True]] if given[True] else [])]
        text = f"def __init__({', '.join(arguments)}):\n " + "\n ".join(lines or ["pass"])
        exec(text, scope)
        return scope["__init__"]

    def _values(names):
        """A function that gives the values of fields as a tuple."""
        if len(names) > 1:
            return attrgetter(*names)
        if not names:
            return lambda self: ()
        value = attrgetter(names[0])
        return lambda self: (value(self),)

    @recursive_repr()
    def _represent(self):
        """One for all classes, which looks for the fields."""
        shown = [f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _equality(values):
        def equals(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        return equals

    def _hash(values):
        return lambda self: hash(values(self))

    def _frozen(cls, names):
        def set_attribute(self, name, value):
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def delete_attribute(self, name):
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return set_attribute, delete_attribute

    def _get_state(self):
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def _set_state(self, state):
        for field, value in zip(dataclasses.fields(self), state):
            object.__setattr__(self, field.name, value)
