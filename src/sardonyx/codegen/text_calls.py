"""Numbers of texts, by functions that Python calls like any others of its own: positions among keys, hashes.

    look_up(texts)                      positions of Python's texts in a dictionary, -1 where they are no keys
    look_up_wide(texts, type, width)    the same of NumPy's texts of a fixed width, in a table of keys
    hash_texts(texts)                   MurmurHash3 of Python's texts, as UTF-8
    match_texts(texts)                  whether an automaton reads them to its end: 0 or 1, 2 where it cannot tell

All have one frame (`text_frame`), as have those that read and write numbers (`text_numbers`), cut texts into pieces
(`text_pieces`) and count words (`text_counts`). Texts that are exactly of Python's own type are hashed and compared without
running any code of others.
`runtime.text_calls` fills in the blocks.
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.array_call import load_entry
from sardonyx.codegen.blocks import (
    NO_TYPE_NUMBER,
    TEXT_DICT,
    TEXT_DICT_GET,
    TEXT_ENDS,
    TEXT_FACTOR,
    TEXT_KEY_WIDTH,
    TEXT_KEYS,
    TEXT_LENGTHS,
    TEXT_MASK,
    TEXT_NUMBER,
    TEXT_POSITIONS,
    TEXT_SEED,
    TEXT_SLOTS,
    TEXT_START,
    TEXT_STR,
    TEXT_TABLE,
)
from sardonyx.codegen.text_counts import text_counts_ir
from sardonyx.codegen.text_frame import OBJECT_NUMBER, OBJECTS, TEXT, UTF8, UTF8_BEFORE, text_function
from sardonyx.codegen.text_numbers import text_numbers_ir
from sardonyx.codegen.text_pieces import text_pieces_ir

# Texts of a fixed width: their type is given, with the width
_WIDE: Final = f"""  %wanted_type_p = getelementptr ptr, ptr %args, i64 1
  %wanted_type = load ptr, ptr %wanted_type_p, align 8
{load_entry("number", TEXT_NUMBER, "ptr")}
  %width_p = getelementptr ptr, ptr %args, i64 2
  %width_object = load ptr, ptr %width_p, align 8
  %width = call i64 %number(ptr %width_object)"""


def text_calls_ir() -> str:
    """The functions, with the signature of those that Python calls with an array of arguments."""
    made = (_look_up(), _look_up_wide(), _hash_texts(), _match_texts(), text_numbers_ir(), text_pieces_ir(), text_counts_ir())
    return "\n".join((*made, "declare i32 @llvm.fshl.i32(i32, i32, i32)", "declare double @llvm.fabs.f64(double)"))


def _look_up() -> str:
    before = f"""{load_entry("str", TEXT_STR, "ptr")}
{load_entry("dict", TEXT_DICT, "ptr")}
{load_entry("dict_get", TEXT_DICT_GET, "ptr")}
{load_entry("number", TEXT_NUMBER, "ptr")}"""
    body = f"""{TEXT}
  %found = call ptr %dict_get(ptr %dict, ptr %text)
  %is_key = icmp ne ptr %found, null
  br i1 %is_key, label %known, label %write
known:
  %known_position = call i64 %number(ptr %found)
  br label %write
write:
  %position = phi i64 [ -1, %read ], [ %known_position, %known ]
  %written_p = getelementptr i64, ptr %out, i64 %i
  store i64 %position, ptr %written_p, align 8
  br label %next"""
    return text_function("look_up", 1, OBJECTS, OBJECT_NUMBER, before, body)


def _look_up_wide() -> str:
    """Hashes the characters of a text up to the last that is not zero, and looks from there on for a key that is the same."""
    before = f"""{load_entry("slots", TEXT_SLOTS, "ptr")}
{load_entry("mask", TEXT_MASK)}
{load_entry("keys", TEXT_KEYS, "ptr")}
{load_entry("key_width", TEXT_KEY_WIDTH)}
{load_entry("lengths", TEXT_LENGTHS, "ptr")}
{load_entry("positions", TEXT_POSITIONS, "ptr")}"""
    body = f"""  %start = mul i64 %i, %width
  %row = getelementptr i32, ptr %data, i64 %start
  br label %shorten
