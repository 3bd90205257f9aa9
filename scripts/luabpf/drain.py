# SPDX-License-Identifier: Apache-2.0
"""Hand the descriptors of a loaded program to the C core, and run it.

The loops over samples are in C (helpers/drain.c); this file starts them.
"""

import signal
import time
from types import FrameType
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from luabpf import bpf, lib

_MAPS = {"rows": "lb_rows", "blocks": "lb_blocks", "rules": "lb_rules",
         "procs": "lb_procs", "tids": "lb_tids", "unknown": "lb_unknown",
         "counts": "lb_counts", "config": "lb_configs",
         "counters": "lb_counters", "ring": "lb_ring", "progs": "lb_progs"}

# enum lb_prog
_SLOTS = {"lb_walk": 0, "lb_names": 1, "lb_walk32": 2}

_POLL_MS = 100
_RING_PAGES = 1024

_HEADROOM = lib.Needs(rows=1 << 18, blocks=1 << 17, rules=1 << 13, procs=8)
_HEADROOM_OPEN = lib.Needs(rows=1 << 20, blocks=1 << 19, rules=1 << 16,
                           procs=512)


def defines(room: lib.Needs, stacks: int) -> Dict[str, int]:
    """What a program with the walker is compiled with."""
    more = {"LB_REF32": 1} if room.ref32 else {}
    return {"LB_ROWS": room.rows, "LB_BLOCKS": room.blocks,
            "LB_RULES": room.rules, "LB_PROCS": room.procs,
            "LB_STACKS": stacks, "LB_RING_PAGES": _RING_PAGES, **more}


def walker(room: lib.Needs) -> List[str]:
    """The programs that walk."""
    return [name for name in _SLOTS if room.ref32 or name != "lb_walk32"]


def connect(session: lib.Session, program: bpf.Program, kind: str,
            functions: Sequence[str], room: lib.Needs, flags: int) -> None:
    """Load the walker and FUNCTIONS, all of KIND; give them tables and
    processes."""
    program.load(kind, [*walker(room), *functions])
    program.load("raw_tracepoint", ["lb_exec"])
    slots = {_SLOTS[name]: program.fd(name) for name in walker(room)}
    start(session, program, slots, room, flags)


def start(session: lib.Session, program: bpf.Program,
          slots: Mapping[int, int], room: lib.Needs, flags: int) -> None:
    """Give a loaded program its tables; SLOTS: programs by tail call slot."""
    fds = {name: program.map_fd(table) for name, table in _MAPS.items()}
    session.start(fds, slots, room, flags)


def table_room(needs: lib.Needs, is_open: bool) -> lib.Needs:
    """Sizes of the tables: what is needed now and room for what may come."""
    more = _HEADROOM_OPEN if is_open else _HEADROOM
    return lib.Needs(needs.rows + more.rows, needs.blocks + more.blocks,
                     needs.rules + more.rules, needs.procs + more.procs,
                     needs.ref32 or int(is_open))


class Ending:
    """SIGINT and SIGTERM end a run normally; a context manager."""

    def __init__(self) -> None:
        self.asked = False
        self._old: List[object] = []

    def _ask(self, _number: int, _frame: Optional[FrameType]) -> None:
        self.asked = True

    def __enter__(self) -> "Ending":
        self._old = [signal.signal(number, self._ask)
                     for number in (signal.SIGINT, signal.SIGTERM)]
        return self

    def __exit__(self, *_exc: object) -> None:
        for number, old in zip((signal.SIGINT, signal.SIGTERM), self._old):
            signal.signal(number, old)  # type: ignore[arg-type]


def run(session: lib.Session, ending: Ending, duration: Optional[float],
        until_gone: bool, tick: Callable[[float], None]) -> None:
    """Drain until DURATION seconds, a signal, or the last process is gone.

    TICK gets the seconds so far, a few times a second.
    """
    begin = time.monotonic()
    while not ending.asked:
        spent = time.monotonic() - begin
        if duration is not None and spent >= duration:
            break
        if until_gone and not session.alive():
            break
        left = _POLL_MS if duration is None else \
            min(_POLL_MS, int((duration - spent) * 1000) + 1)
        session.poll(left)
        tick(time.monotonic() - begin)
