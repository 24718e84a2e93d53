"""Texts that are read as numbers, and numbers that are written as texts, by functions that Python calls (see `text_frame`).

    read_doubles(texts), read_singles(texts)    "-1.5e3"    ->    -1500.0
    read_integers(texts)                        "+12"       ->    12
    write_integers(numbers)                     -305        ->    "-305"

A text must be a decimal number, or a word for a float that is none, from its beginning to its end: what C reads besides is left
to Python. A float whose digits are an integer of 53 bits is that, multiplied or divided by a power of ten that is exact: one
rounding. For others Python's own function is called.
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.array_call import load_entry
from sardonyx.codegen.blocks import (
    NO_TYPE_NUMBER,
    TEXT_GIVEN,
    TEXT_NEW,
    TEXT_PARSE,
    TEXT_POWERS,
    TEXT_START,
)
from sardonyx.codegen.text_frame import OBJECT_NUMBER, OBJECTS, UTF8, UTF8_BEFORE, text_function

LARGEST_POWER: Final = 22  # of ten, that a float64 has exactly
_MOST_DIGITS: Final = 18  # that fit into 63 bits whatever they are
_SMALLEST, _INFINITE = "0x0010000000000000", "0x7FF0000000000000"  # the smallest normal float64
_LONGEST: Final = 20  # characters of an integer of 64 bits, with its sign

_BYTES: Final = f"""{UTF8}
  %first = load i8, ptr %bytes, align 1
  %is_minus = icmp eq i8 %first, {ord("-")}
  %is_plus = icmp eq i8 %first, {ord("+")}
  %is_signed = or i1 %is_minus, %is_plus
  %skipped = zext i1 %is_signed to i64
  br label %digits"""


def text_numbers_ir() -> str:
    """The functions, with the signature of those that Python calls with an array of arguments."""
    return "\n".join(
        (_read_floats("read_doubles", "double"), _read_floats("read_singles", "float"), _read_integers(), _write_integers())
    )


def _digit(name: str, at: str) -> str:
    """%name is the digit at a position, %name_code the byte; texts end with a zero, which is no digit."""
    return f"""  %{name}_p = getelementptr i8, ptr %bytes, i64 %{at}
  %{name}_code = load i8, ptr %{name}_p, align 1
  %{name}_distance = sub i8 %{name}_code, {ord("0")}
  %{name}_is = icmp ult i8 %{name}_distance, 10
  %{name} = zext i8 %{name}_distance to i64"""


def _read_floats(function: str, kind: str) -> str:
    before = f"""{UTF8_BEFORE}
{load_entry("parse", TEXT_PARSE, "ptr")}
{load_entry("powers", TEXT_POWERS, "ptr")}
  %end_p = alloca ptr, align 8"""
    value = "%value" if kind == "double" else "%narrow"
    narrowed = "" if kind == "double" else "  %narrow = fptrunc double %value to float\n"
    body = f"""{_BYTES}
digits:
  %p = phi i64 [ %skipped, %encoded ], [ %p_digit, %digit_one ], [ %p_point, %point ]
  %m = phi i64 [ 0, %encoded ], [ %m_next, %digit_one ], [ %m, %point ]
  %n = phi i64 [ 0, %encoded ], [ %n_next, %digit_one ], [ %n, %point ]
  %behind = phi i64 [ 0, %encoded ], [ %behind, %digit_one ], [ 1, %point ]
  %s = phi i64 [ 0, %encoded ], [ %s_next, %digit_one ], [ %s, %point ]
{_digit("d", "p")}
  br i1 %d_is, label %digit_one, label %other
digit_one:
  %m_ten = mul i64 %m, 10
  %m_next = add i64 %m_ten, %d
  %n_next = add i64 %n, 1
  %s_next = add i64 %s, %behind
  %p_digit = add i64 %p, 1
  br label %digits
other:
  %is_point = icmp eq i8 %d_code, {ord(".")}
  %is_before = icmp eq i64 %behind, 0
  %is_first_point = and i1 %is_point, %is_before
  br i1 %is_first_point, label %point, label %number
