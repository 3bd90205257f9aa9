/* SPDX-License-Identifier: Apache-2.0 */
/* The different stacks of a run, bound to objects and prototypes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stacks.h"

struct lb_stacks {
	struct lb_stack **all;
	size_t n_all, cap_all;
	uint32_t *slots; /* 1 + index in all; 0 is empty */
	size_t n_slots;
};

int lb_stacks_new(struct lb_stacks **stacks_ret)
{
	struct lb_stacks *stacks = calloc(1, sizeof(*stacks));

	if (!stacks)
		return -ENOMEM;
	*stacks_ret = stacks;
	return 0;
}

void lb_stacks_free(struct lb_stacks *stacks)
{
	if (!stacks)
		return;
	for (size_t i = 0; i < stacks->n_all; i++) {
		free(stacks->all[i]->frames);
		free(stacks->all[i]->leaves);
		free(stacks->all[i]);
	}
	free(stacks->all);
	free(stacks->slots);
	free(stacks);
}

/* The hash is well mixed already. */
static size_t slot_of(const struct lb_stacks *stacks, uint64_t hash)
{
	size_t i = hash & (stacks->n_slots - 1);

	while (stacks->slots[i] &&
	       stacks->all[stacks->slots[i] - 1]->rec.hash != hash)
		i = (i + 1) & (stacks->n_slots - 1);
	return i;
}

