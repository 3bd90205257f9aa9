/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Struct offsets of a LuaJIT build from its machine code alone.
 *
 * The VM's assembler source is one for all builds, so the code of an opcode
 * accesses the same members in the same roles wherever they are. LuaJIT's
 * tables of opcodes tell which code is whose (helpers/opcodes.c); each function
 * below asks the code of one opcode for the accesses that make it what it is.
 * In the interpreter rdx holds BASE, rbx PC, r14 the dispatch table, r15 the
 * constants, and rdi, rsi the arguments of C functions. From calls in the VM a
 * few C functions are known, too, and read in the same way.
 *
 * A member may be seen in several places. If two disagree it is not known.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scanfunc.h"

#define BASE	 LB_NODE_REG(LB_REG_DX)
#define PC	 LB_NODE_REG(LB_REG_BX)
#define DISPATCH LB_NODE_REG(LB_REG_R14)
#define KBASE	 LB_NODE_REG(LB_REG_R15)
#define L	 LB_NODE_L

#define VM_SIZE_MAX (1 << 20) /* bytes */
#define ENTRY_OPS   40	      /* looked at behind an entry */
#define FAST_SIZE   512	      /* bytes of a fast function */
#define PUSHED	    40	      /* bytes: four registers, the return address */
#define TAG_TAB	    -12
#define TAG_UDATA   -13

/* Opcodes that have no member in struct lj_offsets. */
enum {
	CALL_OP = 1,   /* behind CALLM */
	CALLT_OP = 3,  /* behind CALLM */
	RET_OP = 1,    /* behind RETM */
	JLOOP_OP = 2,  /* behind LOOP */
	IFUNCF_OP = 1, /* behind FUNCF */
	FUNCC_OP = 6   /* behind FUNCF */
};

void lb_scan_set(struct lb_scan_state *scan, size_t field, int64_t value)
{
	uint32_t *to = (uint32_t *)&scan->found.offsets + field;

	if (value < 0 || value > UINT16_MAX)
		return; /* no offset in a struct */
	if (scan->found.known[field] && *to != value)
		scan->differs[field] = true;
	*to = (uint32_t)value;
	scan->found.known[field] = true;
}

/* What the code shows not to be there. */
static void set_none(struct lb_scan_state *scan, size_t field)
{
	if (scan->found.known[field])
		scan->differs[field] = true;
	scan->found.known[field] = true;
}

/* The function that runs: from the slot below BASE. */
static bool is_func(const struct lb_scan_state *scan, uint16_t node)
{
	const struct lb_node *n = lb_code_node(&scan->vm, node);

	return lb_code_is_load(&scan->vm, node, BASE) && !n->indexed &&
	       n->disp == (GET(scan, gc64) ? -16 : -8);
}

/* A value in a slot that the instruction names. */
static bool is_slot(const struct lb_scan_state *scan, uint16_t node)
{
	return lb_code_is_load(&scan->vm, node, BASE) &&
	       lb_code_node(&scan->vm, node)->indexed;
}

/* global_State is below the dispatch table. */
static int64_t in_g(const struct lb_scan_state *scan, const struct lb_op *op)
{
	return op->disp + (int64_t)GET(scan, g2disp);
}

static bool is_vmstate_set(const struct lb_scan_state *scan,
			   const struct lb_op *op)
{
	return op->kind == LB_OP_STORE && op->base == DISPATCH && op->has_imm &&
	       op->size == 4 && !op->indexed && KNOWN(scan, g_vmstate) &&
	       in_g(scan, op) == GET(scan, g_vmstate);
}

/* ---- where the code is ---- */

static struct lb_ops range_of(const struct lb_scan_state *scan, uint64_t begin,
			      uint64_t end)
{
	const struct lb_code *vm = &scan->vm;
	size_t lo = 0, hi = vm->n_ops;

	begin += scan->luajit->vm_vaddr;
	end += scan->luajit->vm_vaddr;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (vm->ops[mid].vaddr < begin)
			lo = mid + 1;
		else
			hi = mid;
	}
	while (hi < vm->n_ops && vm->ops[hi].vaddr < end)
		hi++;
	return (struct lb_ops){ vm->ops + lo, vm->ops + hi };
}

/* Code of opcode @number, and that of the opcode it runs on into. */
static struct lb_ops opcode(const struct lb_scan_state *scan, uint32_t number)
{
	const struct lb_opcodes *opcodes = &scan->opcodes;
	uint64_t begin, end;

