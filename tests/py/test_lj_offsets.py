# SPDX-License-Identifier: Apache-2.0
"""lj-offsets on files made here, whose layout is known, and on Tarantool."""

import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import unittest

import luabpf

OUTPUT = os.path.join(luabpf.ROOT, os.environ.get("OUTPUT", ".output"))
COMMAND = os.path.join(OUTPUT, "lj-offsets")
HEADER = os.path.join(luabpf.ROOT, "bpf_c", "lj_offsets.h")
TABLE = os.path.join(luabpf.ROOT, "tests", "data", "luajit-offsets.tsv")
TARANTOOL = os.path.join(OUTPUT, "deb", "tarantool", "usr", "bin",
                         "tarantool")
STRIPPED = ("/usr/bin/luajit",
            "/usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2",
            os.path.join(OUTPUT, "deb", "upstream", "usr", "bin", "luajit"))
FIELD = re.compile(r"\{ MEMBER\((\w+)\),\s*([A-Z0-9_]+)(?:\(([^)]*)\))? \}")


def run(*args):
    """Run lj-offsets; no network, and a signal is never an answer."""
    env = {k: v for k, v in os.environ.items() if k != "DEBUGINFOD_URLS"}
    done = subprocess.run(
        [COMMAND, *args], text=True, errors="replace", env=env, timeout=30,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode in (0, 1, 2), (args, done.returncode, done.stderr)
    return done


def fields():
    """(name, kind, paths) of each member of struct lj_offsets."""
    with open(os.path.join(luabpf.ROOT, "helpers", "fields.c")) as file:
        found = FIELD.findall(file.read())
    return [(name, kind, re.findall(r'"([^"]+)"', paths))
            for name, kind, paths in found]


class Build:
    """A made-up LuaJIT: structs with gaps, enums, and the VM's entry code."""

    def __init__(self, seed, gc64=True, cframe=80, without=()):
        self.rng = random.Random(seed)
        self.gc64, self.cframe = gc64, cframe
        self.ref = 8 if gc64 else 4
        self.members = {}   # type -> {member: size}
        self.enums = {}
        self.offs = {}      # path -> (offset, size)
        for name, kind, paths in fields():
            self._need(kind, paths)
        for path in ("GCtrace.nsnapmap", "lua_State.glref"):
            self._member(path)
        for path in without:
            owner, _, member = path.rpartition(".")
            self.members.get(owner, {}).pop(member, None)
            self.enums.pop(path, None)
        self.source = self._source()

    def _need(self, kind, paths):
        if kind in ("ENUM", "ENUM_OPTIONAL", "EITHER"):
            self.enums.setdefault(paths[0], self.rng.randrange(1, 200))
        elif kind != "CODE":
            for path in paths:
                if path.startswith("BC_"):
                    self.enums.setdefault(path, self.rng.randrange(80, 99))
                else:
                    self._member(path)

    def _member(self, path):
        if "." not in path:
            self.members.setdefault(path, {})
            return
        owner, _, member = path.rpartition(".")
        if "." in owner:
            self.members.setdefault(owner.split(".")[0], {})[
                owner.split(".")[1]] = 0
        size = {"lua_State.glref": self.ref, "SnapShot.mapofs": 2,
                "GCtrace.nsnapmap": 2, "global_State.gcroot": self.ref * 41,
                "GG_State.g": 0, "GG_State.J": 0,
                "GG_State.dispatch": 8 * 253}.get(path, 4)
        self.members.setdefault(owner, {})[member] = size

    def _gap(self, at, size):
        """A gap of random size before the next member, as C."""
        gap = self.rng.randrange(0, 9) * 4
        text = f"char gap_{at}[{gap}]; " if gap else ""
        return at + gap, text

    def _struct(self, name):
        """Definition of one type; notes where its members are."""
        # cur_L cannot be at 0
        at, text = 4, "u32 begin;\n"
        members = list(self.members[name].items())
        if name == "GG_State":
            order = ["g", "J", "dispatch"]
            members = [(m, self.members[name][m]) for m in order]
        elif name == "lua_State":    # the code has glref in one byte
            members.sort(key=lambda item: item[0] != "glref")
        else:
            self.rng.shuffle(members)
        for index, (member, size) in enumerate(members):
            at, gap = self._gap(at, size)
            text += "  " + gap
            inner = {"GG_State.g": "global_State", "GG_State.J": "jit_State",
                     "global_State.gc": "global_State.gc"}.get(
                         f"{name}.{member}")
            if inner:
                size = self.offs[inner][1]
                text += f"{self.c_name(inner)} {member};\n"
            elif size in (2, 4, 8):
                c_type = f"u{8 * size}"
                if index % 3 == 1:   # in an anonymous union and struct
                    text += f"union {{ struct {{ {c_type} {member}; }} PK; " \
                            f"{c_type} other_{member}; }} PK;\n"
                else:
                    text += f"{c_type} {member};\n"
            else:
                text += f"u32 {member}[{size // 4}];\n"
            self.offs[f"{name}.{member}"] = at, size
            for path, (off, its) in list(self.offs.items()):
                if inner == "global_State.gc" and path.startswith(inner + "."):
                    self.offs[path] = at + off, its
            at += size
        at, gap = self._gap(at, 4)
        self.offs[name] = 0, at + 4
        text = f"{{\n{text}  {gap}u32 end;\n}} PK"
        c_name = self.c_name(name)
        if name == "SnapShot":       # a typedef of a type without a name
            return f"typedef struct {text} {c_name};\n"
        return f"struct {c_name} {text};\ntypedef const struct {c_name} " \
               f"{c_name}_c;\ntypedef struct {c_name} {c_name};\n"

    @staticmethod
    def c_name(name):
        return "GCState" if name == "global_State.gc" else name

    def _source(self):
        first = ["global_State.gc", "global_State", "jit_State"]
        order = first + [n for n in self.members
                         if n not in first + ["GG_State"]] + ["GG_State"]
        text = "#define PK __attribute__((packed))\n"
        for bits, c_type in ((16, "short"), (32, "int"), (64, "long")):
            text += f"typedef unsigned {c_type} u{bits};\n"
        text += "".join(self._struct(name) for name in order)
        text += "typedef enum { " + ", ".join(
            f"{name} = {value}" for name, value in self.enums.items()) + \
            " } values;\n"
        uses = [self.c_name(n) for n in order] + ["values"]
        return text + "".join(f"{n} use_{n};\n" for n in uses)

    def marks(self):
        """g2disp, cur_L, vmstate, static part of the dispatch table."""
        size = self.offs["GG_State.dispatch"][1]
        return (self.offs["GG_State.dispatch"][0] - self.offs["GG_State.g"][0],
                self.offs["global_State.cur_L"][0],
                self.offs["global_State.vmstate"][0],
                size - 8 * self.enums["BC_FUNCF"])

    def vm_source(self):
        g2disp, cur_l, vmstate, static = self.marks()
        nres, l_slot, pc = (8, 16, 24) if self.gc64 else (16, 24, 28)
        entry = "push %rbp; push %rbx; push %r15; push %r14; " \
                f"sub ${self.cframe - 40}, %rsp\n"
        di, bp, r14 = ("%rdi", "%rbp", "%r14") if self.gc64 else \
            ("%edi", "%ebp", "%r14d")
        return f"""
\t.cfi_sections .eh_frame, .debug_frame
\t.text
\t.globl vm_begin
vm_begin:
\t.cfi_startproc
\t.cfi_def_cfa_offset {self.cframe}
\t.cfi_offset 6, -16
\t.cfi_offset 3, -24
\t.cfi_offset 15, -32
\t.cfi_offset 14, -40
\t{entry}
\t{entry}
\t{entry}
\tmov $1, %ebx
\tmov %edx, {nres}(%rsp)
\tmov {di}, {l_slot}(%rsp)
\tmov {self.offs["lua_State.glref"][0]}(%rbp), {r14}
\tmov %r15, {self.cframe - 48}(%rsp)
\tmov {bp}, {pc}(%rsp)
\tadd ${g2disp}, {r14}
\tmov {bp}, {cur_l - g2disp}(%r14)
\tmovl $-1, {vmstate - g2disp}(%r14)
\tjmp *{static}(%r14, %rbp, 8)
\t.skip 9000, 0xcc
\t.cfi_endproc
\t.section .note.GNU-stack, "", @progbits
"""

    def expected(self):
        result = {}
        for name, kind, paths in fields():
            if kind == "CODE":
                continue
            off, size = self.offs.get(paths[0], (None, None))
            if kind in ("ENUM", "ENUM_OPTIONAL", "EITHER"):
                off = self.enums.get(paths[0])
            elif kind == "SIZE":
                off = size
            elif kind == "DISTANCE":
                off -= self.offs[paths[1]][0]
            elif kind == "STATIC":
                off = self.marks()[3]
            elif kind == "REFS":
                off = size // self.ref
            elif kind == "GC64":
                off = int(self.gc64)
            result[name] = off
        nres, l_slot, pc = (8, 16, 24) if self.gc64 else (16, 24, 28)
        result.update(cframe_size=self.cframe, cf_nres=nres, cf_l=l_slot,
                      cf_pc=pc, cf_prev=self.cframe - 48,
                      cf_ra=self.cframe - 8, cf_rbp=self.cframe - 16,
                      cf_rbx=self.cframe - 24, cf_r14=self.cframe - 40)
        return result


# Structs of the same names in code that is not LuaJIT's: without an lua_State
# that has glref they must not count.
DECOY = """
struct Node { long a, b, c, key; };
struct GCproto { int k; };
struct lua_State { void *l_G; };
enum { BC_CALLM = 3 };
struct Node use_node; struct GCproto use_proto; struct lua_State use_state;
int use_enum = BC_CALLM;
"""


class MadeTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.dir = temp.name

    def path(self, name):
        return os.path.join(self.dir, name)

    def tool(self, *command):
        done = subprocess.run(command, cwd=self.dir, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def compile(self, name, text, *flags):
        self.write(name, text)
        self.tool("gcc", "-w", "-c", "-fPIC", *flags, name)
        return re.sub(r"\.\w+$", ".o", name)

    def objects(self, build, *flags, name="lj"):
        return [self.compile(name + ".c", build.source, "-g", *flags),
                self.compile("decoy.c", DECOY, "-g", *flags),
                self.compile("vm.s", build.vm_source())]

    def library(self, build, *flags, name="liblj.so"):
        self.tool("gcc", "-shared", "-nostdlib", "-Wl,--build-id", "-o", name,
                  *self.objects(build, *flags))
        return self.path(name)

    def check_offsets(self, build, *args):
        """Compare all fields; return where they come from."""
        data = self.offsets_of(*args)
        want, got = build.expected(), data["offsets"]
        self.assertEqual(sorted(got), sorted(want))
        self.assertEqual([(n, got[n], want[n]) for n in got
                          if got[n] != want[n]], [])
        return data["source"]

    def offsets_of(self, *args):
        done = run("-j", *args)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def check_fails(self, text, *args):
        done = run(*args)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        first, hint = done.stderr.splitlines()
        self.assertIn(text, first)
        self.assertTrue(first.startswith("lj-offsets: "), first)
        self.assertTrue(hint.startswith("hint: "), hint)

    def split(self, library):
        """(stripped file, debug file)"""
        debug, bare = library + ".debug", library + ".bare"
        self.tool("objcopy", "--only-keep-debug", library, debug)
        self.tool("objcopy", "-g", library, bare)
        return bare, debug


class KnownLayoutTest(MadeTest):
    def test_all_fields_of_made_up_builds(self):
        flags = ("-gdwarf-5", "-gdwarf-4", "-gdwarf-3", "-gdwarf-2")
        for seed, flag in enumerate(flags):
            for gc64 in (True, False):
                with self.subTest(flag=flag, gc64=gc64):
                    build = Build(seed, gc64, 96 if seed % 2 else 80)
                    path = self.library(build, flag)
                    self.check_offsets(build, path)

    def test_type_units(self):
        for flag in ("-gdwarf-5", "-gdwarf-4"):
            build = Build(11)
            self.objects(build, flag, "-fdebug-types-section")
            self.tool("gcc", "-shared", "-nostdlib", "-o", "liblj.so",
                      "lj.o", "vm.o")
            path = self.path("liblj.so")
            self.check_offsets(build, path)

    def test_compressed_sections(self):
        build = Build(12)
        path = self.library(build)
        self.tool("objcopy", "--compress-debug-sections", path)
        self.check_offsets(build, path)

    @unittest.skipUnless(shutil.which("dwz"), "dwz: not installed")
    def test_partial_units(self):
        build = Build(13)
        self.objects(build)
        self.compile("lj2.c", build.source.replace(" use_", " more_"), "-g")
        self.tool("gcc", "-shared", "-nostdlib", "-o", "liblj.so",
                  "lj.o", "lj2.o", "vm.o")
        self.tool("dwz", "liblj.so")
        self.check_offsets(build, self.path("liblj.so"))

    def test_absent_fields_are_null(self):
        build = Build(14, without=(
            "global_State.jit_L", "LJ_VMST_LFUNC", "LJ_VMST_FFUNC",
            "SnapShot.mcofs"))
        path = self.library(build)
        self.check_offsets(build, path)
        offsets = self.offsets_of(path)["offsets"]
        self.assertEqual(
            [name for name, value in offsets.items() if value is None],
            ["g_jit_l", "vm_lfunc", "vm_ffunc", "sn_mcofs"])

    def test_c_entry_has_the_values_of_json(self):
        build = Build(15, without=("SnapShot.mcofs",))
        path = self.library(build)
        data = self.offsets_of("-n", "a build", path)
        text = run("-n", "a build", path).stdout
        self.assertIn('\t{ .name = "a build",\n\t  .offsets = {\n', text)
        self.assertIn("\t\t  .sn_mcofs = LJ_OFFSETS_NONE,\n", text)
        values = dict(re.findall(r"\.(\w+) = (\w+),\n", text))
        self.assertEqual(
            {k: None if v == "LJ_OFFSETS_NONE" else int(v)
             for k, v in values.items()}, data["offsets"])
        for line in data["source"]:
            self.assertIn(f"\t * {line}\n", text)

    def test_texts_cannot_break_the_comment_or_the_string(self):
        path = self.library(Build(16))
        text = run("-n", 'a"\\\n', "-s", "x */ y\n", path).stdout
        self.assertIn('.name = "a???"', text)
        self.assertIn("\t * x *? y?\n", text)
        self.assertEqual(self.offsets_of("-s", 'a "b" \x01', path)
                         ["source"][1], 'a "b" \x01')


class FilesTest(MadeTest):
    def test_debug_file_that_is_given(self):
        build = Build(21)
        bare, debug = self.split(self.library(build))
        self.check_fails("no debug info in it", bare)
        source = self.check_offsets(build, "--debug-file", debug, bare)
        self.assertEqual(source[0], "debug info of liblj.so.bare, "
                         "from liblj.so.debug")
        self.assertIn("C frame: from its machine code", source)

    def test_debug_file_by_link(self):
        build = Build(22)
        bare, debug = self.split(self.library(build))
        self.tool("objcopy", f"--add-gnu-debuglink={debug}", bare)
        self.check_offsets(build, bare)

    def test_debug_file_alone(self):
        for gc64, cframe in ((True, 80), (False, 80), (True, 96), (False, 96)):
            build = Build(23, gc64, cframe)
            _, debug = self.split(self.library(build))
            source = self.check_offsets(build, debug)
            self.assertIn("C frame: size from .debug_frame; no code in the "
                          "file, so slots by rule", source)

    def test_debug_file_of_another_build(self):
        bare, _ = self.split(self.library(Build(24)))
        _, debug = self.split(self.library(Build(25), name="other.so"))
        self.check_fails("another build ID", "-d", debug, bare)

    def test_code_and_debug_info_differ(self):
        library = self.library(Build(26))
        self.compile("vm.s", Build(27).vm_source())
        self.tool("gcc", "-shared", "-nostdlib", "-o", library, "lj.o", "vm.o")
        self.check_fails("code and debug info differ: G2DISP", library)

    def test_static_archive(self):
        build = Build(28)
        self.tool("ar", "rc", "liblj.a", *self.objects(build))
        source = self.check_offsets(build, self.path("liblj.a"))
        self.assertIn("C frame: from its machine code", source)

    def test_object_without_the_vm(self):
        path = self.path(self.objects(Build(29))[0])
        self.check_fails("neither code nor .debug_frame of the VM", path)

    def test_two_builds_in_one_file(self):
        self.objects(Build(30))
        text = Build(31).source.replace(" use_", " more_")
        self.compile("lj2.c", text, "-g")
        self.tool("gcc", "-shared", "-nostdlib", "-o", "both.so",
                  "lj.o", "lj2.o", "vm.o")
        self.check_fails("more than one LuaJIT in the file",
                         self.path("both.so"))

    def test_a_field_is_missing(self):
        for path in ("GCproto.sizebc", "BC_TSETM", "lua_State.base"):
            build = Build(32, without=(path,))
            self.check_fails(f"{path} is missing", self.library(build))

    def test_no_luajit(self):
        self.tool("gcc", "-shared", "-nostdlib", "-o", "x.so",
                  self.compile("decoy.c", DECOY, "-g"))
        self.check_fails("its debug info has no LuaJIT", self.path("x.so"))
        self.check_fails("no debug info in it", "/bin/sh")

    def test_no_elf(self):
        self.check_fails("not an ELF file", __file__)
        self.check_fails("not an ELF file", self.dir)
        self.check_fails("No such file or directory", self.path("none"))
        self.check_fails("No such file or directory", "-d", self.path("none"),
                         "/bin/sh")
        self.write("empty", "")
        self.check_fails("not an ELF file", self.path("empty"))


class DamageTest(MadeTest):
    def damaged(self, data):
        path = self.path("damaged")
        with open(path, "wb") as file:
            file.write(data)
        done = run(path)     # asserts that no signal ended it
        if done.returncode:
            self.assertEqual(len(done.stderr.splitlines()), 2, done.stderr)

    def test_cut_files(self):
        with open(self.library(Build(41)), "rb") as file:
            data = file.read()
        for i in range(300):
            self.damaged(data[:len(data) * i // 300])

    def test_changed_bytes(self):
        rng = random.Random(42)
        self.tool("ar", "rc", "liblj.a", *self.objects(Build(42)))
        library = self.library(Build(42))
        for path in (library, self.path("liblj.a"), self.split(library)[1]):
            with open(path, "rb") as file:
                whole = file.read()
            # the headers, the DWARF behind the code, everything
            for begin in [0] * 40 + [len(whole) // 3] * 120:
                data = bytearray(whole)
                end = 400 if not begin else len(data)
                for _ in range(rng.choice((1, 4, 40))):
                    data[rng.randrange(begin, end)] = rng.randrange(256)
                self.damaged(data)


class CompareTest(MadeTest):
    def test_diff(self):
        one = self.library(Build(51), name="one.so")
        two = self.library(Build(51, cframe=96), name="two.so")
        done = run("--diff", one, two)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(lines[0], ["FIELD", "one.so", "two.so"])
        self.assertEqual(lines[1:], [
            ["cframe_size", "80", "96"], ["cf_prev", "32", "48"],
            ["cf_r14", "40", "56"], ["cf_rbx", "56", "72"],
            ["cf_rbp", "64", "80"], ["cf_ra", "72", "88"]])
        done = run("--diff", one, one)
        self.assertEqual((done.returncode, done.stdout), (
            0, f"{one} and {one} are equal in all {len(fields())} fields\n"))

    def test_check_of_an_unknown_build(self):
        self.check_fails("no entry has its marks: GC64, G2DISP",
                         "--check", self.library(Build(52)))

    def test_usage_errors(self):
        for args in ((), ("a", "b"), ("--diff", "a"), ("-x", "a"),
                     ("--diff", "-c", "a", "b"), ("-j", "-c", "a"), ("-d",),
                     ("-n", "x", "--diff", "a", "b"), ("-t", "x"),
                     ("-d", "x", "-t", "y", "z"), ("-c", "a", "b"),
                     ("-s", "x", "-c", "a")):
            done = run(*args)
            self.assertEqual((done.returncode, done.stdout), (2, ""), args)
            self.assertRegex(done.stderr,
                             r"\Alj-offsets: .*\nhint: .*\n\Z")

    def test_version(self):
        done = run("--version")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, f"lj-offsets {luabpf.__version__}\n", ""))


class TableTest(MadeTest):
    def test_no_such_column(self):
        self.check_fails("no column lj99", "-t", TABLE, "lj99")
        self.check_fails("No such file", "-t", self.path("none"), "x")

    def test_damaged_tables(self):
        with open(TABLE) as file:
            rows = file.read().splitlines()
        for name in ("lua_State.base", "E.BC_JMP", "D.SAVE_L",
                     "GCproto.SIZEOF"):
            for cell in ("", "x", "-", "99999999999999999999:4", "4;4"):
                text = "\n".join(
                    re.sub(r"\t[^\t]*", "\t" + cell, row)
                    if row.startswith(name + "\t") else row for row in rows)
                self.write("table", text)
                self.check_fails(name.rpartition("SAVE_L")[1] or
                                 re.sub(r"^E\.|\.SIZEOF$", "", name),
                                 "-t", self.path("table"), "lj205")
        self.write("table", "field\tx")
        self.check_fails("is missing", "-t", self.path("table"), "x")

    def test_header_is_what_the_generator_prints(self):
        with open(HEADER) as file:
            text = file.read()
        self.make_tree(text)
        done = self.update()
        self.assertEqual((done.returncode, done.stdout), (0, ""),
                         "stale: run make offsets")
        self.assertEqual(len(re.findall("column ", text)), 14)

    def make_tree(self, header):
        for folder in ("scripts", "bpf_c", "tests/data"):
            os.makedirs(self.path(folder))
        shutil.copy(os.path.join(luabpf.ROOT, "scripts", "update-offsets"),
                    self.path("scripts"))
        shutil.copy(TABLE, self.path("tests/data"))
        self.write("bpf_c/lj_offsets.h", header)

    def update(self, *args):
        return subprocess.run(
            [self.path("scripts/update-offsets"), *args], text=True,
            env=dict(os.environ, OUTPUT=OUTPUT), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)

    def header(self):
        with open(self.path("bpf_c/lj_offsets.h")) as file:
            return file.read()

    def test_update_keeps_the_rest(self):
        with open(HEADER) as file:
            text = file.read()
        self.make_tree(text)
        path = self.library(Build(61))
        entry = run(path).stdout
        self.assertEqual(self.update(path).returncode, 0)
        added = self.header()
        self.assertEqual(added.replace(entry, ""), text)
        self.assertTrue(added.index(entry) > text.rindex(".name"))
        # the same file again: no change; another of that name: in its place
        self.assertEqual(self.update(path).stdout, "")
        self.library(Build(62))
        self.assertEqual(self.update(path).returncode, 0)
        self.assertEqual(self.header().replace(run(path).stdout, ""), text)
        done = self.update("/bin/sh")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no debug info", done.stderr)


class TarantoolTest(MadeTest):
    def setUp(self):
        super().setUp()
        if not os.path.exists(TARANTOOL):
            self.skipTest("tarantool: not unpacked, see scripts/fetch-debs")

    def test_entry_is_right(self):
        done = run("--check", TARANTOOL)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, (
            f'{TARANTOOL}: entry "Tarantool 2.6.0, 32-bit references" is '
            f'right in all {len(fields())} fields\n'))

    def test_debug_info_equals_the_table(self):
        from_table = self.offsets_of("-t", TABLE, "deb-tarantool-2.6.0")
        self.assertEqual(self.offsets_of(TARANTOOL)["offsets"],
                         from_table["offsets"])

    def test_entry_that_is_wrong(self):
        # The table is built in: another build's debug info would not have
        # its marks, so a field of the debug info is damaged here.
        path = self.path("tarantool")
        self.tool("objcopy", "--decompress-debug-sections", TARANTOOL, path)
        with open(path, "rb") as file:
            data = file.read()
        data = data.replace(b"chunkname\0", b"chunkmane\0")
        with open(path, "wb") as file:
            file.write(data)
        self.check_fails("GCproto.chunkname is missing", "--check", path)


class StrippedTest(MadeTest):
    """A LuaJIT without debug info: what its code shows."""

    def setUp(self):
        super().setUp()
        for path in STRIPPED:
            done = run("--check", path) if os.path.exists(path) else None
            if done and "no debug info; entry" in done.stdout:
                self.original = path
                break
        else:
            self.skipTest("luajit: none without debug info is here")
        with open(self.original, "rb") as file:
            self.data = file.read()

    def changed(self, old, new):
        """The path of a copy with other code, and how often it was found."""
        n = self.data.count(old)
        path = self.path("changed")
        with open(path, "wb") as file:
            file.write(self.data.replace(old, new))
        return path, n

    def test_check(self):
        done = run("--check", self.original)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, (
            r'\A.*: no debug info; entry "[^"]+, GC64" agrees with its code '
            rf'in all \d\d\d fields that it shows, of {len(fields())}\n\Z'))

    def test_print(self):
        data = self.offsets_of(self.original)
        self.assertEqual(len(data["offsets"]), len(fields()))
        self.assertRegex(data["source"][0], r"\Acode of .*, no debug info\Z")
        self.assertRegex(data["source"][2], (
            r"\A\d+ fields from its machine code, \d+ from the entry with its "
            r"marks\Z"))
        text = run(self.original).stdout
        with open(HEADER) as file:
            entry = text.partition("\t */\n")[2]
            self.assertTrue(entry)
            self.assertIn(entry, file.read())

    def test_entry_that_is_wrong(self):
        # BC_FUNCC: mov r15, [rbp + 40]; mov rbp, [rsp + 16]
        path, n = self.changed(b"\x4c\x8b\x7d\x28\x48\x8b\x6c\x24\x10",
                               b"\x4c\x8b\x7d\x30\x48\x8b\x6c\x24\x10")
        self.assertGreater(n, 0)
        done = run("--check", path)
        self.assertEqual(done.returncode, 1)
        self.assertEqual([line.split() for line in done.stdout.splitlines()],
                         [["FIELD", "ENTRY", "CODE"], ["fn_f", "40", "48"]])
        self.assertRegex(done.stderr, (
            r"\Alj-offsets: .*: no debug info; entry .* differs from its code "
            r"in 1 of \d+ fields\nhint: .*\n\Z"))
        self.check_fails("differ", path)

    def test_no_entry(self):
        # add r14, G2DISP: all that is below the dispatch table moves
        g2disp = self.offsets_of(self.original)["offsets"]["g2disp"]
        old = b"\x49\x81\xc6" + g2disp.to_bytes(4, "little")
        path, n = self.changed(old, b"\x49\x81\xc6" +
                               (g2disp + 8).to_bytes(4, "little"))
        self.assertGreater(n, 3)
        done = run("-j", path)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, (
            r"\Alj-offsets: .*: no debug info, and \d+ of \d+ fields are not "
            r"known: no entry has its marks\nhint: .*\n\Z"))
        data = json.loads(done.stdout)
        self.assertEqual(data["offsets"]["g2disp"], g2disp + 8)
        self.assertNotIn("pt_lineinfo", data["offsets"])
        self.assertGreater(len(data["offsets"]), 95)
        self.assertIn("no entry has its marks", data["source"][2])
        self.assertIn("left out", data["source"][3])
        done = run("--check", path)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no entry has its marks: GC64, G2DISP", done.stderr)

    def test_header_takes_none_of_it(self):
        done = subprocess.run(
            [os.path.join(luabpf.ROOT, "scripts", "update-offsets"),
             self.original], text=True, env=dict(os.environ, OUTPUT=OUTPUT),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no debug info in it", done.stderr)


class DocsTest(unittest.TestCase):
    def options(self):
        text = run("--help").stdout.partition("options:")[2]
        text = text.partition("examples:")[0]
        found = re.findall(r"^ {2,6}(-.*?)(?: {2,}|$)", text, re.M)
        return sorted(set(re.findall(r"--?[a-zA-Z][-\w]*", " ".join(found))))

    def test_man_page_has_the_options(self):
        with open(os.path.join(luabpf.ROOT, "man/man8/lj-offsets.8")) as file:
            text = file.read().replace("\\-", "-")
        options = self.options()
        self.assertIn("--diff", options)
        section = text.partition(".SH OPTIONS")[2].partition(".SH ")[0]
        named = set(re.findall(r"(?<![\w-])--?[a-zA-Z][-\w]*", section))
        self.assertEqual(sorted(named), options)

    def test_example_file_ends_with_help_text(self):
        path = os.path.join(luabpf.ROOT, "tools", "lj-offsets_example.txt")
        with open(path) as file:
            _, mark, usage = file.read().partition("\nUSAGE message:\n\n")
        self.assertTrue(mark, "no line 'USAGE message:'")
        self.assertEqual(usage, run("--help").stdout, "stale: run make docs")

    def test_help_fits_the_screen(self):
        for line in run("--help").stdout.splitlines():
            self.assertLess(len(line), 80)


if __name__ == "__main__":
    unittest.main()
