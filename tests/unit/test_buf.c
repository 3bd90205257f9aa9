/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lb_buf: values at and around the ends of what fits.
 */
#include "buf.h"
#include "lb_test.h"

#define BUF(name, bytes)                             \
	static const uint8_t name##_bytes[] = bytes; \
	struct lb_buf name;                          \
	lb_buf_init(&name, name##_bytes, sizeof(name##_bytes), 0x1000)
#define BYTES(...)          \
	{                   \
		__VA_ARGS__ \
	}

static void test_fixed_in_order(void)
{
	BUF(buf, BYTES(1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0x80));

	CHECK_INT(lb_buf_u8(&buf), 1);
	CHECK_INT(lb_buf_u16(&buf), 2);
	CHECK_INT(lb_buf_vaddr(&buf), 0x1003);
	CHECK_INT(lb_buf_u32(&buf), 3);
	CHECK(lb_buf_u64(&buf) == UINT64_C(0x8000000000000004));
	CHECK_INT(lb_buf_left(&buf), 0);
	CHECK(!buf.bad);
}

static void test_fixed_past_end(void)
{
	BUF(buf, BYTES(1, 2, 3));

	CHECK_INT(lb_buf_u32(&buf), 0);
	CHECK(buf.bad);
	CHECK_INT(lb_buf_left(&buf), 0);
	CHECK_INT(lb_buf_u8(&buf), 0);
	CHECK_INT(lb_buf_u64(&buf), 0);
}

static void test_empty(void)
{
	struct lb_buf buf;

	lb_buf_init(&buf, NULL, 0, 0);
	CHECK_INT(lb_buf_left(&buf), 0);
	lb_buf_skip(&buf, 0);
	lb_buf_seek(&buf, 0);
	CHECK(!buf.bad);
	CHECK(!lb_buf_str(&buf));
	CHECK(buf.bad);
}

static void test_uleb(void)
{
	static const struct {
		uint8_t bytes[12];
		size_t size;
		uint64_t want;
		bool bad;
	} cases[] = {
		{ { 0x00 }, 1, 0, false },
		{ { 0x7f }, 1, 127, false },
		{ { 0x80, 0x01 }, 2, 128, false },
		{ { 0xe5, 0x8e, 0x26 }, 3, 624485, false },
		{ { 0x80, 0x80, 0x00 }, 3, 0, false }, /* padded */
		{ { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		    0x01 },
		  10,
		  UINT64_MAX,
		  false },
		{ { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81,
		    0x00 },
		  11,
		  UINT64_MAX,
		  false },
		{ { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		    0x02 },
		  10,
		  0,
		  true },
		{ { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
		    0x01 },
		  11,
		  0,
		  true },
		{ { 0x80 }, 1, 0, true },
		{ { 0 }, 0, 0, true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct lb_buf buf;

		lb_buf_init(&buf, cases[i].bytes, cases[i].size, 0);
		CHECK(lb_buf_uleb(&buf) == cases[i].want);
		CHECK_INT(buf.bad, cases[i].bad);
		CHECK_INT(lb_buf_left(&buf), 0);
	}
}

static void test_sleb(void)
{
	static const struct {
		uint8_t bytes[12];
		size_t size;
		int64_t want;
		bool bad;
	} cases[] = {
		{ { 0x00 }, 1, 0, false },
		{ { 0x3f }, 1, 63, false },
		{ { 0x40 }, 1, -64, false },
		{ { 0x7f }, 1, -1, false },
		{ { 0x78 }, 1, -8, false },
		{ { 0xc0, 0xbb, 0x78 }, 3, -123456, false },
		{ { 0xff, 0x7f }, 2, -1, false }, /* padded */
		{ { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
		    0x7f },
		  10,
		  INT64_MIN,
		  false },
		{ { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		    0x00 },
		  10,
		  INT64_MAX,
		  false },
		{ { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		    0x7f },
		  11,
		  -1,
		  false },
		{ { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		    0x01 },
		  10,
		  0,
		  true },
		{ { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		    0x00 },
		  11,
		  0,
		  true },
		{ { 0xff }, 1, 0, true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct lb_buf buf;

		lb_buf_init(&buf, cases[i].bytes, cases[i].size, 0);
		CHECK(lb_buf_sleb(&buf) == cases[i].want);
		CHECK_INT(buf.bad, cases[i].bad);
	}
}

static void test_str(void)
{
	BUF(buf, BYTES('a', 'b', 0, 0, 'c'));

	CHECK_STR(lb_buf_str(&buf), "ab");
	CHECK_STR(lb_buf_str(&buf), "");
	CHECK(!lb_buf_str(&buf));
	CHECK(buf.bad);
}

static void test_skip_and_seek(void)
{
	BUF(buf, BYTES(1, 2, 3, 4));

	lb_buf_skip(&buf, 3);
	CHECK_INT(lb_buf_u8(&buf), 4);
	lb_buf_seek(&buf, 1);
	CHECK_INT(lb_buf_u8(&buf), 2);
	lb_buf_seek(&buf, 4);
	CHECK(!buf.bad);
	lb_buf_seek(&buf, 5);
	CHECK(buf.bad);
	lb_buf_seek(&buf, 0); /* bad stays bad */
	CHECK_INT(lb_buf_left(&buf), 0);
}

static void test_skip_too_much(void)
{
	BUF(buf, BYTES(1, 2));

	lb_buf_skip(&buf, UINT64_MAX);
	CHECK(buf.bad);
	CHECK_INT(lb_buf_left(&buf), 0);
}

static void test_sub(void)
{
	BUF(buf, BYTES(1, 2, 3, 4));

	lb_buf_u8(&buf);

	struct lb_buf sub = lb_buf_sub(&buf, 2);

	CHECK_INT(lb_buf_vaddr(&sub), 0x1001);
	CHECK_INT(lb_buf_u16(&sub), 0x0302);
	CHECK_INT(lb_buf_u8(&sub), 0);
	CHECK(sub.bad && !buf.bad);
	CHECK_INT(lb_buf_u8(&buf), 4);

	struct lb_buf empty = lb_buf_sub(&buf, 1);

	CHECK(empty.bad && buf.bad);
	CHECK_INT(lb_buf_left(&empty), 0);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_fixed_in_order),
		LB_TEST(test_fixed_past_end),
		LB_TEST(test_empty),
		LB_TEST(test_uleb),
		LB_TEST(test_sleb),
		LB_TEST(test_str),
		LB_TEST(test_skip_and_seek),
		LB_TEST(test_skip_too_much),
		LB_TEST(test_sub),
	};

	return LB_TEST_MAIN(cases);
}
