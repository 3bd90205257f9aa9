# SPDX-License-Identifier: Apache-2.0
"""What lua-doctor says of programs that people run, each really started.

The answers are known: which package it is, how many VMs and coroutines the
program has made, what its own collector and JIT compiler count.
"""

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import hosts

sys.path.insert(0, os.path.join(hosts.ROOT, "scripts"))
TOOL = os.path.join(hosts.ROOT, "tools", "lua-doctor.py")
DEB = os.path.join(hosts.OUTPUT, "deb")
LIB_LUAJIT2 = os.path.join(hosts.LIB_DIR, "libluajit-5.1.so.2")
LIB_UPSTREAM = os.path.join(DEB, "upstream", LIB_LUAJIT2.lstrip("/"))
LIB_TEXLUA = os.path.join(DEB, "texlua", hosts.LIB_DIR.lstrip("/"),
                          "libtexluajit.so.2")
OPENRESTY = "OpenResty luajit2 2.1 (2023-01 to 2024-03), GC64"
UPSTREAM = "LuaJIT 2.1 (2022), GC64"
TEXLUA = "LuaJIT 2.1.0-beta3, 32-bit references"
NOBODY = 65534

# 23 coroutines, some traces, a collector that stands still; what the VM
# itself says of that.
KNOWN = """
kept = {}
for i = 1, 23 do kept[i] = coroutine.create(function() end) end
for i = 1, 300 do local s = 0; for j = 1, 300 do s = s + j % 7 end end
collectgarbage() collectgarbage("stop")
local info = require("jit.util").traceinfo
local function traces()
  local n = 0
  for i = 1, 4000 do if info(i) then n = n + 1 end end
  return n
end
jit.off(traces)  -- it would count itself
io.write(string.format("ready %d %d %s\\n", traces(),
  collectgarbage("count") * 1024, jit.status() and "on" or "off"))
io.flush()
io.read()
"""
COROUTINES = """
kept = {}
for i = 1, 23 do kept[i] = coroutine.create(function() end) end
"""

NGINX = """
daemon off;
worker_processes 1;
user root;
pid {dir}/nginx.pid;
error_log {dir}/error.log notice;
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  init_worker_by_lua_block {{
    ngx.timer.at(0, function()
      local file = io.open("{dir}/worker", "w")
      file:write(ngx.worker.pid(), "\\n"); file:close()
    end)
  }}
  server {{
    listen unix:{dir}/http;
    location / {{ content_by_lua_block {{ ngx.say(1) }} }}
  }}
}}
"""


@functools.lru_cache(maxsize=None)
def loader():
    return hosts.build_host("loader")


