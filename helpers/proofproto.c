/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof: functions and prototypes. A prototype is one allocation whose parts
 * follow each other (helpers/proto.c), so that their sizes must add up.
 */
#include <stdlib.h>
#include <string.h>

#include "proofrun.h"

#define PROTO_MAX   (1U << 20) /* bytes; larger ones are passed over */
#define KGC_MAX	    65536
#define UPVALS_SEEN 8
#define PARAMS_MAX  250
#define N_HEADERS   6 /* FUNCF, IFUNCF, JFUNCF, FUNCV, IFUNCV, JFUNCV */
#define NO_LINE	    0xffffffffU /* builtin in bytecode */
#define VAR_NAMES   7		/* below: a name of LuaJIT's own */

/* ---- functions ---- */

static bool check_upvalues(struct lb_proof_run *run, uint64_t func, uint8_t n)
{
	uint32_t ref = run->off.gc64 ? 8 : 4;

	if (!LB_HAS(run, fn_uvptr))
		return true;
	for (uint32_t i = 0; i < n && i < UPVALS_SEEN; i++) {
		uint64_t at = func + run->off.fn_uvptr + (uint64_t)i * ref;

		if (!lb_proof_is(run, lb_proof_ref(run, at), LB_LUA_UPVAL))
			return false;
	}
	return true;
}

static void check_lua_function(struct lb_proof_run *run, uint64_t func)
{
	const struct lj_offsets *off = &run->off;
	uint64_t proto = lb_proof_ref(run, func + off->fn_pc) - off->pt_size;
	uint8_t gct, n, size_uv;

	if (!lb_proof_note(
		    run, LB_CHECK_FUNCTION,
		    LB_HAS(run, pt_gct) &&
			    lb_proof_read(run, proto + off->pt_gct, &gct, 1) &&
			    gct == LB_LUA_PROTO,
		    "its code is not behind a prototype", func))
		return;
	lb_proof_add(&run->protos, proto);
	if (!LB_HAS(run, fn_nupvalues) ||
	    !lb_proof_read(run, func + off->fn_nupvalues, &n, 1))
		return;
	if (LB_HAS(run, pt_sizeuv) &&
	    lb_proof_read(run, proto + off->pt_sizeuv, &size_uv, 1) &&
	    !lb_proof_note(run, LB_CHECK_FUNCTION, n == size_uv,
			   "it has not as many upvalues as its prototype",
			   func))
		return;
	lb_proof_note(run, LB_CHECK_FUNCTION, check_upvalues(run, func, n),
		      "an upvalue is none", func);
}

static void check_function(struct lb_proof_run *run, uint64_t func)
{
	const struct lj_offsets *off = &run->off;
	uint8_t ffid;

	if (!lb_proof_is(run, func, LB_LUA_FUNC) ||
	    !lb_proof_read(run, func + off->fn_ffid, &ffid, 1))
		return;
	if (LB_HAS(run, fn_env))
		lb_proof_note(run, LB_CHECK_FUNCTION,
			      lb_proof_is(run,
					  lb_proof_ref(run, func + off->fn_env),
					  LB_LUA_TAB),
			      "its environment is no table", func);
	if (!ffid)
		check_lua_function(run, func);
}

/* ---- prototypes ---- */

struct proto {
	uint64_t addr;
	const uint8_t *data;
	uint32_t size; /* bytes of it all, as it says */
	uint32_t size_bc, size_kgc, first_line, num_line;
	uint32_t k; /* offset */
	uint8_t size_uv;
};

/* All fields lie in front of the bytecode. */
static bool is_usable(const struct lb_proof_run *run)
{
	const struct lj_offsets *off = &run->off;
	const uint32_t fields[] = {
		off->pt_gct,	   off->pt_sizebc,   off->pt_k,
		off->pt_sizekgc,   off->pt_sizept,   off->pt_sizeuv,
		off->pt_chunkname, off->pt_numline,  off->pt_firstline,
		off->pt_numparams, off->pt_lineinfo, off->pt_uvinfo,
		off->pt_varinfo,
	};

	if (off->pt_size > 256)
		return false;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (fields[i] > off->pt_size)
			return false;
	return true;
}

