# SPDX-License-Identifier: Apache-2.0
"""What the program lua_gc_latency counts, as Python values.

Layouts are those of lb_wire.h; lib.check_size() compares their sizes. Knows
nothing of BCC: it takes the bytes of maps.
"""

import struct
from dataclasses import dataclass, field
from typing import (Callable, Dict, Iterable, Iterator, List, Mapping,
                    Optional, Sequence, Tuple)

from luabpf import lib

PHASES = ("mark roots", "propagate", "atomic", "sweep strings", "sweep",
          "finalize")
# one letter each, for the column PHASES of events; N: finalizers
LETTERS = "RPATSF"
ENTRIES = ("step", "trace", "full", "asked")
ALL_PHASES = len(PHASES)

# enum lb_gc_point of helpers/gcprobes.h, by program
PROGRAMS = ("gc_step_entry", "gc_step_exit", "gc_trace_entry",
            "gc_trace_exit", "gc_api_entry", "gc_api_exit",
            "gc_finalizer_entry", "gc_finalizer_exit",
            "gc_phase_0", "gc_phase_1", "gc_phase_2", "gc_phase_3",
            "gc_phase_4", "gc_phase_5")

# enum lb_gc_flag
EVENTS, HIST_PHASES, STACKS, ON = 1, 2, 4, 8

# enum lb_gc_counter
COUNTERS = ("thrown", "pending", "read", "full", "ring")

_LOG2 = 40
_FINE = 328
_KEY = struct.Struct("<QIIIHH")
_VAL = struct.Struct(f"<3Q2Q2QQQ6Q3Q2Q{_LOG2}I{_FINE}I")
_CONFIG = struct.Struct("<QQQII")
_EVENT = struct.Struct("<QQQQQ6QQQQQIIIBBBx")
_SAMPLES = struct.Struct("<3Q6Q")


def check_sizes() -> None:
    """Raise Fail when the library was built from other structs."""
    for name, layout in (("lb_gc_key", _KEY), ("lb_gc_val", _VAL),
                         ("lb_gc_config", _CONFIG), ("lb_gc_event", _EVENT),
                         ("lb_gc_samples", _SAMPLES)):
        lib.check_size(name, layout.size)


def config(min_ns: int, unit_ns: int, epoch: int, flags: int) -> bytes:
    """struct lb_gc_config."""
    return _CONFIG.pack(min_ns, unit_ns, epoch, flags, 0)


@dataclass(frozen=True)
class Key:
    """What pauses are counted apart by; see struct lb_gc_key."""

    g_addr: int
    pid: int
    tid: int
    entry: str
    phase: int  # index in PHASES, or ALL_PHASES
    vm: int


@dataclass(frozen=True)
class Pauses:
    """Pauses of an interval; times in nanoseconds, heap in bytes."""

    count: int = 0
    wall: int = 0
    cpu: int = 0
    most: int = 0
    n_finalizers: int = 0
    finalizers: int = 0
    phases: Tuple[int, ...] = (0,) * len(PHASES)
    cycles: int = 0
    timed_cycles: int = 0
    cycles_ns: int = 0
    log2: Tuple[int, ...] = (0,) * _LOG2
    fine: Tuple[int, ...] = (0,) * _FINE

    def __add__(self, other: "Pauses") -> "Pauses":
        return Pauses(
            self.count + other.count, self.wall + other.wall,
            self.cpu + other.cpu, max(self.most, other.most),
            self.n_finalizers + other.n_finalizers,
            self.finalizers + other.finalizers,
            _add(self.phases, other.phases), self.cycles + other.cycles,
            self.timed_cycles + other.timed_cycles,
            self.cycles_ns + other.cycles_ns, _add(self.log2, other.log2),
            _add(self.fine, other.fine))


def _add(a: Sequence[int], b: Sequence[int]) -> Tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b))


def _sub(a: Sequence[int], b: Sequence[int]) -> Tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b))


def _key(raw: bytes) -> Key:
    g_addr, pid, tid, entry, phase, vm = _KEY.unpack(raw)
    return Key(g_addr, pid, tid, ENTRIES[entry], phase, vm)


@dataclass
class Interval:
    """What came since the one before."""

    pauses: Dict[Key, Pauses] = field(default_factory=dict)
    seconds: float = 0.0
    # heap of each VM (PID, VM, global_State): before its first pause of the
    # run, and after the last
    heaps: Dict[Tuple[int, int, int], Tuple[int, int]] = \
        field(default_factory=dict)

    def group(self, by: Callable[[Key], Tuple[object, ...]],
              phases: bool = False) -> Dict[Tuple[object, ...], Pauses]:
        """Pauses added up by what BY gives; of PHASES, or whole ones."""
        groups: Dict[Tuple[object, ...], Pauses] = {}
        for key, pauses in self.pauses.items():
            if (key.phase != ALL_PHASES) == phases and pauses.count:
                name = by(key)
                groups[name] = groups.get(name, Pauses()) + pauses
        return groups

    def total(self) -> Pauses:
        """All whole pauses."""
        return self.group(lambda _key: ()).get((), Pauses())


