/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of offsets for the VMs of one process: before its first sample is
 * believed, and again when another file with a VM is mapped.
 */
#ifndef LB_PROVE_H
#define LB_PROVE_H

#include "subject.h"

/**
 * lb_prove_all() - look at the VMs of @subject that are not proven yet
 *
 * VMs are searched for in its memory. Where there is none yet, nothing is
 * proven, nor refused: see lb_prove_at(). What is found goes into the object,
 * for it holds for each process that maps the file, and into the entry.
 * Return: 1 (offsets of the entry have changed), 0, -EBADMSG (the process
 * contradicts the offsets of a file, which is marked so in its object).
 */
int lb_prove_all(struct lb_subject *subject);

/**
 * lb_prove_at() - the VM at @g_addr was met in a sample
 * @vm: index in entry.lj
 * Costs nothing once the build is proven and all its fields are known. Return:
 * as lb_prove_all().
 */
int lb_prove_at(struct lb_subject *subject, unsigned int vm, uint64_t g_addr);

/** Is a field of entry.lj[vm] still to be proven? */
bool lb_prove_is_open(const struct lb_subject *subject, unsigned int vm);

#endif
