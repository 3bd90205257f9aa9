# SPDX-License-Identifier: Apache-2.0
"""The known-answer programs and their legal call graphs, as data.

One entry a program: how to start it, what may call what, and which functions
have shares that it measures itself. Read the edges beside the script in
tests/lua: they are written from the source, not from what the tool printed.

What every graph takes for granted is written once below, with its reason.
"""
import dataclasses
import os
import re
from typing import Callable, Dict, FrozenSet, List, Optional, Tuple

from stackgraph import FrameClass, Graph, script_functions

LUA_DIR = os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "lua")


@dataclasses.dataclass(frozen=True)
class Flavor:
    """How a program holds LuaJIT: what its frames are called."""

    name: str
    lj_file: str  # file of the VM as [file+0x...] shows it; "" if not stripped
    root: str     # edges from the root to the main chunk
    clock: str    # what the script's clock() is
    builds: Tuple[str, ...] = ("luajit2", "upstream", "texlua")
    truth: str = "./truth.lua"  # its chunk


# In these builds lua_call and lua_resume enter the VM by a jump: they are no
# frame under the Lua function that they call, only a leaf for an instruction
# or two. lua_pcall and lua_cpcall do call.

# From _start to the main chunk. The luajit command is stripped: pmain and
# docall are its two internal functions between lua_cpcall and lua_pcall.
TEXLUA_FILE = "libtexluajit.so.2.1.0"

CLI = Flavor("cli", "luajit", """
ROOT > ^_start
^_start > ~libc_start
~libc_start > ~libc_call_main
~libc_call_main > ^main
^main > ^lua_cpcall#root
^lua_cpcall#root > ~pmain
~pmain > ~docall
~docall > ^lua_pcall#root
^lua_pcall#root > main
""", "$os.clock", ("luajit2", "upstream", "texlua", "tarantool"))

# Static and not stripped. A script runs in a fiber, which has a stack of its
# own.
TARANTOOL = Flavor("tarantool", "", """
ROOT > ^coro_init
^coro_init > ^fiber_loop
^fiber_loop > ~fiber_invoke
~fiber_invoke > ^run_script_f
^run_script_f > ^lua_main
^lua_main > ^luaT_call
^luaT_call > ^lua_pcall#root
^lua_pcall#root > main
""", "$os.clock", truth=os.path.join(LUA_DIR, "truth.lua"))

HOST_ROOT = """
ROOT > ^_start
^_start > ~libc_start
~libc_start > ~libc_call_main
~libc_call_main > ^main
^main > ^host_run
^host_run > ^lua_pcall#root
^lua_pcall#root > main
"""
HOST = Flavor("host", "libluajit-5.1.so.2.1.0", HOST_ROOT, "!c_clock")
# Linked with Debian's libluajit-5.1.a, so there is one build only.
STATIC = Flavor("static", "", HOST_ROOT, "!c_clock", ("luajit2",))
# musl has no unwind tables: the walk reaches main's caller and says so. A leaf
# in musl itself is skipped where a VM's C frame is below, and else all there
# is (~vm right above the mark).
MUSL = Flavor("musl", "", """
ROOT > ~no_row
~no_row > ~musl_start ~vm
~musl_start > ^main
^main > ^host_run
^host_run > ^lua_pcall#root
^lua_pcall#root > main
main go report > ~skipped
~skipped > ~vm
""", "!c_clock", ("luajit2",))
MUSL_NATIVE = Flavor("musl-native", "", """
ROOT > ~no_row
~no_row > ~musl_start ~vm
~musl_start > ^main
""", "", ("luajit2",))
THREADS = Flavor("threads", HOST.lj_file, "", "!c_clock")
NESTED = Flavor("nested", HOST.lj_file, HOST_ROOT, "!c_clock")

# Beside its work, each script asks the clock and writes truth lines.
TRUTH = """
main > go add CLOCK
go > CLOCK report $os.time
report > $string.format $io.write
"""


@dataclasses.dataclass(frozen=True)
class Names:
    """Symbols of the files on this machine (see harness.native_names)."""

    libc: FrozenSet[str]    # libc, libm, libgcc_s, the dynamic linker, vdso
    luajit: FrozenSet[str]  # internal functions, where they have names


