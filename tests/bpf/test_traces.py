# SPDX-License-Identifier: Apache-2.0
"""Inlined functions: their shares, and traces that come and go.

tests/lua/inlined.lua has functions whose split of CPU time is known by
construction: the units that each makes (see there).
"""
import os
import re
import unittest

import graphs
import harness

FULL = os.environ.get("LB_FULL") == "1"
SECONDS = 10 if FULL else 4  # CPU time
POINTS = 5.0
COARSE = 0.4  # share of the samples in traces, at most
# What the tool may take more while it samples traces that come and go, ten
# times what was seen.
GROWTH_KB = 32 << 10

# case -> units of each function, itself only
UNITS = {
    "case_three": {"three_f": 1, "three_g": 2, "three_h": 3},
    "case_branch": {"odd": 3, "even": 1},  # times how often: see below
    "case_tail": {"tail_begin": 1, "tail_end": 2},
    "case_method": {"Class:one": 1, "Class:three": 3},
    "case_struct": {"move": 1, "turn": 2},
    "case_module": {"M.inner": 2, "M.outer": 1},
}
# case -> functions that do all its work
MOSTLY = {
    "case_ipairs": {"visit"}, "case_iterator": {"visit"},
    "case_recursion": {"recurse"}, "case_closure": {"counter",
                                                    "case_closure"},
}
TRACES = re.compile(r"lua-stacks: (\d+) in traces: (\d+) exact, (\d+) coarse, "
                    r"(\d+) gone")


CHURN = graphs.Program("tracechurn", graphs.CLI, "", script="tracechurn.lua")
C_CALLEE = graphs.Program("ccallee", graphs.CLI, "", script="ccallee.lua")


def function_of(frame):
    return frame.split("@")[0]


def self_samples(stacks, case):
    """Samples in traces below a function, by the innermost Lua function."""
    result, total = {}, 0
    for stack, count in stacks.items():
        lua = [f for f in stack.split(";") if f.endswith(("_[j]", "_[i]"))]
        names = [function_of(f) for f in lua]
        frames = [function_of(f) for f in stack.split(";")]
        if case not in frames or not lua:
            continue
        result[names[-1]] = result.get(names[-1], 0) + count
        total += count
    return result, total


def slack(share, samples):
    """Five points, and two standard deviations of what was counted."""
    return POINTS + 200 * (share * (1 - share) / max(samples, 1)) ** 0.5


