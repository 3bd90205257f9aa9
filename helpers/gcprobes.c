/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where uprobes go to see all work of LuaJIT's garbage collector.
 *
 * lj_gc_step is known from a call in the VM (scan.c). Its callers have two
 * other functions among them: lj_gc_step_jit, which copies jit_base to L->base
 * for traces, and lua_gc, which is exported or compares its second argument
 * with small numbers. What these call, two levels deep, is the collector: there
 * gc.state is set to constants, and a finalizer is called with lj_vm_pcall
 * between two writes of gc.threshold.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"
#include "flow.h"
#include "gcprobes.h"

#define CALLERS_MAX  1024 /* calls of lj_gc_step in a file */
#define CALLED_MAX   96	  /* functions that are part of the collector */
#define LEVELS	     3	  /* lj_gc_step, gc_onestep, gc_finalize */
#define EXITS_MAX    24
#define PHASES_ALL   0x3f /* GCSpause ... GCSfinalize */
#define API_WHAT_MIN 7	  /* lua_gc knows as many requests at least */
#define API_WHAT_MAX 31
#define KIB_SHIFT    10

struct finder {
	const struct lb_elf *elf;
	const struct lb_luajit *luajit;
	const struct lb_scan *scan;
	struct lb_probes *probes;
	uint64_t pcall_vaddr; /* lj_vm_pcall */
	struct lb_extent callers[CALLERS_MAX];
	size_t n_callers;
	uint64_t api_vaddr, trace_vaddr;
	uint32_t phases; /* that are set somewhere, a bit each */
	bool has_finalizer;
	bool odd_phase; /* gc.state is set to what the code does not show */
};

#define OFFSET(finder, name) ((finder)->scan->offsets.name)

static int add_point(struct finder *finder, const struct lb_insn *insn,
		     uint32_t kind, const char *name)
{
	return lb_probes_add(finder->probes, finder->elf, kind, name,
			     insn->vaddr);
}

static int add_flow(struct finder *finder, const struct lb_flow *flow,
		    uint32_t kind, const char *name)
{
	const struct lb_insn *exits[EXITS_MAX];
	const struct lb_insn *entry = lb_flow_entry(flow);
	size_t n;
	int err;

	if (!entry)
		return -EOPNOTSUPP;
	err = lb_flow_exits(finder->elf, flow, exits, EXITS_MAX, &n);
	if (!err)
		err = add_point(finder, entry, kind, name);
	for (size_t i = 0; i < n && !err; i++)
		err = add_point(finder, exits[i], kind + 1, name);
	return err;
}

static int add_func(struct finder *finder, uint64_t vaddr, uint32_t kind,
		    const char *name)
{
	struct lb_flow flow;
	int err = lb_flow_read(finder->elf, vaddr, 0, &flow);

	if (err)
		return err;
	err = add_flow(finder, &flow, kind, name);
	lb_flow_fini(&flow);
	return err;
}

/* ---- lj_vm_pcall ---- */

/* The entry that pushes frame type FRAME_CP: `mov ebx, 5` after its prologue.
 */
static uint64_t find_pcall(const struct finder *finder)
{
	static const uint8_t prologue[] = { 0x55, 0x53, 0x41, 0x57, 0x41,
					    0x56, 0x48, 0x83, 0xec };
	static const uint8_t frame_cp[] = { 0xbb, 0x05, 0x00, 0x00, 0x00 };
	const struct lb_luajit *luajit = finder->luajit;
	const uint8_t *code = lb_elf_vaddr_data(finder->elf, luajit->vm_vaddr,
						luajit->vm_size);
	const size_t size = sizeof(prologue) + 1 + sizeof(frame_cp);

	for (uint64_t i = 0; code && i + size <= luajit->vm_size; i++)
		if (!memcmp(code + i, prologue, sizeof(prologue)) &&
		    !memcmp(code + i + sizeof(prologue) + 1, frame_cp,
			    sizeof(frame_cp)))
			return luajit->vm_vaddr + i;
	return 0;
}

/* ---- callers of lj_gc_step ---- */

static bool is_in_vm(const struct finder *finder, uint64_t vaddr)
{
	return vaddr - finder->luajit->vm_vaddr < finder->luajit->vm_size;
}

