# SPDX-License-Identifier: Apache-2.0
"""What every tool's command line shares: errors, argument types, progress."""

import argparse
import errno
import math
import os
import resource
import sys
from typing import Callable, List, NoReturn, Optional, TextIO

# The kernel's PID_MAX_LIMIT on 64-bit machines; a TID comes from the same pool.
_PID_MAX = 1 << 22
_INT_MAX = (1 << 31) - 1
_CPU_ONLINE = "/sys/devices/system/cpu/online"


class Fail(Exception):
    """The tool cannot do what was asked, and the user can act on it."""

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def tool_name() -> str:
    """The name that messages begin with: lua-stacks, not lua-stacks.py."""
    name = os.path.basename(sys.argv[0]) or "luabpf"
    return name[:-3] if name.endswith(".py") else name


def one_line(text: str) -> str:
    """Escape what could end a line or steer a terminal."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in text)


def message(text: str) -> None:
    """Print `TOOL: text` to stderr; stdout is for the report only."""
    print(f"{tool_name()}: {one_line(text)}", file=sys.stderr)


def raise_limits() -> None:
    """Each process and file of a run keeps a descriptor open."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _open_streams() -> None:
    """Make stdout and stderr usable: both may be closed, or not UTF-8."""
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            # the number must not go to a map or a file of ours
            null = os.open(os.devnull, os.O_WRONLY)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, open(fd, "w", encoding="utf-8"))
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def run(main: Callable[[List[str]], int]) -> NoReturn:
    """Call main(argv) and exit with its status.

    A Fail becomes one line and its hint, status 1. A reader of stdout that
    went away (`| head`) is no error to talk about. Anything else is a bug and
    keeps its traceback.
    """
    _open_streams()
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except Fail as fail:
        message(fail.message)
        if fail.hint:
            print(f"hint: {one_line(fail.hint)}", file=sys.stderr)
        status = 1
    except BrokenPipeError:
        # The interpreter flushes once more at exit; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF):
            raise
        message(f"cannot write the report: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 1
    except KeyboardInterrupt:
        message("interrupted before there was anything to report")
        status = 1
    sys.exit(status)


def _decimal(text: str, what: str, low: int, high: int) -> int:
    # int() alone takes "1_0", " 1 " and digits of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    value = int(text)
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(
            f"{value} is not {what} ({low} to {high})")
    return value


def positive_int(text: str) -> int:
    """Argument type: 1 to 2147483647."""
    return _decimal(text, "a positive integer", 1, _INT_MAX)


def positive_float(text: str) -> float:
    """Argument type: a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def _id_list(text: str, kind: str) -> List[int]:
    # The empty string is what `-p "$(pgrep -d, NAME)"` gives for no process.
    if not text.strip():
        raise argparse.ArgumentTypeError(
            f"no {kind} given: the list is empty (is the process running?)")
    ids = [_decimal(part.strip(), f"a {kind}", 1, _PID_MAX)
           for part in text.split(",")]
    return list(dict.fromkeys(ids))


def pid_list(text: str) -> List[int]:
    """Argument type: PIDs between commas; order kept, repetitions dropped."""
    return _id_list(text, "PID")


def tid_list(text: str) -> List[int]:
    """Argument type: thread IDs between commas, as pid_list()."""
    return _id_list(text, "TID")


def parse_cpu_ranges(text: str) -> List[int]:
    """The kernel's list format: "0-2,5" is [0, 1, 2, 5]."""
    cpus: List[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def online_cpus() -> List[int]:
    """Numbers of the CPUs that are online."""
    with open(_CPU_ONLINE, encoding="ascii") as file:
        return parse_cpu_ranges(file.read())


def cpu(text: str) -> int:
    """Argument type: the number of a CPU that is online."""
    value = _decimal(text, "a CPU number", 0, _INT_MAX)
    online = online_cpus()
    if value not in online:
        raise argparse.ArgumentTypeError(
            f"CPU {value} is not online (online: "
            f"{','.join(str(n) for n in online)})")
    return value


class Progress:
    """One line on stderr that is written over; nothing if not a terminal."""

    def __init__(self, stream: Optional[TextIO] = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._on = self._stream.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        """Put text (cut to 79 columns) in place of the line shown before."""
        if self._on:
            self._stream.write("\r\x1b[K" + one_line(text)[:79])
            self._stream.flush()
            self._shown = True

    def clear(self) -> None:
        """Take the line away; call it before anything else is printed."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()
