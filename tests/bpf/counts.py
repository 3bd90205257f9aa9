# SPDX-License-Identifier: Apache-2.0
"""Run lua-fn-count on programs of tests/lua, and read what it prints."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Dict, List, Optional

import harness
from hosts import ROOT, build_host

TOOL = os.path.join(ROOT, "tools", "lua-fn-count.py")
LUA_DIR = os.path.join(ROOT, "tests", "lua")

CLOSING = re.compile(r"lua-fn-count: (\d+) calls: (\d+) counted, "
                     r"(\d+) of other functions, (\d+) lost")


def marked(script: str) -> Dict[str, str]:
    """`chunk:line` of each function of a script that has a mark `--: NAME`."""
    found = {}
    with open(os.path.join(LUA_DIR, script), encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            mark = re.search(r"--: (\S+)$", line)
            if mark:
                found["%s:%d" % (script, number)] = mark.group(1)
    return found


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited %d s in vain" % seconds)
        time.sleep(0.02)


class Target:
    """A Lua program of ours that waits for `go`."""

    def __init__(self, script: str, args: List[str] = [],
                 command: Optional[List[str]] = None, build: str = "luajit2",
                 jit: bool = False, ready: int = 1) -> None:
        env = dict(os.environ, LC_ALL="C")
        luajit = [shutil.which("luajit")]
        if build == "upstream":
            luajit = [harness.build_file(build)]
        elif build == "texlua":  # a library alone
            luajit = [build_host("host")]
            env["LD_LIBRARY_PATH"] = harness.library_path(build)
        mode = [] if jit else ["-joff"]
        self.out = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            (command or luajit) + mode + [script] + args, cwd=LUA_DIR,
            stdin=subprocess.PIPE, stdout=self.out, stderr=self.out, env=env)
        self.pid = self.process.pid
        try:
            wait_for(lambda: self.text().count("ready\n") >= ready)
        except AssertionError:
            self.close()
            raise

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_exc) -> None:
        self.close()

    def text(self) -> str:
        return os.pread(self.out.fileno(), 1 << 20, 0).decode()

    def go(self) -> None:
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.out.close()


class Count:
    """One run of lua-fn-count; begin(), then end()."""

    def __init__(self, *args: str) -> None:
        self.dir = tempfile.mkdtemp(prefix="lb-test-")
        self._err = os.path.join(self.dir, "err")
        self._out = os.path.join(self.dir, "out")
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen([TOOL, *args], stdout=out,
                                            stderr=err)
        self.stdout = self._errors = ""

    def __enter__(self) -> "Count":
        return self

    def __exit__(self, *_exc) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._errors = self.stderr
        shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def stderr(self) -> str:
        if self._errors:
            return self._errors
        with open(self._err, encoding="utf-8") as file:
            return file.read()

    def begin(self) -> None:
        """Wait until it counts."""
        wait_for(lambda: "Counting" in self.stderr
                 or self.process.poll() is not None, 120)
        if self.process.poll() is not None:
            raise AssertionError("it ended: " + self.stderr)
        # the line is printed right before counting begins
        time.sleep(0.3)

    def end(self, interrupt: bool = True) -> None:
        """Let it end, and read its report."""
        if interrupt and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        status = self.process.wait(120)
        with open(self._out, encoding="utf-8") as file:
            self.stdout = file.read()
        if status:
            raise AssertionError("status %d: %s" % (status, self.stderr))

    def rows(self) -> Dict[str, int]:
        """FUNC -> COUNT of the last table."""
        table = self.stdout.rpartition("FUNC ")[2].partition("\n\n")[0]
        rows = {}
        for line in table.splitlines()[1:]:
            name, _, count = line.rpartition(" ")
            rows[name.rstrip(" >=")] = int(count)
        return rows

    def places(self) -> Dict[str, int]:
        """`chunk:line` -> COUNT, whatever the name; the chunk's last part."""
        counts: Dict[str, int] = {}
        for text, count in self.rows().items():
            place = text.partition("@")[2].rpartition("/")[2]
            counts[place] = counts.get(place, 0) + count
        return counts

    def closing(self) -> List[int]:
        """Calls, counted, of other functions, lost."""
        found = CLOSING.search(self.stderr)
        if not found:
            raise AssertionError("no closing line: " + self.stderr)
        return [int(part) for part in found.groups()]
