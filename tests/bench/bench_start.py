# SPDX-License-Identifier: Apache-2.0
"""Start to first sample, CPU time and peak memory of lua-stacks.
"""
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from typing import List, Optional

import measure
import nginx

ABOUT = """
Each line is a process of its own. The first ones do the steps of a start and
end, so that the difference of two lines is the cost of a step; the last ones
are lua-stacks itself, which samples for one second. FIRST SAMPLE is the wall
time from exec until the kernel has run the program for the first time (its
run_cnt, seen through /proc/PID/fdinfo; 999 Hz, so that the wait for the tick
is small). CPU is user and system time until the exit, PEAK MB the largest
resident set, both of wait4. Medians, quartiles in parentheses.
"""

STEPS = (("python3", "python"), ("+ import bcc", "bcc"),
         ("+ BCC compiles an empty program", "empty"),
         ("BCC compiles lua_stacks", "compile"),
         ("+ the kernel loads it", "load"))
_LIMIT_S = 120


@dataclasses.dataclass(frozen=True)
class Start:
    """One process from start to end."""

    wall_s: float
    first_s: Optional[float]
    cpu_s: float
    peak_mb: float


def _has_ticked(pid: int) -> bool:
    """Has a perf event program of this process run?"""
    folder = "/proc/%d" % pid
    for fd in os.listdir(folder + "/fd"):
        if "bpf-prog" not in os.readlink("%s/fd/%s" % (folder, fd)):
            continue
        with open("%s/fdinfo/%s" % (folder, fd), encoding="ascii") as file:
            fields = dict(line.split() for line in file
                          if len(line.split()) == 2)
        if fields["prog_type:"] == "7" and fields["run_cnt:"] != "0":
            return True
    return False


def run_once(command: List[str], wait_tick: bool) -> Start:
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    first = None
    while wait_tick and first is None and process.poll() is None:
        with contextlib.suppress(OSError):
            if _has_ticked(process.pid):
                first = time.monotonic() - begin
        if time.monotonic() - begin > _LIMIT_S:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.005)
    stderr = process.stderr.read()
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError("%s: %s" % (" ".join(command), stderr))
    return Start(time.monotonic() - begin, first,
                 usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def line(title: str, starts: List[Start]) -> List[str]:
    first = [s.first_s for s in starts if s.first_s is not None]
    return [title,
            measure.Spread.of([s.cpu_s for s in starts]).text(),
            measure.Spread.of(first).text() if first else "-",
            measure.Spread.of([s.wall_s for s in starts]).text(),
            "%.1f" % measure.Spread.of([s.peak_mb for s in starts]).median]


def main(quick: bool) -> None:
    measure.paragraph(ABOUT)
    rounds = 1 if quick else 4
    here = os.path.join(measure.HERE, "start_steps.py")
    cpu, _load_cpu = measure.cpus()
    with contextlib.ExitStack() as stack:
        stack.enter_context(measure.bpf_stats())
        server = stack.enter_context(nginx.Nginx())
        stack.callback(measure.stop, server.drive("/page"))
        lua = measure.start_lua("loop", cpu)
        stack.callback(measure.stop, lua)
        jobs = [(title, [sys.executable, here, step], False)
                for title, step in STEPS]
        for title, pid in (("lua-stacks -p luajit", lua.pid),
                           ("lua-stacks -p nginx worker", server.pid)):
            jobs.append((title, [sys.executable, measure.TOOL, "-f", "-F",
                                 "999", "-p", str(pid), "1"], True))
        starts: List[List[Start]] = [[] for _ in jobs]
        for _ in range(rounds):
            for (_title, command, tick), into in zip(jobs, starts):
                into.append(run_once(command, tick))
    measure.table(["", "CPU S", "FIRST SAMPLE S", "WALL S", "PEAK MB"],
                  [line(job[0], got) for job, got in zip(jobs, starts)])


if __name__ == "__main__":
    measure.run(main, __doc__)
