/* SPDX-License-Identifier: Apache-2.0 */
/* Places for uprobes in one function, by libcapstone. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <capstone/capstone.h>

#include "code.h"
#include "ehframe.h"
#include "flow.h"
#include "probes.h"

#define FUNC_SIZE_MAX (1 << 16) /* bytes */
#define ENTRY_LOOK    6		/* instructions an entry point may be behind */
#define AFTER_LOOK    12	/* and one behind a call */
#define AX	      (1U << LB_REG_AX)
#define ARGS	      (1U << LB_REG_DI | 1U << LB_REG_SI | 1U << LB_REG_SP)

/* ---- which function ---- */

struct search {
	struct lb_extent *extents;
	const struct lb_extent *asked;
	size_t n;
};

static int on_fde(void *arg, const struct lb_fde *fde)
{
	struct search *search = arg;

	for (size_t i = 0; i < search->n; i++)
		if (search->asked[i].vaddr - fde->vaddr < fde->size)
			search->extents[i] =
				(struct lb_extent){ fde->vaddr, fde->size };
	return 0;
}

static int on_rule(void *arg, uint64_t vaddr, const struct lb_rule *rule)
{
	(void)arg;
	(void)vaddr;
	(void)rule;
	return 0;
}

int lb_flow_extents(const struct lb_elf *elf, struct lb_extent *extents,
		    size_t n)
{
	size_t size = n * sizeof(*extents);
	_cleanup_free_ struct lb_extent *asked = malloc(size ? size : 1);
	struct search search = { .extents = extents, .asked = asked, .n = n };

	if (!asked)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		extents[i].size = 0;
	memcpy(asked, extents, size);
	return lb_ehframe_each(elf, on_fde, on_rule, &search, NULL);
}

/* ---- instructions ---- */

/* The registers that points must not be moved behind a write of. */
static uint32_t register_bit(uint16_t reg)
{
	switch (reg) {
	case X86_REG_RAX:
	case X86_REG_EAX:
	case X86_REG_AX:
	case X86_REG_AL:
	case X86_REG_AH:
		return AX;
	case X86_REG_RDI:
	case X86_REG_EDI:
	case X86_REG_DI:
	case X86_REG_DIL:
		return 1U << LB_REG_DI;
	case X86_REG_RSI:
	case X86_REG_ESI:
	case X86_REG_SI:
	case X86_REG_SIL:
		return 1U << LB_REG_SI;
	case X86_REG_RSP:
	case X86_REG_ESP:
	case X86_REG_SP:
	case X86_REG_SPL:
		return 1U << LB_REG_SP;
	default:
		return 0;
	}
}

static uint32_t written(csh handle, const cs_insn *insn)
{
	cs_regs reads, writes;
	uint8_t n_reads, n_writes;
	uint32_t bits = 0;

	if (cs_regs_access(handle, insn, reads, &n_reads, writes, &n_writes))
		return AX | ARGS; /* not known */
	for (uint8_t i = 0; i < n_writes; i++)
		bits |= register_bit(writes[i]);
	return bits;
}

static bool in_group(const cs_insn *insn, uint8_t group)
{
	for (uint8_t i = 0; i < insn->detail->groups_count; i++)
		if (insn->detail->groups[i] == group)
			return true;
	return false;
}

static enum lb_insn_kind kind_of(const cs_insn *insn, bool is_direct)
{
	if (in_group(insn, X86_GRP_RET) || in_group(insn, X86_GRP_IRET))
		return LB_INSN_RET;
	if (in_group(insn, X86_GRP_CALL))
		return LB_INSN_CALL;
	if (insn->id == X86_INS_JMP)
		return is_direct ? LB_INSN_JUMP : LB_INSN_INDIRECT;
	if (in_group(insn, X86_GRP_JUMP))
		return is_direct ? LB_INSN_JCC : LB_INSN_INDIRECT;
	if (insn->id == X86_INS_UD2 || insn->id == X86_INS_HLT ||
	    insn->id == X86_INS_INT3)
		return LB_INSN_TRAP;
	return LB_INSN_PLAIN;
}

static struct lb_insn insn_of(csh handle, const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;
	bool is_direct =
		x86->op_count == 1 && x86->operands[0].type == X86_OP_IMM;
	struct lb_insn to = {
		.vaddr = insn->address,
		.size = (uint8_t)insn->size,
		.kind = (uint8_t)kind_of(insn, is_direct),
		.emulated = lb_probe_is_emulated(insn->bytes, insn->size),
		.writes = written(handle, insn),
	};

	if (is_direct && (to.kind == LB_INSN_CALL || to.kind == LB_INSN_JUMP ||
			  to.kind == LB_INSN_JCC))
		to.target = (uint64_t)x86->operands[0].imm;
	return to;
}

static int read_insns(csh handle, const uint8_t *code, struct lb_flow *flow)
{
	cs_insn *insn = cs_malloc(handle);
	uint64_t vaddr = flow->vaddr;
	size_t left = flow->size;
	int err = 0;

	if (!insn)
		return -ENOMEM;
	while (left) {
		if (!cs_disasm_iter(handle, &code, &left, &vaddr, insn)) {
			err = -EOPNOTSUPP;
			break;
		}
		flow->insns[flow->n++] = insn_of(handle, insn);
	}
	cs_free(insn, 1);
	return err;
}

