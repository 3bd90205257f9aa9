/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of a profiler: the public interface (lb.h) over all other parts.
 * Discovery of processes, tables into BPF, records out, names, text.
 */
#include <bpf/bpf.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "drain.h"
#include "fold.h"
#include "lb.h"
#include "object.h"
#include "prove.h"
#include "refusal.h"
#include "session.h"
#include "splice.h"
#include "stacks.h"
#include "subject.h"

#define REFRESH_NS    1000000000ULL /* mappings are read again this often */
#define STALE_NS      100000000ULL  /* and at most this often on demand */
#define YOUNG_NS      1000000000ULL /* ld.so maps libraries after an exec */
#define REJECTED_NS   5000000000ULL /* a process is looked at again */
#define REJECTED_MAX  256
#define ANCESTORS_MAX 64
#define SCAN_NS	      1000000000ULL /* globals are walked this often */
#define SCAN_OTHER_NS 50000000ULL   /* another VM of the process */
#define PENDING_ONCE  8		    /* VMs walked at once */
#define SCANS_MAX     200	    /* for one process */

struct lb_session {
	lb_log_fn log;
	void *log_arg;
	struct lb_objects *objects;
	struct lb_subject *subjects; /* newest first; exited ones stay */
	struct lb_subject idle;	     /* PID 0: no process behind it */
	struct lb_stacks *stacks;
	struct lb_traces *traces;
	struct lb_drain *drain;
	struct lb_ksym *ksym;
	struct lb_fold *fold;
	char *stack_text; /* of lb_session_stack() */
	unsigned int watch;
	char *cgroup; /* path below the root of its hierarchy */
	int *roots;   /* PIDs asked for */
	size_t n_roots;
	int *tids;
	size_t n_tids;
	/* processes that were looked at and not taken */
	struct {
		uint32_t tgid;
		uint64_t ns;
	} rejected[REJECTED_MAX];
	size_t n_rejected;
	uint32_t put_rows, put_rules, put_blocks; /* entries in BPF */
	uint64_t not_ready; /* samples of processes not yet set up */
	uint64_t counters[LB_CNT_MAX];
	uint64_t by_splice[LB_SPLICE_GONE + 1]; /* samples in traces */
	unsigned int flags;
	lb_record_fn on_record; /* for records of other types; NULL: none */
	void *on_record_arg;
	char error[512];
	char trouble[512];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

__attribute__((format(printf, 3, 4))) static int
fail(struct lb_session *session, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(session->error, sizeof(session->error), format, args);
	va_end(args);
	return err;
}

__attribute__((format(printf, 3, 4))) static void
say(struct lb_session *session, int level, const char *format, ...)
{
	char line[512];
	va_list args;

	if (!session->log)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	session->log(session->log_arg, level, line);
}

const char *lb_version(void)
{
	return LB_VERSION;
}

const char *lb_wire_id(void)
{
	return LB_WIRE_ID;
}

const char *lb_stop_text(unsigned int stop)
{
	return lb_stop_word(stop);
}

size_t lb_wire_size(const char *name)
{
	static const struct {
		const char *name;
		size_t size;
	} sizes[] = {
		{ "lb_frame", sizeof(struct lb_frame) },
		{ "lb_stack_rec", sizeof(struct lb_stack_rec) },
		{ "lb_proto_rec", sizeof(struct lb_proto_rec) },
		{ "lb_proc_rec", sizeof(struct lb_proc_rec) },
		{ "lb_rule", sizeof(struct lb_rule) },
		{ "lb_row", sizeof(struct lb_row) },
		{ "lb_mapping", sizeof(struct lb_mapping) },
		{ "lb_proc_entry", sizeof(struct lb_proc_entry) },
		{ "lb_config", sizeof(struct lb_config) },
		{ "lb_map_fds", sizeof(struct lb_map_fds) },
		{ "lb_needs", sizeof(struct lb_needs) },
		{ "lb_gc_key", sizeof(struct lb_gc_key) },
		{ "lb_gc_val", sizeof(struct lb_gc_val) },
		{ "lb_gc_event", sizeof(struct lb_gc_event) },
		{ "lb_gc_config", sizeof(struct lb_gc_config) },
		{ "lb_gc_samples", sizeof(struct lb_gc_samples) },
		{ "lb_gc_figures", sizeof(struct lb_gc_figures) },
		{ "lb_totals", sizeof(struct lb_totals) },
		{ "lb_fact", sizeof(struct lb_fact) },
		{ "lb_call_fds", sizeof(struct lb_call_fds) },
		{ "lb_call_totals", sizeof(struct lb_call_totals) },
		{ "lb_call_info", sizeof(struct lb_call_info) },
		{ "lb_edge_info", sizeof(struct lb_edge_info) },
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!strcmp(sizes[i].name, name))
			return sizes[i].size;
	return 0;
}

int lb_session_new(lb_log_fn log, void *log_arg,
		   struct lb_session **session_ret)
{
	struct lb_session *session = calloc(1, sizeof(*session));

