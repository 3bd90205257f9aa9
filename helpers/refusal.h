/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a process cannot be profiled, in words: what was found, what is missing.
 */
#ifndef LB_REFUSAL_H
#define LB_REFUSAL_H

#include <stddef.h>

#include "subject.h"

/** lb_refusal_vm() - why a VM cannot be walked; one line without a PID */
void lb_refusal_vm(const struct lb_object *vm, char *text_ret, size_t size);

/**
 * lb_refusal_text() - why @subject, which has no VM that can be walked, is
 * refused
 * @text_ret: one line, `PID 185: ...`
 * Return: -ENOENT (no LuaJIT in it), -EOPNOTSUPP (one that cannot be walked).
 */
int lb_refusal_text(const struct lb_subject *subject, char *text_ret,
		    size_t size);

/**
 * lb_refusal_other() - name another Lua that is in the process
 * Looks into all of its files, so it is not for processes that nobody asked
 * for.
 * Return: 0, -ENOENT (none; @text_ret is untouched).
 */
int lb_refusal_other(const struct lb_subject *subject, char *text_ret,
		     size_t size);

#endif
