/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members of struct lj_offsets by name, and where each comes from.
 */
#include <errno.h>
#include <string.h>

#include "fields.h"

#define VALUE_MAX (1 << 20) /* larger than any struct of LuaJIT's */

#define MEMBER(name)	      #name, offsetof(struct lj_offsets, name)
#define OFFSET(path)	      LB_FIELD_OFFSET, path, NULL, false
#define OPTIONAL(path)	      LB_FIELD_OFFSET, path, NULL, true
#define FIRST_OF(path, other) LB_FIELD_OFFSET, path, other, false
#define SIZE(path)	      LB_FIELD_SIZE, path, NULL, false
#define REFS(path)	      LB_FIELD_REFS, path, NULL, false
#define GC64(path)	      LB_FIELD_GC64, path, NULL, false
#define CODE		      LB_FIELD_CODE, NULL, NULL, false
#define ENUM(name)	      LB_FIELD_ENUM, name, NULL, false
#define ENUM_OPTIONAL(name)   LB_FIELD_ENUM, name, NULL, true
#define EITHER(name, other)   LB_FIELD_ENUM, name, other, false
#define STATIC(path, other)   LB_FIELD_STATIC, path, other, false
#define DISTANCE(path, other) LB_FIELD_DISTANCE, path, other, false

/* In the order of the struct. */
const struct lb_field lb_fields[] = {
	{ MEMBER(gc64), GC64("lua_State.glref") },
	{ MEMBER(g2disp), DISTANCE("GG_State.dispatch", "GG_State.g") },
	{ MEMBER(g_cur_l), OPTIONAL("global_State.cur_L") },
	{ MEMBER(g_vmstate), OFFSET("global_State.vmstate") },
	{ MEMBER(cframe_size), CODE },
	{ MEMBER(static_dispatch), STATIC("GG_State.dispatch", "BC_FUNCF") },
	{ MEMBER(g_jit_base), OFFSET("global_State.jit_base") },
	{ MEMBER(g_gc_root), OFFSET("global_State.gc.root") },
	{ MEMBER(g_gc_state), OFFSET("global_State.gc.state") },
	{ MEMBER(g_mainthref), OFFSET("global_State.mainthref") },
	{ MEMBER(g_registry), OFFSET("global_State.registrytv") },
	{ MEMBER(g_to_j), DISTANCE("GG_State.J", "GG_State.g") },
	{ MEMBER(g_gcroot), OFFSET("global_State.gcroot") },
	{ MEMBER(g_n_gcroot), REFS("global_State.gcroot") },
	{ MEMBER(g_jit_l), OPTIONAL("global_State.jit_L") },
	{ MEMBER(g_gc_total), OFFSET("global_State.gc.total") },
	{ MEMBER(g_gc_threshold), OFFSET("global_State.gc.threshold") },
	{ MEMBER(g_gc_debt), OFFSET("global_State.gc.debt") },
	{ MEMBER(g_gc_estimate), OFFSET("global_State.gc.estimate") },
	{ MEMBER(vm_interp), ENUM("LJ_VMST_INTERP") },
	{ MEMBER(vm_c), EITHER("LJ_VMST_C", "LJ_VMST_CFUNC") },
	{ MEMBER(vm_lfunc), ENUM_OPTIONAL("LJ_VMST_LFUNC") },
	{ MEMBER(vm_ffunc), ENUM_OPTIONAL("LJ_VMST_FFUNC") },
	{ MEMBER(vm_gc), ENUM("LJ_VMST_GC") },
	{ MEMBER(vm_exit), ENUM("LJ_VMST_EXIT") },
	{ MEMBER(vm_record), ENUM("LJ_VMST_RECORD") },
	{ MEMBER(vm_opt), ENUM("LJ_VMST_OPT") },
	{ MEMBER(vm_asm), ENUM("LJ_VMST_ASM") },
	{ MEMBER(l_gct), OFFSET("lua_State.gct") },
	{ MEMBER(l_status), OFFSET("lua_State.status") },
	{ MEMBER(l_glref), OFFSET("lua_State.glref") },
	{ MEMBER(l_base), OFFSET("lua_State.base") },
	{ MEMBER(l_top), OFFSET("lua_State.top") },
	{ MEMBER(l_maxstack), OFFSET("lua_State.maxstack") },
	{ MEMBER(l_stack), OFFSET("lua_State.stack") },
	{ MEMBER(l_env), OFFSET("lua_State.env") },
	{ MEMBER(l_cframe), OFFSET("lua_State.cframe") },
	{ MEMBER(l_size), SIZE("lua_State") },
	{ MEMBER(cf_nres), CODE },
	{ MEMBER(cf_l), CODE },
	{ MEMBER(cf_pc), CODE },
	{ MEMBER(cf_prev), CODE },
	{ MEMBER(cf_r14), CODE },
	{ MEMBER(cf_rbx), CODE },
	{ MEMBER(cf_rbp), CODE },
	{ MEMBER(cf_ra), CODE },
	{ MEMBER(fn_gct), OFFSET("GCfuncL.gct") },
	{ MEMBER(fn_ffid), OFFSET("GCfuncL.ffid") },
	{ MEMBER(fn_env), OFFSET("GCfuncL.env") },
	{ MEMBER(fn_pc), OFFSET("GCfuncL.pc") },
	{ MEMBER(fn_f), OFFSET("GCfuncC.f") },
	{ MEMBER(fn_upvalue), OFFSET("GCfuncC.upvalue") },
	{ MEMBER(fn_uvptr), OFFSET("GCfuncL.uvptr") },
	{ MEMBER(fn_nupvalues), OFFSET("GCfuncL.nupvalues") },
	{ MEMBER(pt_size), SIZE("GCproto") },
	{ MEMBER(pt_gct), OFFSET("GCproto.gct") },
	{ MEMBER(pt_numparams), OFFSET("GCproto.numparams") },
	{ MEMBER(pt_sizebc), OFFSET("GCproto.sizebc") },
	{ MEMBER(pt_k), OFFSET("GCproto.k") },
	{ MEMBER(pt_sizekgc), OFFSET("GCproto.sizekgc") },
	{ MEMBER(pt_sizept), OFFSET("GCproto.sizept") },
	{ MEMBER(pt_sizeuv), OFFSET("GCproto.sizeuv") },
	{ MEMBER(pt_flags), OFFSET("GCproto.flags") },
	{ MEMBER(pt_chunkname), OFFSET("GCproto.chunkname") },
	{ MEMBER(pt_firstline), OFFSET("GCproto.firstline") },
	{ MEMBER(pt_numline), OFFSET("GCproto.numline") },
	{ MEMBER(pt_lineinfo), OFFSET("GCproto.lineinfo") },
	{ MEMBER(pt_uvinfo), OFFSET("GCproto.uvinfo") },
	{ MEMBER(pt_varinfo), OFFSET("GCproto.varinfo") },
	{ MEMBER(str_id), FIRST_OF("GCstr.sid", "GCstr.hash") },
	{ MEMBER(str_len), OFFSET("GCstr.len") },
	{ MEMBER(str_size), SIZE("GCstr") },
	{ MEMBER(tab_array), OFFSET("GCtab.array") },
	{ MEMBER(tab_node), OFFSET("GCtab.node") },
	{ MEMBER(tab_metatable), OFFSET("GCtab.metatable") },
	{ MEMBER(tab_asize), OFFSET("GCtab.asize") },
	{ MEMBER(tab_hmask), OFFSET("GCtab.hmask") },
	{ MEMBER(node_size), SIZE("Node") },
	{ MEMBER(node_val), OFFSET("Node.val") },
	{ MEMBER(node_key), OFFSET("Node.key") },
	{ MEMBER(node_next), OFFSET("Node.next") },
	{ MEMBER(uv_tv), OFFSET("GCupval.tv") },
	{ MEMBER(uv_v), OFFSET("GCupval.v") },
	{ MEMBER(ud_metatable), OFFSET("GCudata.metatable") },
	{ MEMBER(j_trace), OFFSET("jit_State.trace") },
	{ MEMBER(j_sizetrace), OFFSET("jit_State.sizetrace") },
	{ MEMBER(j_mcarea), OFFSET("jit_State.mcarea") },
	{ MEMBER(j_szmcarea), OFFSET("jit_State.szmcarea") },
	{ MEMBER(tr_startpt), OFFSET("GCtrace.startpt") },
	{ MEMBER(tr_startpc), OFFSET("GCtrace.startpc") },
	{ MEMBER(tr_mcode), OFFSET("GCtrace.mcode") },
	{ MEMBER(tr_szmcode), OFFSET("GCtrace.szmcode") },
	{ MEMBER(tr_root), OFFSET("GCtrace.root") },
	{ MEMBER(tr_link), OFFSET("GCtrace.link") },
	{ MEMBER(tr_traceno), OFFSET("GCtrace.traceno") },
	{ MEMBER(j_freetrace), OFFSET("jit_State.freetrace") },
	{ MEMBER(tr_nsnap), OFFSET("GCtrace.nsnap") },
	{ MEMBER(tr_nsnapmap), OFFSET("GCtrace.nsnapmap") },
	{ MEMBER(tr_snap), OFFSET("GCtrace.snap") },
	{ MEMBER(tr_snapmap), OFFSET("GCtrace.snapmap") },
	{ MEMBER(tr_ir), OFFSET("GCtrace.ir") },
	{ MEMBER(tr_nk), OFFSET("GCtrace.nk") },
	{ MEMBER(tr_nins), OFFSET("GCtrace.nins") },
	{ MEMBER(tr_mcloop), OFFSET("GCtrace.mcloop") },
	{ MEMBER(tr_startins), OFFSET("GCtrace.startins") },
	{ MEMBER(tr_spadjust), OFFSET("GCtrace.spadjust") },
	{ MEMBER(tr_linktype), OFFSET("GCtrace.linktype") },
	{ MEMBER(sn_size), SIZE("SnapShot") },
	{ MEMBER(sn_mapofs), OFFSET("SnapShot.mapofs") },
	{ MEMBER(sn_mapofs_size), SIZE("SnapShot.mapofs") },
	{ MEMBER(sn_ref), OFFSET("SnapShot.ref") },
	{ MEMBER(sn_mcofs), OPTIONAL("SnapShot.mcofs") },
	{ MEMBER(sn_nslots), OFFSET("SnapShot.nslots") },
	{ MEMBER(sn_topslot), OFFSET("SnapShot.topslot") },
	{ MEMBER(sn_nent), OFFSET("SnapShot.nent") },
	{ MEMBER(sn_count), OFFSET("SnapShot.count") },
	{ MEMBER(ir_size), SIZE("IRIns") },
	{ MEMBER(bc_call), ENUM("BC_CALLM") },
	{ MEMBER(bc_isnext), ENUM("BC_ISNEXT") },
	{ MEMBER(bc_funcf), ENUM("BC_FUNCF") },
	{ MEMBER(bc_iseqv), ENUM("BC_ISEQV") },
	{ MEMBER(bc_istc), ENUM("BC_ISTC") },
	{ MEMBER(bc_ist), ENUM("BC_IST") },
	{ MEMBER(bc_mov), ENUM("BC_MOV") },
	{ MEMBER(bc_unm), ENUM("BC_UNM") },
	{ MEMBER(bc_len), ENUM("BC_LEN") },
	{ MEMBER(bc_addvn), ENUM("BC_ADDVN") },
	{ MEMBER(bc_pow), ENUM("BC_POW") },
	{ MEMBER(bc_cat), ENUM("BC_CAT") },
	{ MEMBER(bc_kstr), ENUM("BC_KSTR") },
	{ MEMBER(bc_knil), ENUM("BC_KNIL") },
	{ MEMBER(bc_uget), ENUM("BC_UGET") },
	{ MEMBER(bc_usetv), ENUM("BC_USETV") },
	{ MEMBER(bc_uclo), ENUM("BC_UCLO") },
	{ MEMBER(bc_fnew), ENUM("BC_FNEW") },
	{ MEMBER(bc_tnew), ENUM("BC_TNEW") },
	{ MEMBER(bc_tdup), ENUM("BC_TDUP") },
	{ MEMBER(bc_gget), ENUM("BC_GGET") },
	{ MEMBER(bc_gset), ENUM("BC_GSET") },
	{ MEMBER(bc_tgetv), ENUM("BC_TGETV") },
	{ MEMBER(bc_tgets), ENUM("BC_TGETS") },
	{ MEMBER(bc_tsetv), ENUM("BC_TSETV") },
	{ MEMBER(bc_tsets), ENUM("BC_TSETS") },
	{ MEMBER(bc_tsetm), ENUM("BC_TSETM") },
	{ MEMBER(bc_iterc), ENUM("BC_ITERC") },
	{ MEMBER(bc_itern), ENUM("BC_ITERN") },
	{ MEMBER(bc_retm), ENUM("BC_RETM") },
	{ MEMBER(bc_fori), ENUM("BC_FORI") },
	{ MEMBER(bc_loop), ENUM("BC_LOOP") },
	{ MEMBER(bc_jmp), ENUM("BC_JMP") },
};

