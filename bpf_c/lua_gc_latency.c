/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lua-gc-latency: how long the garbage collector holds a thread.
 *
 * A pause is one outermost piece of work of the collector: from the entry of
 * lj_gc_step, lj_gc_step_jit or lua_gc to its exit. gc_open has the state of
 * each thread that is in one. No return probe: an error that a finalizer throws
 * unwinds through these functions, and such a pause is noticed and dropped.
 *
 * CPU time: the kernel adds to a task's sum_exec_runtime at each tick and
 * switch what has passed since exec_start. So sum_exec_runtime - exec_start +
 * now moves on by the time on a CPU alone, whatever clock exec_start is of.
 */
#include "lb_arch_x86.h"
#include "lb_wire.h"
#ifdef LB_GC_STACKS
#define LB_WALKED(s) gc_walked(s)
struct lb_state;
static __always_inline void gc_walked(struct lb_state *s);
#include "lb_walk.h"
#include "lb_process.h"
#endif

#ifndef LB_GC_PROCS
#error "LB_GC_PROCS: processes"
#endif
#ifndef LB_GC_KEYS
#error "LB_GC_KEYS: threads and VMs that are counted apart"
#endif
#ifndef LB_GC_RING_PAGES
#error "LB_GC_RING_PAGES: pages of the ring buffer, a power of two"
#endif

#ifndef LB_TASK_EXEC_START
#error "LB_TASK_EXEC_START: offset of se.exec_start in task_struct"
#endif
#ifndef LB_TASK_SUM_EXEC
#error "LB_TASK_SUM_EXEC: offset of se.sum_exec_runtime in task_struct"
#endif

#define LB_GC_FRAME_MAX 1024 /* bytes of stack of a function with probes */
#define LB_GC_WHAT_FULL 2    /* LUA_GCCOLLECT of lua.h */
#define LB_GC_WHAT_STEP 5    /* LUA_GCSTEP */

/* A thread that is in a pause, or was. */
struct lb_gc_open {
	__u64 begin_ns;
	__u64 sp; /* at the entry: what lies below is nested */
	__u64 g_addr;
	__u64 ran_ns; /* gc_ran() then, the CPU time at the exit */
	__u64 phase_since_ns;
	__u64 phase_ns[LB_GC_PHASES];
	__u64 finalizers_ns;
	__u64 finalizer_since_ns;
	__u64 finalizer_sp;
	__u64 heap_before;
	__u64 wall_ns, heap_after; /* when it has ended */
	__u32 tgid, tid;
	__u32 n_finalizers;
	__u32 depth; /* finalizers that run, nested ones included */
	__u32 phase; /* now, at last the one after it */
	__u32 phase_before;
	__u16 vm;
	__u8 entry; /* enum lb_gc_entry */
	__u8 active;
	__u8 thrown; /* a finalizer failed: does the error leave the pause? */
	__u8 pad[3];
	__u32 scratch[2];
};

/* When a cycle of a VM began. */
struct lb_gc_cycle_key {
	__u64 g_addr;
	__u32 tgid;
	__u32 pad;
};

BPF_HASH(gc_procs, __u32, struct lb_gc_proc, LB_GC_PROCS);
BPF_TABLE("lru_hash", __u32, struct lb_gc_open, gc_open, 16384); /* by tid */
BPF_TABLE("lru_hash", struct lb_gc_cycle_key, __u64, gc_cycles, 16384);
BPF_HASH(gc_vals, struct lb_gc_key, struct lb_gc_val, LB_GC_KEYS);
BPF_ARRAY(gc_configs, struct lb_gc_config, 1);
BPF_PERCPU_ARRAY(gc_counters, __u64, LB_GC_CNT_MAX);
BPF_PERCPU_ARRAY(gc_zeros, struct lb_gc_val, 1);
BPF_RINGBUF_OUTPUT(gc_ring, LB_GC_RING_PAGES);

static __always_inline void gc_count_by(__u32 counter, __u64 by)
{
	__u64 *n = gc_counters.lookup(&counter);

	if (n)
		*n += by;
}

static __always_inline void gc_count(__u32 counter)
{
	gc_count_by(counter, 1);
}

static __always_inline struct lb_gc_config *gc_config(void)
{
	__u32 zero = 0;

	return gc_configs.lookup(&zero);
}

static __always_inline struct lb_gc_open *gc_open_of(__u32 tid)
{
	return gc_open.lookup(&tid);
}

