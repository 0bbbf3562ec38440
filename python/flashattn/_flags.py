"""Flags that the commands share: numbers, and a shape that the caller describes."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Callable, Dict, List, NoReturn

from . import _signals
from .errors import FlashAttnError


class Parser(argparse.ArgumentParser):
    """Prints one line for each error, without the usage, which --help prints."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


def run_command(run: Callable[[argparse.Namespace], int], chosen: argparse.Namespace) -> int:
    """Runs a command in `_signals.ending_in_order` and returns its exit status. Raises SystemExit with one line
    for an error of the package."""
    try:
        with _signals.ending_in_order():
            return run(chosen)
    except FlashAttnError as error:
        raise SystemExit(f"error: {error}") from None


def number_from(least: int) -> Callable[[str], int]:
    """Returns a parser of a flag's number, which must be at least `least`."""

    def read(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least:
            raise argparse.ArgumentTypeError(f"expected a number of at least {least} but got {text!r}")
        return found

    return read


count = number_from(1)


def above_zero(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0 but got {text!r}")
    return found


def numbers(text: str) -> List[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected comma-separated numbers but got {text!r}"
        ) from None


#: The flags of a shape, and their defaults. The parser's default is None, which means that a flag is absent.
DEFAULTS: Dict[str, Any] = {
    "head_dim": 128, "dtype": "f16", "mask": "none", "window": 1024, "sinks": 4, "batch": 1, "heads": 16,
    "kv_heads": None, "length": 4096, "queries": None,
}  # fmt: skip
#: The masks to which a flag applies.
MASKS_OF = {"window": ("window", "sink"), "sinks": ("sink",)}


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a shape."""
    own = parser.add_argument_group("a shape of your own")
    own.add_argument("--head-dim", type=count, help="128 by default")
    own.add_argument("--dtype", choices=("f16", "bf16", "f32"), help="f16 by default")
    own.add_argument(
        "--mask",
        choices=("none", "causal", "window", "sink"),
        help="none by default; 'sink' is a window beside the first keys",
    )
    own.add_argument("--window", type=count, help="keys of the window, 1024 by default")
    own.add_argument("--sinks", type=number_from(0), help="first keys of --mask=sink, 4 by default")
    own.add_argument("--batch", type=count, help="1 by default")
    own.add_argument("--heads", type=count, help="16 by default")
    own.add_argument("--kv-heads", type=count, help="as many as --heads by default")
    own.add_argument("--length", type=count, help="keys, 4096 by default")
    own.add_argument("--queries", type=count, help="as many as keys by default")


def given(chosen: argparse.Namespace) -> List[str]:
    """Returns the flags of a shape that the command line contains."""
    return [flag_of(name) for name in DEFAULTS if getattr(chosen, name) is not None]


def read_shape(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> Dict[str, Any]:
    """Returns the shape that the flags describe, in the form of shapes.json. A flag without effect is an error."""
    found = {
        name: default if getattr(chosen, name) is None else getattr(chosen, name)
        for name, default in DEFAULTS.items()
    }
    mask, heads = found["mask"], found["heads"]
    for name, masks in MASKS_OF.items():
        if getattr(chosen, name) is not None and mask not in masks:
            wanted = " or ".join(f"--mask={mask}" for mask in masks)
            parser.error(f"expected {wanted} for {flag_of(name)} but got --mask={mask}")
    kv_heads = found["kv_heads"] or heads
    if heads % kv_heads:
        parser.error(f"expected --heads to be a multiple of --kv-heads but got {heads} and {kv_heads}")
    nk = found["length"]
    nq = found["queries"] or nk
    sizes = [found["batch"], heads if heads == kv_heads else f"{heads}/{kv_heads}", nq]
    sizes += [nk] if nk != nq else []
    shape = {
        "name": f"d{found['head_dim']}-{found['dtype']}-{mask}@{'x'.join(map(str, sizes))}",
        "B": found["batch"], "Hq": heads, "Hkv": kv_heads, "Nq": nq, "Nk": nk, "D": found["head_dim"],
        "dtype": found["dtype"], "mask": mask,
    }  # fmt: skip
    shape.update((name, found[name]) for name, masks in MASKS_OF.items() if mask in masks)
    return shape
