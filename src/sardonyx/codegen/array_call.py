"""A whole run of a small program as a function that Python calls like any other of its own: checks, results, launch.

    call(feeds, made...)    ->    [result, ...], or None if anything is not as it was when the call block was made

`feeds` is a dictionary of arrays by name, `made` are arrays that were made of other feeds, or that results are written to. Each
must be an array of the type, the rank, the sizes and the flags that the block has for it. Then other results are made, the launch
block is run with Python's lock released, and the results come back in a list. Whatever else is given, and whatever goes wrong, is
None: the caller then takes the long way, which says what is wrong. Only an exception of a key's own comparison is passed on.

Python's and NumPy's functions are called by the addresses in the block (`runtime.array_call` fills it in). Arrays are held from
when they are found until the run is over, as comparing keys may run any code, and so may making an object. The launch block
serves one run at a time: it is taken when all objects are there, and nothing of Python is called from then on until its lock is
released.
"""

from __future__ import annotations

from sardonyx.codegen.blocks import (
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_SIZES,
    ARRAY_TYPE,
    BLOCK_OBJECTS,
    CALL_ADDRESS,
    CALL_ARRAY,
    CALL_BUSY,
    CALL_CLEAR,
    CALL_DICT,
    CALL_DICT_GET,
    CALL_DICT_SIZE,
    CALL_DROP,
    CALL_ERROR,
    CALL_FAULT_ENTRIES,
    CALL_FAULTS,
    CALL_FEEDS,
    CALL_FLAGS,
    CALL_HOLD,
    CALL_INPUT_ROWS,
    CALL_INPUTS,
    CALL_KEEPS,
    CALL_LAUNCH,
    CALL_LET_GO,
    CALL_MOST,
    CALL_NAME,
    CALL_NAMED,
    CALL_NEW_ARRAY,
    CALL_NEW_LIST,
    CALL_NONE,
    CALL_OUTPUT_ROWS,
    CALL_OUTPUTS,
    CALL_RANK,
    CALL_ROW,
    CALL_SET_ITEM,
    CALL_SIZES,
    CALL_TAKE_UP,
    CALL_TYPE,
    CALL_TYPE_NUMBER,
    NATIVE_ORDER,
    NO_ORDER,
    TYPE_NUMBER,
    TYPE_ORDER,
)

HEADER = object.__basicsize__
KIND = HEADER - 8  # where every object has its type
# Of NumPy's function: class, type of elements, rank, sizes; no strides, memory, flags or source
_NEW = (
    "ptr %result_kind", "ptr %result_type", "i32 %narrow_rank", "ptr %result_sizes", "ptr null", "ptr null", "i32 0", "ptr null",
)  # fmt: skip


def load_entry(name: str, entry: int | str, kind: str = "i64", block: str = "block") -> str:
    """An entry of a block."""
    return f"""  %{name}_p = getelementptr i64, ptr %{block}, i64 {entry}
  %{name} = load {kind}, ptr %{name}_p, align 8"""


def load_field(name: str, source: str, offset: int, kind: str) -> str:
    """What an object has so many bytes behind its beginning."""
    return f"""  %{name}_p = getelementptr i8, ptr %{source}, i64 {offset}
  %{name} = load {kind}, ptr %{name}_p, align {int(kind[1:]) // 8 if kind.startswith("i") else 8}"""


def _row(name: str, rows: str, number: str) -> str:
    return f"""  %{name}_at = mul i64 %{number}, {CALL_ROW}
  %{name} = getelementptr i64, ptr %{rows}, i64 %{name}_at"""


def same_type(name: str, found: str, wanted: str, number: str) -> str:
    """%name: whether a type of elements is another, or one of its number. Unpickled arrays have types that are other objects."""
    return f"""  %{name}_is = icmp eq ptr %{found}, %{wanted}
{load_field(f"{name}_number", found, HEADER + TYPE_NUMBER, "i32")}
{load_field(f"{name}_order", found, HEADER + TYPE_ORDER, "i8")}
  %{name}_wide = sext i32 %{name}_number to i64
  %{name}_alike = icmp eq i64 %{name}_wide, {number}
  %{name}_native = icmp eq i8 %{name}_order, {NATIVE_ORDER}
  %{name}_none = icmp eq i8 %{name}_order, {NO_ORDER}
  %{name}_ordered = or i1 %{name}_native, %{name}_none
  %{name}_equal = and i1 %{name}_alike, %{name}_ordered
  %{name} = or i1 %{name}_is, %{name}_equal"""