@dataclasses.dataclass(frozen=True)
class Program:
    """One situation: a script in a host, its graph, its own truth."""

    name: str
    flavor: Flavor
    edges: str
    script: str = ""   # default: NAME.lua
    args: Tuple[str, ...] = ()  # {dir}: a folder of this run
    binary: str = ""   # of tests/progs; "" is the luajit command
    # classes of this program only
    classes: Dict[str, FrameClass] = dataclasses.field(default_factory=dict)
    # Lua functions that the script does not mark: id -> text
    texts: Dict[str, str] = dataclasses.field(default_factory=dict)
    # more scripts with marks: file -> chunk
    more: Tuple[str, ...] = ()
    # label of the program's truth -> frame that stands for it
    shares: Dict[str, str] = dataclasses.field(default_factory=dict)
    # label -> frame of the thread whose samples it is a share of: how much
    # each thread runs is up to the scheduler
    within: Dict[str, str] = dataclasses.field(default_factory=dict)
    extra: Optional[Callable[[List[str], bool], Optional[str]]] = None
    ready: int = 1     # lines "ready": one a thread
    modes: Tuple[bool, ...] = (True, False)  # JIT on, off
    complete: bool = True  # must reach the root
    # samples a second; less where one costs so much that it shifts shares: 200
    # frames deep, or each stack a new one, some 30 us
    rate: int = 1999
    warm: float = 0.5  # CPU seconds until its shares stay as they are
    beside: str = ""   # another program that must be sampled with it

    def of_build(self, build: str) -> "Program":
        """This program as it is run on a build: TeX's has no command."""
        if build == "tarantool":
            return dataclasses.replace(self, flavor=TARANTOOL)
        if build != "texlua":
            return self
        flavor = HOST if self.flavor is CLI else self.flavor
        return dataclasses.replace(
            self, flavor=dataclasses.replace(flavor, lj_file=TEXLUA_FILE),
            binary=self.binary or "host", script=self.lua)

    @property
    def lua(self) -> str:
        return self.script or self.name + ".lua"

    def texts_of_scripts(self) -> Dict[str, str]:
        texts = {}
        if self.flavor is MUSL_NATIVE:
            return texts
        for script in ("truth.lua",) + self.more + (self.lua,):
            chunk = self.flavor.truth if script == "truth.lua" else script
            path = os.path.join(LUA_DIR, script)
            texts.update(script_functions(path, chunk))
        texts.update(self.texts)
        return texts

    def graph(self, jit: bool, names: Names) -> Graph:
        edges = self.flavor.root
        if self.flavor.clock:
            # threads.lua runs in three roles, see there
            edges += "" if self.flavor.name == THREADS.name else TRUTH
        edges = (edges + self.edges).replace("CLOCK", self.flavor.clock)
        classes = dict(common_classes(self.flavor, names), **self.classes)
        used = {re.sub(r"#.*", "", w) for w in edges.split()
                if w.startswith("~")}
        classes = {k: v for k, v in classes.items()
                   if k in used or k == "~vm"}
        # With the JIT on, a hot call or loop enters the compiler from any Lua
        # function; with it off, a Lua function reaches C code of the VM only
        # by instructions that need it, and its graph says so (f > ~vm).
        kinds = ("lua", "fast", "host") if jit else ("fast", "host")
        return Graph(self.name, self.texts_of_scripts(), classes, edges,
                     "~vm", kinds)


def exact(*texts: str, why: str) -> FrameClass:
    return FrameClass("|".join(map(re.escape, texts)), why, texts)


