# SPDX-License-Identifier: Apache-2.0
"""What lua-stacks says when it cannot work, and when a part of it cannot.

The first: one line, one hint, status 1, nothing left behind. The second: the
profile goes on, and the closing lines name and explain what is lost.
"""

import ctypes
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOOL = os.path.join(ROOT, "tools", "lua-stacks.py")
NOBODY = 65534
SECONDS = "2"

BUSY_LUA = """
local t0 = os.clock()
local function busy(n) local x = 0; for i = 1, n do x = x + i % 7 end end
io.stdout:write("ready\\n"); io.stdout:flush()
while os.clock() - t0 < 60 do busy(1e5) end
"""

# Many different stacks: the depth of the recursion changes all the time.
DEEP_LUA = """
local function deep(n)
  if n == 0 then local x = 0; for i = 1, 2e4 do x = x + i % 7 end return x end
  return 1 + deep(n - 1)
end
io.stdout:write("ready\\n"); io.stdout:flush()
local t0, n = os.clock(), 0
while os.clock() - t0 < 60 do n = n % 97 + 1; deep(n) end
"""

CORRUPT_LUA = """
local ffi = require("ffi")
ffi.cdef "void spin_in_corrupt(long n);"
local lib = ffi.load("%s")
io.stdout:write("ready\\n"); io.stdout:flush()
local t0 = os.clock()
while os.clock() - t0 < 60 do lib.spin_in_corrupt(1000000) end
"""

CORRUPT_C = """
volatile long sink;
void spin_in_corrupt(long n) { for (long i = 0; i < n; i++) sink += i; }
"""


def elf32_program():
    """A static i386 program: an endless loop."""
    code = b"\xeb\xfe"  # jmp to itself
    base, entry = 0x8048000, 0x8048000 + 52 + 32
    size = 52 + 32 + len(code)
    ident = b"\x7fELF\x01\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, entry, 52, 0, 0,
                                 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096)
    return header + segment + code


