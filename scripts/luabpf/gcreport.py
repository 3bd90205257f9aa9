# SPDX-License-Identifier: Apache-2.0
"""Text of lua-gc-latency's reports: same input, same bytes."""

import json
import os
import time
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from luabpf import gcstat, hist
from luabpf.gcstat import Event, Interval, Pauses, Samples
from luabpf.lib import Figures, Totals

_UNITS = {"nsecs": 1, "usecs": 1000, "msecs": 1000000}
_PERCENTS = (50, 99, 99.9)
_KB = 1024
# LJ_MAX_MEM: a threshold out of reach, the program has stopped the collector
_STOPPED = (1 << 47, 0x7fffff00)
Vm = Tuple[int, int, int]  # PID, index of its build, global_State


def unit_ns(unit: str) -> int:
    """Nanoseconds of a unit ("usecs")."""
    return _UNITS[unit]


@dataclass(frozen=True)
class Account:
    """What an interval is compared with."""

    cpu_ns: int  # CPU time of the processes
    figures: Mapping[Vm, Figures]


def number(ns: float, unit: str) -> str:
    """A time in UNIT, without it."""
    digits = {"nsecs": 0, "usecs": 1, "msecs": 3}[unit]
    return f"{ns / _UNITS[unit]:.{digits}f}"


def _percent(part: float, whole: float) -> str:
    share = gcstat.share(part, whole)
    return "-" if share is None else f"{share:.1f} %"


def histogram(pauses: Pauses, unit: str) -> List[str]:
    """Histogram of one group, and the lines of figures below it."""
    lines = hist.log2_lines(pauses.log2, unit)
    lines += ["", f"avg = {number(pauses.wall / pauses.count, unit)} {unit}, "
              f"total: {number(pauses.wall, unit)} {unit}, "
              f"count: {pauses.count}"]
    points = [f"p{p:g} = " + number(hist.percentile(pauses.fine, p,
                                                    pauses.most), unit)
              for p in _PERCENTS]
    lines.append(f"max = {number(pauses.most, unit)}, "
                 f"{', '.join(points)} {unit}")
    return lines


def _wrapped(title: str, parts: Sequence[str]) -> List[str]:
    lines = [f"{title:<8}"]
    for i, part in enumerate(parts):
        text = part + ("," if i + 1 < len(parts) else "")
        if len(lines[-1]) + 1 + len(text) > 79:
            lines.append(" " * 8)
        lines[-1] += " " + text
    return lines


def _entries(interval: Interval, total: Pauses) -> List[str]:
    groups = interval.group(lambda key: (key.entry,))
    return [f"{name} {group.count} ({_percent(group.wall, total.wall)})"
            for name in gcstat.ENTRIES
            for group in [groups.get((name,), Pauses())] if group.count]


def _phases(total: Pauses) -> List[str]:
    parts = [f"{name} {_percent(ns, total.wall)}"
             for name, ns in zip(gcstat.PHASES, total.phases) if ns]
    if total.n_finalizers:
        parts.append(f"finalizers {_percent(total.finalizers, total.wall)} "
                     f"({total.n_finalizers} calls)")
    return parts


def _heaps(interval: Interval, account: Account) -> List[str]:
    first = sum(heap[0] for heap in interval.heaps.values())
    last = sum(heap[1] for heap in interval.heaps.values())
    parts = [f"{first // _KB} KB before the first pause",
             f"{last // _KB} KB after the last"]
    figures = [account.figures[vm] for vm in interval.heaps
               if vm in account.figures]
    stopped = [f for f in figures if f.threshold in _STOPPED]
    going = [f for f in figures if f not in stopped]
    if going:
        parts += [f"threshold {sum(f.threshold for f in going) // _KB} KB",
                  f"debt {sum(f.debt for f in going) // _KB} KB"]
    if stopped:
        parts.append("stopped" if not going else f"{len(stopped)} stopped")
    if len(interval.heaps) > 1:
        parts.append(f"{len(interval.heaps)} VMs")
    return parts