def common_classes(flavor: Flavor, names: Names) -> Dict[str, FrameClass]:
    """Classes that graphs share; unused ones are dropped."""
    api = r"lua_[a-z]\w*|luaL_[a-z]\w*|luaJIT_\w+|luaopen_\w+"
    if flavor.lj_file:
        internal = r"\[%s\+0x[0-9a-f]+\]" % re.escape(flavor.lj_file)
        example = "[%s+0x1a2b0]" % flavor.lj_file
    else:
        internal, example = r"lj_[a-z]\w*", "lj_cf_string_gsub"
    libc_file = r"\[(libc|libm)\.so\.6\+0x[0-9a-f]+\]"

    def lj(why: str, least: int = 1, most: int = 1) -> FrameClass:
        return FrameClass(internal, why, (example,), least, most,
                          names=names.luajit)

    return {
        "~vm": FrameClass(
            "|".join((internal, api, libc_file,
                      r"\[(libgcc_s\.so\.1|ld-linux-x86-64\.so\.2|vdso)"
                      r"\+0x[0-9a-f]+\]")),
            "leaf work in C that the VM does for a Lua or C function "
            "(allocation, GC, lookup, compiler, unwinder): internal functions "
            "of the stripped library and what they call in libc, libm and "
            "libgcc; how deep is not ours to say", (example, "lua_gettop"),
            1, 0, names=names.libc | names.luajit),
        "~libc_start": FrameClass(
            r"__libc_start_main(_impl)?(@@?GLIBC_[0-9.]+)?",
            "one function, several symbols; which one is seen depends on "
            "whether libc's debug symbols are installed",
            ("__libc_start_main", "__libc_start_main_impl")),
        "~libc_call_main": FrameClass(
            r"__libc_start_call_main|\[libc\.so\.6\+0x[0-9a-f]+\]",
            "a local function of libc: named only with its debug symbols",
            ("__libc_start_call_main", "[libc.so.6+0x271c0]")),
        "~fiber_invoke": FrameClass(
            r"fiber_cxx_invoke\(.*\)", "C++, with its arguments",
            ("fiber_cxx_invoke(int (*)(__va_list_tag*), __va_list_tag*)",)),
        "~pmain": lj("pmain of the luajit command, stripped"),
        "~docall": lj("docall of the luajit command, stripped"),
        "~musl_start": FrameClass(
            r"__libc_start_main|libc_start_main_stage2|\[\w+\+0x[0-9a-f]+\]",
            "musl enters main by a tail call of a static function",
            ("libc_start_main_stage2",)),
        "~no_row": exact("[failed:no-row]",
                         why="musl is built without unwind tables"),
        "~skipped": exact("[skipped]", why="musl is built without unwind "
                          "tables, C frames above them are not found"),
        "~wrap": FrameClass(
            r"(coroutine\.wrap_aux|builtin#\d+)@\[builtin\]",
            "what coroutine.wrap returns is a fast function that lies in no "
            "table, so its number may be all that is known",
            ("builtin#42@[builtin]",), inlined=True),
        "~ffi": FrameClass(
            r"(ffi\.[\w.]+|__call|__index|__newindex|builtin#\d+)"
            r"@\[builtin\]",
            "metamethods of cdata and C libraries lie in metatables that "
            "have no name",
            ("builtin#150@[builtin]",), inlined=True),
        "~iomethod": FrameClass(
            r"(io\.[\w.:]+|file[.:]\w+|builtin#\d+)@\[builtin\]",
            "methods of files lie in a metatable of the registry",
            ("builtin#120@[builtin]",), inlined=True),
        "~iter": FrameClass(
            r"(ipairs_aux|ipairs_gen|builtin#\d+)@\[builtin\]",
            "the iterator of ipairs is in no table",
            ("builtin#8@[builtin]",), inlined=True),
        "~ffi_c": lj("lj_ccall_func and lj_vm_ffi_call between the fast "
                     "function of a cdata call and the C function", 1, 3),
        "~gsub_c": lj("lj_cf_string_gsub and what it inlined", 1, 3),
        "~sort_c": lj("auxsort, which recurses about log2(n) deep, and the "
                      "comparison that calls Lua", 1, 16),
        "~load_c": FrameClass(
            "|".join((internal, api)),
            "load, lua_loadx, the parser and lexer (it recurses with the "
            "nesting of the source) and the reader that calls Lua",
            (example, "lua_loadx"), 1, 16, names=names.luajit),
        "~require_c": FrameClass(
            "|".join((internal, api)),
            "lj_cf_package_require is static; it calls by lua_call",
            (example, "lua_call"), 1, 3, names=names.luajit),
        "~err_c": FrameClass(
            internal + "|lua_error",
            "from the throwing function (error leaves to lua_error by a "
            "jump) to lj_err_run, which calls the error handler",
            (example, "lua_error"), 1, 8, names=names.luajit),
        "~gc_c": FrameClass(
            "|".join((internal, api)),
            "from the allocation or lua_gc through lj_gc_step to the call of "
            "a finalizer", (example, "lua_gc"), 1, 10, names=names.luajit),
        "~sigreturn": FrameClass(
            r"__restore_rt|\[libc\.so\.6(\+0x[0-9a-f]+)?\]",
            "the frame the kernel makes for a handler: a local symbol of "
            "libc; its FDE ends at the system call",
            ("__restore_rt", "[libc.so.6+0x3c050]")),
        "~qsort": FrameClass(
            r"\[libc\.so\.6\+0x[0-9a-f]+\]",
            "qsort, qsort_r and the merge sort that recurses log2(16) deep",
            ("[libc.so.6+0x3fde0]",), 1, 10,
            names=frozenset(n for n in names.libc
                            if re.search(r"sort", n)) | {"qsort"}),
        "~clone": FrameClass(
            r"(__)?clone3?|\[libc\.so\.6\+0x[0-9a-f]+\]",
            "root of a thread; a local symbol of libc",
            ("__clone3", "[libc.so.6+0x108b10]")),
        "~start_thread": FrameClass(
            r"start_thread|\[libc\.so\.6\+0x[0-9a-f]+\]",
            "a local function of libc: named only with its debug symbols",
            ("start_thread", "[libc.so.6+0x89000]")),
    }


