/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs and enums that cross a boundary: BPF <-> C core <-> Python.
 *
 * No maps, no code, no pointers. Fixed widths, largest members first, padding
 * named, each size asserted. Python checks the same sizes through
 * lb_wire_size() at import.
 */
#ifndef LB_WIRE_H
#define LB_WIRE_H

#include "lj_offsets.h"

#define LB_FRAMES_MAX	512 /* frames of one stack, kernel part included */
#define LB_KERNEL_MAX	127 /* kernel frames of one stack */
#define LB_COMM_LEN	16
#define LB_CHUNK_MAX	256 /* bytes of a chunk name that are kept */
#define LB_MAPPINGS_MAX 512 /* executable mappings of one process */
#define LB_G_HINTS	8   /* VMs of one process; a power of two */
#define LB_VMS_MAX	4   /* different LuaJIT builds in one process */
#define LB_BLOCK_SHIFT	8   /* one index entry for 256 bytes of text */
#define LB_POS_UNKNOWN	0xffffffffU
#define LB_LINE_UNKNOWN 0xffffffffU

/* How the walk of one sample ended. Texts: lb_stop_text(). */
enum lb_stop {
	LB_STOP_ROOT = 0,    /* root of the process or thread reached */
	LB_STOP_TRUNCATED,   /* LB_FRAMES_MAX reached */
	LB_STOP_NO_MAP,	     /* pc in no mapped file and in no trace */
	LB_STOP_NO_ROW,	     /* code without an unwind table */
	LB_STOP_BAD_ROW,     /* CFI that a row cannot express */
	LB_STOP_READ,	     /* target memory could not be read */
	LB_STOP_BAD_PC,	     /* return address is no user address */
	LB_STOP_NO_PROGRESS, /* CFA did not move towards the root */
	LB_STOP_NO_VM,	     /* in VM code, but no lua_State verified */
	LB_STOP_LUA,	     /* Lua frames did not check out */
	LB_STOP_STEPS,	     /* step budget of the BPF program used up */
	LB_STOP_NOT_READY,   /* process not yet set up when it was sampled */
	LB_STOP_MAX
};

/* Per-CPU counters of one run. The first LB_STOP_MAX count all walks by stop.
 */
enum lb_counter {
	LB_CNT_STOP = 0,
	LB_CNT_LOST_STORAGE = LB_STOP_MAX, /* no room for a new stack */
	LB_CNT_LOST_RING,  /* new stack, but the ring was full */
	LB_CNT_LOST_STATE, /* not walked: scratch or process gone */
	LB_CNT_MAX
};

enum lb_frame_kind {
	LB_FRAME_NONE = 0,
	LB_FRAME_KERNEL, /* addr: kernel pc */
	LB_FRAME_NATIVE, /* addr: user pc */
	LB_FRAME_LUA,	 /* addr: GCproto; pos: bytecode index */
	LB_FRAME_FAST,	 /* addr: 0; pos: ffid of a fast function */
	/* addr: pc in machine code of a trace; pos: LB_TRACE_ID() of the trace
	 * and line its number, or pos 0: not the trace that vmstate names */
	LB_FRAME_MCODE,
	LB_FRAME_BREAK,	  /* Lua frames below are missing; pos: detail */
	LB_FRAME_SKIPPED, /* native frames missing: code without a table */
};

enum lb_frame_flag {
	LB_FF_EXACT_PC = 1, /* addr is the pc itself, not a return address */
	LB_FF_JIT = 2,	    /* Lua frame that runs as machine code */
	LB_FF_MCODE = 16,   /* in the VM's present area of machine code */
	/* user space: */
	LB_FF_FOREIGN = 4,  /* code without a table that is no trace */
	LB_FF_UNMARKED = 8, /* no LB_FRAME_SKIPPED follows it */
};

/* One activation. A stack stores them leaf first. */
struct lb_frame {
	__u64 addr;
	__u32 pos;	/* bytecode index of the frame's pc, LB_POS_UNKNOWN */
	__u32 line;	/* its source line, LB_LINE_UNKNOWN */
	__u32 proto_id; /* user space: index of the prototype; 0 in BPF */
	__u8 kind;	/* enum lb_frame_kind */
	__u8 flags;	/* enum lb_frame_flag */
	__u16 vm;	/* index of the LuaJIT build in lb_proc_entry.lj */
};
_Static_assert(sizeof(struct lb_frame) == 24, "lb_frame");

