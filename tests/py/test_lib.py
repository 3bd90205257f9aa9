# SPDX-License-Identifier: Apache-2.0
"""The C core's interface is one list in four places: they must agree."""

import re
import subprocess
import unittest
from pathlib import Path

from luabpf import lib

ROOT = Path(lib.__file__).resolve().parent.parent.parent


def functions_of_header():
    text = (ROOT / "helpers/lb.h").read_text()
    return set(re.findall(r"LB_API[^;]*?\b(lb_[a-z_]+)\(", text))


class Interface(unittest.TestCase):
    def test_bindings_have_what_the_header_has(self):
        self.assertEqual(set(lib.FUNCTIONS), functions_of_header())

    def test_map_has_what_the_header_has(self):
        text = (ROOT / "helpers/lb.map").read_text()
        self.assertEqual(set(re.findall(r"\b(lb_[a-z_]+);", text)),
                         functions_of_header())

    def test_library_exports_nothing_else(self):
        out = subprocess.run(
            ["nm", "-D", "--defined-only", lib.library_path()],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        found = {line.split()[-1].partition("@")[0]
                 for line in out.splitlines()}
        found.discard("LUABPF_0")
        self.assertEqual(found, functions_of_header())

    def test_number_of_arguments(self):
        text = re.sub(r"/\*.*?\*/", "",
                      (ROOT / "helpers/lb.h").read_text(), flags=re.S)
        for name, args in re.findall(r"\b(lb_[a-z_]+)\(([^)]*)\);", text):
            want = 0 if args.strip() == "void" else args.count(",") + 1
            self.assertEqual(len(lib.FUNCTIONS[name][1]), want, name)

    def test_library_of_other_wire_headers_is_refused(self):
        self.assertRegex(lib.bpf_headers_id(), r"^[0-9a-f]{16}$")
        real = lib.bpf_headers_id
        lib.bpf_headers_id = lambda: "0" * 16
        try:
            with self.assertRaises(lib.Fail) as caught:
                lib.version()
        finally:
            lib.bpf_headers_id = real
        self.assertIn("make", caught.exception.hint)


if __name__ == "__main__":
    unittest.main()
