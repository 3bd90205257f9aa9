/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that come and change: what BPF tells user space of them.
 */
#ifndef LB_PROCESS_H
#define LB_PROCESS_H

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
int lb_exec(void *ctx)
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

#endif
