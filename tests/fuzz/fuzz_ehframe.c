/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: an ELF image through the headers, the search for a VM, the
 * unwind table. With -DFUZZ_MAIN a plain program that replays files and then
 * changes bytes of them at random:
 *
 *	fuzz_ehframe [-n ROUNDS] [-s SEED] FILE...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elf.h"
#include "luajit.h"
#include "unwind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int use_sym(void *arg, const struct lb_elf_sym *sym)
{
	size_t *sum = arg;

	*sum += strlen(sym->name);
	return 0;
}

static void use_table(const struct lb_unwind *unwind)
{
	uint64_t size = unwind->vaddr_hi - unwind->vaddr_lo;

	for (uint64_t i = 0; i <= 64; i++) {
		uint64_t vaddr = unwind->vaddr_lo + size / 64 * i;
		const struct lb_rule *rule = lb_unwind_rule(unwind, vaddr);

		if (rule && rule->kind > LB_RULE_VM_RETURN)
			abort();
		if (lb_unwind_function(unwind, vaddr) > vaddr)
			abort();
	}
	for (uint32_t i = 1; i < unwind->n_rows; i++) {
		if (unwind->rows[i].vaddr <= unwind->rows[i - 1].vaddr)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lb_elf *elf;
	struct lb_luajit luajit;
	struct lb_unwind *unwind;
	uint8_t id[LB_BUILD_ID_MAX];
	size_t id_len, sum = 0;

	if (lb_elf_open_mem(data, size, "fuzz", &elf))
		return 0;
	lb_elf_build_id(elf, id, &id_len);
	lb_elf_each_sym(elf, ".dynsym", use_sym, &sum);
	lb_elf_each_sym(elf, ".symtab", use_sym, &sum);

	int found = !lb_luajit_find(elf, &luajit);

	if (!lb_unwind_build(elf, found ? &luajit : NULL, &unwind)) {
		use_table(unwind);
		lb_unwind_free(unwind);
	}
	lb_elf_free(elf);
	return 0;
}

#ifdef FUZZ_MAIN

static uint64_t random_state;

/* xorshift: the same seed gives the same inputs everywhere. */
static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

struct range {
	uint64_t off;
	uint64_t size; /* bytes, not 0 */
};

/* Mostly where it matters: .eh_frame, the headers, the VM. */
static void find_ranges(const uint8_t *data, size_t size,
			struct range ranges[4])
{
	struct lb_section section;
	struct lb_luajit luajit;
	struct lb_elf *elf;

	ranges[0] = (struct range){ 0, size };
	ranges[1] = (struct range){ 0, size < 1024 ? size : 1024 };
	ranges[2] = ranges[3] = ranges[0];
	if (lb_elf_open_mem(data, size, "fuzz", &elf))
		return;
	if (!lb_elf_eh_frame(elf, &section) && section.size)
		ranges[2] = ranges[3] =
			(struct range){ section.off, section.size };
	if (!lb_luajit_find(elf, &luajit) &&
	    lb_elf_vaddr_data(elf, luajit.vm_vaddr, luajit.vm_size))
		ranges[3] = (struct range){ luajit.vm_vaddr, luajit.vm_size };
	lb_elf_free(elf);
	if (ranges[3].off + ranges[3].size > size)
		ranges[3] = ranges[2];
}

static void mutate(uint8_t *data, const struct range *range)
{
	static const uint8_t edges[] = { 0x00, 0xff, 0x7f, 0x80, 0x01, 0x0f };
	uint64_t n = 1 + next_random() % 8;
	uint64_t at = range->off + next_random() % range->size;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t r = next_random();

		/* some in a run, some apart */
		at = r % 3 ? range->off + next_random() % range->size : at + 1;
		if (at >= range->off + range->size)
			at = range->off;
		data[at] = r & 64 ? edges[(r >> 8) % sizeof(edges)]
				  : (uint8_t)(r >> 16);
	}
}

static int fuzz_file(const char *path, long rounds)
{
	FILE *file = fopen(path, "rb");
	struct range ranges[4];

	if (!file) {
		perror(path);
		return 1;
	}
	fseek(file, 0, SEEK_END);

	size_t size = (size_t)ftell(file);
	uint8_t *data = malloc(size + 1), *copy = malloc(size + 1);

	rewind(file);
	if (!data || !copy || fread(data, 1, size, file) != size) {
		fprintf(stderr, "%s: cannot read\n", path);
		return 1;
	}
	fclose(file);
	LLVMFuzzerTestOneInput(data, size);
	find_ranges(data, size, ranges);
	for (long i = 0; i < rounds && size; i++) {
		size_t cut = next_random() % 16 ? size : next_random() % size;

		memcpy(copy, data, size);
		mutate(copy, &ranges[next_random() % 4]);
		LLVMFuzzerTestOneInput(copy, cut);
	}
	free(data);
	free(copy);
	return 0;
}

int main(int argc, char **argv)
{
	long rounds = 1000;
	int ret = 0;

	random_state = 88172645463325252u;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-n") && i + 1 < argc)
			rounds = strtol(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "-s") && i + 1 < argc)
			random_state = strtoull(argv[++i], NULL, 0) | 1;
		else
			ret |= fuzz_file(argv[i], rounds);
	}
	return ret;
}

#endif
