/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One prototype, copied out of the target.
 *
 * LuaJIT allocates a prototype in one piece: header, bytecode, references to
 * constants (counted backwards from the pointer k), numbers, upvalue
 * descriptions, line table, upvalue names, variable names. One read gets it
 * all; every pointer in it must then point into the copy.
 *
 * Names come from following one value. Forwards from the instruction that makes
 * a closure or a table to the one that stores it; backwards from the use of a
 * slot to the instruction that filled it, as the VM's own error messages do.
 * Both take the bytecode in its written order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "proto.h"

#define PROTO_MAX   (4U << 20) /* bytes of one prototype */
#define HEADER_MAX  256	       /* bytes of a header, all builds */
#define VAR_DEPTH   256	       /* slots of a frame */
#define FOLLOW_MAX  4096       /* instructions from a value to its store */
#define NESTING_MAX 8	       /* tables in tables */
#define STEPS	    1024       /* instructions looked at for one read */
#define NO_VAR	    UINT32_MAX

struct lb_proto_var {
	const char *name; /* NULL: internal, such as the state of a `for` */
	uint32_t start;	  /* bytecode index */
	uint32_t end;
	uint32_t slot;
	uint32_t outer; /* index of the one open when this begins, NO_VAR */
};

struct ins {
	uint8_t op;
	uint8_t a;
	uint8_t b;
	uint8_t c;
	uint32_t d;
};

/* Following values through one prototype. */
struct walk {
	struct lb_target *target;
	const struct lj_offsets *off;
	const struct lb_proto *proto;
	uint32_t steps; /* left before the budget is charged again */
	/* the last table whose name was looked for: constructors ask again */
	uint32_t memo_pos;
	bool memo_found;
	struct lb_path memo;
};

/* ---- reading ---- */

static uint32_t get_u32(const uint8_t *data, uint32_t off)
{
	uint32_t value;

	memcpy(&value, data + off, sizeof(value));
	return value;
}

/* All fields lie inside the header, and the header inside our buffer. */
static bool offsets_usable(const struct lj_offsets *off)
{
	const uint32_t fields[] = { off->pt_gct,       off->pt_numparams,
				    off->pt_sizebc,    off->pt_k,
				    off->pt_sizekgc,   off->pt_sizept,
				    off->pt_sizeuv,    off->pt_chunkname,
				    off->pt_firstline, off->pt_numline,
				    off->pt_uvinfo,    off->pt_varinfo };

	if (off->pt_size > HEADER_MAX || off->pt_size < 8)
		return false;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i] > off->pt_size - 4)
			return false;
	}
	return !off->gc64 || (off->pt_k <= off->pt_size - 8 &&
			      off->pt_chunkname <= off->pt_size - 8 &&
			      off->pt_uvinfo <= off->pt_size - 8 &&
			      off->pt_varinfo <= off->pt_size - 8);
}

static uint64_t header_ref(const struct lb_target *target, const uint8_t *data,
			   uint32_t off)
{
	return lb_target_ref(target, data + off);
}

/* Offset in the copy of a pointer into the prototype; 0 for none. */
static uint32_t inside(const struct lb_proto *proto, uint64_t addr)
{
	uint64_t rel = addr - proto->addr;

	return addr && rel < proto->size ? (uint32_t)rel : 0;
}

/* Addresses of strings are used again; this tells them apart. */
static int read_chunk_id(struct lb_target *target, uint64_t chunk_addr,
			 uint32_t *id_ret)
{
	uint8_t id[4];
	int err = lb_target_read(target, chunk_addr + target->off->str_id, id,
				 sizeof(id));

	if (!err)
		*id_ret = get_u32(id, 0);
	return err;
}

