/* SPDX-License-Identifier: Apache-2.0 */
/* PUC Lua is found by what it defines and by its text, and LuaJIT is not it. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "luajit.h"
#include "puc.h"
#include "lb_test.h"
#include "lb_write.h"

#define TEXT_51                                                     \
	"$Lua: Lua 5.1.5 Copyright (C) 1994-2012 Lua.org, PUC-Rio " \
	"$\n$Authors: x $\n"
#define TEXT_53                                                             \
	"$LuaVersion: Lua 5.3.6  Copyright (C) 1994-2020 Lua.org, PUC-Rio " \
	"$$LuaAuthors: x $"
#define CORE "lua_newstate lua_type lua_rawgeti lua_error "

struct symtab {
	struct wr syms;
	struct wr names;
};

/* Each word of @words is a function; undefined when it begins with '-'. */
static struct symtab symtab_of(const char *words)
{
	struct symtab tab = { 0 };
	Elf64_Sym sym = { 0 };

	wr_bytes(&tab.syms, &sym, sizeof(sym));
	wr_u8(&tab.names, 0);
	while (*words) {
		size_t len = strcspn(words, " ");
		bool defined = *words != '-';

		sym = (Elf64_Sym){
			.st_name = (uint32_t)tab.names.size,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_shndx = defined ? 1 : SHN_UNDEF,
			.st_value = defined ? 0x1000 : 0,
			.st_size = 16,
		};
		wr_bytes(&tab.syms, &sym, sizeof(sym));
		wr_bytes(&tab.names, words + !defined, len - !defined);
		wr_u8(&tab.names, 0);
		words += len + (words[len] == ' ');
	}
	return tab;
}

/* An image with these functions and this read-only data. */
static struct wr image_of(const char *functions, const char *rodata)
{
	struct symtab tab = symtab_of(functions);
	struct wr_elf elf;

	wr_elf_init(&elf);
	wr_elf_section(&elf, ".rodata", SHT_PROGBITS, 0x800, rodata,
		       strlen(rodata) + 1);
	size_t at = wr_elf_section(&elf, ".symtab", SHT_SYMTAB, 0x2000,
				   tab.syms.data, tab.syms.size);
	elf.shdrs[at].sh_entsize = sizeof(Elf64_Sym);
	elf.shdrs[at].sh_link =
		(uint32_t)wr_elf_section(&elf, ".strtab", SHT_STRTAB, 0x4000,
					 tab.names.data, tab.names.size);
	wr_elf_finish(&elf);
	wr_free(&tab.syms);
	wr_free(&tab.names);
	return elf.out;
}

static int find_in(const void *data, size_t size, struct lb_puc *puc_ret)
{
	struct lb_elf *elf;
	int err = lb_elf_open_mem(data, size, "image", &elf);

	if (err)
		return err;
	err = lb_puc_find(elf, puc_ret);
	lb_elf_free(elf);
	return err;
}

static const struct {
	const char *functions;
	const char *rodata;
	int err;
	const char *version;
	bool by_text, by_functions;
} images[] = {
	{ CORE "lua_equal", TEXT_51, 0, "5.1.5", true, true },
	{ CORE "lua_rawlen lua_rotate", TEXT_53, 0, "5.3.6", true, true },
	/* stripped, nothing exported */
	{ "", "a b c " TEXT_53, 0, "5.3.6", true, false },
	/* text removed */
	{ CORE "lua_equal", "", 0, "5.1", false, true },
	{ CORE "lua_rawlen", "", 0, "5.2", false, true },
	{ CORE "lua_rawlen lua_rotate", "", 0, "5.3", false, true },
	{ CORE "lua_rawlen lua_rotate lua_newuserdatauv", "", 0, "5.4", false,
	  true },
	/* no Lua in it: nothing, a user of a library, some other names */
	{ "", "", -ENOENT, "", false, false },
	{ "-lua_newstate -lua_type -lua_rawgeti -lua_error -lua_equal", "",
	  -ENOENT, "", false, false },
	{ "lua_newstate lua_type", "", -ENOENT, "", false, false },
	{ CORE, "", -ENOENT, "", false, false },
	/* the text's begin is in programs that look for it */
	{ "", "$LuaVersion: Lua 5.", -ENOENT, "", false, false },
	{ "", "$LuaVersion: Lua 5.x Lua.org, PUC-Rio $", -ENOENT, "", false,
	  false },
	{ "", "$LuaVersion: Lua 5.3.6\n Lua.org, PUC-Rio $", -ENOENT, "", false,
	  false },
	{ "", "$LuaVersion: Lua 5.11111111111111111 Lua.org, PUC-Rio $",
	  -ENOENT, "", false, false },
	/* the second one is whole */
	{ "", "$LuaVersion: Lua 5.1 $LuaVersion: Lua 5.2 \n" TEXT_53, 0,
	  "5.3.6", true, false },
	/* LuaJIT, whatever else */
	{ CORE "lua_equal luaJIT_setmode", TEXT_51, -EOPNOTSUPP, "", false,
	  false },
};

static void test_find_images(void)
{
	for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
		struct wr image =
			image_of(images[i].functions, images[i].rodata);
		struct lb_puc puc = { 0 };
		int before = lb_test_failed_checks;

		CHECK_INT(find_in(image.data, image.size, &puc), images[i].err);
		CHECK_STR(puc.version, images[i].version);
		CHECK_INT(puc.by_text, images[i].by_text);
		CHECK_INT(puc.by_functions, images[i].by_functions);
		if (lb_test_failed_checks != before)
			fprintf(stderr, "image %zu\n", i);
		wr_free(&image);
	}
}

/* Damaged images: no crash, and never a version that is not a number. */
static void test_find_when_cut(void)
{
	struct wr image = image_of(CORE "lua_equal", TEXT_51);

	for (size_t size = 0; size < image.size; size += 7) {
		struct lb_puc puc;

		if (!find_in(image.data, size, &puc))
			CHECK_INT(strspn(puc.version, "0123456789."),
				  strlen(puc.version));
	}
	wr_free(&image);
}

static const struct {
	const char *path;
	int err;
	const char *version;
} files[] = {
	{ "/usr/bin/lua5.1", 0, "5.1.5" },
	{ "/usr/bin/lua5.3", 0, "5.3.6" },
	{ "/usr/bin/lua5.4", 0, "5.4.4" },
	{ "/usr/bin/redis-check-rdb", 0, "5.1.5" },
	{ "/usr/bin/luajit", -EOPNOTSUPP, "" },
	{ "/lib/x86_64-linux-gnu/libc.so.6", -ENOENT, "" },
	{ "/usr/sbin/kresd", -ENOENT, "" }, /* uses a LuaJIT library */
	{ "/bin/true", -ENOENT, "" },
};

static void test_find_files_of_debian(void)
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct lb_puc puc = { 0 };
		struct lb_luajit luajit;
		struct lb_elf *elf;
		int fd = open(files[i].path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		n++;
		CHECK_INT(lb_elf_open_fd(fd, files[i].path, &elf), 0);
		close(fd);
		CHECK_INT(lb_puc_find(elf, &puc), files[i].err);
		CHECK_STR(puc.version, files[i].version);
		if (!files[i].err) /* not one of ours as well */
			CHECK_INT(lb_luajit_find(elf, &luajit), -ENOENT);
		lb_elf_free(elf);
	}
	if (n < 4)
		SKIP("puc: fewer than four of its programs are installed");
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_find_images),
		LB_TEST(test_find_when_cut),
		LB_TEST(test_find_files_of_debian),
	};

	return LB_TEST_MAIN(cases);
}
