/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lua-fn-count: one probe hit for each call, counted by function.
 *
 * In the header of a Lua function rbx is behind its first instruction, which
 * stands behind the prototype, and rdx is the base of its frame; helpers/
 * callprobes.c says where. User space learns of a function by a record at its
 * first call and says later whether it is wanted: until then it is counted.
 *
 * These programs can be preempted by others of the same kind on the same CPU:
 * counters are added to atomically, and records are made in the ring.
 */
#include "lb_arch_x86.h"
#include "lb_wire.h"
#include "lb_state.h"
#include "lb_bpf.h"
#ifdef LB_FN_STACKS
#include "lb_walk.h"
#endif

#include "lb_process.h"

#ifndef LB_CALLS
#error "LB_CALLS: functions, and pairs of them, that are counted"
#endif
#ifndef LB_POINTS
#error "LB_POINTS: probe points of all processes"
#endif

#define LB_FLAG_CF    1
#define LB_FLAG_ZF    (1 << 6)
#define LB_FLAG_SF    (1 << 7)
#define LB_FLAG_OF    (1 << 11)
#define LB_FUNC_MASK  ((1ULL << 47) - 1)
#define LB_IDENT_MUL  0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */
#define LB_FFID_C     1
#define LB_STATES_MAX 65536
#define LB_THREADS    16384

/* The VM that a thread was seen in. */
struct lb_call_vm {
	__u64 g_addr;
	__u32 vm;
	__u32 pad;
};

BPF_HASH(lb_points, struct lb_point_key, struct lb_point, LB_POINTS);
BPF_TABLE("lru_hash", struct lb_call_key, __u32, lb_call_states, LB_STATES_MAX);
BPF_PERCPU_HASH(lb_calls, struct lb_call_key, __u64, LB_CALLS);
BPF_PERCPU_HASH(lb_edges, struct lb_edge_key, __u64, LB_CALLS);
BPF_PERCPU_ARRAY(lb_call_counters, __u64, LB_CALLS_MAX);
BPF_TABLE("lru_hash", __u32, struct lb_call_vm, lb_call_vms, LB_THREADS);

/* The callee of this hit, and where it was found. */
struct lb_call {
	struct lb_call_key key;
	struct lj_offsets *lj;
	__u64 g_addr;
	__u64 base; /* of the new frame */
	__u32 vm;
};

static __always_inline void lb_call_count_by(__u32 counter, __s64 by)
{
	__u64 *n = lb_call_counters.lookup(&counter);

	if (n)
		__sync_fetch_and_add(n, by);
}

static __always_inline void lb_call_count(__u32 counter)
{
	lb_call_count_by(counter, 1);
}

static __always_inline struct lb_point *lb_point_of(struct lb_point_key *key)
{
	return lb_points.lookup(key);
}

static __always_inline struct lb_call_vm *lb_call_vm_of(__u32 tid)
{
	return lb_call_vms.lookup(&tid);
}

static __always_inline void lb_call_vm_set(__u32 tid, __u64 g_addr, __u32 vm)
{
	struct lb_call_vm *old = lb_call_vms.lookup(&tid);
	struct lb_call_vm val = { .g_addr = g_addr, .vm = vm };

	if (!old || old->g_addr != g_addr)
		lb_call_vms.update(&tid, &val);
}

static __always_inline __u32 lb_call_state_of(struct lb_call_key *key)
{
	__u32 *state = lb_call_states.lookup(key);

	return state ? *state : 0;
}

static __always_inline void lb_call_see(struct lb_call_key *key)
{
	__u32 state = LB_CALL_SEEN;

	lb_call_states.insert(key, &state);
}

/* Is the jump at this point taken? */
static __always_inline bool lb_is_taken(__u32 cond, __u64 flags)
{
	bool is = true;

	if (cond >= LB_COND_ALWAYS)
		return true;
	switch (cond >> 1) {
	case 1: /* b */
		is = flags & LB_FLAG_CF;
		break;
	case 2: /* e */
		is = flags & LB_FLAG_ZF;
		break;
	case 3: /* be */
		is = flags & (LB_FLAG_CF | LB_FLAG_ZF);
		break;
	case 6: /* l */
		is = !(flags & LB_FLAG_SF) != !(flags & LB_FLAG_OF);
		break;
	default: /* user space attaches no others */
		break;
	}
	return is != (cond & 1);
}

