# SPDX-License-Identifier: Apache-2.0
"""Legal call graphs of the known-answer programs, and their checker.

A graph says which frame may call which. A folded stack is legal only if the
whole of it, root to leaf, native and Lua, is a path of the graph that begins
at the root node. A stack may end at any node: a sample can fall anywhere.

Kernel frames (`_[k]`) are set apart before the path is judged: an interrupt,
a page fault or a system call can happen in any frame, so they may follow any
leaf; but nothing in user space may follow them.

Frames that run as machine code of a trace carry `_[j]`, those inlined there
`_[i]`; each of the latter must be called by the frame before it, as always.
Where a sample in a trace is coarse, callees are missing: so what is not
inlined may also be called by whatever the last frame in the trace may have
inlined (Lua and fast functions, reached through each other). That widens
nothing for a frame without a suffix, nor for one with `_[i]`.

The text of a graph: one `caller, ... > callee ...` a line, `#` comments.

    name        Lua function marked `--: name` in the script: its exact text
    $name       fast function: `name@[builtin]`
    !name       C function, exact symbol, that calls the Lua API
    ^name       C function, exact symbol, that calls nothing but what is listed
    ~class      a class of frames, declared with a pattern and its reason
    name#tag    the same frame in another role
    =>          instead of >: only below a frame in a trace

A class may stand for several frames in a row; it declares how many.
"""
import dataclasses
import re
from typing import Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

KERNEL = "_[k]"
JIT = "_[j]"
INLINED = "_[i]"
# What a folded line shows in place of frames that were not walked.
MARKS = re.compile(r"\[(truncated|lua-broken|skipped|unknown|failed:.*)\]$")


@dataclasses.dataclass(frozen=True)
class FrameClass:
    """Frames that cannot be written down as one text, and why."""

    pattern: str
    why: str
    examples: Tuple[str, ...]
    least: int = 1
    most: int = 1  # 0: no bound
    inlined: bool = False  # a trace may hold it without a frame
    names: FrozenSet[str] = frozenset()  # beside the pattern: symbols of files

    def __post_init__(self):
        if not self.why:
            raise ValueError("a pattern needs a written reason")
        for text in self.examples:
            if not self.matches(text):
                raise ValueError("%r is no %r" % (text, self.pattern))

    def matches(self, text: str) -> bool:
        return (text in self.names
                or re.fullmatch(self.pattern, text) is not None)


@dataclasses.dataclass
class Node:
    ident: str
    kind: str  # lua, fast, host, native, class
    text: Optional[str]  # exact text, or None:
    cls: Optional[FrameClass] = None
    succ: Set[str] = dataclasses.field(default_factory=set)
    trace_succ: Set[str] = dataclasses.field(default_factory=set)

    def matches(self, text: str) -> bool:
        if self.text is not None:
            return text == self.text
        return self.cls.matches(text)

    @property
    def inlinable(self) -> bool:
        return self.kind in ("lua", "fast") or (
            self.cls is not None and self.cls.inlined)


MARKER = re.compile(r"--: (\S+?)(?:=(\S+))?\s*$")


def script_functions(path: str, chunk: str) -> Dict[str, str]:
    """Marked functions of a Lua script: id -> exact frame text.

    The mark stands at the end of the line where the function begins, so the
    expected line is found without asking the tool or a VM.
    """
    texts = {"main": "main@%s:0" % chunk}
    with open(path, encoding="utf-8") as script:
        for number, line in enumerate(script, 1):
            found = MARKER.search(line)
            if not found:
                continue
            ident, name = found.group(1), found.group(2) or found.group(1)
            if ident in texts:
                raise ValueError("%s:%d: %s twice" % (path, number, ident))
            texts[ident] = "%s@%s:%d" % (name, chunk, number)
    return texts


