/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machine code of x86-64 as a list of what it does to memory, with the origin
 * of each address and value: enough to follow a chain of pointers through a
 * piece of code without branches of interest.
 */
#ifndef LB_CODE_H
#define LB_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf.h"

/* Registers, in the order of their numbers in instructions. */
enum {
	LB_REG_AX,
	LB_REG_CX,
	LB_REG_DX,
	LB_REG_BX,
	LB_REG_SP,
	LB_REG_BP,
	LB_REG_SI,
	LB_REG_DI,
	LB_REG_R14 = 14,
	LB_REG_R15,
	LB_N_REGS,
	LB_REG_NONE = 0xff
};

/*
 * Nodes: values that were seen. The first ones are what the registers hold at
 * the begin of a piece, and L: the C functions' first argument, the VM's slot.
 */
#define LB_NODE_REG(reg) (1 + (reg))
#define LB_NODE_L	 (1 + LB_N_REGS)
#define LB_N_FIXED_NODES (2 + LB_N_REGS)

enum lb_node_kind {
	LB_NODE_OTHER,
	LB_NODE_LOAD, /* from [base + disp] */
	LB_NODE_LEA,  /* base + disp */
	LB_NODE_CONST /* disp */
};

struct lb_node {
	enum lb_node_kind kind;
	bool indexed; /* an index register is added */
	uint8_t size; /* bytes that were loaded */
	uint16_t base;
	int64_t disp;
};

enum lb_op_kind {
	LB_OP_ENTRY,	/* of a function; only in the VM */
	LB_OP_SET,	/* reg = imm */
	LB_OP_LOAD,	/* reg = [base + disp]; node: the value */
	LB_OP_LEA,	/* reg = base + disp; node: the value */
	LB_OP_STORE,	/* [base + disp] = node, from reg, or imm */
	LB_OP_CMP,	/* memory with node, or with imm */
	LB_OP_CMP_REG,	/* base with node, or with imm */
	LB_OP_TEST,	/* memory with imm */
	LB_OP_TEST_REG, /* node with itself */
	LB_OP_AND,	/* reg &= memory */
	LB_OP_ADD,	/* reg += memory; node: the sum */
	LB_OP_SUB,	/* reg -= memory */
	LB_OP_ADD_TO,	/* memory += */
	LB_OP_MUL,	/* base * imm */
	LB_OP_SHIFT,	/* base >> imm */
	LB_OP_CONVERT,	/* memory to floating point */
	LB_OP_POP,	/* reg */
	LB_OP_CALL,	/* target, or 0 and maybe memory with the address */
	LB_OP_JUMP	/* likewise */
};

struct lb_op {
	uint64_t vaddr;
	uint64_t target;
	int64_t imm;
	int64_t disp;
	enum lb_op_kind kind;
	uint16_t base; /* node of the address, without index */
	uint16_t node;
	bool indexed;
	bool has_imm;
	uint8_t size; /* bytes in memory */
	uint8_t reg;
};

struct lb_code {
	struct lb_op *ops; /* by vaddr */
	size_t n_ops;
	size_t ops_cap;
	struct lb_node *nodes;
	size_t n_nodes;
	size_t nodes_cap;
};

/* Where pieces begin, for code that is not one function. */
struct lb_pieces {
	uint32_t l_slot;       /* [rsp + l_slot] holds L */
	const uint8_t *begins; /* for each byte: 1 if a piece begins there */
	uint8_t *is_insn;      /* set to 1 where an instruction begins */
};

/**
 * lb_code_read() - disassemble @size bytes at @vaddr
 * @pieces: NULL for one function
 * Return: 0, -ENOENT (not in the file), -EOPNOTSUPP (not all is code), -E2BIG,
 * -ENOMEM.
 */
int lb_code_read(const struct lb_elf *elf, uint64_t vaddr, uint64_t size,
		 const struct lb_pieces *pieces, struct lb_code *code_ret);
void lb_code_fini(struct lb_code *code);

/** lb_code_node() - a node by number; for 0 and what is not there, no value */
const struct lb_node *lb_code_node(const struct lb_code *code, uint16_t node);
/** Was this loaded from [base + disp], with any displacement? */
bool lb_code_is_load(const struct lb_code *code, uint16_t node, uint16_t base);

/* Some operations in a row. */
struct lb_ops {
	const struct lb_op *begin;
	const struct lb_op *end;
};

#define lb_each_op(op, ops)                    \
	const struct lb_op *op = (ops)->begin; \
	op < (ops)->end;                       \
	op++

struct lb_ops lb_ops_all(const struct lb_code *code);
/** lb_ops_behind() - up to @n operations behind @op, which is one of @ops */
struct lb_ops lb_ops_behind(const struct lb_ops *ops, const struct lb_op *op,
			    size_t n);

#endif
