/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readable names of C++ and (legacy) Rust symbols.
 */
#ifndef LB_DEMANGLE_H
#define LB_DEMANGLE_H

/**
 * lb_demangle() - text of a symbol, escaped for output
 * A symbol that is not mangled, or whose text would be too long, is its own
 * text. Return: the text, the caller frees it; NULL without memory.
 */
char *lb_demangle(const char *symbol);

#endif