shorten:
  %length = phi i64 [ %width, %element ], [ %shorter, %last ]
  %is_some = icmp sgt i64 %length, 0
  br i1 %is_some, label %last, label %measured
last:
  %shorter = sub i64 %length, 1
  %last_p = getelementptr i32, ptr %row, i64 %shorter
  %last_code = load i32, ptr %last_p, align 1
  %is_end = icmp eq i32 %last_code, 0
  br i1 %is_end, label %shorten, label %measured
measured:
  %size = phi i64 [ 0, %shorten ], [ %length, %last ]
  %fits = icmp sle i64 %size, %key_width
  br i1 %fits, label %hashing, label %write
hashing:
  %h = phi i64 [ %size, %measured ], [ %h_next, %hash_one ]
  %c = phi i64 [ 0, %measured ], [ %c_next, %hash_one ]
  %is_char = icmp slt i64 %c, %size
  br i1 %is_char, label %hash_one, label %hashed
hash_one:
  %code_p = getelementptr i32, ptr %row, i64 %c
  %code = load i32, ptr %code_p, align 1
  %wide_code = zext i32 %code to i64
  %mixed = xor i64 %h, %wide_code
  %h_next = mul i64 %mixed, {TEXT_FACTOR - (1 << 64)}
  %c_next = add i64 %c, 1
  br label %hashing
hashed:
  %upper = lshr i64 %h, 32
  %folded = xor i64 %h, %upper
  br label %probe
probe:
  %at = phi i64 [ %folded, %hashed ], [ %at_next, %another ]
  %slot = and i64 %at, %mask
  %slot_p = getelementptr i64, ptr %slots, i64 %slot
  %key = load i64, ptr %slot_p, align 8
  %is_empty = icmp slt i64 %key, 0
  br i1 %is_empty, label %write, label %candidate
candidate:
  %key_length_p = getelementptr i64, ptr %lengths, i64 %key
  %key_length = load i64, ptr %key_length_p, align 8
  %same_length = icmp eq i64 %key_length, %size
  br i1 %same_length, label %matching, label %another
matching:
  %key_start = mul i64 %key, %key_width
  %key_row = getelementptr i32, ptr %keys, i64 %key_start
  br label %match
match:
  %m = phi i64 [ 0, %matching ], [ %m_next, %same ]
  %is_more = icmp slt i64 %m, %size
  br i1 %is_more, label %match_one, label %matched
match_one:
  %m_p = getelementptr i32, ptr %row, i64 %m
  %m_code = load i32, ptr %m_p, align 1
  %k_p = getelementptr i32, ptr %key_row, i64 %m
  %k_code = load i32, ptr %k_p, align 4
  %is_same = icmp eq i32 %m_code, %k_code
  br i1 %is_same, label %same, label %another
same:
  %m_next = add i64 %m, 1
  br label %match
another:
  %at_next = add i64 %slot, 1
  br label %probe
matched:
  %known_p = getelementptr i64, ptr %positions, i64 %key
  %known_position = load i64, ptr %known_p, align 8
  br label %write
write:
  %position = phi i64 [ -1, %measured ], [ -1, %probe ], [ %known_position, %matched ]
  %written_p = getelementptr i64, ptr %out, i64 %i
  store i64 %position, ptr %written_p, align 8
  br label %next"""
    return text_function("look_up_wide", 3, _WIDE, NO_TYPE_NUMBER, before, body)


def _hash_texts() -> str:
    """MurmurHash3 of 32 bits: four bytes at a time, then those that are left, then the length."""

    def scrambled(name: str, word: str) -> str:
        return f"""  %{name}_1 = mul i32 {word}, {0xCC9E2D51 - (1 << 32)}
  %{name}_2 = call i32 @llvm.fshl.i32(i32 %{name}_1, i32 %{name}_1, i32 15)
  %{name} = mul i32 %{name}_2, {0x1B873593}"""

    before = f"""{UTF8_BEFORE}
{load_entry("seed", TEXT_SEED)}
  %start = trunc i64 %seed to i32"""
    body = f"""{UTF8}
  %whole = ashr i64 %size, 2
  br label %words
words:
  %h = phi i32 [ %start, %encoded ], [ %h_next, %word ]
  %w = phi i64 [ 0, %encoded ], [ %w_next, %word ]
  %is_word = icmp slt i64 %w, %whole
  br i1 %is_word, label %word, label %rest