	if (!session)
		return -ENOMEM;
	session->log = log;
	session->log_arg = log_arg;
	if (lb_objects_new(&session->objects) ||
	    lb_stacks_new(&session->stacks) ||
	    lb_traces_new(NULL, &session->traces)) {
		lb_session_free(session);
		return -ENOMEM;
	}
	*session_ret = session;
	return 0;
}

void lb_session_free(struct lb_session *session)
{
	if (!session)
		return;
	lb_drain_free(session->drain);
	lb_fold_free(session->fold);
	free(session->stack_text);
	lb_ksym_free(session->ksym);
	lb_stacks_free(session->stacks);
	lb_traces_free(session->traces);
	while (session->subjects) {
		struct lb_subject *subject = session->subjects;

		session->subjects = subject->next;
		lb_subject_free(subject);
	}
	lb_objects_free(session->objects);
	free(session->cgroup);
	free(session->roots);
	free(session->tids);
	free(session);
}

const char *lb_session_error(const struct lb_session *session)
{
	return session->error;
}

/* The living subject of a process, or NULL. */
static struct lb_subject *subject_of(const struct lb_session *session, int pid)
{
	struct lb_subject *subject = session->subjects;

	while (subject && (subject->pid != pid || subject->gone))
		subject = subject->next;
	return subject;
}

/* Rows, rules and blocks that BPF does not have yet. */
static int put_tables(struct lb_session *session)
{
	struct lb_tables *t = lb_objects_tables(session->objects);

	if (!session->drain)
		return 0;
	int err = lb_drain_put_rules(session->drain, t->rules,
				     session->put_rules, t->n_rules);

	if (!err)
		err = lb_drain_put_rows(session->drain, t->rows,
					session->put_rows, t->n_rows);
	if (!err)
		err = lb_drain_put_blocks(session->drain, t->blocks,
					  session->put_blocks, t->n_blocks);
	if (err)
		return err;
	session->put_rules = t->n_rules;
	session->put_rows = t->n_rows;
	session->put_blocks = t->n_blocks;
	return 0;
}

static int put_subject(struct lb_session *session, struct lb_subject *subject)
{
	if (!session->drain)
		return 0;
	int err = put_tables(session);

	if (err)
		return err;
	return lb_drain_put_proc(session->drain, subject->pid, &subject->entry);
}

/* Look at a process and take it. */
static int add_subject(struct lb_session *session, int pid, bool need_vm,
		       struct lb_subject **subject_ret)
{
	struct lb_subject *subject;
	int err = lb_subject_new(session->objects, pid, &subject);

	session->error[0] = 0;
	if (err == -ESRCH)
		return fail(session, err, "PID %d: no such process", pid);
	if (err == -EOPNOTSUPP)
		return fail(
			session, err,
			"PID %d: a 32-bit process; only x86-64 is supported",
			pid);
	if (err)
		return fail(session, err,
			    "PID %d: cannot read its mappings: %s", pid,
			    strerror(-err));
	if (need_vm && !subject->entry.n_vms) {
		char *text = session->error;
		size_t size = sizeof(session->error);

		err = lb_refusal_text(subject, text, size);
		/* in a run over all processes, others are of no interest */
		if (err == -ENOENT && session->watch != LB_WATCH_ALL)
			lb_refusal_other(subject, text, size);
		lb_subject_free(subject);
		return err;
	}
	if (subject->n_dropped)
		say(session, LB_LOG_WARN,
		    "PID %d: %u of its %zu executable mappings are not looked "
		    "at: code there fails with no-map",
		    pid, subject->n_dropped, subject->n_maps);
	subject->refreshed_ns = now_ns();
	subject->next = session->subjects;
	session->subjects = subject;
	err = put_subject(session, subject);
	if (err)
		return fail(session, err, "PID %d: cannot enter it: %s", pid,
			    strerror(-err));
	*subject_ret = subject;
	return 0;
}

static int add_int(int **array, size_t *n, int value)
{
	int *bigger = realloc(*array, (*n + 1) * sizeof(**array));

	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	bigger[(*n)++] = value;
	return 0;
}

/* A number of /proc/PID/status ("Tgid"), or -errno. */
static int status_number(int pid, const char *field)
{
	char path[64], line[256];
	size_t len = strlen(field);
	int value = -ENOENT;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	FILE *file = fopen(path, "re");

	if (!file)
		return errno == ENOENT ? -ESRCH : -errno;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, field, len) && line[len] == ':')
			value = atoi(line + len + 1);
	fclose(file);
	return value;
}

