/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Struct offsets of LuaJIT builds: the declaration that BPF programs and the C
 * core share, and (C core only, LJ_OFFSETS_TABLE) one entry for each build.
 *
 * An offset is a property of the build. Nothing here may be replaced by a
 * constant in code, and no entry is chosen by a version string: helpers/offsets
 * compares the marks, which it reads from the machine code.
 */
#ifndef LJ_OFFSETS_H
#define LJ_OFFSETS_H

#ifndef __BPF__
#include <linux/types.h>
#endif

struct lj_offsets {
	/* marks: what tells builds apart, read from the VM's code */
	__u32 gc64;   /* 1: 64-bit references, two-slot frames */
	__u32 g2disp; /* DISPATCH register - global_State */
	__u32 g_cur_l;
	__u32 g_vmstate;
	__u32 cframe_size; /* CFA - SP in the interpreter */

	/* global_State */
	__u32 g_jit_base;
	__u32 g_gc_root;
	__u32 g_gc_state;
	__u32 g_mainthref;
	__u32 g_registry; /* TValue */
	__u32 g_to_j;	  /* jit_State - global_State */
	__u32 g_gcroot;	  /* roots: metamethod names, basic metatables ... */
	__u32 g_n_gcroot; /* references there */

	/* lua_State */
	__u32 l_gct;
	__u32 l_status;
	__u32 l_glref;
	__u32 l_base;
	__u32 l_top;
	__u32 l_maxstack;
	__u32 l_stack;
	__u32 l_env;
	__u32 l_cframe;

	/* C frame slots, from the SP that L->cframe holds */
	__u32 cf_nres; /* s32; negative: no Lua frame (lua_cpcall) */
	__u32 cf_l;
	__u32 cf_pc;
	__u32 cf_prev;
	__u32 cf_r14;
	__u32 cf_rbx;
	__u32 cf_rbp;
	__u32 cf_ra;

	/* GCfunc */
	__u32 fn_gct;
	__u32 fn_ffid;
	__u32 fn_env;
	__u32 fn_pc;
	__u32 fn_f;	  /* GCfuncC: the C function */
	__u32 fn_upvalue; /* GCfuncC: upvalues, TValues */
	__u32 fn_uvptr;	  /* GCfuncL: upvalue references */
	__u32 fn_nupvalues;

	/* GCproto; the bytecode begins at pt_size */
	__u32 pt_size;
	__u32 pt_gct;
	__u32 pt_numparams;
	__u32 pt_sizebc;
	__u32 pt_k;
	__u32 pt_sizekgc;
	__u32 pt_sizept; /* bytes of it all, debug info included */
	__u32 pt_sizeuv;
	__u32 pt_flags;
	__u32 pt_chunkname;
	__u32 pt_firstline;
	__u32 pt_numline;
	__u32 pt_lineinfo;
	__u32 pt_uvinfo;
	__u32 pt_varinfo;

	/* GCstr, GCtab, Node, GCupval, GCudata */
	__u32 str_id; /* tells strings apart: sid, or hash in old builds */
	__u32 str_len;
	__u32 str_size; /* text begins here */
	__u32 tab_array;
	__u32 tab_node;
	__u32 tab_metatable;
	__u32 tab_asize;
	__u32 tab_hmask;
	__u32 node_size;
	__u32 node_val;
	__u32 node_key;
	__u32 node_next;
	__u32 uv_tv;
	__u32 uv_v;
	__u32 ud_metatable;

	/* jit_State, GCtrace */
	__u32 j_trace;
	__u32 j_sizetrace;
	__u32 j_mcarea;	  /* newest area of machine code */
	__u32 j_szmcarea; /* its size in bytes */
	__u32 tr_startpt;
	__u32 tr_startpc;
	__u32 tr_mcode;
	__u32 tr_szmcode;
	__u32 tr_root;
	__u32 tr_link;
	__u32 tr_traceno;