class Doctor(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("bpf: not root")
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.temp = temp.name
        os.chmod(self.temp, 0o755)

    # ---- programs ----

    def need(self, name, *paths):
        for path in paths:
            if not (os.path.exists(path) if "/" in path
                    else shutil.which(path)):
                self.skipTest(f"{name}: no {path}")

    def start(self, *command, ready=None, **options):
        """Start a program; wait until its output has READY, a line of it."""
        log = os.path.join(self.temp, f"log{len(os.listdir(self.temp))}")
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.PIPE,
                stdout=file, stderr=subprocess.STDOUT, **options)

        def end():
            process.stdin.close()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.addCleanup(end)
        self.process = process
        self.output = ""

        def is_ready():
            with open(log, errors="replace") as file:
                self.output = file.read()
            self.assertIsNone(process.poll(), self.output)
            return not ready or ready in self.output
        hosts.wait_for(is_ready, f"{command[0]}: {ready}")
        return process.pid

    def write(self, name, text):
        path = os.path.join(self.temp, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def start_luajit(self, *args, text=KNOWN, binary="luajit"):
        return self.start(binary, *args, self.write("program.lua", text),
                          ready="ready")

    # ---- the tool ----

    def run_tool(self, *args, prefix=(), env=None):
        return subprocess.run(
            [*prefix, "/usr/bin/python3", TOOL, *map(str, args)], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=120,
            stderr=subprocess.PIPE, env=dict(os.environ, **(env or {})))

    def examine(self, pid, status=0):
        """The one process that -j tells of."""
        done = self.run_tool("-p", pid, "-j")
        self.assertEqual(done.stderr, "")
        found = json.loads(done.stdout)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertEqual(found["traceable"], status == 0)
        process, = found["processes"]
        self.assertEqual(process["pid"], pid)
        self.assertEqual(process["luas"] if process["vms"] else [], [])
        return process

    def examine_file(self, path):
        done = self.run_tool("-j", path)
        self.assertEqual(done.stderr, "")
        vm, = json.loads(done.stdout)["vms"]
        self.assertEqual(done.returncode, 0 if vm["usable"] else 1)
        return vm

    def check_vm(self, vm, build, lives):
        """A GC64 build that is supported, with this many VMs."""
        self.assertEqual(vm["build"], build)
        self.assertTrue(vm["gc64"] and vm["usable"], vm)
        self.assertEqual(vm["search"], "whole")
        self.assertEqual(len(vm["live"]), lives)
        for live in vm["live"]:
            self.assertTrue(live["threads_exact"], live)
            self.assertGreaterEqual(live["threads"], 1)
            self.assertGreater(live["gc_total_bytes"], 10000)
            self.assertNotIn("contradiction", live)
            self.assertGreaterEqual(live["checks_held"], 8, live)

    def build_id(self, path):
        text = subprocess.run(["readelf", "-n", path], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
        return text.partition("Build ID: ")[2].split()[0]


class KnownAnswers(Doctor):
    def check_known(self, vm):
        """What the program of KNOWN says of itself."""
        _, traces, size, jit = self.output.split()
        live, = vm["live"]
        self.assertEqual(live["threads"], 1 + 23)
        self.assertEqual((live["jit"], live["traces"]), (jit, int(traces)))
        # it has written its line since then, with the collector stopped
        self.assertGreaterEqual(live["gc_total_bytes"], int(size))
        self.assertLess(live["gc_total_bytes"], int(size) + 65536)
        self.assertEqual(live["gc_phase"], "pause")
        self.assertEqual(live["mcode_areas"] > 0, jit == "on")
        self.assertEqual(live["traces"] > 0, jit == "on")

    def test_luajit2(self):
        self.need("luajit", "luajit")
        for options in ((), ("-joff",)):
            with self.subTest(options):
                vm, = self.examine(self.start_luajit(*options))["vms"]
                self.check_vm(vm, OPENRESTY, 1)
                self.check_known(vm)

    def test_upstream(self):
        path = os.path.join(DEB, "upstream/usr/bin/luajit")
        self.need("upstream", path)
        for options in ((), ("-joff",)):
            with self.subTest(options):
                pid = self.start_luajit(*options, binary=path)
                vm, = self.examine(pid)["vms"]
                self.check_vm(vm, UPSTREAM, 1)
                self.check_known(vm)
                self.assertEqual(vm["build_id"], self.build_id(path))

    def test_tarantool(self):
        path = os.path.join(DEB, "tarantool/usr/bin/tarantool")
        self.need("tarantool", path)
        vm, = self.examine(self.start_luajit(binary=path))["vms"]
        self.assertEqual(vm["build"], "Tarantool 2.6.0, 32-bit references")
        self.assertFalse(vm["gc64"])
        self.assertGreater(vm["symtab_functions"], 1000)
        self.assertEqual(vm["debug_info"], "in the file")
        # it has coroutines of its own, and its collector is at work
        live, = vm["live"]
        self.assertGreaterEqual(live["threads"], 1 + 23)
        _, traces, size, jit = self.output.split()
        self.assertEqual((live["jit"], live["traces"]), (jit, int(traces)))
        self.assertGreaterEqual(live["gc_total_bytes"], int(size))

    def test_threads_with_a_vm_each(self):
        self.need("luajit", "luajit")
        script = self.write("program.lua", COROUTINES + """
            print("ready") io.stdout:flush() io.read()""")
        pid = self.start(hosts.build_host("threads"), script,
                         ready="ready\nready\nready\n")
        process = self.examine(pid)
        vm, = process["vms"]
        self.check_vm(vm, OPENRESTY, 3)
        self.assertEqual([live["threads"] for live in vm["live"]], [24] * 3)
        self.assertEqual(process["threads"], 1 + 3)


class Programs(Doctor):
    def test_neovim(self):
        self.need("neovim", "nvim")
        script = self.write("init.lua", 'io.stderr:write("ready\\n")')
        pid = self.start("nvim", "--headless", "-n", "-u", script,
                         ready="ready")
        vm, = self.examine(pid)["vms"]
        self.check_vm(vm, OPENRESTY, 1)

    def test_dnsdist(self):
        self.need("dnsdist", "dnsdist")
        config = self.write("conf", "setLocal('127.0.0.1:%d')\n"
                            "setSecurityPollSuffix('')\n"
                            "print('ready')\n" % free_port())
        pid = self.start("dnsdist", "-C", config, "--supervised",
                         "--disable-syslog", ready="ready")
        vm, = self.examine(pid)["vms"]
        self.check_vm(vm, OPENRESTY, 1)

    def test_knot_resolver(self):
        self.need("kresd", "kresd")
        config = self.write("conf", 'modules.unload("ta_update")\n'
                            'io.stderr:write("ready\\n")\n')
        folder = os.path.join(self.temp, "run")
        os.mkdir(folder)
        pid = self.start("kresd", "-n", "-c", config, folder, ready="ready")
        vm, = self.examine(pid)["vms"]
        self.check_vm(vm, OPENRESTY, 1)

    def test_pdns_recursor(self):
        self.need("pdns", "pdns_recursor")
        script = self.write("dns.lua", 'pdnslog("ready")\n')
        pid = self.start(
            "pdns_recursor", "--config-dir=" + self.temp,
            "--socket-dir=" + self.temp, "--local-address=127.0.0.1",
            "--local-port=%d" % free_port(), "--daemon=no", "--threads=1",
            "--security-poll-suffix=", "--lua-dns-script=" + script,
            ready="ready")
        vm, = self.examine(pid)["vms"]
        self.check_vm(vm, OPENRESTY, len(vm["live"]))
        self.assertGreaterEqual(len(vm["live"]), 1)

    def test_wrk(self):
        self.need("wrk", "wrk")
        script = self.write("wrk.lua", COROUTINES)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            silent.settimeout(60)
            pid = self.start(
                "wrk", "-t2", "-c2", "-d60", "-s", script,
                "http://127.0.0.1:%d/" % silent.getsockname()[1])
            for _ in range(2):
                self.addCleanup(silent.accept()[0].close)
            vm, = self.examine(pid)["vms"]
        # one to look at the script, one for each thread
        self.check_vm(vm, OPENRESTY, 3)
        self.assertEqual([live["threads"] for live in vm["live"]], [24] * 3)

    def start_nginx(self, **env):
        """PIDs of the master and of its worker, which has run a timer."""
        self.need("nginx", "nginx", "/usr/lib/nginx/modules/"
                  "ngx_http_lua_module.so")
        config = self.write("nginx.conf", NGINX.format(dir=self.temp))
        master = self.start("nginx", "-c", config, "-e",
                            os.path.join(self.temp, "error.log"),
                            env=dict(os.environ, **env))
        path = os.path.join(self.temp, "worker")

        def said():
            try:
                with open(path) as file:
                    return file.read()
            except FileNotFoundError:
                return ""
        hosts.wait_for(lambda: said().endswith("\n"), "a worker")
        return master, int(said())

    def test_nginx_master_and_worker(self):
        for pid in self.start_nginx():
            vm, = self.examine(pid)["vms"]
            self.check_vm(vm, OPENRESTY, 1)
            self.assertEqual(os.path.realpath(LIB_LUAJIT2), vm["file"])

    def test_nginx_whose_library_is_upgraded(self):
        self.need("upstream", LIB_UPSTREAM)
        path = os.path.join(self.temp, os.path.basename(LIB_LUAJIT2))
        shutil.copy(LIB_LUAJIT2, path)
        _, worker = self.start_nginx(LD_LIBRARY_PATH=self.temp)
        vm, = self.examine(worker)["vms"]
        self.assertEqual((vm["file"], vm["deleted"]), (path, False))
        shutil.copy(LIB_UPSTREAM, path + ".new")
        os.rename(path + ".new", path)
        vm, = self.examine(worker)["vms"]
        self.check_vm(vm, OPENRESTY, 1)
        self.assertEqual((vm["file"], vm["deleted"]), (path, True))
        self.assertEqual(vm["build_id"], self.build_id(LIB_LUAJIT2))

    def test_static_program_with_luajit(self):
        self.need("luajit", os.path.join(hosts.LIB_DIR, "libluajit-5.1.a"))
        script = self.write("program.lua", COROUTINES + """
            print("ready") io.stdout:flush() io.read()""")
        pid = self.start(hosts.build_host("host_static"), script,
                         ready="ready")
        vm, = self.examine(pid)["vms"]
        self.check_vm(vm, OPENRESTY, 1)
        self.assertEqual(vm["live"][0]["threads"], 24)


class OtherLuas(Doctor):
    def check_puc(self, pid, version):
        process = self.examine(pid, status=1)
        self.assertEqual(process["vms"], [])
        lua, = process["luas"]
        self.assertEqual((lua["kind"], lua["version"], lua["found_by"]),
                         ("PUC Lua", version, "functions, text"))
        self.assertIn(f"PUC Lua {version} found, not supported yet",
                      process["refusal"])
        text = self.run_tool("-p", pid).stdout
        self.assertIn(f"\nPUC Lua {version}: ", text)
        self.assertNotIn("\nVM 1", text)

    def test_lua(self):
        for name, version in (("lua5.1", "5.1.5"), ("lua5.3", "5.3.6"),
                              ("lua5.4", "5.4.4")):
            with self.subTest(name):
                self.need("puc", name)
                self.check_puc(self.start(
                    name, "-e", "print('ready') io.stdout:flush() io.read()",
                    ready="ready"), version)

    def test_redis(self):
        self.need("redis", "redis-server")
        self.check_puc(self.start(
            "redis-server", "--port", 0, "--save", "", "--dir", self.temp,
            "--unixsocket", os.path.join(self.temp, "socket"),
            ready="ready to accept"), "5.1.5")

    def test_luajit_without_unwind_tables(self):
        self.need("luajit", LIB_LUAJIT2)
        path = os.path.join(self.temp, "library.so")
        subprocess.run(["objcopy", "-R", ".eh_frame", "-R", ".eh_frame_hdr",
                        LIB_LUAJIT2, path], check=True)
        pid = self.start(loader(), path, ready="ready")
        process = self.examine(pid, status=1)
        self.assertEqual(process["vms"], [])
        self.assertEqual(process["luas"], [
            {"file": path, "kind": "LuaJIT, VM not recognised"}])
        self.assertEqual(process["refusal"], f"PID {pid} (loader): library.so "
                         "defines the functions of LuaJIT, but its VM is not "
                         "recognised")
        self.assertIn(path, [trouble["file"]
                             for trouble in process["troubles"]])

    def check_nothing(self, pid):
        done = self.run_tool("-p", pid)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertRegex(done.stdout, rf"^PID {pid}: no LuaJIT in it: none of "
                         r"its \d+ executable mappings holds the VM\n")
        self.assertIn("lua-stacks        no: no LuaJIT VM found", done.stdout)

    def test_no_lua_at_all(self):
        self.check_nothing(self.start("sleep", "60"))

    def test_static_program_without_lua(self):
        self.need("musl", "musl-gcc")
        self.check_nothing(self.start(hosts.build_host("musl_native"),
                                      ready="ready"))


class SeveralLibraries(Doctor):
    def start_loader(self, *libraries, code=COROUTINES):
        return self.start(loader(), "-e", code, *libraries, ready="ready")

    def test_three_builds_in_one_process(self):
        self.need("upstream", LIB_UPSTREAM)
        self.need("texlua", LIB_TEXLUA)
        self.need("luajit", LIB_LUAJIT2)
        pid = self.start_loader(LIB_UPSTREAM, LIB_TEXLUA, LIB_LUAJIT2)
        process = self.examine(pid)
        self.assertEqual(
            sorted((vm["build"], vm["build_id"]) for vm in process["vms"]),
            sorted(((UPSTREAM, self.build_id(LIB_UPSTREAM)),
                    (TEXLUA, self.build_id(LIB_TEXLUA)),
                    (OPENRESTY, self.build_id(LIB_LUAJIT2)))))
        # each has its own VM, and none has another's
        self.assertEqual([live["threads"] for vm in process["vms"]
                          for live in vm["live"]], [24, 24, 24])
        self.assertEqual([len(vm["live"]) for vm in process["vms"]],
                         [1, 1, 1])

    def test_same_build_twice(self):
        self.need("luajit", LIB_LUAJIT2)
        copy = os.path.join(self.temp, "other.so")
        shutil.copy(LIB_LUAJIT2, copy)
        process = self.examine(self.start_loader(LIB_LUAJIT2, copy))
        self.assertEqual(len(process["vms"]), 2)
        for vm in process["vms"]:
            self.check_vm(vm, OPENRESTY, 1)
        self.assertEqual({vm["file"] for vm in process["vms"]},
                         {copy, os.path.realpath(LIB_LUAJIT2)})

    def test_more_builds_than_are_looked_at(self):
        self.need("luajit", LIB_LUAJIT2)
        with open(LIB_LUAJIT2, "rb") as file:
            data = file.read()
        build_id = bytes.fromhex(self.build_id(LIB_LUAJIT2))
        copies = []
        for number in range(6):  # six builds, as far as their IDs tell
            copies.append(os.path.join(self.temp, f"{number}.so"))
            with open(copies[-1], "wb") as file:
                file.write(data.replace(build_id, bytes([number]) +
                                        build_id[1:]))
        process = self.examine(self.start_loader(*copies))
        self.assertEqual(len(process["vms"]), 6)
        refusals = [vm["refusal"] for vm in process["vms"]
                    if not vm["usable"]]
        self.assertEqual(len(refusals), 2)
        for refusal in refusals:
            self.assertRegex(refusal, r"^\d\.so holds a LuaJIT VM, one build "
                             "more than the 4 that are looked at")
        stacks = process["tools"][0]
        self.assertRegex(stacks["reason"], r"^VM \d: .*; VM \d: ")

    def test_texlua(self):
        self.need("texlua", LIB_TEXLUA)
        vm, = self.examine(self.start_loader(LIB_TEXLUA))["vms"]
        self.assertEqual((vm["build"], vm["gc64"]), (TEXLUA, False))
        self.assertTrue(vm["usable"])
        self.assertEqual([live["threads"] for live in vm["live"]], [24])

    def test_library_without_a_vm_yet(self):
        self.need("luajit", LIB_LUAJIT2)
        pid = self.start_loader("-" + LIB_LUAJIT2)
        vm, = self.examine(pid)["vms"]
        self.check_vm(vm, OPENRESTY, 0)
        self.assertIn(f"PID {pid} (loader): can be traced; no VM is at work "
                      "in it", self.run_tool("-p", pid).stdout)
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        hosts.wait_for(lambda: self.examine(pid)["vms"][0]["live"], "the VM")
        vm, = self.examine(pid)["vms"]
        self.assertEqual(vm["live"][0]["threads"], 24)

    def replaced(self, replace):
        """The library of a process is another one on disk by now."""
        self.need("luajit", LIB_LUAJIT2)
        self.need("upstream", LIB_UPSTREAM)
        path = os.path.join(self.temp, "library.so")
        shutil.copy(LIB_UPSTREAM, path)
        pid = self.start_loader(path)
        replace(path)
        vm, = self.examine(pid)["vms"]
        self.check_vm(vm, UPSTREAM, 1)
        self.assertEqual(vm["build_id"], self.build_id(LIB_UPSTREAM))
        self.assertTrue(vm["deleted"])
        self.assertIn("deleted or replaced", self.run_tool("-p", pid).stdout)

    def test_library_upgraded_on_disk(self):
        def upgrade(path):
            shutil.copy(LIB_LUAJIT2, path + ".new")
            os.rename(path + ".new", path)
        self.replaced(upgrade)

    def test_library_deleted_on_disk(self):
        self.replaced(os.unlink)

    def test_own_mount_namespace(self):
        self.need("luajit", LIB_LUAJIT2)
        folder = os.path.join(self.temp, "mnt")
        os.mkdir(folder)
        pid = self.start(
            "unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {folder} "
            f"&& cp {LIB_LUAJIT2} {folder}/lib.so && exec {loader()} -e '' "
            f"{folder}/lib.so", ready="ready")
        process = self.examine(pid)
        self.assertTrue(process["own_mounts"])
        self.check_vm(process["vms"][0], OPENRESTY, 1)
        self.assertEqual(process["vms"][0]["file"], f"{folder}/lib.so")


class Files(Doctor):
    def test_files_of_packages(self):
        for path, build in (
                (LIB_LUAJIT2, OPENRESTY), (LIB_UPSTREAM, UPSTREAM),
                ("/usr/bin/luajit", OPENRESTY), (LIB_TEXLUA, TEXLUA)):
            with self.subTest(path):
                self.need("deb", path)
                vm = self.examine_file(path)
                self.assertEqual(vm["build"], build)
                self.assertEqual(vm["build_id"], self.build_id(path))
                self.assertEqual(vm["version"], "LuaJIT 2.1.0-beta3")
                self.assertEqual(vm["eh_frame"], "usable")
                self.assertEqual(vm["live"], [])
                self.assertEqual((vm["gc_points"], vm["call_points"]),
                                 ("found", "found"))
                sources = {name: offset["source"]
                           for name, offset in vm["offsets"].items()}
                self.assertEqual(sources["g_cur_l"], "table, code")
                self.assertGreater(len(sources), 140)

    def test_verbose_lists_each_offset(self):
        self.need("luajit", LIB_LUAJIT2)
        done = self.run_tool("-v", LIB_LUAJIT2)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"(?m)^ +g_cur_l +368 \(table, code\)$")
        self.assertRegex(done.stdout, r"(?m)^ +pt_chunkname +64 \(.*\)$")

    def test_file_that_only_uses_lua(self):
        done = self.run_tool("/bin/sh")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, "/bin/sh: no LuaJIT and no other Lua in it\n",
                          ""))

    def check_failure(self, args, message, hint=None):
        done = self.run_tool(*args)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        lines = done.stderr.splitlines()
        self.assertRegex(lines[0], "^lua-doctor: " + message)
        self.assertEqual(len(lines), 2 if hint else 1, done.stderr)
        if hint:
            self.assertRegex(lines[1], "^hint: .*" + hint)

    def test_what_is_no_file_and_no_process(self):
        self.check_failure([self.temp + "/none"], ".*none: No such file")
        self.check_failure([self.temp], ".*: Is a directory")
        text = self.write("text", "no program\n")
        self.check_failure([text], ".*text: not an ELF file")
        process = subprocess.Popen(["true"])
        process.wait()
        self.check_failure(["-p", process.pid],
                           f"PID {process.pid}: no such process", "pgrep")


