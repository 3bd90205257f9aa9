/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which source gives a field: table, machine code, layout; and that a
 * disagreement of table and code is found for each field that both have.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "fields.h"
#include "layout.h"
#include "offsets.h"
#include "lb_test.h"

#define LIB	  "usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"
#define UPSTREAM  ".output/deb/upstream/"
#define TARANTOOL ".output/deb/tarantool/usr/bin/tarantool"
#define TEXLUA	  ".output/deb/texlua/usr/lib/x86_64-linux-gnu/libtexluajit.so.2"

static const char *const files[] = {
	"/" LIB,
	UPSTREAM LIB,
	TARANTOOL,
	TEXLUA,
};

#define N_FILES (sizeof(files) / sizeof(files[0]))
#define N	LB_SCAN_N_FIELDS

static uint32_t *values_of(struct lj_offsets *offsets)
{
	return (uint32_t *)offsets;
}

static bool read_file(const char *path, struct lb_elf **elf_ret,
		      struct lb_luajit *luajit, struct lb_scan *scan)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	CHECK_INT(lb_elf_open_fd(fd, path, elf_ret), 0);
	close(fd);
	CHECK_INT(lb_luajit_find(*elf_ret, luajit), 0);
	CHECK_INT(lb_scan_offsets(*elf_ret, luajit, scan), 0);
	return true;
}

typedef void (*file_fn)(const struct lb_elf *elf,
			const struct lb_luajit *luajit,
			const struct lb_scan *scan);

static void each_file(file_fn fn)
{
	int n = 0;

	for (size_t i = 0; i < N_FILES; i++) {
		struct lb_luajit luajit;
		struct lb_scan scan;
		struct lb_elf *elf;

		if (!read_file(files[i], &elf, &luajit, &scan))
			continue;
		n++;
		fn(elf, &luajit, &scan);
		lb_elf_free(elf);
	}
	if (!n)
		SKIP("luajit: no LuaJIT is installed");
}

/* Table and code agree: each field has its source, and the table's value. */
static void check_agreement(const struct lb_elf *elf,
			    const struct lb_luajit *luajit,
			    const struct lb_scan *scan)
{
	struct lb_offsets_source source;
	struct lj_offsets entry;
	const char *name;

	CHECK_INT(lb_offsets_find(luajit, &entry, &name), 0);
	CHECK_INT(lb_offsets_choose(elf, luajit, &source), 0);
	CHECK_INT(source.problem, LB_OFFSETS_OK);
	CHECK_STR(source.entry_name, name);
	for (size_t i = 0; i < N; i++) {
		uint32_t want = values_of(&entry)[i];
		bool both = scan->known[i];

		CHECK_INT(values_of(&source.offsets)[i], want);
		CHECK_INT(source.from[i], both ? LB_FROM_BOTH : LB_FROM_HEADER);
	}
	CHECK_INT(lb_offsets_count(&source, LB_FROM_BOTH), scan->n_known);
}

static void test_table_and_code_agree(void)
{
	each_file(check_agreement);
}

/* Several entries may have these marks: the code contradicts them all. */
static void check_differences(const struct lb_elf *elf,
			      const struct lb_luajit *luajit,
			      const struct lb_scan *scan)
{
	(void)elf;
	for (size_t i = 0; i < N; i++) {
		struct lb_scan wrong = *scan;
		struct lb_offsets_source source;
		uint32_t *value = &values_of(&wrong.offsets)[i];
		char text[160];

		if (!scan->known[i])
			continue;

		const uint32_t right = *value;

		*value = right == LJ_OFFSETS_NONE ? 8 : right + 8;
		CHECK_INT(lb_offsets_join(luajit, &wrong, &source), -ENOENT);
		CHECK_INT(source.problem, LB_OFFSETS_DIFFER);
		CHECK_INT(source.problem_field, i);
		CHECK_INT(source.scan_value, *value);
		CHECK_INT(source.header_value, right);
		lb_offsets_explain(&source, text, sizeof(text));
		CHECK(strstr(text, lb_fields[i].name));
	}
}

static void test_each_field_that_differs(void)
{
	each_file(check_differences);
}