	if (number >= opcodes->n_opcodes)
		return (struct lb_ops){ NULL, NULL };
	begin = opcodes->off[number];
	end = number + 1 < opcodes->n_opcodes ? opcodes->off[number + 1]
					      : begin + FAST_SIZE;
	return range_of(scan, begin, end);
}

#define OPCODE(scan, name, distance)                    \
	opcode(scan, GET(scan, name) == LJ_OFFSETS_NONE \
			     ? LJ_OFFSETS_NONE          \
			     : GET(scan, name) + (distance))

static struct lb_ops fast_function(const struct lb_scan_state *scan,
				   uint32_t index)
{
	const struct lb_opcodes *opcodes = &scan->opcodes;
	uint32_t begin = opcodes->off[index];
	uint64_t end = (uint64_t)begin + FAST_SIZE;

	for (uint32_t i = opcodes->n_opcodes; i < opcodes->n_all; i++)
		if (opcodes->off[i] > begin && opcodes->off[i] < end)
			end = opcodes->off[i];
	return range_of(scan, begin, end);
}

static bool is_outside(const struct lb_scan_state *scan, uint64_t vaddr)
{
	return vaddr && vaddr - scan->luajit->vm_vaddr >= scan->luajit->vm_size;
}

/* ---- entries from C ---- */

/* Up to the next entry. */
static struct lb_ops entry(const struct lb_ops *vm, const struct lb_op *begin)
{
	struct lb_ops range = lb_ops_behind(vm, begin, ENTRY_OPS);

	for (lb_each_op(op, &range)) {
		if (op->kind == LB_OP_ENTRY) {
			range.end = op;
			break;
		}
	}
	return range;
}

/* G of L, and from there to the dispatch table. */
static void scan_marks(struct lb_scan_state *scan, const struct lb_ops *range)
{
	const struct lb_op *sum = NULL;
	bool have_cur_l = false;

	for (lb_each_op(op, range)) {
		if (op->kind == LB_OP_LEA && op->reg == LB_REG_R14 &&
		    lb_code_is_load(&scan->vm, op->base, L)) {
			const struct lb_node *g =
				lb_code_node(&scan->vm, op->base);

			sum = op;
			SET(scan, gc64, g->size == 8);
			scan->ref_size = g->size;
			SET(scan, l_glref, g->disp);
			SET(scan, g2disp, op->disp);
		} else if (!sum || op->kind != LB_OP_STORE ||
			   op->base != DISPATCH || op->indexed) {
			continue;
		} else if (op->node == L && lb_scan_is_ref(scan, op)) {
			SET(scan, g_cur_l, in_g(scan, op));
			have_cur_l = true;
		} else if (op->has_imm && op->size == 4 && op->imm < 0) {
			SET(scan, g_vmstate, in_g(scan, op));
			SET(scan, vm_interp, lb_scan_vmstate(op));
			break;
		}
	}
	/* LuaJIT 2.0, which knows no 64-bit references */
	if (KNOWN(scan, g_vmstate) && !have_cur_l && !GET(scan, gc64))
		set_none(scan, LB_SCAN_FIELD(g_cur_l));
	if (have_cur_l) /* one of both is there */
		set_none(scan, LB_SCAN_FIELD(g_jit_l));
}

/* lj_vm_call: where it saves its arguments and L->cframe. */
static void scan_call(struct lb_scan_state *scan, const struct lb_ops *range)
{
	scan_marks(scan, range);
	for (lb_each_op(op, range)) {
		const struct lb_node *from = lb_code_node(&scan->vm, op->node);

		if (op->kind != LB_OP_STORE || op->indexed)
			continue;
		if (op->base == L && op->reg == LB_REG_SP) {
			SET(scan, l_cframe, op->disp);
			continue;
		}
		if (op->base != LB_NODE_REG(LB_REG_SP))
			continue;
		if (op->reg == LB_REG_DX && op->node == BASE)
			SET(scan, cf_nres, op->disp);
		else if (op->reg == LB_REG_DI && op->node == L)
			SET(scan, cf_l, op->disp);
		else if (op->reg == LB_REG_BP && op->node == L)
			SET(scan, cf_pc, op->disp);
		else if (op->reg == LB_REG_R15 && from->base == L &&
			 from->kind == LB_NODE_LOAD) {
			SET(scan, cf_prev, op->disp);
			SET(scan, l_cframe, from->disp);
		}
	}
}

