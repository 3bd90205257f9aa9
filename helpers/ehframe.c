/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .eh_frame of one file, each FDE's program run into rules.
 * Specification: DWARF 5 section 6.4, Linux Standard Base 5 (.eh_frame).
 *
 * Two passes: all records are read and the FDEs sorted by address; then each
 * program is run once, from its begin to its end, and every change of the rule
 * is delivered. Only what a struct lb_rule can hold is followed: the CFA, and
 * where the return address, rbp, rbx and r14 are.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "ehframe.h"

#define NESTING_MAX 16 /* DW_CFA_remember_state; compilers use 1 or 2 */

/* DWARF register numbers of x86-64. */
enum {
	REG_RCX = 2,
	REG_RBX = 3,
	REG_RBP = 6,
	REG_RSP = 7,
	REG_R14 = 14,
	REG_RA = 16,
};

/* Registers that are followed, as an index. */
enum {
	SAVED_RBP,
	SAVED_RBX,
	SAVED_R14,
	SAVED_RSP,
	SAVED_RA,
	N_SAVED,
};

enum saved_how {
	HOW_SAME = 0,  /* not changed, or no rule */
	HOW_CFA,       /* at CFA + off */
	HOW_BREG_RBP,  /* at rbp + off, by an expression */
	HOW_BREG_RSP,  /* at rsp + off, by an expression */
	HOW_RCX,       /* in rcx */
	HOW_UNDEFINED, /* lost */
	HOW_OTHER,     /* in a way that a rule cannot hold */
};

struct saved {
	int64_t off;
	enum saved_how how;
};

enum cfa_how {
	CFA_NONE = 0,
	CFA_REG,   /* reg + off */
	CFA_PLT,   /* off is N of LB_RULE_PLT */
	CFA_DEREF, /* [reg + off] + deref_off */
	CFA_OTHER, /* in a way that a rule cannot hold */
};

struct state {
	enum cfa_how cfa_how;
	uint64_t cfa_reg;
	int64_t cfa_off;
	int64_t deref_off;
	bool landing; /* see landing_rule() */
	struct saved saved[N_SAVED];
};

struct cie {
	uint64_t off; /* in the section */
	uint64_t code_align;
	int64_t data_align;
	uint64_t personality_vaddr;
	uint8_t pointer_enc;
	bool has_aug_data; /* 'z': FDEs have a length-counted part */
	bool signal;
	bool bad;
	struct state state; /* after the initial instructions */
};

struct fde {
	uint64_t vaddr;
	uint64_t size;
	uint32_t cie;
	struct lb_buf program;
};

struct records {
	struct cie *cies;
	size_t n_cies;
	size_t room_cies;
	struct fde *fdes;
	size_t n_fdes;
	size_t room_fdes;
	uint64_t n_bad;
	bool unsorted;
};

/* ---- encoded pointers ---- */

enum {
	PE_ABSPTR = 0x00,
	PE_ULEB = 0x01,
	PE_UDATA2 = 0x02,
	PE_UDATA4 = 0x03,
	PE_UDATA8 = 0x04,
	PE_SIGNED = 0x08,
	PE_SLEB = 0x09,
	PE_SDATA2 = 0x0a,
	PE_SDATA4 = 0x0b,
	PE_SDATA8 = 0x0c,
	PE_FORMAT = 0x0f,

	PE_PCREL = 0x10,
	PE_ALIGNED = 0x50,
	PE_BASE = 0x70,

	PE_INDIRECT = 0x80,
	PE_OMIT = 0xff,
};

static uint64_t read_format(struct lb_buf *buf, uint8_t enc)
{
	switch (enc & PE_FORMAT) {
	case PE_ABSPTR:
	case PE_SIGNED:
	case PE_UDATA8:
	case PE_SDATA8:
		return lb_buf_u64(buf);
	case PE_ULEB:
		return lb_buf_uleb(buf);
	case PE_UDATA2:
		return lb_buf_u16(buf);
	case PE_UDATA4:
		return lb_buf_u32(buf);
	case PE_SLEB:
		return (uint64_t)lb_buf_sleb(buf);
	case PE_SDATA2:
		return (uint64_t)(int16_t)lb_buf_u16(buf);
	case PE_SDATA4:
		return (uint64_t)(int32_t)lb_buf_u32(buf);
	default:
		buf->bad = true;
		return 0;
	}
}

