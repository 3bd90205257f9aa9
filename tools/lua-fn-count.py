#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""lua-fn-count - count calls of Lua functions in LuaJIT processes

Each interpreted call passes one instruction of the VM; a probe there counts it
in the kernel, by function. Counts never come from samples. Calls that the JIT
compiler has inlined into machine code are not seen: the share of time spent
there is printed under the table.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import List

_HERE = Path(__file__).resolve().parent
for _folder in (_HERE.parent / "scripts",
                _HERE.parent / "share" / "lua-bpf-tools"):
    if (_folder / "luabpf").is_dir():
        sys.path.insert(0, str(_folder))
        break

from luabpf import (__version__, bpf, callreport, cli,  # noqa: E402
                    counting, drain, lib, report, targets)

EXAMPLES = """examples:
  lua-fn-count -p 185 -d 10              # all Lua functions, ten seconds
  lua-fn-count -p 185 -d 10 'app.lua:*'  # those of one source file
  lua-fn-count -p 185 -i 1 'redis*'      # by name, a table each second
  lua-fn-count -p 185 -d 10 -t 20        # the 20 most called
  lua-fn-count -p 185 -d 10 --callers 'decode*'   # and who calls them
  lua-fn-count -p 185 -d 10 -s -f decode > out    # folded stacks of calls
  lua-fn-count -p 185 -d 10 --builtins 'string.*'   # fast functions, too
  lua-fn-count -p 185 -d 10 --api 'lua_*'    # entry points of the C API
  lua-fn-count -p 185 -d 10 -r '^(get|set)_'   # by regular expression
"""


def parse_args(argv: List[str]) -> argparse.Namespace:
    """The command line; the letters are those of BCC's funccount."""
    parser = argparse.ArgumentParser(
        prog="lua-fn-count", epilog=EXAMPLES,
        description="Count calls of Lua functions in LuaJIT processes.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-p", "--pid", type=cli.pid_list, metavar="PIDS",
        help="count in these processes, comma separated; without -p and -L "
        "in every process that holds a LuaJIT")
    add("-L", "--tid", type=cli.tid_list, metavar="TIDS",
        help="count in these threads only, comma separated")
    add("-i", "--interval", type=cli.positive_float, metavar="SECONDS",
        help="a table each interval")
    add("-d", "--duration", type=cli.positive_float, metavar="SECONDS",
        help="how long to count (default: until Ctrl-C)")
    add("-T", "--timestamp", action="store_true",
        help="the time above each table")
    add("-r", "--regexp", action="store_true",
        help="patterns are regular expressions")
    add("-t", "--top", type=cli.positive_int, metavar="TOP",
        help="only the TOP most called functions")
    add("-j", "--json", action="store_true",
        help="one line of JSON for each table")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--builtins", action="store_true",
                      help="count fast functions and C functions, too")
    what.add_argument("--api", action="store_true",
                      help="count functions of the C API instead")
    add("--callers", action="store_true",
        help="count by caller and callee")
    add("-s", "--stacks", action="store_true",
        help="count by stack of the call: native and Lua frames")
    add("-f", "--folded", action="store_true",
        help="with -s: one line a stack, for flamegraph.pl")
    add("--tree", action="store_true",
        help="with -p: descendants too, also those that are forked later")
    add("--wait", action="store_true",
        help="wait until there is a LuaJIT")
    add("--max-functions", type=cli.positive_int, default=16384,
        metavar="N", help="different functions that are kept (default 16384)")
    add("-v", "--verbose", action="store_true",
        help="say more on stderr")
    add("--ebpf", action="store_true", help="print the BPF program and exit")
    add("--version", action="version", version="lua-fn-count " + __version__)
    add("pattern", nargs="*", default=["*"],
        help="count only functions with this name, chunk or chunk:line; "
        "* matches anything")
    args = parser.parse_args(argv)
    if args.tree and not args.pid:
        parser.error("--tree goes with -p")
    if args.pid and args.tid:
        parser.error("-p and -L exclude each other")
    if args.callers and args.api:
        parser.error("--callers does not go with --api")
    if args.stacks and (args.callers or args.api or args.builtins or
                        args.interval or args.json):
        parser.error("-s goes without --callers, --api, --builtins, -i and -j")
    if args.folded and not args.stacks:
        parser.error("-f goes with -s")
    try:
        args.pattern = counting.Pattern(args.pattern or ["*"], args.regexp)
    except re.error as error:
        parser.error(f"bad regular expression: {error}")
    return args