/* A build that is in no table: what the code shows, then the layout. */
static void check_unknown_build(const struct lb_elf *elf,
				const struct lb_luajit *luajit,
				const struct lb_scan *scan)
{
	struct lb_luajit marks = *luajit;
	struct lb_scan other = *scan;
	struct lb_offsets_source source;
	struct lj_offsets entry;
	const char *name;

	(void)elf;
	marks.g2disp += 1024;
	other.offsets.g2disp += 1024;
	CHECK_INT(lb_offsets_find(&marks, &entry, &name), -ENOENT);
	CHECK_INT(lb_offsets_join(&marks, &other, &source), 0);
	CHECK(!source.entry_name);
	CHECK_INT(lb_offsets_count(&source, LB_FROM_HEADER), 0);
	CHECK_INT(lb_offsets_count(&source, LB_FROM_BOTH), 0);
	CHECK_INT(lb_offsets_count(&source, LB_FROM_SCAN), scan->n_known);
	CHECK_INT(lb_offsets_find(luajit, &entry, &name), 0);
	entry.g2disp += 1024;
	for (size_t i = 0; i < N; i++) {
		if (!source.from[i]) {
			CHECK_INT(values_of(&source.offsets)[i],
				  LJ_OFFSETS_NONE);
			continue;
		}
		CHECK_INT(values_of(&source.offsets)[i], values_of(&entry)[i]);
	}
}

static void test_build_in_no_table(void)
{
	each_file(check_unknown_build);
}

static void test_code_that_is_not_understood(void)
{
	struct lb_luajit luajit;
	struct lb_scan scan;
	struct lb_offsets_source source;
	struct lb_elf *elf;
	char text[160];

	if (!read_file(files[0], &elf, &luajit, &scan)) {
		SKIP("luajit: no LuaJIT is installed");
		return;
	}
	/* the table alone */
	CHECK_INT(lb_offsets_join(&luajit, NULL, &source), 0);
	CHECK_INT(lb_offsets_count(&source, LB_FROM_SCAN), 0);
	CHECK_INT(lb_offsets_count(&source, LB_FROM_BOTH), 0);
	/* neither */
	luajit.g2disp += 1024;
	CHECK_INT(lb_offsets_join(&luajit, NULL, &source), -ENOENT);
	CHECK_INT(source.problem, LB_OFFSETS_MISSING);
	lb_offsets_explain(&source, text, sizeof(text));
	CHECK(strstr(text, "not understood"));
	/* code that does not show where BASE is saved */
	scan.offsets.g2disp += 1024;
	scan.known[LB_SCAN_FIELD(l_base)] = false;
	scan.offsets.l_base = LJ_OFFSETS_NONE;
	CHECK_INT(lb_offsets_join(&luajit, &scan, &source), -ENOENT);
	CHECK_INT(source.problem, LB_OFFSETS_MISSING);
	CHECK_INT(source.problem_field, LB_SCAN_FIELD(l_base));
	lb_offsets_explain(&source, text, sizeof(text));
	CHECK(strstr(text, "does not show l_base"));
	lb_elf_free(elf);
}

/* Areas of machine code moved after 2.0: the layout is that of 2.1. */
static bool is_moved(const struct lj_offsets *entry, size_t field)
{
	bool is_20 = entry->g_cur_l == LJ_OFFSETS_NONE;

	return is_20 && (field == LB_SCAN_FIELD(j_mcarea) ||
			 field == LB_SCAN_FIELD(j_szmcarea));
}

/* What is called the layout of all known builds is that. */
static void test_layout_against_table(void)
{
	const struct lj_offsets *entry;
	const char *name;
	size_t n = 0;

	for (size_t i = 0; !lb_offsets_entry(i, &entry, &name); i++) {
		struct lb_offsets_source source = { .offsets = *entry };
		struct lj_offsets copy = *entry;
		bool has_snapshots = false;

		/* only where the trace table is comes from elsewhere */
		source.from[LB_SCAN_FIELD(j_trace)] = LB_FROM_SCAN;
		lb_layout_add(&source);
		for (size_t j = 0; j < N; j++) {
			if (source.from[j] != LB_FROM_LAYOUT ||
			    is_moved(entry, j))
				continue;
			n++;
			CHECK_INT(values_of(&source.offsets)[j],
				  values_of(&copy)[j]);
		}
		for (size_t j = 0; lb_layout_snapshots(j, &copy); j++)
			has_snapshots |= !memcmp(&copy, entry, sizeof(copy));
		CHECK(has_snapshots);
	}
	CHECK(n > 0);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_table_and_code_agree),
		LB_TEST(test_each_field_that_differs),
		LB_TEST(test_build_in_no_table),
		LB_TEST(test_code_that_is_not_understood),
		LB_TEST(test_layout_against_table),
	};

	return LB_TEST_MAIN(cases);
}