/*
 * The text and data bases (0x20, 0x30) are not defined on x86-64, and nothing
 * says what a function-relative pointer (0x40) would be relative to.
 */
static uint64_t read_pointer(struct lb_buf *buf, uint8_t enc)
{
	uint64_t vaddr = lb_buf_vaddr(buf);

	switch (enc & PE_BASE) {
	case PE_ABSPTR:
		return read_format(buf, enc);
	case PE_PCREL:
		return vaddr + read_format(buf, enc);
	case PE_ALIGNED:
		lb_buf_skip(buf, -vaddr & 7);
		return lb_buf_u64(buf);
	default:
		buf->bad = true;
		return 0;
	}
}

/* ---- expressions ---- */

enum {
	OP_DEREF = 0x06,
	OP_AND = 0x1a,
	OP_PLUS = 0x22,
	OP_PLUS_UCONST = 0x23,
	OP_SHL = 0x24,
	OP_GE = 0x2a,
	OP_LIT0 = 0x30,
	OP_LIT31 = 0x4f,
	OP_BREG0 = 0x70,
};

/*
 * What linkers write for .plt: breg(rsp) 8, breg(pc) 0, lit15, and, litN, ge,
 * lit3, shl, plus. Behind the first two was read already.
 */
static bool parse_plt(struct lb_buf *expr, struct state *state)
{
	if (lb_buf_u8(expr) != OP_BREG0 + REG_RA || lb_buf_sleb(expr) != 0 ||
	    lb_buf_u8(expr) != OP_LIT0 + 15 || lb_buf_u8(expr) != OP_AND)
		return false;

	uint8_t limit = lb_buf_u8(expr);

	if (limit < OP_LIT0 || limit > OP_LIT31 || lb_buf_u8(expr) != OP_GE ||
	    lb_buf_u8(expr) != OP_LIT0 + 3 || lb_buf_u8(expr) != OP_SHL ||
	    lb_buf_u8(expr) != OP_PLUS)
		return false;
	state->cfa_how = CFA_PLT;
	state->cfa_off = limit - OP_LIT0;
	return true;
}

static void parse_cfa_expression(struct lb_buf expr, struct state *state)
{
	uint8_t op = lb_buf_u8(&expr);
	int64_t off = lb_buf_sleb(&expr);

	state->cfa_how = CFA_OTHER;
	state->deref_off = 0;
	if (expr.bad || (op != OP_BREG0 + REG_RSP && op != OP_BREG0 + REG_RBP))
		return;
	state->cfa_reg = op - OP_BREG0;
	state->cfa_off = off;
	if (!lb_buf_left(&expr)) {
		state->cfa_how = CFA_REG;
		return;
	}
	if (*expr.pos == OP_DEREF) {
		lb_buf_skip(&expr, 1);
		if (lb_buf_left(&expr) && *expr.pos == OP_PLUS_UCONST) {
			lb_buf_skip(&expr, 1);

			uint64_t add = lb_buf_uleb(&expr);

			if (add > INT32_MAX)
				return;
			state->deref_off = (int64_t)add;
		}
		state->cfa_how = CFA_DEREF;
	} else if (op == OP_BREG0 + REG_RSP && off == 8) {
		parse_plt(&expr, state);
	}
	if (expr.bad || lb_buf_left(&expr))
		state->cfa_how = CFA_OTHER;
}

static struct saved parse_saved_expression(struct lb_buf expr)
{
	struct saved saved = { .how = HOW_OTHER };
	uint8_t op = lb_buf_u8(&expr);
	int64_t off = lb_buf_sleb(&expr);

	if (expr.bad || lb_buf_left(&expr))
		return saved;
	saved.off = off;
	if (op == OP_BREG0 + REG_RBP)
		saved.how = HOW_BREG_RBP;
	else if (op == OP_BREG0 + REG_RSP)
		saved.how = HOW_BREG_RSP;
	return saved;
}