/* ---- where they lead ---- */

static size_t index_of(const struct lb_flow *flow, uint64_t vaddr)
{
	size_t lo = 0, hi = flow->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (flow->insns[mid].vaddr < vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < flow->n && flow->insns[lo].vaddr == vaddr ? lo : flow->n;
}

const struct lb_insn *lb_flow_at(const struct lb_flow *flow, uint64_t vaddr)
{
	size_t i = index_of(flow, vaddr);

	return i < flow->n ? &flow->insns[i] : NULL;
}

static bool is_inside(const struct lb_flow *flow, uint64_t vaddr)
{
	return vaddr - flow->vaddr < flow->size;
}

/* Jumps into the middle of an instruction make the list worthless. */
static int mark_targets(struct lb_flow *flow)
{
	for (size_t i = 0; i < flow->n; i++) {
		const struct lb_insn *insn = &flow->insns[i];
		size_t to;

		flow->is_indirect |= insn->kind == LB_INSN_INDIRECT;
		if (!insn->target || insn->kind == LB_INSN_CALL ||
		    !is_inside(flow, insn->target))
			continue;
		to = index_of(flow, insn->target);
		if (to == flow->n)
			return -EOPNOTSUPP;
		flow->insns[to].is_target = true;
	}
	return 0;
}

static bool ends_behind(const struct lb_flow *flow, size_t i)
{
	return i + 1 < flow->n && flow->insns[i + 1].ends;
}

static bool ends_at_target(const struct lb_flow *flow,
			   const struct lb_insn *insn)
{
	return flow->insns[index_of(flow, insn->target)].ends;
}

/* Do all ways from instruction @i return, as far as is known by now? */
static bool is_end(const struct lb_flow *flow, size_t i)
{
	const struct lb_insn *insn = &flow->insns[i];

	switch (insn->kind) {
	case LB_INSN_RET:
		return true;
	case LB_INSN_JUMP:
		return !is_inside(flow, insn->target) ||
		       ends_at_target(flow, insn);
	case LB_INSN_JCC:
		return is_inside(flow, insn->target) &&
		       ends_at_target(flow, insn) && ends_behind(flow, i);
	case LB_INSN_PLAIN:
		return ends_behind(flow, i);
	default:
		return false;
	}
}

/* Grows from the returns on, so that a loop is never part of it. */
static void find_ends(struct lb_flow *flow)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (size_t i = flow->n; i-- > 0;) {
			if (flow->insns[i].ends || !is_end(flow, i))
				continue;
			flow->insns[i].ends = true;
			changed = true;
		}
	}
}

int lb_flow_read(const struct lb_elf *elf, uint64_t vaddr, uint64_t size,
		 struct lb_flow *flow_ret)
{
	struct lb_extent extent = { vaddr, size };
	struct lb_flow flow = { .vaddr = vaddr };
	const uint8_t *code;
	csh handle;
	int err;

	if (!size) {
		err = lb_flow_extents(elf, &extent, 1);
		if (err || extent.vaddr != vaddr || !extent.size)
			return -ENOENT;
	}
	if (extent.size > FUNC_SIZE_MAX)
		return -E2BIG;
	flow.size = extent.size;
	code = lb_elf_vaddr_data(elf, vaddr, flow.size);
	if (!code)
		return -ENOENT;
	/* an instruction has a byte at least */
	flow.insns = calloc(flow.size, sizeof(*flow.insns));
	if (!flow.insns || cs_open(CS_ARCH_X86, CS_MODE_64, &handle)) {
		free(flow.insns);
		return -ENOMEM;
	}
	cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
	err = read_insns(handle, code, &flow);
	cs_close(&handle);
	if (!err)
		err = mark_targets(&flow);
	if (err) {
		free(flow.insns);
		return err;
	}
	find_ends(&flow);
	*flow_ret = flow;
	return 0;
}

void lb_flow_fini(struct lb_flow *flow)
{
	free(flow->insns);
	memset(flow, 0, sizeof(*flow));
}

/* ---- points ---- */

const struct lb_insn *lb_flow_entry(const struct lb_flow *flow)
{
	const struct lb_insn *first = flow->insns;

	if (!flow->n || first->is_target)
		return NULL;
	for (size_t i = 0; i < flow->n && i < ENTRY_LOOK; i++) {
		const struct lb_insn *insn = &flow->insns[i];

		if (insn->is_target)
			break;
		if (insn->emulated)
			return insn;
		if (insn->kind != LB_INSN_PLAIN || insn->writes & ARGS)
			break;
	}
	return first;
}

/* Can control come here from where it is not yet certain to return? */
static bool is_end_entry(const struct lb_flow *flow, size_t i)
{
	const struct lb_insn *insn = &flow->insns[i];

	if (i && !insn[-1].ends && insn[-1].kind != LB_INSN_JUMP &&
	    insn[-1].kind != LB_INSN_INDIRECT)
		return true;
	for (size_t j = 0; insn->is_target && j < flow->n; j++)
		if (!flow->insns[j].ends &&
		    flow->insns[j].target == insn->vaddr)
			return true;
	return false;
}

