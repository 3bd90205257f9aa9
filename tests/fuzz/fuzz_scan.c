/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: machine code through the scan for offsets. An input that is an
 * ELF file is taken as it is; any other is the code of a VM, with its tables
 * of opcodes, in a file that is made here. Files with a LuaJIT in them are
 * good to begin with.
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "luajit.h"
#include "scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SIZE_MAX_HERE (1 << 16)

static void use_scan(const struct lb_elf *elf, const struct lb_luajit *luajit)
{
	const size_t n = LB_SCAN_N_FIELDS;
	struct lb_scan scan;
	uint32_t values[LB_SCAN_N_FIELDS], n_known = 0;

	if (lb_scan_offsets(elf, luajit, &scan))
		return;
	memcpy(values, &scan.offsets, sizeof(values));
	for (size_t i = 0; i < n; i++) {
		n_known += scan.known[i];
		if (!scan.known[i] && values[i] != LJ_OFFSETS_NONE)
			abort();
	}
	if (n_known != scan.n_known)
		abort();
}

/* One segment that holds it all, the code behind the headers. */
static void use_code(const uint8_t *data, size_t size)
{
	const size_t head = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
	struct lb_luajit luajit = { .vm_vaddr = head,
				    .vm_size = size,
				    .cframe_size = 80,
				    .cf_l = 16,
				    .static_dispatch = 154 * 8 };
	Elf64_Ehdr ehdr = { .e_type = ET_DYN,
			    .e_machine = EM_X86_64,
			    .e_version = EV_CURRENT,
			    .e_phoff = sizeof(ehdr),
			    .e_ehsize = sizeof(ehdr),
			    .e_phentsize = sizeof(Elf64_Phdr),
			    .e_phnum = 1 };
	Elf64_Phdr phdr = { .p_type = PT_LOAD,
			    .p_flags = PF_R | PF_X,
			    .p_filesz = head + size,
			    .p_memsz = head + size };
	uint8_t *image = malloc(head + size);
	struct lb_elf *elf;

	if (!image)
		return;
	memcpy(ehdr.e_ident, ELFMAG, SELFMAG);
	ehdr.e_ident[EI_CLASS] = ELFCLASS64;
	ehdr.e_ident[EI_DATA] = ELFDATA2LSB;
	ehdr.e_ident[EI_VERSION] = EV_CURRENT;
	memcpy(image, &ehdr, sizeof(ehdr));
	memcpy(image + sizeof(ehdr), &phdr, sizeof(phdr));
	memcpy(image + head, data, size);
	if (!lb_elf_open_mem(image, head + size, "fuzz", &elf)) {
		use_scan(elf, &luajit);
		lb_elf_free(elf);
	}
	free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lb_luajit luajit;
	struct lb_elf *elf;

	if (size < SELFMAG || memcmp(data, ELFMAG, SELFMAG)) {
		if (size && size <= SIZE_MAX_HERE)
			use_code(data, size);
		return 0;
	}
	if (lb_elf_open_mem(data, size, "fuzz", &elf))
		return 0;
	if (!lb_luajit_find(elf, &luajit))
		use_scan(elf, &luajit);
	lb_elf_free(elf);
	return 0;
}
