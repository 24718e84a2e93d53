"""Words of texts, and sequences of them, counted by functions that Python calls (see `text_frame`).

    count_words(texts, width), count_wide_words(texts, width, type, characters)    "dog cat dog"    ->    [1.0, 2.0, 0.0]

A table has for each ASCII character what it becomes, zero between words; texts with other characters are left to Python. A word
has a number: that of its bytes in a table, or of its only character. Numbers of the last words are kept; for each length of
sequences there is a table that has the column of every sequence, by the number that its words are the digits of.
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.array_call import load_entry
from sardonyx.codegen.blocks import (
    NO_TYPE_NUMBER,
    TEXT_BASE,
    TEXT_FACTOR,
    TEXT_GRAM_COUNT,
    TEXT_GRAMS,
    TEXT_KEYS,
    TEXT_LEAST,
    TEXT_LENGTHS,
    TEXT_MASK,
    TEXT_POSITIONS,
    TEXT_SINGLES,
    TEXT_SLOTS,
    TEXT_TABLE,
)
from sardonyx.codegen.text_frame import OBJECT_NUMBER, OBJECTS, UTF8, UTF8_BEFORE, given_number, text_function

LONGEST_SEQUENCE: Final = 8  # words
GRAM_LENGTH, GRAM_SLOTS, GRAM_CODES, GRAM_COLUMNS, GRAM_MASK = range(5)  # entries of what is known of sequences of a length
GRAM_ENTRIES: Final = 5
HASH_FACTOR: Final = TEXT_FACTOR - (1 << 64)

_BEFORE: Final = f"""{load_entry("table", TEXT_TABLE, "ptr")}
{load_entry("slots", TEXT_SLOTS, "ptr")}
{load_entry("mask", TEXT_MASK)}
{load_entry("keys", TEXT_KEYS, "ptr")}
{load_entry("lengths", TEXT_LENGTHS, "ptr")}
{load_entry("starts", TEXT_POSITIONS, "ptr")}
{load_entry("least", TEXT_LEAST)}
{load_entry("singles", TEXT_SINGLES, "ptr")}
{load_entry("grams", TEXT_GRAMS, "ptr")}
{load_entry("gram_count", TEXT_GRAM_COUNT)}
{load_entry("base", TEXT_BASE)}
  %has_words = icmp eq ptr %singles, null
  %row_bytes = shl i64 %width, 2
  %last_words = alloca [{LONGEST_SEQUENCE} x i64], align 8"""


def text_counts_ir() -> str:
    """The functions, with the signature of those that Python calls with an array of arguments."""
    return _count_words() + _count_wide_words()


def _count_words() -> str:
    before = f"""{_BEFORE}
{UTF8_BEFORE}"""
    body = f"""{UTF8}
  %codes = getelementptr i8, ptr %bytes, i64 0
{_counted("i8")}"""
    wanted = f"{OBJECTS}\n{given_number('width', 1)}"
    return text_function("count_words", 2, wanted, OBJECT_NUMBER, before, body, is_wider=True)


def _count_wide_words() -> str:
    """Of texts of a fixed width; zeros at their end are between words."""
    body = f"""  %text_at = mul i64 %i, %size
  %codes = getelementptr i32, ptr %data, i64 %text_at
  br label %encoded
encoded:
{_counted("i32")}"""
    wanted = f"""{given_number("width", 1)}
  %wanted_type_p = getelementptr ptr, ptr %args, i64 2
  %wanted_type = load ptr, ptr %wanted_type_p, align 8
{given_number("size", 3)}"""
    return text_function("count_wide_words", 4, wanted, NO_TYPE_NUMBER, _BEFORE, body, is_wider=True)


def _counted(kind: str) -> str:
    """The words in %size characters at %codes, counted in a row of the result."""
    code = "  %code = zext i8 %found_code to i32" if kind == "i8" else "  %code = add i32 %found_code, 0"
    return f"""  %row_at = mul i64 %i, %width
  %row = getelementptr float, ptr %out, i64 %row_at
  call void @llvm.memset.p0.i64(ptr align 4 %row, i8 0, i64 %row_bytes, i1 false)
  br label %scan
