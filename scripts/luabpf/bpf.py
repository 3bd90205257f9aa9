# SPDX-License-Identifier: Apache-2.0
"""Load BPF programs with BCC.

The only file, with drain.py, that imports bcc. BCC rewrites map methods in the
main text alone, so the parts (``#include "lb_*.h"``) are pasted into one text
here, with ``#line`` marks so that messages name the real file.
"""

import os
import re
import sys
from pathlib import Path
from typing import (Any, Callable, Dict, Iterator, List, Mapping, Optional,
                    Sequence, Set, Tuple)

from luabpf import headers, lib
from luabpf.cli import Fail, message

_KERNEL_HINT = "run as root, on Linux 5.15 or later with BPF"
_INCLUDE = re.compile(r'^\s*#\s*include\s+"((?:lb|lj)_[a-z0-9_]+\.h)"')


def _paste(path: Path, seen: Set[str], out: List[str]) -> None:
    text = path.read_text(encoding="utf-8")
    out.append(f'#line 1 "{path.name}"')
    for number, line in enumerate(text.splitlines(), 1):
        match = _INCLUDE.match(line)
        if not match:
            out.append(line)
            continue
        name = match.group(1)
        if name not in seen:
            seen.add(name)
            _paste(path.parent / name, seen, out)
        out.append(f'#line {number + 1} "{path.name}"')


def program_text(name: str) -> str:
    """Text of program NAME (``lua_stacks``) exactly as it is compiled."""
    out: List[str] = []
    _paste(lib.source_dir() / (name + ".c"), set(), out)
    return "\n".join(out) + "\n"


class _Stderr:
    """Catch what the compiler and the loader write to file descriptor 2."""

    def __enter__(self) -> "_Stderr":
        self._saved = os.dup(2)
        self._file = os.memfd_create("luabpf-stderr")
        sys.stderr.flush()
        os.dup2(self._file, 2)
        self.text = ""
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.stderr.flush()
        os.dup2(self._saved, 2)
        os.close(self._saved)
        size = os.lseek(self._file, 0, os.SEEK_END)
        self.text = os.pread(self._file, size, 0).decode(errors="replace")
        os.close(self._file)


class Program:
    """A compiled and loaded program; a context manager."""

    def __init__(self, name: str, defines: Mapping[str, int]) -> None:
        """Compile NAME with -DNAME=VALUE for each of DEFINES.

        Raises Fail when headers, compiler or kernel refuse.
        """
        tree = headers.find_tree()
        if tree:
            os.environ["BCC_KERNEL_SOURCE"] = tree
        try:
            import bcc
        except ImportError:
            raise Fail("the BCC module for Python is missing",
                       hint="apt-get install python3-bpfcc") from None
        self._bcc: Any = bcc
        self._functions: Dict[str, Any] = {}
        flags = [f"-D{key}={value}" for key, value in defines.items()]
        flags += ["-w"]
        catch = _Stderr()
        try:
            with catch:
                self._bpf = bcc.BPF(text=program_text(name).encode(),
                                    cflags=flags)
        except Exception as error:
            raise self._refused(name, catch.text, error) from None

    @staticmethod
    def _refused(name: str, text: str, error: Exception) -> Fail:
        _keep_log(text)
        # BCC makes the maps when it has compiled, and fails in the same way.
        found = re.search(r"could not open bpf map: .*, error: (.*)", text)
        if found:
            return Fail(f"the kernel refused BPF maps: {found.group(1)}",
                        hint=_KERNEL_HINT)
        lines = [line.strip() for line in text.splitlines()
                 if "error:" in line or "rror" in line]
        why = lines[0] if lines else str(error)
        return Fail(f"cannot compile {name}: {why}",
                    hint="set LB_DEBUG_LOG=FILE to keep the compiler's output")

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Detach everything and free the program."""
        self._bpf.cleanup()

    def load(self, kind: str, functions: Sequence[str]) -> None:
        """Load FUNCTIONS as programs of KIND. Raises Fail."""
        types = {"perf_event": self._bcc.BPF.PERF_EVENT,
                 "raw_tracepoint": self._bcc.BPF.RAW_TRACEPOINT,
                 "uprobe": self._bcc.BPF.KPROBE}
        catch = _Stderr()
        try:
            with catch:
                for name in functions:
                    self._functions[name] = self._bpf.load_func(
                        name.encode(), types[kind])
        except Exception as error:
            _keep_log(catch.text)
            raise Fail(f"the kernel refused {kind} programs: {error}",
                       hint=_KERNEL_HINT) from None

    def fd(self, function: str) -> int:
        """File descriptor of a loaded function."""
        return int(self._functions[function].fd)

    def map_fd(self, name: str) -> int:
        """File descriptor of a map."""
        return int(self._bcc.libbcc.lib.bpf_table_fd(
            self._bpf.module, name.encode()))

    def attach_timer(self, function: str, freq: int, period: int,
                     cpu: Optional[int]) -> None:
        """Run FUNCTION on a cpu-clock tick: FREQ Hertz, or each PERIOD ns."""
        kwargs = {"sample_freq": freq} if freq else {"sample_period": period}
        # One call for all CPUs: BCC forgets the events of the call before.
        try:
            with _Stderr():
                self._bpf.attach_perf_event(
                    ev_type=self._bcc.PerfType.SOFTWARE,
                    ev_config=self._bcc.PerfSWConfig.CPU_CLOCK,
                    fn_name=function.encode(), cpu=-1 if cpu is None else cpu,
                    **kwargs)
        except Exception as error:
            raise Fail(f"the kernel refused the timer: {error}",
                       hint="-F is bounded by the sysctl "
                            "kernel.perf_event_max_sample_rate") from None

    def detach_timer(self) -> None:
        """Take the ticks away again; maps stay."""
        self._bpf.detach_perf_event(
            ev_type=self._bcc.PerfType.SOFTWARE,
            ev_config=self._bcc.PerfSWConfig.CPU_CLOCK)

    def map_put(self, name: str, key: bytes, value: bytes) -> None:
        """Set an entry of a map."""
        table = self._bpf[name.encode()]
        table[table.Key.from_buffer_copy(key)] = \
            table.Leaf.from_buffer_copy(value)

    def map_items(self, name: str) -> Iterator[Tuple[bytes, bytes]]:
        """Entries of a hash map, as they are at the moment."""
        for key, value in self._bpf[name.encode()].items():
            yield bytes(key), bytes(value)

    def counters(self, name: str) -> Dict[int, int]:
        """Sums over the CPUs of a per-CPU array of u64."""
        table = self._bpf[name.encode()]
        return {key.value: sum(table.getvalue(key)) for key in table.keys()}

    def open_ring(self, name: str, take: Callable[[bytes], None]) -> None:
        """Have TAKE called with each record of a ring, by take_ring()."""
        self._bpf[name.encode()].open_ring_buffer(
            lambda _cpu, data, size: take(lib.bytes_at(data, size)))

    def take_ring(self) -> None:
        """Take what is in the rings, without waiting."""
        self._bpf.ring_buffer_consume()

    def attach_exec(self, function: str) -> None:
        """Run FUNCTION when a process replaces its image."""
        self._bpf.attach_raw_tracepoint(tp=b"sched_process_exec",
                                        fn_name=function.encode())


def _keep_log(text: str) -> None:
    path = os.environ.get("LB_DEBUG_LOG")
    if not path:
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        message(f"LB_DEBUG_LOG={path}: {error.strerror}")
