# SPDX-License-Identifier: Apache-2.0
"""Which processes a tool looks at: those of its -p, -L and --tree, or all."""

import time
from dataclasses import dataclass, field
from typing import List

from luabpf import cli, drain, lib

# What the user can do about an error of the core.
HINTS = {
    lib.errno.EPERM: "run as root",
    lib.errno.EACCES: "run as root",
    lib.errno.ESRCH: "pgrep -a NAME lists processes",
    lib.errno.ENOENT: "see lua-doctor -p PID; --wait if one is loaded later",
    lib.errno.EMFILE: "raise the limit of open files (ulimit -n)",
    lib.errno.EOPNOTSUPP: "lua-doctor -p PID shows what is in it",
    lib.errno.EINVAL: "give the process with -p, or the thread with -L"}


@dataclass(frozen=True)
class Targets:
    """What was asked for; without PIDs and TIDs all LuaJIT processes."""

    pids: List[int] = field(default_factory=list)
    tids: List[int] = field(default_factory=list)
    tree: bool = False
    wait: bool = False

    def watch(self, session: lib.Session) -> None:
        """Let SESSION follow processes that come later."""
        if self.tree:
            session.watch(lib.WATCH_TREE)
        elif not (self.pids or self.tids):
            session.watch(lib.WATCH_ALL)

    @property
    def is_open(self) -> bool:
        """Can processes come later?"""
        return self.tree or not (self.pids or self.tids)

    def text(self) -> str:
        """PID 1,2 in words."""
        if self.tids:
            return "TID " + ",".join(map(str, self.tids))
        if self.pids:
            return "PID " + ",".join(map(str, self.pids))
        return "all LuaJIT processes"


def _add(session: lib.Session, targets: Targets) -> int:
    """Add what was asked for; how many processes."""
    if targets.pids:
        only = len(targets.pids) == 1
        for pid in targets.pids:
            # with several, one without a LuaJIT (a master) is no error, nor
            # is one that has gone since its PID was looked up
            try:
                session.add_pid(pid, need_vm=only and not targets.tree)
            except lib.Error as error:
                if only or error.code != lib.errno.ESRCH:
                    raise
                cli.message(str(error))
        if targets.tree:
            session.add_tree()
        elif not only:
            return session.with_vm()
    elif targets.tids:
        for tid in targets.tids:
            session.add_tid(tid)
    else:
        return session.add_all()
    return session.alive()


def find(session: lib.Session, targets: Targets,
         ending: drain.Ending) -> None:
    """Find the processes, waiting for one if that was asked for."""
    waiting = False
    while True:
        try:
            if _add(session, targets):
                return
            error = lib.Error(lib.errno.ENOENT,
                              "no LuaJIT: none of the processes that can be "
                              "read holds one")
        except lib.Error as caught:
            error = caught
        if not targets.wait or error.code != lib.errno.ENOENT:
            raise cli.Fail(str(error), hint=HINTS.get(error.code))
        if ending.asked:
            raise cli.Fail("ended before a LuaJIT appeared")
        if not waiting:
            cli.message("waiting for a LuaJIT...")
            waiting = True
        time.sleep(0.1 if targets.pids or targets.tids else 0.5)