point:
  %p_point = add i64 %p, 1
  br label %digits
number:
  %has_digits = icmp sgt i64 %n, 0
  %lower = or i8 %d_code, 32
  br i1 %has_digits, label %after_digits, label %word
after_digits:
  %is_e = icmp eq i8 %lower, {ord("e")}
  br i1 %is_e, label %exponent, label %shape
exponent:
  %q_sign = add i64 %p, 1
  %q_sign_p = getelementptr i8, ptr %bytes, i64 %q_sign
  %sign_code = load i8, ptr %q_sign_p, align 1
  %e_minus = icmp eq i8 %sign_code, {ord("-")}
  %e_plus = icmp eq i8 %sign_code, {ord("+")}
  %e_signed = or i1 %e_minus, %e_plus
  %e_skipped = zext i1 %e_signed to i64
  %q_first = add i64 %q_sign, %e_skipped
  br label %exponent_digits
exponent_digits:
  %q = phi i64 [ %q_first, %exponent ], [ %q_next, %exponent_one ]
  %e = phi i64 [ 0, %exponent ], [ %e_next, %exponent_one ]
{_digit("x", "q")}
  br i1 %x_is, label %exponent_one, label %exponent_end
exponent_one:
  %e_ten = mul i64 %e, 10
  %e_next = add i64 %e_ten, %x
  %q_next = add i64 %q, 1
  br label %exponent_digits
exponent_end:
  %e_digits = sub i64 %q, %q_first
  %e_fewer = sub i64 %e_digits, 1
  %e_fits = icmp ult i64 %e_fewer, 5
  %e_negative = sub i64 0, %e
  %e_value = select i1 %e_minus, i64 %e_negative, i64 %e
  br i1 %e_fits, label %shape, label %undo
shape:
  %end = phi i64 [ %p, %after_digits ], [ %q, %exponent_end ]
  %given_power = phi i64 [ 0, %after_digits ], [ %e_value, %exponent_end ]
  %power = sub i64 %given_power, %s
  %is_whole = icmp eq i64 %end, %size
  br i1 %is_whole, label %choose, label %undo
choose:
  %is_divided = icmp slt i64 %power, 0
  %power_minus = sub i64 0, %power
  %distance = select i1 %is_divided, i64 %power_minus, i64 %power
  %is_near = icmp sle i64 %distance, {LARGEST_POWER}
  %is_short = icmp sle i64 %n, {_MOST_DIGITS}
  %is_exact = icmp ule i64 %m, {1 << 53}
  %is_easy_1 = and i1 %is_near, %is_short
  %is_easy = and i1 %is_easy_1, %is_exact
  br i1 %is_easy, label %easy, label %hard
easy:
  %whole = uitofp i64 %m to double
  %factor_p = getelementptr double, ptr %powers, i64 %distance
  %factor = load double, ptr %factor_p, align 8
  %multiplied = fmul double %whole, %factor
  %divided = fdiv double %whole, %factor
  %unsigned = select i1 %is_divided, double %divided, double %multiplied
  %negative = fneg double %unsigned
  %easy_value = select i1 %is_minus, double %negative, double %unsigned
  br label %write
hard:
  %hard_value = call double %parse(ptr %bytes, ptr %end_p, ptr null)
  %hard_size = call double @llvm.fabs.f64(double %hard_value)
  %is_large = fcmp oge double %hard_size, {_SMALLEST}
  %is_finite = fcmp olt double %hard_size, {_INFINITE}
  %is_normal = and i1 %is_large, %is_finite
  br i1 %is_normal, label %parsed, label %lost
word:
  %is_i = icmp eq i8 %lower, {ord("i")}
  %is_n = icmp eq i8 %lower, {ord("n")}
  %is_word = or i1 %is_i, %is_n
  br i1 %is_word, label %spelled, label %undo
spelled:
  %word_value = call double %parse(ptr %bytes, ptr %end_p, ptr null)
  br label %parsed
parsed:
  %parsed_value = phi double [ %hard_value, %hard ], [ %word_value, %spelled ]
  %stopped = load ptr, ptr %end_p, align 8
  %last = getelementptr i8, ptr %bytes, i64 %size
  %is_all = icmp eq ptr %stopped, %last
  br i1 %is_all, label %write, label %lost
