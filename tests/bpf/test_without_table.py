# SPDX-License-Identifier: Apache-2.0
"""Known answers from a library that knows no build of LuaJIT.

Each LuaJIT is then one that is in no table: its offsets come from its machine
code and from the process itself. What is shown must be as right as ever.
"""
import os
import subprocess
import unittest
from unittest import mock

import graphs
import harness
from hosts import OUTPUT, ROOT
from test_stacks import allowed_bad

WITHOUT_TABLE = os.path.join(OUTPUT, "without-table")
SECONDS = 1  # CPU time of each program
PROGRAMS = ("interp", "coro")


def build_library():
    library = os.path.join(WITHOUT_TABLE, "libluabpf.so")
    subprocess.run(
        ["make", "-s", "-j2", "LB_WITHOUT_TABLE=1", "OUTPUT=" + WITHOUT_TABLE,
         library], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


class WithoutTableTest(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        reason = harness.skip_reason()
        if reason:
            raise unittest.SkipTest(reason)
        build_library()

    def judge(self, build):
        reason = harness.build_skip_reason(build)
        if reason:
            self.skipTest(reason)
        jobs = [(program, jit, build) for program in
                map(graphs.by_name, PROGRAMS) for jit in program.modes]
        rate = min(program.rate for program, _, _ in jobs)
        with mock.patch.dict(os.environ, {"OUTPUT": WITHOUT_TABLE}):
            with harness.Session() as session:
                runs = [session.start(*job) for job in jobs]
                session.sample(runs, SECONDS * 1999 / rate)
                closing = session.closing
        for run in runs:
            report = run.report(5) + "\n" + str(closing)
            bad = allowed_bad(run.samples)
            with self.subTest("samples", run=str(run)):
                self.assertGreater(run.samples, 1000, report)
            with self.subTest("complete", run=str(run)):
                self.assertLessEqual(sum(run.incomplete().values()), bad,
                                     report)
            with self.subTest("legal", run=str(run)):
                self.assertLessEqual(
                    sum(count for count, _ in run.illegal().values()), bad,
                    report)
            with self.subTest("traces", run=str(run)):
                traced = any("_[j]" in stack for stack in run.stacks)
                self.assertEqual(traced, run.jit, report)

    def test_luajit2(self):
        self.judge("luajit2")

    def test_upstream(self):
        self.judge("upstream")

    def test_texlua(self):
        self.judge("texlua")

    def test_tarantool(self):
        self.judge("tarantool")


if __name__ == "__main__":
    unittest.main()