int lb_session_add_pid(struct lb_session *session, int pid, bool need_vm)
{
	struct lb_subject *subject;
	int tgid = status_number(pid, "Tgid");

	if (tgid > 0 && tgid != pid)
		return fail(session, -EINVAL,
			    "PID %d: a thread of process %d, not a process",
			    pid, tgid);
	int err;
	bool changed;

	subject = subject_of(session, pid);
	if (subject) /* asked again, by --wait */
		return lb_subject_refresh(subject, session->objects, &changed);
	err = add_subject(session, pid, need_vm, &subject);

	return err ? err : add_int(&session->roots, &session->n_roots, pid);
}

int lb_session_add_tid(struct lb_session *session, int tid)
{
	struct lb_subject *subject;
	int tgid = status_number(tid, "Tgid");

	if (tgid < 0)
		return fail(session, tgid, "TID %d: no such thread", tid);
	int err = add_int(&session->tids, &session->n_tids, tid);

	if (err || subject_of(session, tgid))
		return err;
	return add_subject(session, tgid, true, &subject);
}

/* ---- which processes ---- */

int lb_session_cgroup(struct lb_session *session, const char *path)
{
	struct stat st;
	char real[4096], mount[4096 + 16];

	if (!realpath(path, real))
		return fail(session, -errno, "%s: %s", path, strerror(errno));
	if (stat(real, &st) || !S_ISDIR(st.st_mode))
		return fail(session, -ENOTDIR, "%s: not a folder", path);
	snprintf(mount, sizeof(mount), "%s/cgroup.procs", real);
	if (access(mount, F_OK))
		return fail(session, -EINVAL, "%s: not a cgroup", path);
	/* up to the root of the hierarchy: the last folder with that file */
	char *end = real + strlen(real);
	char *cut = end;

	while (cut > real) {
		char saved = *cut;

		*cut = 0;
		snprintf(mount, sizeof(mount), "%s/cgroup.procs", real);
		bool inside = !access(mount, F_OK);

		*cut = saved;
		if (!inside)
			break;
		end = cut;
		do
			cut--;
		while (cut > real && *cut != '/');
	}
	free(session->cgroup);
	session->cgroup = strdup(*end ? end : "/");
	return session->cgroup ? 0 : -ENOMEM;
}

/* Is the process below the cgroup asked for? Any hierarchy counts. */
static bool in_cgroup(const struct lb_session *session, int pid)
{
	char path[64], line[4400];
	size_t len = session->cgroup ? strlen(session->cgroup) : 0;
	bool found = false;

	if (!session->cgroup)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		char *at = strchr(line, ':');

		at = at ? strchr(at + 1, ':') : NULL;
		if (!at++)
			continue;
		at[strcspn(at, "\n")] = 0;
		found = len == 1 || (!strncmp(at, session->cgroup, len) &&
				     (at[len] == 0 || at[len] == '/'));
	}
	fclose(file);
	return found;
}

/* Call @take for each process that is not in the run; how many it took. */
static int each_process(struct lb_session *session,
			bool (*take)(struct lb_session *session, int pid),
			size_t *n_ret)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	size_t n = 0;

	if (!dir)
		return fail(session, -errno, "/proc: %s", strerror(errno));
	while ((entry = readdir(dir))) {
		int pid = atoi(entry->d_name);

		if (isdigit((unsigned char)entry->d_name[0]) &&
		    pid != getpid() && !subject_of(session, pid))
			n += take(session, pid);
	}
	closedir(dir);
	session->error[0] = 0;
	*n_ret = n;
	return 0;
}

static bool take_luajit(struct lb_session *session, int pid)
{
	struct lb_subject *subject;

	if (!in_cgroup(session, pid))
		return false;
	int err = add_subject(session, pid, true, &subject);

	if (err == -EOPNOTSUPP)
		say(session, LB_LOG_WARN, "%s", session->error);
	return !err;
}

int lb_session_add_all(struct lb_session *session, size_t *n_ret)
{
	return each_process(session, take_luajit, n_ret);
}

void lb_session_watch(struct lb_session *session, unsigned int watch)
{
	session->watch = watch;
}

/* Is @pid a descendant of a process asked for by PID? */
static bool in_tree(const struct lb_session *session, int pid)
{
	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		for (size_t j = 0; j < session->n_roots; j++)
			if (session->roots[j] == pid)
				return true;
		pid = status_number(pid, "PPid");
	}
	return false;
}

