# SPDX-License-Identifier: Apache-2.0
"""lua-doctor without a process: options, facts to a tree, a tree to text."""

import dataclasses
import json
import os
import subprocess
import unittest

import luabpf
from luabpf import abilities, findings, page
from luabpf.lib import Fact

TOOL = os.path.join(luabpf.ROOT, "tools", "lua-doctor.py")

KERNEL = {"release": "6.1.0", "user": 0, "capabilities": "CAP_BPF",
          "bpf_timer": "yes", "bpf_probe": "yes", "bpf_tracepoint": "yes",
          "timer": "yes", "uprobes": "yes", "btf": "yes"}
PYTHON = {"bcc": "yes", "headers": "/usr/src/linux"}
PROCESS = {"pid": 185, "comm": "nginx", "usable": True,
           "executable": "/usr/sbin/nginx", "threads": 3, "mappings": 18,
           "own_mounts": False, "own_pids": True, "memory": "readable"}
VM = {"process": 0, "file": "/lib/libluajit-5.1.so.2", "deleted": False,
      "usable": True, "vm_addr": 0x7f00aa001e40, "build_id": "0a65",
      "version": "LuaJIT 2.1.0-beta3", "gc64": True,
      "build": "LuaJIT 2.1 (2022), GC64", "vm_vaddr": 0x1e40,
      "vm_size": 16466, "cframe_size": 80, "g2disp": 4008, "g_cur_l": 368,
      "g_vmstate": 184, "static_dispatch": 1232, "dynsym_functions": 155,
      "symtab_functions": 0, "debug_info": "none", "eh_frame": "usable",
      "unwind_rows": 10424, "unwind_bad_records": 0, "gc_points": "found",
      "call_points": "found", "search": "whole", "searched_bytes": 5 << 20}
LIVE = {"vm": 0, "g_addr": 0x7f00bb0003f0, "main_l_addr": 0x7f00bb000380,
        "threads": 24, "objects": 1109, "threads_exact": True,
        "gc_total_bytes": 279142, "gc_threshold_bytes": 448819,
        "gc_estimate_bytes": 200000, "gc_phase": "pause", "jit": "on",
        "traces": 6, "mcode_areas": 1, "mcode_bytes": 65536,
        "checks_held": 15, "checks_unseen": 2}
OFFSETS = {"g_cur_l": (368, "table, code"), "g_jit_l": (2**32 - 1, "table"),
           "l_env": (72, "layout"), "tr_link": (2**32 - 1, "none")}


def facts_of(group, item, values, sources=None):
    return [Fact(group, item, key, value, (sources or {}).get(key, ""))
            for key, value in values.items()]


def offset_facts(item=0):
    return [Fact("offset", item, key, value, source)
            for key, (value, source) in OFFSETS.items()]


def nginx(vm=None, live=LIVE, **process):
    """Facts about one process with one VM."""
    facts = facts_of("vm", 0, {**VM, **(vm or {})}) + offset_facts()
    if live:
        facts += facts_of("live", 0, live)
    return facts + facts_of("process", 0, {**PROCESS, **process}) + \
        facts_of("kernel", 0, KERNEL)


def page_of(facts, python=None, verbose=False):
    found = findings.tree(facts, python or PYTHON)
    return "\n".join(page.process_page(found, verbose)) + "\n"


