/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one snapshot of a trace to the next.
 *
 * A snapshot is taken where a branch was decided or something was stored. What
 * lies between two of them is a straight line of bytecode, if calls are
 * entered: each branch in it was decided without a test. So bytecode is
 * followed from one to the other, both ways at a branch; the way that arrives,
 * with the same functions called from the same places, is the one that was
 * recorded.
 *
 * What is called is known where the function is a constant of the trace: in a
 * slot of the snapshot, in an upvalue, or as the object that a guard compares
 * with. A second copy of a loop has no guards for what cannot change: there
 * the callee is the one that the same instruction had before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tracewalk.h"

#define BRANCHES_MAX 24
#define BUDGET	     4000 /* instructions for one pair of snapshots */
#define SITES_MAX    4096
#define NODES_MAX    65536
#define ARGS_MAX     32
#define META_BASE    64 /* slots above a frame where a metamethod's begins */
#define VARARG_BASE  40 /* the same for the fixed part of a vararg function */

/* What was called by an instruction. */
struct site {
	const struct lb_fproto *proto; /* where it is */
	uint32_t pos;
	uint64_t callee; /* GCfunc, or GCproto with is_proto */
	bool is_proto;
	bool meta;   /* a metamethod */
	bool unsure; /* something else may have been called, too */
};

struct lb_walk {
	struct lb_target *target;
	const struct lj_offsets *off;
	struct lb_funcs *funcs;
	const struct lb_trace *trace;
	struct lb_trace_nodes nodes;
	struct site *sites;
	size_t n_sites;
	struct lb_step steps[LB_WALK_STEPS];
	struct lb_walk_state now;
	struct lb_walk_state branches[BRANCHES_MAX];
	uint32_t n_branches;
	const struct lb_walk_state *to;
	uint32_t end;	  /* of the IR in between */
	uint32_t avoid;	  /* the first branch does not go there */
	uint64_t nowhere; /* stands for slots out of bounds */
	/* the best way found so far, and what tells how good it is */
	struct lb_step best[LB_WALK_STEPS];
	uint32_t n_best, best_tests, best_branch;
	bool found, best_sure;
};

struct ins {
	uint8_t op, a;
	uint32_t d;
};

/* ---- nodes ---- */

uint32_t lb_trace_node(struct lb_trace_nodes *nodes,
		       const struct lb_trace_node *node)
{
	for (uint32_t i = nodes->n; i-- > 0;) {
		const struct lb_trace_node *at = &nodes->nodes[i];

		if (at->parent == node->parent &&
		    at->call_pos == node->call_pos &&
		    at->proto == node->proto && at->ffid == node->ffid &&
		    at->replaced == node->replaced)
			return i;
	}
	if (nodes->n == NODES_MAX)
		return LB_NODE_NONE;
	if (nodes->n == nodes->room) {
		uint32_t room = nodes->room ? 2 * nodes->room : 16;
		void *bigger =
			realloc(nodes->nodes, room * sizeof(*nodes->nodes));

		if (!bigger)
			return LB_NODE_NONE;
		nodes->nodes = bigger;
		nodes->room = room;
	}
	nodes->nodes[nodes->n] = *node;
	return nodes->n++;
}

static uint32_t depth_of(const struct lb_trace_nodes *nodes, uint32_t node)
{
	uint32_t n = 0;

	for (; node != LB_NODE_NONE; node = nodes->nodes[node].parent)
		n++;
	return n;
}

uint32_t lb_trace_common(const struct lb_trace_nodes *nodes, uint32_t a,
			 uint32_t b)
{
	uint32_t na = depth_of(nodes, a), nb = depth_of(nodes, b);

	for (; na > nb; na--)
		a = nodes->nodes[a].parent;
	for (; nb > na; nb--)
		b = nodes->nodes[b].parent;
	while (a != b) {
		a = nodes->nodes[a].parent;
		b = nodes->nodes[b].parent;
	}
	return a;
}

/* ---- handle ---- */

int lb_walk_new(struct lb_target *target, struct lb_funcs *funcs,
		const struct lb_trace *trace, struct lb_walk **walk_ret)
{
	struct lb_walk *walk = calloc(1, sizeof(*walk));

	if (!walk)
		return -ENOMEM;
	walk->target = target;
	walk->off = target->off;
	walk->funcs = funcs;
	walk->trace = trace;
	*walk_ret = walk;
	return 0;
}

