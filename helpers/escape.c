/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from targets and files, made safe for a folded line and a terminal.
 * Specification of well-formed UTF-8: Unicode 15 section 3.9, table 3-7.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "escape.h"

static bool is_tail(uint8_t byte)
{
	return (byte & 0xc0) == 0x80;
}

/* Bytes of the well-formed UTF-8 character at @text, 0 if it is none. */
static size_t utf8_size(const uint8_t *text, size_t left)
{
	uint8_t first = text[0];
	uint8_t low = 0x80, high = 0xbf; /* bounds of the second byte */
	size_t size;

	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	if (size > left)
		return 0;
	if (first == 0xe0)
		low = 0xa0; /* shorter forms exist */
	else if (first == 0xed)
		high = 0x9f; /* surrogates */
	else if (first == 0xf0)
		low = 0x90;
	else if (first == 0xf4)
		high = 0x8f; /* above U+10FFFF */
	if (text[1] < low || text[1] > high)
		return 0;
	for (size_t i = 2; i < size; i++) {
		if (!is_tail(text[i]))
			return 0;
	}
	return size;
}

static bool is_plain(const uint8_t *text, size_t size)
{
	if (size == 1)
		return text[0] >= 0x20 && text[0] != 0x7f && text[0] != ';';
	/* U+0080 ... U+009F: a terminal may act on them */
	if (size == 2)
		return text[0] != 0xc2 || text[1] >= 0xa0;
	/* U+2028, U+2029 end a line; the others turn its direction around:
	 * U+200E, U+200F, U+202A ... U+202E, U+2066 ... U+2069 */
	if (size == 3 && text[0] == 0xe2 && text[1] == 0x80)
		return text[2] != 0x8e && text[2] != 0x8f &&
		       (text[2] < 0xa8 || text[2] > 0xae);
	if (size == 3 && text[0] == 0xe2 && text[1] == 0x81)
		return text[2] < 0xa6 || text[2] > 0xa9;
	return true;
}

size_t lb_escape(const char *text, size_t size, char *out, size_t out_size)
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *in = (const uint8_t *)text;
	size_t n = 0;

	if (!out_size)
		return 0;
	for (size_t i = 0; i < size;) {
		size_t step = utf8_size(in + i, size - i);

		if (step && is_plain(in + i, step)) {
			if (n + step >= out_size)
				break;
			memcpy(out + n, in + i, step);
			n += step;
			i += step;
			continue;
		}
		if (n + 4 >= out_size)
			break;
		out[n++] = '\\';
		out[n++] = 'x';
		out[n++] = hex[in[i] >> 4];
		out[n++] = hex[in[i] & 15];
		i++;
	}
	out[n] = '\0';
	return n;
}

size_t lb_utf8_floor(const char *text, size_t size)
{
	const uint8_t *in = (const uint8_t *)text;

	for (size_t back = 1; back <= 3 && back <= size; back++) {
		uint8_t byte = in[size - back];

		if (is_tail(byte))
			continue;
		if (byte >= 0xc2 && byte <= 0xf4) {
			size_t want = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;

			if (want > back)
				return size - back;
		}
		break;
	}
	return size;
}