def array_call_ir() -> str:
    """The function `call`, with the signature of those that Python calls with an array of arguments."""
    return f"""
define ptr @call(ptr %self, ptr %args, i64 %given) nounwind {{
entry:
  %held = alloca [{CALL_MOST} x ptr], align 8
  %made = alloca [{CALL_MOST} x ptr], align 8
{load_field("block", "self", HEADER, "ptr")}
{load_entry("none", CALL_NONE, "ptr")}
{load_entry("hold", CALL_HOLD, "ptr")}
{load_entry("drop", CALL_DROP, "ptr")}
{load_entry("named", CALL_NAMED)}
{load_entry("inputs", CALL_INPUTS)}
{load_entry("input_rows", CALL_INPUT_ROWS, "ptr")}
{load_entry("outputs", CALL_OUTPUTS)}
{load_entry("output_rows", CALL_OUTPUT_ROWS, "ptr")}
{load_entry("busy", CALL_BUSY)}
  %others = sub i64 %inputs, %named
  %wanted = add i64 %others, 1
  %complete = icmp eq i64 %given, %wanted
  %free = icmp eq i64 %busy, 0
  %ready = and i1 %complete, %free
  br i1 %ready, label %look, label %refuse
look:
  %feeds = load ptr, ptr %args, align 8
{load_field("feeds_kind", "feeds", KIND, "ptr")}
{load_entry("dict", CALL_DICT, "ptr")}
  %is_dict = icmp eq ptr %feeds_kind, %dict
  br i1 %is_dict, label %measure, label %refuse
measure:
{load_entry("dict_size", CALL_DICT_SIZE, "ptr")}
{load_entry("expected", CALL_FEEDS)}
  %size = call i64 %dict_size(ptr %feeds)
  %fits = icmp eq i64 %size, %expected
  br i1 %fits, label %input, label %refuse

input:
  %i = phi i64 [ 0, %measure ], [ %next, %keep ]
  %has_input = icmp slt i64 %i, %inputs
  br i1 %has_input, label %find, label %results
find:
{_row("row", "input_rows", "i")}
  %is_named = icmp slt i64 %i, %named
  br i1 %is_named, label %by_name, label %by_position
by_name:
{load_entry("dict_get", CALL_DICT_GET, "ptr")}
{load_entry("name", CALL_NAME, "ptr", "row")}
  %found = call ptr %dict_get(ptr %feeds, ptr %name)
  %missing = icmp eq ptr %found, null
  br i1 %missing, label %absent, label %check
by_position:
  %beyond = sub i64 %i, %named
  %position = add i64 %beyond, 1
  %argument_p = getelementptr ptr, ptr %args, i64 %position
  %argument = load ptr, ptr %argument_p, align 8
  br label %check
check:
  %array = phi ptr [ %found, %by_name ], [ %argument, %by_position ]
{load_field("kind", "array", KIND, "ptr")}
{load_entry("array_kind", CALL_ARRAY, "ptr")}
  %is_array = icmp eq ptr %kind, %array_kind
  br i1 %is_array, label %compare, label %unfit
compare:
{load_field("rank", "array", HEADER + ARRAY_RANK, "i32")}
{load_field("type", "array", HEADER + ARRAY_TYPE, "ptr")}
{load_field("flags", "array", HEADER + ARRAY_FLAGS, "i32")}
{load_field("data", "array", HEADER, "i64")}
{load_entry("row_type", CALL_TYPE, "ptr", "row")}
{load_entry("row_rank", CALL_RANK, "i64", "row")}
{load_entry("row_sizes", CALL_SIZES, "ptr", "row")}
{load_entry("row_flags", CALL_FLAGS, "i64", "row")}
{load_entry("row_data", CALL_ADDRESS, "i64", "row")}
{load_entry("row_number", CALL_TYPE_NUMBER, "i64", "row")}
{same_type("same_type", "type", "row_type", "%row_number")}
  %wide_rank = sext i32 %rank to i64
  %same_rank = icmp eq i64 %wide_rank, %row_rank
  %wide_flags = zext i32 %flags to i64
  %set_flags = and i64 %wide_flags, %row_flags
  %has_flags = icmp eq i64 %set_flags, %row_flags
  %same_data = icmp eq i64 %data, %row_data
  %anywhere = icmp eq i64 %row_data, 0
  %in_place = or i1 %same_data, %anywhere
  %alike = and i1 %same_type, %same_rank
  %usable = and i1 %has_flags, %in_place
  %plain = and i1 %alike, %usable
  br i1 %plain, label %measured, label %unfit
measured:
{load_field("sizes", "array", HEADER + ARRAY_SIZES, "ptr")}
  br label %axis
axis:
  %a = phi i64 [ 0, %measured ], [ %a_next, %same_axis ]
  %has_axis = icmp slt i64 %a, %row_rank
  br i1 %has_axis, label %one_size, label %keep
one_size:
  %extent_p = getelementptr i64, ptr %sizes, i64 %a
  %extent = load i64, ptr %extent_p, align 8
  %row_extent_p = getelementptr i64, ptr %row_sizes, i64 %a
  %row_extent = load i64, ptr %row_extent_p, align 8
  %same_extent = icmp eq i64 %extent, %row_extent
  br i1 %same_extent, label %same_axis, label %unfit
same_axis:
  %a_next = add i64 %a, 1
  br label %axis
keep:
  call void %hold(ptr %array)
  %held_p = getelementptr ptr, ptr %held, i64 %i
  store ptr %array, ptr %held_p, align 8
  %next = add i64 %i, 1
  br label %input

absent:
{load_entry("error", CALL_ERROR, "ptr")}
  %raised = call ptr %error()
  %is_raised = icmp ne ptr %raised, null
  %instead = select i1 %is_raised, ptr null, ptr %none
  br label %release
unfit:
  br label %release

results:
{load_entry("new_list", CALL_NEW_LIST, "ptr")}
{load_entry("set_item", CALL_SET_ITEM, "ptr")}
{load_entry("new_array", CALL_NEW_ARRAY, "ptr")}
{load_entry("result_kind", CALL_ARRAY, "ptr")}
  %list = call ptr %new_list(i64 %outputs)
  %no_list = icmp eq ptr %list, null
  br i1 %no_list, label %failed, label %output
output:
  %o = phi i64 [ 0, %results ], [ %o_next, %place ]
  %has_output = icmp slt i64 %o, %outputs
  br i1 %has_output, label %make, label %take
make:
{_row("output_row", "output_rows", "o")}
{load_entry("result_type", CALL_TYPE, "ptr", "output_row")}
{load_entry("result_rank", CALL_RANK, "i64", "output_row")}
{load_entry("result_sizes", CALL_SIZES, "ptr", "output_row")}
  %narrow_rank = trunc i64 %result_rank to i32
  call void %hold(ptr %result_type)
  %result = call ptr %new_array({", ".join(_NEW)})
  %no_result = icmp eq ptr %result, null
  br i1 %no_result, label %unmade, label %place
place:
  %made_p = getelementptr ptr, ptr %made, i64 %o
  store ptr %result, ptr %made_p, align 8
  %placed = call i32 %set_item(ptr %list, i64 %o, ptr %result)
  %o_next = add i64 %o, 1
  br label %output
unmade:
  call void %drop(ptr %list)
  br label %failed
failed:
{load_entry("clear", CALL_CLEAR, "ptr")}
  call void %clear()
  br label %release

take:
  %busy_now = load i64, ptr %busy_p, align 8
  %taken = icmp ne i64 %busy_now, 0
  br i1 %taken, label %give_up, label %fill
fill:
  store i64 1, ptr %busy_p, align 8
{load_entry("launched", CALL_LAUNCH, "ptr")}
{load_entry("objects", BLOCK_OBJECTS, "ptr", "launched")}
{load_entry("let_go", CALL_LET_GO, "ptr")}
{load_entry("take_up", CALL_TAKE_UP, "ptr")}
{load_entry("faults", CALL_FAULTS, "ptr")}
{load_entry("fault_entries", CALL_FAULT_ENTRIES)}
{load_entry("keeps", CALL_KEEPS)}
  %held_bytes = mul i64 %inputs, 8
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %objects, ptr align 8 %held, i64 %held_bytes, i1 false)
  %made_objects = getelementptr ptr, ptr %objects, i64 %inputs
  %made_bytes = mul i64 %outputs, 8
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %made_objects, ptr align 8 %made, i64 %made_bytes, i1 false)
  %thread = call ptr %let_go()
  call void @launch(ptr %launched)
  call void %take_up(ptr %thread)
  %can_fail = icmp sgt i64 %fault_entries, 1
  br i1 %can_fail, label %judge, label %done
judge:
  %code_p = getelementptr i64, ptr %faults, i64 1
  %code = load i64, ptr %code_p, align 8
  %good = icmp eq i64 %code, 0
  br i1 %good, label %done, label %bad
bad:
  %fault_bytes = mul i64 %fault_entries, 8
  call void @llvm.memset.p0.i64(ptr align 8 %faults, i8 0, i64 %fault_bytes, i1 false)
  store i64 0, ptr %busy_p, align 8
  br label %give_up
give_up:
  call void %drop(ptr %list)
  br label %release
done:
  store i64 %keeps, ptr %busy_p, align 8
  br label %release

release:
  %count = phi i64 [ %i, %absent ], [ %i, %unfit ], [ %inputs, %failed ], [ %inputs, %give_up ], [ %inputs, %done ]
  %answer = phi ptr [ %instead, %absent ], [ %none, %unfit ], [ %none, %failed ], [ %none, %give_up ], [ %list, %done ]
  br label %each
each:
  %r = phi i64 [ 0, %release ], [ %r_next, %let ]
  %more = icmp slt i64 %r, %count
  br i1 %more, label %let, label %finish
let:
  %old_p = getelementptr ptr, ptr %held, i64 %r
  %old = load ptr, ptr %old_p, align 8
  call void %drop(ptr %old)
  %r_next = add i64 %r, 1
  br label %each
finish:
  %is_none = icmp eq ptr %answer, %none
  br i1 %is_none, label %refuse, label %give
give:
  ret ptr %answer
refuse:
  call void %hold(ptr %none)
  ret ptr %none
}}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