void lb_walk_free(struct lb_walk *walk)
{
	if (!walk)
		return;
	free(walk->nodes.nodes);
	free(walk->sites);
	free(walk);
}

struct lb_trace_nodes *lb_walk_nodes(struct lb_walk *walk)
{
	return &walk->nodes;
}

/* ---- call sites ---- */

static struct site *find_site(const struct lb_walk *walk,
			      const struct lb_fproto *proto, uint32_t pos)
{
	for (size_t i = 0; i < walk->n_sites; i++)
		if (walk->sites[i].proto == proto && walk->sites[i].pos == pos)
			return &walk->sites[i];
	return NULL;
}

static struct site *get_site(struct lb_walk *walk,
			     const struct lb_fproto *proto, uint32_t pos)
{
	struct site *site = find_site(walk, proto, pos);

	if (site || walk->n_sites == SITES_MAX)
		return site;
	void *bigger = realloc(walk->sites,
			       (walk->n_sites + 1) * sizeof(*walk->sites));

	if (!bigger)
		return NULL;
	walk->sites = bigger;
	site = &walk->sites[walk->n_sites++];
	*site = (struct site){ .proto = proto, .pos = pos };
	return site;
}

static void note_callee(struct lb_walk *walk, const struct lb_fproto *proto,
			uint32_t pos, uint64_t callee, bool is_proto, bool meta)
{
	struct site *site = get_site(walk, proto, pos);

	if (!site)
		return;
	if (site->callee &&
	    (site->callee != callee || site->is_proto != is_proto))
		site->unsure = true;
	site->callee = callee;
	site->is_proto = is_proto;
	site->meta = meta;
}

/* ---- states ---- */

static bool in_code(const struct lb_fproto *proto, uint64_t pc)
{
	return pc - proto->code < 4ULL * proto->proto.size_bc && !(pc & 3);
}

/* Function of one frame of a snapshot. */
static bool frame_function(struct lb_walk *walk,
			   const struct lb_trace_frame *from, uint64_t pc,
			   struct lb_walk_frame *f)
{
	struct lb_func func = { .addr = 0 };

	f->func = from->func;
	if (from->func) {
		if (lb_funcs_func(walk->funcs, from->func, &func))
			return false;
		f->proto = func.proto;
		f->ffid = func.ffid;
	} else if (from->proto) {
		f->proto = lb_funcs_proto(walk->funcs, from->proto);
	} else if (pc) {
		f->proto = lb_funcs_at(walk->funcs, pc);
	}
	if (!f->proto)
		return f->ffid && !pc;
	return !pc || in_code(f->proto, pc);
}

void lb_walk_state(struct lb_walk *walk, const struct lb_trace_snap *snap,
		   uint64_t base_func, struct lb_walk_state *state)
{
	uint32_t parent = LB_NODE_NONE;

	memset(state, 0, sizeof(*state));
	state->sure = true;
	memcpy(state->funcs, snap->funcs, sizeof(snap->funcs));
	for (uint32_t i = 0; i < snap->n_frames; i++) {
		const struct lb_trace_frame *from = &snap->frames[i];
		bool top = i + 1 == snap->n_frames;
		uint64_t pc = top ? snap->pc : from[1].caller_pc;
		struct lb_walk_frame *f = &state->frames[i];

		if (!frame_function(walk, from, pc, f))
			return;
		if (!i && !f->func)
			f->func = base_func;
		f->base = from->base;
		f->link = from->link;
		if (pc)
			f->pos = (pc - f->proto->code) / 4 - !top;
		struct lb_trace_node node = {
			.parent = parent,
			.call_pos =
				i && f[-1].proto ? f[-1].pos : LB_POS_UNKNOWN,
			.proto = f->proto,
			.ffid = f->ffid,
			.replaced = !i && snap->tailcalled
		};

		f->node = parent = lb_trace_node(&walk->nodes, &node);
		if (parent == LB_NODE_NONE)
			return;
		state->n = i + 1;
		if (i && f[-1].proto && (f->func || f->proto) &&
		    f->link != LB_TRACE_LINK_OTHER)
			note_callee(walk, f[-1].proto, f[-1].pos,
				    f->func ? f->func : f->proto->proto.addr,
				    !f->func, f->link == LB_TRACE_LINK_CONT);
	}
	state->whole = true;
}

