/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions of one function of x86-64 and where each leads: to choose the
 * places for uprobes that see each call of it begin and end exactly once.
 *
 * A uprobe costs little on an instruction that the kernel can emulate (push,
 * nop, jmp, call, jcc); any other is single-stepped, which costs several
 * microseconds. So a point may stand beside the first instruction or before the
 * return, where that changes nothing.
 */
#ifndef LB_FLOW_H
#define LB_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf.h"

enum lb_insn_kind {
	LB_INSN_PLAIN,
	LB_INSN_CALL,
	LB_INSN_JUMP, /* always */
	LB_INSN_JCC,  /* perhaps */
	LB_INSN_RET,
	LB_INSN_INDIRECT, /* jump to an address that the code does not show */
	LB_INSN_TRAP,	  /* never goes on */
};

struct lb_insn {
	uint64_t vaddr;
	uint64_t target; /* of a direct call or jump; else 0 */
	uint32_t writes; /* registers, bit LB_REG_* of code.h; args and ax */
	uint8_t size;	 /* bytes */
	uint8_t kind;	 /* enum lb_insn_kind */
	bool emulated;	 /* by the kernel, when a uprobe is on it */
	bool is_target;	 /* of a jump in this function */
	bool ends;	 /* all ways from here return, without a call or loop */
};

struct lb_flow {
	uint64_t vaddr;
	uint64_t size; /* bytes */
	struct lb_insn *insns;
	size_t n;
	bool is_indirect; /* has a jump that may lead anywhere in it */
};

/**
 * lb_flow_read() - the function at @vaddr
 * @size: bytes; 0: up to the end of the FDE that begins there
 * @flow_ret: caller frees with lb_flow_fini()
 * Return: 0, -ENOENT (not in the file, or no FDE begins there), -EOPNOTSUPP
 * (not all of it is code), -E2BIG, -ENOMEM.
 */
int lb_flow_read(const struct lb_elf *elf, uint64_t vaddr, uint64_t size,
		 struct lb_flow *flow_ret);
void lb_flow_fini(struct lb_flow *flow);

/** lb_flow_at() - the instruction at @vaddr, or NULL */
const struct lb_insn *lb_flow_at(const struct lb_flow *flow, uint64_t vaddr);

/**
 * lb_flow_entry() - a place that is passed once in each call, at its begin
 *
 * The stack pointer and the registers of the first two arguments are there what
 * they are at the first instruction.
 * Return: the instruction; NULL when the first one is jumped to.
 */
const struct lb_insn *lb_flow_entry(const struct lb_flow *flow);

/**
 * lb_flow_exits() - places of which each call that returns passes at least one
 * @exits_ret: room for @max
 *
 * Behind such a place there is no call and no loop. One call may pass two, and
 * a call that an error is thrown through passes none. A jump to another
 * function is an exit. Compilers put rare code apart; what jumps back into the
 * function, or never returns, is a part of it.
 * Return: 0, -EOPNOTSUPP (a conditional jump leaves the function), -E2BIG,
 * -ENOENT (it never returns), -ENOMEM.
 */
int lb_flow_exits(const struct lb_elf *elf, const struct lb_flow *flow,
		  const struct lb_insn **exits_ret, size_t max, size_t *n_ret);

/**
 * lb_flow_after() - a place that is passed once after the call at @insn
 * The register of its result is not written in between.
 * Return: the instruction, or NULL when there is none.
 */
const struct lb_insn *lb_flow_after(const struct lb_flow *flow,
				    const struct lb_insn *insn);

/** Extent of the function that holds a place. */
struct lb_extent {
	uint64_t vaddr;
	uint64_t size; /* 0: in no FDE */
};

/**
 * lb_flow_extents() - the FDEs around some places
 * @extents: vaddr is a place; becomes the function's begin and size
 * Return: 0, or what lb_ehframe_each() gives.
 */
int lb_flow_extents(const struct lb_elf *elf, struct lb_extent *extents,
		    size_t n);

#endif
