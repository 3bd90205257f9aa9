/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of the store of traces. The target is the test itself: the image is
 * mapped at the addresses it was made for.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "lb_test.h"
#include "trace_image.h"
#include "traces.h"

#define MANY	    6000 /* more than may wait */
#define FIRST_NO    8
#define HEADER_SIZE 128

struct made {
	struct img img;
	struct trace_world w;
	size_t mapped;
	struct lb_subject subject;
	struct lb_traces *traces;
	uint64_t begin_ns;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* MANY traces with the code of the one there is. */
static void make_many(struct made *made)
{
	struct img *img = &made->img;
	const struct lj_offsets *off = img->off;
	uint64_t table = img_alloc(img, 8 * (FIRST_NO + MANY));
	uint64_t headers = img_alloc(img, HEADER_SIZE * MANY);
	uint8_t header[HEADER_SIZE];

	CHECK_INT(img_read(img, made->w.trace, header, sizeof(header)), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		uint64_t at = headers + HEADER_SIZE * (uint64_t)i;

		img_put(img, at, header, sizeof(header));
		trace_u16(img, at + off->tr_traceno, FIRST_NO + i);
		img_ref(img, table + img_ref_size(img) * (FIRST_NO + i), at);
	}
	img_ref(img, made->w.g_addr + off->g_to_j + off->j_trace, table);
	img_u32(img, made->w.g_addr + off->g_to_j + off->j_sizetrace,
		FIRST_NO + MANY);
	made->w.table = table;
	made->w.trace = headers;
}

static void make(struct made *made, const struct lb_traces_bounds *bounds)
{
	struct lb_subject *subject = &made->subject;

	memset(made, 0, sizeof(*made));
	img_init(&made->img, trace_offsets(true));
	made->w = trace_world_make(&made->img);
	make_many(made);
	made->mapped = made->img.wr.size;
	void *at =
		mmap((void *)(uintptr_t)IMG_BASE, made->mapped,
		     PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at != (void *)(uintptr_t)IMG_BASE) {
		fprintf(stderr, "no room for the image\n");
		exit(1);
	}
	memcpy(at, made->img.wr.data, made->mapped);
	subject->pid = getpid();
	CHECK_INT(lb_proc_open(getpid(), &subject->proc), 0);
	CHECK_INT(lb_names_new(img_read, &made->img, &subject->names), 0);
	subject->entry.n_vms = 1;
	subject->entry.lj[0] = *made->img.off;
	CHECK_INT(lb_traces_new(bounds, &made->traces), 0);
	made->begin_ns = now_ns();
}

static void fini(struct made *made)
{
	lb_traces_free(made->traces);
	lb_names_free(made->subject.names);
	lb_proc_free(made->subject.proc);
	munmap((void *)(uintptr_t)IMG_BASE, made->mapped);
	img_fini(&made->img);
}

static struct lb_trace_key key_of(struct made *made, uint32_t i)
{
	const struct trace_world *w = &made->w;
	uint64_t addr = w->trace + HEADER_SIZE * (uint64_t)i;

	return (struct lb_trace_key){
		.subject = &made->subject,
		.g_addr = w->g_addr,
		.no = FIRST_NO + i,
		.id = LB_TRACE_ID(addr, w->mcode, TRACE_SIZE,
				  w->protos[TRACE_OUTER],
				  trace_pc(&made->img, w, TRACE_OUTER, 1),
				  (uint32_t)(LB_IR_BIAS + 8)),
		.pc = w->mcode + 9,
	};
}

static void want(struct made *made, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct lb_trace_key key = key_of(made, i);

		lb_traces_want(made->traces, &key, 0);
	}
}

static struct lb_tracemap *find(struct made *made, uint32_t i)
{
	struct lb_trace_key key = key_of(made, i);

	return lb_traces_find(made->traces, &key);
}

/* How many of the first @n traces there are maps of. */
static uint32_t count(struct made *made, uint32_t n)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct lb_tracemap *map = find(made, i);

		if (!map)
			continue;
		CHECK_INT(map->no, FIRST_NO + i);
		CHECK_INT(map->id, key_of(made, i).id);
		found++;
	}
	return found;
}

/* All that may have been copied by now. */
static uint64_t allowed(const struct made *made,
			const struct lb_traces_bounds *bounds)
{
	return bounds->burst +
	       (now_ns() - made->begin_ns) * bounds->rate / 1000000000 + 1;
}