/* ---- from state to rule ---- */

static bool fits_s32(int64_t value)
{
	return value >= INT32_MIN && value <= INT32_MAX;
}

/* A slot is 8 bytes, n is 1 ... 65535 slots below @base_off. */
static bool slot_of(int64_t off, int64_t base_off, uint16_t *slot_ret)
{
	if (off > base_off || off < base_off - 8 * (int64_t)UINT16_MAX ||
	    (base_off - off) % 8)
		return false;

	int64_t slot = (base_off - off) / 8;

	if (!slot)
		return false;
	*slot_ret = (uint16_t)slot;
	return true;
}

static bool saved_to_slots(const struct state *state, struct lb_rule *rule)
{
	uint16_t *const slots[] = {
		[SAVED_RBP] = &rule->rbp,
		[SAVED_RBX] = &rule->rbx,
		[SAVED_R14] = &rule->r14,
	};
	bool by_cfa = false, by_rbp = false;

	for (int i = 0; i <= SAVED_R14; i++) {
		const struct saved *saved = &state->saved[i];

		switch (saved->how) {
		case HOW_SAME:
			break;
		case HOW_CFA:
			by_cfa = true;
			if (!slot_of(saved->off, 0, slots[i]))
				return false;
			break;
		case HOW_BREG_RBP:
			by_rbp = true;
			if (!slot_of(saved->off, 8, slots[i]))
				return false;
			break;
		default:
			return false;
		}
	}
	if (by_rbp)
		rule->flags |= LB_RULE_F_RBP_SLOTS;
	return !(by_cfa && by_rbp);
}

static bool cfa_to_rule(const struct state *state, struct lb_rule *rule)
{
	if (!fits_s32(state->cfa_off))
		return false;
	rule->cfa_off = (int32_t)state->cfa_off;
	switch (state->cfa_how) {
	case CFA_REG:
		if (state->cfa_reg == REG_RSP)
			rule->kind = LB_RULE_RSP;
		else if (state->cfa_reg == REG_RBP)
			rule->kind = LB_RULE_RBP;
		else if (state->cfa_reg == REG_RBX)
			rule->kind = LB_RULE_RBX;
		else if (state->cfa_reg == REG_RCX && state->landing)
			rule->kind = LB_RULE_RCX;
		else
			return false;
		return true;
	case CFA_PLT:
		rule->kind = LB_RULE_PLT;
		return true;
	case CFA_DEREF:
		rule->kind = state->cfa_reg == REG_RSP ? LB_RULE_DEREF_RSP
						       : LB_RULE_DEREF_RBP;
		rule->deref_off = (int32_t)state->deref_off;
		return true;
	default:
		return false;
	}
}

/*
 * The kernel's frame is known (see LB_RULE_SIGNAL), so a trampoline that says
 * something else is not taken for one: rsp + 40 is where the ucontext has its
 * registers, r8 first.
 */
static bool is_kernel_frame(const struct state *state)
{
	static const int offs[N_SAVED] = {
		[SAVED_RBP] = 120, [SAVED_RBX] = 128, [SAVED_R14] = 88,
		[SAVED_RSP] = 160, [SAVED_RA] = 168,
	};

	for (int i = 0; i < N_SAVED; i++) {
		const struct saved *saved = &state->saved[i];

		if (saved->how != HOW_BREG_RSP || saved->off != offs[i])
			return false;
	}
	return state->cfa_how == CFA_DEREF && state->cfa_reg == REG_RSP &&
	       state->cfa_off == offs[SAVED_RSP] && !state->deref_off;
}

/*
 * The last instructions of a function that ends in a jump to a landing pad
 * (__builtin_eh_return, which _Unwind_RaiseException ends with): the CFA is
 * what gcc has in rcx, registers have their final values already although the
 * CFI still says where they were saved, and the next pc is not a return
 * address. From the row with CFA = rcx on, up to where the state is restored.
 */
