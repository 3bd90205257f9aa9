# SPDX-License-Identifier: Apache-2.0
"""The shell scripts, run with made-up apt-get, dpkg-query and make."""

import os
import shutil
import subprocess
import tempfile
import unittest

import luabpf

SCRIPTS = os.path.join(luabpf.ROOT, "scripts")
# What the scripts call; anything else (the real apt-get) is out of reach.
SYSTEM_COMMANDS = (
    "basename", "bash", "cat", "chmod", "dirname", "echo", "grep", "head",
    "id", "ls", "mkdir", "mktemp", "mv", "rm", "sed", "sh", "sort", "tail",
    "tee", "touch", "tr", "uname", "xargs")


class ScriptTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.tree = os.path.join(temp.name, "tree")
        self.bin = os.path.join(temp.name, "bin")
        self.policy = os.path.join(temp.name, "policy-rc.d")
        self.calls = os.path.join(temp.name, "calls")
        os.makedirs(os.path.join(self.tree, "scripts"))
        os.makedirs(self.bin)
        for name in SYSTEM_COMMANDS:
            path = shutil.which(name)
            if path:
                os.symlink(path, os.path.join(self.bin, name))

    def command(self, name, body):
        """Make a command that notes its arguments and runs body."""
        path = os.path.join(self.bin, name)
        if os.path.lexists(path):
            os.unlink(path)
        self.script(path, f'echo "{name} $*" >>"{self.calls}"\n{body}\n')

    def script(self, path, body):
        with open(path, "w") as file:
            file.write("#!/bin/bash\n" + body)
        os.chmod(path, 0o755)

    def copy(self, name):
        shutil.copy(os.path.join(SCRIPTS, name),
                    os.path.join(self.tree, "scripts", name))

    def run_script(self, name, *args):
        done = subprocess.run(
            [os.path.join(self.tree, "scripts", name), *args], text=True,
            env={"PATH": self.bin, "LB_POLICY_RC_D": self.policy},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        try:
            with open(self.calls) as file:
                self.called = file.read().splitlines()
        except FileNotFoundError:
            self.called = []
        return done


class InstallDepsTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.copy("install-deps")
        self.command("id", "echo 0")
        self.command("dpkg", "echo amd64")
        self.command("apt-cache", "")
        self.missing("")

    def missing(self, names):
        """All packages are installed but those named."""
        self.command("dpkg-query", f"""
for name in {names}; do [ "${{!#}}" = $name ] && exit 1; done
echo -n installed""")

    def apt_calls(self):
        return [call for call in self.called if call.startswith("apt-get")]

    def test_nothing_missing_is_silent(self):
        self.command("apt-get", "exit 1")
        done = self.run_script("install-deps", "build", "luajit", "test")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", ""))
        self.assertEqual(self.apt_calls(), [])

    def test_apt_get_is_not_needed_when_nothing_is_missing(self):
        done = self.run_script("install-deps", "build")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_list_names_what_is_missing(self):
        self.missing("gcc make")
        done = self.run_script("install-deps", "-n", "build")
        self.assertEqual((done.returncode, done.stdout), (1, "gcc make\n"))

    def test_headers_of_the_other_luajit_are_kept(self):
        # libluajit-5.1-dev is there, libluajit2-5.1-dev is not.
        self.missing("libluajit2-5.1-dev")
        done = self.run_script("install-deps", "-n", "luajit")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_default_luajit_is_that_of_nginx(self):
        self.missing("libluajit2-5.1-dev libluajit-5.1-dev libluajit-5.1-2")
        done = self.run_script("install-deps", "-n", "luajit")
        self.assertEqual(done.stdout, "libluajit2-5.1-dev\n")

    def test_only_missing_are_installed_and_none_removed(self):
        self.missing("wrk")
        self.command("apt-get", "")
        done = self.run_script("install-deps", "test")
        self.assertEqual(done.returncode, 0, done.stderr)
        install = self.apt_calls()[-1]
        self.assertTrue(install.endswith(
            " install --no-install-recommends --no-remove wrk"), install)

    def test_services_are_forbidden_during_the_run_only(self):
        self.missing("nginx-light")
        self.command("apt-get", f'"{self.policy}" || echo "policy $?" '
                                f'>>"{self.calls}"')
        done = self.run_script("install-deps", "test")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("policy 101", self.called)
        self.assertFalse(os.path.exists(self.policy))

    def test_policy_of_the_administrator_stays(self):
        self.script(self.policy, "exit 0\n")
        self.missing("nginx-light")
        self.command("apt-get", "")
        self.run_script("install-deps", "test")
        with open(self.policy) as file:
            self.assertEqual(file.read(), "#!/bin/bash\nexit 0\n")

    def test_failure_is_one_line_and_a_hint(self):
        self.missing("wrk")
        self.command("apt-get", "echo 'E: Unable to locate package wrk'\n"
                                "exit 100")
        done = self.run_script("install-deps", "test")
        self.assertEqual(done.returncode, 1)
        lines = [line for line in done.stderr.splitlines()
                 if not line.startswith(("install-deps: installing",
                                         "install-deps: apt-get update"))]
        self.assertEqual(lines, [
            "install-deps: cannot install wrk: "
            "E: Unable to locate package wrk",
            "hint: check the network and the package sources, then: "
            "apt-get install wrk"])
        # Old lists are a common cause: it tried again with new ones.
        self.assertEqual(sum(" update" in c for c in self.apt_calls()), 1)

    def test_conflict_is_named(self):
        self.missing("luajit2")
        self.command("apt-get", "echo 'E: Packages need to be removed but "
                                "remove is disabled.'\nexit 100")
        done = self.run_script("install-deps", "test")
        self.assertIn("an installed package conflicts\nhint: ", done.stderr)

    def test_not_root(self):
        self.missing("gcc")
        self.command("id", "echo 1000")
        self.command("apt-get", "")
        done = self.run_script("install-deps", "build")
        self.assertEqual((done.returncode, done.stderr), (
            1, "install-deps: not root, and these packages are missing: gcc\n"
            "hint: as root: apt-get install --no-install-recommends gcc\n"))
        self.assertEqual(self.apt_calls(), [])

    def test_no_apt_get(self):
        self.missing("gcc")
        done = self.run_script("install-deps", "build")
        self.assertEqual((done.returncode, done.stderr), (
            1, "install-deps: no apt-get, and these packages are missing: "
            "gcc\nhint: install them by hand\n"))

    def test_unknown_set_is_bad_usage(self):
        done = self.run_script("install-deps", "everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no such set: everything", done.stderr)


class FetchDebsTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.copy("fetch-debs")
        self.upstream = os.path.join(self.tree, ".output/deb/upstream")
        self.command("dpkg", 'mkdir -p "$3/usr/bin"\ntouch "$3/usr/bin/luajit"')

    def test_unpacked_once(self):
        self.command("apt-get", "touch luajit.deb")
        for _ in range(2):
            done = self.run_script("fetch-debs")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.exists(self.upstream + "/usr/bin/luajit"))
        # Once for each of three folders: apt-get and dpkg.
        self.assertEqual(len(self.called), 6)
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.upstream))),
                         ["tarantool", "texlua", "upstream"])

    def test_only_what_is_missing_is_fetched(self):
        self.command("apt-get", "touch luajit.deb")
        os.makedirs(self.upstream)
        with open(os.path.join(self.upstream, ".complete"), "w"):
            pass
        done = self.run_script("fetch-debs")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "fetch-debs: downloading tarantool\n"
                                      "fetch-debs: downloading libtexluajit2\n")
        self.assertEqual(os.listdir(self.upstream), [".complete"])

    def test_failure_leaves_nothing(self):
        self.command("apt-get", "touch luajit.deb\n"
                                "echo 'E: Failed to fetch'\nexit 100")
        done = self.run_script("fetch-debs")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.splitlines()[1:], [
            "fetch-debs: cannot download luajit libluajit-5.1-2 "
            "libluajit-5.1-common: E: Failed to fetch",
            "hint: check the network and the package sources, then: "
            "apt-get update"])
        self.assertEqual(os.listdir(os.path.dirname(self.upstream)), [])


