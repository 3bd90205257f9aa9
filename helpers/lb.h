/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public interface of libluabpf, the C core of lua-bpf-tools.
 *
 * Functions return 0 or -errno unless they say otherwise; a result goes through
 * the last parameter and is untouched on failure. The library never prints and
 * never exits; it reports through the log callback. A handle may be used by
 * one thread at a time, two handles by two threads.
 */
#ifndef LB_H
#define LB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LB_API __attribute__((visibility("default")))

struct lb_session;

enum lb_log_level {
	LB_LOG_ERROR = 0,
	LB_LOG_WARN,
	LB_LOG_INFO,
	LB_LOG_DEBUG,
};

/** Receives one line without a newline; @text is valid during the call. */
typedef void (*lb_log_fn)(void *arg, int level, const char *text);

/** Version of the library, static storage. */
LB_API const char *lb_version(void);

/**
 * lb_wire_id() - names the wire headers that the library was built from
 * Return: the first 16 hex digits of the SHA-256 of lb_wire.h followed by
 * lj_offsets.h; static storage.
 */
LB_API const char *lb_wire_id(void);

/**
 * lb_wire_size() - size of a struct of lb_wire.h, for bindings to compare
 * Return: bytes, 0 for an unknown name.
 */
LB_API size_t lb_wire_size(const char *name);

/** One word for an enum lb_stop ("no-row"), static storage. */
LB_API const char *lb_stop_text(unsigned int stop);

/* File descriptors of the maps of a loaded program. All are int. */
struct lb_map_fds {
	int rows;
	int blocks;
	int rules;
	int procs;
	int tids;
	int unknown;
	int counts;
	int config;
	int counters;
	int ring;
	int progs;
};

/* Table sizes that the processes added so far need. */
struct lb_needs {
	uint32_t rows;
	uint32_t blocks;
	uint32_t rules;
	uint32_t procs;
	uint32_t ref32; /* 1: a VM with 32-bit references is among them */
};

/**
 * lb_session_new() - begin a run without processes
 * @log: receives warnings; may be NULL
 * Return: 0, -ENOMEM.
 */
LB_API int lb_session_new(lb_log_fn log, void *log_arg,
			  struct lb_session **session_ret);
LB_API void lb_session_free(struct lb_session *session);

/** Why the last call on @session failed, one line; "" when it did not. */
LB_API const char *lb_session_error(const struct lb_session *session);

/**
 * lb_session_add_pid() - profile one process
 * @need_vm: refuse a process without a LuaJIT VM that can be walked
 * Return: 0, -ESRCH, -EACCES, -ENOENT (no LuaJIT in it), -EOPNOTSUPP (32-bit,
 * or a LuaJIT whose offsets are not known), -ENOMEM. lb_session_error() says
 * what was found and what is missing.
 */
LB_API int lb_session_add_pid(struct lb_session *session, int pid,
			      bool need_vm);
/**
 * lb_session_add_all() - every process that holds a LuaJIT VM
 * Those that cannot be read are passed over. *n_ret: processes added.
 */
LB_API int lb_session_add_all(struct lb_session *session, size_t *n_ret);
/**
 * lb_session_add_tree() - descendants of the processes added by PID
 * *n_ret: processes added.
 */
LB_API int lb_session_add_tree(struct lb_session *session, size_t *n_ret);

enum lb_watch {
	LB_WATCH_NONE = 0,
	LB_WATCH_TREE = 1, /* descendants of processes added by PID */
	LB_WATCH_ALL = 2,  /* every process with a LuaJIT VM */
};

/** Which processes to add while the run goes on: enum lb_watch. */
LB_API void lb_session_watch(struct lb_session *session, unsigned int watch);
/**
 * lb_session_cgroup() - only processes below a cgroup
 * @path: folder of the cgroup file system. -ENOENT, -ENOTDIR, -EINVAL (not a
 * cgroup).
 */
LB_API int lb_session_cgroup(struct lb_session *session, const char *path);
/** Only these threads; may be called several times, before the start. */
LB_API int lb_session_add_tid(struct lb_session *session, int tid);

LB_API void lb_session_needs(const struct lb_session *session,
			     struct lb_needs *needs_ret);

/**
 * lb_session_start() - hand tables and processes to a loaded program
 * @fds: descriptors are duplicated
 * @room: table sizes the program was compiled with
 * @flags: enum lb_config_flag
 */
