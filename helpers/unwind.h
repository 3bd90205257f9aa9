/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind table of one file: rows sorted by address, rules without repeats, an
 * index of blocks of text. Rows inside a LuaJIT VM are made here too, since
 * its FDE has one row where the code has several states.
 */
#ifndef LB_UNWIND_H
#define LB_UNWIND_H

#include <stdbool.h>
#include <stdint.h>

#include "elf.h"
#include "luajit.h"
#include "../bpf_c/lb_wire.h"

struct lb_unwind {
	uint64_t vaddr_lo; /* row.vaddr and blocks count from here */
	uint64_t vaddr_hi;
	struct lb_row
		*rows; /* first row: vaddr 0; last: a stop row at the end */
	uint32_t n_rows;
	struct lb_rule *rules;
	uint32_t n_rules;
	/* blocks[i]: last row at or before vaddr i << LB_BLOCK_SHIFT; n_blocks
	 * counts one more than there are blocks, for the end */
	uint32_t *blocks;
	uint32_t n_blocks;
	/* start and end (relative to vaddr_lo) of each FDE, sorted */
	uint32_t (*fdes)[2];
	uint32_t n_fdes;
	/* accounting */
	uint64_t n_bad_records; /* malformed CIE or FDE */
	uint64_t n_bad_rows;	/* LB_RULE_BAD */
};

/**
 * lb_unwind_build() - compile the .eh_frame of one file into rows
 * @elf: used during the call only
 * @luajit: the VM in this file, or NULL
 * @unwind_ret: new table, caller frees with lb_unwind_free()
 *
 * A gap between FDEs gets a row of kind LB_RULE_NONE (gaps under 16 bytes are
 * padding and are dropped).
 * Return: 0, -ENODATA (no .eh_frame), -EBADMSG, -ERANGE (text over 4 GiB),
 * -ENOMEM.
 */
int lb_unwind_build(const struct lb_elf *elf, const struct lb_luajit *luajit,
		    struct lb_unwind **unwind_ret);
void lb_unwind_free(struct lb_unwind *unwind);
/** Rule for @vaddr (file vaddr); NULL outside the table. */
const struct lb_rule *lb_unwind_rule(const struct lb_unwind *unwind,
				     uint64_t vaddr);
/** Start (file vaddr) of the FDE that contains @vaddr, or 0. */
uint64_t lb_unwind_function(const struct lb_unwind *unwind, uint64_t vaddr);

#endif
