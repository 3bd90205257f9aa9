# SPDX-License-Identifier: Apache-2.0
"""The C core, libluabpf.so, through ctypes. Nothing else imports ctypes."""

import ctypes
import errno
import hashlib
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import (Callable, Dict, Iterator, List, Mapping, Optional,
                    Tuple, Union)

from luabpf.cli import Fail

# enum lb_config_flag of lb_wire.h
CONFIG_USER = 1
CONFIG_KERNEL = 2
CONFIG_IDLE = 8
CONFIG_LINES = 32
CONFIG_OFF = 64
CONFIG_VMSTATE = 128
CONFIG_CALLERS = 256
CONFIG_TRACES = 512

# enum lb_watch and enum lb_fold_flag of lb.h
WATCH_TREE = 1
WATCH_ALL = 2
FOLD_ANNOTATE = 1
FOLD_DELIMIT = 2
FOLD_LUA_ONLY = 4
FOLD_LINES = 8
FOLD_PER_PID = 16
FOLD_VMSTATE = 32

# enum lb_fact_kind
_FACT_NUMBER = 1
_FACT_FLAG = 2

# enum lb_calls_what of lb.h
CALLS_OF_LUA = 1
CALLS_OF_BUILTINS = 2
CALLS_OF_API = 4

_STOPS = 16  # entries of lb_totals.by_stop


class _MapFds(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in (
        "rows", "blocks", "rules", "procs", "tids", "unknown", "counts",
        "config", "counters", "ring", "progs")]


class _Figures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "heap", "threshold", "debt", "estimate")] + [
        ("state", ctypes.c_uint32), ("pad", ctypes.c_uint32)]


class _Needs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in (
        "rows", "blocks", "rules", "procs", "ref32")]


class _Totals(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "samples", "complete", "with_lua", "truncated", "failed", "lost",
        "lost_storage", "lost_ring", "lost_other", "in_trace", "not_ready")] + [
        ("by_stop", ctypes.c_uint64 * _STOPS),
        ("stacks", ctypes.c_uint64), ("traces_exact", ctypes.c_uint64),
        ("traces_coarse", ctypes.c_uint64), ("traces_gone", ctypes.c_uint64)]


class _Fact(ctypes.Structure):
    _fields_ = [("group", ctypes.c_char_p), ("key", ctypes.c_char_p),
                ("text", ctypes.c_char_p), ("number", ctypes.c_uint64),
                ("item", ctypes.c_uint32), ("kind", ctypes.c_uint32)]


class _CallFds(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in (
        "points", "states", "calls", "edges", "counters", "program")]


class _CallTotals(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "hits", "counted", "unwanted", "full", "unread", "again", "foreign",
        "compiled", "loops", "no_edge", "ticks", "in_probe",
        "in_lua", "in_trace")]


class _CallInfo(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("total", ctypes.c_uint64),
                ("count", ctypes.c_uint64), ("pid", ctypes.c_int),
                ("is_decided", ctypes.c_uint32),
                ("is_wanted", ctypes.c_uint32),
                ("is_called", ctypes.c_uint32)]


class _EdgeInfo(ctypes.Structure):
    _fields_ = [("total", ctypes.c_uint64), ("count", ctypes.c_uint64),
                ("caller", ctypes.c_uint32), ("callee", ctypes.c_uint32)]


_CALLER_NONE = 0xffffffff

_LOG_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int,
                           ctypes.c_char_p)


@dataclass(frozen=True)
class Needs:
    """Table sizes; see struct lb_needs."""

    rows: int
    blocks: int
    rules: int
    procs: int
    ref32: int = 0


@dataclass(frozen=True)
class Totals:
    """How the samples of a run ended; see struct lb_totals."""

    samples: int
    complete: int
    with_lua: int
    truncated: int
    failed: int
    lost: int
    lost_storage: int
    lost_ring: int
    lost_other: int
    in_trace: int
    stacks: int
    traces_exact: int
    traces_coarse: int
    traces_gone: int
    by_reason: Mapping[str, int]  # failed, by word


@dataclass(frozen=True)
class Fact:
    """One fact; see struct lb_fact."""

    group: str
    item: int
    key: str
    value: Union[str, int, bool]
    source: str  # of a number, "" if it needs none


