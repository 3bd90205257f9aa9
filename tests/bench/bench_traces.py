# SPDX-License-Identifier: Apache-2.0
"""What copying of traces costs: a process with many of them.
"""
import os
import resource
import subprocess
import sys
import time

import measure
import samplers

ABOUT = """
A process runs 8, 1,000 or 8,000 loops in turn, each a trace with a call that
is inlined. Each line is a process of its own that samples it at 999 Hz, with
and without copying of traces (then all samples in traces are coarse).
CPU MS is user and system time from the first sample to the report, LARGEST
POLL MS how long it was busy at once, PEAK MB its largest resident set, SAMPLE
US the time of one sample in the kernel.
"""

PROGRAM = os.path.join(measure.HERE, "many_traces.lua")


def child(pid: int, cpu: int, traces: bool, seconds: float) -> None:
    """Sample, and print one row."""
    with measure.bpf_stats(), samplers.LuaStacks([pid], traces) as sampler:
        begin = time.process_time()
        end, largest = time.monotonic() + seconds, 0.0
        with sampler.sampling(999, cpu) as readings:
            while time.monotonic() < end:
                before = time.process_time()
                sampler.session.poll(100)
                largest = max(largest, time.process_time() - before)
        sampler.frames()
        spent = time.process_time() - begin
        totals = sampler.closing()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print("%.0f\t%.1f\t%.0f\t%.2f\t%d\t%d\t%d\t%d" % (
            spent * 1e3, largest * 1e3, usage.ru_maxrss / 1024,
            readings[0].run_ns / max(totals.samples, 1) / 1e3,
            totals.samples, totals.traces_exact, totals.traces_coarse,
            totals.traces_gone))


def main(quick: bool) -> None:
    measure.paragraph(ABOUT)
    cpu, own_cpu = measure.cpus()[:2]
    luajit = measure.need("luajit")
    rows = []
    for count in (8, 1000) if quick else (8, 1000, 8000):
        process = measure.start([luajit, PROGRAM, str(count)], cpu,
                                stdout=subprocess.PIPE)
        try:
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("many_traces.lua: not ready")
            for traces in (False, True):
                done = subprocess.run(
                    [sys.executable, __file__, "--child", str(process.pid),
                     str(cpu), str(int(traces)), "2" if quick else "10"],
                    check=True, stdout=subprocess.PIPE, text=True,
                    preexec_fn=measure.pinned(own_cpu))
                rows.append([str(count), "yes" if traces else "no"] +
                            done.stdout.strip().split("\t"))
        finally:
            measure.stop(process)
    measure.table(["TRACES", "COPIED", "CPU MS", "LARGEST POLL MS", "PEAK MB",
                   "SAMPLE US", "SAMPLES", "EXACT", "COARSE", "GONE"], rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1",
              float(sys.argv[5]))
    else:
        measure.run(main, __doc__)
