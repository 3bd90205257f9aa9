#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""lua-gc-latency - how long LuaJIT's garbage collector holds Lua code

Measures each pause of the collector in running processes: how long, in which
phase, what triggered it. Entry and exit probes only; never a return probe.
"""

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import List, Optional

_HERE = Path(__file__).resolve().parent
for _folder in (_HERE.parent / "scripts",
                _HERE.parent / "share" / "lua-bpf-tools"):
    if (_folder / "luabpf").is_dir():
        sys.path.insert(0, str(_folder))
        break

from luabpf import __version__, bpf, cli, drain, gcreport  # noqa: E402
from luabpf import gcrun, gcstat, lib, report  # noqa: E402
from luabpf.targets import HINTS  # noqa: E402

EXAMPLES = """examples:
  lua-gc-latency -p 185           # histogram of pauses, until Ctrl-C
  lua-gc-latency -p 185 5         # print and start anew every 5 seconds
  lua-gc-latency -p 185 -mT 1 10  # milliseconds, timestamps, 10 reports
  lua-gc-latency -p 185 --by phase 10    # time in each phase of a pause
  lua-gc-latency -p 185 -M 2      # each pause of 2 ms or more, as it happens
  lua-gc-latency -p 185 -M 2 -s   # with the stack that triggered each
  lua-gc-latency -p 185 -f 30 > out      # who pays: for flamegraph.pl
  lua-gc-latency -p "$(pgrep -d, nginx)" -L 10   # each thread apart
  lua-gc-latency -p 185 --tree -j 10     # with its children; JSON lines
  lua-gc-latency -p 185 --sample 99 30   # no probes: share by sampling
  lua-gc-latency -p 185 --prometheus /var/lib/node_exporter/luajit.prom 15
"""

_POLL_S = 0.05  # events, and signals, are looked at this often
_TICK_S = 1.0  # and processes


def parse_args(argv: List[str]) -> argparse.Namespace:
    """The command line; the letters are those of BCC's funclatency."""
    parser = argparse.ArgumentParser(
        prog="lua-gc-latency", epilog=EXAMPLES,
        description="Measure how long LuaJIT's garbage collector holds Lua "
        "code.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-p", "--pid", type=cli.pid_list, metavar="PIDS", required=not
        {"--ebpf"} & set(argv), help="these processes, comma separated")
    add("--tree", action="store_true",
        help="their descendants too, also those that are forked later")
    units = parser.add_mutually_exclusive_group()
    units.add_argument("-m", "--milliseconds", dest="unit", const="msecs",
                       action="store_const", help="times in milliseconds")
    units.add_argument("-n", "--nanoseconds", dest="unit", const="nsecs",
                       action="store_const", help="times in nanoseconds")
    add("-T", "--timestamp", action="store_true",
        help="a timestamp on each report")
    add("-L", "--per-thread", action="store_true",
        help="a histogram for each thread")
    add("--by", choices=("entry", "phase", "vm"), metavar="WHAT",
        help="a histogram for each entry (step, trace, full, asked), phase "
        "or vm")
    add("-j", "--json", action="store_true", help="one JSON object a line")
    add("-e", "--events", action="store_true",
        help="one line for each pause instead of histograms")
    add("-M", "--min-ms", type=cli.positive_float, metavar="MS",
        help="the same, for pauses of MS milliseconds or more")
    add("-s", "--stack", action="store_true",
        help="with -e and -M: the native and Lua stack below each line")
    add("-f", "--folded", action="store_true",
        help="folded stacks weighted by pause time; with -M of pauses of MS "
        "milliseconds or more")
    add("--sample", type=cli.positive_int, metavar="HZ",
        help="set no probes: sample the state of the collector, HZ times a "
        "second and CPU")
    add("--prometheus", metavar="FILE",
        help="write all counts since the start to FILE after each interval")
    add("-v", "--verbose", action="store_true", help="say more on stderr")
    add("--ebpf", action="store_true", help="print the BPF program and exit")
    add("--version", action="version",
        version="lua-gc-latency " + __version__)
    add("interval", nargs="?", type=cli.positive_float,
        help="seconds of one report (default: until Ctrl-C); of the run with "
        "-e, -f and -M")
    add("count", nargs="?", type=cli.positive_int,
        help="number of reports (default: until Ctrl-C)")
    args = parser.parse_args(argv)
    if args.folded and (args.events or args.stack or args.json):
        parser.error("-f goes without -e, -s, -j")
    args.events = args.events or (args.min_ms is not None and
                                  not args.folded)
    args.unit = args.unit or "usecs"
    others = args.by or args.per_thread or args.prometheus
    if args.sample and (args.events or args.folded or others):
        parser.error(
            "--sample goes without -e, -f, -M, -L, --by, --prometheus")
    if args.stack and not args.events:
        parser.error("-s goes with -e or -M")
    if (args.events or args.folded) and others:
        parser.error("-e, -f and -M go without -L, --by, --prometheus")
    return args


_HINTS = {**HINTS, lib.errno.ENOENT: "lua-doctor -p PID shows what is in it"}