const size_t lb_n_fields = sizeof(lb_fields) / sizeof(lb_fields[0]);

_Static_assert(sizeof(lb_fields) / sizeof(lb_fields[0]) ==
		       sizeof(struct lj_offsets) / sizeof(__u32),
	       "a member of struct lj_offsets is not listed");

uint32_t lb_field_get(const struct lj_offsets *offsets,
		      const struct lb_field *field)
{
	uint32_t value;

	memcpy(&value, (const char *)offsets + field->off, sizeof(value));
	return value;
}

void lb_field_set(struct lj_offsets *offsets, const struct lb_field *field,
		  uint32_t value)
{
	memcpy((char *)offsets + field->off, &value, sizeof(value));
}

static int read_field(const struct lb_field_source *source,
		      const struct lb_field *field, int64_t *value_ret)
{
	uint64_t off, size, other_off, other_size;
	int err;

	if (field->kind == LB_FIELD_ENUM) {
		err = source->enumerator(source->arg, field->path, value_ret);
		if (err == -ENOENT && field->other)
			err = source->enumerator(source->arg, field->other,
						 value_ret);
		return err;
	}
	err = source->member(source->arg, field->path, &off, &size);
	if (err == -ENOENT && field->kind == LB_FIELD_OFFSET && field->other)
		err = source->member(source->arg, field->other, &off, &size);
	if (err)
		return err;
	switch (field->kind) {
	case LB_FIELD_DISTANCE:
		err = source->member(source->arg, field->other, &other_off,
				     &other_size);
		*value_ret = (int64_t)(off - other_off);
		return err;
	case LB_FIELD_STATIC:
		/* GG_LEN_DDISP pointers, then GG_LEN_SDISP, one for each
		 * opcode below the first function header */
		err = source->enumerator(source->arg, field->other, value_ret);
		*value_ret = err ? 0 : (int64_t)size - 8 * *value_ret;
		return err;
	case LB_FIELD_REFS:
		err = source->member(source->arg, "lua_State.glref", &other_off,
				     &other_size);
		if (!err && (!other_size || size % other_size))
			err = -ERANGE;
		*value_ret = err ? 0 : (int64_t)(size / other_size);
		return err;
	case LB_FIELD_GC64:
		*value_ret = size == 8;
		return size == 8 || size == 4 ? 0 : -ERANGE;
	case LB_FIELD_SIZE:
		*value_ret = (int64_t)size;
		return size ? 0 : -ERANGE;
	default:
		*value_ret = (int64_t)off;
		return 0;
	}
}

