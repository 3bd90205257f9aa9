/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from targets and files, made safe for a folded line and a terminal.
 */
#ifndef LB_ESCAPE_H
#define LB_ESCAPE_H

#include <stddef.h>

/**
 * lb_escape() - make bytes safe for a folded line and a terminal
 * `;`, control bytes (C1 controls in UTF-8 too), DEL and invalid UTF-8 become
 * \xNN; a backslash is left as it is. @out_size at least 4 * size + 1 never
 * cuts; when it cuts, then between characters. Return: bytes written, NUL not
 * counted.
 */
size_t lb_escape(const char *text, size_t size, char *out, size_t out_size);

/**
 * lb_utf8_floor() - longest prefix of at most @size bytes that does not end
 * inside a UTF-8 character
 */
size_t lb_utf8_floor(const char *text, size_t size);

#endif
