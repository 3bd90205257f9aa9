/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz entry: text of a mangled name. The input is what follows `_Z`.
 *
 * A finding is also what takes long or gives a text of megabytes: the library
 * that does the work bounds neither, see helpers/demangle.c. With -DFUZZ_MAIN a
 * program of its own, which replays the files that are named.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demangle.h"

#define TEXT_MAX (40U << 20) /* bytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *symbol = malloc(size + 3), *text;

	if (!symbol)
		return 0;
	memcpy(symbol, "_Z", 2);
	memcpy(symbol + 2, data, size);
	symbol[size + 2] = '\0';
	text = lb_demangle(symbol);
	if (text && strlen(text) > TEXT_MAX)
		abort();
	free(text);
	free(symbol);
	return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv)
{
	static uint8_t data[1 << 16];

	for (int i = 1; i < argc; i++) {
		FILE *file = fopen(argv[i], "r");

		if (!file)
			return 1;
		LLVMFuzzerTestOneInput(data,
				       fread(data, 1, sizeof(data), file));
		fclose(file);
	}
	return 0;
}
#endif
