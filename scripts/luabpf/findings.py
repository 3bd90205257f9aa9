# SPDX-License-Identifier: Apache-2.0
"""What lua-doctor has found, as one tree: processes, their VMs, the system.

The C core gives facts in a flat list; the tree is what `-j` prints and what
the page is made from. Same facts, same tree.
"""

import os
from typing import Any, Dict, Iterable

from luabpf import abilities, headers
from luabpf.cli import Fail
from luabpf.lib import Fact

Item = Dict[str, Any]
Groups = Dict[str, Dict[int, Item]]


def system_of_python() -> Item:
    """What only Python can tell: can BCC be loaded, are there headers?"""
    found: Item = {}
    try:
        import bcc
        found["bcc"] = "yes"
        found["bcc_version"] = str(getattr(bcc, "__version__", ""))
    except ImportError as error:
        found["bcc"] = str(error)
    try:
        tree = headers.find_tree()
        found["headers"] = tree or os.environ.get(
            "BCC_KERNEL_SOURCE", "of the running kernel")
    except Fail as fail:
        found["headers_missing"] = fail.message
    return found


def _groups(facts: Iterable[Fact]) -> Groups:
    """Facts by group and item."""
    groups: Groups = {}
    for fact in facts:
        item = groups.setdefault(fact.group, {}).setdefault(fact.item, {})
        if fact.group == "offset":
            item[fact.key] = {"value": fact.value, "source": fact.source}
        else:
            item[fact.key] = fact.value
    return groups


def _add_process(groups: Groups, number: int, system: Item,
                 is_brief: bool) -> Item:
    """One process with all that is in it, and what each tool can do.

    The core tells in short of all processes: enough for the first tool only.
    """
    process = groups["process"][number]
    for key, group in (("vms", "vm"), ("luas", "lua"),
                       ("troubles", "trouble")):
        process[key] = [item for item in groups.get(group, {}).values()
                        if item.get("process") == number]
    found = [abilities.ability(tool, process["vms"], system)
             for tool in abilities.TOOLS[:1 if is_brief else None]]
    process["tools"] = [{"tool": ability.tool, "usable": ability.usable,
                         "reason": ability.reason} for ability in found]
    process["traceable"] = found[0].usable
    return process


def tree(facts: Iterable[Fact], system: Item) -> Item:
    """The whole tree; SYSTEM is what Python has found."""
    groups = _groups(facts)
    vms = groups.get("vm", {})
    for number, vm in vms.items():
        vm["offsets"] = groups.get("offset", {}).get(number, {})
        vm["live"] = [live for live in groups.get("live", {}).values()
                      if live["vm"] == number]
    result: Item = {
        "system": {**groups.get("kernel", {}).get(0, {}), **system}}
    if "process" in groups or "unread" in groups:
        result["processes"] = [
            _add_process(groups, number, result["system"],
                         "unread" in groups)
            for number in sorted(groups.get("process", {}))]
        result["traceable"] = any(process["traceable"]
                                  for process in result["processes"])
        if "unread" in groups:
            result["unread"] = groups["unread"][0]["processes"]
    else:
        result["vms"] = list(vms.values())
        result["luas"] = list(groups.get("lua", {}).values())
        result["traceable"] = any(vm["usable"] for vm in result["vms"])
    for items in groups.values():
        for item in items.values():
            item.pop("process", None)
    for live in groups.get("live", {}).values():
        live.pop("vm")
    return result