class Counts:
    """Differences between what the kernel has counted from time to time."""

    def __init__(self) -> None:
        self._before: Dict[bytes, Tuple[int, ...]] = {}

    def take(self, items: Iterable[Tuple[bytes, bytes]], epoch: int,
             seconds: float) -> Interval:
        """ITEMS of the map gc_vals at the end of interval EPOCH."""
        interval = Interval(seconds=seconds)
        for raw_key, raw in items:
            now = _VAL.unpack(raw)
            before = self._before.get(raw_key, (0,) * len(now))
            self._before[raw_key] = now
            key = _key(raw_key)
            interval.pauses[key] = _difference(now, before, epoch)
            if key.phase == ALL_PHASES:
                vm = (key.pid, key.vm, key.g_addr)
                first, last = now[18:20]
                old = interval.heaps.get(vm)
                interval.heaps[vm] = (old[0] if old else first, last)
        return interval


def count(items: Iterable[Tuple[bytes, bytes]]) -> int:
    """All pauses in the map gc_vals."""
    return sum(_VAL.unpack(raw)[0] for key, raw in items
               if _key(key).phase == ALL_PHASES)


def _difference(now: Tuple[int, ...], before: Tuple[int, ...],
                epoch: int) -> Pauses:
    half = epoch & 1
    most = now[3 + half] if now[5 + half] == epoch else 0
    d = _sub(now, before)
    return Pauses(d[0], d[1], d[2], most, d[7], d[8], d[9:15], d[15], d[16],
                  d[17], d[20:20 + _LOG2], d[20 + _LOG2:])


@dataclass(frozen=True)
class Event:
    """One pause; times in nanoseconds, heap in bytes."""

    begin: int
    g_addr: int
    wall: int
    cpu: int
    finalizers: int
    phases: Tuple[int, ...]
    heap_before: int
    heap_after: int
    stack: int  # its hash, 0: not walked
    leaf: int
    pid: int
    tid: int
    n_finalizers: int
    entry: str
    phase_before: int
    phase_after: int

    @classmethod
    def decode(cls, raw: bytes) -> "Event":
        """struct lb_gc_event."""
        f = _EVENT.unpack_from(raw)
        return cls(f[0], f[1], f[2], f[3], f[4], f[5:11], f[11], f[12],
                   f[13], f[14], f[15], f[16], f[17], ENTRIES[f[18]], f[19],
                   f[20])


@dataclass(frozen=True)
class Samples:
    """Samples of one process; see struct lb_gc_samples."""

    all: int = 0
    known: int = 0
    in_gc: int = 0
    phases: Tuple[int, ...] = (0,) * len(PHASES)

    def __add__(self, other: "Samples") -> "Samples":
        return Samples(self.all + other.all, self.known + other.known,
                       self.in_gc + other.in_gc,
                       _add(self.phases, other.phases))

    def __sub__(self, other: "Samples") -> "Samples":
        return Samples(self.all - other.all, self.known - other.known,
                       self.in_gc - other.in_gc,
                       _sub(self.phases, other.phases))

    @classmethod
    def decode(cls, raw: bytes) -> "Samples":
        """struct lb_gc_samples."""
        f = _SAMPLES.unpack(raw)
        return cls(f[0], f[1], f[2], f[3:])


def counters(values: Mapping[int, int]) -> Dict[str, int]:
    """Counters of the program, by name."""
    # one that goes down on another CPU than up: modulo 2^64
    return {name: values.get(i, 0) & (1 << 64) - 1
            for i, name in enumerate(COUNTERS)}


def share_error(part: int, total: int) -> float:
    """Half width of the 95 % interval of a share, in its own unit.

    Wilson's, which holds for shares near 0 and for few samples, too.
    """
    if not total:
        return 1.0
    z2 = 1.96 * 1.96
    p = part / total
    return float(1.96 * (p * (1 - p) / total + z2 / (4 * total * total)) ** .5
                 / (1 + z2 / total))


def letters(event: Event) -> str:
    """Phases of one pause in per cent of it, such as `P71A20S9`."""
    parts: List[str] = []
    spent: Iterator[Tuple[str, int]] = iter(
        [*zip(LETTERS, event.phases), ("N", event.finalizers)])
    for letter, ns in spent:
        percent = round(100 * ns / event.wall) if event.wall else 0
        if percent:
            parts.append(f"{letter}{percent}")
    return "".join(parts) or "-"


def share(part: float, whole: float) -> Optional[float]:
    """PART of WHOLE in per cent; None of nothing."""
    return 100 * part / whole if whole else None