static bool landing_rule(const struct state *state, struct lb_rule *rule)
{
	const struct saved *ra = &state->saved[SAVED_RA];

	if (!state->landing || !cfa_to_rule(state, rule))
		return false;
	rule->flags = LB_RULE_F_LANDING;
	if (ra->how == HOW_RCX)
		rule->flags |= LB_RULE_F_RA_RCX;
	return ra->how == HOW_RCX || (ra->how == HOW_CFA && ra->off == -8);
}

static struct lb_rule rule_of(const struct state *state, bool signal)
{
	static const struct lb_rule bad = { .kind = LB_RULE_BAD };
	struct lb_rule rule = { 0 };
	const struct saved *ra = &state->saved[SAVED_RA];

	if (ra->how == HOW_UNDEFINED) {
		rule.kind = LB_RULE_END;
		return rule;
	}
	if (signal) {
		rule.kind =
			is_kernel_frame(state) ? LB_RULE_SIGNAL : LB_RULE_BAD;
		return rule;
	}
	if (landing_rule(state, &rule))
		return rule;
	if (ra->how != HOW_CFA || ra->off != -8 ||
	    state->saved[SAVED_RSP].how != HOW_SAME ||
	    !cfa_to_rule(state, &rule) || !saved_to_slots(state, &rule))
		return bad;
	return rule;
}

/* ---- programs ---- */

enum {
	CFA_ADVANCE_LOC = 0x40, /* these three: operand in the low 6 bits */
	CFA_OFFSET = 0x80,
	CFA_RESTORE = 0xc0,

	CFA_NOP = 0x00,
	CFA_SET_LOC = 0x01,
	CFA_ADVANCE_LOC1 = 0x02,
	CFA_ADVANCE_LOC2 = 0x03,
	CFA_ADVANCE_LOC4 = 0x04,
	CFA_OFFSET_EXTENDED = 0x05,
	CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07,
	CFA_SAME_VALUE = 0x08,
	CFA_REGISTER = 0x09,
	CFA_REMEMBER_STATE = 0x0a,
	CFA_RESTORE_STATE = 0x0b,
	CFA_DEF_CFA = 0x0c,
	CFA_DEF_CFA_REGISTER = 0x0d,
	CFA_DEF_CFA_OFFSET = 0x0e,
	CFA_DEF_CFA_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10,
	CFA_OFFSET_EXTENDED_SF = 0x11,
	CFA_DEF_CFA_SF = 0x12,
	CFA_DEF_CFA_OFFSET_SF = 0x13,
	CFA_VAL_OFFSET = 0x14,
	CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16,
	CFA_ADVANCE_LOC8 = 0x1d,
	CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
};

struct machine {
	const struct cie *cie;
	const struct state *initial; /* what restore goes back to */
	struct state state;
	struct state stack[NESTING_MAX];
	unsigned int n_stack;
	bool bad;
	/* where the rules go; NULL for the initial instructions of a CIE */
	lb_rule_fn rule_fn;
	void *arg;
	uint64_t vaddr; /* the state is valid from here */
	uint64_t end_vaddr;
	struct lb_rule last_rule;
	bool dirty;    /* state may differ from last_rule */
	bool has_last; /* a rule was delivered */
	int ret;       /* of rule_fn */
};

static void deliver(struct machine *m)
{
	if (!m->rule_fn || m->ret || !m->dirty)
		return;

	struct lb_rule rule = rule_of(&m->state, m->cie->signal);

	m->dirty = false;
	if (m->has_last && !memcmp(&rule, &m->last_rule, sizeof(rule)))
		return;
	m->last_rule = rule;
	m->has_last = true;
	m->ret = m->rule_fn(m->arg, m->vaddr, &rule);
}

static void go_to(struct machine *m, uint64_t vaddr)
{
	if (vaddr == m->vaddr)
		return;
	if (vaddr < m->vaddr) {
		m->bad = true;
		return;
	}
	deliver(m);
	m->vaddr = vaddr;
}

static void advance(struct machine *m, uint64_t delta)
{
	uint64_t bytes, vaddr;

	if (__builtin_mul_overflow(delta, m->cie->code_align, &bytes) ||
	    __builtin_add_overflow(m->vaddr, bytes, &vaddr))
		m->bad = true;
	else
		go_to(m, vaddr);
}