static bool arrived(const struct lb_walk_state *a,
		    const struct lb_walk_state *b)
{
	if (a->n != b->n)
		return false;
	for (uint32_t i = a->n; i-- > 0;)
		if (a->frames[i].pos != b->frames[i].pos ||
		    a->frames[i].proto != b->frames[i].proto ||
		    a->frames[i].ffid != b->frames[i].ffid)
			return false;
	return true;
}

/* ---- instructions ---- */

static struct ins ins_at(const struct lb_walk *walk,
			 const struct lb_walk_frame *f, uint32_t pos)
{
	uint32_t word = 0;

	if (pos < f->proto->proto.size_bc)
		memcpy(&word,
		       f->proto->proto.data + walk->off->pt_size + 4 * pos, 4);
	return (struct ins){ .op = word, .a = word >> 8, .d = word >> 16 };
}

static bool in_range(uint32_t op, uint32_t first, uint32_t n)
{
	return op - first < n;
}

static uint32_t jump(uint32_t pos, uint32_t d)
{
	return pos + 1 + d - 0x8000;
}

static bool is_compare(const struct lj_offsets *off, uint32_t op)
{
	return op <= off->bc_ist + 1;
}

static struct lb_walk_frame *top(struct lb_walk *walk)
{
	return &walk->now.frames[walk->now.n - 1];
}

/* The function in slot @slot of the frame on top. */
static uint64_t *func_slot(struct lb_walk *walk, uint32_t slot)
{
	uint32_t i = top(walk)->base + slot;

	walk->nowhere = 0;
	return i < LB_WALK_SLOTS ? &walk->now.funcs[i] : &walk->nowhere;
}

static void forget_from(struct lb_walk *walk, uint32_t slot)
{
	uint32_t i = top(walk)->base + slot;

	if (i < LB_WALK_SLOTS)
		memset(&walk->now.funcs[i], 0,
		       (LB_WALK_SLOTS - i) * sizeof(walk->now.funcs[0]));
}

/* Try this position, too, if the way taken now does not arrive. */
static void branch(struct lb_walk *walk, uint32_t pos)
{
	if (walk->n_branches == BRANCHES_MAX)
		return;
	struct lb_walk_state *other = &walk->branches[walk->n_branches++];

	*other = walk->now;
	other->frames[other->n - 1].pos = pos;
}

/* One of two positions, or the one that is not to be avoided. */
static void go_either(struct lb_walk *walk, uint32_t pos, uint32_t other)
{
	uint32_t avoid = walk->avoid;

	walk->avoid = LB_POS_UNKNOWN;
	if (avoid == pos)
		pos = other;
	else if (avoid != other)
		branch(walk, other);
	top(walk)->pos = pos;
}

static bool add_step(struct lb_walk *walk, uint8_t host, bool once, bool emits)
{
	struct lb_walk_state *now = &walk->now;

	if (now->n_steps == LB_WALK_STEPS)
		return false;
	walk->steps[now->n_steps++] = (struct lb_step){ .node = top(walk)->node,
							.pos = top(walk)->pos,
							.host = host,
							.once = once,
							.emits = emits };
	return true;
}

static bool push_frame(struct lb_walk *walk, const struct lb_fproto *proto,
		       uint64_t func, uint8_t ffid, uint32_t base, uint8_t link)
{
	struct lb_walk_state *now = &walk->now;
	struct lb_walk_frame *below = top(walk);

	if (now->n == LB_TRACE_FRAMES || base >= LB_WALK_SLOTS)
		return false;
	struct lb_trace_node node = { .parent = below->node,
				      .call_pos = below->proto ? below->pos
							       : LB_POS_UNKNOWN,
				      .proto = proto,
				      .ffid = ffid };
	struct lb_walk_frame *f = &now->frames[now->n];

	*f = (struct lb_walk_frame){ .proto = proto,
				     .func = func,
				     .base = base,
				     .ffid = ffid,
				     .link = link };
	f->node = lb_trace_node(&walk->nodes, &node);
	if (f->node == LB_NODE_NONE)
		return false;
	now->n++;
	return true;
}