def print_table(table: callreport.Table, args: argparse.Namespace) -> None:
    """One table, and what it does not show."""
    rows = table.rows(args.top)
    if args.json:
        json.dump(callreport.as_json(rows, table, not args.api), sys.stdout)
        print(flush=True)
        return
    if args.timestamp:
        print(time.strftime("%H:%M:%S"))
    callreport.write_table(rows, table, not args.api, sys.stdout)
    print(flush=True)


def print_stacks(session: lib.Session, counts: counting.Counting,
                 args: argparse.Namespace) -> None:
    """Stacks of calls, the most frequent last."""
    stacks = counts.stacks(not args.folded)
    if args.folded:
        report.write_folded(stacks, sys.stdout)
    else:
        report.write_stacks(stacks, sys.stdout)
    sys.stdout.flush()
    for line in report.closing_lines(session.totals()):
        cli.message("stacks: " + line)


def count(session: lib.Session, wanted: targets.Targets,
          args: argparse.Namespace, ending: drain.Ending) -> None:
    """Compile, attach, count until the end, print tables."""
    what = lib.CALLS_OF_API if args.api else lib.CALLS_OF_LUA | (
        lib.CALLS_OF_BUILTINS if args.builtins else 0)
    options = counting.Options(what, args.pattern, args.callers,
                               args.stacks, args.max_functions, bool(args.tid))
    room = drain.table_room(session.needs(), wanted.is_open)
    with cli.Progress() as progress:
        progress.show("compiling...")
        with counting.load(options, room) as program, \
                counting.Counting(session, program, options, room) as counts:
            probes = counts.attach()
            progress.clear()
            if ending.asked:
                raise cli.Fail("ended before the first call",
                               hint="it takes some seconds to start")
            until = f" for {args.duration:g} secs." if args.duration else \
                "... Hit Ctrl-C to end."
            print(f"Counting calls in {wanted.text()} with {probes} "
                  f"probes{until}", file=sys.stderr, flush=True)
            counts.begin()
            shown = 0.0

            def tick(spent: float) -> None:
                nonlocal shown
                counts.follow()
                if args.interval and spent - shown >= args.interval:
                    shown += args.interval
                    print_table(counts.table(), args)

            drain.run(session, ending, args.duration,
                      until_gone=not wanted.is_open, tick=tick)
            counts.end()
            table = counts.table()
            if args.stacks:
                print_stacks(session, counts, args)
            elif not args.interval or table.counts:
                print_table(table, args)
            for line in callreport.closing_lines(table.totals,
                                                 args.max_functions):
                cli.message(line)


def main(argv: List[str]) -> int:
    """Run the tool; its exit status."""
    args = parse_args(argv)
    if args.ebpf:
        print(bpf.program_text("lua_fn_count"))
        return 0

    def log(level: int, text: str) -> None:
        if level <= (3 if args.verbose else 1):
            cli.message(text)

    cli.raise_limits()
    wanted = targets.Targets(args.pid or [], args.tid or [], args.tree,
                             args.wait)
    with drain.Ending() as ending, lib.Session(log) as session:
        wanted.watch(session)
        try:
            targets.find(session, wanted, ending)
            count(session, wanted, args, ending)
        except lib.Error as error:
            raise cli.Fail(str(error),
                           hint=targets.HINTS.get(error.code)) from None
    return 0


if __name__ == "__main__":
    cli.run(main)
