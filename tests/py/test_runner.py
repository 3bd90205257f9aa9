# SPDX-License-Identifier: Apache-2.0
"""The runner's own verdicts: it must not turn green by running nothing."""

import os
import subprocess
import sys
import tempfile
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

HEAD = "import unittest\nclass T(unittest.TestCase):\n"
PASS = "    def test_pass(self): pass\n"
FAIL = "    def test_fail(self): self.assertEqual(1, 2)\n"
SKIP = "    def test_skip(self): self.skipTest('bpf: not root')\n"
SUBS = ("    def test_subs(self):\n"
        "        for i in range(3):\n"
        "            with self.subTest(i): self.assertEqual(i, 1)\n")
KNOWN = ("    @unittest.expectedFailure\n"
         "    def test_known(self): self.assertEqual(1, {})\n")
SETUP = "    @classmethod\n    def setUpClass(cls): raise OSError('no')\n"


class RunnerTest(unittest.TestCase):
    def run_file(self, text, *args, require=""):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "test_x.py"), "w") as file:
                file.write(text)
            code = (f"import sys\nsys.path.insert(0, {TESTS!r})\n"
                    f"sys.dont_write_bytecode = True\nimport runner\n"
                    f"sys.exit(runner.main({folder!r}, sys.argv[1:]))\n")
            done = subprocess.run(
                [sys.executable, "-c", code, *args], text=True,
                stdout=subprocess.PIPE, env=dict(os.environ,
                                                 LB_REQUIRE=require))
        return done.returncode, done.stdout.splitlines()[-1]

    def check(self, text, status, line, **options):
        self.assertEqual(self.run_file(text, **options), (status, line))

    def test_pass_and_skip(self):
        self.check(HEAD + PASS + SKIP, 0, "1 passed, 0 failed, 1 skipped")

    def test_fail(self):
        self.check(HEAD + PASS + FAIL, 1, "1 passed, 1 failed, 0 skipped")

    def test_failed_subtests_are_one_failure(self):
        self.check(HEAD + SUBS, 1, "0 passed, 1 failed, 0 skipped")

    def test_only_skips_is_not_a_pass(self):
        self.check(HEAD + SKIP, 77, "0 passed, 0 failed, 1 skipped")

    def test_required_skip_is_a_failure(self):
        self.check(HEAD + PASS + SKIP, 1, "1 passed, 1 failed, 0 skipped",
                   require="jit,bpf")
        self.check(HEAD + PASS + SKIP, 0, "1 passed, 0 failed, 1 skipped",
                   require="jit")

    def test_no_test_is_a_failure(self):
        self.check("", 1, "0 passed, 1 failed, 0 skipped")

    def test_pattern_without_match_is_a_failure(self):
        status, _ = self.run_file(HEAD + PASS, "-k", "nothing")
        self.assertEqual(status, 1)

    def test_pattern_selects(self):
        status, line = self.run_file(HEAD + PASS + FAIL, "-k", "pass")
        self.assertEqual((status, line), (0, "1 passed, 0 failed, 0 skipped"))

    def test_known_defect(self):
        self.check(HEAD + KNOWN.format(2), 0, "1 passed, 0 failed, 0 skipped")
        self.check(HEAD + KNOWN.format(1), 1, "0 passed, 1 failed, 0 skipped")

    def test_broken_file_and_broken_setup_are_failures(self):
        self.check("import nosuchmodule\n", 1,
                   "0 passed, 1 failed, 0 skipped")
        self.check(HEAD + SETUP + PASS, 1, "0 passed, 1 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