class TreeTest(unittest.TestCase):
    def test_one_process(self):
        found = findings.tree(nginx(), PYTHON)
        self.assertTrue(found["traceable"])
        process, = found["processes"]
        vm, = process["vms"]
        self.assertEqual(vm["offsets"]["g_cur_l"],
                         {"value": 368, "source": "table, code"})
        live, = vm["live"]
        self.assertEqual(live["threads"], 24)
        self.assertNotIn("process", vm)
        self.assertNotIn("vm", live)
        self.assertEqual(found["system"], {**KERNEL, **PYTHON})
        self.assertEqual(json.loads(json.dumps(found)), found)

    def test_live_vms_and_offsets_go_to_their_file(self):
        facts = nginx() + facts_of("vm", 1, {**VM, "file": "/lib/other"}) + \
            offset_facts(1)[:1] + facts_of("live", 1, {**LIVE, "vm": 1}) + \
            facts_of("live", 2, {**LIVE, "vm": 1, "threads": 7})
        first, second = findings.tree(facts, PYTHON)["processes"][0]["vms"]
        self.assertEqual([live["threads"] for live in first["live"]], [24])
        self.assertEqual([live["threads"] for live in second["live"]], [24, 7])
        self.assertEqual((len(first["offsets"]), len(second["offsets"])),
                         (4, 1))

    def test_several_processes(self):
        facts = nginx() + facts_of("lua", 0, {
            "process": 1, "file": "/bin/lua", "kind": "PUC Lua",
            "version": "5.4.4", "found_by": "functions"}) + \
            facts_of("process", 1, {**PROCESS, "pid": 7, "comm": "lua",
                                    "usable": False, "refusal": "PID 7: no"}) \
            + facts_of("unread", 0, {"processes": 3})
        found = findings.tree(facts, PYTHON)
        self.assertEqual(found["unread"], 3)
        self.assertEqual([(len(p["vms"]), len(p["luas"]), p["traceable"])
                          for p in found["processes"]],
                         [(1, 0, True), (0, 1, False)])
        # in short: no more is known than what the first tool needs
        self.assertEqual([tool["tool"] for tool in
                          found["processes"][0]["tools"]], ["lua-stacks"])
        self.assertEqual(list(page.table(found)), [
            "    PID COMM            TRACE LUA",
            "    185 nginx           yes   LuaJIT 2.1 (2022), GC64",
            "      7 lua             no    PUC Lua 5.4.4, not supported yet"])

    def test_no_process_at_all(self):
        found = findings.tree(facts_of("unread", 0, {"processes": 0}), PYTHON)
        self.assertEqual((found["processes"], found["traceable"]), ([], False))

    def test_a_file(self):
        facts = facts_of("vm", 0, {k: v for k, v in VM.items()
                                   if k not in ("process", "vm_addr")})
        found = findings.tree(facts, {})
        self.assertTrue(found["traceable"])
        text = "\n".join(page.file_page(found, "/lib/x", False))
        self.assertIn("VM code           16466 bytes at 0x1e40 of the file",
                      text)
        self.assertNotIn("AT WORK", text)


class AbilityTest(unittest.TestCase):
    stacks = abilities.TOOLS[0]

    def judge(self, vms, **system):
        return abilities.ability(self.stacks, vms,
                                 {**KERNEL, **PYTHON, **system})

    def test_each_need_of_the_system_alone(self):
        for key, value, reason in (
                ("bpf_timer", "Operation not permitted",
                 "the kernel refuses a BPF program on a timer: Operation not "
                 "permitted"),
                ("bpf_tracepoint", "Invalid argument",
                 "the kernel refuses a BPF program on a tracepoint: Invalid "
                 "argument"),
                ("timer", "Permission denied",
                 "the kernel refuses a timer on a CPU: Permission denied"),
                ("bcc", "No module named 'bcc'", "the BCC module for Python "
                 "cannot be loaded: No module named 'bcc'"),
                ("headers_missing", "no kernel headers", "no kernel headers")):
            with self.subTest(key):
                found = self.judge([VM], **{key: value})
                self.assertEqual((found.usable, found.reason),
                                 (False, reason))

    def test_what_was_not_tried_is_not_taken_for_granted(self):
        system = {**KERNEL, **PYTHON}
        del system["timer"]
        found = abilities.ability(self.stacks, [VM], system)
        self.assertEqual((found.usable, found.reason), (
            False, "the kernel refuses a timer on a CPU: not known"))

    def test_vms(self):
        bad = {**VM, "usable": False, "refusal": "x holds what is unknown"}
        for vms, usable, reason in (
                ([], False, "no LuaJIT VM found"), ([VM], True, ""),
                ([VM, VM], True, ""),
                ([bad], False, "x holds what is unknown"),
                ([VM, bad], True, "VM 2: x holds what is unknown"),
                ([bad, bad], False, "VM 1: x holds what is unknown; "
                 "VM 2: x holds what is unknown")):
            with self.subTest(len(vms)):
                found = self.judge(vms)
                self.assertEqual((found.usable, found.reason),
                                 (usable, reason))

    def test_points_of_probes(self):
        for name, key, reason in (
                ("lua-fn-count", "call_points", "points of calls: no header"),
                ("lua-gc-latency", "gc_points",
                 "points of the collector: no header"),
        ):
            tool, = [t for t in abilities.TOOLS if t.name == name]
            system = {**KERNEL, **PYTHON}
            self.assertTrue(abilities.ability(tool, [VM], system).usable)
            found = abilities.ability(tool, [{**VM, key: "no header"}], system)
            self.assertEqual((found.usable, found.reason), (False, reason))
            found = abilities.ability(tool, [VM], {**system,
                                                   "uprobes": "No such file"})
            self.assertEqual((found.usable, found.reason), (
                False, "the kernel has no uprobes: No such file"))

    def test_tools_are_there_and_listed_once(self):
        names = [tool.name for tool in abilities.TOOLS]
        self.assertEqual(names[0], "lua-stacks")
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertTrue(os.path.exists(os.path.join(
                luabpf.ROOT, "tools", name + ".py")), name)


