/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reading of hostile bytes.
 */
#include <stdlib.h>
#include <unistd.h>

#include "buf.h"

void lb_buf_init(struct lb_buf *buf, const void *data, size_t size,
		 uint64_t vaddr)
{
	buf->start = data;
	buf->pos = buf->start;
	buf->end = size ? buf->start + size : buf->start;
	buf->vaddr = vaddr;
	buf->bad = false;
}

size_t lb_buf_left(const struct lb_buf *buf)
{
	return (size_t)(buf->end - buf->pos);
}

uint64_t lb_buf_vaddr(const struct lb_buf *buf)
{
	return buf->vaddr + (uint64_t)(buf->pos - buf->start);
}

/* After the first bad read nothing is left, so that loops over pos end. */
static void set_bad(struct lb_buf *buf)
{
	buf->bad = true;
	buf->pos = buf->end;
}

void lb_buf_skip(struct lb_buf *buf, uint64_t size)
{
	if (size > lb_buf_left(buf))
		set_bad(buf);
	else if (size)
		buf->pos += size;
}

void lb_buf_seek(struct lb_buf *buf, uint64_t off)
{
	if (buf->bad)
		return;
	if (off > (uint64_t)(buf->end - buf->start))
		set_bad(buf);
	else if (buf->start)
		buf->pos = buf->start + off;
}

static bool take(struct lb_buf *buf, void *out, size_t size)
{
	if (size > lb_buf_left(buf)) {
		set_bad(buf);
		return false;
	}
	memcpy(out, buf->pos, size);
	buf->pos += size;
	return true;
}

/* The hosts we run on and the files we read are both little endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte order");

uint8_t lb_buf_u8(struct lb_buf *buf)
{
	if (buf->pos == buf->end) {
		set_bad(buf);
		return 0;
	}
	return *buf->pos++;
}

uint16_t lb_buf_u16(struct lb_buf *buf)
{
	uint16_t value;

	return take(buf, &value, sizeof(value)) ? value : 0;
}

uint32_t lb_buf_u32(struct lb_buf *buf)
{
	uint32_t value;

	return take(buf, &value, sizeof(value)) ? value : 0;
}

uint64_t lb_buf_u64(struct lb_buf *buf)
{
	uint64_t value;

	return take(buf, &value, sizeof(value)) ? value : 0;
}

/* A number may be padded to any length, but must fit 64 bits. */
uint64_t lb_buf_uleb(struct lb_buf *buf)
{
	uint64_t value = 0;
	unsigned int shift = 0;

	while (buf->pos < buf->end) {
		uint8_t byte = *buf->pos++;
		uint64_t bits = byte & 0x7f;

		if (shift >= 64 ? bits : shift == 63 && bits > 1)
			break;
		if (shift < 64)
			value |= bits << shift;
		if (!(byte & 0x80))
			return value;
		if (shift < 64)
			shift += 7;
	}
	set_bad(buf);
	return 0;
}

int64_t lb_buf_sleb(struct lb_buf *buf)
{
	uint64_t value = 0;
	unsigned int shift = 0;

	while (buf->pos < buf->end) {
		uint8_t byte = *buf->pos++;
		uint64_t bits = byte & 0x7f;

		if (shift >= 63) {
			/* from bit 63 on, all bits are copies of the sign */
			bool first = shift == 63;
			uint64_t sign = first ? bits & 1 : value >> 63;

			if (bits != (sign ? 0x7f : 0))
				break;
			if (first)
				value |= sign << 63;
		} else {
			value |= bits << shift;
		}
		if (!(byte & 0x80)) {
			if (shift < 57 && bits & 0x40)
				value |= ~UINT64_C(0) << (shift + 7);
			return (int64_t)value;
		}
		if (shift < 70)
			shift += 7;
	}
	set_bad(buf);
	return 0;
}

const char *lb_buf_str(struct lb_buf *buf)
{
	size_t left = lb_buf_left(buf);
	const uint8_t *nul = left ? memchr(buf->pos, 0, left) : NULL;
	const char *str = (const char *)buf->pos;

	if (!nul) {
		set_bad(buf);
		return NULL;
	}
	buf->pos = nul + 1;
	return str;
}

struct lb_buf lb_buf_sub(struct lb_buf *buf, uint64_t size)
{
	struct lb_buf sub;

	if (size > lb_buf_left(buf)) {
		set_bad(buf);
		lb_buf_init(&sub, buf->end, 0, lb_buf_vaddr(buf));
		sub.bad = true;
		return sub;
	}
	lb_buf_init(&sub, buf->pos, size, lb_buf_vaddr(buf));
	lb_buf_skip(buf, size);
	return sub;
}

void lb_free_ptr(void *ptr_addr)
{
	void *ptr;

	memcpy(&ptr, ptr_addr, sizeof(ptr));
	free(ptr);
}

void lb_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
