/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scan under way: what scan.c, which reads the VM's code, and scanfunc.c,
 * which reads C functions that the VM calls, have found so far.
 */
#ifndef LB_SCANFUNC_H
#define LB_SCANFUNC_H

#include "code.h"
#include "opcodes.h"
#include "scan.h"

#define LB_SCAN_NEAR 14 /* operations from an access to what belongs to it */

struct lb_scan_state {
	const struct lb_elf *elf;
	const struct lb_luajit *luajit;
	struct lb_scan found;
	bool differs[LB_SCAN_N_FIELDS];
	struct lb_opcodes opcodes;
	struct lb_code vm;
	uint32_t ref_size; /* bytes of a reference */
	/* not in struct lj_offsets */
	uint64_t new_func_vaddr; /* lj_func_newL_gc */
	int64_t k_disp;		 /* GCproto.k - size of GCproto; 0: unknown */
	int64_t numparams_disp;
	int64_t marked;	 /* GCobj.marked */
	int64_t uv_disp; /* GCupval.marked - GCupval.tv */
	bool have_uv_disp;
	int64_t trace_sum; /* G to J, and on to J->trace */
};

#define SET(scan, name, value) \
	lb_scan_set(scan, LB_SCAN_FIELD(name), (int64_t)(value))
#define GET(scan, name) ((scan)->found.offsets.name)
#define KNOWN(scan, name)                            \
	((scan)->found.known[LB_SCAN_FIELD(name)] && \
	 !(scan)->differs[LB_SCAN_FIELD(name)])

/** lb_scan_set() - a field was seen; with another value than before: differs */
void lb_scan_set(struct lb_scan_state *scan, size_t field, int64_t value);

/** Is the memory that is accessed as wide as a reference? */
static inline bool lb_scan_is_ref(const struct lb_scan_state *scan,
				  const struct lb_op *op)
{
	return op->size == scan->ref_size;
}

/** A state of the VM is stored as ~number, in 32 bits. */
static inline uint32_t lb_scan_vmstate(const struct lb_op *op)
{
	return ~(uint32_t)op->imm;
}

/** lb_scan_functions() - fields that C functions show, and which these are */
void lb_scan_functions(struct lb_scan_state *scan);

#endif
