# SPDX-License-Identifier: Apache-2.0
"""The page that lua-doctor prints: a tree of findings as text."""

import collections
import textwrap
from typing import Any, Dict, Iterator, Tuple

from luabpf.cli import one_line

Item = Dict[str, Any]
_WIDTH = 79
_LABEL = 18
_NONE = 0xffffffff  # LJ_OFFSETS_NONE: the build has no such field
# LuaJIT's own limit of memory: the threshold of a collector that is stopped.
_NEVER = {True: 1 << 47, False: 0x7fffff00}


def _line(label: str, text: str) -> Iterator[str]:
    """A label and its text, wrapped below itself."""
    indent = " " * (_LABEL + 2)
    lines = textwrap.wrap(one_line(text), _WIDTH - len(indent),
                          break_on_hyphens=False) or [""]
    yield f"  {label:<{_LABEL - 1}} {lines[0]}".rstrip()
    for line in lines[1:]:
        yield indent + line


def size_text(size: int) -> str:
    """Bytes for people: 1.3 MiB."""
    if size < 1024:
        return f"{size} bytes"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            break
    return f"{value:.1f} {unit}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


# ---- a VM in a file ----

def _references(vm: Item) -> str:
    if "gc64" not in vm:
        return "not known"
    return "64 bits (GC64)" if vm["gc64"] else "32 bits (not GC64)"


def _marks(vm: Item) -> str:
    names = (("cframe_size", "C frame"), ("g2disp", "G to dispatch"),
             ("g_cur_l", "cur_L"), ("g_vmstate", "vmstate"),
             ("static_dispatch", "static dispatch"))
    return ", ".join(f"{label} {vm[key]}" for key, label in names
                     if key in vm)


def _offsets(vm: Item) -> str:
    """How many offsets are known from where."""
    sources = collections.Counter(
        str(offset["source"]).replace(", ", " and ")
        for offset in vm["offsets"].values())
    unknown = sources.pop("none", 0)
    text = f"{sum(sources.values())} known"
    if sources:
        text += ": " + ", ".join(f"{count} from {source}"
                                 for source, count in sources.most_common())
    return text + (f"; {unknown} not known" if unknown else "")


def _probes(vm: Item) -> str:
    parts = [f"{what}: {vm[key]}" for key, what in (
        ("gc_points", "collector"), ("call_points", "calls")) if key in vm]
    return ", ".join(parts) or "not looked for"


def _symbols(vm: Item) -> str:
    text = f"{_count(vm['dynsym_functions'], 'function')} exported, "
    if vm["symtab_functions"]:
        text += f"{vm['symtab_functions']} in .symtab"
    else:
        text += "stripped"
    return f"{text}; debug info: {vm['debug_info']}"


def _unwind(vm: Item) -> str:
    text = str(vm["eh_frame"])
    if "unwind_rows" in vm:
        text += f", {_count(vm['unwind_rows'], 'row')}"
    if vm.get("unwind_bad_records"):
        text += f", {vm['unwind_bad_records']} malformed records"
    return text


def _vm_lines(vm: Item, number: int, verbose: bool) -> Iterator[str]:
    yield f"VM {number}: " + one_line(str(vm["file"]))
    if vm.get("deleted"):
        yield from _line("file", "deleted or replaced since it was mapped; "
                         "all below is of the file that is mapped")
    yield from _line("usable", "yes" if vm["usable"] else
                     f"no: {vm.get('refusal', '')}")
    for label, key in (("build ID", "build_id"), ("version text", "version")):
        yield from _line(label, str(vm.get(key, "not known")))
    yield from _line("build", str(vm.get("build", "not one of the table of "
                                         "known builds")))
    yield from _line("references", _references(vm))
    where = f"at {vm['vm_addr']:#x}" if "vm_addr" in vm else \
        f"at {vm['vm_vaddr']:#x} of the file"
    yield from _line("VM code", f"{vm['vm_size']} bytes {where}")
    yield from _line("marks", _marks(vm))
    yield from _line("offsets", _offsets(vm))
    yield from _line("probe points", _probes(vm))
    yield from _line("symbols", _symbols(vm))
    yield from _line("unwind table", _unwind(vm))
    if verbose:
        for name, offset in vm["offsets"].items():
            yield from _line("  " + name, _offset(offset))