/*
 * Tells a trace from others that had its number, its machine code address or
 * its memory before. Never 0.
 */
#define LB_ID_MUL	0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */
#define LB_ID_MIX(h, v) (((h) ^ (__u64)(v)) * LB_ID_MUL)
#define LB_TRACE_ID(addr, mcode, size, startpt, startpc, nins)                \
	((__u32)(LB_ID_MIX(                                                   \
			 LB_ID_MIX(LB_ID_MIX(LB_ID_MIX(LB_ID_MIX(nins, addr), \
						       mcode),                \
					     size),                           \
				   startpt),                                  \
			 startpc) >>                                          \
		 32) |                                                        \
	 1)

enum lb_rec_type {
	LB_REC_STACK = 1,
	LB_REC_PROTO,
	LB_REC_PROC_NEW,    /* tgid used CPU and is not known */
	LB_REC_PROC_EXEC,   /* tgid replaced its image */
	LB_REC_PROC_RESCAN, /* tgid: a pc in no known mapping */
	LB_REC_CALL,	    /* a function is called, or calls, first */
};

/*
 * What is counted: a stack, and the pc of its leaf. The pc differs from sample
 * to sample and is no part of the hash, so that a stack is sent only once.
 */
struct lb_count_key {
	__u64 stack; /* lb_stack_rec.hash */
	__u64 leaf;  /* addr of frames[0] if that is a pc, else 0 */
};

/* A stack seen for the first time. Later samples are only counted. */
struct lb_stack_rec {
	__u32 type; /* LB_REC_STACK */
	__u32 tgid;
	__u64 hash;
	__u64 g_addr; /* global_State of the last VM segment, 0 if none */
	__u32 tid;
	__s32 vmstate;	/* of the first VM segment; 0 without one */
	__u16 n_frames; /* kernel frames included */
	__u16 n_kernel; /* the first n_kernel frames are kernel frames */
	__u8 stop;	/* enum lb_stop */
	__u8 detail;	/* where in the walker it stopped, for -v */
	__u8 vm; /* index of the LuaJIT build in lb_proc_entry.lj, if g_addr */
	__u8 has_lua;
	char comm[LB_COMM_LEN];
	struct lb_frame frames[];
};
_Static_assert(sizeof(struct lb_stack_rec) == 56, "lb_stack_rec");

/* A prototype seen for the first time, or another one at a known address. */
struct lb_proto_rec {
	__u32 type; /* LB_REC_PROTO */
	__u32 tgid;
	__u64 proto_addr;
	__u64 chunk_addr; /* GCstr of the chunk name */
	__u64 g_addr;
	__u32 chunk_len;  /* bytes, may exceed LB_CHUNK_MAX */
	__u32 first_line; /* ~0: builtin written in bytecode */
	__u32 num_line;
	__u32 size_bc;
	__u32 vm;	 /* index of the LuaJIT build in lb_proc_entry.lj */
	__u32 chunk_got; /* bytes of chunk that are valid */
	__u32 chunk_id;	 /* see str_id: the address may be used again */
	__u32 pad;
	char chunk[LB_CHUNK_MAX];
};
_Static_assert(sizeof(struct lb_proto_rec) == 320, "lb_proto_rec");

struct lb_proc_rec {
	__u32 type; /* LB_REC_PROC_* */
	__u32 tgid;
	__u64 addr; /* LB_REC_PROC_RESCAN: the pc */
};
_Static_assert(sizeof(struct lb_proc_rec) == 16, "lb_proc_rec");

/* ---- unwind tables ---- */

enum lb_rule_kind {
	LB_RULE_NONE = 0,  /* gap between FDEs: no table here */
	LB_RULE_BAD,	   /* CFI that this format cannot express */
	LB_RULE_END,	   /* return address undefined: root frame */
	LB_RULE_RSP,	   /* CFA = rsp + cfa_off */
	LB_RULE_RBP,	   /* CFA = rbp + cfa_off */
	LB_RULE_RBX,	   /* CFA = rbx + cfa_off */
	LB_RULE_RCX,	   /* CFA = rcx + cfa_off; leaf only */
	LB_RULE_PLT,	   /* CFA = rsp + 8 + ((pc & 15) >= cfa_off) * 8 */
	LB_RULE_SIGNAL,	   /* kernel signal frame at rsp */
	LB_RULE_DEREF_RSP, /* CFA = [rsp + cfa_off] + deref_off */
	LB_RULE_DEREF_RBP, /* CFA = [rbp + cfa_off] + deref_off */
	/* LuaJIT VM assembler; see lb_vm.h */
	LB_RULE_VM,	     /* CFA = rsp + C frame size, SP is the C frame */
	LB_RULE_VM_EXIT,     /* exit handler: SP is far below the C frame */
	LB_RULE_VM_RETURN,   /* leaving the VM: BASE and L->base in motion */
	LB_RULE_VM_CALLBACK, /* entering by an FFI callback: the frame is L's
				in the middle of lj_ccallback_enter */
};

