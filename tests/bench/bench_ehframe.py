# SPDX-License-Identifier: Apache-2.0
"""Rate of compiling .eh_frame into rows: an nginx worker, large files.
"""
import os
import subprocess
from typing import List

import measure
import nginx

ABOUT = """
bench_unwind calls the C core for each mapped object of an nginx worker, and
for large files: open the file and check its headers, look for a LuaJIT VM,
make the table of rows. Medians of the rounds, CPU time of the thread; files
are in the page cache. ROWS/S and MB/S (of .eh_frame) are those of making the
table alone.
"""

PROGRAM = os.path.join(measure.OUTPUT, "tests", "bench", "bench_unwind")
LIB_DIR = "/usr/lib/x86_64-linux-gnu/"
LARGE = [LIB_DIR + name for name in (
    "libcrypto.so.3", "libstdc++.so.6", "libLLVM-14.so.1")]


class Result:
    """One line of bench_unwind."""

    def __init__(self, of: str, name: str, *numbers: str) -> None:
        self.of, self.name = of, name
        (self.size, self.rows, self.rules, self.open_ns, self.find_ns,
         self.build_ns) = map(int, numbers)

    @classmethod
    def total(cls, results: List["Result"]) -> "Result":
        name = "all %d objects" % len(results)
        return cls("", name, *[
            str(sum(getattr(r, field) for r in results))
            for field in ("size", "rows", "rules", "open_ns", "find_ns",
                          "build_ns")])

    def line(self) -> List[str]:
        seconds = self.build_ns * 1e-9
        return [self.name, "%.0f" % (self.size / 1e3), str(self.rows),
                str(self.rules)] + [
            "%.2f" % (ns * 1e-6)
            for ns in (self.open_ns, self.find_ns, self.build_ns)] + [
            "%.1f M" % (self.rows / seconds * 1e-6),
            "%.0f" % (self.size / seconds * 1e-6)]


def bench(rounds: int, what: List[str]) -> List[Result]:
    out = subprocess.run([PROGRAM, str(rounds), *what], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return [Result(*line.split("\t")) for line in out.splitlines()]


def main(quick: bool) -> None:
    measure.paragraph(ABOUT)
    if not os.path.exists(PROGRAM):
        raise measure.Skip("not built: run make bench")
    with nginx.Nginx() as server:
        results = bench(3 if quick else 51, [str(server.pid)])
    results.sort(key=lambda r: r.rows)
    large = bench(3 if quick else 11,
                  [path for path in LARGE if os.path.exists(path)])
    header = ["FILE", "KB", "ROWS", "RULES", "OPEN MS", "FIND MS", "MAKE MS",
              "ROWS/S", "MB/S"]
    print("nginx worker")
    measure.table(header, [r.line() for r in results]
                  + [Result.total(results).line()])
    print("large files")
    measure.table(header, [r.line() for r in large])


if __name__ == "__main__":
    measure.run(main, __doc__)
