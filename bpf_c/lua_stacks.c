/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lua-stacks: one stack for each tick of a perf event, kernel + native + Lua.
 *
 * lua_stacks_sample takes the registers and the kernel part, lua_stacks_walk
 * walks the user part (a tail call a bounded number of steps), lua_stacks_names
 * reads what Lua frames are called when a stack is first seen. User space gets
 * each different stack once and a count for each.
 */
#include "lb_arch_x86.h"
#include "lb_wire.h"
#include "lb_state.h"
#include "lb_bpf.h"
#include "lb_record.h"
#include "lb_lua.h"
#include "lb_vm.h"
#include "lb_native.h"

#define LB_WALK_STEPS 16 /* steps of one run of lua_stacks_walk */
#define LB_WALK_RUNS  32 /* the kernel allows 33 tail calls */
#define LB_NAME_STEPS 64 /* frames of one run of lua_stacks_names */
_Static_assert(LB_WALK_STEPS *LB_WALK_RUNS >= LB_FRAMES_MAX,
	       "a walk of all frames must fit into its tail calls");

int lua_stacks_names(struct lb_perf_ctx *ctx)
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

	__u64 *n = lb_count_of(&s->count_key);

	if (n) {
		__sync_fetch_and_add(n, 1);
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
	if (lb_count_insert(&s->count_key)) {
		n = lb_count_of(&s->count_key);
		if (n) {
			__sync_fetch_and_add(n, 1);
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

int lua_stacks_walk(struct lb_perf_ctx *ctx)
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
			lb_native_step(s, p);
		else if (s->mode == LB_MODE_LUA)
			lb_lua_step(s, &p->lj[s->vm & (LB_VMS_MAX - 1)]);
		else
			break;
	}
	if (s->mode != LB_MODE_DONE) {
		lb_tail_call(ctx, LB_PROG_WALK);
		lb_stop(s, LB_STOP_STEPS);
	}
	lb_finish(ctx, s);
	return 0;
}

/* The kernel part, at the leaf end. */
static __always_inline void lb_kernel_part(struct lb_perf_ctx *ctx,
					   struct lb_state *s)
{
	__s64 size = bpf_get_stack(ctx, s->kernel, sizeof(s->kernel), 0);

	if (size <= 0)
		return;
	s->n_kernel = (__u64)size / 8;
	s->kernel_at = 0;
#pragma clang loop unroll(disable)
	for (int turn = 0; turn < LB_KERNEL_MAX; turn++) {
		/* in memory: the verifier then sees each turn alike */
		__u32 i = s->kernel_at;

		if (i >= s->n_kernel || i >= LB_KERNEL_MAX)
			break;
		s->kernel_at = i + 1;
		lb_push(s, LB_FRAME_KERNEL, 0, s->kernel[i], 0, 0);
	}
	s->rec.head.n_kernel = s->rec.head.n_frames;
}

/* User registers: those of the event, or saved at entry to the kernel. */
static __always_inline void lb_user_regs(struct lb_perf_ctx *ctx,
					 struct lb_state *s, bool in_kernel)
{
	if (in_kernel) {
		void *task = (void *)bpf_get_current_task_btf();

		bpf_probe_read_kernel(&s->regs, sizeof(s->regs),
				      (void *)bpf_task_pt_regs(task));
	} else {
		/* verifier: the context at constant offsets only */
		s->regs.ip = ctx->regs.ip;
		s->regs.sp = ctx->regs.sp;
		s->regs.bp = ctx->regs.bp;
		s->regs.bx = ctx->regs.bx;
		s->regs.r14 = ctx->regs.r14;
		s->regs.dx = ctx->regs.dx;
		s->regs.cx = ctx->regs.cx;
	}
	s->pc = s->regs.ip;
	s->sp = s->regs.sp;
	s->bp = s->regs.bp;
	s->bx = s->regs.bx;
	s->r14 = s->regs.r14;
	s->dx = s->regs.dx;
	s->cx = s->regs.cx;
}

static __always_inline void lb_state_reset(struct lb_state *s)
{
	struct lb_stack_rec *r = &s->rec.head;

	r->type = LB_REC_STACK;
	r->tgid = s->tgid;
	r->tid = s->tid;
	r->g_addr = 0;
	r->vmstate = 0;
	s->count_key.leaf = 0;
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
}

/* A process that is not in the table: report it once, count its samples. */
static __always_inline void lb_unknown_process(struct lb_state *s)
{
	if (!lb_unknown_first(s->tgid))
		return;
	s->proc_rec.type = LB_REC_PROC_NEW;
	s->proc_rec.tgid = s->tgid;
	s->proc_rec.addr = 0;
	lb_ring_wake(&s->proc_rec, sizeof(s->proc_rec));
}

/* sched_process_exec: what was known of the process is void. */
int lua_stacks_exec(void *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct lb_proc_rec rec = { .type = LB_REC_PROC_EXEC, .tgid = tgid };

	if (!lb_proc_of(tgid) && !lb_unknown_known(tgid))
		return 0;
	lb_proc_forget(tgid);
	lb_unknown_forget(tgid);
	lb_ring_wake(&rec, sizeof(rec));
	return 0;
}

int lua_stacks_sample(struct lb_perf_ctx *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32;
	struct lb_config *config = lb_config_get();

	if (!config || config->flags & LB_CONFIG_OFF)
		return 0;
	if (!tgid && !(config->flags & LB_CONFIG_IDLE))
		return 0;
	struct lb_proc_entry *p = lb_proc_of(tgid);

	if (!p && tgid && !(config->flags & LB_CONFIG_DISCOVER))
		return 0;
	struct lb_state *s = lb_state_get();

	if (!s) {
		lb_count(LB_CNT_LOST_STATE);
		return 0;
	}
	s->tgid = tgid;
	s->tid = pid_tgid;
	s->flags = config->flags;
	if (!p && tgid) {
		lb_unknown_process(s);
		return 0;
	}
	if (s->flags & LB_CONFIG_TIDS && !lb_tid_wanted(s->tid))
		return 0;
	lb_state_reset(s);
	bpf_get_current_comm(&s->rec.head.comm, sizeof(s->rec.head.comm));
	s->hash = ((__u64 *)s->rec.head.comm)[0];
	lb_hash_add(s, ((__u64 *)s->rec.head.comm)[1]);

	bool in_kernel = LB_IS_KERNEL_PC(ctx->regs.ip);

	if (in_kernel && s->flags & LB_CONFIG_KERNEL)
		lb_kernel_part(ctx, s);
	if (!tgid || !(s->flags & LB_CONFIG_USER)) {
		lb_stop(s, LB_STOP_ROOT);
		lb_finish(ctx, s);
		return 0;
	}
	lb_user_regs(ctx, s, in_kernel);
	lb_tail_call(ctx, LB_PROG_WALK);
	lb_stop(s, LB_STOP_STEPS);
	lb_finish(ctx, s);
	return 0;
}