write:
  %value = phi double [ %easy_value, %easy ], [ %parsed_value, %parsed ]
{narrowed}  %written_p = getelementptr {kind}, ptr %out, i64 %i
  store {kind} {value}, ptr %written_p, align 4
  br label %next"""
    return text_function(function, 1, OBJECTS, OBJECT_NUMBER, before, body)


def _read_integers() -> str:
    body = f"""{_BYTES}
digits:
  %p = phi i64 [ %skipped, %encoded ], [ %p_next, %digit_one ]
  %m = phi i64 [ 0, %encoded ], [ %m_next, %digit_one ]
{_digit("d", "p")}
  br i1 %d_is, label %digit_one, label %other
digit_one:
  %m_ten = mul i64 %m, 10
  %m_next = add i64 %m_ten, %d
  %p_next = add i64 %p, 1
  br label %digits
other:
  %is_whole = icmp eq i64 %p, %size
  %digit_count = sub i64 %p, %skipped
  %fewer = sub i64 %digit_count, 1
  %fits = icmp ult i64 %fewer, {_MOST_DIGITS}
  %is_number = and i1 %is_whole, %fits
  br i1 %is_number, label %write, label %undo
write:
  %negative = sub i64 0, %m
  %value = select i1 %is_minus, i64 %negative, i64 %m
  %written_p = getelementptr i64, ptr %out, i64 %i
  store i64 %value, ptr %written_p, align 8
  br label %next"""
    return text_function("read_integers", 1, OBJECTS, OBJECT_NUMBER, UTF8_BEFORE, body)


def _write_integers() -> str:
    """Digits from the last to the first, in a buffer of their own; then a text of as many bytes."""
    before = f"""{load_entry("new", TEXT_NEW, "ptr")}
{load_entry("start", TEXT_START)}
  %buffer = alloca [{_LONGEST} x i8], align 1"""
    body = f"""  %number_p = getelementptr i64, ptr %data, i64 %i
  %number = load i64, ptr %number_p, align 1
  %is_minus = icmp slt i64 %number, 0
  %opposite = sub i64 0, %number
  %size = select i1 %is_minus, i64 %opposite, i64 %number
  br label %digit
digit:
  %left = phi i64 [ %size, %element ], [ %less, %digit ]
  %at = phi i64 [ {_LONGEST}, %element ], [ %before, %digit ]
  %before = sub i64 %at, 1
  %less = udiv i64 %left, 10
  %tens = mul i64 %less, 10
  %ones = sub i64 %left, %tens
  %narrow = trunc i64 %ones to i8
  %code = add i8 %narrow, {ord("0")}
  %code_p = getelementptr i8, ptr %buffer, i64 %before
  store i8 %code, ptr %code_p, align 1
  %is_more = icmp ne i64 %less, 0
  br i1 %is_more, label %digit, label %sign
sign:
  br i1 %is_minus, label %minus, label %text
minus:
  %sign_at = sub i64 %before, 1
  %sign_p = getelementptr i8, ptr %buffer, i64 %sign_at
  store i8 {ord("-")}, ptr %sign_p, align 1
  br label %text
text:
  %begin_at = phi i64 [ %before, %sign ], [ %sign_at, %minus ]
  %length = sub i64 {_LONGEST}, %begin_at
  %made = call ptr %new(i64 %length, i32 127)
  %is_lost = icmp eq ptr %made, null
  br i1 %is_lost, label %lost, label %fill
fill:
  %source = getelementptr i8, ptr %buffer, i64 %begin_at
  %target = getelementptr i8, ptr %made, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %target, ptr align 1 %source, i64 %length, i1 false)
  %written_p = getelementptr ptr, ptr %out, i64 %i
  store ptr %made, ptr %written_p, align 8
  br label %next"""
    wanted = load_entry("wanted_type", TEXT_GIVEN, "ptr")
    return text_function("write_integers", 1, wanted, NO_TYPE_NUMBER, before, body)
