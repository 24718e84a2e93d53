"""Pieces of texts, by functions that Python calls (see `text_frame`): how many there are, and an array of them.

    count_pieces(texts)         ["a,b", ""]    ->    [2, 1]
    cut_pieces(texts, 2)        ["a,b", ""]    ->    [["a", "b"], ["", others]]

A table says of each byte of UTF-8 what it is: part of a piece, the end of one, a piece of its own, or nothing that can be told
from a byte. Pieces of fewer characters than wanted are left out; behind so many pieces, no byte ends one. Words of a language
repeat: a piece that was made shortly before is handed out again, as texts never change.
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.array_call import load_entry
from sardonyx.codegen.blocks import (
    TEXT_DECODE,
    TEXT_LEAST,
    TEXT_LIMIT,
    TEXT_NEW,
    TEXT_OTHERS,
    TEXT_SINGLES,
    TEXT_START,
    TEXT_TABLE,
)
from sardonyx.codegen.text_frame import OBJECT_NUMBER, OBJECTS, UTF8, UTF8_BEFORE, given_number, text_function

ENDS_PIECE, IN_PIECE, UNKNOWN_BYTE, WHOLE_PIECE = range(4)  # what a byte is
_KNOWN: Final = 1024  # pieces that are remembered, if there are many texts
_FEW: Final = 32  # if there are few: forgetting takes time
_MANY_TEXTS: Final = 64
_ENTRY: Final = "{ ptr, i64, ptr }"  # of a piece that is remembered: where its bytes are, how many, the text
_ENTRY_BYTES: Final = 24
_FACTOR: Final = 0x100000001B3  # of the hash of a piece's bytes


def text_pieces_ir() -> str:
    """The functions, with the signature of those that Python calls with an array of arguments."""
    return _count() + _cut()


_BEFORE: Final = f"""{UTF8_BEFORE}
{load_entry("table", TEXT_TABLE, "ptr")}
{load_entry("least", TEXT_LEAST)}
{load_entry("limit", TEXT_LIMIT)}"""


def _scanned(single: str, single_end: str, piece: str, piece_end: str) -> str:
    """Walks over a text: `single` does what a byte of its own needs, `piece` what one from %piece_from to %p needs.

    Both may lie in several blocks; `single_end` and `piece_end` name the last. %n counts the pieces, %n_after those behind the
    last; then `scanned` follows.
    """
    return f"""{UTF8}
  br label %scan
scan:
  %p = phi i64 [ 0, %encoded ], [ %p_next, %inside ], [ %p_single, %{single_end} ], [ %p_piece, %moved ]
  %piece_from = phi i64 [ 0, %encoded ], [ %piece_from, %inside ], [ %p_single, %{single_end} ], [ %p_piece, %moved ]
  %chars = phi i64 [ 0, %encoded ], [ %chars_next, %inside ], [ 0, %{single_end} ], [ 0, %moved ]
  %hash = phi i64 [ 0, %encoded ], [ %hash_next, %inside ], [ 0, %{single_end} ], [ 0, %moved ]
  %n = phi i64 [ 0, %encoded ], [ %n, %inside ], [ %n_single, %{single_end} ], [ %n_after, %moved ]
  %is_over = icmp sge i64 %p, %size
  br i1 %is_over, label %flush, label %look_at
look_at:
  %byte_p = getelementptr i8, ptr %bytes, i64 %p
  %byte = load i8, ptr %byte_p, align 1
  %wide_byte = zext i8 %byte to i64
  %class_p = getelementptr i8, ptr %table, i64 %wide_byte
  %class = load i8, ptr %class_p, align 1
  switch i8 %class, label %undo [
    i8 {ENDS_PIECE}, label %border
    i8 {IN_PIECE}, label %inside
    i8 {WHOLE_PIECE}, label %single
  ]
border:
  %is_free = icmp slt i64 %n, %limit
  br i1 %is_free, label %flush, label %inside
inside:
  %top_bits = and i8 %byte, -64
  %is_begun = icmp ne i8 %top_bits, -128
  %one_more = zext i1 %is_begun to i64
  %chars_next = add i64 %chars, %one_more
  %mixed = xor i64 %hash, %wide_byte
  %hash_next = mul i64 %mixed, {_FACTOR}
  %p_next = add i64 %p, 1
  br label %scan
single:
  %p_single = add i64 %p, 1
  %n_single = add i64 %n, 1
{single}
  br label %scan
flush:
  %is_kept = icmp sge i64 %chars, %least
  br i1 %is_kept, label %keep, label %flushed
keep:
  %n_kept = add i64 %n, 1
{piece}
  br label %flushed
flushed:
  %n_after = phi i64 [ %n, %flush ], [ %n_kept, %{piece_end} ]
  br i1 %is_over, label %scanned, label %moved
moved:
  %p_piece = add i64 %p, 1
  br label %scan