/* call rel32 or jmp rel32 to lj_gc_step, wherever such bytes stand. */
static void find_calls(struct finder *finder, const struct lb_segment *segment,
		       const uint8_t *code)
{
	const uint64_t step = finder->scan->gc_step_vaddr;

	for (uint64_t i = 0; i + 5 <= segment->filesz; i++) {
		int32_t distance;

		if (code[i] != 0xe8 && code[i] != 0xe9)
			continue;
		memcpy(&distance, code + i + 1, sizeof(distance));
		if (segment->vaddr + i + 5 + (uint64_t)(int64_t)distance !=
		    step)
			continue;
		if (finder->n_callers < CALLERS_MAX)
			finder->callers[finder->n_callers++].vaddr =
				segment->vaddr + i;
	}
}

static int compare(const void *a, const void *b)
{
	const struct lb_extent *ea = a, *eb = b;

	return ea->vaddr < eb->vaddr ? -1 : ea->vaddr > eb->vaddr;
}

/* Functions with such a call, each once. */
static int find_callers(struct finder *finder)
{
	const struct lb_segment *segments;
	size_t n = lb_elf_segments(finder->elf, &segments), kept = 0;
	int err;

	for (size_t i = 0; i < n; i++) {
		const uint8_t *code;

		if (!(segments[i].flags & PF_X))
			continue;
		code = lb_elf_vaddr_data(finder->elf, segments[i].vaddr,
					 segments[i].filesz);
		if (code)
			find_calls(finder, &segments[i], code);
	}
	err = lb_flow_extents(finder->elf, finder->callers, finder->n_callers);
	if (err)
		return err;
	qsort(finder->callers, finder->n_callers, sizeof(finder->callers[0]),
	      compare);
	for (size_t i = 0; i < finder->n_callers; i++) {
		const struct lb_extent *extent = &finder->callers[i];

		if (!extent->size || is_in_vm(finder, extent->vaddr) ||
		    (kept && finder->callers[kept - 1].vaddr == extent->vaddr))
			continue;
		finder->callers[kept++] = *extent;
	}
	finder->n_callers = kept;
	return 0;
}

/* lj_gc_step_jit(G, steps): L = G->cur_L (2.0: jit_L); L->base = jit_base. */
static bool is_step_jit(const struct finder *finder, const struct lb_code *code)
{
	struct lb_ops range = lb_ops_all(code);
	const uint16_t g = LB_NODE_L; /* the first argument */
	uint32_t off_l = OFFSET(finder, g_cur_l) != LJ_OFFSETS_NONE
				 ? OFFSET(finder, g_cur_l)
				 : OFFSET(finder, g_jit_l);
	uint16_t l = 0;
	bool has_base = false;

	for (lb_each_op(op, &range)) {
		const struct lb_node *from = lb_code_node(code, op->node);

		if (op->kind == LB_OP_LOAD && op->base == g && !op->indexed &&
		    op->disp == off_l)
			l = op->node;
		if (l && op->kind == LB_OP_STORE && op->base == l &&
		    op->disp == OFFSET(finder, l_base) &&
		    from->kind == LB_NODE_LOAD &&
		    from->disp == OFFSET(finder, g_jit_base))
			has_base = true;
	}
	return has_base;
}

/*
 * lua_gc(L, what, data): how many requests are there; sets G's threshold; gives
 * the size of the heap in KiB. Which register has G behind the jump by a table
 * is not known.
 */
static bool is_api(const struct finder *finder, const struct lb_code *code)
{
	struct lb_ops range = lb_ops_all(code);
	bool compares = false, has_g = false, sets = false, shifts = false;

	for (lb_each_op(op, &range)) {
		if (op->kind == LB_OP_CMP_REG && op->has_imm &&
		    op->base == LB_NODE_REG(LB_REG_SI) &&
		    op->imm >= API_WHAT_MIN && op->imm <= API_WHAT_MAX)
			compares = true;
		if (op->kind == LB_OP_LOAD && op->base == LB_NODE_L &&
		    !op->indexed && op->disp == OFFSET(finder, l_glref))
			has_g = true;
		if (op->kind == LB_OP_STORE && !op->indexed && has_g &&
		    op->disp == OFFSET(finder, g_gc_threshold) &&
		    op->base != LB_NODE_REG(LB_REG_SP))
			sets = true;
		shifts |= op->kind == LB_OP_SHIFT && op->imm == KIB_SHIFT;
	}
	return compares && sets && shifts;
}

/* One function only may look like it; else none does. */
static void take(uint64_t *vaddr, uint64_t found, bool *twice)
{
	*twice |= *vaddr && *vaddr != found;
	*vaddr = found;
}

