/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames that are inlined in the machine code of a stack.
 *
 * The map of a trace begins with the frame on the Lua stack. If that is not
 * the function that the walker found there, a return to a lower frame is under
 * way, and the map is not believed.
 */
#include "splice.h"

static bool is_trace(const struct lb_stack *stack, uint32_t i)
{
	const struct lb_frame *f = &stack->frames[i];

	return f->kind == LB_FRAME_MCODE && !(f->flags & LB_FF_FOREIGN);
}

static struct lb_trace_key key_of(const struct lb_stack *stack, uint32_t i)
{
	const struct lb_frame *f = &stack->frames[i];

	return (struct lb_trace_key){
		.subject = stack->subject,
		.g_addr = stack->rec.g_addr,
		.vm = f->vm,
		.no = f->pos ? f->line : 0,
		.id = f->pos,
		.pc = f->addr - (f->flags & LB_FF_EXACT_PC ? 0 : 1)
	};
}

/* The Lua frame that runs as this machine code, or NULL. */
static const struct lb_frame *base_of(const struct lb_stack *stack, uint32_t i)
{
	if (i + 1 >= stack->rec.n_frames)
		return NULL;
	const struct lb_frame *f = &stack->frames[i + 1];

	return f->kind == LB_FRAME_LUA && f->flags & LB_FF_JIT ? f : NULL;
}

/* Does the chain of @span stand on the frame that is on the stack? */
static bool stands_on(const struct lb_tracemap *map,
		      const struct lb_trace_span *span,
		      const struct lb_frame *base)
{
	uint32_t node = span->node;

	if (node >= map->n_nodes)
		return false;
	while (map->nodes[node].parent != LB_NODE_NONE)
		node = map->nodes[node].parent;
	return map->nodes[node].replaced ||
	       map->nodes[node].proto_id == base->proto_id;
}

struct lb_splice lb_splice_at(struct lb_traces *traces,
			      const struct lb_stack *stack, uint32_t i)
{
	struct lb_splice splice = { .kind = LB_SPLICE_NONE };

	if (!is_trace(stack, i))
		return splice;
	struct lb_trace_key key = key_of(stack, i);
	const struct lb_frame *base = base_of(stack, i);

	splice.map = lb_traces_find(traces, &key);
	if (!splice.map) {
		/* in an exit of the trace that vmstate names, or unknown */
		splice.kind = !key.id && stack->rec.vmstate > 0
				      ? LB_SPLICE_COARSE
				      : LB_SPLICE_GONE;
		return splice;
	}
	splice.kind = LB_SPLICE_COARSE;
	const struct lb_trace_span *span = lb_tracemap_at(splice.map, key.pc);

	if (!base || !span || !stands_on(splice.map, span, base))
		return splice;
	splice.span = span;
	if (span->exact)
		splice.kind = LB_SPLICE_EXACT;
	return splice;
}

struct lb_splice lb_splice_first(struct lb_traces *traces,
				 const struct lb_stack *stack)
{
	for (uint32_t i = 0; i < stack->rec.n_frames; i++)
		if (is_trace(stack, i))
			return lb_splice_at(traces, stack, i);
	return (struct lb_splice){ .kind = LB_SPLICE_NONE };
}

void lb_splice_want(struct lb_traces *traces, const struct lb_stack *stack)
{
	for (uint32_t i = 0; i < stack->rec.n_frames; i++) {
		if (!is_trace(stack, i))
			continue;
		struct lb_trace_key key = key_of(stack, i);
		const struct lb_frame *base = base_of(stack, i);

		lb_traces_want(traces, &key, base ? base->addr : 0);
	}
}
