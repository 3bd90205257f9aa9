/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe points of calls in LuaJITs of this system: how many there are of each
 * kind, that they are the instructions they should be, and that damaged code is
 * refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "callprobes.h"
#include "offsets.h"
#include "lb_test.h"
#include "../../bpf_c/lb_wire.h"

#define LIB	  "usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"
#define UPSTREAM  ".output/deb/upstream/"
#define TARANTOOL ".output/deb/tarantool/usr/bin/tarantool"
#define TEXLUA	  ".output/deb/texlua/usr/lib/x86_64-linux-gnu/libtexluajit.so.2"

#define FILE_MAX (64 << 20)
#define N_KINDS	 (LB_PROBE_API + 1)

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

/* The points of an image; @luajit_ret: where its VM is. */
static int find(const struct image *image, struct lb_probes *probes,
		struct lb_luajit *luajit_ret)
{
	struct lj_offsets offsets;
	const char *name;
	struct lb_elf *elf;
	int err = lb_elf_open_mem(image->data, image->size, "image", &elf);

	if (err)
		return err;
	err = lb_luajit_find(elf, luajit_ret);
	if (!err)
		err = lb_offsets_find(luajit_ret, &offsets, &name);
	if (!err)
		err = lb_callprobes_vm(elf, luajit_ret, &offsets, probes);
	if (!err)
		err = lb_callprobes_api(elf, probes);
	lb_elf_free(elf);
	return err;
}

static void check_point(const struct image *image, const struct lb_probe *probe)
{
	const uint8_t *code = image->data + probe->off;

	CHECK(probe->off + 16 < image->size);
	switch (probe->kind) {
	case LB_PROBE_LUA:
	case LB_PROBE_COMPILED:
	case LB_PROBE_C: /* ja, near */
		CHECK_INT(code[0], 0x0f);
		CHECK_INT(code[1], 0x87);
		break;
	case LB_PROBE_RETRY: /* jne, short or near */
		CHECK(code[0] == 0x75 || (code[0] == 0x0f && code[1] == 0x85));
		break;
	case LB_PROBE_LOOP: /* jcc, near, or jmp */
		CHECK((code[0] == 0x0f && (code[1] & 0xf0) == 0x80) ||
		      code[0] == 0xe9 || code[0] == 0xeb);
		break;
	}
	if (probe->kind != LB_PROBE_API)
		CHECK(probe->emulated);
	CHECK_INT(probe->emulated, lb_probe_is_emulated(code, 16));
}

static void check_file(const char *path, const struct image *image)
{
	struct lb_probes probes = { .n = 0 };
	struct lb_luajit luajit;
	unsigned int n[N_KINDS] = { 0 };
	bool has_pcall = false, has_open = false;

	CHECK_INT(find(image, &probes, &luajit), 0);
	for (size_t i = 0; i < probes.n; i++) {
		const struct lb_probe *probe = &probes.list[i];

		check_point(image, probe);
		CHECK(probe->kind < N_KINDS);
		n[probe->kind % N_KINDS]++;
		has_pcall |= !strcmp(probe->name, "lua_pcall");
		has_open |= !strcmp(probe->name, "luaL_newstate");
	}
	CHECK_INT(n[LB_PROBE_LUA], 2);
	CHECK_INT(n[LB_PROBE_COMPILED], 1);
	CHECK_INT(n[LB_PROBE_C], 2);
	/* FORI, FORL, ITERL, and behind a C function that a trace calls */
	CHECK_INT(n[LB_PROBE_LOOP], 4);
	CHECK_INT(n[LB_PROBE_FAST], 57);
	CHECK_INT(n[LB_PROBE_RETRY], 1);
	CHECK(n[LB_PROBE_API] > 100);
	CHECK(has_pcall && has_open);
	if (lb_test_failed_checks)
		fprintf(stderr, "%s\n", path);
	lb_probes_fini(&probes);
}

static void test_points_of_each_file(void)
{
	size_t n = 0;

	for (size_t i = 0; i < N_FILES; i++) {
		struct image image;

		if (!read_file(files[i], &image))
			continue;
		check_file(files[i], &image);
		free(image.data);
		n++;
	}
	if (n < N_FILES)
		SKIP("luajit: not all files are there");
}

/* Another instruction in the place of a point: nothing is found, not less. */
static void test_refused_when_code_differs(void)
{
	struct lb_probes probes = { .n = 0 };
	struct lb_luajit luajit;
	struct image image;

	if (!read_file(files[0], &image)) {
		SKIP("luajit: no library");
		return;
	}
	CHECK_INT(find(&image, &probes, &luajit), 0);
	for (size_t i = 0; i < probes.n; i++) {
		struct lb_probes again = { .n = 0 };
		uint8_t *code = image.data + probes.list[i].off;

		if (probes.list[i].kind != LB_PROBE_LUA &&
		    probes.list[i].kind != LB_PROBE_COMPILED)
			continue;
		code[1] = 0x82; /* jb */
		CHECK_INT(find(&image, &again, &luajit), -EOPNOTSUPP);
		code[1] = 0x87;
		lb_probes_fini(&again);
	}
	lb_probes_fini(&probes);
	free(image.data);
}

static void test_emulated_instructions(void)
{
	static const struct {
		uint8_t code[4];
		bool emulated;
	} insns[] = {
		{ { 0x55 }, true },		       /* push rbp */
		{ { 0x41, 0x57 }, true },	       /* push r15 */
		{ { 0x90 }, true },		       /* nop */
		{ { 0xe8 }, true },		       /* call */
		{ { 0xe9 }, true },		       /* jmp */
		{ { 0xeb }, true },		       /* jmp, short */
		{ { 0x74 }, true },		       /* je, short */
		{ { 0x0f, 0x87 }, true },	       /* ja */
		{ { 0x0f, 0xb6 }, false },	       /* movzx */
		{ { 0xff, 0xe0 }, false },	       /* jmp rax */
		{ { 0x66, 0x90 }, false },	       /* nop, prefix */
		{ { 0x48, 0x8b }, false },	       /* mov */
		{ { 0xf3, 0x0f, 0x1e, 0xfa }, false }, /* endbr64 */
		{ { 0x41, 0x58 }, false },	       /* pop r8 */
	};

	for (size_t i = 0; i < sizeof(insns) / sizeof(insns[0]); i++)
		CHECK_INT(lb_probe_is_emulated(insns[i].code, 4),
			  insns[i].emulated);
	CHECK(!lb_probe_is_emulated(insns[0].code, 0));
	CHECK(!lb_probe_is_emulated(insns[7].code, 1));
}

static void test_attach_says_why_not(void)
{
	int fd;

	CHECK_INT(lb_probe_attach("/nonexistent", 0, getpid(), -1, &fd) < 0, 1);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_points_of_each_file),
		LB_TEST(test_refused_when_code_differs),
		LB_TEST(test_emulated_instructions),
		LB_TEST(test_attach_says_why_not),
	};

	return LB_TEST_MAIN(cases);
}