/*
 * Saved registers are slot numbers: slot n is [CFA - 8 * n], 0 is unchanged.
 * With LB_RULE_F_RBP_SLOTS, slot n is [rbp - 8 * (n - 1)] with the rbp of
 * this frame (realigned stacks).
 */
enum lb_rule_flag {
	LB_RULE_F_RBP_SLOTS = 1,
	LB_RULE_F_VM = 2, /* inside the VM: no frame of its own */
	/* about to jump to a landing pad: the next pc is exact; leaf only */
	LB_RULE_F_LANDING = 4,
	LB_RULE_F_RA_RCX = 8, /* the next pc is in rcx; leaf only */
};

struct lb_rule {
	__s32 cfa_off;
	__s32 deref_off;
	__u16 rbp;
	__u16 rbx;
	__u16 r14;
	__u8 kind;  /* enum lb_rule_kind */
	__u8 flags; /* enum lb_rule_flag */
};
_Static_assert(sizeof(struct lb_rule) == 16, "lb_rule");

/* Valid from vaddr to the next row's. vaddr is relative to the table. */
struct lb_row {
	__u32 vaddr;
	__u32 rule;
};
_Static_assert(sizeof(struct lb_row) == 8, "lb_row");

/* One executable mapping of a process, sorted by start. */
struct lb_mapping {
	__u64 start;
	__u64 end;
	__u64 bias;  /* pc - bias = vaddr in the table */
	__u32 block; /* index of the table's first block entry */
	__u16 vm; /* 1 + index in lb_proc_entry.lj if this holds a VM, or 0 */
	__u8 has_rows; /* 0: file without a table */
	__u8 pad;
};
_Static_assert(sizeof(struct lb_mapping) == 32, "lb_mapping");

/* What BPF knows of one process; key: tgid. */
struct lb_proc_entry {
	__u32 n_mappings;
	__u32 n_vms;
	__u32 generation; /* changes when the entry is written again */
	__u32 pad;
	/* global_States with 32-bit references, and their builds: in traces no
	 * register tells */
	__u64 hints[LB_G_HINTS];
	__u8 hints_vm[LB_G_HINTS];
	struct lj_offsets lj[LB_VMS_MAX];
	struct lb_mapping mappings[LB_MAPPINGS_MAX];
};

enum lb_config_flag {
	LB_CONFIG_USER = 1,	/* walk the user part */
	LB_CONFIG_KERNEL = 2,	/* take the kernel part */
	LB_CONFIG_DISCOVER = 4, /* report processes that are not known */
	LB_CONFIG_IDLE = 8,	/* take the idle task, too */
	LB_CONFIG_TIDS = 16,	/* only threads in the map of TIDs */
	LB_CONFIG_LINES = 32,	/* stacks that differ in a line are different */
	LB_CONFIG_OFF = 64,	/* do not take samples (yet, or any more) */
	LB_CONFIG_VMSTATE =
		128, /* stacks that differ in vmstate are different */
	LB_CONFIG_CALLERS = 256, /* count by caller and callee */
	LB_CONFIG_TRACES = 512,	 /* tell traces apart, for inlined frames */
};

/* ---- probes ---- */

/* What a hit at a probe point means. */
enum lb_probe_kind {
	LB_PROBE_NONE = 0, /* no probe, but shortly behind one */
	LB_PROBE_LUA,	   /* a Lua function is entered; a jump if it waits */
	LB_PROBE_COMPILED, /* the same, and its machine code begins */
	LB_PROBE_LOOP,	   /* a jump that, if taken, enters a compiled loop */
	LB_PROBE_C,	   /* a C function that Lua calls; a jump as for LUA */
	LB_PROBE_FAST,	   /* a fast function */
	LB_PROBE_RETRY,	   /* a jump that, if not taken, enters one again */
	LB_PROBE_API,	   /* a function of the C API */
};

