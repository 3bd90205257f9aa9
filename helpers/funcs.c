/* SPDX-License-Identifier: Apache-2.0 */
/* Functions and prototypes of one process, copied. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "funcs.h"

#define PROTOS_MAX 8192
#define BYTES_MAX  (64U << 20)
#define NEAR_MAX   16 /* prototypes below a pc that may hold it */
#define FUNC_SIZE  64 /* bytes of GCfunc that are looked at */

struct lb_funcs {
	struct lb_names *names;
	struct lb_target *target;
	uint64_t g_addr;
	uint32_t vm;
	uint32_t round;
	struct lb_fproto **protos; /* sorted by address, newest first */
	size_t n_protos;
	size_t bytes;
};

int lb_funcs_new(struct lb_names *names, struct lb_funcs **funcs_ret)
{
	struct lb_funcs *funcs = calloc(1, sizeof(*funcs));

	if (!funcs)
		return -ENOMEM;
	funcs->names = names;
	*funcs_ret = funcs;
	return 0;
}

void lb_funcs_free(struct lb_funcs *funcs)
{
	if (!funcs)
		return;
	for (size_t i = 0; i < funcs->n_protos; i++) {
		lb_proto_fini(&funcs->protos[i]->proto);
		free(funcs->protos[i]);
	}
	free(funcs->protos);
	free(funcs);
}

void lb_funcs_round(struct lb_funcs *funcs, struct lb_target *target,
		    uint64_t g_addr, uint32_t vm)
{
	funcs->target = target;
	funcs->g_addr = g_addr;
	funcs->vm = vm;
	funcs->round++;
}

