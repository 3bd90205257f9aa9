/* SPDX-License-Identifier: Apache-2.0 */
/* Text of stacks. What a frame is called is decided here and in names, sym. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"
#include "fold.h"

struct lb_fold {
	struct lb_folded *texts;
	size_t n_texts, cap_texts;
};

/* A growing text; once out of memory it stays so. */
struct text {
	char *data;
	size_t len, cap;
	bool failed;
};

struct context {
	const struct lb_objects *objects;
	const struct lb_ksym *ksym;
	struct lb_traces *traces;
	unsigned int flags;
	struct text text;
};

static const char *const stop_words[LB_STOP_MAX] = {
	[LB_STOP_ROOT] = "root",       [LB_STOP_TRUNCATED] = "truncated",
	[LB_STOP_NO_MAP] = "no-map",   [LB_STOP_NO_ROW] = "no-row",
	[LB_STOP_BAD_ROW] = "bad-row", [LB_STOP_READ] = "read-fault",
	[LB_STOP_BAD_PC] = "bad-pc",   [LB_STOP_NO_PROGRESS] = "no-progress",
	[LB_STOP_NO_VM] = "no-vm",     [LB_STOP_LUA] = "lua-frames",
	[LB_STOP_STEPS] = "steps",     [LB_STOP_NOT_READY] = "not-ready",
};

const char *lb_stop_word(unsigned int stop)
{
	return stop < LB_STOP_MAX ? stop_words[stop] : "unknown";
}

static void text_add(struct text *text, const char *s, size_t len)
{
	if (text->failed)
		return;
	if (text->len + len + 1 > text->cap) {
		size_t cap = (text->len + len + 1) * 2;
		char *bigger = realloc(text->data, cap);

		if (!bigger) {
			text->failed = true;
			return;
		}
		text->data = bigger;
		text->cap = cap;
	}
	memcpy(text->data + text->len, s, len);
	text->len += len;
	text->data[text->len] = 0;
}

static void text_str(struct text *text, const char *s)
{
	text_add(text, s, strlen(s));
}

static void text_escaped(struct text *text, const char *s)
{
	size_t len = strlen(s);
	char small[256], *out = small;

	if (len * 4 + 1 > sizeof(small))
		out = malloc(len * 4 + 1);
	if (!out) {
		text->failed = true;
		return;
	}
	len = lb_escape(s, len, out,
			out == small ? sizeof(small) : len * 4 + 1);
	text_add(text, out, len);
	if (out != small)
		free(out);
}

/* End of the FDE that begins at @start (file vaddr). */
static uint64_t fde_end(const struct lb_unwind *unwind, uint64_t start)
{
	uint32_t want = start - unwind->vaddr_lo;
	size_t lo = 0, hi = unwind->n_fdes;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (unwind->fdes[mid][0] < want)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < unwind->n_fdes && unwind->fdes[lo][0] == want)
		return unwind->vaddr_lo + unwind->fdes[lo][1];
	return 0;
}

static void native_frame(struct context *c, const struct lb_stack *stack,
			 const struct lb_frame *f)
{
	struct lb_object *object =
		f->pos ? lb_objects_at(c->objects, f->pos - 1) : NULL;

	if (!object) {
		text_str(&c->text, "[unknown]");
		return;
	}
	struct lb_sym *sym = lb_object_sym(object, stack->subject->proc);
	uint64_t start = 0, limit = 0;

	if (object->unwind) {
		start = lb_unwind_function(object->unwind, f->addr);
		if (start)
			limit = fde_end(object->unwind, start);
	}
	const char *name = sym ? lb_sym_find(sym, f->addr, limit, NULL) : NULL;

	if (name) {
		text_str(&c->text, name);
		return;
	}
	char number[32];

	text_str(&c->text, "[");
	text_escaped(&c->text, object->name);
	/* without an FDE there is no stable start: name the file alone */
	if (start) {
		snprintf(number, sizeof(number), "+0x%llx",
			 (unsigned long long)start);
		text_str(&c->text, number);
	}
	text_str(&c->text, "]");
}