static int find_functions(struct finder *finder)
{
	bool two_traces = false, two_apis = false;
	uint64_t api = 0;
	int err = find_callers(finder);

	if (err)
		return err;
	for (size_t i = 0; i < finder->n_callers; i++) {
		const struct lb_extent *extent = &finder->callers[i];
		struct lb_code code;

		err = lb_code_read(finder->elf, extent->vaddr, extent->size,
				   NULL, &code);
		if (err == -ENOMEM)
			return err;
		if (err)
			continue;
		if (is_step_jit(finder, &code))
			take(&finder->trace_vaddr, extent->vaddr, &two_traces);
		if (is_api(finder, &code))
			take(&api, extent->vaddr, &two_apis);
		lb_code_fini(&code);
	}
	if (two_traces)
		finder->trace_vaddr = 0;
	if (lb_elf_dynsym(finder->elf, "lua_gc", &finder->api_vaddr))
		finder->api_vaddr = two_apis ? 0 : api;
	return 0;
}

/* ---- what they call ---- */

struct called {
	uint64_t vaddrs[CALLED_MAX];
	size_t n;
};

static void add_called(struct called *called, uint64_t vaddr)
{
	for (size_t i = 0; i < called->n; i++)
		if (called->vaddrs[i] == vaddr)
			return;
	if (called->n < CALLED_MAX)
		called->vaddrs[called->n++] = vaddr;
}

/* gc.state = constant, also when a neighbour is set in the same write. */
static int scan_phases(struct finder *finder, const struct lb_flow *flow,
		       const struct lb_code *code)
{
	struct lb_ops range = lb_ops_all(code);
	int err = 0;

	for (lb_each_op(op, &range)) {
		const struct lb_node *from = lb_code_node(code, op->node);
		int64_t value = op->has_imm ? op->imm : from->disp;
		const struct lb_insn *insn;

		if (op->kind != LB_OP_STORE || op->indexed || op->size > 2 ||
		    op->base == LB_NODE_REG(LB_REG_SP) ||
		    op->disp != OFFSET(finder, g_gc_state))
			continue;
		value &= 0xff;
		if ((!op->has_imm && from->kind != LB_NODE_CONST) ||
		    value > 5) {
			finder->odd_phase = true;
			continue;
		}
		insn = lb_flow_at(flow, op->vaddr);
		if (!insn)
			return -EOPNOTSUPP;
		err = add_point(finder, insn, LB_GC_PHASE + (uint32_t)value,
				"gc.state");
		if (err)
			return err;
		finder->phases |= 1U << value;
	}
	return 0;
}

/* Threshold out of reach, lj_vm_pcall, threshold back. */
static int scan_finalizer(struct finder *finder, const struct lb_flow *flow,
			  const struct lb_code *code)
{
	struct lb_ops range = lb_ops_all(code);
	bool sets = false;

	for (lb_each_op(op, &range)) {
		const struct lb_insn *call, *after;
		int err;

		sets |= op->kind == LB_OP_STORE && !op->indexed &&
			op->disp == OFFSET(finder, g_gc_threshold) &&
			op->base != LB_NODE_REG(LB_REG_SP);
		if (op->kind != LB_OP_CALL || !sets ||
		    op->target != finder->pcall_vaddr)
			continue;
		call = lb_flow_at(flow, op->vaddr);
		after = call ? lb_flow_after(flow, call) : NULL;
		if (!after)
			return -EOPNOTSUPP;
		err = add_point(finder, call, LB_GC_FIN_ENTRY, "finalizer");
		if (!err)
			err = add_point(finder, after, LB_GC_FIN_EXIT,
					"finalizer");
		if (err)
			return err;
		finder->has_finalizer = true;
	}
	return 0;
}

static int scan_called(struct finder *finder, struct called *called,
		       uint64_t vaddr)
{
	struct lb_flow flow;
	struct lb_code code;
	int err = lb_flow_read(finder->elf, vaddr, 0, &flow);

	if (err) /* a library's function, a part that never returns */
		return err == -ENOMEM ? err : 0;
	for (size_t i = 0; i < flow.n; i++) {
		const struct lb_insn *insn = &flow.insns[i];

		if (insn->target && !is_in_vm(finder, insn->target) &&
		    (insn->kind == LB_INSN_CALL ||
		     insn->target - vaddr >= flow.size))
			add_called(called, insn->target);
	}
	err = lb_code_read(finder->elf, vaddr, flow.size, NULL, &code);
	if (!err) {
		err = scan_phases(finder, &flow, &code);
		if (!err)
			err = scan_finalizer(finder, &flow, &code);
		lb_code_fini(&code);
	} else if (err != -ENOMEM) {
		err = 0;
	}
	lb_flow_fini(&flow);
	return err;
}

