/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets from machine code against the table's entry with the same marks, for
 * LuaJITs of this system: as they are, without section headers, without names
 * of dynamic symbols, damaged.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "fields.h"
#include "offsets.h"
#include "scan.h"
#include "lb_test.h"

#define LIB	  "usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"
#define UPSTREAM  ".output/deb/upstream/"
#define TARANTOOL ".output/deb/tarantool/usr/bin/tarantool"
#define TEXLUA	  ".output/deb/texlua/usr/lib/x86_64-linux-gnu/libtexluajit.so.2"

#define FILE_MAX (64 << 20)

static const struct file {
	const char *path;
	uint32_t n_known; /* at least */
} files[] = {
	{ "/" LIB, 104 },      { "/usr/bin/luajit", 104 },
	{ UPSTREAM LIB, 104 }, { UPSTREAM "usr/bin/luajit", 104 },
	{ TARANTOOL, 101 },    { TEXLUA, 103 },
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

static int scan_image(const struct image *image, struct lb_luajit *luajit,
		      struct lb_scan *scan)
{
	struct lb_elf *elf;
	int ret = lb_elf_open_mem(image->data, image->size, "image", &elf);

	if (ret)
		return ret;
	ret = lb_luajit_find(elf, luajit);
	if (!ret)
		ret = lb_scan_offsets(elf, luajit, scan);
	lb_elf_free(elf);
	return ret;
}

/* Each field that the code shows is that of the entry. */
static void check_scan(const char *path, const struct lb_luajit *luajit,
		       const struct lb_scan *scan)
{
	struct lj_offsets want;
	const char *name;
	uint32_t n = 0;

	CHECK_INT(lb_offsets_find(luajit, &want, &name), 0);
	for (size_t i = 0; i < lb_n_fields; i++) {
		uint32_t got = lb_field_get(&scan->offsets, &lb_fields[i]);

		CHECK_INT(lb_fields[i].off, i * sizeof(uint32_t));
		if (!scan->known[i]) {
			CHECK_INT(got, LJ_OFFSETS_NONE);
			continue;
		}
		n++;
		if (got == lb_field_get(&want, &lb_fields[i]))
			continue;
		fprintf(stderr, "%s: %s is not %d\n", path, lb_fields[i].name,
			(int)got);
		CHECK(!"a field is wrong");
	}
	CHECK_INT(n, scan->n_known);
}

/* What must be seen, whatever else is. */
static void check_needed(const struct lb_scan *scan)
{
#define NEED(name) CHECK(scan->known[LB_SCAN_FIELD(name)])
	NEED(gc64);
	NEED(g2disp);
	NEED(g_cur_l);
	NEED(g_vmstate);
	NEED(static_dispatch);
	NEED(g_jit_base);
	NEED(g_to_j);
	NEED(g_gc_root);
	NEED(g_gc_state);
	NEED(g_gc_total);
	NEED(g_gc_threshold);
	NEED(vm_interp);
	NEED(vm_c);
	NEED(vm_gc);
	NEED(vm_exit);
	NEED(l_status);
	NEED(l_glref);
	NEED(l_base);
	NEED(l_top);
	NEED(l_maxstack);
	NEED(l_stack);
	NEED(l_cframe);
	NEED(cf_nres);
	NEED(cf_l);
	NEED(cf_pc);
	NEED(cf_prev);
	NEED(cf_r14);
	NEED(fn_ffid);
	NEED(fn_env);
	NEED(fn_pc);
	NEED(fn_f);
	NEED(fn_upvalue);
	NEED(fn_uvptr);
	NEED(pt_size);
	NEED(pt_k);
	NEED(pt_numparams);
	NEED(str_id);
	NEED(str_len);
	NEED(str_size);
	NEED(tab_node);
	NEED(node_next);
	NEED(j_trace);
	NEED(tr_mcode);
	NEED(bc_call);
	NEED(bc_funcf);
	NEED(bc_jmp);
#undef NEED
	CHECK(scan->gc_step_vaddr != 0);
	CHECK(scan->gc_step_fixtop_vaddr != 0);
}

typedef void (*change_fn)(struct image *image);

static void check_files(change_fn change)
{
	int n = 0;

	for (size_t i = 0; i < N_FILES; i++) {
		struct lb_luajit luajit = { 0 };
		struct lb_scan scan = { 0 };
		struct image image;

		if (!read_file(files[i].path, &image))
			continue;
		n++;
		if (change)
			change(&image);

		int ret = scan_image(&image, &luajit, &scan);

		CHECK_INT(ret, 0);
		if (!ret) {
			check_scan(files[i].path, &luajit, &scan);
			check_needed(&scan);
			CHECK(scan.n_known >= files[i].n_known);
		}
		free(image.data);
	}
	if (!n)
		SKIP("luajit: no LuaJIT is installed");
}

static void test_files_as_they_are(void)
{
	check_files(NULL);
}

/* What strip leaves at least, and what is gone in a packed file. */
static void cut_sections(struct image *image)
{
	Elf64_Ehdr ehdr;

	memcpy(&ehdr, image->data, sizeof(ehdr));
	if (ehdr.e_shoff < image->size)
		memset(image->data + ehdr.e_shoff, 0,
		       image->size - ehdr.e_shoff);
	ehdr.e_shoff = 0;
	ehdr.e_shnum = ehdr.e_shstrndx = 0;
	memcpy(image->data, &ehdr, sizeof(ehdr));
}

static void test_without_section_headers(void)
{
	check_files(cut_sections);
}

/* Names of symbols, wherever they are, and of sections, but for .eh_frame. */
static void wipe_names(struct image *image)
{
	static const char *const names[] = { "lua", "Lua", "lj_", "LJ_" };

	for (size_t i = 0; i + 4 < image->size; i++) {
		for (size_t j = 0; j < sizeof(names) / sizeof(names[0]); j++)
			if (!memcmp(image->data + i, names[j], 3))
				memcpy(image->data + i, "xxx", 3);
	}
}

static void test_without_names_of_symbols(void)
{
	check_files(wipe_names);
}

/* An independent witness of the functions that were found. */
struct witness {
	const struct lb_scan *scan;
	int n;
};

static int on_sym(void *arg, const struct lb_elf_sym *sym)
{
	struct witness *witness = arg;

	if (!strcmp(sym->name, "lj_gc_step")) {
		CHECK_INT(witness->scan->gc_step_vaddr, sym->vaddr);
		witness->n++;
	} else if (!strcmp(sym->name, "lj_gc_step_fixtop")) {
		CHECK_INT(witness->scan->gc_step_fixtop_vaddr, sym->vaddr);
		witness->n++;
	}
	return 0;
}

static void test_functions_against_symbols(void)
{
	struct lb_luajit luajit;
	struct lb_scan scan;
	struct witness witness = { &scan, 0 };
	struct lb_elf *elf;
	int fd = open(TARANTOOL, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		SKIP("tarantool: not unpacked, see scripts/fetch-debs");
		return;
	}
	CHECK_INT(lb_elf_open_fd(fd, TARANTOOL, &elf), 0);
	close(fd);
	CHECK_INT(lb_luajit_find(elf, &luajit), 0);
	CHECK_INT(lb_scan_offsets(elf, &luajit, &scan), 0);
	CHECK_INT(lb_elf_each_sym(elf, ".symtab", on_sym, &witness), 0);
	CHECK_INT(witness.n, 2);
	lb_elf_free(elf);
}

/* The first file that is here, and where its VM is in it. */
static bool read_first(struct image *image, struct lb_luajit *luajit,
		       size_t *vm_off_ret)
{
	struct lb_scan scan;

	for (size_t i = 0; i < N_FILES; i++) {
		const struct lb_segment *segments;
		struct lb_elf *elf;
		size_t n;

		if (!read_file(files[i].path, image))
			continue;
		CHECK_INT(scan_image(image, luajit, &scan), 0);
		CHECK_INT(lb_elf_open_mem(image->data, image->size, "image",
					  &elf),
			  0);
		n = lb_elf_segments(elf, &segments);
		for (size_t j = 0; j < n; j++)
			if (luajit->vm_vaddr - segments[j].vaddr <
			    segments[j].filesz)
				*vm_off_ret = luajit->vm_vaddr -
					      segments[j].vaddr +
					      segments[j].off;
		lb_elf_free(elf);
		return true;
	}
	SKIP("luajit: no LuaJIT is installed");
	return false;
}

/* mov [rbp + top], rax becomes mov [rbp + top + 8], rax in one place. */
static void test_two_places_that_disagree(void)
{
	static const uint8_t store[] = { 0x48, 0x89, 0x45 };
	struct lb_luajit luajit;
	struct lb_scan scan;
	struct image image;
	size_t vm_off = 0, n = 0;

	if (!read_first(&image, &luajit, &vm_off))
		return;
	CHECK_INT(scan_image(&image, &luajit, &scan), 0);

	const uint32_t top = scan.offsets.l_top;

	for (size_t i = vm_off; i < vm_off + luajit.vm_size; i++) {
		if (memcmp(image.data + i, store, sizeof(store)) ||
		    image.data[i + 3] != top)
			continue;
		image.data[i + 3] += 8;
		CHECK_INT(scan_image(&image, &luajit, &scan), 0);
		if (!scan.known[LB_SCAN_FIELD(l_top)]) {
			CHECK_INT(scan.offsets.l_top, LJ_OFFSETS_NONE);
			n++;
		} else {
			CHECK_INT(scan.offsets.l_top, top);
		}
		image.data[i + 3] -= 8;
	}
	CHECK(n > 0); /* BC_FUNCC is among them */
	free(image.data);
}

/* Any result will do, but it must be one. */
static void test_damaged_code(void)
{
	struct lb_luajit luajit;
	struct lb_scan scan;
	struct image image;
	size_t vm_off = 0;

	if (!read_first(&image, &luajit, &vm_off))
		return;

	const struct lb_luajit whole = luajit;

	for (size_t i = 0; i < whole.vm_size; i += 131) {
		uint8_t *byte = image.data + vm_off + i;
		uint8_t old = *byte;

		*byte = (uint8_t)(i & 1 ? ~old : 0x0f);

		int ret = scan_image(&image, &luajit, &scan);

		CHECK(!ret || ret == -EOPNOTSUPP || ret == -ENOENT);
		*byte = old;
	}
	for (size_t size = image.size; size > 64; size -= image.size / 60) {
		struct image cut = { image.data, size };

		CHECK(scan_image(&cut, &luajit, &scan) <= 0);
	}
	free(image.data);
}

static void test_vm_that_is_not_there(void)
{
	struct lb_luajit luajit;
	struct lb_scan scan;
	struct image image;
	struct lb_elf *elf;
	size_t vm_off = 0;

	if (!read_first(&image, &luajit, &vm_off))
		return;
	CHECK_INT(lb_elf_open_mem(image.data, image.size, "image", &elf), 0);

	struct lb_luajit wrong = luajit;

	wrong.vm_vaddr = UINT64_MAX - 4096;
	CHECK_INT(lb_scan_offsets(elf, &wrong, &scan), -ENOENT);
	wrong = luajit;
	wrong.vm_size = UINT64_MAX;
	CHECK_INT(lb_scan_offsets(elf, &wrong, &scan), -E2BIG);
	wrong = luajit;
	wrong.static_dispatch = UINT32_MAX; /* no table of opcodes */
	CHECK_INT(lb_scan_offsets(elf, &wrong, &scan), 0);
	CHECK_INT(scan.n_opcodes, 0);
	CHECK(!scan.known[LB_SCAN_FIELD(bc_funcf)]);
	CHECK(scan.known[LB_SCAN_FIELD(g2disp)]);
	check_scan("without opcodes", &luajit, &scan);
	lb_elf_free(elf);
	free(image.data);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_files_as_they_are),
		LB_TEST(test_without_section_headers),
		LB_TEST(test_without_names_of_symbols),
		LB_TEST(test_functions_against_symbols),
		LB_TEST(test_two_places_that_disagree),
		LB_TEST(test_damaged_code),
		LB_TEST(test_vm_that_is_not_there),
	};

	return LB_TEST_MAIN(cases);
}
