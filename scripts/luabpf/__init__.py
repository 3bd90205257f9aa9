# SPDX-License-Identifier: Apache-2.0
"""The Python side of lua-bpf-tools: load, drain, name, report.

The source tree and an installed copy have the same shape (`scripts/luabpf`,
`bpf_c` and `VERSION` below one root), so all paths are relative to ROOT. Only
the library lies elsewhere: in the build folder of a source tree.
"""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__))))
BPF_DIR = os.path.join(ROOT, "bpf_c")


def _read_version() -> str:
    with open(os.path.join(ROOT, "VERSION"), encoding="ascii") as file:
        return file.read().strip()


def library_path() -> str:
    """Where libluabpf.so should be; LUABPF_LIBRARY names another build."""
    named = os.environ.get("LUABPF_LIBRARY")
    if named:
        return named
    installed = os.path.join(ROOT, "libluabpf.so")
    if os.path.exists(installed):
        return installed
    return os.path.join(ROOT, ".output", "libluabpf.so")


__version__ = _read_version()
