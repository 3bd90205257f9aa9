/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel and our privileges allow, found out by trying.
 */
#ifndef LB_KERNEL_H
#define LB_KERNEL_H

#include "facts.h"

/** lb_kernel_facts() - add group `kernel`, item 0 */
void lb_kernel_facts(struct lb_facts *facts);

#endif