static int saved_index(uint64_t reg)
{
	switch (reg) {
	case REG_RBP:
		return SAVED_RBP;
	case REG_RBX:
		return SAVED_RBX;
	case REG_R14:
		return SAVED_R14;
	case REG_RSP:
		return SAVED_RSP;
	case REG_RA:
		return SAVED_RA;
	default:
		return -1;
	}
}

static void set_saved(struct machine *m, uint64_t reg, enum saved_how how,
		      int64_t off)
{
	int i = saved_index(reg);

	if (i >= 0)
		m->state.saved[i] = (struct saved){ .how = how, .off = off };
}

/* Factored offsets are hostile, too: one that overflows is no offset. */
static int64_t factored(struct machine *m, int64_t value)
{
	int64_t off;

	if (__builtin_mul_overflow(value, m->cie->data_align, &off)) {
		m->bad = true;
		return 0;
	}
	return off;
}

static int64_t unsigned_off(struct machine *m, uint64_t value)
{
	if (value > INT64_MAX)
		m->bad = true;
	return (int64_t)value;
}

static void restore(struct machine *m, uint64_t reg)
{
	int i = saved_index(reg);

	if (i >= 0)
		m->state.saved[i] = m->initial->saved[i];
}

static void def_cfa(struct machine *m, uint64_t reg, int64_t off)
{
	m->state.cfa_how = CFA_REG;
	m->state.cfa_reg = reg;
	m->state.cfa_off = off;
	if (reg == REG_RCX)
		m->state.landing = true;
}

/* A part of reg + off can be changed only while the CFA is reg + off. */
static void require_cfa_reg(struct machine *m)
{
	if (m->state.cfa_how != CFA_REG)
		m->state.cfa_how = CFA_OTHER;
}

static void remember_state(struct machine *m)
{
	if (m->n_stack == NESTING_MAX)
		m->bad = true;
	else
		m->stack[m->n_stack++] = m->state;
}

static void restore_state(struct machine *m)
{
	if (!m->n_stack)
		m->bad = true;
	else
		m->state = m->stack[--m->n_stack];
}

/* Instructions that move the location, or change nothing. */
static bool step_location(struct machine *m, struct lb_buf *program, uint8_t op)
{
	switch (op) {
	case CFA_NOP:
		return true;
	case CFA_SET_LOC:
		go_to(m, read_pointer(program, m->cie->pointer_enc));
		return true;
	case CFA_ADVANCE_LOC1:
		advance(m, lb_buf_u8(program));
		return true;
	case CFA_ADVANCE_LOC2:
		advance(m, lb_buf_u16(program));
		return true;
	case CFA_ADVANCE_LOC4:
		advance(m, lb_buf_u32(program));
		return true;
	case CFA_ADVANCE_LOC8:
		advance(m, lb_buf_u64(program));
		return true;
	case CFA_GNU_ARGS_SIZE:
		lb_buf_uleb(program);
		return true;
	default:
		return false;
	}
}

/* Instructions that change the CFA or the whole state. */
static bool step_cfa(struct machine *m, struct lb_buf *program, uint8_t op)
{
	uint64_t reg;

	switch (op) {
	case CFA_REMEMBER_STATE:
		remember_state(m);
		return true;
	case CFA_RESTORE_STATE:
		restore_state(m);
		return true;
	case CFA_DEF_CFA:
		reg = lb_buf_uleb(program);
		def_cfa(m, reg, unsigned_off(m, lb_buf_uleb(program)));
		return true;
	case CFA_DEF_CFA_SF:
		reg = lb_buf_uleb(program);
		def_cfa(m, reg, factored(m, lb_buf_sleb(program)));
		return true;
	case CFA_DEF_CFA_REGISTER:
		m->state.cfa_reg = lb_buf_uleb(program);
		require_cfa_reg(m);
		return true;
	case CFA_DEF_CFA_OFFSET:
		m->state.cfa_off = unsigned_off(m, lb_buf_uleb(program));
		require_cfa_reg(m);
		return true;
	case CFA_DEF_CFA_OFFSET_SF:
		m->state.cfa_off = factored(m, lb_buf_sleb(program));
		require_cfa_reg(m);
		return true;
	case CFA_DEF_CFA_EXPRESSION:
		parse_cfa_expression(lb_buf_sub(program, lb_buf_uleb(program)),
				     &m->state);
		return true;
	default:
		return false;
	}
}

