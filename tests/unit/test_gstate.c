/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMs in made-up memory, laid out by each entry of the table of offsets. And
 * the same memory damaged.
 */
#include <errno.h>
#include <stdlib.h>

#include "gstate.h"
#include "offsets.h"
#include "lb_test.h"

#define BASE	   UINT64_C(0x10000000) /* of the memory, below 4 GiB */
#define MEM_SIZE   (1 << 20)
#define L_OFF	   0x1010 /* where the VM begins, from BASE */
#define TRACES_OFF 0x8000
#define OBJECTS	   0x10000
#define AREA_1	   0x80000
#define AREA_2	   0x90000
#define VM_CODE	   UINT64_C(0x7f0000001000)

struct memory {
	uint8_t data[MEM_SIZE];
	const struct lj_offsets *off;
	uint64_t g_addr;
	size_t n_reads, fail_from; /* 0: none fails */
};

static int read_memory(void *arg, uint64_t addr, void *buf, size_t size)
{
	const struct memory *memory = arg;
	uint64_t at = addr - BASE;

	((struct memory *)arg)->n_reads++;
	if (memory->fail_from && memory->n_reads >= memory->fail_from)
		return -EFAULT;
	if (at > MEM_SIZE || size > MEM_SIZE - at)
		return -EFAULT;
	memcpy(buf, memory->data + at, size);
	return 0;
}

static void put(struct memory *memory, uint64_t addr, uint64_t value,
		size_t size)
{
	memcpy(memory->data + (addr - BASE), &value, size);
}

static void put_ref(struct memory *memory, uint64_t addr, uint64_t value)
{
	put(memory, addr, value, memory->off->gc64 ? 8 : 4);
}

/* Link an object in front of the list. */
static void add_object(struct memory *memory, unsigned int i, uint8_t gct)
{
	uint64_t root = memory->g_addr + memory->off->g_gc_root;
	uint64_t addr = BASE + OBJECTS + i * 112, next = 0;

	memcpy(&next, memory->data + (root - BASE), memory->off->gc64 ? 8 : 4);
	put_ref(memory, addr, next);
	put(memory, addr + memory->off->l_gct, gct, 1);
	put_ref(memory, root, addr);
}

/* Main thread, collector, 23 coroutines, 997 other objects. */
static void add_collector(struct memory *memory)
{
	const struct lj_offsets *off = memory->off;
	uint64_t g = memory->g_addr, l = BASE + L_OFF;

	put(memory, l + off->l_gct, LB_LUA_THREAD, 1);
	put_ref(memory, l + off->l_glref, g);
	put_ref(memory, g + off->g_mainthref, l);
	if (off->g_cur_l != LJ_OFFSETS_NONE)
		put_ref(memory, g + off->g_cur_l, l);
	put_ref(memory, g + off->g_gc_root, l);
	for (unsigned int i = 0; i < 997 + 23; i++)
		add_object(memory, i, i < 23 ? LB_LUA_THREAD : LB_LUA_TAB);
	put_ref(memory, g + off->g_gc_total, 123457);
	put_ref(memory, g + off->g_gc_threshold, 234571);
	put_ref(memory, g + off->g_gc_estimate, 345679);
	put(memory, g + off->g_gc_state, 4, 1);
}

/* Two traces among empty places, two areas, the dispatch table. */
static void add_jit(struct memory *memory, bool jit)
{
	const struct lj_offsets *off = memory->off;
	uint64_t j = memory->g_addr + off->g_to_j;
	uint64_t dispatch = memory->g_addr + off->g2disp + off->static_dispatch;

	if (off->j_trace != LJ_OFFSETS_NONE) {
		put_ref(memory, j + off->j_trace, BASE + TRACES_OFF);
		put(memory, j + off->j_sizetrace, 1000, 4);
		for (int i = 100; i <= 300; i += 200)
			put_ref(memory,
				BASE + TRACES_OFF + i * (off->gc64 ? 8 : 4),
				BASE + OBJECTS);
	}
	put(memory, j + off->j_mcarea, BASE + AREA_1, 8);
	put(memory, j + off->j_szmcarea, 65536, 8);
	put(memory, BASE + AREA_1, BASE + AREA_2, 8);
	put(memory, BASE + AREA_1 + 8, 32768, 8);
	for (unsigned int i = 0; i < off->bc_fori + 5; i++)
		put(memory, dispatch + 8 * i, VM_CODE + 16 * i, 8);
	if (!jit) /* FORL as IFORL */
		put(memory, dispatch + 8 * (off->bc_fori + 2),
		    VM_CODE + 16 * (off->bc_fori + 3), 8);
}

