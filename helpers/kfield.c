/* SPDX-License-Identifier: Apache-2.0 */
/* Where the running kernel keeps members of its structs. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "kfield.h"
#include "lb.h"

#define DEPTH_MAX 8 /* structs without a name in each other */

/* A struct or union behind modifiers and typedefs; NULL for other types. */
static const struct btf_type *composite_of(const struct btf *btf, uint32_t id)
{
	const struct btf_type *type = btf__type_by_id(btf, id);

	while (type && (btf_is_mod(type) || btf_is_typedef(type)))
		type = btf__type_by_id(btf, type->type);
	return type && btf_is_composite(type) ? type : NULL;
}

static bool is_name(const struct btf *btf, uint32_t off, const char *name,
		    size_t size)
{
	const char *text = btf__name_by_offset(btf, off);

	return text && strlen(text) == size && !memcmp(text, name, size);
}

/* One member by name; *bits grows by its offset. */
static int find(const struct btf *btf, const struct btf_type *type,
		const char *name, size_t size, int depth, uint32_t *bits,
		uint32_t *id_ret)
{
	const struct btf_member *members = btf_members(type);

	if (depth == DEPTH_MAX)
		return -ENOENT;
	for (uint32_t i = 0; i < btf_vlen(type); i++) {
		uint32_t off = btf_member_bit_offset(type, i);
		const struct btf_type *inner;

		if (is_name(btf, members[i].name_off, name, size)) {
			*bits += off;
			*id_ret = members[i].type;
			return 0;
		}
		inner = members[i].name_off
				? NULL
				: composite_of(btf, members[i].type);
		if (inner &&
		    !find(btf, inner, name, size, depth + 1, bits, id_ret)) {
			*bits += off;
			return 0;
		}
	}
	return -ENOENT;
}

int lb_kfield_off(const struct btf *btf, const char *type, const char *path,
		  uint32_t *off_ret)
{
	int id = btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT);
	uint32_t bits = 0, next = (uint32_t)id;

	if (id < 0)
		return -ENOENT;
	while (*path) {
		size_t size = strcspn(path, ".");
		const struct btf_type *outer = composite_of(btf, next);

		if (!outer || find(btf, outer, path, size, 0, &bits, &next))
			return -ENOENT;
		path += size + (path[size] == '.');
	}
	if (bits % 8)
		return -EOPNOTSUPP;
	*off_ret = bits / 8;
	return 0;
}

int lb_kernel_offset(const char *type, const char *path, uint32_t *off_ret)
{
	struct btf *btf = btf__load_vmlinux_btf();
	int err;

	if (!btf)
		return errno ? -errno : -ENOENT;
	err = lb_kfield_off(btf, type, path, off_ret);
	btf__free(btf);
	return err;
}
