# SPDX-License-Identifier: Apache-2.0
"""An nginx of our own with Lua under wrk: one worker on one CPU."""
import dataclasses
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from typing import List, Optional

import measure

_MODULES = "/usr/lib/nginx/modules"
_CONNECTIONS = 16

_CONF = """\
load_module %(modules)s/ndk_http_module.so;
load_module %(modules)s/ngx_http_lua_module.so;
daemon off;
user root;
worker_processes 1;
pid %(dir)s/nginx.pid;
error_log %(dir)s/error.log warn;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    keepalive_requests 1000000000;
    lua_package_path "%(here)s/?.lua;;";
    server {
        listen 127.0.0.1:%(port)d;
        location = /page {
            content_by_lua_block { require("nginx_app").page() }
        }
        location = /coroutines {
            content_by_lua_block { require("nginx_app").coroutines() }
        }
        location = /count {
            content_by_lua_block { ngx.say(require("nginx_app").count()) }
        }
    }
}
"""


@dataclasses.dataclass(frozen=True)
class Load:
    """What one run of wrk did to the worker."""

    requests: int
    per_second: float
    cpu_ns: int  # of the worker

    @property
    def cpu_ns_per_request(self) -> float:
        return self.cpu_ns / self.requests


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Nginx:
    """Server with one worker; a context manager."""

    def __init__(self) -> None:
        self._nginx, self._wrk = measure.need("nginx"), measure.need("wrk")
        if not os.path.exists(_MODULES + "/ngx_http_lua_module.so"):
            raise measure.Skip("no Lua module of nginx")
        self.cpu, self.load_cpu = measure.cpus()
        self._master: Optional[subprocess.Popen] = None

    def __enter__(self) -> "Nginx":
        self._dir = tempfile.mkdtemp(prefix="lb-bench-")
        self._port = _free_port()
        conf = os.path.join(self._dir, "nginx.conf")
        with open(conf, "w", encoding="utf-8") as file:
            file.write(_CONF % {"modules": _MODULES, "dir": self._dir,
                                "here": measure.HERE, "port": self._port})
        self._master = measure.start(
            [self._nginx, "-p", self._dir, "-c", conf,
             "-e", self._dir + "/error.log"], self.cpu)
        try:
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._master is not None:
            measure.stop(self._master)
        shutil.rmtree(self._dir, ignore_errors=True)

    def _wait_ready(self) -> None:
        end = time.monotonic() + 20
        while True:
            try:
                self.count()
                break
            except OSError:
                if (self._master.poll() is not None
                        or time.monotonic() > end):
                    raise RuntimeError("nginx is not ready: " + self._log()
                                       ) from None
                time.sleep(0.05)
        path = "/proc/%d/task/%d/children" % ((self._master.pid,) * 2)
        with open(path, encoding="ascii") as file:
            self.pid = int(file.read().split()[0])

    def _log(self) -> str:
        with open(self._dir + "/error.log", encoding="utf-8",
                  errors="replace") as file:
            return file.read()[-1000:]

    def _url(self, path: str) -> str:
        return "http://127.0.0.1:%d%s" % (self._port, path)

    def count(self) -> int:
        """Requests that the worker has served."""
        with urllib.request.urlopen(self._url("/count"), timeout=5) as reply:
            return int(reply.read())

    def signal(self, number: int) -> None:
        """Stop or continue the worker."""
        os.kill(self.pid, number)

    def drive(self, path: str, seconds: int = 600) -> subprocess.Popen:
        """Start wrk; end it with measure.stop()."""
        command: List[str] = [
            self._wrk, "-t1", "-c%d" % _CONNECTIONS, "-d%ds" % seconds,
            self._url(path)]
        return measure.start(command, self.load_cpu, stdout=subprocess.PIPE,
                             text=True)

    def begin(self, path: str, seconds: int) -> "Running":
        """Start a run of wrk whose effect is wanted."""
        return Running(self, path, seconds)


class Running:
    """One run of wrk that is under way."""

    def __init__(self, server: Nginx, path: str, seconds: int) -> None:
        self._server = server
        self._count, self._cpu = server.count(), measure.cpu_ns(server.pid)
        self._wrk = server.drive(path, seconds)

    def finish(self) -> Load:
        """Wait for its end."""
        try:
            out = self._wrk.communicate(timeout=60)[0]
        finally:
            measure.stop(self._wrk)
        found = re.search(r"Requests/sec:\s+([\d.]+)", out)
        if not found or "Non-2xx" in out:
            raise RuntimeError("wrk: " + out)
        cpu = measure.cpu_ns(self._server.pid) - self._cpu
        requests = self._server.count() - self._count
        return Load(requests, float(found.group(1)), cpu)


STOP, CONTINUE = signal.SIGSTOP, signal.SIGCONT
