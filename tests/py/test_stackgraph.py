# SPDX-License-Identifier: Apache-2.0
"""The checker of legal stacks must see every wrong one.

For each graph: stacks made by random walks are accepted, and what they become
when a frame is swapped, missing, added, taken from another program, or the
root cut off, is rejected. Some mutants are legal again (one recursion less);
which ones, is decided here by a second routine that shares no code with the
checker: depth-first search over the edges, frame by frame.
"""
import os
import random
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "bpf"))

import graphs
import stackgraph

NAMES = graphs.Names(
    frozenset(["memcpy", "__memmove_avx_unaligned_erms", "msort_with_tmp",
               "_Unwind_RaiseException", "clock_gettime"]),
    frozenset(["lj_gc_step", "lj_tab_new"]))
WALKS = 60
STEPS = 40


def modes():
    for program in graphs.PROGRAMS:
        for jit in program.modes:
            yield program, jit, program.graph(jit, NAMES)


def text_of(node, rng):
    if node.text is not None:
        return node.text
    return rng.choice(sorted(node.cls.examples))


def walk(graph, jit, rng):
    """A legal stack: a random path, in traces with inlined calls left out."""
    ident = rng.choice(sorted(graph.roots))
    texts = []
    for _ in range(rng.randint(1, STEPS)):
        node = graph.nodes[ident]
        text, ways = text_of(node, rng), set(node.succ)
        if jit and node.inlinable and rng.random() < 0.2:
            text += stackgraph.JIT
            # Go on from a callee that the trace holds without a frame.
            inner = node
            while True:
                ways |= inner.succ | inner.trace_succ
                inlined = [i for i in sorted(inner.succ)
                           if graph.nodes[i].inlinable]
                if not inlined or rng.random() < 0.4:
                    break
                inner = graph.nodes[rng.choice(inlined)]
        texts.append(text)
        if not ways:
            break
        ident = rng.choice(sorted(ways))
    return texts


def is_path(graph, texts, jit):
    """The second opinion, for frames without the mark of a trace.

    A frame in a trace is replaced by each node it could stand for; which
    nodes follow is looked up by plain reachability.
    """
    def reach(ident, seen):
        for nxt in graph.nodes[ident].succ:
            if nxt not in seen and graph.nodes[nxt].kind in ("lua", "fast") \
                    or (graph.nodes[nxt].cls and graph.nodes[nxt].cls.inlined
                        and nxt not in seen):
                seen.add(nxt)
                reach(nxt, seen)
        return seen

    def fits(ident, text):
        node = graph.nodes[ident]
        if node.text is not None:
            return node.text == text
        return (text in node.cls.names
                or re.fullmatch(node.cls.pattern, text) is not None)

    failed = set()

    def search(ident, at):
        if (ident, at) in failed:
            return False
        text = texts[at]
        traced = text.endswith(stackgraph.JIT)
        if traced:
            text = text[:-len(stackgraph.JIT)]
        ok = fits(ident, text)
        if ok and traced:
            node = graph.nodes[ident]
            ok = jit and (node.kind in ("lua", "fast")
                          or bool(node.cls and node.cls.inlined))
        if ok and at + 1 < len(texts):
            ways = set(graph.nodes[ident].succ)
            if traced:
                for inner in reach(ident, {ident}):
                    ways |= graph.nodes[inner].succ
                    ways |= graph.nodes[inner].trace_succ
            ok = any(search(nxt, at + 1) for nxt in ways)
        if not ok:
            failed.add((ident, at))
        return ok

    return any(search(root, 0) for root in graph.roots)


def swapped(texts, rng, others):
    if len(texts) < 2:
        return None
    at = rng.randrange(len(texts) - 1)
    return texts[:at] + [texts[at + 1], texts[at]] + texts[at + 2:]


def missing(texts, rng, others):
    at = rng.randrange(len(texts))
    return texts[:at] + texts[at + 1:]


def extra(texts, rng, others):
    at = rng.randrange(len(texts) + 1)
    return texts[:at] + [rng.choice(texts)] + texts[at:]


def foreign(texts, rng, others):
    at = rng.randrange(len(texts) + 1)
    return texts[:at] + [rng.choice(others)] + texts[at:]


def replaced(texts, rng, others):
    at = rng.randrange(len(texts))
    return texts[:at] + [rng.choice(others)] + texts[at + 1:]


def root_cut(texts, rng, others):
    at = rng.randrange(1, len(texts) + 1)
    return texts[at:]


def root_marked(texts, rng, others):
    at = rng.randrange(1, len(texts) + 1)
    mark = rng.choice(["[truncated]", "[failed:read-fault]"])
    return [mark] + texts[at:]


def broken(texts, rng, others):
    at = rng.randrange(1, len(texts) + 1)
    mark = rng.choice(["[lua-broken]", "[skipped]", "[unknown]"])
    return texts[:at] + [mark] + texts[at:]


MUTATIONS = [swapped, missing, extra, foreign, replaced, root_cut,
             root_marked, broken]


