# SPDX-License-Identifier: Apache-2.0
"""What does it cost to count a call?
"""
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from typing import Callable, Dict, Iterator, List

import measure
from luabpf import headers

ABOUT = """
A program that does nothing but call an empty function in the interpreter
measures the CPU time of one call: alone; counted by lua-fn-count; with
lua-fn-count asked for another function; with an empty BPF program on the first
instruction of the function header, which the kernel has to step over; and
counted in the process by debug.sethook. NS/CALL is what is added to the call
alone in the same round, SLOWDOWN the ratio.
"""

TOOL = os.path.join(measure.ROOT, "tools", "lua-fn-count.py")
SCRIPT = os.path.join(measure.ROOT, "tests", "lua", "callcost.lua")
# mov r15, [rbx-N]; mov rbp, [rsp+16]; lea rcx, [rdx+rcx*8]; cmp rcx,
# [rbp+48]; ja: the header of a Lua function with 64-bit references
HEADER = re.compile(rb"\x4c\x8b\x7b.\x48\x8b\x6c\x24\x10\x48\x8d\x0c\xca"
                    rb"\x48\x3b\x4d\x30\x0f\x87", re.S)


class Program:
    """The workload; readings() are of the time since the last call."""

    def __init__(self, *args: str) -> None:
        luajit = shutil.which("luajit")
        if not luajit:
            raise measure.Skip("no luajit command")
        self.path = os.path.realpath(luajit)
        self._out = tempfile.TemporaryFile()
        self.process = subprocess.Popen([luajit, "-joff", SCRIPT, *args],
                                        stdout=self._out)
        self._at = 0

    def readings(self) -> List[float]:
        text = os.pread(self._out.fileno(), 1 << 24, self._at)
        whole = text[:text.rfind(b"\n") + 1]
        self._at += len(whole)
        return [float(line) for line in whole.split()
                if line != b"ready"]

    def wait(self, seconds: float) -> float:
        """Nanoseconds a call, over the next seconds."""
        self.readings()
        values: List[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(values) < 4:
            time.sleep(0.05)
            values += self.readings()
        return measure.Spread.of(values[1:]).median


@contextlib.contextmanager
def counted(pid: int, *args: str) -> Iterator[None]:
    """While lua-fn-count counts."""
    tool = subprocess.Popen([TOOL, "-p", str(pid), *args], text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert tool.stderr
        for line in tool.stderr:
            if line.startswith("Counting"):
                break
        else:
            raise RuntimeError("lua-fn-count did not begin")
        time.sleep(1)  # functions that do not match are known by then
        yield
    finally:
        measure.stop(tool)


@contextlib.contextmanager
def stepped(program: Program) -> Iterator[None]:
    """While an empty program is on the first instruction of the header."""
    tree = headers.find_tree()
    if tree:
        os.environ["BCC_KERNEL_SOURCE"] = tree
    import bcc
    with open(program.path, "rb") as file:
        found = HEADER.search(file.read())
    if not found:
        raise measure.Skip("the function header is not as expected")
    bpf = bcc.BPF(text="int empty(void *ctx) { return 0; }", cflags=["-w"])
    function = bpf.load_func(b"empty", bcc.BPF.KPROBE)
    fd = bcc.libbcc.lib.bpf_attach_uprobe(
        function.fd, 0, b"lb_bench_calls", program.path.encode(),
        found.start(), program.process.pid)
    if fd < 0:
        raise RuntimeError("the kernel refused an uprobe")
    try:
        yield
    finally:
        bcc.libbcc.lib.bpf_close_perf_event_fd(fd)
        bpf.cleanup()


def main(quick: bool) -> None:
    measure.paragraph(ABOUT)
    rounds, seconds = (1, 0.3) if quick else (4, 1.5)
    plain, hooked = Program(), Program("hook")
    pid = plain.process.pid
    conditions: Dict[str, Callable[[], contextlib.AbstractContextManager]] = {
        "lua-fn-count": lambda: counted(pid),
        "another function": lambda: counted(pid, "no_such_function"),
        "first instruction": lambda: stepped(plain)}
    alone: List[float] = []
    cost: Dict[str, List[float]] = {name: [] for name in conditions}
    cost["debug.sethook"] = []
    try:
        for _ in range(rounds):
            alone.append(plain.wait(seconds))
            for name, condition in conditions.items():
                with condition():
                    cost[name].append(plain.wait(seconds))
            cost["debug.sethook"].append(hooked.wait(seconds))
    finally:
        for program in (plain, hooked):
            measure.stop(program.process)
    print("a call alone: %s ns\n" % measure.Spread.of(alone).text("%.0f"))
    measure.table(["COUNTED BY", "NS/CALL", "SLOWDOWN"], [
        [name, measure.Spread.of([v - a for v, a in zip(values, alone)]
                                 ).text("%.0f"),
         measure.ratios(values, alone).text("%.0f")]
        for name, values in cost.items()])


if __name__ == "__main__":
    measure.run(main, __doc__)
