# SPDX-License-Identifier: Apache-2.0
"""In-kernel time of one sample, beside a frame-pointer sampler.
"""
import collections
import contextlib
import dataclasses
import os
import time
from typing import Dict, Iterator, List, Tuple

import measure
import nginx
import samplers

ABOUT = """
Each program runs on one CPU of its own; two samplers tick on that CPU in turn
(cpu-clock perf event, the order changes from round to round): the programs of
lua-stacks, and bpf_get_stackid of user and kernel stack with the counts in a
hash, as BCC's profile has it. The kernel's bpf_stats give the run time of the
entry program, tail calls included, and the number of its runs. Runs on other
tasks are taken out at their mean, which is measured while all programs are
stopped. 999 Hz is hot code and data, 99 Hz cold. Median of the rounds and
quartiles in parentheses; one stretch before the first round is thrown away.
Frame pointers end early in programs built without them, which is all but the
last one here: compare time together with frames. NS/FR is the median hot time
over the mean number of frames, base cost included.
"""

HOT, COLD = 999, 99
C_PROGRAM = os.path.join(measure.OUTPUT, "tests", "bench", "deep")


class Target:
    """A process and what makes it busy."""

    def __init__(self, title: str, pid: int) -> None:
        self.title, self.pid = title, pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self.signal(nginx.CONTINUE)
        try:
            yield
        finally:
            self.signal(nginx.STOP)


class Server(Target):
    """nginx under wrk."""

    def __init__(self, title: str, server: nginx.Nginx) -> None:
        super().__init__(title, server.pid)
        self._server = server

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        with super().busy():
            wrk = self._server.drive("/page")
            try:
                time.sleep(0.3)
                yield
            finally:
                measure.stop(wrk)


LUA = (("recursion 100, -joff", "recurse", ["-joff"]),
       ("JIT loop", "loop", []),
       ("sort, -joff", "sort", ["-joff"]),
       ("fib(24), -joff", "fib", ["-joff"]))


@contextlib.contextmanager
def targets(cpu: int) -> Iterator[List[Target]]:
    """All programs, stopped."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(nginx.Nginx())
        found: List[Target] = [Server("nginx + Lua, wrk", server)]
        stack.callback(server.signal, nginx.CONTINUE)
        for title, name, mode in LUA:
            process = measure.start_lua(name, cpu, mode)
            stack.callback(measure.stop, process)
            found.append(Target(title, process.pid))
        process = measure.start([C_PROGRAM], cpu)
        stack.callback(measure.stop, process)
        found.append(Target("C 100 deep, has FP", process.pid))
        for target in found:
            target.signal(nginx.STOP)
        yield found


Cost = Dict[Tuple[str, int], List[float]]  # (sampler, rate) -> ns


@dataclasses.dataclass
class Other:
    """Ticks on tasks that are none of the targets'."""

    ticks: int
    mean_ns: float


def other_ticks(both: List[samplers.Sampler], cpu: int,
                seconds: float) -> Dict[str, Other]:
    """By sampler, all targets being stopped."""
    readings: Dict[str, List[samplers.Reading]] = collections.defaultdict(list)
    for order in measure.rotations([s.name for s in both], 6):
        for name in order:
            sampler = next(s for s in both if s.name == name)
            readings[name].append(sampler.measure(HOT, seconds, cpu))
    return {name: Other(sum(r.ticks for r in taken), measure.Spread.of(
        [r.run_ns / max(r.ticks, 1) for r in taken]).median)
        for name, taken in readings.items()}


def measure_one(both: List[samplers.Sampler], cpu: int,
                other: Dict[str, Other], plan) -> Tuple[Cost, int]:
    """Readings of the target that is running."""
    by_name = {sampler.name: sampler for sampler in both}
    cost: Cost = collections.defaultdict(list)
    taken = 0
    for sampler in both:
        sampler.measure(HOT, 0.5, cpu)
    for rate, seconds, rounds in plan:
        for order in measure.rotations(list(by_name), rounds):
            for name in order:
                got = by_name[name].measure(rate, seconds, cpu)
                cost[name, rate].append(got.sample_ns(other[name].mean_ns))
                taken += got.samples
    return cost, taken


