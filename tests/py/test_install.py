# SPDX-License-Identifier: Apache-2.0
"""`make install` into a folder, run from there, `make uninstall`."""

import glob
import os
import subprocess
import tempfile
import unittest

import luabpf

TOOLS = [os.path.basename(path)[:-3] for path in
         glob.glob(os.path.join(luabpf.ROOT, "tools", "*.py"))]


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(base, name), folder)
                  for base, _, names in os.walk(folder) for name in names)


class InstallTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.dest = temp.name
        self.make("install")

    def make(self, target):
        # Flags of an outer make (-j, -s) are not for this one.
        env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        done = subprocess.run(
            ["make", "-s", "-C", luabpf.ROOT, target, "PREFIX=/opt/x",
             f"DESTDIR={self.dest}"], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def run_in(self, *command):
        env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        env.pop("PYTHONPATH", None)
        return subprocess.run(command, env=env, text=True, cwd="/",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_package_is_complete(self):
        own = os.path.join(self.dest, "opt/x/lib/lua-bpf-tools")
        code = (f"import sys; sys.path.insert(0, {own + '/scripts'!r})\n"
                "import luabpf\n"
                "from luabpf import bpf, lib\n"
                "with lib.Session(print): pass\n"
                "assert bpf.program_text('lua_stacks')\n"
                "print(luabpf.ROOT, luabpf.__version__)")
        done = self.run_in("/usr/bin/python3", "-c", code)
        self.assertEqual(done.stdout,
                         f"{os.path.realpath(own)} {luabpf.__version__}\n")

    def test_tools_run_by_their_name(self):
        self.assertTrue(TOOLS, "no tool in tools/")
        for name in TOOLS:
            with self.subTest(name):
                done = self.run_in(
                    os.path.join(self.dest, "opt/x/sbin", name), "--version")
                self.assertEqual((done.returncode, done.stdout),
                                 (0, f"{name} {luabpf.__version__}\n"))

    def test_uninstall_leaves_nothing(self):
        self.assertTrue(files_below(self.dest))
        self.make("uninstall")
        self.assertEqual(files_below(self.dest), [])


if __name__ == "__main__":
    unittest.main()