static bool take_descendant(struct lb_session *session, int pid)
{
	struct lb_subject *subject;

	return in_tree(session, pid) &&
	       !add_subject(session, pid, false, &subject);
}

int lb_session_add_tree(struct lb_session *session, size_t *n_ret)
{
	return each_process(session, take_descendant, n_ret);
}

static void reject(struct lb_session *session, uint32_t tgid)
{
	if (session->n_rejected == REJECTED_MAX)
		return;
	session->rejected[session->n_rejected].tgid = tgid;
	session->rejected[session->n_rejected++].ns = now_ns();
}

static void lose_subject(struct lb_subject *subject)
{
	subject->gone = true;
	lb_proc_gone(subject->proc);
}

static void say_mapped(struct lb_session *session,
		       const struct lb_subject *subject)
{
	say(session, LB_LOG_DEBUG, "PID %d: %u executable mappings",
	    subject->pid, subject->entry.n_mappings);
}

/* A process used CPU that is not in the table. */
static void process_new(struct lb_session *session, uint32_t tgid)
{
	struct lb_subject *subject;

	if (subject_of(session, tgid))
		return;
	bool tree = session->watch & LB_WATCH_TREE && in_tree(session, tgid);
	bool all = session->watch & LB_WATCH_ALL &&
		   tgid != (uint32_t)getpid() && in_cgroup(session, tgid);

	session->error[0] = 0;
	if ((!tree && !all) || add_subject(session, tgid, !tree, &subject)) {
		if (session->error[0])
			say(session, LB_LOG_DEBUG, "%s", session->error);
		reject(session, tgid);
		return;
	}
	subject->young_until_ns = now_ns() + YOUNG_NS;
	say_mapped(session, subject);
	session->not_ready += lb_drain_take_unknown(session->drain, tgid);
}

/* A process replaced its image: what was known of it is its past. */
static void process_exec(struct lb_session *session, uint32_t tgid)
{
	struct lb_subject *old = subject_of(session, tgid), *subject;

	if (old) {
		lose_subject(old);
		if (add_subject(session, tgid, false, &subject)) {
			say(session, LB_LOG_WARN, "%s", session->error);
			return;
		}
		subject->young_until_ns = now_ns() + YOUNG_NS;
		say_mapped(session, subject);
	} else {
		process_new(session, tgid);
	}
}

/* A build that was taken was refuted: said once, and its frames go. */
static void refute(struct lb_session *session, struct lb_subject *subject)
{
	char text[512];

	if (subject->vm_unknown) {
		lb_refusal_text(subject, text, sizeof(text));
		say(session, LB_LOG_ERROR, "%s", text);
	}
	put_subject(session, subject);
}

static void refresh(struct lb_session *session, struct lb_subject *subject)
{
	bool changed = false, was_refuted = subject->refuted;
	int err = lb_subject_refresh(subject, session->objects, &changed);

	subject->refreshed_ns = now_ns();
	if (err) {
		lose_subject(subject);
		lb_drain_del_proc(session->drain, subject->pid);
	} else if (changed) {
		if (subject->refuted && !was_refuted)
			refute(session, subject);
		else
			put_subject(session, subject);
		say_mapped(session, subject);
	}
}

/*
 * Walk the globals of a VM when it is first seen, and again while functions
 * have no name: modules may be loaded later. Bounded, since each walk costs the
 * tool some milliseconds.
 */
static void scan_vm(struct lb_session *session, struct lb_subject *subject,
		    uint64_t g_addr, uint32_t vm)
{
	int err = lb_names_scan_tables(subject->names, g_addr,
				       &subject->entry.lj[vm]);

	if (err)
		say(session, LB_LOG_DEBUG, "PID %d: globals of VM 0x%llx: %s",
		    subject->pid, (unsigned long long)g_addr, strerror(-err));
	subject->scanned_g = g_addr;
	subject->scanned_ns = now_ns();
	subject->n_scans++;
}

/* VMs that came right after another one had its turn. */
static void scan_pending(struct lb_session *session, struct lb_subject *subject,
			 size_t n)
{
	for (; n && subject->n_pending; n--) {
		subject->n_pending--;

		uint32_t vm = subject->pending[subject->n_pending].vm;

		if (vm < subject->entry.n_vms)
			scan_vm(session, subject,
				subject->pending[subject->n_pending].g_addr,
				vm);
	}
}

