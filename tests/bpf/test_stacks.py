# SPDX-License-Identifier: Apache-2.0
"""Known answers: every program of graphs.py, JIT on and off, all LuaJITs.

A short run takes some 3,000 samples of each; with LB_FULL=1 at least 10,000
are taken and no bad sample above the rate is forgiven. Of the LuaJITs with
32-bit references, which share the walker's source with the others, a short run
takes those programs that each reach another part of it.
"""
import os
import unittest

import graphs
import harness

FULL = os.environ.get("LB_FULL") == "1"
SECONDS = 5.2 if FULL else 1.6  # CPU time of each program
SHORT = {
    "texlua": ("traces", "meta", "callbacks", "ffi", "coro", "gc", "compiler",
               "syscalls", "cfunc", "errors", "nested"),
    "tarantool": ("traces", "callbacks", "ffi", "coro", "syscalls", "naming")}
BAD_RATE = 0.001  # incomplete or illegal samples
SHARE_POINTS = 2.0
ACCOUNT = 0.02


def allowed_bad(samples):
    """One in a thousand; in a short run two standard deviations of that
    number on top, since so few samples are not surer than that."""
    mean = samples * BAD_RATE
    return int(mean if FULL else mean + 2 * mean ** 0.5)


def share_tolerance(share, samples):
    """Two points; in a short run two standard deviations on top, since so
    few samples are not surer than that."""
    if FULL:
        return SHARE_POINTS
    p = min(max(share / 100, 0.01), 0.99)
    return SHARE_POINTS + 200 * (p * (1 - p) / max(samples, 1)) ** 0.5


class Sampled:
    """The runs of one program on one build, sampled together."""

    def __init__(self, program, build):
        self.jobs = [(program, jit, build) for jit in program.modes]
        self.runs, self.closings = {}, {}
        for attempt in range(3):
            self.sample()
            if self.steady():
                break

    def sample(self):
        for group in harness.groups(self.jobs):
            rate = min(program.rate for program, _, _ in group)
            seconds = SECONDS * 1999 / rate  # as many samples of each
            with harness.Session() as session:
                for job, run in zip(group, session.run(group, seconds)):
                    if job in self.jobs:
                        self.runs[run.jit] = run
                        self.closings[run.jit] = session.closing
                        self.closings[run.jit].runs = session.runs
                        self.closings[run.jit].others = session.other_seconds
                        self.closings[run.jit].rate = session.rate

    def accounts(self):
        """(mode, samples and lost, samples by CPU time, tolerance)

        A task that timers wake in step with the samples is never sampled,
        whoever it interrupts is in its place. So what tasks of others used
        is uncertain; what the tool itself uses is not forgiven.
        """
        for jit, closing in self.closings.items():
            want = closing.rate * sum(run.cpu_seconds for run in closing.runs)
            delta = ACCOUNT * want + closing.rate * closing.others
            yield jit, closing.samples + closing.lost, want, delta

    def steady(self):
        """Whether numbers that chance has a part in came out; if not, the
        program is sampled anew."""
        accounts = all(abs(got - want) <= delta
                       for _, got, want, delta in self.accounts())
        shares = all(abs(got - true) <= share_tolerance(true, run.samples)
                     for run in self.runs.values()
                     for got, true in run.shares().values())
        return accounts and shares


class StacksTest(unittest.TestCase):
    longMessage = True
    sampled = {}

    @classmethod
    def setUpClass(cls):
        reason = harness.skip_reason()
        if reason:
            raise unittest.SkipTest(reason)

    def judge(self, program, jit, build):
        reason = harness.build_skip_reason(build)
        if reason:
            self.skipTest(reason)
        key = (program.name, build)
        if key not in self.sampled:
            self.sampled[key] = Sampled(program, build)
        sampled = self.sampled[key]
        run, closing = sampled.runs[jit], sampled.closings[jit]
        report = run.report(5) + "\n" + str(closing)
        bad = allowed_bad(run.samples)
        with self.subTest("samples"):
            self.assertGreater(run.samples, 5000 if FULL else 1500, report)
        with self.subTest("complete"):
            if program.complete:
                self.assertLessEqual(sum(run.incomplete().values()), bad,
                                     report)
        with self.subTest("legal"):
            self.assertLessEqual(
                sum(count for count, _ in run.illegal().values()), bad,
                report)
        with self.subTest("traces"):
            traced = any("_[j]" in stack for stack in run.stacks)
            self.assertEqual(traced, jit and bool(program.flavor.clock),
                             report)
        for label, (got, true) in run.shares().items():
            with self.subTest("share", label=label):
                self.assertAlmostEqual(
                    got, true, msg=report,
                    delta=share_tolerance(true, run.samples))
        with self.subTest("account"):
            self.account(sampled, jit, closing, report)

    def account(self, sampled, jit, closing, report):
        """No sample leaves the denominator."""
        self.assertEqual(closing.samples,
                         sum(run.samples for run in closing.runs), report)
        self.assertEqual(
            closing.complete + closing.truncated + closing.failed,
            closing.samples, report)
        self.assertEqual(sum(closing.reasons.values()), closing.failed,
                         report)
        for mode, got, want, delta in sampled.accounts():
            if mode == jit:
                self.assertAlmostEqual(got, want, delta=delta, msg=report)
        for run in closing.runs:
            # The kernel's own books, in steps of 10 ms for each of two.
            self.assertAlmostEqual(run.stat_seconds, run.cpu_seconds,
                                   delta=ACCOUNT * run.cpu_seconds + 0.03)


def add_tests():
    for program in graphs.PROGRAMS:
        for build in program.flavor.builds:
            if not FULL and program.name not in SHORT.get(build,
                                                          [program.name]):
                continue
            for jit in program.modes:
                def test(self, program=program, jit=jit, build=build):
                    self.judge(program, jit, build)
                name = "test_%s_%s_%s" % (build, program.name,
                                          "jit" if jit else "joff")
                test.__name__ = name.replace("-", "_")
                setattr(StacksTest, test.__name__, test)


add_tests()

if __name__ == "__main__":
    unittest.main()
