/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The different stacks of a run, by hash. Addresses are bound when a record
 * comes in: native frames to (object, vaddr), Lua frames to prototype ids.
 */
#ifndef LB_STACKS_H
#define LB_STACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "subject.h"
#include "../bpf_c/lb_wire.h"

/*
 * After binding, a frame of kind
 *   NATIVE: addr is the vaddr to look up, pos 1 + index of the object or 0
 *   LUA: proto_id is set, or 0 when no record came
 *   MCODE: LB_FF_FOREIGN where it is not in a trace; NATIVE with that flag
 * where it is in a file
 */
struct lb_leaf {
	uint64_t addr; /* as in struct lb_count_key */
	uint64_t count;
};

struct lb_stack {
	struct lb_stack_rec rec; /* without its frames */
	struct lb_subject *subject;
	uint64_t count; /* samples, the sum over leaves */
	struct lb_frame *frames;
	struct lb_frame leaf_frame; /* frames[0] before it was bound */
	struct lb_leaf *leaves;
	size_t n_leaves, cap_leaves;
	/* what the frames tell */
	bool broken;  /* LB_FRAME_BREAK */
	bool skipped; /* LB_FRAME_SKIPPED, or a foreign MCODE frame */
	bool in_trace;
};

struct lb_stacks;

int lb_stacks_new(struct lb_stacks **stacks_ret);
void lb_stacks_free(struct lb_stacks *stacks);
/**
 * lb_stacks_add() - a stack record came in
 * @objects: to number the objects
 * Gives evidence on names to the subject. A record of a known hash replaces
 * it. Return: 0, -EBADMSG, -ENOMEM.
 */
int lb_stacks_add(struct lb_stacks *stacks, struct lb_subject *subject,
		  const struct lb_objects *objects, const void *data,
		  size_t size);
/** @count samples of @stack whose leaf is at @addr. Return: 0, -ENOMEM. */
int lb_stack_add_leaf(struct lb_stack *stack, uint64_t addr, uint64_t count);
/**
 * lb_stack_bind_leaf() - frames[0] becomes the leaf of entry @i of leaves
 * Its kind is the same for all; only a pc differs.
 */
void lb_stack_bind_leaf(struct lb_stack *stack,
			const struct lb_objects *objects, size_t i);
/** The stack with @hash, or NULL. */
struct lb_stack *lb_stacks_find(const struct lb_stacks *stacks, uint64_t hash);
size_t lb_stacks_count(const struct lb_stacks *stacks);
struct lb_stack *lb_stacks_at(const struct lb_stacks *stacks, size_t i);

#endif