def summary(interval: Interval, account: Account, unit: str) -> List[str]:
    """What all pauses of an interval come to."""
    total = interval.total()
    threads = len({(key.pid, key.tid) for key, pauses
                   in interval.pauses.items() if pauses.count})
    shares = [f"{_percent(total.wall, interval.seconds * 1e9 * threads)} of "
              f"the wall time of {threads} thread{'s' * (threads != 1)}",
              f"{_percent(total.cpu, account.cpu_ns)} of CPU time",
              f"off CPU {number(total.wall - total.cpu, unit)} {unit}"]
    cycles = [f"{total.cycles} completed"]
    if total.timed_cycles:
        cycles.append(f"{number(total.cycles_ns / total.timed_cycles, unit)} "
                      f"{unit} from begin to end on average")
    lines: List[str] = []
    for title, parts in (("share:", shares),
                         ("entries:", _entries(interval, total)),
                         ("phases:", _phases(total)),
                         ("cycles:", cycles),
                         ("heap:", _heaps(interval, account))):
        lines += _wrapped(title, parts)
    return lines


def groups_of(interval: Interval, by: Optional[str], per_thread: bool
              ) -> Dict[Tuple[object, ...], Pauses]:
    """Pauses by what was asked for; names as printed."""
    def name(key: gcstat.Key) -> Tuple[object, ...]:
        parts: List[object] = []
        if per_thread:
            parts += [f"pid = {key.pid}", f"tid = {key.tid}"]
        if by == "entry":
            parts.append(f"entry = {key.entry}")
        elif by == "phase":
            parts.append(f"phase = {gcstat.PHASES[key.phase]}")
        elif by == "vm":
            if not per_thread:
                parts.append(f"pid = {key.pid}")
            parts.append(f"vm = 0x{key.g_addr:x}")
        return tuple(parts)

    return interval.group(name, phases=by == "phase")


def text(interval: Interval, account: Account, unit: str, by: Optional[str],
         per_thread: bool) -> List[str]:
    """Report of one interval."""
    lines: List[str] = []
    groups = groups_of(interval, by, per_thread)
    for name in sorted(groups, key=lambda n: (groups[n].wall, str(n))):
        if name:
            lines += ["", ", ".join(str(part) for part in name)]
        lines += histogram(groups[name], unit)
    if not groups:
        return ["no pause in this interval"]
    return lines + [""] + summary(interval, account, unit)


# ---- JSON ----

def _pauses_json(pauses: Pauses, unit: str) -> Dict[str, object]:
    result: Dict[str, object] = {
        "count": pauses.count, "total_ns": pauses.wall,
        "max_ns": pauses.most, "cpu_ns": pauses.cpu,
        "avg_ns": round(pauses.wall / pauses.count) if pauses.count else 0}
    for percent in _PERCENTS:
        result[f"p{percent:g}_ns"] = round(
            hist.percentile(pauses.fine, percent, pauses.most))
    used = [n for n, count in enumerate(pauses.log2) if count]
    result["log2"] = {"unit": unit,
                      "counts": list(pauses.log2[:used[-1] + 1])
                      if used else []}
    return result


def json_lines(interval: Interval, account: Account, unit: str,
               by: Optional[str], per_thread: bool, now: float) -> List[str]:
    """One object for each group, then one for the interval."""
    lines = []
    for name, pauses in sorted(groups_of(interval, by, per_thread).items(),
                               key=lambda item: str(item[0])):
        if not name:
            continue
        group = dict(str(part).split(" = ", 1) for part in name)
        lines.append({"type": "group", "time": round(now, 3), **group,
                      **_pauses_json(pauses, unit)})
    total = interval.total()
    lines.append({
        "type": "interval", "time": round(now, 3),
        "seconds": round(interval.seconds, 6),
        "process_cpu_ns": account.cpu_ns, **_pauses_json(total, unit),
        "entries": {key[0]: group.count for key, group in
                    interval.group(lambda key: (key.entry,)).items()},
        "phases_ns": dict(zip(gcstat.PHASES, total.phases)),
        "finalizers": total.n_finalizers,
        "finalizers_ns": total.finalizers,
        "cycles": total.cycles, "timed_cycles": total.timed_cycles,
        "cycles_ns": total.cycles_ns,
        "heap_before": sum(h[0] for h in interval.heaps.values()),
        "heap_after": sum(h[1] for h in interval.heaps.values()),
        "threshold": sum(f.threshold for f in account.figures.values()),
        "debt": sum(f.debt for f in account.figures.values())})
    return [json.dumps(line) for line in lines]