def _offset(offset: Item) -> str:
    if offset["source"] == "none":
        return "not known"
    value = "none" if offset["value"] == _NONE else offset["value"]
    return f"{value} ({offset['source']})"


# ---- VMs at work ----

def _live_lines(live: Item, number: int, gc64: bool) -> Iterator[str]:
    yield f"AT WORK: VM {number}, global_State {live['g_addr']:#x}"
    if "contradiction" in live:
        yield from _line("proof", f"failed: {live['contradiction']}")
    elif "checks_held" in live:
        yield from _line("proof", "offsets hold in this VM: "
                         f"{live['checks_held']} checks held, "
                         f"{live['checks_unseen']} had nothing to look at")
    if "threads" in live:
        least = "" if live["threads_exact"] else "at least "
        yield from _line("Lua threads", f"{least}{live['threads']} "
                         f"(coroutines and the main one), among {least}"
                         f"{live['objects']} objects without strings")
    text = []
    if "gc_total_bytes" in live:
        text.append(f"{size_text(live['gc_total_bytes'])} in use")
    if live.get("gc_threshold_bytes", 0) >= _NEVER[gc64]:
        text.append("stopped")
    elif "gc_threshold_bytes" in live:
        text.append(f"{size_text(live['gc_threshold_bytes'])} threshold")
    if "gc_phase" in live:
        text.append(f"phase {live['gc_phase']}")
    yield from _line("GC", ", ".join(text) or "not known")
    text = [str(live["jit"])]
    if "traces" in live:
        text.append(_count(live["traces"], "trace"))
    if "mcode_areas" in live:
        text.append(f"{size_text(live['mcode_bytes'])} of machine code in "
                    f"{_count(live['mcode_areas'], 'area')}")
    yield from _line("JIT compiler", ", ".join(text))


def _search_lines(vm: Item, number: int) -> Iterator[str]:
    """The VMs that run this file's code, or why none is shown."""
    for live in vm["live"]:
        yield from _live_lines(live, number, vm["gc64"])
    if vm.get("search") == "cut short":
        yield from _line("search", "cut short by a bound: there may be more")
    elif "search" not in vm:
        yield f"AT WORK: VM {number}: not searched, its offsets are not known"
    elif vm["search"] != "whole":
        yield f"AT WORK: VM {number}: not searched: {vm['search']}"
    elif not vm["live"]:
        yield (f"AT WORK: VM {number}: none in "
               f"{size_text(vm['searched_bytes'])} of memory")


# ---- the rest ----

def _lua_lines(lua: Item) -> Iterator[str]:
    if "version" in lua:
        yield f"PUC Lua {lua['version']}: " + one_line(str(lua["file"]))
        yield from _line("usable", "no: not supported yet")
        yield from _line("found by", f"its {lua['found_by']}")
    else:
        yield f"{lua['kind']}: " + one_line(str(lua["file"]))
        yield from _line("usable", "no: functions of LuaJIT are there, but "
                         "not the unwind table by which its VM is found")


_SYSTEM = (
    ("kernel", "release"), ("machine", "machine"), ("user", "user"),
    ("capabilities", "capabilities"), ("BPF on a timer", "bpf_timer"),
    ("BPF on a probe", "bpf_probe"), ("BPF, tracepoint", "bpf_tracepoint"),
    ("timer of a CPU", "timer"), ("uprobes", "uprobes"), ("BTF", "btf"),
    ("BCC for Python", "bcc"), ("kernel headers", "headers"),
    ("kernel headers", "headers_missing"),
    ("lockdown", "lockdown"), ("perf paranoid", "perf_event_paranoid"),
    ("max sample rate", "perf_event_max_sample_rate"),
    ("unprivileged BPF", "unprivileged_bpf_disabled"),
    ("kptr_restrict", "kptr_restrict"), ("ptrace scope", "ptrace_scope"))


