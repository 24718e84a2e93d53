"""`sardonyx generate`: text that follows a prompt, written as it comes."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import sardonyx
from sardonyx.cli.usage import UsageError


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "generate",
        parents=[shared],
        help="continue a text with a language model",
        description="Continue a text with the decoder of an exported folder, or write what its encoder and decoder make of a "
        "text or of speech. The folder is one with genai_config.json (onnxruntime-genai's "
        "builder), or with config.json and generation_config.json (optimum). The tokenizer is read from tokenizer.json by the "
        "package `tokenizers`. What is not given here is as the folder says.",
    )
    parser.add_argument("folder", metavar="MODEL_DIR", help="the folder of the model")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prompt", help="the text to continue, or what an encoder reads; default: what standard input has")
    what.add_argument("--audio", metavar="FILE", help="the WAV file that a model of speech (Whisper) writes down")
    parser.add_argument("--language", default="", help="of speech: what is spoken, as `en`; default: what the model hears")
    parser.add_argument("--task", default="", choices=["", "transcribe", "translate"], help="of speech; default: transcribe")
    parser.add_argument("--model", default="", metavar="FILE", help="the decoder's file in the folder, if it has an unusual name")
    parser.add_argument("--max-new-tokens", type=int, default=256, metavar="N", help="how many tokens at most; default: 256")
    parser.add_argument("--min-new-tokens", type=int, metavar="N", help="how many tokens at least")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--greedy", action="store_true", help="always choose the most likely token")
    how.add_argument("--sample", action="store_true", help="choose tokens by chance")
    how.add_argument("--num-beams", type=int, metavar="N", help="beam search; the text is written at the end")
    parser.add_argument("--temperature", type=float, help="of sampling: below 1 sharper, above 1 flatter")
    parser.add_argument("--top-k", type=int, metavar="N", help="of sampling: only the N most likely tokens")
    parser.add_argument("--top-p", type=float, metavar="P", help="of sampling: only the most likely tokens that have this share")
    parser.add_argument("--repetition-penalty", type=float, metavar="X", help="above 1: make tokens that came before less likely")
    parser.add_argument("--seed", type=int, help="of sampling: the same text for the same seed")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="default: as many as the machine gives")
    parser.add_argument("--stats", action="store_true", help="print tokens and tokens per second to standard error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Generate and write."""
    generation = sardonyx.generation
    if args.threads < 0:
        raise UsageError(f"--threads {args.threads}: expected 0 or more")
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = args.threads
    if args.audio is None and (args.language or args.task):
        raise UsageError("--language and --task are for --audio")
    kind = generation.TextGenerator if args.audio is None else generation.SpeechReader
    model: Any = kind.from_folder(args.folder, options, model=args.model)
    samples = True if args.sample or (args.temperature or args.top_k or args.top_p) else None
    changes = {
        "max_new_tokens": args.max_new_tokens,
        "min_new_tokens": args.min_new_tokens,
        "do_sample": False if args.greedy or args.num_beams else samples,
        "num_beams": args.num_beams or 1,
        "temperature": args.temperature,
        "top_k": args.top_k,
        "top_p": args.top_p,
        "repetition_penalty": args.repetition_penalty,
        "seed": args.seed,
    }
    start = time.perf_counter()
    by_beams = args.num_beams and args.num_beams > 1
    if args.audio is not None:
        sound = generation.read_sound(args.audio, model.speech.rate)
        how = {"language": args.language, "task": args.task, "stop": args.stop, **changes}
        pieces = iter([model.transcribe(sound, **how)]) if by_beams else model.stream(sound, **how)
    else:
        prompt = args.prompt if args.prompt is not None else sys.stdin.read()
        if by_beams:
            pieces = iter(model.generate(prompt, stop=args.stop, **changes))
        else:
            pieces = model.stream(prompt, stop=args.stop, **changes)
    written = ""
    for piece in pieces:
        written += piece
        print(piece, end="", flush=True)
    print()
    if args.stats:
        seconds = time.perf_counter() - start
        count = len(model.encode(written)) if written else 0
        print(f"{count} tokens in {seconds:.2f} s, {count / seconds:.1f} tokens/s, prompt included", file=sys.stderr)
    return 0
