/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LuaJIT's tables of opcodes in the constants of a file: where the code of each
 * opcode is, and which operands it has. The latter tells which opcode it is.
 */
#ifndef LB_OPCODES_H
#define LB_OPCODES_H

#include "luajit.h"
#include "../bpf_c/lj_offsets.h"

#define LB_OPCODES_MAX 512

struct lb_opcodes {
	uint32_t n_opcodes;	      /* bytecodes */
	uint32_t n_all;		      /* and fast functions */
	uint32_t off[LB_OPCODES_MAX]; /* of the code from the VM's begin, bytes
				       */
};

/**
 * lb_opcodes_find() - both tables, and the numbers of opcodes
 * @offsets: members bc_* that are recognised are set, no others
 * Return: 0, -ENOENT (no such tables, or more than one pair).
 */
int lb_opcodes_find(const struct lb_elf *elf, const struct lb_luajit *luajit,
		    struct lb_opcodes *opcodes_ret, struct lj_offsets *offsets);

#endif
