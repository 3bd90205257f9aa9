# SPDX-License-Identifier: Apache-2.0
"""Run the program lua_gc_latency: load, attach, read what it counts."""

import os
import time
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from luabpf import bpf, cli, drain, gcreport, gcstat, lib

_PROCS = 1024
_KEYS = 4096
_RING_PAGES = 1024
_STACKS = 65536
_MANY = 2000  # pauses a second
_DEPTH_MAX = 64  # generations of --tree


def _children(pid: int) -> List[int]:
    found: List[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            path = f"/proc/{pid}/task/{task}/children"
            with open(path, encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:  # it has exited
        pass
    return found


def descendants(pids: List[int]) -> List[int]:
    """Processes below PIDS, these left out."""
    found: List[int] = []
    level = pids
    for _generation in range(_DEPTH_MAX):
        level = [child for pid in level for child in _children(pid)]
        if not level:
            break
        found += level
    return found


def cpu_ns(pid: int) -> int:
    """CPU time of a process, all its threads; 0 when it is gone."""
    try:
        # CPUCLOCK_SCHED of the process: see clock_getcpuclockid(3)
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return 0


class Targets:
    """The processes that are measured, and the CPU time they have used."""

    def __init__(self, collector: lib.Collector, pids: List[int],
                 tree: bool, session: Optional[lib.Session]) -> None:
        self._collector = collector
        self._session = session
        self._pids = pids
        self._tree = tree
        self._cpu: Dict[int, int] = {}
        self._base: Dict[int, int] = {}

    def add(self) -> None:
        """Add what was asked for. Raises lib.Error."""
        found = 0
        error: Optional[lib.Error] = None
        for pid in self._pids:
            try:
                self._add(pid)
                found += 1
            except lib.Error as caught:
                # among several, one without a LuaJIT (a master) or gone by
                # now is no error
                if caught.code not in (lib.errno.ENOENT, lib.errno.ESRCH):
                    raise
                error = caught
        found += self.add_tree()
        if error and not found:
            raise error

    def _add(self, pid: int) -> None:
        self._collector.add_pid(pid)
        if pid not in self._cpu:
            if self._session:
                self._session.add_pid(pid, need_vm=False)
            self._cpu[pid] = self._base[pid] = cpu_ns(pid)

    def add_tree(self) -> int:
        """With --tree, add descendants; how many there are with a LuaJIT."""
        found = 0
        for pid in descendants(self._pids) if self._tree else []:
            try:
                self._add(pid)
                found += 1
            except lib.Error:
                continue
        return found

    def spent(self) -> int:
        """CPU time since the last call, nanoseconds."""
        total = 0
        for pid, before in self._base.items():
            now = max(cpu_ns(pid), self._cpu[pid])
            self._cpu[pid] = now
            total += now - before
        self._base = dict(self._cpu)
        return total

    def tell_ends(self) -> None:
        """Say which processes are not measured any longer, and why."""
        for text in self._collector.ends():
            cli.message(text)

    def is_open(self) -> bool:
        """Whether processes may come later."""
        return self._tree


def figures(collector: lib.Collector, interval: gcstat.Interval
            ) -> Dict[gcreport.Vm, lib.Figures]:
    """What each VM says of itself; those that are gone are left out."""
    found = {}
    for vm in interval.heaps:
        try:
            found[vm] = collector.read(*vm)
        except lib.Error:
            continue
    return found


class Exporter:
    """Adds up intervals for a file of Prometheus."""

    def __init__(self, path: str, unit: str) -> None:
        self._path = path
        self._unit = unit
        self._groups: Dict[Tuple[object, ...], gcstat.Pauses] = {}

    def write(self, interval: gcstat.Interval,
              of_vms: Mapping[gcreport.Vm, lib.Figures],
              counters: Mapping[str, int]) -> None:
        """All counts since the start into the file. Raises Fail."""
        for name, pauses in interval.group(
                lambda key: (key.pid, key.entry)).items():
            self._groups[name] = self._groups.get(name, gcstat.Pauses()) \
                + pauses
        try:
            gcreport.write_atomically(self._path, gcreport.prometheus(
                self._groups, self._unit, of_vms,
                counters["thrown"] + counters["pending"]))
        except OSError as error:
            raise cli.Fail(f"{self._path}: {error.strerror}",
                           hint="give a file in a folder that can be "
                           "written") from None


class Meter:
    """The loaded program; a context manager.

    With SESSION, the stack of each pause is walked.
    """

    def __init__(self, collector: lib.Collector, min_ns: int, unit_ns: int,
                 flags: int, session: Optional[lib.Session] = None,
                 is_open: bool = False) -> None:
        gcstat.check_sizes()
        self._collector = collector
        self._min_ns = min_ns
        self._unit_ns = unit_ns
        self._flags = flags
        self._epoch = 0
        self._has_events = False
        self._is_warned = False
        self._counts = gcstat.Counts()
        self._samples: Dict[bytes, gcstat.Samples] = {}
        self._programs: List[int] = []
        self._begin = self._start = time.monotonic()
        self._session = session
        self._room = lib.Needs(0, 0, 0, 0, 0)
        stacks: Dict[str, int] = {}
        if session:
            self._room = drain.table_room(session.needs(), is_open)
            stacks = {"LB_GC_STACKS": 1,
                      **drain.defines(self._room, _STACKS)}
        self._program = bpf.Program("lua_gc_latency", {
            **stacks,
            "LB_GC_PROCS": _PROCS, "LB_GC_KEYS": _KEYS,
            "LB_GC_RING_PAGES": _RING_PAGES,
            "LB_TASK_EXEC_START": lib.kernel_offset(
                "task_struct", "se.exec_start"),
            "LB_TASK_SUM_EXEC": lib.kernel_offset(
                "task_struct", "se.sum_exec_runtime")})

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._program.close()

    def _configure(self) -> None:
        self._program.map_put("gc_configs", bytes(4), gcstat.config(
            self._min_ns, self._unit_ns, self._epoch,
            self._flags | gcstat.ON))

    def attach_probes(self) -> None:
        """Load all programs, set the probes, begin to count."""
        program = self._program
        if self._session:
            drain.connect(self._session, program, "uprobe", gcstat.PROGRAMS,
                          self._room, lib.CONFIG_USER)
            program.attach_exec("lb_exec")
        else:
            program.load("uprobe", gcstat.PROGRAMS)
        self._programs = [program.fd(name) for name in gcstat.PROGRAMS]
        self.follow()
        self._begin = self._start = time.monotonic()
        self._configure()

    def attach_samples(self, rate: int) -> None:
        """Take RATE samples a second and CPU, without any probe."""
        program = self._program
        program.load("perf_event", ["gc_sample"])
        self.follow()
        self._begin = time.monotonic()
        self._configure()
        program.attach_timer("gc_sample", rate, 0, None)

    def follow(self) -> None:
        """Set probes in processes added since the last call."""
        try:
            self._collector.attach(self._program.map_fd("gc_procs"),
                                   self._programs)
        except lib.Error as error:
            raise cli.Fail(str(error), hint="uprobes need root, and a kernel "
                           "with CONFIG_UPROBE_EVENTS") from None

    def on_event(self, take: Callable[[gcstat.Event], None]) -> None:
        """Have TAKE called with each event, by take_events()."""
        self._has_events = True
        self._program.open_ring(
            "gc_ring", lambda raw: take(gcstat.Event.decode(raw)))

    def take_events(self) -> None:
        """Hand on the events that came since the last call."""
        if self._session:
            self._session.poll(0)
        if self._has_events:
            self._program.take_ring()

    def stack(self, event: gcstat.Event) -> List[str]:
        """Frames of the stack of an event, leaf first."""
        text = self._session.stack(event.stack, event.leaf, 0) \
            if self._session and event.stack else ""
        return list(reversed(text.split(";")[1:])) or ["[no stack]"]

    def folded(self) -> List[Tuple[str, int, int]]:
        """End walking; each different stack with its nanoseconds."""
        if not self._session:
            return []
        self._session.stop()
        return list(self._session.folded(0))

    def _next_interval(self) -> Tuple[int, float]:
        epoch = self._epoch
        self._epoch += 1
        self._configure()
        now = time.monotonic()
        seconds, self._begin = now - self._begin, now
        return epoch, seconds

    def interval(self) -> gcstat.Interval:
        """End an interval and begin the next; what was counted in it."""
        epoch, seconds = self._next_interval()
        return self._counts.take(self._program.map_items("gc_vals"), epoch,
                                 seconds)

    def warn_once(self) -> None:
        """Say so if the probes may slow the target down a lot."""
        if self._is_warned or not self._programs:
            return
        self._is_warned = True
        rate = gcstat.count(self._program.map_items("gc_vals")) / max(
            time.monotonic() - self._start, 1e-3)
        if rate > _MANY:
            cli.message(f"{rate:.0f} pauses a second: the probes cost the "
                        "target some 15 to 60 us for each; --sample does not")

    def samples(self) -> gcstat.Samples:
        """Samples since the last call."""
        self._next_interval()
        total = gcstat.Samples()
        for key, raw in self._program.map_items("gc_samples"):
            now = gcstat.Samples.decode(raw)
            total += now - self._samples.get(key, gcstat.Samples())
            self._samples[key] = now
        return total

    def counters(self) -> Dict[str, int]:
        """What was not counted, since the start, by name."""
        return gcstat.counters(self._program.counters("gc_counters"))
