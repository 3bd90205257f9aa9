# SPDX-License-Identifier: Apache-2.0
"""Two samplers in this process, loaded once, switched on for one reading each.

LuaStacks is the program, the C core and the drain of lua-stacks as the tool
starts them; FramePointers is fp_sampler.c on the same perf event.
"""
import collections
import contextlib
import dataclasses
import os
import re
import sys
import time
from typing import Dict, Iterator, List, Optional, Sequence

import measure
from luabpf import bpf, drain, headers, lib

_ROOM = lib.Needs(rows=1 << 18, blocks=1 << 17, rules=1 << 13, procs=8)
_STACKS = 65536


@dataclasses.dataclass(frozen=True)
class Reading:
    """One stretch of sampling."""

    seconds: float
    samples: int  # of the processes that were asked for
    ticks: int    # runs of the program, on any task
    run_ns: int   # of all runs, tail calls included
    drain_ns: int  # CPU time of this process meanwhile

    def sample_ns(self, other_ns: float) -> float:
        """Mean cost of one sample, when a tick on another task costs that."""
        if not self.samples:
            return float("nan")
        others = max(self.ticks - self.samples, 0)
        return (self.run_ns - others * other_ns) / self.samples


@dataclasses.dataclass
class Frames:
    """Frames of the samples of one process, by kind."""

    samples: int = 0
    kernel: int = 0
    native: int = 0
    lua: int = 0

    def mean(self, count: int) -> float:
        return count / self.samples if self.samples else float("nan")


class Sampler:
    """What both have in common; a context manager."""

    name = ""

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError

    def fd(self) -> int:
        """Of the program that runs at each tick."""
        raise NotImplementedError

    def attach(self, rate: int, cpu: Optional[int]) -> None:
        raise NotImplementedError

    def detach(self) -> None:
        raise NotImplementedError

    def samples(self) -> int:
        """Taken so far."""
        raise NotImplementedError

    def pause(self, seconds: float) -> None:
        """Let it sample."""
        time.sleep(seconds)

    @contextlib.contextmanager
    def sampling(self, rate: int, cpu: Optional[int] = None
                 ) -> Iterator[List[Reading]]:
        """Sample at RATE, on one CPU or all, until the end of the block; the
        list then has the reading."""
        result: List[Reading] = []
        samples, before = self.samples(), measure.prog_info(self.fd())
        own, begin = time.process_time_ns(), time.monotonic()
        self.attach(rate, cpu)
        try:
            yield result
        finally:
            self.detach()
        spent = time.monotonic() - begin
        own = time.process_time_ns() - own
        after = measure.prog_info(self.fd())
        result.append(Reading(spent, self.samples() - samples,
                              after.run_cnt - before.run_cnt,
                              after.run_time_ns - before.run_time_ns, own))

    def measure(self, rate: int, seconds: float,
                cpu: Optional[int] = None) -> Reading:
        """Sample for SECONDS."""
        with self.sampling(rate, cpu) as result:
            self.pause(seconds)
        return result[0]


def _stops() -> int:
    """How many counters of lb_counters count finished samples."""
    path = os.path.join(measure.ROOT, "bpf_c", "lb_wire.h")
    with open(path, encoding="utf-8") as file:
        body = file.read().partition("enum lb_stop {")[2]
    names = re.findall(r"^\s*LB_STOP_\w+", body.partition("}")[0], re.M)
    return len(names) - 1  # LB_STOP_MAX is none


