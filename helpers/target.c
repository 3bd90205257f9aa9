/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LuaJIT values in target memory.
 *
 * A TValue has 8 bytes. With 64-bit references (GC64) the type is in the upper
 * 17 bits and the object in the lower 47; otherwise the type is in the upper 32
 * and the object in the lower 32. Types are stored complemented, so that they
 * look like NaNs and numbers need no tag.
 */
#include <errno.h>
#include <string.h>

#include "escape.h"
#include "target.h"

#define STR_SHOWN 96 /* bytes of one string that are read */
#define STR_FIRST 24 /* bytes read together with the header */

int lb_target_read(struct lb_target *target, uint64_t addr, void *buf,
		   size_t size)
{
	size_t cost = 1 + size / 4096;

	if (target->budget < cost) {
		target->budget = 0;
		return -E2BIG;
	}
	target->budget -= (uint32_t)cost;
	return target->read(target->read_arg, addr, buf, size);
}

size_t lb_target_ref_size(const struct lb_target *target)
{
	return target->off->gc64 ? 8 : 4;
}

uint64_t lb_target_ref(const struct lb_target *target, const void *data)
{
	uint32_t ref32;
	uint64_t ref64;

	if (target->off->gc64) {
		memcpy(&ref64, data, sizeof(ref64));
		return ref64;
	}
	memcpy(&ref32, data, sizeof(ref32));
	return ref32;
}

unsigned int lb_target_type(const struct lb_target *target, uint64_t value)
{
	uint32_t itype;

	if (target->off->gc64)
		itype = (uint32_t)((int64_t)value >> 47);
	else
		itype = (uint32_t)(value >> 32);
	return ~itype;
}

uint64_t lb_target_object(const struct lb_target *target, uint64_t value)
{
	if (target->off->gc64)
		return value & ((1ULL << 47) - 1);
	return (uint32_t)value;
}

void lb_path_clear(struct lb_path *path)
{
	memset(path, 0, sizeof(*path));
}

/* Room for "..." and the NUL is always kept. */
#define PATH_ROOM (LB_PATH_MAX - 4)

static void path_cut(struct lb_path *path)
{
	if (path->cut)
		return;
	memcpy(path->text + path->len, "...", 4);
	path->len += 3;
	path->cut = true;
}

void lb_path_add(struct lb_path *path, char sep, const char *text, size_t size)
{
	char escaped[4 * STR_SHOWN + 4];
	size_t shown = size < STR_SHOWN ? size : lb_utf8_floor(text, STR_SHOWN);
	size_t n = lb_escape(text, shown, escaped, sizeof(escaped));

	if (path->cut)
		return;
	if (path->len + 1 + n > PATH_ROOM) {
		path_cut(path);
		return;
	}
	if (path->len)
		path->text[path->len++] = sep;
	path->last = path->len;
	memcpy(path->text + path->len, escaped, n + 1);
	path->len += (uint16_t)n;
	if (shown < size)
		path_cut(path);
}

int lb_path_add_str(struct lb_target *target, struct lb_path *path, char sep,
		    uint64_t addr)
{
	const struct lj_offsets *off = target->off;
	uint8_t buf[64 + STR_SHOWN];
	uint32_t len, want;
	size_t got = off->str_size + STR_FIRST;
	int err;

	if (off->str_size > 64 || off->str_len + 4 > off->str_size ||
	    off->pt_gct >= off->str_size)
		return -EINVAL;
	err = lb_target_read(target, addr, buf, got);
	if (err == -EFAULT) { /* at the end of a mapping */
		got = off->str_size;
		err = lb_target_read(target, addr, buf, got);
	}
	if (err)
		return err;
	memcpy(&len, buf + off->str_len, sizeof(len));
	if (buf[off->pt_gct] != LB_LUA_STR || !len)
		return -EBADMSG;
	want = len < STR_SHOWN ? len : STR_SHOWN;
	if (off->str_size + want > got) {
		err = lb_target_read(target, addr + got, buf + got,
				     off->str_size + want - got);
		if (err)
			return err;
	}
	lb_path_add(path, sep, (const char *)buf + off->str_size, len);
	return 0;
}
