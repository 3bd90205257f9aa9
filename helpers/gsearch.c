/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LuaJIT VMs of a process, searched for in its memory.
 *
 * A VM is one block: the lua_State of the main thread, right behind it the
 * global_State, and so on. The main thread refers to its global_State as every
 * thread does, so there is a word whose value is a fixed distance from its own
 * address. Few words are like that; what follows must then say that it is a
 * thread, the global_State that this is its main thread, and its dispatch table
 * must lead to the code of the VM that is looked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "gsearch.h"
#include "target.h"

#define PAGE_BYTES     UINT64_C(4096)
#define CHUNK_PAGES    64
#define CHUNK_BYTES    (CHUNK_PAGES * PAGE_BYTES)
#define SEARCH_MAX     (UINT64_C(1) << 30) /* bytes */
#define CANDIDATES_MAX 256		   /* in one chunk */
#define PAGE_PRESENT   (UINT64_C(1) << 63) /* in an entry of pagemap */
#define LOW_END	       (UINT64_C(1) << 32) /* of 32-bit references */

struct run {
	const struct lb_proc *proc;
	const struct lj_offsets *off;
	uint64_t vm_addr, vm_size;
	int pagemap_fd;
	uint8_t *data; /* CHUNK_BYTES */
	struct lb_gsearch found;
};

size_t lb_gsearch_chunk(const struct lj_offsets *off, uint64_t addr,
			const uint8_t *data, size_t size, uint64_t *g_addrs_ret,
			size_t max)
{
	const uint64_t distance = off->l_size - off->l_glref;
	size_t n = 0;

	for (size_t at = off->l_glref % 8; at + 8 <= size && n < max; at += 8) {
		uint64_t word, want = addr + at + distance;

		memcpy(&word, data + at, sizeof(word));
		if (off->gc64 ? word == want : (uint32_t)word == want)
			g_addrs_ret[n++] = want;
	}
	return n;
}

static uint64_t read_ref(const struct run *run, uint64_t addr)
{
	uint64_t ref = 0;

	if (lb_proc_read(run->proc, addr, &ref, run->off->gc64 ? 8 : 4))
		return 0;
	return ref;
}

/* Is @l_addr a thread of @g_addr? */
static bool is_thread(const struct run *run, uint64_t l_addr, uint64_t g_addr)
{
	uint8_t gct;

	return !lb_proc_read(run->proc, l_addr + run->off->l_gct, &gct, 1) &&
	       gct == LB_LUA_THREAD &&
	       read_ref(run, l_addr + run->off->l_glref) == g_addr;
}

/* The first instruction's entry, in the half of the table that never changes
 * for it. */
static bool is_dispatched(const struct run *run, uint64_t g_addr)
{
	uint64_t entry,
		addr = g_addr + run->off->g2disp + run->off->static_dispatch;

	return !lb_proc_read(run->proc, addr, &entry, sizeof(entry)) &&
	       entry - run->vm_addr < run->vm_size;
}

static bool is_vm(const struct run *run, uint64_t g_addr)
{
	const struct lj_offsets *off = run->off;
	uint64_t l_addr = g_addr - off->l_size;

	if (!is_thread(run, l_addr, g_addr) || !is_dispatched(run, g_addr) ||
	    read_ref(run, g_addr + off->g_mainthref) != l_addr)
		return false;
	if (off->g_cur_l == LJ_OFFSETS_NONE)
		return true;
	uint64_t cur_l = read_ref(run, g_addr + off->g_cur_l);

	return !cur_l || is_thread(run, cur_l, g_addr);
}

static void add(struct lb_gsearch *found, uint64_t g_addr)
{
	size_t i = found->n;

	if (found->n == LB_GSEARCH_MAX) {
		found->whole = false;
		return;
	}
	while (i && found->g_addrs[i - 1] > g_addr)
		i--;
	if (i && found->g_addrs[i - 1] == g_addr)
		return;
	memmove(found->g_addrs + i + 1, found->g_addrs + i,
		(found->n - i) * sizeof(found->g_addrs[0]));
	found->g_addrs[i] = g_addr;
	found->n++;
}

/* Pages that follow each other and are all in memory. */
static void search_pages(struct run *run, uint64_t addr, size_t size)
{
	uint64_t candidates[CANDIDATES_MAX];

	/* one that was given back meanwhile takes the others with it */
	if (lb_proc_read(run->proc, addr, run->data, size))
		return;
	run->found.searched_bytes += size;
	size_t n = lb_gsearch_chunk(run->off, addr, run->data, size, candidates,
				    CANDIDATES_MAX);

	if (n == CANDIDATES_MAX)
		run->found.whole = false;
	for (size_t i = 0; i < n; i++)
		if (is_vm(run, candidates[i]))
			add(&run->found, candidates[i]);
}

static void search_chunk(struct run *run, uint64_t addr, size_t n_pages)
{
	uint64_t entries[CHUNK_PAGES];
	size_t want = n_pages * sizeof(entries[0]);
	ssize_t got = pread(run->pagemap_fd, entries, want,
			    (off_t)(addr / PAGE_BYTES * sizeof(entries[0])));

	if (got < 0)
		return;
	n_pages = (size_t)got / sizeof(entries[0]);
	for (size_t i = 0; i < n_pages;) {
		size_t begin = i;

		while (i < n_pages && entries[i] & PAGE_PRESENT)
			i++;
		if (i > begin)
			search_pages(run, addr + begin * PAGE_BYTES,
				     (i - begin) * PAGE_BYTES);
		else
			i++;
	}
}

static void search_map(struct run *run, const struct lb_proc_map *map)
{
	for (uint64_t addr = map->start; addr < map->end; addr += CHUNK_BYTES) {
		uint64_t left = map->end - addr;

		if (run->found.searched_bytes >= SEARCH_MAX) {
			run->found.whole = false;
			return;
		}
		search_chunk(run, addr,
			     left < CHUNK_BYTES ? left / PAGE_BYTES
						: CHUNK_PAGES);
	}
}

static bool is_heap(const struct run *run, const struct lb_proc_map *map)
{
	return map->kind == LB_MAP_ANON && map->readable && map->writable &&
	       !map->exec && strcmp(map->path, "[stack]") &&
	       (run->off->gc64 || map->start < LOW_END);
}

int lb_gsearch_run(const struct lb_proc *proc, const struct lj_offsets *off,
		   uint64_t vm_addr, uint64_t vm_size,
		   struct lb_gsearch *search_ret)
{
	const __u32 needed[] = { off->l_size,  off->l_gct,
				 off->l_glref, off->g_mainthref,
				 off->g2disp,  off->static_dispatch };
	struct run run = { .proc = proc,
			   .off = off,
			   .vm_addr = vm_addr,
			   .vm_size = vm_size,
			   .found.whole = true };
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(proc, &maps);
	char path[64];

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (needed[i] == LJ_OFFSETS_NONE)
			return -EINVAL;
	if (off->l_glref > off->l_size)
		return -EINVAL;
	snprintf(path, sizeof(path), "/proc/%d/pagemap", lb_proc_pid(proc));

	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ uint8_t *data = malloc(CHUNK_BYTES);

	if (fd < 0)
		return -errno;
	if (!data)
		return -ENOMEM;
	run.pagemap_fd = fd;
	run.data = data;
	for (size_t i = 0; i < n; i++)
		if (is_heap(&run, &maps[i]))
			search_map(&run, &maps[i]);
	*search_ret = run.found;
	return 0;
}