class LuaStacks(Sampler):
    """The sampler of lua-stacks."""

    name = "lua-stacks"

    def __init__(self, pids: Sequence[int], traces: bool = True) -> None:
        self.session = lib.Session(self._log)
        for pid in pids:
            self.session.add_pid(pid, need_vm=False)
        needs = self.session.needs()
        room = lib.Needs(needs.rows + _ROOM.rows, needs.blocks + _ROOM.blocks,
                         needs.rules + _ROOM.rules, needs.procs + _ROOM.procs,
                         needs.ref32)
        self.program = bpf.Program("lua_stacks", drain.defines(room, _STACKS))
        self._functions = [*drain.walker(room), "lua_stacks_sample"]
        drain.connect(self.session, self.program, "perf_event",
                      ["lua_stacks_sample"], room,
                      lib.CONFIG_USER | lib.CONFIG_KERNEL |
                      (lib.CONFIG_TRACES if traces else 0))
        self._counters = self.program._bpf[b"lb_counters"]
        self._stops = _stops()

    @staticmethod
    def _log(level: int, text: str) -> None:
        if level <= 1:
            print(text, file=sys.stderr)

    def close(self) -> None:
        self.program.close()
        self.session.__exit__()

    def fd(self) -> int:
        return self.program.fd("lua_stacks_sample")

    def infos(self) -> List[measure.ProgInfo]:
        """Of all its programs."""
        return [measure.prog_info(self.program.fd(name))
                for name in [*self._functions, "lb_exec"]]

    def attach(self, rate: int, cpu: Optional[int]) -> None:
        self.program.attach_timer("lua_stacks_sample", rate, 0, cpu)

    def detach(self) -> None:
        self.program.detach_timer()

    def samples(self) -> int:
        total = 0
        for i in range(self._stops):
            total += sum(self._counters[self._counters.Key(i)])
        return total

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0:
                break
            self.session.poll(min(100, int(left * 1000) + 1))

    def frames(self) -> Dict[int, Frames]:
        """By PID; sampling is over after this."""
        self.session.stop()
        result: Dict[int, Frames] = collections.defaultdict(Frames)
        flags = lib.FOLD_ANNOTATE | lib.FOLD_PER_PID
        for text, count, pid in self.session.folded(flags):
            of = result[pid]
            of.samples += count
            for frame in text.split(";")[1:]:
                if frame.endswith("_[k]"):
                    of.kernel += count
                elif "@" in frame:
                    of.lua += count
                else:
                    of.native += count
        return result

    def closing(self) -> lib.Totals:
        return self.session.totals()


class FramePointers(Sampler):
    """Stacks along frame pointers by bpf_get_stackid."""

    name = "frame pointers"

    def __init__(self, pids: Sequence[int]) -> None:
        tree = headers.find_tree()
        if tree:
            os.environ["BCC_KERNEL_SOURCE"] = tree
        import bcc
        self._bcc = bcc
        path = os.path.join(measure.HERE, "fp_sampler.c")
        with open(path, encoding="utf-8") as file:
            self._bpf = bcc.BPF(text=file.read(), cflags=["-w"])
        self._function = self._bpf.load_func(b"fp_sample",
                                             bcc.BPF.PERF_EVENT)
        targets = self._bpf[b"fp_targets"]
        for pid in pids:
            targets[targets.Key(pid)] = targets.Leaf(1)
        self._event = {"ev_type": bcc.PerfType.SOFTWARE,
                       "ev_config": bcc.PerfSWConfig.CPU_CLOCK}

    def close(self) -> None:
        self._bpf.cleanup()

    def fd(self) -> int:
        return int(self._function.fd)

    def infos(self) -> List[measure.ProgInfo]:
        return [measure.prog_info(self.fd())]

    def attach(self, rate: int, cpu: Optional[int]) -> None:
        self._bpf.attach_perf_event(
            fn_name=b"fp_sample", sample_freq=rate,
            cpu=-1 if cpu is None else cpu, **self._event)

    def detach(self) -> None:
        self._bpf.detach_perf_event(**self._event)

    def samples(self) -> int:
        table = self._bpf[b"fp_samples"]
        return sum(table[table.Key(0)])

    def frames(self) -> Dict[int, Frames]:
        """By PID; a walk that the kernel refused has no frames."""
        stacks = self._bpf[b"fp_stacks"]
        result: Dict[int, Frames] = collections.defaultdict(Frames)
        for key, leaf in self._bpf[b"fp_counts"].items():
            of, count = result[key.tgid], leaf.value
            of.samples += count
            for ident, kind in ((key.user_id, "native"),
                                (key.kernel_id, "kernel")):
                if ident >= 0:
                    depth = sum(1 for _ in stacks.walk(ident))
                    setattr(of, kind, getattr(of, kind) + depth * count)
        return result
