/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe points of the collector in LuaJITs of this system: as they are, without
 * any name of a symbol, damaged; and against the symbols of one that has them.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "gcprobes.h"
#include "lb_test.h"

#define LIB	  "usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"
#define UPSTREAM  ".output/deb/upstream/"
#define TARANTOOL ".output/deb/tarantool/usr/bin/tarantool"
#define TEXLUA	  ".output/deb/texlua/usr/lib/x86_64-linux-gnu/libtexluajit.so.2"

#define FILE_MAX (64 << 20)

static const char *const files[] = {
	"/" LIB,      "/usr/bin/luajit",
	UPSTREAM LIB, UPSTREAM "usr/bin/luajit",
	TARANTOOL,    TEXLUA,
};

#define N_FILES (sizeof(files) / sizeof(files[0]))

struct image {
	uint8_t *data;
	size_t size;
};

static bool read_file(const char *path, struct image *image_ret)
{
	FILE *file = fopen(path, "rb");

	if (!file)
		return false;
	image_ret->data = malloc(FILE_MAX);
	image_ret->size = fread(image_ret->data, 1, FILE_MAX, file);
	fclose(file);
	return true;
}

static int find(const struct image *image, struct lb_probes *probes)
{
	const char *missing = NULL;
	struct lb_luajit luajit;
	struct lb_scan scan;
	struct lb_elf *elf;
	int err = lb_elf_open_mem(image->data, image->size, "image", &elf);

	if (err)
		return err;
	err = lb_luajit_find(elf, &luajit);
	if (!err)
		err = lb_scan_offsets(elf, &luajit, &scan);
	if (!err) {
		err = lb_gcprobes_find(elf, &luajit, &scan, probes, &missing);
		CHECK(missing && missing[0]);
	}
	lb_elf_free(elf);
	return err;
}

static void count(const struct lb_probes *probes, size_t *by_kind)
{
	for (size_t i = 0; i < LB_GC_POINT_MAX; i++)
		by_kind[i] = 0;
	for (size_t i = 0; i < probes->n; i++) {
		CHECK(probes->list[i].kind < LB_GC_POINT_MAX);
		by_kind[probes->list[i].kind]++;
	}
}

/* What each build has, whatever compiled it. */
static void check_kinds(const char *path, const struct lb_probes *probes)
{
	int before = lb_test_failed_checks;
	size_t n[LB_GC_POINT_MAX];

	count(probes, n);
	CHECK_INT(n[LB_GC_STEP_ENTRY], 1);
	CHECK_INT(n[LB_GC_TRACE_ENTRY], 1);
	CHECK_INT(n[LB_GC_API_ENTRY], 1);
	CHECK(n[LB_GC_STEP_EXIT] >= 1);
	CHECK(n[LB_GC_TRACE_EXIT] >= 1);
	CHECK(n[LB_GC_API_EXIT] >= 1);
	CHECK(n[LB_GC_FIN_ENTRY] >= 1);
	CHECK_INT(n[LB_GC_FIN_ENTRY], n[LB_GC_FIN_EXIT]);
	/* a cycle begins once; ends with and without finalizers */
	CHECK_INT(n[LB_GC_PHASE + 1], 1);
	CHECK_INT(n[LB_GC_PHASE + 2], 1);
	CHECK_INT(n[LB_GC_PHASE + 4], 1);
	CHECK_INT(n[LB_GC_PHASE + 5], 1);
	/* a full collection skips to the sweep, and begins anew */
	CHECK_INT(n[LB_GC_PHASE + 3], 2);
	CHECK_INT(n[LB_GC_PHASE + 0], 3);
	for (size_t i = 0; i < probes->n; i++) {
		const struct lb_probe *probe = &probes->list[i];

		/* what is passed in each step and at each finalizer is cheap */
		if (probe->kind == LB_GC_STEP_ENTRY ||
		    probe->kind == LB_GC_TRACE_ENTRY ||
		    probe->kind == LB_GC_FIN_ENTRY)
			CHECK(probe->emulated);
	}
	if (lb_test_failed_checks != before)
		fprintf(stderr, "\tin: %s\n", path);
}

typedef void (*change_fn)(struct image *image);

static void check_files(change_fn change)
{
	int n = 0;

	for (size_t i = 0; i < N_FILES; i++) {
		struct lb_probes probes = { 0 };
		struct image image;

		if (!read_file(files[i], &image))
			continue;
		n++;
		if (change)
			change(&image);
		CHECK_INT(find(&image, &probes), 0);
		check_kinds(files[i], &probes);
		lb_probes_fini(&probes);
		free(image.data);
	}
	if (!n)
		SKIP("luajit: no LuaJIT is installed");
}

static void test_files_as_they_are(void)
{
	check_files(NULL);
}

/* Without its name lua_gc is known by what it does. */
static void wipe_names(struct image *image)
{
	static const char *const names[] = { "lua", "Lua", "lj_", "LJ_" };

	for (size_t i = 0; i + 4 < image->size; i++)
		for (size_t j = 0; j < sizeof(names) / sizeof(names[0]); j++)
			if (!memcmp(image->data + i, names[j], 3))
				memcpy(image->data + i, "xxx", 3);
}

static void test_without_names_of_symbols(void)
{
	check_files(wipe_names);
}

