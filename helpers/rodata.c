/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that a program carries in its read-only data.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "rodata.h"

#define SEARCH_MAX (UINT64_C(64) << 20) /* bytes of one file */
#define TEXT_MAX   256

/* Length of the printable text at @pos. */
static size_t text_len(const uint8_t *pos, const uint8_t *end)
{
	size_t len = 0;

	while (pos + len < end && len < TEXT_MAX && pos[len] >= 0x20 &&
	       pos[len] < 0x7f)
		len++;
	return len;
}

static int search(const uint8_t *data, uint64_t size, const char *prefix,
		  const char *suffix, char *text_ret, size_t text_size)
{
	const uint8_t *end = data + size;
	const size_t prefix_len = strlen(prefix);

	for (const uint8_t *pos = data;; pos++) {
		pos = memmem(pos, (size_t)(end - pos), prefix, prefix_len);
		if (!pos)
			return -ENOENT;

		size_t len = text_len(pos, end);

		if (len < prefix_len ||
		    !memmem(pos + prefix_len, len - prefix_len, suffix,
			    strlen(suffix)))
			continue;
		if (len >= text_size)
			len = text_size - 1;
		memcpy(text_ret, pos, len);
		text_ret[len] = 0;
		return 0;
	}
}

int lb_rodata_text(const struct lb_elf *elf, const char *prefix,
		   const char *suffix, char *text_ret, size_t size)
{
	const struct lb_segment *segments;
	struct lb_section section;
	uint64_t left = SEARCH_MAX;

	if (!lb_elf_section(elf, ".rodata", &section) && section.data &&
	    section.size <= left)
		return search(section.data, section.size, prefix, suffix,
			      text_ret, size);

	size_t n = lb_elf_segments(elf, &segments);

	for (size_t i = 0; i < n && left; i++) {
		uint64_t part =
			segments[i].filesz < left ? segments[i].filesz : left;
		const uint8_t *data =
			lb_elf_vaddr_data(elf, segments[i].vaddr, part);

		left -= part;
		if (data && !search(data, part, prefix, suffix, text_ret, size))
			return 0;
	}
	return -ENOENT;
}