# ---- events ----

EVENT_HEADER = (f"{'TIME':<8} {'PID':<7} {'TID':<7} {'PAUSE':>9} "
                f"{'ENTRY':<5} {'HEAP_KB':>8} {'FREED_KB':>8} PHASES")


def wall_time(monotonic_ns: int) -> float:
    """Seconds since the epoch of a time of CLOCK_MONOTONIC."""
    return time.time() + (monotonic_ns - time.monotonic_ns()) / 1e9


def event_line(event: Event, unit: str, now: float) -> str:
    """One line of the event mode; NOW is when it began."""
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    return (f"{clock} {event.pid:<7} {event.tid:<7} "
            f"{number(event.wall, unit):>9} {event.entry:<5} "
            f"{event.heap_before // _KB:>8} "
            f"{(event.heap_before - event.heap_after) // _KB:>8} "
            f"{gcstat.letters(event)}")


def event_json(event: Event, now: float, frames: Sequence[str] = ()) -> str:
    """One pause as a JSON object."""
    return json.dumps({
        "type": "pause", "time": round(now, 6), "pid": event.pid,
        "tid": event.tid, "vm": f"0x{event.g_addr:x}", "entry": event.entry,
        "pause_ns": event.wall, "cpu_ns": event.cpu,
        "phase_before": gcstat.PHASES[event.phase_before],
        "phase_after": gcstat.PHASES[event.phase_after],
        "phases_ns": dict(zip(gcstat.PHASES, event.phases)),
        "finalizers": event.n_finalizers, "finalizers_ns": event.finalizers,
        "heap_before": event.heap_before, "heap_after": event.heap_after,
        **({"stack": list(frames)} if frames else {})})


def stack_lines(frames: Sequence[str]) -> List[str]:
    """The stack below the line of an event, leaf first."""
    return ["    " + frame for frame in frames] + [""]


def folded(stacks: Sequence[Tuple[str, int, int]], unit: str
           ) -> List[Tuple[str, int, int]]:
    """Nanoseconds of stacks in UNIT, at least 1."""
    return [(text, max(1, round(ns / _UNITS[unit])), pid)
            for text, ns, pid in stacks]


def stacks_line(totals: Totals) -> str:
    """What became of the walks, by their time."""
    parts = [f"{_percent(totals.complete, totals.samples)} of the time "
             "complete"]
    for word, ns in sorted(totals.by_reason.items()):
        parts.append(f"{_percent(ns, totals.samples)} failed ({word})")
    if totals.truncated:
        parts.append(f"{_percent(totals.truncated, totals.samples)} truncated")
    lost = totals.lost_storage + totals.lost_ring
    return "stacks: " + ", ".join(parts) + f"; {lost} lost"


# ---- samples ----

def sample_lines(samples: Samples) -> List[str]:
    """Shares of CPU time, each with the half width of its 95 % interval."""
    if not samples.known:
        return [f"{samples.all} samples, none in a thread whose VM is known"]

    def row(name: str, part: int) -> str:
        error = 100 * gcstat.share_error(part, samples.known)
        share = 100 * part / samples.known
        return f"{name:<16} {share:8.2f} {error:8.2f} {part:8}"

    lines = [f"{'STATE':<16} {'CPU%':>8} {'+-':>8} {'SAMPLES':>8}"]
    lines += [row(name, count) for name, count
              in zip(gcstat.PHASES, samples.phases) if count]
    lines.append(row("all of the GC", samples.in_gc))
    unknown = samples.all - samples.known
    lines += ["", f"{samples.known} samples; {unknown} more in threads whose "
              "VM was not known"]
    return lines


def sample_json(samples: Samples, now: float) -> str:
    """The same as a JSON object."""
    return json.dumps({
        "type": "samples", "time": round(now, 3), "all": samples.all,
        "known": samples.known, "gc": samples.in_gc,
        "phases": dict(zip(gcstat.PHASES, samples.phases)),
        "gc_share": samples.in_gc / samples.known if samples.known else None,
        "gc_share_error": gcstat.share_error(samples.in_gc, samples.known)})


