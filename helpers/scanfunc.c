/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Struct offsets of a LuaJIT build from C functions that its VM calls:
 * lj_gc_step and lj_gc_step_fixtop, and the one that makes Lua functions.
 * Compilers choose their code, so that less is certain here than in the VM, and
 * what does not look as expected is not known.
 */
#include <string.h>

#include "ehframe.h"
#include "scanfunc.h"

#define L	      LB_NODE_L
#define FUNC_SIZE_MAX 4096 /* bytes of a C function */
#define FUNCS_MAX     8	   /* C functions that one may call */
#define TYPE_FUNC     8	   /* ~LJ_TFUNC, in headers of objects */

/* C functions whose size is looked for. */
struct func {
	uint64_t vaddr;
	uint64_t size; /* 0: no FDE begins there */
};

struct funcs {
	struct func funcs[FUNCS_MAX];
	size_t n;
};

static int on_fde(void *arg, const struct lb_fde *fde)
{
	struct funcs *funcs = arg;

	for (size_t i = 0; i < funcs->n; i++)
		if (funcs->funcs[i].vaddr == fde->vaddr &&
		    fde->size <= FUNC_SIZE_MAX)
			funcs->funcs[i].size = fde->size;
	return 0;
}

static int on_rule(void *arg, uint64_t vaddr, const struct lb_rule *rule)
{
	(void)arg;
	(void)vaddr;
	(void)rule;
	return 0;
}

static void add_func(struct funcs *funcs, uint64_t vaddr)
{
	for (size_t i = 0; i < funcs->n; i++)
		if (funcs->funcs[i].vaddr == vaddr)
			return;
	if (vaddr && funcs->n < FUNCS_MAX)
		funcs->funcs[funcs->n++].vaddr = vaddr;
}

static bool read_func(const struct lb_scan_state *scan,
		      const struct funcs *funcs, uint64_t vaddr,
		      struct lb_code *code)
{
	for (size_t i = 0; i < funcs->n; i++)
		if (funcs->funcs[i].vaddr == vaddr && funcs->funcs[i].size)
			return !lb_code_read(scan->elf, vaddr,
					     funcs->funcs[i].size, NULL, code);
	return false;
}

/* Is this G, reached from L? */
static bool is_g(const struct lb_scan_state *scan, const struct lb_code *code,
		 uint16_t node)
{
	return lb_code_is_load(code, node, L) && KNOWN(scan, l_glref) &&
	       lb_code_node(code, node)->disp == GET(scan, l_glref);
}

/* A value that is multiplied or shifted, not only added. */
static bool is_scaled(const struct lb_ops *range, const struct lb_op *load)
{
	struct lb_ops rest = lb_ops_behind(range, load, LB_SCAN_NEAR);

	for (lb_each_op(op, &rest))
		if ((op->kind == LB_OP_MUL || op->kind == LB_OP_SHIFT) &&
		    op->base == load->node)
			return true;
	return false;
}

/*
 * lj_gc_step: sets its state, adds to the debt, and at the end of a cycle
 * threshold = estimate / 100 * pause. Return: is it this function?
 */
static bool scan_gc_step(struct lb_scan_state *scan, const struct lb_code *code)
{
	struct lb_ops range = lb_ops_all(code);
	bool is_it = false;

	for (lb_each_op(op, &range)) {
		if (!is_g(scan, code, op->base) || op->indexed)
			continue;
		if (op->kind == LB_OP_STORE && op->has_imm && op->size == 4 &&
		    (int32_t)op->imm < 0 && KNOWN(scan, g_vmstate) &&
		    op->disp == GET(scan, g_vmstate)) {
			SET(scan, vm_gc, lb_scan_vmstate(op));
			is_it = true;
		}
	}
	if (!is_it)
		return false;
	for (lb_each_op(op, &range)) {
		if (!is_g(scan, code, op->base) || op->indexed)
			continue;
		if (op->kind == LB_OP_CMP && op->size == 1 && op->has_imm &&
		    !op->imm)
			SET(scan, g_gc_state, op->disp);
		else if (op->kind == LB_OP_ADD_TO && lb_scan_is_ref(scan, op))
			SET(scan, g_gc_debt, op->disp);
		else if (op->kind == LB_OP_LOAD && lb_scan_is_ref(scan, op) &&
			 is_scaled(&range, op))
			SET(scan, g_gc_estimate, op->disp);
	}
	return true;
}

static bool calls(const struct lb_code *code, uint64_t vaddr)
{
	struct lb_ops range = lb_ops_all(code);

	for (lb_each_op(op, &range))
		if ((op->kind == LB_OP_CALL || op->kind == LB_OP_JUMP) &&
		    op->target == vaddr)
			return true;
	return false;
}