/* Leave the function on top; where it goes on is known from its caller. */
static bool do_return(struct lb_walk *walk)
{
	struct lb_walk_state *now = &walk->now;
	uint8_t link;

	do {
		if (now->n == 1)
			return false; /* to a frame that is on the stack */
		link = top(walk)->link;
		now->n--;
	} while (!top(walk)->proto);
	struct lb_walk_frame *f = top(walk);
	struct ins ins = ins_at(walk, f, f->pos);

	forget_from(walk, ins.a);
	if (link == LB_TRACE_LINK_CONT && is_compare(walk->off, ins.op))
		branch(walk, f->pos + 2);
	f->pos++;
	return true;
}

static bool tail_call(struct lb_walk *walk, const struct lb_func *func,
		      uint32_t args)
{
	struct lb_walk_frame *f = top(walk);
	struct lb_trace_node node = walk->nodes.nodes[f->node];

	for (uint32_t i = 0; i < ARGS_MAX; i++)
		*func_slot(walk, i) = *func_slot(walk, args + i);
	forget_from(walk, ARGS_MAX);
	node.proto = func->proto;
	node.ffid = func->ffid;
	if (walk->now.n == 1)
		node.replaced = true;
	f->node = lb_trace_node(&walk->nodes, &node);
	f->proto = func->proto;
	f->func = func->addr;
	f->pos = 0;
	return f->node != LB_NODE_NONE;
}

/* What the instruction at the top calls; false when that is not known. */
static bool find_callee(struct lb_walk *walk, uint64_t known,
			struct lb_func *func_ret)
{
	struct lb_walk_frame *f = top(walk);
	struct site *site = find_site(walk, f->proto, f->pos);
	uint64_t callee = known;
	bool is_proto = false;

	if (!callee) {
		uint32_t ref = walk->now.guard_ref;

		callee = lb_trace_guard(walk->off, walk->trace, &ref, walk->end,
					&is_proto);
		if (callee && site && site->callee && !site->unsure &&
		    site->callee != callee)
			callee = 0; /* it belongs to another instruction */
		else if (callee)
			walk->now.guard_ref = ref;
	}
	if (!callee && site && !site->unsure) {
		callee = site->callee;
		is_proto = site->is_proto;
	}
	if (!callee)
		return false;
	memset(func_ret, 0, sizeof(*func_ret));
	if (is_proto)
		func_ret->proto = lb_funcs_proto(walk->funcs, callee);
	else if (lb_funcs_func(walk->funcs, callee, func_ret))
		return false;
	note_callee(walk, f->proto, f->pos, callee, is_proto, false);
	return func_ret->proto || func_ret->ffid;
}

/* pcall and such: the frame of the snapshot to be reached tells whom it calls.
 */
static void enter_protected(struct lb_walk *walk, uint32_t a)
{
	const struct lb_walk_state *to = walk->to;
	uint32_t n = walk->now.n;

	if (to->n < n + 2 || to->frames[n].proto || !to->frames[n + 1].proto ||
	    to->frames[n - 1].pos != top(walk)->pos)
		return;
	branch(walk, top(walk)->pos + 1);
	push_frame(walk, NULL, to->frames[n].func, to->frames[n].ffid,
		   top(walk)->base + a + 2, LB_TRACE_LINK_LUA);
	push_frame(walk, to->frames[n + 1].proto, to->frames[n + 1].func, 0,
		   top(walk)->base + 2, LB_TRACE_LINK_OTHER);
}

/* @slot: of the function, and @a where its frame will be. */
static bool do_call(struct lb_walk *walk, uint32_t slot, uint32_t a, bool tail)
{
	struct lb_walk_frame *f = top(walk);
	uint32_t args = a + 1 + (walk->off->gc64 ? 1 : 0);
	uint32_t guard_ref = walk->now.guard_ref;
	struct lb_func func;

	if (!find_callee(walk, *func_slot(walk, slot), &func)) {
		walk->now.sure = false;
		memset(&func, 0, sizeof(func));
	}
	bool tested = walk->now.guard_ref != guard_ref;

	if (func.proto) {
		if (!add_step(walk, 0, false, tested))
			return false;
		if (tail)
			return tail_call(walk, &func, args);
		return push_frame(walk, func.proto, func.addr, 0,
				  f->base + args, LB_TRACE_LINK_LUA);
	}
	/* what ITERC and ITERN call does not calculate, nor do some others */
	bool quiet =
		slot != a ||
		(func.ffid && !lb_funcs_calculates(walk->funcs, func.ffid));

	if (!add_step(walk, quiet ? LB_HOST_CALL : LB_HOST_ANY, false, true))
		return false;
	forget_from(walk, a);
	if (tail)
		return do_return(walk);
	uint32_t n = walk->now.n;

	enter_protected(walk, a);
	if (walk->now.n == n)
		f->pos++;
	return true;
}

