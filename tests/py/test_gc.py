# SPDX-License-Identifier: Apache-2.0
"""Numbers and text of lua-gc-latency, from invented counts."""

import json
import os
import struct
import tempfile
import unittest

from luabpf import gcreport, gcrun, gcstat, hist, lib

KEY = struct.Struct("<QIIIHH")
G = 0x7f0000001000


def slot_of(ns):
    """The fine slot of a time, by another way than BPF's."""
    for slot in range(328):
        low, high = hist.fine_bounds(slot)
        if low <= ns < high:
            return slot
    raise AssertionError(ns)


def raw_val(times, unit=1000, epoch=0, cpu=None, phases=(), finalizers=(0, 0),
            cycles=(0, 0, 0), heap=(0, 0)):
    """struct lb_gc_val of pauses of these lengths, in ns."""
    log2, fine = [0] * 40, [0] * 328
    for ns in times:
        log2[max((ns // unit).bit_length() - 1, 0)] += 1
        fine[slot_of(ns)] += 1
    most = [0, 0]
    most[epoch & 1] = max(times, default=0)
    marks = [0, 0]
    marks[epoch & 1] = epoch
    return struct.pack(
        "<3Q2Q2QQQ6Q3Q2Q40I328I", len(times), sum(times),
        sum(times) if cpu is None else cpu, *most, *marks, *finalizers,
        *phases, *[0] * (6 - len(phases)), *cycles, *heap, *log2, *fine)


def raw_key(pid=10, tid=11, entry=0, phase=6, vm=0, g=G):
    return KEY.pack(g, pid, tid, entry, phase, vm)


def interval_of(*items, epoch=0, seconds=1.0):
    return gcstat.Counts().take(items, epoch, seconds)


ACCOUNT = gcreport.Account(10_000_000, {})


class HistTest(unittest.TestCase):
    def test_fine_slots_leave_no_gap(self):
        end = 0
        for slot in range(328):
            low, high = hist.fine_bounds(slot)
            self.assertEqual(low, end)
            self.assertLessEqual(high - low, max(1, low / 8))
            end = high
        self.assertEqual(end, 1 << 43)

    def test_percentile_is_an_eighth_off_at_most(self):
        times = [i * i * 37 + 5 for i in range(1, 1000)]
        fine = [0] * 328
        for ns in times:
            fine[slot_of(ns)] += 1
        for percent in (1, 25, 50, 90, 99, 99.9, 100):
            want = times[max(0, -int(-len(times) * percent // 100) - 1)]
            got = hist.percentile(fine, percent, max(times))
            self.assertLess(abs(got - want), want / 8 + 1, percent)
        self.assertEqual(hist.percentile([0] * 328, 50, 0), 0)
        self.assertLessEqual(hist.percentile(fine, 100, max(times)),
                             max(times))

    def test_lines_are_those_of_bcc(self):
        slots = [0] * 40
        slots[1], slots[3] = 4, 2
        self.assertEqual(hist.log2_lines(slots, "usecs"), [
            "     usecs               : count     distribution",
            "         0 -> 1          : 0        |" + " " * 40 + "|",
            "         2 -> 3          : 4        |" + "*" * 40 + "|",
            "         4 -> 7          : 0        |" + " " * 40 + "|",
            "         8 -> 15         : 2        |" + "*" * 20 + " " * 20
            + "|"])
        self.assertEqual(hist.log2_lines([0] * 40, "usecs"), [])


class CountsTest(unittest.TestCase):
    def test_differences(self):
        counts = gcstat.Counts()
        first = counts.take([(raw_key(), raw_val([1000, 5000]))], 0, 1.0)
        again = counts.take(
            [(raw_key(), raw_val([1000, 5000, 3000], epoch=1)),
             (raw_key(entry=2), raw_val([7000], epoch=1))], 1, 1.0)
        self.assertEqual(first.total().count, 2)
        self.assertEqual(first.total().most, 5000)
        self.assertEqual(again.total().count, 2)
        self.assertEqual(again.total().wall, 10000)
        by_entry = again.group(lambda key: (key.entry,))
        self.assertEqual({k[0]: v.count for k, v in by_entry.items()},
                         {"step": 1, "full": 1})

    def test_maximum_of_another_interval_does_not_count(self):
        interval = interval_of((raw_key(), raw_val([9000], epoch=0)), epoch=1)
        self.assertEqual(interval.total().most, 0)

    def test_phases_are_not_added_to_pauses(self):
        interval = interval_of((raw_key(), raw_val([9000])),
                               (raw_key(phase=2), raw_val([4000])),
                               (raw_key(phase=4), raw_val([5000])))
        self.assertEqual(interval.total().count, 1)
        groups = gcreport.groups_of(interval, "phase", False)
        self.assertEqual({k[0]: v.wall for k, v in groups.items()},
                         {"phase = atomic": 4000, "phase = sweep": 5000})

    def test_wire_sizes(self):
        gcstat.check_sizes()
        with self.assertRaises(lib.Fail):
            lib.check_size("lb_gc_key", 23)

    def test_counter_that_went_down_elsewhere(self):
        values = gcstat.counters({0: 3, 1: (1 << 64) + 2})
        self.assertEqual((values["thrown"], values["pending"]), (3, 2))

    def test_share_error(self):
        self.assertEqual(gcstat.share_error(0, 0), 1.0)
        self.assertAlmostEqual(gcstat.share_error(500, 1000), 0.031, 3)
        self.assertGreater(gcstat.share_error(0, 10), 0.1)


class ReportTest(unittest.TestCase):
    def test_text(self):
        interval = interval_of(
            (raw_key(), raw_val(
                [2000, 3000, 5000], cpu=8000, phases=(0, 4000, 1000, 0, 3000),
                finalizers=(2, 2000), cycles=(2, 1, 90000),
                heap=(4096, 2048))), seconds=0.001)
        figures = lib.Figures(heap=2048, threshold=8192, debt=0,
                              estimate=2000, state=0)
        account = gcreport.Account(100000, {(10, 0, G): figures})
        text = gcreport.text(interval, account, "usecs", None, False)
        self.assertEqual(text[1:4], [
            "         0 -> 1          : 0        |" + " " * 40 + "|",
            "         2 -> 3          : 2        |" + "*" * 40 + "|",
            "         4 -> 7          : 1        |" + "*" * 20 + " " * 20
            + "|"])
        joined = " ".join(" ".join(text).split())
        for part in ("avg = 3.3 usecs, total: 10.0 usecs, count: 3",
                     "max = 5.0, ",
                     "1.0 % of the wall time of 1 thread, 8.0 % of CPU time, "
                     "off CPU 2.0 usecs",
                     "entries: step 3 (100.0 %)",
                     "phases: propagate 40.0 %, atomic 10.0 %, sweep 30.0 %, "
                     "finalizers 20.0 % (2 calls)",
                     "cycles: 2 completed, 90.0 usecs from begin to end",
                     "heap: 4 KB before the first pause, 2 KB after the "
                     "last, threshold 8 KB, debt 0 KB"):
            self.assertIn(part, joined)
        self.assertLess(max(map(len, text)), 80)

    def test_nothing_happened(self):
        self.assertEqual(gcreport.text(interval_of(), ACCOUNT, "usecs", None,
                                       False), ["no pause in this interval"])
        self.assertEqual(gcreport.sample_lines(gcstat.Samples(all=7)),
                         ["7 samples, none in a thread whose VM is known"])

    def test_stopped_collector(self):
        interval = interval_of((raw_key(), raw_val([2000], heap=(1, 1))))
        for threshold in (1 << 47, 0x7fffff00):
            figures = lib.Figures(1, threshold, 0, 0, 0)
            account = gcreport.Account(1, {(10, 0, G): figures})
            lines = gcreport.summary(interval, account, "usecs")
            self.assertIn("stopped", lines[-1])
            self.assertNotIn("threshold", " ".join(lines))

    def test_json(self):
        interval = interval_of(
            (raw_key(), raw_val([2000, 6000])),
            (raw_key(tid=12, entry=1), raw_val([3000])))
        lines = [json.loads(line) for line in gcreport.json_lines(
            interval, ACCOUNT, "usecs", "entry", True, 5.0)]
        self.assertEqual([(x["type"], x.get("tid"), x.get("entry"),
                           x["count"]) for x in lines],
                         [("group", "11", "step", 2),
                          ("group", "12", "trace", 1),
                          ("interval", None, None, 3)])
        self.assertEqual(lines[-1]["entries"], {"step": 2, "trace": 1})
        self.assertEqual(lines[0]["log2"],
                         {"unit": "usecs", "counts": [0, 1, 1]})

    def test_event(self):
        raw = struct.pack("<QQQQQ6QQQQQIIIBBBx", 5, G, 10000, 9000, 1000, 0,
                          7000, 2000, 0, 0, 0, 8192, 4096, 0, 0, 10, 11, 1, 2,
                          1, 0)
        event = gcstat.Event.decode(raw)
        self.assertEqual((event.entry, event.heap_after), ("full", 4096))
        self.assertEqual(gcstat.letters(event), "P70A20N10")
        line = gcreport.event_line(event, "usecs", 0.0)
        self.assertEqual(line.split()[1:], ["10", "11", "10.0", "full", "8",
                                            "4", "P70A20N10"])
        self.assertEqual(json.loads(gcreport.event_json(event, 0.0))
                         ["phases_ns"]["atomic"], 2000)

    def test_closing_line_accounts_for_all(self):
        counters = {"thrown": 2, "pending": 1, "read": 4, "full": 5,
                    "ring": 6}
        lines = gcreport.closing_lines(7, counters)
        self.assertEqual(lines[0], "7 pauses, 3 dropped (an error was thrown "
                         "through), 9 lost")
        self.assertEqual(len(lines), 4)


class PrometheusTest(unittest.TestCase):
    def test_text_format(self):
        interval = interval_of(
            (raw_key(), raw_val([2000, 2500, 70000], cycles=(3, 0, 0))),
            (raw_key(entry=2), raw_val([5000])))
        groups = interval.group(lambda key: (key.pid, key.entry))
        figures = {(10, 0, G): lib.Figures(77, 0, 0, 0, 0)}
        text = gcreport.prometheus(groups, "usecs", figures, 4)
        name = "luajit_gc_pause_seconds"
        label = 'pid="10",entry="step"'
        for line in (f"# TYPE {name} histogram",
                     f'{name}_bucket{{{label},le="2e-06"}} 0',
                     f'{name}_bucket{{{label},le="4e-06"}} 2',
                     f'{name}_bucket{{{label},le="0.000128"}} 3',
                     f'{name}_bucket{{{label},le="+Inf"}} 3',
                     f"{name}_sum{{{label}}} 0.000074500",
                     f"{name}_count{{{label}}} 3",
                     'luajit_gc_cycles_total{pid="10"} 3',
                     f'luajit_heap_bytes{{pid="10",vm="0x{G:x}"}} 77',
                     "luajit_gc_pauses_dropped_total 4"):
            self.assertIn(line + "\n", text)
        buckets = [int(line.split()[1]) for line in text.splitlines()
                   if line.startswith(name + "_bucket{" + label)]
        self.assertEqual(buckets, sorted(buckets))
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) .*|[a-z_]+'
                             r'(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? '
                             r'[-+0-9.e]+)$')

    def test_written_in_one_piece(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.prom")
            gcreport.write_atomically(path, "one\n")
            gcreport.write_atomically(path, "two\n")
            with open(path) as file:
                self.assertEqual(file.read(), "two\n")
            self.assertEqual(os.listdir(folder), ["x.prom"])
            os.mkdir(os.path.join(folder, "d.prom"))
            with self.assertRaises(OSError):
                gcreport.write_atomically(os.path.join(folder, "d.prom"), "x")
            self.assertEqual(sorted(os.listdir(folder)),
                             ["d.prom", "x.prom"])


class TreeTest(unittest.TestCase):
    def test_descendants_of_this_process(self):
        child = os.fork()
        if not child:
            os.read(os.pipe()[0], 1)
            os._exit(0)
        try:
            self.assertIn(child, gcrun.descendants([os.getpid()]))
            self.assertEqual(gcrun.descendants([child]), [])
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
        self.assertEqual(gcrun.cpu_ns(child), 0)
        self.assertGreater(gcrun.cpu_ns(os.getpid()), 0)


if __name__ == "__main__":
    unittest.main()
