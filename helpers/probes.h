/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe points: instructions of a file where the kernel puts a breakpoint, and
 * how to put one there.
 *
 * The kernel runs some instructions itself instead of stepping over a copy of
 * them; a hit there costs a fraction. Nothing here is a return probe, which
 * would replace a return address: an error that unwinds through it kills the
 * target.
 */
#ifndef LB_PROBES_H
#define LB_PROBES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "elf.h"

#define LB_PROBE_NAME_MAX 64

struct lb_probe {
	uint64_t vaddr;
	uint64_t off;  /* in the file */
	uint32_t kind; /* enum lb_probe_kind */
	bool emulated; /* the kernel runs this instruction itself */
	char name[LB_PROBE_NAME_MAX];
};

struct lb_probes { /* zero is an empty list */
	struct lb_probe *list;
	size_t n, cap;
};

/**
 * lb_probes_add() - append a point
 * @vaddr: of an instruction in the file's text
 * Return: 0, -ERANGE (no text of the file there), -ENOMEM.
 */
int lb_probes_add(struct lb_probes *probes, const struct lb_elf *elf,
		  uint32_t kind, const char *name, uint64_t vaddr);
void lb_probes_fini(struct lb_probes *probes);

/** Does the kernel run the instruction at @code itself? x86-64. */
bool lb_probe_is_emulated(const uint8_t *code, size_t size);

/**
 * lb_probe_cheap() - where to probe the function at @vaddr
 * @size: bytes of it that are known; 0: unknown, then few are looked at
 *
 * The first instruction that every call passes once and that the kernel runs
 * itself; where there is none, @vaddr.
 */
uint64_t lb_probe_cheap(const struct lb_elf *elf, uint64_t vaddr,
			uint64_t size);

/**
 * lb_probe_attach() - run program @prog_fd at byte @off of the file at @path
 * @pid: in this process alone, all its threads
 * @fd_ret: closing it takes the breakpoint away
 * Return: 0, or what the kernel said: -EPERM/-EACCES, -ENOENT, -ESRCH, -EINVAL.
 */
int lb_probe_attach(const char *path, uint64_t off, pid_t pid, int prog_fd,
		    int *fd_ret);

#endif
