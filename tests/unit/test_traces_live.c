/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of live interpreters against what LuaJIT itself says of them: the
 * program tests/lua/inlined.lua prints the frames of each snapshot
 * (jit.util.tracesnap, tracek) and for each instruction that was recorded its
 * function, its line and how much IR there was (the compiler's events).
 *
 * Functions are told apart by their first line.
 *
 * LB_LUAJIT (default /usr/bin/luajit) and LB_LUAJIT_UPSTREAM name the
 * interpreters. Run in the top folder of the source tree.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lb_test.h"
#include "subject.h"
#include "tracemap.h"

#define PROGRAM	    "tests/lua/inlined.lua"
#define TRACES_MAX  256
#define FRAMES_MAX  16
#define SNAPS_MAX   4096
#define EVENTS_MAX  65536
#define READ_BUDGET 100000
#define C_FUNCTION  0 /* instead of a first line */

struct snap { /* what LuaJIT says */
	unsigned int trace, i, ref;
	int lines[FRAMES_MAX]; /* of inlined functions, innermost last */
	int n;
};

struct event {
	unsigned int trace, ref;
	int first_line, line;
};

struct facts {
	uint64_t thread;
	unsigned int traces[TRACES_MAX];
	struct snap snaps[SNAPS_MAX];
	struct event events[EVENTS_MAX];
	size_t n_traces, n_snaps, n_events;
};

struct live {
	pid_t pid;
	int stdin_fd;
	struct lb_objects *objects;
	struct lb_subject *subject;
	struct lb_funcs *funcs;
	struct lb_target target;
	uint64_t g_addr;
	struct facts facts;
};

/* What was compared. */
struct tally {
	size_t snaps, inlined, spans, exact, bytes, exact_bytes;
	size_t wrong_functions, wrong_lines;
};

static int read_live(void *arg, uint64_t addr, void *buf, size_t size)
{
	return lb_proc_read(arg, addr, buf, size);
}

/* ---- the program and what it says ---- */

static void parse_snap(struct facts *facts, const char *text)
{
	struct snap *snap = &facts->snaps[facts->n_snaps];
	int at = 0;

	memset(snap, 0, sizeof(*snap));
	if (facts->n_snaps == SNAPS_MAX ||
	    sscanf(text, "snap %u %u %u %n", &snap->trace, &snap->i, &snap->ref,
		   &at) != 3)
		return;
	for (const char *p = text + at; *p && *p != '\n';) {
		if (snap->n == FRAMES_MAX)
			return;
		snap->lines[snap->n++] = *p == 'C' ? C_FUNCTION : atoi(p);
		p += strcspn(p, ",\n");
		p += *p == ',';
	}
	facts->n_snaps++;
}

static void parse_line(struct facts *facts, const char *text)
{
	struct event *event = &facts->events[facts->n_events];
	unsigned int trace;

	if (sscanf(text, "event %u %u %d %d", &event->trace, &event->ref,
		   &event->first_line, &event->line) == 4) {
		facts->n_events += facts->n_events < EVENTS_MAX - 1;
	} else if (!strncmp(text, "snap ", 5)) {
		parse_snap(facts, text);
	} else if (sscanf(text, "trace %u", &trace) == 1) {
		if (facts->n_traces < TRACES_MAX)
			facts->traces[facts->n_traces++] = trace;
	} else if (!strncmp(text, "thread ", 7)) {
		facts->thread = strtoull(text + 7, NULL, 16);
	}
}

static bool read_facts(struct facts *facts, const char *path)
{
	char text[1024];
	FILE *file = fopen(path, "r");

	if (!file)
		return false;
	while (fgets(text, sizeof(text), file))
		parse_line(facts, text);
	fclose(file);
	return facts->thread && facts->n_traces;
}

/* Until the program has printed "ready". */
static bool start(const char *luajit, const char *path, struct live *live)
{
	int to[2], from[2];
	char text[64] = "";

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) {
		perror("pipe");
		exit(1);
	}
	live->pid = fork();
	if (!live->pid) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		execl(luajit, luajit, PROGRAM, "oracle", path, NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	live->stdin_fd = to[1];
	FILE *out = fdopen(from[0], "r");
	bool ready = fgets(text, sizeof(text), out) && !strcmp(text, "ready\n");

	fclose(out);
	return ready;
}

static void stop(struct live *live)
{
	close(live->stdin_fd);
	waitpid(live->pid, NULL, 0);
	lb_funcs_free(live->funcs);
	lb_subject_free(live->subject);
	lb_objects_free(live->objects);
	free(live);
}

static struct live *setup(const char *variable, const char *standard)
{
	const char *luajit = getenv(variable);
	char path[] = "/tmp/lb-traces-XXXXXX";
	int fd;

	luajit = luajit ? luajit : standard;
	if (!luajit || access(luajit, X_OK)) {
		SKIP("luajit: no luajit");
		return NULL;
	}
	struct live *live = calloc(1, sizeof(*live));

	fd = mkstemp(path);
	if (!live || fd < 0)
		exit(1);
	close(fd);
	bool ready =
		start(luajit, path, live) && read_facts(&live->facts, path);

	unlink(path);
	CHECK(ready);
	CHECK_INT(lb_objects_new(&live->objects), 0);
	CHECK_INT(lb_subject_new(live->objects, live->pid, &live->subject), 0);
	if (!ready || !live->subject || !live->subject->entry.n_vms) {
		CHECK(!"a process with a LuaJIT that can be walked");
		stop(live);
		return NULL;
	}
	const struct lj_offsets *off = &live->subject->entry.lj[0];

	live->target = (struct lb_target){ .read = read_live,
					   .read_arg = live->subject->proc,
					   .off = off,
					   .budget = READ_BUDGET };
	CHECK_INT(lb_proc_read(live->subject->proc,
			       live->facts.thread + off->l_glref, &live->g_addr,
			       off->gc64 ? 8 : 4),
		  0);
	CHECK_INT(lb_funcs_new(live->subject->names, &live->funcs), 0);
	lb_names_scan_tables(live->subject->names, live->g_addr, off);
	return live;
}

/* ---- frames of snapshots ---- */

static int first_line(struct live *live, const struct lb_trace_frame *f)
{
	struct lb_func func = { .addr = 0 };

	if (f->func && lb_funcs_func(live->funcs, f->func, &func))
		return -1;
	if (!f->func)
		func.proto = lb_funcs_proto(live->funcs, f->proto);
	return func.proto  ? (int)func.proto->proto.first_line
	       : func.ffid ? C_FUNCTION
			   : -1;
}

static void compare_snap(struct live *live, const struct lb_trace *trace,
			 const struct snap *want, struct tally *tally)
{
	static struct lb_trace_snap snap;
	bool same;

	CHECK_INT(lb_trace_snap(live->target.off, trace, want->i, &snap), 0);
	CHECK_INT(snap.ref, want->ref + LB_IR_BIAS);
	same = (int)snap.n_frames == want->n + 1;
	for (int i = 0; same && i < want->n; i++)
		same = first_line(live, &snap.frames[i + 1]) == want->lines[i];
	if (!same)
		fprintf(stderr, "trace %u, snapshot %u: other frames\n",
			trace->no, want->i);
	CHECK(same);
	tally->snaps++;
	tally->inlined += want->n > 0;
}

/* ---- machine code ---- */

/*
 * Was this function (and line) recorded into the IR [ref, end)? An event says
 * how much IR there was before; what follows up to the next is its own.
 */
static bool recorded(const struct facts *facts, unsigned int trace,
		     uint32_t ref, uint32_t end, int first, int line,
		     bool *line_ret, bool *any_ret)
{
	bool found = false;

	*line_ret = *any_ret = false;
	for (size_t i = 0; i + 1 < facts->n_events; i++) {
		const struct event *e = &facts->events[i];

		if (e->trace != trace)
			continue;
		/* nins as jit.util has it is one less than the next */
		uint32_t lo = e->ref + 1;
		uint32_t hi = e[1].trace == trace ? e[1].ref + 1 : UINT32_MAX;

		if (lo >= hi || hi <= ref || lo >= end)
			continue;
		*any_ret = true;
		if (e->first_line != first)
			continue;
		found = true;
		*line_ret = *line_ret || e->line == line;
	}
	return found;
}

static void compare_span(struct live *live, const struct lb_trace *trace,
			 const struct lb_tracemap *map, uint32_t i,
			 struct tally *tally)
{
	const struct lb_trace_span *span = &map->spans[i];
	static struct lb_trace_snap snap;
	uint32_t end =
		i + 1 < map->n_spans ? map->spans[i + 1].ofs : map->szmcode;
	uint32_t ref = LB_IR_BIAS, ref_end = trace->nins;
	const char *text;
	bool right_line, any;

	tally->spans++;
	tally->bytes += end - span->ofs;
	if (!span->exact || span->node >= map->n_nodes)
		return;
	tally->exact++;
	tally->exact_bytes += end - span->ofs;
	/* the second copy of a loop was not recorded */
	if (map->nodes[span->node].ffid ||
	    (trace->mcloop && span->ofs >= trace->mcloop))
		return;
	for (uint32_t k = 0; k < trace->n_snaps; k++) {
		if (lb_trace_snap(live->target.off, trace, k, &snap))
			continue;
		if (snap.mcofs <= span->ofs)
			ref = snap.ref;
		else if (snap.mcofs >= end && ref_end == trace->nins)
			ref_end = snap.ref;
	}
	text = strrchr(lb_names_proto_text(live->subject->names,
					   map->nodes[span->node].proto_id,
					   LB_LINE_UNKNOWN),
		       ':');
	int first = text ? atoi(text + 1) : -1;

	if (!recorded(&live->facts, trace->no, ref - LB_IR_BIAS,
		      ref_end - LB_IR_BIAS, first, (int)span->line, &right_line,
		      &any) &&
	    any) {
		tally->wrong_functions++;
		fprintf(stderr, "trace %u at %u: %s was not recorded\n",
			trace->no, span->ofs, text);
	} else if (any && !right_line) {
		tally->wrong_lines++;
	}
}

static void compare_trace(struct live *live, unsigned int no,
			  struct tally *tally)
{
	const struct facts *facts = &live->facts;
	struct lb_trace trace;
	struct lb_tracemap *map;

	live->target.budget = READ_BUDGET;
	int err = lb_trace_read(&live->target, live->g_addr, no, 0, &trace);

	CHECK_INT(err, 0);
	if (err)
		return;
	lb_funcs_round(live->funcs, &live->target, live->g_addr, 0);
	for (size_t i = 0; i < facts->n_snaps; i++)
		if (facts->snaps[i].trace == no)
			compare_snap(live, &trace, &facts->snaps[i], tally);
	CHECK_INT(lb_tracemap_new(&live->target, live->funcs, &trace, &map), 0);
	for (uint32_t i = 0; i < map->n_spans; i++)
		compare_span(live, &trace, map, i, tally);
	CHECK_INT(lb_trace_check(&live->target, live->g_addr, &trace), 0);
	lb_tracemap_free(map);
	lb_trace_fini(&trace);
}

static void compare_build(const char *variable, const char *standard)
{
	struct live *live = setup(variable, standard);
	struct tally tally = { .snaps = 0 };

	if (!live)
		return;
	for (size_t i = 0; i < live->facts.n_traces; i++)
		compare_trace(live, live->facts.traces[i], &tally);
	fprintf(stderr,
		"%zu traces, %zu snapshots (%zu inlined), %zu of %zu spans and "
		"%zu of %zu bytes exact, %zu wrong functions, %zu wrong "
		"lines\n",
		live->facts.n_traces, tally.snaps, tally.inlined, tally.exact,
		tally.spans, tally.exact_bytes, tally.bytes,
		tally.wrong_functions, tally.wrong_lines);
	CHECK(tally.snaps > 50 && tally.inlined > 10);
	CHECK(tally.exact_bytes * 2 > tally.bytes);
	CHECK_INT(tally.wrong_functions, 0);
	CHECK(tally.wrong_lines * 20 <= tally.exact);
	stop(live);
}

static void test_traces_of_luajit2(void)
{
	compare_build("LB_LUAJIT", "/usr/bin/luajit");
}

static void test_traces_of_upstream(void)
{
	compare_build("LB_LUAJIT_UPSTREAM",
		      ".output/deb/upstream/usr/bin/luajit");
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_traces_of_luajit2),
		LB_TEST(test_traces_of_upstream),
	};

	return LB_TEST_MAIN(cases);
}