scan:
  %p = phi i64 [ 0, %encoded ], [ %p_next, %inside ], [ %p_word, %word_over ]
  %word_at = phi i64 [ 0, %encoded ], [ %word_at, %inside ], [ %p_word, %word_over ]
  %hash = phi i64 [ 0, %encoded ], [ %hash_next, %inside ], [ 0, %word_over ]
  %words = phi i64 [ 0, %encoded ], [ %words, %inside ], [ %words_after, %word_over ]
  %is_over = icmp sge i64 %p, %size
  br i1 %is_over, label %border, label %character
character:
  %code_p = getelementptr {kind}, ptr %codes, i64 %p
  %found_code = load {kind}, ptr %code_p, align 1
{code}
  %is_ascii = icmp ult i32 %code, 128
  br i1 %is_ascii, label %changed, label %undo
changed:
  %wide_code = zext i32 %code to i64
  br i1 %has_words, label %by_word, label %by_character
by_character:
  %single_p = getelementptr i64, ptr %singles, i64 %wide_code
  %single = load i64, ptr %single_p, align 8
  br label %numbered
by_word:
  %byte_p = getelementptr i8, ptr %table, i64 %wide_code
  %byte = load i8, ptr %byte_p, align 1
  %is_between = icmp eq i8 %byte, 0
  br i1 %is_between, label %border, label %inside
inside:
  %wide_byte = zext i8 %byte to i64
  %mixed = xor i64 %hash, %wide_byte
  %hash_next = mul i64 %mixed, {HASH_FACTOR}
  %p_next = add i64 %p, 1
  br label %scan
border:
  %length = sub i64 %p, %word_at
  %is_long = icmp sge i64 %length, %least
  %is_word = icmp sgt i64 %length, 0
  %is_kept_1 = and i1 %is_long, %is_word
  %is_kept = and i1 %is_kept_1, %has_words
  br i1 %is_kept, label %look_up, label %word_end
look_up:
  %upper = lshr i64 %hash, 32
  %folded = xor i64 %hash, %upper
  br label %probe
probe:
  %at = phi i64 [ %folded, %look_up ], [ %at_next, %another ]
  %slot = and i64 %at, %mask
  %slot_p = getelementptr i64, ptr %slots, i64 %slot
  %key = load i64, ptr %slot_p, align 8
  %is_empty = icmp slt i64 %key, 0
  br i1 %is_empty, label %unknown, label %candidate
candidate:
  %key_length_p = getelementptr i64, ptr %lengths, i64 %key
  %key_length = load i64, ptr %key_length_p, align 8
  %key_start_p = getelementptr i64, ptr %starts, i64 %key
  %key_start = load i64, ptr %key_start_p, align 8
  %key_bytes = getelementptr i8, ptr %keys, i64 %key_start
  %same_length = icmp eq i64 %key_length, %length
  br i1 %same_length, label %match, label %another
match:
  %m = phi i64 [ 0, %candidate ], [ %m_next, %match_one ]
  %is_more = icmp slt i64 %m, %length
  br i1 %is_more, label %match_one, label %numbered
match_one:
  %m_at = add i64 %word_at, %m
  %m_p = getelementptr {kind}, ptr %codes, i64 %m_at
  %m_found = load {kind}, ptr %m_p, align 1
  %m_code = zext {kind} %m_found to i64
  %m_byte_p = getelementptr i8, ptr %table, i64 %m_code
  %m_byte = load i8, ptr %m_byte_p, align 1
  %k_p = getelementptr i8, ptr %key_bytes, i64 %m
  %k_byte = load i8, ptr %k_p, align 1
  %is_same = icmp eq i8 %m_byte, %k_byte
  %m_next = add i64 %m, 1
  br i1 %is_same, label %match, label %another
another:
  %at_next = add i64 %slot, 1
  br label %probe
unknown:
  %no_word = sub i64 %base, 1
  br label %numbered
numbered:
  %number = phi i64 [ %single, %by_character ], [ %key, %match ], [ %no_word, %unknown ]
  %words_now = add i64 %words, 1
  br label %move
move:
  %v = phi i64 [ {LONGEST_SEQUENCE - 1}, %numbered ], [ %v_next, %move_one ]
  %is_moved = icmp eq i64 %v, 0
  br i1 %is_moved, label %newest, label %move_one
