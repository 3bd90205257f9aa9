# SPDX-License-Identifier: Apache-2.0
"""Text of reports: same input, same bytes. Knows nothing of BPF."""

from typing import Iterable, List, TextIO, Tuple

from luabpf.lib import Totals

Folded = Tuple[str, int, int]  # text, samples, PID


def write_folded(stacks: Iterable[Folded], out: TextIO) -> None:
    """One stack a line, `comm;root;...;leaf COUNT`, the hottest last."""
    for text, count, _pid in sorted(stacks, key=lambda s: (s[1], s[0])):
        out.write(f"{text} {count}\n")


def write_stacks(stacks: Iterable[Folded], out: TextIO) -> None:
    """The default report of BCC's profile: leaf first, hottest stack last.

    The root of each text is `comm-PID`.
    """
    for text, count, pid in sorted(stacks, key=lambda s: (s[1], s[0])):
        frames = text.split(";")
        comm = frames[0].rpartition("-")[0]
        for frame in reversed(frames[1:]):
            out.write("    " + ("--" if frame == "-" else frame) + "\n")
        out.write(f"    {'-':<16} {comm} ({pid})\n")
        out.write(f"        {count}\n\n")


def closing_lines(totals: Totals) -> List[str]:
    """Account for every sample, by result and reason.

    samples + lost is what the timer took.
    """
    failed = f"{totals.failed} failed"
    if totals.by_reason:
        reasons = sorted(totals.by_reason.items(), key=lambda r: (-r[1], r[0]))
        failed += " (" + ", ".join(f"{n} {word}" for word, n in reasons) + ")"
    lines = [f"{totals.samples} samples: "
             f"{totals.complete} complete ({totals.with_lua} with Lua), "
             f"{totals.truncated} truncated, {failed}, {totals.lost} lost"]
    if totals.in_trace:
        lines.append(f"{totals.in_trace} in traces: "
                     f"{totals.traces_exact} exact, {totals.traces_coarse} "
                     f"coarse, {totals.traces_gone} gone")
    if totals.lost_storage:
        lines.append(f"{totals.lost_storage} lost: stack storage full "
                     f"({totals.stacks} different stacks); use a larger "
                     "--stack-storage-size")
    if totals.lost_ring:
        lines.append(f"{totals.lost_ring} lost: new stacks came faster than "
                     "they could be read; use a lower -F")
    if totals.lost_other:
        lines.append(f"{totals.lost_other} lost: processes came or went "
                     "while they were sampled")
    return lines