class PageTest(unittest.TestCase):
    def test_whole_page(self):
        text = page_of(nginx())
        self.assertTrue(text.startswith("PID 185 (nginx): can be traced\n\n"))
        for line in (
                "PROCESS 185 (nginx)",
                "  executable        /usr/sbin/nginx",
                "  container         namespace of its own for PIDs",
                "VM 1: /lib/libluajit-5.1.so.2",
                "  VM code           16466 bytes at 0x7f00aa001e40",
                "  offsets           3 known: 1 from table and code, 1 from "
                "table, 1 from",
                "                    layout; 1 not known",
                "  symbols           155 functions exported, stripped; debug "
                "info: none",
                "AT WORK: VM 1, global_State 0x7f00bb0003f0",
                "  proof             offsets hold in this VM: 15 checks "
                "held, 2 had nothing to",
                "  Lua threads       24 (coroutines and the main one), among "
                "1109 objects",
                "  GC                272.6 KiB in use, 438.3 KiB threshold, "
                "phase pause",
                "  JIT compiler      on, 6 traces, 64.0 KiB of machine code "
                "in 1 area",
                "  lua-stacks        yes",
                "  BPF on a timer    yes"):
            self.assertIn("\n" + line + "\n", text)
        self.assertLess(max(map(len, text.splitlines())), 80)

    def test_verbose_lists_offsets(self):
        text = page_of(nginx(), verbose=True)
        self.assertIn("\n    g_cur_l         368 (table, code)\n", text)
        self.assertIn("\n    g_jit_l         none (table)\n", text)
        self.assertIn("\n    tr_link         not known\n", text)

    def test_stopped_collector(self):
        for gc64, threshold in ((True, 1 << 47), (False, 0x7fffff00)):
            text = page_of(nginx(vm={"gc64": gc64}, live={
                **LIVE, "gc_threshold_bytes": threshold}))
            self.assertIn("GC                272.6 KiB in use, stopped, "
                          "phase pause\n", text)

    def test_list_of_objects_not_followed(self):
        text = page_of(nginx(live={**LIVE, "threads_exact": False}))
        self.assertIn("Lua threads       at least 24 (", text)

    def test_proof_that_failed(self):
        text = page_of(nginx(live={**LIVE, "contradiction": "registry: no"}))
        self.assertIn("\n  proof             failed: registry: no\n", text)
        self.assertNotIn("offsets hold", text)

    def test_little_is_known_of_a_vm(self):
        text = page_of(nginx(live={
            "vm": 0, "g_addr": 16, "jit": "not known",
            "threads_exact": False}))
        self.assertIn("\n  GC                not known\n", text)
        self.assertIn("\n  JIT compiler      not known\n", text)
        self.assertNotIn("Lua threads", text)

    def test_no_vm_at_work(self):
        text = page_of(nginx(live=None))
        self.assertIn("PID 185 (nginx): can be traced; no VM is at work in "
                      "it: native frames until one is\n", text)
        self.assertIn("\nAT WORK: VM 1: none in 5.0 MiB of memory\n", text)

    def test_search_that_was_not_whole(self):
        text = page_of(nginx(vm={"search": "cut short"}, live=None))
        self.assertTrue(text.startswith("PID 185 (nginx): can be traced\n"))
        self.assertIn("search            cut short by a bound", text)
        text = page_of(nginx(vm={"search": "Permission denied"}, live=None))
        self.assertIn("AT WORK: VM 1: not searched: Permission denied\n", text)

    def test_vm_whose_entry_code_is_not_understood(self):
        few = {key: VM[key] for key in (
            "process", "file", "deleted", "vm_addr", "build_id", "vm_vaddr",
            "vm_size", "cframe_size", "dynsym_functions", "symtab_functions",
            "debug_info", "eh_frame")}
        facts = facts_of("vm", 0, {**few, "usable": False, "refusal": "odd"}) \
            + facts_of("process", 0, {**PROCESS, "usable": False,
                                      "refusal": "PID 185: odd"}) \
            + facts_of("kernel", 0, KERNEL)
        text = page_of(facts)
        self.assertTrue(text.startswith("PID 185: odd\n"))
        for line in ("  usable            no: odd",
                     "  build             not one of the table of known "
                     "builds",
                     "  references        not known",
                     "  offsets           0 known",
                     "  probe points      not looked for",
                     "  lua-stacks        no: odd"):
            self.assertIn("\n" + line + "\n", text)
        self.assertFalse(findings.tree(facts, PYTHON)["traceable"])

    def test_no_privileges(self):
        python = {**PYTHON, "bcc": "not here"}
        self.assertTrue(page_of(nginx(), python).startswith(
            "PID 185 (nginx): cannot be traced: the BCC module for Python "
            "cannot be loaded: not here\n"))

    def test_deleted_file_and_trouble(self):
        facts = nginx(vm={"deleted": True}) + facts_of("trouble", 0, {
            "process": 0, "file": "/lib/x.so", "reason": "no .eh_frame"})
        text = page_of(facts)
        self.assertIn("\n  file              deleted or replaced since", text)
        self.assertIn("\n  cannot unwind     /lib/x.so: no .eh_frame\n", text)

    def test_hostile_names(self):
        facts = nginx(vm={"file": "/opt/\x1b[31m\nVM 9: x", "build_id": "\r"},
                      comm="\x1b[2J\n")
        text = page_of(facts)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\r", text)
        self.assertNotIn("\nVM 9", text)
        self.assertIn("VM 1: /opt/\\x1b[31m\\nVM 9: x\n", text)

    def test_sizes(self):
        for size, text in ((0, "0 bytes"), (1023, "1023 bytes"),
                           (1024, "1.0 KiB"), (279142, "272.6 KiB"),
                           (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB"),
                           (5 << 40, "5120.0 GiB")):
            self.assertEqual(page.size_text(size), text)


class CommandTest(unittest.TestCase):
    def run_tool(self, *args):
        return subprocess.run(["/usr/bin/python3", TOOL, *args], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_bad_usage(self):
        for args, message in (
                (("-p", "1", "/bin/sh"), "-p and FILE exclude each other"),
                (("-p", "x"), "'x' is not a positive integer"),
                (("-p", "0"), "0 is not a positive integer"),
                (("-p", ""), "'' is not a positive integer"),
                (("a", "b"), "unrecognized arguments: b")):
            with self.subTest(args):
                done = self.run_tool(*args)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(message, done.stderr)

    def test_file_that_is_not_there(self):
        for args in (("",), ("/nonexistent",), ("/dev/null",)):
            with self.subTest(args):
                done = self.run_tool(*args)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, "^lua-doctor: .*: ")
                self.assertNotIn("Traceback", done.stderr)

    def test_fact_is_what_the_core_gives(self):
        names = [field.name for field in dataclasses.fields(Fact)]
        self.assertEqual(names, ["group", "item", "key", "value", "source"])


if __name__ == "__main__":
    unittest.main()