struct lb_point_key {
	__u64 addr;
	__u32 tgid;
	__u32 pad;
};
_Static_assert(sizeof(struct lb_point_key) == 16, "lb_point_key");

#define LB_COND_ALWAYS 16

/* A probe point of a process. */
struct lb_point {
	__u32 kind;   /* enum lb_probe_kind */
	__u32 cond;   /* of a jump: low bits of its opcode, LB_COND_ALWAYS */
	__u32 number; /* API: which of the run's functions */
	__u32 vm;     /* index in lb_proc_entry.lj */
};
_Static_assert(sizeof(struct lb_point) == 16, "lb_point");

/* What a function that is called is. */
enum lb_call_kind {
	LB_CALL_NONE = 0, /* caller: not Lua */
	LB_CALL_LUA,	  /* addr: GCproto; ident tells it from others there */
	LB_CALL_C,	  /* addr: of the C function */
	LB_CALL_FAST,	  /* addr: ffid, with the VM's index << 32 */
	LB_CALL_API,	  /* addr: lb_point.number */
};

struct lb_call_key {
	__u64 addr;
	__u64 ident;
	__u32 tgid;
	__u32 kind; /* enum lb_call_kind */
};
_Static_assert(sizeof(struct lb_call_key) == 24, "lb_call_key");

struct lb_edge_key {
	struct lb_call_key callee;
	struct lb_call_key caller;
};
_Static_assert(sizeof(struct lb_edge_key) == 48, "lb_edge_key");

/* State of a function, absent before its first call. */
enum lb_call_state {
	LB_CALL_SEEN = 1, /* sent to user space; calls are counted */
	LB_CALL_WANTED,
	LB_CALL_UNWANTED,
};

/* Hits of probes, by what became of them; per CPU. */
enum lb_call_counter {
	LB_CALLS_COUNTED = 0,
	LB_CALLS_UNWANTED, /* of functions that do not match */
	LB_CALLS_FULL,	   /* no room for one more function */
	LB_CALLS_UNREAD,   /* target memory could not be read */
	LB_CALLS_AGAIN,	   /* the same call comes again; not counted */
	LB_CALLS_FOREIGN,  /* at a point that is not known (yet) */
	LB_CALLS_COMPILED, /* of those counted: machine code of it begins */
	LB_CALLS_LOOPS,	   /* a compiled loop was entered; no call */
	LB_CALLS_NO_EDGE,  /* no room for one more caller and callee */
	LB_CALLS_TICKS,	   /* CPU samples in a process of the run */
	LB_CALLS_IN_PROBE, /* of these: our own cost, at a probe point */
	LB_CALLS_IN_LUA,   /* of the others: in Lua */
	LB_CALLS_IN_TRACE, /* of these: in machine code of a trace */
	LB_CALLS_MAX
};

/* A function that was called, or calls one, for the first time. */
struct lb_call_rec {
	__u32 type; /* LB_REC_CALL */
	__u32 tgid;
	struct lb_call_key key;
	__u64 g_addr; /* 0: not known */
	__u32 vm;
	__u32 has_proto;
	struct lb_proto_rec proto;
};
_Static_assert(sizeof(struct lb_call_rec) == 368, "lb_call_rec");

/* Settings of one run, in an array map of one entry. */
struct lb_config {
	__u32 flags;
	__u32 pad;
};

/* ---- garbage collector ---- */

#define LB_GC_PHASES	6 /* values of gc.state, the same in all builds */
#define LB_GC_LOG2	40
#define LB_GC_FINE_BITS 3 /* 8 slots for each power of two */
#define LB_GC_FINE	((LB_GC_LOG2 + 1) << LB_GC_FINE_BITS)

/* What BPF knows of one VM of a process. */
struct lb_gc_vm {
	__u64 text_lo, text_hi; /* addresses of the file's code */
	__u32 ref_size;		/* bytes of a reference: 8 or 4 */
	__u32 g2disp;
	__u32 l_glref;
	__u32 g_cur_l; /* LJ_OFFSETS_NONE: there is none */
	__u32 g_vmstate;
	__u32 g_gc_state;
	__u32 g_gc_total;
	__u32 vm_gc; /* vmstate of the collector */
};
_Static_assert(sizeof(struct lb_gc_vm) == 48, "lb_gc_vm");

