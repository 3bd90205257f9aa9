/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: an ELF file through the search for a PUC Lua and for texts.
 * Small programs with a Lua in them are good to begin with.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "puc.h"
#include "rodata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lb_puc puc;
	struct lb_elf *elf;
	char text[16];

	if (lb_elf_open_mem(data, size, "fuzz", &elf))
		return 0;
	if (!lb_puc_find(elf, &puc) &&
	    (strlen(puc.version) < 3 ||
	     strspn(puc.version, "0123456789.") != strlen(puc.version)))
		abort();
	if (!lb_rodata_text(elf, "Lu", "a", text, sizeof(text)) &&
	    (strlen(text) < 3 || memcmp(text, "Lu", 2)))
		abort();
	lb_elf_free(elf);
	return 0;
}