/* The pause this thread is in. The number may be another thread's by now. */
static __always_inline struct lb_gc_open *gc_pause(void)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct lb_gc_open *o = gc_open_of(pid_tgid);

	return o && o->active && o->tgid == pid_tgid >> 32 ? o : 0;
}

/* A reference; 0 if it cannot be read. */
static __always_inline __u64 gc_read_ref(struct lb_gc_vm *vm, __u64 addr)
{
	__u64 ref = 0;

	if (vm->ref_size == 8) {
		if (bpf_probe_read_user(&ref, 8, (void *)addr))
			return 0;
	} else if (bpf_probe_read_user(&ref, 4, (void *)addr)) {
		return 0;
	}
	return ref;
}

/* gc.state; LB_GC_PHASES if it cannot be read, or is none. */
static __always_inline __u32 gc_read_state(struct lb_gc_vm *vm, __u64 g_addr)
{
	__u8 state = LB_GC_PHASES;

	if (bpf_probe_read_user(&state, 1, (void *)(g_addr + vm->g_gc_state)) ||
	    state > LB_GC_PHASES)
		return LB_GC_PHASES;
	return state;
}

/* The VM whose code is at @ip, as an index; LB_VMS_MAX: none. */
static __always_inline __u32 gc_vm_at(struct lb_gc_proc *p, __u64 ip)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LB_VMS_MAX; i++)
		if (i < p->n_vms && ip >= p->vms[i].text_lo &&
		    ip < p->vms[i].text_hi)
			return i;
	return LB_VMS_MAX;
}

/* ---- what is kept of a pause ---- */

static __always_inline __u32 gc_log2(__u64 v)
{
	__u32 n = 0;

	if (v >> 32) {
		n += 32;
		v >>= 32;
	}
	if (v >> 16) {
		n += 16;
		v >>= 16;
	}
	if (v >> 8) {
		n += 8;
		v >>= 8;
	}
	if (v >> 4) {
		n += 4;
		v >>= 4;
	}
	if (v >> 2) {
		n += 2;
		v >>= 2;
	}
	return n + (v >> 1);
}

/* 2^LB_GC_FINE_BITS slots of equal width between two powers of two. */
static __always_inline __u32 gc_fine_slot(__u64 ns)
{
	__u32 n = gc_log2(ns);

	if (n < LB_GC_FINE_BITS)
		return ns;
	if (n > LB_GC_LOG2)
		return LB_GC_FINE - 1;
	return ((n - LB_GC_FINE_BITS + 1) << LB_GC_FINE_BITS) +
	       ((ns >> (n - LB_GC_FINE_BITS)) & ((1 << LB_GC_FINE_BITS) - 1));
}

static __always_inline struct lb_gc_val *gc_val_of(struct lb_gc_key *key)
{
	struct lb_gc_val *v = gc_vals.lookup(key);
	__u32 zero = 0;

	if (v)
		return v;
	struct lb_gc_val *zeros = gc_zeros.lookup(&zero);

	if (!zeros)
		return 0;
	gc_vals.insert(key, zeros);
	return gc_vals.lookup(key);
}

/* Into the histograms of one key. Only this thread writes there. */
static __always_inline void gc_add(struct lb_gc_open *o, struct lb_gc_val *v,
				   struct lb_gc_config *config, __u64 ns)
{
	/* verifier: from memory, so that it need not follow all ways that led
	 * to a number */
	volatile __u32 *scratch = o->scratch;
	__u32 half = config->epoch & 1, slot, fine;

	scratch[0] = gc_log2(ns / (config->unit_ns ? config->unit_ns : 1));
	scratch[1] = gc_fine_slot(ns);
	slot = scratch[0];
	fine = scratch[1];

	v->count++;
	v->wall_ns += ns;
	if (v->max_epoch[half] != config->epoch) {
		v->max_epoch[half] = config->epoch;
		v->max_ns[half] = 0;
	}
	if (ns > v->max_ns[half])
		v->max_ns[half] = ns;
	if (slot < LB_GC_LOG2)
		v->log2[slot]++;
	if (fine < LB_GC_FINE)
		v->fine[fine]++;
}

