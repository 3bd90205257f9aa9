/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small harness for unit tests: LB_TEST functions in a table, run in order,
 * one line for each failure, and `N passed, N failed, N skipped` at the end.
 */
#ifndef LB_TEST_H
#define LB_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lb_test_case {
	const char *name;
	void (*run)(void);
};

static int lb_test_failed_checks;
static const char *lb_test_skip_reason;

#define CHECK(cond)                                                      \
	do {                                                             \
		if (!(cond)) {                                           \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, \
				__LINE__, #cond);                        \
			lb_test_failed_checks++;                         \
		}                                                        \
	} while (0)

#define CHECK_INT(got, want)                                             \
	do {                                                             \
		long long got_ = (long long)(got);                       \
		long long want_ = (long long)(want);                     \
		if (got_ != want_) {                                     \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", \
				__FILE__, __LINE__, #got, got_, want_);  \
			lb_test_failed_checks++;                         \
		}                                                        \
	} while (0)

#define CHECK_STR(got, want)                                                 \
	do {                                                                 \
		const char *got_ = (got);                                    \
		const char *want_ = (want);                                  \
		if (!got_ || strcmp(got_, want_)) {                          \
			fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", \
				__FILE__, __LINE__, #got,                    \
				got_ ? got_ : "(null)", want_);              \
			lb_test_failed_checks++;                             \
		}                                                            \
	} while (0)

/*
 * Use: SKIP("NAME: reason"); return; -- a failure if LB_REQUIRE, a list of
 * names between commas, holds NAME.
 */
#define SKIP(reason) (lb_test_skip_reason = (reason))

static int lb_test_is_required(const char *reason)
{
	const char *list = getenv("LB_REQUIRE");
	size_t len = strcspn(reason, ":");

	while (list && *list) {
		size_t item = strcspn(list, ",");

		if (item == len && !memcmp(list, reason, len))
			return 1;
		list += item + (list[item] == ',');
	}
	return 0;
}

static int lb_test_main(const struct lb_test_case *cases, size_t n)
{
	int passed = 0, failed = 0, skipped = 0;

	for (size_t i = 0; i < n; i++) {
		int before = lb_test_failed_checks;

		lb_test_skip_reason = NULL;
		cases[i].run();
		if (lb_test_failed_checks != before) {
			fprintf(stderr, "FAILED %s\n", cases[i].name);
			failed++;
		} else if (lb_test_skip_reason) {
			int required = lb_test_is_required(lb_test_skip_reason);

			fprintf(stderr, "%s %s: %s\n",
				required ? "FAILED, skipped" : "skipped",
				cases[i].name, lb_test_skip_reason);
			if (required)
				failed++;
			else
				skipped++;
		} else {
			passed++;
		}
	}
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	if (failed || !(passed + skipped))
		return 1;
	return passed ? 0 : 77;
}

#define LB_TEST(fn)     \
	{               \
#fn, fn \
	}
#define LB_TEST_MAIN(cases) \
	lb_test_main((cases), sizeof(cases) / sizeof((cases)[0]))

#endif
