/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is there a PUC Lua (the one of lua.org) in this file? Decided by content:
 * functions that it defines, and the text of its release. Never by file name.
 */
#ifndef LB_PUC_H
#define LB_PUC_H

#include <stdbool.h>

#include "elf.h"

struct lb_puc {
	char version[16]; /* "5.3.6" by its text, else "5.3" */
	bool by_text;
	bool by_functions;
};

/**
 * lb_puc_find() - look for a PUC Lua in one file
 * @elf: a file in which lb_luajit_find() finds no VM: LuaJIT defines most of
 * the same functions
 *
 * A program that only uses a Lua library holds none.
 * Return: 0, -ENOENT, -EOPNOTSUPP (it defines functions of LuaJIT's own: a
 * LuaJIT, whose VM is not recognised).
 */
int lb_puc_find(const struct lb_elf *elf, struct lb_puc *puc_ret);

#endif