/* A metamethod that this instruction has called elsewhere in the trace. */
static bool enter_metamethod(struct lb_walk *walk)
{
	struct lb_walk_frame *f = top(walk);
	struct site *site = find_site(walk, f->proto, f->pos);
	struct lb_func func = { .addr = 0 };

	if (site && site->unsure)
		walk->now.sure = false;
	if (!site || !site->meta || !site->callee)
		return false;
	if (site->is_proto)
		func.proto = lb_funcs_proto(walk->funcs, site->callee);
	else if (lb_funcs_func(walk->funcs, site->callee, &func))
		return false;
	if (!func.proto)
		return false;
	uint32_t ref = walk->now.guard_ref;
	bool is_proto;

	/* its guard, if it is the next */
	if (lb_trace_guard(walk->off, walk->trace, &ref, walk->end,
			   &is_proto) == site->callee)
		walk->now.guard_ref = ref;
	if (walk->n_branches < BRANCHES_MAX)
		branch(walk, f->pos + 1);
	return push_frame(walk, func.proto, func.addr, 0, f->base + META_BASE,
			  LB_TRACE_LINK_CONT);
}

/* ---- loops, whose jump a trace has overwritten with its number ---- */

/* The lowest instruction that jumps to @pos, with one of these opcodes. */
static uint32_t jump_to(const struct lb_walk *walk,
			const struct lb_walk_frame *f, uint32_t pos,
			uint32_t op1, uint32_t op2)
{
	for (uint32_t i = 1; i < pos; i++) {
		struct ins ins = ins_at(walk, f, i);

		if ((ins.op == op1 || ins.op == op2) && jump(i, ins.d) == pos)
			return i;
	}
	return 0;
}

/* Where the body of the loop that ends at @pos begins; 0 if not found. */
static uint32_t loop_body(const struct lb_walk *walk,
			  const struct lb_walk_frame *f, struct ins ins,
			  uint32_t pos)
{
	const struct lj_offsets *off = walk->off;
	uint32_t at;

	if (ins.op == off->bc_fori + 4) /* JFORL; FORI, JFORI */
		at = jump_to(walk, f, pos + 1, off->bc_fori, off->bc_fori + 1);
	else if (ins.op == off->bc_fori + 7) /* JITERL */
		at = jump_to(walk, f, pos - 1, off->bc_jmp, off->bc_isnext);
	else
		return jump(pos, ins.d);
	return at ? at + 1 : 0;
}

static bool loop_ins(struct lb_walk *walk, struct ins ins)
{
	const struct lj_offsets *off = walk->off;
	struct lb_walk_frame *f = top(walk);
	uint32_t n = ins.op - off->bc_fori;

	if (n < 2) { /* FORI, JFORI */
		if (!add_step(walk, LB_HOST_COMPARE, false, true))
			return false;
		*func_slot(walk, ins.a + 3) = 0;
		walk->now.n_tests++;
		go_either(walk, f->pos + 1, jump(f->pos, ins.d));
		return true;
	}
	uint32_t body = loop_body(walk, f, ins, f->pos);

	/* FORL adds first, and then compares */
	if (n < 5 && !add_step(walk, LB_HOST_ADD, true, true))
		return false;
	if (!add_step(walk, n < 5 ? LB_HOST_COMPARE : 0, false, true))
		return false;
	walk->now.n_tests += n < 5;
	if (body)
		go_either(walk, body, f->pos + 1);
	else
		f->pos++;
	return true;
}

/* ---- one instruction ---- */

static bool simple(struct lb_walk *walk, struct ins ins, uint8_t host,
		   bool emits)
{
	if (!add_step(walk, host, true, emits))
		return false;
	*func_slot(walk, ins.a) = 0;
	top(walk)->pos++;
	return true;
}

/* An instruction on values that may have a metamethod. */
static bool may_call(struct lb_walk *walk, struct ins ins, uint8_t host,
		     bool once, bool sets)
{
	if (!add_step(walk, host, once, true))
		return false;
	if (enter_metamethod(walk))
		return true;
	if (sets)
		*func_slot(walk, ins.a) = 0;
	top(walk)->pos++;
	return true;
}

