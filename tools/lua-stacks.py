#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""lua-stacks - profile kernel, native and Lua code of LuaJIT processes

Samples the stack of each thread on a timer: kernel, native and Lua frames in
their real order. Reads the target only: no uprobe, no restart, no debug info.
"""

import argparse
import sys
from pathlib import Path
from typing import List

_HERE = Path(__file__).resolve().parent
for _folder in (_HERE.parent / "scripts",
                _HERE.parent / "share" / "lua-bpf-tools"):
    if (_folder / "luabpf").is_dir():
        sys.path.insert(0, str(_folder))
        break

from luabpf import (__version__, bpf, cli, drain, flags, lib,  # noqa: E402
                    report, targets)

EXAMPLES = """examples:
  lua-stacks -p 185 30            # profile process 185 for 30 seconds
  lua-stacks -p 185 -f 30 > out   # folded, for flamegraph.pl
  lua-stacks -p "$(pgrep -d, nginx)" -f --per-pid 30   # each worker apart
  lua-stacks -p 185 --tree 60     # with its children, also those to come
  lua-stacks                      # all LuaJIT processes, until Ctrl-C
  lua-stacks -p 185 -F 999 5      # 999 samples a second and CPU
  lua-stacks -p 185 --lua-only --lines -f 10   # Lua frames, current lines
  lua-stacks -L 190 10            # one thread
  lua-stacks -p 185 --wait 30     # begin when a LuaJIT is in it
  lua-stacks --cgroup /sys/fs/cgroup/web 30    # processes of one cgroup
"""


def parse_args(argv: List[str]) -> argparse.Namespace:
    """The command line; the letters are those of BCC's profile."""
    parser = argparse.ArgumentParser(
        prog="lua-stacks", epilog=EXAMPLES,
        description="Profile kernel, native and Lua code of LuaJIT processes.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-p", "--pid", type=cli.pid_list, metavar="PIDS",
        help="profile these processes, comma separated; without -p and -L "
        "every process that holds a LuaJIT")
    add("-L", "--tid", type=cli.tid_list, metavar="TIDS",
        help="profile these threads only, comma separated")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("-U", "--user-stacks-only", action="store_true",
                      help="no kernel frames")
    part.add_argument("-K", "--kernel-stacks-only", action="store_true",
                      help="kernel frames only")
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument("-F", "--frequency", type=cli.positive_int,
                      metavar="HZ", help="samples a second and CPU "
                      "(default 49)")
    rate.add_argument("-c", "--count", type=cli.positive_int, metavar="COUNT",
                      help="one sample each COUNT nanoseconds of CPU clock")
    add("-d", "--delimited", action="store_true",
        help="a mark between kernel and user frames")
    add("-a", "--annotations", action="store_true",
        help="suffixes: _[k] kernel, _[j] Lua running as machine code, _[i] "
        "inlined there")
    add("-I", "--include-idle", action="store_true", help="the idle task too")
    add("-f", "--folded", action="store_true",
        help="one line a stack, for flamegraph.pl")
    add("-C", "--cpu", type=cli.cpu, metavar="CPU", help="this CPU only")
    add("--stack-storage-size", type=cli.positive_int, default=65536,
        metavar="N", help="different stacks that are kept (default 65536)")
    add("--lua-only", action="store_true", help="show Lua frames only")
    add("--lines", action="store_true",
        help="show the current line of each Lua frame, not the function's "
        "first")
    add("--vmstate", action="store_true",
        help="what the VM does as leaf frame: [gc], [jit:record], [jit:opt], "
        "[jit:asm], [jit:exit]")
    add("--per-pid", action="store_true",
        help="comm-PID as root of each stack")
    add("--tree", action="store_true",
        help="with -p: descendants too, also those that are forked later")
    add("--cgroup", metavar="PATH",
        help="processes of this cgroup and those below it")
    add("--wait", action="store_true",
        help="wait until there is a LuaJIT to profile")
    add("-v", "--verbose", action="store_true",
        help="say more on stderr")
    add("--ebpf", action="store_true", help="print the BPF program and exit")
    add("--version", action="version", version="lua-stacks " + __version__)
    add("duration", nargs="?", type=cli.positive_float,
        help="seconds (default: until Ctrl-C)")
    args = parser.parse_args(argv)
    if args.cgroup == "":
        parser.error("--cgroup: the path is empty")
    if args.tree and not args.pid:
        parser.error("--tree goes with -p")
    if args.cgroup and (args.pid or args.tid):
        parser.error("--cgroup goes without -p and -L")
    if args.pid and args.tid:
        parser.error("-p and -L exclude each other")
    return args


