/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Struct offsets of a LuaJIT build from its machine code alone: no symbols, no
 * debug info, no table of known builds.
 */
#ifndef LB_SCAN_H
#define LB_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "luajit.h"
#include "../bpf_c/lj_offsets.h"

#define LB_SCAN_N_FIELDS (sizeof(struct lj_offsets) / sizeof(__u32))

/* Index of a member of struct lj_offsets in known[]. */
#define LB_SCAN_FIELD(name) (offsetof(struct lj_offsets, name) / sizeof(__u32))

struct lb_scan {
	struct lj_offsets offsets; /* unknown fields: LJ_OFFSETS_NONE */
	/* A known LJ_OFFSETS_NONE: the code shows that there is no such field.
	 */
	bool known[LB_SCAN_N_FIELDS];
	uint32_t n_known;
	uint32_t n_opcodes; /* 0: not found */
	/* functions; 0: not found */
	uint64_t gc_step_vaddr;	       /* lj_gc_step */
	uint64_t gc_step_fixtop_vaddr; /* lj_gc_step_fixtop */
};

/**
 * lb_scan_offsets() - read struct offsets from the code of a VM
 * @luajit: where the VM is in @elf. Of the rest, cframe_size is taken; cf_l and
 * static_dispatch are believed where something is looked for, but shown only
 * if the code agrees.
 *
 * A field is known only if code shows it and all code that shows it agrees.
 * Return: 0 (any number of fields may be known), -EOPNOTSUPP (the VM's code is
 * not understood), -ENOENT (not in the file), -E2BIG, -ENOMEM.
 */
int lb_scan_offsets(const struct lb_elf *elf, const struct lb_luajit *luajit,
		    struct lb_scan *scan_ret);

#endif
