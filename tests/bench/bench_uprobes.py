# SPDX-License-Identifier: Apache-2.0
"""Are uprobes a problem? Empty ones on lua_pcall and lua_resume.
"""
import os
from typing import Dict, List, Optional

import measure
import nginx
import samplers
from bench_nginx import OFF, Condition, Runs, alternate, compare, other_ticks

ABOUT = """
Profilers that hook the Lua C API learn of a lua_State by entry uprobes on
lua_pcall and lua_resume. Here both have a BPF program that does nothing, in
the nginx worker alone; beside it lua-stacks, which has no uprobe, and nothing.
Two locations: a page, whose handler is resumed once, and one that resumes a
coroutine 20 times (in nginx each resume and each yield is a lua_resume). Runs
of wrk and ratios as in the part nginx. NS/HIT is the CPU time per request
beyond that of the run without anything in the same round, over hits per
request; where hits are few it drowns in noise. IN BPF is the part of it that
bpf_stats sees, the rest is the breakpoint.
"""

SYMBOLS = (b"lua_pcall", b"lua_resume")
LOCATIONS = ("/page", "/coroutines")


class Uprobes(samplers.Sampler):
    """Empty entry uprobes; a hit counts as a sample."""

    name = "uprobes"

    def __init__(self, pid: int) -> None:
        import bcc
        self._pid, self._fds = pid, []
        self._libbcc = bcc.libbcc.lib
        self._bpf = bcc.BPF(text="int empty(void *ctx) { return 0; }",
                            cflags=["-w"])
        self._function = self._bpf.load_func(b"empty", bcc.BPF.KPROBE)
        library = self._find(pid)
        self._places = [bcc.BPF._check_path_symbol(library, symbol, None, pid)
                        for symbol in SYMBOLS]

    @staticmethod
    def _find(pid: int) -> bytes:
        with open("/proc/%d/maps" % pid, "rb") as file:
            for line in file:
                path = line.rstrip(b"\n").partition(b"/")
                if b"libluajit" in path[2]:
                    return path[1] + path[2]
        raise measure.Skip("nginx has no libluajit")

    def close(self) -> None:
        self.detach()
        self._bpf.cleanup()

    def fd(self) -> int:
        return int(self._function.fd)

    def attach(self, rate: int, cpu: Optional[int]) -> None:
        """BCC's attach_uprobe without its tables: its detach_uprobe fails
        where tracefs is not mounted."""
        for number, (path, offset) in enumerate(self._places):
            fd = self._libbcc.bpf_attach_uprobe(
                self.fd(), 0, b"lb_bench_%d" % number, path, offset,
                self._pid)
            if fd < 0:
                raise RuntimeError("the kernel refused an uprobe")
            self._fds.append(fd)

    def detach(self) -> None:
        while self._fds:
            self._libbcc.bpf_close_perf_event_fd(self._fds.pop())

    def samples(self) -> int:
        return measure.prog_info(self.fd()).run_cnt


def print_hits(by_path: Dict[str, Runs], name: str) -> None:
    lines = []
    for path, runs in by_path.items():
        per_hit: List[float] = []
        for run, base in zip(runs[name], runs[OFF]):
            added = (run.load.cpu_ns_per_request
                     - base.load.cpu_ns_per_request)
            per_hit.append(added * run.load.requests / max(run.samples, 1))
        hits = sum(r.samples for r in runs[name])
        requests = sum(r.load.requests for r in runs[name])
        in_bpf = sum(r.bpf_ns for r in runs[name]) / max(hits, 1)
        rate = measure.Spread.of([r.samples / r.load.cpu_ns * 1e9
                                  for r in runs[name]])
        lines.append([path, "%.1f" % (hits / requests), rate.text("%.0f"),
                      measure.Spread.of(per_hit).text("%.0f"),
                      "%.0f" % in_bpf])
    measure.table(["LOCATION", "HITS/REQUEST", "HITS/CPU SECOND", "NS/HIT",
                   "IN BPF"], lines)


def main(quick: bool) -> None:
    measure.paragraph(ABOUT)
    os.sched_setaffinity(0, {measure.cpus()[1]})
    rounds, seconds = (2, 1) if quick else (6, 2)
    with measure.bpf_stats(), nginx.Nginx() as server, \
            samplers.LuaStacks([server.pid]) as ours, \
            Uprobes(server.pid) as uprobes:
        other = other_ticks([ours], server, 0.2 if quick else 2)
        other[uprobes.name] = 0
        conditions = [Condition(None), Condition(ours, 49),
                      Condition(ours, 99), Condition(uprobes)]
        by_path = {path: alternate(server, path, conditions, other, rounds,
                                   seconds) for path in LOCATIONS}
    for path, runs in by_path.items():
        measure.table([path.upper(), "REQUESTS/S", "REQ/S RATIO",
                       "CPU/REQUEST RATIO"], compare(runs))
    print_hits(by_path, uprobes.name)


if __name__ == "__main__":
    measure.run(main, __doc__)
