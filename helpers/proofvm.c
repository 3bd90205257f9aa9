/* SPDX-License-Identifier: Apache-2.0 */
/* Proof: global_State, threads with their stacks, and where objects are. */
#include <string.h>

#include "proofrun.h"

#define L_SIZE_MIN   48
#define L_SIZE_MAX   512 /* bytes of lua_State; 64 to 112 were seen */
#define OBJECTS_MAX  4096
#define OBJECTS_MIN  4 /* so many in a row are a list */
#define NODES_MAX    1024
#define NODE_MAX     64 /* bytes */
#define SLOTS_MAX    512
#define FRAMES_MAX   4096
#define ROOTS_MAX    64
#define MAXSTACK     (16 << 20) /* slots */
#define CFRAMES_SIZE (1ULL << 30)
#define GC_STATE_MAX 5
#define VMSTATE_MAX  16
#define TRACE_MAX    65535

static uint32_t ref_size(const struct lb_proof_run *run)
{
	return run->off.gc64 ? 8 : 4;
}

/* 1 or 2 slots of a frame, bytes. */
static uint32_t frame_size(const struct lb_proof_run *run)
{
	return run->off.gc64 ? 16 : 8;
}

static bool in_g(const struct lb_proof_run *run, uint32_t off, uint32_t size)
{
	return off <= run->g_size && size <= run->g_size - off;
}

static uint64_t g_ref(const struct lb_proof_run *run, uint32_t off)
{
	return in_g(run, off, ref_size(run))
		       ? lb_target_ref(&run->target, run->g + off)
		       : 0;
}

/* Where global_State ends, as far as it is known. */
static uint32_t g_end(const struct lb_proof_run *run)
{
	uint32_t end = LB_HAS(run, g_to_j) ? run->off.g_to_j : LB_PROOF_G_SIZE;

	return end < run->g_size ? end : (uint32_t)run->g_size;
}

/* ---- tables ---- */

typedef void (*node_fn)(struct lb_proof_run *run, uint64_t key, uint64_t value,
			void *arg);

static bool each_node(struct lb_proof_run *run, uint64_t tab, node_fn fn,
		      void *arg)
{
	const struct lj_offsets *off = &run->off;
	uint8_t node[NODE_MAX], buf[4];
	uint64_t nodes;
	uint32_t n;

	if (!LB_HAS(run, tab_node) || !LB_HAS(run, tab_hmask) ||
	    off->node_size > NODE_MAX || off->node_key > NODE_MAX - 8 ||
	    off->node_val > NODE_MAX - 8 ||
	    !lb_proof_read(run, tab + off->tab_hmask, buf, sizeof(buf)))
		return false;
	n = lb_proof_u32(buf, 0);
	nodes = lb_proof_ref(run, tab + off->tab_node);
	if (!nodes || n & (n + 1))
		return false;
	for (uint32_t i = 0; i <= n && i < NODES_MAX; i++) {
		uint64_t at = nodes + (uint64_t)i * off->node_size;

		if (!lb_proof_read(run, at, node, off->node_size))
			return false;
		fn(run, lb_proof_u64(node, off->node_key),
		   lb_proof_u64(node, off->node_val), arg);
	}
	return true;
}

static void find_loaded(struct lb_proof_run *run, uint64_t key, uint64_t value,
			void *arg)
{
	bool *found = arg;

	if (!*found && lb_target_type(&run->target, key) == LB_LUA_STR &&
	    lb_target_type(&run->target, value) == LB_LUA_TAB)
		*found = lb_proof_is_str(
			run, lb_target_object(&run->target, key), "_LOADED");
}

static void collect_func(struct lb_proof_run *run, uint64_t key, uint64_t value,
			 void *arg)
{
	(void)key;
	(void)arg;
	if (lb_target_type(&run->target, value) == LB_LUA_FUNC)
		lb_proof_add(&run->funcs,
			     lb_target_object(&run->target, value));
}

