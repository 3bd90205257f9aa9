# SPDX-License-Identifier: Apache-2.0
"""Text of counts of calls: same input, same bytes. Knows nothing of BPF."""

from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, TextIO, Tuple

from luabpf.lib import CallTotals

Rows = List[Tuple[str, int]]

_NAME_WIDTH = 60


@dataclass(frozen=True)
class Table:
    """Counts of one interval, by text, and what else is to be said."""

    counts: Mapping[str, int]
    totals: CallTotals
    before: Optional[CallTotals]  # at the begin of the interval

    def since(self, name: str) -> int:
        """A total of this interval alone."""
        before = getattr(self.before, name) if self.before else 0
        return int(getattr(self.totals, name)) - int(before)

    @property
    def is_partial(self) -> bool:
        """Were calls lost because there was no room for their functions?"""
        return bool(self.totals.full or self.totals.no_edge)

    def rows(self, top: Optional[int]) -> Rows:
        """The most frequent last, TOP of them at most."""
        rows = sorted(self.counts.items(), key=lambda row: (row[1], row[0]))
        return rows[-top:] if top else rows


def compiled_percent(table: Table) -> Optional[float]:
    """Share of Lua's CPU time in traces; None: no sample fell into Lua."""
    in_lua = table.since("in_lua")
    return 100.0 * table.since("in_trace") / in_lua if in_lua else None


def _times(count: int, what: str) -> str:
    return f"{count} time{'' if count == 1 else 's'} by {what}"


def compiled_lines(table: Table) -> List[str]:
    """What the counts do not show: calls inside of compiled code."""
    percent = compiled_percent(table)
    calls, loops = table.since("compiled"), table.since("loops")
    if percent is None:
        lines = ["How much Lua time ran in compiled code, where calls are "
                 "not seen, is not", "known: no sample of CPU time fell into "
                 "Lua."]
    else:
        in_trace, in_lua = table.since("in_trace"), table.since("in_lua")
        lines = [f"{percent:.0f} % of Lua time ran in compiled code, where "
                 "calls are not seen", f"({in_trace} of {in_lua} samples)."]
    if calls or loops:
        lines.append(f"Compiled code was entered {_times(calls, 'a call')}, "
                     f"{_times(loops, 'a loop')}.")
    return lines


def write_table(rows: Rows, table: Table, has_lua: bool, out: TextIO) -> None:
    """`FUNC COUNT`, and under it what it does not show."""
    mark = ">= " if table.is_partial else ""
    cells = [(name, f"{mark}{count}") for name, count in rows]
    width = max([_NAME_WIDTH] + [
        min(len(name), 2 * _NAME_WIDTH) for name, _count in cells])
    out.write(f"{'FUNC':<{width}} {'COUNT':>12}\n")
    for name, count in cells:
        out.write(f"{name:<{width}} {count:>12}\n")
    if has_lua:
        out.write("\n" + "\n".join(compiled_lines(table)) + "\n")


def as_json(rows: Rows, table: Table, has_lua: bool) -> Dict[str, object]:
    """The same as an object."""
    result: Dict[str, object] = {
        "functions": [{"name": name, "count": count} for name, count in rows],
        "partial": table.is_partial}
    if has_lua:
        percent = compiled_percent(table)
        result["compiled"] = {
            "percent": None if percent is None else round(percent, 1),
            "samples": table.since("in_lua"),
            "calls": table.since("compiled"), "loops": table.since("loops")}
    return result


def closing_lines(totals: CallTotals, room: int) -> List[str]:
    """Account for every hit of a probe."""
    lost = totals.full + totals.unread + totals.foreign
    lines = [f"{totals.hits - totals.again} calls: {totals.counted} counted, "
             f"{totals.unwanted} of other functions, {lost} lost"]
    if totals.ticks:
        percent = 100 * totals.in_probe / totals.ticks
        lines.append(f"the probes took {percent:.0f} % of the CPU time")
    if totals.full:
        lines.append(f"{totals.full} lost: more than {room} different "
                     "functions; use a larger --max-functions or a pattern")
    if totals.no_edge:
        lines.append(f"{totals.no_edge} calls without their caller: more than "
                     f"{room} pairs; use a larger --max-functions")
    if totals.unread:
        lines.append(f"{totals.unread} lost: the function could not be read")
    if totals.foreign:
        lines.append(f"{totals.foreign} lost: in a process that had just "
                     "been found or changed")
    return lines