static int make_room(struct lb_stacks *stacks)
{
	if (stacks->n_all == stacks->cap_all) {
		size_t cap = stacks->cap_all ? stacks->cap_all * 2 : 1024;
		void *bigger = realloc(stacks->all, cap * sizeof(*stacks->all));

		if (!bigger)
			return -ENOMEM;
		stacks->all = bigger;
		stacks->cap_all = cap;
	}
	if (stacks->n_all * 2 < stacks->n_slots)
		return 0;
	size_t n_slots = stacks->n_slots ? stacks->n_slots * 2 : 4096;
	uint32_t *slots = calloc(n_slots, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	free(stacks->slots);
	stacks->slots = slots;
	stacks->n_slots = n_slots;
	for (size_t i = 0; i < stacks->n_all; i++)
		slots[slot_of(stacks, stacks->all[i]->rec.hash)] = i + 1;
	return 0;
}

struct lb_stack *lb_stacks_find(const struct lb_stacks *stacks, uint64_t hash)
{
	if (!stacks->n_slots)
		return NULL;
	uint32_t slot = stacks->slots[slot_of(stacks, hash)];

	return slot ? stacks->all[slot - 1] : NULL;
}

size_t lb_stacks_count(const struct lb_stacks *stacks)
{
	return stacks->n_all;
}

struct lb_stack *lb_stacks_at(const struct lb_stacks *stacks, size_t i)
{
	return i < stacks->n_all ? stacks->all[i] : NULL;
}

static uint32_t object_number(const struct lb_objects *objects,
			      const struct lb_object *object)
{
	for (size_t i = 0; i < lb_objects_count(objects); i++)
		if (lb_objects_at(objects, i) == object)
			return i + 1;
	return 0;
}

static void bind_native(struct lb_frame *f, struct lb_subject *subject,
			const struct lb_objects *objects)
{
	uint64_t pc = f->addr - (f->flags & LB_FF_EXACT_PC ? 0 : 1);
	const struct lb_subject_map *map = lb_subject_map_at(subject, pc);

	f->addr = pc;
	f->pos = 0;
	if (!map || !map->object)
		return;
	f->addr = pc - map->bias;
	f->pos = object_number(objects, map->object);
}

/* Code without a table: of a trace, or of something else. */
static void bind_mcode(struct lb_stack *stack, struct lb_frame *f,
		       const struct lb_objects *objects, bool skipped)
{
	struct lb_subject *subject = stack->subject;
	uint64_t pc = f->addr - (f->flags & LB_FF_EXACT_PC ? 0 : 1);
	const struct lb_subject_map *map = lb_subject_map_at(subject, pc);

	if (!map || !map->anon)
		subject->stale = true; /* perhaps a library came since */
	if (f->flags & LB_FF_MCODE ||
	    (!skipped && stack->rec.g_addr &&
	     lb_subject_in_mcode(subject, stack->rec.g_addr, f->vm, pc))) {
		stack->in_trace = true;
		return;
	}
	f->flags |= LB_FF_FOREIGN;
	/* the walker took it for a trace and went on, so it has no mark */
	if (!skipped && f != &stack->frames[stack->rec.n_frames - 1])
		f->flags |= LB_FF_UNMARKED;
	if (map && map->object) { /* a file, but without a table */
		f->kind = LB_FRAME_NATIVE;
		bind_native(f, subject, objects);
		if (stack->rec.stop == LB_STOP_NO_MAP)
			stack->rec.stop = LB_STOP_NO_ROW;
	}
}

int lb_stack_add_leaf(struct lb_stack *stack, uint64_t addr, uint64_t count)
{
	if (stack->n_leaves == stack->cap_leaves) {
		size_t cap = stack->cap_leaves ? stack->cap_leaves * 2 : 4;
		void *bigger =
			realloc(stack->leaves, cap * sizeof(*stack->leaves));

		if (!bigger)
			return -ENOMEM;
		stack->leaves = bigger;
		stack->cap_leaves = cap;
	}
	stack->leaves[stack->n_leaves].addr = addr;
	stack->leaves[stack->n_leaves++].count = count;
	stack->count += count;
	return 0;
}

void lb_stack_bind_leaf(struct lb_stack *stack,
			const struct lb_objects *objects, size_t i)
{
	struct lb_frame *f = &stack->frames[0];

	if (stack->rec.n_frames && f->kind == LB_FRAME_MCODE)
		f->addr = stack->leaves[i].addr;
	if (!stack->rec.n_frames ||
	    (f->kind != LB_FRAME_NATIVE && f->kind != LB_FRAME_KERNEL))
		return;
	uint8_t kind = f->kind, flags = f->flags;

	*f = stack->leaf_frame;
	f->addr = stack->leaves[i].addr;
	if (kind == LB_FRAME_NATIVE)
		bind_native(f, stack->subject, objects);
	f->kind = kind;
	f->flags = flags;
}

static void bind_frames(struct lb_stack *stack,
			const struct lb_objects *objects)
{
	uint32_t callee = 0;

	for (uint32_t i = 0; i < stack->rec.n_frames; i++) {
		struct lb_frame *f = &stack->frames[i];
		bool next_skips = i + 1 < stack->rec.n_frames &&
				  stack->frames[i + 1].kind == LB_FRAME_SKIPPED;

		switch (f->kind) {
		case LB_FRAME_NATIVE:
			bind_native(f, stack->subject, objects);
			break;
		case LB_FRAME_MCODE:
			bind_mcode(stack, f, objects, next_skips);
			if (f->flags & LB_FF_FOREIGN)
				stack->skipped = true;
			break;
		case LB_FRAME_SKIPPED:
			stack->skipped = true;
			break;
		case LB_FRAME_BREAK:
			stack->broken = true;
			break;
		case LB_FRAME_LUA:
			f->proto_id = lb_subject_proto(stack->subject, f->addr);
			if (callee && f->proto_id)
				lb_names_add_call(stack->subject->names,
						  f->proto_id, f->pos, callee);
			break;
		}
		callee = f->kind == LB_FRAME_LUA ? f->proto_id : 0;
	}
}

int lb_stacks_add(struct lb_stacks *stacks, struct lb_subject *subject,
		  const struct lb_objects *objects, const void *data,
		  size_t size)
{
	struct lb_stack_rec rec;

	if (size < sizeof(rec))
		return -EBADMSG;
	memcpy(&rec, data, sizeof(rec));
	if (rec.n_frames > LB_FRAMES_MAX || rec.n_kernel > rec.n_frames ||
	    rec.stop >= LB_STOP_MAX || rec.vm >= LB_VMS_MAX ||
	    size < sizeof(rec) + rec.n_frames * sizeof(struct lb_frame))
		return -EBADMSG;
	struct lb_frame *frames =
		malloc((rec.n_frames + 1) * sizeof(struct lb_frame));

	if (!frames)
		return -ENOMEM;
	memcpy(frames, (const char *)data + sizeof(rec),
	       rec.n_frames * sizeof(struct lb_frame));

	struct lb_stack *stack = lb_stacks_find(stacks, rec.hash);

	if (stack) {
		free(stack->frames);
	} else {
		stack = make_room(stacks) ? NULL : calloc(1, sizeof(*stack));
		if (!stack) {
			free(frames);
			return -ENOMEM;
		}
		stack->rec.hash = rec.hash;
		size_t slot = slot_of(stacks, rec.hash);

		stacks->all[stacks->n_all++] = stack;
		stacks->slots[slot] = stacks->n_all;
	}
	stack->rec = rec;
	stack->frames = frames;
	if (rec.n_frames)
		stack->leaf_frame = frames[0];
	stack->subject = subject;
	stack->broken = stack->skipped = stack->in_trace = false;
	bind_frames(stack, objects);
	return 0;
}