int lb_fields_read(const struct lb_field_source *source,
		   struct lj_offsets *offsets_ret, const char **path_ret)
{
	struct lj_offsets offsets;
	uint64_t off, size;

	memset(&offsets, 0xff, sizeof(offsets));
	for (size_t i = 0; i < lb_n_fields; i++) {
		const struct lb_field *field = &lb_fields[i];
		int64_t value;
		int err;

		if (field->kind == LB_FIELD_CODE)
			continue;
		*path_ret = field->path;
		err = read_field(source, field, &value);
		if (err == -ENOENT && field->optional)
			continue;
		if (!err && (value < 0 || value > VALUE_MAX))
			err = -ERANGE;
		if (err)
			return err;
		lb_field_set(&offsets, field, (uint32_t)value);
	}
	/* of the thread that runs there must be one or the other */
	if (offsets.g_cur_l == LJ_OFFSETS_NONE &&
	    offsets.g_jit_l == LJ_OFFSETS_NONE) {
		*path_ret = "global_State.cur_L";
		return -ENOENT;
	}
	/* one width is told for both, see lj_offsets.h */
	*path_ret = "GCtrace.nsnapmap";
	if (source->member(source->arg, *path_ret, &off, &size) ||
	    size != offsets.sn_mapofs_size)
		return -ERANGE;
	*offsets_ret = offsets;
	return 0;
}

void lb_fields_set_code(struct lj_offsets *offsets,
			const struct lb_luajit *luajit)
{
	uint32_t size = luajit->cframe_size;

	offsets->cframe_size = size;
	offsets->cf_nres = luajit->cf_nres;
	offsets->cf_l = luajit->cf_l;
	offsets->cf_pc = luajit->cf_pc;
	offsets->cf_prev = luajit->cf_prev;
	/* pushed in this order: return address, rbp, rbx, r15, r14 */
	offsets->cf_ra = size - 8;
	offsets->cf_rbp = size - 16;
	offsets->cf_rbx = size - 24;
	offsets->cf_r14 = size - 40;
}

int lb_fields_slots_by_rule(struct lb_luajit *luajit)
{
	if (luajit->cframe_size != 80 && luajit->cframe_size != 96)
		return -EOPNOTSUPP;
	luajit->cf_nres = luajit->gc64 ? 8 : 16;
	luajit->cf_l = luajit->gc64 ? 16 : 24;
	luajit->cf_pc = luajit->gc64 ? 24 : 28;
	luajit->cf_prev = luajit->cframe_size - 48;
	return 0;
}
