/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one LuaJIT VM of a process holds at this moment: memory of its
 * collector, threads, traces, areas of machine code. Read from outside while it
 * runs.
 */
#ifndef LB_GSTATE_H
#define LB_GSTATE_H

#include <stdbool.h>
#include <stdint.h>

#include "target.h"

#define LB_GSTATE_UNKNOWN UINT64_MAX

enum lb_gstate_jit {
	LB_GSTATE_JIT_UNKNOWN = 0,
	LB_GSTATE_JIT_OFF, /* turned off, or not built in */
	LB_GSTATE_JIT_ON,
};

/* LB_GSTATE_UNKNOWN where the offset is not known or memory was not read. */
struct lb_gstate {
	uint64_t g_addr;
	uint64_t main_l_addr;
	uint64_t gc_total_bytes;
	uint64_t gc_threshold_bytes;
	uint64_t gc_estimate_bytes;
	uint64_t gc_phase;    /* 0 ... 5, see lb_gstate_phase() */
	uint64_t n_objects;   /* collectable ones but strings */
	uint64_t n_threads;   /* lua_States among them, the main one too */
	bool n_threads_exact; /* false: at least that many */
	uint64_t n_traces;
	uint64_t n_mcode_areas;
	uint64_t mcode_bytes; /* of all areas */
	enum lb_gstate_jit jit;
};

/**
 * lb_gstate_read() - look at the VM whose global_State is at @g_addr
 * @target: its budget is spent
 *
 * Objects are counted up to LB_GSTATE_OBJECTS_MAX. The VM runs on meanwhile:
 * numbers are of slightly different moments.
 * Return: 0, -E2BIG (no budget; all but g_addr is unknown), -EBADMSG (no VM
 * there), -ENOMEM, or what the first read gave.
 */
int lb_gstate_read(struct lb_target *target, uint64_t g_addr,
		   struct lb_gstate *gstate_ret);

#define LB_GSTATE_OBJECTS_MAX 1000000

/** One word for a phase of the collector ("sweep"); "unknown". */
const char *lb_gstate_phase(uint64_t phase);

#endif
