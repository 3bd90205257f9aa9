# SPDX-License-Identifier: Apache-2.0
"""Start known-answer programs, sample them with lua-stacks, judge the result.

    with Session() as session:
        runs = [session.start(program, jit, build) for program in ...]
        session.sample(runs, seconds)
        for run in runs:
            print(run.report())

As a command: `harness.py [--seconds N] [--build B] [-joff] PROGRAM ...` prints
what the tests would judge, with examples of bad stacks.
"""
import argparse
import collections
import dataclasses
import functools
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Callable, Counter, Dict, List, Optional, Tuple

import graphs
import stackgraph
from hosts import (LIB_DIR, OUTPUT, ROOT, build_host, native_names,
                   static_names)

TOOL = os.path.join(ROOT, "tools", "lua-stacks.py")
BUILDS = ("luajit2", "upstream", "texlua", "tarantool")
# Folder of the unpacked package, and the name that hosts are linked with.
_UNPACKED = {
    "upstream": ("upstream", "libluajit-5.1.so.2"),
    "texlua": ("texlua", graphs.TEXLUA_FILE),
    "tarantool": ("tarantool", "")}


def unpacked_dir(build: str) -> str:
    return os.path.join(OUTPUT, "deb", _UNPACKED[build][0])


def build_file(build: str) -> str:
    """The LuaJIT of an unpacked package."""
    if build in ("upstream", "tarantool"):
        return os.path.join(unpacked_dir(build), "usr/bin",
                            "luajit" if build == "upstream" else build)
    return os.path.join(unpacked_dir(build), LIB_DIR.lstrip("/"),
                        _UNPACKED[build][1])


def library_path(build: str) -> str:
    """A folder where hosts find the build under the name they are linked
    with."""
    folder = os.path.join(unpacked_dir(build), LIB_DIR.lstrip("/"))
    link = os.path.join(folder, "libluajit-5.1.so.2")
    if not os.path.exists(link):
        os.symlink(_UNPACKED[build][1], link)
    return folder


def skip_reason() -> Optional[str]:
    """Why nothing can be sampled here, or None."""
    if os.geteuid() != 0:
        return "bpf: not root"
    if not os.path.exists(TOOL):
        return "bpf: no %s" % os.path.relpath(TOOL, ROOT)
    try:
        import bcc  # noqa: F401
    except ImportError:
        return "bpf: python3-bpfcc is not installed"
    return None


def build_skip_reason(build: str) -> Optional[str]:
    if build in _UNPACKED:
        if not os.path.exists(build_file(build)):
            return "%s: no %s" % (build, build_file(build))
    elif not shutil.which("luajit"):
        return "luajit2: no luajit command"
    return None


def process_cpu(pid: int) -> float:
    """CPU seconds of a whole process, exact (its POSIX CPU clock)."""
    return time.clock_gettime((~pid << 3) | 2)


