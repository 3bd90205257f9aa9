# SPDX-License-Identifier: Apache-2.0
"""Finding and merging kernel headers, on made-up root folders."""

import os
import stat
import tempfile
import unittest
from unittest import mock

from luabpf import headers
from luabpf.cli import Fail

RELEASE = "6.18.1-test"
GENERATED = ("include/generated/autoconf.h",
             "arch/x86/include/generated/asm/x.h")
SOURCES = ("include/linux/kconfig.h", "arch/x86/include/asm/bug.h")


class HeadersTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.root = os.path.join(temp.name, "root")
        self.cache = os.path.join(temp.name, "cache", "lua-bpf-tools")
        os.makedirs(self.root)
        environ = mock.patch.dict(os.environ)
        environ.start()
        self.addCleanup(environ.stop)
        os.environ.pop("BCC_KERNEL_SOURCE", None)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write(self, path, text=""):
        path = self.path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def add_tree(self, name, files):
        for file in files:
            self.write(f"usr/src/{name}/{file}", f"{name}\n")

    def add_debian(self, abi, flavour="amd64"):
        build = f"linux-headers-{abi}-{flavour}"
        common = f"linux-headers-{abi}-common"
        self.add_tree(build, GENERATED + ("Module.symvers",))
        self.add_tree(common, SOURCES + ("include/uapi/linux/bpf.h",
                                         "Makefile"))
        self.write(f"usr/src/{build}/Makefile",
                   f"include /usr/src/{common}/Makefile\n")
        return build, common

    def find(self):
        return headers.find_tree(self.root, RELEASE, "x86_64", self.cache)

    def test_nothing_to_do_when_running_kernel_has_build(self):
        self.add_debian("6.1.0-9")
        self.write(f"lib/modules/{RELEASE}/build/include/linux/a.h")
        self.assertIsNone(self.find())

    def test_nothing_to_do_when_build_and_source_are_split(self):
        os.makedirs(self.path(f"lib/modules/{RELEASE}/build"))
        self.write(f"lib/modules/{RELEASE}/source/include/linux/a.h")
        self.assertIsNone(self.find())

    def test_nothing_to_do_when_kernel_holds_its_headers(self):
        for path in ("sys/kernel/kheaders.tar.xz",
                     f"lib/modules/{RELEASE}/kernel/kernel/kheaders.ko.xz"):
            with self.subTest(path):
                self.write(path)
                self.assertIsNone(self.find())
                os.unlink(self.path(path))

    def test_dangling_build_link_does_not_count(self):
        os.makedirs(self.path(f"lib/modules/{RELEASE}"))
        os.symlink("/nonexistent",
                   self.path(f"lib/modules/{RELEASE}/build"))
        with self.assertRaises(Fail):
            self.find()

    def test_no_headers_fails_with_hint(self):
        with self.assertRaises(Fail) as caught:
            self.find()
        self.assertTrue(caught.exception.message.startswith(
            "no kernel headers"))
        self.assertEqual(caught.exception.hint,
                         "apt-get install linux-headers-amd64, "
                         "or set BCC_KERNEL_SOURCE")
        self.assertFalse(os.path.exists(self.cache))

    def test_complete_tree_is_used_as_it_is(self):
        self.add_tree("linux-headers-5.15.0-91-generic", GENERATED + SOURCES)
        self.assertEqual(
            self.find(), self.path("usr/src/linux-headers-5.15.0-91-generic"))
        self.assertFalse(os.path.exists(self.cache))

    def test_tree_below_kernels_is_found(self):
        self.add_tree("kernels/5.14.0-362.el9.x86_64", GENERATED + SOURCES)
        self.assertEqual(
            self.find(), self.path("usr/src/kernels/5.14.0-362.el9.x86_64"))

    def test_two_parts_are_merged(self):
        build, _ = self.add_debian("6.1.0-9")
        tree = self.find()
        self.assertEqual(tree, os.path.join(self.cache, build))
        for file in GENERATED + SOURCES + ("include/uapi/linux/bpf.h",):
            self.assertTrue(os.path.isfile(os.path.join(tree, file)), file)
        # A file in both parts is the build part's.
        with open(os.path.join(tree, "Makefile")) as file:
            self.assertIn("include /usr/src/", file.read())
        mode = os.stat(self.cache).st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o700)
        self.assertEqual(os.listdir(self.cache), [build])

    def test_newest_version_by_number_wins(self):
        for abi in ("6.1.0-9", "6.1.0-10", "5.10.0-30"):
            self.add_debian(abi)
        self.assertTrue(self.find().endswith("6.1.0-10-amd64"))

    def test_package_of_another_machine_is_passed_over(self):
        self.add_tree("linux-headers-6.9-arm64",
                      ("include/generated/autoconf.h",
                       "arch/arm64/include/generated/asm/x.h",
                       "include/linux/kconfig.h",
                       "arch/arm64/include/asm/bug.h"))
        with self.assertRaises(Fail):
            self.find()

    def test_build_part_without_its_common_part_is_passed_over(self):
        build, common = self.add_debian("6.1.0-9")
        os.rename(self.path("usr/src", common), self.path("usr/gone"))
        with self.assertRaises(Fail):
            self.find()

    def test_valid_tree_is_reused(self):
        self.add_debian("6.1.0-9")
        before = os.stat(self.find())
        after = os.stat(self.find())
        self.assertEqual((before.st_ino, before.st_mtime_ns),
                         (after.st_ino, after.st_mtime_ns))

    def test_tree_is_made_again_when_package_changes(self):
        build, common = self.add_debian("6.1.0-9")
        before = os.stat(self.find()).st_ino
        self.write(f"usr/src/{common}/include/new.h")
        tree = self.find()
        self.assertNotEqual(before, os.stat(tree).st_ino)
        self.assertTrue(os.path.exists(os.path.join(tree, "include/new.h")))
        self.assertEqual(os.listdir(self.cache), [build])

    def test_half_made_tree_is_replaced(self):
        build, _ = self.add_debian("6.1.0-9")
        os.makedirs(os.path.join(self.cache, build, "include"))
        os.makedirs(os.path.join(self.cache, "temp-killed", "new"))
        tree = self.find()
        self.assertTrue(os.path.isfile(os.path.join(tree, SOURCES[0])))
        self.assertEqual(os.listdir(self.cache), [build])

    def test_open_cache_folder_is_made_private(self):
        self.add_debian("6.1.0-9")
        os.makedirs(self.cache)
        os.chmod(self.cache, 0o777)
        self.find()
        self.assertEqual(stat.S_IMODE(os.stat(self.cache).st_mode), 0o700)

    def test_cache_that_is_a_link_is_refused(self):
        self.add_debian("6.1.0-9")
        os.makedirs(os.path.dirname(self.cache))
        os.symlink(self.root, self.cache)
        with self.assertRaisesRegex(Fail, "not a folder of this user"):
            self.find()

    def test_cache_below_a_file_fails_with_hint(self):
        self.add_debian("6.1.0-9")
        self.write("file")
        self.cache = self.path("file", "cache")
        with self.assertRaises(Fail) as caught:
            self.find()
        self.assertIn("XDG_CACHE_HOME", caught.exception.hint)

    def test_named_tree_is_left_to_bcc(self):
        self.write("mine/include/linux/a.h")
        os.environ["BCC_KERNEL_SOURCE"] = self.path("mine")
        self.assertIsNone(self.find())

    def test_named_tree_without_headers_fails(self):
        os.environ["BCC_KERNEL_SOURCE"] = self.path("nowhere")
        with self.assertRaisesRegex(Fail, "no include/linux"):
            self.find()


if __name__ == "__main__":
    unittest.main()