static void scan_tables(struct lb_session *session, struct lb_subject *subject,
			const struct lb_stack_rec *rec)
{
	uint64_t age = now_ns() - subject->scanned_ns;

	if (!rec->g_addr || rec->vm >= subject->entry.n_vms ||
	    subject->n_scans >= SCANS_MAX)
		return;
	if (age >=
	    (rec->g_addr == subject->scanned_g ? SCAN_NS : SCAN_OTHER_NS)) {
		scan_vm(session, subject, rec->g_addr, rec->vm);
		return;
	}
	if (rec->g_addr == subject->scanned_g)
		return;
	for (size_t i = 0; i < subject->n_pending; i++)
		if (subject->pending[i].g_addr == rec->g_addr)
			return;
	if (subject->n_pending < LB_PENDING_MAX) {
		subject->pending[subject->n_pending].g_addr = rec->g_addr;
		subject->pending[subject->n_pending++].vm = rec->vm;
	}
}

static void follow(struct lb_session *session)
{
	uint64_t now = now_ns();

	for (struct lb_subject *subject = session->subjects; subject;
	     subject = subject->next) {
		uint64_t age = now - subject->refreshed_ns;

		if (!subject->gone &&
		    (age > REFRESH_NS || (subject->stale && age > STALE_NS)))
			refresh(session, subject);
	}
	while (session->n_rejected &&
	       now - session->rejected[0].ns > REJECTED_NS) {
		lb_drain_take_unknown(session->drain,
				      session->rejected[0].tgid);
		memmove(session->rejected, session->rejected + 1,
			--session->n_rejected * sizeof(session->rejected[0]));
	}
}

size_t lb_session_with_vm(const struct lb_session *session)
{
	size_t n = 0;

	for (const struct lb_subject *subject = session->subjects; subject;
	     subject = subject->next)
		n += !subject->gone && subject->entry.n_vms;
	return n;
}

size_t lb_session_alive(const struct lb_session *session)
{
	size_t n = 0;

	for (const struct lb_subject *subject = session->subjects; subject;
	     subject = subject->next)
		n += !subject->gone;
	return n;
}

/* ---- records ---- */

/* Records of a process may come after it is gone. */
static struct lb_subject *subject_for_record(const struct lb_session *session,
					     uint32_t tgid)
{
	struct lb_subject *subject = subject_of(session, tgid);

	if (subject)
		return subject;
	for (subject = session->subjects; subject; subject = subject->next)
		if (subject->pid == (int)tgid)
			return subject;
	return NULL;
}

int lb_session_add_proto(struct lb_session *session,
			 const struct lb_proto_rec *rec, uint32_t *id_ret)
{
	struct lb_subject *subject = subject_for_record(session, rec->tgid);

	if (!subject || rec->vm >= subject->entry.n_vms)
		return -ENOENT;
	const struct lj_offsets *lj = &subject->entry.lj[rec->vm];

	if (!lb_names_add_proto(subject->names, rec, lj, id_ret) &&
	    !lb_subject_set_proto(subject, rec->proto_addr, *id_ret))
		return 0;
	say(session, LB_LOG_DEBUG, "PID %d: a function has no name: %s",
	    subject->pid, strerror(ENOMEM));
	return -ENOMEM;
}

/* Tell BPF of a VM that its registers do not show in every state. */
static void hint_vm(struct lb_session *session, struct lb_subject *subject,
		    const struct lb_stack_rec *rec)
{
	if (rec->g_addr && rec->vm < subject->entry.n_vms &&
	    lb_subject_hint(subject, rec->vm, rec->g_addr))
		put_subject(session, subject);
}

/* Before the first sample of a VM is believed. */
static void prove(struct lb_session *session, struct lb_subject *subject,
		  const struct lb_stack_rec *rec)
{
	int changed = lb_prove_at(subject, rec->vm, rec->g_addr);

	if (changed == -EBADMSG) {
		lb_subject_refute(subject, session->objects);
		refute(session, subject);
	} else if (changed) {
		put_subject(session, subject);
	}
}

/* @data without what was walked by offsets that are wrong. */
static int add_without_lua(struct lb_session *session,
			   struct lb_subject *subject, const void *data,
			   size_t size)
{
	_cleanup_free_ uint8_t *copy = malloc(size);
	struct lb_stack_rec rec;
	uint16_t n = 0;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, data, size);
	memcpy(&rec, data, sizeof(rec));
	while (n < rec.n_frames &&
	       sizeof(rec) + (n + 1) * sizeof(struct lb_frame) <= size) {
		struct lb_frame frame;

		memcpy(&frame, copy + sizeof(rec) + n * sizeof(frame),
		       sizeof(frame));
		if (frame.kind != LB_FRAME_KERNEL &&
		    frame.kind != LB_FRAME_NATIVE)
			break;
		n++;
	}
	rec.n_frames = n;
	rec.stop = LB_STOP_NO_VM;
	rec.g_addr = 0;
	rec.has_lua = 0;
	memcpy(copy, &rec, sizeof(rec));
	return lb_stacks_add(session->stacks, subject, session->objects, copy,
			     sizeof(rec) + n * sizeof(struct lb_frame));
}