/* lj_vm_cpcall: saves stack - top. */
static void scan_cpcall(struct lb_scan_state *scan, const struct lb_ops *range)
{
	for (lb_each_op(op, range)) {
		if (op->kind != LB_OP_SUB || op->base != L ||
		    !lb_code_is_load(&scan->vm, op->node, L))
			continue;
		SET(scan, l_stack, lb_code_node(&scan->vm, op->node)->disp);
		SET(scan, l_top, op->disp);
	}
}

static void scan_entries(struct lb_scan_state *scan)
{
	struct lb_ops vm = lb_ops_all(&scan->vm);

	for (lb_each_op(op, &vm)) {
		if (op->kind != LB_OP_ENTRY)
			continue;

		struct lb_ops range = entry(&vm, op);
		bool is_call = range.begin < range.end &&
			       range.begin->kind == LB_OP_SET &&
			       range.begin->reg == LB_REG_BX &&
			       range.begin->imm == 1;

		if (is_call) /* frame type FRAME_C */
			scan_call(scan, &range);
		else
			scan_cpcall(scan, &range);
	}
	SET(scan, cframe_size, scan->luajit->cframe_size);
	/* pushed in this order: return address, rbp, rbx, r15, r14 */
	SET(scan, cf_ra, scan->luajit->cframe_size - 8);
	SET(scan, cf_rbp, scan->luajit->cframe_size - 16);
	SET(scan, cf_rbx, scan->luajit->cframe_size - 24);
	SET(scan, cf_r14, scan->luajit->cframe_size - PUSHED);
}

/* jmp [r14 + rbp * 8 + disp]: the static half of the dispatch table. */
static void scan_static_dispatch(struct lb_scan_state *scan)
{
	struct lb_ops vm = lb_ops_all(&scan->vm);

	for (lb_each_op(op, &vm))
		if (op->kind == LB_OP_JUMP && op->base == DISPATCH &&
		    op->indexed && op->disp)
			SET(scan, static_dispatch, op->disp);
}

/* ---- functions and frames ---- */

static void scan_funcc(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_funcf, FUNCC_OP);

	for (lb_each_op(op, &range)) {
		if (op->indexed)
			continue;
		if (op->kind == LB_OP_LOAD && op->reg == LB_REG_R15 &&
		    op->size == 8 && is_func(scan, op->base))
			SET(scan, fn_f, op->disp);
		else if (op->kind == LB_OP_STORE && op->base == L &&
			 op->node == BASE)
			SET(scan, l_base, op->disp);
		else if (op->kind == LB_OP_STORE && op->base == L &&
			 op->reg == LB_REG_AX)
			SET(scan, l_top, op->disp);
		else if (op->kind == LB_OP_CMP && op->base == L)
			SET(scan, l_maxstack, op->disp);
		else if (is_vmstate_set(scan, op) &&
			 lb_scan_vmstate(op) != GET(scan, vm_interp))
			SET(scan, vm_c, lb_scan_vmstate(op));
	}
}

/* The head of a Lua function: PC is behind the first instruction. */
static void scan_funcf(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_funcf, IFUNCF_OP);

	for (lb_each_op(op, &range)) {
		if (op->indexed)
			continue;
		if (op->kind == LB_OP_CMP && op->base == L)
			SET(scan, l_maxstack, op->disp);
		if (op->kind != LB_OP_LOAD || op->base != PC)
			continue;
		if (op->reg == LB_REG_R15 && lb_scan_is_ref(scan, op))
			scan->k_disp = op->disp + 4;
		else if (op->size == 1 && op->disp < -8)
			scan->numparams_disp = op->disp + 4;
	}
}

static void scan_calls(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_call, CALL_OP);

	for (lb_each_op(op, &range))
		if (op->kind == LB_OP_LOAD && op->reg == LB_REG_BX &&
		    lb_scan_is_ref(scan, op) && is_slot(scan, op->base))
			SET(scan, fn_pc, op->disp);
	range = OPCODE(scan, bc_call, CALLT_OP);
	/* anything above the code of a Lua and a C function is fast */
	for (lb_each_op(op, &range))
		if (op->kind == LB_OP_CMP && op->size == 1 && op->has_imm &&
		    op->imm == 1)
			SET(scan, fn_ffid, op->disp);
}