/* Key: tgid. */
struct lb_gc_proc {
	__u32 n_vms;
	__u32 pad;
	struct lb_gc_vm vms[LB_VMS_MAX];
};
_Static_assert(sizeof(struct lb_gc_proc) == 200, "lb_gc_proc");

/* What a pause began with. */
enum lb_gc_entry {
	LB_GC_STEP = 0, /* an allocation of the interpreter or of C */
	LB_GC_TRACE,	/* an allocation of machine code */
	LB_GC_FULL,	/* lua_gc(LUA_GCCOLLECT) */
	LB_GC_ASKED,	/* lua_gc(LUA_GCSTEP) */
	LB_GC_ENTRIES
};

#define LB_GC_ALL_PHASES LB_GC_PHASES /* lb_gc_key.phase: whole pauses */

/* Pauses are counted apart by all of these. */
struct lb_gc_key {
	__u64 g_addr;
	__u32 tgid;
	__u32 tid;
	__u32 entry; /* enum lb_gc_entry */
	__u16 phase; /* gc.state, or LB_GC_ALL_PHASES */
	__u16 vm;    /* index in lb_gc_proc.vms */
};
_Static_assert(sizeof(struct lb_gc_key) == 24, "lb_gc_key");

/*
 * Never reset; user space takes differences. Only the thread of the key writes
 * here. Of a phase only count, wall_ns, the maxima and the slots are kept.
 */
struct lb_gc_val {
	__u64 count;
	__u64 wall_ns;
	__u64 cpu_ns;	 /* of wall_ns, on a CPU */
	__u64 max_ns[2]; /* of the interval with epoch max_epoch[], by parity */
	__u64 max_epoch[2];
	__u64 n_finalizers;
	__u64 finalizers_ns;	      /* of wall_ns */
	__u64 phase_ns[LB_GC_PHASES]; /* finalizers are not in it */
	__u64 n_cycles;		      /* that ended */
	__u64 n_timed_cycles;	      /* whose begin was seen, too */
	__u64 cycles_ns;	      /* of these, from begin to end */
	__u64 first_heap, last_heap;  /* bytes, before and after */
	__u32 log2[LB_GC_LOG2];	      /* in the unit of lb_gc_config */
	__u32 fine[LB_GC_FINE];	      /* ns */
};

/* One pause. */
struct lb_gc_event {
	__u64 begin_ns; /* CLOCK_MONOTONIC */
	__u64 g_addr;
	__u64 wall_ns;
	__u64 cpu_ns;
	__u64 finalizers_ns;
	__u64 phase_ns[LB_GC_PHASES];
	__u64 heap_before, heap_after; /* bytes */
	__u64 stack, leaf;	       /* struct lb_count_key; 0: not walked */
	__u32 tgid, tid;
	__u32 n_finalizers;
	__u8 entry;			/* enum lb_gc_entry */
	__u8 phase_before, phase_after; /* gc.state */
	__u8 pad;
};
_Static_assert(sizeof(struct lb_gc_event) == 136, "lb_gc_event");

enum lb_gc_flag {
	LB_GC_F_EVENTS = 1, /* a record for each pause of min_ns or more */
	LB_GC_F_PHASES = 2, /* a histogram for each phase */
	LB_GC_F_STACKS = 4, /* the stack of each pause of min_ns or more */
	LB_GC_F_ON = 8,
};

struct lb_gc_config {
	__u64 min_ns;
	__u64 unit_ns; /* of lb_gc_val.log2 */
	__u64 epoch;   /* number of the interval */
	__u32 flags;   /* enum lb_gc_flag */
	__u32 pad;
};
_Static_assert(sizeof(struct lb_gc_config) == 32, "lb_gc_config");

/* Samples of one process, key: tgid. */
struct lb_gc_samples {
	__u64 all;
	__u64 known;		    /* of all: the VM of the thread was known */
	__u64 in_gc;		    /* of known */
	__u64 phases[LB_GC_PHASES]; /* of in_gc, by gc.state */
};
_Static_assert(sizeof(struct lb_gc_samples) == 72, "lb_gc_samples");

enum lb_gc_counter {
	LB_GC_CNT_THROWN = 0, /* pauses that an error was thrown through */
	LB_GC_CNT_PENDING,    /* of these, not yet certain; goes down, too */
	LB_GC_CNT_READ,	      /* target memory could not be read */
	LB_GC_CNT_FULL,	      /* no room for another thread or VM */
	LB_GC_CNT_RING,	      /* events that did not fit */
	LB_GC_CNT_MAX
};

#endif