def set_cgroup(session: lib.Session, path: str) -> None:
    """Only processes of this cgroup."""
    try:
        session.cgroup(path)
    except lib.Error as error:
        raise cli.Fail(str(error), hint="give a folder of the cgroup file "
                       "system, such as /sys/fs/cgroup/NAME") from None


def announce(args: argparse.Namespace) -> str:
    """What is about to be sampled, in words."""
    rate = f"{args.count} ns" if args.count else f"{args.frequency or 49} Hertz"
    if args.tid:
        what = "TID " + ",".join(map(str, args.tid))
    elif args.pid:
        what = "PID " + ",".join(map(str, args.pid))
    elif args.cgroup:
        what = "LuaJIT processes of " + args.cgroup
    else:
        what = "all LuaJIT processes"
    stack = "user" if args.user_stacks_only else \
        "kernel" if args.kernel_stacks_only else "kernel + user + Lua"
    until = f" for {args.duration:g} secs." if args.duration else \
        "... Hit Ctrl-C to end."
    return f"Sampling at {rate} of {what} by {stack} stack{until}"


def sample(session: lib.Session, args: argparse.Namespace,
           ending: drain.Ending) -> None:
    """Compile, attach, and drain until the end."""
    is_open = bool(args.tree or not (args.pid or args.tid))
    room = drain.table_room(session.needs(), is_open)
    with cli.Progress() as progress:
        progress.show("compiling...")
        program = bpf.Program("lua_stacks", drain.defines(
            room, args.stack_storage_size))
        with program:
            drain.connect(session, program, "perf_event",
                          ["lua_stacks_sample"], room, flags.config(args))
            progress.clear()
            if ending.asked:
                raise cli.Fail("ended before the first sample",
                               hint="it takes some seconds to start")
            print(announce(args), file=sys.stderr)
            program.attach_exec("lb_exec")
            program.attach_timer("lua_stacks_sample",
                                 0 if args.count else args.frequency or 49,
                                 args.count or 0, args.cpu)

            def tick(spent: float) -> None:
                total = f" of {args.duration:g}" if args.duration else ""
                progress.show(f"{spent:.0f}{total} s")

            drain.run(session, ending, args.duration,
                      until_gone=not is_open, tick=tick)
            program.detach_timer()
            session.stop()


def print_report(session: lib.Session, args: argparse.Namespace) -> None:
    """The stacks on stdout, the account on stderr."""
    totals = session.totals()
    stacks = list(session.folded(flags.fold(args)))
    early = totals.by_reason.get("not-ready", 0)
    if early:
        root = "[unknown]" + ("-0" if args.per_pid or not args.folded else "")
        stacks.append((root + ";[failed:not-ready]", early, 0))
    if args.folded:
        report.write_folded(stacks, sys.stdout)
    else:
        report.write_stacks(stacks, sys.stdout)
    sys.stdout.flush()
    for line in report.closing_lines(totals):
        cli.message(line)
    if args.verbose:
        for line in session.traces():
            cli.message(line)
    if totals.failed or args.verbose:
        for line in session.troubles():
            cli.message(line)
    if not totals.samples and not totals.lost:
        cli.message("no samples: no tick fell into these processes; they "
                    "used no CPU time, or too little, or another CPU")


def main(argv: List[str]) -> int:
    """Run the tool; its exit status."""
    args = parse_args(argv)
    if args.ebpf:
        print(bpf.program_text("lua_stacks"))
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
            if args.cgroup:
                set_cgroup(session, args.cgroup)
            targets.find(session, wanted, ending)
            sample(session, args, ending)
            print_report(session, args)
        except lib.Error as error:
            raise cli.Fail(str(error),
                           hint=targets.HINTS.get(error.code)) from None
    return 0


if __name__ == "__main__":
    cli.run(main)