/* Back in a Lua function: its constants, from its bytecode. */
static void scan_return(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_retm, RET_OP);

	for (lb_each_op(op, &range)) {
		const struct lb_node *pc = lb_code_node(&scan->vm, op->base);

		if (op->kind == LB_OP_LOAD && op->reg == LB_REG_R15 &&
		    pc->kind == LB_NODE_LOAD && KNOWN(scan, fn_pc) &&
		    pc->disp == GET(scan, fn_pc) && op->disp < 0 &&
		    op->disp != scan->k_disp)
			scan->k_disp = 0; /* two that differ */
	}
}

static void scan_upvalues(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_uget, 0);

	for (lb_each_op(op, &range)) {
		const struct lb_node *uv = lb_code_node(&scan->vm, op->base);

		if (op->kind != LB_OP_LOAD || !lb_scan_is_ref(scan, op))
			continue;
		if (op->indexed && is_func(scan, op->base))
			SET(scan, fn_uvptr, op->disp);
		else if (!op->indexed && uv->kind == LB_NODE_LOAD &&
			 uv->indexed && is_func(scan, uv->base))
			SET(scan, uv_v, op->disp);
	}
	range = OPCODE(scan, bc_usetv, 0);
	/* a closed upvalue: v points to tv beside it, so that the header is
	 * below what v points to */
	for (lb_each_op(op, &range)) {
		const struct lb_node *v = lb_code_node(&scan->vm, op->base);

		if (op->kind == LB_OP_TEST && op->size == 1 && !op->indexed &&
		    op->disp < 0 && v->kind == LB_NODE_LOAD &&
		    KNOWN(scan, uv_v) && v->disp == GET(scan, uv_v)) {
			scan->uv_disp = op->disp;
			scan->have_uv_disp = true;
		}
	}
}

static void scan_env(struct lb_scan_state *scan)
{
	struct lb_ops ranges[] = { OPCODE(scan, bc_gget, 0),
				   OPCODE(scan, bc_gset, 0) };

	for (size_t i = 0; i < 2; i++)
		for (lb_each_op(op, &ranges[i]))
			if (op->kind == LB_OP_LOAD && !op->indexed &&
			    is_func(scan, op->base) && lb_scan_is_ref(scan, op))
				SET(scan, fn_env, op->disp);
}

/* ---- tables and strings ---- */

/* Is this value compared with 0 further on? */
static bool is_tested(const struct lb_ops *range, const struct lb_op *load)
{
	struct lb_ops rest = lb_ops_behind(range, load, LB_SCAN_NEAR);

	for (lb_each_op(op, &rest))
		if (op->kind == LB_OP_TEST_REG && op->node == load->node)
			return true;
	return false;
}

static bool is_put_in_slot(const struct lb_ops *range, const struct lb_op *load)
{
	struct lb_ops rest = lb_ops_behind(range, load, LB_SCAN_NEAR);

	for (lb_each_op(op, &rest))
		if (op->kind == LB_OP_STORE && op->node == load->node &&
		    op->base == BASE && op->indexed)
			return true;
	return false;
}

/* node = &t->node[str->hash & t->hmask], then along the chain of nodes. */
static void scan_tgets(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_tgets, 0);
	uint16_t tab = 0, node = 0;

	for (lb_each_op(op, &range)) {
		const struct lb_node *mask = lb_code_node(&scan->vm, op->node);

		if (op->indexed)
			continue;
		if (op->kind == LB_OP_AND &&
		    lb_code_is_load(&scan->vm, op->base, KBASE) &&
		    mask->kind == LB_NODE_LOAD && mask->size == 4) {
			tab = mask->base;
			SET(scan, tab_hmask, mask->disp);
			SET(scan, str_id, op->disp);
		} else if (!tab) {
			continue;
		} else if (op->kind == LB_OP_MUL && !node) {
			SET(scan, node_size, op->imm);
		} else if (op->kind == LB_OP_ADD && op->base == tab) {
			SET(scan, tab_node, op->disp);
			node = op->node;
		} else if (op->kind == LB_OP_LOAD && op->base == tab &&
			   lb_scan_is_ref(scan, op) && is_tested(&range, op)) {
			SET(scan, tab_metatable, op->disp);
		} else if (!node || op->base != node) {
			continue;
		} else if (op->kind == LB_OP_CMP && !op->has_imm) {
			SET(scan, node_key, op->disp);
		} else if (op->kind == LB_OP_LOAD && op->size == 8 &&
			   is_put_in_slot(&range, op)) {
			SET(scan, node_val, op->disp);
		} else if (op->kind == LB_OP_LOAD && lb_scan_is_ref(scan, op) &&
			   is_tested(&range, op)) {
			SET(scan, node_next, op->disp);
		}
	}
}