@dataclass(frozen=True)
class CallTotals:
    """What became of the hits of all probes; see struct lb_call_totals."""

    hits: int
    counted: int
    unwanted: int
    full: int
    unread: int
    again: int
    foreign: int
    compiled: int
    loops: int
    no_edge: int
    ticks: int
    in_probe: int
    in_lua: int
    in_trace: int


@dataclass(frozen=True)
class Function:
    """A function that was called; see struct lb_call_info."""

    index: int
    text: str  # "" until it is named
    total: int
    count: int
    pid: int
    is_decided: bool
    is_wanted: bool
    is_called: bool


@dataclass(frozen=True)
class Edge:
    """A pair of functions, by their indices; caller None: not Lua."""

    caller: Optional[int]
    callee: int
    total: int
    count: int


# Every function of lb.h: result, arguments. A test compares this with lb.h.
_INT = ctypes.c_int
_SIZE_P = ctypes.POINTER(ctypes.c_size_t)
_PTR = ctypes.c_void_p
FUNCTIONS: Dict[str, Tuple[object, List[object]]] = {
    "lb_version": (ctypes.c_char_p, []),
    "lb_wire_id": (ctypes.c_char_p, []),
    "lb_wire_size": (ctypes.c_size_t, [ctypes.c_char_p]),
    "lb_stop_text": (ctypes.c_char_p, [ctypes.c_uint]),
    "lb_doctor_new": (_INT, [ctypes.POINTER(_PTR)]),
    "lb_doctor_free": (None, [_PTR]),
    "lb_doctor_error": (ctypes.c_char_p, [_PTR]),
    "lb_doctor_pid": (_INT, [_PTR, _INT]),
    "lb_doctor_all": (_INT, [_PTR]),
    "lb_doctor_file": (_INT, [_PTR, ctypes.c_char_p]),
    "lb_doctor_kernel": (_INT, [_PTR]),
    "lb_doctor_fact": (_INT, [_PTR, ctypes.c_size_t, ctypes.POINTER(_Fact)]),
    "lb_session_new": (_INT, [_LOG_FN, _PTR, ctypes.POINTER(_PTR)]),
    "lb_session_free": (None, [_PTR]),
    "lb_session_error": (ctypes.c_char_p, [_PTR]),
    "lb_session_add_pid": (_INT, [_PTR, _INT, ctypes.c_bool]),
    "lb_session_add_all": (_INT, [_PTR, _SIZE_P]),
    "lb_session_add_tree": (_INT, [_PTR, _SIZE_P]),
    "lb_session_watch": (None, [_PTR, ctypes.c_uint]),
    "lb_session_cgroup": (_INT, [_PTR, ctypes.c_char_p]),
    "lb_session_add_tid": (_INT, [_PTR, _INT]),
    "lb_session_needs": (None, [_PTR, ctypes.POINTER(_Needs)]),
    "lb_session_start": (_INT, [_PTR, ctypes.POINTER(_MapFds),
                                ctypes.POINTER(_Needs), ctypes.c_uint]),
    "lb_session_set_prog": (_INT, [_INT, ctypes.c_uint, _INT]),
    "lb_session_poll": (_INT, [_PTR, _INT]),
    "lb_session_with_vm": (ctypes.c_size_t, [_PTR]),
    "lb_session_alive": (ctypes.c_size_t, [_PTR]),
    "lb_session_stop": (_INT, [_PTR]),
    "lb_session_fold": (_INT, [_PTR, ctypes.c_uint, _SIZE_P]),
    "lb_session_folded": (ctypes.c_char_p, [
        _PTR, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(_INT)]),
    "lb_session_stack": (ctypes.c_char_p, [
        _PTR, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint]),
    "lb_session_totals": (None, [_PTR, ctypes.POINTER(_Totals)]),
    "lb_session_trace": (ctypes.c_char_p, [_PTR, ctypes.c_size_t]),
    "lb_kernel_offset": (_INT, [ctypes.c_char_p, ctypes.c_char_p,
                                ctypes.POINTER(ctypes.c_uint32)]),
    "lb_gc_new": (_INT, [ctypes.POINTER(_PTR)]),
    "lb_gc_free": (None, [_PTR]),
    "lb_gc_error": (ctypes.c_char_p, [_PTR]),
    "lb_gc_add_pid": (_INT, [_PTR, _INT]),
    "lb_gc_attach": (_INT, [_PTR, _INT, ctypes.POINTER(_INT),
                            ctypes.c_size_t]),
    "lb_gc_alive": (ctypes.c_size_t, [_PTR]),
    "lb_gc_next_end": (_INT, [_PTR]),
    "lb_gc_exact_phases": (ctypes.c_bool, [_PTR]),
    "lb_gc_read": (_INT, [_PTR, _INT, ctypes.c_uint, ctypes.c_uint64,
                          ctypes.POINTER(_Figures)]),
    "lb_session_trouble": (ctypes.c_char_p, [_PTR, ctypes.c_size_t]),
    "lb_calls_new": (_INT, [_PTR, ctypes.POINTER(_CallFds), ctypes.c_uint,
                            ctypes.POINTER(_PTR)]),
    "lb_calls_free": (None, [_PTR]),
    "lb_calls_attach": (_INT, [_PTR, _SIZE_P]),
    "lb_calls_switch": (_INT, [_PTR, ctypes.c_bool]),
    "lb_calls_name": (_INT, [_PTR]),
    "lb_calls_decide": (_INT, [_PTR, ctypes.c_size_t, ctypes.c_bool]),
    "lb_calls_read": (_INT, [_PTR]),
    "lb_calls_functions": (ctypes.c_size_t, [_PTR]),
    "lb_calls_function": (_INT, [_PTR, ctypes.c_size_t,
                                 ctypes.POINTER(_CallInfo)]),
    "lb_calls_edges": (ctypes.c_size_t, [_PTR]),
    "lb_calls_edge": (_INT, [_PTR, ctypes.c_size_t,
                             ctypes.POINTER(_EdgeInfo)]),
    "lb_calls_totals": (None, [_PTR, ctypes.POINTER(_CallTotals)]),
}


