/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a trace's machine code belongs to which Lua frames: all that is kept
 * of a trace.
 */
#ifndef LB_TRACEMAP_H
#define LB_TRACEMAP_H

#include "funcs.h"
#include "trace.h"

/* A frame and the chain below it; indices are into nodes. */
struct lb_inline {
	uint32_t parent;    /* LB_NODE_NONE: the one on the Lua stack */
	uint32_t proto_id;  /* in lb_names; 0: not a Lua function */
	uint32_t call_pos;  /* where the parent calls it, LB_POS_UNKNOWN */
	uint32_t call_line; /* LB_LINE_UNKNOWN */
	uint8_t ffid;
	bool replaced; /* not what is on the Lua stack, after a tail call */
};

/* Machine code from @ofs to that of the next. */
struct lb_trace_span {
	uint32_t ofs;
	uint32_t node; /* LB_NODE_NONE: the frame on the Lua stack, no more */
	uint32_t pos;  /* bytecode that is executed there, LB_POS_UNKNOWN */
	uint32_t line; /* LB_LINE_UNKNOWN */
	bool exact;    /* node is right for all of it */
};

struct lb_tracemap {
	uint64_t mcode;
	uint32_t szmcode;
	uint32_t id;
	uint16_t no, root, link;
	uint8_t linktype;
	uint32_t start_id; /* prototype where it begins, 0 */
	uint32_t start_line;
	struct lb_inline *nodes;
	uint32_t n_nodes;
	struct lb_trace_span *spans;
	uint32_t n_spans;
	uint64_t samples; /* for whoever counts them */
};

/**
 * lb_tracemap_new() - work out the map of a trace that has just been copied
 * @funcs: its round is that of this trace
 * Return: 0, -ENOMEM.
 */
int lb_tracemap_new(struct lb_target *target, struct lb_funcs *funcs,
		    const struct lb_trace *trace, struct lb_tracemap **map_ret);
void lb_tracemap_free(struct lb_tracemap *map);
/** The span that holds @pc, NULL if the trace does not. */
const struct lb_trace_span *lb_tracemap_at(const struct lb_tracemap *map,
					   uint64_t pc);
/** Bytes that it takes. */
size_t lb_tracemap_size(const struct lb_tracemap *map);

#endif
