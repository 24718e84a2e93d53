"""The frame of functions that Python calls with an array of texts, or to have texts made: what is checked, and what is made.

    text_function("hash_texts", 1, OBJECTS, OBJECT_NUMBER, before, body)    ->    a function of an array, element by element

Each is given an array in C order and gives a new one, or None for anything else: an array of another type, an element that is no
text, or one that UTF-8 cannot express. Then Python does it, and says what is wrong. The result is made first, because making an
object may run any code; the array is looked at afterwards, when nothing of that kind is called any more.
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.array_call import HEADER, KIND, load_entry, load_field, same_type
from sardonyx.codegen.blocks import (
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_READABLE,
    ARRAY_SIZES,
    ARRAY_TYPE,
    TEXT_ARRAY,
    TEXT_CLEAR,
    TEXT_DROP,
    TEXT_HOLD,
    TEXT_NEW_ARRAY,
    TEXT_NONE,
    TEXT_NUMBER,
    TEXT_OBJECTS,
    TEXT_RESULT,
    TEXT_STR,
    TEXT_UTF8,
)

OBJECT_NUMBER: Final = 17  # of NumPy's type of objects
# What the type of the array's elements must be
OBJECTS: Final = load_entry("wanted_type", TEXT_OBJECTS, "ptr")
# Of NumPy's function: class, type of elements, rank, sizes; no strides, memory, flags or source
_NEW: Final = (
    "ptr %array_kind", "ptr %result_type", "i32 %made_rank", "ptr %made_sizes", "ptr null", "ptr null", "i32 0", "ptr null",
)  # fmt: skip
_MOST_AXES: Final = 64  # of an array of NumPy
_ALIKE: Final = """  %made_rank = add i32 %rank, 0
  %made_sizes = getelementptr i64, ptr %sizes, i64 0"""
_WIDER: Final = f"""  %wide_sizes = alloca [{_MOST_AXES + 1} x i64], align 8
  %fits_rank = icmp slt i32 %rank, {_MOST_AXES}
  br i1 %fits_rank, label %widen, label %refuse
widen:
  %array_axes = sext i32 %rank to i64
  br label %copy_axis
copy_axis:
  %x = phi i64 [ 0, %widen ], [ %x_next, %copy_one ]
  %is_axis = icmp slt i64 %x, %array_axes
  br i1 %is_axis, label %copy_one, label %widened
copy_one:
  %x_from = getelementptr i64, ptr %sizes, i64 %x
  %x_size = load i64, ptr %x_from, align 8
  %x_to = getelementptr i64, ptr %wide_sizes, i64 %x
  store i64 %x_size, ptr %x_to, align 8
  %x_next = add i64 %x, 1
  br label %copy_axis
widened:
  %last_p = getelementptr i64, ptr %wide_sizes, i64 %array_axes
  store i64 %width, ptr %last_p, align 8
  %made_rank = add i32 %rank, 1
  %made_sizes = getelementptr i64, ptr %wide_sizes, i64 0"""

# The element %i as %text, which is exactly a text of Python; else everything is undone
TEXT: Final = f"""  %text_p = getelementptr ptr, ptr %data, i64 %i
  %text = load ptr, ptr %text_p, align 8
  %is_nothing = icmp eq ptr %text, null
  br i1 %is_nothing, label %undo, label %some
some:
{load_field("text_kind", "text", KIND, "ptr")}
  %is_text = icmp eq ptr %text_kind, %str
  br i1 %is_text, label %read, label %undo
read:"""

# The same, and its UTF-8: %bytes, which end with a zero behind them, and how many there are as %size
UTF8: Final = f"""{TEXT}
  %bytes = call ptr %utf8(ptr %text, ptr %size_p)
  %is_lost = icmp eq ptr %bytes, null
  br i1 %is_lost, label %lost, label %encoded
