# SPDX-License-Identifier: Apache-2.0
"""Known answers for lua-gc-latency: tests/lua/gc_known.lua on each LuaJIT here.

The programs wait until the tool has set its probes, work one after the other,
and wait again until it has ended: all that they do is measured, and nothing
else. Each knows how many collections it made, how long each took, and how many
errors it caught.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import hosts
from harness import ROOT, skip_reason

TOOL = os.path.join(ROOT, "tools", "lua-gc-latency.py")
PROGRAM = os.path.join(ROOT, "tests", "lua", "gc_known.lua")
DEB = os.path.join(hosts.OUTPUT, "deb")
SECONDS = 120  # until a step that should be short is given up

N_STEPS, N_FULL, N_THROWN, N_NESTED = 999, 23, 101, 31
LONG_US = 200  # pauses of which the length is compared
SLACK = 0.05
ALONE_US = 50  # wall clock beside CPU time: nobody else ran
N_ALONE = 10

EXEC = """
local ffi = require("ffi")
ffi.cdef("int execlp(const char *, const char *, ...);")
print("ready") io.stdout:flush()
io.read("*l")
ffi.C.execlp("sleep", "sleep", "%d", nil)
""" % SECONDS


def library_dir(temp):
    """A folder in which LuaTeX's LuaJIT has the name that hosts ask for."""
    path = os.path.join(DEB, "texlua", hosts.LIB_DIR.lstrip("/"),
                        "libtexluajit.so.2")
    folder = os.path.join(temp, "texlua")
    os.makedirs(folder, exist_ok=True)
    link = os.path.join(folder, "libluajit-5.1.so.2")
    if not os.path.exists(link):
        os.symlink(path, link)
    return folder if os.path.exists(path) else None


def stripped(path, temp):
    """A copy without any symbol."""
    copy = os.path.join(temp, os.path.basename(path) + ".stripped")
    subprocess.run(["strip", "-o", copy, path], check=True)
    return copy


def targets(temp):
    """Name -> (command, folder of its LuaJIT), as far as they are here."""
    found = {}
    if not shutil.which("luajit"):
        return found
    upstream = os.path.join(DEB, "upstream")
    found["luajit2"] = [shutil.which("luajit")], None
    found["libluajit2"] = [hosts.build_host("host")], None
    found["static"] = [stripped(hosts.build_host("host_static"), temp)], None
    if os.path.exists(os.path.join(upstream, "usr/bin/luajit")):
        found["upstream"] = [os.path.join(upstream, "usr/bin/luajit")], None
        found["libupstream"] = [hosts.build_host("host")], os.path.join(
            upstream, hosts.LIB_DIR.lstrip("/"))
    texlua = library_dir(temp)
    if texlua:
        found["texlua"] = [hosts.build_host("host")], texlua
    tarantool = os.path.join(DEB, "tarantool/usr/bin/tarantool")
    if os.path.exists(tarantool):
        found["tarantool"] = [tarantool], None
    return found