/* Instructions that change the rule of one register. */
static bool step_saved(struct machine *m, struct lb_buf *program, uint8_t op)
{
	uint64_t reg = lb_buf_uleb(program);
	struct saved saved;

	switch (op) {
	case CFA_OFFSET_EXTENDED:
		set_saved(m, reg, HOW_CFA,
			  factored(m, unsigned_off(m, lb_buf_uleb(program))));
		return true;
	case CFA_OFFSET_EXTENDED_SF:
		set_saved(m, reg, HOW_CFA, factored(m, lb_buf_sleb(program)));
		return true;
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		set_saved(m, reg, HOW_CFA,
			  factored(m, -unsigned_off(m, lb_buf_uleb(program))));
		return true;
	case CFA_RESTORE_EXTENDED:
		restore(m, reg);
		return true;
	case CFA_UNDEFINED:
		set_saved(m, reg, HOW_UNDEFINED, 0);
		return true;
	case CFA_SAME_VALUE:
		set_saved(m, reg, HOW_SAME, 0);
		return true;
	case CFA_REGISTER:
		set_saved(m, reg,
			  lb_buf_uleb(program) == REG_RCX ? HOW_RCX : HOW_OTHER,
			  0);
		return true;
	case CFA_VAL_OFFSET:
		lb_buf_uleb(program);
		set_saved(m, reg, HOW_OTHER, 0);
		return true;
	case CFA_VAL_OFFSET_SF:
		lb_buf_sleb(program);
		set_saved(m, reg, HOW_OTHER, 0);
		return true;
	case CFA_EXPRESSION:
		saved = parse_saved_expression(
			lb_buf_sub(program, lb_buf_uleb(program)));
		set_saved(m, reg, saved.how, saved.off);
		return true;
	case CFA_VAL_EXPRESSION:
		lb_buf_skip(program, lb_buf_uleb(program));
		set_saved(m, reg, HOW_OTHER, 0);
		return true;
	default:
		return false;
	}
}

static void step(struct machine *m, struct lb_buf *program)
{
	uint8_t op = lb_buf_u8(program);
	uint8_t low = op & 0x3f;

	switch (op & 0xc0) {
	case CFA_ADVANCE_LOC:
		advance(m, low);
		return;
	case CFA_OFFSET:
		set_saved(m, low, HOW_CFA,
			  factored(m, unsigned_off(m, lb_buf_uleb(program))));
		break;
	case CFA_RESTORE:
		restore(m, low);
		break;
	default:
		if (step_location(m, program, op))
			return;
		if (!step_cfa(m, program, op) && !step_saved(m, program, op))
			m->bad = true;
		break;
	}
	m->dirty = true;
}

static void run(struct machine *m, struct lb_buf program)
{
	while (lb_buf_left(&program) && !m->bad && !m->ret &&
	       (!m->rule_fn || m->vaddr < m->end_vaddr))
		step(m, &program);
	if (program.bad)
		m->bad = true;
}

/* The initial instructions of a CIE. */
static bool run_cie(struct cie *cie, struct lb_buf program)
{
	static const struct state empty;
	struct machine m = { .cie = cie, .initial = &empty };

	run(&m, program);
	cie->state = m.state;
	return !m.bad;
}

