/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that a program carries in its read-only data.
 */
#ifndef LB_RODATA_H
#define LB_RODATA_H

#include "elf.h"

/**
 * lb_rodata_text() - the first text that begins with @prefix
 * @suffix: it must also hold this, further on; "" for anything
 * @text_ret: @size bytes; printable ASCII, cut to fit, NUL-terminated
 *
 * Looks into .rodata, or where there is no such section into the loaded
 * segments, 64 MiB at most. A text ends at its first byte that is not printable
 * ASCII.
 * Return: 0, -ENOENT.
 */
int lb_rodata_text(const struct lb_elf *elf, const char *prefix,
		   const char *suffix, char *text_ret, size_t size);

#endif
