# SPDX-License-Identifier: Apache-2.0
"""scripts/demo from start to end, as somebody new runs it."""

import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
# Each is a way in which Lua time shows up in a profile; see demo.lua.
FUNCTIONS = ("forecast_demand", "expand_field", "by_price", "count_routes",
             "read_stock", "take_stock", "host_checksum_bytes")


class DemoTest(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("bpf: not root")

    def test_demo_profiles_its_workload_and_ends_it(self):
        done = subprocess.run(
            [os.path.join(ROOT, "scripts", "demo")], text=True, timeout=120,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(ROOT, "out", "demo.folded")) as file:
            folded = file.read()
        for name in FUNCTIONS:
            self.assertIn(f";{name}", folded)
        for line in folded.splitlines():
            self.assertRegex(line, r"^demo_host;.* \d+$")
        self.assertIn("forecast_demand@tests/lua/demo.lua:6", done.stdout)
        pid = re.search(r" -p (\d+) ", done.stderr).group(1)
        self.assertFalse(os.path.exists(f"/proc/{pid}"), "workload is left")
        self.assertRegex(done.stderr,
                         r"(?m)^lua-stacks: \d+ samples: \d+ complete")


if __name__ == "__main__":
    unittest.main()