/* A reference in target memory; 0 when it cannot be read. */
static __always_inline __u64 lb_ref_at(struct lj_offsets *lj, __u64 addr)
{
	__u64 ref = 0;

	if (lj->gc64)
		bpf_probe_read_user(&ref, 8, (void *)addr);
	else
		bpf_probe_read_user(&ref, 4, (void *)addr);
	return ref;
}

/* What tells a prototype from another that had its address before. */
static __always_inline int lb_call_ident(struct lj_offsets *lj,
					 struct lb_call_key *key)
{
	__u64 id[2];
	__u32 chunk_id = 0;

	if (bpf_probe_read_user(id, sizeof(id),
				(void *)(key->addr + lj->pt_chunkname)))
		return 1;
	__u64 chunk_addr = lj->gc64 ? id[0] : (__u32)id[0];

	bpf_probe_read_user(&chunk_id, 4, (void *)(chunk_addr + lj->str_id));
	key->ident = ((id[0] * LB_IDENT_MUL ^ id[1]) * LB_IDENT_MUL) ^ chunk_id;
	return 0;
}

/* Key of the function object at @func. */
static __always_inline int lb_call_function(struct lb_call *c, __u64 func,
					    struct lb_call_key *key)
{
	struct lj_offsets *lj = c->lj;
	__u8 ffid = 0;

	if (bpf_probe_read_user(&ffid, 1, (void *)(func + lj->fn_ffid)))
		return 1;
	if (ffid > LB_FFID_C) {
		key->kind = LB_CALL_FAST;
		key->addr = ffid | (__u64)c->vm << 32;
		return 0;
	}
	if (ffid == LB_FFID_C) {
		key->kind = LB_CALL_C;
		return bpf_probe_read_user(&key->addr, 8,
					   (void *)(func + lj->fn_f));
	}
	key->kind = LB_CALL_LUA;
	key->addr = lb_ref_at(lj, func + lj->fn_pc) - lj->pt_size;
	return lb_call_ident(lj, key);
}

/* The function whose frame is at @base; 0 if there is none, only a thread. */
static __always_inline __u64 lb_func_at(struct lj_offsets *lj, __u64 base)
{
	__u64 slot = 0;

	if (lj->gc64) {
		bpf_probe_read_user(&slot, 8, (void *)(base - 16));
		/* LJ_TTHREAD: the bottom of a stack */
		return slot >> 47 == 0x1fff9 ? 0 : slot & LB_FUNC_MASK;
	}
	bpf_probe_read_user(&slot, 4, (void *)(base - 8));
	return slot;
}

/* The chunk name and lines of a prototype, for its name. */
static __always_inline void lb_call_proto(struct lb_call *c,
					  struct lb_call_key *key,
					  struct lb_proto_rec *r)
{
	struct lj_offsets *lj = c->lj;
	__u64 at = key->addr + lj->pt_chunkname;

	r->type = LB_REC_PROTO;
	r->tgid = key->tgid;
	r->proto_addr = key->addr;
	r->chunk_addr = lb_ref_at(lj, at);
	r->g_addr = c->g_addr;
	r->first_line = r->num_line = r->size_bc = 0;
	bpf_probe_read_user(&r->first_line, 4,
			    (void *)(key->addr + lj->pt_firstline));
	bpf_probe_read_user(&r->num_line, 4,
			    (void *)(key->addr + lj->pt_numline));
	bpf_probe_read_user(&r->size_bc, 4,
			    (void *)(key->addr + lj->pt_sizebc));
	r->vm = c->vm;
	r->chunk_len = r->chunk_got = r->chunk_id = r->pad = 0;
	bpf_probe_read_user(&r->chunk_id, 4,
			    (void *)(r->chunk_addr + lj->str_id));
	bpf_probe_read_user(&r->chunk_len, 4,
			    (void *)(r->chunk_addr + lj->str_len));

	__u32 n = r->chunk_len;