static bool is_table(struct lb_proof_run *run, uint64_t addr)
{
	uint8_t buf[4];
	uint32_t hmask;

	if (!lb_proof_is(run, addr, LB_LUA_TAB))
		return false;
	if (!LB_HAS(run, tab_hmask))
		return true;
	if (!lb_proof_read(run, addr + run->off.tab_hmask, buf, sizeof(buf)))
		return false;
	hmask = lb_proof_u32(buf, 0);
	return !(hmask & (hmask + 1));
}

/* ---- global_State ---- */

/* The thread of a string buffer, behind three pointers into its memory. */
static bool is_in_buffer(const struct lb_proof_run *run, uint32_t off)
{
	uint32_t ref = ref_size(run);
	uint64_t low = 0, a, b;

	if (off < 3 * ref)
		return false;
	a = g_ref(run, off - 3 * ref);
	b = g_ref(run, off - 2 * ref);
	low = g_ref(run, off - ref);
	return low && low <= a && low <= b && a - low < 1U << 30 &&
	       b - low < 1U << 30;
}

/* lua_State and global_State are one allocation, one behind the other. */
static void find_main(struct lb_proof_run *run)
{
	uint32_t n = 0, end = run->off.g_jit_base, at = 0, begin = 0;
	uint64_t main_l = 0;

	for (uint32_t size = L_SIZE_MIN; size <= L_SIZE_MAX; size += 8) {
		if (!lb_proof_is_thread(run, run->g_addr - size))
			continue;
		main_l = run->g_addr - size;
		n++;
	}
	if (n != 1)
		return;
	if (LB_HAS(run, g_cur_l) && run->off.g_cur_l < end)
		end = run->off.g_cur_l; /* which may be the same thread */
	/* lists of the collector may begin with it */
	if (LB_HAS(run, g_gc_estimate))
		begin = run->off.g_gc_estimate;
	n = 0;
	for (uint32_t off = begin; off < end; off += ref_size(run)) {
		if (!in_g(run, off, 8) || g_ref(run, off) != main_l ||
		    is_in_buffer(run, off))
			continue;
		at = off;
		n++;
	}
	if (n != 1)
		return;
	run->main_l = main_l;
	LB_FIND(run, g_mainthref, at);
	LB_FIND(run, l_size, run->g_addr - main_l);
	lb_proof_note(run, LB_CHECK_MAIN, true, NULL, 0);
}

static void check_main(struct lb_proof_run *run)
{
	uint64_t main_l;

	if (!LB_HAS(run, g_mainthref)) {
		find_main(run);
		return;
	}
	main_l = g_ref(run, run->off.g_mainthref);
	if (!lb_proof_note(run, LB_CHECK_MAIN, lb_proof_is_thread(run, main_l),
			   "mainthref is no thread of this VM", run->g_addr))
		return;
	run->main_l = main_l;
	if (!LB_HAS(run, l_size))
		LB_FIND(run, l_size, run->g_addr - main_l);
	lb_proof_note(run, LB_CHECK_MAIN,
		      main_l + run->off.l_size == run->g_addr,
		      "the main thread does not end at G", main_l);
}

static void check_env(struct lb_proof_run *run)
{
	uint64_t env;

	if (!run->main_l || !LB_HAS(run, l_env))
		return;
	env = lb_proof_ref(run, run->main_l + run->off.l_env);
	if (lb_proof_note(run, LB_CHECK_ENV, is_table(run, env),
			  "the globals are no table", run->main_l))
		each_node(run, env, collect_func, NULL);
}

static void check_state(struct lb_proof_run *run)
{
	const struct lj_offsets *off = &run->off;

	if (in_g(run, off->g_vmstate, 4)) {
		int32_t state = (int32_t)lb_proof_u32(run->g, off->g_vmstate);

		lb_proof_note(run, LB_CHECK_STATE,
			      state < 0 ? ~state < VMSTATE_MAX
					: state <= TRACE_MAX,
			      "vmstate is no state", run->g_addr);
	}
	if (LB_HAS(run, g_gc_state) && in_g(run, off->g_gc_state, 1))
		lb_proof_note(run, LB_CHECK_STATE,
			      run->g[off->g_gc_state] <= GC_STATE_MAX,
			      "gc.state is no state", run->g_addr);
}