class CheckTest(ScriptTest):
    GOOD = "echo '2 passed, 0 failed, 1 skipped'"

    def check(self, status, closing, lint=GOOD, check=GOOD, bpf=GOOD,
              deps="exit 0"):
        self.copy("check")
        self.script(os.path.join(self.tree, "scripts/install-deps"), deps)
        self.script(os.path.join(self.tree, "scripts/fetch-debs"), "exit 0")
        self.command("make", f"case $1 in\nlint) {lint} ;;\ncheck) {check} ;;"
                             f"\ncheck-bpf) {bpf} ;;\nesac\n")
        done = self.run_script("check")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]),
                         (status, closing), done.stdout)
        return done.stdout

    def test_counts_are_added_up(self):
        self.check(0, "6 passed, 0 failed, 3 skipped")

    def test_last_line_of_a_part_counts(self):
        self.check(0, "8 passed, 0 failed, 2 skipped",
                   check=self.GOOD + "; echo '4 passed, 0 failed, 0 skipped'")

    def test_failed_part_is_named(self):
        out = self.check(
            1, "5 passed, 3 failed, 2 skipped",
            check="echo '1 passed, 3 failed, 0 skipped'; exit 1")
        self.assertIn("check: failed: check\n", out)

    def test_status_without_a_failed_test_is_a_failure(self):
        self.check(1, "6 passed, 1 failed, 3 skipped",
                   bpf=self.GOOD + "; exit 2")

    def test_part_without_tests_is_a_failure(self):
        for part in ("exit 0", "echo '0 passed, 0 failed, 0 skipped'"):
            self.check(1, "4 passed, 1 failed, 2 skipped", bpf=part)

    def test_part_that_only_skipped_is_a_failure(self):
        self.check(1, "4 passed, 1 failed, 11 skipped",
                   bpf="echo '0 passed, 0 failed, 9 skipped'")

    def test_nothing_is_run_without_the_packages(self):
        self.check(1, "0 passed, 1 failed, 0 skipped", deps="exit 1")
        self.assertEqual(self.called, [])


if __name__ == "__main__":
    unittest.main()
