# SPDX-License-Identifier: Apache-2.0
"""What each tool can do here, and why not: one table.

A tool has needs of the VM it looks into and needs of the system. A need is a
function of what lua-doctor has found: None when it is met, else what is
missing, in words.
"""

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

Found = Dict[str, Any]  # one VM, or the system: see luabpf.findings
Need = Callable[[Found], Optional[str]]


@dataclass(frozen=True)
class Tool:
    """One command and its needs."""

    name: str
    of_vm: Tuple[Need, ...]
    of_system: Tuple[Need, ...]


@dataclass(frozen=True)
class Ability:
    """What one tool can do with one process or file."""

    tool: str
    usable: bool
    reason: str  # "" when usable with each VM


def walkable(vm: Found) -> Optional[str]:
    """The stacks of this VM can be walked."""
    return None if vm["usable"] else str(vm.get("refusal", "not known why"))


def call_points(vm: Found) -> Optional[str]:
    """The places that each call of a Lua function passes are known."""
    points = vm.get("call_points", "not looked for")
    return None if points == "found" else f"points of calls: {points}"


def gc_points(vm: Found) -> Optional[str]:
    """The functions that collect garbage are known."""
    points = vm.get("gc_points", "not looked for")
    return None if points == "found" else f"points of the collector: {points}"


def _tried(key: str, what: str) -> Need:
    def need(system: Found) -> Optional[str]:
        result = system.get(key)
        if result == "yes":
            return None
        if result is None:
            return f"{what}: not known"
        return f"{what}: {result}"
    return need


bpf_timer = _tried("bpf_timer", "the kernel refuses a BPF program on a timer")
bpf_probe = _tried("bpf_probe", "the kernel refuses a BPF program on a probe")
bpf_tracepoint = _tried("bpf_tracepoint",
                        "the kernel refuses a BPF program on a tracepoint")
timer = _tried("timer", "the kernel refuses a timer on a CPU")
uprobes = _tried("uprobes", "the kernel has no uprobes")
bcc = _tried("bcc", "the BCC module for Python cannot be loaded")


def kernel_headers(system: Found) -> Optional[str]:
    """BCC compiles against kernel headers."""
    if system.get("headers_missing"):
        return str(system["headers_missing"])
    return None


# One line for each tool; a new tool adds its own.
TOOLS = (
    Tool("lua-stacks", (walkable,),
         (bcc, kernel_headers, bpf_timer, bpf_tracepoint, timer)),
    Tool("lua-gc-latency", (gc_points,),
         (bcc, kernel_headers, bpf_probe, uprobes)),
    Tool("lua-fn-count", (walkable, call_points),
         (bcc, kernel_headers, bpf_probe, uprobes)),
)


def missing(needs: Tuple[Need, ...], found: Found) -> List[str]:
    """What is missing of NEEDS."""
    return [reason for reason in (need(found) for need in needs) if reason]


def ability(tool: Tool, vms: List[Found], system: Found) -> Ability:
    """What TOOL can do with a process that has these VMs."""
    reasons = missing(tool.of_system, system)
    if reasons:
        return Ability(tool.name, False, "; ".join(reasons))
    if not vms:
        return Ability(tool.name, False, "no LuaJIT VM found")
    of_vms = [missing(tool.of_vm, vm) for vm in vms]
    if not any(of_vms):
        return Ability(tool.name, True, "")
    if len(vms) == 1:
        return Ability(tool.name, False, "; ".join(of_vms[0]))
    text = "; ".join(f"VM {number}: {', '.join(reasons)}"
                     for number, reasons in enumerate(of_vms, 1) if reasons)
    return Ability(tool.name, not all(of_vms), text)
