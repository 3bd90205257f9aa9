/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thin layer between these programs and what loads them: maps, their
 * accessors, tail calls. This is the BCC form. All other files use only the
 * functions below, so that the same sources can be compiled ahead of time
 * with another form of this file.
 *
 * BCC rewrites map methods only in the main text and not inside macros, hence
 * one function for each use.
 */
#ifndef LB_BPF_H
#define LB_BPF_H

#ifndef LB_ROWS
#error "LB_ROWS: entries of the row table"
#endif
#ifndef LB_BLOCKS
#error "LB_BLOCKS: entries of the block index"
#endif
#ifndef LB_RULES
#error "LB_RULES: entries of the rule table"
#endif
#ifndef LB_PROCS
#error "LB_PROCS: processes"
#endif
#ifndef LB_STACKS
#error "LB_STACKS: different stacks"
#endif
#ifndef LB_RING_PAGES
#error "LB_RING_PAGES: pages of the ring buffer, a power of two"
#endif

enum lb_prog {
	LB_PROG_WALK,
	LB_PROG_NAMES,
	LB_PROG_WALK32,
	LB_PROG_MAX,
};

BPF_ARRAY(lb_rows, struct lb_row, LB_ROWS);
BPF_ARRAY(lb_blocks, __u32, LB_BLOCKS);
BPF_ARRAY(lb_rules, struct lb_rule, LB_RULES);
BPF_HASH(lb_procs, __u32, struct lb_proc_entry, LB_PROCS);
BPF_HASH(lb_tids, __u32, __u32, 4096);
BPF_TABLE("lru_hash", __u32, __u64, lb_unknown, 4096);
BPF_TABLE("lru_hash", __u32, __u64, lb_tid_g, 16384);
BPF_HASH(lb_seen, __u64, __u32, LB_STACKS);
BPF_HASH(lb_counts, struct lb_count_key, __u64, LB_STACKS);
BPF_TABLE("lru_hash", struct lb_proto_key, struct lb_proto_val, lb_protos,
	  16384);
BPF_ARRAY(lb_configs, struct lb_config, 1);
BPF_PERCPU_ARRAY(lb_counters, __u64, LB_CNT_MAX);
BPF_PERCPU_ARRAY(lb_states, struct lb_state, 1);
BPF_PROG_ARRAY(lb_progs, LB_PROG_MAX);
BPF_RINGBUF_OUTPUT(lb_ring, LB_RING_PAGES);

static __always_inline struct lb_row *lb_row_at(__u32 i)
{
	return lb_rows.lookup(&i);
}

static __always_inline __u32 *lb_block_at(__u32 i)
{
	return lb_blocks.lookup(&i);
}

static __always_inline struct lb_rule *lb_rule_at(__u32 i)
{
	return lb_rules.lookup(&i);
}

static __always_inline struct lb_proc_entry *lb_proc_of(__u32 tgid)
{
	return lb_procs.lookup(&tgid);
}

static __always_inline void lb_proc_forget(__u32 tgid)
{
	lb_procs.delete(&tgid);
}

static __always_inline bool lb_tid_wanted(__u32 tid)
{
	return lb_tids.lookup(&tid) != 0;
}

static __always_inline struct lb_config *lb_config_get(void)
{
	__u32 zero = 0;

	return lb_configs.lookup(&zero);
}

static __always_inline struct lb_state *lb_state_get(void)
{
	__u32 zero = 0;

	return lb_states.lookup(&zero);
}

static __always_inline void lb_count(__u32 counter)
{
	__u64 *n = lb_counters.lookup(&counter);

	if (n)
		*n += 1;
}

/* Samples of a process that is not known; true on the first. */
static __always_inline bool lb_unknown_first(__u32 tgid)
{
	__u64 *n = lb_unknown.lookup(&tgid);
	__u64 one = 1;

	if (n) {
		__sync_fetch_and_add(n, 1);
		return false;
	}
	lb_unknown.update(&tgid, &one);
	return true;
}

static __always_inline bool lb_unknown_known(__u32 tgid)
{
	return lb_unknown.lookup(&tgid) != 0;
}

static __always_inline void lb_unknown_forget(__u32 tgid)
{
	lb_unknown.delete(&tgid);
}

static __always_inline __u64 lb_tid_g_get(__u32 tid)
{
	__u64 *g = lb_tid_g.lookup(&tid);

	return g ? *g : 0;
}

static __always_inline void lb_tid_g_set(__u32 tid, __u64 g_addr)
{
	__u64 *g = lb_tid_g.lookup(&tid);

	if (!g || *g != g_addr)
		lb_tid_g.update(&tid, &g_addr);
}

static __always_inline bool lb_stack_seen(__u64 hash)
{
	return lb_seen.lookup(&hash) != 0;
}

/* 0 when a new entry was made. */
static __always_inline int lb_stack_see(__u64 hash)
{
	__u32 one = 1;

	return lb_seen.insert(&hash, &one);
}

static __always_inline void lb_stack_forget(__u64 hash)
{
	lb_seen.delete(&hash);
}

static __always_inline __u64 *lb_count_of(struct lb_count_key *key)
{
	return lb_counts.lookup(key);
}

/* 0 when a new entry was made. */
static __always_inline int lb_count_insert(struct lb_count_key *key,
					   __u64 weight)
{
	return lb_counts.insert(key, &weight);
}

static __always_inline void lb_count_forget(struct lb_count_key *key)
{
	lb_counts.delete(key);
}

static __always_inline struct lb_proto_val *
lb_proto_known(struct lb_proto_key *key)
{
	return lb_protos.lookup(key);
}

static __always_inline void lb_proto_remember(struct lb_proto_key *key,
					      struct lb_proto_val *val)
{
	lb_protos.update(key, val);
}

/* User space looks for records by a timer; only some are worth a wake-up. */
static __always_inline int lb_ring_send(void *rec, __u64 size)
{
	return lb_ring.ringbuf_output(rec, size, BPF_RB_NO_WAKEUP);
}

static __always_inline int lb_ring_wake(void *rec, __u64 size)
{
	return lb_ring.ringbuf_output(rec, size, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void lb_tail_call(void *ctx, __u32 prog)
{
	lb_progs.call(ctx, prog);
}

#endif