static void scan_tgetv(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_tgetv, 0);

	for (lb_each_op(op, &range)) {
		if (op->indexed || !is_slot(scan, op->base))
			continue;
		if (op->kind == LB_OP_CMP && !op->has_imm && op->size == 4)
			SET(scan, tab_asize, op->disp);
		else if (op->kind == LB_OP_ADD && lb_scan_is_ref(scan, op))
			SET(scan, tab_array, op->disp);
	}
	range = OPCODE(scan, bc_tsetv, 0);
	for (lb_each_op(op, &range))
		if (op->kind == LB_OP_TEST && op->size == 1 && !op->indexed &&
		    is_slot(scan, op->base))
			scan->marked = op->disp;
	if (scan->marked && scan->have_uv_disp)
		SET(scan, uv_tv, scan->marked - scan->uv_disp);
}

static void scan_len(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_len, 0);

	for (lb_each_op(op, &range))
		if (op->kind == LB_OP_CONVERT && op->size == 4 &&
		    is_slot(scan, op->base))
			SET(scan, str_len, op->disp);
}

/* ---- fast functions ---- */

/* A function of C with upvalues: pairs, ipairs, coroutine.wrap's. */
static void scan_fast_upvalue(struct lb_scan_state *scan,
			      const struct lb_ops *range)
{
	for (lb_each_op(op, range))
		if (op->kind == LB_OP_LOAD && !op->indexed &&
		    is_func(scan, op->base) && KNOWN(scan, fn_f) &&
		    op->disp > (int64_t)GET(scan, fn_f))
			SET(scan, fn_upvalue, op->disp);
}

/* string.byte: is there a character? Then the first. */
static void scan_fast_byte(struct lb_scan_state *scan,
			   const struct lb_ops *range)
{
	uint16_t str = 0;

	for (lb_each_op(op, range)) {
		if (op->kind == LB_OP_CMP && op->has_imm && op->imm == 1 &&
		    op->size == 4 && KNOWN(scan, str_len) &&
		    op->disp == GET(scan, str_len))
			str = op->base;
		else if (op->kind == LB_OP_LOAD && op->size == 1 && str &&
			 op->base == str && !op->indexed)
			SET(scan, str_size, op->disp);
	}
}

/* coroutine.resume: no C frame, and a status of at most LUA_YIELD. */
static void scan_fast_resume(struct lb_scan_state *scan,
			     const struct lb_ops *range)
{
	uint16_t co = 0;

	for (lb_each_op(op, range)) {
		if (op->kind != LB_OP_CMP || !op->has_imm || op->indexed)
			continue;
		if (op->size == 8 && op->imm == 0 && KNOWN(scan, l_cframe) &&
		    op->disp == GET(scan, l_cframe) && op->base != BASE)
			co = op->base;
		else if (op->size == 1 && op->imm == 1 && co && op->base == co)
			SET(scan, l_status, op->disp);
	}
}

/* getmetatable: tables and userdata share the instruction that loads it. */
static void scan_fast_metatable(struct lb_scan_state *scan,
				const struct lb_ops *range)
{
	bool is_tab = false, is_udata = false, is_loaded = false;

	for (lb_each_op(op, range)) {
		if ((op->kind == LB_OP_CMP || op->kind == LB_OP_CMP_REG) &&
		    op->has_imm) {
			is_tab |= op->imm == TAG_TAB;
			is_udata |= op->imm == TAG_UDATA;
		}
		is_loaded |= op->kind == LB_OP_LOAD &&
			     KNOWN(scan, tab_metatable) &&
			     op->disp == GET(scan, tab_metatable) &&
			     lb_code_is_load(&scan->vm, op->base, BASE);
	}
	if (is_tab && is_udata && is_loaded)
		SET(scan, ud_metatable, GET(scan, tab_metatable));
}

static void scan_fast_functions(struct lb_scan_state *scan)
{
	const struct lb_opcodes *opcodes = &scan->opcodes;

	for (uint32_t i = opcodes->n_opcodes; i < opcodes->n_all; i++) {
		struct lb_ops range = fast_function(scan, i);

		scan_fast_upvalue(scan, &range);
		scan_fast_byte(scan, &range);
		scan_fast_resume(scan, &range);
		scan_fast_metatable(scan, &range);
	}
}