/* A cycle begins when work is done in GCSpause, and ends there again. */
static __always_inline void gc_cycle(struct lb_gc_open *o, struct lb_gc_val *v,
				     __u32 state, __u64 now)
{
	struct lb_gc_cycle_key key = { .g_addr = o->g_addr, .tgid = o->tgid };
	__u64 *begin;

	/* a full collection gives up the cycle it finds, and makes its own */
	if (!o->phase_before || o->entry == LB_GC_FULL)
		gc_cycles.update(&key, &o->begin_ns);
	if (state)
		return;
	v->n_cycles++;
	begin = gc_cycles.lookup(&key);
	if (!begin)
		return;
	v->n_timed_cycles++;
	v->cycles_ns += now - *begin;
	gc_cycles.delete(&key);
}

static __always_inline void gc_phases(struct lb_gc_open *o,
				      struct lb_gc_key *key,
				      struct lb_gc_config *config)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LB_GC_PHASES; i++) {
		__u64 ns = o->phase_ns[i];

		if (!ns)
			continue;
		key->phase = i;

		struct lb_gc_val *v = gc_val_of(key);

		if (v)
			gc_add(o, v, config, ns);
		else
			gc_count(LB_GC_CNT_FULL);
	}
}

static __always_inline void gc_send(struct lb_gc_open *o, __u64 stack,
				    __u64 leaf)
{
	struct lb_gc_event e = {
		.begin_ns = o->begin_ns,
		.g_addr = o->g_addr,
		.wall_ns = o->wall_ns,
		.cpu_ns = o->ran_ns,
		.finalizers_ns = o->finalizers_ns,
		.heap_before = o->heap_before,
		.heap_after = o->heap_after,
		.stack = stack,
		.leaf = leaf,
		.tgid = o->tgid,
		.tid = o->tid,
		.n_finalizers = o->n_finalizers,
		.entry = o->entry,
		.phase_before = o->phase_before,
		.phase_after = o->phase,
	};

	for (int i = 0; i < LB_GC_PHASES; i++)
		e.phase_ns[i] = o->phase_ns[i];
	/* user space looks by a timer: a wake-up would disturb the target */
	if (gc_ring.ringbuf_output(&e, sizeof(e), BPF_RB_NO_WAKEUP))
		gc_count(LB_GC_CNT_RING);
}

/* Time since the last change belongs to the phase until now. */
static __always_inline void gc_spend(struct lb_gc_open *o, __u64 now)
{
	if (o->phase < LB_GC_PHASES)
		o->phase_ns[o->phase] += now - o->phase_since_ns;
	o->phase_since_ns = now;
}

static __always_inline bool gc_record(struct lb_gc_open *o, struct lb_gc_vm *vm,
				      __u64 now)
{
	struct lb_gc_config *config = gc_config();
	__u32 state = gc_read_state(vm, o->g_addr);
	__u64 heap = gc_read_ref(vm, o->g_addr + vm->g_gc_total);
	__u64 wall_ns = now - o->begin_ns;
	struct lb_gc_key key = {
		.g_addr = o->g_addr,
		.tgid = o->tgid,
		.tid = o->tid,
		.entry = o->entry,
		.phase = LB_GC_ALL_PHASES,
		.vm = o->vm,
	};

	if (!config || state >= LB_GC_PHASES) {
		gc_count(LB_GC_CNT_READ);
		return false;
	}
	gc_spend(o, now);

	struct lb_gc_val *v = gc_val_of(&key);

	if (!v) {
		gc_count(LB_GC_CNT_FULL);
		return false;
	}
	gc_add(o, v, config, wall_ns);
	v->cpu_ns += o->ran_ns;
	v->n_finalizers += o->n_finalizers;
	v->finalizers_ns += o->finalizers_ns;
	for (int i = 0; i < LB_GC_PHASES; i++)
		v->phase_ns[i] += o->phase_ns[i];
	if (!v->first_heap)
		v->first_heap = o->heap_before;
	v->last_heap = heap;
	gc_cycle(o, v, state, now);
	if (config->flags & LB_GC_F_PHASES)
		gc_phases(o, &key, config);
	o->wall_ns = wall_ns;
	o->heap_after = heap;
	o->phase = state;
	return true;
}

/* ---- events and stacks ---- */

#ifdef LB_GC_STACKS
/* The walk of a pause's stack is over. */
static __always_inline void gc_walked(struct lb_state *s)
{
	struct lb_gc_config *config = gc_config();
	struct lb_gc_open *o = gc_open_of(s->tid);

	if (o && config && config->flags & LB_GC_F_EVENTS)
		gc_send(o, s->count_key.stack, s->count_key.leaf);
}