static void make_vm(struct memory *memory, const struct lj_offsets *off,
		    bool jit)
{
	memset(memory, 0, sizeof(*memory));
	memory->off = off;
	memory->g_addr = BASE + L_OFF + off->l_size;
	add_collector(memory);
	add_jit(memory, jit);
}

static int read_vm(struct memory *memory, struct lb_gstate *gstate_ret)
{
	struct lb_target target = { .read = read_memory,
				    .read_arg = memory,
				    .off = memory->off,
				    .budget = 4000000 };

	memory->n_reads = 0;
	return lb_gstate_read(&target, memory->g_addr, gstate_ret);
}

static struct memory *memory; /* too large for the stack */

static void check_vm(const struct lj_offsets *off, bool jit)
{
	struct lb_gstate gstate;

	make_vm(memory, off, jit);
	CHECK_INT(read_vm(memory, &gstate), 0);
	CHECK_INT(gstate.g_addr, memory->g_addr);
	CHECK_INT(gstate.main_l_addr, BASE + L_OFF);
	CHECK_INT(gstate.n_objects, 1 + 23 + 997);
	CHECK_INT(gstate.n_threads, 1 + 23);
	CHECK(gstate.n_threads_exact);
	CHECK_INT(gstate.gc_total_bytes, 123457);
	CHECK_INT(gstate.gc_threshold_bytes, 234571);
	CHECK_INT(gstate.gc_estimate_bytes, 345679);
	CHECK_STR(lb_gstate_phase(gstate.gc_phase), "sweep");
	CHECK_INT(gstate.n_mcode_areas, 2);
	CHECK_INT(gstate.mcode_bytes, 65536 + 32768);
	CHECK_INT(gstate.jit, jit ? LB_GSTATE_JIT_ON : LB_GSTATE_JIT_OFF);
	if (off->j_trace == LJ_OFFSETS_NONE)
		CHECK_INT(gstate.n_traces, LB_GSTATE_UNKNOWN);
	else
		CHECK_INT(gstate.n_traces, 2);
}

static void test_read_each_build(void)
{
	const struct lj_offsets *off;
	const char *name;
	size_t n = 0;

	for (; !lb_offsets_entry(n, &off, &name); n++) {
		int before = lb_test_failed_checks;

		check_vm(off, true);
		check_vm(off, false);
		if (lb_test_failed_checks != before)
			fprintf(stderr, "entry: %s\n", name);
	}
	CHECK(n > 8);
}

static const struct lj_offsets *first_entry(void)
{
	const struct lj_offsets *off;
	const char *name;

	return lb_offsets_entry(0, &off, &name) ? NULL : off;
}

static void test_read_when_it_is_no_vm(void)
{
	const struct lj_offsets *off = first_entry();
	struct lb_gstate gstate;

	make_vm(memory, off, true);
	put(memory, BASE + L_OFF + off->l_gct, LB_LUA_TAB, 1);
	CHECK_INT(read_vm(memory, &gstate), -EBADMSG);
	make_vm(memory, off, true);
	put_ref(memory, BASE + L_OFF + off->l_glref, BASE);
	CHECK_INT(read_vm(memory, &gstate), -EBADMSG);
	make_vm(memory, off, true);
	memory->fail_from = 1;
	CHECK_INT(read_vm(memory, &gstate), -EFAULT);
}

/* A list that leads astray gives the part that was right, and says so. */
static void test_read_when_the_list_is_torn(void)
{
	const struct lj_offsets *off = first_entry();
	struct lb_gstate gstate;

	make_vm(memory, off, true);
	/* object 500: newer ones, 501 to 1019, are before it in the list */
	put(memory, BASE + OBJECTS + 500 * 112 + off->l_gct, 77, 1);
	CHECK_INT(read_vm(memory, &gstate), 0);
	CHECK_INT(gstate.n_objects, 997 + 23 - 501);
	CHECK_INT(gstate.n_threads, 1); /* the main one */
	CHECK(!gstate.n_threads_exact);
	make_vm(memory, off, true);
	put_ref(memory, BASE + OBJECTS + 500 * 112, 1);
	CHECK_INT(read_vm(memory, &gstate), 0);
	CHECK(!gstate.n_threads_exact);
	CHECK_INT(gstate.n_objects, 997 + 23 - 500);
}