	if (n > LB_CHUNK_MAX)
		n = LB_CHUNK_MAX;
	if (n > 0 &&
	    !bpf_probe_read_user(r->chunk, n & (2 * LB_CHUNK_MAX - 1),
				 (void *)(r->chunk_addr + lj->str_size)))
		r->chunk_got = n;
}

/* Tell user space; if the ring is full, the next call will. */
static __always_inline void lb_call_first(struct lb_call *c,
					  struct lb_call_key *key)
{
	struct lb_call_rec *r = lb_ring.ringbuf_reserve(sizeof(*r));

	if (!r)
		return;
	r->type = LB_REC_CALL;
	r->tgid = key->tgid;
	r->key = *key;
	r->g_addr = c->g_addr;
	r->vm = c->vm;
	r->has_proto = key->kind == LB_CALL_LUA;
	/* memory of the ring is not clean */
	__builtin_memset(&r->proto, 0, sizeof(r->proto));
	if (r->has_proto)
		lb_call_proto(c, key, &r->proto);
	lb_ring.ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	lb_call_see(key);
}

static __always_inline int lb_call_add(struct lb_call_key *key)
{
	__u64 *n = lb_calls.lookup(key);
	__u64 zero = 0;

	if (!n) {
		lb_calls.insert(key, &zero); /* or another CPU was faster */
		n = lb_calls.lookup(key);
	}
	if (!n)
		return 1;
	__sync_fetch_and_add(n, 1);
	return 0;
}

static __always_inline int lb_edge_add(struct lb_edge_key *key, __s64 by)
{
	__u64 *n = lb_edges.lookup(key);
	__u64 zero = 0;

	if (!n) {
		lb_edges.insert(key, &zero);
		n = lb_edges.lookup(key);
	}
	if (!n)
		return 1;
	__sync_fetch_and_add(n, by);
	return 0;
}

/* Who calls: the frame that the link of the new one leads to. */
static __always_inline void lb_call_caller(struct lb_call *c,
					   struct lb_call_key *key)
{
	struct lj_offsets *lj = c->lj;
	__u64 link, base = c->base;

	if (lj->gc64) {
		link = 0;
		bpf_probe_read_user(&link, 8, (void *)(base - 8));
	} else {
		__u32 link32 = 0;

		bpf_probe_read_user(&link32, 4, (void *)(base - 4));
		link = link32;
	}
	if (!link)
		return;
	if (!(link & 3)) { /* a return address in the caller's bytecode */
		__u8 a = 0;

		bpf_probe_read_user(&a, 1, (void *)(link - 3));
		base -= 8 * ((lj->gc64 ? 2 : 1) + (__u64)a);
	} else {
		base -= link & ~7ULL;
	}
	__u64 func = lb_func_at(lj, base);

	if (func && lb_call_function(c, func, key)) {
		key->kind = LB_CALL_NONE;
		key->addr = key->ident = 0;
	}
}

static __always_inline void lb_call_edge(struct lb_call *c, __s64 by)
{
	struct lb_edge_key key = { .callee = c->key };

	key.caller.tgid = c->key.tgid;
	if (c->base)
		lb_call_caller(c, &key.caller);
	if (key.caller.kind && !lb_call_state_of(&key.caller))
		lb_call_first(c, &key.caller);
	if (lb_edge_add(&key, by))
		lb_call_count(LB_CALLS_NO_EDGE);
}

#ifdef LB_FN_STACKS
/* The stack of this call, counted by itself. Does not return if all is well. */
static __always_inline void lb_call_walk(struct lb_regs *regs, __u32 tgid,
					 __u32 tid, __u32 flags)
{
	struct lb_state *s = lb_state_get();
	struct lb_proc_entry *p = lb_proc_of(tgid);

	if (!s || !p) {
		lb_count(LB_CNT_LOST_STATE);
		return;
	}
	s->tgid = tgid;
	s->tid = tid;
	s->flags = flags;
	lb_walk_reset(s);
	lb_user_regs(s, regs);
	lb_walk_start(regs, s, p);
}
#endif