static int parse_header(const struct lb_target *target, struct lb_proto *proto)
{
	const struct lj_offsets *off = target->off;
	const uint8_t *data = proto->data;
	size_t ref = lb_target_ref_size(target);
	uint64_t code_end, k_off;

	if (data[off->pt_gct] != LB_LUA_PROTO)
		return -EBADMSG;
	if (get_u32(data, off->pt_sizept) != proto->size)
		return -EBADMSG;
	proto->size_bc = get_u32(data, off->pt_sizebc);
	proto->size_kgc = get_u32(data, off->pt_sizekgc);
	proto->first_line = get_u32(data, off->pt_firstline);
	proto->num_line = get_u32(data, off->pt_numline);
	proto->chunk_addr = header_ref(target, data, off->pt_chunkname);
	proto->num_params = data[off->pt_numparams];
	proto->size_uv = data[off->pt_sizeuv];
	code_end = off->pt_size + 4ULL * proto->size_bc;
	if (!proto->size_bc || code_end > proto->size)
		return -EBADMSG;
	k_off = header_ref(target, data, off->pt_k) - proto->addr;
	if (k_off < code_end || k_off > proto->size ||
	    (uint64_t)proto->size_kgc * ref > k_off - code_end)
		return -EBADMSG;
	proto->kgc_off = (uint32_t)k_off;
	proto->uvinfo_off =
		inside(proto, header_ref(target, data, off->pt_uvinfo));
	return 0;
}

/*
 * Variables are stored by the position where they begin, and end in the reverse
 * order: the slot of one is the number of those still open.
 */
static int parse_vars(const struct lb_target *target, struct lb_proto *proto)
{
	uint32_t off = inside(proto, header_ref(target, proto->data,
						target->off->pt_varinfo));
	uint32_t open[VAR_DEPTH]; /* indices of open variables */
	size_t n_open = 0, room = 0;
	uint64_t pos = 0;
	struct lb_buf buf;

	if (!off)
		return 0;
	lb_buf_init(&buf, proto->data + off, proto->size - off, 0);
	while (!buf.bad && lb_buf_left(&buf)) {
		struct lb_proto_var var = { .name = NULL };

		/* 1 ... 6 stand for the hidden variables of loops */
		if (*buf.pos >= 7)
			var.name = lb_buf_str(&buf);
		else if (!lb_buf_u8(&buf))
			break;
		pos += lb_buf_uleb(&buf);
		var.start = (uint32_t)pos;
		pos += lb_buf_uleb(&buf);
		if (buf.bad || pos > proto->size_bc)
			break;
		var.end = (uint32_t)pos;
		pos = var.start;
		while (n_open && proto->vars[open[n_open - 1]].end <= var.start)
			n_open--;
		if (n_open == VAR_DEPTH)
			break;
		var.slot = (uint32_t)n_open;
		var.outer = n_open ? open[n_open - 1] : NO_VAR;
		open[n_open++] = (uint32_t)proto->n_vars;
		if (proto->n_vars == room) {
			struct lb_proto_var *vars;

			room = room ? 2 * room : 16;
			vars = realloc(proto->vars, room * sizeof(*vars));
			if (!vars)
				return -ENOMEM;
			proto->vars = vars;
		}
		proto->vars[proto->n_vars++] = var;
	}
	return 0;
}

int lb_proto_read(struct lb_target *target, uint64_t addr,
		  struct lb_proto *proto_ret)
{
	const struct lj_offsets *off = target->off;
	struct lb_proto proto = { .addr = addr };
	uint8_t header[HEADER_MAX];
	int err;

	if (!offsets_usable(off))
		return -EINVAL;
	err = lb_target_read(target, addr, header, off->pt_size);
	if (err)
		return err;
	if (header[off->pt_gct] != LB_LUA_PROTO)
		return -EBADMSG;
	proto.size = get_u32(header, off->pt_sizept);
	if (proto.size < off->pt_size + 4)
		return -EBADMSG;
	if (proto.size > PROTO_MAX)
		return -E2BIG;
	proto.data = malloc(proto.size);
	if (!proto.data)
		return -ENOMEM;
	err = lb_target_read(target, addr, proto.data, proto.size);
	if (!err)
		err = parse_header(target, &proto);
	if (!err)
		err = read_chunk_id(target, proto.chunk_addr, &proto.chunk_id);
	if (!err)
		err = parse_vars(target, &proto);
	if (err) {
		lb_proto_fini(&proto);
		return err;
	}
	*proto_ret = proto;
	return 0;
}