	/*
	 * Opcode numbers. Those in between follow from their order, which is
	 * the same in all builds of the table: ISLT is 0; ADDVN ... MODVV are
	 * VN, NV, VV of five operators; CALLM, CALL, CALLMT, CALLT.
	 */
	__u32 bc_call; /* first call opcode, CALLM */
	__u32 bc_isnext;
	__u32 bc_funcf;
	__u32 bc_iseqv;
	__u32 bc_istc;
	__u32 bc_ist;
	__u32 bc_mov;
	__u32 bc_unm;
	__u32 bc_len;
	__u32 bc_addvn;
	__u32 bc_pow;
	__u32 bc_cat;
	__u32 bc_kstr;
	__u32 bc_knil;
	__u32 bc_uget;
	__u32 bc_usetv;
	__u32 bc_uclo;
	__u32 bc_fnew;
	__u32 bc_tnew;
	__u32 bc_tdup;
	__u32 bc_gget;
	__u32 bc_gset;
	__u32 bc_tgetv;
	__u32 bc_tgets;
	__u32 bc_tsetv;
	__u32 bc_tsets;
	__u32 bc_tsetm;
	__u32 bc_iterc;
	__u32 bc_itern;
	__u32 bc_retm;
	__u32 bc_fori;
	__u32 bc_loop;
	__u32 bc_jmp;
};

#ifdef LJ_OFFSETS_TABLE

struct lj_offsets_entry {
	const char *name; /* version, fork, pointer mode */
	struct lj_offsets offsets;
};

