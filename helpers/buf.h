/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reading of hostile bytes: position, end, and where-am-I for messages.
 * A read past the end sets `bad` and yields zero; callers may read several
 * fields and test once.
 */
#ifndef LB_BUF_H
#define LB_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct lb_buf {
	const uint8_t *start;
	const uint8_t *pos;
	const uint8_t *end;
	uint64_t vaddr; /* of start, for pc-relative values and messages */
	bool bad;
};

void lb_buf_init(struct lb_buf *buf, const void *data, size_t size,
		 uint64_t vaddr);
/** Bytes from pos to end. */
size_t lb_buf_left(const struct lb_buf *buf);
/** vaddr of pos. */
uint64_t lb_buf_vaddr(const struct lb_buf *buf);
void lb_buf_skip(struct lb_buf *buf, uint64_t size);
/** Move pos to @off bytes after start. */
void lb_buf_seek(struct lb_buf *buf, uint64_t off);
uint8_t lb_buf_u8(struct lb_buf *buf);
uint16_t lb_buf_u16(struct lb_buf *buf);
uint32_t lb_buf_u32(struct lb_buf *buf);
uint64_t lb_buf_u64(struct lb_buf *buf);
uint64_t lb_buf_uleb(struct lb_buf *buf);
int64_t lb_buf_sleb(struct lb_buf *buf);
/** NUL-terminated string at pos, NULL (and bad) when it does not end. */
const char *lb_buf_str(struct lb_buf *buf);
/** @size bytes at pos as a buffer of their own; pos moves behind them. */
struct lb_buf lb_buf_sub(struct lb_buf *buf, uint64_t size);

/* Scope guards. */
void lb_free_ptr(void *ptr_addr);
void lb_close_fd(int *fd);
#define _cleanup_free_ __attribute__((cleanup(lb_free_ptr)))
#define _cleanup_fd_   __attribute__((cleanup(lb_close_fd)))

#endif