static void proto_text(struct context *c, const struct lb_stack *stack,
		       uint32_t proto_id, uint32_t line)
{
	const char *name = NULL;

	if (proto_id)
		name = lb_names_proto_text(
			stack->subject->names, proto_id,
			c->flags & LB_FOLD_LINES ? line : LB_LINE_UNKNOWN);
	text_str(&c->text, name ? name : "?@[unknown]");
}

static void fast_text(struct context *c, const struct lb_stack *stack,
		      uint32_t ffid)
{
	text_str(&c->text, lb_names_fast_text(stack->subject->names,
					      stack->rec.g_addr, ffid));
}

/* Innermost frame of a chain, or where it calls the one above it. */
static uint32_t line_in_chain(const struct lb_splice *splice, uint32_t above)
{
	return above == LB_NODE_NONE ? splice->span->line
				     : splice->map->nodes[above].call_line;
}

/* The frame on the Lua stack that runs as machine code of @splice. */
static void base_frame(struct context *c, const struct lb_stack *stack,
		       const struct lb_frame *f, const struct lb_splice *splice)
{
	const struct lb_inline *nodes = splice->map->nodes;
	uint32_t node = splice->span->node, above = LB_NODE_NONE;

	while (nodes[node].parent != LB_NODE_NONE) {
		above = node;
		node = nodes[node].parent;
	}
	proto_text(c, stack,
		   nodes[node].replaced ? nodes[node].proto_id : f->proto_id,
		   line_in_chain(splice, above));
}

static void lua_frame(struct context *c, const struct lb_stack *stack,
		      const struct lb_frame *f, const struct lb_splice *splice)
{
	if (f->kind == LB_FRAME_FAST)
		fast_text(c, stack, f->pos);
	else if (splice && splice->span)
		base_frame(c, stack, f, splice);
	else
		proto_text(c, stack, f->proto_id, f->line);
	if (c->flags & LB_FOLD_ANNOTATE && f->flags & LB_FF_JIT)
		text_str(&c->text, "_[j]");
}

/* The frames inlined in machine code, above the one on the Lua stack. */
static void inlined_frames(struct context *c, const struct lb_stack *stack,
			   const struct lb_splice *splice)
{
	uint32_t chain[LB_TRACE_FRAMES], n = 0;
	const struct lb_inline *nodes = splice->map->nodes;

	for (uint32_t node = splice->span->node;
	     nodes[node].parent != LB_NODE_NONE && n < LB_TRACE_FRAMES;
	     node = nodes[node].parent)
		chain[n++] = node;
	for (uint32_t i = n; i-- > 0;) {
		const struct lb_inline *at = &nodes[chain[i]];

		text_str(&c->text, ";");
		if (at->ffid)
			fast_text(c, stack, at->ffid);
		else
			proto_text(c, stack, at->proto_id,
				   line_in_chain(splice, i ? chain[i - 1]
							   : LB_NODE_NONE));
		if (c->flags & LB_FOLD_ANNOTATE)
			text_str(&c->text, "_[i]");
	}
}

static void kernel_frame(struct context *c, const struct lb_frame *f)
{
	const char *name = c->ksym ? lb_ksym_find(c->ksym, f->addr) : NULL;

	text_str(&c->text, name ? name : "[unknown]");
	if (c->flags & LB_FOLD_ANNOTATE)
		text_str(&c->text, "_[k]");
}

