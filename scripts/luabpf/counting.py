# SPDX-License-Identifier: Apache-2.0
"""Count calls: load the program, choose functions by pattern, read counts."""

import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from luabpf import bpf, drain, lib
from luabpf.callreport import Table

_TICK_HZ = 499  # samples of CPU time; prime, not in step with anything
_DECIDE_S = 0.5
_POINTS = 65536

_PROBES = {"points": "lb_points", "states": "lb_call_states",
           "calls": "lb_calls", "edges": "lb_edges",
           "counters": "lb_call_counters"}

OUTSIDE = "[C]"  # a caller that is no Lua frame


class Pattern:
    """Which functions are wanted; see the man page on what is compared."""

    def __init__(self, patterns: Sequence[str], is_regex: bool) -> None:
        """Raises re.error for a bad regular expression."""
        self._is_regex = is_regex
        self._is_all = all(text == "*" for text in patterns)
        self._parts = [re.compile(text if is_regex else
                                  re.escape(text).replace(r"\*", ".*"))
                       for text in patterns]

    @property
    def is_all(self) -> bool:
        """Does it match whatever the function is called?"""
        return self._is_all

    @staticmethod
    def places(text: str) -> List[str]:
        """What a pattern with `*` can match of `name@chunk:line`."""
        name, _, place = text.partition("@")
        chunk, _, line = place.rpartition(":")
        if not line.isdigit():
            chunk = place
        found = [text, name]
        for path in dict.fromkeys((chunk, chunk.rpartition("/")[2])):
            if path:
                found.append(path)
                if line.isdigit():
                    found.append(f"{path}:{line}")
        return found

    def matches(self, text: str) -> bool:
        """Is the function with this text wanted?"""
        if self._is_regex:
            return any(part.search(text) for part in self._parts)
        places = self.places(text)
        return any(part.fullmatch(place)
                   for part in self._parts for place in places)


@dataclass(frozen=True)
class Options:
    """What to count."""

    what: int  # lib.CALLS_OF_*
    pattern: Pattern
    callers: bool
    stacks: bool
    room: int  # functions, and pairs of them
    tids: bool


class Counting:
    """Calls of a run; a context manager that attaches and detaches."""

    def __init__(self, session: lib.Session, program: bpf.Program,
                 options: Options, room: lib.Needs) -> None:
        self._session, self._options = session, options
        program.load("perf_event", ["lua_fn_count_tick"])
        flags = lib.CONFIG_OFF | lib.CONFIG_USER
        if options.callers:
            flags |= lib.CONFIG_CALLERS
        if options.stacks:
            drain.connect(session, program, "uprobe", ["lua_fn_count_call"],
                          room, flags)
        else:
            program.load("uprobe", ["lua_fn_count_call"])
            program.load("raw_tracepoint", ["lb_exec"])
            drain.start(session, program, {}, room, flags)
        fds = {name: program.map_fd(table) for name, table in _PROBES.items()}
        fds["program"] = program.fd("lua_fn_count_call")
        self._calls = lib.Calls(session, fds, options.what)
        self._program = program
        self._before: Optional[lib.CallTotals] = None
        self._decided = 0.0

    def __enter__(self) -> "Counting":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._calls.__exit__()

    def attach(self) -> int:
        """Put the probes in place; how many. Nothing is counted yet."""
        count = self._calls.attach()
        self._program.attach_exec("lb_exec")
        self._program.attach_timer("lua_fn_count_tick", _TICK_HZ, 0, None)
        return count

    def begin(self) -> None:
        """Count from now on."""
        self._calls.switch(True)
        self._decided = time.monotonic()

    def end(self) -> None:
        """Do not count any more; take what is still to be read."""
        self._calls.switch(False)
        self._session.poll(0)

    def follow(self) -> None:
        """To be called often: new processes, new functions."""
        now = time.monotonic()
        if now - self._decided < _DECIDE_S:
            return
        self._decided = now
        self._calls.attach()
        if not self._options.pattern.is_all:
            self._decide()

    def _decide(self) -> None:
        pending = [f for f in self._calls.functions() if not f.is_decided]
        if not pending:
            return
        self._calls.name()
        for function in self._calls.functions():
            if not function.is_decided:
                self._calls.decide(
                    function, self._options.pattern.matches(function.text))

    def table(self) -> Table:
        """Counts since the last table."""
        self._calls.read()
        self._calls.name()
        if not self._options.pattern.is_all:
            self._decide()
        functions = list(self._calls.functions())
        rows: Counter[str] = Counter()
        if self._options.callers:
            for edge in self._calls.edges():
                callee = functions[edge.callee]
                if callee.is_wanted and edge.count:
                    caller = OUTSIDE if edge.caller is None else \
                        functions[edge.caller].text
                    rows[f"{caller} -> {callee.text}"] += edge.count
        else:
            for function in functions:
                if function.is_wanted and function.count:
                    rows[function.text] += function.count
        totals = self._calls.totals()
        table = Table(dict(rows), totals, self._before)
        self._before = totals
        return table

    def stacks(self, per_pid: bool) -> List[Tuple[str, int, int]]:
        """Each different stack of a wanted call: text, calls, PID or 0."""
        self._session.stop()
        flags = lib.FOLD_PER_PID if per_pid else 0
        return [(text, count, pid)
                for text, count, pid in self._session.folded(flags)
                if self._options.pattern.matches(text.rpartition(";")[2])]


def load(options: Options, room: lib.Needs) -> bpf.Program:
    """Compile the program. Raises Fail."""
    more = {"LB_FN_STACKS": 1} if options.stacks else {}
    return bpf.Program("lua_fn_count", {
        **drain.defines(room, options.room), **more,
        "LB_CALLS": options.room, "LB_POINTS": _POINTS})