void lb_proto_fini(struct lb_proto *proto)
{
	free(proto->data);
	free(proto->vars);
	memset(proto, 0, sizeof(*proto));
}

int lb_proto_check(struct lb_target *target, const struct lb_proto *proto)
{
	const struct lj_offsets *off = target->off;
	uint8_t header[HEADER_MAX];
	uint32_t id = 0;
	int err = lb_target_read(target, proto->addr, header, off->pt_size);

	if (err)
		return err;
	if (header[off->pt_gct] != LB_LUA_PROTO ||
	    get_u32(header, off->pt_sizept) != proto->size ||
	    get_u32(header, off->pt_sizebc) != proto->size_bc ||
	    get_u32(header, off->pt_firstline) != proto->first_line ||
	    header_ref(target, header, off->pt_chunkname) != proto->chunk_addr)
		return -ESTALE;
	err = read_chunk_id(target, proto->chunk_addr, &id);
	if (err)
		return err;
	return id == proto->chunk_id ? 0 : -ESTALE;
}

/* ---- parts ---- */

static struct ins ins_at(const struct lj_offsets *off,
			 const struct lb_proto *proto, uint32_t pos)
{
	uint32_t word = get_u32(proto->data, off->pt_size + 4 * pos);

	return (struct ins){ .op = (uint8_t)word,
			     .a = (uint8_t)(word >> 8),
			     .b = (uint8_t)(word >> 24),
			     .c = (uint8_t)(word >> 16),
			     .d = word >> 16 };
}

unsigned int lb_proto_op(const struct lj_offsets *off,
			 const struct lb_proto *proto, uint32_t pos)
{
	return ins_at(off, proto, pos).op;
}

bool lb_proto_is_vararg(const struct lj_offsets *off,
			const struct lb_proto *proto)
{
	/* FUNCF, IFUNCF, JFUNCF, FUNCV, IFUNCV, JFUNCV */
	return lb_proto_op(off, proto, 0) >= off->bc_funcf + 3;
}

bool lb_proto_has_self(const struct lb_proto *proto)
{
	const struct lb_proto_var *var = proto->vars;

	return proto->num_params && proto->n_vars && !var->slot && var->name &&
	       !strcmp(var->name, "self");
}

const char *lb_proto_upvalue_name(const struct lb_proto *proto,
				  unsigned int index)
{
	struct lb_buf buf;
	const char *name = NULL;

	if (!proto->uvinfo_off || index >= proto->size_uv)
		return NULL;
	lb_buf_init(&buf, proto->data + proto->uvinfo_off,
		    proto->size - proto->uvinfo_off, 0);
	for (unsigned int i = 0; i <= index; i++)
		name = lb_buf_str(&buf);
	return name && *name ? name : NULL;
}

/* Reference number @index of the constants; 0 if there is none. */
static uint64_t kgc(const struct walk *walk, uint32_t index)
{
	size_t ref = lb_target_ref_size(walk->target);

	if (index >= walk->proto->size_kgc)
		return 0;
	return lb_target_ref(walk->target, walk->proto->data +
						   walk->proto->kgc_off -
						   ref * (index + 1));
}

/* ---- following values ---- */

/* An instruction of operator @op on two operands, by its first opcode. */
static bool in_range(unsigned int op, unsigned int first, unsigned int end)
{
	return op >= first && op < end;
}

/* Does it write slot A, and no other? */
static bool writes_a(const struct lj_offsets *off, unsigned int op)
{
	return op == off->bc_uget || op == off->bc_istc ||
	       op == off->bc_istc + 1 ||
	       in_range(op, off->bc_mov, off->bc_knil) ||
	       in_range(op, off->bc_fnew, off->bc_gset) ||
	       in_range(op, off->bc_tgetv, off->bc_tsetv) ||
	       in_range(op, off->bc_jmp + 1, off->bc_funcf); /* BNOT to BSAR */
}

/* Does it use or write slots from A on? */
static bool uses_from_a(const struct lj_offsets *off, unsigned int op)
{
	return op == off->bc_tsetm ||
	       in_range(op, off->bc_call, off->bc_isnext + 1) ||
	       in_range(op, off->bc_retm, off->bc_loop);
}