enum apart {
	APART_NONE,  /* another function */
	APART_COLD,  /* jumps back into this one, or never returns */
	APART_MIXED, /* both */
};

/* What is at the target of a jump that leaves the function? */
static enum apart apart_at(const struct lb_elf *elf, const struct lb_flow *flow,
			   uint64_t target)
{
	struct lb_extent extent = { target, 0 };
	bool returns = false, comes_back = false;
	struct lb_flow part;

	if (lb_flow_extents(elf, &extent, 1) || !extent.size ||
	    lb_flow_read(elf, extent.vaddr, extent.size, &part))
		return APART_NONE;
	for (size_t i = 0; i < part.n; i++) {
		const struct lb_insn *insn = &part.insns[i];

		returns |= insn->kind == LB_INSN_RET ||
			   insn->kind == LB_INSN_INDIRECT;
		if (insn->kind != LB_INSN_JUMP && insn->kind != LB_INSN_JCC)
			continue;
		if (is_inside(flow, insn->target))
			comes_back |= insn->target != flow->vaddr;
		else
			returns |= !is_inside(&part, insn->target);
	}
	lb_flow_fini(&part);
	if (returns)
		return comes_back ? APART_MIXED : APART_NONE;
	return APART_COLD;
}

struct exits {
	const struct lb_flow *flow;
	const struct lb_insn **list;
	size_t n, max;
	bool too_many;
};

static void add_exit(struct exits *exits, const struct lb_insn *insn)
{
	for (size_t i = 0; i < exits->n; i++)
		if (exits->list[i] == insn)
			return;
	if (exits->n == exits->max)
		exits->too_many = true;
	else
		exits->list[exits->n++] = insn;
}

/* Straight on from @i: the first emulated instruction, or the return. */
static void cover(struct exits *exits, size_t i)
{
	const struct lb_flow *flow = exits->flow;

	/* jmp and jcc are emulated, so that there is one way only */
	while (flow->insns[i].kind == LB_INSN_PLAIN && !flow->insns[i].emulated)
		i++;
	add_exit(exits, &flow->insns[i]);
}

/* Returns, and jumps to other functions. */
static void add_returns(const struct lb_elf *elf, struct exits *exits)
{
	const struct lb_flow *flow = exits->flow;

	for (size_t i = 0; i < flow->n; i++) {
		const struct lb_insn *insn = &flow->insns[i];

		if (insn->kind == LB_INSN_RET ||
		    (insn->kind == LB_INSN_JUMP &&
		     !is_inside(flow, insn->target) &&
		     apart_at(elf, flow, insn->target) == APART_NONE))
			add_exit(exits, insn);
	}
}

/* Is there code of this function elsewhere? */
static int find_cold(const struct lb_elf *elf, const struct lb_flow *flow,
		     bool *has_cold)
{
	for (size_t i = 0; i < flow->n; i++) {
		const struct lb_insn *insn = &flow->insns[i];
		enum apart apart;

		if ((insn->kind != LB_INSN_JCC && insn->kind != LB_INSN_JUMP) ||
		    is_inside(flow, insn->target))
			continue;
		apart = apart_at(elf, flow, insn->target);
		if (apart == APART_MIXED ||
		    (apart == APART_NONE && insn->kind == LB_INSN_JCC))
			return -EOPNOTSUPP;
		*has_cold |= apart == APART_COLD;
	}
	return 0;
}

int lb_flow_exits(const struct lb_elf *elf, const struct lb_flow *flow,
		  const struct lb_insn **exits_ret, size_t max, size_t *n_ret)
{
	struct exits exits = { .flow = flow, .list = exits_ret, .max = max };
	bool returns_alone = flow->is_indirect;
	int err = find_cold(elf, flow, &returns_alone);

	if (err)
		return err;
	/*
	 * Where an indirect jump or code apart leads is not known; and in a
	 * function without calls and loops its begin would be its end, too.
	 */
	if (returns_alone || !flow->n || flow->insns[0].ends) {
		add_returns(elf, &exits);
	} else {
		for (size_t i = 0; i < flow->n; i++)
			if (flow->insns[i].ends && is_end_entry(flow, i))
				cover(&exits, i);
	}
	if (exits.too_many)
		return -E2BIG;
	if (!exits.n)
		return -ENOENT;
	*n_ret = exits.n;
	return 0;
}

const struct lb_insn *lb_flow_after(const struct lb_flow *flow,
				    const struct lb_insn *insn)
{
	const struct lb_insn *end = flow->insns + flow->n;
	const struct lb_insn *next = insn + 1;

	if (next >= end || next->is_target)
		return NULL;
	for (const struct lb_insn *at = next;
	     at < end && !at->is_target && at - next < AFTER_LOOK; at++) {
		if (at->kind == LB_INSN_CALL)
			break;
		if (at->emulated)
			return at;
		if (at->kind != LB_INSN_PLAIN || at->writes & AX)
			break;
	}
	return next;
}