LB_API int lb_session_start(struct lb_session *session,
			    const struct lb_map_fds *fds,
			    const struct lb_needs *room, unsigned int flags);
/** Put program @prog_fd into slot @slot of the tail call table. */
LB_API int lb_session_set_prog(int progs_fd, unsigned int slot, int prog_fd);
/**
 * lb_session_poll() - take what the program has sent, follow the processes
 * Returns after @timeout_ms at the latest, earlier when there was something.
 */
LB_API int lb_session_poll(struct lb_session *session, int timeout_ms);
/** Of the processes that are still there, those with a LuaJIT VM. */
LB_API size_t lb_session_with_vm(const struct lb_session *session);
/** Processes that are still there. */
LB_API size_t lb_session_alive(const struct lb_session *session);
/** End sampling and read all counts. */
LB_API int lb_session_stop(struct lb_session *session);

enum lb_fold_flag {
	LB_FOLD_ANNOTATE = 1, /* suffixes _[k], _[j], _[i] */
	LB_FOLD_DELIMIT = 2,  /* `-` between user and kernel part */
	LB_FOLD_LUA_ONLY = 4, /* Lua frames alone */
	LB_FOLD_LINES = 8,    /* current line instead of the first */
	LB_FOLD_PER_PID = 16, /* comm-PID as root */
	LB_FOLD_VMSTATE = 32, /* what the VM does, as leaf: [gc], [jit:...] */
};

/* How the samples of a run ended. */
struct lb_totals {
	uint64_t samples;
	uint64_t complete;
	uint64_t with_lua; /* of complete */
	uint64_t truncated;
	uint64_t failed;
	uint64_t lost;
	uint64_t lost_storage; /* of lost: --stack-storage-size */
	uint64_t lost_ring;
	uint64_t lost_other;
	uint64_t in_trace;    /* machine code of a trace on the stack */
	uint64_t not_ready;   /* of failed */
	uint64_t by_stop[16]; /* by enum lb_stop */
	uint64_t stacks;      /* different ones */
	/* of in_trace: inlined frames known, perhaps not all, not at all */
	uint64_t traces_exact;
	uint64_t traces_coarse;
	uint64_t traces_gone;
};

/**
 * lb_session_fold() - text of all stacks, equal ones added up
 * @flags: enum lb_fold_flag
 * *n_ret: number of texts. The order is by text.
 */
LB_API int lb_session_fold(struct lb_session *session, unsigned int flags,
			   size_t *n_ret);
/**
 * lb_session_folded() - one of them
 * Return: `comm;root;...;leaf`, owned by @session until the next fold; NULL
 * when @i is out of range. @pid_ret: of the process, 0 if several were added
 * up.
 */
LB_API const char *lb_session_folded(const struct lb_session *session, size_t i,
				     uint64_t *count_ret, int *pid_ret);
/**
 * lb_session_stack() - text of one stack while the run goes on
 * @hash: struct lb_count_key.stack; its record came with the last poll
 * @leaf: lb_count_key.leaf
 * @flags: enum lb_fold_flag
 * Return: as from lb_session_folded(), owned by @session until the next call;
 * NULL when the stack is not there.
 */
LB_API const char *lb_session_stack(struct lb_session *session, uint64_t hash,
				    uint64_t leaf, unsigned int flags);
LB_API void lb_session_totals(const struct lb_session *session,
			      struct lb_totals *totals_ret);
/**
 * lb_session_trouble() - a mapped file that could not be used fully
 * For i = 0, 1 ... : one line each (`libx.so: .eh_frame malformed`), NULL after
 * the last.
 */
LB_API const char *lb_session_trouble(const struct lb_session *session,
				      size_t i);

/**
 * lb_session_trace() - a trace that samples fell into, after the run
 * For i = 0, 1 ... : one line each, most samples first; NULL after the last.
 * Owned by @session until the next call.
 */
LB_API const char *lb_session_trace(struct lb_session *session, size_t i);

/**
 * lb_kernel_offset() - where the running kernel keeps a member of a struct
 * @type: "task_struct"
 * @path: "se.exec_start"
 * *off_ret: bytes. Return: 0, -ENOENT (no BTF, or no such member), or what
 * reading the kernel's BTF gave.
 */
LB_API int lb_kernel_offset(const char *type, const char *path,
			    uint32_t *off_ret);

/* ---- garbage collector ---- */

struct lb_gc;

