/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the symbols of a stripped file are: a separate debug file, or a small
 * one packed into the file itself.
 */
#ifndef LB_DEBUGFILE_H
#define LB_DEBUGFILE_H

#include "elf.h"
#include "proc.h"

/**
 * lb_debugfile_open() - the separate debug file of @elf
 * By build ID, then by .gnu_debuglink next to the file; in the root of @proc
 * (may be NULL), then in ours. A file counts only with the same build ID, or,
 * where @elf has none, with the checksum that .gnu_debuglink tells.
 * Return: 0, -ENOENT, -ENOMEM.
 */
int lb_debugfile_open(const struct lb_elf *elf, const struct lb_proc *proc,
		      struct lb_elf **debug_ret);

/**
 * lb_debugfile_unpack() - the ELF file in .gnu_debugdata
 * Return: 0, -ENODATA (no such section), -EBADMSG (not xz, or not ELF), -E2BIG,
 * -ENOMEM.
 */
int lb_debugfile_unpack(const struct lb_elf *elf, struct lb_elf **debug_ret);

#endif