/* Frame @i with the `;` before it, or nothing. */
static void add_frame(struct context *c, const struct lb_stack *stack,
		      uint32_t i)
{
	const struct lb_frame *f = &stack->frames[i];
	bool lua = f->kind == LB_FRAME_LUA || f->kind == LB_FRAME_FAST;
	struct lb_splice splice = { .kind = LB_SPLICE_NONE };

	/* machine code of a trace is its Lua frame */
	if (f->kind == LB_FRAME_MCODE && !(f->flags & LB_FF_FOREIGN) &&
	    stack->in_trace) {
		splice = lb_splice_at(c->traces, stack, i);
		if (splice.span)
			inlined_frames(c, stack, &splice);
		return;
	}
	if (c->flags & LB_FOLD_LUA_ONLY && !lua && f->kind != LB_FRAME_BREAK)
		return;
	if (lua && i && f->flags & LB_FF_JIT)
		splice = lb_splice_at(c->traces, stack, i - 1);
	if (f->flags & LB_FF_UNMARKED)
		text_str(&c->text, ";[skipped]");
	text_str(&c->text, ";");
	switch (f->kind) {
	case LB_FRAME_KERNEL:
		kernel_frame(c, f);
		break;
	case LB_FRAME_NATIVE:
		native_frame(c, stack, f);
		break;
	case LB_FRAME_LUA:
	case LB_FRAME_FAST:
		lua_frame(c, stack, f, &splice);
		break;
	case LB_FRAME_BREAK:
		text_str(&c->text, "[lua-broken]");
		break;
	case LB_FRAME_SKIPPED:
		text_str(&c->text, "[skipped]");
		break;
	default:
		text_str(&c->text, "[unknown]");
	}
}

/* What the VM says it is doing, as a frame; NULL for running code. */
static const char *vmstate_frame(const struct lb_stack *stack)
{
	const struct lb_stack_rec *rec = &stack->rec;
	const struct lj_offsets *lj = &stack->subject->entry.lj[rec->vm];
	uint32_t state = ~(uint32_t)rec->vmstate;
	const struct {
		uint32_t state;
		const char *text;
	} frames[] = { { lj->vm_gc, "[gc]" },
		       { lj->vm_exit, "[jit:exit]" },
		       { lj->vm_record, "[jit:record]" },
		       { lj->vm_opt, "[jit:opt]" },
		       { lj->vm_asm, "[jit:asm]" } };

	if (!rec->g_addr || rec->vmstate >= 0)
		return NULL;
	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++)
		if (frames[i].state == state)
			return frames[i].text;
	return NULL;
}

static void fold_stack(struct context *c, const struct lb_stack *stack)
{
	const struct lb_stack_rec *rec = &stack->rec;
	char word[64];

	c->text.len = 0;
	snprintf(word, sizeof(word), "%.*s", LB_COMM_LEN - 1, rec->comm);
	/* blanks at the end would be taken for the one before the count */
	for (size_t n = strlen(word); n && word[n - 1] == ' '; n--)
		word[n - 1] = '_';
	text_escaped(&c->text, *word ? word : "?");
	if (c->flags & LB_FOLD_PER_PID) {
		snprintf(word, sizeof(word), "-%d", (int)rec->tgid);
		text_str(&c->text, word);
	}
	if (rec->stop == LB_STOP_TRUNCATED || rec->stop == LB_STOP_STEPS) {
		text_str(&c->text, ";[truncated]");
	} else if (rec->stop != LB_STOP_ROOT) {
		snprintf(word, sizeof(word), ";[failed:%s]",
			 lb_stop_word(rec->stop));
		text_str(&c->text, word);
	}
	for (uint32_t i = rec->n_frames; i > rec->n_kernel; i--)
		add_frame(c, stack, i - 1);
	if (c->flags & LB_FOLD_VMSTATE && vmstate_frame(stack)) {
		text_str(&c->text, ";");
		text_str(&c->text, vmstate_frame(stack));
	}
	if (rec->n_kernel && c->flags & LB_FOLD_DELIMIT)
		text_str(&c->text, ";-");
	for (uint32_t i = rec->n_kernel; i > 0; i--)
		add_frame(c, stack, i - 1);
}