static int run_fde(const struct fde *fde, const struct cie *cie,
		   lb_rule_fn rule_fn, void *arg, uint64_t *n_bad)
{
	struct machine m;

	/* the stack of states is large, and used only as far as it is filled */
	m.cie = cie;
	m.initial = &cie->state;
	m.state = cie->state;
	m.n_stack = 0;
	m.bad = false;
	m.rule_fn = rule_fn;
	m.arg = arg;
	m.vaddr = fde->vaddr;
	m.end_vaddr = fde->vaddr + fde->size;
	m.dirty = true;
	m.has_last = false;
	m.ret = 0;
	run(&m, fde->program);
	if (m.bad) {
		/* what was not understood must not look like the row before */
		(*n_bad)++;
		memset(&m.state, 0, sizeof(m.state));
		m.dirty = true;
	}
	if (m.vaddr < m.end_vaddr)
		deliver(&m);
	return m.ret;
}

/* ---- records ---- */

static void *grow(void *array, size_t *room, size_t item_size)
{
	size_t want = *room ? 2 * *room : 64;
	void *more = reallocarray(array, want, item_size);

	if (more)
		*room = want;
	return more;
}

static void parse_augmentation(struct cie *cie, const char *aug,
			       struct lb_buf *record)
{
	struct lb_buf data = lb_buf_sub(record, lb_buf_uleb(record));

	cie->has_aug_data = true;
	for (aug++; *aug; aug++) {
		uint8_t enc;

		switch (*aug) {
		case 'R':
			cie->pointer_enc = lb_buf_u8(&data);
			break;
		case 'L':
			lb_buf_u8(&data);
			break;
		case 'P':
			enc = lb_buf_u8(&data);
			if (enc == PE_OMIT)
				break;
			cie->personality_vaddr =
				read_pointer(&data, enc & 0x7f);
			if (enc & PE_INDIRECT)
				cie->personality_vaddr = 0;
			break;
		case 'S':
			cie->signal = true;
			break;
		case 'B': /* pointer authentication, not on x86-64 */
			break;
		default: /* its data cannot be told from what follows */
			cie->bad = true;
			return;
		}
	}
	if (data.bad)
		cie->bad = true;
}

static void parse_cie(struct cie *cie, struct lb_buf record)
{
	uint8_t version = lb_buf_u8(&record);
	const char *aug = lb_buf_str(&record);

	cie->bad = true;
	if (!aug || (version != 1 && version != 3 && version != 4))
		return;
	if (!strcmp(aug, "eh")) /* before gcc 3: address of exception table */
		lb_buf_u64(&record);
	else if (aug[0] && aug[0] != 'z')
		return;
	if (version == 4 &&
	    (lb_buf_u8(&record) != 8 || lb_buf_u8(&record) != 0))
		return;
	cie->code_align = lb_buf_uleb(&record);
	cie->data_align = lb_buf_sleb(&record);

	uint64_t ra_reg =
		version == 1 ? lb_buf_u8(&record) : lb_buf_uleb(&record);

	cie->bad = ra_reg != REG_RA;
	if (aug[0] == 'z')
		parse_augmentation(cie, aug, &record);
	if (record.bad || !run_cie(cie, record))
		cie->bad = true;
}

static const struct cie *find_cie(const struct records *records, uint64_t off)
{
	size_t lo = 0, hi = records->n_cies;

	/* nearly always the last one seen */
	if (hi && records->cies[hi - 1].off == off)
		return &records->cies[hi - 1];
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (records->cies[mid].off < off)
			lo = mid + 1;
		else if (records->cies[mid].off > off)
			hi = mid;
		else
			return &records->cies[mid];
	}
	return NULL;
}

static int add_cie(struct records *records, uint64_t off, struct lb_buf record)
{
	if (records->n_cies == records->room_cies) {
		struct cie *cies =
			grow(records->cies, &records->room_cies, sizeof(*cies));

		if (!cies)
			return -ENOMEM;
		records->cies = cies;
	}

	struct cie *cie = &records->cies[records->n_cies++];

	memset(cie, 0, sizeof(*cie));
	cie->off = off;
	parse_cie(cie, record);
	if (cie->bad)
		records->n_bad++;
	return 0;
}

static int add_fde(struct records *records, uint64_t cie_off,
		   struct lb_buf record)
{
	const struct cie *cie = find_cie(records, cie_off);
	uint64_t end_vaddr;