/* The function is known: count its call, or do not. Return: 1 if it counts. */
static __always_inline int lb_call_done(struct lb_call *c, __u32 flags)
{
	__u32 state = lb_call_state_of(&c->key);

	if (state == LB_CALL_UNWANTED) {
		lb_call_count(LB_CALLS_UNWANTED);
		return 0;
	}
	if (!state)
		lb_call_first(c, &c->key);
	if (lb_call_add(&c->key)) {
		lb_call_count(LB_CALLS_FULL);
		return 0;
	}
	lb_call_count(LB_CALLS_COUNTED);
	if (flags & LB_CONFIG_CALLERS)
		lb_call_edge(c, 1);
	return 1;
}

/* Before a fast function is entered again for the same call. */
static __always_inline void lb_call_again(struct lb_call *c, __u32 flags)
{
	__u64 func = lb_func_at(c->lj, c->base), *n;

	if (!func || lb_call_function(c, func, &c->key))
		return;
	n = lb_calls.lookup(&c->key);
	if (!n)
		return;
	__sync_fetch_and_add(n, -1);
	lb_call_count_by(LB_CALLS_COUNTED, -1);
	lb_call_count(LB_CALLS_AGAIN);
	if (flags & LB_CONFIG_CALLERS)
		lb_call_edge(c, -1);
}

/* Fill in the key of the callee. Return: 1 if it cannot be read. */
static __always_inline int
lb_call_key_of(struct lb_call *c, struct lb_regs *regs, struct lb_point *point)
{
	struct lj_offsets *lj = c->lj;

	if (point->kind == LB_PROBE_API) {
		c->key.kind = LB_CALL_API;
		c->key.addr = point->number;
		c->base = 0;
		return 0;
	}
	if (point->kind == LB_PROBE_C || point->kind == LB_PROBE_FAST) {
		__u64 func = lb_func_at(lj, c->base);

		return !func || lb_call_function(c, func, &c->key);
	}
	__u64 pc = lj->gc64 ? regs->bx : (__u32)regs->bx;

	c->key.kind = LB_CALL_LUA;
	c->key.addr = pc - 4 - lj->pt_size;
	return lb_call_ident(lj, &c->key);
}

static __always_inline void lb_call_hit(struct lb_regs *regs, __u32 tgid,
					__u32 tid, struct lb_point *point,
					__u32 flags)
{
	struct lb_proc_entry *p = lb_proc_of(tgid);
	struct lb_call c = { .key = { .tgid = tgid }, .vm = point->vm };

	if (!p) {
		lb_call_count(LB_CALLS_FOREIGN);
		return;
	}
	c.lj = &p->lj[point->vm & (LB_VMS_MAX - 1)];
	c.base = c.lj->gc64 ? regs->dx : (__u32)regs->dx;
	if (point->kind != LB_PROBE_API) {
		/* in the VM r14 is the dispatch table, behind global_State */
		c.g_addr = regs->r14 - c.lj->g2disp;
		lb_call_vm_set(tid, c.g_addr, c.vm);
	}
	if (point->kind == LB_PROBE_RETRY) {
		lb_call_again(&c, flags);
		return;
	}
	if (lb_call_key_of(&c, regs, point)) {
		lb_call_count(LB_CALLS_UNREAD);
		return;
	}
	if (point->kind == LB_PROBE_COMPILED)
		lb_call_count(LB_CALLS_COMPILED);
	int is_counted = lb_call_done(&c, flags);
#ifdef LB_FN_STACKS
	if (is_counted)
		lb_call_walk(regs, tgid, tid, flags);
#endif
}

/* A probe point was reached. */
int lua_fn_count_call(struct lb_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct lb_config *config = lb_config_get();
	struct lb_point_key key = { .addr = ctx->ip, .tgid = pid_tgid >> 32 };

	if (!config || config->flags & LB_CONFIG_OFF)
		return 0;
	if (config->flags & LB_CONFIG_TIDS && !lb_tid_wanted(pid_tgid))
		return 0;
	struct lb_point *point = lb_point_of(&key);

	if (!point) {
		lb_call_count(LB_CALLS_FOREIGN);
		return 0;
	}
	bool is_taken = lb_is_taken(point->cond, ctx->flags);

	if (point->kind == LB_PROBE_LOOP) {
		if (is_taken)
			lb_call_count(LB_CALLS_LOOPS);
		return 0;
	}
	if (is_taken &&
	    (point->kind == LB_PROBE_LUA || point->kind == LB_PROBE_COMPILED ||
	     point->kind == LB_PROBE_C)) {
		/* the stack grows first, then the header runs again */
		lb_call_count(LB_CALLS_AGAIN);
		return 0;
	}
	if (is_taken && point->kind == LB_PROBE_RETRY)
		return 0;
	lb_call_hit(ctx, key.tgid, pid_tgid, point, config->flags);
	return 0;
}

