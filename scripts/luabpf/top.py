# SPDX-License-Identifier: Apache-2.0
"""Tables of the top functions, by self and by total share, of folded text.

Run as `python3 -m luabpf.top [-n ROWS] [FILE]` with scripts/ on the path.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Iterable, List, Mapping

from luabpf import cli

_WIDTH = 79


@dataclass(frozen=True)
class Profile:
    """Samples by function; the root of each line (the comm) is none."""

    samples: int
    self_count: Mapping[str, int]
    total_count: Mapping[str, int]


def read_folded(lines: Iterable[str]) -> Profile:
    """Count `comm;root;...;leaf N` lines.

    A function counts once a stack in total_count, however often it recurs.
    Raises Fail at the first line that is not folded text.
    """
    samples = 0
    self_count: Counter[str] = Counter()
    total_count: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        if not line:
            continue
        stack, _, count_text = line.rpartition(" ")
        if not stack or not (count_text.isascii() and count_text.isdecimal()):
            raise cli.Fail(f"line {number} is not folded text: {line[:60]}")
        count = int(count_text)
        frames = stack.split(";")[1:]
        samples += count
        self_count[frames[-1] if frames else "[no frames]"] += count
        for frame in set(frames):
            total_count[frame] += count
    return Profile(samples, self_count, total_count)


def table(profile: Profile, title: str, order_by: Mapping[str, int],
          rows: int) -> List[str]:
    """Lines of one table: the top functions by order_by, hottest last."""
    top = sorted(order_by, key=lambda name: (-order_by[name], name))[:rows]
    lines = [title, f"{'SELF%':>6} {'TOTAL%':>6} {'SAMPLES':>8} FUNCTION"]
    for name in reversed(top):
        own = profile.self_count.get(name, 0)
        total = profile.total_count.get(name, own)
        line = (f"{100 * own / profile.samples:6.1f} "
                f"{100 * total / profile.samples:6.1f} "
                f"{order_by[name]:8d} {cli.one_line(name)}")
        lines.append(line if len(line) <= _WIDTH
                     else line[:_WIDTH - 3] + "...")
    return lines


def report(profile: Profile, rows: int) -> str:
    """Both tables as text; says so if there is nothing to show."""
    if not profile.samples:
        return "no samples\n"
    lines = table(profile, f"Top functions by total share "
                  f"({profile.samples} samples):", profile.total_count, rows)
    lines.append("")
    lines += table(profile, "Top functions by self share:",
                   profile.self_count, rows)
    return "\n".join(lines) + "\n"


def main(argv: List[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="top", description="top functions of a folded profile")
    parser.add_argument("-n", metavar="ROWS", type=cli.positive_int,
                        default=15, help="rows of a table (default 15)")
    parser.add_argument("file", nargs="?", help="folded text (default stdin)")
    args = parser.parse_args(argv)
    if args.file is None:
        profile = read_folded(sys.stdin)
    else:
        try:
            with open(args.file, encoding="utf-8",
                      errors="replace") as file:
                profile = read_folded(file)
        except OSError as err:
            raise cli.Fail(f"{args.file}: {err.strerror}") from err
    sys.stdout.write(report(profile, args.n))
    return 0 if profile.samples else 1


if __name__ == "__main__":
    cli.run(main)