def stat_cpu(pid: int) -> float:
    """CPU seconds of a process as /proc/PID/stat has them (10 ms steps)."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_cpu() -> float:
    """CPU seconds of all tasks of the machine, in steps of 10 ms."""
    with open("/proc/stat") as file:
        fields = [int(x) for x in file.readline().split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def memory_kb(pid: int, field: str) -> int:
    """A field of /proc/PID/status in KiB, 0 once the process has ended."""
    with open("/proc/%d/status" % pid) as file:
        found = re.search(r"^%s:\s+(\d+) kB" % field, file.read(), re.M)
    return int(found.group(1)) if found else 0


def forget_peak(pid: int) -> None:
    """Let VmHWM begin anew, at what the process has now."""
    with open("/proc/%d/clear_refs" % pid, "w") as file:
        file.write("5")


CLOSING = re.compile(
    r"lua-stacks: (?P<samples>\d+) samples: (?P<complete>\d+) complete"
    r"(?: \((?P<lua>\d+) with Lua\))?, (?P<truncated>\d+) truncated, "
    r"(?P<failed>\d+) failed(?: \((?P<reasons>[^)]*)\))?, (?P<lost>\d+) lost")


@dataclasses.dataclass
class Closing:
    samples: int
    complete: int
    with_lua: int
    truncated: int
    failed: int
    lost: int
    reasons: Dict[str, int]

    @classmethod
    def parse(cls, stderr: str) -> "Closing":
        found = None
        for found in CLOSING.finditer(stderr):
            pass
        if not found:
            raise AssertionError("no closing line in:\n" + stderr)
        get = found.groupdict()
        reasons = {}
        for part in (get["reasons"] or "").split(", "):
            if part:
                count, _, reason = part.partition(" ")
                reasons[reason] = int(count)
        return cls(int(get["samples"]), int(get["complete"]),
                   int(get["lua"] or 0), int(get["truncated"]),
                   int(get["failed"]), int(get["lost"]), reasons)


def parse_folded(text: str) -> Counter[str]:
    """Folded lines to counts; a malformed line is an error."""
    stacks: Counter[str] = collections.Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if not stack or not count.isdigit():
            raise AssertionError("not a folded line: %r" % line)
        stacks[stack] += int(count)
    return stacks


def parse_truth(text: str) -> Dict[str, float]:
    """The last value of each label."""
    truth: Dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("truth "):
            for pair in line.split()[1:]:
                key, _, value = pair.rpartition("=")
                truth[key] = float(value)
    return truth


class Run:
    """One program while it is sampled, and what came out."""

    def __init__(self, program: graphs.Program, jit: bool, build: str,
                 process: subprocess.Popen, stdout: str):
        self.program, self.jit = program.of_build(build), jit
        self.build = build
        self.process, self.pid, self.stdout = process, process.pid, stdout
        self.stacks: Counter[str] = collections.Counter()
        self.cpu_seconds = 0.0
        self.truth: Dict[str, float] = {}
        self.paused = False
        self._cpu_before: Optional[float] = None
        self._stat_before = self.stat_seconds = 0.0

    def __str__(self) -> str:
        return "%s %s %s" % (self.program.name,
                             "jit" if self.jit else "-joff", self.build)

    def text(self) -> str:
        with open(self.stdout, encoding="utf-8") as file:
            return file.read()

    def wait_ready(self, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while self.text().count("ready\n") < self.program.ready:
            if self.process.poll() is not None:
                raise AssertionError("%s: exited with %d: %s" % (
                    self, self.process.returncode, self.text()))
            if time.monotonic() > end:
                raise AssertionError("%s: not ready" % self)
            time.sleep(0.01)

    def _is_stopped(self) -> bool:
        for status in glob.glob("/proc/%d/task/*/stat" % self.pid):
            with open(status) as file:
                if file.read().rpartition(")")[2].split()[0] not in "TZ":
                    return False
        return True

    def learn_truth(self, seconds: float = 0.6) -> None:
        """Let the program measure its shares while nobody samples it.

        Not while it is sampled: the time of the sampler's interrupt counts
        as the program's, more of it where stacks are deep, and no sample can
        ever fall into it. That was 5 points with 200 frames. Before and after
        it are added up: on a busy machine shares drift by some points.
        """
        os.kill(self.pid, signal.SIGCONT)
        begin = process_cpu(self.pid)
        # warm up: traces, and the size of the heap
        warm = self.program.warm
        _wait_for(lambda: process_cpu(self.pid) - begin > warm, 60)
        before = parse_truth(self.text())
        _wait_for(lambda: process_cpu(self.pid) - begin > warm + seconds, 60)
        for key, value in parse_truth(self.text()).items():
            self.truth[key] = self.truth.get(key, 0) + \
                value - before.get(key, 0)

    def pause(self) -> None:
        """Stop the program; counts CPU time since go_on()."""
        if self.paused:
            return
        os.kill(self.pid, signal.SIGSTOP)
        _wait_for(self._is_stopped, 10)
        self.paused = True
        if self._cpu_before is not None:
            self.cpu_seconds = process_cpu(self.pid) - self._cpu_before
            self.stat_seconds = stat_cpu(self.pid) - self._stat_before

    def go_on(self) -> None:
        self._cpu_before = process_cpu(self.pid)
        self._stat_before = stat_cpu(self.pid)
        self.paused = False
        os.kill(self.pid, signal.SIGCONT)

    def spent(self) -> float:
        """CPU seconds since go_on(), a paused program's too."""
        if self.paused:
            return self.cpu_seconds
        return process_cpu(self.pid) - self._cpu_before

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            os.kill(self.pid, signal.SIGCONT)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    # ---- judging ----

    @property
    def samples(self) -> int:
        return sum(self.stacks.values())

    @functools.lru_cache(maxsize=None)
    def graph(self) -> stackgraph.Graph:
        names = static_names(build_file(self.build)) \
            if self.build == "tarantool" else \
            native_names(self.program.binary)
        return self.program.graph(self.jit, names)

    def incomplete(self) -> Counter[str]:
        """Stacks that did not reach the root, or broke on the way."""
        return collections.Counter({
            s: n for s, n in self.stacks.items()
            if any(stackgraph.MARKS.match(f) for f in s.split(";")[1:])})

    def illegal(self) -> Dict[str, Tuple[int, str]]:
        """Stack -> (samples, what is wrong with it)."""
        found = {}
        for stack, count in self.stacks.items():
            frames = stack.split(";")[1:]
            reason = self.graph().check(frames, self.jit)
            if not reason and self.program.extra:
                reason = self.program.extra(frames, self.jit)
            if reason:
                found[stack] = (count, reason)
        return found

    def unknown(self) -> Counter[str]:
        """Frames of user space without a name."""
        names: Counter[str] = collections.Counter()
        for stack, count in self.stacks.items():
            for frame in stack.split(";")[1:]:
                if frame == "[unknown]" or re.match(r"\?@", frame):
                    names[frame] += count
        return names

    def shares(self) -> Dict[str, Tuple[float, float]]:
        """Label -> (share of samples, share by the program itself), in %."""
        result = {}
        for label, ident in self.program.shares.items():
            node = self.graph().nodes.get(ident)
            if node is None:
                node = self.graph().nodes[ident + ".0"]
            thread = self.program.within.get(label)
            stacks = [(s.split(";")[1:], n) for s, n in self.stacks.items()
                      if not thread or ";%s;" % thread in s]
            total = sum(n for _, n in stacks)
            got = sum(n for frames, n in stacks
                      if any(node.matches(_plain(f)) for f in frames))
            cpu = label.split(".")[0] + ".cpu" if thread else "cpu"
            result[label] = (100.0 * got / max(total, 1),
                             100.0 * self.truth.get(label, 0)
                             / self.truth[cpu] if self.truth else 0.0)
        return result

    def report(self, examples: int = 3) -> str:
        illegal, bad = self.illegal(), self.incomplete()
        lines = ["%s: %d samples, %.3f s CPU (x rate: %.1f %%), "
                 "%d incomplete, %d illegal" % (
                     self, self.samples, self.cpu_seconds,
                     100 * self.samples / max(self.program.rate *
                                              self.cpu_seconds, 1),
                     sum(bad.values()), sum(n for n, _ in illegal.values()))]
        for label, (got, truth) in self.shares().items():
            lines.append("    %-16s %5.1f %% sampled, %5.1f %% true" % (
                label, got, truth))
        for frame, count in self.unknown().most_common(3):
            lines.append("    %d times %s" % (count, frame))
        for stack, count in bad.most_common(examples):
            lines.append("    %d incomplete:\n        %s" % (
                count, stack[-1500:]))
        worst = sorted(((s, i) for s, i in illegal.items() if s not in bad),
                       key=lambda item: -item[1][0])
        for stack, (count, reason) in worst[:examples]:
            lines.append("    %d: %s\n        %s" % (
                count, reason, stack[-1500:]))
        return "\n".join(lines)


