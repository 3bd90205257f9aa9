# SPDX-License-Identifier: Apache-2.0
"""Samples against what the target itself says its stack is.

tests/progs/oracle.c reads its own Lua stack by the debug API and then works
in two functions whose names are the hash of what it read. So each sample that
falls there carries the answer: the Lua and C functions found from outside
must have that hash, frame by frame. Chance lets one wrong stack in 65536 pass.
"""
import os
import re
import unittest

import graphs
import harness
from test_stacks import FULL, allowed_bad

SECONDS = 10 if FULL else 4
PROGRAM = graphs.Program("oracle", graphs.HOST, "", binary="oracle",
                         args=("{dir}/chains",))
# Functions of the host that Lua calls: to the debug API they are C functions.
# What C functions call (lua_pcall, qsort, the library's own) is none.
HOST_C = {"mark", "c_call", "c_pcall", "c_xpcall", "c_cpcall", "cpcall_body",
          "c_resume", "c_error", "c_clock", "c_spin", "enter", "leave"}
LUA = re.compile(r".*@((?:\./)?\w+\.lua:\d+)(?:_\[j\])?$")


def level(frame):
    """A frame as the oracle writes it; None for what it cannot see."""
    if re.sub(r"_\[j\]$", "", frame).endswith("@[builtin]"):
        return "C"
    found = LUA.match(frame)
    if found:
        return found.group(1)
    return "C" if frame in HOST_C else None


def chain(frames):
    """Text of the oracle for the frames of a sample, root first."""
    levels = [level(frame) for frame in reversed(frames)]
    return "".join(text + "<" for text in levels if text)


def hash_text(text):
    value = 2166136261  # FNV-1a
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xffffffff
    return (value ^ value >> 16) & 0xffff


def answer(frames):
    """(frames down to mark, hash) or None: not inside the two functions."""
    for at, frame in enumerate(frames[:-1]):
        high = re.fullmatch(r"hi_([0-9a-f]{2})", frame)
        low = re.fullmatch(r"lo_([0-9a-f]{2})", frames[at + 1])
        if high and low:
            return frames[:at], int(high.group(1) + low.group(1), 16)
    return None


class AnswerTest(unittest.TestCase):
    """The comparison itself, on made-up stacks."""

    def test_chain_has_lua_and_c_functions_only(self):
        frames = ["_start", "main", "host_run", "lua_pcall",
                  "main@oracle.lua:0", "descend@oracle.lua:137_[j]",
                  "pcall@[builtin]", "?@oracle.lua:33", "c_call",
                  "descend@oracle.lua:137", "mark"]
        self.assertEqual(
            chain(frames), "C<oracle.lua:137<C<oracle.lua:33<C<"
            "oracle.lua:137<oracle.lua:0<")

    def test_answer_needs_both_halves(self):
        self.assertEqual(answer(["a", "mark", "hi_0f", "lo_a1", "work"]),
                         (["a", "mark"], 0x0fa1))
        self.assertIsNone(answer(["a", "mark", "hi_0f"]))
        self.assertIsNone(answer(["a", "lo_01", "hi_0f"]))

    def test_any_change_changes_the_hash(self):
        levels = ["C", "oracle.lua:5", "C", "oracle.lua:7", "oracle.lua:0"]
        texts = {"".join(x + "<" for x in levels[:i] + levels[i + 1:])
                 for i in range(len(levels))}
        texts |= {"".join(x + "<" for x in levels)}
        self.assertEqual(len({hash_text(text) for text in texts}), len(texts))


class OracleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = harness.skip_reason()
        if reason:
            raise unittest.SkipTest(reason)

    def compare(self, build):
        reason = harness.build_skip_reason(build)
        if reason:
            self.skipTest(reason)
        jobs = [(PROGRAM, jit, build) for jit in (True, False)]
        for job in jobs:
            with self.subTest(jit=job[1]), harness.Session() as session:
                run, = session.run([job], SECONDS)
                with open(os.path.join(session.dir, "chains")) as file:
                    said = dict(line.split() for line in file)
                self.judge(run, said)

    def judge(self, run, said):
        compared, wrong, chains = 0, 0, set()
        examples = []
        for stack, count in run.stacks.items():
            found = answer(stack.split(";")[1:])
            if not found:
                continue
            frames, want = found
            text = chain(frames)
            compared += count
            chains.add(text)
            if hash_text(text) != want:
                wrong += count
                examples.append("%d: %s\n  is   %s\n  said %s" % (
                    count, stack, text, said.get("%04x" % want)))
        report = "%s: %d of %d samples wrong, %d chains\n%s" % (
            run, wrong, compared, len(chains), "\n".join(examples[:8]))
        self.assertGreater(compared, 10000 if FULL else 4000, report)
        self.assertGreater(len(chains), 1000, report)
        self.assertGreater(max(text.count("<") for text in chains), 30)
        self.assertLessEqual(wrong, allowed_bad(compared), report)
        self.assertLessEqual(sum(run.incomplete().values()),
                             allowed_bad(run.samples), run.report(5))

    def test_luajit2(self):
        self.compare("luajit2")

    def test_upstream(self):
        self.compare("upstream")


if __name__ == "__main__":
    unittest.main()