/* From lj_gc_step and lua_gc on, level by level. */
static int scan_collector(struct finder *finder)
{
	struct called called = { .n = 0 };
	size_t done = 0;

	add_called(&called, finder->scan->gc_step_vaddr);
	add_called(&called, finder->api_vaddr);
	for (int level = 0; level <= LEVELS; level++) {
		size_t end = called.n;

		for (; done < end; done++) {
			int err = scan_called(finder, &called,
					      called.vaddrs[done]);

			if (err)
				return err;
		}
	}
	return 0;
}

/* ---- all of it ---- */

/* Without one of them time would go to the phase before it. */
static void drop_phases(struct lb_probes *probes, size_t begin)
{
	size_t kept = begin;

	for (size_t i = begin; i < probes->n; i++)
		if (probes->list[i].kind < LB_GC_PHASE)
			probes->list[kept++] = probes->list[i];
	probes->n = kept;
}

static int add_functions(struct finder *finder, const char **missing_ret)
{
	int err;

	*missing_ret = "entry and exits of lj_gc_step";
	err = add_func(finder, finder->scan->gc_step_vaddr, LB_GC_STEP_ENTRY,
		       "lj_gc_step");
	if (err)
		return err;
	*missing_ret = "entry and exits of lua_gc";
	err = add_func(finder, finder->api_vaddr, LB_GC_API_ENTRY, "lua_gc");
	if (err || !finder->trace_vaddr)
		return err;
	*missing_ret = "entry and exits of lj_gc_step_jit";
	return add_func(finder, finder->trace_vaddr, LB_GC_TRACE_ENTRY,
			"lj_gc_step_jit");
}

static int find(struct finder *finder, const char **missing_ret)
{
	size_t begin = finder->probes->n;
	int err;

	*missing_ret = "lj_gc_step";
	if (!finder->scan->gc_step_vaddr)
		return -EOPNOTSUPP;
	*missing_ret = "offsets of the collector in global_State";
	if (OFFSET(finder, g_gc_state) == LJ_OFFSETS_NONE ||
	    OFFSET(finder, g_gc_threshold) == LJ_OFFSETS_NONE ||
	    OFFSET(finder, l_glref) == LJ_OFFSETS_NONE ||
	    OFFSET(finder, l_base) == LJ_OFFSETS_NONE)
		return -EOPNOTSUPP;
	err = find_functions(finder);
	if (err)
		return err;
	*missing_ret = "lua_gc";
	if (!finder->api_vaddr)
		return -EOPNOTSUPP;
	/* the VM's code sets jit_base only if it was built with a compiler */
	*missing_ret = "lj_gc_step_jit";
	if (!finder->trace_vaddr &&
	    OFFSET(finder, g_jit_base) != LJ_OFFSETS_NONE)
		return -EOPNOTSUPP;
	err = add_functions(finder, missing_ret);
	if (err)
		return err;
	*missing_ret = "the call of finalizers";
	finder->pcall_vaddr = find_pcall(finder);
	if (!finder->pcall_vaddr)
		return -EOPNOTSUPP;
	err = scan_collector(finder);
	if (!err && (finder->odd_phase || finder->phases != PHASES_ALL))
		drop_phases(finder->probes, begin);
	if (!err && !finder->has_finalizer)
		err = -EOPNOTSUPP;
	return err;
}

int lb_gcprobes_find(const struct lb_elf *elf, const struct lb_luajit *luajit,
		     const struct lb_scan *scan, struct lb_probes *probes,
		     const char **missing_ret)
{
	struct finder *finder = calloc(1, sizeof(*finder));
	size_t n_before = probes->n;
	int err;

	if (!finder) {
		*missing_ret = "memory";
		return -ENOMEM;
	}
	finder->elf = elf;
	finder->luajit = luajit;
	finder->scan = scan;
	finder->probes = probes;
	err = find(finder, missing_ret);
	if (err)
		probes->n = n_before;
	free(finder);
	return err && err != -ENOMEM ? -EOPNOTSUPP : err;
}