static int by_text(const void *a, const void *b)
{
	const struct lb_folded *fa = a, *fb = b;

	return strcmp(fa->text, fb->text);
}

/* Equal neighbours become one. */
static void merge(struct lb_fold *fold)
{
	size_t n = 0;

	for (size_t i = 0; i < fold->n_texts; i++) {
		struct lb_folded *at = &fold->texts[i];

		if (n && !strcmp(fold->texts[n - 1].text, at->text)) {
			fold->texts[n - 1].count += at->count;
			if (fold->texts[n - 1].pid != at->pid)
				fold->texts[n - 1].pid = 0;
			free(at->text);
		} else {
			fold->texts[n++] = *at;
		}
	}
	fold->n_texts = n;
}

static int add_text(struct lb_fold *fold, const char *text, uint64_t count,
		    int pid)
{
	if (fold->n_texts == fold->cap_texts) {
		size_t cap = fold->cap_texts ? fold->cap_texts * 2 : 1024;
		void *bigger = realloc(fold->texts, cap * sizeof(*fold->texts));

		if (!bigger)
			return -ENOMEM;
		fold->texts = bigger;
		fold->cap_texts = cap;
	}
	char *copy = text ? strdup(text) : NULL;

	if (!copy)
		return -ENOMEM;
	fold->texts[fold->n_texts].text = copy;
	fold->texts[fold->n_texts].count = count;
	fold->texts[fold->n_texts++].pid = pid;
	return 0;
}

/* One text for each leaf; those of one function are equal and merged later. */
static int fold_leaves(struct context *c, struct lb_stack *stack,
		       struct lb_fold *fold)
{
	for (size_t i = 0; i < stack->n_leaves; i++) {
		lb_stack_bind_leaf(stack, c->objects, i);
		fold_stack(c, stack);

		int err = add_text(fold, c->text.failed ? NULL : c->text.data,
				   stack->leaves[i].count, stack->rec.tgid);

		if (err)
			return err;
	}
	return 0;
}

int lb_fold_new(struct lb_stacks *stacks, const struct lb_objects *objects,
		const struct lb_ksym *ksym, struct lb_traces *traces,
		unsigned int flags, struct lb_fold **fold_ret)
{
	struct context c = { objects, ksym, traces, flags, { 0 } };
	struct lb_fold *fold = calloc(1, sizeof(*fold));
	size_t n = lb_stacks_count(stacks);

	if (!fold)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int err = fold_leaves(&c, lb_stacks_at(stacks, i), fold);

		if (err) {
			free(c.text.data);
			lb_fold_free(fold);
			return err;
		}
	}
	free(c.text.data);
	qsort(fold->texts, fold->n_texts, sizeof(*fold->texts), by_text);
	merge(fold);
	*fold_ret = fold;
	return 0;
}

char *lb_fold_one(struct lb_stack *stack, uint64_t leaf,
		  const struct lb_objects *objects, const struct lb_ksym *ksym,
		  struct lb_traces *traces, unsigned int flags)
{
	struct context c = { objects, ksym, traces, flags, { 0 } };
	struct lb_leaf one = { .addr = leaf }, *leaves = stack->leaves;
	size_t n_leaves = stack->n_leaves;

	stack->leaves = &one;
	stack->n_leaves = 1;
	lb_stack_bind_leaf(stack, objects, 0);
	fold_stack(&c, stack);
	stack->leaves = leaves;
	stack->n_leaves = n_leaves;
	if (!c.text.failed)
		return c.text.data;
	free(c.text.data);
	return NULL;
}

void lb_fold_free(struct lb_fold *fold)
{
	if (!fold)
		return;
	for (size_t i = 0; i < fold->n_texts; i++)
		free(fold->texts[i].text);
	free(fold->texts);
	free(fold);
}

size_t lb_fold_texts(const struct lb_fold *fold,
		     const struct lb_folded **texts_ret)
{
	*texts_ret = fold->texts;
	return fold->n_texts;
}
