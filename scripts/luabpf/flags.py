# SPDX-License-Identifier: Apache-2.0
"""What the options of a stack profiler mean to BPF and to the C core."""

import argparse

from luabpf import lib


def config(args: argparse.Namespace) -> int:
    """enum lb_config_flag of these options."""
    result = lib.CONFIG_TRACES
    for wanted, flag in ((not args.kernel_stacks_only, lib.CONFIG_USER),
                         (not args.user_stacks_only, lib.CONFIG_KERNEL),
                         (args.include_idle, lib.CONFIG_IDLE),
                         (args.lines, lib.CONFIG_LINES),
                         (args.vmstate, lib.CONFIG_VMSTATE)):
        if wanted:
            result |= flag
    return result


def fold(args: argparse.Namespace) -> int:
    """enum lb_fold_flag of these options."""
    result = 0
    for wanted, flag in ((args.annotations, lib.FOLD_ANNOTATE),
                         (args.delimited, lib.FOLD_DELIMIT),
                         (args.lua_only, lib.FOLD_LUA_ONLY),
                         (args.lines, lib.FOLD_LINES),
                         (args.vmstate, lib.FOLD_VMSTATE),
                         (args.per_pid or not args.folded, lib.FOLD_PER_PID)):
        if wanted:
            result |= flag
    return result