move_one:
  %v_next = sub i64 %v, 1
  %v_from = getelementptr i64, ptr %last_words, i64 %v_next
  %v_word = load i64, ptr %v_from, align 8
  %v_to = getelementptr i64, ptr %last_words, i64 %v
  store i64 %v_word, ptr %v_to, align 8
  br label %move
newest:
  store i64 %number, ptr %last_words, align 8
  br label %gram
gram:
  %g = phi i64 [ 0, %newest ], [ %g_next, %gram_over ]
  %is_gram = icmp slt i64 %g, %gram_count
  br i1 %is_gram, label %gram_one, label %word_end
gram_one:
  %g_at = mul i64 %g, {GRAM_ENTRIES}
  %gram_row = getelementptr i64, ptr %grams, i64 %g_at
{load_entry("gram_length", GRAM_LENGTH, block="gram_row")}
{load_entry("gram_columns", GRAM_COLUMNS, "ptr", "gram_row")}
  %is_single = icmp eq i64 %gram_length, 1
  br i1 %is_single, label %gram_known, label %gram_many
gram_many:
{load_entry("gram_slots", GRAM_SLOTS, "ptr", "gram_row")}
{load_entry("gram_codes", GRAM_CODES, "ptr", "gram_row")}
{load_entry("gram_mask", GRAM_MASK, block="gram_row")}
  %is_enough = icmp sge i64 %words_now, %gram_length
  br i1 %is_enough, label %encode, label %gram_over
encode:
  %d = phi i64 [ %gram_length, %gram_many ], [ %d_next, %encode_one ]
  %number_code = phi i64 [ 0, %gram_many ], [ %number_code_next, %encode_one ]
  %is_digit = icmp sgt i64 %d, 0
  br i1 %is_digit, label %encode_one, label %encoded_gram
encode_one:
  %d_next = sub i64 %d, 1
  %d_p = getelementptr i64, ptr %last_words, i64 %d_next
  %d_word = load i64, ptr %d_p, align 8
  %number_scaled = mul i64 %number_code, %base
  %number_code_next = add i64 %number_scaled, %d_word
  br label %encode
encoded_gram:
  %gram_hash = mul i64 %number_code, {HASH_FACTOR}
  %gram_first = lshr i64 %gram_hash, 32
  br label %gram_probe
gram_probe:
  %gram_at = phi i64 [ %gram_first, %encoded_gram ], [ %gram_at_next, %gram_another ]
  %gram_slot = and i64 %gram_at, %gram_mask
  %gram_slot_p = getelementptr i64, ptr %gram_slots, i64 %gram_slot
  %gram_entry = load i64, ptr %gram_slot_p, align 8
  %gram_empty = icmp slt i64 %gram_entry, 0
  br i1 %gram_empty, label %gram_over, label %gram_candidate
gram_candidate:
  %gram_code_p = getelementptr i64, ptr %gram_codes, i64 %gram_entry
  %gram_code = load i64, ptr %gram_code_p, align 8
  %gram_same = icmp eq i64 %gram_code, %number_code
  br i1 %gram_same, label %gram_known, label %gram_another
gram_another:
  %gram_at_next = add i64 %gram_slot, 1
  br label %gram_probe
gram_known:
  %known_gram = phi i64 [ %number, %gram_one ], [ %gram_entry, %gram_candidate ]
  %column_p = getelementptr i64, ptr %gram_columns, i64 %known_gram
  %column = load i64, ptr %column_p, align 8
  %is_column = icmp ult i64 %column, %width
  br i1 %is_column, label %count_gram, label %gram_over
count_gram:
  %entry_p = getelementptr float, ptr %row, i64 %column
  %entry_before = load float, ptr %entry_p, align 4
  %entry_after = fadd float %entry_before, 1.0
  store float %entry_after, ptr %entry_p, align 4
  br label %gram_over
gram_over:
  %g_next = add i64 %g, 1
  br label %gram
word_end:
  %words_after = phi i64 [ %words, %border ], [ %words_now, %gram ]
  br i1 %is_over, label %next, label %word_over
word_over:
  %p_word = add i64 %p, 1
  br label %scan"""