class Error(Exception):
    """A call into the core failed; `code` is an errno number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text or os.strerror(code))
        self.code = code


def library_path() -> Path:
    """The library, in the tree or installed. Raises Fail."""
    here = Path(__file__).resolve().parent
    output = os.environ.get("OUTPUT", ".output")
    for path in (here.parent.parent / output / "libluabpf.so",
                 here / "libluabpf.so"):
        if path.is_file():
            return path
    raise Fail("libluabpf.so is not built", hint="run make in the source tree")


def source_dir() -> Path:
    """Folder of the BPF C sources, in the tree or installed."""
    return Path(__file__).resolve().parent.parent.parent / "bpf_c"


def bpf_headers_id() -> str:
    """What lb_wire_id() is for the headers that BPF is compiled with."""
    digest = hashlib.sha256()
    for name in ("lb_wire.h", "lj_offsets.h"):
        digest.update((source_dir() / name).read_bytes())
    return digest.hexdigest()[:16]


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(library_path()))
    except OSError as error:
        raise Fail(f"cannot load the C core: {error}",
                   hint="run scripts/install-deps run, then make") from None
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    wire_id = bpf_headers_id()
    if _text(library.lb_wire_id()) != wire_id:
        raise Fail("libluabpf.so was not built from the BPF headers beside it",
                   hint="run make")
    for struct, wire in ((_MapFds, b"lb_map_fds"), (_Needs, b"lb_needs"),
                         (_Totals, b"lb_totals"),
                         (_Figures, b"lb_gc_figures"), (_Fact, b"lb_fact"),
                         (_CallFds, b"lb_call_fds"),
                         (_CallTotals, b"lb_call_totals"),
                         (_CallInfo, b"lb_call_info"),
                         (_EdgeInfo, b"lb_edge_info")):
        size = library.lb_wire_size(wire)
        if size != ctypes.sizeof(struct):
            raise Fail(f"libluabpf.so is of another version: {wire.decode()} "
                       f"has {size} bytes", hint="run make clean all")
    return library


def _text(raw: object) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else ""


class Session:
    """One run; a context manager. See helpers/lb.h for each method."""

    def __init__(self, log: Callable[[int, str], None]) -> None:
        self._lib = _load()
        self._log = _LOG_FN(lambda _arg, level, raw: log(level, _text(raw)))
        self._handle = _PTR()
        self._check(self._lib.lb_session_new(
            self._log, None, ctypes.byref(self._handle)))

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._lib.lb_session_free(self._handle)
        self._handle = _PTR()

    def _check(self, result: int) -> None:
        if result < 0:
            text = _text(self._lib.lb_session_error(self._handle)) \
                if self._handle else ""
            raise Error(-result, text)

    def add_pid(self, pid: int, need_vm: bool) -> None:
        """Profile process PID. Raises Error."""
        self._check(self._lib.lb_session_add_pid(self._handle, pid, need_vm))

    def add_tid(self, tid: int) -> None:
        """Profile thread TID of its process. Raises Error."""
        self._check(self._lib.lb_session_add_tid(self._handle, tid))

    def add_all(self) -> int:
        """Add each process that holds a LuaJIT VM; how many were new."""
        count = ctypes.c_size_t()
        self._check(self._lib.lb_session_add_all(
            self._handle, ctypes.byref(count)))
        return count.value

    def add_tree(self) -> int:
        """Add the descendants of the processes added by PID; how many."""
        count = ctypes.c_size_t()
        self._check(self._lib.lb_session_add_tree(
            self._handle, ctypes.byref(count)))
        return count.value

    def watch(self, flags: int) -> None:
        """Which processes to add later on: WATCH_*."""
        self._lib.lb_session_watch(self._handle, flags)

    def cgroup(self, path: str) -> None:
        """Only processes below this cgroup folder. Raises Error."""
        self._check(self._lib.lb_session_cgroup(
            self._handle, os.fsencode(path)))

    def needs(self) -> Needs:
        """Table sizes that the processes added so far need."""
        raw = _Needs()
        self._lib.lb_session_needs(self._handle, ctypes.byref(raw))
        return Needs(raw.rows, raw.blocks, raw.rules, raw.procs,
                     raw.ref32)

    def start(self, fds: Mapping[str, int], programs: Mapping[int, int],
              room: Needs, flags: int) -> None:
        """Hand everything to a loaded program.

        FDS by the names of struct lb_map_fds; PROGRAMS by tail call slot.
        """
        raw_fds = _MapFds(**fds)
        raw_room = _Needs(room.rows, room.blocks, room.rules, room.procs,
                          room.ref32)
        for slot, fd in programs.items():
            self._check(self._lib.lb_session_set_prog(fds["progs"], slot, fd))
        self._check(self._lib.lb_session_start(
            self._handle, ctypes.byref(raw_fds), ctypes.byref(raw_room),
            flags))

    def poll(self, timeout_ms: int) -> None:
        """Drain for TIMEOUT_MS at most."""
        self._check(self._lib.lb_session_poll(self._handle, timeout_ms))

    def with_vm(self) -> int:
        """Living processes that hold a LuaJIT VM."""
        return int(self._lib.lb_session_with_vm(self._handle))

    def alive(self) -> int:
        """Processes that have not exited."""
        return int(self._lib.lb_session_alive(self._handle))

    def stop(self) -> None:
        """End sampling and read all counts."""
        self._check(self._lib.lb_session_stop(self._handle))

    def folded(self, flags: int) -> Iterator[Tuple[str, int, int]]:
        """Yield (text, samples, PID or 0) of each different text."""
        count = ctypes.c_size_t()
        self._check(self._lib.lb_session_fold(
            self._handle, flags, ctypes.byref(count)))
        samples, pid = ctypes.c_uint64(), _INT()
        for i in range(count.value):
            raw = self._lib.lb_session_folded(
                self._handle, i, ctypes.byref(samples), ctypes.byref(pid))
            yield _text(raw), samples.value, pid.value

    def stack(self, hash_of: int, leaf: int, flags: int) -> str:
        """Text of one stack, while the run goes on; "" if it is not there."""
        return _text(self._lib.lb_session_stack(
            self._handle, hash_of, leaf, flags))

    def totals(self) -> Totals:
        """How the samples ended."""
        raw = _Totals()
        self._lib.lb_session_totals(self._handle, ctypes.byref(raw))
        words = {}
        for stop in range(_STOPS):
            word = _text(self._lib.lb_stop_text(stop))
            if raw.by_stop[stop] and word not in ("root", "truncated"):
                words[word] = raw.by_stop[stop]
        plain = {f.name: getattr(raw, f.name) for f in fields(Totals)
                 if f.name != "by_reason"}
        return Totals(by_reason=words, **plain)

    def traces(self) -> Iterator[str]:
        """Traces that samples fell into, one line each, hottest first."""
        i = 0
        while True:
            text = self._lib.lb_session_trace(self._handle, i)
            if text is None:
                return
            yield _text(text)
            i += 1

    def troubles(self) -> List[str]:
        """Mapped files that could not be used fully, one line each."""
        lines: List[str] = []
        while True:
            raw = self._lib.lb_session_trouble(self._handle, len(lines))
            if raw is None:
                return lines
            lines.append(_text(raw))


class Doctor:
    """Facts about processes, files and the system; a context manager."""

    def __init__(self) -> None:
        self._lib = _load()
        self._handle = _PTR()
        self._check(self._lib.lb_doctor_new(ctypes.byref(self._handle)))

    def __enter__(self) -> "Doctor":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._lib.lb_doctor_free(self._handle)
        self._handle = _PTR()

    def _check(self, result: int) -> None:
        if result < 0:
            raise Error(-result, _text(self._lib.lb_doctor_error(self._handle))
                        if self._handle else "")

    def pid(self, pid: int) -> None:
        """Learn all about process PID. Raises Error."""
        self._check(self._lib.lb_doctor_pid(self._handle, pid))

    def all(self) -> None:
        """Learn in short of each process with a Lua. Raises Error."""
        self._check(self._lib.lb_doctor_all(self._handle))

    def file(self, path: str) -> None:
        """Learn all about one file. Raises Error."""
        self._check(self._lib.lb_doctor_file(self._handle, os.fsencode(path)))

    def kernel(self) -> None:
        """Learn what this system allows. Raises Error."""
        self._check(self._lib.lb_doctor_kernel(self._handle))

    def facts(self) -> Iterator[Fact]:
        """Yield what was learnt so far."""
        raw, i = _Fact(), 0
        while not self._lib.lb_doctor_fact(self._handle, i, ctypes.byref(raw)):
            text = _text(raw.text)
            value: Union[str, int, bool] = text
            if raw.kind == _FACT_NUMBER:
                value = raw.number
            elif raw.kind == _FACT_FLAG:
                value = bool(raw.number)
            yield Fact(_text(raw.group), raw.item, _text(raw.key), value,
                       text if raw.kind == _FACT_NUMBER else "")
            i += 1


@dataclass(frozen=True)
class Figures:
    """The collector's own figures, bytes; see struct lb_gc_figures."""

    heap: int
    threshold: int
    debt: int
    estimate: int
    state: int