# ---- Prometheus ----

def _metric(name: str, kind: str, text_of: str) -> List[str]:
    return [f"# HELP {name} {text_of}", f"# TYPE {name} {kind}"]


def prometheus(groups: Mapping[Tuple[object, ...], Pauses], unit: str,
               figures: Mapping[Vm, Figures], dropped: int) -> str:
    """Text format of all pauses since the start, by (PID, entry)."""
    name = "luajit_gc_pause_seconds"
    lines = _metric(name, "histogram", "Time one thread was held by the "
                    "garbage collector.")
    scale = _UNITS[unit] / 1e9
    for (pid, entry), pauses in sorted(groups.items(), key=str):
        label = f'pid="{pid}",entry="{entry}"'
        below = 0
        for slot, count in enumerate(pauses.log2):
            below += count
            if slot < 32:
                lines.append(f'{name}_bucket{{{label},le="'
                             f'{(2 << slot) * scale:.9g}"}} {below}')
        lines += [f'{name}_bucket{{{label},le="+Inf"}} {pauses.count}',
                  f"{name}_sum{{{label}}} {pauses.wall / 1e9:.9f}",
                  f"{name}_count{{{label}}} {pauses.count}"]
    by_pid: Dict[object, Pauses] = {}
    for (pid, _entry), pauses in groups.items():
        by_pid[pid] = by_pid.get(pid, Pauses()) + pauses
    lines += _per_pid(by_pid)
    lines += _metric("luajit_heap_bytes", "gauge",
                     "Heap of a VM as its collector counts it.")
    lines += [f'luajit_heap_bytes{{pid="{vm[0]}",vm="0x{vm[2]:x}"}} '
              f"{figure.heap}" for vm, figure in sorted(figures.items())]
    lines += _metric("luajit_gc_pauses_dropped_total", "counter",
                     "Pauses that an error was thrown through.")
    lines.append(f"luajit_gc_pauses_dropped_total {dropped}")
    return "\n".join(lines) + "\n"


def _per_pid(by_pid: Mapping[object, Pauses]) -> List[str]:
    pids = sorted(by_pid.items(), key=str)
    name = "luajit_gc_phase_seconds_total"
    lines = _metric(name, "counter", "Time in each phase, finalizers apart.")
    for pid, pauses in pids:
        for phase, ns in [*zip(gcstat.PHASES, pauses.phases),
                          ("finalizers", pauses.finalizers)]:
            lines.append(f'{name}{{pid="{pid}",phase="'
                         f'{phase.replace(" ", "_")}"}} {ns / 1e9:.9f}')
    for name, text_of, values in (
            ("luajit_gc_cycles_total", "Completed cycles.",
             [(pid, str(p.cycles)) for pid, p in pids]),
            ("luajit_gc_finalizers_total", "Finalizers that were called.",
             [(pid, str(p.n_finalizers)) for pid, p in pids]),
            ("luajit_gc_cpu_seconds_total", "CPU time in pauses.",
             [(pid, f"{p.cpu / 1e9:.9f}") for pid, p in pids])):
        lines += _metric(name, "counter", text_of)
        lines += [f'{name}{{pid="{pid}"}} {value}' for pid, value in values]
    return lines


def write_atomically(path: str, content: str) -> None:
    """Put CONTENT in place of PATH, so that no reader sees a part of it."""
    folder, base = os.path.split(path)
    # node_exporter reads *.prom: this name must not match
    temporary = os.path.join(folder, f".{base}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except FileNotFoundError:
            pass
        raise


def closing_lines(pauses: int, counters: Mapping[str, int]) -> List[str]:
    """Account for every pause."""
    dropped = counters["thrown"] + counters["pending"]
    lost = counters["read"] + counters["full"]
    lines = [f"{pauses} pauses, {dropped} dropped (an error was thrown "
             f"through), {lost} lost"]
    if counters["full"]:
        lines.append(f"{counters['full']} lost: no room for another thread "
                     "or VM")
    if counters["read"]:
        lines.append(f"{counters['read']} lost: memory of the target could "
                     "not be read, or made no sense")
    if counters["ring"]:
        lines.append(f"{counters['ring']} events lost: they came faster than "
                     "they could be printed; use -M")
    return lines
