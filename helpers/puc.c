/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is there a PUC Lua in this file?
 *
 * Two marks. It defines the functions of its C API, some of which came or went
 * with a release. And since 5.1 its core holds one text for tools like this,
 * lua_ident, which has the number of the release. LuaJIT lacks that text. A
 * stripped program with a Lua inside that it does not export has the text only.
 */
#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "puc.h"
#include "rodata.h"

/* Functions whose presence says something, one bit each. */
enum {
	HAS_NEWSTATE = 1 << 0, /* these four: in each Lua since 5.1 */
	HAS_TYPE = 1 << 1,
	HAS_RAWGETI = 1 << 2,
	HAS_ERROR = 1 << 3,
	HAS_EQUAL = 1 << 4,   /* 5.1 and LuaJIT */
	HAS_RAWLEN = 1 << 5,  /* 5.2 */
	HAS_ROTATE = 1 << 6,  /* 5.3 */
	HAS_USERUV = 1 << 7,  /* 5.4 */
	HAS_LUAJIT = 1 << 31, /* no PUC Lua has it */
};

#define HAS_CORE (HAS_NEWSTATE | HAS_TYPE | HAS_RAWGETI | HAS_ERROR)

static const struct {
	const char *name;
	unsigned int bit;
} marks[] = {
	{ "lua_newstate", HAS_NEWSTATE }, { "lua_type", HAS_TYPE },
	{ "lua_rawgeti", HAS_RAWGETI },	  { "lua_error", HAS_ERROR },
	{ "lua_equal", HAS_EQUAL },	  { "lua_rawlen", HAS_RAWLEN },
	{ "lua_rotate", HAS_ROTATE },	  { "lua_newuserdatauv", HAS_USERUV },
	{ "luaJIT_setmode", HAS_LUAJIT },
};

static int on_sym(void *arg, const struct lb_elf_sym *sym)
{
	unsigned int *has = arg;

	if (sym->shndx == SHN_UNDEF || sym->type != STT_FUNC ||
	    strncmp(sym->name, "lua", 3))
		return 0;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (!strcmp(sym->name, marks[i].name))
			*has |= marks[i].bit;
	return 0;
}

/* The release by the functions that it brought; NULL: no Lua. */
static const char *version_of(unsigned int has)
{
	if ((has & HAS_CORE) != HAS_CORE)
		return NULL;
	if (has & HAS_USERUV)
		return "5.4";
	if (has & HAS_ROTATE)
		return "5.3";
	if (has & HAS_RAWLEN)
		return "5.2";
	return has & HAS_EQUAL ? "5.1" : NULL;
}

/* "$Lua: Lua 5.1.5 Copyright ..." up to 5.1, "$LuaVersion: ..." since 5.2. */
static bool version_in_text(const struct lb_elf *elf, char *version,
			    size_t size)
{
	static const char *const prefixes[] = { "$LuaVersion: Lua 5.",
						"$Lua: Lua 5." };
	char text[64];
	size_t len = 0;

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		if (lb_rodata_text(elf, prefixes[i], "Lua.org, PUC-Rio $", text,
				   sizeof(text)))
			continue;
		const char *number = text + strlen(prefixes[i]) - 2;

		while (isdigit((unsigned char)number[len]) ||
		       number[len] == '.')
			len++;
		if (len < 3 || len >= size)
			return false;
		memcpy(version, number, len);
		version[len] = 0;
		return true;
	}
	return false;
}

int lb_puc_find(const struct lb_elf *elf, struct lb_puc *puc_ret)
{
	struct lb_puc puc = { 0 };
	unsigned int has = 0;

	lb_elf_each_sym(elf, ".dynsym", on_sym, &has);
	lb_elf_each_sym(elf, ".symtab", on_sym, &has);
	if (has & HAS_LUAJIT)
		return -EOPNOTSUPP;

	const char *version = version_of(has);

	puc.by_functions = version != NULL;
	puc.by_text = version_in_text(elf, puc.version, sizeof(puc.version));
	if (!puc.by_text && !puc.by_functions)
		return -ENOENT;
	if (!puc.by_text)
		snprintf(puc.version, sizeof(puc.version), "%s", version);
	*puc_ret = puc;
	return 0;
}