class StackgraphTest(unittest.TestCase):
    def test_walks_are_legal(self):
        for program, jit, graph in modes():
            rng = random.Random(program.name)
            for _ in range(WALKS):
                texts = walk(graph, jit, rng)
                self.assertIsNone(graph.check(texts, jit),
                                  (program.name, texts))

    def test_walks_reach_every_node(self):
        for program, jit, graph in modes():
            todo, seen = list(graph.roots), set(graph.roots)
            while todo:
                node = graph.nodes[todo.pop()]
                for ident in (node.succ | node.trace_succ) - seen:
                    seen.add(ident)
                    todo.append(ident)
            self.assertEqual(set(graph.nodes) - seen, set(), program.name)

    def test_mutants_are_rejected(self):
        everything = sorted({
            node.text for _, _, graph in modes()
            for node in graph.nodes.values() if node.text})
        for program, jit, graph in modes():
            rng = random.Random(program.name + str(jit))
            own = [n for n in graph.nodes.values()]
            others = [t for t in everything
                      if not any(n.matches(t) for n in own)]
            rejected = dict.fromkeys(MUTATIONS, 0)
            judged = legal = 0
            for _ in range(WALKS):
                texts = walk(graph, jit, rng)
                for mutate in MUTATIONS:
                    mutant = mutate(texts, rng, others)
                    if not mutant or mutant == texts:
                        continue
                    reason = graph.check(mutant, jit)
                    judged += 1
                    if is_path(graph, mutant, jit):
                        legal += 1
                        self.assertIsNone(reason, (program.name, mutant))
                    else:
                        rejected[mutate] += 1
                        self.assertIsNotNone(reason, (program.name, mutant))
            with self.subTest(program=program.name, jit=jit):
                for mutate, count in rejected.items():
                    self.assertGreater(count, 5, mutate.__name__)
                # A graph that takes most mutants would prove nothing.
                self.assertLess(legal / judged, 0.25)

    def test_every_frame_that_stands_between_is_needed(self):
        """Each exact frame, left out, swapped or doubled where it is not a
        recursion: no chance involved, every edge of every graph."""
        for program, jit, graph in modes():
            paths = shortest_paths(graph)
            for ident, path in paths.items():
                for nxt in sorted(graph.nodes[ident].succ):
                    self.check_edge(program, jit, graph, path + [nxt])

    def check_edge(self, program, jit, graph, idents):
        rng = random.Random(0)
        texts = [text_of(graph.nodes[i], rng) for i in idents]
        self.assertIsNone(graph.check(texts, jit), (program.name, texts))
        last, before = graph.nodes[idents[-1]], graph.nodes[idents[-2]]
        if last.text is None or before.text is None:
            return
        mutants = []
        if last.text != before.text:
            mutants.append(texts[:-2] + [texts[-1], texts[-2]])
            mutants.append(texts[:-2] + [texts[-1]])
            mutants.append(texts[:-1] + [texts[-2], texts[-1]])
        for mutant in mutants:
            if not is_path(graph, mutant, jit):
                self.assertIsNotNone(graph.check(mutant, jit),
                                     (program.name, mutant))

    def test_kernel_frames_only_end_a_stack(self):
        graph = graphs.by_name("shares").graph(True, NAMES)
        texts = walk(graph, False, random.Random(3))
        kernel = ["asm_sysvec_x_[k]", "update_[k]"]
        self.assertIsNone(graph.check(texts + kernel))
        self.assertIsNotNone(graph.check(kernel + texts))
        self.assertIsNotNone(graph.check(texts[:1] + kernel + texts[1:]))
        self.assertIsNotNone(graph.check(kernel))

    def test_trace_mark_needs_the_jit(self):
        graph = graphs.by_name("traces").graph(True, NAMES)
        texts = stack_to(graph, "inlined")
        texts[-1] += stackgraph.JIT
        self.assertIsNone(graph.check(texts, True))
        self.assertIsNotNone(graph.check(texts, False))

    def test_trace_stands_for_inlined_calls_only(self):
        graph = graphs.by_name("ffi").graph(True, NAMES)
        texts = stack_to(graph, "call_libm")
        self.assertIsNotNone(graph.check(texts + ["cbrt"]))
        texts[-1] += stackgraph.JIT
        self.assertIsNone(graph.check(texts + ["cbrt"]))
        self.assertIsNotNone(graph.check(texts + ["abs"]))

    def test_native_frame_cannot_be_in_a_trace(self):
        graph = graphs.by_name("split").graph(True, NAMES)
        texts = stack_to(graph, "!c_call")
        texts[-1] += stackgraph.JIT
        self.assertIsNotNone(graph.check(texts))

    def test_pattern_needs_a_reason(self):
        with self.assertRaises(ValueError):
            stackgraph.FrameClass("x+", "", ("x",))
        for program in graphs.PROGRAMS:
            graph = program.graph(True, NAMES)
            for node in graph.nodes.values():
                if node.cls:
                    self.assertGreater(len(node.cls.why), 15)

    def test_frames_of_one_piece_stay_together(self):
        check = graphs.same_number
        good = ["main@loadchurn.lua:0", "main@piece7:0", "two_7@piece7:6",
                "one_7@piece7:2"]
        self.assertIsNone(check(good, True))
        self.assertIsNotNone(check(good[:3] + ["one_8@piece8:2"], True))
        self.assertIsNotNone(check(good[:3] + ["one_8@piece7:2"], True))

    def test_recursion_is_counted(self):
        check = graphs.two_hundred_deep
        deep, bottom = ["deep@recurse.lua:13"], ["bottom@recurse.lua:7"]
        self.assertIsNone(check(deep * 200 + bottom, False))
        self.assertIsNone(check(deep * 150, False))
        for count in (1, 199, 201):
            self.assertIsNotNone(check(deep * count + bottom, False))


def shortest_paths(graph):
    """Node -> idents from a root to it."""
    paths = {root: [root] for root in sorted(graph.roots)}
    todo = sorted(graph.roots)
    while todo:
        ident = todo.pop(0)
        for nxt in sorted(graph.nodes[ident].succ):
            if nxt not in paths:
                paths[nxt] = paths[ident] + [nxt]
                todo.append(nxt)
    return paths


def stack_to(graph, ident):
    rng = random.Random(1)
    return [text_of(graph.nodes[i], rng)
            for i in shortest_paths(graph)[ident]]


if __name__ == "__main__":
    unittest.main()
