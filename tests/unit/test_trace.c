/* SPDX-License-Identifier: Apache-2.0 */
/* Traces out of target memory: reader, frames of snapshots, map. */
#include "lb_test.h"
#include "trace_image.h"
#include "tracemap.h"

struct made {
	struct img img;
	struct trace_world w;
	struct lb_target target;
};

static void make(struct made *made, bool gc64)
{
	img_init(&made->img, trace_offsets(gc64));
	made->w = trace_world_make(&made->img);
	made->target = (struct lb_target){ .read = img_read,
					   .read_arg = &made->img,
					   .off = made->img.off,
					   .budget = 10000 };
}

static int read_it(struct made *made, struct lb_trace *trace)
{
	made->target.budget = 10000;
	return lb_trace_read(&made->target, made->w.g_addr, TRACE_NO, 0, trace);
}

static void test_read_gives_the_header(void)
{
	for (int gc64 = 0; gc64 < 2; gc64++) {
		struct made m;
		struct lb_trace trace;
		uint32_t no = 0;

		make(&m, gc64);
		CHECK_INT(read_it(&m, &trace), 0);
		CHECK_INT(trace.no, TRACE_NO);
		CHECK_INT(trace.root, 0);
		CHECK_INT(trace.n_snaps, TRACE_SNAPS);
		CHECK_INT(trace.szmcode, TRACE_SIZE);
		CHECK_INT(trace.startpt, m.w.protos[TRACE_OUTER]);
		CHECK_INT(lb_trace_check(&m.target, m.w.g_addr, &trace), 0);
		CHECK_INT(lb_trace_find(&m.target, m.w.g_addr, m.w.mcode + 9,
					&no),
			  0);
		CHECK_INT(no, TRACE_NO);
		CHECK_INT(lb_trace_find(&m.target, m.w.g_addr,
					m.w.mcode + TRACE_SIZE, &no),
			  -ENOENT);
		lb_trace_fini(&trace);
		img_fini(&m.img);
	}
}

static void test_snapshots_have_their_frames(void)
{
	/* function of each frame, and where it is called */
	static const int n_frames[TRACE_SNAPS] = { 1, 2, 3, 1 };

	for (int gc64 = 0; gc64 < 2; gc64++) {
		struct made m;
		struct lb_trace trace;
		static struct lb_trace_snap snap;

		make(&m, gc64);
		CHECK_INT(read_it(&m, &trace), 0);
		for (int i = 0; i < TRACE_SNAPS; i++) {
			int top = n_frames[i] - 1;

			CHECK_INT(lb_trace_snap(m.img.off, &trace, i, &snap),
				  0);
			CHECK_INT(snap.mcofs, 8 * i);
			CHECK_INT(snap.n_frames, n_frames[i]);
			CHECK_INT(snap.pc,
				  trace_pc(&m.img, &m.w, top, i == 3 ? 4 : 1));
			if (top > 0) {
				CHECK_INT(snap.frames[1].func,
					  m.w.funcs[TRACE_MIDDLE]);
				CHECK_INT(snap.frames[1].link,
					  LB_TRACE_LINK_LUA);
				CHECK_INT(snap.frames[1].caller_pc,
					  trace_pc(&m.img, &m.w, 0, 4));
			}
			if (top > 1) {
				CHECK_INT(snap.frames[2].func,
					  m.w.funcs[TRACE_INNER]);
				CHECK_INT(snap.frames[2].link,
					  LB_TRACE_LINK_CONT);
				CHECK_INT(snap.frames[2].caller_pc,
					  trace_pc(&m.img, &m.w, 1, 3));
			}
		}
		CHECK_INT(lb_trace_snap(m.img.off, &trace, TRACE_SNAPS, &snap),
			  -EBADMSG);
		lb_trace_fini(&trace);
		img_fini(&m.img);
	}
}

static int depth_at(const struct lb_tracemap *map, uint32_t ofs, bool *exact)
{
	const struct lb_trace_span *span =
		lb_tracemap_at(map, map->mcode + ofs);
	int depth = 0;

	CHECK(span);
	if (!span)
		return -1;
	*exact = span->exact;
	for (uint32_t i = span->node; i != LB_NODE_NONE;
	     i = map->nodes[i].parent)
		depth++;
	return depth;
}

