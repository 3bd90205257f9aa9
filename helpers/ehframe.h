/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .eh_frame of one file, record by record, each FDE's program run into rules.
 * Specification: DWARF 5 section 6.4, Linux Standard Base 5 (.eh_frame).
 */
#ifndef LB_EHFRAME_H
#define LB_EHFRAME_H

#include <stdint.h>

#include "elf.h"
#include "../bpf_c/lb_wire.h"

struct lb_fde_rows; /* see ehframe.c */

struct lb_fde {
	uint64_t vaddr;
	uint64_t size;		    /* bytes of code */
	uint64_t personality_vaddr; /* 0 if none or indirect */
};

/** One rule from @vaddr on. Return non-zero to stop. */
typedef int (*lb_rule_fn)(void *arg, uint64_t vaddr,
			  const struct lb_rule *rule);
/** Begin of an FDE. Return non-zero to stop. */
typedef int (*lb_fde_fn)(void *arg, const struct lb_fde *fde);

/**
 * lb_ehframe_each() - all FDEs in order of address, each with its rules
 * @fde_fn: called before an FDE's rules; may be NULL
 * @rule_fn: called with ascending vaddr inside the FDE
 * A malformed record is skipped and counted, the rest is still delivered.
 * Return: 0, what a callback returned, -ENODATA (no .eh_frame), -EBADMSG (not
 * one usable record), -ENOMEM.
 */
int lb_ehframe_each(const struct lb_elf *elf, lb_fde_fn fde_fn,
		    lb_rule_fn rule_fn, void *arg, uint64_t *n_bad_ret);

#endif
