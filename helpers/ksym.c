/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function symbols of the kernel, from /proc/kallsyms.
 *
 * A line is `address type name`, for modules `\t[module]` more. There are no
 * sizes: a function goes up to the next symbol.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"
#include "ksym.h"
#include "sym.h"

#define KSYMS_MAX (1U << 22)
#define LAST_SIZE 65536 /* bytes that the last symbol covers at most */

struct entry {
	uint64_t addr;
	uint32_t name; /* offset */
	uint8_t rank;  /* lower is better */
};

struct lb_ksym {
	struct entry *entries;
	size_t n_entries;
	size_t room;
	char *names;
	size_t names_size;
	size_t names_room;
};

static int add_name(struct lb_ksym *ksym, const char *name, size_t size)
{
	size_t most = 4 * size + 1;

	if (ksym->names_size + most > UINT32_MAX)
		return -E2BIG;
	if (ksym->names_size + most > ksym->names_room) {
		size_t room = 2 * ksym->names_room + most + 65536;
		char *names = realloc(ksym->names, room);

		if (!names)
			return -ENOMEM;
		ksym->names = names;
		ksym->names_room = room;
	}
	ksym->names_size +=
		lb_escape(name, size, ksym->names + ksym->names_size, most) + 1;
	return 0;
}

static int add(struct lb_ksym *ksym, uint64_t addr, char type, const char *name,
	       size_t size)
{
	size_t off = ksym->names_size, underscores = strspn(name, "_");
	int err;

	if (ksym->n_entries == KSYMS_MAX)
		return -E2BIG;
	if (ksym->n_entries == ksym->room) {
		size_t room = ksym->room ? 2 * ksym->room : 65536;
		struct entry *entries =
			realloc(ksym->entries, room * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		ksym->entries = entries;
		ksym->room = room;
	}
	err = add_name(ksym, name, size);
	if (err)
		return err;
	ksym->entries[ksym->n_entries++] = (struct entry){
		.addr = addr,
		.name = (uint32_t)off,
		.rank = (uint8_t)((type == 'T'			? 0
				   : type == 'W' || type == 'w' ? 32
								: 64) +
				  (underscores < 31 ? underscores : 31)),
	};
	return 0;
}

/* -EACCES counts as "seen, but hidden"; other lines that are none are left. */
static int add_line(struct lb_ksym *ksym, const char *line)
{
	char *end;
	uint64_t addr = strtoull(line, &end, 16);
	const char *name;
	size_t size;

	if (end == line || *end != ' ' || !end[1] || end[2] != ' ')
		return 0;
	if (!strchr("tTwW", end[1]))
		return 0;
	if (!addr)
		return -EACCES;
	name = end + 3;
	size = strcspn(name, " \t\n");
	return size ? add(ksym, addr, end[1], name, size) : 0;
}

static const char *name_of(const struct lb_ksym *ksym, const struct entry *e)
{
	return ksym->names + e->name;
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct lb_ksym *ksym = arg;
	const struct entry *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return strcmp(name_of(ksym, x), name_of(ksym, y));
}

static void sort(struct lb_ksym *ksym)
{
	size_t n = 0;

	qsort_r(ksym->entries, ksym->n_entries, sizeof(*ksym->entries), compare,
		ksym);
	for (size_t i = 0; i < ksym->n_entries; i++) {
		if (!n || ksym->entries[i].addr != ksym->entries[n - 1].addr)
			ksym->entries[n++] = ksym->entries[i];
	}
	ksym->n_entries = n;
}

int lb_ksym_read(FILE *file, struct lb_ksym **ksym_ret)
{
	struct lb_ksym *ksym = calloc(1, sizeof(*ksym));
	bool hidden = false;
	char *line = NULL;
	size_t room = 0;
	int err = ksym ? 0 : -ENOMEM;

	while (!err && getline(&line, &room, file) > 0) {
		err = add_line(ksym, line);
		hidden = hidden || err == -EACCES;
		if (err == -EACCES)
			err = 0;
	}
	free(line);
	if (err == -E2BIG) /* what fits is used */
		err = 0;
	if (!err && !ksym->n_entries)
		err = hidden ? -EACCES : -ENOENT;
	if (err) {
		lb_ksym_free(ksym);
		return err;
	}
	sort(ksym);
	*ksym_ret = ksym;
	return 0;
}

int lb_ksym_new(struct lb_ksym **ksym_ret)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	int err;

	if (!file)
		return errno == EACCES ? -EACCES : -ENOENT;
	err = lb_ksym_read(file, ksym_ret);
	fclose(file);
	return err;
}

void lb_ksym_free(struct lb_ksym *ksym)
{
	if (!ksym)
		return;
	free(ksym->entries);
	free(ksym->names);
	free(ksym);
}

const char *lb_ksym_find(const struct lb_ksym *ksym, uint64_t addr)
{
	size_t low = 0, high = ksym->n_entries;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (ksym->entries[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low || (low == ksym->n_entries &&
		     addr - ksym->entries[low - 1].addr >= LAST_SIZE))
		return NULL;
	return name_of(ksym, &ksym->entries[low - 1]);
}