def _plain(frame: str) -> str:
    suffixes = (stackgraph.JIT, stackgraph.INLINED)
    return frame[:-4] if frame.endswith(suffixes) else frame


Job = Tuple[graphs.Program, bool, str]


def groups(jobs: List[Job]) -> List[List[Job]]:
    """Jobs that can be sampled together without waiting for a CPU: two with
    one thread, or one with more. One start of the tool costs some seconds."""
    result: List[List[Job]] = []
    for job in jobs:
        if job[0].beside:
            result.append([job, (graphs.by_name(job[0].beside), *job[1:])])
        elif (result and job[0].ready == 1 and len(result[-1]) == 1
                and result[-1][0][0].ready == 1):
            result[-1].append(job)
        else:
            result.append([job])
    return result


class Session:
    """Starts programs in a folder of its own; ends all that it started."""

    def __init__(self) -> None:
        self.runs: List[Run] = []
        self.closing: Optional[Closing] = None
        self.stderr = ""
        # CPU time of all but the programs and the tool while sampling
        self.other_seconds = 0.0
        # memory of the tool: when it begins to sample, its peak from then on
        self.begin_kb = self.peak_kb = 0

    def __enter__(self) -> "Session":
        self.dir = tempfile.mkdtemp(prefix="lb-test-")
        return self

    def __exit__(self, *exc) -> None:
        for run in self.runs:
            run.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, program: graphs.Program, jit: bool = True,
              build: str = "luajit2") -> Run:
        env = dict(os.environ, LC_ALL="C")
        for name in ("LUA_PATH", "LUA_CPATH", "LUA_INIT"):
            env.pop(name, None)
        mode = [] if jit else ["-joff"]
        program = program.of_build(build)
        if program.binary:
            args = [arg.format(dir=self.dir) for arg in program.args]
            command = [build_host(program.binary), *mode, *args]
            if build in _UNPACKED:
                env["LD_LIBRARY_PATH"] = library_path(build)
            if program.flavor.name not in (graphs.MUSL_NATIVE.name,
                                           graphs.NESTED.name):
                command.append(program.lua)
        else:
            luajit = shutil.which("luajit")
            if build in _UNPACKED:
                luajit = build_file(build)
            if build == "tarantool" and not jit:
                mode = ["-e", "jit.off()"]
            command = [luajit, *mode, program.lua]
        stdout = os.path.join(self.dir, "%d.out" % len(self.runs))
        with open(stdout, "wb") as file:
            process = subprocess.Popen(command, stdout=file,
                                       stdin=subprocess.DEVNULL,
                                       cwd=graphs.LUA_DIR, env=env)
        run = Run(program, jit, build, process, stdout)
        self.runs.append(run)
        run.wait_ready()
        return run

    def run(self, jobs: List[Job], seconds: int) -> List[Run]:
        """Start programs, sample them together, stop them."""
        runs = [self.start(*job) for job in jobs]
        shared = [run for run in runs if run.program.shares]
        for run in shared:
            run.learn_truth()
        self.sample(runs, seconds)
        for run in shared:
            run.learn_truth()
        for run in runs:
            run.stop()
        return runs

    def sample(self, runs: List[Run], seconds: float,
               options: Tuple[str, ...] = ()) -> None:
        """Run lua-stacks on them until each has used this much CPU time.

        The programs stand still while the tool starts and while it ends, so
        their CPU time is known exactly for what the tool has seen of it,
        however busy the machine is.
        """
        self.rate = min(run.program.rate for run in runs)
        command = [TOOL, "-p", ",".join(str(run.pid) for run in runs), "-f",
                   "-a", "-F", str(self.rate), "--per-pid", *options]
        for run in runs:
            run.pause()
        stdout = self._run_tool(command, runs, seconds)
        self.closing = Closing.parse(self.stderr)
        for stack, count in parse_folded(stdout).items():
            comm = stack.split(";")[0]
            for run in runs:
                if comm.endswith("-%d" % run.pid):
                    run.stacks[stack] = count
                    break
            else:
                raise AssertionError("a stack of no program: " + stack)

    def _run_tool(self, command: List[str], runs: List[Run],
                  seconds: float) -> str:
        folded = os.path.join(self.dir, "folded")
        errors = os.path.join(self.dir, "stderr")
        with open(folded, "wb") as out, open(errors, "wb") as err:
            tool = subprocess.Popen(command, stdout=out, stderr=err)
        try:
            _wait_for(lambda: b"Sampling" in _read(errors)
                      or tool.poll() is not None, 90)
            # The line is printed right before the timers are set.
            time.sleep(0.3)
            busy, own = busy_cpu(), process_cpu(tool.pid)
            self._begin_memory(tool)
            for run in runs:
                run.go_on()
            end = time.monotonic() + 20 * seconds
            while any(run.spent() < seconds for run in runs):
                for run in runs:
                    if run.spent() >= seconds:
                        run.pause()
                if time.monotonic() > end or tool.poll() is not None:
                    break
                left = max(seconds - run.spent() for run in runs)
                time.sleep(max(left / 2, 0.01))
            for run in runs:
                run.pause()
            self.other_seconds = busy_cpu() - busy - sum(
                run.cpu_seconds for run in runs)
            if tool.poll() is None:
                self.other_seconds -= process_cpu(tool.pid) - own
            if tool.poll() is None:
                tool.send_signal(signal.SIGINT)
            _wait_for(lambda: not self._see_memory(tool), 60)
            status = tool.wait(60)
        finally:
            if tool.poll() is None:
                tool.kill()
                tool.wait()
            self.stderr = _read(errors).decode("utf-8", "replace")
        if status or "Sampling" not in self.stderr:
            raise AssertionError("%s: status %d, stderr:\n%s" % (
                " ".join(command), status, self.stderr))
        return _read(folded).decode("utf-8")

    def _begin_memory(self, tool: subprocess.Popen) -> None:
        if tool.poll() is None:  # compiling BPF takes more than sampling
            forget_peak(tool.pid)
            self.begin_kb = self.peak_kb = memory_kb(tool.pid, "VmRSS")

    def _see_memory(self, tool: subprocess.Popen) -> bool:
        """Its peak so far; False when it has ended."""
        if tool.poll() is not None:
            return False
        self.peak_kb = max(self.peak_kb, memory_kb(tool.pid, "VmHWM"))
        return True


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited %d s in vain" % seconds)
        time.sleep(0.02)


def main(argv: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--build", choices=BUILDS, default="luajit2")
    parser.add_argument("-joff", action="store_true")
    parser.add_argument("--examples", type=int, default=3)
    args = parser.parse_args(argv)
    reason = skip_reason() or build_skip_reason(args.build)
    if reason:
        print(reason, file=sys.stderr)
        return 1
    jobs = [(graphs.by_name(name), not args.joff, args.build)
            for name in args.programs or [p.name for p in graphs.PROGRAMS]]
    jobs = [job for job in jobs if job[2] in job[0].flavor.builds
            and job[1] in job[0].modes]
    for group in groups(jobs):
        with Session() as session:
            for run in session.run(group, args.seconds):
                print(run.report(args.examples), flush=True)
            print("    " + session.stderr.strip().replace("\n", "\n    "))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