/* ---- states of the VM ---- */

/* Forks with states for Lua and fast functions set them at these places. */
static void scan_states(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_retm, RET_OP);
	bool found = false;

	if (!KNOWN(scan, vm_interp) || range.begin == range.end)
		return;
	for (lb_each_op(op, &range)) {
		if (!is_vmstate_set(scan, op) ||
		    lb_scan_vmstate(op) == GET(scan, vm_interp))
			continue;
		SET(scan, vm_lfunc, lb_scan_vmstate(op));
		found = true;
	}
	if (!found)
		set_none(scan, LB_SCAN_FIELD(vm_lfunc));
	found = false;
	for (uint32_t i = scan->opcodes.n_opcodes; i < scan->opcodes.n_all;
	     i++) {
		range = fast_function(scan, i);
		/* the first thing that such a function does */
		range = (struct lb_ops){ range.begin,
					 range.end - range.begin > LB_SCAN_NEAR
						 ? range.begin + LB_SCAN_NEAR
						 : range.end };
		for (lb_each_op(op, &range)) {
			if (op->kind == LB_OP_CMP || op->kind == LB_OP_CMP_REG)
				break;
			if (!is_vmstate_set(scan, op) ||
			    lb_scan_vmstate(op) == GET(scan, vm_interp))
				continue;
			SET(scan, vm_ffunc, lb_scan_vmstate(op));
			found = true;
		}
	}
	if (!found)
		set_none(scan, LB_SCAN_FIELD(vm_ffunc));
}

/*
 * lj_vm_exit_handler keeps the state it finds, the trace, and sets its own. It
 * may have loaded the address of the dispatch table before.
 */
static void scan_exit_state(struct lb_scan_state *scan)
{
	struct lb_ops vm = lb_ops_all(&scan->vm);

	for (lb_each_op(op, &vm)) {
		const struct lb_op *next = op + 1;

		if (next < vm.end && op->kind == LB_OP_LOAD &&
		    next->kind == LB_OP_STORE && op->size == 4 &&
		    next->size == 4 && op->base == next->base &&
		    op->disp == next->disp && !op->indexed && !next->indexed &&
		    next->has_imm && (int32_t)next->imm < 0 &&
		    KNOWN(scan, g_vmstate) &&
		    in_g(scan, op) == GET(scan, g_vmstate))
			SET(scan, vm_exit, lb_scan_vmstate(next));
	}
}

/* ---- traces ---- */

static void scan_jloop(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_loop, JLOOP_OP);

	for (lb_each_op(op, &range)) {
		const struct lb_node *trace = lb_code_node(&scan->vm, op->base);
		const struct lb_node *list =
			lb_code_node(&scan->vm, trace->base);

		if (op->kind == LB_OP_LOAD && op->size == 8 && !op->indexed &&
		    trace->kind == LB_NODE_LOAD && trace->indexed &&
		    list->kind == LB_NODE_LOAD && list->base == DISPATCH) {
			SET(scan, tr_mcode, op->disp);
			scan->trace_sum =
				list->disp + (int64_t)GET(scan, g2disp);
		}
		if (op->kind != LB_OP_STORE || op->base != DISPATCH ||
		    op->indexed || !lb_scan_is_ref(scan, op))
			continue;
		if (op->node == BASE)
			SET(scan, g_jit_base, in_g(scan, op));
		else if (op->node == L && KNOWN(scan, g_cur_l) &&
			 GET(scan, g_cur_l) == LJ_OFFSETS_NONE)
			SET(scan, g_jit_l, in_g(scan, op));
	}
}

/*
 * Calls into the compiler: J->L = L, and J is the first argument. J is behind
 * global_State.
 */
static void scan_j(struct lb_scan_state *scan)
{
	struct lb_ops vm = lb_ops_all(&scan->vm);

	if (!KNOWN(scan, g_jit_base))
		return;
	for (lb_each_op(op, &vm)) {
		if (op->kind != LB_OP_LEA || op->reg != LB_REG_DI ||
		    op->base != DISPATCH || op->indexed || op->disp >= 0 ||
		    in_g(scan, op) <= GET(scan, g_jit_base))
			continue;
		for (const struct lb_op *near =
			     op - (op - vm.begin < 5 ? op - vm.begin : 5);
		     near < op + 5 && near < vm.end; near++) {
			if (near->kind != LB_OP_STORE ||
			    near->base != DISPATCH || near->node != L ||
			    near->indexed || near->disp <= op->disp)
				continue;
			SET(scan, g_to_j, in_g(scan, op));
		}
	}
	if (KNOWN(scan, g_to_j) && scan->trace_sum)
		SET(scan, j_trace, scan->trace_sum - GET(scan, g_to_j));
}