class TracesTest(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        reason = harness.skip_reason()
        if reason:
            raise unittest.SkipTest(reason)

    def sample(self, build):
        reason = harness.build_skip_reason(build)
        if reason:
            self.skipTest(reason)
        with harness.Session() as session:
            job = (graphs.by_name("inlined"), True, build)
            run = session.run([job], SECONDS)[0]
            return run, session.stderr

    def judge(self, build):
        run, stderr = self.sample(build)
        found = TRACES.search(stderr)
        self.assertTrue(found, stderr)
        in_traces, exact, coarse, gone = map(int, found.groups())
        with self.subTest("account"):
            self.assertEqual(exact + coarse + gone, in_traces)
            self.assertEqual(gone, 0, stderr)
            self.assertLessEqual(coarse, COARSE * in_traces, stderr)
        with self.subTest("legal"):
            illegal = sum(n for n, _ in run.illegal().values())
            self.assertLessEqual(illegal, 0.001 * run.samples + 2,
                                 run.report(5))
        for case, units in UNITS.items():
            if case == "case_branch":
                units = {name: n * run.truth[name]
                         for name, n in units.items()}
            with self.subTest(case):
                self.judge_units(run, case, units)
        for case, names in MOSTLY.items():
            with self.subTest(case):
                got, total = self_samples(run.stacks, case)
                share = sum(got.get(n, 0) for n in names) / max(total, 1)
                self.assertGreater(total, 30, run.report())
                self.assertGreater(share, 0.75, (got, total))

    def judge_units(self, run, case, units):
        got, _ = self_samples(run.stacks, case)
        samples = sum(got.get(name, 0) for name in units)
        self.assertGreater(samples, 30, run.report())
        for name, n in units.items():
            want = n / sum(units.values())
            self.assertAlmostEqual(
                100 * got.get(name, 0) / samples, 100 * want,
                delta=slack(want, samples), msg=(name, got, units))

    def test_churn(self):
        """Traces that are flushed and recorded again, thousands of them, at
        the same addresses and with the same numbers: no frame of another."""
        reason = harness.build_skip_reason("luajit2")
        if reason:
            self.skipTest(reason)
        with harness.Session() as session:
            run = session.start(CHURN)
            session.sample([run], SECONDS, ("--lua-only",))
            found = TRACES.search(session.stderr)
            flushes = len(re.findall("^flushed", run.text(), re.M))
            stderr = session.stderr
            begin_kb, peak_kb = session.begin_kb, session.peak_kb
        self.assertTrue(found, stderr)
        in_traces, exact, coarse, gone = map(int, found.groups())
        self.assertEqual(exact + coarse + gone, in_traces, stderr)
        # at an exit, the frame is still marked and the code is the VM's
        compiled = sum(n for stack, n in run.stacks.items()
                       if re.search(r"_\[j\](;|$)", stack))
        self.assertAlmostEqual(in_traces, compiled,
                               delta=0.01 * compiled + 5, msg=stderr)
        self.assertGreater(begin_kb, 0)
        self.assertLess(peak_kb - begin_kb, GROWTH_KB, (begin_kb, peak_kb))
        self.assertGreater(flushes, 100)
        # how many depends on how soon the tool gets a CPU
        self.assertGreater(exact, 0.02 * in_traces, stderr)
        for stack, count in run.stacks.items():
            numbers = set(re.findall(r"@piece(\d+):", stack))
            self.assertLessEqual(len(numbers), 1, (count, stack))
            # run, high and low by the lines where they begin
            lines = [int(n) for n in re.findall(r"@piece\d+:(\d+)", stack)]
            lines = [n for n in lines if n]  # not the main chunk
            self.assertIn(lines, ([], [9], [9, 5], [9, 5, 1]), stack)

    def test_below_c(self):
        """Samples in C functions that a trace calls have the inlined frame:
        it is found by a return address, not by a pc."""
        reason = harness.build_skip_reason("luajit2")
        if reason:
            self.skipTest(reason)
        with harness.Session() as session:
            run = session.start(C_CALLEE)
            session.sample([run], SECONDS / 2)
            stderr = session.stderr
        found = TRACES.search(stderr)
        self.assertTrue(found, stderr)
        in_traces, exact, _, gone = map(int, found.groups())
        self.judge_below_c(run, "case_ffi", "through_ffi")
        in_libm = self.judge_below_c(run, "case_libm", "through_libm")
        # those through the FFI show the right frame, but are coarse
        self.assertGreater(exact, 0.9 * in_libm, stderr)
        self.assertLessEqual(gone, 0.01 * in_traces, stderr)

    def judge_below_c(self, run, case, callee):
        """Of the samples in C functions that the compiled code of a case
        calls, nearly all are in the function that it has inlined."""
        inlined = total = 0
        for stack, count in run.stacks.items():
            frames = stack.split(";")
            names = [function_of(frame) for frame in frames]
            lua = max((i for i, frame in enumerate(frames)
                       if frame.endswith(("_[j]", "_[i]"))), default=-1)
            below = frames[lua + 1:lua + 2]
            if case not in names or not below or below[0].endswith("_[k]"):
                continue
            total += count
            inlined += count if names[lua] == callee else 0
        self.assertGreater(total, 30, run.report())
        self.assertGreater(inlined, 0.95 * total - 2, (case, inlined, total))
        return inlined

    def states(self, name):
        with harness.Session() as session:
            run = session.start(graphs.by_name(name))
            session.sample([run], SECONDS / 2, ("--vmstate",))
        leaves = [s.split(";") for s in run.stacks]
        return run, {f for frames in leaves for f in frames
                     if re.fullmatch(r"\[(gc|jit:\w+)\]", f)}

    def test_vmstate(self):
        """What the VM does, where a stripped library has no symbols."""
        reason = harness.build_skip_reason("luajit2")
        if reason:
            self.skipTest(reason)
        run, states = self.states("compiler")
        self.assertLessEqual({"[jit:record]", "[jit:asm]"}, states)
        for stack in run.stacks:  # the last frame of user space
            frames = [f for f in stack.split(";") if not f.endswith("_[k]")]
            for frame in frames[:-1]:
                self.assertNotIn(frame, states, stack)
        _, states = self.states("gc")
        self.assertIn("[gc]", states)

    def test_shares_luajit2(self):
        self.judge("luajit2")

    @unittest.skipUnless(FULL, "the long form")
    def test_shares_upstream(self):
        self.judge("upstream")


if __name__ == "__main__":
    unittest.main()
