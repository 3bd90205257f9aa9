# SPDX-License-Identifier: Apache-2.0
"""lua-gc-latency on a worker of Debian's nginx, under wrk on loopback.

The handler allocates all the time, and knows what its heap was and how many
cycles of the collector were completed.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

import harness
from test_gc_latency import LatencyTest, Tool
from test_nginx import MODULES, answers, free_port, logs

CPU_S = 2  # of the worker, while it is measured
WAIT_S = 60  # until a step that should be short is given up
SLACK = 0.2  # heap: what a request allocates between its looks at it

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
  init_worker_by_lua_block {{
    local watch = {{ least = math.huge, most = 0, cycles = 0, served = 0 }}
    package.loaded.watch = watch
    watch.kept = {{}}
    for i = 1, 40000 do watch.kept[i] = {{ i }} end
    local function sentinel()
      getmetatable(newproxy(true)).__gc = function()
        watch.cycles = watch.cycles + 1
        sentinel()
      end
    end
    sentinel()
    function watch.look()
      local bytes = collectgarbage("count") * 1024
      watch.least = math.min(watch.least, bytes)
      watch.most = math.max(watch.most, bytes)
    end
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ content_by_lua_block {{
      local watch = require("watch")
      watch.look()
      local t = {{}}
      for i = 1, 2000 do t[i % 50 + 1] = {{ i }} end
      for i = 1, 200 do t[i] = ("%d %s"):format(i, ngx.var.uri) end
      watch.look()
      watch.served = watch.served + 1
      ngx.print(table.concat(t, ",", 60, 200))
    }} }}
    location /watch {{ content_by_lua_block {{
      local watch = require("watch")
      ngx.print(("least %d most %d cycles %d served %d\\n"):format(
        watch.least, watch.most, watch.cycles, watch.served))
    }} }}
  }}
}}
"""


def said(port):
    """What the worker says of itself: word -> number."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as client:
        client.sendall(b"GET /watch HTTP/1.0\r\n\r\n")
        text = client.makefile().read()
    return {word: int(number) for word, number in re.findall(
        r"\b(least|most|cycles|served) (\d+)", text)}


class NginxTest(LatencyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for path in (shutil.which("nginx") or "nginx", shutil.which("wrk")
                     or "wrk", MODULES + "/ngx_http_lua_module.so"):
            if not os.path.exists(path):
                raise unittest.SkipTest("nginx: no %s" % path)

    def start_nginx(self):
        """(PID of the worker, port)."""
        port = free_port()
        conf = os.path.join(self.temp, "nginx.conf")
        with open(conf, "w") as file:
            file.write(CONF.format(dir=self.temp, modules=MODULES, port=port))
        with open(os.path.join(self.temp, "stderr.log"), "wb") as log:
            master = subprocess.Popen(
                [shutil.which("nginx"), "-c", conf, "-p", self.temp],
                stdout=log, stderr=log)
        self.addCleanup(master.wait, WAIT_S)
        self.addCleanup(master.terminate)
        end = time.monotonic() + WAIT_S
        while not answers(port):
            if time.monotonic() > end or master.poll() is not None:
                self.fail("nginx does not answer: " + logs(self.temp))
            time.sleep(0.05)
        with open("/proc/%d/task/%d/children" % (master.pid, master.pid)
                  ) as file:
            return int(file.read().split()[0]), port

    def load(self, pid, port):
        """Have wrk use CPU_S of the worker's time; what wrk prints."""
        before = harness.process_cpu(pid)
        wrk = subprocess.Popen(
            ["wrk", "-t1", "-c8", "-d%ds" % WAIT_S,
             "http://127.0.0.1:%d/" % port], stdout=subprocess.PIPE,
            text=True)
        try:
            while harness.process_cpu(pid) - before < CPU_S \
                    and wrk.poll() is None:
                time.sleep(0.05)
            wrk.send_signal(signal.SIGINT)
            return wrk.communicate(timeout=WAIT_S)[0]
        finally:
            wrk.kill()
            wrk.wait()

    def test_worker_under_load(self):
        pid, port = self.start_nginx()
        before = said(port)
        with Tool(self.temp, "-p", pid, "-j") as tool:
            wrk = self.load(pid, port)
            after = said(port)
        self.assertEqual(tool.status, 0, tool.stderr)
        total, = tool.objects("interval")
        with self.subTest("all requests were answered well"):
            served, = re.findall(r"(\d+) requests in", wrk)
            self.assertGreater(int(served), 0)
            self.assertNotRegex(wrk, "Non-2xx|Socket errors")
            self.assertGreaterEqual(after["served"] - before["served"],
                                    int(served))
            self.assertNotRegex(logs(self.temp), r"\[(error|alert|crit)\]")
        with self.subTest("pauses"):
            self.assertGreater(total["count"], 0)
            self.assertEqual(set(total["entries"]), {"step", "trace"})
            self.assertEqual(sum(total["entries"].values()), total["count"])
            self.assertRegex(tool.stderr, r"lua-gc-latency: %d pauses, 0 "
                             r"dropped .*, 0 lost\n$" % total["count"])
        with self.subTest("times"):
            self.assertEqual(sum(total["phases_ns"].values())
                             + total["finalizers_ns"], total["total_ns"])
            self.assertLess(total["cpu_ns"], total["process_cpu_ns"])
        with self.subTest("cycles"):
            # the finalizer that counts runs before the end of its cycle
            cycles = after["cycles"] - before["cycles"]
            self.assertGreater(cycles, 2)
            self.assertAlmostEqual(total["cycles"], cycles, delta=1)
        for name in ("heap_before", "heap_after"):
            with self.subTest(name):
                self.assertGreater(total[name],
                                   after["least"] * (1 - SLACK))
                self.assertLess(total[name], after["most"] * (1 + SLACK))


if __name__ == "__main__":
    unittest.main()
