#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measure what lua-stacks costs; prints tables, asserts nothing about time.

Each part is a file bench_NAME.py in this folder and a process of its own.
"""
import argparse
import glob
import os
import subprocess
import sys
import time

import measure


def names() -> list:
    files = glob.glob(os.path.join(measure.HERE, "bench_*.py"))
    return sorted(os.path.basename(f)[len("bench_"):-len(".py")]
                  for f in files)


def run_part(path: str, options: list) -> int:
    """Exit status; whatever ends this process lets the part end its own."""
    process = subprocess.Popen([sys.executable, path, *options])
    try:
        return process.wait()
    finally:
        measure.stop(process)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", metavar="NAME", default="",
                        help="only parts with this in their name")
    parser.add_argument("--quick", action="store_true",
                        help="a fast pass of each part, for its errors only")
    parser.add_argument("--list", action="store_true", help="list the parts")
    args = parser.parse_args()
    chosen = [name for name in names() if args.k in name]
    if args.list or not chosen:
        print("parts: " + " ".join(names()))
        return 0 if args.list else 2
    measure.end_by_signal()
    print(measure.machine() + "\n", flush=True)
    failed = []
    for name in chosen:
        print("== " + name, flush=True)
        begin = time.monotonic()
        path = os.path.join(measure.HERE, "bench_%s.py" % name)
        status = run_part(path, ["--quick"] if args.quick else [])
        if status not in (0, measure.SKIP):
            failed.append(name)
        print("-- %s: %.0f s\n" % (name, time.monotonic() - begin),
              flush=True)
    if failed:
        print("failed: " + " ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