/* The same points with and without names. */
static void test_names_change_nothing(void)
{
	for (size_t i = 0; i < N_FILES; i++) {
		struct lb_probes with = { 0 }, without = { 0 };
		struct image image;

		if (!read_file(files[i], &image))
			continue;
		CHECK_INT(find(&image, &with), 0);
		wipe_names(&image);
		CHECK_INT(find(&image, &without), 0);
		CHECK_INT(without.n, with.n);
		for (size_t j = 0; j < with.n && j < without.n; j++) {
			CHECK_INT(without.list[j].vaddr, with.list[j].vaddr);
			CHECK_INT(without.list[j].kind, with.list[j].kind);
		}
		lb_probes_fini(&with);
		lb_probes_fini(&without);
		free(image.data);
	}
}

/* In which function of an unstripped file is each kind of point? */
static const char *const functions[LB_GC_POINT_MAX] = {
	"lj_gc_step", "lj_gc_step", "lj_gc_step_jit",	 "lj_gc_step_jit",
	"lua_gc",     "lua_gc",	    "gc_call_finalizer", "gc_call_finalizer",
};

struct witness {
	const struct lb_probes *probes;
	size_t n;
};

static int on_sym(void *arg, const struct lb_elf_sym *sym)
{
	struct witness *witness = arg;

	for (size_t i = 0; i < witness->probes->n; i++) {
		const struct lb_probe *probe = &witness->probes->list[i];

		if (probe->vaddr - sym->vaddr >= sym->size)
			continue;
		if (probe->kind >= LB_GC_PHASE)
			CHECK(!strcmp(sym->name, "gc_onestep") ||
			      !strcmp(sym->name, "lj_gc_fullgc"));
		else
			/* compilers append ".isra.0" */
			CHECK(!strncmp(sym->name, functions[probe->kind],
				       strlen(functions[probe->kind])));
		if (probe->kind < LB_GC_PHASE && !(probe->kind & 1) &&
		    probe->kind != LB_GC_FIN_ENTRY)
			CHECK(probe->vaddr - sym->vaddr < 24);
		witness->n++;
	}
	return 0;
}

static void test_points_against_symbols(void)
{
	struct lb_probes probes = { 0 };
	struct witness witness = { &probes, 0 };
	struct image image;
	struct lb_elf *elf;

	if (!read_file(TARANTOOL, &image)) {
		SKIP("tarantool: not unpacked, see scripts/fetch-debs");
		return;
	}
	CHECK_INT(find(&image, &probes), 0);
	CHECK_INT(lb_elf_open_mem(image.data, image.size, "image", &elf), 0);
	CHECK_INT(lb_elf_each_sym(elf, ".symtab", on_sym, &witness), 0);
	CHECK(witness.n >= probes.n);
	lb_elf_free(elf);
	lb_probes_fini(&probes);
	free(image.data);
}

static bool read_first(struct image *image)
{
	for (size_t i = 0; i < N_FILES; i++)
		if (read_file(files[i], image))
			return true;
	SKIP("luajit: no LuaJIT is installed");
	return false;
}

/* A state set to what is no state: better no phases than wrong ones. */
static void test_phases_all_or_none(void)
{
	struct lb_probes whole = { 0 };
	struct image image;

	if (!read_first(&image))
		return;
	CHECK_INT(find(&image, &whole), 0);
	for (size_t i = 0; i < whole.n; i++) {
		struct lb_probes probes = { 0 };
		size_t n[LB_GC_POINT_MAX], n_phases = 0;
		uint8_t *code = image.data + whole.list[i].off;

		/* mov byte [rbx + disp8], imm8 */
		if (whole.list[i].kind < LB_GC_PHASE || code[0] != 0xc6)
			continue;
		code[3] += 8;
		CHECK_INT(find(&image, &probes), 0);
		code[3] -= 8;
		count(&probes, n);
		for (int j = LB_GC_PHASE; j < LB_GC_POINT_MAX; j++)
			n_phases += n[j];
		CHECK_INT(n_phases, 0);
		CHECK_INT(n[LB_GC_STEP_ENTRY], 1);
		lb_probes_fini(&probes);
	}
	lb_probes_fini(&whole);
	free(image.data);
}

/* Any answer will do, but it must be one. */
static void test_damaged_code(void)
{
	struct lb_probes whole = { 0 };
	struct image image;

	if (!read_first(&image))
		return;
	CHECK_INT(find(&image, &whole), 0);
	for (size_t i = 0; i < whole.n; i++) {
		for (size_t j = 0; j < 3; j++) {
			struct lb_probes probes = { 0 };
			uint8_t *code = image.data + whole.list[i].off + j;
			uint8_t old = *code;

			*code = (uint8_t)(j ? ~old : 0x06);

			int err = find(&image, &probes);

			CHECK(!err || err == -EOPNOTSUPP || err == -ENOENT);
			CHECK(err ? !probes.n : probes.n > 0);
			*code = old;
			lb_probes_fini(&probes);
		}
	}
	lb_probes_fini(&whole);
	free(image.data);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_files_as_they_are),
		LB_TEST(test_without_names_of_symbols),
		LB_TEST(test_names_change_nothing),
		LB_TEST(test_points_against_symbols),
		LB_TEST(test_phases_all_or_none),
		LB_TEST(test_damaged_code),
	};

	return LB_TEST_MAIN(cases);
}
