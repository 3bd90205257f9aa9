/* SPDX-License-Identifier: Apache-2.0 */
/* Where the running kernel keeps members of its structs, by its own BTF. */
#ifndef LB_KFIELD_H
#define LB_KFIELD_H

#include <stdint.h>

#include <bpf/btf.h>

/**
 * lb_kfield_off() - byte offset of a member
 * @type: name of a struct
 * @path: members between dots, "se.exec_start"; those of structs without a name
 * count as the outer one's
 * Return: 0, -ENOENT (no such struct or member), -EOPNOTSUPP (a bit field).
 */
int lb_kfield_off(const struct btf *btf, const char *type, const char *path,
		  uint32_t *off_ret);

#endif