static bool is_registry(struct lb_proof_run *run, uint32_t off, bool *loaded)
{
	uint64_t value = in_g(run, off, 8) ? lb_proof_u64(run->g, off) : 0;
	uint64_t tab = lb_target_object(&run->target, value);

	*loaded = false;
	if (lb_target_type(&run->target, value) != LB_LUA_TAB ||
	    !is_table(run, tab))
		return false;
	each_node(run, tab, find_loaded, loaded);
	return true;
}

static void check_registry(struct lb_proof_run *run)
{
	uint32_t at = 0, n = 0;
	bool loaded;

	if (LB_HAS(run, g_registry)) {
		lb_proof_note(run, LB_CHECK_REGISTRY,
			      is_registry(run, run->off.g_registry, &loaded),
			      "the registry is no table", run->g_addr);
		return;
	}
	for (uint32_t off = 0; off + 8 <= g_end(run); off += 8) {
		if (!is_registry(run, off, &loaded) || !loaded)
			continue;
		at = off;
		n++;
	}
	if (n != 1)
		return;
	LB_FIND(run, g_registry, at);
	lb_proof_note(run, LB_CHECK_REGISTRY, true, NULL, 0);
}

static bool are_roots(struct lb_proof_run *run, uint32_t off)
{
	return lb_proof_is_str(run, g_ref(run, off), "__index") &&
	       lb_proof_is_str(run, g_ref(run, off + ref_size(run)),
			       "__newindex");
}

/* None, or an object of a kind that is kept there. */
static bool is_root(struct lb_proof_run *run, uint32_t off)
{
	uint64_t addr = g_ref(run, off);
	uint8_t gct;

	if (!addr)
		return true;
	return !(addr & 3) &&
	       lb_proof_read(run, addr + run->off.fn_gct, &gct, 1) &&
	       (gct == LB_LUA_STR || gct == LB_LUA_TAB || gct == LB_LUA_UDATA ||
		gct == LB_LUA_FUNC || gct == LB_LUA_THREAD);
}

