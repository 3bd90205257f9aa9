# SPDX-License-Identifier: Apache-2.0
"""Run unittest files; one line a test, and a closing line with the counts.

The reason of a skip begins with the name of what is missing ("bpf: not
root"). If LB_REQUIRE holds that name ("bpf,jit"), the skip is a failure.
"""

import argparse
import os
import sys
import time
import unittest

TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TESTS)


def is_required(reason):
    required = os.environ.get("LB_REQUIRE", "").split(",")
    return reason.partition(":")[0].strip() in [r for r in required if r]


class LineResult(unittest.TestResult):
    """Prints each result as it comes."""

    def __init__(self, stream):
        super().__init__()
        self.stream = stream
        self.passed = self.failed = self.skipped_count = 0
        self._bad = False

    def say(self, verdict, test, note=""):
        seconds = time.monotonic() - self._begin
        print(f"{verdict:<7} {seconds:6.2f} s  {name_of(test)}{note}",
              file=self.stream, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self._begin = time.monotonic()
        self._bad = False
        self._decided = False

    def _fail(self, test, text, note=""):
        self._bad = True
        self.say("FAILED", test, note)
        for line in text.rstrip().splitlines():
            print("        " + line, file=self.stream, flush=True)

    def addFailure(self, test, err):
        self._fail(test, self._exc_info_to_string(err, test))

    def addError(self, test, err):
        if not hasattr(self, "_begin"):
            self._begin = time.monotonic()
        self._fail(test, self._exc_info_to_string(err, test))
        if not isinstance(test, unittest.TestCase):
            self.failed += 1  # setUpClass or setUpModule: no stopTest follows

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._fail(subtest, self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        if not hasattr(self, "_begin"):
            self._begin = time.monotonic()
        if is_required(reason):
            self._fail(test, f"skipped, but LB_REQUIRE asks for it: {reason}")
            if not isinstance(test, unittest.TestCase):
                self.failed += 1
            return
        self.skipped_count += 1
        self._decided = True
        self.say("skipped", test, f": {reason}")

    def addExpectedFailure(self, test, err):
        self.say("ok", test, " (known defect)")
        self.passed += 1
        self._decided = True

    def addUnexpectedSuccess(self, test):
        self._fail(test, "a known defect is gone: remove its mark")

    def stopTest(self, test):
        super().stopTest(test)
        if self._bad:
            self.failed += 1
        elif not self._decided:
            self.passed += 1
            self.say("ok", test)


def name_of(test):
    parts = test.id().split(".")
    if isinstance(test, unittest.TestCase) and len(parts) > 2:
        return f"{parts[0]}: {'.'.join(parts[2:])}"
    return str(test)


def cases_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases_of(item)
        else:
            yield item


def main(folder, argv):
    parser = argparse.ArgumentParser(
        description="run the tests of this folder")
    parser.add_argument("-k", metavar="PATTERN", action="append", default=[],
                        help="only tests whose name contains PATTERN")
    parser.add_argument("-l", "--list", action="store_true",
                        help="print the names of the tests and exit")
    args = parser.parse_args(argv)
    sys.path.insert(0, folder)
    sys.path.insert(0, os.path.join(ROOT, "scripts"))
    loader = unittest.TestLoader()
    if args.k:
        loader.testNamePatterns = [
            k if "*" in k else f"*{k}*" for k in args.k]
    suite = loader.discover(folder, pattern="test_*.py")
    if args.list:
        for case in cases_of(suite):
            print(case.id())
        return 0
    result = LineResult(sys.stdout)
    suite.run(result)
    if not result.passed + result.failed + result.skipped_count:
        print("no test was run")
        result.failed += 1
    print(f"{result.passed} passed, {result.failed} failed, "
          f"{result.skipped_count} skipped", flush=True)
    if result.failed:
        return 1
    return 0 if result.passed else 77