def refuse_bpf():
    """In the child: bpf() fails with ENOSYS, as on a kernel without it."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    enosys = 38
    insns = ((0x20, 0, 0, 0),                    # A = system call number
             (0x15, 0, 1, number),               # not bpf(): skip one
             (0x06, 0, 0, 0x00050000 | enosys),  # SECCOMP_RET_ERRNO
             (0x06, 0, 0, 0x7fff0000))           # SECCOMP_RET_ALLOW
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *insn) for insn in insns))
    program = struct.pack("HxxxxxxQ", len(insns), ctypes.addressof(code))
    pr_set_seccomp, pr_set_no_new_privs, filter_mode = 22, 38, 2
    libc.prctl(pr_set_no_new_privs, 1, 0, 0, 0)
    if libc.prctl(pr_set_seccomp, filter_mode, program, 0, 0):
        os._exit(99)


def corrupt_eh_frame(path):
    """Overwrite the section with lengths that lead out of it."""
    out = subprocess.run(["readelf", "-SW", path], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    found = re.search(r" \.eh_frame +\S+ +(\S+) (\S+) (\S+)", out)
    off, size = int(found.group(2), 16), int(found.group(3), 16)
    with open(path, "r+b") as file:
        file.seek(off)
        file.write(b"\xf0\xff\xff\x7f" * (size // 4))


class BadInputTest(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("bpf: not root")
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.temp = temp.name
        os.chmod(self.temp, 0o755)
        self.scratch = os.path.join(self.temp, "scratch")
        os.mkdir(self.scratch)
        os.chmod(self.scratch, 0o1777)

    def start(self, *command, ready=False, **options):
        process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                   **options)

        def end():
            process.kill()
            process.wait()
            process.stdout.close()
        self.addCleanup(end)
        if ready:
            self.assertEqual(process.stdout.readline(), b"ready\n")
        return process.pid

    def start_lua(self, text):
        if not shutil.which("luajit"):
            self.skipTest("luajit: no luajit command")
        path = os.path.join(self.temp, "target.lua")
        with open(path, "w") as file:
            file.write(text)
        return self.start("luajit", path, ready=True)

    def run_tool(self, *args, prefix=(), env=None, **options):
        env = dict(os.environ, TMPDIR=self.scratch, **(env or {}))
        return subprocess.run(
            [*prefix, "/usr/bin/python3", TOOL, *map(str, args)], env=env,
            text=True, timeout=120, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def check_refusal(self, done, message, hint):
        lines = done.stderr.splitlines()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(lines), 2, done.stderr)
        self.assertRegex(lines[0], "^lua-stacks: " + message)
        self.assertRegex(lines[1], "^hint: .*" + hint)
        self.assertEqual(os.listdir(self.scratch), [], "files are left")

    def as_nobody(self, *args):
        cache = os.path.join(self.temp, "cache")
        os.makedirs(cache, exist_ok=True)
        os.chown(cache, NOBODY, NOBODY)
        prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                  "--clear-groups")
        can_read = subprocess.run([*prefix, "test", "-r", TOOL])
        if can_read.returncode:
            self.skipTest("checkout: another user cannot read it")
        return self.run_tool(*args, prefix=prefix, env={
            "XDG_CACHE_HOME": cache, "HOME": cache})

    def test_no_such_process(self):
        process = subprocess.Popen(["true"])
        process.wait()
        self.check_refusal(self.run_tool("-p", process.pid, SECONDS),
                           f"PID {process.pid}: no such process", "pgrep")

    def test_no_luajit_in_the_process(self):
        pid = self.start("sleep", "60")
        self.check_refusal(self.run_tool("-p", pid, SECONDS),
                           f".*{pid}.*LuaJIT", "--wait")

    def test_process_with_another_lua(self):
        if not shutil.which("lua5.3"):
            self.skipTest("puc: no lua5.3 command")
        pid = self.start("lua5.3", "-e", "io.stdout:write('ready\\n') "
                         "io.stdout:flush() io.read()", ready=True,
                         stdin=subprocess.PIPE)
        self.check_refusal(
            self.run_tool("-p", pid, SECONDS),
            rf"PID {pid} \(lua5\.3\): PUC Lua 5\.3\.6 found, not supported "
            r"yet; this tool profiles LuaJIT$", "lua-doctor -p PID")

    def test_process_of_32_bits(self):
        path = os.path.join(self.temp, "loop32")
        with open(path, "wb") as file:
            file.write(elf32_program())
        os.chmod(path, 0o755)
        try:
            pid = self.start(path)
        except OSError as error:
            self.skipTest(f"ia32: {error.strerror}")
        self.check_refusal(self.run_tool("-p", pid, SECONDS),
                           f"PID {pid}: .*32-bit", "")

    def test_process_of_another_user(self):
        pid = self.start_lua(BUSY_LUA)
        self.check_refusal(self.as_nobody("-p", pid, SECONDS),
                           f"PID {pid}: .*[Pp]ermi", "root")

    def test_own_process_without_the_right_to_load(self):
        if not shutil.which("luajit"):
            self.skipTest("luajit: no luajit command")
        path = os.path.join(self.temp, "target.lua")
        with open(path, "w") as file:
            file.write(BUSY_LUA)
        pid = self.start("luajit", path, ready=True, user=NOBODY,
                         group=NOBODY, extra_groups=[])
        self.check_refusal(self.as_nobody("-p", pid, SECONDS), ".*", "root")

    def test_kernel_without_bpf(self):
        pid = self.start_lua(BUSY_LUA)
        self.check_refusal(
            self.run_tool("-p", pid, SECONDS, preexec_fn=refuse_bpf),
            ".*BPF", "")

    def test_no_bcc(self):
        pid = self.start_lua(BUSY_LUA)
        module = os.path.join(self.temp, "bcc.py")
        with open(module, "w") as file:
            file.write("raise ImportError('not here')\n")
        self.check_refusal(
            self.run_tool("-p", pid, SECONDS, env={
                "PYTHONPATH": self.temp, "PYTHONDONTWRITEBYTECODE": "1"}),
            ".*BCC", "python3-bpfcc")

    def test_no_kernel_headers(self):
        pid = self.start_lua(BUSY_LUA)
        # The mounts hide them from this one process only.
        hide = ("for d in /usr/src /lib/modules; do mount -t tmpfs none $d; "
                "done; [ ! -e /sys/kernel/kheaders.tar.xz ] || "
                "mount -t tmpfs none /sys/kernel; exec \"$@\"")
        self.check_refusal(
            self.run_tool("-p", pid, SECONDS, prefix=(
                "unshare", "--mount", "sh", "-c", hide, "sh")),
            "no kernel headers", "linux-headers")

    def test_wrong_kernel_source(self):
        pid = self.start_lua(BUSY_LUA)
        self.check_refusal(
            self.run_tool("-p", pid, SECONDS,
                          env={"BCC_KERNEL_SOURCE": "/nonexistent"}),
            "BCC_KERNEL_SOURCE=/nonexistent", "header tree")

    def test_stack_storage_full(self):
        pid = self.start_lua(DEEP_LUA)
        done = self.run_tool("-p", pid, "-f", "-F", "199",
                             "--stack-storage-size", "8", SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        closing = re.search(r"^lua-stacks: (\d+) samples: .* (\d+) lost$",
                            done.stderr, re.M)
        self.assertTrue(closing, done.stderr)
        samples, lost = (int(text) for text in closing.groups())
        self.assertGreater(lost, 0, done.stderr)
        self.assertIn("--stack-storage-size", done.stderr)
        counts = [int(line.rpartition(" ")[2])
                  for line in done.stdout.splitlines()]
        self.assertEqual(sum(counts), samples, done.stderr)

    def profile_corrupt(self):
        """Profile a process that is busy in a file with a bad .eh_frame."""
        if not shutil.which("gcc"):
            self.skipTest("gcc: not there")
        source = os.path.join(self.temp, "corrupt.c")
        library = os.path.join(self.temp, "libcorrupt.so")
        with open(source, "w") as file:
            file.write(CORRUPT_C)
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC",
                        "-fomit-frame-pointer", "-o", library, source],
                       check=True)
        corrupt_eh_frame(library)
        pid = self.start_lua(CORRUPT_LUA % library)
        return self.run_tool("-p", pid, "-f", "-F", "199", SECONDS)

    def test_corrupt_file_is_counted_and_named(self):
        done = self.profile_corrupt()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertRegex(done.stderr, r"(?m)^lua-stacks: \d+ samples: .* "
                                      r"[1-9]\d* failed \(")
        self.assertRegex(done.stderr, r"(?m)^lua-stacks: .*libcorrupt\.so: "
                                      r".*unwind table")

    def test_corrupt_file_keeps_its_symbols(self):
        self.assertIn("spin_in_corrupt", self.profile_corrupt().stdout)


if __name__ == "__main__":
    unittest.main()
