# SPDX-License-Identifier: Apache-2.0
"""lua-fn-count: known numbers of calls, to the last one."""
import unittest

import harness
from counts import Count, Target, marked, wait_for
from hosts import build_host

CALLS = {
    "plain": 997, "vararg": 499, "object:method": 251, "closure": 127,
    "recursive": 113, "tail_first": 31, "tail_last": 31, "index": 41,
    "call": 43, "add": 47, "concat": 37, "pcalled": 53, "throw_outer": 59,
    "throw_inner": 59, "body": 67, "on_match": 71, "iterate": 83,
    "deep": 3 * 1009, "deep_vararg": 2 * 103}


def by_mark(script, places):
    """NAME of a mark -> COUNT."""
    marks = marked(script)
    return {marks[place]: count for place, count in places.items()
            if place in marks}


class Counts(unittest.TestCase):
    def setUp(self):
        reason = harness.skip_reason()
        if reason:
            self.skipTest(reason)

    def check_calls(self, build):
        reason = harness.build_skip_reason(build)
        if reason:
            self.skipTest(reason)
        with Target("calls.lua", build=build) as target, \
                Count("-p", str(target.pid)) as count:
            count.begin()
            target.go()
            wait_for(lambda: "done\n" in target.text())
            count.end()
            text = target.text()
        want = dict(CALLS)
        compared = int(text.partition("called compare ")[2].split()[0])
        self.assertGreater(compared, 100)
        want["compare"] = compared
        places = count.places()
        self.assertEqual(by_mark("calls.lua", places), want)
        self.assertEqual(places["made:0"], 79)
        # every hit is accounted for, and all of them are in the table
        calls, counted, others, lost = count.closing()
        self.assertEqual([counted, others, lost], [calls, 0, 0])
        self.assertEqual(sum(count.rows().values()), counted)

    def test_each_kind_of_function_luajit2(self):
        self.check_calls("luajit2")

    def test_each_kind_of_function_upstream(self):
        self.check_calls("upstream")

    def test_two_million_calls_of_wanted_functions_alone(self):
        with Target("calls.lua", ["2000003"]) as target, \
                Count("-p", str(target.pid), "pl*n", "calls.lua:10") as count:
            count.begin()
            target.go()
            wait_for(lambda: "done\n" in target.text(), 300)
            count.end()
        self.assertEqual(by_mark("calls.lua", count.places()),
                         {"plain": 2000003, "vararg": 499})
        self.assertEqual(len(count.rows()), 2)
        calls, counted, others, lost = count.closing()
        self.assertGreaterEqual(counted, 2000003 + 499)
        self.assertEqual([calls, lost], [counted + others, 0])

    def test_attached_and_detached_between_calls_in_three_threads(self):
        threads = build_host("threads")
        with Target("alternate.lua", command=[threads], ready=3) as target:
            for _ in range(2):
                with Count("-p", str(target.pid), "-d", "1") as count:
                    count.begin()
                    count.end()
                marks = by_mark("alternate.lua", count.places())
                self.assertEqual(len(marks), 6)
                for i in "123":
                    self.assertGreater(marks["a" + i], 100)
                    self.assertLessEqual(
                        abs(marks["a" + i] - marks["b" + i]), 1)


if __name__ == "__main__":
    unittest.main()
