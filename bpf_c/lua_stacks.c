/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lua-stacks: one stack for each tick of a perf event, kernel + native + Lua.
 */
#include "lb_walk.h"
#include "lb_process.h"

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
	lb_walk_reset(s);

	bool in_kernel = LB_IS_KERNEL_PC(ctx->regs.ip);

	if (in_kernel && s->flags & LB_CONFIG_KERNEL)
		lb_kernel_part(ctx, s);
	if (!p || !(s->flags & LB_CONFIG_USER)) {
		lb_stop(s, LB_STOP_ROOT);
		lb_finish(ctx, s);
		return 0;
	}
	if (in_kernel)
		lb_user_regs_saved(s);
	else
		lb_user_regs(s, &ctx->regs);
	lb_walk_start(ctx, s, p);
	return 0;
}
