# SPDX-License-Identifier: Apache-2.0
"""Processes that change while they are profiled: exec, dlopen, fork, exit.

And which processes are taken: by thread, by tree, by waiting, all of them.
"""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import harness
import hosts
from hosts import wait_for

BUSY = """
local function burn(n)
  local s = 0
  for i = 1, n do s = s + i % 7 end
  return s
end
print("ready") io.stdout:flush()
local stop = os.time() + 300
while os.time() < stop do burn(100000) end
"""


class Tool:
    """lua-stacks in the background; sampling when the constructor returns."""

    def __init__(self, folder, *args, wait="Sampling"):
        self.out = open(os.path.join(folder, "out"), "w+")
        self.err = open(os.path.join(folder, "err"), "w+")
        self.process = subprocess.Popen(
            [harness.TOOL, "-f", "-F", "199", *map(str, args)],
            stdout=self.out, stderr=self.err)
        self.seen = 0
        wait_for(lambda: wait in self.errors()
                 or self.process.poll() is not None, wait)

    def errors(self):
        self.err.seek(0)
        return self.err.read()

    def news(self, start):
        """Lines with START since the last call?"""
        lines = self.errors().count(start)
        new, self.seen = lines > self.seen, lines
        return new

    def end(self, number=signal.SIGINT):
        """End it; folded stacks, closing line, exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        self.out.seek(0)
        stacks = harness.parse_folded(self.out.read())
        closing = harness.Closing.parse(self.errors())
        self.close()
        return stacks, closing, status

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.out.close()
        self.err.close()


class FollowTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = harness.skip_reason() or \
            harness.build_skip_reason("luajit2")
        if reason:
            raise unittest.SkipTest(reason)
        os.makedirs(hosts.BUILT, exist_ok=True)
        cls.late = os.path.join(hosts.BUILT, "late")
        subprocess.run(["cc", *hosts.CFLAGS, "-o", cls.late,
                        os.path.join(hosts.PROGS, "late.c"), "-ldl"],
                       check=True)

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lb-test-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.busy = os.path.join(self.dir, "busy.lua")
        with open(self.busy, "w") as file:
            file.write(BUSY)
        self.luajit = shutil.which("luajit")

    def start(self, *command):
        """Start a program and wait until it is ready."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                   cwd=harness.graphs.LUA_DIR)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()

        self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def tool(self, *args, **kwargs):
        tool = Tool(self.dir, *args, **kwargs)
        self.addCleanup(tool.close)
        return tool

    def spend(self, pid, seconds=0.7):
        """Wait until the process has used this much CPU time more."""
        begin = harness.process_cpu(pid)
        wait_for(lambda: harness.process_cpu(pid) - begin > seconds, "CPU")

    def spend_changing(self, pid, tool, begin, seconds=0.7):
        """The same for a process that changes since its CPU time was BEGIN.

        Returns how many samples may have come before the tool knew its new
        mappings: it says so with -v.
        """
        known = begin

        def spent():
            nonlocal known
            now = harness.process_cpu(pid)
            if tool.news(f"PID {pid}: "):
                known = now
            return now - begin > seconds

        wait_for(spent, "CPU")
        return 3 + int((known - begin) * 199)

    def count(self, stacks, pattern):
        return sum(n for s, n in stacks.items() if re.search(pattern, s))

    def assert_whole(self, stacks, closing, bad=3):
        """All but a few (a change takes a moment to be seen) are complete."""
        self.assertLessEqual(closing.failed + closing.truncated, bad,
                             closing)
        self.assertEqual(sum(stacks.values()), closing.samples)

    def test_exec_in_place(self):
        process = self.start(self.late, "exec", self.luajit, self.busy)
        # beside one with a LuaJIT, one without is profiled, too
        beside = self.start(self.luajit, self.busy)
        tool = self.tool("-p", f"{process.pid},{beside.pid}", "--per-pid",
                         "-v")
        self.spend(process.pid)
        begin = harness.process_cpu(process.pid)
        process.send_signal(signal.SIGUSR1)
        bad = self.spend_changing(process.pid, tool, begin, 1.5)
        self.assertEqual(process.stdout.readline(), "ready\n")
        stacks, closing, status = tool.end()
        self.assertEqual(status, 0)
        pid = process.pid
        self.assertGreater(
            self.count(stacks, rf"^late-{pid};.*;late_native$"), 50)
        self.assertGreater(self.count(stacks, rf"^luajit-{pid};.*;burn@"), 50)
        self.assertEqual(self.count(stacks, r"^late-.*burn@"), 0)
        self.assert_whole(stacks, closing, bad)

    def test_dlopen_later(self):
        process = self.start(self.late, "dlopen")
        beside = self.start(self.luajit, self.busy)
        tool = self.tool("-p", f"{process.pid},{beside.pid}", "-v")
        self.spend(process.pid)
        begin = harness.process_cpu(process.pid)
        process.send_signal(signal.SIGUSR1)
        bad = self.spend_changing(process.pid, tool, begin, 1.5)
        stacks, closing, _ = tool.end()
        self.assertGreater(self.count(stacks, r"main;late_native$"), 50)
        self.assertGreater(self.count(stacks, r"main;.*;late_lua@"), 50)
        self.assert_whole(stacks, closing, bad)

    def test_wait_for_a_luajit(self):
        process = self.start(self.late, "dlopen")
        tool = self.tool("-p", process.pid, "--wait", wait="waiting")
        self.assertNotIn("Sampling", tool.errors())
        process.send_signal(signal.SIGUSR1)
        wait_for(lambda: "Sampling" in tool.errors(), "Sampling")
        self.spend(process.pid)
        stacks, closing, _ = tool.end()
        self.assertGreater(self.count(stacks, r";late_lua@"), 50)
        self.assert_whole(stacks, closing)

    def test_tree_takes_later_children(self):
        process = self.start(self.late, "fork", self.luajit, self.busy)
        tool = self.tool("-p", process.pid, "--tree", "--per-pid", "-v")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.stdout.readline(), "ready\n")
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        with open(children) as file:
            child = int(file.read().split()[0])
        self.addCleanup(os.kill, child, signal.SIGKILL)
        bad = self.spend_changing(child, tool, 0, 1.5)
        stacks, closing, _ = tool.end(signal.SIGTERM)
        self.assertGreater(
            self.count(stacks, rf"^luajit-{child};.*;burn@"), 50)
        self.assertGreater(
            self.count(stacks, rf"^late-{process.pid};.*late_native$"), 5)
        self.assert_whole(stacks, closing, bad)

    def test_target_exits(self):
        process = self.start(self.luajit, self.busy)
        tool = self.tool("-p", process.pid)
        self.spend(process.pid)
        process.kill()
        process.wait()
        # all are gone: the tool ends by itself
        self.assertEqual(tool.process.wait(60), 0, tool.errors())
        stacks, closing, _ = tool.end()
        self.assertGreater(self.count(stacks, r";burn@"), 50)
        self.assert_whole(stacks, closing)

    def test_only_one_thread(self):
        binary = hosts.build_host("threads")
        process = self.start(binary, os.path.join(harness.graphs.LUA_DIR,
                                                  "threads.lua"))
        tids = sorted(int(t) for t in os.listdir(f"/proc/{process.pid}/task"))
        self.assertGreater(len(tids), 1)
        tool = self.tool("-L", tids[1])

        def used():
            path = f"/proc/{process.pid}/task/{tids[1]}/schedstat"
            with open(path) as file:
                return int(file.read().split()[0]) / 1e9

        begin = used()
        wait_for(lambda: used() - begin > 0.7, "CPU of the thread")
        stacks, closing, _ = tool.end()
        seconds = used() - begin
        # the other threads use as much each
        self.assertLess(closing.samples, 199 * seconds * 1.5)
        self.assertGreater(closing.samples, 199 * 0.5)
        self.assert_whole(stacks, closing)

    def test_all_processes(self):
        first = self.start(self.luajit, self.busy)
        tool = self.tool("--per-pid")
        second = self.start(self.luajit, self.busy)
        self.spend(second.pid)
        stacks, _, _ = tool.end()
        for process in (first, second):
            self.assertGreater(self.count(
                stacks, rf"^luajit-{process.pid};.*;burn@"), 20)

    def test_duration_and_default_output(self):
        process = self.start(self.luajit, self.busy)
        done = subprocess.run(
            [harness.TOOL, "-p", str(process.pid), "-F", "99", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        last = done.stdout.rstrip("\n").split("\n\n")[-1].split("\n")
        self.assertRegex(last[0], r"^    burn@.*busy\.lua:2$")
        self.assertEqual(last[-3], "    _start")
        self.assertEqual(last[-2],
                         f"    {'-':16} luajit ({process.pid})")
        self.assertRegex(last[-1], r"^        \d+$")

    def test_parts_of_the_stack(self):
        process = self.start(self.luajit, self.busy)
        pid = process.pid
        for option, want, never in (
                ("-U", r";burn@", r"_\[k\]"),
                ("-K", r"^luajit", r"burn@|_start"),
                ("--lua-only", r"^luajit;main@[^;]*;burn@", r"_start"),
                ("--lines", r";burn@[^;]*busy.lua:[2-6]", r";;")):
            with self.subTest(option):
                done = subprocess.run(
                    [harness.TOOL, "-p", str(pid), "-f", "-a", "-F", "199",
                     option, "1"], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                stacks = harness.parse_folded(done.stdout)
                self.assertGreater(self.count(stacks, want), 20, stacks)
                self.assertEqual(self.count(stacks, never), 0, stacks)


if __name__ == "__main__":
    unittest.main()
