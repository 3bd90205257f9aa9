# SPDX-License-Identifier: Apache-2.0
"""The Python side of lua-bpf-tools: load, drain, name, report.

The source tree and an installed copy have the same shape (`scripts/luabpf`,
`bpf_c` and `VERSION` below ROOT); the library lies in the build folder of the
one and beside this file in the other.
"""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__))))


def _read_version() -> str:
    with open(os.path.join(ROOT, "VERSION"), encoding="ascii") as file:
        return file.read().strip()


__version__ = _read_version()