static bool compare_ins(struct lb_walk *walk, struct ins ins)
{
	const struct lj_offsets *off = walk->off;
	struct lb_walk_frame *f = top(walk);
	struct ins next = ins_at(walk, f, f->pos + 1);

	if (next.op != off->bc_jmp)
		return false;
	if (!add_step(walk, LB_HOST_CALL | LB_HOST_COMPARE, false, true))
		return false;
	if (ins.op < off->bc_istc && enter_metamethod(walk))
		return true;
	if (in_range(ins.op, off->bc_istc, 2))
		*func_slot(walk, ins.a) = 0;
	walk->now.n_tests += ins.op < off->bc_istc;
	go_either(walk, f->pos + 2, jump(f->pos + 1, next.d));
	return true;
}

/* a - floor(a / b) * b, or a call for integers. */
static bool modulo_ins(struct lb_walk *walk, struct ins ins)
{
	return add_step(walk, LB_HOST_DIV | LB_HOST_MUL, true, true) &&
	       add_step(walk, LB_HOST_CALL, false, true) &&
	       add_step(walk, LB_HOST_MUL | LB_HOST_ADD, true, true) &&
	       may_call(walk, ins, LB_HOST_SUB | LB_HOST_ADD, true, true);
}

static bool arith_ins(struct lb_walk *walk, struct ins ins)
{
	/* also what an operation with a constant may be turned into */
	static const uint8_t hosts[4] = { LB_HOST_ADD,
					  LB_HOST_SUB | LB_HOST_ADD,
					  LB_HOST_MUL | LB_HOST_ADD,
					  LB_HOST_DIV | LB_HOST_MUL };
	uint32_t n = (ins.op - walk->off->bc_addvn) % 5;

	if (n == 4)
		return modulo_ins(walk, ins);
	return may_call(walk, ins, hosts[n], true, true);
}

static bool upvalue_ins(struct lb_walk *walk, struct ins ins)
{
	struct lb_walk_frame *f = top(walk);
	uint64_t func = 0;

	if (f->func)
		func = lb_funcs_upvalue(walk->funcs, f->func, ins.d);
	if (!simple(walk, ins, 0, !func))
		return false;
	*func_slot(walk, ins.a) = func;
	return true;
}

static bool header_ins(struct lb_walk *walk, struct ins ins)
{
	struct lb_walk_frame *f = top(walk);
	uint32_t n = f->proto->proto.num_params;

	if (ins.op >= walk->off->bc_funcf + 6 ||
	    !add_step(walk, 0, false, false))
		return false;
	if (ins.op >= walk->off->bc_funcf + 3) { /* FUNCV: parameters move up */
		if (f->base + VARARG_BASE + n >= LB_WALK_SLOTS)
			return false;
		forget_from(walk, n);
		for (uint32_t i = 0; i < n; i++)
			*func_slot(walk, VARARG_BASE + i) = *func_slot(walk, i);
		f->base += VARARG_BASE;
	}
	f->pos++;
	return true;
}

/* Calls, returns, loops, jumps. */
static bool control_ins(struct lb_walk *walk, struct ins ins)
{
	const struct lj_offsets *off = walk->off;
	struct lb_walk_frame *f = top(walk);

	if (in_range(ins.op, off->bc_call, 4))
		return do_call(walk, ins.a, ins.a, ins.op >= off->bc_call + 2);
	if (ins.op == off->bc_iterc || ins.op == off->bc_itern)
		return do_call(walk, ins.a - 3, ins.a, false);
	if (in_range(ins.op, off->bc_retm, 4))
		return add_step(walk, 0, false, false) && do_return(walk);
	if (in_range(ins.op, off->bc_fori, 8))
		return loop_ins(walk, ins);
	if (ins.op == off->bc_jmp || ins.op == off->bc_isnext) {
		f->pos = jump(f->pos, ins.d);
		return true;
	}
	if (ins.op == off->bc_uclo) {
		f->pos = jump(f->pos, ins.d);
		return true;
	}
	if (in_range(ins.op, off->bc_loop, 3)) { /* LOOP, ILOOP, JLOOP */
		f->pos++;
		return true;
	}
	if (ins.op >= off->bc_funcf)
		return header_ins(walk, ins);
	return false;
}