/* From the exit on, where the stack is what it was at the entry. */
static __always_inline void gc_walk(struct lb_regs *ctx, struct lb_gc_open *o)
{
	struct lb_state *s = lb_state_get();
	struct lb_proc_entry *p = lb_proc_of(o->tgid);
	struct lb_config *config = lb_config_get();

	if (!s || !p || !config || config->flags & LB_CONFIG_OFF) {
		lb_count(LB_CNT_LOST_STATE);
		gc_send(o, 0, 0);
		return;
	}
	s->tgid = o->tgid;
	s->tid = o->tid;
	s->flags = config->flags;
	lb_walk_reset(s);
	s->weight = o->wall_ns;
	lb_user_regs(s, ctx);
	lb_walk_start(ctx, s, p);
}
#endif

/* A pause has been recorded. */
static __always_inline void gc_ended(struct lb_regs *ctx, struct lb_gc_open *o)
{
	struct lb_gc_config *config = gc_config();

	if (!config || o->wall_ns < config->min_ns)
		return;
#ifdef LB_GC_STACKS
	gc_walk(ctx, o);
#else
	if (config->flags & LB_GC_F_EVENTS)
		gc_send(o, 0, 0);
#endif
}

/* ---- probes ---- */

/* CPU time of this thread at @now, but for a constant. */
static __always_inline __u64 gc_ran(__u64 now)
{
	char *task = (char *)bpf_get_current_task();
	__u64 start = 0, again = 0, sum = 0;

	bpf_probe_read_kernel(&start, 8, task + LB_TASK_EXEC_START);
	bpf_probe_read_kernel(&sum, 8, task + LB_TASK_SUM_EXEC);
	bpf_probe_read_kernel(&again, 8, task + LB_TASK_EXEC_START);
	if (again != start) { /* a tick came in between */
		start = again;
		bpf_probe_read_kernel(&sum, 8, task + LB_TASK_SUM_EXEC);
	}
	return sum - start + now;
}

/*
 * A finalizer has failed. In older builds its error leaves the pause, which is
 * not certain before something else happens; newer ones go on.
 */
static __always_inline void gc_set_thrown(struct lb_gc_open *o, bool thrown)
{
	if (thrown && !o->thrown)
		gc_count_by(LB_GC_CNT_PENDING, 1);
	if (!thrown && o->thrown)
		gc_count_by(LB_GC_CNT_PENDING, -1);
	o->thrown = thrown;
}

/* Is the pause that is open still running below this entry? */
static __always_inline bool gc_is_nested(struct lb_gc_open *o, __u64 sp)
{
	if (sp >= o->sp)
		return false; /* its frame is gone */
	if (o->depth)
		return true; /* a finalizer collects */
	/* a step of a trace, or of lua_gc */
	return o->entry != LB_GC_STEP && !o->thrown;
}

/* A pause begins, unless it is nested in one. */
static __always_inline int gc_begin(struct lb_regs *ctx, __u32 entry, __u64 g)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32, tid = pid_tgid, i;
	struct lb_gc_open *o = gc_open_of(tid);

	if (o && o->active) {
		if (o->tgid == tgid && gc_is_nested(o, ctx->sp))
			return 0;
		if (o->tgid == tgid || o->thrown)
			gc_count(LB_GC_CNT_THROWN);
		gc_set_thrown(o, false);
		o->active = 0;
	}
	if (entry >= LB_GC_ENTRIES)
		return 0;

	struct lb_gc_proc *p = gc_procs.lookup(&tgid);
	struct lb_gc_config *config = gc_config();

	if (!p || !config || !(config->flags & LB_GC_F_ON))
		return 0;
	i = gc_vm_at(p, ctx->ip);
	if (i >= LB_VMS_MAX)
		return 0;

	struct lb_gc_vm *vm = &p->vms[i];

	if (!g)
		g = gc_read_ref(vm, ctx->di + vm->l_glref);

	struct lb_gc_open fresh = {
		.sp = ctx->sp,
		.g_addr = g,
		.heap_before = gc_read_ref(vm, g + vm->g_gc_total),
		.tgid = tgid,
		.tid = tid,
		.phase = gc_read_state(vm, g),
		.vm = i,
		.entry = entry,
		.active = 1,
	};

	if (!g || !fresh.heap_before || fresh.phase >= LB_GC_PHASES) {
		gc_count(LB_GC_CNT_READ);
		return 0;
	}
	fresh.phase_before = fresh.phase;
	gc_open.update(&tid, &fresh);
	o = gc_open_of(tid);
	if (!o)
		return 0;
	o->begin_ns = o->phase_since_ns = bpf_ktime_get_ns();
	o->ran_ns = gc_ran(o->begin_ns);
	return 0;
}

