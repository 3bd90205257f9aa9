# SPDX-License-Identifier: Apache-2.0
"""Find kernel headers for BCC when those of the running kernel are missing.

BCC compiles against /lib/modules/RELEASE/build (or source), or unpacks
/sys/kernel/kheaders.tar.xz. Where there is neither, the headers of another
kernel do: our programs use no kernel structs. BCC wants one tree, named by
BCC_KERNEL_SOURCE; Debian splits it in two packages (-amd64: configuration and
generated files, -common: the rest), so the two are merged by symlinks in a
cache folder. /lib/modules is never touched.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from typing import Dict, List, Optional, Tuple

from luabpf.cli import Fail

_HINT = "apt-get install linux-headers-amd64, or set BCC_KERNEL_SOURCE"
_STAMP = ".lua-bpf-tools"
_TEMP = "temp-"

# Folder below arch/ by machine name; any other machine has its own name there.
_ARCH_DIRS = {"x86_64": "x86", "aarch64": "arm64"}


def find_tree(root: str = "/", release: Optional[str] = None,
              machine: Optional[str] = None,
              cache: Optional[str] = None) -> Optional[str]:
    """Return the tree to put into BCC_KERNEL_SOURCE, None if BCC needs none.

    Tests pass another root, release, machine and cache folder. Raises Fail
    if there are no headers, or the merged tree cannot be written.
    """
    named = os.environ.get("BCC_KERNEL_SOURCE")
    if named:
        if not os.path.isdir(os.path.join(named, "include", "linux")):
            raise Fail(f"BCC_KERNEL_SOURCE={named}: no include/linux in it",
                       "name a complete header tree, or unset it")
        return None
    uname = os.uname()
    if _bcc_finds_own(root, release or uname.release):
        return None
    machine = machine or uname.machine
    arch = _ARCH_DIRS.get(machine, machine)
    parts = _newest_package(root, arch)
    if parts is None:
        raise Fail("no kernel headers: neither of the running kernel nor an "
                   "installed header package", _HINT)
    if len(parts) == 1:
        return parts[0]
    return _merged_tree(parts, arch, cache or _cache_dir())


def _bcc_finds_own(root: str, release: str) -> bool:
    # The same order as BCC: source if both folders are there, else build;
    # without include/linux (a leftover folder), the archive of the kernel.
    modules = os.path.join(root, "lib/modules", release)
    build = os.path.join(modules, "build")
    source = os.path.join(modules, "source")
    both = os.path.isdir(build) and os.path.isdir(source)
    if os.path.isdir(os.path.join(source if both else build,
                                  "include/linux")):
        return True
    if os.path.exists(os.path.join(root, "sys/kernel/kheaders.tar.xz")):
        return True
    folder = os.path.join(modules, "kernel/kernel")  # BCC calls modprobe
    return any(os.path.exists(os.path.join(folder, "kheaders.ko" + ext))
               for ext in ("", ".xz", ".zst", ".gz"))


def _has(tree: str, *paths: str) -> bool:
    return all(os.path.exists(os.path.join(tree, path)) for path in paths)


def _has_generated(tree: str, arch: str) -> bool:
    return _has(tree, "include/generated/autoconf.h",
                f"arch/{arch}/include/generated")


def _has_sources(tree: str, arch: str) -> bool:
    return _has(tree, "include/linux/kconfig.h", f"arch/{arch}/include/asm")


def _version_key(name: str) -> Tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", name)[:6])


def _newest_package(root: str, arch: str) -> Optional[List[str]]:
    """The newest complete headers: [tree], or [build part, common part]."""
    found: Dict[str, List[str]] = {}
    for folder in ("usr/src", "usr/src/kernels"):
        base = os.path.join(root, folder)
        try:
            names = os.listdir(base)
        except OSError:
            continue
        for name in names:
            tree = os.path.join(base, name)
            if not _has_generated(tree, arch):
                continue
            if _has_sources(tree, arch):
                found[name] = [tree]
                continue
            common = _common_part(tree, names)
            if common and _has_sources(common, arch):
                found[name] = [tree, common]
    if not found:
        return None
    return found[max(found, key=lambda name: (_version_key(name), name))]


def _common_part(build: str, names: List[str]) -> Optional[str]:
    """The folder that a Debian build part's Makefile includes."""
    base, own = os.path.split(build)
    try:
        with open(os.path.join(build, "Makefile"), encoding="utf-8",
                  errors="replace") as file:
            text = file.read(65536)
    except OSError:
        return None
    for name in re.findall(r"linux-headers-[\w.+~-]+", text):
        if name != own and name in names:
            return os.path.join(base, name)
    return None