/* A test, which the next instruction (a jump) belongs to. */
static bool is_test(const struct lj_offsets *off, unsigned int op)
{
	return op < off->bc_ist + 2;
}

/* One step of a search; false when the budget is used up. */
static bool spend(struct walk *walk)
{
	if (!walk->steps) {
		if (!walk->target->budget)
			return false;
		walk->target->budget--;
		walk->steps = STEPS;
	}
	walk->steps--;
	return true;
}

/* Index of the first variable that begins after @pos. */
static size_t vars_after(const struct lb_proto *proto, uint32_t pos)
{
	size_t low = 0, high = proto->n_vars;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (proto->vars[mid].start <= pos)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The variable that lives in @slot at @pos. */
static const struct lb_proto_var *var_at(struct walk *walk, uint32_t pos,
					 uint32_t slot)
{
	const struct lb_proto *proto = walk->proto;
	size_t after = vars_after(proto, pos);
	uint32_t i = after ? (uint32_t)after - 1 : NO_VAR;

	for (; i != NO_VAR && spend(walk); i = proto->vars[i].outer) {
		const struct lb_proto_var *var = &proto->vars[i];

		if (var->slot == slot && pos < var->end)
			return var;
	}
	return NULL;
}

/* The variable that takes over @slot at @pos or next after it. */
static const struct lb_proto_var *var_next(struct walk *walk, uint32_t pos,
					   uint32_t slot)
{
	const struct lb_proto *proto = walk->proto;

	for (size_t i = vars_after(proto, pos - 1);
	     i < proto->n_vars && spend(walk); i++) {
		if (proto->vars[i].slot == slot)
			return &proto->vars[i];
		if (proto->vars[i].start > pos + FOLLOW_MAX)
			break;
	}
	return NULL;
}

static bool add_var(struct lb_path *path, const struct lb_proto_var *var)
{
	if (!var->name)
		return false;
	lb_path_add(path, '.', var->name, strlen(var->name));
	return true;
}

static bool add_kgc_str(struct walk *walk, struct lb_path *path, uint32_t index)
{
	uint64_t addr = kgc(walk, index);

	return addr && !lb_path_add_str(walk->target, path, '.', addr);
}

static bool add_upvalue(struct walk *walk, struct lb_path *path, uint32_t index)
{
	const char *name = lb_proto_upvalue_name(walk->proto, index);

	if (!name)
		return false;
	lb_path_add(path, '.', name, strlen(name));
	return true;
}

/* Position of the instruction that filled @slot, seen from @pos; 0: unknown. */
static uint32_t find_def(struct walk *walk, uint32_t pos, uint32_t slot)
{
	const struct lj_offsets *off = walk->off;

	for (uint32_t i = pos; i-- > 1 && spend(walk);) {
		struct ins ins = ins_at(off, walk->proto, i);

		if (uses_from_a(off, ins.op) && slot >= ins.a)
			return 0;
		if (ins.op == off->bc_knil && slot >= ins.a && slot <= ins.d)
			return 0;
		if (writes_a(off, ins.op) && ins.a == slot)
			return i;
	}
	return 0;
}

static bool stored_as(struct walk *walk, uint32_t pos, uint32_t slot,
		      struct lb_path *path, bool *field_ret, int depth);

static bool table_name(struct walk *walk, uint32_t pos, uint32_t slot,
		       struct lb_path *path, int depth)
{
	bool field = false;

	if (walk->memo_pos != pos) {
		struct lb_path memo;
		bool found;

		lb_path_clear(&memo);
		found = stored_as(walk, pos, slot, &memo, &field, depth);
		walk->memo_pos = pos;
		walk->memo_found = found;
		walk->memo = memo;
	}
	if (walk->memo_found)
		*path = walk->memo;
	return walk->memo_found;
}

/* What the value in @slot at @pos is called: `x`, `a.b.c`. */
static bool value_name(struct walk *walk, uint32_t pos, uint32_t slot,
		       struct lb_path *path, int depth)
{
	const struct lj_offsets *off = walk->off;
	const struct lb_proto_var *var = var_at(walk, pos, slot);
	struct ins ins;
	uint32_t def;

	if (var)
		return add_var(path, var);
	if (depth >= NESTING_MAX)
		return false;
	def = find_def(walk, pos, slot);
	if (!def)
		return false;
	ins = ins_at(off, walk->proto, def);
	if (ins.op == off->bc_mov)
		return value_name(walk, def, ins.d, path, depth + 1);
	if (ins.op == off->bc_gget)
		return add_kgc_str(walk, path, ins.d);
	if (ins.op == off->bc_uget)
		return add_upvalue(walk, path, ins.d);
	if (ins.op == off->bc_tgets) {
		if (!value_name(walk, def, ins.b, path, depth + 1))
			lb_path_clear(path);
		return add_kgc_str(walk, path, ins.c);
	}
	if (ins.op == off->bc_tnew || ins.op == off->bc_tdup)
		return table_name(walk, def, slot, path, depth + 1);
	return false;
}

/* Constant string in @slot at @pos, as the last component of @path. */
static bool add_key(struct walk *walk, struct lb_path *path, uint32_t pos,
		    uint32_t slot)
{
	uint32_t def = var_at(walk, pos, slot) ? 0 : find_def(walk, pos, slot);
	struct ins ins;

	if (!def)
		return false;
	ins = ins_at(walk->off, walk->proto, def);
	return ins.op == walk->off->bc_kstr && add_kgc_str(walk, path, ins.d);
}

/* Does it store slot @slot? *done_ret: the value has gone where it goes. */
static bool store_name(struct walk *walk, uint32_t pos, struct ins ins,
		       uint32_t slot, struct lb_path *path, bool *field_ret,
		       bool *done_ret, int depth)
{
	const struct lj_offsets *off = walk->off;

	*done_ret = true;
	if (ins.op == off->bc_gset && ins.a == slot)
		return add_kgc_str(walk, path, ins.d);
	if (ins.op == off->bc_usetv && ins.d == slot)
		return add_upvalue(walk, path, ins.a);
	/* a key beyond the range of an operand goes through a slot */
	if (ins.a == slot &&
	    (ins.op == off->bc_tsets || ins.op == off->bc_tsetv)) {
		*field_ret = !value_name(walk, pos, ins.b, path, depth + 1);
		if (*field_ret)
			lb_path_clear(path);
		if (ins.op == off->bc_tsets)
			return add_kgc_str(walk, path, ins.c);
		return add_key(walk, path, pos, ins.c);
	}
	if (ins.a == slot && in_range(ins.op, off->bc_tsetv, off->bc_tsetm))
		return false;
	if (ins.op == off->bc_mov && ins.d == slot) {
		const struct lb_proto_var *var = var_at(walk, pos + 1, ins.a);

		if (var)
			return add_var(path, var);
	}
	*done_ret = false;
	return false;
}

/*
 * Where the value made at @pos in @slot is stored first.
 * @field_ret: set when that is a field of a table that has no name here
 */
static bool stored_as(struct walk *walk, uint32_t pos, uint32_t slot,
		      struct lb_path *path, bool *field_ret, int depth)
{
	const struct lj_offsets *off = walk->off;
	const struct lb_proto_var *var = var_at(walk, pos + 1, slot);
	uint32_t size = walk->proto->size_bc;

	*field_ret = false;
	if (var)
		return add_var(path, var);
	if (depth >= NESTING_MAX)
		return false;
	var = var_next(walk, pos + 1, slot);
	for (uint32_t i = pos + 1, n = 0; i < size && n < FOLLOW_MAX; n++) {
		struct ins ins = ins_at(off, walk->proto, i);
		bool done;

		if (!spend(walk))
			return false;
		if (var && var->start == i)
			return add_var(path, var);
		if (store_name(walk, i, ins, slot, path, field_ret, &done,
			       depth))
			return true;
		if (done || (writes_a(off, ins.op) && ins.a == slot) ||
		    (uses_from_a(off, ins.op) && slot >= ins.a))
			return false;
		if (ins.op == off->bc_jmp || ins.op == off->bc_uclo) {
			if (ins.d < 0x8000) /* backwards */
				return false;
			i += ins.d - 0x8000;
		}
		i += is_test(off, ins.op) ? 2 : 1;
	}
	return false;
}

static void walk_init(struct walk *walk, struct lb_target *target,
		      const struct lb_proto *proto)
{
	memset(walk, 0, sizeof(*walk));
	walk->target = target;
	walk->off = target->off;
	walk->proto = proto;
}

int lb_proto_each_child(struct lb_target *target, const struct lb_proto *proto,
			lb_proto_child_fn fn, void *arg)
{
	struct walk walk;

	walk_init(&walk, target, proto);
	for (uint32_t pos = 1; pos < proto->size_bc; pos++) {
		struct ins ins = ins_at(target->off, proto, pos);
		struct lb_proto_child child = { .addr = 0 };
		struct lb_path path;
		int err;

		if (ins.op != target->off->bc_fnew)
			continue;
		child.addr = kgc(&walk, ins.d);
		if (!child.addr)
			continue;
		lb_path_clear(&path);
		if (!stored_as(&walk, pos, ins.a, &path, &child.field, 0))
			lb_path_clear(&path);
		child.path = &path;
		err = fn(arg, &child);
		if (err)
			return err;
	}
	return 0;
}

/* Name of what instruction @ins calls, as the VM itself would say. */
static bool callee_name(struct walk *walk, uint32_t pos, uint32_t slot,
			struct lb_path *path, int depth)
{
	const struct lj_offsets *off = walk->off;
	const struct lb_proto_var *var = var_at(walk, pos, slot);
	uint32_t def = var ? 0 : find_def(walk, pos, slot);
	struct ins ins;

	if (var)
		return add_var(path, var);
	if (!def || depth >= NESTING_MAX)
		return false;
	ins = ins_at(off, walk->proto, def);
	if (ins.op == off->bc_mov)
		return callee_name(walk, def, ins.d, path, depth + 1);
	if (ins.op == off->bc_gget)
		return add_kgc_str(walk, path, ins.d);
	if (ins.op == off->bc_tgets)
		return add_kgc_str(walk, path, ins.c);
	if (ins.op == off->bc_uget)
		return add_upvalue(walk, path, ins.d);
	return false;
}

int lb_proto_each_call(struct lb_target *target, const struct lb_proto *proto,
		       lb_proto_call_fn fn, void *arg)
{
	const struct lj_offsets *off = target->off;
	struct walk walk;

	walk_init(&walk, target, proto);
	for (uint32_t pos = 1; pos < proto->size_bc; pos++) {
		struct ins ins = ins_at(off, proto, pos);
		const char *name = NULL;
		struct lb_path path;
		int err;

		lb_path_clear(&path);
		if (ins.op == off->bc_iterc || ins.op == off->bc_itern)
			name = "for iterator";
		else if (in_range(ins.op, off->bc_call, off->bc_iterc) &&
			 callee_name(&walk, pos, ins.a, &path, 0))
			name = path.text;
		if (!name)
			continue;
		err = fn(arg, pos, name);
		if (err)
			return err;
	}
	return 0;
}

const char *lb_proto_metamethod(const struct lj_offsets *off, unsigned int op)
{
	static const char *const arith[] = { "__add", "__sub", "__mul", "__div",
					     "__mod" };

	if (op < off->bc_iseqv)
		return op < 2 ? "__lt" : "__le";
	if (op < off->bc_istc)
		return "__eq";
	if (op == off->bc_unm)
		return "__unm";
	if (op == off->bc_len)
		return "__len";
	if (in_range(op, off->bc_addvn, off->bc_pow))
		return arith[(op - off->bc_addvn) % 5];
	if (op == off->bc_pow)
		return "__pow";
	if (op == off->bc_cat)
		return "__concat";
	if (op == off->bc_gget || in_range(op, off->bc_tgetv, off->bc_tsetv))
		return "__index";
	if (op == off->bc_gset || in_range(op, off->bc_tsetv, off->bc_tsetm))
		return "__newindex";
	return NULL;
}