static int add_stack(struct lb_session *session, struct lb_subject *subject,
		     const struct lb_stack_rec *rec, const void *data,
		     size_t size)
{
	if (rec->tgid && rec->g_addr)
		prove(session, subject, rec);
	if (subject->refuted && rec->g_addr)
		return add_without_lua(session, subject, data, size);
	return lb_stacks_add(session->stacks, subject, session->objects, data,
			     size);
}

static void record_stack(struct lb_session *session, const void *data,
			 size_t size)
{
	struct lb_stack_rec rec;

	memcpy(&rec, data, sizeof(rec));
	/* the idle task has kernel frames alone */
	struct lb_subject *subject =
		rec.tgid ? subject_for_record(session, rec.tgid)
			 : &session->idle;

	if (!subject || add_stack(session, subject, &rec, data, size))
		return; /* counted by the kernel, missing from ours: lost */
	struct lb_stack *stack = lb_stacks_find(session->stacks, rec.hash);

	if (rec.tgid) {
		scan_tables(session, subject, &rec);
		hint_vm(session, subject, &rec);
	}
	if (stack && stack->in_trace && session->flags & LB_CONFIG_TRACES)
		lb_splice_want(session->traces, stack);
	if (rec.stop == LB_STOP_NO_MAP)
		subject->stale = true;
}

static void record(void *arg, const void *data, size_t size)
{
	struct lb_session *session = arg;
	uint32_t type;

	if (size < sizeof(struct lb_proc_rec))
		return;
	memcpy(&type, data, sizeof(type));
	if (type == LB_REC_STACK && size >= sizeof(struct lb_stack_rec)) {
		record_stack(session, data, size);
	} else if (type == LB_REC_PROTO &&
		   size >= sizeof(struct lb_proto_rec)) {
		struct lb_proto_rec rec;
		uint32_t id;

		memcpy(&rec, data, sizeof(rec));
		lb_session_add_proto(session, &rec, &id);
	} else if (type == LB_REC_PROC_NEW || type == LB_REC_PROC_EXEC) {
		struct lb_proc_rec rec;

		memcpy(&rec, data, sizeof(rec));
		if (type == LB_REC_PROC_NEW)
			process_new(session, rec.tgid);
		else
			process_exec(session, rec.tgid);
	} else if (session->on_record) {
		session->on_record(session->on_record_arg, data, size);
	}
}

/* ---- for other parts ---- */

void lb_session_on_record(struct lb_session *session, lb_record_fn fn,
			  void *arg)
{
	session->on_record = fn;
	session->on_record_arg = arg;
}

struct lb_subject *lb_session_subjects(const struct lb_session *session)
{
	return session->subjects;
}

struct lb_subject *lb_session_subject(const struct lb_session *session,
				      uint32_t tgid)
{
	return subject_for_record(session, tgid);
}

void lb_session_scan(struct lb_session *session, struct lb_subject *subject,
		     uint64_t g_addr, uint32_t vm)
{
	uint64_t age = now_ns() - subject->scanned_ns;

	if (g_addr && vm < subject->entry.n_vms &&
	    subject->n_scans < SCANS_MAX &&
	    (g_addr != subject->scanned_g || age >= SCAN_NS))
		scan_vm(session, subject, g_addr, vm);
}

unsigned int lb_session_flags(const struct lb_session *session)
{
	return session->flags;
}

int lb_session_fail(struct lb_session *session, int err, const char *format,
		    ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(session->error, sizeof(session->error), format, args);
	va_end(args);
	return err;
}

/* ---- the run ---- */

void lb_session_needs(const struct lb_session *session,
		      struct lb_needs *needs_ret)
{
	const struct lb_tables *t = lb_objects_tables(session->objects);

	needs_ret->rows = t->n_rows;
	needs_ret->blocks = t->n_blocks;
	needs_ret->rules = t->n_rules;
	needs_ret->procs = lb_session_alive(session);
	needs_ret->ref32 = 0;
	for (const struct lb_subject *subject = session->subjects; subject;
	     subject = subject->next)
		for (unsigned int i = 0; i < subject->entry.n_vms; i++)
			if (!subject->entry.lj[i].gc64)
				needs_ret->ref32 = 1;
}