class Program:
    """gc_known.lua in one LuaJIT, and what it says of itself."""

    def __init__(self, name, command, libraries, jit, parts="katn",
                 script=PROGRAM):
        self.name = "%s %s" % (name, "jit" if jit else "-joff")
        self.jit = jit
        env = dict(os.environ, LC_ALL="C", LB_PARTS=parts)
        for key in ("LUA_PATH", "LUA_CPATH", "LUA_INIT"):
            env.pop(key, None)
        if not jit:
            env["LB_JOFF"] = "1"
        if libraries:
            env["LD_LIBRARY_PATH"] = libraries
        self.process = subprocess.Popen(
            [*command, script], env=env, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.pauses, self.said = [], {}
        self.read_until("ready")

    def read_until(self, word):
        for line in self.process.stdout:
            fields = line.split()
            if fields[0] == word:
                return
            if fields[0] == "pause":
                self.pauses.append((fields[1], float(fields[2]),
                                    float(fields[3])))
            else:
                self.said[fields[0]] = int(fields[1])
        raise AssertionError("%s: ended before %s, status %s" % (
            self.name, word, self.process.wait()))

    def work(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.read_until("done")

    def end(self):
        """Exit status; the program ends by itself."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.close()
        except (BrokenPipeError, ValueError):
            pass  # it has ended, or was told to
        try:
            return self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self.process.stdout.close()


class Tool:
    """A run of the tool around what a block does."""

    def __init__(self, temp, *args):
        self.out = os.path.join(temp, "out")
        self.err = os.path.join(temp, "err")
        with open(self.out, "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen(
                ["/usr/bin/python3", TOOL, *map(str, args)], stdout=out,
                stderr=err, stdin=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + SECONDS
        while "Hit Ctrl-C" not in self.stderr:
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the tool did not start:\n" + self.stderr)
            time.sleep(0.02)
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.status = self.process.wait()

    @property
    def stderr(self):
        with open(self.err) as file:
            return file.read()

    @property
    def stdout(self):
        with open(self.out) as file:
            return file.read()

    def objects(self, kind):
        found = [json.loads(line) for line in self.stdout.splitlines()]
        return [line for line in found if line["type"] == kind]


class LatencyTest(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        reason = skip_reason()
        if reason:
            raise unittest.SkipTest(reason)
        if not shutil.which("luajit"):
            raise unittest.SkipTest("luajit: no luajit command")
        temp = tempfile.TemporaryDirectory(prefix="lb-gc-")
        cls.addClassCleanup(temp.cleanup)
        cls.temp = temp.name

    def start(self, names=None, modes=(True, False), parts="katn"):
        programs = []
        for name, (command, libraries) in targets(self.temp).items():
            for jit in modes if names is None or name in names else ():
                program = Program(name, command, libraries, jit, parts)
                self.addCleanup(program.end)
                programs.append(program)
        return programs

    def measure(self, programs, *args):
        """Let each work once while the tool runs."""
        pids = ",".join(str(program.pid) for program in programs)
        with Tool(self.temp, "-p", pids, *args) as tool:
            for program in programs:
                program.work()
        self.assertEqual(tool.status, 0, tool.stderr)
        self.assertNotIn("Traceback", tool.stderr)
        return tool


class KnownTest(LatencyTest):
    """Each pause of each LuaJIT, from one run of the tool."""

    def test_every_build(self):
        programs = self.start()
        tool = self.measure(programs, "-e", "-j")
        events = tool.objects("pause")
        self.assertRegex(tool.stderr, r"lua-gc-latency: %d pauses, %d dropped "
                         r"\(an error was thrown through\), 0 lost\n$" % (
                             len(events), sum(
                                 p.said["thrown_full"] + p.said["thrown_steps"]
                                 for p in programs)))
        for program in programs:
            own = [e for e in events if e["pid"] == program.pid]
            for check in (self.check_counts, self.check_lengths,
                          self.check_phases, self.check_cycles):
                with self.subTest(program.name, check=check.__name__):
                    check(program, own)
            with self.subTest(program.name, check="ends well"):
                self.assertEqual(program.end(), 0)

    def check_counts(self, program, events):
        entries = [e["entry"] for e in events]
        said = program.said
        # a build lets such errors out, or it never does
        self.assertIn(said["thrown_full"], (0, N_THROWN))
        self.assertEqual(said["nested"], N_NESTED)
        self.assertEqual(entries.count("asked"), N_STEPS)
        self.assertEqual(entries.count("full"), N_FULL + N_NESTED
                         + N_THROWN - said["thrown_full"])
        self.assertGreater(entries.count("step"), 0)
        if program.jit:
            self.assertGreater(entries.count("trace"), 0)
        else:
            self.assertEqual(entries.count("trace"), 0)

    def by_hand(self, program, events):
        """(by the program, by the tool) of each pause of part k."""
        hand = [e for e in events if e["entry"] in ("asked", "full")]
        kinds = ["asked" if kind == "step" else kind
                 for kind, _wall, _cpu in program.pauses]
        hand = hand[:len(kinds)]
        self.assertEqual([e["entry"] for e in hand], kinds)
        return list(zip(program.pauses, hand))

    def check_lengths(self, program, events):
        """Pauses of 200 us and more, by the program's own clocks."""
        pairs = [(p, e) for p, e in self.by_hand(program, events)
                 if p[2] >= LONG_US]
        self.assertGreaterEqual(len(pairs), N_FULL)
        self.agree([p[2] for p, _ in pairs],
                   [e["cpu_ns"] / 1000 for _, e in pairs])
        # where another task ran meanwhile, it may have done so between the
        # program's clock and the probe
        alone = [(p, e) for p, e in pairs if p[1] - p[2] < ALONE_US]
        if any(p[1] for p, _ in pairs) and len(alone) >= N_ALONE:
            self.agree([p[1] for p, _ in alone],
                       [e["pause_ns"] / 1000 for _, e in alone])
        for (_kind, wall, _cpu), event in pairs:
            if wall:
                self.assertLessEqual(event["pause_ns"], wall * 1000 + 1000)

    def agree(self, own, seen):
        self.assertLess(abs(sum(seen) / sum(own) - 1), SLACK)
        # an interrupt beside the probes makes a pause of the program's longer
        longest = sorted(zip(own, seen))[-3:]
        self.assertLess(min(abs(s / o - 1) for o, s in longest), SLACK,
                        longest)
        self.assertLessEqual(max(seen), max(own) * (1 + SLACK))

    def check_phases(self, program, events):
        """All of a pause is in a phase or in a finalizer."""
        for event in events:
            spent = sum(event["phases_ns"].values()) + event["finalizers_ns"]
            self.assertEqual(spent, event["pause_ns"])
            self.assertLessEqual(event["cpu_ns"], event["pause_ns"])
            if event["entry"] == "full":
                for phase in ("mark roots", "propagate", "atomic",
                              "sweep strings", "sweep"):
                    self.assertGreater(event["phases_ns"][phase], 0, phase)
        nested = [e for e in events if e["entry"] == "full"][-N_NESTED:]
        for event in nested:
            self.assertGreater(event["finalizers"], 0)
            self.assertGreater(event["finalizers_ns"], 0)
        # they collect: much of these pauses is theirs
        self.assertGreater(
            sum(e["finalizers_ns"] for e in nested),
            0.1 * sum(e["pause_ns"] for e in nested))

    def check_cycles(self, program, events):
        """A finalizer runs once a cycle; parts k and a are in front."""
        want = program.said["cycles_k"] + program.said["cycles_a"]
        tail = N_THROWN - program.said["thrown_full"] + N_NESTED
        fulls = [i for i, e in enumerate(events) if e["entry"] == "full"]
        after_k = fulls[N_FULL - 1] + 1
        end = len(events)
        if tail and len(fulls) > N_FULL:
            end = fulls[N_FULL]
        self.assertGreater(end, after_k)
        cycles = sum(e["phase_after"] == "mark roots" for e in events[:end])
        # what comes in front of the first full collection behind part a may
        # hold steps of part t, whose errors end the count early
        self.assertGreaterEqual(cycles, want - 1)


class OtherModesTest(LatencyTest):
    def test_histogram_and_its_groups(self):
        programs = self.start(("luajit2", "libupstream"), parts="ka")
        tool = self.measure(programs, "-j", "-L", "--by", "entry")
        groups = tool.objects("group")
        for program in programs:
            mine = {g["entry"]: g for g in groups
                    if g["pid"] == str(program.pid)}
            with self.subTest(program.name):
                self.assertEqual(mine["asked"]["count"], N_STEPS)
                self.assertEqual(mine["full"]["count"], N_FULL)
                self.assertEqual(mine["asked"]["tid"], str(program.pid))
                full = [p for p in program.pauses if p[0] == "full"]
                cpu = sum(c for _kind, _wall, c in full)
                self.assertLess(abs(mine["full"]["cpu_ns"] / cpu / 1000
                                    - 1), SLACK)
                self.assertLessEqual(mine["full"]["max_ns"], 1000 * max(
                    w for _kind, w, _cpu in full))
                # the program's longest may have an interrupt between the
                # pause and its look at the clock
                self.assertGreaterEqual(
                    mine["full"]["max_ns"] * (1 + SLACK),
                    1000 * sorted(c for _kind, _wall, c in full)[-3])
                counts = mine["asked"]["log2"]["counts"]
                self.assertEqual(sum(counts), N_STEPS)
                self.assertLessEqual(mine["full"]["p50_ns"],
                                     mine["full"]["p99_ns"])
        total, = tool.objects("interval")
        self.assertEqual(sum(g["count"] for g in groups), total["count"])
        self.assertEqual(total["entries"]["full"], N_FULL * len(programs))
        cycles = sum(p.said["cycles_k"] + p.said["cycles_a"]
                     for p in programs)
        self.assertAlmostEqual(total["cycles"], cycles, delta=len(programs))
        self.assertEqual(sum(total["phases_ns"].values())
                         + total["finalizers_ns"], total["total_ns"])
        self.assertLess(total["cpu_ns"], total["process_cpu_ns"])

    def test_text_prometheus_and_threshold(self):
        program, = self.start(("luajit2",), modes=(False,), parts="k")
        path = os.path.join(self.temp, "gc.prom")
        tool = self.measure([program], "-T", "--by", "phase", "--prometheus",
                            path)
        with open(path) as file:
            text = file.read()
        label = 'pid="%d",entry="full"' % program.pid
        self.assertIn("luajit_gc_pause_seconds_count{%s} %d\n" % (
            label, N_FULL), text)
        self.assertIn('luajit_gc_pause_seconds_bucket{%s,le="+Inf"} %d\n' % (
            label, N_FULL), text)
        self.assertIn("luajit_gc_pauses_dropped_total 0\n", text)
        self.assertEqual([f for f in os.listdir(self.temp)
                          if f.endswith(".tmp")], [])
        for phase in ("propagate", "atomic", "sweep strings", "sweep"):
            self.assertIn("phase = %s\n" % phase, tool.stdout)
        self.assertRegex(tool.stdout, r"avg = [\d.]+ usecs, total: [\d.]+ "
                         r"usecs, count: \d+\nmax = ")
        self.assertRegex(tool.stdout, r"entries: .*asked %d " % N_STEPS)
        self.assertIn("%d pauses" % (N_STEPS + N_FULL), tool.stderr)

    def test_descendants(self):
        program, = self.start(("luajit2",), modes=(False,), parts="k")
        with Tool(self.temp, "-p", os.getpid(), "--tree", "-j") as tool:
            program.work()
        self.assertEqual(tool.status, 0, tool.stderr)
        total, = tool.objects("interval")
        self.assertEqual(total["entries"],
                         {"asked": N_STEPS, "full": N_FULL})

    def test_pauses_of_a_length(self):
        program, = self.start(("luajit2",), modes=(False,), parts="k")
        tool = self.measure([program], "-M", "1")
        lines = tool.stdout.splitlines()
        self.assertEqual(lines[0].split(), [
            "TIME", "PID", "TID", "PAUSE", "ENTRY", "HEAP_KB", "FREED_KB",
            "PHASES"])
        # the probes' own time is in the program's figure, not in the tool's
        self.assertLessEqual(len(lines) - 1, sum(
            w >= 1000 for _k, w, _c in program.pauses))
        self.assertGreaterEqual(len(lines) - 1, sum(
            c >= 1100 for _k, _w, c in program.pauses))
        for line in lines[1:]:
            self.assertGreaterEqual(float(line.split()[3]), 1000)
            self.assertLess(len(line), 80)

    def is_by_hand(self, frames):
        return frames[0] == "lua_gc" and frames[-1] == "_start" and any(
            frame.startswith("by_hand@") for frame in frames)

    def test_stack_of_each_pause(self):
        program, = self.start(("luajit2",), modes=(False,), parts="k")
        tool = self.measure([program], "-e", "-s", "-j")
        events = tool.objects("pause")
        hand = [e for e in events if e["entry"] in ("asked", "full")]
        self.assertEqual(len(hand), N_STEPS + N_FULL)
        bad = [e["stack"] for e in hand if not self.is_by_hand(e["stack"])]
        self.assertEqual(bad[:3], [])

    def test_folded_stacks_weigh_what_the_program_says(self):
        program, = self.start(("luajit2",), modes=(False,), parts="k")
        tool = self.measure([program], "-f", "-n")
        total = 0
        for line in tool.stdout.splitlines():
            stack, _, ns = line.rpartition(" ")
            frames = stack.split(";")
            self.assertEqual(frames[0], "luajit")
            if self.is_by_hand(frames[:0:-1]):
                total += int(ns)
        # shorter than by its own clock, which has the probes' time in it
        wall = sum(w for _k, w, _c in program.pauses) * 1000
        cpu = sum(c for _k, _w, c in program.pauses) * 1000
        self.assertLessEqual(total, wall)
        self.assertGreater(total, 0.7 * cpu)
        self.assertRegex(tool.stderr, r"stacks: 100\.0 % of the time complete; "
                         r"0 lost\n")

    def test_samples_agree_with_the_program(self):
        program, = self.start(("luajit2",), modes=(False,), parts="ka" * 4)
        tool = self.measure([program], "--sample", "499", "-j")
        samples, = tool.objects("samples")
        spent = sum(c for _k, _w, c in program.pauses)
        self.assertGreater(samples["known"], 20)
        self.assertGreater(samples["gc"], 0)
        self.assertGreater(spent, 0)
        self.assertLessEqual(samples["gc"], samples["known"])
        # nearly all the program does is to collect
        self.assertGreater(samples["gc_share"] + samples["gc_share_error"],
                           0.5)


class RefusalTest(LatencyTest):
    def run_tool(self, *args):
        return subprocess.run(
            ["/usr/bin/python3", TOOL, *map(str, args)], text=True,
            timeout=SECONDS, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_process_without_luajit(self):
        other = subprocess.Popen(["sleep", str(SECONDS)])
        try:
            done = self.run_tool("-p", other.pid)
        finally:
            other.kill()
            other.wait()
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^lua-gc-latency: PID %d: no LuaJIT in "
                         r"it: none of its \d+ mapped files of code holds the "
                         r"VM\nhint: lua-doctor -p PID shows what is in it"
                         r"\n$" % other.pid)

    def test_no_process(self):
        done = self.run_tool("-p", 4194303)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith(
            "lua-gc-latency: PID 4194303: no such process\nhint: "),
            done.stderr)

    def test_the_target_may_exit(self):
        program, = self.start(("luajit2",), modes=(True,), parts="k")
        with Tool(self.temp, "-p", program.pid, "-j") as tool:
            program.work()
            self.assertEqual(program.end(), 0)
            self.assertEqual(tool.process.wait(SECONDS), 0)
        total, = tool.objects("interval")
        self.assertGreaterEqual(total["count"], N_STEPS + N_FULL)
        self.assertIn("PID %d has exited\n" % program.pid, tool.stderr)
        self.assertIn("no process is left", tool.stderr)

    def test_the_target_may_execute_another_program(self):
        program, = self.start(("luajit2",), modes=(True,), parts="k")
        shell = subprocess.Popen(
            ["luajit", "-e", EXEC], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        try:
            self.assertEqual(shell.stdout.readline(), "ready\n")
            with Tool(self.temp, "-p", "%d,%d" % (program.pid, shell.pid),
                      "-j") as tool:
                shell.stdin.write("\n")
                shell.stdin.flush()
                hosts.wait_for(lambda: "PID %d has executed another program"
                               % shell.pid in tool.stderr, "a word of it")
                program.work()
        finally:
            shell.kill()
            shell.communicate()
        self.assertEqual(tool.status, 0, tool.stderr)
        self.assertNotIn("no process is left", tool.stderr)
        # of the program that goes on, and none of the one that was executed
        total, = tool.objects("interval")
        self.assertEqual(total["entries"], {"asked": N_STEPS, "full": N_FULL})


if __name__ == "__main__":
    sys.exit(unittest.main())