def print_cost(rows: List[Tuple[Target, Cost, int]]) -> None:
    ours, theirs = samplers.LuaStacks.name, samplers.FramePointers.name
    lines = []
    for target, cost, _taken in rows:
        for rate in (HOT, COLD):
            lines.append([
                target.title, rate,
                measure.Spread.of(cost[ours, rate]).text("%.1f", 1e-3),
                measure.Spread.of(cost[theirs, rate]).text("%.1f", 1e-3),
                measure.ratios(cost[ours, rate], cost[theirs, rate]).text()])
    measure.table(["US PER SAMPLE", "HZ", "LUA-STACKS", "FRAME POINTERS",
                   "RATIO"], lines)


def print_frames(rows: List[Tuple[Target, Cost, int]],
                 ours: samplers.LuaStacks,
                 theirs: samplers.FramePointers) -> None:
    mine, other = ours.frames(), theirs.frames()
    lines = []
    for target, cost, taken in rows:
        frames, short = mine[target.pid], other[target.pid]
        total = frames.kernel + frames.native + frames.lua
        mean = frames.mean(total)
        fp_mean = short.mean(short.native + short.kernel)
        hot = measure.Spread.of(cost[ours.name, HOT]).median
        fp_hot = measure.Spread.of(cost[theirs.name, HOT]).median
        lines.append([
            target.title, taken, "%.1f" % frames.mean(frames.kernel),
            "%.1f" % frames.mean(frames.native),
            "%.1f" % frames.mean(frames.lua), "%.1f" % mean,
            "%.0f" % (hot / mean), "%.1f" % fp_mean,
            "%.0f" % (fp_hot / fp_mean)])
    measure.table(["MEAN FRAMES", "SAMPLES", "KERNEL", "NATIVE", "LUA", "ALL",
                   "NS/FR", "FP ALL", "NS/FR"], lines)
    totals = ours.closing()
    print("%d samples of lua-stacks: %d complete, %d truncated, %d failed, "
          "%d lost\n" % (totals.samples + totals.lost, totals.complete,
                         totals.truncated, totals.failed, totals.lost))


def print_programs(both: List[samplers.Sampler]) -> None:
    """lua_stacks_names runs only for a stack that is new."""
    lines = []
    for sampler in both:
        for info in sampler.infos():
            lines.append([info.name, info.verified_insns or "unknown",
                          info.xlated_bytes // 8, info.jited_bytes])
    measure.table(["PROGRAM", "VERIFIED INSNS", "XLATED INSNS",
                   "MACHINE CODE BYTES"], lines)


def main(quick: bool) -> None:
    measure.paragraph(ABOUT)
    if not os.path.exists(C_PROGRAM):
        raise measure.Skip("not built: run make bench")
    plan = [(HOT, 0.4, 3), (COLD, 0.8, 3)] if quick else \
        [(HOT, 0.7, 10), (COLD, 2.0, 6)]
    cpu, load_cpu = measure.cpus()
    os.sched_setaffinity(0, {load_cpu})
    with measure.bpf_stats(), targets(cpu) as found:
        pids = [target.pid for target in found]
        with samplers.LuaStacks(pids) as ours, \
                samplers.FramePointers(pids) as theirs:
            both: List[samplers.Sampler] = [ours, theirs]
            other = other_ticks(both, cpu, 0.2 if quick else 1.0)
            print_programs(both)
            rows = []
            for target in found:
                with target.busy():
                    rows.append((target, *measure_one(both, cpu, other,
                                                      plan)))
            print_cost(rows)
            measure.table(["OTHER TASKS", "TICKS", "NS/TICK"],
                          [[name, ticks.ticks, "%.0f" % ticks.mean_ns]
                           for name, ticks in other.items()])
            print_frames(rows, ours, theirs)


if __name__ == "__main__":
    measure.run(main, __doc__)
