# SPDX-License-Identifier: Apache-2.0
"""Debian's nginx with libnginx-mod-http-lua, under wrk on loopback.

A worker's whole stack is judged: from main through the event loop to the
content handler, subrequest, light thread or timer, and on to the leaf.
"""
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import unittest

import graphs
import harness
from stackgraph import FrameClass, Graph, script_functions
from test_stacks import ACCOUNT, FULL, allowed_bad

SECONDS = 5.2 if FULL else 2
MODULES = "/usr/lib/nginx/modules"
CONF = """
daemon off;
worker_processes 1;
user root;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  lua_package_path "{lua}/?.lua;/usr/share/lua/5.1/?.lua;;";
  init_by_lua_block {{ {init} }}
  init_worker_by_lua_block {{ require("nginx_app").start_timer() }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ content_by_lua_file {lua}/nginx_content.lua; }}
    location /sub {{ internal; content_by_lua_file {lua}/nginx_sub.lua; }}
  }}
}}
"""

# ngx_lua runs every coroutine from its own scheduler, so what a handler, a
# light thread or a timer is made of begins right above nginx's frames; a
# handler that waited for a subrequest is resumed from there as well.
EDGES = """
ROOT > ^_start
^_start > ~libc_start
~libc_start > ~libc_call_main
~libc_call_main > ^main
^main > ^ngx_master_process_cycle
^ngx_master_process_cycle > ~start_workers
~start_workers > ^ngx_spawn_process
^ngx_spawn_process > ~worker_cycle
~worker_cycle > ^ngx_process_events_and_timers ~vm
^ngx_process_events_and_timers > ~nginx ~vm
~nginx > content sub_content thread_body tick ~vm
content > ~handle ~require ~resty
sub_content > ~sub ~require ~resty
~resty content sub_content > ~fast    # FFI; ngx.exit leaves to yield
~require ~resty ~fast > ~vm
~handle > template subrequest threads compute
~sub > compute
template > $string.gsub
$string.gsub > ~gsub_c
~gsub_c > replace
replace > compute $string.format
thread_body > compute
tick > compute
content sub_content thread_body tick threads subrequest ~handle ~sub > ~vm
"""


def nginx_frames(why, least, most, names=frozenset()):
    return FrameClass(
        r"ngx_\w+|\[(nginx|ngx_http_lua_module\.so)\+0x[0-9a-f]+\]",
        why, ("ngx_http_handler", "[nginx+0x5a1b0]"), least, most,
        names=names)


def field(name, text):
    """A field of a module: named as it is defined or where it is found."""
    return FrameClass(
        re.escape(text).replace(r"M\.", r"(M|app|nginx_app)\."),
        "a module's function is named by its definition or, when that is "
        "gone, by its place in package.loaded", (text,), inlined=True)


def make_graph(jit):
    texts = {}
    for script, main in (("nginx_app.lua", "app_main"),
                         ("nginx_content.lua", "content"),
                         ("nginx_sub.lua", "sub_content")):
        path = os.path.join(graphs.LUA_DIR, script)
        found = script_functions(path, path)
        texts[main] = found.pop("main")
        texts.update(found)
    names = harness.native_names("")
    common = graphs.common_classes(graphs.HOST, names)
    vm = common["~vm"]
    classes = {
        "~libc_start": common["~libc_start"],
        "~libc_call_main": common["~libc_call_main"],
        "~gsub_c": common["~gsub_c"],
        "~start_workers": nginx_frames(
            "ngx_start_worker_processes, static", 1, 1),
        "~worker_cycle": nginx_frames(
            "ngx_worker_process_cycle, static", 1, 1),
        "~nginx": nginx_frames(
            "nginx's event handlers, HTTP phases and the scheduler of "
            "ngx_lua: as deep as nginx makes them; handlers of subrequests "
            "are run inside", 1, 0, frozenset(["lua_pcall"])),
        "~require": FrameClass(
            r"\[libluajit-5\.1\.so\.2\.1\.0\+0x[0-9a-f]+\]",
            "require is a static function of the library, no fast function",
            ("[libluajit-5.1.so.2.1.0+0x52340]",)),
        "~resty": FrameClass(
            r"\S+@/usr/share/lua/5\.1/resty/[\w./]+\.lua:\d+",
            "ngx.exit and what it calls are Lua functions of another package, "
            "lua-resty-core", ("ngx.exit@/usr/share/lua/5.1/resty/core/"
                               "exit.lua:44",), 1, 3, inlined=True),
        "~handle": field("handle", texts["handle"]),
        "~sub": field("sub", texts["sub"]),
        "~vm": FrameClass(
            vm.pattern + r"|ngx_\w+"
            r"|\[(nginx|[\w.+-]+\.so[.\d]*)\+0x[0-9a-f]+\]",
            "leaf work in nginx, its modules and libraries", ("ngx_palloc",),
            1, 0, names=vm.names),
        "~fast": FrameClass(
            r"[\w.]+@\[builtin\]", "what lua-resty-core calls is its own "
            "affair", ("__call@[builtin]",), inlined=True),
    }
    kinds = ("lua", "fast") if jit else ("fast",)
    return Graph("nginx", texts, classes, EDGES, "~vm", kinds)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Worker(harness.Run):
    """The worker process of an nginx; wrk runs while it is sampled."""

    def __init__(self, jit, master, pid, port, folder):
        program = graphs.Program("nginx", graphs.NESTED, "")
        super().__init__(program, jit, "luajit2", master, os.devnull)
        self.pid, self.master, self.port = pid, master, port
        self.wrk, self.folder = None, folder

    def graph(self):
        return make_graph(self.jit)

    def go_on(self):
        with open(os.path.join(self.folder, "wrk.out"), "wb") as out:
            self.wrk = subprocess.Popen(
                ["wrk", "-t1", "-c8", "-d100s",
                 "http://127.0.0.1:%d/" % self.port], stdout=out)
        super().go_on()

    def pause(self):
        super().pause()
        if self.wrk:
            self.wrk.terminate()
            self.wrk.wait()

    def stop(self):
        os.kill(self.pid, signal.SIGCONT)
        self.master.terminate()
        self.master.wait(10)


class NginxTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = harness.skip_reason()
        for path in (shutil.which("nginx") or "nginx", shutil.which("wrk")
                     or "wrk", MODULES + "/ngx_http_lua_module.so"):
            if not os.path.exists(path):
                reason = reason or "nginx: no %s" % path
        if reason:
            raise unittest.SkipTest(reason)

    def start(self, session, jit):
        port = free_port()
        conf = os.path.join(session.dir, "nginx.conf")
        with open(conf, "w") as file:
            file.write(CONF.format(
                dir=session.dir, modules=MODULES, lua=graphs.LUA_DIR,
                port=port, init="" if jit else "jit.off()"))
        log = open(os.path.join(session.dir, "stderr.log"), "wb")
        master = subprocess.Popen(
            [shutil.which("nginx"), "-c", conf, "-p", session.dir],
            stdout=log, stderr=log)
        log.close()
        try:
            harness._wait_for(lambda: answers(port), 20)
        except AssertionError:
            master.kill()
            master.wait()
            self.fail("nginx does not answer: " + logs(session.dir))
        children = "/proc/%d/task/%d/children" % (master.pid, master.pid)
        with open(children) as file:
            pid = int(file.read().split()[0])
        run = Worker(jit, master, pid, port, session.dir)
        session.runs.append(run)
        return run

    def judge(self, jit):
        with harness.Session() as session:
            run = self.start(session, jit)
            session.sample([run], SECONDS)
            report = run.report(6) + "\n" + session.stderr + logs(session.dir)
        closing, bad = session.closing, allowed_bad(run.samples)
        with self.subTest("complete"):
            self.assertLessEqual(closing.truncated + closing.failed, bad,
                                 report)
        with self.subTest("legal"):
            self.assertLessEqual(
                sum(count for count, _ in run.illegal().values()), bad,
                report)
        with self.subTest("account"):
            want = session.rate * run.cpu_seconds
            delta = ACCOUNT * want + session.rate * session.other_seconds
            self.assertAlmostEqual(closing.samples + closing.lost, want,
                                   delta=delta, msg=report)
        for name in ("compute@", "main@%s/nginx_content" % graphs.LUA_DIR,
                     "main@%s/nginx_sub" % graphs.LUA_DIR, "thread_body@",
                     "tick@", "replace@", "ngx_process_events_and_timers"):
            with self.subTest("seen", name=name):
                count = sum(n for s, n in run.stacks.items() if name in s)
                self.assertGreater(count, run.samples / 200, report)

    def test_jit(self):
        self.judge(True)

    def test_joff(self):
        self.judge(False)

    # Upstream's LuaJIT is no choice here: ngx_lua wants lua_setexdata.


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b"200" in client.recv(100)
    except OSError:
        return False


def logs(folder):
    text = ""
    for path in glob.glob(os.path.join(folder, "*.log")):
        with open(path, errors="replace") as file:
            text += "".join(file.readlines()[:5])
    return text


if __name__ == "__main__":
    unittest.main()
