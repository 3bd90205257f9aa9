# SPDX-License-Identifier: Apache-2.0
"""Effect on an nginx worker with Lua at 49, 99 and 999 Hz.
"""
import collections
import os
from typing import Dict, List, Optional, Tuple

import measure
import nginx
import samplers

ABOUT = """
One nginx worker on one CPU, kept busy by wrk on another; lua-stacks (programs,
C core and drain, all on wrk's CPU) samples on all CPUs. Runs without and with
a sampler follow each other in an order that changes from round to round; a
ratio is that of two runs of the same round. CPU/request is the worker's CPU
time (schedstat; it contains the interrupts that hit the worker) over requests
served. IN BPF is run_time_ns of the samples of the worker over the worker's
CPU time: the part of the added CPU that noise cannot hide, without the
interrupt itself, which a frame-pointer sampler pays as well. DRAIN is CPU time
of this process while it sampled. Medians, quartiles in parentheses.
"""

OFF = "off"


class Condition:
    """A sampler at a rate, or none."""

    def __init__(self, sampler: Optional[samplers.Sampler],
                 rate: int = 0) -> None:
        self.sampler, self.rate = sampler, rate
        self.name = sampler.name if sampler else OFF
        if rate:
            self.name += " %d Hz" % rate


class Run:
    """One run of wrk under one condition, from before its first request to
    after its last."""

    def __init__(self, server: nginx.Nginx, path: str, seconds: int,
                 condition: Condition, other_ns: float) -> None:
        self.bpf_ns, self.samples, self.drain_share = 0.0, 0, 0.0
        if not condition.sampler:
            self.load = server.begin(path, seconds).finish()
            return
        with condition.sampler.sampling(condition.rate) as result:
            running = server.begin(path, seconds)
            condition.sampler.pause(seconds)
            self.load = running.finish()
        got = result[0]
        self.samples = got.samples
        if got.samples:
            self.bpf_ns = got.sample_ns(other_ns) * got.samples
        self.drain_share = got.drain_ns * 1e-9 / got.seconds


Runs = Dict[str, List[Run]]


def alternate(server: nginx.Nginx, path: str, conditions: List[Condition],
              other: Dict[str, float], rounds: int, seconds: int) -> Runs:
    """All conditions in each round."""
    by_name = {c.name: c for c in conditions}
    runs: Runs = collections.defaultdict(list)
    Run(server, path, seconds, conditions[0], 0)
    for order in measure.rotations(list(by_name), rounds):
        for name in order:
            condition = by_name[name]
            cost = other[condition.sampler.name] if condition.sampler else 0
            runs[name].append(Run(server, path, seconds, condition, cost))
    return runs


def other_ticks(all_samplers: List[samplers.Sampler], server: nginx.Nginx,
                seconds: float) -> Dict[str, float]:
    """Mean ns of a tick on any CPU while the worker is stopped."""
    server.signal(nginx.STOP)
    try:
        result = {}
        for sampler in all_samplers:
            got = sampler.measure(999, seconds)
            result[sampler.name] = got.run_ns / max(got.ticks, 1)
        return result
    finally:
        server.signal(nginx.CONTINUE)


def compare(runs: Runs) -> List[Tuple[str, str, str, str]]:
    """Rows: condition, requests a second, ratios of both to OFF."""
    def speed(name: str) -> List[float]:
        return [run.load.per_second for run in runs[name]]

    def cpu(name: str) -> List[float]:
        return [run.load.cpu_ns_per_request for run in runs[name]]

    return [(name, measure.Spread.of(speed(name)).text("%.0f"),
             measure.ratios(speed(name), speed(OFF)).text("%.3f"),
             measure.ratios(cpu(name), cpu(OFF)).text("%.3f"))
            for name in runs]


def print_runs(runs: Runs) -> None:
    measure.table(["CONDITION", "REQUESTS/S", "REQ/S RATIO",
                   "CPU/REQUEST RATIO"], compare(runs))
    lines = []
    for name, taken in runs.items():
        load = measure.Spread.of([r.load.cpu_ns_per_request for r in taken])
        share = measure.Spread.of([r.bpf_ns / r.load.cpu_ns for r in taken])
        added = measure.Spread.of(
            [r.bpf_ns / r.load.requests for r in taken])
        drain = measure.Spread.of([r.drain_share for r in taken])
        lines.append([name, sum(r.samples for r in taken),
                      "%.1f" % (load.median * 1e-3), "%.0f" % added.median,
                      share.text("%.2f %%", 100) if added.median else "-",
                      "%.1f %%" % (drain.median * 100)])
    measure.table(["CONDITION", "SAMPLES", "CPU US/REQUEST",
                   "NS BPF/REQUEST", "IN BPF", "DRAIN"], lines)


def main(quick: bool) -> None:
    measure.paragraph(ABOUT)
    os.sched_setaffinity(0, {measure.cpus()[1]})
    rounds, seconds = (2, 1) if quick else (12, 2)
    with measure.bpf_stats(), nginx.Nginx() as server, \
            samplers.LuaStacks([server.pid]) as ours, \
            samplers.FramePointers([server.pid]) as theirs:
        other = other_ticks([ours, theirs], server, 0.2 if quick else 2)
        conditions = [Condition(None), Condition(ours, 49),
                      Condition(ours, 99), Condition(ours, 999),
                      Condition(theirs, 999)]
        print_runs(alternate(server, "/page", conditions, other, rounds,
                             seconds))


if __name__ == "__main__":
    measure.run(main, __doc__)
