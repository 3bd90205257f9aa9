/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LuaJIT VMs of a process.
 *
 * Memory is read page by page, as far as /proc/PID/pagemap says it is there:
 * reading more would make the target larger. One word in a thousand bytes is
 * looked at, since the dispatch table is longer than that.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "vms.h"

#define BYTES_MAX    (256ULL << 20)
#define PAGE	     4096
#define PAGES	     256 /* read at once */
#define STRIDE	     1024
#define TABLE_MIN    (STRIDE + 8) /* bytes of a dispatch table */
#define TABLE_MAX    8192
#define PRESENT	     (1ULL << 63)
#define REFS32_LIMIT (1ULL << 32)

struct search {
	const struct lb_proc *proc;
	const struct lj_offsets *offsets;
	uint64_t vm_addr, vm_size;
	int pagemap_fd;
	uint64_t table_end; /* of the last one that was found */
	uint8_t *buf;
	struct lb_vms *vms;
};

static bool in_vm(const struct search *search, uint64_t addr)
{
	return addr - search->vm_addr < search->vm_size;
}

static bool read_word(const struct search *search, uint64_t addr,
		      uint64_t *word_ret)
{
	return !lb_proc_read(search->proc, addr, word_ret, sizeof(*word_ret));
}

/* @addr holds an address in the VM: is that a dispatch table? */
static void look_around(struct search *search, uint64_t addr)
{
	uint64_t begin = addr, end = addr + 8, word;
	struct lb_vms *vms = search->vms;

	if (addr < search->table_end)
		return;
	while (addr - begin < TABLE_MAX &&
	       read_word(search, begin - 8, &word) && in_vm(search, word))
		begin -= 8;
	while (end - begin < TABLE_MAX && read_word(search, end, &word) &&
	       in_vm(search, word))
		end += 8;
	if (end - begin < TABLE_MIN || begin < search->offsets->g2disp)
		return;
	search->table_end = end;
	if (vms->n == LB_VMS_FOUND_MAX)
		vms->cut = true;
	else
		vms->g_addrs[vms->n++] = begin - search->offsets->g2disp;
}

static void look_at(struct search *search, uint64_t start, uint64_t size)
{
	if (lb_proc_read(search->proc, start, search->buf, size))
		return;
	search->vms->n_bytes += size;
	for (uint64_t off = 0; off < size; off += STRIDE) {
		uint64_t word;

		memcpy(&word, search->buf + off, sizeof(word));
		if (in_vm(search, word))
			look_around(search, start + off);
	}
}

/* Which of these pages are there? Without pagemap: all. */
static void read_present(const struct search *search, uint64_t start,
			 uint64_t *entries, size_t n)
{
	ssize_t want = (ssize_t)(n * sizeof(*entries));
	off_t off = (off_t)(start / PAGE * sizeof(*entries));

	if (search->pagemap_fd >= 0 &&
	    pread(search->pagemap_fd, entries, (size_t)want, off) == want)
		return;
	for (size_t i = 0; i < n; i++)
		entries[i] = PRESENT;
}

static void look_at_pages(struct search *search, uint64_t start, size_t n)
{
	uint64_t entries[PAGES];
	size_t first = 0;

	read_present(search, start, entries, n);
	for (size_t i = 0; i <= n; i++) {
		if (i < n && entries[i] & PRESENT)
			continue;
		if (i > first)
			look_at(search, start + first * PAGE,
				(i - first) * PAGE);
		first = i + 1;
	}
}

static void look_at_map(struct search *search, const struct lb_proc_map *map)
{
	uint64_t addr = map->start;

	while (addr < map->end) {
		uint64_t n = (map->end - addr) / PAGE;

		if (search->vms->n_bytes >= BYTES_MAX) {
			search->vms->cut = true;
			return;
		}
		if (n > PAGES)
			n = PAGES;
		if (!n)
			return;
		look_at_pages(search, addr, n);
		addr += n * PAGE;
	}
}

static int open_pagemap(const struct lb_proc *proc)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", lb_proc_pid(proc));
	return open(path, O_RDONLY | O_CLOEXEC);
}

int lb_vms_find(const struct lb_proc *proc, uint64_t vm_addr, uint64_t vm_size,
		const struct lj_offsets *offsets, struct lb_vms *vms_ret)
{
	_cleanup_free_ uint8_t *buf = malloc((size_t)PAGES * PAGE);
	_cleanup_fd_ int fd = open_pagemap(proc);
	struct lb_vms vms = { .n = 0 };
	struct search search = { .proc = proc,
				 .offsets = offsets,
				 .vm_addr = vm_addr,
				 .vm_size = vm_size,
				 .pagemap_fd = fd,
				 .buf = buf,
				 .vms = &vms };
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(proc, &maps);

	if (!buf)
		return -ENOMEM;
	if (offsets->g2disp == LJ_OFFSETS_NONE)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		/* without 64-bit references a VM is in the first 4 GiB */
		if (maps[i].kind != LB_MAP_ANON || !maps[i].readable ||
		    !maps[i].writable ||
		    (!offsets->gc64 && maps[i].start >= REFS32_LIMIT))
			continue;
		look_at_map(&search, &maps[i]);
	}
	*vms_ret = vms;
	return 0;
}