static void test_copies_are_bounded_by_the_rate(void)
{
	const struct lb_traces_bounds bounds = {
		.traces = 1000, .bytes = 1 << 20, .rate = 100, .burst = 4
	};
	const uint32_t n = 20;
	struct made m;

	make(&m, &bounds);
	want(&m, 0, n);
	uint32_t got = count(&m, n);

	CHECK(got >= bounds.burst);
	while (got < n) {
		lb_traces_poll(m.traces);
		got = count(&m, n);
		CHECK(got <= allowed(&m, &bounds));
		if (now_ns() - m.begin_ns > 60000000000ULL)
			break;
		usleep(1000);
	}
	/* what was put off is copied in the end */
	CHECK_INT(got, n);
	CHECK(n <= allowed(&m, &bounds));
	fini(&m);
}

static void test_those_who_wait_are_bounded(void)
{
	const struct lb_traces_bounds bounds = {
		.traces = 2 * MANY, .bytes = 64 << 20, .rate = 1, .burst = 2
	};
	struct made m;

	make(&m, &bounds);
	want(&m, 0, MANY);
	uint32_t got = count(&m, MANY);

	CHECK(got >= bounds.burst && got <= allowed(&m, &bounds));
	lb_traces_poll(m.traces);
	/* forgotten, not copied and not refused for good */
	CHECK(!find(&m, MANY - 1));
	want(&m, MANY - 1, MANY);
	CHECK(count(&m, MANY) <= allowed(&m, &bounds));
	fini(&m);
}

static void test_maps_are_bounded_in_bytes(void)
{
	struct lb_traces_bounds bounds = {
		.traces = 1000, .bytes = 1 << 20, .rate = 1000, .burst = 1000
	};
	struct made m;

	make(&m, &bounds);
	want(&m, 0, 1);
	CHECK_INT(count(&m, 1), 1);
	size_t size = lb_tracemap_size(find(&m, 0));

	fini(&m);
	for (uint32_t n = 0; n < 5; n++) {
		/* the last one may go over it, and no other */
		bounds.bytes = n * size + size / 2;
		make(&m, &bounds);
		want(&m, 0, 100);
		CHECK_INT(count(&m, 100), n + 1);
		CHECK(find(&m, n) && !find(&m, n + 1));
		/* asked for again: still not there, nor are others harmed */
		want(&m, 0, 200);
		lb_traces_poll(m.traces);
		CHECK_INT(count(&m, 200), n + 1);
		fini(&m);
	}
}

static void test_traces_are_bounded_in_number(void)
{
	const struct lb_traces_bounds bounds = {
		.traces = 300, .bytes = 64 << 20, .rate = 1000, .burst = 1000
	};
	struct made m;

	make(&m, &bounds);
	want(&m, 0, 500);
	lb_traces_poll(m.traces);
	CHECK_INT(count(&m, 500), bounds.traces);
	CHECK(find(&m, bounds.traces - 1) && !find(&m, bounds.traces));
	fini(&m);
}

static void test_gone_traces_are_gone(void)
{
	const struct lb_traces_bounds bounds = {
		.traces = 4, .bytes = 1 << 20, .rate = 1000, .burst = 1000
	};
	struct made m;
	uint64_t none = 0;

	make(&m, &bounds);
	want(&m, 0, 1);
	/* flushed before they could be copied */
	for (uint32_t i = 1; i < 3; i++)
		memcpy((void *)(uintptr_t)(m.w.table + 8 * (FIRST_NO + i)),
		       &none, sizeof(none));
	want(&m, 1, 3);
	CHECK(find(&m, 0) && !find(&m, 1) && !find(&m, 2));
	/* they have taken their places */
	want(&m, 3, 6);
	CHECK_INT(count(&m, 6), 2);
	CHECK(find(&m, 3) && !find(&m, 4));
	/* a process that ended gives no copies, and keeps those there are */
	m.subject.gone = true;
	want(&m, 4, 6);
	CHECK_INT(count(&m, 6), 2);
	fini(&m);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_copies_are_bounded_by_the_rate),
		LB_TEST(test_those_who_wait_are_bounded),
		LB_TEST(test_maps_are_bounded_in_bytes),
		LB_TEST(test_traces_are_bounded_in_number),
		LB_TEST(test_gone_traces_are_gone),
	};

	return LB_TEST_MAIN(cases);
}
