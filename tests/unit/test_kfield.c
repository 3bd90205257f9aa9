/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets of members by BTF: of a type made here, and of the kernel's own. */
#include <errno.h>

#include "kfield.h"
#include "lb.h"
#include "lb_test.h"

/* struct inner { int a; int b; }; struct outer { long x; struct { char c;
 * int d; }; struct inner in; int bits : 3; int more : 5; } */
static struct btf *make_btf(void)
{
	struct btf *btf = btf__new_empty();
	int ch = btf__add_int(btf, "char", 1, 0);
	int in = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	int lo = btf__add_int(btf, "long", 8, BTF_INT_SIGNED);
	int inner, nameless, constant;

	inner = btf__add_struct(btf, "inner", 8);
	btf__add_field(btf, "a", in, 0, 0);
	btf__add_field(btf, "b", in, 32, 0);
	nameless = btf__add_struct(btf, NULL, 8);
	btf__add_field(btf, "c", ch, 0, 0);
	btf__add_field(btf, "d", in, 32, 0);
	constant = btf__add_const(btf, inner);
	btf__add_struct(btf, "outer", 28);
	btf__add_field(btf, "x", lo, 0, 0);
	btf__add_field(btf, NULL, nameless, 64, 0);
	btf__add_field(btf, "in", constant, 128, 0);
	btf__add_field(btf, "bits", in, 192, 3);
	btf__add_field(btf, "more", in, 195, 5);
	return btf;
}

static void test_members(void)
{
	static const struct {
		const char *path;
		int err;
		uint32_t off;
	} cases[] = {
		{ "x", 0, 0 },
		{ "c", 0, 8 },
		{ "d", 0, 12 },
		{ "in", 0, 16 },
		{ "in.b", 0, 20 },
		{ "in.a", 0, 16 },
		{ "in.c", -ENOENT, 0 },
		{ "x.y", -ENOENT, 0 },
		{ "nope", -ENOENT, 0 },
		{ "i", -ENOENT, 0 },
		{ "inn", -ENOENT, 0 },
		{ "bits", 0, 24 },
		{ "more", -EOPNOTSUPP, 0 },
	};
	struct btf *btf = make_btf();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t off = 99;

		CHECK_INT(lb_kfield_off(btf, "outer", cases[i].path, &off),
			  cases[i].err);
		CHECK_INT(off, cases[i].err ? 99 : cases[i].off);
	}
	uint32_t off;

	CHECK_INT(lb_kfield_off(btf, "nobody", "x", &off), -ENOENT);
	CHECK_INT(lb_kfield_off(btf, "int", "x", &off), -ENOENT);
	btf__free(btf);
}

static void test_kernel(void)
{
	uint32_t start = 0, sum = 0;
	int err = lb_kernel_offset("task_struct", "se.exec_start", &start);

	if (err) {
		SKIP("btf: this kernel shows none");
		return;
	}
	CHECK_INT(lb_kernel_offset("task_struct", "se.sum_exec_runtime", &sum),
		  0);
	CHECK(start > 0);
	CHECK_INT(sum, start + 8);
	CHECK_INT(lb_kernel_offset("task_struct", "se.nothing", &sum), -ENOENT);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_members),
		LB_TEST(test_kernel),
	};

	return LB_TEST_MAIN(cases);
}
