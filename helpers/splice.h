/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a stack goes through machine code: the frames that are inlined there.
 */
#ifndef LB_SPLICE_H
#define LB_SPLICE_H

#include "stacks.h"
#include "traces.h"

enum lb_splice_kind {
	LB_SPLICE_NONE = 0, /* no machine code of a trace here */
	LB_SPLICE_EXACT,
	LB_SPLICE_COARSE, /* what is shown is on the stack, more may be */
	LB_SPLICE_GONE,	  /* the trace could not be read any more */
};

struct lb_splice {
	uint8_t kind;			  /* enum lb_splice_kind */
	struct lb_tracemap *map;	  /* NULL: the trace is not known */
	const struct lb_trace_span *span; /* NULL: no inlined frames known */
};

/**
 * lb_splice_at() - what runs in frame @i of @stack
 * Which must be a frame of machine code, above (before) its Lua frame.
 */
struct lb_splice lb_splice_at(struct lb_traces *traces,
			      const struct lb_stack *stack, uint32_t i);
/** The same for the innermost machine code of the stack. */
struct lb_splice lb_splice_first(struct lb_traces *traces,
				 const struct lb_stack *stack);
/** Have the traces of a stack copied that has just come in. */
void lb_splice_want(struct lb_traces *traces, const struct lb_stack *stack);

#endif
