/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machine code as a list of memory accesses, by libcapstone.
 *
 * Code is read once, in order of address. Behind a jump or return the registers
 * hold what they held at the first jump to there, so that the slow path of a
 * bytecode, which stands behind its fast path, works on the same values. Where
 * paths meet, what they changed is not told apart: who looks for a field asks
 * for a chain of accesses that only the right place has.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <capstone/capstone.h>

#include "code.h"

#define OPS_MAX	  (1 << 16)
#define INSNS_MAX (1 << 16)
#define NODES_MAX UINT16_MAX
#define ARRIVALS  32 /* jumps ahead in a piece that are remembered */
#define SLOTS	  64 /* of a function's stack, 8 bytes each */
#define TAG_SHIFT 17 /* bits: shl, shr by these removes a tag */

/* What the registers held at a jump to @vaddr. */
struct arrival {
	uint64_t vaddr;
	uint16_t regs[LB_N_REGS];
};

struct reader {
	const struct lb_elf *elf;
	const struct lb_pieces *pieces;
	struct lb_code code;
	uint16_t regs[LB_N_REGS];
	uint16_t slots[SLOTS];
	struct arrival arrivals[ARRIVALS];
	size_t n_arrivals;
	bool ended; /* the instruction before was a jump or return */
	int err;
};

struct operand {
	x86_op_type type;
	uint8_t size;
	uint8_t reg; /* LB_REG_NONE: not a general register */
	int64_t imm;
	/* memory */
	uint16_t base;
	bool indexed;
	bool is_stack;
	bool is_rip;
	int64_t disp;
};