def libc_function(name: str, why: str = "") -> FrameClass:
    """A function of libc under any of its aliases."""
    return FrameClass(
        r"(__)?(GI_)?(_*libc_)?_*%s(64)?|\[libc\.so\.6\+0x[0-9a-f]+\]" % name,
        why or "one function of libc with several symbols", (name,))


def same_number(frames: List[str], jit: bool) -> Optional[str]:
    """loadchurn: all frames of one piece are of the same piece."""
    numbers = set(re.findall(r"(?:_|@piece)(\d+)(?=[@:])", ";".join(frames)))
    if len(numbers) > 1:
        return "frames of several pieces: %s" % sorted(numbers)
    return None


def two_hundred_deep(frames: List[str], jit: bool) -> Optional[str]:
    """recurse: bottom is called from the 200th deep, no more, no less."""
    deep = sum(f.startswith("deep@") for f in frames)
    bottom = any(f.startswith("bottom@") for f in frames)
    if deep > 200 or (bottom and deep != 200):
        return "%d frames of deep above bottom" % deep
    return None


PROGRAMS: List[Program] = [
    Program("interp", CLI, """
main > outer
outer > middle
middle > left right
left > leaf
right > leaf
""", shares={"outer": "outer"}),

    # The bodies are equal, so loop counts say 60, 30, 10 % as well.
    Program("shares", CLI, "main > f600 f300 f100",
            shares={"f600": "f600", "f300": "f300", "f100": "f100"}),

    Program("traces", CLI, """
main > inlined nested branchy spills
inlined > curve
curve > poly
poly > square
branchy > square
spills > square
""", warm=1.5,  # until then spills has no side trace, and takes 21, not 6 %
            shares={"inlined": "inlined", "nested": "nested",
                    "branchy": "branchy", "spills": "spills"}),

    # What is inlined, with its own shares in test_traces.py. A tail call takes
    # its caller's frame.
    Program("inlined", CLI, """
main > measure
measure > go add CLOCK case_three case_branch case_tail case_method
measure > case_closure case_ipairs case_pairs case_iterator case_string
measure > case_struct case_recursion case_meta case_module
case_three > three_f
three_f > three_g
three_g > three_h
case_branch > choose
choose > odd even
case_tail > tail_begin tail_end
case_method > method_one method_three $setmetatable ~vm
case_closure > counter
case_ipairs > visit $ipairs ~iter
case_pairs > visit $pairs $next
case_iterator > visit iterate
case_string > word
word > letter $string.byte ~vm                           # concatenation
letter > $string.char
case_struct > move turn ~ffi#index
move turn > ~ffi#index ~vm
~ffi#index > ~vm
case_recursion > recurse
recurse > recurse
case_meta > mm_index mm_add $setmetatable ~vm            # {}
mm_index > $rawget
case_module > module_outer
module_outer > module_inner $select
""", modes=(True,), shares={
        n: "case_" + n for n in (
            "three", "branch", "tail", "method", "closure", "ipairs", "pairs",
            "iterator", "string", "struct", "recursion", "meta", "module")}),

    # A fast function writes its results over its own function slot, and is
    # nameless from there to its end: hence `> ~vm` for callers of those that
    # have work left to do then (modf, tonumber).
    #
    # `%` and floor stay in the VM (no frame of their own), pow is libm's.
    Program("helpers", CLI, """
main > modulo floors powers libm
floors > $math.floor $math.ceil
powers > ~vm
libm > $math.sin $math.exp $math.log $math.fmod $math.modf ~vm
""", shares={"modulo": "modulo", "floors": "floors", "powers": "powers",
             "libm": "libm"}),

    Program("fast", CLI, """
main > strings numbers tables iterate
strings > $string.char $string.byte $string.sub $string.reverse
strings > $string.upper $string.find $string.rep ~vm    # ~vm: concatenation
numbers > $math.abs $math.max $math.sqrt $tonumber $tostring ~vm
tables > $table.insert $table.concat $table.remove $rawset $rawget $select
tables > ~vm                                             # {}
iterate > $pairs $ipairs $next ~iter $setmetatable $getmetatable $type
iterate > ~vm                                            # {}
""", shares={"strings": "strings", "numbers": "numbers", "tables": "tables",
             "iterate": "iterate"}),

    # The VM calls a metamethod itself: no C frame between. It finds it in C,
    # so each user has leaf frames there. tostring replaces itself by
    # __tostring, and a called table by its __call.
    Program("meta", CLI, """
main > use_index use_arith use_compare use_concat use_call use_tostring
use_index > mm_index mm_newindex ~vm
use_arith > mm_add mm_unm mm_len ~vm
use_compare > mm_eq mm_lt mm_le ~vm
use_concat > mm_concat ~vm
use_call > mm_call ~vm
use_tostring > $tostring mm_tostring
mm_index mm_newindex mm_add mm_unm mm_eq mm_lt mm_le mm_concat > body
mm_call mm_tostring mm_len > body
mm_concat mm_tostring > ~vm                              # concatenation
""", shares={n: n for n in ("use_index", "use_arith", "use_compare",
                            "use_concat", "use_call", "use_tostring")}),

    Program("callbacks", CLI, """
main > run_gsub run_sort run_require run_load
run_gsub > $string.gsub
$string.gsub > ~gsub_c
~gsub_c > replace
replace > spin
run_sort > $table.sort ~vm                               # {}
$table.sort > ~sort_c
~sort_c > before
before > spin
run_require > ~require_c ~vm  # require is a C function without an ffid
~require_c > searcher loader ~vm
searcher > spin
loader > spin ~vm                                        # { name = name }
run_load > $load main#pieces
$load > ~load_c
~load_c > reader
reader > spin
main#pieces > ~vm
""", texts={"main#pieces": "main@pieces:0"}, shares={
        n: n for n in ("run_gsub", "run_sort", "run_require", "run_load")}),

    Program("ffi", CLI, """
main > call_libc call_libm call_back
call_libc > ~ffi $tonumber
call_libm > ~ffi
call_back > ~ffi
~ffi > ~ffi_c ~vm
~ffi_c > ~strlen ~abs ~cbrt ~qsort
call_libc => ~strlen ~abs     # from a trace, without lj_vm_ffi_call
call_libm => ~cbrt
~qsort > compare ~vm          # ~vm: entering and leaving the callback
compare > weigh ~ffi#index
~ffi#index > ~vm
call_libc call_libm call_back compare > ~vm              # cdata
""", classes={
        "~strlen": FrameClass(
            r"__strlen\w*|strlen|\[libc\.so\.6\+0x[0-9a-f]+\]",
            "strlen has one implementation a CPU, chosen at load time",
            ("__strlen_avx2",)),
        "~abs": libc_function("abs"),
        "~cbrt": FrameClass(r"(__)?cbrt\w*|\[libm\.so\.6\+0x[0-9a-f]+\]",
                            "one function, several symbols", ("cbrt",)),
    }, shares={n: n for n in ("call_libc", "call_libm", "call_back")}),

    # A coroutine's frames end at its resume; the resumer's stand below.
    Program("coro", CLI, """
main > run_resume run_wrap run_generator
run_resume > $coroutine.create $coroutine.resume
$coroutine.resume > resumed
resumed > spin $coroutine.yield
run_wrap > $coroutine.wrap ~wrap#1
~wrap#1 > level1 ~vm
level1 > $coroutine.wrap spin ~wrap#2 $coroutine.yield
~wrap#2 > level2 ~vm
level2 > $coroutine.wrap spin ~wrap#3 $coroutine.yield
~wrap#3 > level3 ~vm
level3 > spin $coroutine.yield
run_generator > $coroutine.wrap ~wrap#4 ~vm              # ~vm: a closure
~wrap#4 > start ~vm
start > generator
generator > spin $coroutine.yield
""", shares={n: n for n in ("run_resume", "run_wrap", "run_generator")}),

    # A tail call takes its caller's frame away: run_tail calls all three.
    Program("vararg", CLI, """
main > run_vararg run_tail run_loop
run_vararg > va_middle
va_middle > va_leaf
va_leaf > $select spin
run_tail > tail1 tail2 tail3
tail2 > spin
tail3 > spin
run_loop > tail_loop
tail_loop > spin
""", shares={n: n for n in ("run_vararg", "run_tail", "run_loop")}),

    # Whoever allocates may run a finalizer of anybody's garbage.
    Program("gc", CLI, """
main > allocate use_proxies use_boxes full
allocate > ~vm
use_proxies > $newproxy ~vm
use_boxes > $ffi.gc $ffi.new ~vm
full > $collectgarbage
allocate use_proxies use_boxes $newproxy $ffi.gc $ffi.new > ~gc_c
$collectgarbage report $string.format go main > ~gc_c
~gc_c > final_userdata final_cdata
final_userdata > spin
final_cdata > spin
""", shares={n: n for n in ("allocate", "use_proxies", "use_boxes", "full")}),

    Program("compiler", CLI, """
main > churn bits types
churn > $jit.flush bits types
types > ~vm                                              # { 1, "2", ... }
""", shares={"churn": "churn"}),

    Program("loadchurn", CLI, """
main > piece $collectgarbage
piece > $string.format $loadstring ~chunk ~vm            # "=piece" .. n
~chunk > ~two ~vm                                        # ~vm: closures
~two > ~one
""", classes={
        "~chunk": FrameClass(r"main@piece\d+:0", "each piece has a number",
                             ("main@piece7:0",), inlined=True),
        # A piece lives for microseconds: that a name is gone is no defect, a
        # wrong one is (same_number).
        "~one": FrameClass(r"(one_\d+|\?)@piece\d+:2",
                           "each piece has a number", ("one_7@piece7:2",),
                           inlined=True),
        "~two": FrameClass(r"(two_\d+|\?)@piece\d+:6",
                           "each piece has a number", ("two_7@piece7:6",),
                           inlined=True),
    }, extra=same_number, shares={"piece": "piece"}),

    Program("syscalls", CLI, """
main > do_read do_write do_getppid do_file
do_read do_write do_getppid do_file > ~vm       # C.name, file:read: lookups
do_read > ~ffi#read
~ffi#read > ~ffi_c#read ~vm
~ffi_c#read > ~read
do_read => ~read
do_write > ~ffi#write
~ffi#write > ~ffi_c#write ~vm
~ffi_c#write > ~write
do_write => ~write
do_getppid > ~ffi#getppid
~ffi#getppid > ~ffi_c#getppid ~vm
~ffi_c#getppid > ~getppid
do_getppid => ~getppid
do_file > ~iomethod
~iomethod > ~vm
""", classes={"~read": libc_function("read"),
              "~write": libc_function("write"),
              "~getppid": libc_function("getppid")}, shares={
        n: n for n in ("do_read", "do_write", "do_getppid", "do_file")}),

    Program("recurse", CLI, """
main > run_deep run_fib
run_deep > deep
deep > deep bottom
run_fib > fib
fib > fib
""", extra=two_hundred_deep, rate=499,
            shares={"run_deep": "run_deep", "run_fib": "run_fib"}),

    Program("chunks", CLI, """
main > semicolon newline escape invalid utf8 space source ~long stripped
""", texts={
        "semicolon": r"f_semicolon@a\x3bb:1",
        "newline": r"f_newline@dir/a\x0ab.lua:1",
        "escape": r"f_escape@\x1b[2Jred\x07:1",
        "invalid": r"f_invalid@\xff\xfex\xc0:1",
        "utf8": "f_utf8@\u00fcber.lua:1",
        "space": "f_space@a b 12:1",
        "source": 'f_source@[string "function f_source(n)..."]:1',
        "stripped": "f_stripped@stripped:0",
    }, classes={"~long": FrameClass(
        r"""f_long@\[string "local padding = 'x+\.\.\."\]:2""",
        "the first line is longer than what is kept of it",
        ("f_long@[string \"local padding = 'xxx...\"]:2",), inlined=True)},
        shares={"semicolon": "semicolon", "newline": "newline",
                "escape": "escape", "invalid": "invalid", "utf8": "utf8",
                "space": "space", "source": "source", "long": "~long",
                "stripped": "stripped"}),

    Program("naming", CLI, """
main > plain M.field obj:method global_function assigned inner
""", shares={n: n for n in ("plain", "M.field", "obj:method", "assigned",
                            "global_function", "inner")}),
]

