/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of one stack as programs, for each kind of event: the caller resets
 * the state of its CPU (lb_walk_reset()), sets another weight than 1 if it
 * wants to, adds the kernel part if there is one, gives it registers
 * (lb_user_regs()), and calls lb_walk_start().
 *
 * The state is one for each CPU, so only one kind of event may use it in one
 * program: a timer can interrupt a probe.
 *
 * lb_walk and lb_walk32 walk the user part, for 64-bit and for 32-bit
 * references, a tail call a bounded number of steps; lb_names reads what Lua
 * frames are called when a stack is first seen. User space gets each different
 * stack once, and the sum of its weights.
 */
#ifndef LB_WALK_H
#define LB_WALK_H

#include "lb_arch_x86.h"
#include "lb_wire.h"
#include "lb_state.h"
#include "lb_bpf.h"
#include "lb_record.h"
#include "lb_lua.h"
#include "lb_vm.h"
#include "lb_native.h"

#define LB_WALK_STEPS 16 /* steps of one run of lb_walk */
#define LB_WALK_RUNS  32 /* the kernel allows 33 tail calls */
#define LB_NAME_STEPS 64 /* frames of one run of lb_names */
_Static_assert(LB_WALK_STEPS *LB_WALK_RUNS >= LB_FRAMES_MAX,
	       "a walk of all frames must fit into its tail calls");

int lb_names(void *ctx)
{
	struct lb_state *s = lb_state_get();

	if (!s)
		return 0;
	struct lb_proc_entry *p = lb_proc_of(s->tgid);

	if (!p) {
		lb_send_stack(s); /* without names */
		return 0;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < LB_NAME_STEPS; i++) {
		__u32 n = s->name_at;

		if (n >= s->rec.head.n_frames || n >= LB_FRAMES_MAX)
			break;
		s->name_at = n + 1;
		struct lb_frame *f = &s->rec.frames[n & (LB_FRAMES_MAX - 1)];

		if (f->kind == LB_FRAME_LUA)
			lb_name_frame(s, &p->lj[f->vm & (LB_VMS_MAX - 1)], f);
	}
	if (s->name_at < s->rec.head.n_frames)
		lb_tail_call(ctx, LB_PROG_NAMES);
	/* all named, or no tail call left: then user space reads the rest */
	lb_send_stack(s);
	return 0;
}

/* The walk is over: count its stack, and send it when it is new. */
static __always_inline void lb_finish(void *ctx, struct lb_state *s)
{
	struct lb_stack_rec *r = &s->rec.head;

	r->has_lua = s->n_lua > 0;
	lb_count(LB_CNT_STOP + (r->stop < LB_STOP_MAX ? r->stop : 0));
	lb_hash_add(s, r->stop | (__u64)s->tgid << 32);
	r->hash = s->hash;

	s->count_key.stack = s->hash;
#ifdef LB_WALKED /* a function of the program: which stack it was */
	LB_WALKED(s);
#endif

	__u64 *n = lb_count_of(&s->count_key);

	if (n) {
		__sync_fetch_and_add(n, s->weight);
		return;
	}
	bool is_new = !lb_stack_seen(s->hash);

	if (is_new && lb_stack_see(s->hash)) {
		if (!lb_stack_seen(s->hash)) {
			lb_count(LB_CNT_LOST_STORAGE);
			return;
		}
		is_new = false; /* another CPU was faster */
	}
	if (lb_count_insert(&s->count_key, s->weight)) {
		n = lb_count_of(&s->count_key);
		if (n) {
			__sync_fetch_and_add(n, s->weight);
		} else {
			lb_count(LB_CNT_LOST_STORAGE);
			if (is_new)
				lb_stack_forget(s->hash);
			return;
		}
	}
	if (!is_new)
		return;
	s->name_at = r->n_kernel;
	if (s->n_lua)
		lb_tail_call(ctx, LB_PROG_NAMES);
	lb_send_stack(s);
}