/* The copy has room for a reference behind the last field of the header. */
static uint64_t ref_in(const struct lb_proof_run *run,
		       const struct proto *proto, uint32_t off)
{
	return lb_target_ref(&run->target, proto->data + off);
}

/* Offset in the prototype of what a field points to; 0: nothing. */
static uint32_t part_at(const struct lb_proof_run *run,
			const struct proto *proto, uint32_t off)
{
	uint64_t rel = ref_in(run, proto, off) - proto->addr;

	return rel < proto->size ? (uint32_t)rel : 0;
}

static const char *check_parts(struct lb_proof_run *run, struct proto *proto)
{
	const struct lj_offsets *off = &run->off;
	uint64_t code_end = off->pt_size + 4ULL * proto->size_bc;
	uint64_t k_off, ref = off->gc64 ? 8 : 4;
	uint8_t op = proto->data[off->pt_size];

	if (!proto->size_bc || code_end > proto->size ||
	    proto->size_kgc > KGC_MAX)
		return "its bytecode is larger than it is";
	k_off = ref_in(run, proto, off->pt_k) - proto->addr;
	if (k_off != ((code_end + ref * proto->size_kgc + 7) & ~7ULL) ||
	    k_off > proto->size)
		return "its constants are not behind its bytecode";
	proto->k = (uint32_t)k_off;
	if (LB_HAS(run, bc_funcf) && op - off->bc_funcf >= N_HEADERS)
		return "its bytecode does not begin as one of a function";
	if (proto->data[off->pt_numparams] > PARAMS_MAX ||
	    proto->data[off->pt_numparams] > proto->data[off->pt_numparams + 1])
		return "it has more parameters than slots";
	if (!lb_proof_is_str(run, ref_in(run, proto, off->pt_chunkname), NULL))
		return "its chunk name is no string";
	return NULL;
}

static unsigned int line_shift(const struct proto *proto)
{
	return proto->num_line < 256 ? 0 : proto->num_line < 65536 ? 1 : 2;
}

static uint32_t line_at(const struct proto *proto, uint32_t lines, uint32_t i)
{
	unsigned int shift = line_shift(proto);

	if (!shift)
		return proto->data[lines + i];
	return shift == 1 ? lb_proof_u16(proto->data, lines + 2 * i)
			  : lb_proof_u32(proto->data, lines + 4 * i);
}

/* Names of upvalues, as many as there are. Return: where they end, or 0. */
static uint32_t uvs_end(const struct proto *proto, uint32_t at)
{
	for (uint32_t i = 0; i < proto->size_uv; i++) {
		while (at < proto->size && proto->data[at])
			at++;
		if (at++ >= proto->size)
			return 0;
	}
	return at;
}

static uint32_t skip_number(const struct proto *proto, uint32_t at)
{
	while (at < proto->size && proto->data[at] & 0x80)
		at++;
	return at + 1;
}

/* Variables: a name, or a number for one, and two numbers. */
static uint32_t vars_end(const struct proto *proto, uint32_t at)
{
	while (at < proto->size && proto->data[at]) {
		if (proto->data[at] >= VAR_NAMES)
			while (at < proto->size && proto->data[at])
				at++;
		at = skip_number(proto, skip_number(proto, at + 1));
	}
	return at + 1;
}

static void check_debug(struct lb_proof_run *run, const struct proto *proto)
{
	const struct lj_offsets *off = &run->off;
	uint32_t lines = part_at(run, proto, off->pt_lineinfo);
	uint32_t uvs = part_at(run, proto, off->pt_uvinfo);
	uint32_t vars = part_at(run, proto, off->pt_varinfo);
	uint64_t lines_size = (uint64_t)(proto->size_bc - 1)
			      << line_shift(proto);
	uint32_t top = 0;

	if (!ref_in(run, proto, off->pt_lineinfo) &&
	    !ref_in(run, proto, off->pt_uvinfo) &&
	    !ref_in(run, proto, off->pt_varinfo))
		return; /* stripped */
	if (!lb_proof_note(run, LB_CHECK_DEBUG,
			   lines >= proto->k && uvs == lines + lines_size &&
				   uvs && uvs_end(proto, uvs) == vars &&
				   vars_end(proto, vars) == proto->size,
			   "its parts do not follow each other", proto->addr))
		return;
	for (uint32_t i = 0; i + 1 < proto->size_bc; i++) {
		uint32_t line = line_at(proto, lines, i);

		top = line > top ? line : top;
	}
	lb_proof_note(run, LB_CHECK_LINES, top <= proto->num_line,
		      "a line is behind its last one", proto->addr);
}