/* What a patched loop was before: from its trace. */
static void scan_isnext(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_isnext, 0);

	for (lb_each_op(op, &range)) {
		const struct lb_node *trace = lb_code_node(&scan->vm, op->base);
		const struct lb_node *list =
			lb_code_node(&scan->vm, trace->base);

		if (op->kind == LB_OP_LOAD && op->size == 4 && !op->indexed &&
		    op->reg == LB_REG_AX && trace->kind == LB_NODE_LOAD &&
		    trace->indexed && list->kind == LB_NODE_LOAD &&
		    list->base == DISPATCH)
			SET(scan, tr_startins, op->disp);
	}
}

/* Stitching: does a trace link to itself, to another one, to none? */
static void scan_stitch(struct lb_scan_state *scan)
{
	struct lb_ops vm = lb_ops_all(&scan->vm);

	for (lb_each_op(op, &vm)) {
		const struct lb_node *link = lb_code_node(&scan->vm, op->base);
		const struct lb_node *number =
			lb_code_node(&scan->vm, op->node);
		const struct lb_op *next = op + 1;

		if (op->kind != LB_OP_CMP_REG || op->has_imm ||
		    link->kind != LB_NODE_LOAD || link->size != 2 ||
		    number->kind != LB_NODE_LOAD || number->size != 2 ||
		    link->base != number->base || next >= vm.end)
			continue;
		while (next < vm.end && next->kind == LB_OP_JUMP)
			next++;
		if (next == vm.end || next->kind != LB_OP_TEST_REG ||
		    next->node != op->base)
			continue;
		SET(scan, tr_link, link->disp);
		SET(scan, tr_traceno, number->disp);
	}
}

/* ---- garbage collector, and C functions ---- */

/* A table is made: is it time for a step? The call stands last. */
static void scan_tnew(struct lb_scan_state *scan, uint32_t number)
{
	struct lb_ops range = opcode(scan, number);
	uint64_t call = 0;

	for (lb_each_op(op, &range)) {
		const struct lb_node *total = lb_code_node(&scan->vm, op->node);

		if (op->kind == LB_OP_CALL) {
			call = op->target;
		} else if (op->kind == LB_OP_CMP && op->base == DISPATCH &&
			   lb_scan_is_ref(scan, op) &&
			   total->base == DISPATCH &&
			   total->kind == LB_NODE_LOAD) {
			int64_t g2disp = GET(scan, g2disp);

			SET(scan, g_gc_total, total->disp + g2disp);
			SET(scan, g_gc_threshold, op->disp + g2disp);
		}
	}
	if (!is_outside(scan, call))
		return;
	if (scan->found.gc_step_fixtop_vaddr &&
	    scan->found.gc_step_fixtop_vaddr != call)
		call = 0;
	scan->found.gc_step_fixtop_vaddr = call;
}

/* fff_gcstep: return address aside, L->top = end of the arguments, call. */
static void scan_gcstep(struct lb_scan_state *scan)
{
	struct lb_ops vm = lb_ops_all(&scan->vm);

	for (lb_each_op(pop, &vm)) {
		struct lb_ops range = lb_ops_behind(&vm, pop, LB_SCAN_NEAR);
		bool has_top = false;

		if (pop->kind != LB_OP_POP || pop->reg != LB_REG_BP)
			continue;
		for (lb_each_op(op, &range)) {
			if (op->kind == LB_OP_POP || op->kind == LB_OP_ENTRY ||
			    op->kind == LB_OP_JUMP)
				break;
			has_top |= op->kind == LB_OP_STORE && op->base == L &&
				   KNOWN(scan, l_top) &&
				   op->disp == GET(scan, l_top);
			if (op->kind != LB_OP_CALL)
				continue;
			if (has_top && is_outside(scan, op->target))
				scan->found.gc_step_vaddr = op->target;
			break;
		}
	}
}

static void scan_fnew(struct lb_scan_state *scan)
{
	struct lb_ops range = OPCODE(scan, bc_fnew, 0);

	for (lb_each_op(op, &range))
		if (op->kind == LB_OP_CALL && is_outside(scan, op->target))
			scan->new_func_vaddr = op->target;
}

