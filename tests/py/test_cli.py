# SPDX-License-Identifier: Apache-2.0
"""Argument types, messages and the runner of luabpf.cli."""

import argparse
import io
import os
import subprocess
import sys
import unittest

import luabpf
from luabpf import cli


class ArgumentTypeTest(unittest.TestCase):
    def check(self, parse, good, bad):
        for text, want in good.items():
            with self.subTest(text):
                self.assertEqual(parse(text), want)
        for text in bad:
            with self.subTest(text):
                with self.assertRaises(argparse.ArgumentTypeError):
                    parse(text)

    def test_positive_int(self):
        self.check(cli.positive_int,
                   {"1": 1, "49": 49, "007": 7, "2147483647": 2147483647},
                   ["0", "-1", "", " 1", "1_0", "+1", "1.0", "0x10", "ten",
                    "2147483648", "\u0661", "9" * 5000])

    def test_positive_float(self):
        self.check(cli.positive_float,
                   {"1": 1.0, "0.5": 0.5, "1e1": 10.0},
                   ["0", "-1", "", "nan", "inf", "-inf", "1s", "1e999"])

    def test_pid_list(self):
        self.check(cli.pid_list,
                   {"1": [1], "3,1,2": [3, 1, 2], "7,7,5,7": [7, 5],
                    "1, 2": [1, 2], "4194304": [4194304]},
                   ["", " ", ",", "1,", ",1", "0", "-1", "1;2", "1 2", "nginx",
                    "4194305"])

    def test_empty_list_asks_for_the_process(self):
        with self.assertRaisesRegex(argparse.ArgumentTypeError,
                                    "is the process running"):
            cli.pid_list("")

    def test_tid_list_says_tid(self):
        self.assertEqual(cli.tid_list("5,6"), [5, 6])
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "a TID"):
            cli.tid_list("x")

    def test_cpu_ranges(self):
        self.check(cli.parse_cpu_ranges,
                   {"0": [0], "0-2,5": [0, 1, 2, 5], "1,3-4\n": [1, 3, 4],
                    "": []}, [])

    def test_cpu(self):
        first = cli.online_cpus()[0]
        self.assertEqual(cli.cpu(str(first)), first)
        with self.assertRaisesRegex(argparse.ArgumentTypeError,
                                    "CPU 999999 is not online"):
            cli.cpu("999999")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class ProgressTest(unittest.TestCase):
    def test_silent_when_not_a_terminal(self):
        stream = io.StringIO()
        with cli.Progress(stream) as progress:
            progress.show("sampling")
        self.assertEqual(stream.getvalue(), "")

    def test_line_is_written_over_and_taken_away(self):
        stream = Terminal()
        with cli.Progress(stream) as progress:
            progress.show("1 s")
            progress.show("2 s")
        self.assertEqual(stream.getvalue(),
                         "\r\x1b[K1 s\r\x1b[K2 s\r\x1b[K")

    def test_long_text_is_cut_to_one_line(self):
        stream = Terminal()
        cli.Progress(stream).show("a\n" + "x" * 200)
        self.assertEqual(stream.getvalue(), "\r\x1b[Ka\\n" + "x" * 76)


class RunTest(unittest.TestCase):
    """Each case runs main() in a process of its own, named lua-x.py."""

    def run_main(self, body, stdout=subprocess.PIPE):
        code = (f"import sys\nsys.argv[0] = '/usr/sbin/lua-x.py'\n"
                f"from luabpf import cli\n"
                f"def main(argv):\n    {body}\n"
                f"cli.run(main)\n")
        env = dict(os.environ, PYTHONPATH=os.path.join(luabpf.ROOT,
                                                       "scripts"))
        return subprocess.run([sys.executable, "-c", code], text=True,
                              stdout=stdout, stderr=subprocess.PIPE, env=env)

    def test_status_of_main_is_returned(self):
        for status in (0, 1, 2):
            done = self.run_main(f"print('out'); return {status}")
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (status, "out\n", ""))

    def test_fail_prints_message_and_hint(self):
        done = self.run_main("raise cli.Fail('PID 1: no', 'run as root')")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, "", "lua-x: PID 1: no\nhint: run as root\n"))

    def test_fail_without_hint_is_one_line(self):
        done = self.run_main(r"raise cli.Fail('a\nb\x1b[2J')")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "lua-x: a\\nb\\x1b[2J\n"))

    def test_interrupt_has_no_traceback(self):
        done = self.run_main("raise KeyboardInterrupt")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertTrue(done.stderr.startswith("lua-x: interrupted"))

    def test_closed_pipe_is_silent(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = self.run_main("print('x' * 100000); return 0", stdout=writer)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (1, ""))

    def test_bug_keeps_its_traceback(self):
        done = self.run_main("raise ValueError('bug')")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Traceback", done.stderr)


class VersionTest(unittest.TestCase):
    def test_version_is_that_of_the_file(self):
        with open(os.path.join(luabpf.ROOT, "VERSION")) as file:
            self.assertEqual(luabpf.__version__, file.read().strip())


if __name__ == "__main__":
    unittest.main()