static bool execute(struct lb_walk *walk)
{
	const struct lj_offsets *off = walk->off;
	struct lb_walk_frame *f = top(walk);
	uint32_t pos = f->pos;

	if (!f->proto || pos >= f->proto->proto.size_bc)
		return false;
	struct ins ins = ins_at(walk, f, pos);
	uint32_t op = ins.op;

	if (is_compare(off, op))
		return compare_ins(walk, ins);
	if (op < off->bc_mov) { /* ISTYPE, ISNUM */
		f->pos++;
		return true;
	}
	if (op == off->bc_mov) {
		uint64_t func = *func_slot(walk, ins.d);

		if (!simple(walk, ins, 0, false))
			return false;
		*func_slot(walk, ins.a) = func;
		return true;
	}
	if (op == off->bc_unm)
		return may_call(walk, ins, LB_HOST_SUB, true, true);
	if (op < off->bc_unm) /* NOT */
		return simple(walk, ins, 0, false);
	if (op == off->bc_len)
		return may_call(walk, ins, LB_HOST_CALL, false, true);
	if (in_range(op, off->bc_addvn, 15))
		return arith_ins(walk, ins);
	if (op == off->bc_pow || op == off->bc_cat)
		return may_call(walk, ins, LB_HOST_ANY, false, true);
	if (op >= off->bc_kstr && op < off->bc_knil)
		return simple(walk, ins, 0, false);
	if (op == off->bc_knil) {
		for (uint32_t i = ins.a; i <= ins.d; i++)
			*func_slot(walk, i) = 0;
		return simple(walk, ins, 0, false);
	}
	if (op == off->bc_uget)
		return upvalue_ins(walk, ins);
	if (op >= off->bc_usetv && op < off->bc_uclo)
		return may_call(walk, ins, LB_HOST_CALL, false, false);
	if (op == off->bc_fnew)
		return false; /* not compiled */
	if (op >= off->bc_tnew && op < off->bc_gget)
		return may_call(walk, ins, LB_HOST_CALL, false, true);
	if (op == off->bc_gget ||
	    in_range(op, off->bc_tgetv, off->bc_tsetv - off->bc_tgetv))
		return may_call(walk, ins, LB_HOST_CALL, false, true);
	if (op == off->bc_gset ||
	    in_range(op, off->bc_tsetv, off->bc_call - off->bc_tsetv))
		return may_call(walk, ins, LB_HOST_CALL, false, false);
	if (op == off->bc_itern + 1) { /* VARG */
		if (!add_step(walk, LB_HOST_CALL, false, true))
			return false;
		forget_from(walk, ins.a);
		f->pos++;
		return true;
	}
	return control_ins(walk, ins);
}

/* Whatever was called here without our knowing may be called again. */
static void doubt_steps(struct lb_walk *walk)
{
	for (uint32_t i = 0; i < walk->n_best; i++) {
		const struct lb_step *step = &walk->best[i];
		const struct lb_fproto *proto =
			walk->nodes.nodes[step->node].proto;
		struct site *site = step->emits && proto
					    ? get_site(walk, proto, step->pos)
					    : NULL;

		if (site)
			site->unsure = true;
	}
}

/* The two ways that a branch at @pos can go; false if it is none. */
static bool ways_of(const struct lb_walk *walk, const struct lb_walk_frame *f,
		    uint32_t pos, uint32_t ways[2])
{
	const struct lj_offsets *off = walk->off;
	struct ins ins = ins_at(walk, f, pos);

	if (ins.op < off->bc_istc) { /* what tests types only is no test */
		struct ins next = ins_at(walk, f, pos + 1);

		ways[0] = pos + 2;
		ways[1] = jump(pos + 1, next.d);
		return next.op == off->bc_jmp;
	}
	ways[0] = pos + 1;
	if (in_range(ins.op, off->bc_fori, 2))
		ways[1] = jump(pos, ins.d);
	else if (in_range(ins.op, off->bc_fori + 2, 3))
		ways[1] = loop_body(walk, f, ins, pos);
	else
		return false;
	return true;
}

/* Is @now at a test that would go where @to says, if it failed? */
static bool at_test(const struct lb_walk *walk, const struct lb_walk_state *now,
		    const struct lb_walk_state *to)
{
	const struct lb_walk_frame *f = &now->frames[now->n - 1];
	struct lb_walk_state *there = (struct lb_walk_state *)now;
	uint32_t ways[2], pos = f->pos;
	bool found = false;

	if (!f->proto || now->n != to->n || !ways_of(walk, f, pos, ways))
		return false;
	for (int i = 0; i < 2 && !found; i++) {
		there->frames[now->n - 1].pos = ways[i];
		found = arrived(there, to);
	}
	there->frames[now->n - 1].pos = pos;
	return found;
}