class Graph:
    """Nodes and edges of one program."""

    def __init__(self, name: str, lua: Dict[str, str],
                 classes: Dict[str, FrameClass], edges: str,
                 leaf_class: str, leaf_kinds: Tuple[str, ...]):
        """lua: texts of Lua functions by id; leaf_class: the class of native
        frames that may end a stack under every node of leaf_kinds (work that
        the VM does for it), not followed by anything but itself."""
        self.name = name
        self.nodes: Dict[str, Node] = {}
        self.roots: Set[str] = set()
        self._lua, self._classes = lua, classes
        for line in edges.splitlines():
            line = line.split("# ")[0].strip()
            if not line:
                continue
            found = re.fullmatch(r"([^=>]+)(=?>)([^=>]+)", line)
            if not found:
                raise ValueError("%s: %r is no edge" % (name, line))
            callers, arrow, callees = found.groups()
            for caller in callers.split():
                for callee in callees.split():
                    self._edge(caller, callee, arrow == "=>")
        for ident in list(self.nodes):
            node = self.nodes[ident]
            if node.kind in leaf_kinds or (
                    node.inlinable and "lua" in leaf_kinds):
                node.succ.update(self._expand(leaf_class)[0])
        used = {ident.split(".")[0].split("#")[0] for ident in self.nodes}
        unused = set(classes) - used - {leaf_class}
        if unused:
            raise ValueError("%s: classes without use: %s" % (name, unused))
        if not self.roots:
            raise ValueError("%s: no root" % name)
        self._closures: Dict[str, Set[str]] = {}

    def _edge(self, caller: str, callee: str, in_trace: bool) -> None:
        entry, _ = self._expand(callee)
        if caller == "ROOT":
            self.roots |= set(entry)
            return
        _, leave = self._expand(caller)
        for ident in leave:
            node = self.nodes[ident]
            (node.trace_succ if in_trace else node.succ).update(entry)

    def _expand(self, ident: str) -> Tuple[List[str], List[str]]:
        """Nodes of one name: those that begin it and those that end it."""
        base = ident.split("#")[0]
        if not base.startswith("~"):
            if ident not in self.nodes:
                self.nodes[ident] = self._new(ident, base)
            return [ident], [ident]
        cls = self._classes[base]
        count = cls.most or max(cls.least, 1)
        chain = ["%s.%d" % (ident, i) for i in range(count)]
        if chain[0] not in self.nodes:
            for step in chain:
                self.nodes[step] = Node(step, "class", None, cls)
            for here, there in zip(chain, chain[1:]):
                self.nodes[here].succ.add(there)
            if not cls.most:
                self.nodes[chain[-1]].succ.add(chain[-1])
        return chain[:1], chain[cls.least - 1:]

    def _new(self, ident: str, base: str) -> Node:
        if base.startswith("$"):
            return Node(ident, "fast", base[1:] + "@[builtin]")
        if base.startswith("!"):
            return Node(ident, "host", base[1:])
        if base.startswith("^"):
            return Node(ident, "native", base[1:])
        text = self._lua.get(ident) or self._lua.get(base)
        if not text:
            raise ValueError("%s: no function %s" % (self.name, base))
        return Node(ident, "lua", text)

    def inline_closure(self, ident: str) -> Set[str]:
        """The node and all that a trace begun in it may have inlined."""
        if ident not in self._closures:
            seen, todo = {ident}, [ident]
            while todo:
                for callee in self.nodes[todo.pop()].succ:
                    if callee not in seen and self.nodes[callee].inlinable:
                        seen.add(callee)
                        todo.append(callee)
            self._closures[ident] = seen
        return self._closures[ident]

    def successors(self, ident: str, in_trace: bool) -> Set[str]:
        if not in_trace:
            return self.nodes[ident].succ
        found: Set[str] = set()
        for node in self.inline_closure(ident):
            found |= self.nodes[node].succ | self.nodes[node].trace_succ
        return found

    def check(self, frames: Iterable[str], jit: bool = True) -> Optional[str]:
        """None if the stack (root first, no comm) is a path, else why not."""
        frames = list(frames)
        user = [f for f in frames if not f.endswith(KERNEL)]
        if any(f.endswith(KERNEL) for f in frames[:len(user)]):
            return "a kernel frame above user frames"
        if not user:
            return "no user frame"
        allowed, before = set(self.roots), "the root"
        direct: Set[str] = set()  # for an inlined frame
        for depth, text in enumerate(user):
            inlined = text.endswith(INLINED)
            in_trace = inlined or text.endswith(JIT)
            plain = text[:-len(JIT)] if in_trace else text
            if in_trace and not jit:
                return "frame %d, %s: a trace with the JIT off" % (depth, text)
            if inlined:
                allowed = direct
            here = {n for n in allowed if self.nodes[n].matches(plain)}
            if in_trace:
                here = {n for n in here if self.nodes[n].inlinable}
            if not here:
                return "frame %d: %s does not call %s" % (depth, before, text)
            allowed, direct = set(), set()
            for ident in here:
                allowed |= self.successors(ident, in_trace)
                if in_trace:
                    direct |= self.nodes[ident].succ
            before = text
        return None