class Privileges(Doctor):
    def as_nobody(self, *args):
        prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                  "--clear-groups")
        if subprocess.run([*prefix, "test", "-r", TOOL]).returncode:
            self.skipTest("checkout: another user cannot read it")
        cache = os.path.join(self.temp, "cache")
        os.makedirs(cache, exist_ok=True)
        os.chown(cache, NOBODY, NOBODY)
        return self.run_tool(*args, prefix=prefix, env={
            "XDG_CACHE_HOME": cache, "HOME": cache})

    def test_own_process_without_the_right_to_load(self):
        self.need("luajit", "luajit")
        pid = self.start("luajit", "-e", "print('ready') io.flush() "
                         "io.read()", ready="ready", user=NOBODY,
                         group=NOBODY, extra_groups=[])
        done = self.as_nobody("-p", pid, "-j")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = json.loads(done.stdout)
        process, = found["processes"]
        self.check_vm(process["vms"][0], OPENRESTY, 1)
        self.assertFalse(process["traceable"])
        self.assertRegex(process["tools"][0]["reason"],
                         "BPF program on a timer: Operation not permitted")
        self.assertEqual(found["system"]["capabilities"], "none")

    def test_process_of_another_user(self):
        self.need("luajit", "luajit")
        pid = self.start_luajit()
        done = self.as_nobody("-p", pid)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, f"^lua-doctor: PID {pid}: cannot read "
                         "its mappings: Permission denied\nhint: run as root")


class AllProcesses(Doctor):
    def test_table(self):
        self.need("luajit", "luajit")
        self.need("puc", "lua5.3")
        luajit = self.start_luajit()
        puc = self.start("lua5.3", "-e", "print('ready') io.stdout:flush() "
                         "io.read()", ready="ready")
        none = self.start("sleep", "60")
        done = self.run_tool()
        self.assertEqual(done.returncode, 0, done.stderr)
        head, *rows = done.stdout.splitlines()
        self.assertEqual(head.split(), ["PID", "COMM", "TRACE", "LUA"])
        found = {int(row.split()[0]): row.split(None, 3)[1:] for row in rows}
        self.assertEqual(found[luajit], ["luajit", "yes", OPENRESTY])
        self.assertEqual(found[puc], ["lua5.3", "no", "PUC Lua 5.3.6, not "
                                      "supported yet"])
        self.assertNotIn(none, found)

    def test_table_as_json(self):
        self.need("luajit", "luajit")
        pid = self.start_luajit()
        found = json.loads(self.run_tool("-j").stdout)
        self.assertTrue(found["traceable"])
        process, = [p for p in found["processes"] if p["pid"] == pid]
        self.assertEqual(process["vms"][0]["build"], OPENRESTY)


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    unittest.main()