def _cache_dir() -> str:
    """The folder of our own below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.geteuid() == 0:
        # Under sudo these may still be the user's; root does not compile
        # what another user could put in its way.
        if not (os.path.isabs(base) and _is_mine(base)):
            base = "/var/cache"
    elif not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "lua-bpf-tools")


def _is_mine(path: str) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return info.st_uid == os.geteuid() and not info.st_mode & 0o022


def _merged_tree(parts: List[str], arch: str, cache: str) -> str:
    tree = os.path.join(cache, os.path.basename(parts[0]))
    stamp = _stamp_text(parts)
    try:
        _make_private(cache)
        lock = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_valid(tree, arch, stamp):
                _build_tree(tree, parts, stamp, cache)
        finally:
            os.close(lock)
    except OSError as err:
        raise Fail(f"cannot write merged kernel headers below {cache}: "
                   f"{err.strerror}",
                   "set XDG_CACHE_HOME to a folder of yours that is writable, "
                   "or set BCC_KERNEL_SOURCE") from err
    if not _is_valid(tree, arch, stamp):
        raise Fail(f"{tree}: incomplete kernel headers",
                   f"remove {tree} and try again, or set BCC_KERNEL_SOURCE")
    return tree


def _build_tree(tree: str, parts: List[str], stamp: str, cache: str) -> None:
    """Make the tree beside its place, then rename it; the lock is held."""
    for name in os.listdir(cache):
        if name.startswith(_TEMP):  # left by a run that was killed
            shutil.rmtree(os.path.join(cache, name), ignore_errors=True)
    temp = tempfile.mkdtemp(prefix=_TEMP, dir=cache)
    try:
        new = os.path.join(temp, "new")
        os.mkdir(new)
        _link_union(new, parts)
        with open(os.path.join(new, _STAMP), "w", encoding="utf-8") as file:
            file.write(stamp)
        if os.path.lexists(tree):
            os.rename(tree, os.path.join(temp, "old"))
        os.rename(new, tree)
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _make_private(cache: str) -> None:
    os.makedirs(os.path.dirname(cache), exist_ok=True)
    try:
        os.mkdir(cache, 0o700)
    except FileExistsError:
        pass
    info = os.lstat(cache)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise Fail(f"{cache}: not a folder of this user",
                   "remove it, or set XDG_CACHE_HOME to another folder")
    if stat.S_IMODE(info.st_mode) != 0o700:
        os.chmod(cache, 0o700)


def _stamp_text(parts: List[str]) -> str:
    """Text that changes when a package below the tree is replaced."""
    lines = []
    for part in parts:
        for sub in ("", "include", "arch"):
            path = os.path.join(part, sub) if sub else part
            lines.append(f"{os.stat(path).st_mtime_ns} {path}\n")
    return "".join(lines)


def _is_valid(tree: str, arch: str, stamp: str) -> bool:
    # Following the symlinks tells also whether the packages are still there.
    try:
        with open(os.path.join(tree, _STAMP), encoding="utf-8") as file:
            if file.read() != stamp:
                return False
    except OSError:
        return False
    return _has_generated(tree, arch) and _has_sources(tree, arch)


def _link_union(new: str, parts: List[str]) -> None:
    """Fill the folder new with symlinks so that it shows all parts at once.

    A folder in several parts is made anew and filled in turn; of a file in
    several parts the first part's is shown.
    """
    owners: Dict[str, List[str]] = {}
    for part in parts:
        for name in os.listdir(part):
            owners.setdefault(name, []).append(os.path.join(part, name))
    for name, paths in owners.items():
        target = os.path.join(new, name)
        if len(paths) > 1 and all(os.path.isdir(p) and not os.path.islink(p)
                                  for p in paths):
            os.mkdir(target)
            _link_union(target, paths)
        else:
            os.symlink(os.path.abspath(paths[0]), target)