#define REGS(n, r64, r32, r16, r8)                            \
	[X86_REG_##r64] = (n) + 1, [X86_REG_##r32] = (n) + 1, \
	[X86_REG_##r16] = (n) + 1, [X86_REG_##r8] = (n) + 1

/* Registers of all widths but ah, bh, ch, dh. */
static uint8_t reg_of(x86_reg reg)
{
	static const uint8_t numbers[X86_REG_ENDING] = {
		REGS(0, RAX, EAX, AX, AL),
		REGS(1, RCX, ECX, CX, CL),
		REGS(2, RDX, EDX, DX, DL),
		REGS(3, RBX, EBX, BX, BL),
		REGS(4, RSP, ESP, SP, SPL),
		REGS(5, RBP, EBP, BP, BPL),
		REGS(6, RSI, ESI, SI, SIL),
		REGS(7, RDI, EDI, DI, DIL),
		REGS(8, R8, R8D, R8W, R8B),
		REGS(9, R9, R9D, R9W, R9B),
		REGS(10, R10, R10D, R10W, R10B),
		REGS(11, R11, R11D, R11W, R11B),
		REGS(12, R12, R12D, R12W, R12B),
		REGS(13, R13, R13D, R13W, R13B),
		REGS(14, R14, R14D, R14W, R14B),
		REGS(15, R15, R15D, R15W, R15B),
	};

	return reg < X86_REG_ENDING && numbers[reg]
		       ? (uint8_t)(numbers[reg] - 1)
		       : LB_REG_NONE;
}

/* Room for one more. */
static bool grow(struct reader *reader, void **array, size_t *cap, size_t n,
		 size_t size, size_t max)
{
	if (n < *cap)
		return true;
	if (n >= max) {
		reader->err = -E2BIG;
		return false;
	}

	size_t new_cap = *cap ? *cap * 2 : 256;
	void *bigger;

	if (new_cap > max)
		new_cap = max;
	bigger = realloc(*array, new_cap * size);
	if (!bigger) {
		reader->err = -ENOMEM;
		return false;
	}
	*array = bigger;
	*cap = new_cap;
	return true;
}

static uint16_t add_node(struct reader *reader, struct lb_node node)
{
	struct lb_code *code = &reader->code;

	if (!grow(reader, (void **)&code->nodes, &code->nodes_cap,
		  code->n_nodes, sizeof(node), NODES_MAX))
		return 0;
	code->nodes[code->n_nodes] = node;
	return (uint16_t)code->n_nodes++;
}

static uint16_t new_value(struct reader *reader)
{
	return add_node(reader, (struct lb_node){ .kind = LB_NODE_OTHER });
}

static void add_op(struct reader *reader, const cs_insn *insn, struct lb_op op)
{
	struct lb_code *code = &reader->code;

	if (!grow(reader, (void **)&code->ops, &code->ops_cap, code->n_ops,
		  sizeof(op), OPS_MAX))
		return;
	op.vaddr = insn->address;
	code->ops[code->n_ops++] = op;
}

static void forget_slots(struct reader *reader)
{
	memset(reader->slots, 0, sizeof(reader->slots));
}

static void reset(struct reader *reader)
{
	for (uint8_t i = 0; i < LB_N_REGS; i++)
		reader->regs[i] = LB_NODE_REG(i);
	forget_slots(reader);
	reader->n_arrivals = 0;
}

static uint16_t reg_node(const struct reader *reader, uint8_t reg)
{
	return reg < LB_N_REGS ? reader->regs[reg] : 0;
}

static void set_reg(struct reader *reader, uint8_t reg, uint16_t node)
{
	if (reg < LB_N_REGS && reg != LB_REG_SP)
		reader->regs[reg] = node;
}

static struct operand operand_of(const struct reader *reader,
				 const cs_insn *insn, int index)
{
	const cs_x86 *x86 = &insn->detail->x86;
	struct operand operand = { .type = X86_OP_INVALID, .reg = LB_REG_NONE };

	if (index >= x86->op_count)
		return operand;

	const cs_x86_op *op = &x86->operands[index];

	operand.type = op->type;
	operand.size = op->size;
	switch (op->type) {
	case X86_OP_REG:
		operand.reg = reg_of(op->reg);
		break;
	case X86_OP_IMM:
		/* -1 may come as 0xffffffff */
		operand.imm = op->size == 4 ? (int32_t)op->imm : op->imm;
		break;
	case X86_OP_MEM: {
		uint8_t base = reg_of(op->mem.base);

		operand.base = reg_node(reader, base);
		operand.indexed = op->mem.index != X86_REG_INVALID;
		operand.is_stack = base == LB_REG_SP && !operand.indexed;
		operand.is_rip = op->mem.base == X86_REG_RIP;
		operand.disp = op->mem.disp;
		if (operand.is_rip) /* an address */
			operand.disp = (int64_t)((uint64_t)op->mem.disp +
						 insn->address + insn->size);
		if (op->mem.segment != X86_REG_INVALID)
			operand.base = 0;
		break;
	}
	default:
		break;
	}
	return operand;
}

static bool is_reg(const struct operand *operand)
{
	return operand->type == X86_OP_REG;
}

static bool is_mem(const struct operand *operand)
{
	return operand->type == X86_OP_MEM;
}

static bool is_imm(const struct operand *operand)
{
	return operand->type == X86_OP_IMM;
}

/* An operation on memory; the caller adds what it is done with. */
static struct lb_op mem_op(enum lb_op_kind kind, const struct operand *mem)
{
	return (struct lb_op){
		.kind = kind,
		.base = mem->base,
		.disp = mem->disp,
		.indexed = mem->indexed,
		.size = mem->size,
		.reg = LB_REG_NONE,
	};
}

static uint16_t *slot_of(struct reader *reader, const struct operand *mem)
{
	if (reader->pieces || !mem->is_stack || mem->disp < 0 ||
	    mem->disp >= SLOTS * 8)
		return NULL;
	return &reader->slots[mem->disp / 8];
}

/* A constant of up to 8 bytes beside the code. */
static bool read_constant(const struct reader *reader,
			  const struct operand *mem, int64_t *value_ret)
{
	const uint8_t *data;

	if (!mem->is_rip || mem->indexed || mem->size > sizeof(*value_ret))
		return false;
	data = lb_elf_vaddr_data(reader->elf, (uint64_t)mem->disp, mem->size);
	if (!data)
		return false;
	*value_ret = 0;
	memcpy(value_ret, data, mem->size);
	return true;
}

static uint16_t load(struct reader *reader, const struct operand *mem)
{
	const struct lb_pieces *pieces = reader->pieces;
	const uint16_t *slot = slot_of(reader, mem);
	int64_t value;

	if (slot && *slot)
		return *slot;
	if (pieces && mem->is_stack && mem->disp == pieces->l_slot)
		return LB_NODE_L;
	if (read_constant(reader, mem, &value))
		return add_node(reader, (struct lb_node){ .kind = LB_NODE_CONST,
							  .disp = value });
	return add_node(reader, (struct lb_node){ .kind = LB_NODE_LOAD,
						  .base = mem->base,
						  .indexed = mem->indexed,
						  .size = mem->size,
						  .disp = mem->disp });
}

static void do_load(struct reader *reader, const cs_insn *insn,
		    const struct operand *to, const struct operand *mem)
{
	struct lb_op op = mem_op(LB_OP_LOAD, mem);

	op.reg = to->reg;
	op.node = load(reader, mem);
	add_op(reader, insn, op);
	set_reg(reader, to->reg, op.node);
}

static void do_store(struct reader *reader, const cs_insn *insn,
		     const struct operand *mem, const struct operand *from)
{
	struct lb_op op = mem_op(LB_OP_STORE, mem);
	uint16_t *slot = slot_of(reader, mem);

	op.has_imm = is_imm(from);
	op.imm = from->imm;
	op.reg = from->reg;
	op.node = reg_node(reader, from->reg);
	add_op(reader, insn, op);
	if (slot)
		*slot = op.node;
}

static void do_mov(struct reader *reader, const cs_insn *insn,
		   const struct operand *to, const struct operand *from)
{
	if (is_mem(to)) {
		do_store(reader, insn, to, from);
	} else if (is_mem(from)) {
		do_load(reader, insn, to, from);
	} else if (is_imm(from)) {
		if (to->size == 1) /* the rest of the register stays */
			return;
		add_op(reader, insn,
		       (struct lb_op){ .kind = LB_OP_SET,
				       .reg = to->reg,
				       .imm = from->imm });
		set_reg(reader, to->reg,
			add_node(reader,
				 (struct lb_node){ .kind = LB_NODE_CONST,
						   .disp = from->imm }));
	} else {
		set_reg(reader, to->reg, reg_node(reader, from->reg));
	}
}

static void set_sum(struct reader *reader, const cs_insn *insn,
		    const struct operand *to, uint16_t base, int64_t disp,
		    bool indexed)
{
	uint16_t node = add_node(reader, (struct lb_node){ .kind = LB_NODE_LEA,
							   .base = base,
							   .indexed = indexed,
							   .disp = disp });

	add_op(reader, insn,
	       (struct lb_op){ .kind = LB_OP_LEA,
			       .base = base,
			       .disp = disp,
			       .indexed = indexed,
			       .node = node,
			       .reg = to->reg });
	/* in the VM the dispatch table is always there */
	if (reader->pieces && to->reg == LB_REG_R14)
		node = LB_NODE_REG(LB_REG_R14);
	set_reg(reader, to->reg, node);
}

/* add, sub, and: with memory, or a constant that moves an address. */
static void do_sum(struct reader *reader, const cs_insn *insn,
		   enum lb_op_kind kind, const struct operand *to,
		   const struct operand *from)
{
	if (is_mem(to)) {
		if (kind == LB_OP_ADD)
			add_op(reader, insn, mem_op(LB_OP_ADD_TO, to));
		return;
	}
	if (to->reg == LB_REG_SP) {
		forget_slots(reader);
		return;
	}
	if (is_mem(from)) {
		struct lb_op op = mem_op(kind, from);

		op.reg = to->reg;
		op.node = kind == LB_OP_ADD ? new_value(reader)
					    : reg_node(reader, to->reg);
		add_op(reader, insn, op);
		set_reg(reader, to->reg,
			kind == LB_OP_ADD ? op.node : new_value(reader));
	} else if (is_imm(from) && kind == LB_OP_ADD) {
		set_sum(reader, insn, to, reg_node(reader, to->reg), from->imm,
			false);
	} else {
		set_reg(reader, to->reg, new_value(reader));
	}
}

static void do_cmp(struct reader *reader, const cs_insn *insn,
		   const struct operand *a, const struct operand *b)
{
	const struct operand *mem = is_mem(a) ? a : is_mem(b) ? b : NULL;
	const struct operand *other = mem == a ? b : a;
	struct lb_op op;

	if (mem) {
		op = mem_op(LB_OP_CMP, mem);
	} else {
		op = (struct lb_op){ .kind = LB_OP_CMP_REG,
				     .base = reg_node(reader, a->reg) };
		other = b;
	}
	op.reg = other->reg;
	op.node = reg_node(reader, other->reg);
	op.has_imm = is_imm(other);
	op.imm = other->imm;
	add_op(reader, insn, op);
}

static void do_test(struct reader *reader, const cs_insn *insn,
		    const struct operand *a, const struct operand *b)
{
	if (is_mem(a) && is_imm(b)) {
		struct lb_op op = mem_op(LB_OP_TEST, a);

		op.has_imm = true;
		op.imm = b->imm;
		add_op(reader, insn, op);
	} else if (is_reg(a) && is_reg(b) && a->reg == b->reg) {
		add_op(reader, insn,
		       (struct lb_op){ .kind = LB_OP_TEST_REG,
				       .node = reg_node(reader, a->reg),
				       .reg = a->reg });
	}
}

static void do_shift(struct reader *reader, const cs_insn *insn,
		     const struct operand *to, const struct operand *by)
{
	if (!is_reg(to) || (is_imm(by) && by->imm == TAG_SHIFT))
		return;
	if (insn->id == X86_INS_SHR)
		add_op(reader, insn,
		       (struct lb_op){ .kind = LB_OP_SHIFT,
				       .base = reg_node(reader, to->reg),
				       .imm = by->imm });
	set_reg(reader, to->reg, new_value(reader));
}

static void do_imul(struct reader *reader, const cs_insn *insn)
{
	struct operand to = operand_of(reader, insn, 0);
	struct operand from = operand_of(reader, insn, 1);
	struct operand by = operand_of(reader, insn, 2);

	if (is_imm(&by) && is_reg(&from))
		add_op(reader, insn,
		       (struct lb_op){ .kind = LB_OP_MUL,
				       .base = reg_node(reader, from.reg),
				       .imm = by.imm });
	set_reg(reader, to.reg, new_value(reader));
	if (by.type == X86_OP_INVALID && from.type == X86_OP_INVALID) {
		set_reg(reader, LB_REG_AX, new_value(reader));
		set_reg(reader, LB_REG_DX, new_value(reader));
	}
}

static void remember_arrival(struct reader *reader, const cs_insn *insn,
			     const struct operand *to)
{
	struct arrival *arrival = &reader->arrivals[reader->n_arrivals];
	uint64_t vaddr = (uint64_t)to->imm;

	if (!is_imm(to) || vaddr <= insn->address ||
	    reader->n_arrivals == ARRIVALS)
		return;
	reader->n_arrivals++;
	arrival->vaddr = vaddr;
	memcpy(arrival->regs, reader->regs, sizeof(arrival->regs));
}

static void arrive(struct reader *reader, const cs_insn *insn)
{
	for (size_t i = 0; i < reader->n_arrivals; i++) {
		const struct arrival *arrival = &reader->arrivals[i];

		if (arrival->vaddr != insn->address)
			continue;
		memcpy(reader->regs, arrival->regs, sizeof(reader->regs));
		return;
	}
}

static bool is_jump(const cs_insn *insn)
{
	for (uint8_t i = 0; i < insn->detail->groups_count; i++)
		if (insn->detail->groups[i] == X86_GRP_JUMP)
			return true;
	return false;
}

static void do_branch(struct reader *reader, const cs_insn *insn,
		      enum lb_op_kind kind)
{
	struct operand to = operand_of(reader, insn, 0);
	struct lb_op op = { .kind = kind };

	if (is_mem(&to))
		op = mem_op(kind, &to);
	else if (is_imm(&to))
		op.target = (uint64_t)to.imm;
	add_op(reader, insn, op);
	if (kind != LB_OP_CALL)
		return;
	/* what a function may change */
	for (uint8_t i = 0; i < 12; i++)
		if (i != LB_REG_BX && i != LB_REG_BP)
			set_reg(reader, i, new_value(reader));
}

/* Forget what any other instruction writes. */
static void do_other(struct reader *reader, const cs_insn *insn)
{
	const cs_detail *detail = insn->detail;

	for (uint8_t i = 0; i < detail->x86.op_count; i++) {
		const cs_x86_op *op = &detail->x86.operands[i];

		if (op->type == X86_OP_REG && op->access & CS_AC_WRITE)
			set_reg(reader, reg_of(op->reg), new_value(reader));
	}
	for (uint8_t i = 0; i < detail->regs_write_count; i++)
		set_reg(reader, reg_of(detail->regs_write[i]),
			new_value(reader));
}

/* One case for each kind of instruction: longer than other functions. */
static void do_insn(struct reader *reader, const cs_insn *insn)
{
	struct operand a = operand_of(reader, insn, 0);
	struct operand b = operand_of(reader, insn, 1);

	switch (insn->id) {
	case X86_INS_MOV:
	case X86_INS_MOVABS:
		do_mov(reader, insn, &a, &b);
		break;
	case X86_INS_MOVZX:
	case X86_INS_MOVSX:
	case X86_INS_MOVSXD:
		if (is_mem(&b))
			do_load(reader, insn, &a, &b);
		else if (b.reg != LB_REG_NONE)
			set_reg(reader, a.reg, reg_node(reader, b.reg));
		else /* from ah and the like */
			set_reg(reader, a.reg, new_value(reader));
		break;
	case X86_INS_LEA:
		set_sum(reader, insn, &a, b.base, b.disp, b.indexed);
		break;
	case X86_INS_ADD:
		do_sum(reader, insn, LB_OP_ADD, &a, &b);
		break;
	case X86_INS_SUB:
		do_sum(reader, insn, LB_OP_SUB, &a, &b);
		break;
	case X86_INS_AND:
		do_sum(reader, insn, LB_OP_AND, &a, &b);
		break;
	case X86_INS_CMP:
		do_cmp(reader, insn, &a, &b);
		break;
	case X86_INS_TEST:
		do_test(reader, insn, &a, &b);
		break;
	case X86_INS_SHL:
	case X86_INS_SHR:
		do_shift(reader, insn, &a, &b);
		break;
	case X86_INS_IMUL:
		do_imul(reader, insn);
		break;
	case X86_INS_CVTSI2SD:
		if (is_mem(&b))
			add_op(reader, insn, mem_op(LB_OP_CONVERT, &b));
		break;
	case X86_INS_PUSH:
		forget_slots(reader);
		break;
	case X86_INS_POP:
		add_op(reader, insn,
		       (struct lb_op){ .kind = LB_OP_POP, .reg = a.reg });
		set_reg(reader, a.reg, new_value(reader));
		forget_slots(reader);
		break;
	case X86_INS_CALL:
		do_branch(reader, insn, LB_OP_CALL);
		break;
	case X86_INS_JMP:
		do_branch(reader, insn, LB_OP_JUMP);
		remember_arrival(reader, insn, &a);
		break;
	default:
		if (is_jump(insn))
			remember_arrival(reader, insn, &a);
		else
			do_other(reader, insn);
	}
	reader->ended = insn->id == X86_INS_JMP || insn->id == X86_INS_RET;
}

/* Does a bytecode, a fast function or a function called from C begin here? */
static void begin_piece(struct reader *reader, const cs_insn *insn,
			uint64_t off)
{
	const struct lb_pieces *pieces = reader->pieces;
	bool is_entry = reader->ended && insn->id == X86_INS_PUSH &&
			reg_of(insn->detail->x86.operands[0].reg) == LB_REG_BP;

	pieces->is_insn[off] = 1;
	if (!pieces->begins[off] && !is_entry)
		return;
	reset(reader);
	if (is_entry) {
		reader->regs[LB_REG_DI] = LB_NODE_L;
		add_op(reader, insn, (struct lb_op){ .kind = LB_OP_ENTRY });
	}
}

static int read_insns(struct reader *reader, csh handle, const uint8_t *data,
		      uint64_t vaddr, uint64_t size)
{
	cs_insn *insn = cs_malloc(handle);
	uint64_t pos = vaddr;
	size_t left = size, n = 0;

	if (!insn)
		return -ENOMEM;
	while (left && !reader->err) {
		if (++n > INSNS_MAX)
			reader->err = -E2BIG;
		else if (!cs_disasm_iter(handle, &data, &left, &pos, insn))
			reader->err = -EOPNOTSUPP;
		if (reader->err)
			break;
		if (reader->ended)
			arrive(reader, insn);
		if (reader->pieces)
			begin_piece(reader, insn, insn->address - vaddr);
		do_insn(reader, insn);
	}
	cs_free(insn, 1);
	return reader->err;
}

int lb_code_read(const struct lb_elf *elf, uint64_t vaddr, uint64_t size,
		 const struct lb_pieces *pieces, struct lb_code *code_ret)
{
	struct reader reader = { .elf = elf, .pieces = pieces };
	const uint8_t *data = lb_elf_vaddr_data(elf, vaddr, size);
	csh handle;
	int err;

	if (!data)
		return -ENOENT;
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle) != CS_ERR_OK)
		return -ENOMEM;
	cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
	for (int i = 0; i < LB_N_FIXED_NODES; i++)
		new_value(&reader);
	reset(&reader);
	if (!pieces)
		reader.regs[LB_REG_DI] = LB_NODE_L;
	err = reader.err ? reader.err
			 : read_insns(&reader, handle, data, vaddr, size);
	cs_close(&handle);
	if (err)
		lb_code_fini(&reader.code);
	else
		*code_ret = reader.code;
	return err;
}

void lb_code_fini(struct lb_code *code)
{
	free(code->ops);
	free(code->nodes);
	*code = (struct lb_code){ 0 };
}

const struct lb_node *lb_code_node(const struct lb_code *code, uint16_t node)
{
	static const struct lb_node none;

	return node < code->n_nodes ? &code->nodes[node] : &none;
}

bool lb_code_is_load(const struct lb_code *code, uint16_t node, uint16_t base)
{
	const struct lb_node *n = lb_code_node(code, node);

	return n->kind == LB_NODE_LOAD && n->base == base;
}

struct lb_ops lb_ops_all(const struct lb_code *code)
{
	/* without operations there is no array, either */
	return (struct lb_ops){ code->ops, code->n_ops ? code->ops + code->n_ops
						       : code->ops };
}

struct lb_ops lb_ops_behind(const struct lb_ops *ops, const struct lb_op *op,
			    size_t n)
{
	size_t left = (size_t)(ops->end - op) - 1;

	return (struct lb_ops){ op + 1, op + 1 + (left < n ? left : n) };
}