scanned:"""


def _count() -> str:
    body = f"""{_scanned("", "single", "", "keep")}
  %written_p = getelementptr i64, ptr %out, i64 %i
  store i64 %n_after, ptr %written_p, align 8
  br label %next"""
    return text_function("count_pieces", 1, OBJECTS, OBJECT_NUMBER, _BEFORE, body)


def _cut() -> str:
    """As many pieces as were counted, or none at all: texts may have been exchanged since."""
    before = f"""{_BEFORE}
{load_entry("singles", TEXT_SINGLES, "ptr")}
{load_entry("others", TEXT_OTHERS, "ptr")}
{load_entry("new", TEXT_NEW, "ptr")}
{load_entry("decode", TEXT_DECODE, "ptr")}
{load_entry("start", TEXT_START)}
  %remembered = alloca [{_KNOWN} x {_ENTRY}], align 8
  %are_many = icmp sge i64 %count, {_MANY_TEXTS}
  %mask = select i1 %are_many, i64 {_KNOWN - 1}, i64 {_FEW - 1}
  %forgotten = select i1 %are_many, i64 {_KNOWN * _ENTRY_BYTES}, i64 {_FEW * _ENTRY_BYTES}
  call void @llvm.memset.p0.i64(ptr align 8 %remembered, i8 0, i64 %forgotten, i1 false)"""
    single = """  %single_fits = icmp slt i64 %n, %width
  br i1 %single_fits, label %hand_single, label %undo
hand_single:
  %single_p = getelementptr ptr, ptr %singles, i64 %wide_byte
  %single_text = load ptr, ptr %single_p, align 8
  call void %hold(ptr %single_text)
  %single_at = add i64 %row, %n
  %single_out = getelementptr ptr, ptr %out, i64 %single_at
  store ptr %single_text, ptr %single_out, align 8"""
    piece = f"""  %fits = icmp slt i64 %n, %width
  br i1 %fits, label %find, label %undo
find:
  %from = getelementptr i8, ptr %bytes, i64 %piece_from
  %length = sub i64 %p, %piece_from
  %upper = lshr i64 %hash, 29
  %folded = xor i64 %hash, %upper
  %slot = and i64 %folded, %mask
  %entry_p = getelementptr {_ENTRY}, ptr %remembered, i64 %slot
  %entry_size_p = getelementptr {_ENTRY}, ptr %entry_p, i64 0, i32 1
  %entry_text_p = getelementptr {_ENTRY}, ptr %entry_p, i64 0, i32 2
  %entry_size = load i64, ptr %entry_size_p, align 8
  %entry_text = load ptr, ptr %entry_text_p, align 8
  %is_entry = icmp ne ptr %entry_text, null
  %same_size = icmp eq i64 %entry_size, %length
  %may_be = and i1 %is_entry, %same_size
  br i1 %may_be, label %comparing, label %make_piece
comparing:
  %entry_bytes = load ptr, ptr %entry_p, align 8
  br label %match
match:
  %k = phi i64 [ 0, %comparing ], [ %k_next, %matching ]
  %is_more = icmp slt i64 %k, %length
  br i1 %is_more, label %matching, label %reuse
matching:
  %one_p = getelementptr i8, ptr %entry_bytes, i64 %k
  %other_p = getelementptr i8, ptr %from, i64 %k
  %one_byte = load i8, ptr %one_p, align 1
  %other_byte = load i8, ptr %other_p, align 1
  %is_equal = icmp eq i8 %one_byte, %other_byte
  %k_next = add i64 %k, 1
  br i1 %is_equal, label %match, label %make_piece
reuse:
  call void %hold(ptr %entry_text)
  br label %hand_piece
make_piece:
  %is_ascii = icmp eq i64 %chars, %length
  br i1 %is_ascii, label %make_ascii, label %make_other
make_ascii:
  %ascii_text = call ptr %new(i64 %length, i32 127)
  %no_ascii = icmp eq ptr %ascii_text, null
  br i1 %no_ascii, label %lost, label %fill_ascii
fill_ascii:
  %target = getelementptr i8, ptr %ascii_text, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %target, ptr align 1 %from, i64 %length, i1 false)
  br label %remember
make_other:
  %other_text = call ptr %decode(ptr %from, i64 %length)
  %no_other = icmp eq ptr %other_text, null
  br i1 %no_other, label %lost, label %remember
remember:
  %new_text = phi ptr [ %ascii_text, %fill_ascii ], [ %other_text, %make_other ]
  store ptr %from, ptr %entry_p, align 8
  store i64 %length, ptr %entry_size_p, align 8
  store ptr %new_text, ptr %entry_text_p, align 8
  br label %hand_piece
hand_piece:
  %piece_text = phi ptr [ %entry_text, %reuse ], [ %new_text, %remember ]
  %piece_at = add i64 %row, %n
  %piece_out = getelementptr ptr, ptr %out, i64 %piece_at
  store ptr %piece_text, ptr %piece_out, align 8"""
    body = f"""  %row = mul i64 %i, %width
{_scanned(single, "hand_single", piece, "hand_piece")}
  br label %others_left
others_left:
  %o = phi i64 [ %n_after, %scanned ], [ %o_next, %other_one ]
  %is_left_over = icmp slt i64 %o, %width
  br i1 %is_left_over, label %other_one, label %next
other_one:
  call void %hold(ptr %others)
  %o_at = add i64 %row, %o
  %o_out = getelementptr ptr, ptr %out, i64 %o_at
  store ptr %others, ptr %o_out, align 8
  %o_next = add i64 %o, 1
  br label %others_left"""
    wanted = f"{OBJECTS}\n{given_number('width', 1)}"
    return text_function("cut_pieces", 2, wanted, OBJECT_NUMBER, before, body, is_wider=True)