static void test_map_has_the_chain_of_each_piece(void)
{
	/* the code of snapshot 0 is an addition: that of middle, not the code
	 * around it; that of 1 the lookup, and inner has another addition */
	for (int gc64 = 0; gc64 < 2; gc64++) {
		struct made m;
		struct lb_trace trace;
		struct lb_tracemap *map;
		struct lb_names *names;
		struct lb_funcs *funcs;
		bool exact;

		make(&m, gc64);
		CHECK_INT(read_it(&m, &trace), 0);
		CHECK_INT(lb_names_new(img_read, &m.img, &names), 0);
		CHECK_INT(lb_funcs_new(names, &funcs), 0);
		lb_funcs_round(funcs, &m.target, m.w.g_addr, 0);
		CHECK_INT(lb_tracemap_new(&m.target, funcs, &trace, &map), 0);
		CHECK_INT(depth_at(map, 8, &exact), 2);
		CHECK(exact);
		CHECK_INT(depth_at(map, 17, &exact), 3);
		CHECK(exact);
		CHECK_INT(depth_at(map, 24, &exact), 1);
		CHECK(exact);
		CHECK(!lb_tracemap_at(map, map->mcode + TRACE_SIZE));
		CHECK(!lb_tracemap_at(map, map->mcode - 1));
		lb_tracemap_free(map);
		lb_funcs_free(funcs);
		lb_names_free(names);
		lb_trace_fini(&trace);
		img_fini(&m.img);
	}
}

static void test_another_trace_with_the_number_is_refused(void)
{
	struct made m;
	struct lb_trace trace, other;

	make(&m, true);
	CHECK_INT(read_it(&m, &trace), 0);
	CHECK_INT(lb_trace_read(&m.target, m.w.g_addr, TRACE_NO, trace.id,
				&other),
		  0);
	lb_trace_fini(&other);
	/* the same number, flushed and recorded again elsewhere */
	trace_u64(&m.img, m.w.trace + m.img.off->tr_mcode, m.w.mcode + 16);
	CHECK_INT(lb_trace_check(&m.target, m.w.g_addr, &trace), -ESTALE);
	CHECK_INT(lb_trace_read(&m.target, m.w.g_addr, TRACE_NO, trace.id,
				&other),
		  -ESTALE);
	/* flushed, and nothing in its place */
	img_ref(&m.img, m.w.table + 8 * TRACE_NO, 0);
	CHECK_INT(lb_trace_check(&m.target, m.w.g_addr, &trace), -ESTALE);
	CHECK_INT(read_it(&m, &other), -ENOENT);
	lb_trace_fini(&trace);
	img_fini(&m.img);
}

static void test_sizes_that_cannot_be_are_refused(void)
{
	const struct {
		uint32_t field;
		uint64_t value;
		int err;
	} cases[] = {
		{ trace_offsets(true)->tr_nk, LB_IR_BIAS + 1, -EBADMSG },
		{ trace_offsets(true)->tr_nins, 0x20000, -EBADMSG },
		{ trace_offsets(true)->tr_nins, 0, -EBADMSG },
		{ trace_offsets(true)->tr_nsnapmap, 0xffffffff, -EBADMSG },
		{ trace_offsets(true)->tr_szmcode, 0xffffffff, -E2BIG },
		{ trace_offsets(true)->tr_szmcode, 0, -ENOENT },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct made m;
		struct lb_trace trace;

		make(&m, true);
		img_u32(&m.img, m.w.trace + cases[i].field,
			(uint32_t)cases[i].value);
		CHECK_INT(read_it(&m, &trace), cases[i].err);
		img_fini(&m.img);
	}
}

static void test_reads_that_fail_end_it(void)
{
	for (size_t at = 1; at < 12; at++) {
		struct made m;
		struct lb_trace trace;

		make(&m, true);
		m.img.fail_at = at;
		m.img.fail_onwards = true;
		int err = read_it(&m, &trace);

		if (!err)
			lb_trace_fini(&trace);
		CHECK(m.img.n_reads < at || err == -EFAULT);
		img_fini(&m.img);
	}
}

static void test_torn_snapshots_stay_inside(void)
{
	for (int gc64 = 0; gc64 < 2; gc64++) {
		struct made m;
		static struct lb_trace_snap snap;

		make(&m, gc64);
		for (uint32_t byte = 0; byte < m.img.off->sn_size; byte++) {
			struct lb_trace trace;

			CHECK_INT(read_it(&m, &trace), 0);
			trace.snaps[2 * m.img.off->sn_size + byte] = 0xff;
			int err = lb_trace_snap(m.img.off, &trace, 2, &snap);

			CHECK(!err || err == -EBADMSG || err == -E2BIG);
			lb_trace_fini(&trace);
		}
		img_fini(&m.img);
	}
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_read_gives_the_header),
		LB_TEST(test_snapshots_have_their_frames),
		LB_TEST(test_map_has_the_chain_of_each_piece),
		LB_TEST(test_another_trace_with_the_number_is_refused),
		LB_TEST(test_sizes_that_cannot_be_are_refused),
		LB_TEST(test_reads_that_fail_end_it),
		LB_TEST(test_torn_snapshots_stay_inside),
	};

	return LB_TEST_MAIN(cases);
}