/* ---- all of it ---- */

/* Each opcode and fast function must begin with an instruction. */
static bool are_begins(const struct lb_opcodes *opcodes, const uint8_t *is_insn)
{
	for (uint32_t i = 0; i < opcodes->n_all; i++)
		if (!is_insn[opcodes->off[i]])
			return false;
	return true;
}

static int read_vm(struct lb_scan_state *scan)
{
	const struct lb_luajit *luajit = scan->luajit;
	struct lb_opcodes *opcodes = &scan->opcodes;
	_cleanup_free_ uint8_t *flags = luajit->vm_size > VM_SIZE_MAX
						? NULL
						: calloc(luajit->vm_size, 2);
	struct lb_pieces pieces = { .l_slot = luajit->cf_l, .begins = flags };
	int err;

	if (luajit->vm_size > VM_SIZE_MAX)
		return -E2BIG;
	if (!flags)
		return -ENOMEM;
	pieces.is_insn = flags + luajit->vm_size;
	if (lb_opcodes_find(scan->elf, luajit, opcodes, &scan->found.offsets))
		opcodes->n_opcodes = opcodes->n_all = 0;
	for (uint32_t i = 0; i < opcodes->n_all; i++)
		flags[opcodes->off[i]] = 1;
	err = lb_code_read(scan->elf, luajit->vm_vaddr, luajit->vm_size,
			   &pieces, &scan->vm);
	if (!err && !are_begins(opcodes, pieces.is_insn)) {
		lb_code_fini(&scan->vm);
		err = -EOPNOTSUPP;
	}
	return err;
}

static void know_opcodes(struct lb_scan_state *scan)
{
	const uint32_t *values = (const uint32_t *)&scan->found.offsets;

	for (size_t i = LB_SCAN_FIELD(bc_call); i < LB_SCAN_N_FIELDS; i++)
		scan->found.known[i] = values[i] != LJ_OFFSETS_NONE;
	scan->found.n_opcodes = scan->opcodes.n_opcodes;
}

/* gc.state is 5 bytes behind the threshold, or 9 where that has 8 bytes. */
static void scan_gc_state(struct lb_scan_state *scan)
{
	if (KNOWN(scan, g_gc_threshold))
		SET(scan, g_gc_state,
		    GET(scan, g_gc_threshold) + scan->ref_size + 1);
}

static void forget_differing(struct lb_scan_state *scan)
{
	uint32_t *values = (uint32_t *)&scan->found.offsets;

	for (size_t i = 0; i < LB_SCAN_N_FIELDS; i++) {
		if (scan->differs[i]) {
			values[i] = LJ_OFFSETS_NONE;
			scan->found.known[i] = false;
		}
		scan->found.n_known += scan->found.known[i];
	}
}

int lb_scan_offsets(const struct lb_elf *elf, const struct lb_luajit *luajit,
		    struct lb_scan *scan_ret)
{
	struct lb_scan_state scan = { .elf = elf, .luajit = luajit };
	int err;

	memset(&scan.found.offsets, 0xff, sizeof(scan.found.offsets));
	err = read_vm(&scan);
	if (err)
		return err;
	know_opcodes(&scan);
	scan_entries(&scan);
	if (!KNOWN(&scan, g2disp) || !KNOWN(&scan, gc64)) {
		lb_code_fini(&scan.vm);
		return -EOPNOTSUPP;
	}
	scan_static_dispatch(&scan);
	scan_funcc(&scan);
	scan_funcf(&scan);
	scan_calls(&scan);
	scan_return(&scan);
	scan_upvalues(&scan);
	scan_env(&scan);
	scan_tgets(&scan);
	scan_tgetv(&scan);
	scan_len(&scan);
	scan_fast_functions(&scan);
	scan_states(&scan);
	scan_exit_state(&scan);
	scan_jloop(&scan);
	scan_j(&scan);
	scan_isnext(&scan);
	scan_stitch(&scan);
	scan_tnew(&scan, scan.found.offsets.bc_tnew);
	scan_tnew(&scan, scan.found.offsets.bc_tdup);
	scan_gc_state(&scan);
	scan_gcstep(&scan);
	scan_fnew(&scan);
	lb_scan_functions(&scan);
	forget_differing(&scan);
	lb_code_fini(&scan.vm);
	*scan_ret = scan.found;
	return 0;
}
