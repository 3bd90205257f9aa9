/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one snapshot of a trace to the next: the bytecode in between, through
 * the calls that were inlined.
 */
#ifndef LB_TRACEWALK_H
#define LB_TRACEWALK_H

#include "funcs.h"
#include "trace.h"

#define LB_WALK_SLOTS 512
#define LB_WALK_STEPS 2048

/* A chain of activations: one function, and the chain that it was called by. */
struct lb_trace_node {
	uint32_t parent;   /* LB_NODE_NONE: on the Lua stack */
	uint32_t call_pos; /* instruction of the parent, LB_POS_UNKNOWN */
	const struct lb_fproto *proto; /* NULL: a C or fast function, ffid */
	uint8_t ffid;
	bool replaced; /* not what is on the Lua stack: it left by a tail call
			*/
};

struct lb_trace_nodes {
	struct lb_trace_node *nodes;
	uint32_t n, room;
};

/** Index of such a node, added when new; LB_NODE_NONE without memory. */
uint32_t lb_trace_node(struct lb_trace_nodes *nodes,
		       const struct lb_trace_node *node);
/** The longest chain that both begin with, LB_NODE_NONE for none. */
uint32_t lb_trace_common(const struct lb_trace_nodes *nodes, uint32_t a,
			 uint32_t b);

struct lb_walk_frame {
	const struct lb_fproto *proto; /* NULL: a C or fast function */
	uint64_t func;		       /* 0: not known */
	uint32_t pos; /* next instruction; below the top: the call */
	uint32_t node;
	uint16_t base;
	uint8_t ffid;
	uint8_t link; /* enum lb_trace_link */
};

/* Where execution stands. */
struct lb_walk_state {
	struct lb_walk_frame frames[LB_TRACE_FRAMES];
	uint32_t n; /* 0: not even the lowest frame is known */
	bool whole; /* all frames of the snapshot are known */
	uint64_t funcs[LB_WALK_SLOTS];
	uint32_t guard_ref;
	uint32_t n_steps;
	uint32_t n_tests; /* branches on the way that a snapshot should have */
	bool sure;	  /* no callee had to be guessed */
};

/* What machine code an instruction may have become. */
enum lb_step_host {
	LB_HOST_ADD = 1, /* of floating point numbers */
	LB_HOST_SUB = 2,
	LB_HOST_MUL = 4,
	LB_HOST_DIV = 8,
	LB_HOST_CALL = 16,
	LB_HOST_COMPARE = 32, /* floating point */
	LB_HOST_ANY = 63,
};

struct lb_step {
	uint32_t node;
	uint32_t pos;
	uint8_t host; /* enum lb_step_host */
	bool once;    /* at most one of them */
	bool emits;   /* it may have become machine code at all */
};

struct lb_walk;

int lb_walk_new(struct lb_target *target, struct lb_funcs *funcs,
		const struct lb_trace *trace, struct lb_walk **walk_ret);
void lb_walk_free(struct lb_walk *walk);
struct lb_trace_nodes *lb_walk_nodes(struct lb_walk *walk);
/** State at a snapshot, as far as its functions are known. */
void lb_walk_state(struct lb_walk *walk, const struct lb_trace_snap *snap,
		   uint64_t base_func, struct lb_walk_state *state_ret);
/*
 * One end of a piece. The snapshot of a test holds where execution goes on when
 * the test fails, which is not where the trace goes on: then @branch is the
 * instruction that tests, and the trace goes the other way.
 */
struct lb_walk_end {
	const struct lb_walk_state *state; /* of the snapshot */
	uint32_t ref;			   /* first IR instruction behind it */
	uint32_t branch; /* LB_POS_UNKNOWN: the state is as it says */
};

/**
 * lb_walk_go() - execute from one snapshot to the next, one step at least
 * @from: its branch is known or there is none
 * @to: its branch is set to what was found
 * @sure_ret: every callee on the way is known
 * Return: 0, -ENOENT (not reached, or not within the bounds).
 */
int lb_walk_go(struct lb_walk *walk, const struct lb_walk_end *from,
	       struct lb_walk_end *to, const struct lb_step **steps_ret,
	       uint32_t *n_ret, bool *sure_ret);
/**
 * lb_walk_branch() - the only instruction that can have made @end a test
 * For an end that was not reached by walking. LB_POS_UNKNOWN: none.
 * Return: 0, -ENOENT (there are several).
 */
int lb_walk_branch(const struct lb_walk *walk, struct lb_walk_end *end);

#endif