/* Functions inside of this one. */
static void check_children(struct lb_proof_run *run, const struct proto *proto)
{
	const struct lj_offsets *off = &run->off;
	uint32_t ref = off->gc64 ? 8 : 4;
	uint64_t chunk = ref_in(run, proto, off->pt_chunkname);

	for (uint32_t i = 1; i <= proto->size_kgc; i++) {
		uint64_t child = lb_target_ref(
			&run->target, proto->data + proto->k - i * ref);
		uint8_t lines[8];

		if (!lb_proof_is(run, child, LB_LUA_PROTO))
			continue;
		lb_proof_add(&run->protos, child);
		if (!lb_proof_read(run, child + off->pt_firstline, lines, 4) ||
		    !lb_proof_read(run, child + off->pt_numline, lines + 4,
				   4) ||
		    lb_proof_ref(run, child + off->pt_chunkname) != chunk)
			continue;

		uint32_t first = lb_proof_u32(lines, 0);
		uint64_t last = (uint64_t)first + lb_proof_u32(lines, 4);

		lb_proof_note(run, LB_CHECK_LINES,
			      first >= proto->first_line &&
				      last <= (uint64_t)proto->first_line +
						      proto->num_line,
			      "a function inside has lines outside",
			      proto->addr);
	}
}

static void check_copy(struct lb_proof_run *run, struct proto *proto)
{
	const struct lj_offsets *off = &run->off;
	const char *why;

	proto->size_bc = lb_proof_u32(proto->data, off->pt_sizebc);
	proto->size_kgc = lb_proof_u32(proto->data, off->pt_sizekgc);
	proto->first_line = lb_proof_u32(proto->data, off->pt_firstline);
	proto->num_line = lb_proof_u32(proto->data, off->pt_numline);
	proto->size_uv = proto->data[off->pt_sizeuv];
	why = check_parts(run, proto);
	if (!lb_proof_note(run, LB_CHECK_PROTO, !why, why, proto->addr))
		return;
	if (proto->first_line == NO_LINE)
		return;
	check_debug(run, proto);
	check_children(run, proto);
}

static void check_proto(struct lb_proof_run *run, uint64_t addr)
{
	const struct lj_offsets *off = &run->off;
	struct proto proto = { .addr = addr };
	uint8_t size[4];
	uint8_t *data;

	if (!lb_proof_is(run, addr, LB_LUA_PROTO) ||
	    !lb_proof_read(run, addr + off->pt_sizept, size, sizeof(size)))
		return;
	proto.size = lb_proof_u32(size, 0);
	if (!lb_proof_note(run, LB_CHECK_PROTO, proto.size > off->pt_size + 4,
			   "it has no room for bytecode", addr) ||
	    proto.size > PROTO_MAX)
		return;
	data = malloc(proto.size + 8);
	if (data && lb_proof_note(run, LB_CHECK_PROTO,
				  lb_proof_read(run, addr, data, proto.size),
				  "it is not all there", addr)) {
		memset(data + proto.size, 0, 8);
		proto.data = data;
		check_copy(run, &proto);
	}
	free(data);
}

void lb_proof_protos(struct lb_proof_run *run)
{
	for (size_t i = 0; i < run->funcs.n; i++)
		check_function(run, run->funcs.addrs[i]);
	if (!is_usable(run))
		return;
	/* the list may grow */
	for (size_t i = 0; i < run->protos.n; i++)
		check_proto(run, run->protos.addrs[i]);
}
