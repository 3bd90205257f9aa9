# SPDX-License-Identifier: Apache-2.0
"""lua-fn-count: known numbers of calls, to the last one."""
import json
import os
import re
import subprocess
import time
import unittest

import harness
from counts import TOOL, Count, Target, marked, wait_for
from hosts import build_host

CALLS = {
    "plain": 997, "vararg": 499, "object:method": 251, "closure": 127,
    "recursive": 113, "tail_first": 31, "tail_last": 31, "index": 41,
    "call": 43, "add": 47, "concat": 37, "pcalled": 53, "throw_outer": 59,
    "throw_inner": 59, "body": 67, "on_match": 71, "iterate": 83,
    "deep": 3 * 1009, "deep_vararg": 2 * 103, "calls": 1}


def by_mark(script, places):
    """NAME of a mark -> COUNT."""
    marks = marked(script)
    return {marks[place]: count for place, count in places.items()
            if place in marks}


BUILTINS = {
    "string.sub": 101 + 103, "string.byte": 107, "math.abs": 109 + 139 + 163,
    "math.max": 113, "type": 127, "tostring": 131, "rawget": 137,
    "pcall": 139 + 163, "select": 149, "string.format": 151, "os.time": 157}

# luajit is one file made in one piece: some of its own calls are inlined
API = {"lua_loadx": 79, "lua_newthread": 67 + 3 + 2, "luaL_where": 59}

EDGES = {
    ("calls", "plain"): 997, ("calls", "tail_first"): 31,
    ("calls", "tail_last"): 31,  # the caller's frame is gone
    ("recursive", "recursive"): 112, ("calls", "recursive"): 1,
    ("calls", "index"): 41, ("pcall@[builtin]", "pcalled"): 53,
    ("throw_outer", "throw_inner"): 59, ("[C]", "body"): 67,
    ("string.gsub@[builtin]", "on_match"): 71,
    ("deep_vararg", "deep_vararg"): 204, ("calls", "object:method"): 251}


def run(script, *args, jit=False, **kwargs):
    """Count a whole run of a program; the count, and what it printed."""
    with Target(script, jit=jit, **kwargs) as target, \
            Count("-p", str(target.pid), *args) as count:
        count.begin()
        target.go()
        wait_for(lambda: "done\n" in target.text(), 120)
        count.end()
        return count, target.text()