static bool at_end(const struct lb_walk *walk, struct lb_walk_end *to,
		   bool is_test)
{
	const struct lb_walk_state *now = &walk->now;

	to->branch = LB_POS_UNKNOWN;
	if (is_test && at_test(walk, now, to->state)) {
		to->branch = now->frames[now->n - 1].pos;
		return true;
	}
	return arrived(now, to->state);
}

int lb_walk_branch(const struct lb_walk *walk, struct lb_walk_end *end)
{
	const struct lb_walk_state *state = end->state;
	uint32_t ways[2], n = 0;

	end->branch = LB_POS_UNKNOWN;
	if (!state->whole || !lb_trace_is_test(walk->trace, end->ref))
		return 0;
	const struct lb_walk_frame *f = &state->frames[state->n - 1];

	for (uint32_t pos = 1; f->proto && pos < f->proto->proto.size_bc;
	     pos++) {
		if (!ways_of(walk, f, pos, ways) ||
		    (ways[0] != f->pos && ways[1] != f->pos))
			continue;
		end->branch = pos;
		n++;
	}
	return n > 1 ? -ENOENT : 0;
}

/*
 * Several ways may arrive, round an outer loop for one. Each test that was
 * recorded has a snapshot, so the right way has the fewest in between; then
 * one whose callees are known is better, then a shorter one.
 */
static void keep_best(struct lb_walk *walk, const struct lb_walk_end *to)
{
	const struct lb_walk_state *now = &walk->now;
	uint32_t guard_ref = now->guard_ref;
	bool is_proto;
	bool sure =
		now->sure && !lb_trace_guard(walk->off, walk->trace, &guard_ref,
					     to->ref, &is_proto);

	if (walk->found &&
	    (now->n_tests > walk->best_tests ||
	     (now->n_tests == walk->best_tests &&
	      (sure < walk->best_sure ||
	       (sure == walk->best_sure && now->n_steps >= walk->n_best)))))
		return;
	walk->found = true;
	walk->best_sure = sure;
	walk->best_tests = now->n_tests;
	walk->best_branch = to->branch;
	walk->n_best = now->n_steps;
	memcpy(walk->best, walk->steps, now->n_steps * sizeof(walk->steps[0]));
}

static void begin(struct lb_walk *walk, const struct lb_walk_end *from,
		  const struct lb_walk_end *to)
{
	walk->now = *from->state;
	walk->now.guard_ref = from->ref;
	walk->now.n_steps = 0;
	walk->now.n_tests = 0;
	walk->n_branches = 0;
	walk->to = to->state;
	walk->end = to->ref;
	walk->avoid = LB_POS_UNKNOWN;
	walk->found = false;
	if (from->branch != LB_POS_UNKNOWN) {
		walk->avoid = top(walk)->pos;
		top(walk)->pos = from->branch;
	}
}

int lb_walk_go(struct lb_walk *walk, const struct lb_walk_end *from,
	       struct lb_walk_end *to, const struct lb_step **steps_ret,
	       uint32_t *n_ret, bool *sure_ret)
{
	bool is_test = lb_trace_is_test(walk->trace, to->ref);

	if (!from->state->whole || !to->state->whole || !from->state->n ||
	    !from->state->frames[from->state->n - 1].proto)
		return -ENOENT;
	begin(walk, from, to);
	for (uint32_t left = BUDGET; left; left--) {
		bool goes_on = execute(walk);

		if (goes_on && at_end(walk, to, is_test)) {
			keep_best(walk, to);
			goes_on = false;
		}
		if (goes_on && walk->found &&
		    walk->now.n_tests > walk->best_tests)
			goes_on = false;
		while (!goes_on && walk->n_branches) {
			walk->now = walk->branches[--walk->n_branches];
			goes_on = !at_end(walk, to, is_test);
			if (!goes_on)
				keep_best(walk, to);
		}
		if (!goes_on)
			break;
	}
	if (!walk->found)
		return -ENOENT;
	to->branch = walk->best_branch;
	if (!walk->best_sure)
		doubt_steps(walk);
	*steps_ret = walk->best;
	*n_ret = walk->n_best;
	*sure_ret = walk->best_sure;
	return 0;
}
