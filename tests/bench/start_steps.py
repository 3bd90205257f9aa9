# SPDX-License-Identifier: Apache-2.0
"""Do the first steps of a start of lua-stacks, and end: start_steps.py STEP.

    python   nothing
    bcc      import bcc
    empty    compile a program that is empty
    compile  compile the programs of lua-stacks
    load     and load them
"""
import os
import sys

import measure  # noqa: F401  (puts luabpf on the path)


def compiled():
    from luabpf import bpf, drain, lib
    room = lib.Needs(rows=1 << 18, blocks=1 << 17, rules=1 << 13, procs=9)
    return bpf.Program("lua_stacks", drain.defines(room, 65536))


def main(step: str) -> int:
    if step == "bcc":
        import bcc  # noqa: F401
    elif step == "empty":
        from luabpf import headers
        import bcc
        tree = headers.find_tree()
        if tree:
            os.environ["BCC_KERNEL_SOURCE"] = tree
        bcc.BPF(text="int empty(void *ctx) { return 0; }", cflags=["-w"])
    elif step in ("compile", "load"):
        program = compiled()
        if step == "load":
            program.load("perf_event", ["lb_walk", "lb_names",
                                        "lua_stacks_sample"])
            program.load("raw_tracepoint", ["lb_exec"])
    elif step != "python":
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