static __always_inline int gc_end(struct lb_regs *ctx, bool is_api, __u32 entry)
{
	struct lb_gc_open *o = gc_pause();
	__u64 now = bpf_ktime_get_ns();

	if (!o || o->depth || ctx->sp > o->sp ||
	    o->sp - ctx->sp > LB_GC_FRAME_MAX)
		return 0;
	if (is_api ? o->entry < LB_GC_FULL : o->entry != entry) {
		/* a step inside: no error was thrown through it */
		gc_set_thrown(o, false);
		return 0;
	}
	gc_set_thrown(o, false);

	struct lb_gc_proc *p = gc_procs.lookup(&o->tgid);

	o->active = 0;
	o->ran_ns = gc_ran(now) - o->ran_ns;
	if (o->ran_ns > now - o->begin_ns) /* the clocks differ by a hair */
		o->ran_ns = now - o->begin_ns;
	if (p && gc_record(o, &p->vms[o->vm & (LB_VMS_MAX - 1)], now))
		gc_ended(ctx, o);
	return 0;
}

int gc_step_entry(struct lb_regs *ctx)
{
	return gc_begin(ctx, LB_GC_STEP, 0);
}

int gc_step_exit(struct lb_regs *ctx)
{
	return gc_end(ctx, false, LB_GC_STEP);
}

int gc_trace_entry(struct lb_regs *ctx)
{
	return gc_begin(ctx, LB_GC_TRACE, ctx->di);
}

int gc_trace_exit(struct lb_regs *ctx)
{
	return gc_end(ctx, false, LB_GC_TRACE);
}

int gc_api_entry(struct lb_regs *ctx)
{
	__u32 what = ctx->si;

	return gc_begin(ctx,
			what == LB_GC_WHAT_FULL	  ? LB_GC_FULL
			: what == LB_GC_WHAT_STEP ? LB_GC_ASKED
						  : LB_GC_ENTRIES,
			0);
}

int gc_api_exit(struct lb_regs *ctx)
{
	return gc_end(ctx, true, 0);
}

int gc_finalizer_entry(struct lb_regs *ctx)
{
	struct lb_gc_open *o = gc_pause();

	if (!o)
		return 0;
	if (!o->depth && o->thrown) {
		/* the next one of the same loop: the error did not leave it */
		if (ctx->sp != o->finalizer_sp)
			return 0;
		gc_set_thrown(o, false);
	}
	if (!o->depth) {
		__u64 now = bpf_ktime_get_ns();

		gc_spend(o, now);
		o->n_finalizers++;
		o->finalizer_since_ns = now;
		o->finalizer_sp = ctx->sp;
	}
	o->depth++;
	return 0;
}

int gc_finalizer_exit(struct lb_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct lb_gc_open *o = gc_pause();

	if (!o || !o->depth)
		return 0;
	o->depth--;
	if (o->depth)
		return 0;
	o->finalizers_ns += now - o->finalizer_since_ns;
	o->phase_since_ns = now;
	gc_set_thrown(o, (__u32)ctx->ax != 0);

	struct lb_gc_proc *p = gc_procs.lookup(&o->tgid);

	if (p) /* it may have collected garbage itself */
		o->phase = gc_read_state(&p->vms[o->vm & (LB_VMS_MAX - 1)],
					 o->g_addr);
	return 0;
}

/* gc.state is about to change. */
static __always_inline int gc_phase(__u32 phase)
{
	struct lb_gc_open *o = gc_pause();

	if (!o || o->depth)
		return 0;
	gc_spend(o, bpf_ktime_get_ns());
	o->phase = phase;
	return 0;
}

int gc_phase_0(void *ctx)
{
	return gc_phase(0);
}

int gc_phase_1(void *ctx)
{
	return gc_phase(1);
}

int gc_phase_2(void *ctx)
{
	return gc_phase(2);
}

int gc_phase_3(void *ctx)
{
	return gc_phase(3);
}

int gc_phase_4(void *ctx)
{
	return gc_phase(4);
}

int gc_phase_5(void *ctx)
{
	return gc_phase(5);
}