/** lb_gc_new() - begin a run without processes. Return: 0, -ENOMEM. */
LB_API int lb_gc_new(struct lb_gc **gc_ret);
/** Takes all probes away. */
LB_API void lb_gc_free(struct lb_gc *gc);
/** Why the last call on @gc failed, one line; "" when it did not. */
LB_API const char *lb_gc_error(const struct lb_gc *gc);
/**
 * lb_gc_add_pid() - find the LuaJIT VMs of one process
 * Return: 0 (also when it was added before), -ESRCH, -EACCES, -ENOENT (no
 * LuaJIT in it), -EOPNOTSUPP (a LuaJIT whose collector is not understood),
 * -ENOMEM.
 */
LB_API int lb_gc_add_pid(struct lb_gc *gc, int pid);
/**
 * lb_gc_attach() - tell BPF of the processes added since the last call
 * @procs_fd: map of struct lb_gc_proc
 * @prog_fds: a program for each enum lb_gc_point, @n of them; NULL: no probes
 * Return: 0, or what the kernel said of the first process it refused; one that
 * is gone by now is no failure.
 */
LB_API int lb_gc_attach(struct lb_gc *gc, int procs_fd, const int *prog_fds,
			size_t n);
/** Processes that are measured: not those that ended, or executed another
 * program, as far as is known. */
LB_API size_t lb_gc_alive(struct lb_gc *gc);
/**
 * lb_gc_next_end() - a process that is not measured any longer
 * Each is told of once, lb_gc_error() says what became of it.
 * Return: its PID, 0: no more.
 */
LB_API int lb_gc_next_end(struct lb_gc *gc);
/** Do all VMs show each change of phase? */
LB_API bool lb_gc_exact_phases(const struct lb_gc *gc);

/* The collector's own figures, as they are now. Sizes in bytes. */
struct lb_gc_figures {
	uint64_t heap;
	uint64_t threshold;
	uint64_t debt;
	uint64_t estimate;
	uint32_t state;
	uint32_t pad;
};

/**
 * lb_gc_read() - the figures of one VM
 * @vm: struct lb_gc_key.vm
 * @g_addr: global_State
 * Return: 0, -ESRCH, -ENOENT (such a process was not added), -EFAULT.
 */
LB_API int lb_gc_read(const struct lb_gc *gc, int pid, unsigned int vm,
		      uint64_t g_addr, struct lb_gc_figures *figures_ret);

/* ---- facts about processes, files and this system (lua-doctor) ---- */

struct lb_doctor;

enum lb_fact_kind {
	LB_FACT_TEXT = 0,
	LB_FACT_NUMBER,
	LB_FACT_FLAG, /* number: 0 or 1 */
};

/*
 * One fact: `key` of the `item`th thing of a group. Facts of one item follow
 * each other. All texts are owned by the handle.
 */
struct lb_fact {
	const char *group;
	const char *key;
	const char *text; /* of a number: where it came from, or "" */
	uint64_t number;
	uint32_t item;
	uint32_t kind; /* enum lb_fact_kind */
};

LB_API int lb_doctor_new(struct lb_doctor **doctor_ret);
LB_API void lb_doctor_free(struct lb_doctor *doctor);
/** Why the last call on @doctor failed, one line. */
LB_API const char *lb_doctor_error(const struct lb_doctor *doctor);
/**
 * lb_doctor_pid() - all that can be learnt of one process without touching it
 * Groups: `process`, `vm` (files with a LuaJIT VM), `offset` (item: that of the
 * vm), `live` (VMs at work), `lua` (files with another Lua), `trouble` (files
 * that cannot be unwound).
 * Return: 0 (also for a process without a VM), -ESRCH, -EACCES, -EPERM,
 * -EOPNOTSUPP (32-bit), -EINVAL (a thread), -ENOMEM.
 */
LB_API int lb_doctor_pid(struct lb_doctor *doctor, int pid);
/**
 * lb_doctor_all() - `process`, `vm` and `lua` in short of each process with a
 * Lua; those that cannot be read are counted in group `unread`
 */
LB_API int lb_doctor_all(struct lb_doctor *doctor);
/** lb_doctor_file() - `vm` and `offset`, or `lua`, of one file. -ENOEXEC, ...
 */
LB_API int lb_doctor_file(struct lb_doctor *doctor, const char *path);
/** lb_doctor_kernel() - group `kernel`: what this system lets us do, by trial
 */
