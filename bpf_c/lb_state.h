/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scratch of one walk, one for each CPU. All state lives here and not in
 * registers: the verifier then sees each turn of the loop alike.
 */
#ifndef LB_STATE_H
#define LB_STATE_H

#define LB_WINDOW_WORDS 128 /* of stack, read at once */
#define LB_CODE_WORDS	64  /* bytecode before a return address, 4 B each */
#define LB_G_WORDS	32  /* of global_State, from vmstate on */
#define LB_L_CONTEXTS	4   /* lua_States between two visits of one */
#define LB_L_WORDS	16  /* of lua_State, from its start */
#define LB_T_WORDS	16  /* of GCtrace, from its start */

enum lb_mode {
	LB_MODE_NATIVE,
	LB_MODE_LUA,
	LB_MODE_ENTER, /* from native code into a VM */
	LB_MODE_OTHER, /* the same, by the walker for other references */
	LB_MODE_DONE,
};

/* Where the walker gave up inside a stop reason; lb_stack_rec.detail. */
enum lb_detail {
	LB_DETAIL_NONE = 0,
	LB_DETAIL_BOTTOM,
	LB_DETAIL_ABOVE,
	LB_DETAIL_STACK_READ,
	LB_DETAIL_FUNC_READ,
	LB_DETAIL_FUNC_TYPE,
	LB_DETAIL_FOREIGN_PC,
	LB_DETAIL_C_WITH_PC,
	LB_DETAIL_FUNC_TAG,
	LB_DETAIL_CALL_READ,
	LB_DETAIL_DELTA,
};

struct lb_proto_key {
	__u64 addr;
	__u32 tgid;
	__u32 pad;
};

/* Where the walk of one lua_State stands, kept while others are walked. */
struct lb_l_context {
	__u64 l;
	__u64 cframe, f;
	__u64 l_stack, l_maxstack;
	__u32 l_seen, l_known, l_done, pad;
};

struct lb_proto_val {
	__u64 chunk_addr;
	__u64 lineinfo;
	__u32 first_line;
	__u32 num_line;
	__u32 size_bc;
	__u32 chunk_id;
};

struct lb_record {
	struct lb_stack_rec head;
	struct lb_frame frames[LB_FRAMES_MAX];
};

struct lb_state {
	/* registers of the frame to be walked next */
	__u64 pc, sp, bp, bx, r14, dx, cx;
	__u64 hash;
	struct lb_count_key count_key;
	__u64 weight; /* what the stack counts for; 1: a sample */
	__u32 tgid;
	__u32 tid;
	__u32 flags;   /* of the configuration */
	__u32 mode;    /* enum lb_mode */
	__u32 leaf;    /* pc is exact, dx and cx are valid */
	__u32 mapping; /* index of the last one used */
	__u32 lo, hi;  /* of a binary search */
	__u32 n_segments;
	__u32 name_at; /* next frame for the names program */

	/* Lua: the thread whose frames are being walked */
	__u64 g, l;
	__u64 g_candidate; /* for G, where references have 32 bits */
	__u32 g_try;	   /* which one it is */
	__u32 in_mcode;	   /* code without a table is a trace's */
	__u32 trace_id;	   /* LB_TRACE_ID of that one, if it is known */
	__u32 g_pad;
	__u64 cframe; /* C frame below the current one in this L */
	__u64 f;      /* address of the next frame's link slot */
	__u64 lua_pc; /* bytecode pc in that frame, 0 unknown */
	__u64 l_stack, l_maxstack;
	__u64 cand[4]; /* candidates for BASE */
	__u64 bx0;     /* rbx when the segment was entered */
	__u64 hash0;   /* hash and frames then, to start again */
	__u32 n_frames0;
	__u32 retry;
	__u32 n_walked; /* Lua frames of this segment so far */
	__u32 detail;	/* why the first try at the top frame failed */
	__u32 strict;	/* lua_pc must lie in the frame's function */
	__u32 vararg;	/* next physical frame is the same function */
	__u32 l_seen;	/* cframe is valid for l */
	__u32 l_known;	/* f is valid for l */
	__u32 l_done;	/* no (more) frames of l */
	__u32 jit;	/* next Lua frame runs as machine code */
	__u32 vm;	/* index in lb_proc_entry.lj */
	__u32 n_lua;
	__u32 kind;		 /* of the code that enters the VM */
	__u32 miss_stop;	 /* enum lb_stop, if it is no VM's */
	__u32 n_tries, last_try; /* builds tried for code without a table */
	struct lb_l_context contexts[LB_L_CONTEXTS];
	__u32 context_at; /* the one to give up next */
	__u32 context_hit;
	__u32 chunk_id; /* of chunk_addr, the last one read */
	__u64 chunk_addr;
	/* a machine code area; kept from walk to walk */
	__u64 area_lo, area_hi, area_g, area_until;
	__u32 area_tgid, area_pad;
	/* registers above the C frame of this segment */
	__u64 up_pc, up_sp, up_bp, up_bx, up_r14, up_cframe;
	__u64 save_pc; /* SAVE_PC of that C frame */
	__s32 nres;
	__u32 unknown_code; /* segment entered from code without a table */
	__u64 tmp;

	/* windows on target memory: [lo, hi) is valid */
	__u64 stack_lo, stack_hi;
	__u64 lua_lo, lua_hi;
	__u64 code_lo, code_hi;
	__u64 stack_win[LB_WINDOW_WORDS];
	__u64 lua_win[LB_WINDOW_WORDS];
	__u32 code_win[LB_CODE_WORDS];
	__u64 gw[LB_G_WORDS];
	__u64 lw[LB_L_WORDS];
	__u64 tw[LB_T_WORDS];
	__u64 fn[8];
	__u64 id[2]; /* chunk name and lines of a prototype */

	struct lb_regs regs;
	__u64 kernel[LB_KERNEL_MAX];
	__u32 n_kernel, kernel_at;
	struct lb_proto_val proto_val;
	struct lb_proto_rec proto_rec;
	struct lb_proc_rec proc_rec;
	struct lb_record rec;
};

#endif
