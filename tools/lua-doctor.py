#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""lua-doctor - tell which Lua is in a process and whether it can be traced

Reads the process and its files only, and tries what the kernel allows: which
VM and build, where its offsets come from, what each tool can do and why not.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Iterable, List

_HERE = Path(__file__).resolve().parent
for _folder in (_HERE.parent / "scripts",
                _HERE.parent / "share" / "lua-bpf-tools"):
    if (_folder / "luabpf").is_dir():
        sys.path.insert(0, str(_folder))
        break

from luabpf import __version__, cli, findings, lib, page  # noqa: E402

EXAMPLES = """examples:
  lua-doctor                      # all processes with a Lua, one line each
  lua-doctor -p 185               # one page about process 185
  lua-doctor -p 185 -v            # with each offset and where it is from
  lua-doctor -p 185 -j            # the same as JSON
  lua-doctor /usr/bin/luajit      # one file
  lua-doctor -p 185 >/dev/null && lua-stacks -p 185 10   # only if traceable
"""

_HINTS = {
    lib.errno.EPERM: "run as root",
    lib.errno.EACCES: "run as root",
    lib.errno.ESRCH: "pgrep -a NAME lists processes; lua-doctor without "
                     "arguments those with a Lua",
    lib.errno.EINVAL: "give the process: PID is Tgid in /proc/TID/status"}


def parse_args(argv: List[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="lua-doctor", epilog=EXAMPLES,
        description="Tell which Lua is in a process or a file, and whether "
        "it can be traced.\nWithout arguments: all processes with a Lua.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-p", "--pid", type=cli.positive_int, metavar="PID",
        help="look into this process")
    add("-j", "--json", action="store_true", help="print JSON")
    add("-v", "--verbose", action="store_true",
        help="each offset and where it is from")
    add("--version", action="version", version="lua-doctor " + __version__)
    add("file", nargs="?", metavar="FILE", help="look into this file")
    args = parser.parse_args(argv)
    if args.pid and args.file is not None:
        parser.error("-p and FILE exclude each other")
    return args


def learn(args: argparse.Namespace) -> findings.Item:
    """All that was asked for."""
    with lib.Doctor() as doctor:
        try:
            if args.file is not None:
                doctor.file(args.file)
                return findings.tree(doctor.facts(), {})
            if args.pid:
                doctor.pid(args.pid)
            else:
                doctor.all()
            doctor.kernel()
        except lib.Error as error:
            raise cli.Fail(str(error), hint=_HINTS.get(error.code)) from None
        return findings.tree(doctor.facts(), findings.system_of_python())


def text_of(found: findings.Item, args: argparse.Namespace) -> Iterable[str]:
    """The report as lines."""
    if args.file is not None:
        return page.file_page(found, args.file, args.verbose)
    if args.pid:
        return page.process_page(found, args.verbose)
    return page.table(found)


def main(argv: List[str]) -> int:
    """Run the tool; its exit status."""
    args = parse_args(argv)
    cli.raise_limits()
    found = learn(args)
    if args.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    elif not args.pid and args.file is None and not found["processes"]:
        cli.message("no process with a Lua")
    else:
        for line in text_of(found, args):
            print(line)
    if found.get("unread"):
        cli.message(f"not looked at: {found['unread']} of the processes, "
                    "for want of the right to read them")
    return 0 if found["traceable"] else 1


if __name__ == "__main__":
    cli.run(main)
