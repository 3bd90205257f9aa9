/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where calls pass in a LuaJIT VM: one instruction for each way that a function
 * is entered.
 */
#ifndef LB_CALLPROBES_H
#define LB_CALLPROBES_H

#include "luajit.h"
#include "probes.h"
#include "../bpf_c/lj_offsets.h"

/**
 * lb_callprobes_vm() - points in the VM of a file
 * @offsets: of this build
 * @probes: what is found is appended: all kinds but LB_PROBE_API
 * Return: 0, -EOPNOTSUPP (code of the function headers not understood),
 * -ENOMEM.
 */
int lb_callprobes_vm(const struct lb_elf *elf, const struct lb_luajit *luajit,
		     const struct lj_offsets *offsets,
		     struct lb_probes *probes);

/**
 * lb_callprobes_api() - exported functions of the Lua C API
 * lua_*, luaL_*, luaJIT_*, luaopen_*; those that several names share once for
 * each name. Return: 0, -ENODATA (none is exported), -ENOMEM.
 */
int lb_callprobes_api(const struct lb_elf *elf, struct lb_probes *probes);

#endif