LB_API int lb_doctor_kernel(struct lb_doctor *doctor);
/** lb_doctor_fact() - the @i th fact learnt. Return: 0, -ENOENT. */
LB_API int lb_doctor_fact(const struct lb_doctor *doctor, size_t i,
			  struct lb_fact *fact_ret);

/* ---- counts of calls ---- */

struct lb_calls;

/* File descriptors of a program that counts calls. All are int. */
struct lb_call_fds {
	int points;
	int states;
	int calls;
	int edges;
	int counters;
	int program; /* runs at each probe point */
};

enum lb_calls_what {
	LB_CALLS_OF_LUA = 1,	  /* Lua functions, and entries of traces */
	LB_CALLS_OF_BUILTINS = 2, /* fast functions and C functions */
	LB_CALLS_OF_API = 4,	  /* functions of the C API */
};

/* Hits of all probes, by what became of them; and CPU time, as samples. */
struct lb_call_totals {
	uint64_t hits;
	uint64_t counted;
	uint64_t unwanted; /* functions that do not match */
	uint64_t full;	   /* no room for one more function */
	uint64_t unread;   /* target memory could not be read */
	uint64_t again;	   /* the same call again; not counted */
	uint64_t foreign;  /* at a point of no process of the run */
	uint64_t compiled; /* of counted: entered machine code */
	uint64_t loops;	   /* entries of compiled loops; no calls, no hits */
	uint64_t no_edge;  /* no room for one more caller and callee */
	uint64_t ticks;	   /* samples of CPU time */
	uint64_t in_probe; /* of ticks: the cost of the probes */
	uint64_t in_lua;   /* of the other ticks */
	uint64_t in_trace; /* of in_lua */
};

struct lb_call_info {
	const char *text; /* name; owned by the calls, valid until freed */
	uint64_t total;	  /* calls */
	uint64_t count;	  /* calls between the last two reads */
	int pid;
	uint32_t is_decided;
	uint32_t is_wanted; /* true before it is decided, too */
	uint32_t is_called; /* false: only known as a caller */
};

struct lb_edge_info {
	uint64_t total;
	uint64_t count;
	uint32_t caller; /* index of a function; LB_CALLER_NONE */
	uint32_t callee;
};
#define LB_CALLER_NONE 0xffffffffU /* not a Lua frame: C */

/**
 * lb_calls_new() - count calls in the processes of a session that has started
 * @session: must outlive the result; started with LB_CONFIG_OFF
 * @fds: duplicated
 * @what: enum lb_calls_what
 * Return: 0, -ENOMEM, errno of the kernel; see lb_session_error().
 */
LB_API int lb_calls_new(struct lb_session *session,
			const struct lb_call_fds *fds, unsigned int what,
			struct lb_calls **calls_ret);
/** Takes all probes away. */
LB_API void lb_calls_free(struct lb_calls *calls);
/**
 * lb_calls_attach() - put probes into each VM that has none yet
 * To be called again to follow processes. *n_ret: probe points that were added.
 * Return: 0, -EOPNOTSUPP (the VM's code is not understood), -ENODATA (no
 * exported C API), errno of the kernel.
 */
LB_API int lb_calls_attach(struct lb_calls *calls, size_t *n_ret);
/** Begin or end counting, at one instant for all probes. */
LB_API int lb_calls_switch(struct lb_calls *calls, bool on);
/**
 * lb_calls_name() - give each function seen so far its name, for good
 * Walks the tables of VMs with new functions first.
 */
LB_API int lb_calls_name(struct lb_calls *calls);
/** Is function @i wanted? Calls of others are not counted any more. */
LB_API int lb_calls_decide(struct lb_calls *calls, size_t i, bool wanted);
/** Read all counts. */
LB_API int lb_calls_read(struct lb_calls *calls);
/** Functions seen so far; their indices never change. */
LB_API size_t lb_calls_functions(const struct lb_calls *calls);
LB_API int lb_calls_function(const struct lb_calls *calls, size_t i,
			     struct lb_call_info *info_ret);
/** Pairs of caller and callee, as of the last read. */
LB_API size_t lb_calls_edges(const struct lb_calls *calls);
LB_API int lb_calls_edge(const struct lb_calls *calls, size_t i,
			 struct lb_edge_info *info_ret);
/** Totals as of the last read. */
LB_API void lb_calls_totals(const struct lb_calls *calls,
			    struct lb_call_totals *totals_ret);

#endif