CFUNC = """
main > only_c by_call by_pcall by_cpcall by_resume two_deep
only_c > !c_spin
!c_spin > ^spin
by_call > !c_call
!c_call > called ^lua_call
called > spin !c_spin
by_pcall > !c_pcall#1
!c_pcall#1 > ^lua_pcall#1
^lua_pcall#1 > pcalled
pcalled > spin
by_cpcall > !c_cpcall
!c_cpcall > ^lua_cpcall
^lua_cpcall > !cpcall_body ~vm    # ~vm: cpcall, which makes the C function
!cpcall_body > cpcalled ^lua_call#2
cpcalled > spin
by_resume > !c_resume
!c_resume > resumed ^lua_resume
resumed > spin $coroutine.yield
two_deep > !c_pcall#2
!c_pcall#2 > ^lua_pcall#2
^lua_pcall#2 > between
between > spin !c_call#3
!c_call#3 > innermost ^lua_call#3
innermost > spin
"""
CFUNC_SHARES = {n: n for n in ("only_c", "by_call", "by_pcall", "by_cpcall",
                               "by_resume", "two_deep")}

# An error handler runs on top of the function that threw. Without a handler
# the unwinder works there, then the frames are gone.
ERRORS = """
main > run_pcall run_xpcall run_traceback run_vm_error run_through_c
main > run_c_xpcall
run_pcall > $pcall#1
$pcall#1 > thrower#1
thrower#1 > spin $error#1
run_xpcall > $xpcall#2
$xpcall#2 > thrower#2
thrower#2 > spin $error#2
$error#2 > ~err_c#2
~err_c#2 > handler
handler > spin
run_traceback > $xpcall#3
$xpcall#3 > thrower#3
thrower#3 > spin $error#3
$error#3 > ~err_c#3
~err_c#3 > $debug.traceback
run_vm_error > $xpcall#4
$xpcall#4 > bad_arith
bad_arith > spin ~err_c#4 ~vm                            # ~vm: lj_meta_arith
~err_c#4 > arith_handler
arith_handler > spin
run_through_c > $pcall#5
$pcall#5 > passes
passes > !c_call
!c_call > throws_in_c#5 ^lua_call
throws_in_c#5 > spin !c_error#5
!c_error#5 > ^lua_error#5
^lua_error#5 > ~vm
# While the unwinder goes through C frames, LuaJIT has already taken the Lua
# frames above each of them off its stack; the C frames are still there.
passes > !c_call#u
$pcall#5 > !c_call#u
!c_call#u > !c_error#u
!c_error#u > ^lua_error#u
^lua_error#u > ~vm
run_c_xpcall > !c_xpcall
!c_xpcall > ^lua_pcall
^lua_pcall > throws_in_c#6 !c_error#u
throws_in_c#6 > spin !c_error#6
!c_error#6 > ^lua_error#6
^lua_error#6 > ~vm ~err_c#6
~err_c#6 > c_handler
c_handler > spin
"""
ERRORS_SHARES = {n: n for n in ("run_pcall", "run_xpcall", "run_traceback",
                                "run_vm_error", "run_through_c",
                                "run_c_xpcall")}