	if (!cie || cie->bad || cie->pointer_enc == PE_OMIT ||
	    cie->pointer_enc & PE_INDIRECT) {
		records->n_bad++;
		return 0;
	}

	uint64_t vaddr = read_pointer(&record, cie->pointer_enc);
	uint64_t size = read_format(&record, cie->pointer_enc);

	if (cie->has_aug_data)
		lb_buf_skip(&record, lb_buf_uleb(&record));
	if (record.bad || __builtin_add_overflow(vaddr, size, &end_vaddr)) {
		records->n_bad++;
		return 0;
	}
	if (!size || !vaddr) /* its code was discarded by the linker */
		return 0;
	if (records->n_fdes == records->room_fdes) {
		struct fde *fdes =
			grow(records->fdes, &records->room_fdes, sizeof(*fdes));

		if (!fdes)
			return -ENOMEM;
		records->fdes = fdes;
	}
	if (records->n_fdes && vaddr < records->fdes[records->n_fdes - 1].vaddr)
		records->unsorted = true;
	records->fdes[records->n_fdes++] = (struct fde){
		.vaddr = vaddr,
		.size = size,
		.cie = (uint32_t)(cie - records->cies),
		.program = record,
	};
	return 0;
}

static int read_records(const struct lb_section *section,
			struct records *records)
{
	struct lb_buf buf;
	int err = 0;

	lb_buf_init(&buf, section->data, section->size, section->vaddr);
	while (lb_buf_left(&buf) >= 4 && !err) {
		uint64_t off = (uint64_t)(buf.pos - buf.start);
		uint64_t size = lb_buf_u32(&buf);

		/* crtend.o has a terminator, which need not be the last */
		if (!size)
			continue;
		if (size == UINT32_MAX)
			size = lb_buf_u64(&buf);

		struct lb_buf record = lb_buf_sub(&buf, size);
		uint64_t id_off = (uint64_t)(record.pos - buf.start);
		uint32_t id = lb_buf_u32(&record);

		if (record.bad)
			records->n_bad++;
		else if (!id)
			err = add_cie(records, off, record);
		else /* distance back to the CIE */
			err = add_fde(records, id_off - id, record);
	}
	return err;
}

static int compare_fdes(const void *a, const void *b)
{
	const struct fde *fde_a = a, *fde_b = b;

	if (fde_a->vaddr != fde_b->vaddr)
		return fde_a->vaddr < fde_b->vaddr ? -1 : 1;
	return 0;
}

static int deliver_all(const struct records *records, lb_fde_fn fde_fn,
		       lb_rule_fn rule_fn, void *arg, uint64_t *n_bad)
{
	for (size_t i = 0; i < records->n_fdes; i++) {
		const struct fde *fde = &records->fdes[i];
		const struct cie *cie = &records->cies[fde->cie];
		struct lb_fde public = {
			.vaddr = fde->vaddr,
			.size = fde->size,
			.personality_vaddr = cie->personality_vaddr,
		};
		int ret = fde_fn ? fde_fn(arg, &public) : 0;

		if (!ret && rule_fn)
			ret = run_fde(fde, cie, rule_fn, arg, n_bad);
		if (ret)
			return ret;
	}
	return 0;
}

int lb_ehframe_each(const struct lb_elf *elf, lb_fde_fn fde_fn,
		    lb_rule_fn rule_fn, void *arg, uint64_t *n_bad_ret)
{
	struct lb_section section;
	struct records records = { 0 };
	int ret = lb_elf_eh_frame(elf, &section);

	if (ret)
		return ret;
	ret = read_records(&section, &records);
	if (!ret && !records.n_fdes)
		ret = records.n_bad ? -EBADMSG : -ENODATA;
	if (!ret && records.unsorted)
		qsort(records.fdes, records.n_fdes, sizeof(*records.fdes),
		      compare_fdes);
	if (!ret) {
		uint64_t n_bad = records.n_bad;

		ret = deliver_all(&records, fde_fn, rule_fn, arg, &n_bad);
		if (n_bad_ret)
			*n_bad_ret = n_bad;
	}
	free(records.cies);
	free(records.fdes);
	return ret;
}