class Counts(unittest.TestCase):
    def setUp(self):
        reason = harness.skip_reason()
        if reason:
            self.skipTest(reason)

    def check_calls(self, build):
        reason = harness.build_skip_reason(build)
        if reason:
            self.skipTest(reason)
        count, text = run("calls.lua", build=build)
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

    def test_each_kind_of_function_with_32_bit_references(self):
        self.check_calls("texlua")

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
        with Target("alternate.lua", command=[threads], ready=3) as target, \
                Count("-p", str(target.pid), "-d", "1") as count:
            count.begin()
            count.end(False)
        marks = by_mark("alternate.lua", count.places())
        self.assertEqual(len(marks), 6)
        for i in "123":
            self.assertGreater(marks["a" + i], 100)
            self.assertLessEqual(abs(marks["a" + i] - marks["b" + i]), 1)

    def test_callers(self):
        count, _text = run("calls.lua", "--callers")
        marks = marked("calls.lua")
        edges = {}
        for row, number in count.rows().items():
            pair = tuple(marks.get(text.rpartition("@")[2], text)
                         for text in row.split(" -> "))
            edges[pair] = edges.get(pair, 0) + number
        self.assertEqual({pair: edges.get(pair) for pair in EDGES}, EDGES)
        self.assertEqual(sum(edges.values()), count.closing()[1])

    def test_stacks(self):
        count, _text = run("calls.lua", "-s", "-f")
        marks, leaves, edges = marked("calls.lua"), {}, {}
        for line in count.stdout.splitlines():
            stack, _, number = line.rpartition(" ")
            names = [marks.get(frame.rpartition("@")[2])
                     for frame in stack.split(";")]
            leaves[names[-1]] = leaves.get(names[-1], 0) + int(number)
            edge = names[-2], names[-1]
            edges[edge] = edges.get(edge, 0) + int(number)
        want = dict(CALLS, compare=leaves["compare"])
        self.assertEqual({name: leaves.get(name) for name in want}, want)
        self.assertEqual(edges["calls", "plain"], 997)
        self.assertEqual(edges["throw_outer", "throw_inner"], 59)
        self.assertEqual(sum(leaves.values()), count.closing()[1])

    def test_builtins(self):
        count, _text = run("builtins.lua", "--builtins")
        rows = count.rows()
        self.assertEqual({name: rows.get(name + "@[builtin]")
                          for name in BUILTINS}, BUILTINS)
        self.assertEqual(sum(rows.values()), count.closing()[1])

    def test_api(self):
        count, _text = run("calls.lua", "--api")
        rows = count.rows()
        self.assertEqual({name: rows.get(name) for name in API}, API)
        self.assertEqual(sum(rows.values()), count.closing()[1])
        self.assertNotIn("compiled code", count.stdout)

    def test_interpreted_function_of_a_compiled_program(self):
        count, text = run("compiled.lua", "interp*", jit=True)
        self.assertIn("called interpreted 1009\n", text)
        self.assertEqual(by_mark("compiled.lua", count.places()),
                         {"interpreted": 1009})
        self.assertRegex(count.stdout, r"entered \d+ times? by a call")

    def stacks_share(self, pid):
        """Share of Lua time in traces as lua-stacks has it, and samples."""
        stacks = subprocess.run(
            [harness.TOOL, "-p", str(pid), "-f", "-F", "499", "3"],
            check=True, stdout=subprocess.DEVNULL, text=True,
            stderr=subprocess.PIPE).stderr
        with_lua = harness.Closing.parse(stacks).with_lua
        in_trace = re.search(r"(\d+) in traces", stacks)
        self.assertGreater(with_lua, 100)
        return int(in_trace.group(1)) / with_lua, with_lua

    def test_share_of_compiled_code_is_that_of_lua_stacks(self):
        with Target("compiled.lua", ["on"], jit=True) as target:
            target.go()
            wait_for(lambda: "done\n" in target.text())
            before, samples = self.stacks_share(target.pid)
            with Count("-p", str(target.pid), "-d", "5") as count:
                count.begin()
                count.end(False)
            after, _samples = self.stacks_share(target.pid)
        found = re.search(r"\((\d+) of (\d+) samples\)", count.stdout)
        got = int(found[1]) / int(found[2])
        # on a busy machine the share drifts; and two standard deviations of
        # each, for so few samples
        slack = abs(before - after) + 2 * sum(
            p * (1 - p) / n for p, n in (
                (before, samples), (got, int(found[2])))) ** 0.5
        self.assertLess(abs((before + after) / 2 - got), 0.03 + slack)
        self.assertGreater(got, 0.2)
        self.assertLess(got, 0.98)

    def test_errors_through_counted_functions_change_nothing(self):
        for jit in False, True:
            with Target("throws.lua", jit=jit) as target:
                target.go()
                wait_for(lambda: "done\n" in target.text())
                want = target.text()
            for args in (["--builtins", "--callers"], ["--api"]):
                count, text = run("throws.lua", *args, jit=jit)
                self.assertEqual(text, want)
                self.assertGreater(count.closing()[1], 3000)

    def test_more_functions_than_there_is_room_for(self):
        count, _text = run("calls.lua", "--max-functions", "8")
        self.assertIn("lost: more than 8 different functions", count.stderr)
        calls, counted, others, lost = count.closing()
        self.assertGreater(lost, 0)
        self.assertEqual(calls, counted + lost)
        table = count.stdout.partition("\n\n")[0].splitlines()[1:]
        self.assertTrue(table)
        for line in table:
            self.assertRegex(line, r">= \d+$")

    def test_a_process_that_becomes_luajit(self):
        shell = ["sh", "-c", "echo ready; read go; exec luajit \"$@\"", "sh"]
        with Target("calls.lua", ["200003"], command=shell) as target, \
                Count("-p", str(target.pid), "--tree", "plain") as count:
            count.begin()
            target.go()
            wait_for(lambda: target.text().count("ready\n") == 2)
            time.sleep(2)  # new processes are looked for twice a second
            target.go()
            wait_for(lambda: "done\n" in target.text())
            count.end()
        self.assertEqual(by_mark("calls.lua", count.places()),
                         {"plain": 200003})

    def test_intervals_add_up(self):
        with Target("calls.lua", ["100003"]) as target, \
                Count("-p", str(target.pid), "-i", "0.3", "-j",
                      "plain") as count:
            count.begin()
            target.go()
            wait_for(lambda: "done\n" in target.text())
            count.end()
        lines = [json.loads(line) for line in count.stdout.splitlines()]
        self.assertGreater(len(lines), 1)
        self.assertEqual(sum(row["count"] for line in lines
                             for row in line["functions"]), 100003)

    def test_a_process_without_luajit_is_refused(self):
        done = subprocess.run(
            [TOOL, "-p", str(os.getpid()), "-d", "1"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no LuaJIT", done.stderr)


if __name__ == "__main__":
    unittest.main()