/* ---- samples, without any probe ---- */

#define LB_GC_TID_VMS 4 /* VMs of one thread */

struct lb_gc_tid {
	__u64 g_addr[LB_GC_TID_VMS];
	__u32 vm[LB_GC_TID_VMS];
	__u32 next; /* the one to replace */
	__u32 tgid;
};

BPF_TABLE("lru_hash", __u32, struct lb_gc_tid, gc_tids, 16384);
BPF_HASH(gc_samples, __u32, struct lb_gc_samples, LB_GC_PROCS);

/* A VM knows the thread that runs, and that one knows its VM. */
static __always_inline bool gc_is_vm(struct lb_gc_vm *vm, __u64 g_addr)
{
	__u64 l = gc_read_ref(vm, g_addr + vm->g_cur_l);

	return l && gc_read_ref(vm, l + vm->l_glref) == g_addr;
}

static __always_inline void gc_learn(struct lb_gc_proc *p, __u32 tgid,
				     __u32 tid, __u32 i, __u64 g_addr)
{
	struct lb_gc_tid *t = gc_tids.lookup(&tid);

	if (t && t->tgid == tgid) {
		for (int n = 0; n < LB_GC_TID_VMS; n++)
			if (t->g_addr[n] == g_addr)
				return;
	}
	if (!gc_is_vm(&p->vms[i & (LB_VMS_MAX - 1)], g_addr))
		return;
	if (t && t->tgid == tgid) {
		__u32 n = t->next & (LB_GC_TID_VMS - 1);

		t->g_addr[n] = g_addr;
		t->vm[n] = i;
		t->next = n + 1;
		return;
	}
	struct lb_gc_tid fresh = { .tgid = tgid, .next = 1 };

	fresh.g_addr[0] = g_addr;
	fresh.vm[0] = i;
	gc_tids.update(&tid, &fresh);
}

/*
 * r14 leads to the VM while its code or machine code of a trace runs, and still
 * does in C functions that have not saved it.
 */
static __always_inline void gc_learn_from(struct lb_perf_ctx *ctx,
					  struct lb_gc_proc *p, __u32 tgid,
					  __u32 tid)
{
	__u64 r14 = ctx->regs.r14;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LB_VMS_MAX; i++) {
		if (i >= p->n_vms)
			break;
		struct lb_gc_vm *vm = &p->vms[i];
		__u64 dispatch = vm->ref_size == 8 ? r14 : (__u32)r14;

		if (dispatch > vm->g2disp)
			gc_learn(p, tgid, tid, i, dispatch - vm->g2disp);
	}
}

int gc_sample(struct lb_perf_ctx *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32, tid = pid_tgid;
	struct lb_gc_proc *p = gc_procs.lookup(&tgid);
	struct lb_gc_config *config = gc_config();

	if (!p || !config || !(config->flags & LB_GC_F_ON))
		return 0;
	struct lb_gc_samples *s = gc_samples.lookup(&tgid);

	if (!s) {
		struct lb_gc_samples fresh = {};

		gc_samples.insert(&tgid, &fresh);
		s = gc_samples.lookup(&tgid);
		if (!s) {
			gc_count(LB_GC_CNT_FULL);
			return 0;
		}
	}
	__sync_fetch_and_add(&s->all, 1);
	if (!LB_IS_KERNEL_PC(ctx->regs.ip))
		gc_learn_from(ctx, p, tgid, tid);

	struct lb_gc_tid *t = gc_tids.lookup(&tid);
	bool known = false;

	if (!t || t->tgid != tgid)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 n = 0; n < LB_GC_TID_VMS; n++) {
		struct lb_gc_vm *vm = &p->vms[t->vm[n] & (LB_VMS_MAX - 1)];
		__u64 g_addr = t->g_addr[n];
		__u32 vmstate = 0, state;

		if (!g_addr || !gc_is_vm(vm, g_addr))
			continue;
		if (!known)
			__sync_fetch_and_add(&s->known, 1);
		known = true;
		if (bpf_probe_read_user(&vmstate, 4,
					(void *)(g_addr + vm->g_vmstate)) ||
		    vmstate != ~vm->vm_gc)
			continue;
		state = gc_read_state(vm, g_addr);
		__sync_fetch_and_add(&s->in_gc, 1);
		if (state < LB_GC_PHASES)
			__sync_fetch_and_add(&s->phases[state], 1);
		break;
	}
	return 0;
}