static void scan_gc_functions(struct lb_scan_state *scan,
			      const struct funcs *funcs)
{
	struct lb_scan *found = &scan->found;
	struct lb_code code;
	bool is_step = false, is_fixtop = false;

	if (read_func(scan, funcs, found->gc_step_vaddr, &code)) {
		is_step = scan_gc_step(scan, &code);
		lb_code_fini(&code);
	}
	if (!is_step)
		found->gc_step_vaddr = 0;
	if (read_func(scan, funcs, found->gc_step_fixtop_vaddr, &code)) {
		/* it calls the other, or has it inside */
		is_fixtop = (is_step && calls(&code, found->gc_step_vaddr)) ||
			    scan_gc_step(scan, &code);
		lb_code_fini(&code);
	}
	if (!is_fixtop)
		found->gc_step_fixtop_vaddr = 0;
}

/* A new object goes to the head of the list of all. */
static void scan_new_object(struct lb_scan_state *scan,
			    const struct lb_code *code)
{
	struct lb_ops range = lb_ops_all(code);

	for (lb_each_op(op, &range)) {
		const struct lb_node *root = lb_code_node(code, op->node);

		if (op->kind != LB_OP_STORE || op->disp || op->indexed ||
		    !lb_scan_is_ref(scan, op) || root->kind != LB_NODE_LOAD ||
		    !is_g(scan, code, root->base))
			continue;

		struct lb_ops rest = lb_ops_behind(&range, op, LB_SCAN_NEAR);

		for (lb_each_op(store, &rest))
			if (store->kind == LB_OP_STORE &&
			    store->base == root->base &&
			    store->disp == root->disp &&
			    store->node == op->base)
				SET(scan, g_gc_root, store->disp);
	}
}

/*
 * A new Lua function from prototype @pt: its bytecode is behind the prototype,
 * and it has as many upvalues.
 */
static void scan_new_func(struct lb_scan_state *scan,
			  const struct lb_code *code, uint16_t pt)
{
	struct lb_ops range = lb_ops_all(code);

	for (lb_each_op(op, &range)) {
		const struct lb_node *from = lb_code_node(code, op->node);
		int64_t imm = op->has_imm ? op->imm : from->disp;

		if (op->kind != LB_OP_STORE || op->indexed ||
		    op->base == LB_NODE_REG(LB_REG_SP))
			continue;
		if (lb_scan_is_ref(scan, op) && from->kind == LB_NODE_LEA &&
		    from->base == pt && !from->indexed && KNOWN(scan, fn_pc) &&
		    op->disp == GET(scan, fn_pc))
			SET(scan, pt_size, from->disp);
		else if (op->size == 1 && op->base == pt)
			SET(scan, pt_flags, op->disp);
		else if (op->size == 1 && from->kind == LB_NODE_LOAD &&
			 from->base == pt && from->size == 1) {
			SET(scan, fn_nupvalues, op->disp);
			SET(scan, pt_sizeuv, from->disp);
		} else if (op->size <= 2 && imm == TYPE_FUNC &&
			   (op->has_imm || from->kind == LB_NODE_CONST)) {
			/* one header for all objects */
			SET(scan, fn_gct, op->disp);
			SET(scan, pt_gct, op->disp);
			SET(scan, l_gct, op->disp);
		}
	}
	if (!KNOWN(scan, pt_size))
		return;
	if (scan->k_disp)
		SET(scan, pt_k, GET(scan, pt_size) + scan->k_disp);
	if (scan->numparams_disp)
		SET(scan, pt_numparams,
		    GET(scan, pt_size) + scan->numparams_disp);
}

/* Calls of @code, whose sizes are then known as well. */
static void find_called(const struct lb_scan_state *scan,
			const struct lb_code *code, struct funcs *funcs)
{
	struct lb_ops range = lb_ops_all(code);

	memset(funcs, 0, sizeof(*funcs));
	for (lb_each_op(op, &range))
		if (op->kind == LB_OP_CALL || op->kind == LB_OP_JUMP)
			add_func(funcs, op->target);
	lb_ehframe_each(scan->elf, on_fde, on_rule, funcs, NULL);
}

static void scan_new_functions(struct lb_scan_state *scan,
			       const struct funcs *funcs)
{
	const uint16_t pt = LB_NODE_REG(LB_REG_SI);
	struct lb_code code, called;
	struct funcs more;

	if (!read_func(scan, funcs, scan->new_func_vaddr, &code))
		return;
	find_called(scan, &code, &more);
	scan_new_func(scan, &code, pt);
	for (size_t i = 0; i < more.n; i++) {
		if (!read_func(scan, &more, more.funcs[i].vaddr, &called))
			continue;
		scan_new_object(scan, &called);
		if (!KNOWN(scan, pt_size))
			scan_new_func(scan, &called, pt);
		lb_code_fini(&called);
	}
	lb_code_fini(&code);
}

void lb_scan_functions(struct lb_scan_state *scan)
{
	struct funcs funcs = { .n = 0 };

	add_func(&funcs, scan->found.gc_step_vaddr);
	add_func(&funcs, scan->found.gc_step_fixtop_vaddr);
	add_func(&funcs, scan->new_func_vaddr);
	lb_ehframe_each(scan->elf, on_fde, on_rule, &funcs, NULL);
	scan_gc_functions(scan, &funcs);
	scan_new_functions(scan, &funcs);
}
