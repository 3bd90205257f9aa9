/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lua-stacks is compared with: stacks along frame pointers, as BCC's
 * profile takes them, for the processes of one table.
 */
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>
#include <linux/sched.h>

struct fp_key {
	u32 tgid;
	s32 user_id;
	s32 kernel_id;
	char comm[TASK_COMM_LEN];
};

BPF_HASH(fp_targets, u32, u32, 64);
BPF_HASH(fp_counts, struct fp_key, u64, 16384);
BPF_STACK_TRACE(fp_stacks, 16384);
BPF_PERCPU_ARRAY(fp_samples, u64, 1);

int fp_sample(struct bpf_perf_event_data *ctx)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	int zero = 0;

	if (!fp_targets.lookup(&tgid))
		return 0;
	struct fp_key key = { .tgid = tgid };
	u64 *n = fp_samples.lookup(&zero);

	if (n)
		*n += 1;
	bpf_get_current_comm(&key.comm, sizeof(key.comm));
	key.user_id = fp_stacks.get_stackid(&ctx->regs, BPF_F_USER_STACK);
	key.kernel_id = fp_stacks.get_stackid(&ctx->regs, 0);
	fp_counts.increment(key);
	return 0;
}