encoded:
  %size = load i64, ptr %size_p, align 8"""
# What stands in front of the loop for that
UTF8_BEFORE: Final = f"""{load_entry("str", TEXT_STR, "ptr")}
{load_entry("utf8", TEXT_UTF8, "ptr")}
  %size_p = alloca i64, align 8"""


def given_number(name: str, position: int) -> str:
    """%name: an integer of Python that the function is given; -1 if it is none."""
    return f"""{load_entry(f"{name}_reader", TEXT_NUMBER, "ptr")}
  %{name}_at = getelementptr ptr, ptr %args, i64 {position}
  %{name}_object = load ptr, ptr %{name}_at, align 8
  %{name} = call i64 %{name}_reader(ptr %{name}_object)"""


def text_function(name: str, arguments: int, wanted: str, number: int, before: str, body: str, *, is_wider: bool = False) -> str:
    """A function of an array of a wanted type, or of any of its number.

    `before` stands in front of the loop, `body` computes one element and goes to `next`. They have the array's %data, the
    result's memory %out, and %i, the number of the element. The result has the array's shape; with `is_wider` it has one more
    axis, of %width elements, and begins with nothing everywhere.
    """
    made_sizes = _WIDER if is_wider else _ALIKE
    return f"""
define ptr @{name}(ptr %self, ptr %args, i64 %given) nounwind {{
entry:
{load_field("block", "self", HEADER, "ptr")}
{load_entry("none", TEXT_NONE, "ptr")}
{load_entry("hold", TEXT_HOLD, "ptr")}
{load_entry("drop", TEXT_DROP, "ptr")}
{load_entry("clear", TEXT_CLEAR, "ptr")}
  %complete = icmp eq i64 %given, {arguments}
  br i1 %complete, label %look, label %refuse
look:
  %array = load ptr, ptr %args, align 8
{load_field("kind", "array", KIND, "ptr")}
{load_entry("array_kind", TEXT_ARRAY, "ptr")}
  %is_array = icmp eq ptr %kind, %array_kind
  br i1 %is_array, label %make, label %refuse
make:
{wanted}
{load_field("rank", "array", HEADER + ARRAY_RANK, "i32")}
{load_field("sizes", "array", HEADER + ARRAY_SIZES, "ptr")}
{load_entry("new_array", TEXT_NEW_ARRAY, "ptr")}
{load_entry("result_type", TEXT_RESULT, "ptr")}
{made_sizes}
  call void %hold(ptr %result_type)
  %result = call ptr %new_array({", ".join(_NEW)})
  %no_result = icmp eq ptr %result, null
  br i1 %no_result, label %unmade, label %compare
compare:
{load_field("type", "array", HEADER + ARRAY_TYPE, "ptr")}
{load_field("flags", "array", HEADER + ARRAY_FLAGS, "i32")}
{load_field("rank_now", "array", HEADER + ARRAY_RANK, "i32")}
{load_field("sizes_now", "array", HEADER + ARRAY_SIZES, "ptr")}
{load_field("own_sizes", "result", HEADER + ARRAY_SIZES, "ptr")}
{load_field("data", "array", HEADER, "ptr")}
{load_field("out", "result", HEADER, "ptr")}
{same_type("same_type", "type", "wanted_type", str(number))}
  %same_rank = icmp eq i32 %rank, %rank_now
  %set_flags = and i32 %flags, {ARRAY_READABLE}
  %in_order = icmp eq i32 %set_flags, {ARRAY_READABLE}
  %alike = and i1 %same_type, %same_rank
  %usable = and i1 %alike, %in_order
  %axes = sext i32 %rank to i64
  br i1 %usable, label %axis, label %undo
axis:
  %a = phi i64 [ 0, %compare ], [ %a_next, %multiply ]
  %count = phi i64 [ 1, %compare ], [ %count_next, %multiply ]
  %more_axes = icmp slt i64 %a, %axes
  br i1 %more_axes, label %multiply, label %begin
multiply:
  %extent_p = getelementptr i64, ptr %sizes_now, i64 %a
  %extent = load i64, ptr %extent_p, align 8
  %own_extent_p = getelementptr i64, ptr %own_sizes, i64 %a
  %own_extent = load i64, ptr %own_extent_p, align 8
  %a_next = add i64 %a, 1
  %count_next = mul i64 %count, %own_extent
  %same_extent = icmp eq i64 %extent, %own_extent
  br i1 %same_extent, label %axis, label %undo
begin:
{before}
  br label %each
each:
  %i = phi i64 [ 0, %begin ], [ %i_next, %next ]
  %is_left = icmp slt i64 %i, %count
  br i1 %is_left, label %element, label %done
element:
{body}
next:
  %i_next = add i64 %i, 1
  br label %each
done:
  ret ptr %result
lost:
  call void %clear()
  br label %undo
undo:
  call void %drop(ptr %result)
  br label %refuse
unmade:
  call void %clear()
  br label %refuse
refuse:
  call void %hold(ptr %none)
  ret ptr %none
}}
"""
