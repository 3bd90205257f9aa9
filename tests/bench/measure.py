# SPDX-License-Identifier: Apache-2.0
"""What all parts of `make bench` share: spread, tables, BPF run times, targets.

A part is a file bench_NAME.py with `main(quick)`; it prints a paragraph and
plain tables, and asserts nothing about time.
"""
import argparse
import contextlib
import ctypes
import dataclasses
import functools
import os
import platform
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import textwrap
from typing import Callable, Iterator, List, Optional, Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OUTPUT = os.path.abspath(os.environ.get("OUTPUT",
                                        os.path.join(ROOT, ".output")))
TOOL = os.path.join(ROOT, "tools", "lua-stacks.py")
sys.path.insert(0, os.path.join(ROOT, "scripts"))

SKIP = 77
WIDTH = 79


class Skip(Exception):
    """This part cannot run here; the reason goes to the user."""


# ---- numbers ----

@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and quartiles of repeated readings."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        if len(values) < 2:
            value = values[0] if values else float("nan")
            return cls(value, value, value)
        low, median, high = statistics.quantiles(values, n=4,
                                                 method="inclusive")
        return cls(low, median, high)

    def text(self, form: str = "%.2f", scale: float = 1.0) -> str:
        """`median (low..high)`"""
        return "%s (%s..%s)" % tuple(
            form % (value * scale)
            for value in (self.median, self.low, self.high))


def ratios(values: Sequence[float], base: Sequence[float]) -> Spread:
    """Spread of the ratios of readings that were taken side by side."""
    return Spread.of([v / b for v, b in zip(values, base) if b])


def rotations(names: Sequence[str], rounds: int) -> Iterator[List[str]]:
    """The order of each round: each name is first equally often, and every
    second turn runs backwards."""
    for turn in range(rounds):
        at = turn // 2 % len(names)
        order = list(names[at:]) + list(names[:at])
        yield order[::-1] if turn % 2 else order


# ---- text ----

def paragraph(text: str) -> None:
    print(textwrap.fill(" ".join(text.split()), WIDTH) + "\n", flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns: the first to the left, the others to the right."""
    lines = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(line[i]) for line in lines)
              for i in range(len(header))]
    for line in lines:
        print("  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths))).rstrip())
    print(flush=True)


def machine() -> str:
    """One line on what the numbers were taken on."""
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    with open("/proc/loadavg", encoding="ascii") as file:
        load = file.read().split()[0]
    return "Linux %s %s, %d x %s, load average %s" % (
        platform.release(), platform.machine(), os.cpu_count() or 1, model,
        load)


# ---- run times of BPF programs ----

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYS_BPF = {"x86_64": 321, "aarch64": 280}.get(platform.machine(), -1)
_BPF_OBJ_GET_INFO_BY_FD = 15
_BPF_ENABLE_STATS = 32
_INFO_SIZE = 256  # struct bpf_prog_info, with room for newer kernels


def _bpf(command: int, attr: bytes) -> int:
    buf = ctypes.create_string_buffer(attr, 128)
    result = int(_LIBC.syscall(_SYS_BPF, command, buf, len(buf)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "bpf(%d): %s" % (command, os.strerror(number)))
    return result


@dataclasses.dataclass(frozen=True)
class ProgInfo:
    """Part of the kernel's struct bpf_prog_info."""

    name: str
    jited_bytes: int
    xlated_bytes: int
    run_time_ns: int
    run_cnt: int
    verified_insns: int


def prog_info(fd: int) -> ProgInfo:
    """What the kernel says of a loaded program."""
    info = ctypes.create_string_buffer(_INFO_SIZE)
    _bpf(_BPF_OBJ_GET_INFO_BY_FD,
         struct.pack("=IIQ", fd, _INFO_SIZE, ctypes.addressof(info)))
    jited, xlated = struct.unpack_from("=II", info, 16)
    name = struct.unpack_from("=16s", info, 64)[0].partition(b"\0")[0]
    run_time_ns, run_cnt, _missed, verified = struct.unpack_from(
        "=QQQI", info, 192)
    return ProgInfo(name.decode(), jited, xlated, run_time_ns, run_cnt,
                    verified)


@contextlib.contextmanager
def bpf_stats() -> Iterator[None]:
    """Let the kernel count run times until the end of the block.

    The count of users is the kernel's; kernel.bpf_stats_enabled stays as it
    is.
    """
    fd = _bpf(_BPF_ENABLE_STATS, struct.pack("=I", 0))
    try:
        yield
    finally:
        os.close(fd)


# ---- processes to measure ----

@functools.lru_cache(maxsize=None)
def cpus() -> List[int]:
    """The CPU of the target, then the one for all that drives it. The same
    all the time, also when this process has gone to one of them."""
    allowed = sorted(os.sched_getaffinity(0))
    return [allowed[0], allowed[-1]]


_PR_SET_PDEATHSIG = 1


def pinned(cpu: int) -> Callable[[], None]:
    """preexec_fn: stay on one CPU, and end when this process does."""
    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setaffinity(0, {cpu})
    return prepare


def start(command: Sequence[str], cpu: int, **more) -> subprocess.Popen:
    """Start a process on one CPU, without output unless asked for."""
    more.setdefault("stdout", subprocess.DEVNULL)
    return subprocess.Popen(list(command), stdin=subprocess.DEVNULL,
                            preexec_fn=pinned(cpu), **more)


def start_lua(name: str, cpu: int, mode: Sequence[str] = ()
              ) -> subprocess.Popen:
    """A loop of work.lua, when it has begun."""
    if not shutil.which("luajit"):
        raise Skip("no luajit command")
    process = start(["luajit", *mode, os.path.join(HERE, "work.lua"), name],
                    cpu, stdout=subprocess.PIPE)
    if process.stdout.readline() != b"ready\n":
        process.wait()
        raise RuntimeError("work.lua %s: not ready" % name)
    return process


def stop(process: Optional[subprocess.Popen]) -> None:
    """End a process of ours, also one that is stopped."""
    if process is not None and process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_ns(pid: int) -> int:
    """CPU time of the main thread of a process."""
    with open("/proc/%d/schedstat" % pid, encoding="ascii") as file:
        return int(file.read().split()[0])


def need(command: str) -> str:
    path = shutil.which(command)
    if not path:
        raise Skip("no %s command" % command)
    return path


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def end_by_signal() -> None:
    """Let SIGTERM end this process by way of all `finally`."""
    signal.signal(signal.SIGTERM, _end)


def run(part: Callable[[bool], None], doc: str) -> None:
    """Command line of one part."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true",
                        help="a few seconds, to see that it works")
    args = parser.parse_args()
    end_by_signal()
    try:
        if os.geteuid() != 0:
            raise Skip("not root")
        part(args.quick)
    except Skip as skip:
        print("skipped: %s" % skip)
        sys.exit(SKIP)