static int set_config(struct lb_session *session, unsigned int flags)
{
	struct lb_config config = { .flags = flags };

	return lb_drain_put_config(session->drain, &config);
}

int lb_session_configure(struct lb_session *session, unsigned int flags)
{
	session->flags = flags;
	return set_config(session, flags);
}

int lb_session_start(struct lb_session *session, const struct lb_map_fds *fds,
		     const struct lb_needs *room, unsigned int flags)
{
	struct lb_tables *t = lb_objects_tables(session->objects);
	int err = lb_drain_new(fds, record, session, &session->drain);

	if (err)
		return fail(session, err, "cannot use the maps: %s",
			    strerror(-err));
	t->max_rows = room->rows;
	t->max_rules = room->rules;
	t->max_blocks = room->blocks;
	if (session->n_tids)
		flags |= LB_CONFIG_TIDS;
	if (session->watch)
		flags |= LB_CONFIG_DISCOVER;
	err = put_tables(session);
	for (struct lb_subject *subject = session->subjects; subject && !err;
	     subject = subject->next)
		err = put_subject(session, subject);
	for (size_t i = 0; i < session->n_tids && !err; i++)
		err = lb_drain_put_tid(session->drain, session->tids[i]);
	if (!err)
		err = set_config(session, flags);
	if (err)
		return fail(session, err, "cannot fill the tables: %s",
			    strerror(-err));
	session->flags = flags;
	return 0;
}

int lb_session_set_prog(int progs_fd, unsigned int slot, int prog_fd)
{
	if (bpf_map_update_elem(progs_fd, &slot, &prog_fd, BPF_ANY))
		return -errno;
	return 0;
}

int lb_session_poll(struct lb_session *session, int timeout_ms)
{
	int err = lb_drain_poll(session->drain, timeout_ms);

	if (err)
		return fail(session, err, "ring buffer: %s", strerror(-err));
	lb_traces_poll(session->traces);
	follow(session);
	return 0;
}

static void stack_count(void *arg, const struct lb_count_key *key,
			uint64_t count)
{
	struct lb_session *session = arg;
	struct lb_stack *stack = lb_stacks_find(session->stacks, key->stack);

	if (stack && lb_stack_add_leaf(stack, key->leaf, count))
		say(session, LB_LOG_WARN, "%llu samples lost: %s",
		    (unsigned long long)count, strerror(ENOMEM));
}

/* Which of the samples in traces show what really ran there. */
static void count_traces(struct lb_session *session)
{
	for (size_t i = 0; i < lb_stacks_count(session->stacks); i++) {
		struct lb_stack *stack = lb_stacks_at(session->stacks, i);

		for (size_t k = 0; stack->in_trace && k < stack->n_leaves;
		     k++) {
			lb_stack_bind_leaf(stack, session->objects, k);
			struct lb_splice splice =
				lb_splice_first(session->traces, stack);

			session->by_splice[splice.kind] +=
				stack->leaves[k].count;
			if (splice.map)
				splice.map->samples += stack->leaves[k].count;
		}
	}
}

int lb_session_stop(struct lb_session *session)
{
	int err = set_config(session, session->flags | LB_CONFIG_OFF);

	/* a sample that has passed the test is done within microseconds */
	usleep(2000);
	if (!err)
		err = lb_drain_poll(session->drain, 0);
	for (struct lb_subject *subject = session->subjects; subject;
	     subject = subject->next)
		scan_pending(session, subject, LB_PENDING_MAX);
	if (!err)
		err = lb_drain_counts(session->drain, stack_count, session);
	if (!err)
		err = lb_drain_counters(session->drain, session->counters);
	if (err)
		return fail(session, err, "cannot read the counts: %s",
			    strerror(-err));
	lb_traces_poll(session->traces);
	count_traces(session);
	return 0;
}

/* ---- results ---- */

int lb_session_fold(struct lb_session *session, unsigned int flags,
		    size_t *n_ret)
{
	const struct lb_folded *texts;

	lb_fold_free(session->fold);
	session->fold = NULL;
	if (!session->ksym && session->flags & LB_CONFIG_KERNEL) {
		int err = lb_ksym_new(&session->ksym);

		if (err)
			say(session, LB_LOG_WARN,
			    "kernel symbols cannot be read (%s): kernel frames "
			    "are [unknown]",
			    strerror(-err));
	}
	int err = lb_fold_new(session->stacks, session->objects, session->ksym,
			      session->traces, flags, &session->fold);

	if (err)
		return fail(session, err, "%s", strerror(-err));
	*n_ret = lb_fold_texts(session->fold, &texts);
	return 0;
}