/*
 * Is this thread at a probe point, or shortly behind it? Time there is our own:
 * the breakpoint, and the program. Interrupts are off on the way out of the
 * kernel, so that a tick comes some instructions late. User space has made
 * points of the addresses behind each.
 */
static __always_inline bool lb_is_in_probe(__u32 tgid, __u64 pc)
{
	struct lb_point_key key = { .addr = pc, .tgid = tgid };

	return lb_point_of(&key);
}

/* In the VM and (64-bit references) in traces r14 tells global_State. */
static __always_inline bool lb_tick_vm(struct lb_proc_entry *p, __u64 r14,
				       __u32 tid, struct lb_call_vm *vm)
{
	struct lb_call_vm *known = lb_call_vm_of(tid);

	if (known) {
		*vm = *known;
		return true;
	}
	for (__u32 i = 0; i < LB_VMS_MAX; i++) {
		struct lj_offsets *lj = &p->lj[i];
		__u64 g_addr = r14 - lj->g2disp, l_addr;

		if (i >= p->n_vms)
			break;
		if (lj->g_cur_l == LJ_OFFSETS_NONE)
			continue;
		l_addr = lb_ref_at(lj, g_addr + lj->g_cur_l);
		if (!l_addr || lb_ref_at(lj, l_addr + lj->l_glref) != g_addr)
			continue;
		vm->g_addr = g_addr;
		vm->vm = i;
		lb_call_vm_set(tid, g_addr, i);
		return true;
	}
	return false;
}

/* A tick of a thread that is not in a probe. */
static __always_inline void lb_tick_lua(struct lb_proc_entry *p, __u64 r14,
					__u32 tid)
{
	struct lb_call_vm vm = {};
	__u64 cframe = 0;

	if (!lb_tick_vm(p, r14, tid, &vm))
		return;
	struct lj_offsets *lj = &p->lj[vm.vm & (LB_VMS_MAX - 1)];

	if (lj->g_cur_l == LJ_OFFSETS_NONE)
		return;
	__u64 l_addr = lb_ref_at(lj, vm.g_addr + lj->g_cur_l);

	/* outside of Lua L has no C frame */
	if (l_addr)
		bpf_probe_read_user(&cframe, 8,
				    (void *)(l_addr + lj->l_cframe));
	if (!(cframe & ~3ULL))
		return;
	lb_call_count(LB_CALLS_IN_LUA);
	if (lb_ref_at(lj, vm.g_addr + lj->g_jit_base))
		lb_call_count(LB_CALLS_IN_TRACE);
}

/* CPU time: is this thread in Lua, and in machine code of a trace? */
int lua_fn_count_tick(struct lb_perf_ctx *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct lb_config *config = lb_config_get();
	struct lb_proc_entry *p = lb_proc_of(pid_tgid >> 32);
	__u64 pc = ctx->regs.ip, r14 = ctx->regs.r14;

	if (!p || !config || config->flags & LB_CONFIG_OFF)
		return 0;
	if (config->flags & LB_CONFIG_TIDS && !lb_tid_wanted(pid_tgid))
		return 0;
	lb_call_count(LB_CALLS_TICKS);
	if (LB_IS_KERNEL_PC(pc)) { /* registers saved at its entry */
		void *task = (void *)bpf_get_current_task_btf();
		struct lb_regs *saved = (void *)bpf_task_pt_regs(task);

		bpf_probe_read_kernel(&pc, 8, &saved->ip);
		bpf_probe_read_kernel(&r14, 8, &saved->r14);
	}
	if (lb_is_in_probe(pid_tgid >> 32, pc))
		lb_call_count(LB_CALLS_IN_PROBE);
	else
		lb_tick_lua(p, r14, pid_tgid);
	return 0;
}
