# SPDX-License-Identifier: Apache-2.0
"""What lua-gc-latency costs: per pause, and an allocation-bound program.
"""
import os
import re
import shutil
import subprocess
import tempfile
import time
from typing import Dict, List, Optional, Tuple

import measure

ABOUT = """
Programs that make garbage do the same amount of work again and again, on one
CPU: without the tool, with its probes (histogram), with its probes and the
stack of each pause (-f), and with 99 samples a second (--sample). The order
changes from round to round. RATIO is CPU time over that of the run without
the tool in the same round, median and quartiles; US/PAUSE the CPU time beyond
that, over the pauses the tool counted. A step of the interpreter passes two
probes, steps of a trace four and more; one finalizer two more.
"""

TOOL = os.path.join(measure.ROOT, "tools", "lua-gc-latency.py")
WORK = os.path.join(measure.HERE, "gc_work.lua")
OFF, PROBES, STACKS, SAMPLES = "off", "probes", "stacks", "samples"
OPTIONS: Dict[str, List[str]] = {
    PROBES: [], STACKS: ["-f"], SAMPLES: ["--sample", "99"]}
PROGRAMS = (("tables, interpreter", "tables", ["-joff"]),
            ("tables, traces", "tables", []),
            ("strings and patterns", "mixed", []),
            ("finalizers", "finalizers", ["-joff"]))
START_S = 120


class Program:
    """gc_work.lua with one kind of work."""

    def __init__(self, name: str, mode: List[str]) -> None:
        if not shutil.which("luajit"):
            raise measure.Skip("no luajit command")
        self.process = subprocess.Popen(
            ["luajit", *mode, WORK, name], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=measure.pinned(measure.cpus()[0]))
        self._read()

    def _read(self) -> bytes:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("gc_work.lua ended")
        return line

    def work(self) -> float:
        """CPU seconds of one amount."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return float(self._read())


class Tool:
    """The tool on one process, from its first probe to its last."""

    def __init__(self, pid: int, options: List[str]) -> None:
        self._err = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            ["/usr/bin/python3", TOOL, "-p", str(pid), *options],
            stdout=subprocess.DEVNULL, stderr=self._err,
            preexec_fn=measure.pinned(measure.cpus()[1]))
        end = time.monotonic() + START_S
        while "Hit Ctrl-C" not in self._text():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the tool did not start: " + self._text())
            time.sleep(0.05)

    def _text(self) -> str:
        self._err.seek(0)
        return self._err.read().decode()

    def stop(self) -> int:
        """Pauses that it counted; 0 when it has no probes."""
        measure.stop(self._process)
        found = re.search(r"(\d+) pauses", self._text())
        return int(found.group(1)) if found else 0


def one_round(program: Program, condition: str, amounts: int
              ) -> Tuple[float, int]:
    """CPU seconds and pauses of some amounts of work."""
    tool: Optional[Tool] = None
    if condition != OFF:
        tool = Tool(program.process.pid, OPTIONS[condition])
    try:
        spent = sum(program.work() for _ in range(amounts))
    finally:
        pauses = tool.stop() if tool else 0
    return spent, pauses


def compare(program: Program, rounds: int, amounts: int) -> List[List[str]]:
    """Rows of one program."""
    runs: Dict[str, List[Tuple[float, int]]] = {}
    for order in measure.rotations([OFF, *OPTIONS], rounds):
        for condition in order:
            runs.setdefault(condition, []).append(
                one_round(program, condition, amounts))
    base = [spent for spent, _ in runs[OFF]]
    rows = []
    for condition in OPTIONS:
        spent = [s for s, _ in runs[condition]]
        pauses = [n for _, n in runs[condition]]
        per_pause = [(s - b) / n * 1e6
                     for s, b, n in zip(spent, base, pauses) if n]
        rate = [n / s for s, n in zip(spent, pauses) if n]
        rows.append([
            condition, measure.ratios(spent, base).text("%.3f"),
            measure.Spread.of(rate).text("%.0f") if rate else "-",
            measure.Spread.of(per_pause).text("%.2f") if rate else "-"])
    return rows


def main(quick: bool) -> None:
    measure.paragraph(ABOUT)
    rounds, amounts = (1, 1) if quick else (5, 4)
    for title, name, mode in PROGRAMS:
        program = Program(name, mode)
        try:
            rows = compare(program, rounds, amounts)
        finally:
            measure.stop(program.process)
        measure.table([title.upper(), "RATIO", "PAUSES/CPU SECOND",
                       "US/PAUSE"], rows)


if __name__ == "__main__":
    measure.run(main, __doc__)