static void test_read_when_the_list_is_a_ring(void)
{
	const struct lj_offsets *off = first_entry();
	struct lb_gstate gstate;

	make_vm(memory, off, true);
	put_ref(memory, BASE + OBJECTS, BASE + OBJECTS + 1019 * 112);
	CHECK_INT(read_vm(memory, &gstate), 0);
	CHECK_INT(gstate.n_objects, LB_GSTATE_OBJECTS_MAX);
	CHECK(!gstate.n_threads_exact);
}

static void test_read_when_areas_are_a_ring(void)
{
	struct lb_gstate gstate;

	make_vm(memory, first_entry(), true);
	put(memory, BASE + AREA_2, BASE + AREA_1, 8);
	put(memory, BASE + AREA_2 + 8, 65536, 8);
	CHECK_INT(read_vm(memory, &gstate), 0);
	CHECK_INT(gstate.n_mcode_areas, LB_GSTATE_UNKNOWN);
	CHECK_INT(gstate.n_threads, 24);
}

static void test_read_when_the_number_of_traces_is_wild(void)
{
	const struct lj_offsets *off = first_entry();
	struct lb_gstate gstate;

	make_vm(memory, off, true);
	put(memory, memory->g_addr + off->g_to_j + off->j_sizetrace, UINT32_MAX,
	    4);
	CHECK_INT(read_vm(memory, &gstate), 0);
	CHECK_INT(gstate.n_traces, LB_GSTATE_UNKNOWN);
}

/* Each read fails once: what it was for is unknown, never wrong. */
static void test_read_when_reads_fail(void)
{
	struct lb_gstate whole, part;

	make_vm(memory, first_entry(), true);
	CHECK_INT(read_vm(memory, &whole), 0);
	for (size_t at = 1, n = memory->n_reads; at <= n && at < 100; at++) {
		memory->fail_from = at;
		if (read_vm(memory, &part))
			continue;
		CHECK(part.gc_total_bytes == whole.gc_total_bytes ||
		      part.gc_total_bytes == LB_GSTATE_UNKNOWN);
		CHECK(part.n_traces == whole.n_traces ||
		      part.n_traces == LB_GSTATE_UNKNOWN);
		CHECK(part.jit == whole.jit ||
		      part.jit == LB_GSTATE_JIT_UNKNOWN);
		CHECK(part.n_threads == whole.n_threads ||
		      !part.n_threads_exact);
	}
}

/* Without budget nothing is known; with little of it, less, and no wrong. */
static void test_read_when_the_budget_is_small(void)
{
	struct lb_gstate gstate;

	make_vm(memory, first_entry(), true);
	for (uint32_t budget = 0; budget < 60; budget++) {
		struct lb_target target = { .read = read_memory,
					    .read_arg = memory,
					    .off = memory->off,
					    .budget = budget };
		int err = lb_gstate_read(&target, memory->g_addr, &gstate);

		CHECK(err == 0 || (err == -E2BIG && budget < 3));
		CHECK_INT(gstate.g_addr, memory->g_addr);
		if (!err && gstate.n_threads != LB_GSTATE_UNKNOWN)
			CHECK(gstate.n_threads == 24 ||
			      !gstate.n_threads_exact);
		if (err)
			CHECK_INT(gstate.jit, LB_GSTATE_JIT_UNKNOWN);
	}
}

static void test_phase_words(void)
{
	CHECK_STR(lb_gstate_phase(0), "pause");
	CHECK_STR(lb_gstate_phase(5), "finalize");
	CHECK_STR(lb_gstate_phase(6), "unknown");
	CHECK_STR(lb_gstate_phase(LB_GSTATE_UNKNOWN), "unknown");
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_read_each_build),
		LB_TEST(test_read_when_it_is_no_vm),
		LB_TEST(test_read_when_the_list_is_torn),
		LB_TEST(test_read_when_the_list_is_a_ring),
		LB_TEST(test_read_when_areas_are_a_ring),
		LB_TEST(test_read_when_the_number_of_traces_is_wild),
		LB_TEST(test_read_when_reads_fail),
		LB_TEST(test_read_when_the_budget_is_small),
		LB_TEST(test_phase_words),
	};

	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return 1;
	int status = LB_TEST_MAIN(cases);

	free(memory);
	return status;
}