static const struct lj_offsets_entry lj_offsets_table[] = {
	{ .name = "LuaJIT 2.1 (2022), GC64",
	  .offsets = {
		  .gc64 = 1,
		  .g2disp = 3968,
		  .g_cur_l = 368,
		  .g_vmstate = 184,
		  .cframe_size = 80,
		  .g_jit_base = 376,
		  .g_gc_root = 40,
		  .g_gc_state = 33,
		  .g_mainthref = 192,
		  .g_registry = 272,
		  .g_to_j = 728,
		  .g_gcroot = 424,
		  .g_n_gcroot = 38,
		  .l_gct = 9,
		  .l_status = 11,
		  .l_glref = 16,
		  .l_base = 32,
		  .l_top = 40,
		  .l_maxstack = 48,
		  .l_stack = 56,
		  .l_env = 72,
		  .l_cframe = 80,
		  .cf_nres = 8,
		  .cf_l = 16,
		  .cf_pc = 24,
		  .cf_prev = 32,
		  .cf_r14 = 40,
		  .cf_rbx = 56,
		  .cf_rbp = 64,
		  .cf_ra = 72,
		  .fn_gct = 9,
		  .fn_ffid = 10,
		  .fn_env = 16,
		  .fn_pc = 32,
		  .fn_f = 40,
		  .fn_upvalue = 48,
		  .fn_uvptr = 40,
		  .fn_nupvalues = 11,
		  .pt_size = 104,
		  .pt_gct = 9,
		  .pt_numparams = 10,
		  .pt_sizebc = 12,
		  .pt_k = 32,
		  .pt_sizekgc = 48,
		  .pt_sizept = 56,
		  .pt_sizeuv = 60,
		  .pt_flags = 61,
		  .pt_chunkname = 64,
		  .pt_firstline = 72,
		  .pt_numline = 76,
		  .pt_lineinfo = 80,
		  .pt_uvinfo = 88,
		  .pt_varinfo = 96,
		  .str_id = 12,
		  .str_len = 20,
		  .str_size = 24,
		  .tab_array = 16,
		  .tab_node = 40,
		  .tab_metatable = 32,
		  .tab_asize = 48,
		  .tab_hmask = 52,
		  .node_size = 24,
		  .node_val = 0,
		  .node_key = 8,
		  .node_next = 16,
		  .uv_tv = 16,
		  .uv_v = 32,
		  .ud_metatable = 32,
		  .j_trace = 384,
		  .j_sizetrace = 396,
		  .j_mcarea = 3048,
		  .j_szmcarea = 3072,
		  .tr_startpt = 64,
		  .tr_startpc = 72,
		  .tr_mcode = 88,
		  .tr_szmcode = 84,
		  .tr_root = 108,
		  .tr_link = 106,
		  .tr_traceno = 104,
		  .bc_call = 65,
		  .bc_isnext = 72,
		  .bc_funcf = 89,
		  .bc_iseqv = 4,
		  .bc_istc = 12,
		  .bc_ist = 14,
		  .bc_mov = 18,
		  .bc_unm = 20,
		  .bc_len = 21,
		  .bc_addvn = 22,
		  .bc_pow = 37,
		  .bc_cat = 38,
		  .bc_kstr = 39,
		  .bc_knil = 44,
		  .bc_uget = 45,
		  .bc_usetv = 46,
		  .bc_uclo = 50,
		  .bc_fnew = 51,
		  .bc_tnew = 52,
		  .bc_tdup = 53,
		  .bc_gget = 54,
		  .bc_gset = 55,
		  .bc_tgetv = 56,
		  .bc_tgets = 57,
		  .bc_tsetv = 60,
		  .bc_tsets = 61,
		  .bc_tsetm = 63,
		  .bc_iterc = 69,
		  .bc_itern = 70,
		  .bc_retm = 73,
		  .bc_fori = 77,
		  .bc_loop = 85,
		  .bc_jmp = 88,
	  } },
	{ .name = "OpenResty luajit2 2.1 (2023-01 to 2024-03), GC64",
	  .offsets = {
		  .gc64 = 1,
		  .g2disp = 4008,
		  .g_cur_l = 368,
		  .g_vmstate = 184,
		  .cframe_size = 80,
		  .g_jit_base = 376,
		  .g_gc_root = 40,
		  .g_gc_state = 33,
		  .g_mainthref = 192,
		  .g_registry = 272,
		  .g_to_j = 736,
		  .g_gcroot = 424,
		  .g_n_gcroot = 38,
		  .l_gct = 9,
		  .l_status = 11,
		  .l_glref = 16,
		  .l_base = 32,
		  .l_top = 40,
		  .l_maxstack = 48,
		  .l_stack = 56,
		  .l_env = 72,
		  .l_cframe = 80,
		  .cf_nres = 8,
		  .cf_l = 16,
		  .cf_pc = 24,
		  .cf_prev = 32,
		  .cf_r14 = 40,
		  .cf_rbx = 56,
		  .cf_rbp = 64,
		  .cf_ra = 72,
		  .fn_gct = 9,
		  .fn_ffid = 10,
		  .fn_env = 16,
		  .fn_pc = 32,
		  .fn_f = 40,
		  .fn_upvalue = 48,
		  .fn_uvptr = 40,
		  .fn_nupvalues = 11,
		  .pt_size = 104,
		  .pt_gct = 9,
		  .pt_numparams = 10,
		  .pt_sizebc = 12,
		  .pt_k = 32,
		  .pt_sizekgc = 48,
		  .pt_sizept = 56,
		  .pt_sizeuv = 60,
		  .pt_flags = 61,
		  .pt_chunkname = 64,
		  .pt_firstline = 72,
		  .pt_numline = 76,
		  .pt_lineinfo = 80,
		  .pt_uvinfo = 88,
		  .pt_varinfo = 96,
		  .str_id = 12,
		  .str_len = 20,
		  .str_size = 24,
		  .tab_array = 16,
		  .tab_node = 40,
		  .tab_metatable = 32,
		  .tab_asize = 48,
		  .tab_hmask = 52,
		  .node_size = 24,
		  .node_val = 0,
		  .node_key = 8,
		  .node_next = 16,
		  .uv_tv = 16,
		  .uv_v = 32,
		  .ud_metatable = 32,
		  .j_trace = 384,
		  .j_sizetrace = 396,
		  .j_mcarea = 3048,
		  .j_szmcarea = 3072,
		  .tr_startpt = 64,
		  .tr_startpc = 72,
		  .tr_mcode = 88,
		  .tr_szmcode = 84,
		  .tr_root = 108,
		  .tr_link = 106,
		  .tr_traceno = 104,
		  .bc_call = 65,
		  .bc_isnext = 72,
		  .bc_funcf = 89,
		  .bc_iseqv = 4,
		  .bc_istc = 12,
		  .bc_ist = 14,
		  .bc_mov = 18,
		  .bc_unm = 20,
		  .bc_len = 21,
		  .bc_addvn = 22,
		  .bc_pow = 37,
		  .bc_cat = 38,
		  .bc_kstr = 39,
		  .bc_knil = 44,
		  .bc_uget = 45,
		  .bc_usetv = 46,
		  .bc_uclo = 50,
		  .bc_fnew = 51,
		  .bc_tnew = 52,
		  .bc_tdup = 53,
		  .bc_gget = 54,
		  .bc_gset = 55,
		  .bc_tgetv = 56,
		  .bc_tgets = 57,
		  .bc_tsetv = 60,
		  .bc_tsets = 61,
		  .bc_tsetm = 63,
		  .bc_iterc = 69,
		  .bc_itern = 70,
		  .bc_retm = 73,
		  .bc_fori = 77,
		  .bc_loop = 85,
		  .bc_jmp = 88,
	  } },
};

#endif /* LJ_OFFSETS_TABLE */

#endif