word:
  %word_p = getelementptr i32, ptr %bytes, i64 %w
  %four = load i32, ptr %word_p, align 1
{scrambled("k", "%four")}
  %h_1 = xor i32 %h, %k
  %h_2 = call i32 @llvm.fshl.i32(i32 %h_1, i32 %h_1, i32 13)
  %h_3 = mul i32 %h_2, 5
  %h_next = add i32 %h_3, {0xE6546B64 - (1 << 32)}
  %w_next = add i64 %w, 1
  br label %words
rest:
  %rest_at = shl i64 %whole, 2
  br label %tail
tail:
  %t = phi i64 [ %rest_at, %rest ], [ %t_next, %byte ]
  %left = phi i32 [ 0, %rest ], [ %left_next, %byte ]
  %is_byte = icmp slt i64 %t, %size
  br i1 %is_byte, label %byte, label %finish
byte:
  %byte_p = getelementptr i8, ptr %bytes, i64 %t
  %one = load i8, ptr %byte_p, align 1
  %wide = zext i8 %one to i32
  %in_word = sub i64 %t, %rest_at
  %narrow = trunc i64 %in_word to i32
  %bits = shl i32 %narrow, 3
  %moved = shl i32 %wide, %bits
  %left_next = or i32 %left, %moved
  %t_next = add i64 %t, 1
  br label %tail
finish:
{scrambled("tail_k", "%left")}
  %f_1 = xor i32 %h, %tail_k
  %length = trunc i64 %size to i32
  %f_2 = xor i32 %f_1, %length
  %f_3 = lshr i32 %f_2, 16
  %f_4 = xor i32 %f_2, %f_3
  %f_5 = mul i32 %f_4, {0x85EBCA6B - (1 << 32)}
  %f_6 = lshr i32 %f_5, 13
  %f_7 = xor i32 %f_5, %f_6
  %f_8 = mul i32 %f_7, {0xC2B2AE35 - (1 << 32)}
  %f_9 = lshr i32 %f_8, 16
  %hash = xor i32 %f_8, %f_9
  %written_p = getelementptr i32, ptr %out, i64 %i
  store i32 %hash, ptr %written_p, align 4
  br label %next"""
    return text_function("hash_texts", 1, OBJECTS, OBJECT_NUMBER, before, body)


def _match_texts() -> str:
    """Which texts an automaton reads to its end: a row of its table has the state behind each ASCII character.

    State 0 is the one from which no text is read. A byte of another character leaves it open: 2.
    """
    before = f"""{UTF8_BEFORE}
{load_entry("table", TEXT_TABLE, "ptr")}
{load_entry("ends", TEXT_ENDS, "ptr")}
{load_entry("first_state", TEXT_START)}"""
    body = f"""{UTF8}
  br label %walk
walk:
  %p = phi i64 [ 0, %encoded ], [ %p_next, %step ]
  %state = phi i64 [ %first_state, %encoded ], [ %state_next, %step ]
  %is_more = icmp slt i64 %p, %size
  br i1 %is_more, label %character, label %end
character:
  %byte_p = getelementptr i8, ptr %bytes, i64 %p
  %byte = load i8, ptr %byte_p, align 1
  %is_ascii = icmp sge i8 %byte, 0
  br i1 %is_ascii, label %step, label %write
step:
  %wide_byte = zext i8 %byte to i64
  %state_row = shl i64 %state, 7
  %at = or i64 %state_row, %wide_byte
  %state_p = getelementptr i16, ptr %table, i64 %at
  %state_narrow = load i16, ptr %state_p, align 2
  %state_next = zext i16 %state_narrow to i64
  %p_next = add i64 %p, 1
  br label %walk
end:
  %end_p = getelementptr i8, ptr %ends, i64 %state
  %is_end = load i8, ptr %end_p, align 1
  br label %write
write:
  %matched = phi i8 [ %is_end, %end ], [ 2, %character ]
  %written_p = getelementptr i8, ptr %out, i64 %i
  store i8 %matched, ptr %written_p, align 1
  br label %next"""
    return text_function("match_texts", 1, OBJECTS, OBJECT_NUMBER, before, body)