/* Index of the first prototype at @addr or behind it. */
static size_t index_of(const struct lb_funcs *funcs, uint64_t addr)
{
	size_t lo = 0, hi = funcs->n_protos;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (funcs->protos[mid]->proto.addr < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* What the kernel would have sent for it. */
static uint32_t name_proto(struct lb_funcs *funcs, const struct lb_proto *proto)
{
	const struct lj_offsets *off = funcs->target->off;
	struct lb_proto_rec rec = { .type = LB_REC_PROTO,
				    .proto_addr = proto->addr,
				    .chunk_addr = proto->chunk_addr,
				    .g_addr = funcs->g_addr,
				    .first_line = proto->first_line,
				    .num_line = proto->num_line,
				    .size_bc = proto->size_bc,
				    .vm = funcs->vm,
				    .chunk_id = proto->chunk_id };
	uint8_t len[4];
	uint32_t id = 0;

	if (lb_target_read(funcs->target, proto->chunk_addr + off->str_len, len,
			   sizeof(len)))
		return 0;
	memcpy(&rec.chunk_len, len, sizeof(len));
	rec.chunk_got =
		rec.chunk_len < LB_CHUNK_MAX ? rec.chunk_len : LB_CHUNK_MAX;
	if (lb_target_read(funcs->target, proto->chunk_addr + off->str_size,
			   rec.chunk, rec.chunk_got))
		return 0;
	return lb_names_add_proto(funcs->names, &rec, off, &id) ? 0 : id;
}

static struct lb_fproto *add_proto(struct lb_funcs *funcs, uint64_t addr,
				   size_t at)
{
	const struct lj_offsets *off = funcs->target->off;
	void *bigger;

	if (funcs->n_protos == PROTOS_MAX)
		return NULL;
	bigger = realloc(funcs->protos,
			 (funcs->n_protos + 1) * sizeof(*funcs->protos));
	if (!bigger)
		return NULL;
	funcs->protos = bigger;
	struct lb_fproto *proto = calloc(1, sizeof(*proto));

	if (!proto || lb_proto_read(funcs->target, addr, &proto->proto)) {
		free(proto);
		return NULL;
	}
	if (funcs->bytes + proto->proto.size > BYTES_MAX) {
		lb_proto_fini(&proto->proto);
		free(proto);
		return NULL;
	}
	funcs->bytes += proto->proto.size;
	proto->code = addr + off->pt_size;
	if (off->pt_lineinfo <=
	    off->pt_size - lb_target_ref_size(funcs->target)) {
		uint64_t rel =
			lb_target_ref(funcs->target,
				      proto->proto.data + off->pt_lineinfo) -
			addr;

		proto->lineinfo_off = rel < proto->proto.size ? rel : 0;
	}
	proto->id = name_proto(funcs, &proto->proto);
	memmove(funcs->protos + at + 1, funcs->protos + at,
		(funcs->n_protos - at) * sizeof(*funcs->protos));
	funcs->protos[at] = proto;
	funcs->n_protos++;
	return proto;
}

const struct lb_fproto *lb_funcs_proto(struct lb_funcs *funcs, uint64_t addr)
{
	size_t at = index_of(funcs, addr);
	struct lb_fproto *proto = NULL;

	if (!addr)
		return NULL;
	if (at < funcs->n_protos && funcs->protos[at]->proto.addr == addr)
		proto = funcs->protos[at];
	if (proto && proto->checked == funcs->round)
		return proto;
	if (!proto || lb_proto_check(funcs->target, &proto->proto))
		proto = add_proto(funcs, addr, at);
	if (proto)
		proto->checked = funcs->round;
	return proto;
}

const struct lb_fproto *lb_funcs_at(struct lb_funcs *funcs, uint64_t pc)
{
	size_t at = index_of(funcs, pc);

	/* those that are gone may overlap those that are there */
	for (size_t i = at, n = 0; i-- > 0 && n < NEAR_MAX; n++) {
		struct lb_fproto *proto = funcs->protos[i];

		if (pc - proto->code >= 4ULL * proto->proto.size_bc)
			continue;
		if (proto->checked != funcs->round &&
		    lb_proto_check(funcs->target, &proto->proto))
			continue;
		proto->checked = funcs->round;
		return proto;
	}
	return NULL;
}

int lb_funcs_func(struct lb_funcs *funcs, uint64_t addr,
		  struct lb_func *func_ret)
{
	const struct lj_offsets *off = funcs->target->off;
	size_t ref_size = lb_target_ref_size(funcs->target);
	struct lb_func func = { .addr = addr };
	uint8_t data[FUNC_SIZE];

	if (off->fn_gct >= 16 || off->fn_ffid >= 16 ||
	    off->fn_pc > FUNC_SIZE - 8)
		return -EBADMSG;
	int err = lb_target_read(funcs->target, addr, data,
				 off->fn_pc + ref_size);

	if (err)
		return err;
	if (data[off->fn_gct] != LB_LUA_FUNC)
		return -EBADMSG;
	func.ffid = data[off->fn_ffid];
	if (!func.ffid) {
		func.proto = lb_funcs_proto(
			funcs, lb_target_ref(funcs->target, data + off->fn_pc) -
				       off->pt_size);
		if (!func.proto)
			return -EBADMSG;
	}
	*func_ret = func;
	return 0;
}

uint64_t lb_funcs_upvalue(struct lb_funcs *funcs, uint64_t func, uint32_t index)
{
	const struct lj_offsets *off = funcs->target->off;
	size_t ref_size = lb_target_ref_size(funcs->target);
	uint8_t data[8], n;
	uint64_t at, value;

	if (lb_target_read(funcs->target, func + off->fn_nupvalues, &n, 1) ||
	    index >= n ||
	    lb_target_read(funcs->target,
			   func + off->fn_uvptr + index * ref_size, data,
			   ref_size))
		return 0;
	at = lb_target_ref(funcs->target, data);
	if (lb_target_read(funcs->target, at + off->uv_v, data, ref_size))
		return 0;
	at = lb_target_ref(funcs->target, data);
	if (lb_target_read(funcs->target, at, data, sizeof(data)))
		return 0;
	memcpy(&value, data, sizeof(value));
	if (lb_target_type(funcs->target, value) != LB_LUA_FUNC)
		return 0;
	return lb_target_object(funcs->target, value);
}

bool lb_funcs_calculates(struct lb_funcs *funcs, uint32_t ffid)
{
	static const char *const others[] = {
		"assert", "getmetatable", "ipairs", "next",   "pairs",
		"pcall",  "rawequal",	  "rawget", "rawlen", "rawset",
		"select", "setmetatable", "type",   "unpack", "xpcall",
	};
	const char *name =
		lb_names_fast_name(funcs->names, funcs->g_addr, ffid);

	if (!name)
		return true;
	if (!strncmp(name, "string.", 7) || !strncmp(name, "table.", 6))
		return false;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(name, others[i]))
			return false;
	return true;
}

uint32_t lb_fproto_line(const struct lb_fproto *proto, uint32_t pos)
{
	const struct lb_proto *p = &proto->proto;
	size_t wide = p->num_line < 256 ? 1 : p->num_line < 65536 ? 2 : 4;
	uint32_t delta = 0;

	if (!pos || pos >= p->size_bc)
		return pos ? LB_LINE_UNKNOWN : p->first_line;
	if (!proto->lineinfo_off || proto->lineinfo_off + wide * pos > p->size)
		return LB_LINE_UNKNOWN;
	memcpy(&delta, p->data + proto->lineinfo_off + wide * (pos - 1), wide);
	return p->first_line + delta;
}
