#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Run unit test programs, then the Python tests; one closing line for all."""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
TIMEOUT_SECONDS = 300
SKIP_STATUS = 77


def run_part(name, command):
    """Run one command; return its (passed, failed, skipped)."""
    print(f"== {name}", flush=True)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                              errors="replace", stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"FAILED  {name}: not done after {TIMEOUT_SECONDS} s")
        return 0, 1, 0
    print(done.stdout, end="", flush=True)
    closings = CLOSING.findall(done.stdout)
    if not closings:
        print(f"FAILED  {name}: no closing line, status {done.returncode}")
        return 0, 1, 0
    passed, failed, skipped = (int(n) for n in closings[-1])
    if done.returncode not in (0, SKIP_STATUS) and not failed:
        print(f"FAILED  {name}: status {done.returncode}")
        failed = 1
    if not passed + failed + skipped:
        print(f"FAILED  {name}: no test was run")
        failed = 1
    return passed, failed, skipped


def name_upstream_luajit():
    """Tell the tests where fetch-debs put the LuaJIT that is not installed."""
    output = os.environ.get("OUTPUT", os.path.join(HERE, "..", ".output"))
    path = os.path.realpath(os.path.join(output, "deb/upstream/usr/bin/luajit"))
    if os.path.exists(path):
        os.environ.setdefault("LB_LUAJIT_UPSTREAM", path)


def main(programs):
    name_upstream_luajit()
    parts = [(os.path.basename(path), [path]) for path in programs]
    parts.append(("tests/py",
                  [sys.executable, os.path.join(HERE, "py", "run.py")]))
    counts = [run_part(name, command) for name, command in parts]
    passed, failed, skipped = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