static void check_roots(struct lb_proof_run *run)
{
	uint32_t n = run->off.g_n_gcroot, ref = ref_size(run);
	uint32_t end = g_end(run);

	if (!LB_HAS(run, str_len) || !LB_HAS(run, str_size))
		return;
	for (uint32_t off = 0; !LB_HAS(run, g_gcroot) && off + 2 * ref <= end;
	     off += ref)
		if (are_roots(run, off))
			LB_FIND(run, g_gcroot, off);
	if (!LB_HAS(run, g_gcroot) ||
	    !lb_proof_note(
		    run, LB_CHECK_ROOTS, are_roots(run, run->off.g_gcroot),
		    "the first roots are not __index, __newindex", run->g_addr))
		return;
	if (n == LJ_OFFSETS_NONE) {
		/* at most; what is behind the last is empty or looked at */
		for (n = 0; n < ROOTS_MAX &&
			    run->off.g_gcroot + (n + 1) * ref <= end &&
			    is_root(run, run->off.g_gcroot + n * ref);)
			n++;
		LB_FIND(run, g_n_gcroot, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t off = run->off.g_gcroot + i * ref;

		if (!lb_proof_note(run, LB_CHECK_ROOTS,
				   off + ref <= end && is_root(run, off),
				   "more roots than there is room for",
				   run->g_addr))
			break;
	}
}

bool lb_proof_globals(struct lb_proof_run *run)
{
	const struct lj_offsets *off = &run->off;
	bool circle = false;

	run->g_size = LB_HAS(run, g_to_j) ? off->g_to_j : 1024;
	if (run->g_size > LB_PROOF_G_SIZE || (run->g_addr & 7) ||
	    !lb_proof_read(run, run->g_addr, run->g, run->g_size))
		return false;
	if (LB_HAS(run, g_cur_l)) {
		run->cur_l = g_ref(run, off->g_cur_l);
		circle = lb_proof_is_thread(run, run->cur_l);
	}
	check_main(run);
	if (!circle && !run->main_l)
		return false;
	if (LB_HAS(run, g_cur_l))
		lb_proof_note(run, LB_CHECK_CIRCLE, circle,
			      "cur_L is no thread of this VM", run->g_addr);
	if (!circle)
		run->cur_l = 0;
	check_env(run);
	check_state(run);
	check_registry(run);
	check_roots(run);
	return true;
}

/* ---- objects ---- */

void lb_proof_objects(struct lb_proof_run *run)
{
	uint64_t addr =
		LB_HAS(run, g_gc_root) ? g_ref(run, run->off.g_gc_root) : 0;
	uint8_t head[16];
	int n = 0;

	for (; addr && n < OBJECTS_MAX; n++) {
		uint8_t gct;

		if (addr & 3 || !lb_proof_read(run, addr, head, sizeof(head)))
			break;
		gct = head[run->off.fn_gct & 15];
		if (gct < LB_LUA_STR || gct > LB_LUA_UDATA)
			break;
		if (gct == LB_LUA_THREAD && lb_proof_is_thread(run, addr))
			lb_proof_add(&run->threads, addr);
		else if (gct == LB_LUA_FUNC)
			lb_proof_add(&run->funcs, addr);
		else if (gct == LB_LUA_PROTO)
			lb_proof_add(&run->protos, addr);
		addr = lb_target_ref(&run->target, head);
	}
	if (LB_HAS(run, g_gc_root))
		lb_proof_note(run, LB_CHECK_OBJECTS, n >= OBJECTS_MIN || !addr,
			      "gc.root is no list of objects", addr);
}

/* ---- threads ---- */

struct thread {
	uint64_t addr, stack, base, top, maxstack;
};

static bool read_thread(struct lb_proof_run *run, uint64_t addr,
			struct thread *thread)
{
	const struct lj_offsets *off = &run->off;

	thread->addr = addr;
	thread->stack = lb_proof_ref(run, addr + off->l_stack);
	thread->base = off->gc64 ? lb_proof_ref(run, addr + off->l_base) : 0;
	thread->maxstack = lb_proof_ref(run, addr + off->l_maxstack);
	thread->top = 0;
	return thread->stack != 0;
}

/* base and top are plain pointers in both modes. */
static uint64_t read_pointer(struct lb_proof_run *run, uint64_t addr)
{
	uint8_t buf[8];

	return lb_proof_read(run, addr, buf, 8) ? lb_proof_u64(buf, 0) : 0;
}

static bool check_stack(struct lb_proof_run *run, struct thread *thread)
{
	const struct lj_offsets *off = &run->off;
	uint64_t size, limit, first;
	uint8_t last[8];

	if (!LB_HAS(run, l_top) || !read_thread(run, thread->addr, thread))
		return lb_proof_note(run, LB_CHECK_STACK, false,
				     "there is no stack", thread->addr);
	thread->base = read_pointer(run, thread->addr + off->l_base);
	thread->top = read_pointer(run, thread->addr + off->l_top);
	size = thread->maxstack - thread->stack;
	limit = thread->maxstack + 64 * 8;
	if ((thread->stack | thread->base | thread->top | thread->maxstack) &
		    7 ||
	    size < 8 * 16 || size > 8ULL * MAXSTACK ||
	    thread->base < thread->stack + frame_size(run) ||
	    thread->base > limit || thread->top < thread->stack ||
	    thread->top > limit ||
	    !lb_proof_read(run, thread->maxstack, last, sizeof(last)))
		return lb_proof_note(run, LB_CHECK_STACK, false,
				     "stack, base, top, maxstack are out of "
				     "order",
				     thread->addr);
	/* so that each base has a function below it. LuaJIT 2.0 clears the
	 * type when it clears the stack */
	first = read_pointer(run, thread->stack);
	return lb_proof_note(
		run, LB_CHECK_STACK,
		(!off->gc64 ||
		 lb_target_type(&run->target, first) == LB_LUA_THREAD) &&
			lb_target_object(&run->target, first) == thread->addr,
		"the first slot of the stack is not its thread", thread->addr);
}

static void check_cframe(struct lb_proof_run *run, const struct thread *thread)
{
	const struct lj_offsets *off = &run->off;
	uint64_t cf = read_pointer(run, thread->addr + off->l_cframe) & ~3ULL;
	uint64_t prev;

	if (!cf)
		return;
	prev = read_pointer(run, cf + off->cf_prev) & ~3ULL;
	lb_proof_note(run, LB_CHECK_CFRAME,
		      !(cf & 7) &&
			      lb_proof_ref(run, cf + off->cf_l) == thread->addr,
		      "the C frame has another L", thread->addr);
	lb_proof_note(run, LB_CHECK_CFRAME,
		      !prev || (prev > cf && prev - cf < CFRAMES_SIZE),
		      "the C frame before it is not outside", thread->addr);
}

/* Return: the base of the caller's frame, 0 if there is none. */
static uint64_t frame_below(struct lb_proof_run *run, uint64_t base)
{
	uint64_t link, delta;
	uint8_t buf[4];

	if (run->off.gc64) {
		link = read_pointer(run, base - 8);
	} else {
		if (!lb_proof_read(run, base - 4, buf, sizeof(buf)))
			return 0;
		link = lb_proof_u32(buf, 0);
	}
	if (link & 3) {
		delta = link & ~7ULL;
	} else {
		if (!lb_proof_read(run, link - 4, buf, sizeof(buf)))
			return 0;
		delta = 8ULL * buf[1] + frame_size(run);
	}
	return delta && delta < base ? base - delta : 0;
}

/* A thread that waits, for its L->base is kept. */
static void check_frames(struct lb_proof_run *run, const struct thread *thread)
{
	uint64_t bottom = thread->stack + frame_size(run);
	uint64_t base = thread->base;
	int n = 0;

	if (thread->addr == run->cur_l || base == bottom || !run->cur_l)
		return;
	while (base > bottom && n++ < FRAMES_MAX)
		base = frame_below(run, base);
	if (n < FRAMES_MAX)
		lb_proof_note(run, LB_CHECK_FRAMES, base == bottom,
			      "frames do not reach the bottom of the stack",
			      thread->addr);
}

static void collect_slots(struct lb_proof_run *run, const struct thread *thread)
{
	uint64_t slots[SLOTS_MAX];
	/* what is above the top may be gone; top and base may be old */
	uint64_t end = thread->top > thread->base ? thread->top : thread->base;
	uint64_t n = (end - thread->stack) / 8;

	if (n > SLOTS_MAX)
		n = SLOTS_MAX;
	if (!lb_proof_read(run, thread->stack, slots, n * 8))
		return;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t addr = lb_target_object(&run->target, slots[i]);
		unsigned int type = lb_target_type(&run->target, slots[i]);

		if (type == LB_LUA_FUNC && lb_proof_is(run, addr, type))
			lb_proof_add(&run->funcs, addr);
		else if (type == LB_LUA_THREAD && lb_proof_is_thread(run, addr))
			lb_proof_add(&run->threads, addr);
	}
}

void lb_proof_threads(struct lb_proof_run *run)
{
	uint64_t jit_base = g_ref(run, run->off.g_jit_base);

	if (run->main_l)
		lb_proof_add(&run->threads, run->main_l);
	if (run->cur_l)
		lb_proof_add(&run->threads, run->cur_l);
	/* the list may grow */
	for (size_t i = 0; i < run->threads.n; i++) {
		struct thread thread = { .addr = run->threads.addrs[i] };

		if (!check_stack(run, &thread))
			continue;
		check_cframe(run, &thread);
		check_frames(run, &thread);
		collect_slots(run, &thread);
		if (thread.addr == run->cur_l)
			lb_proof_note(
				run, LB_CHECK_STATE,
				!jit_base || (!(jit_base & 7) &&
					      jit_base > thread.stack &&
					      jit_base <= thread.maxstack),
				"jit_base is not on the stack", run->g_addr);
	}
}
