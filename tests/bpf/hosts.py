# SPDX-License-Identifier: Apache-2.0
"""Build the C hosts of tests/progs, and know the symbols around them."""
import functools
import glob
import os
import re
import subprocess
import time
from typing import List, Optional, Tuple

import graphs

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
OUTPUT = os.path.abspath(os.environ.get("OUTPUT",
                                        os.path.join(ROOT, ".output")))
PROGS = os.path.join(TESTS, "progs")
BUILT = os.path.join(OUTPUT, "tests", "progs")
LIB_DIR = "/usr/lib/x86_64-linux-gnu"
CFLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-O2", "-g",
          "-fomit-frame-pointer"]


def _musl_flags() -> List[str]:
    unwinder = subprocess.run(
        ["cc", "-print-file-name=libgcc_eh.a"], check=True,
        stdout=subprocess.PIPE, text=True).stdout.strip()
    # Without the header, musl's dl_iterate_phdr gives the unwinder nothing.
    return ["-static", "-Wl,--eh-frame-hdr", unwinder]


def _recipe(binary: str) -> Tuple[List[str], List[str], List[str]]:
    """Compiler, sources, flags behind the sources."""
    luajit = subprocess.run(
        ["pkg-config", "--cflags", "luajit"], check=True,
        stdout=subprocess.PIPE, text=True).stdout.split()
    archive = os.path.join(LIB_DIR, "libluajit-5.1.a")
    if binary == "musl_native":
        return ["musl-gcc"], ["musl_native.c"], ["-static"]
    if binary == "host_musl":
        return (["musl-gcc"], ["host.c", "musl_stub.c"],
                luajit + [archive] + _musl_flags())
    if binary == "host_static":
        # dlopen in a static program draws a warning: nothing here loads.
        return (["cc"], ["host.c"], luajit + ["-static", archive, "-lm",
                                              "-ldl", "-Wl,--no-warnings"])
    if binary == "loader":
        return ["cc"], ["loader.c"], []
    return ["cc"], [binary + ".c"], luajit + ["-lluajit-5.1", "-pthread"]


def wait_for(condition, what: str, seconds: float = 60) -> None:
    """Until CONDITION() is true; an AssertionError when it never is."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain for " + what)
        time.sleep(0.02)


@functools.lru_cache(maxsize=None)
def build_host(binary: str) -> str:
    """Path of a C host of tests/progs, built when a source is newer."""
    path = os.path.join(BUILT, binary)
    sources = glob.glob(os.path.join(PROGS, "*.[ch]")) + [__file__]
    if os.path.exists(path) and all(
            os.path.getmtime(s) <= os.path.getmtime(path) for s in sources):
        return path
    os.makedirs(BUILT, exist_ok=True)
    compiler, names, flags = _recipe(binary)
    command = compiler + CFLAGS + ["-o", path + ".new"]
    command += [os.path.join(PROGS, n) for n in names] + flags
    done = subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError("%s\n%s" % (" ".join(command), done.stdout))
    os.rename(path + ".new", path)
    return path


def _debug_file(path: str) -> Optional[str]:
    note = subprocess.run(["readelf", "-n", path], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]{4,})", note)
    if not found:
        return None
    ident = found.group(1)
    path = "/usr/lib/debug/.build-id/%s/%s.debug" % (ident[:2], ident[2:])
    return path if os.path.exists(path) else None


@functools.lru_cache(maxsize=None)
def symbols(path: str) -> frozenset:
    """Names of functions in one file and in its debug file."""
    names = set()
    for options, file in ((["-D"], path), ([], path), ([], _debug_file(path))):
        if not file:
            continue
        out = subprocess.run(["nm", *options, file], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True).stdout
        for line in out.splitlines():
            fields = line.split()
            if len(fields) >= 2 and fields[-2] in "tTwWiV":
                names.add(fields[-1].split("@")[0])
    return frozenset(names)


VDSO = {prefix + name for prefix in ("", "__vdso_", "__") for name in (
    "clock_gettime", "gettimeofday", "time", "getcpu", "clock_getres")}


def static_names(path: str) -> graphs.Names:
    """The same in a program that has LuaJIT and its symbols in itself."""
    libc = native_names("").libc
    return graphs.Names(libc, symbols(path))


@functools.lru_cache(maxsize=None)
def native_names(binary: str) -> graphs.Names:
    """Names that native frames outside the host may have."""
    if binary == "musl_native":
        return graphs.Names(frozenset(VDSO), frozenset())
    if "musl" in binary or "static" in binary:
        # Everything that is linked in but the host's own functions.
        host = os.path.join(BUILT, "host.own.o")
        subprocess.run(["cc", *CFLAGS, "-c", "-o", host,
                        os.path.join(PROGS, "host.c"),
                        *_recipe("host")[2][:1]], check=True)
        own = symbols(host) | {"_start", "__libc_start_main"}
        everything = symbols(os.path.join(BUILT, binary)) - own
        luajit = symbols(os.path.join(LIB_DIR, "libluajit-5.1.a"))
        return graphs.Names((everything - luajit) | VDSO,
                            everything & luajit)
    libc: frozenset = frozenset(VDSO)
    for file in ("libc.so.6", "libm.so.6", "libgcc_s.so.1",
                 "ld-linux-x86-64.so.2"):
        libc |= symbols(os.path.join("/lib/x86_64-linux-gnu", file))
    return graphs.Names(libc, frozenset())