class Run:
    """One run: what was asked for, the loaded program, what came so far."""

    def __init__(self, args: argparse.Namespace, collector: lib.Collector,
                 targets: gcrun.Targets, meter: gcrun.Meter,
                 ending: drain.Ending, session: Optional[lib.Session]
                 ) -> None:
        self.args = args
        self.collector = collector
        self.targets = targets
        self.meter = meter
        self.ending = ending
        self.session = session
        self.pauses = 0
        self.pending: List[gcstat.Event] = []
        self.exporter = gcrun.Exporter(args.prometheus, args.unit) \
            if args.prometheus else None

    def wait(self, seconds: Optional[float]) -> bool:
        """Take events for so long; False when the run is over."""
        begin = time.monotonic()
        ticked = begin
        while not self.ending.asked:
            now = time.monotonic()
            left = _TICK_S if seconds is None else begin + seconds - now
            if left <= 0:
                return True
            time.sleep(min(left, _POLL_S))
            if self.args.events or self.args.folded:
                self.take_events()
            if now - ticked >= _TICK_S:
                ticked = now
                self.meter.warn_once()
                self.targets.tell_ends()
                if self.targets.add_tree():
                    self.meter.follow()
                if not self.targets.is_open() and not self.collector.alive():
                    cli.message("no process is left")
                    return False
        return False

    def report(self) -> None:
        """End an interval and print it."""
        args, now = self.args, time.time()
        if args.sample:
            samples = self.meter.samples()
            lines = [gcreport.sample_json(samples, now)] if args.json else \
                gcreport.sample_lines(samples)
            self.print(lines, now)
            return
        interval = self.meter.interval()
        account = gcreport.Account(
            self.targets.spent(), gcrun.figures(self.collector, interval))
        self.pauses += interval.total().count
        if self.exporter:
            self.exporter.write(interval, account.figures,
                                self.meter.counters())
        if args.events or args.folded:
            return
        if args.json:
            lines = gcreport.json_lines(interval, account, args.unit,
                                        args.by, args.per_thread, now)
        else:
            lines = gcreport.text(interval, account, args.unit, args.by,
                                  args.per_thread)
        self.print(lines, now)

    def print(self, lines: List[str], now: float) -> None:
        """A report on stdout."""
        if self.args.timestamp and not self.args.json:
            print(time.strftime("%H:%M:%S", time.localtime(now)))
        print("\n".join(lines))
        if not self.args.json:
            print()
        sys.stdout.flush()

    def take_events(self) -> None:
        """Print events; with -s those of the call before, whose stacks have
        come by now."""
        pending, self.pending = self.pending, []
        self.meter.take_events()
        if not self.args.stack:
            pending, self.pending = self.pending, []
        for event in pending:
            self.print_event(event)
        sys.stdout.flush()

    def print_event(self, event: gcstat.Event) -> None:
        """One pause."""
        began = gcreport.wall_time(event.begin)
        frames = self.meter.stack(event) if self.args.stack else []
        if self.args.json:
            print(gcreport.event_json(event, began, frames))
            return
        print(gcreport.event_line(event, self.args.unit, began))
        if frames:
            print("\n".join(gcreport.stack_lines(frames)))

    def start(self) -> None:
        """Attach, and say what is measured."""
        args = self.args
        if args.sample:
            self.meter.attach_samples(args.sample)
        else:
            if args.events:
                self.meter.on_event(lambda e: self.pending.append(e))
            self.meter.attach_probes()
            if not self.collector.exact_phases():
                cli.message("changes of phase do not show in this build: the "
                            "time of a pause goes to the phase it began in")
        self.targets.spent()
        what = f"Sampling the collector at {args.sample} Hertz" \
            if args.sample else "Tracing garbage collection"
        print(f"{what} of PID {','.join(map(str, args.pid))}"
              f"{' and its descendants' if args.tree else ''}... Hit Ctrl-C "
              "to end.", file=sys.stderr)
        if args.events and not args.json:
            print(gcreport.EVENT_HEADER)
            sys.stdout.flush()

    def loop(self) -> None:
        """Intervals until the end."""
        args = self.args
        once = args.events or args.folded
        turns = args.count or (1 if once and args.interval else 0)
        while True:
            goes_on = self.wait(args.interval)
            self.report()
            turns -= 1
            if not goes_on or not turns:
                break
        self.targets.tell_ends()
        if once:
            self.take_events()
            self.take_events()
        if args.folded:
            report.write_folded(gcreport.folded(self.meter.folded(),
                                                args.unit), sys.stdout)
            sys.stdout.flush()
        if not args.sample:
            for line in gcreport.closing_lines(self.pauses,
                                               self.meter.counters()):
                cli.message(line)
        if args.folded and self.session:
            cli.message(gcreport.stacks_line(self.session.totals()))


def main(argv: List[str]) -> int:
    """Run the tool; its exit status."""
    args = parse_args(argv)
    if args.ebpf:
        print(bpf.program_text("lua_gc_latency"))
        return 0
    cli.raise_limits()
    flags = (gcstat.EVENTS if args.events else 0) | \
        (gcstat.HIST_PHASES if args.by == "phase" else 0)

    def log(level: int, text: str) -> None:
        if level <= (3 if args.verbose else 1):
            cli.message(text)

    with contextlib.ExitStack() as stack:
        ending = stack.enter_context(drain.Ending())
        collector = stack.enter_context(lib.Collector())
        session = stack.enter_context(lib.Session(log)) \
            if args.stack or args.folded else None
        targets = gcrun.Targets(collector, args.pid, args.tree, session)
        try:
            targets.add()
            with cli.Progress() as progress:
                progress.show("compiling...")
                meter = gcrun.Meter(collector,
                                    int((args.min_ms or 0) * 1e6),
                                    gcreport.unit_ns(args.unit), flags,
                                    session, args.tree)
            with meter:
                run = Run(args, collector, targets, meter, ending, session)
                run.start()
                run.loop()
        except lib.Error as error:
            raise cli.Fail(str(error), hint=_HINTS.get(error.code)) from None
    return 0


if __name__ == "__main__":
    cli.run(main)