/* Some steps; @gc64 is a constant: this walker's size of references. */
static __always_inline int lb_walk_steps(void *ctx, bool gc64)
{
	struct lb_state *s = lb_state_get();

	if (!s)
		return 0;
	struct lb_proc_entry *p = lb_proc_of(s->tgid);

	if (!p) { /* an exec on another CPU took it away */
		lb_count(LB_CNT_LOST_STATE);
		return 0;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < LB_WALK_STEPS; i++) {
		/* verifier: a fresh pointer makes it forget what the turn
		 * before has left in registers, half of its work */
		s = lb_state_get();
		if (!s)
			return 0;
		if (s->mode == LB_MODE_NATIVE)
			lb_native_step(s, p, gc64);
		else if (s->mode == LB_MODE_LUA)
			lb_lua_step(s, &p->lj[s->vm & (LB_VMS_MAX - 1)], gc64);
		else if (s->mode == LB_MODE_ENTER)
			lb_enter_step(s, p, gc64);
		else
			break;
	}
	if (s->mode == LB_MODE_OTHER) {
		s->mode = LB_MODE_ENTER;
		lb_tail_call(ctx, gc64 ? LB_PROG_WALK32 : LB_PROG_WALK);
		lb_stop(s, LB_STOP_NO_VM); /* that one is not loaded */
	} else if (s->mode != LB_MODE_DONE) {
		lb_tail_call(ctx, gc64 ? LB_PROG_WALK : LB_PROG_WALK32);
		lb_stop(s, LB_STOP_STEPS);
	}
	lb_finish(ctx, s);
	return 0;
}

int lb_walk(void *ctx)
{
	return lb_walk_steps(ctx, true);
}

#ifdef LB_REF32
int lb_walk32(void *ctx)
{
	return lb_walk_steps(ctx, false);
}
#endif

/*
 * Begin with the user registers @regs, those of an event that came in user
 * space. @regs may be the context: it is read at constant offsets.
 */
static __always_inline void lb_user_regs(struct lb_state *s,
					 struct lb_regs *regs)
{
	s->pc = regs->ip;
	s->sp = regs->sp;
	s->bp = regs->bp;
	s->bx = regs->bx;
	s->r14 = regs->r14;
	s->dx = regs->dx;
	s->cx = regs->cx;
}

/* The same for an event in the kernel: registers that it saved at its entry. */
static __always_inline void lb_user_regs_saved(struct lb_state *s)
{
	void *task = (void *)bpf_get_current_task_btf();

	bpf_probe_read_kernel(&s->regs, sizeof(s->regs),
			      (void *)bpf_task_pt_regs(task));
	lb_user_regs(s, &s->regs);
	/* not to be merged with the same for a context, which the verifier
	 * wants at constant offsets */
	asm volatile("" ::: "memory");
}

/* Walk the user part; does not return if all is well. */
static __always_inline void lb_walk_start(void *ctx, struct lb_state *s,
					  struct lb_proc_entry *p)
{
	if (p->n_vms && !p->lj[0].gc64)
		lb_tail_call(ctx, LB_PROG_WALK32);
	lb_tail_call(ctx, LB_PROG_WALK);
	lb_stop(s, LB_STOP_STEPS);
	lb_finish(ctx, s);
}

/* An empty stack of the thread in s->tgid, s->tid. */
static __always_inline void lb_walk_reset(struct lb_state *s)
{
	struct lb_stack_rec *r = &s->rec.head;

	r->type = LB_REC_STACK;
	r->tgid = s->tgid;
	r->tid = s->tid;
	r->g_addr = 0;
	r->vmstate = 0;
	s->count_key.leaf = 0;
	s->weight = 1;
	r->n_frames = 0;
	r->n_kernel = 0;
	r->stop = LB_STOP_ROOT;
	r->detail = 0;
	r->vm = 0;
	r->has_lua = 0;
	s->mode = LB_MODE_NATIVE;
	s->leaf = 1;
	s->mapping = 0;
	s->n_segments = 0;
	s->g = 0;
	s->l = 0;
	s->cframe = 0;
	s->l_seen = 0;
	s->l_known = 0;
	s->l_done = 0;
	s->context_at = 0;
	for (int i = 0; i < LB_L_CONTEXTS; i++)
		s->contexts[i].l = 0;
	s->chunk_addr = 0;
	s->jit = 0;
	s->vm = 0;
	s->n_lua = 0;
	s->n_tries = 0;
	s->tmp = 0;
	s->stack_lo = s->stack_hi = 0;
	s->code_lo = s->code_hi = 0;
	bpf_get_current_comm(&r->comm, sizeof(r->comm));
	s->hash = ((__u64 *)r->comm)[0];
	lb_hash_add(s, ((__u64 *)r->comm)[1]);
}

#endif