class Collector:
    """Processes whose garbage collector is measured; a context manager."""

    def __init__(self) -> None:
        self._lib = _load()
        self._handle = _PTR()
        self._check(self._lib.lb_gc_new(ctypes.byref(self._handle)))

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._lib.lb_gc_free(self._handle)
        self._handle = _PTR()

    def _check(self, result: int) -> None:
        if result < 0:
            text = _text(self._lib.lb_gc_error(self._handle)) \
                if self._handle else ""
            raise Error(-result, text)

    def add_pid(self, pid: int) -> None:
        """Find the VMs of process PID. Raises Error."""
        self._check(self._lib.lb_gc_add_pid(self._handle, pid))

    def attach(self, procs_fd: int, programs: List[int]) -> None:
        """Set probes in processes that have none yet; PROGRAMS: descriptors
        by enum lb_gc_point, or none for no probes. Raises Error."""
        fds = (_INT * len(programs))(*programs)
        self._check(self._lib.lb_gc_attach(
            self._handle, procs_fd, fds if programs else None, len(programs)))

    def alive(self) -> int:
        """Processes that are measured and have not ended."""
        return int(self._lib.lb_gc_alive(self._handle))

    def ends(self) -> List[str]:
        """What became of processes that ended since the last call."""
        found = []
        while self._lib.lb_gc_next_end(self._handle):
            found.append(_text(self._lib.lb_gc_error(self._handle)))
        return found

    def exact_phases(self) -> bool:
        """Whether each change of phase is seen in all VMs."""
        return bool(self._lib.lb_gc_exact_phases(self._handle))

    def read(self, pid: int, vm: int, g_addr: int) -> Figures:
        """What the collector of one VM says of itself now. Raises Error."""
        raw = _Figures()
        self._check(self._lib.lb_gc_read(self._handle, pid, vm, g_addr,
                                         ctypes.byref(raw)))
        return Figures(raw.heap, raw.threshold, raw.debt, raw.estimate,
                       raw.state)


