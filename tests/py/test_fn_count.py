# SPDX-License-Identifier: Apache-2.0
"""Which functions a pattern of lua-fn-count chooses, and what it prints."""

import io
import re
import unittest

from luabpf import callreport, lib
from luabpf.counting import Pattern

FUNCTION = "M.get@/srv/app/app.lua:12"

ZERO = dict.fromkeys(lib.CallTotals.__dataclass_fields__, 0)


def totals(**values):
    return lib.CallTotals(**dict(ZERO, **values))


def table(counts, before=None, **values):
    return callreport.Table(counts, totals(**values), before)


def text_of(made, has_lua=True, top=None):
    out = io.StringIO()
    callreport.write_table(made.rows(top), made, has_lua, out)
    return out.getvalue()


class PatternTest(unittest.TestCase):
    def test_what_matches(self):
        for pattern, function, want in (
                ("*", FUNCTION, True),
                ("M.get", FUNCTION, True),
                ("M.g", FUNCTION, False),
                ("M*", FUNCTION, True),
                ("app.lua", FUNCTION, True),
                ("app.lua:12", FUNCTION, True),
                ("app.lua:1", FUNCTION, False),
                ("app.lua:*", FUNCTION, True),
                ("/srv/app/app.lua:*", FUNCTION, True),
                ("pp.lua:*", FUNCTION, False),
                ("*pp.lua:*", FUNCTION, True),
                ("M.get@/srv/app/app.lua:12", FUNCTION, True),
                ("M?get", FUNCTION, False),  # only * is special
                ("string.*", "string.gsub@[builtin]", True),
                ("lua_p*", "lua_pcall", True),
                ("lua_p*", "luaL_ref", False)):
            with self.subTest(pattern=pattern, function=function):
                self.assertIs(Pattern([pattern], False).matches(function),
                              want)

    def test_one_of_several(self):
        pattern = Pattern(["get", "set"], False)
        self.assertTrue(pattern.matches("set@a.lua:1"))
        self.assertFalse(pattern.matches("let@a.lua:1"))
        self.assertFalse(pattern.is_all)
        self.assertTrue(Pattern(["*"], False).is_all)

    def test_regular_expression(self):
        pattern = Pattern([r"^M\..*:1\d$"], True)
        self.assertTrue(pattern.matches(FUNCTION))
        self.assertFalse(pattern.matches("M.get@/srv/app/app.lua:2"))
        with self.assertRaises(re.error):
            Pattern(["("], True)


class ReportTest(unittest.TestCase):
    def test_most_called_last(self):
        text = text_of(table({"b@x:1": 5, "a@x:2": 7, "c@x:3": 5},
                             counted=17, in_lua=100, in_trace=62))
        self.assertEqual(
            [line.split() for line in text.splitlines()[:4]],
            [["FUNC", "COUNT"], ["b@x:1", "5"], ["c@x:3", "5"],
             ["a@x:2", "7"]])
        self.assertIn("62 % of Lua time ran in compiled code", text)
        self.assertIn("(62 of 100 samples)", text)
        self.assertNotIn("was entered", text)

    def test_top(self):
        made = table({"a": 1, "b": 2, "c": 3})
        self.assertEqual(made.rows(2), [("b", 2), ("c", 3)])

    def test_lost_calls_are_marked(self):
        text = text_of(table({"a@x:1": 5}, counted=5, full=1))
        self.assertIn(">= 5\n", text)
        lines = callreport.closing_lines(
            totals(hits=6, counted=5, full=1, ticks=4, in_probe=1), 8)
        self.assertEqual(lines[0], "6 calls: 5 counted, 0 of other "
                                   "functions, 1 lost")
        self.assertEqual(lines[1], "the probes took 25 % of the CPU time")
        self.assertIn("more than 8 different functions", lines[2])

    def test_only_this_interval_is_judged(self):
        before = totals(in_lua=100, in_trace=100, compiled=3)
        text = text_of(table({}, before, in_lua=150, in_trace=110,
                             compiled=4, loops=2))
        self.assertIn("20 % of Lua time", text)
        self.assertIn("entered 1 time by a call, 2 times by a loop", text)

    def test_unknown_share_is_said(self):
        self.assertIn("not known", " ".join(text_of(table({})).split()))

    def test_c_api_has_no_share(self):
        self.assertNotIn("compiled", text_of(table({"lua_pcall": 1}), False))


if __name__ == "__main__":
    unittest.main()
