/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rate of compiling .eh_frame: for all objects of processes, or for files.
 *
 *   bench_unwind ROUNDS PID|FILE ...
 *
 * Prints one line an argument and object, tab separated: argument, file, bytes
 * of .eh_frame, rows, rules, and the median of ROUNDS in ns of opening the
 * file, looking for a VM, and making the table.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "elf.h"
#include "luajit.h"
#include "proc.h"
#include "unwind.h"

#define ROUNDS_MAX 1000

enum phase { PHASE_OPEN, PHASE_FIND, PHASE_BUILD, PHASES };

struct result {
	uint64_t eh_frame_bytes;
	uint32_t n_rows;
	uint32_t n_rules;
	uint64_t ns[PHASES][ROUNDS_MAX];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t median(uint64_t *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare_u64);
	return values[n / 2];
}

/* One round. -ENODATA and the like: nothing to compile in this file. */
static int build_once(int fd, const char *name, struct result *result,
		      size_t round)
{
	struct lb_elf *elf;
	uint64_t begin = now_ns();
	int err = lb_elf_open_fd(fd, name, &elf);

	if (err)
		return err;
	uint64_t opened = now_ns();
	struct lb_luajit luajit;
	bool has_vm = lb_luajit_find(elf, &luajit) == 0;
	uint64_t found = now_ns();
	struct lb_unwind *unwind;

	err = lb_unwind_build(elf, has_vm ? &luajit : NULL, &unwind);
	if (!err) {
		uint64_t built = now_ns();
		struct lb_section section;

		result->ns[PHASE_OPEN][round] = opened - begin;
		result->ns[PHASE_FIND][round] = found - opened;
		result->ns[PHASE_BUILD][round] = built - found;
		result->n_rows = unwind->n_rows;
		result->n_rules = unwind->n_rules;
		result->eh_frame_bytes = 0;
		if (!lb_elf_eh_frame(elf, &section))
			result->eh_frame_bytes = section.size;
		lb_unwind_free(unwind);
	}
	lb_elf_free(elf);
	return err;
}

static void bench_file(int fd, const char *of, const char *path, size_t rounds)
{
	static struct result result;
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < rounds; i++) {
		int err = build_once(fd, name, &result, i);

		if (err) {
			fprintf(stderr, "%s: %s\n", path, strerror(-err));
			return;
		}
	}
	printf("%s\t%s\t%llu\t%u\t%u", of, name,
	       (unsigned long long)result.eh_frame_bytes, result.n_rows,
	       result.n_rules);
	for (int phase = 0; phase < PHASES; phase++)
		printf("\t%llu",
		       (unsigned long long)median(result.ns[phase], rounds));
	printf("\n");
}

static bool seen_before(const struct lb_proc_map *maps, size_t i)
{
	for (size_t j = 0; j < i; j++) {
		if (maps[j].exec && maps[j].ino == maps[i].ino &&
		    maps[j].dev_major == maps[i].dev_major &&
		    maps[j].dev_minor == maps[i].dev_minor)
			return true;
	}
	return false;
}

static int bench_pid(const char *arg, size_t rounds)
{
	struct lb_proc *proc;
	int err = lb_proc_open(atoi(arg), &proc);

	if (err) {
		fprintf(stderr, "PID %s: %s\n", arg, strerror(-err));
		return 1;
	}
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(proc, &maps);

	for (size_t i = 0; i < n; i++) {
		int fd;

		if (!maps[i].exec || maps[i].kind != LB_MAP_FILE ||
		    seen_before(maps, i))
			continue;
		if (lb_proc_open_map(proc, &maps[i], &fd))
			continue;
		bench_file(fd, arg, maps[i].path, rounds);
		close(fd);
	}
	lb_proc_free(proc);
	return 0;
}

int main(int argc, char **argv)
{
	size_t rounds = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
	int status = 0;

	if (!rounds || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: %s ROUNDS PID|FILE ...\n", argv[0]);
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		if (argv[i][strspn(argv[i], "0123456789")] == '\0') {
			status |= bench_pid(argv[i], rounds);
			continue;
		}
		int fd = open(argv[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0) {
			fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
			status = 1;
			continue;
		}
		bench_file(fd, argv[i], argv[i], rounds);
		close(fd);
	}
	return status;
}