def check_size(name: str, size: int) -> None:
    """Raise Fail unless struct NAME of lb_wire.h has SIZE bytes."""
    found = _load().lb_wire_size(name.encode())
    if found != size:
        raise Fail(f"libluabpf.so is of another version: {name} has {found} "
                   "bytes", hint="run make clean all")


def kernel_offset(struct: str, path: str) -> int:
    """Byte offset of a member of a struct of the running kernel."""
    off = ctypes.c_uint32()
    result = _load().lb_kernel_offset(struct.encode(), path.encode(),
                                      ctypes.byref(off))
    if result < 0:
        raise Fail(f"the kernel's BTF does not show {struct}.{path}",
                   hint="a kernel with /sys/kernel/btf/vmlinux is needed")
    return off.value


def bytes_at(addr: int, size: int) -> bytes:
    """Copy of memory of this process that a callback was given."""
    return ctypes.string_at(addr, size)


class Calls:
    """Counts of calls in a session; a context manager. See helpers/lb.h."""

    def __init__(self, session: Session, fds: Mapping[str, int],
                 what: int) -> None:
        self._lib, self._session = session._lib, session
        self._handle = _PTR()
        self._check(self._lib.lb_calls_new(
            session._handle, ctypes.byref(_CallFds(**fds)), what,
            ctypes.byref(self._handle)))

    def __enter__(self) -> "Calls":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._lib.lb_calls_free(self._handle)
        self._handle = _PTR()

    def _check(self, result: int) -> None:
        self._session._check(result)

    def attach(self) -> int:
        """Probe each VM that has no probes yet; how many were added."""
        count = ctypes.c_size_t()
        self._check(self._lib.lb_calls_attach(
            self._handle, ctypes.byref(count)))
        return count.value

    def switch(self, on: bool) -> None:
        """Begin or end counting."""
        self._check(self._lib.lb_calls_switch(self._handle, on))

    def name(self) -> None:
        """Give each function seen so far its name."""
        self._check(self._lib.lb_calls_name(self._handle))

    def decide(self, function: Function, wanted: bool) -> None:
        """Go on counting FUNCTION, or do not."""
        self._check(self._lib.lb_calls_decide(
            self._handle, function.index, wanted))

    def read(self) -> None:
        """Read all counts."""
        self._check(self._lib.lb_calls_read(self._handle))

    def functions(self) -> Iterator[Function]:
        """All functions seen so far, by index."""
        raw = _CallInfo()
        for i in range(self._lib.lb_calls_functions(self._handle)):
            self._check(self._lib.lb_calls_function(
                self._handle, i, ctypes.byref(raw)))
            yield Function(i, _text(raw.text), raw.total, raw.count, raw.pid,
                           bool(raw.is_decided), bool(raw.is_wanted),
                           bool(raw.is_called))

    def edges(self) -> Iterator[Edge]:
        """All pairs of caller and callee."""
        raw = _EdgeInfo()
        for i in range(self._lib.lb_calls_edges(self._handle)):
            self._check(self._lib.lb_calls_edge(
                self._handle, i, ctypes.byref(raw)))
            yield Edge(None if raw.caller == _CALLER_NONE else raw.caller,
                       raw.callee, raw.total, raw.count)

    def totals(self) -> CallTotals:
        """What became of the hits."""
        raw = _CallTotals()
        self._lib.lb_calls_totals(self._handle, ctypes.byref(raw))
        return CallTotals(**{f.name: getattr(raw, f.name)
                             for f in fields(CallTotals)})


def version() -> str:
    """Version of the C core."""
    return _text(_load().lb_version())


__all__ = ["CallTotals", "Calls", "Collector", "Doctor", "Edge", "Error",
           "Fact", "Figures", "Function", "Needs", "Session", "Totals",
           "errno", "version"]
