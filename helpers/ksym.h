/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading kernel symbols, apart from where they come from; see sym.h.
 */
#ifndef LB_KSYM_H
#define LB_KSYM_H

#include <stdio.h>

struct lb_ksym;

/** lb_ksym_new() from an open file in the format of /proc/kallsyms. */
int lb_ksym_read(FILE *file, struct lb_ksym **ksym_ret);

#endif
