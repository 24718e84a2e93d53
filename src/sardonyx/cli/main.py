"""The `sardonyx` command: reads the arguments, hands over to the subcommand, turns errors into one clear message.

Exit codes: 0 all is well, 1 the model is at fault or failed, 2 the command line is at fault, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence

import sardonyx
from sardonyx.cli import (
    bench,
    cache,
    check,
    compile_model,
    convert,
    explain,
    generate,
    inspect_model,
    ops,
    quantize,
    run,
    simplify,
)
from sardonyx.cli.usage import UsageError

PIPE_CLOSED = 141


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show where in the program an error came from")
    parser = argparse.ArgumentParser(
        prog="sardonyx",
        description="Run, inspect, check, explain, simplify, quantize, compile and measure ONNX models.",
        epilog="`sardonyx COMMAND --help` says more about one command.",
    )
    parser.add_argument("--version", action="version", version=f"sardonyx {sardonyx.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (run, inspect_model, check, explain, simplify, quantize, compile_model, convert, generate, bench, ops, cache):
        module.add_command(commands, shared)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names in models are any text; a terminal may know ASCII alone
            stream.reconfigure(errors="backslashreplace")
    args = make_parser().parse_args(arguments)
    try:
        code = int(args.handler(args))
        if sys.stdout is not None:  # it is None where the shell has closed it
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        _stop_writing()
        return PIPE_CLOSED
    except UsageError as error:
        _report(str(error), error.hint)
        return 2
    except sardonyx.SardonyxError as error:
        if args.debug:
            raise
        _report(error.message, error.hint)
        return 1
    except OSError as error:
        if args.debug:
            raise
        _report(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        if error.errno == errno.ENOSPC:
            _stop_writing()
        return 1
    except (MemoryError, RecursionError) as error:
        if args.debug:
            raise
        _report(f"not enough memory ({error})" if str(error) else "not enough memory", "try smaller inputs with --shape")
        return 1
    except Exception as error:
        if args.debug:
            raise
        _report(f"this is a defect of Sardonyx: {type(error).__name__}: {error}", "--debug shows where; please report it")
        return 1


def _stop_writing() -> None:
    """The reader of a pipe went away (`| head`), or the disk is full. Python would complain when it flushes at exit: to where?"""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(message: str, hint: str = "") -> None:
    if sys.stderr is None:  # closed by the shell; print would write to standard output instead
        return
    print(f"sardonyx: error: {message}", file=sys.stderr)
    if hint:
        print(f"  hint: {hint}", file=sys.stderr)
