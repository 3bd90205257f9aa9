# SPDX-License-Identifier: Apache-2.0
"""Counting folded text into the tables of the top functions."""

import unittest

from luabpf import top
from luabpf.cli import Fail

FOLDED = """\
host;main;serve@demo.lua:9;hot@demo.lua:1 60
host;main;serve@demo.lua:9;fib@demo.lua:3;fib@demo.lua:3 30
host;main;serve@demo.lua:9 10
"""


class TopTest(unittest.TestCase):
    def setUp(self):
        self.profile = top.read_folded(FOLDED.splitlines(True))

    def test_self_counts_the_leaf(self):
        self.assertEqual(dict(self.profile.self_count), {
            "hot@demo.lua:1": 60, "fib@demo.lua:3": 30, "serve@demo.lua:9": 10})

    def test_total_counts_a_stack_once(self):
        self.assertEqual(dict(self.profile.total_count), {
            "main": 100, "serve@demo.lua:9": 100, "hot@demo.lua:1": 60,
            "fib@demo.lua:3": 30})

    def test_report(self):
        self.assertEqual(top.report(self.profile, 2), (
            "Top functions by total share (100 samples):\n"
            " SELF% TOTAL%  SAMPLES FUNCTION\n"
            "  10.0  100.0      100 serve@demo.lua:9\n"
            "   0.0  100.0      100 main\n"
            "\n"
            "Top functions by self share:\n"
            " SELF% TOTAL%  SAMPLES FUNCTION\n"
            "  30.0   30.0       30 fib@demo.lua:3\n"
            "  60.0   60.0       60 hot@demo.lua:1\n"))

    def test_name_with_spaces_is_kept(self):
        profile = top.read_folded(["c;f@a b.lua:1;operator new 3\n"])
        self.assertEqual(profile.self_count["operator new"], 3)

    def test_stack_without_frames_is_counted(self):
        profile = top.read_folded(["comm 4\n"])
        self.assertEqual((profile.samples, dict(profile.self_count)),
                         (4, {"[no frames]": 4}))
        self.assertIn("100.0", top.report(profile, 5))

    def test_long_name_stays_below_80_columns(self):
        text = top.report(top.read_folded(["c;" + "x" * 300 + " 1\n"]), 5)
        self.assertLess(max(map(len, text.splitlines())), 80)

    def test_no_samples_is_said(self):
        self.assertEqual(top.report(top.read_folded([]), 5), "no samples\n")

    def test_bad_line_fails_with_its_number(self):
        for bad in ("nonsense", "c;f x", "c;f -1", " 5", "c;f \u0661"):
            with self.subTest(bad):
                with self.assertRaisesRegex(Fail, "^line 2 "):
                    top.read_folded(["c;f 1\n", bad + "\n"])


if __name__ == "__main__":
    unittest.main()
