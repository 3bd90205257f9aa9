/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe points of LuaJIT's garbage collector in a file that holds a VM, found
 * in the machine code alone. A function of the file.
 */
#ifndef LB_GCPROBES_H
#define LB_GCPROBES_H

#include "luajit.h"
#include "probes.h"
#include "scan.h"

/*
 * Kinds. A call passes its entry once. Of the exits it passes one or two when
 * it returns, and none when an error is thrown through it.
 */
enum lb_gc_point {
	LB_GC_STEP_ENTRY, /* lj_gc_step(L) */
	LB_GC_STEP_EXIT,
	LB_GC_TRACE_ENTRY, /* lj_gc_step_jit(G, steps) */
	LB_GC_TRACE_EXIT,
	LB_GC_API_ENTRY, /* lua_gc(L, what, data) */
	LB_GC_API_EXIT,
	LB_GC_FIN_ENTRY, /* lj_vm_pcall is about to run a finalizer */
	LB_GC_FIN_EXIT,	 /* eax: its error code; never passed over */
	LB_GC_PHASE,	 /* and up: gc.state is about to become kind - this */
	LB_GC_POINT_MAX = LB_GC_PHASE + 6
};

/**
 * lb_gcprobes_find() - all points of the garbage collector
 * @scan: of the same file
 * @probes: points are appended
 * @missing_ret: on failure what was not found, static storage
 *
 * Points of the change of phases are left out where not each of them shows in
 * the code.
 * Return: 0, -EOPNOTSUPP, -ENOMEM.
 */
int lb_gcprobes_find(const struct lb_elf *elf, const struct lb_luajit *luajit,
		     const struct lb_scan *scan, struct lb_probes *probes,
		     const char **missing_ret);

#endif