def _system_lines(system: Item) -> Iterator[str]:
    yield "SYSTEM"
    for label, key in _SYSTEM:
        if key in system:
            yield from _line(label, str(system[key]))


def _process_lines(process: Item) -> Iterator[str]:
    yield from _line("executable", str(process["executable"]))
    yield from _line("threads", f"{process['threads']}, "
                     f"{process['mappings']} executable mappings")
    yield from _line("memory", str(process["memory"]))
    own = [what for key, what in (("own_mounts", "mounts"),
                                  ("own_pids", "PIDs")) if process[key]]
    if own:
        yield from _line("container", "namespace of its own for " +
                         " and ".join(own))
    for trouble in process["troubles"]:
        yield from _line("cannot unwind",
                         f"{trouble['file']}: {trouble['reason']}")


def _tool_lines(process: Item) -> Iterator[str]:
    yield "TOOLS"
    for tool in process["tools"]:
        text = "yes" if tool["usable"] else "no"
        reason = str(tool["reason"])
        if reason:
            text += (", but not all: " if tool["usable"] else ": ") + reason
        yield from _line(str(tool["tool"]), text)


def verdict(process: Item) -> str:
    """One line: can it be traced?"""
    name = f"PID {process['pid']} ({process['comm']})"
    if process["traceable"]:
        quiet = all(vm.get("search") == "whole" and not vm["live"]
                    for vm in process["vms"])
        return f"{name}: can be traced" + (
            "; no VM is at work in it: native frames until one is"
            if quiet else "")
    if process.get("refusal"):
        return str(process["refusal"])
    return f"{name}: cannot be traced: {process['tools'][0]['reason']}"


def process_page(found: Item, verbose: bool) -> Iterator[str]:
    """Lines about one process and the system."""
    process = found["processes"][0]
    yield one_line(verdict(process))
    yield ""
    yield f"PROCESS {process['pid']} ({one_line(str(process['comm']))})"
    yield from _process_lines(process)
    for number, vm in enumerate(process["vms"], 1):
        yield ""
        yield from _vm_lines(vm, number, verbose)
        yield ""
        yield from _search_lines(vm, number)
    for lua in process["luas"]:
        yield ""
        yield from _lua_lines(lua)
    yield ""
    yield from _tool_lines(process)
    yield ""
    yield from _system_lines(found["system"])


def file_page(found: Item, path: str, verbose: bool) -> Iterator[str]:
    """Lines about one file."""
    if not found["vms"] and not found["luas"]:
        yield one_line(f"{path}: no LuaJIT and no other Lua in it")
    for number, vm in enumerate(found["vms"], 1):
        yield from _vm_lines(vm, number, verbose)
    for lua in found["luas"]:
        yield from _lua_lines(lua)


def _rows(process: Item) -> Iterator[Tuple[str, str]]:
    """Can it be traced, and what is it: one for each VM."""
    for vm in process["vms"]:
        yield ("yes" if vm["usable"] and process["traceable"] else "no",
               str(vm.get("build", "LuaJIT, not a build of the table")))
    for lua in process["luas"]:
        version = lua.get("version")
        yield "no", f"PUC Lua {version}, not supported yet" if version \
            else str(lua["kind"])


def table(found: Item) -> Iterator[str]:
    """One line for each VM of each process."""
    yield f"{'PID':>7} {'COMM':<15} {'TRACE':<5} LUA"
    for process in found["processes"]:
        for can, what in _rows(process):
            yield one_line(f"{process['pid']:>7} {process['comm']:<15} "
                           f"{can:<5} {what}").rstrip()