const char *lb_session_folded(const struct lb_session *session, size_t i,
			      uint64_t *count_ret, int *pid_ret)
{
	const struct lb_folded *texts;

	if (!session->fold || i >= lb_fold_texts(session->fold, &texts))
		return NULL;
	*count_ret = texts[i].count;
	*pid_ret = texts[i].pid;
	return texts[i].text;
}

const char *lb_session_stack(struct lb_session *session, uint64_t hash,
			     uint64_t leaf, unsigned int flags)
{
	struct lb_stack *stack = lb_stacks_find(session->stacks, hash);

	free(session->stack_text);
	session->stack_text =
		stack ? lb_fold_one(stack, leaf, session->objects,
				    session->ksym, session->traces, flags)
		      : NULL;
	return session->stack_text;
}

static void add_total(struct lb_totals *t, const struct lb_stack *stack)
{
	unsigned int stop = stack->rec.stop;

	t->stacks += stack->n_leaves;
	t->samples += stack->count;
	if (stack->in_trace)
		t->in_trace += stack->count;
	/* the root was reached, but not in one piece */
	if (stop == LB_STOP_ROOT && stack->broken)
		stop = LB_STOP_LUA;
	else if (stop == LB_STOP_ROOT && stack->skipped)
		stop = LB_STOP_NO_ROW;
	if (stop == LB_STOP_STEPS)
		stop = LB_STOP_TRUNCATED;
	t->by_stop[stop] += stack->count;
	if (stop == LB_STOP_TRUNCATED) {
		t->truncated += stack->count;
	} else if (stop != LB_STOP_ROOT) {
		t->failed += stack->count;
	} else {
		t->complete += stack->count;
		if (stack->rec.has_lua)
			t->with_lua += stack->count;
	}
}

void lb_session_totals(const struct lb_session *session,
		       struct lb_totals *totals_ret)
{
	struct lb_totals t = { 0 };
	uint64_t walks = 0;

	for (size_t i = 0; i < lb_stacks_count(session->stacks); i++) {
		const struct lb_stack *s = lb_stacks_at(session->stacks, i);

		if (s->count)
			add_total(&t, s);
	}
	/* the kernel counts every walk: what is not among ours was lost */
	for (int i = 0; i < LB_STOP_MAX; i++)
		walks += session->counters[LB_CNT_STOP + i];
	t.lost_storage = session->counters[LB_CNT_LOST_STORAGE];
	t.lost_ring = session->counters[LB_CNT_LOST_RING];
	t.lost_other = session->counters[LB_CNT_LOST_STATE];
	if (walks > t.samples + t.lost_storage + t.lost_ring)
		t.lost_other +=
			walks - t.samples - t.lost_storage - t.lost_ring;
	t.not_ready = session->not_ready;
	t.by_stop[LB_STOP_NOT_READY] += session->not_ready;
	t.failed += session->not_ready;
	t.samples += session->not_ready;
	t.lost = t.lost_storage + t.lost_ring + t.lost_other;
	t.traces_exact = session->by_splice[LB_SPLICE_EXACT];
	t.traces_coarse = session->by_splice[LB_SPLICE_COARSE];
	t.traces_gone = session->by_splice[LB_SPLICE_GONE];
	*totals_ret = t;
}

const char *lb_session_trouble(const struct lb_session *session, size_t i)
{
	for (size_t j = 0; j < lb_objects_count(session->objects); j++) {
		const struct lb_object *object =
			lb_objects_at(session->objects, j);
		char *text = (char *)session->trouble;
		size_t size = sizeof(session->trouble);
		const struct lb_unwind *unwind = object->unwind;
		uint64_t n_bad = unwind ? unwind->n_bad_records : 0;

		if (!object->unwind_err && !n_bad)
			continue;
		if (i--)
			continue;
		if (object->unwind_err == -ENOSPC)
			snprintf(text, size, "%s: no room for its unwind table",
				 object->name);
		else if (object->unwind_err == -ENODATA)
			snprintf(text, size, "%s: no .eh_frame", object->name);
		else if (object->unwind_err)
			snprintf(text, size,
				 "%s: its unwind table cannot be "
				 "used: %s",
				 object->name, strerror(-object->unwind_err));
		else
			snprintf(text, size,
				 "%s: %llu malformed records in "
				 ".eh_frame",
				 object->name, (unsigned long long)n_bad);
		return text;
	}
	return NULL;
}

const char *lb_session_trace(struct lb_session *session, size_t i)
{
	return lb_traces_text(session->traces, i);
}