# Two Lua functions that share every native frame.
SPLIT = """
main > dispatch
dispatch > !c_call
!c_call > seventy thirty ^lua_call
"""
SPLIT_SHARES = {"seventy": "seventy", "thirty": "thirty"}


def role(number: int, edges: str) -> str:
    """Edges of one thread: every node carries the thread's number."""
    return re.sub(r"[^\s>]+", lambda w: "%s#%d" % (w.group(0), number)
                  if w.group(0) not in ("ROOT", "~vm") else w.group(0), edges)


def thread(number: int, entry: str, edges: str) -> str:
    return role(number, """
ROOT > ~clone
~clone > ~start_thread
~start_thread > ^ENTRY
^ENTRY > ^run_thread
^run_thread > ^host_run
^host_run > ^lua_pcall
^lua_pcall > main
""".replace("ENTRY", entry) + TRUTH.replace("CLOCK", "!c_clock") + edges)


# Any frame of alarm.lua can be interrupted, whatever it is just then.
INTERRUPTED = ("main go add report in_lua in_c through_c below !c_spin ^spin "
               "!c_call ^lua_call ~vm $os.time $string.format $io.write "
               "!c_clock")

PROGRAMS += [
    Program("cfunc", HOST, CFUNC, binary="host", shares=CFUNC_SHARES),
    Program("errors", HOST, ERRORS, binary="host", shares=ERRORS_SHARES),
    Program("split", HOST, SPLIT, binary="host", shares=SPLIT_SHARES),

    Program("alarm", HOST, """
main > in_lua in_c through_c
in_c > !c_spin
!c_spin > ^spin
through_c > !c_call
!c_call > below ^lua_call
%s > ~sigreturn
~sigreturn > ^on_alarm
^on_alarm > ^alarm_work
""" % INTERRUPTED, binary="host", args=("-alarm",)),

    Program("threads", THREADS, thread(1, "first_thread", """
main > one
one > one_inner
one_inner > spin
""") + thread(2, "second_thread", """
main > two
two > !c_call
!c_call > two_inner ^lua_call
two_inner > spin
""") + thread(3, "third_thread", """
main > three
three > $coroutine.wrap ~wrap
~wrap > three_body ~vm
three_body > spin $coroutine.yield
"""), binary="threads", ready=3,
            shares={"t1.one": "one#1", "t2.two": "two#2",
                    "t3.three": "three#3"},
            within={"t1.one": "first_thread", "t2.two": "second_thread",
                    "t3.three": "third_thread"}),

    # VM A > B > C, and A > C.
    Program("nested", NESTED, """
main > outer_a !in_c#1
outer_a > spin_a !in_b !c_clock
!in_b > !call_global#b
!call_global#b > work_b ^lua_call#b
work_b > spin_b !in_c#2
!in_c#1 > !call_global#1
!call_global#1 > work_c#1 ^lua_call#1
!in_c#2 > !call_global#2
!call_global#2 > work_c#2 ^lua_call#2
work_c#1 work_c#2 > spin_c
""", script="nested_a.lua", more=("nested_b.lua", "nested_c.lua"),
            binary="nested", shares={"outer_a": "outer_a",
                                     "in_b": "!in_b"}),

    # The same VM twice in one thread, another between: A > B > A > C.
    Program("reentered", NESTED, """
main > outer_a !in_c#1
outer_a > spin_a !in_b !c_clock
!in_b > !call_global#b
!call_global#b > work_b ^lua_call#b
work_b > spin_b !in_a
!in_a > !call_global#a
!call_global#a > work_a ^lua_call#a
work_a > spin_a !in_c#2
!in_c#1 > !call_global#1
!call_global#1 > work_c ^lua_call#1
!in_c#2 > !call_global#2
!call_global#2 > work_c ^lua_call#2
work_c > spin_c
""", script="nested_a.lua", more=("nested_b.lua", "nested_c.lua"),
            binary="nested", args=("-reenter",),
            shares={"outer_a": "outer_a"}),

    Program("static-cfunc", STATIC, CFUNC, "cfunc.lua", binary="host_static",
            shares=CFUNC_SHARES),
    Program("static-errors", STATIC, ERRORS, "errors.lua",
            binary="host_static", shares=ERRORS_SHARES),
    Program("musl-split", MUSL, SPLIT, "split.lua", binary="host_musl",
            shares=SPLIT_SHARES, complete=False),
    Program("musl-native", MUSL_NATIVE, """
^main > ^run
^run > ^work_a ^work_b ~vm
^work_a > ^inner
^work_b > ^inner
""", binary="musl_native", modes=(True,), complete=False,
            beside="split",  # alone it is refused: no LuaJIT
            shares={"work_a": "^work_a", "work_b": "^work_b"}),
]


def by_name(name: str) -> Program:
    return next(p for p in PROGRAMS if p.name == name)
